"""Values that publications print, and mistakes that other compilers of the same algebra are known for, through the generated C."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
from through_c import compiled

from moa_rewrite.build.call import evaluate
from moa_rewrite.rules.meta import gamma
from moa_rewrite.terms import I, ix

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

# Mullin and Hains, memory-optimal transformer kernels I, section 5.2 and tables 1 and 2
Q = [[-0.1984, 0.2698, 0.3414, -0.0372], [0.2547, -1.0674, 0.3460, -2.5242], [0.6822, -0.6265, 0.0252, 0.3978]]
K = [[-1.1567, 0.6885, -0.1884, 0.4743], [0.2246, 1.7564, 0.5235, -2.3014], [-1.5899, 0.3730, -0.8257, -1.2069]]
V = [[1.0739, 0.4006, -0.9671, 0.4870], [0.5589, -0.7209, -0.7650, 0.2689], [0.8237, 0.3763, 0.8320, 0.0014]]
WEIGHTS = [[0.3202, 0.3834, 0.2964], [0.0288, 0.7300, 0.2412], [0.4270, 0.2844, 0.2887]]
OUT = [[0.8023, -0.0366, -0.3563, 0.2595], [0.6376, -0.4240, -0.3857, 0.2107], [0.8552, 0.0747, -0.3903, 0.2848]]


def test_the_3x4_example_of_the_attention_paper(tmp_path: Path) -> None:
    q, k, v = (np.array(x, np.float32) for x in (Q, K, V))
    text = (EXAMPLES / "attention3x4.moa").read_text(encoding="utf-8")
    weights = compiled(text, tmp_path, "weights3x4")
    np.testing.assert_allclose(weights(Q=q, K=k), WEIGHTS, atol=1e-4)
    np.testing.assert_allclose(compiled(text, tmp_path, "attention3x4")(Q=q, K=k, V=v), OUT, atol=1e-4)
    general = compiled((EXAMPLES / "attention.moa").read_text(encoding="utf-8"), tmp_path)
    np.testing.assert_allclose(general(Q=q[None], K=k[None], V=v[None])[0], OUT, atol=1e-4)


def test_gamma_of_equation_7(tmp_path: Path) -> None:
    """Offsets in shape <3, 4>: row-major 0, 3, 6, 9, and 7 in column-major order. An array that holds its own offsets tells where the C reads."""
    places = {(0, 0): 0, (0, 3): 3, (1, 2): 6, (2, 1): 9}
    for (i, j), offset in places.items():
        assert evaluate(gamma(ix(I(i), I(j)), ix(I(3), I(4))), {}) == offset
    assert evaluate(gamma(ix(I(2), I(1)), ix(I(4), I(3))), {}) == 7
    cells = ", ".join(f"<{i}, {j}> ψ A" for i, j in places)
    f = compiled(f"kernel g(A: f64[3, 4], B: f64[4, 3]) -> (a: f64, b: f64, c: f64, d: f64, e: f64) = ({cells}, <1, 2> ψ ⍉B)", tmp_path)
    assert [float(x) for x in f(np.arange(12.0).reshape(3, 4), np.arange(12.0).reshape(4, 3))] == [0, 3, 6, 9, 7]


def test_transposition_of_python_moa(tmp_path: Path) -> None:
    """result[i] = A[i[v]] for every order of three axes; the mistake is to read the inverse order, which shows for the two that are not their own inverse."""
    a = np.arange(60.0).reshape(3, 4, 5)
    orders = list(itertools.permutations(range(3)))
    shapes = [", ".join("abc"[v.index(k)] for k in range(3)) for v in orders]
    results = ", ".join(f"t{n}: f64[{s}]" for n, s in enumerate(shapes))
    f = compiled(f"kernel t(A: f64[a, b, c]) -> ({results}) = ({', '.join(f'<{v[0]}, {v[1]}, {v[2]}> ⍉ A' for v in orders)})", tmp_path)
    for v, got in zip(orders, f(a), strict=True):
        assert got.shape == tuple(a.shape[v.index(k)] for k in range(3))
        assert all(got[i] == a[i[v[0]], i[v[1]], i[v[2]]] for i in np.ndindex(got.shape)), v
    assert f(a)[orders.index((2, 0, 1))][3, 4, 2] == a[2, 3, 4]


def test_rav_inside_take_and_psi_of_the_psi_compiler(tmp_path: Path) -> None:
    f = compiled(
        """kernel r(A: f64[n, m]) -> (a: f64[5], b: f64[n * m - 7], c: f64[3], d: f64[n * m]) where n * m >= 7
        = (5 ↑ rav(A), 7 ↓ rav(φA), 3 ↑ 2 ↓ rav(⍉A), rav(φ Ω<1> A))""", tmp_path)  # fmt: skip
    for shape in ((3, 4), (7, 1), (1, 9)):
        x = np.arange(float(np.prod(shape))).reshape(shape)
        for got, want in zip(f(x), (x.ravel()[:5], x[::-1].ravel()[7:], x.T.ravel()[2:5], x[:, ::-1].ravel()), strict=True):
            np.testing.assert_array_equal(got, want)
    g = compiled("kernel p(A: f64[3, 4]) -> (a: f64, b: f64[2]) = (<6> ψ rav(⍉A), <2> ψ <6, 2> ρ̂ rav(A))", tmp_path)
    x = np.arange(12.0).reshape(3, 4)
    one, two = g(x)
    assert one == x.T.ravel()[6] and two.tolist() == [4, 5]


def test_reverse_under_omega_of_the_psi_compiler(tmp_path: Path) -> None:
    """Cells of rank 3, 2 and 1, so that the reversed axis has another stride each time; also after a transposition and a drop, which change it again."""
    f = compiled(
        """kernel r(A: f64[a, b, c]) -> (x: f64[a, b, c], y: f64[a, b, c], z: f64[a, b, c], t: f64[c, b, a], u: f64[a, b, c - 1], w: f64[a, b, c])
        = (φ Ω<3> A, φ Ω<2> A, φ Ω<1> A, φ Ω<1> (<2, 1, 0> ⍉ A), (1 ↓ φ _) Ω<1> A, φ Ω<1> (φ Ω<2> A))""", tmp_path)  # fmt: skip
    for shape in ((2, 3, 4), (1, 1, 1), (5, 1, 3)):
        x = np.arange(float(np.prod(shape))).reshape(shape)
        wanted = (x[::-1], x[:, ::-1], x[:, :, ::-1], x.transpose(2, 1, 0)[:, :, ::-1], x[:, :, ::-1][:, :, 1:], x[:, ::-1, ::-1])
        for got, want in zip(f(x), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


def test_temporaries_under_omega_of_the_psi_compiler(tmp_path: Path) -> None:
    """Intermediate arrays of a cell, of another shape than its arguments and its result, for every cell of the frame."""
    f = compiled(
        """kernel c(A: f64[h, n, p], B: f64[h, p, q], C: f64[h, q, m]) -> f64[h, n, m] where q >= 1
        = def chain(a, b, c) = let ab = a +.× b in (ab - Ω<1,0> (max red Ω<1> ab)) +.× c in chain Ω<2,2,2> (A, B, C)""",
        tmp_path,
    )
    rng = np.random.default_rng(5)
    for h, n, p, q, m in ((1, 1, 1, 1, 1), (3, 5, 2, 7, 4), (2, 33, 17, 65, 9), (2, 3, 0, 4, 5), (0, 3, 2, 4, 5)):
        a, b, c = rng.standard_normal((h, n, p)), rng.standard_normal((h, p, q)), rng.standard_normal((h, q, m))
        ab = a @ b
        np.testing.assert_allclose(f(a, b, c), (ab - ab.max(-1, keepdims=True)) @ c, rtol=1e-10, atol=1e-12)


def test_programs_of_many_statements_of_the_psi_compiler(tmp_path: Path) -> None:
    """Several named arrays and results in one parallel program."""
    f = compiled(
        """kernel s(A: f64[n, m]) -> (mean: f64[m], centred: f64[n, m], cov: f64[m, m]) where n >= 1
        = let mean = (+ red A) ÷ f64(n)
          let centred = A - Ω<1,1> mean
          let cov = ((⍉centred) +.× centred) ÷ f64(n)
          in (mean, centred, cov)""", tmp_path)  # fmt: skip
    rng = np.random.default_rng(6)
    for n, m in ((1, 1), (40, 7), (65, 33), (3, 0)):
        a = rng.standard_normal((n, m))
        mean, centred, cov = f(a)
        np.testing.assert_allclose(mean, a.mean(0), atol=1e-12)
        np.testing.assert_allclose(centred, a - a.mean(0), atol=1e-12)
        np.testing.assert_allclose(cov, (a - a.mean(0)).T @ (a - a.mean(0)) / n, atol=1e-12)
