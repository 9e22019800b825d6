"""The rounding-error bound dominates what float32 evaluation really does, in any order of its sums, and is finite and useful on normal data."""

from __future__ import annotations

import math

import numpy as np
import pytest

from moa_rewrite.semantics import F32, F64, Env, Rounding, array_value, evaluate, evaluate_with_bound
from moa_rewrite.semantics.arrays import array_approx
from moa_rewrite.terms import Term, parse_term

f32 = np.float32
ONE = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "lt": np.less,
    "le": np.less_equal,
    "erf": lambda x: f32(math.erf(float(x))),
    "mod": lambda x, y: x % y,
    "eq": np.equal,
    "not": np.logical_not,
}


def narrow(t: Term, e: Env, p: dict[str, int], rng: np.random.Generator):
    """One element in float32, every operation rounded, sums in a random order (osm: online, in that order). Written for these tests only."""
    op, a = t.op, t.args
    if op in ("int", "axis", "size"):
        return {"int": lambda: a[0], "axis": lambda: p[a[0]], "size": lambda: e.sizes[a[0]]}[op]()
    if op == "num":
        return f32(a[0])
    if op == "get":
        v = e.arrays[a[0]][tuple(narrow(i, e, p, rng) for i in a[1].args)]
        return f32(v) if v.dtype.kind == "f" else int(v)
    if op == "cast":
        return f32(narrow(a[1], e, p, rng))
    if op == "select":
        return narrow(a[1] if narrow(a[0], e, p, rng) else a[2], e, p, rng)
    if op in ("snd", "fst"):
        return narrow(a[0], e, p, rng)[op == "snd"]
    if op == "pair":
        return narrow(a[0], e, p, rng), narrow(a[1], e, p, rng)
    if op == "reduce":
        items = [narrow(a[3], e, {**p, a[1]: k}, rng) for k in rng.permutation(narrow(a[2], e, p, rng))]
        if a[0] == "osm":
            m, w = f32(-np.inf), f32(0)
            for s, x in items:
                top = max(m, s)
                if top > -np.inf:
                    w = w * np.exp(m - top) + np.exp(s - top) * f32(x)
                m = top
            return m, w
        acc = {"add": f32(0), "mul": f32(1), "max": f32(-np.inf), "min": f32(np.inf)}[a[0]]
        for x in items:
            acc = ONE[a[0]](acc, x)
        return acc
    out = ONE[op](*[narrow(k, e, p, rng) for k in t.kids()])
    return f32(out) if isinstance(out, np.floating) else out


def data(n: int = 6, m: int = 40, seed: int = 0, scale: float = 1.0) -> Env:
    rng = np.random.default_rng(seed)
    arrays = {k: (scale * rng.standard_normal(s)).astype(f32).astype(float) for k, s in {"A": (n, m), "B": (m, 4), "C": (m, n), "v": (m,), "w": (n,)}.items()}
    return Env({"n": n, "m": m}, arrays, {"i": np.arange(n), "j": np.arange(4)})


