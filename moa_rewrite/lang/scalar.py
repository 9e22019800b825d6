"""Scalar functions on values: types, literals, scalar extension, elementwise application."""

from __future__ import annotations

from ..terms import Term, num
from . import builtins as B
from .poly import Poly, combine
from .tree import Pos
from .values import Context, Val, adapt, concrete, static_int, text

_NAME = {"int": "an integer literal", "float": "a floating-point literal"}


def type_name(dtype: str) -> str:
    return _NAME.get(dtype, dtype)


def unify(c: Context, vals: list[Val], pos: Pos, op: str) -> tuple[list[Val], str]:
    """All operands in one type; literals adapt, nothing else is converted."""
    definite = [v for v in vals if v.dtype not in ("int", "float")]
    if not definite:
        dtype = "float" if any(v.dtype == "float" for v in vals) else "int"
        return [adapt(v, dtype) for v in vals], dtype
    dtype = definite[0].dtype
    for v in vals:
        fits = v.dtype == dtype or (v.dtype == "int" and dtype != "bool") or (v.dtype == "float" and dtype in B.FLOATS)
        if not fits:
            notes = [f"{type_name(definite[0].dtype)} at {definite[0].pos}", f"{type_name(v.dtype)} at {v.pos}"]
            to = dtype if dtype != "bool" and v.dtype != "float" else v.dtype if v.dtype in B.DTYPES else "f32"
            c.fail(204, f"{symbol(op)} mixes {type_name(dtype)} and {type_name(v.dtype)}", pos, notes, hint=f"cast one of them, for example `{to}(...)`")
    return [adapt(v, dtype) for v in vals], dtype


def symbol(op: str) -> str:
    return f"`{B.SYMBOL[op][0]}`" if op in B.SYMBOL else f"`{op}`"


def require(c: Context, v: Val, kinds: tuple[str, ...], op: str, pos: Pos, hint: str = "") -> None:
    if v.dtype not in kinds:
        names = [k for k in kinds if k in B.DTYPES]
        want = "numbers" if len(names) == 4 else " or ".join(names)
        c.fail(205, f"{symbol(op)} needs {want}, not {type_name(v.dtype)}", pos, [f"{type_name(v.dtype)} at {v.pos}"], hint=hint)


_FLOATISH = (*B.FLOATS, "float")
_INTISH = (*B.INTS, "int")
_NUMERIC = (*_FLOATISH, *_INTISH)


def elementwise(c: Context, vals: list[Val], pos: Pos, op: str) -> tuple[list[Term], int, tuple[Poly, ...]]:
    """Terms of equal depth and shape; a scalar extends to the shape of the arrays it meets, nothing else is broadcast."""
    arrays = [v for v in vals if v.shape]
    shape = arrays[0].shape if arrays else ()
    for v in arrays[1:]:
        first = arrays[0]
        if v.rank != first.rank:
            hint = "MoA does not broadcast; say the ranks with Ω, for example `x - Ω<1,0> m`"
            c.fail(301, f"{symbol(op)} of arrays of rank {first.rank} and {v.rank}", pos, shapes(first, v), hint=hint)
        verdict = c.same_shape(first.shape, v.shape)
        if not verdict.proved:
            hint = "give both the same size name, or add `where` with their equality"
            c.fail(301, f"{symbol(op)} of arrays of different shapes", pos, shapes(first, v), verdict.witness, hint)
    depth = max(v.depth for v in vals)
    return [c.lift(v, depth, shape) for v in vals], depth, shape


def shapes(*vals: Val) -> list[str]:
    return [f"{text(v.shape)} at {v.pos}" for v in vals]


