"""Structural operators, reductions and products on values: shape rules, their checks, and the elaborated terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..terms import I, Term, ix
from ..terms import num as num_term
from . import builtins as B
from .bounds import in_range
from .poly import ZERO, Poly, product
from .scalar import apply_scalar, require, shapes, symbol, type_name, unify
from .tree import Pos
from .values import Context, Shape, Val, concrete, shape_term, static_int, static_vector, text

Static = tuple[Poly, ...]


def apply_structural(c: Context, op: str, args: list[Val], pos: Pos) -> Val:
    out = _TABLE[op](c, args, pos)
    return replace(out, pos=pos)


# --- helpers ---------------------------------------------------------------------------------------------------------------------
def need_rank(c: Context, v: Val, rank: int, op: str, pos: Pos) -> None:
    if v.rank < rank:
        hint = "a scalar has no axis to reduce or select from"
        c.fail(309, f"{symbol(op)} needs an array of rank {rank} or more, not of rank {v.rank}", pos, shapes(v), hint=hint)


def static_numbers(c: Context, v: Val, op: str, pos: Pos, what: str) -> tuple[Static, bool]:
    """The left argument of take, drop, reshape, ...: sizes known when the program is elaborated. Also whether it was a scalar."""
    if v.static is None or v.dtype not in (*B.INTS, "int") or v.rank > 1:
        hint = "use sizes and integer literals only; shapes must not depend on data"
        c.fail(207, f"{what} of {symbol(op)} must be known from sizes", pos, [f"{type_name(v.dtype)}, shape {text(v.shape)}, at {v.pos}"], hint=hint)
    return (v.static, False) if isinstance(v.static, tuple) else ((v.static,), True)


def frame_ix(c: Context, v: Val, shape: Shape) -> Term:
    return shape_term(c.frame[: v.depth] + shape)


def scalar_of(v: Val) -> Term:
    """The scalar term of a rank-0 value outside any frame."""
    return v.term if v.static is not None or v.term.op in ("int", "num", "bool") else Term("psi", ix(), v.term)


def claim(c: Context, low: Poly, high: Poly, code: int, message: str, pos: Pos, notes: list[str], hint: str) -> None:
    verdict = c.at_most(low, high)
    if not verdict.proved:
        why = "" if verdict.witness else " (undecided: the solver could not prove it)"
        c.fail(code, message + why, pos, notes, verdict.witness, hint)


# --- shapes ----------------------------------------------------------------------------------------------------------------------
def _rho(c: Context, args: list[Val], pos: Pos) -> Val:
    return static_vector(args[0].shape, "i64", pos)


def _dim(c: Context, args: list[Val], pos: Pos) -> Val:
    return static_int(Poly.const(args[0].rank), "i64", pos)


def _tau(c: Context, args: list[Val], pos: Pos) -> Val:
    return static_int(product(args[0].shape), "i64", pos)


def _iota(c: Context, args: list[Val], pos: Pos) -> Val:
    extents, scalar = static_numbers(c, args[0], "iota", pos, "the argument")
    for e in extents:
        claim(c, ZERO, e, 306, f"`ι` of {e}, which may be negative", pos, shapes(args[0]), f"add `where {e} >= 0`")
    if scalar:
        return Val(Term("iota", extents[0].term()), extents, "i64", pos)
    # ι<a, b, ...>: the array of all indices, one component after the other along the last axis
    out: Term | None = None
    for k, e in enumerate(extents):
        t = Term("iota", e.term())
        for j, other in enumerate(extents):
            if j != k:
                t = Term("spread", j, other.term(), t)
        t = Term("spread", len(extents), I(1), t)
        out = t if out is None else Term("cat", len(extents), I(k), out, t)
    shape = (*extents, Poly.const(len(extents)))
    return Val(Term("iota", I(0)) if out is None else out, shape, "i64", pos)


def _rav(c: Context, args: list[Val], pos: Pos) -> Val:
    (a,) = args
    return _reshaped(c, a, (product(a.shape),))


def _reshaped(c: Context, a: Val, shape: Shape) -> Val:
    term = a.term if shape == a.shape else Term("reshape", frame_ix(c, a, shape), frame_ix(c, a, a.shape), a.term)
    return replace(a, term=term, shape=shape, static=a.static if shape == a.shape else None)


def _reshape(c: Context, args: list[Val], pos: Pos) -> Val:
    new, _ = static_numbers(c, args[0], "reshape", pos, "the shape")
    a = args[1]
    for e in new:
        claim(c, ZERO, e, 306, f"the extent {e} may be negative", pos, shapes(args[0]), f"add `where {e} >= 0`")
    verdict = c.equal(product(new), product(a.shape))
    if not verdict.proved:
        notes = [f"{text(new)} has {product(new)} elements, at {args[0].pos}", f"{text(a.shape)} has {product(a.shape)} elements, at {a.pos}"]
        c.fail(305, "`ρ̂` must keep the number of elements", pos, notes, verdict.witness, "take or drop first, or add a `where` with the equality")
    return _reshaped(c, a, new)


def _fill(c: Context, args: list[Val], pos: Pos) -> Val:
    shape, _ = static_numbers(c, args[0], "fill", pos, "the shape")
    a = args[1]
    if a.rank:
        c.fail(309, "`fill` repeats a scalar", pos, shapes(a), hint="use Ω to apply it to cells")
    for e in shape:
        claim(c, ZERO, e, 306, f"the extent {e} may be negative", pos, shapes(args[0]), f"add `where {e} >= 0`")
    return Val(c.lift(a, a.depth, shape), shape, a.dtype, pos, a.depth)


# --- selection -------------------------------------------------------------------------------------------------------------------
def _take(c: Context, args: list[Val], pos: Pos) -> Val:
    return _take_drop(c, "take", args, pos)


def _drop(c: Context, args: list[Val], pos: Pos) -> Val:
    return _take_drop(c, "drop", args, pos)


def _take_drop(c: Context, op: str, args: list[Val], pos: Pos) -> Val:
    counts, _ = static_numbers(c, args[0], op, pos, "the left argument")
    a = args[1]
    need_rank(c, a, max(1, len(counts)), op, pos)
    term, shape = a.term, list(a.shape)
    for k, t in enumerate(counts):
        n, axis = shape[k], a.depth + k
        forward, v = True, t.value()
        if v is None:
            verdict = c.at_most(ZERO, t)
            if not verdict.proved and not c.at_most(t, ZERO).proved:
                c.fail(311, f"the sign of {t} is not known", pos, shapes(args[0]), verdict.witness, f"add `where {t} >= 0`")
            forward = verdict.proved
        else:
            forward = v >= 0
        size = t if forward else -t
        over = f"{symbol(op)} of {size} items along an axis of length {n}"
        claim(c, size, n, 306, over, pos, [f"{t} at {args[0].pos}", *shapes(a)], f"add `where {n} >= {size}`; MoA has no over-take")
        if op == "take":
            term = Term("take", axis, size.term(), term) if forward else Term("taker", axis, size.term(), n.term(), term)
            shape[k] = size
        else:
            term = Term("drop" if forward else "dropr", axis, size.term(), term)
            shape[k] = n - size
    static = a.static
    if isinstance(static, tuple) and len(counts) == 1:
        at = counts[0].value()
        static = None if at is None else (static[:at] if at >= 0 else static[at:]) if op == "take" else (static[at:] if at >= 0 else static[:at])
    return replace(a, term=term, shape=tuple(shape), static=static)


def _cat(c: Context, args: list[Val], pos: Pos) -> Val:
    (a, b), dtype = unify(c, args, pos, "cat")
    need_rank(c, a, 1, "cat", pos)
    need_rank(c, b, 1, "cat", pos)
    verdict = c.same_shape(a.shape[1:], b.shape[1:]) if a.rank == b.rank else None
    if verdict is None or not verdict.proved:
        witness = "" if verdict is None else verdict.witness
        c.fail(304, "`++` needs equal shapes after the first axis", pos, shapes(a, b), witness, "use Ω to join along another axis")
    depth = max(a.depth, b.depth)
    term = Term("cat", depth, a.shape[0].term(), c.lift(a, depth, ()), c.lift(b, depth, ()))
    static = a.static + b.static if isinstance(a.static, tuple) and isinstance(b.static, tuple) else None
    return Val(term, (a.shape[0] + b.shape[0], *a.shape[1:]), dtype, pos, depth, static)


def _reverse(c: Context, args: list[Val], pos: Pos) -> Val:
    (a,) = args
    need_rank(c, a, 1, "reverse", pos)
    static = a.static[::-1] if isinstance(a.static, tuple) else None
    return replace(a, term=Term("reverse", a.depth, a.shape[0].term(), a.term), static=static)


def _rotate(c: Context, args: list[Val], pos: Pos) -> Val:
    r, a = args
    require(c, r, (*B.INTS, "int"), "rotate", pos)
    if isinstance(r.static, tuple):
        need_rank(c, a, r.rank and len(r.static), "rotate", pos)
        term = a.term
        for k, e in enumerate(r.static):
            term = Term("rotate", a.depth + k, e.term(), a.shape[k].term(), term)
        return replace(a, term=term, static=None)
    need_rank(c, a, 1, "rotate", pos)
    if r.rank:
        c.fail(207, "a vector on the left of `θ` must be known from sizes", pos, shapes(r), hint="rotate one axis at a time with Ω")
    n = a.shape[0].term()
    if r.depth == 0:
        return replace(a, term=Term("rotate", a.depth, scalar_of(r), n, a.term), static=None)
    # a rotation that varies along the frame selects with the index (i + r) mod n
    depth = max(a.depth, r.depth)
    amount = Term("spread", depth, n, c.lift(r, depth, ()))
    i = Term("iota", n)
    for k in range(depth):
        i = Term("spread", k, c.frame[k].term(), i)
    index = Term("mod", Term("add", i, amount), Term("fill", shape_term((*c.frame[:depth], a.shape[0])), n))
    source = Term("spread", depth, n, c.lift(a, depth, ()))
    return replace(a, term=Term("gather", depth + 1, index, source), depth=depth, static=None)


def _transpose(c: Context, args: list[Val], pos: Pos) -> Val:
    a = args[-1]
    if len(args) == 1:
        v = tuple(reversed(range(a.rank)))
    else:
        polys, scalar = static_numbers(c, args[0], "transpose", pos, "the permutation")
        numbers = [p.value() for p in polys]
        shown = text(polys)
        if scalar or None in numbers or len(numbers) != a.rank or sorted(set(numbers)) != list(range(len(set(numbers)))):  # type: ignore[type-var, arg-type]
            notes = [f"{shown} at {args[0].pos}", f"{text(a.shape)} at {a.pos}"]
            hint = f"one number for each of the {a.rank} axes, using 0, 1, ... without gaps; equal numbers take a diagonal"
            c.fail(308, "`⍉` needs a vector that says where each axis goes", pos, notes, hint=hint)
        v = tuple(int(n) for n in numbers)  # type: ignore[arg-type]
    if v == tuple(range(a.rank)):
        return a
    shape: list[Poly] = []
    for k in range(max(v, default=-1) + 1):
        axes = [a.shape[j] for j in range(a.rank) if v[j] == k]
        shape.append(_shortest(c, axes, a, pos))
    d = a.depth
    return replace(a, term=Term("transpose", ix(*[I(k) for k in range(d)], *[I(d + k) for k in v]), a.term), shape=tuple(shape), static=None)


def _shortest(c: Context, axes: list[Poly], a: Val, pos: Pos) -> Poly:
    """The length of a diagonal: the least of the lengths, which must be one of them for all sizes."""
    for p in axes:
        if all(p == q or c.at_most(p, q).proved for q in axes):
            return p
    c.fail(308, "the length of this diagonal is not known", pos, shapes(a), hint=f"add `where {axes[0]} <= {axes[1]}`, or take a square part first")


def _psi(c: Context, args: list[Val], pos: Pos) -> Val:
    index, a = args
    require(c, index, (*B.INTS, "int"), "psi", pos, "an index is a vector of integers")
    if index.rank > 1:
        c.fail(309, "an index is a scalar or a vector", pos, shapes(index), hint="use Ω<1,r> to select with every row of an index array")
    count = 1 if index.rank == 0 else index.shape[0].value()
    if count is None:
        c.fail(207, "the length of an index must be a number", pos, shapes(index))
    if count > a.rank:
        hint = "an index has at most one number per axis"
        c.fail(309, f"an index of length {count} into an array of rank {a.rank}", pos, [f"{text(index.shape)} at {index.pos}", *shapes(a)], hint=hint)
    for k in range(count):
        e = index if index.rank == 0 else _component(c, index, k)
        n = a.shape[0]
        verdict = in_range(c, e, n)
        if not verdict.proved:
            shown = f"{e.static} " if isinstance(e.static, Poly) else ""
            notes = [f"index {shown}at {index.pos}", f"axis {k} of {text(args[1].shape)} at {args[1].pos} has length {n}"]
            why = "" if verdict.witness else " (undecided)"
            hint = f"add a `where`, for example `where {n} >= 1`; clamp an index that comes from data with max and min"
            c.fail(307, f"index out of range{why}", pos, notes, verdict.witness, hint)
        depth = e.depth
        source = c.lift(a, max(depth, a.depth), ()) if a.rank else a.term
        if depth < a.depth:
            e, depth = c.at_depth(e, a.depth), a.depth
        static = a.static[j] if isinstance(a.static, tuple) and isinstance(e.static, Poly) and (j := e.static.value()) is not None else None
        if static is not None:
            a = static_int(static, a.dtype, pos)
        else:
            a = replace(a, term=Term("gather", depth, e.term, source), shape=a.shape[1:], depth=depth, static=None)
    return a


def _component(c: Context, v: Val, k: int) -> Val:
    """The k-th component of an index vector of known length."""
    if isinstance(v.static, tuple):
        return static_int(v.static[k], v.dtype, v.pos)
    t: Term | None = _cat_item(v.term, v.depth, k)
    if t is None:
        lead = c.frame[: v.depth]
        at = I(k) if not lead else Term("fill", shape_term(lead), I(k))
        t = Term("gather", v.depth, at, v.term)
    return replace(v, term=t, shape=(), static=None)


def _cat_item(t: Term, axis: int, k: int) -> Term | None:
    """Item k of a vector literal, which is a chain of `cat`s of one-item vectors."""
    while t.op == "cat" and t.args[0] == axis and isinstance(t.args[1], Term) and t.args[1].op == "int":
        n = int(t.args[1].args[0])  # type: ignore[arg-type]
        left, right = t.kids()[1:]
        t, k = (left, k) if k < n else (right, k - n)
    if t.op == "spread" and t.args[0] == axis:
        return t.args[2]  # type: ignore[return-value]
    if axis == 0 and t.op == "fill" and len(t.args[0].args) == 1:  # type: ignore[union-attr]
        return t.args[1]  # type: ignore[return-value]
    return None


_TABLE: dict[str, Callable[[Context, list[Val], Pos], Val]] = {
    "rho": _rho, "dim": _dim, "tau": _tau, "iota": _iota, "rav": _rav, "reshape": _reshape, "fill": _fill, "take": _take, "drop": _drop, "cat": _cat,
    "reverse": _reverse, "rotate": _rotate, "transpose": _transpose, "psi": _psi,
}  # fmt: skip


# --- vectors, reductions, products -----------------------------------------------------------------------------------------------
def vector(c: Context, items: list[Val], pos: Pos) -> Val:
    """``<a, b, ...>``"""
    for v in items:
        if v.rank:
            c.fail(309, "the items of a vector are scalars", pos, shapes(v), hint="join arrays with `++`")
    if all(isinstance(v.static, Poly) for v in items):
        weak = all(v.dtype == "int" for v in items)
        if not weak:
            items, dtype = unify(c, items, pos, "cat")
        return static_vector(tuple(v.static for v in items if isinstance(v.static, Poly)), "int" if weak else dtype, pos)
    items, dtype = unify(c, items, pos, "cat")
    depth = max(v.depth for v in items)
    parts = [c.lift(v, depth, ()) for v in items]
    cells = [Term("fill", ix(I(1)), p) if depth == 0 else Term("spread", depth, I(1), p) for p in parts]
    term = cells[0]
    for n, cell in enumerate(cells[1:], 1):
        term = Term("cat", depth, I(n), term, cell)
    return Val(term, (Poly.const(len(items)),), dtype, pos, depth)


def monoid_of(c: Context, op: str, kind: str, pos: Pos) -> None:
    if op not in B.MONOIDS:
        c.fail(208, f"`{kind}` needs an associative function with an identity, not {symbol(op)}", pos, hint="use + × max min and or")


def fold(c: Context, kind: str, op: str, a: Val, pos: Pos) -> Val:
    """``op red a`` or ``op scan a``, along the first axis. `-` and `÷` are right folds: a sum of terms of alternating sign, a
    product of alternating factors and divisors; so they are for the prefixes of a scan."""
    need_rank(c, a, 1, op, pos)
    a = concrete(a)
    if op in ("sub", "div"):
        inverse = apply_scalar(c, "neg", [a], pos) if op == "sub" else apply_scalar(c, "div", [replace(a, term=num_term("1.0"), shape=(), depth=0), a], pos)
        length = shape_term(a.shape[:1])
        even = Term("eq", Term("mod", Term("iota", a.shape[0].term()), Term("fill", length, I(2))), Term("fill", length, I(0)))
        for k, n in enumerate(c.frame[: a.depth]):
            even = Term("spread", k, n.term(), even)
        for k, n in enumerate(a.shape[1:], a.depth + 1):
            even = Term("spread", k, n.term(), even)
        a = replace(a, term=Term("select", even, a.term, inverse.term))
        op = {"sub": "add", "div": "mul"}[op]
    monoid_of(c, op, kind, pos)
    require(c, a, ("bool",) if op in B.LOGIC else (*B.FLOATS, *B.INTS), op, pos, "cast first: `i32(...)` of a bool is 0 or 1")
    term = Term(kind, op, a.depth, c.fresh_axis(), a.shape[0].term(), a.term)
    if kind == "red":
        return Val(term, a.shape[1:], a.dtype, pos, a.depth)
    return Val(term, a.shape, a.dtype, pos, a.depth)


def outer(c: Context, op: str, a: Val, b: Val, pos: Pos) -> Val:
    """(i++j) ψ (a •op b) = (i ψ a) op (j ψ b)"""
    return apply_scalar(c, op, list(_paired(c, a, b)), pos)


def _paired(c: Context, a: Val, b: Val) -> tuple[Val, Val]:
    """Both arguments on the shape ρa ++ ρb; scalars stay."""
    if not a.rank or not b.rank:
        return a, b
    ta, tb = a.term, b.term
    for k, n in enumerate(b.shape):
        ta = Term("spread", a.depth + a.rank + k, n.term(), ta)
    for k, n in enumerate(a.shape):
        tb = Term("spread", b.depth + k, n.term(), tb)
    return replace(a, term=ta, shape=a.shape + b.shape, static=None), replace(b, term=tb, shape=a.shape + b.shape, static=None)


def inner(c: Context, op: str, by: str, a: Val, b: Val, pos: Pos) -> Val:
    """(i++j) ψ (a op.by b) = op red over k of ((i++<k>) ψ a) by ((<k>++j) ψ b)"""
    monoid_of(c, op, "the left part of an inner product", pos)
    need_rank(c, a, 1, by, pos)
    need_rank(c, b, 1, by, pos)
    verdict = c.equal(a.shape[-1], b.shape[0])
    if not verdict.proved:
        hint = "the last axis of the left meets the first axis of the right; transpose one of them?"
        c.fail(303, f"inner product over axes of length {a.shape[-1]} and {b.shape[0]}", pos, shapes(a, b), verdict.witness, hint)
    lead, tail = a.shape[:-1], b.shape[1:]
    full = (*a.shape, *tail)
    ta, tb = a.term, b.term
    for k, n in enumerate(tail):
        ta = Term("spread", a.depth + a.rank + k, n.term(), ta)
    for k, n in enumerate(lead):
        tb = Term("spread", b.depth + k, n.term(), tb)
    # positions in messages of the scalar function are those of the arguments
    v = concrete(apply_scalar(c, by, [replace(a, term=ta, shape=full, static=None), replace(b, term=tb, shape=full, static=None)], pos))
    require(c, v, ("bool",) if op in B.LOGIC else (*B.FLOATS, *B.INTS), op, pos)
    axis = len(lead)
    term = Term("red", op, v.depth + axis, c.fresh_axis(), v.shape[axis].term(), v.term)
    return Val(term, lead + tail, v.dtype, pos, v.depth)