SCORE = 'reduce("add", "d", 4, C[@k, @i] * B[@k, @d])'
TERMS = [
    "0.1 * w[@i] + 0.7",
    "w[@i] - w[(@i + 1) % n] - 1e-3",
    "exp(w[@i]) / (1.0 + exp(w[@i]))",
    "log(abs(w[@i]) + 1.0) * sqrt(abs(w[@i]) + 0.5)",
    "sin(3.0 * w[@i]) * cos(w[@i]) - tanh(w[@i]) + erf(w[@i])",
    "pow(abs(w[@i]) + 0.5, 1.7) + pow(w[@i], 3)",
    "max(w[@i] * 0.3, w[0] * 0.3) - min(w[@i], 0.1)",
    "select(w[@i] * 0.1 < 0.0, 0.1 * w[@i], w[@i])",
    "1.0 / (w[@i] * w[@i] + 0.01)",
    "exp(-60.0 + w[@i]) * exp(-40.0)",
    "exp(8.0 * w[@i])",
    "floor(w[@i] * 3.3) + ceil(w[@i] * 0.7) + sign(w[@i] * 0.1)",
    'cast("f32", @i) / 3.0 + cast("f32", n * 16777217)',
    'reduce("add", "k", m, A[@i, @k])',
    'reduce("add", "k", m, A[@i, @k] * B[@k, @j])',
    'reduce("add", "k", m, 0.1)',
    'reduce("mul", "k", m, 1.0 + 0.1 * v[@k])',
    'reduce("max", "k", m, 0.3 * A[@i, @k])',
    'reduce("add", "k", @i * 3, A[@i, @k] * 0.7)',
    'reduce("max", "k", m, A[@i, @k] * v[@k])',
    # variance as the mean of squares minus the squared mean: cancellation
    'reduce("add", "k", m, (A[@i, @k] + 100.0) * (A[@i, @k] + 100.0)) / cast("f32", m) - pow(reduce("add", "q", m, A[@i, @q] + 100.0) / cast("f32", m), 2)',
    'reduce("add", "k", m, exp(A[@i, @k] - reduce("max", "q", m, A[@i, @q])) * B[@k, @j])'
    ' / reduce("add", "p", m, exp(A[@i, @p] - reduce("max", "q", m, A[@i, @q])))',
    f'snd(reduce("osm", "k", m, pair({SCORE}, B[@k, @j] * 0.9))) / snd(reduce("osm", "k", m, pair({SCORE}, 1.0)))',
    f'reduce("add", "k", m, reduce("add", "d", 4, A[@i, @k] * B[@k, @d]) * ({SCORE}))',
]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("text", TERMS)
def test_bound_dominates_float32(text: str, scale: float, seed: int) -> None:
    e, t = data(seed=seed, scale=scale), parse_term(text)
    value, bound = evaluate_with_bound(t, e, Rounding(F32.u, F32.tiny, F32.huge, tile=1))  # the narrow evaluation rescales at every element
    np.testing.assert_array_equal(value, evaluate(t, e))
    rng = np.random.default_rng(seed)
    got = np.array([[narrow(t, e, {"i": i, "j": j}, rng) for j in range(4)] for i in range(len(e.axes["i"]))], float)
    assert np.isfinite(bound).all()
    assert (np.abs(got - value) <= bound).all(), (np.abs(got - value) / bound).max()


BLUR = "({} + 1000.0 - 1000.0)"  # loses about ten bits in float32


@pytest.mark.parametrize(
    "f",
    [
        "exp({})",
        "log({} + 9.0)",
        "sqrt({} + 9.0)",
        "sin({})",
        "cos({})",
        "tanh({})",
        "erf({})",
        "pow({} + 9.0, 2.5)",
        "pow(2.0, {})",
        "1.0 / ({} + 9.0)",
        "max({}, -9.0)",
        "min({}, 9.0)",
        "-{}",
        "abs({})",
        "{} * {}",
        "{} - 1.0",
        "select({} < 9.0, {}, 0.0)",
    ],
)
def test_an_error_of_the_argument_passes_through(f: str) -> None:
    """The argument is off by far more than the function's own rounding; the bound follows, and by no more than a small factor."""
    e, t = data(n=60), parse_term(f.replace("{}", BLUR.format("w[@i]")))
    value, bound = evaluate_with_bound(t, e)
    got = np.array([narrow(t, e, {"i": i, "j": 0}, np.random.default_rng(0)) for i in range(60)], float)
    error = np.abs(got - value[:, 0])
    assert (error <= bound[:, 0]).all() and bound.max() < 16 * error.max()
    assert error.max() > 17 * F32.u * np.abs(value).max()


