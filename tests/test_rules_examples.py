"""Worked examples from the literature, and attention from its array term to a dependent reduction."""

from __future__ import annotations

import numpy as np
import pytest
from rules_oracle import Oracle, dnf_of, source

from moa_rewrite import rules
from moa_rewrite.rules import Step, apply_step, derivation_text, match, psi_normalise, step_from_json, step_to_json
from moa_rewrite.rules.meta import gamma
from moa_rewrite.semantics import run
from moa_rewrite.terms import I, Kernel, Term, at, ix, parse_term, positions, size, subterms

R = rules.load()


def t(text: str) -> Term:
    return parse_term(text)


def dnf(expr: str, extents: tuple[int, ...], data: dict[str, np.ndarray]) -> Term:
    return dnf_of(psi_normalise(source(t(expr), len(extents), tuple(map(I, extents)), data), R)[0])


def test_psi_correspondence_example() -> None:
    """X = (2 take reverse A) * (1 drop reverse A), shape <3 5 4>: <i j k> psi X = (<2-i, j, k> psi A) * (<1-i, j, k> psi A)."""
    a = np.arange(60.0).reshape(3, 5, 4)
    x = dnf('mul(take(0, 2, reverse(0, 3, arr("A"))), drop(0, 1, reverse(0, 3, arr("A"))))', (2, 5, 4), {"A": a})
    assert repr(x) == "A[2 - @i0, @i1, @i2] * A[1 - @i0, @i1, @i2]"
    np.testing.assert_array_equal(Oracle({"A": a}).table(x, ["i0", "i1", "i2"], (2, 5, 4)), a[::-1][:2] * a[::-1][1:])


@pytest.mark.parametrize("v", [(2, 0, 1), (1, 2, 0)])
def test_transpose_that_is_not_its_own_inverse(v: tuple[int, ...]) -> None:
    """The index is i[v], the result's shape has s[j] at v[j]; exchanging the two reads out of range on <3 4 5>."""
    a = np.arange(60.0).reshape(3, 4, 5)
    shape = tuple(a.shape[v.index(k)] for k in range(3))
    x = dnf(f'transpose(<{", ".join(map(str, v))}>, arr("A"))', shape, {"A": a})
    assert repr(x) == f"A[{', '.join(f'@i{k}' for k in v)}]"
    np.testing.assert_array_equal(Oracle({"A": a}).table(x, ["i0", "i1", "i2"], shape), np.transpose(a, np.argsort(v)))


def test_transposes_compose() -> None:
    """v transpose (w transpose A) is (v[w]) transpose A."""
    a = {"A": np.arange(60.0).reshape(3, 4, 5)}
    for v, w in (((2, 0, 1), (1, 0, 2)), ((1, 2, 0), (2, 0, 1)), ((2, 0, 1), (2, 0, 1))):
        vw = [v[k] for k in w]
        shape = tuple(a["A"].shape[vw.index(k)] for k in range(3))
        nested = dnf(f'transpose(<{", ".join(map(str, v))}>, transpose(<{", ".join(map(str, w))}>, arr("A")))', shape, a)
        assert nested is dnf(f'transpose(<{", ".join(map(str, vw))}>, arr("A"))', shape, a)


@pytest.mark.parametrize(("index", "offset"), [((0, 0), 0), ((0, 3), 3), ((1, 2), 6), ((2, 1), 9)])
def test_row_major_offsets_in_shape_3_4(index: tuple[int, ...], offset: int) -> None:
    assert gamma(ix(*map(I, index)), ix(I(3), I(4))) is I(offset)


def test_column_major_offset_is_that_of_the_reversed_index() -> None:
    assert gamma(ix(I(2), I(1)), ix(I(4), I(3))) is I(7)


def test_gamma_is_ravel() -> None:
    shape = (2, 3, 5)
    for n, index in enumerate(np.ndindex(*shape)):
        assert gamma(ix(*map(I, index)), ix(*map(I, shape))) is I(n)


