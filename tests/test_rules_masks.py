"""Masks: skipping idle tiles changes nothing, and only the condition that follows from the masks is accepted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from moa_rewrite import rules
from moa_rewrite.rules import RuleError, Step, apply_step
from moa_rewrite.rules.masks import idle_unless, mask, needed_if, upper, weaken, zero_unless
from moa_rewrite.semantics.statements import run
from moa_rewrite.terms import Array, Kernel, Stage, Term, at, parse_term, put, size

LAWS = rules.load()
TILES = (("i", parse_term("@i.o * 4 + @i.i")), ("k", parse_term("@k.o * 3 + @k.i")))


def triangle(value: str = "select(@k <= @i, A[@i, @k], 0.0)", monoid: str = "add") -> Kernel:
    """Row sums of a lower triangle in tiles of 4 by 3."""
    body = f"""for("i.o", (n + 3) // 4, "seq", for("k.o", (m + 2) // 3, "seq",
      for("i.i", min(4, n - @i.o * 4), "seq", for("k.i", min(3, m - @k.o * 3), "seq", emit("{monoid}", "X", <@i>, {value})))))"""
    return Kernel("f", ("n", "m"), (), (Array("A", "f64", (size("n"), size("m"))),), (Array("X", "f64", (size("n"),)),), parse_term(body), defs=TILES)


def skipped(k: Kernel, path=(3, 3)) -> Kernel:
    names = frozenset({(): set(), (3,): {"i.o"}, (3, 3): {"i.o", "k.o"}}[path])
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


# --- what nothing needs -------------------------------------------------------------------------------------------------------------------
FILL = """for("i.o", (n + 3) // 4, "seq", for("j.o", (n + 2) // 3, "seq", for("i.i", min(4, n - @i.o * 4), "seq", for("j.i", min(3, n - @j.o * 3), "seq",
    for("l", m, "seq", emit("add", "S", <@i, @j>, A[@i, @l] * A[@j, @l]))))))"""
ROWS = 'for("i", n, "seq", for("j", n, "seq", emit("add", "X", <@i>, {})))'
UNKNOWN = {
    "two conditions": "select(@j <= @i, S[@i, @j], 0.0) + select(@j < @i, S[@i, @j], 0.0)",
    "in the condition": "select(S[@i, @j] <= 0.0, S[@i, @j], 0.0)",
}
USED = {
    "chosen": "select(@j <= @i, exp(S[@i, @j]), 0.0)",
    "multiplied": "select(@j <= @i, A[@i, 0], 0.0) * (S[@i, @j] - 1.0)",
    "multiplied by a quotient": "(S[@i, @j] + 2.0) * (neg(select(@j <= @i, A[@i, 0], 0.0)) / 3.0)",
    "chosen twice": "select(@j <= @i, S[@i, @j], 0.0) + select(@j <= @i, 2.0 * S[@i, @j], 1.0)",
}
NEEDED = {
    "plain": "S[@i, @j]",
    "the other branch": "select(@j <= @i, 0.0, S[@i, @j])",
    "added": "select(@j <= @i, A[@i, 0], 0.0) + S[@i, @j]",
    "once outside": "select(@j <= @i, S[@i, @j], 0.0) + S[@i, @j]",
    "times what is not 0": "select(@j <= @i, A[@i, 0], 1.0) * S[@i, @j]",
    "another cell": "select(@j <= @i, S[@j, @i], 0.0) + select(@j <= @i, S[@i, @j], 0.0)",
}


def staged(value: str, fill: str = FILL, monoid: str = "add") -> Kernel:
    """Sums of the rows of S = A Aᵀ, of the part that ``value`` says."""
    defs = (("i", parse_term("@i.o * 4 + @i.i")), ("j", parse_term("@j.o * 3 + @j.i")))
    body = parse_term(f'new("S", seq({fill}, {ROWS.format(value)}))')
    s = Stage("S", "f64", ("i", "j"), (size("n"), size("n")), monoid, parse_term("0.0"))
    return Kernel("f", ("n", "m"), (), (Array("A", "f64", (size("n"), size("m"))),), (Array("X", "f64", (size("n"),)),), body, (s,), defs)


def changed(k: Kernel, c: Term | None, path: tuple[int, ...] = (1, 0, 3, 3)) -> bool:
    """Whether a skip of tiles changes what a kernel computes."""
    assert c is not None
    a = np.random.default_rng(2).standard_normal((11, 2))
    skipping = k.with_body(put(k.body, path, Term("guard", c, at(k.body, path))))
    return not np.allclose(*(run(x, {"A": a}, {"n": 11, "m": 2})["X"] for x in (k, skipping)))


@pytest.mark.parametrize("name", USED)
def test_tiles_that_nothing_needs_are_skipped(name: str) -> None:
    k = staged(USED[name])
    assert needed_if(k, "S") is parse_term("@j <= @i")
    c = idle_unless(k, at(k.body, (1, 0, 3, 3)), frozenset({"i.o", "j.o"}))
    assert c is parse_term("0 <= @i.o * 4 + 3 - @j.o * 3")
    assert apply_step(k, LAWS, Step("skip", (1, 0, 3, 3), {"c": c})).body.args[1].args[0].args[3].args[3].args[0] is c
    assert not changed(k, c)
    assert changed(k, parse_term("0 <= @i.o * 4 + 2 - @j.o * 3")), "one tile fewer matters"


@pytest.mark.parametrize("name", [*NEEDED, *UNKNOWN])
def test_what_may_be_needed_is_never_skipped(name: str) -> None:
    k = staged({**NEEDED, **UNKNOWN}[name])
    assert needed_if(k, "S") is None and idle_unless(k, at(k.body, (1, 0, 3, 3)), frozenset({"i.o", "j.o"})) is None
    assert name in UNKNOWN or changed(k, parse_term("0 <= @i.o * 4 + 3 - @j.o * 3"))


def test_a_factor_that_is_zero_by_its_stage() -> None:
    """S is 0 above the diagonal by what fills it, so sums of multiples of it are idle there."""
    fill = 'for("i", n, "seq", for("j", n, "seq", emit("{}", "S", <@i, @j>, select(@j <= @i, A[@i, 0], 0.0))))'
    sums = """for("p", n, "seq", for("q", n, "seq", emit("add", "X", <@p>, S[@p, @q] * A[@q, 0])))"""
    k = staged("0.0", fill.format("once"), "once")
    k = k.with_body(parse_term(f'new("S", seq({fill.format("once")}, {sums}))'))
    assert zero_unless(parse_term("S[@p, @q] * A[@q, 0]"), k) is parse_term("@q <= @p")
    c = idle_unless(k, at(k.body, (1, 1, 3, 3)), frozenset({"p", "q"}))
    assert c is parse_term("0 <= @p - @q") and not changed(k, c, (1, 1, 3, 3)) and changed(k, parse_term("1 <= @p - @q"), (1, 1, 3, 3))
    assert idle_unless(k, at(k.body, (1, 0, 3, 3)), frozenset({"i", "j"})) is None, "each cell must be written once"
    collected = apply_step(k, LAWS, Step("collect", (), {"T": "S"}))
    assert collected.stages[0].monoid == "add" and not changed(collected, parse_term("0 <= @i - @j"), (1, 0, 3, 3))
    assert idle_unless(collected, at(collected.body, (1, 0, 3, 3)), frozenset({"i", "j"})) is parse_term("0 <= @i - @j")
    for path, name in (((), "T"), ((1,), "S")):
        with pytest.raises(RuleError):
            apply_step(k, LAWS, Step("collect", path, {"T": name}))
    with pytest.raises(RuleError, match="written once"):
        apply_step(collected, LAWS, Step("collect", (), {"T": "S"}))


def test_a_stage_that_is_filled_twice_says_nothing() -> None:
    k = staged(USED["chosen"], f"seq({FILL}, {FILL})")
    assert needed_if(k, "S") is None


def test_a_read_in_an_extent_needs_the_cell() -> None:
    k = staged(USED["chosen"])
    k = k.with_body(put(k.body, (1, 1), parse_term('guard(0.0 < S[0, 0], ' + ROWS.format(USED["chosen"]) + ")")))
    assert needed_if(k, "S") is None


@pytest.mark.parametrize(("monoid", "known"), [("once", True), ("add", True), ("max", False), ("mul", False)])
def test_only_cells_that_are_sums_are_zero_where_nothing_is_added(monoid: str, known: bool) -> None:
    """An empty maximum is -inf, an empty product 1."""
    fill = f'for("i", n, "seq", for("j", n, "seq", for("l", m, "seq", emit("{monoid}", "S", <@i, @j>, select(@j <= @i, A[@i, @l], 0.0)))))'
    assert (zero_unless(parse_term("S[@i, @j] * 2.0"), staged("0.0", fill, monoid)) is not None) is known


def test_a_stage_that_is_filled_from_itself_says_nothing() -> None:
    fill = 'for("i", n, "seq", for("j", n, "seq", emit("add", "S", <@i, @j>, S[@i, @j] * A[@i, 0])))'
    assert zero_unless(parse_term("S[@i, @j]"), staged("0.0", fill)) is None