@pytest.mark.parametrize("text, want", [("floor(x[] * 10.0)", 6.0), ("ceil(y[] * 10.0)", 2.0), ("sign(x[] * 10.0 - 7.0)", -1.0)])
def test_a_jump_that_rounding_crosses(text: str, want: float) -> None:
    """float32 0.7 times 10 is below 7 but rounds to 7; float32 0.1 times 10 is above 1 but rounds to 1."""
    e, t = Env({}, {"x": np.asarray(float(f32(0.7))), "y": np.asarray(float(f32(0.1)))}), parse_term(text)
    value, bound = evaluate_with_bound(t, e)
    assert value == want and abs(float(narrow(t, e, {}, np.random.default_rng(0))) - want) == 1 and bound >= 1


def test_errors_of_a_score_and_of_the_maximum_add_up() -> None:
    """Scores rounded to a grid of 1/128: the greater goes down by almost half a step, the other up, so their distance is off by more than either bound."""
    s = np.array([5 + 0.0038, 4 - 0.0038]).astype(f32).astype(float)
    e = Env({}, {"s": s, "x": np.array([0.0, 1.0])})
    t = parse_term(f'snd(reduce("osm", "k", 2, pair({BLUR.replace("1000", "100000").format("s[@k]")}, x[@k])))')
    value, bound = evaluate_with_bound(t, e)
    error = abs(float(narrow(t, e, {}, np.random.default_rng(0))) - float(value))
    alone = evaluate_with_bound(parse_term(BLUR.replace("1000", "100000").format("s[0]")), e)[1]
    assert 1.2 * alone * value < error <= bound


@pytest.mark.parametrize("blurred, weighted", [(0, 1), (1, 1), (0, 0)])
def test_online_softmax_with_scores_that_are_off(blurred: int, weighted: int) -> None:
    """Key 0 has the maximum. Its error moves all others; the error of another key moves its own term."""
    rng = np.random.default_rng(0)
    s = np.array([5.03, *rng.uniform(0, 4, 3)]).astype(f32).astype(float)
    x = np.array([1.0, 1.0, 1.0, 1.0]) * [weighted == 0, *[weighted == 1] * 3]
    e = Env({}, {"s": s, "x": x})
    score = f"select({'@k == 0' if blurred == 0 else '0 < @k'}, {BLUR.replace('1000', '100000').format('s[@k]')}, s[@k])"
    t = parse_term(f'snd(reduce("osm", "k", 4, pair({score}, x[@k])))')
    value, bound = evaluate_with_bound(t, e)
    error = abs(float(narrow(t, e, {}, rng)) - float(value))
    assert error <= bound and (error > 100 * F32.u * value if weighted else error == 0)


@pytest.mark.parametrize("text", [t for t in TERMS if not any(f in t for f in ("floor", "100.0", "pow(w"))])
def test_bound_is_useful(text: str) -> None:
    """Within 2000 units of roundoff of the value's scale: a wrong digit in the third place is noticed."""
    value, bound = evaluate_with_bound(parse_term(text), data())
    assert bound.max() < 2000 * F32.u * max(1.0, np.abs(value).max())


def test_any_order_of_a_sum_that_is_hard() -> None:
    """Large terms that cancel: sorted, reversed and pairwise float32 sums all stay inside, and their spread shows that the bound has work to do."""
    rng = np.random.default_rng(5)
    a = rng.standard_normal(999) * 10.0 ** rng.integers(0, 6, 999)
    v = rng.permutation(np.concatenate([a, -a, [1.0, 2.0]]).astype(f32))
    value, bound = evaluate_with_bound(parse_term('reduce("add", "k", n, v[@k])'), Env({"n": 2000}, {"v": v.astype(float)}))
    np.testing.assert_allclose(value, 3.0, atol=1e-9)
    orders = (v, np.sort(v), np.sort(v)[::-1], v[np.argsort(abs(v))])
    errors = [abs(float(np.add.accumulate(x, dtype=f32)[-1]) - float(value)) for x in orders] + [abs(float(v.sum()) - float(value))]
    assert max(errors) <= bound and max(errors) > 100 * F32.u * abs(value)


