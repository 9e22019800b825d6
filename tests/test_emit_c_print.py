"""Expressions in emitted C against Python: random trees of every operator, signs, types, parentheses."""

from __future__ import annotations

import ctypes
import math
import random

import numpy as np
import onf
import pytest
from test_emit_c import build

from moa_rewrite.build import compile_c
from moa_rewrite.emit.cexpr import CExpr, literal
from moa_rewrite.emit.loops import Buffer
from moa_rewrite.terms import I, Kernel, Term, axis, get, ix, num, seq, size

N = 11  # iterations per expression


def integer_tree(r: random.Random, depth: int) -> Term:
    if depth == 0:
        return r.choice([I(r.randint(-9, 9)), axis("i"), size("n"), get("X", axis("i")), I(r.randint(1, 7))])
    op = r.choice(["add", "sub", "mul", "idiv", "mod", "idiv", "mod", "max", "min", "neg", "abs", "sign", "select"])
    if op in ("neg", "abs", "sign"):
        return Term(op, integer_tree(r, depth - 1))
    if op == "select":
        return Term("select", boolean_tree(r, depth - 1), integer_tree(r, depth - 1), integer_tree(r, depth - 1))
    if op in ("idiv", "mod") and r.random() < 0.7:
        return Term(op, integer_tree(r, depth - 1), I(r.choice([-5, -3, -1, 1, 2, 3, 5, 8])))
    return Term(op, integer_tree(r, depth - 1), integer_tree(r, depth - 1))


def boolean_tree(r: random.Random, depth: int) -> Term:
    op = r.choice(["lt", "le", "eq", "ne", "and", "or", "not"]) if depth > 0 else "lt"
    if op in ("and", "or"):
        return Term(op, boolean_tree(r, depth - 1), boolean_tree(r, depth - 1))
    if op == "not":
        return Term("not", boolean_tree(r, depth - 1))
    d = max(depth - 1, 0)
    return Term(op, integer_tree(r, d), integer_tree(r, d))


def float_tree(r: random.Random, depth: int) -> Term:
    if depth == 0:
        return r.choice([num("0.5"), num("-1.25"), num("3.0"), get("F", axis("i")), Term("cast", "f64", integer_tree(r, 1))])
    op = r.choice(["add", "sub", "sub", "mul", "div", "div", "neg", "abs", "max", "min", "select", "floor"])
    if op in ("neg", "abs", "floor"):
        return Term(op, float_tree(r, depth - 1))
    if op == "select":
        return Term("select", boolean_tree(r, 1), float_tree(r, depth - 1), float_tree(r, depth - 1))
    return Term(op, float_tree(r, depth - 1), float_tree(r, depth - 1))


def python(t: Term, i: int, x, f):
    """The value of a tree in Python's own integer and float semantics; integer division by 0 gives 0, as the runtime defines."""
    a = [python(k, i, x, f) for k in t.kids() if k.op != "ix"]
    match t.op:
        case "int":
            return t.args[0]
        case "num":
            return float(t.args[0])
        case "axis":
            return i
        case "size":
            return N
        case "get":
            return int(x[i]) if t.args[0] == "X" else float(f[i])
        case "cast":
            return float(a[0])
        case "add":
            return a[0] + a[1]
        case "sub":
            return a[0] - a[1]
        case "mul":
            return a[0] * a[1]
        case "div":
            with np.errstate(all="ignore"):
                return float(np.float64(a[0]) / np.float64(a[1]))
        case "idiv":
            return a[0] // a[1] if a[1] else 0
        case "mod":
            return a[0] % a[1] if a[1] else 0
        case "max" | "min":
            if any(isinstance(v, float) and math.isnan(v) for v in a):
                return math.nan
            return max(a) if t.op == "max" else min(a)
        case "neg":
            return -a[0]
        case "abs":
            return abs(a[0])
        case "sign":
            return (a[0] > 0) - (a[0] < 0)
        case "floor":
            return float(np.floor(a[0]))
        case "select":
            return a[1] if a[0] else a[2]
        case "lt":
            return a[0] < a[1]
        case "le":
            return a[0] <= a[1]
        case "eq":
            return a[0] == a[1]
        case "ne":
            return a[0] != a[1]
        case "and":
            return a[0] and a[1]
        case "or":
            return a[0] or a[1]
        case "not":
            return not a[0]
    raise ValueError(t.op)


