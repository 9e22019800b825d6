"""The statement interpreter: loops, stages, monoids, lifted axes; and everything it has to refuse."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from moa_rewrite.semantics import OutOfRange, SemanticsError, run
from moa_rewrite.terms import Array, Kernel, Stage, Term, axis, ix, num, parse_term, seq, size

N, M, D = size("n"), size("m"), size("d")


def loop(name: str, extent: Term, body: Term, place: str = "seq") -> Term:
    return Term("for", name, extent, place, body)


def emit(monoid: str, array: str, index: Term, value: str | Term) -> Term:
    return Term("emit", monoid, array, index, parse_term(value) if isinstance(value, str) else value)


I, J = ix(axis("i")), ix(axis("i"), axis("j"))
A, B = Array("A", "f32", (N, M)), Array("B", "f32", (M, D))
X = Array("X", "f32", (N, D))
EMPTY = Kernel("k", ("n", "m", "d"), (), (A, B), (X,), Term("skip"))
T = Stage("T", "f32", ("i",), (N,), "add", parse_term('reduce("add", "k", m, A[@i, @k])'))
ROW = Kernel("row", ("n", "m"), (), (A,), (Array("Y", "f32", (N,)),), Term("skip"), (T,))


def data(n: int, m: int, d: int) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    rng = np.random.default_rng(0)
    return {"A": rng.standard_normal((n, m)).astype(np.float32), "B": rng.standard_normal((m, d))}, {"n": n, "m": m, "d": d}


DOT = 'reduce("add", "k", m, A[@i, @k] * B[@k, @j])'
FILL = loop("i", N, loop("k", M, emit("add", "T", I, "A[@i, @k]")))
USE = loop("i", N, emit("once", "Y", I, "T[@i] * 2.0"))
BODIES = {
    "source": loop("i", N, loop("j", D, emit("once", "X", J, 'psi(<@i, @j>, red("add", 1, "k", m, spread(2, d, arr("A")) * spread(0, n, arr("B"))))'))),
    "dnf": loop("i", N, loop("j", D, emit("once", "X", J, DOT))),
    "accumulated": loop("k", M, loop("i", N, loop("j", D, emit("add", "X", J, "A[@i, @k] * B[@k, @j]"), "core"), "core")),
    "guarded": loop(
        "i", N, loop("j", D, loop("k", parse_term("m + 2"), Term("guard", parse_term("@k < m"), emit("add", "X", J, "A[@i, @k] * B[@k, @j]"))), "simd")
    ),
    "two halves": seq(
        *[
            loop("i", N, loop("j", D, loop("k", e, emit("add", "X", J, f"A[@i, {k}] * B[{k}, @j]"))))
            for e, k in ((parse_term("m // 2"), "@k"), (parse_term("m - m // 2"), "@k + m // 2"))
        ]
    ),
}


@pytest.mark.parametrize("n, m, d", [(3, 5, 2), (1, 1, 1), (4, 0, 3), (0, 3, 2), (2, 3, 0)])
@pytest.mark.parametrize("form", BODIES)
def test_forms_of_a_product_agree(form: str, n: int, m: int, d: int) -> None:
    arrays, sizes = data(n, m, d)
    got = run(EMPTY.with_body(BODIES[form]), arrays, sizes, shuffle=1)["X"]
    np.testing.assert_allclose(got, arrays["A"].astype(float) @ arrays["B"], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("n", [0, 1, 4, 10, 13])
def test_tiles_with_a_remainder(n: int) -> None:
    """i = i.o*4 + i.i with a guard; without it the last tile runs over the end."""
    defs = (("i", parse_term("@i.o * 4 + @i.i")),)
    inside = emit("once", "Y", I, 'reduce("add", "k", m, A[@i, @k])')
    tiles = loop("i.o", parse_term("(n + 3) // 4"), loop("i.i", Term("int", 4), Term("guard", parse_term("@i < n"), inside)), "core")
    arrays, sizes = data(n, 3, 1)
    kernel = replace(ROW, body=tiles, defs=defs)
    np.testing.assert_allclose(run(kernel, arrays, sizes, shuffle=3)["Y"], arrays["A"].astype(float).sum(1))
    bare = replace(kernel, body=loop("i.o", parse_term("(n + 3) // 4"), loop("i.i", Term("int", 4), inside)))
    if n % 4:
        with pytest.raises(OutOfRange, match=rf"i\.o={n // 4}, i\.i={n % 4}"):
            run(bare, arrays, sizes)
    else:
        run(bare, arrays, sizes)


@pytest.mark.parametrize("m", [0, 1, 6])
def test_a_stage_outside_and_inside_the_loop(m: int) -> None:
    """Storage at the top, and storage local to each i: the same values, one emission per element; an empty sum is 0."""
    arrays, sizes = data(5, m, 1)
    want = 2 * arrays["A"].astype(float).sum(1)
    fused = loop("i", N, Term("new", "T", seq(loop("k", M, emit("add", "T", I, "A[@i, @k]")), emit("once", "Y", I, "T[@i] * 2.0"))), "core")
    for body in (Term("new", "T", seq(FILL, USE)), fused):
        counts: Counter[str] = Counter()
        np.testing.assert_allclose(run(ROW.with_body(body), arrays, sizes, shuffle=0, counts=counts)["Y"], want)
        assert (counts["T"], counts["Y"], counts["read T"]) == (5 * m, 5, 5)


def test_new_starts_empty_each_time() -> None:
    """A stage reused per i under one index must not keep the sums of the iteration before."""
    cell = Stage("c", "f32", (), (), "add", num("0.0"))
    body = loop("i", N, Term("new", "c", seq(loop("k", M, emit("add", "c", ix(), "A[@i, @k]")), emit("once", "Y", I, "c[]"))))
    arrays, sizes = data(4, 3, 1)
    np.testing.assert_allclose(run(replace(ROW, stages=(cell,), body=body), arrays, sizes)["Y"], arrays["A"].astype(float).sum(1))


def test_new_inside_new_is_other_storage() -> None:
    inner = Term("new", "T", seq(emit("add", "T", ix(Term("int", 0)), "100.0"), emit("once", "Y", ix(Term("int", 1)), "T[0]")))
    body = Term("new", "T", seq(emit("add", "T", ix(Term("int", 0)), "1.0"), inner, emit("once", "Y", ix(Term("int", 0)), "T[0]")))
    arrays, sizes = data(2, 1, 1)
    assert run(ROW.with_body(body), arrays, sizes)["Y"].tolist() == [1.0, 100.0]


@pytest.mark.parametrize("monoid, f", [("add", np.sum), ("mul", np.prod), ("max", np.max), ("min", np.min)])
def test_monoids(monoid: str, f) -> None:
    arrays, sizes = data(4, 3, 1)
    body = loop("k", M, loop("i", N, emit(monoid, "Y", I, "A[@i, @k]"), "core"))
    np.testing.assert_allclose(run(ROW.with_body(body), arrays, sizes)["Y"], f(arrays["A"].astype(float), axis=1))
    empty = run(ROW.with_body(body), {"A": np.zeros((4, 0))}, {"n": 4, "m": 0})["Y"]
    assert empty.tolist() == [{"add": 0, "mul": 1, "max": -np.inf, "min": np.inf}[monoid]] * 4


@pytest.mark.parametrize("split", [1, 2, 5])
def test_online_softmax_in_tiles(split: int) -> None:
    """osm cells collect (max, weighted sum) in any order of the keys; rows of -inf give 0/0 of the caller's making only."""
    arrays, sizes = data(4, 5, 3)
    a = arrays["A"] = arrays["A"].astype(float) * 10
    a[1, :3] = -np.inf
    kernel = Kernel(
        "att",
        ("n", "m", "d"),
        (),
        (A, B),
        (X,),
        Term("skip"),
        (
            Stage("W", "f32", ("i", "j"), (N, D), "osm", parse_term('snd(reduce("osm", "k", m, pair(A[@i, @k], B[@k, @j])))')),
            Stage("Z", "f32", ("i",), (N,), "osm", parse_term('snd(reduce("osm", "k", m, pair(A[@i, @k], 1.0)))')),
        ),
        (("k", parse_term(f"@k.o * {split} + @k.i")),),
    )
    keys = loop(
        "k.o",
        parse_term(f"(m + {split - 1}) // {split}"),
        loop(
            "k.i",
            Term("int", split),
            Term(
                "guard", parse_term("@k < m"), seq(emit("osm", "Z", I, "pair(A[@i, @k], 1.0)"), loop("j", D, emit("osm", "W", J, "pair(A[@i, @k], B[@k, @j])")))
            ),
        ),
    )
    body = loop("i", N, Term("new", "W", Term("new", "Z", seq(keys, loop("j", D, emit("once", "X", J, "W[@i, @j] / Z[@i]"))))), "core")
    p = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(run(kernel.with_body(body), arrays, sizes)["X"], p @ arrays["B"] / p.sum(1, keepdims=True))
    a[2] = -np.inf
    weights = loop(
        "i", N, loop("j", D, Term("new", "W", seq(loop("k", M, emit("osm", "W", J, "pair(A[@i, @k], B[@k, @j])")), emit("once", "X", J, "W[@i, @j]"))))
    )
    got = run(replace(kernel, defs=(), body=weights), arrays, sizes)["X"]
    assert (got[2] == 0).all() and np.isfinite(got).all()


