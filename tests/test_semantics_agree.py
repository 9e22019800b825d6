"""The comparison of a derived form with its source: right forms agree, each wrong one is told apart with a witness."""

from __future__ import annotations

import pytest
from test_search import PROGRAMS, Machine

from moa_rewrite import lang, rules, search
from moa_rewrite.semantics.agree import disagreement, small_sizes
from moa_rewrite.terms import parse_term


def form(name: str):
    kernel = lang.elaborate(lang.load(PROGRAMS[name][0]))
    return kernel, search.optimize(kernel, rules.load(), Machine, PROGRAMS[name][1], search.Options(timeout=120)).kernel


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_right_forms_agree(name):
    assert disagreement(*form(name)) is None


@pytest.mark.parametrize(
    ("old", "new"), [("A[@i, @l] * B[@l, @j]", "A[@i, @l] + B[@l, @j]"), ('"add"', '"max"'), ("<@i, @j>", "<@j, @i>"), ("A[@i, @l]", "A[@i, 0]")]
)
def test_wrong_forms_do_not(old, new):
    kernel = lang.elaborate(lang.load("kernel f(A: f64[n, k], B: f64[k, m]) -> f64[n, m] = A +.× B"))
    right = 'for("i", n, "seq", for("j", m, "seq", for("l", k, "seq", emit("add", "out", <@i, @j>, A[@i, @l] * B[@l, @j]))))'
    assert disagreement(kernel, kernel.with_body(parse_term(right))) is None
    assert old in right
    witness = disagreement(kernel, kernel.with_body(parse_term(right.replace(old, new, 1))), count=6)
    assert witness is not None and "n = " in witness


def test_sizes_meet_the_conditions():
    kernel = lang.elaborate(lang.load("kernel f(x: f64[n], w: f64[k]) -> f64[n - k + 1] where k >= 2 = fill(<n - k + 1>, 0.0)"))
    assert all(s["k"] >= 2 and s["n"] >= s["k"] - 1 for s in small_sizes(kernel, 5))


def test_a_law_that_is_wrong_in_values_only_is_found(tmp_path):
    law = tmp_path / "wrong.moar"
    law.write_text('rule "cheap-exp" {\n  doc "wrong"\n  exp(a) => a\n}\n', encoding="utf-8")
    kernel = lang.elaborate(lang.load(PROGRAMS["softmax"][0]))
    result = search.optimize(kernel, rules.load([law]), Machine, PROGRAMS["softmax"][1])
    assert any(s.rule == "cheap-exp" for s in result.steps)
    assert disagreement(kernel, result.kernel) is not None