def test_the_bound_of_a_sum_is_reached() -> None:
    """One, then terms just below half a unit in its last place: added one by one they are all lost, which is 9/10 of the bound."""
    n = 1000
    v = np.full(n, 0.9 * 2.0**-24, f32)
    v[0] = 1
    value, bound = evaluate_with_bound(parse_term('reduce("add", "k", n, v[@k])'), Env({"n": n}, {"v": v.astype(float)}))
    error = abs(float(np.add.accumulate(v, dtype=f32)[-1]) - float(value))
    assert 0.85 * bound < error <= bound


def test_overflow_and_infinity() -> None:
    """An infinite input is exact; a finite value that float32 cannot hold has no bound; float64 holds it."""
    e = Env({}, {"x": np.asarray(-np.inf), "y": np.asarray(100.0)})
    for text, want in (("exp(x[])", 0.0), ("max(x[], 1.0)", 0.0), ("x[] + 1.0", 0.0)):
        assert evaluate_with_bound(parse_term(text), e)[1] <= max(want, F32.tiny)
    value, bound = evaluate_with_bound(parse_term("exp(y[])"), e)
    assert np.isfinite(value) and bound == np.inf
    assert np.isfinite(evaluate_with_bound(parse_term("exp(y[])"), e, F64)[1])


def test_an_uncertain_comparison_costs_the_distance_of_the_branches() -> None:
    e = Env({}, {"x": np.asarray(float(f32(0.1)))})
    near = evaluate_with_bound(parse_term("select(3.0 * x[] <= 0.3, 5.0, 7.0)"), e)[1]
    far = evaluate_with_bound(parse_term("select(3.0 * x[] <= 0.4, 5.0, 7.0)"), e)[1]
    assert near >= 2.0 and far == 0.0


def test_exact_things_have_no_error() -> None:
    e = data()
    for text in ("w[@i]", "max(w[@i], v[@j])", 'reduce("max", "k", m, A[@i, @k])', "-abs(w[@i])", "@i * 7 // 2", "select(w[@i] < 0.0, 0.5, w[@i])"):
        assert (evaluate_with_bound(parse_term(text), e)[1] == 0).all(), text


def test_masked_rows_have_a_finite_bound() -> None:
    e = data()
    a = e.arrays["A"].copy()
    a[0], a[1, 3:] = -np.inf, -np.inf
    e = Env(e.sizes, {**e.arrays, "A": a}, e.axes)
    value, bound = evaluate_with_bound(parse_term('snd(reduce("osm", "k", m, pair(A[@i, @k] * 0.3, B[@k, @j])))'), e)
    assert np.isfinite(bound).all() and (value[0] == 0).all()


@pytest.mark.parametrize(
    "text, scalar",
    [
        ('red("add", 1, "k", m, arr("A") * arr("A"))', 'reduce("add", "k", m, A[@i, @k] * A[@i, @k])'),
        ('exp(reverse(0, n, arr("w")) * fill(<n>, 0.1))', "exp(w[n - 1 - @i] * 0.1)"),
        ('scan("add", 0, "k", n, arr("w"))', 'reduce("add", "k", @i + 1, w[@k])'),
        ('scan("mul", 0, "k", n, arr("w") * arr("w"))', 'reduce("mul", "k", @i + 1, w[@k] * w[@k])'),
    ],
)
def test_array_terms_have_the_bounds_of_their_elements(text: str, scalar: str) -> None:
    e = data()
    e = Env(e.sizes, e.arrays, {"i": e.axes["i"]})
    whole = array_approx(parse_term(text), e, F32)
    value, bound = evaluate_with_bound(parse_term(scalar), e)
    np.testing.assert_allclose(whole.value, array_value(parse_term(text), e))
    np.testing.assert_allclose(whole.value, value)
    np.testing.assert_allclose(whole.error(), bound, rtol=1e-6)
