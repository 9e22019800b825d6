"""Reference values of whole kernels: all points, samples, bounds, memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from moa_rewrite.semantics import F32, SemanticsError, reference, run
from moa_rewrite.semantics.reference import _cut, _sample
from moa_rewrite.terms import Array, Kernel, Term, axis, ix, parse_term, size

N, M, D = size("n"), size("m"), size("d")


def kernel(text: str, shape: tuple[Term, ...], axes: str, dtype: str = "f32", inputs: tuple[Array, ...] | None = None) -> Kernel:
    body = Term("emit", "once", "X", ix(*[axis(a) for a in axes]), parse_term(text))
    for a, n in reversed(list(zip(axes, shape, strict=True))):
        body = Term("for", a, n, "seq", body)
    qkv = tuple(Array(k, dtype, (N if k == "Q" else M, D)) for k in "QKV")
    return Kernel("k", ("n", "m", "d"), (), qkv if inputs is None else inputs, (Array("X", dtype, shape),), body)


SCORE = 'reduce("add", "c", d, Q[@i, @c] * K[@{}, @c]) * 0.125'
TOP = f'reduce("max", "q", m, {SCORE.format("q")})'
ATTENTION = f'reduce("add", "k", m, exp({SCORE.format("k")} - {TOP}) / reduce("add", "p", m, exp({SCORE.format("p")} - {TOP})) * V[@k, @v])'
ONLINE = f'snd(reduce("osm", "k", m, pair({SCORE.format("k")}, V[@k, @v]))) / snd(reduce("osm", "k", m, pair({SCORE.format("k")}, 1.0)))'
P = 'exp(red("add", 2, "c", d, spread(1, m, arr("Q")) * spread(0, n, arr("K"))) * fill(<n, m>, 0.125))'
WHOLE = f'psi(<@i, @v>, red("add", 1, "z", m, spread(2, d, {P}) * spread(0, n, arr("V"))) / spread(1, d, red("add", 1, "y", m, {P})))'


def data(n: int, m: int, d: int) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    rng = np.random.default_rng(0)
    return {k: rng.standard_normal((n if k == "Q" else m, d)).astype(np.float32) for k in "QKV"}, {"n": n, "m": m, "d": d}


def attention(a: dict[str, np.ndarray], kind: type = np.float64) -> np.ndarray:
    q, k, v = (a[x].astype(kind) for x in "QKV")
    s = q @ k.T * kind(0.125)
    p = np.exp(s - s.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True) @ v


@pytest.mark.parametrize("text", [ATTENTION, ONLINE, WHOLE])
def test_attention(text: str) -> None:
    arrays, sizes = data(37, 51, 7)
    got = reference(kernel(text, (N, D), "iv"), arrays, sizes)["X"]
    assert got.points is None
    np.testing.assert_allclose(got.value, attention(arrays), rtol=1e-12)
    error = np.abs(attention(arrays, np.float32) - got.value)
    assert (error <= got.bound).all() and got.bound.max() < 1e-4
    double = reference(kernel(text, (N, D), "iv"), arrays, sizes, precision="f64")["X"]
    assert double.bound.max() < 1e-12


def test_paper_values_of_attention() -> None:
    """Mullin and Hains, arXiv:2606.07713, section 5.2: n = 3, d = 4, to 1e-4 (scale 1/2)."""
    q = [[-0.1984, 0.2698, 0.3414, -0.0372], [0.2547, -1.0674, 0.3460, -2.5242], [0.6822, -0.6265, 0.0252, 0.3978]]
    k = [[-1.1567, 0.6885, -0.1884, 0.4743], [0.2246, 1.7564, 0.5235, -2.3014], [-1.5899, 0.3730, -0.8257, -1.2069]]
    v = [[1.0739, 0.4006, -0.9671, 0.4870], [0.5589, -0.7209, -0.7650, 0.2689], [0.8237, 0.3763, 0.8320, 0.0014]]
    want = [[0.8023, -0.0366, -0.3563, 0.2595], [0.6376, -0.4240, -0.3857, 0.2107], [0.8552, 0.0747, -0.3903, 0.2848]]
    arrays = dict(zip("QKV", map(np.array, (q, k, v)), strict=True))
    for text in (ATTENTION, ONLINE):
        got = reference(kernel(text.replace("0.125", "0.5"), (N, D), "iv"), arrays, {"n": 3, "m": 3, "d": 4})["X"]
        np.testing.assert_allclose(got.value, want, atol=1e-4)


def test_a_sample_agrees_with_the_whole_and_has_the_ends() -> None:
    arrays, sizes = data(100, 30, 5)
    k = kernel(ONLINE, (N, D), "iv")
    whole, some = reference(k, arrays, sizes)["X"], reference(k, arrays, sizes, sample=8)["X"]
    assert some.points is not None and len(some.points[0]) == 8 and some.points[0][0] == 0 and some.points[0][-1] == 99
    np.testing.assert_allclose(some.value, whole.value[np.ix_(*some.points)], rtol=1e-13)
    np.testing.assert_allclose(some.bound, whole.bound[np.ix_(*some.points)], rtol=1e-9)
    assert all(np.array_equal(a, b) for a, b in zip(some.points, reference(k, arrays, sizes, sample=8)["X"].points, strict=True))


@pytest.mark.parametrize(
    "shape, count", [((1000,), 10), ((8, 1000, 64), 30), ((2, 3, 1000, 4), 50), ((1, 1, 1), 4), ((0, 5), 3), ((), 5), ((5, 5), 1), ((3, 0), 2)]
)
def test_sample_points(shape: tuple[int, ...], count: int) -> None:
    points = _sample(shape, count)
    lead = max(1, len(shape) - 1)
    assert len(points) == len(shape)
    for k, (p, n) in enumerate(zip(points, shape, strict=True)):
        assert (np.diff(p) > 0).all() and len(p) == (n if k >= lead else min(n, len(p)))
        assert n == 0 or (p[0] == 0 and p[-1] == n - 1)
    assert np.prod([len(p) for p in points[:lead]]) <= max(count, 2**lead) * 1.5


@pytest.mark.parametrize("n, m, d", [(0, 3, 2), (3, 0, 2), (2, 3, 0), (1, 1, 1), (3, 5, 2)])
def test_agrees_with_the_statement_interpreter(n: int, m: int, d: int) -> None:
    arrays, sizes = data(n, m, d)
    k = kernel('reduce("add", "k", m, Q[@i, @v] * K[@k, @v]) + reduce("max", "k", m, V[@k, @v])', (N, D), "iv")
    np.testing.assert_allclose(reference(k, arrays, sizes)["X"].value, run(k, arrays, sizes)["X"])


def test_blocks_of_long_results() -> None:
    cover = np.zeros((5, 3, 7), int)
    for block in _cut(cover.shape, 8):
        cover[block] += 1
        assert cover[block].size <= 8
    assert (cover == 1).all() and list(_cut((), 4)) == [()]


def test_refused() -> None:
    arrays, sizes = data(4, 3, 2)
    k = kernel("Q[@i + 1, @v]", (N, D), "iv")
    with pytest.raises(SemanticsError, match="out of range: index 0 is 4"):
        reference(k, arrays, sizes)
    with pytest.raises(SemanticsError, match="no contribution"):
        reference(k.with_body(Term("skip")), arrays, sizes)
    with pytest.raises(SemanticsError, match="neither source nor DNF"):
        reference(k.with_body(Term("new", "T", k.body)), arrays, sizes)
    with pytest.raises(SemanticsError, match=r"shape \(4, 2\), the loops give \(2, 4\)"):
        reference(k.with_body(kernel("0.0", (D, N), "iv").body), arrays, sizes)
    diagonal = Term("emit", "once", "X", ix(axis("i"), axis("i")), parse_term("0.0"))
    with pytest.raises(SemanticsError, match="not the loops' own axes"):
        reference(k.with_body(Term("for", "i", N, "seq", Term("for", "v", D, "seq", diagonal))), arrays, sizes)
    with pytest.raises(SemanticsError, match="given a pair"):
        reference(kernel("pair(0.0, 1.0)", (N, D), "iv"), arrays, sizes)


def test_a_long_scan_is_one_pass() -> None:
    """Prefix sums of 200 000 elements: all pairs would be 4e10."""
    v = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    body = Term("for", "i", N, "seq", Term("emit", "once", "X", ix(axis("i")), parse_term('reduce("add", "k", @i + 1, v[@k])')))
    got = reference(Kernel("scan", ("n",), (), (Array("v", "f32", (N,)),), (Array("X", "f32", (N,)),), body), {"v": v}, {"n": len(v)})["X"]
    np.testing.assert_allclose(got.value, v.astype(float).cumsum(), rtol=1e-9, atol=1e-9)
    assert (np.abs(v.cumsum(dtype=np.float32) - got.value) <= got.bound).all()


def test_ragged_sums_that_are_no_scan_stay_in_memory() -> None:
    arrays = {"v": np.random.default_rng(0).standard_normal(3000)}
    body = Term("for", "i", N, "seq", Term("emit", "once", "X", ix(axis("i")), parse_term('reduce("add", "k", @i + 1, v[@k] * v[@i])')))
    k = Kernel("scan", ("n",), (), (Array("v", "f64", (N,)),), (Array("X", "f64", (N,)),), body)
    tracemalloc.start()
    got = reference(k, arrays, {"n": 3000})["X"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(got.value, arrays["v"].cumsum() * arrays["v"], rtol=1e-9, atol=1e-12)
    assert peak < 100e6, peak


def test_memory_of_long_attention_is_bounded() -> None:
    """4096 keys, 64 sampled rows, and 2048 full rows: far below the score matrix (128 MiB and more), and below 256 MiB."""
    arrays, sizes = data(2048, 4096, 64)
    tracemalloc.start()
    got = reference(kernel(ATTENTION, (N, D), "iv"), arrays, sizes, sample=64)["X"]
    small = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    reference(kernel(ONLINE, (N, D), "iv"), arrays, sizes)
    large = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(got.value, attention(arrays)[np.ix_(*got.points)], rtol=1e-10)  # type: ignore[misc]
    assert small < 120e6 and large < 200e6, (small, large)
    assert got.bound.max() < 4096 * 64 * F32.u
