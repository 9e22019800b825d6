"""The psi rules against NumPy, over all indices of small arrays."""

from __future__ import annotations

import random

import numpy as np
import pytest
from rules_oracle import UFUNC, Oracle, dnf_of, source

from moa_rewrite import rules
from moa_rewrite.rules import apply_step, normalise, psi_normalise, step_from_json, step_to_json
from moa_rewrite.terms import I, Term, ix, parse_term, subterms
from moa_rewrite.terms.ops import ARRAYS, SCALAR_FUNCTIONS

R = rules.load()
rng = np.random.default_rng(1)
DATA = {
    "a": rng.integers(1, 9, 5) / 4,
    "A": rng.integers(-9, 9, (3, 4)) / 4,
    "B": rng.integers(-9, 9, (3, 4)) / 4,
    "T": rng.integers(-9, 9, (3, 4, 5)) / 4,
    "S": rng.integers(-9, 9, (4, 4, 3)) / 4,
    "E": rng.integers(0, 4, 3),
    "E2": rng.integers(0, 5, (3, 4)),
    "N": rng.integers(-9, 9, (3, 4)),
    "M": rng.integers(1, 5, (3, 4)),
    "P": rng.integers(0, 2, (3, 4)).astype(bool),
    "Q": rng.integers(0, 2, (3, 4)).astype(bool),
    "c": np.asarray(0.75),
}
CASES = {
    "arr": ['arr("T")', 'arr("c")'],
    "iota": ["iota(5)"],
    "fill": ['fill(<3, 4>, arr("c"))', "fill(<2>, 7)", "fill(<>, 1.5)"],
    "spread": [f'spread({k}, 2, arr("A"))' for k in range(3)],
    "take": [f'take({k}, {t}, arr("T"))' for k in range(3) for t in (0, 2, 3)],
    "taker": [f'taker({k}, {t}, {n}, arr("T"))' for k, n in enumerate((3, 4, 5)) for t in (0, 1, n)],
    "drop": [f'drop({k}, {t}, arr("T"))' for k in range(3) for t in (0, 1, 3)],
    "dropr": [f'dropr({k}, {t}, arr("T"))' for k in range(3) for t in (0, 1, 3)],
    "cat": ['cat(0, 3, arr("A"), arr("B"))', 'cat(1, 4, arr("A"), arr("B"))', 'cat(0, 5, arr("a"), take(0, 0, arr("a")))'],
    "reverse": [f'reverse({k}, {n}, arr("T"))' for k, n in enumerate((3, 4, 5))],
    "rotate": [f'rotate({k}, {r}, {n}, arr("T"))' for k, n in enumerate((3, 4, 5)) for r in (0, 1, -1, 7, -8)],
    "transpose": [f'transpose(<{v}>, arr("T"))' for v in ("0, 1, 2", "1, 2, 0", "2, 0, 1", "2, 1, 0", "0, 2, 1")]
    + ['transpose(<0, 0, 1>, arr("S"))', 'transpose(<1, 1, 0>, arr("S"))', 'transpose(<0, 0>, take(1, 3, arr("A")))'],
    "reshape": ['reshape(<12>, <3, 4>, arr("A"))', 'reshape(<2, 3, 10>, <3, 4, 5>, arr("T"))', 'reshape(<3, 4>, <3, 4>, arr("A"))',
                'reshape(<>, <1>, take(0, 1, arr("a")))', 'reshape(<1, 1>, <>, arr("c"))', 'reshape(<4, 3>, <3, 4>, arr("A"))'],
    "red": [f'red("{m}", {k}, "k", {n}, arr("T"))' for m in ("add", "mul", "max", "min") for k, n in enumerate((3, 4, 5))],
    "scan": [f'scan("{m}", {k}, "k", {n}, arr("T"))' for m in ("add", "max") for k, n in enumerate((3, 4, 5))],
    "gather": ['gather(1, arr("E"), arr("A"))', 'gather(1, arr("E"), take(0, 3, arr("S")))', 'gather(2, arr("E2"), arr("T"))',
               'gather(0, fill(<>, 2), arr("T"))'],
    **{f: [f"{f}({', '.join(x)})"] for f in UFUNC for x in [
        ['arr("P")'] if f == "not" else ['arr("P")', 'arr("Q")'] if f in ("and", "or") else ['arr("N")', 'arr("M")'] if f in ("idiv", "mod")
        else ['abs(arr("A"))', 'arr("B")'] if f == "pow" else ['add(abs(arr("A")), fill(<3, 4>, 0.5))'] if f in ("log", "sqrt")
        else ['arr("A")'] if f in ("neg", "abs", "exp", "sin", "cos", "tanh", "erf", "floor", "ceil", "sign") else ['arr("A")', 'arr("M")']]},
    "select": ['select(arr("P"), arr("A"), arr("B"))'],
    "cast": ['cast("i32", arr("A"))', 'cast("f32", arr("N"))', 'cast("bool", arr("E"))'],
    "int": ["3"], "num": ["2.5"], "bool": ["bool(1)"], "size": ["n"],
}  # fmt: skip


