"""The laws of scalars against point-by-point evaluation, and the statements that their guards refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rules_oracle import Oracle

from moa_rewrite import rules
from moa_rewrite.rules import RuleError, Step, apply_step, match
from moa_rewrite.rules.pattern import instantiate
from moa_rewrite.rules.polynomial import canonical, polynomial
from moa_rewrite.rules.step import apply_rule
from moa_rewrite.semantics import dtype, run
from moa_rewrite.terms import Array, I, Kernel, Term, at, parse_term, put, size

R = rules.load()
rng = np.random.default_rng(5)
LAWS = R.group("algebra", "rearrange")
DATA = {name: rng.integers(1, 17, (4, 4)) / 8 for name in "ABCE"} | {"w": rng.integers(1, 9, 4) / 4}
# what the variables of the laws stand for; @i is free, k and j are bound where a law binds them
VALUES = {"a": "A[@i, @k]", "b": "B[@i, @k]", "c": "C[@i, @k]", "s": "A[@i, @k] - 1.0", "x": "B[@i, @k]", "y": "C[@i, @k]", "e": "E[@j, @k]"}
VALUES |= {"l": "m", "n": "n"}
OTHER = {"reduce-div": {"b": "w[@i]"}, "reduce-mul-left": {"c": "w[@i]"}, "reduce-mul-right": {"c": "w[@i]"}, "square-deviation": {"c": "w[@i]"}}
OTHER |= {name: {"c": "@k <= @i"} for name in LAWS if name.startswith("mask-")}
POINT = {"i": 1, "k": 2, "j": 3}


def t(text: str) -> Term:
    return parse_term(text)


def substitution(name: str) -> dict:
    texts = {**VALUES, **OTHER.get(name, {})}
    if name[:4] in ("max-", "min-"):
        texts["c"] = "exp(w[@i])" if "mul" in name or "div" in name else "w[@i]"
    names = {"k": "k", "j": "j", "m": "add"}
    return {v: names[v] if kind == "name" else t(texts[v]) for v, kind in R[name].variables().items()}


def kernel(e: Term, dtypes: str = "f64", **shapes: int) -> Kernel:
    """One element: X[@i] = e inside loops over i, k and j."""
    body = Term("emit", "once", "x", Term("ix"), e)
    for axis, n in (("j", size("m")), ("k", size("n")), ("i", size("n"))):
        body = Term("for", axis, n, "seq", body)
    inputs = tuple(Array(a, dtypes, tuple(I(4) for _ in range(x.ndim))) for a, x in sorted(DATA.items()))
    return Kernel("t", ("n", "m"), (), inputs, (Array("x", dtypes, ()),), body)


PLACE = (3, 3, 3, 3)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("n", [4, 1, 0])
def test_both_sides_are_equal(name: str, n: int) -> None:
    rule, subst = R[name], substitution(name)
    k = kernel(instantiate(rule.lhs, subst))
    assert match(rule, k, PLACE) == subst
    after = apply_step(k, R, Step(name, PLACE, subst))
    oracle = Oracle(DATA, {"n": n, "m": max(n - 1, 0)})
    left, right = oracle.scalar(at(k.body, PLACE), POINT), oracle.scalar(at(after.body, PLACE), POINT)
    np.testing.assert_allclose(right, left, rtol=1e-12)
    assert dtype(at(after.body, PLACE), k) == dtype(at(k.body, PLACE), k)
    if rule.twoway:
        assert match(rule, after, PLACE, forward=False) == subst
        assert apply_step(after, R, Step(name, PLACE, subst, False)) == k
    else:
        with pytest.raises(RuleError, match="does not apply from right to left"):
            apply_step(after, R, Step(name, PLACE, subst, False))


@pytest.mark.parametrize("name", [x for x in LAWS if x.startswith("mask-")])
def test_masks_where_they_hold_and_where_not(name: str) -> None:
    for c, holds in (("@i <= @k", True), ("@k <= @i", False)):
        subst = {**substitution(name), "c": t(c)}
        left, right = (Oracle(DATA, {"n": 4, "m": 3}).scalar(instantiate(side, subst), POINT) for side in (R[name].lhs, R[name].rhs))
        assert left == pytest.approx(right) and bool(left != 0.0) == holds


def wrong(name: str, guard: str, values: dict) -> tuple[Term, Term]:
    """Both sides of a law that a guard refuses, the guard left out."""
    rule = R[name]
    subst = {**substitution(name), **{v: t(x) if v in R[name].variables() and R[name].variables()[v] == "term" else x for v, x in values.items()}}
    k = kernel(instantiate(rule.lhs, subst))
    with pytest.raises(RuleError, match=rf"{name}: {guard}\(.*\) does not hold"):
        apply_step(k, R, Step(name, PLACE, subst))
    rest = replace(rule, guards=tuple(g for g in rule.guards if g.op != guard))
    return at(k.body, PLACE), at(apply_rule(k, rest, Step(name, PLACE, subst)).body, PLACE)


def apart(left: Term, right: Term) -> bool:
    """Whether two terms differ at some k, by more than rounding."""
    oracle = Oracle(DATA, {"n": 4, "m": 3})
    return any(abs(oracle.scalar(left, {**POINT, "k": k}) - oracle.scalar(right, {**POINT, "k": k})) > 1e-6 for k in range(4))


@pytest.mark.parametrize("name", [n for n in LAWS if any(repr(g) in ("notin(k, c)", "notin(k, b)") for g in R[n].guards)])
def test_what_leaves_a_reduction_does_not_depend_on_its_axis(name: str) -> None:
    v = "b" if name == "reduce-div" else "c"
    left, right = wrong(name, "notin", {v: "exp(C[@i, @k])"})
    assert apart(left, right)


@pytest.mark.parametrize("name", [n for n in LAWS if any(g.op == "positive" for g in R[n].guards)])
def test_a_factor_of_a_maximum_is_positive(name: str) -> None:
    left, right = wrong(name, "positive", {"c": "w[@i] - 9.0"})
    assert apart(left, right)


@pytest.mark.parametrize("name", [n for n in LAWS if n.startswith("dependent-reduction")])
def test_the_extent_of_a_dependent_reduction_is_constant(name: str) -> None:
    """Read inside, @k + 1 is another extent for each k."""
    left, right = wrong(name, "notin", {"n": "@k + 1"})
    assert apart(left, right)


@pytest.mark.parametrize("values", [{"l": "@k + 1"}, {"n": "@j + 1"}])
def test_reductions_that_change_places_are_rectangular(values: dict) -> None:
    left, right = wrong("reduce-swap", "notin", values)
    assert apart(left, right)


def test_nested_reductions_of_one_name_stay() -> None:
    left, right = wrong("reduce-swap", "distinct", {"j": "k"})
    assert apart(left, right)


def test_an_empty_maximum_of_integers_is_no_infinity() -> None:
    e = t('reduce("max", "k", n, N[@k] + c[])')
    k = Kernel("t", ("n",), (), (Array("N", "i64", (size("n"),)), Array("c", "i64", ())), (Array("x", "i64", ()),), Term("emit", "once", "x", Term("ix"), e))
    assert match(R["max-add"], k, (3,)) is None
    inputs = {"N": np.zeros(0, np.int64), "c": np.asarray(1)}
    other = k.with_body(put(k.body, (3,), t('reduce("max", "k", n, N[@k]) + c[]')))
    assert run(k, inputs, {"n": 0})["x"] != run(other, inputs, {"n": 0})["x"]


def test_every_guard_of_an_algebra_rule_is_used_above() -> None:
    assert {g.op for n in LAWS for g in R[n].guards} == {"notin", "positive", "real", "distinct"}


@pytest.mark.parametrize(
    ("text", "where", "holds"),
    [
        ("1.0 / sqrt(cast(\"f64\", d))", "0 < d", True), ("1.0 / sqrt(cast(\"f64\", d))", "1 <= d", True), ("1.0 / sqrt(cast(\"f64\", d))", "0 <= d", False),
        ("0.0", "0 < d", False), ("-1.0", "0 < d", False), ("2", "0 < d", True), ("0", "0 < d", False), ("exp(w[0])", "0 < d", True),
        ("w[0]", "0 < d", False), ("cast(\"i32\", 0.5)", "0 < d", False), ("2.0 - 1.0", "0 < d", False), ("1e-6 + exp(w[0]) * 2.0", "0 < d", True),
    ],
)  # fmt: skip
def test_positive(text: str, where: str, holds: bool) -> None:
    k = replace(kernel(t("0.0")), sizes=("n", "m", "d"), where=(t(where),))
    assert rules.guards.positive(k, t(text)) is holds


# --- index arithmetic -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("n - 1 - @i", "n - 1 - @i"), ("@i + (n - n)", "@i"), ("(@i + 1) * (@i - 1)", "@i * @i - 1"), ("0 - @i", "-@i"), ("@i * 2 - 3 * @i", "-@i"),
        ("3 - (1 + 2)", "0"), ("(@i + 0) // 1", "@i"), ("(0 + 7) // 2", "3"), ("(0 - 7) // 2", "-4"), ("(0 - 7) % 2", "1"), ("@i % 1", "0"),
        ("min(n + 0, n)", "n"), ("max(2, 3)", "3"), ("(@j + @i) % n", "(@i + @j) % n"), ("7 // 0", "7 // 0"), ("-@i * -n", "@i * n"), ("-(2 * @i)", "@i * -2"),
    ],
)  # fmt: skip
def test_canonical_index(text: str, form: str) -> None:
    assert repr(canonical(t(text))) == form
    assert canonical(canonical(t(text))) is canonical(t(text))
    if "// 0" not in text:
        for point in ({"i": 3, "j": 5}, {"i": -4, "j": 2}):
            assert Oracle({}, {"n": 7}).scalar(t(text), point) == Oracle({}, {"n": 7}).scalar(t(form), point)


def test_polynomials_decide_ring_identities() -> None:
    r = np.random.default_rng(7)
    terms = [t("@i"), t("@j"), t("n"), I(2)]
    for _ in range(300):
        a, b = (terms[r.integers(len(terms))] for _ in range(2))
        terms.append(Term(("add", "sub", "mul")[r.integers(3)], a, b))
    points = [(7, {"i": 3, "j": 5}), (11, {"i": -4, "j": 2}), (10007, {"i": 1009, "j": 2003})]
    values = [tuple(Oracle({}, {"n": n}).scalar(x, p) for n, p in points) for x in terms[:60]]
    for x, vx in zip(terms, values, strict=False):
        for y, vy in zip(terms, values, strict=False):
            assert (polynomial(x) == polynomial(y)) == (vx == vy)