def small(t: Term, x, f) -> bool:
    """Whether every subtree stays far inside int64, so that no operation wraps."""
    return all(abs(v) < 2**40 for k in [t, *t.kids()] if k.op != "ix" for i in range(N) for v in [python(k, i, x, f)] if isinstance(v, int)) and all(
        small(k, x, f) for k in t.kids() if k.op != "ix"
    )


def test_trees(tmp_path):
    r = random.Random(7)
    x = np.array([r.randint(-50, 50) for _ in range(N)], np.int32)
    f = np.array([r.uniform(-3, 3) for _ in range(N)])
    ints = [t for t in (integer_tree(r, r.randint(1, 5)) for _ in range(160)) if small(t, x, f)]
    bools = [t for t in (boolean_tree(r, r.randint(1, 4)) for _ in range(60)) if small(t, x, f)]
    floats = [t for t in (float_tree(r, r.randint(1, 4)) for _ in range(80)) if small(t, x, f)]
    assert len(ints) > 120 and len(bools) > 40 and len(floats) > 60
    outputs, emits = [], []
    for name, ty, trees in (("A", "i64", ints), ("B", "bool", bools), ("C", "f64", floats)):
        outputs.append(onf.array(name, ty, str(len(trees)), "n"))
        emits += [Term("emit", "once", name, ix(I(k), axis("i")), t) for k, t in enumerate(trees)]
    body = Term("for", "i", size("n"), "seq", seq(*emits))
    k = Kernel("trees", ("n",), (), (onf.array("X", "i32", "n"), onf.array("F", "f64", "n")), tuple(outputs), body)
    # contraction would round differently from Python
    flags = ("-ffp-contract=off", "-O1", "-Wno-tautological-compare")
    out = dict(zip("ABC", build(k, tmp_path, flags=flags)(x, f), strict=True))
    with np.errstate(all="ignore"):
        for name, trees in (("A", ints), ("B", bools), ("C", floats)):
            for row, t in enumerate(trees):
                want = [python(t, i, x, f) for i in range(N)]
                np.testing.assert_array_equal(out[name][row], np.array(want, out[name].dtype), err_msg=str(t))


def test_known_traps(tmp_path):
    """x[5*(i%2)] once came out as x[5*i%2]; ceil(-36/5) = -7 as floor(-36/5) is -8 and C's quotient -7."""
    e = ["5 * (@i % 2)", "(@i - 41) // 5", "-(36 // 5)", "(0 - 36) // 5", "3 - (2 - 1)", "7 // (2 * 2)", "(7 // 2) * 2", "-7 % 3", "7 % -3", "1 - -1"]
    body = onf.nest(["i:n:seq"], onf.block(*[f'emit("once", "Y", <{k}, @i>, {t})' for k, t in enumerate(e)]))
    k = onf.kernel("traps", "n", [], [onf.array("Y", "i64", str(len(e)), "n")], body)
    out = build(k, tmp_path)(sizes={"n": 6})
    assert out[:, 1].tolist() == [5, -8, -7, -8, 2, 1, 6, 2, -2, 2]
    assert out[1, 5] == -8 and out[0, 2] == 0


@pytest.mark.parametrize(
    ("value", "ty", "text"),
    [("0.5", "f32", "0.5f"), ("1e-6", "f32", "1e-6f"), ("-inf", "f32", "-INFINITY"), ("3.0", "f64", "3.0"), (3, "f32", "3.0f"),
     (2**40, "i64", f"INT64_C({2**40})"),
     (-(2**63), "i64", "INT64_MIN"), (-(2**31), "i32", "INT32_MIN")],
)  # fmt: skip
def test_literals(value, ty, text):
    assert literal(value, ty) == text


