"""The vectorised evaluator of scalar terms against NumPy and against the point-by-point one; masks, extents, chunks, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from moa_rewrite.semantics import Env, OutOfRange, SemanticsError, evaluate, scalars
from moa_rewrite.semantics.points import Points, element_of
from moa_rewrite.terms import Term, parse_term


def env(n: int, m: int, d: int = 3, **more: np.ndarray) -> Env:
    rng = np.random.default_rng(3)
    arrays = {
        "A": rng.standard_normal((n, m)),
        "B": rng.standard_normal((m, d)),
        "v": rng.standard_normal(m),
        "E": rng.integers(0, max(m, 1), n),
        "s": np.asarray(0.5),
    }
    return Env({"n": n, "m": m, "d": d}, {**arrays, **more}, {"i": np.arange(n), "j": np.arange(d)})


def pointwise(t: Term, e: Env) -> np.ndarray:
    points = Points(e, lambda name, index, u, p: element_of(e.arrays[name], index, u, p), e.dtype)
    f = points.function(t)
    shape = tuple(len(v) for v in e.axes.values())
    return np.array([f({n: int(v[k]) for k, (n, v) in zip(at, e.axes.items(), strict=True)}) for at in np.ndindex(*shape)]).reshape(shape)


TERMS = [
    'reduce("add", "k", m, A[@i, @k] * B[@k, @j])',
    'reduce("add", "k", m, 2.0)',
    'reduce("mul", "k", m, A[@i, @k])',
    'reduce("max", "k", m, A[@i, @k] - v[@k])',
    'reduce("min", "k", m, @k * @j - @i)',
    'reduce("add", "k", @i + 1, cast("f64", @k) * s[])',
    'reduce("max", "k", @i - 1, cast("f64", @k))',
    'reduce("mul", "k", @j, 1 + @k)',
    'reduce("or", "k", m, @k == @i) and not (@i < 1)',
    'reduce("add", "k", m, select(@k <= @i, exp(A[@i, @k] - reduce("max", "q", m, A[@i, @q])), 0.0))',
    'reduce("add", "k", m, reduce("add", "q", @k, A[@i, @q]) * B[@k, @j])',
    'snd(reduce("osm", "k", m, pair(A[@i, @k], B[@k, @j])))',
    'fst(reduce("osm", "k", m, pair(A[@i, @k] * 0.5, B[@k, @j])))',
    'snd(reduce("osm", "k", @i, pair(cast("f64", @k), v[0 * @k])))',
    "select(0 < @i, A[@i - 1, 0], -1.0)",
    "select(@i + @j < n, select(@i < 1, 3, 4), 5)",
    'cast("f64", E[@i]) + v[E[@i]]',
    "(@i - 5) // 3 + (@i - 5) % 3 * 10 + 7 // (@j + 1)",
    'psi(<@j, @i>, transpose(<1, 0>, reverse(0, n, arr("A"))))',
    'psi(<>, red("add", 0, "z", m, arr("v")))',
    "pow(abs(A[@i, 0]), 2.5) / (1.0 + erf(s[])) + max(tanh(A[@i, 0]), sign(v[0])) - floor(A[@i, 0])",
    'reduce("max", "k", m, reduce("min", "q", d, A[@i, @k] + B[@k, @q] * cast("f64", @j)))',
    '@j + reduce("add", "k", n, reduce("add", "q", m, select(@q < @k, 1, 0)))',
]


@pytest.mark.parametrize("chunk", [1 << 20, 8])
@pytest.mark.parametrize("n, m", [(5, 7), (3, 3), (1, 1), (0, 2)])
@pytest.mark.parametrize("text", TERMS)
def test_agrees_with_points(text: str, n: int, m: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalars, "CHUNK", chunk)
    e, t = env(n, m, min(3, m)), parse_term(text)
    got = evaluate(t, e)
    want = pointwise(t, e)
    assert got.shape == want.shape == (n, min(3, m))
    if want.size:
        assert got.dtype.kind == want.dtype.kind
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("m", [0, 1, 7])
def test_matmul_and_softmax_against_numpy(m: int) -> None:
    e = env(5, m)
    a, b = e.arrays["A"], e.arrays["B"]
    np.testing.assert_allclose(evaluate(parse_term(TERMS[0]), e), a @ b, rtol=1e-13, atol=1e-15)
    top = a.max(1, initial=-np.inf, keepdims=True)
    np.testing.assert_allclose(evaluate(parse_term('snd(reduce("osm", "k", m, pair(A[@i, @k], B[@k, @j])))'), e), np.exp(a - top) @ b, rtol=1e-13)
    assert np.array_equal(evaluate(parse_term('fst(reduce("osm", "k", m, pair(A[@i, @k], 1.0)))'), e), np.broadcast_to(top, (5, 3)))


@pytest.mark.parametrize("chunk", [1 << 20, 8])
def test_rows_of_minus_infinity(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wholly masked row gives w = 0 and no NaN; masked entries elsewhere count for nothing, even where x is infinite; NaN is kept."""
    monkeypatch.setattr(scalars, "CHUNK", chunk)
    e = env(5, 7)
    a = e.arrays["A"].copy()
    a[1], a[2, :6], a[3, 4], a[4, 5] = -np.inf, -np.inf, -np.inf, np.nan
    b = e.arrays["B"].copy()
    b[4] = np.inf
    e = env(5, 7, A=a, B=b)
    t = parse_term('snd(reduce("osm", "k", m, pair(A[@i, @k], B[@k, @j])))')
    w, m = evaluate(t, e), evaluate(parse_term('fst(reduce("osm", "k", m, pair(A[@i, @k], B[@k, @j])))'), e)
    assert (w[1] == 0).all() and (m[1] == -np.inf).all()
    assert np.array_equal(w[2], b[6]) and np.isfinite(w[3]).all() and np.isinf(w[0]).all() and np.isnan(w[4]).all()
    np.testing.assert_allclose(w, pointwise(t, e), rtol=1e-12)