# --- attention --------------------------------------------------------------------------------------------------------------------------
# One head, with the data of a published 3 by 4 example: Q, K, V, the weights and the output.
Q = np.array([[-0.1984, 0.2698, 0.3414, -0.0372], [0.2547, -1.0674, 0.3460, -2.5242], [0.6822, -0.6265, 0.0252, 0.3978]])
K = np.array([[-1.1567, 0.6885, -0.1884, 0.4743], [0.2246, 1.7564, 0.5235, -2.3014], [-1.5899, 0.3730, -0.8257, -1.2069]])
V = np.array([[1.0739, 0.4006, -0.9671, 0.4870], [0.5589, -0.7209, -0.7650, 0.2689], [0.8237, 0.3763, 0.8320, 0.0014]])
WEIGHTS = [[0.3202, 0.3834, 0.2964], [0.0288, 0.7300, 0.2412], [0.4270, 0.2844, 0.2887]]
OUTPUT = [[0.8023, -0.0366, -0.3563, 0.2595], [0.6376, -0.4240, -0.3857, 0.2107], [0.8552, 0.0747, -0.3903, 0.2848]]
SCORES = 'div(red("add", 2, "r0", d, mul(spread(1, m, arr("Q")), spread(0, n, arr("K")))), fill(<n, m>, sqrt(cast("f64", d))))'
SHIFTED = f'exp(sub({SCORES}, spread(1, m, red("max", 1, "r1", m, {SCORES}))))'
SOFTMAX = f'div({SHIFTED}, spread(1, m, red("add", 1, "r2", m, {SHIFTED})))'
ATTENTION = f'red("add", 1, "r3", m, mul(spread(2, e, {SOFTMAX}), spread(0, n, arr("V"))))'


def attention(expr: str, *extents: str) -> Kernel:
    shapes = {"Q": (size("n"), size("d")), "K": (size("m"), size("d")), "V": (size("m"), size("e"))}
    return source(t(expr), 2, tuple(map(size, extents)), {"Q": Q, "K": K, "V": V}, ("n", "m", "d", "e"), shapes)


def numbers(k: Kernel, q: np.ndarray, kk: np.ndarray, v: np.ndarray) -> np.ndarray:
    sizes = {"n": q.shape[0], "m": kk.shape[0], "d": q.shape[1], "e": v.shape[1]}
    return run(k, {a.name: x for a, x in zip(k.inputs, (kk, q, v), strict=True)}, sizes)["X"]


def test_published_attention_example() -> None:
    weights, _ = psi_normalise(attention(SOFTMAX, "n", "m"), R)
    np.testing.assert_allclose(numbers(weights, Q, K, V), WEIGHTS, atol=1e-4)
    out, _ = psi_normalise(attention(ATTENTION, "n", "e"), R)
    np.testing.assert_allclose(numbers(out, Q, K, V), OUTPUT, atol=1e-4)


def derivation() -> tuple[Kernel, list[Step], Kernel]:
    """From the array term to one dependent reduction for the numerator and one for the denominator."""
    k = attention(ATTENTION, "n", "e")
    end, found = psi_normalise(k, R)
    steps = list(found)

    def do(rule: str, path: tuple[int, ...], params=None) -> None:
        nonlocal end
        subst = match(R[rule], end, path, params=params)
        assert subst is not None, (rule, at(end.body, path))
        steps.append(Step(rule, path, subst))
        end = apply_step(end, R, steps[-1])

    def rename(u: Term) -> Term:  # all reductions over the keys get one name
        if u.op == "axis":
            return Term("axis", "k" if u.args[0] in ("r1", "r2", "r3") else u.args[0])
        if u.op == "reduce" and u.args[1] != "r0":
            return Term("reduce", u.args[0], "k", u.args[2], rename(u.args[3]))
        return u.map(rename)

    top = (3, 3, 3)
    do("alpha", top, {"new": rename(dnf_of(end))})
    do("div-mul", (*top, 3))
    do("reduce-div", top)
    do("dependent-reduction", (*top, 0))
    do("dependent-reduction-sum", (*top, 1))
    return k, steps, end


