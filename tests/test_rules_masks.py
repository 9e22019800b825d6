"""Masks: skipping idle tiles changes nothing, and only the condition that follows from the masks is accepted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from moa_rewrite import rules
from moa_rewrite.rules import RuleError, Step, apply_step
from moa_rewrite.rules.masks import idle_unless, mask, upper, weaken
from moa_rewrite.semantics.statements import run
from moa_rewrite.terms import Array, Kernel, parse_term, size

LAWS = rules.load()
TILES = (("i", parse_term("@i.o * 4 + @i.i")), ("k", parse_term("@k.o * 3 + @k.i")))


def triangle(value: str = "select(@k <= @i, A[@i, @k], 0.0)", monoid: str = "add") -> Kernel:
    """Row sums of a lower triangle in tiles of 4 by 3."""
    body = f"""for("i.o", (n + 3) // 4, "seq", for("k.o", (m + 2) // 3, "seq",
      for("i.i", min(4, n - @i.o * 4), "seq", for("k.i", min(3, m - @k.o * 3), "seq", emit("{monoid}", "X", <@i>, {value})))))"""
    return Kernel("f", ("n", "m"), (), (Array("A", "f64", (size("n"), size("m"))),), (Array("X", "f64", (size("n"),)),), parse_term(body), defs=TILES)


def skipped(k: Kernel, path=(3, 3)) -> Kernel:
    names = frozenset({(): set(), (3,): {"i.o"}, (3, 3): {"i.o", "k.o"}}[path])
    from moa_rewrite.terms import at

    c = idle_unless(k, at(k.body, path), names)
    assert c is not None
    return apply_step(k, LAWS, Step("skip", path, {"c": c}))


@pytest.mark.parametrize(("n", "m"), [(1, 1), (9, 7), (8, 12), (3, 20), (0, 4), (5, 0)])
def test_skipping_changes_nothing(n, m):
    k = triangle()
    a = np.random.default_rng(1).standard_normal((n, m))
    np.testing.assert_array_equal(run(skipped(k), {"A": a}, {"n": n, "m": m})["X"], run(k, {"A": a}, {"n": n, "m": m})["X"])


def test_the_condition_is_the_corner_of_the_tile():
    c = idle_unless(triangle(), parse_term(str(triangle().body.args[3].args[3])), frozenset({"i.o", "k.o"}))
    assert c is parse_term("0 <= @i.o * 4 + 3 - @k.o * 3")


@pytest.mark.parametrize("c", ["0 <= @i.o * 4 + 2 - @k.o * 3", "0 <= @i.o * 4 - @k.o * 3", "0 <= @i.o * 4 + 4 - @k.o * 3", "@k.o <= @i.o", "1 <= 0"])
def test_other_conditions_are_refused(c):
    with pytest.raises(RuleError, match="masks"):
        apply_step(triangle(), LAWS, Step("skip", (3, 3), {"c": parse_term(c)}))


@pytest.mark.parametrize("c", ["0 <= @i.o * 4 + 2 - @k.o * 3", "@k.o < @i.o"])
def test_a_stronger_condition_would_lose_terms(c):
    """What the refusal guards against: the tile at the diagonal matters."""
    k, a = triangle(), np.ones((8, 8))
    wrong = k.with_body(parse_term(str(k.body).replace('for("i.i"', f'guard({c}, for("i.i"', 1) + ")"))
    assert (run(wrong, {"A": a}, {"n": 8, "m": 8})["X"] != run(k, {"A": a}, {"n": 8, "m": 8})["X"]).any()


@pytest.mark.parametrize(
    ("monoid", "value"),
    [
        ("add", "A[@i, @k]"), ("add", "select(@k <= @i, A[@i, @k], 1.0)"), ("max", "select(@k <= @i, A[@i, @k], 0.0)"),
        ("add", "select(A[@i, @k] <= 0.0, A[@i, @k], 0.0)"),
    ],
)
def test_unmasked_emissions_are_never_skipped(monoid, value):
    k = triangle(value, monoid)
    assert idle_unless(k, k.body.args[3].args[3], frozenset({"i.o", "k.o"})) is None


def test_masks_of_monoids():
    q = parse_term("@k <= @i")
    assert mask("osm", parse_term("pair(select(@k <= @i, S[@i], -inf), V[@k])")) is q
    assert mask("osm", parse_term("pair(S[@i], select(@k <= @i, V[@k], 0.0))")) is None
    assert mask("max", parse_term("select(@k <= @i, S[@i], -inf)")) is q
    assert mask("once", parse_term("select(@k <= @i, S[@i], 0.0)")) is None


def test_windows_join_two_conditions():
    k, inner = triangle(), {"i.i": parse_term("min(4, n)"), "k.i": parse_term("min(3, n)")}
    w = weaken(k, parse_term("@k <= @i and @i - @k < 5"), inner, frozenset({"i.o", "k.o"}))
    assert w is parse_term("0 <= @i.o * 4 + 3 - @k.o * 3 and 0 <= @k.o * 3 + 6 - @i.o * 4")


def test_upper_bounds_of_extents():
    assert upper(parse_term("min(4, n - @i * 4)")) == 4
    assert upper(parse_term("(min(60, n) + 15) // 16")) == 4
    assert upper(parse_term("n")) is None and upper(parse_term("4 - neg(3)")) is None


def test_a_loop_over_a_lifted_axis_keeps_it():
    k = replace(triangle(), body=parse_term('for("i", n, "seq", for("k", m, "seq", emit("add", "X", <@i>, select(@k <= @i, A[@i, @k], 0.0))))'))
    assert idle_unless(k, k.body.args[3].args[3], frozenset({"i", "k"})) is parse_term("0 <= @i - @k")