def apply_scalar(c: Context, op: str, args: list[Val], pos: Pos) -> Val:
    """A scalar function of ``builtins.SCALAR`` applied elementwise."""
    if op in B.DTYPES:
        return cast(c, op, args[0], pos)
    if op == "select":
        return select(c, args, pos)
    if op in ("gt", "ge"):
        return apply_scalar(c, {"gt": "lt", "ge": "le"}[op], [args[1], args[0]], pos)
    if op in B.UNARY:
        return _unary(c, op, args[0], pos)
    a, b = args
    if op in B.LOGIC:
        for v in args:
            require(c, v, ("bool",), op, pos, "compare first, for example `x != 0`")
    elif op not in B.EQUAL:
        for v in args:
            require(c, v, _NUMERIC, op, pos, "cast first, for example `f32(...)` or `i32(...)`")
    vals, dtype = unify(c, args, pos, op)
    if op in B.FLOAT_BINARY:
        if dtype == "int":
            vals, dtype = [adapt(v, "float") for v in vals], "float"
        for v in vals:
            require(c, v, _FLOATISH, op, pos, "use `//` for whole division, or cast: `f32(a) / f32(b)`" if op == "div" else "cast: `f32(...)`")
    if op in B.INT_BINARY:
        for v in vals:
            require(c, v, _INTISH, op, pos, "use `/`, or `floor`")
        if dtype == "int" and (a.static is None or b.static is None):
            vals, dtype = [concrete(v) for v in vals], "i64"
    terms, depth, shape = elementwise(c, vals, pos, op)
    compare = op in B.ORDER or op in B.EQUAL or op in B.LOGIC
    static = None if compare or dtype not in _INTISH else _static(c, op, a, b, pos)
    if isinstance(static, Poly):
        return static_int(static, dtype, pos)
    return Val(Term(op, *terms), shape, "bool" if compare else dtype, pos, depth, static)


def _static(c: Context, op: str, a: Val, b: Val, pos: Pos) -> Poly | tuple[Poly, ...] | None:
    x, y = a.static, b.static
    if x is None or y is None:
        return None
    try:
        if isinstance(x, Poly):
            return combine(op, x, y) if isinstance(y, Poly) else tuple(combine(op, x, e) for e in y)
        return tuple(combine(op, e, y) for e in x) if isinstance(y, Poly) else tuple(combine(op, e, f) for e, f in zip(x, y, strict=True))
    except ZeroDivisionError:
        c.fail(306, f"{symbol(op)} by zero", pos, [f"0 at {b.pos}"], hint="divide by a size that is at least 1")


def _unary(c: Context, op: str, v: Val, pos: Pos) -> Val:
    if op == "not":
        require(c, v, ("bool",), op, pos)
    elif op in B.NUMERIC_UNARY:
        require(c, v, _NUMERIC, op, pos)
    else:
        if v.dtype == "int":
            v = adapt(v, "float")
        require(c, v, _FLOATISH, op, pos, f"cast first, for example `{op}(f32(x))`")
    if op == "neg":
        if isinstance(v.static, Poly) and v.rank == 0:
            return static_int(-v.static, v.dtype, pos)
        if v.term.op == "num":
            written = str(v.term.args[0])
            return Val(num(written[1:] if written.startswith("-") else "-" + written), (), v.dtype, pos)
    return Val(Term(op, v.term), v.shape, v.dtype, pos, v.depth, tuple(-p for p in v.static) if op == "neg" and isinstance(v.static, tuple) else None)


def cast(c: Context, dtype: str, v: Val, pos: Pos) -> Val:
    if v.dtype == dtype:
        return Val(v.term, v.shape, dtype, pos, v.depth, v.static)
    if (v.dtype == "int" and dtype != "bool") or (v.dtype == "float" and dtype in B.FLOATS):
        w = adapt(v, dtype)
        return Val(w.term, v.shape, dtype, pos, v.depth, w.static)
    v = concrete(v)
    return Val(Term("cast", dtype, v.term), v.shape, dtype, pos, v.depth, v.static if dtype in B.INTS and v.dtype in B.INTS else None)


def select(c: Context, args: list[Val], pos: Pos) -> Val:
    require(c, args[0], ("bool",), "select", pos, "the condition comes first: `select(c, a, b)`")
    (a, b), dtype = unify(c, args[1:], pos, "select")
    terms, depth, shape = elementwise(c, [args[0], a, b], pos, "select")
    return Val(Term("select", *terms), shape, dtype, pos, depth)