@pytest.mark.parametrize(
    "body, message",
    [
        (loop("i", N, loop("k", M, emit("once", "Y", I, "A[@i, @k]"))), r"contributes to Y\[0\] a second time; witness i=0, k=1"),
        (loop("i", parse_term("n - 1"), emit("once", "Y", I, "0.0")), r"output Y\[3\] gets no contribution"),
        (loop("i", N, Term("guard", parse_term("@i < n - 1"), emit("once", "Y", I, "0.0"))), r"output Y\[3\] gets no contribution"),
        (loop("i", parse_term("n - 1"), loop("k", M, emit("add", "Y", I, "A[@i, @k]"))), r"output Y\[3\] gets no contribution"),
        (Term("new", "T", USE), r"reads T\[0\], which was never written"),
        (Term("new", "T", seq(USE, FILL)), r"reads T\[0\], which was never written"),
        (seq(FILL, USE), r"writes T outside its storage"),
        (seq(Term("new", "T", FILL), USE), r"reads T outside its storage"),
        (loop("i", N, emit("once", "Y", ix(parse_term("@i + 1")), "0.0")), r"out of range: index \(4,\), shape \(4,\); witness i=3"),
        (loop("i", N, emit("once", "Y", I, "A[@i, m]")), r"A\[@i, m\] is out of range: index \(0, 3\), shape \(4, 3\); witness i=0"),
        (loop("i", N, emit("once", "Y", I, "A[@q, 0]")), r"axis @q has no value"),
        (loop("i", N, emit("osm", "Y", I, "A[@i, 0]")), r"osm collects pairs only"),
        (loop("i", N, emit("add", "Y", I, "pair(A[@i, 0], 1.0)")), r"add collects no pairs"),
        (loop("i", N, emit("once", "Y", I, 'cast("f32", @i // 0)')), r"divides by zero; witness i=0"),
    ],
)
def test_refused(body: Term, message: str) -> None:
    arrays, sizes = data(4, 3, 1)
    with pytest.raises(SemanticsError, match=message):
        run(ROW.with_body(body), arrays, sizes)