def test_literals_take_the_type_of_what_they_meet():
    e = CExpr({"x": Buffer("x", "f32", (), "value"), "k": Buffer("k", "i32", (), "value")})
    assert e.text(onf.t("0.5 * x[] + 2.0")) == "0.5f * x + 2.0f"
    assert e.text(onf.t('exp(x[] - 1.0) / cast("f32", k[])')) == "moarw_exp_f32(x - 1.0f) / (float)k"
    assert e.text(onf.t("a - (b - c)")) == "a - (b - c)"
    assert e.text(onf.t("(a + b) * -c")) == "(a + b) * -c"


def ulps(got: np.ndarray, x: np.ndarray) -> float:
    want = np.exp(x.astype(np.longdouble))
    ok = (want > np.finfo(x.dtype).tiny) & (want < np.finfo(x.dtype).max)
    return float(np.max(np.abs(got[ok].astype(np.longdouble) - want[ok]) / np.spacing(want[ok].astype(x.dtype)).astype(np.longdouble)))


@pytest.mark.parametrize(("ty", "np_ty", "low", "high"), [("f32", np.float32, -87.3, 88.72), ("f64", np.float64, -708.3, 709.78)])
def test_exp(tmp_path, ty, np_ty, low, high):
    k = onf.kernel("exps", "n", [onf.array("X", ty, "n")], [onf.array("Y", ty, "n")], onf.nest(["i:n:simd"], 'emit("once", "Y", <@i>, exp(X[@i]))'))
    f = build(k, tmp_path)
    x = np.concatenate([np.linspace(low, high, 400001), np.linspace(-1, 1, 200001), [0.0]]).astype(np_ty)
    assert ulps(f(x), x) <= 1.5
    special = np.array([-np.inf, np.inf, np.nan, 0.0, -0.0, 2 * low, 1.5 * high, -1e30, 1e30], np_ty)
    got = f(np.tile(special, 9)).reshape(9, -1)
    for row in got:
        np.testing.assert_array_equal(row, np.array([0, np.inf, np.nan, 1, 1, 0, np.inf, 0, np.inf], np_ty))


@pytest.mark.parametrize(("ty", "np_ty", "low"), [("f32", np.float32, -87.3), ("f64", np.float64, -708.3)])
def test_exp_of_nonpositive(tmp_path, ty, np_ty, low):
    """The form that online softmax uses, through a sum of one term per key: alpha and P are exp of something <= 0."""
    from moa_rewrite.emit.cexpr import C_TYPE

    text = f"""#include "moarw.h"
void run(long n, const {C_TYPE[ty]} *x, {C_TYPE[ty]} *y) {{
#pragma omp simd
    for (long i = 0; i < n; i++) y[i] = moarw_expn_{ty}(x[i]);
}}
"""
    f = ctypes.CDLL(str(compile_c(text, "", tmp_path))).run

    def call(x):
        y = np.empty_like(x)
        f(ctypes.c_long(x.size), ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data))
        return y

    x = np.concatenate([np.linspace(low, 0, 400001), np.linspace(-1, 0, 100001)]).astype(np_ty)
    assert ulps(call(x), x) <= 1.5
    bits = np.array([0x7FC00001, 0xFFC001FF, 0x7FFFFFFF], np.uint32).view(np.float32).astype(np_ty)
    special = np.tile(np.concatenate([np.array([-np.inf, np.nan, 0.0, -0.0, 2 * low, -1e30], np_ty), bits]), 7)
    want = np.tile(np.array([0, np.nan, 1, 1, 0, 0, np.nan, np.nan, np.nan], np_ty), 7)
    np.testing.assert_array_equal(call(special), want)
    below = np.linspace(1.3 * low, low, 1001).astype(np_ty)
    assert (np.abs(call(below) - np.exp(below.astype(np.float64))) <= np.finfo(np_ty).tiny).all()