def check(expr: Term, data=DATA, sizes=None) -> Term:
    oracle = Oracle(data, sizes)
    want = np.asarray(oracle.array(expr), float)
    k = source(expr, want.ndim, tuple(map(I, want.shape)), data, tuple(sizes or ()))
    out, steps = psi_normalise(k, R)
    t = dnf_of(out)
    assert not any(u.op in ("psi", "red", "scan", "gather") or u.op in ARRAYS for u in subterms(t)), t
    got = oracle.table(t, [f"i{j}" for j in range(want.ndim)], want.shape)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    again = k
    for s in steps:
        again = apply_step(again, R, step_from_json(step_to_json(s)))
    assert again == out
    return t


@pytest.mark.parametrize("text", [t for ts in CASES.values() for t in ts])
def test_operator_agrees_with_numpy(text: str) -> None:
    check(parse_term(text), sizes={"n": 4})


def test_every_operator_has_a_case_and_a_rule() -> None:
    assert set(ARRAYS) | set(SCALAR_FUNCTIONS) <= set(CASES)
    assert {f"psi-{op}" for op in (*ARRAYS, *SCALAR_FUNCTIONS)} | {"psi-scalar"} == {r.name for r in R.values() if r.group == "psi"}


@pytest.mark.parametrize("without", sorted(n for n in R if R[n].group == "psi"))
def test_each_rule_is_needed(without: str) -> None:
    """No psi rule is covered by the others: without it its own operator stays."""
    op = without.removeprefix("psi-").replace("scalar", "num")
    expr = parse_term(CASES[op][0])
    rank = Oracle(DATA, {"n": 4}).array(expr).ndim
    k = source(expr, rank, tuple(I(1) for _ in range(rank)), DATA)
    out, _ = psi_normalise(k, rules.load(without=[without]))
    assert any(u.op == "psi" for u in subterms(out.body))


def generate(r: random.Random, depth: int, shape: tuple[int, ...], count: list[int]) -> Term:
    """A random array term of a given shape."""
    if depth == 0 or not shape:
        count[0] += 1
        return Term("fill", ix(*map(I, shape)), Term("num", f"{count[0]}.5")) if not shape or r.random() < 0.2 else Term("arr", _input(shape))
    k = r.randrange(len(shape))
    n = shape[k]
    longer = lambda m: (*shape[:k], m, *shape[k + 1 :])  # noqa: E731
    op = r.choice(["take", "taker", "drop", "dropr", "cat", "reverse", "rotate", "transpose", "reshape", "red", "scan", "spread", "add", "select", "neg"])
    sub = lambda s: generate(r, depth - 1, s, count)  # noqa: E731
    e = r.randrange(3)
    if op == "take":
        return Term("take", k, I(n), sub(longer(n + e)))
    if op == "taker":
        return Term("taker", k, I(n), I(n + e), sub(longer(n + e)))
    if op == "drop":
        return Term("drop", k, I(e), sub(longer(n + e)))
    if op == "dropr":
        return Term("dropr", k, I(e), sub(longer(n + e)))
    if op == "cat":
        m = r.randrange(n + 1)
        return Term("cat", k, I(m), sub(longer(m)), sub(longer(n - m)))
    if op == "reverse":
        return Term("reverse", k, I(n), sub(shape))
    if op == "rotate":
        return Term("rotate", k, I(r.randrange(-4, 5)), I(n), sub(shape)) if n else sub(shape)
    if op == "transpose":
        v = list(range(len(shape)))
        r.shuffle(v)
        return Term("transpose", ix(*map(I, v)), sub(tuple(shape[j] for j in v)))
    if op == "reshape":
        old = list(shape)
        r.shuffle(old)
        old = old if r.random() < 0.5 else [int(np.prod(shape))]
        return Term("reshape", ix(*map(I, shape)), ix(*map(I, old)), sub(tuple(old)))
    if op == "red":
        count[0] += 1
        m, extra = r.choice(["add", "max"]), r.randrange(1, 3)
        return Term("red", m, k, f"k{count[0]}", I(extra), sub((*shape[:k], extra, *shape[k:])))
    if op == "scan":
        count[0] += 1
        return Term("scan", "add", k, f"k{count[0]}", I(n), sub(shape))
    if op == "spread":
        return Term("spread", k, I(n), sub((*shape[:k], *shape[k + 1 :])))
    if op == "select":
        return Term("select", Term("lt", sub(shape), sub(shape)), sub(shape), sub(shape))
    return Term(op, *[sub(shape) for _ in range(1 if op == "neg" else 2)])


