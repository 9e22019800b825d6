"""Every operator over small shapes (0, 1, odd, even): the interpreter of the source, the elaborated kernel and plain NumPy agree."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from moa_rewrite import lang
from moa_rewrite.lang.checks import random_input
from moa_rewrite.lang.poly import evaluate
from moa_rewrite.semantics import run

LENGTHS = (0, 1, 2, 3, 5)
erf = np.vectorize(math.erf, otypes=[float])


def both(source: str, inputs: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Values by the interpreter, after checking that the elaborated kernel has the same ones."""
    program = lang.load(source)
    kernel = lang.elaborate(program)
    assert lang.bind_sizes(kernel, inputs) == sizes
    got = lang.interpret(program, None, inputs, sizes)
    elaborated = run(kernel, inputs, sizes)
    assert got.keys() == elaborated.keys()
    for name, value in got.items():
        assert value.shape == elaborated[name].shape
        np.testing.assert_allclose(elaborated[name], value, rtol=1e-12, atol=1e-12)
    return got


def check(
    params: str, result: str, body: str, want: Callable[..., object], where: str = "", lengths: tuple[int, ...] = LENGTHS, positive: bool = False
) -> None:
    source = f"kernel f({params}) -> {result} {'where ' + where if where else ''} = {body}"
    program = lang.load(source)
    kernel = lang.elaborate(program)
    tried = 0
    for values in itertools.product(lengths, repeat=len(kernel.sizes)):
        sizes = dict(zip(kernel.sizes, values, strict=True))
        if not all(evaluate(w, sizes) for w in kernel.where):
            continue
        tried += 1
        inputs = {a.name: random_input(a.dtype, tuple(evaluate(n, sizes) for n in a.shape), n) for n, a in enumerate(kernel.inputs)}
        if positive:
            inputs = {k: np.abs(v) + (0.5 if v.dtype.kind == "f" else 1) for k, v in inputs.items()}
        got = both(source, inputs, sizes)["out"]
        with np.errstate(all="ignore"):
            expected = np.asarray(want(*inputs.values()))
        assert got.shape == expected.shape, (sizes, got.shape, expected.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12, err_msg=str(sizes))
    assert tried


M = "A: f64[n, m]"
V = "x: f64[n]"
XY = "x: f64[n], y: f64[n]"
IJ = "x: i64[n], y: i64[n]"