def test_shuffle_exposes_a_race() -> None:
    """Each i needs what i-1 wrote: fine in order, refused or wrong when the loop is said to be parallel."""
    prefix = seq(
        emit("once", "Y", ix(Term("int", 0)), "A[0, 0]"), loop("i", parse_term("n - 1"), emit("once", "Y", ix(parse_term("@i + 1")), "Y[@i] + A[@i + 1, 0]"))
    )
    arrays, sizes = data(9, 1, 1)
    np.testing.assert_allclose(run(ROW.with_body(prefix), arrays, sizes, shuffle=0)["Y"], arrays["A"][:, 0].astype(float).cumsum())
    parallel = seq(prefix.args[0], loop("i", parse_term("n - 1"), prefix.args[1].args[3], "core"))  # type: ignore[union-attr,arg-type]
    run(ROW.with_body(parallel), arrays, sizes)
    with pytest.raises(SemanticsError, match="never written"):
        run(ROW.with_body(parallel), arrays, sizes, shuffle=0)


def test_calls_are_checked() -> None:
    arrays, sizes = data(4, 3, 1)
    kernel = replace(ROW.with_body(loop("i", N, emit("once", "Y", I, "0.0"))), where=(parse_term("n % 2 == 0"),))
    run(kernel, arrays, sizes)
    for bad, message in [
        (lambda: run(kernel, arrays, {"n": 4}), "no value for size m"),
        (lambda: run(kernel, arrays, {"n": 3, "m": 3}), "shape"),
        (lambda: run(kernel, {"A": np.zeros((3, 3))}, {"n": 3, "m": 3}), "where .* does not hold"),
        (lambda: run(kernel, {"A": np.zeros((4, 3), int)}, sizes), "holds int64, declared f32"),
    ]:
        with pytest.raises(SemanticsError, match=message):
            bad()


def test_integer_and_boolean_outputs() -> None:
    kernel = Kernel(
        "k",
        ("n",),
        (),
        (),
        (Array("C", "i32", (N,)), Array("P", "bool", (N,))),
        seq(loop("i", N, loop("q", N, Term("guard", parse_term("@q < @i"), emit("add", "C", I, "1")))), loop("i", N, emit("once", "P", I, "@i % 2 == 0"))),
    )
    out = run(kernel, {}, {"n": 4})
    assert out["C"].tolist() == [0, 1, 2, 3] and out["P"].tolist() == [True, False, True, False] and out["P"].dtype == bool
