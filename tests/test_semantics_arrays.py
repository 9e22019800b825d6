"""Array operators against plain NumPy, at odd, one and zero lengths; shapes that disagree and reads out of range are refused."""

from __future__ import annotations

import numpy as np
import pytest

from moa_rewrite.semantics import Env, OutOfRange, SemanticsError, array_value
from moa_rewrite.terms import parse_term

SHAPES = [(3, 5, 4), (1, 1, 1), (7, 1, 2), (2, 0, 3), (0, 4, 0)]


def env(shape: tuple[int, ...], **more: np.ndarray) -> Env:
    rng = np.random.default_rng(1)
    arrays = {"A": rng.standard_normal(shape), "B": rng.standard_normal(shape), "I": rng.integers(-9, 9, shape), "M": rng.random(shape) < 0.5, **more}
    return Env(dict(zip("npq", shape, strict=False)), arrays)


def value(text: str, e: Env) -> np.ndarray:
    return array_value(parse_term(text), e)


CASES = {
    'arr("A")': lambda a, e: a,
    'reverse(1, p, arr("A"))': lambda a, e: np.flip(a, 1),
    'rotate(0, 2, n, arr("A"))': lambda a, e: np.roll(a, -2, 0),
    'rotate(2, -5, q, arr("A"))': lambda a, e: np.roll(a, 5, 2),
    'take(1, p // 2, arr("A"))': lambda a, e: a[:, : a.shape[1] // 2],
    'taker(1, p // 2, p, arr("A"))': lambda a, e: a[:, a.shape[1] - a.shape[1] // 2 :],
    'drop(0, n // 2, arr("A"))': lambda a, e: a[a.shape[0] // 2 :],
    'dropr(2, q // 2, arr("A"))': lambda a, e: a[:, :, : a.shape[2] - a.shape[2] // 2],
    'cat(1, p, arr("A"), arr("B"))': lambda a, e: np.concatenate([a, e.arrays["B"]], 1),
    'cat(0, n // 2, take(0, n // 2, arr("A")), drop(0, n // 2, arr("A")))': lambda a, e: a,
    'transpose(<2, 0, 1>, arr("A"))': lambda a, e: np.moveaxis(a, [0, 1, 2], [2, 0, 1]),
    'reshape(<n * p * q>, <n, p, q>, arr("A"))': lambda a, e: a.ravel(),
    'reshape(<q, n * p>, <n, p, q>, arr("A"))': lambda a, e: a.reshape(a.shape[2], -1) if a.size else a.reshape(a.shape[2], a.shape[0] * a.shape[1]),
    'spread(1, 3, arr("A"))': lambda a, e: np.stack([a] * 3, 1),
    'spread(3, 0, arr("A"))': lambda a, e: np.zeros((*a.shape, 0)),
    'red("add", 1, "k", p, arr("A"))': lambda a, e: a.sum(1),
    'red("mul", 2, "k", q, arr("I"))': lambda a, e: e.arrays["I"].prod(2),
    'red("max", 0, "k", n, arr("A"))': lambda a, e: a.max(0, initial=-np.inf),
    'red("min", 1, "k", p, arr("A"))': lambda a, e: a.min(1, initial=np.inf),
    'red("and", 1, "k", p, arr("M"))': lambda a, e: e.arrays["M"].all(1),
    'red("or", 0, "k", n, arr("M"))': lambda a, e: e.arrays["M"].any(0),
    'scan("add", 1, "k", p, arr("A"))': lambda a, e: a.cumsum(1),
    'scan("max", 2, "k", q, arr("A"))': lambda a, e: np.maximum.accumulate(a, 2),
    'scan("and", 0, "k", n, arr("M"))': lambda a, e: np.logical_and.accumulate(e.arrays["M"], 0),
    'arr("A") + arr("B") * arr("A")': lambda a, e: a + e.arrays["B"] * a,
    'select(arr("M"), arr("A"), -arr("B"))': lambda a, e: np.where(e.arrays["M"], a, -e.arrays["B"]),
    'arr("I") // fill(<n, p, q>, 3)': lambda a, e: e.arrays["I"] // 3,
    'arr("I") % fill(<n, p, q>, 3)': lambda a, e: e.arrays["I"] % 3,
    "fill(<n, 2>, 1.5)": lambda a, e: np.full((a.shape[0], 2), 1.5),
    'fill(<2>, red("add", 0, "k", n, iota(n)))': lambda a, e: np.full(2, sum(range(a.shape[0]))),
    "iota(n)": lambda a, e: np.arange(a.shape[0]),
    'cast("f64", arr("I")) * arr("A")': lambda a, e: e.arrays["I"] * a,
    'cast("i64", arr("A"))': lambda a, e: np.trunc(a).astype(int),
    'cast("bool", arr("I"))': lambda a, e: e.arrays["I"] != 0,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("text", CASES)
def test_operator(text: str, shape: tuple[int, ...]) -> None:
    e = env(shape)
    got, want = value(text, e), CASES[text](e.arrays["A"], e)
    assert got.shape == want.shape and got.dtype.kind == want.dtype.kind
    np.testing.assert_allclose(got, want, rtol=1e-14)


@pytest.mark.parametrize(
    "op, f",
    [
        ("neg", np.negative),
        ("abs", np.abs),
        ("exp", np.exp),
        ("sin", np.sin),
        ("cos", np.cos),
        ("tanh", np.tanh),
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("sign", np.sign),
    ],
)
def test_unary(op: str, f) -> None:
    e = env((3, 5, 4))
    np.testing.assert_allclose(value(f'{op}(arr("A"))', e), f(e.arrays["A"]), rtol=1e-15)


@pytest.mark.parametrize("op, f", [("lt", np.less), ("le", np.less_equal), ("eq", np.equal), ("ne", np.not_equal), ("max", np.maximum), ("min", np.minimum)])
def test_binary_on_integers(op: str, f) -> None:
    e = env((3, 5, 4), J=np.random.default_rng(2).integers(-9, 9, (3, 5, 4)))
    assert np.array_equal(value(f'{op}(arr("I"), arr("J"))', e), f(e.arrays["I"], e.arrays["J"]))


def test_erf_by_its_series() -> None:
    x = np.linspace(-1, 1, 9)
    series = sum((-1) ** k * x ** (2 * k + 1) / (np.prod(np.arange(1, k + 1, dtype=float)) * (2 * k + 1)) for k in range(25)) * 2 / np.sqrt(np.pi)
    np.testing.assert_allclose(value('erf(arr("X"))', Env({}, {"X": x})), series, atol=1e-15)


@pytest.mark.parametrize("v", [(1, 0), (0, 0), (2, 0, 1), (1, 2, 0), (0, 1, 0), (1, 0, 1), (0, 0, 0)])
def test_transpose_by_its_definition(v: tuple[int, ...]) -> None:
    """index i of the result reads A at i[v]; a repeated axis takes the shorter length."""
    a = np.random.default_rng(0).standard_normal((4, 3, 5)[: len(v)])
    got = value(f'transpose(<{", ".join(map(str, v))}>, arr("A"))', Env({}, {"A": a}))
    assert got.shape == tuple(min(n for n, j in zip(a.shape, v, strict=True) if j == k) for k in range(max(v) + 1))
    for i in np.ndindex(*got.shape):
        assert got[i] == a[tuple(i[j] for j in v)]


def test_transpose_chain_that_is_no_involution() -> None:
    a = np.arange(60.0).reshape(3, 4, 5)
    once = value('transpose(<2, 0, 1>, arr("A"))', Env({}, {"A": a}))
    assert once.shape == (4, 5, 3) and once[1, 2, 0] == a[0, 1, 2]
    assert np.array_equal(value('transpose(<2, 0, 1>, transpose(<2, 0, 1>, transpose(<2, 0, 1>, arr("A"))))', Env({}, {"A": a})), a)


def test_gather_rows_and_elements() -> None:
    a = np.random.default_rng(0).standard_normal((3, 4, 5))
    e1, e0 = np.array([3, 0, 2]), np.array(2)
    env_ = Env({}, {"A": a, "E": e1, "z": e0, "F": np.array([0, 4, 1])})
    assert np.array_equal(value('gather(1, arr("E"), arr("A"))', env_), np.stack([a[i, e1[i]] for i in range(3)]))
    assert np.array_equal(value('gather(0, arr("z"), arr("A"))', env_), a[2])
    with pytest.raises(OutOfRange, match=r"4 at \(1,\)"):
        value('gather(1, arr("F"), arr("A"))', env_)


def test_worked_example_of_the_psi_correspondence() -> None:
    """X = (2 take reverse A) times (1 drop A), A of shape 3 5 4: X[i,j,k] = A[2-i,j,k] * A[i+1,j,k]."""
    a = np.random.default_rng(0).standard_normal((3, 5, 4))
    x = value('take(0, 2, reverse(0, 3, arr("A"))) * drop(0, 1, arr("A"))', Env({}, {"A": a}))
    for i, j, k in np.ndindex(2, 5, 4):
        assert x[i, j, k] == a[2 - i, j, k] * a[i + 1, j, k]


@pytest.mark.parametrize(
    "text",
    [
        'take(0, 4, arr("A"))',
        'take(0, -1, arr("A"))',
        'drop(1, 6, arr("A"))',
        'reverse(0, 4, arr("A"))',
        'rotate(1, 1, 4, arr("A"))',
        'taker(0, 1, 2, arr("A"))',
        'reshape(<59>, <3, 5, 4>, arr("A"))',
        'reshape(<60>, <3, 4, 5>, arr("A"))',
        'cat(0, 2, arr("A"), arr("A"))',
        'cat(0, 3, arr("A"), take(1, 2, arr("A")))',
        'arr("A") + take(0, 2, arr("A"))',
        'red("add", 0, "k", 2, arr("A"))',
        'transpose(<0, 2, 2>, arr("A"))',
        'transpose(<0, 1>, arr("A"))',
        'fill(<2>, arr("A"))',
        'gather(1, arr("A"), arr("A"))',
    ],
)
def test_shapes_that_disagree(text: str) -> None:
    with pytest.raises(SemanticsError):
        value(text, env((3, 5, 4)))


def test_empty_extremes_of_integers_follow_their_type() -> None:
    for d, low in (("i32", -(2**31)), ("i64", -(2**63))):
        e = Env({}, {"I": np.zeros((2, 0), int)}, {}, {}, (("I", d),))
        assert value('red("max", 1, "k", 0, arr("I"))', e).tolist() == [low, low]
