"""Reductions of fewer cells than cores run in parts: which are cut, and that the parts keep all cores busy."""

from __future__ import annotations

import pytest
from test_search_cost import RULES, Machine

from moa_rewrite import lang
from moa_rewrite.rules import psi_normalise
from moa_rewrite.search import Options
from moa_rewrite.search.candidate import Form
from moa_rewrite.search.form import rename_axes
from moa_rewrite.search.optimize import _Search
from moa_rewrite.search.parts import EACH, LEAST, parted
from moa_rewrite.terms import Kernel, subterms

SUM = "kernel f(x: f32[n]) -> f32 = + red x"
SOFTMAX = "kernel f(x: f32[n], y: f32[n]) -> f32 where n >= 1 = softmax(x) +.× y"
NORM = "kernel f(x: f32[n, m]) -> f32[n] where m >= 1 = sqrt ((+ red Ω<1> (x × x)) ÷ f32(m))"


def form(text: str) -> Form:
    return Form(rename_axes(psi_normalise(lang.elaborate(lang.load(text)), RULES)[0], RULES)[0], (), "as written")


def cut(text: str, cores: int, **sizes: int) -> list[int]:
    """How many parts each reduction has been cut into."""
    found = parted(form(text), RULES, cores, sizes)
    return [] if found is None else [int(s.subst["D"]) for s in found.steps if s.rule == "parts"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "cores", "sizes", "parts"),
    [
        (SUM, 2, {"n": 1 << 20}, [2 * EACH]),
        (SUM, 64, {"n": 1 << 24}, [64 * EACH]),
        (SUM, 64, {"n": 10 * LEAST}, [10]),
        (SUM, 2, {"n": 2 * LEAST - 1}, []),
        (NORM, 4, {"n": 3, "m": 1 << 20}, [4 * EACH]),
        (NORM, 4, {"n": 4, "m": 1 << 20}, []),
        ("kernel f(x: f32[n, m]) -> f32 = max red (+ red Ω<1> x)", 2, {"n": 4096, "m": 8}, [8]),  # the inner sums have cells enough
        ("kernel f(x: f32[n]) -> (s: f32, t: f32, y: f32[n]) = (+ red x, max red x, x + 1.0)", 2, {"n": 1 << 20}, [16, 16]),
        (SOFTMAX, 2, {"n": 1 << 20}, [16, 16, 16, 16]),
    ],
)
def test_which_are_cut(text: str, cores: int, sizes: dict[str, int], parts: list[int]) -> None:
    assert cut(text, cores, **sizes) == parts


def test_equal_reductions_stay_equal() -> None:
    """The maximum of softmax stands in two places."""
    found = parted(form(SOFTMAX), RULES, 2, {"n": 1 << 20})
    assert found is not None
    assert len({u for u in subterms(found.kernel.body) if u.op == "reduce" and u.args[0] == "max" and u.args[2].op == "int"}) == 1


def test_without_the_law_there_are_no_parts() -> None:
    from moa_rewrite import rules

    assert parted(form(SUM), rules.load(without=["parts"]), 2, {"n": 1 << 20}) is None


def searched(text: str, **sizes: int) -> tuple[list, Kernel]:
    result = _Search(lang.elaborate(lang.load(text)), RULES, Machine, sizes, Options(timeout=120)).run()
    return result.ranked, result.kernel


def later_a_long_sum_runs_on_all_cores() -> None:
    ranked, kernel = searched(SUM, n=1 << 24)
    assert ranked[0].form.label == "as written; in parts"
    parallel = [u for u in subterms(kernel.body) if u.op == "for" and u.args[2] == "core"]
    assert len(parallel) == 1 and parallel[0].args[1].args == (2 * EACH,)
    alone = next(c for c in ranked if c.form.label == "as written")
    assert alone.seconds > 1.5 * ranked[0].seconds


def test_a_short_sum_does_not() -> None:
    ranked, kernel = searched(SUM, n=3 * LEAST)
    assert ranked[0].form.label == "as written"
    assert all(u.args[2] != "core" for u in subterms(kernel.body) if u.op == "for")