def _input(shape: tuple[int, ...]) -> str:
    return "x" + "_".join(map(str, shape))


@pytest.mark.parametrize("seed", range(60))
def test_random_terms(seed: int) -> None:
    r = random.Random(seed)
    shape = tuple(r.randrange(4) for _ in range(r.randrange(1, 4)))
    expr = generate(r, r.randrange(2, 5), shape, [0])
    data = {}
    for u in subterms(expr):
        if u.op == "arr":
            dims = tuple(int(d) for d in str(u.args[0])[1:].split("_"))
            data[str(u.args[0])] = np.random.default_rng(seed).integers(-9, 9, dims) / 4
    check(expr, data)


def test_the_branch_not_chosen_is_not_read() -> None:
    """cat leaves a choice, and the oracle refuses reads out of range: nothing is read beyond A or before B."""
    t = check(parse_term('cat(0, 3, arr("A"), cat(0, 3, arr("B"), reverse(0, 3, arr("A"))))'))
    assert repr(t) == "select(@i0 < 3, A[@i0, @i1], select(@i0 - 3 < 3, B[@i0 - 3, @i1], A[8 - @i0, @i1]))"


def test_readable_indices() -> None:
    k = source(parse_term('drop(0, t, reverse(0, n, arr("a")))'), 1, (parse_term("n - t"),), {"a": DATA["a"]}, ("n", "t"))
    assert repr(dnf_of(psi_normalise(k, R)[0])) == "a[n - 1 - t - @i0]"
    k = source(parse_term('reshape(<n, m>, <n * m>, reshape(<n * m>, <n, m>, arr("A")))'), 2, (parse_term("n"), parse_term("m")), {"A": DATA["A"]}, ("n", "m"))
    assert repr(dnf_of(psi_normalise(k, R)[0])) == "A[@i0, @i1]"


def test_normal_form_does_not_depend_on_the_order_of_the_rules() -> None:
    turned = 'transpose(<1, 0>, reverse(0, 4, transpose(<1, 0>, arr("A"))))'
    expr = parse_term(f'red("add", 0, "k", 3, rotate(1, 1, 4, cat(0, 3, mul(arr("A"), arr("B")), {turned})))')
    k = source(expr, 1, (I(4),), DATA)
    names = R.group("psi")
    first = normalise(k, R, names)[0]
    for seed in range(5):
        random.Random(seed).shuffle(names)
        assert normalise(k, R, names)[0] == first


def test_extents_that_change_on_the_way() -> None:
    """The axis of a scan has another extent once the scan is a reduction: no step may rest on the first one."""
    data = {"B": np.arange(4.0).reshape(1, 4)}
    assert repr(check(parse_term('scan("add", 0, "k", 4, reshape(<4>, <1, 4>, arr("B")))'), data)) == 'reduce("add", "k", @i0 + 1, B[@k // 4, @k % 4])'
    k = source(parse_term("iota(4)"), 1, (I(4),), {})
    with pytest.raises(ValueError, match="mod-small is no plain rewrite rule"):
        normalise(k, R, ["mod-small"])


def test_budget() -> None:
    k = source(parse_term('exp(exp(exp(arr("A"))))'), 2, (I(3), I(4)), DATA)
    with pytest.raises(rules.RuleError, match="no normal form after 3 steps"):
        normalise(k, R, R.group("psi"), budget=3)


def test_large_normal_form_is_fast() -> None:
    """Shared subterms are rewritten once: a sum of 2^11 copies of a read, more than 4000 positions."""
    import time

    expr = parse_term('reverse(0, n, arr("a"))')
    for _ in range(11):
        expr = Term("add", expr, Term("neg", expr))
    k = source(expr, 1, (parse_term("n"),), {"a": DATA["a"]}, ("n",))
    start = time.perf_counter()
    _, steps = normalise(k, R, R.group("psi"))
    assert time.perf_counter() - start < 1
    assert len(steps) > 4000