SCALAR = [
    ("x + y", np.add), ("x - y", np.subtract), ("x − y", np.subtract), ("x * y", np.multiply), ("x × y", np.multiply), ("x / y", np.divide),
    ("x ÷ y", np.divide),
    ("max(x, y)", np.maximum), ("min(x, y)", np.minimum), ("pow(x, y)", np.power), ("select(x < y, x, 2)", lambda x, y: np.where(x < y, x, 2.0)),
    ("select(x < y, 0, y)", lambda x, y: np.where(x < y, 0.0, y)), ("f64(x < y)", lambda x, y: (x < y) * 1.0), ("2 - x × 3 + y", lambda x, y: 2 - x * 3 + y),
    ("x - y - 1", lambda x, y: x - y - 1), ("x / y / 2", lambda x, y: x / y / 2), ("-x + y", lambda x, y: -x + y), ("-(x + y)", lambda x, y: -(x + y)),
    ("x × pi + y", lambda x, y: x * np.pi + y), ("min(x, inf) + y", lambda x, y: x + y), ("f64(n) × x + y", lambda x, y: len(x) * x + y),
    ("1 / 2 × x + y", lambda x, y: 0.5 * x + y),
]  # fmt: skip
UNARY = [
    ("exp", np.exp), ("log", np.log), ("sqrt", np.sqrt), ("sin", np.sin), ("cos", np.cos), ("tanh", np.tanh), ("erf", erf), ("floor", np.floor),
    ("ceil", np.ceil), ("abs", np.abs), ("sign", np.sign),
]  # fmt: skip
BOOL = [
    ("x < y", np.less), ("x <= y", np.less_equal), ("x ≤ y", np.less_equal), ("x > y", np.greater), ("x >= y", np.greater_equal), ("x ≥ y", np.greater_equal),
    ("x == y", np.equal), ("x != y", np.not_equal), ("x ≠ y", np.not_equal), ("not x == y", np.not_equal), ("x < y and x > 1", lambda x, y: (x < y) & (x > 1)),
    ("x < y or x == y", np.less_equal), ("x < y ∨ ¬ x == y ∧ x > 2", lambda x, y: (x < y) | ((x != y) & (x > 2))), ("(x < y) == (y > x)", lambda x, y: x == x),
]  # fmt: skip
INT = [
    ("x // y", np.floor_divide), ("x % y", np.mod), ("-x // y", lambda x, y: -x // y), ("-x % y", lambda x, y: -x % y),
    ("x + y * 2 - 1", lambda x, y: x + y * 2 - 1),
    ("abs(x - y)", lambda x, y: np.abs(x - y)),
    ("sign(x - y)", lambda x, y: np.sign(x - y)),
    ("max(x, 3) - min(y, n)", lambda x, y: np.maximum(x, 3) - np.minimum(y, len(x))),
    ("i64(f64(x) / f64(y))", lambda x, y: np.trunc(x / y)), ("i64(i32(x)) + n", lambda x, y: x + len(x)),
    ("select(x > y, x // 2, 7)", lambda x, y: np.where(x > y, x // 2, 7)),
    ("x + ι n", lambda x, y: x + np.arange(len(x))),
]  # fmt: skip


@pytest.mark.parametrize(("body", "want"), SCALAR)
def test_arithmetic(body: str, want: Callable) -> None:
    check(XY, "f64[n]", body, want, lengths=(0, 1, 3), positive="pow" in body)


@pytest.mark.parametrize(("name", "want"), UNARY)
def test_unary(name: str, want: Callable) -> None:
    check(V, "f64[n]", f"{name}(x)", want, lengths=(0, 1, 5), positive=name in ("log", "sqrt"))


@pytest.mark.parametrize(("body", "want"), BOOL)
def test_comparison_and_logic(body: str, want: Callable) -> None:
    check(IJ, "bool[n]", body, want, lengths=(0, 1, 5))


@pytest.mark.parametrize(("body", "want"), INT)
def test_integers(body: str, want: Callable) -> None:
    check(IJ, "i64[n]", body, want, lengths=(0, 1, 5), positive=True)


STRUCTURAL = [
    # (parameters, result, body, NumPy, where)
    (M, "i64[2]", "ρ A", lambda a: a.shape, ""),
    (M, "i64[2]", "shape(A)", lambda a: a.shape, ""),
    (M, "i64", "δ A + dim(A) × 10", lambda a: 22, ""),
    (M, "i64", "τ A + tau(A)", lambda a: 2 * a.size, ""),
    (V, "i64[n]", "ι n", lambda x: np.arange(len(x)), ""),
    (M, "i64[n, m, 2]", "ι<n, m>", lambda a: np.indices(a.shape).transpose(1, 2, 0), ""),
    (M, "f64[n * m]", "rav(A)", np.ravel, ""),
    (M, "f64[m, n]", "<m, n> ρ̂ A", lambda a: a.reshape(a.shape[::-1]), ""),
    (M, "f64[m, n]", "reshape(φ ρ A, A)", lambda a: a.reshape(a.shape[::-1]), ""),
    ("x: f64[2 * n]", "f64[2, n]", "<2, n> ρ̂ x", lambda x: x.reshape(2, len(x) // 2), ""),
    ("x: f64[2 * n]", "f64[n, 2]", "<n, 2> ρ̂ x", lambda x: x.reshape(len(x) // 2, 2), ""),
    (M, "f64[3, n * m]", "3 ↑ <3, n * m> ρ̂ rav(A ++ A ++ A)", lambda a: np.stack([a.ravel()] * 3), ""),
    (M, "f64[2]", "2 ↑ rav(A)", lambda a: a.ravel()[:2], "n * m >= 2"),
    (M, "f64[2, m]", "2 ↑ A", lambda a: a[:2], "n >= 2"),
    (M, "f64[2, m]", "take(-2, A)", lambda a: a[-2:], "n >= 2"),
    (M, "f64[0, m]", "0 ↑ A", lambda a: a[:0], ""),
    (M, "f64[n, m]", "n ↑ A", lambda a: a, ""),
    (M, "f64[n, m]", "-n ↑ A", lambda a: a, ""),
    (M, "f64[n - 1, m]", "(n - 1) ↑ A", lambda a: a[:-1], "n >= 1"),
    (M, "f64[n // 2, m]", "(n // 2) ↑ A", lambda a: a[: len(a) // 2], ""),
    (M, "f64[1, 2]", "<1, -2> ↑ A", lambda a: a[:1, -2:], "n >= 1, m >= 2"),
    (M, "f64[n - 2, m]", "2 ↓ A", lambda a: a[2:], ""),
    (M, "f64[n - 2, m]", "-2 ↓ A", lambda a: a[:-2], ""),
    (M, "f64[0, m]", "n ↓ A", lambda a: a[:0], ""),
    (M, "f64[0, m]", "-n ↓ A", lambda a: a[:0], ""),
    (M, "f64[n - 1, m - 1]", "drop(<1, -1>, A)", lambda a: a[1:, :-1], ""),
    (M, "f64[n, m]", "0 ↓ A", lambda a: a, ""),
    (M, "f64[2 * n, m]", "A ++ A", lambda a: np.concatenate([a, a]), ""),
    (M, "f64[2 * n, m]", "cat(A, 1 θ A)", lambda a: np.concatenate([a, np.roll(a, -1, 0)]), ""),
    (V, "f64[n + 2]", "<1, 2.5> ++ x", lambda x: np.concatenate([[1, 2.5], x]), ""),
    (V, "f64[n + 2]", "x ++ <x +.× x, 7>", lambda x: np.concatenate([x, [x @ x, 7]]), ""),
    (V, "f64[n]", "x ++ <>", lambda x: x, ""),
    (M, "f64[n, m]", "φ A", lambda a: a[::-1], ""),
    (M, "f64[n, m]", "reverse(A)", lambda a: a[::-1], ""),
    (M, "f64[n, m]", "φ Ω<1> A", lambda a: a[:, ::-1], ""),
    (M, "f64[n, m]", "2 θ A", lambda a: np.roll(a, -2, 0), ""),
    (M, "f64[n, m]", "rotate(-1, A)", lambda a: np.roll(a, 1, 0), ""),
    (M, "f64[n, m]", "<1, -2> θ A", lambda a: np.roll(a, (-1, 2), (0, 1)), ""),
    (M, "f64[n, m]", "n θ A", lambda a: a, ""),
    (M, "f64[n, m]", "(n + 1) θ A", lambda a: np.roll(a, -1, 0), ""),
    (M, "f64[n, m]", "θ Ω<0,1> (ι n, A)", lambda a: np.stack([np.roll(r, -i) for i, r in enumerate(a)]) if len(a) else a, ""),
    (M, "f64[m, n]", "⍉ A", np.transpose, ""),
    (M, "f64[m, n]", "transpose(<1, 0>, A)", np.transpose, ""),
    (M, "f64[n, m]", "<0, 1> ⍉ A", lambda a: a, ""),
    (V, "f64[n]", "⍉ x", lambda x: x, ""),
    ("A: f64[n, n]", "f64[n]", "<0, 0> ⍉ A", np.diagonal, ""),
    (M, "f64[n]", "<0, 0> ⍉ A", np.diagonal, "n <= m"),
    ("A: f64[n, m, k]", "f64[k, n, m]", "<1, 2, 0> ⍉ A", lambda a: a.transpose(2, 0, 1), ""),
    ("A: f64[n, m, k]", "f64[m, k, n]", "<2, 0, 1> ⍉ A", lambda a: a.transpose(1, 2, 0), ""),
    ("A: f64[n, m, k]", "f64[k, m, n]", "⍉ A", np.transpose, ""),
    ("A: f64[n, m, n]", "f64[n, m]", "<0, 1, 0> ⍉ A", lambda a: np.einsum("iji->ij", a), ""),
    ("A: f64[n, m, n]", "f64[m, n]", "<1, 0, 1> ⍉ A", lambda a: np.einsum("iji->ji", a), ""),
    (M, "f64[m]", "0 ψ A", lambda a: a[0], "n >= 1"),
    (M, "f64[m]", "<n - 1> ψ A", lambda a: a[-1], "n >= 1"),
    (M, "f64", "<n - 1, 0> ψ A", lambda a: a[-1, 0], "n >= 1, m >= 1"),
    (M, "f64", "A[n - 1, 0]", lambda a: a[-1, 0], "n >= 1, m >= 1"),
    (M, "f64[n, m]", "<> ψ A", lambda a: a, ""),
    (M, "f64", "psi(<0, m - 1>, A)", lambda a: a[0, -1], "n >= 1, m >= 1"),
    (M, "f64[n]", "<0> ψ ⍉ A", lambda a: a[:, 0], "m >= 1"),
    ("A: f64[n, m], i: i32", "f64[m]", "A[max(0, min(i64(i) - 5, n - 1))]", lambda a, i: a[max(0, min(int(i) - 5, len(a) - 1))], "n >= 1"),
    ("A: f64[n, m], i: i64", "f64[m]", "A[i % n]", lambda a, i: a[int(i) % len(a)], "n >= 1"),
    ("x: f64[n], i: i64[m]", "f64[m]", "(<_> ψ x) Ω<0> (i % n)", lambda x, i: x[i % len(x)], "n >= 1"),
    ("x: f64[n], i: i64[m]", "f64[m]", "ψ Ω<0,1> (i % n, x)", lambda x, i: x[i % len(x)], "n >= 1"),
    (M, "f64[n]", "(<_, 0> ψ A) Ω<0> ι n", lambda a: a[:, 0], "m >= 1"),
    (V, "f64[n]", "x[_] Ω<0> φ ι n", lambda x: x[::-1], ""),
    (M, "f64[n, m]", "(<_> ψ A) Ω<0> φ ι n", lambda a: a[::-1], ""),
    (V, "f64[n, 3]", "fill(<3>, _) Ω<0> x", lambda x: np.repeat(x[:, None], 3, 1), ""),
    (V, "f64[2, n]", "fill(<2, n>, 0.5)", lambda x: np.full((2, len(x)), 0.5), ""),
    (V, "i64[3]", "<1, n, 3>", lambda x: [1, len(x), 3], ""),
    (V, "i64[2]", "1 ↓ φ <n, 2, n * n>", lambda x: [2, len(x)], ""),
    (V, "i64", "<5, n, 7>[1]", lambda x: len(x), ""),
]  # fmt: skip


@pytest.mark.parametrize(("params", "result", "body", "want", "where"), STRUCTURAL, ids=[f"{n}: {s[2]}" for n, s in enumerate(STRUCTURAL)])
def test_structural(params: str, result: str, body: str, want: Callable, where: str) -> None:
    check(params, result, body, want, where, lengths=(0, 1, 2, 3) if params.count(",") > 1 else LENGTHS)


def alternate_sum(a: np.ndarray) -> np.ndarray:
    return np.einsum("i...,i->...", a, (-1.0) ** np.arange(len(a)))


def alternate_product(a: np.ndarray) -> np.ndarray:
    return np.prod(a[::2], 0) / np.prod(a[1::2], 0)


FOLDS = [
    (M, "f64[m]", "+ red A", lambda a: a.sum(0), ""),
    (M, "f64[m]", "red(+, A)", lambda a: a.sum(0), ""),
    (M, "f64[m]", "× red A", lambda a: a.prod(0), ""),
    (M, "f64[m]", "max red A", lambda a: a.max(0, initial=-np.inf), ""),
    (M, "f64[m]", "red(min, A)", lambda a: a.min(0, initial=np.inf), ""),
    (M, "f64[m]", "- red A", alternate_sum, ""),
    (M, "f64[m]", "−red A", alternate_sum, ""),
    (M, "f64[m]", "÷ red A", alternate_product, ""),
    (M, "f64[n]", "- red Ω<1> A", lambda a: alternate_sum(a.T), ""),
    (M, "f64[n]", "/ red Ω<1> A", lambda a: alternate_product(a.T), ""),
    (M, "f64[n]", "+ red Ω<1> A", lambda a: a.sum(1), ""),
    (M, "f64", "+ red + red A", np.sum, ""),
    (M, "f64", "+ red rav(A)", np.sum, ""),
    (M, "bool[m]", "and red (A > 0)", lambda a: (a > 0).all(0), ""),
    (M, "bool[m]", "or red (A > 0)", lambda a: (a > 0).any(0), ""),
    ("x: i64[n]", "i64", "+ red x", np.sum, ""),
    ("x: i32[n]", "i32", "max red x", np.max, "n >= 1"),
    (M, "f64[n, m]", "+ scan A", lambda a: a.cumsum(0), ""),
    (M, "f64[n, m]", "scan(×, A)", lambda a: a.cumprod(0), ""),
    (M, "f64[n, m]", "max scan Ω<1> A", lambda a: np.maximum.accumulate(a, 1) if a.size else a, ""),
    (M, "f64[n, m]", "- scan A", lambda a: (a * ((-1.0) ** np.arange(len(a)))[:, None]).cumsum(0), ""),
    (M, "bool[n, m]", "or scan (A > 0)", lambda a: np.logical_or.accumulate(a > 0, 0) if a.size else a > 0, ""),
    ("x: f64[n], y: f64[m]", "f64[n, m]", "x •× y", np.outer, ""),
    ("x: f64[n], y: f64[m]", "f64[n, m]", "outer(-, x, y)", np.subtract.outer, ""),
    ("x: f64[n], y: f64[m]", "bool[n, m]", "x •< y", np.less.outer, ""),
    ("x: f64[n], y: f64[m]", "f64[n, m]", "outer(max, x, y)", np.maximum.outer, ""),
    ("x: f64[n], A: f64[m, k]", "f64[n, m, k]", "x •+ A", np.add.outer, ""),
    ("x: f64[n], s: f64", "f64[n]", "x •+ s", lambda x, s: x + s, ""),
    ("A: f64[n, k], B: f64[k, m]", "f64[n, m]", "A +.× B", np.matmul, ""),
    ("A: f64[n, k], B: f64[k, m]", "f64[n, m]", "inner(+, *, A, B)", np.matmul, ""),
    ("A: f64[n, k], B: f64[k, m]", "f64[n, m]", "A min.+ B", lambda a, b: (a[:, :, None] + b[None]).min(1, initial=np.inf), ""),
    ("A: f64[n, k], B: f64[k, m]", "f64[n, m]", "A max.min B", lambda a, b: np.minimum(a[:, :, None], b[None]).max(1, initial=-np.inf), ""),
    ("A: f64[n, k], B: f64[k, m]", "bool[n, m]", "A and.<= B", lambda a, b: (a[:, :, None] <= b[None]).all(1), ""),
    ("A: f64[n, k], B: f64[k, m]", "f64[n, m]", "A +.pow B", lambda a, b: (a[:, :, None] ** b[None]).sum(1), ""),
    ("x: f64[n], y: f64[n]", "f64", "x +.× y", np.dot, ""),
    ("x: f64[k], B: f64[k, m]", "f64[m]", "x +.× B", np.matmul, ""),
    ("A: f64[2, n, k], B: f64[k, m]", "f64[2, n, m]", "A +.× B", lambda a, b: a @ b, ""),
]  # fmt: skip


@pytest.mark.parametrize(("params", "result", "body", "want", "where"), FOLDS, ids=[f"{n}: {s[2]}" for n, s in enumerate(FOLDS)])
def test_reductions_and_products(params: str, result: str, body: str, want: Callable, where: str) -> None:
    check(params, result, body, want, where, lengths=(0, 1, 2, 3) if "k" in params else LENGTHS, positive="pow" in body or "÷" in body or "/" in body)


OMEGA = [
    ("A: f64[n, m], v: f64[n]", "f64[n, m]", "A - Ω<1,0> v", lambda a, v: a - v[:, None], ""),
    ("A: f64[n, m], v: f64[n]", "f64[n, m]", "omega(-, <1, 0>, A, v)", lambda a, v: a - v[:, None], ""),
    ("A: f64[n, m], v: f64[m]", "f64[n, m]", "A × Ω<1,1> v", lambda a, v: a * v, ""),
    ("A: f64[n, m], v: f64[m]", "f64[n, m]", "A + Ω<0,0> v", lambda a, v: a + v, ""),  # frames <n, m> and <m> align on the right
    ("A: f64[n, m], v: f64[m]", "f64[n, m]", "v - Ω<0,0> A", lambda a, v: v - a, ""),
    ("A: f64[n, m], s: f64", "f64[n, m]", "A + Ω<1,0> s", lambda a, s: a + s, ""),
    ("A: f64[b, n, k], B: f64[b, k, 2]", "f64[b, n, 2]", "A +.× Ω<2,2> B", np.matmul, ""),
    ("A: f64[b, n, k], B: f64[k, 2]", "f64[b, n, 2]", "A +.× Ω<2,2> B", np.matmul, ""),
    ("A: f64[b, n, k], B: f64[k, 2]", "f64[b, n, 2]", "+.× Ω<1,2> (A, B)", np.matmul, ""),
    ("x: f64[b, n], y: f64[b, m]", "f64[b, n, m]", "x •× Ω<1,1> y", lambda x, y: x[:, :, None] * y[:, None, :], ""),
    ("A: f64[n, m]", "f64[n, m - 1]", "1 ↓ Ω<0,1> A", lambda a: a[:, 1:], ""),
    ("A: f64[n, m]", "f64[n, m - 1]", "(1 ↓ _) Ω<1> A", lambda a: a[:, 1:], ""),
    ("A: f64[n, m]", "f64[n, m - 1]", "drop(1, _) Ω<1> A", lambda a: a[:, 1:], ""),
    ("A: f64[n, m]", "f64[n, m]", "(1 θ φ _) Ω<1> A", lambda a: np.roll(a[:, ::-1], -1, 1), ""),
    ("A: f64[b, n, m]", "f64[b, m, n]", "⍉ Ω<2> A", lambda a: a.transpose(0, 2, 1), ""),
    ("A: f64[b, n, m]", "f64[b, n * m]", "rav Ω<2> A", lambda a: a.reshape(len(a), a.shape[1] * a.shape[2]), ""),
    ("A: f64[n, m], B: f64[n, m]", "f64[n, 2 * m]", "A ++ Ω<1,1> B", lambda a, b: np.concatenate([a, b], 1), ""),
    ("A: f64[n, m], v: f64[m]", "f64[n, 2 * m]", "A ++ Ω<1,1> v", lambda a, v: np.concatenate([a, np.broadcast_to(v, a.shape)], 1), ""),
    ("A: f64[n, m]", "f64[n]", "sum Ω<1> A", lambda a: a.sum(1), ""),
    ("A: f64[n, m]", "f64[n, m]", "exp Ω<0> A", np.exp, ""),
    ("A: f64[n, m]", "f64[n, m]", "- Ω<1> A", np.negative, ""),
    ("A: f64[n, m]", "f64[n, m]", "max Ω<1,1> (A, 0 × A)", lambda a: np.maximum(a, 0), ""),
    ("A: f64[n, m]", "f64[n, m]", "max(_, 0) Ω<1> A", lambda a: np.maximum(a, 0), ""),
    ("A: f64[n, m], v: f64[n], w: f64[m]", "f64[n, m]", "(_ × _ + _) Ω<1,0,1> (A, v, w)", lambda a, v, w: a * v[:, None] + w, ""),
    ("A: f64[b, n, m]", "f64[b, n, m]", "softmax Ω<1> A", lambda a: np.exp(a) / np.exp(a).sum(-1, keepdims=True), ""),
    ("A: f64[b, n, m]", "f64[b, n]", "(+ red Ω<1> _) Ω<2> A", lambda a: a.sum(2), ""),
    ("A: f64[n, m]", "i64[n, m]", "(ι m) + Ω<1,0> ι n", lambda a: np.add.outer(np.arange(a.shape[0]), np.arange(a.shape[1])), ""),
    ("A: f64[n, m]", "f64[n, m]", "(_ + f64(m)) Ω<1> A", lambda a: a + a.shape[1], ""),
    ("A: f64[n, m]", "f64[n, 2]", "<_, 1> Ω<0> + red Ω<1> A", lambda a: np.stack([a.sum(1), np.ones(len(a))], 1), ""),
    ("A: f64[n, m], v: f64[m]", "f64[n]", "(_ +.× v) Ω<1> A", np.matmul, ""),
    ("A: f64[n, m], v: f64[m]", "f64[n, m]", "let c = v + 1 in (_ + c) Ω<1> A", lambda a, v: a + v + 1, ""),
    ("A: f64[n, m]", "f64[n, 3]", "fill(<3>, 2.0 × _) Ω<0> + red Ω<1> A", lambda a: np.repeat(2 * a.sum(1)[:, None], 3, 1), ""),
    ("A: f64[n, n]", "f64[n, n]", "select Ω<1,1,1> ((ι n) •<= ι n, A, 0 × A)", lambda a: np.triu(a), ""),
]  # fmt: skip


@pytest.mark.parametrize(("params", "result", "body", "want", "where"), OMEGA, ids=[f"{n}: {s[2]}" for n, s in enumerate(OMEGA)])
def test_omega(params: str, result: str, body: str, want: Callable, where: str) -> None:
    check(params, result, body, want, where, lengths=(0, 1, 2, 3))