def test_attention_becomes_dependent_reductions() -> None:
    k, _, end = derivation()
    s = 'reduce("add", "r0", d, Q[@i0, @r0] * K[@k, @r0]) / sqrt(cast("f64", d))'
    assert repr(dnf_of(end)) == f'snd(reduce("osm", "k", m, pair({s}, V[@k, @i1]))) / snd(reduce("osm", "k", m, pair({s}, 1.0)))'
    assert not any(u.op == "reduce" and u.args[0] == "max" for u in subterms(end.body))
    np.testing.assert_allclose(numbers(end, Q, K, V), OUTPUT, atol=1e-4)
    rng = np.random.default_rng(2)
    for n, m, d, e in ((1, 1, 1, 1), (5, 7, 3, 2), (2, 1, 4, 3), (0, 2, 1, 1)):
        data = 9 * rng.standard_normal((n, d)), 9 * rng.standard_normal((m, d)), rng.standard_normal((m, e))
        np.testing.assert_allclose(numbers(end, *data), numbers(k, *data), rtol=1e-10)


def test_without_alpha_the_law_does_not_apply() -> None:
    k, steps, _ = derivation()
    skipped = [s for s in steps if s.rule not in ("alpha", "dependent-reduction", "dependent-reduction-sum")]
    for s in skipped[:-2]:
        k = apply_step(k, R, s)
    for rule, path in (("div-mul", (3, 3, 3, 3)), ("reduce-div", (3, 3, 3))):
        k = apply_step(k, R, Step(rule, path, match(R[rule], k, path)))
    for path, _ in positions(k.body):
        assert match(R["dependent-reduction"], k, path) is None


def test_from_the_law_to_a_loop() -> None:
    """Storage for both sums and one loop over the keys: no array of n by m is left."""
    k, _, end = derivation()
    want = numbers(k, Q, K, V)
    for name, axes, path in (("L", ("i0",), (1,)), ("O", ("i0", "i1"), (0,))):
        e = at(end.body, (*_leaf(end.body), 3, *path))
        end = apply_step(end, R, Step("materialise", (), {"T": name, "dtype": "f64", "axes": tuple(Term("axis", a) for a in axes), "e": e}))
    nests = [p for p, u in positions(end.body) if u.op == "emit" and u.args[1] in ("L", "O")]
    for path in nests:
        end = apply_step(end, R, Step("reduce-loop-osm", path, match(R["reduce-loop-osm"], end, path)))
    assert {s.monoid for s in end.stages} == {"osm"}
    np.testing.assert_allclose(numbers(end, Q, K, V), want, rtol=1e-12)


def _leaf(body: Term) -> tuple[int, ...]:
    return next(p for p, u in positions(body) if u.op == "emit" and u.args[1] == "X")


def test_derivation_is_readable_and_replays() -> None:
    k, steps, end = derivation()
    again = k
    for s in steps:
        again = apply_step(again, R, step_from_json(step_to_json(s)))
    assert again == end
    text = derivation_text(k, steps, R)
    assert text.startswith("1. psi-red in for i0 > for i1 > emit X\n")
    assert f"{len(steps) - 1}. dependent-reduction in for i0 > for i1 > emit X\n" in text
    assert max(map(len, text.splitlines())) <= 110
    lifted = apply_step(end, R, Step("lift", (), match(R["lift"], end, (), params={"T": I(4)})))
    assert derivation_text(end, [Step("lift", (), match(R["lift"], end, (), params={"T": I(4)}))], R).endswith("where @i0 = @i0.o * 4 + @i0.i")
    assert lifted.definition("i0") is t("@i0.o * 4 + @i0.i")


def test_steps_do_not_depend_on_the_hash_seed() -> None:
    import os
    import subprocess
    import sys
    from pathlib import Path

    program = (
        "import json, test_rules_examples as m; from moa_rewrite.rules import step_to_json as j, derivation_text; k, s, e = m.derivation();"
        "print(json.dumps([j(x) for x in s]), derivation_text(k, s, m.R))"
    )
    here = Path(__file__).parent
    found = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(here)}
        found.add(subprocess.run([sys.executable, "-c", program], cwd=here, env=env, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1


def test_rules_load_without_egglog() -> None:
    import subprocess
    import sys

    program = "import sys, moa_rewrite.rules as r; r.load(); print([m for m in sys.modules if m.split('.')[0] in ('egglog', 'z3', 'sympy')])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip() == "[]"