def test_a_subset_of_points() -> None:
    e = env(50, 9)
    some = Env(e.sizes, e.arrays, {"j": np.array([2, 0]), "i": np.array([0, 49, 7])})
    t = parse_term(TERMS[0])
    np.testing.assert_allclose(evaluate(t, some), (e.arrays["A"] @ e.arrays["B"])[np.ix_([0, 49, 7], [2, 0])].T)


def test_lifted_axes_by_their_definitions() -> None:
    e = env(5, 12)
    d = {"k": parse_term("@k.o * 4 + @k.i")}
    t = parse_term('reduce("add", "k.o", m // 4, reduce("add", "k.i", 4, A[@i, @k] * B[@k, @j]))')
    np.testing.assert_allclose(evaluate(t, Env(e.sizes, e.arrays, e.axes, d)), e.arrays["A"] @ e.arrays["B"])


@pytest.mark.parametrize(
    "text, message",
    [
        ("A[@i, @j + 5]", r"A\[@i, @j \+ 5\] is out of range: index 1 is 7, the axis has length 7; witness i=0, j=2"),
        ("A[@i - 1, 0]", r"index 0 is -1, .*witness i=0"),
        ("select(0 < @i, A[@i - 2, 0], 0.0)", r"index 0 is -1, .*witness i=1"),
        ('reduce("add", "k", m + 1, v[@k])', r"index 0 is 7, .*k=7"),
        ('reduce("add", "k", @i, A[@i, @k + 4])', r"index 1 is 7, .*i=4, .*k=3"),
        ('reduce("add", "k", m, select(@k <= @i, A[@i + 1, 0], 0.0))', r"index 0 is 5, .*i=4"),
        ("@i // @j", "divides by zero; witness i=0, j=0"),
        ("A[0]", "1 indices for shape"),
        ("nowhere[@i]", "no array nowhere"),
        ("A[@z, 0]", "axis @z has no value"),
        ("pair(1.0, 2.0) + 1.0", "is a pair"),
    ],
)
def test_refused_with_a_witness(text: str, message: str) -> None:
    with pytest.raises(SemanticsError, match=message):
        evaluate(parse_term(text), env(5, 7))


@pytest.mark.parametrize(
    "text",
    [
        "select(@i + @j < n, A[@i + @j, 0], 0.0)",
        'select(@i < n - 1, reduce("add", "k", m, A[@i + 1, @k]), 0.0)',
        'reduce("add", "k", m, select(@k < @i, A[@i - 1, 0] * v[@k], 0.0))',
        'reduce("add", "k", @i, A[@i - 1, @k])',
        'reduce("add", "k", 0, A[@i + n, @k])',
        "select(@j == 0, 0, 7 // @j)",
    ],
)
def test_what_is_not_taken_is_not_read(text: str) -> None:
    e, t = env(5, 7), parse_term(text)
    np.testing.assert_allclose(evaluate(t, e), pointwise(t, e))


def test_nothing_counts_where_an_axis_is_empty() -> None:
    e = env(0, 7)
    assert evaluate(parse_term("v[@j + 9]"), e).shape == (0, 3)
    e = env(5, 7, Z=np.zeros(0))
    assert evaluate(parse_term("select(@i < 0, Z[@i], 1.0)"), e).tolist() == [[1.0] * 3] * 5


def test_a_shared_read_is_checked_in_each_branch() -> None:
    with pytest.raises(OutOfRange, match="witness i=2"):
        evaluate(parse_term("select(@i < 2, A[@i + 3, 0], A[@i + 3, 0] + 1.0)"), env(5, 7))


def test_a_bound_axis_hides_a_definition_of_its_name() -> None:
    e = env(2, 2)
    e = Env(e.sizes, e.arrays, e.axes, {"k": parse_term("@i + 100")})
    assert (evaluate(parse_term('reduce("add", "k", 3, @k * 2) + 0 * @i'), e) == 6).all()
    assert evaluate(parse_term("@k + 0 * @j"), e).tolist() == [[100] * 3, [101] * 3]


def test_the_guards_of_reads_are_needed() -> None:
    """The same reads without their guards are refused."""
    for text in ("A[@i + @j, 0]", 'reduce("add", "k", m, A[@i + 1, @k])'):
        with pytest.raises(OutOfRange):
            evaluate(parse_term(text), env(5, 7))


def test_work_outside_the_reduction_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    keep = scalars.apply
    monkeypatch.setattr(scalars, "apply", lambda op, args, r: calls.append(op) or keep(op, args, r))
    monkeypatch.setattr(scalars, "CHUNK", 8)
    evaluate(parse_term('reduce("max", "k", m, A[@i, @k] - exp(reduce("max", "q", m, A[@i, @q])))'), env(5, 7))
    assert calls.count("exp") == 1 and calls.count("sub") == 7
