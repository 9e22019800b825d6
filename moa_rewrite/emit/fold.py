"""Integer terms: constant folding, bounds of loop extents, intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..terms import I, Term, free_axes

_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "max": max, "min": min,
    "idiv": lambda a, b: a // b, "mod": lambda a, b: a % b,
}  # fmt: skip
_COMPARE: dict[str, Callable[[int, int], bool]] = {"lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b}


def fold(t: Term) -> Term:
    """Integer constants evaluated and 0, 1 as neutral elements dropped, everywhere in a term; floating-point operations are left alone."""
    memo: dict[Term, Term] = {}

    def walk(u: Term) -> Term:
        if u not in memo:
            memo[u] = _one(u.map(walk))
        return memo[u]

    return walk(t)


def _one(t: Term) -> Term:
    op, args = t.op, t.args
    if op in _FOLD or op in _COMPARE:
        a, b = args
        if isinstance(a, Term) and isinstance(b, Term):
            x, y = const(a), const(b)
            if x is not None and y is not None and not (op in ("idiv", "mod") and y == 0):
                return I(_FOLD[op](x, y)) if op in _FOLD else Term("bool", int(_COMPARE[op](x, y)))
            if (op == "add" and x == 0) or (op == "mul" and x == 1):
                return b
            if (op in ("add", "sub") and y == 0) or (op in ("mul", "idiv") and y == 1):
                return a
            if op == "add" and y is not None and a.op == "sub" and const(a.args[1]) == y:  # type: ignore[arg-type]
                return a.args[0]  # type: ignore[return-value]
            if op in ("min", "max") and a is b:
                return a
            if op == "sub" and a is b and a.op in ("axis", "size"):
                return I(0)
            if op == "mod" and (inner := _shifted(a)) is not None and inner[0].op == "mod" and inner[0].args[1] is b:
                return _one(Term("mod", shift(inner[0].args[0], inner[1]), b))  # type: ignore[arg-type]
    if op == "neg" and isinstance(args[0], Term) and (x := const(args[0])) is not None:
        return I(-x)
    if op == "select" and isinstance(args[0], Term) and args[0].op == "bool":
        return args[1] if args[0].args[0] else args[2]  # type: ignore[return-value]
    if op in ("and", "or"):
        a, b = args
        for c, other in ((a, b), (b, a)):
            if isinstance(c, Term) and c.op == "bool":
                return other if bool(c.args[0]) == (op == "and") else c  # type: ignore[return-value]
    return t


def _shifted(t: Term) -> tuple[Term, int] | None:
    """(e, c) of ``e + c`` or ``e - c`` with an integer c."""
    if t.op in ("add", "sub") and (c := const(t.args[1])) is not None:  # type: ignore[arg-type]
        return t.args[0], c if t.op == "add" else -c  # type: ignore[return-value]
    return None


def shift(t: Term, c: int) -> Term:
    """``t + c`` with the integers of t's outermost sums collected."""
    while (inner := _shifted(t)) is not None:
        t, c = inner[0], c + inner[1]
    return t if c == 0 else Term("add", t, I(c)) if c > 0 else Term("sub", t, I(-c))


def const(t: Term) -> int | None:
    return int(t.args[0]) if t.op == "int" else None  # type: ignore[arg-type]


def bounded(extent: Term) -> tuple[int | None, tuple[Term, ...]]:
    """(T, others): extent = min(T, others...) with an integer T, or (None, ()) when no constant bounds it."""

    def parts(t: Term) -> list[Term]:
        return [*parts(t.args[0]), *parts(t.args[1])] if t.op == "min" else [t]  # type: ignore[arg-type]

    items = parts(fold(extent))
    consts = [c for c in map(const, items) if c is not None]
    return (min(consts), tuple(t for t in items if const(t) is None)) if consts else (None, ())


def steps_by_one(e: Term, var: str) -> bool:
    """Whether an index moves by one when an axis does."""
    if e.op in ("add", "sub"):
        a, b = e.kids()
        return (var not in free_axes(b) and steps_by_one(a, var)) or (e.op == "add" and var not in free_axes(a) and steps_by_one(b, var))
    return e.op == "axis" and e.args[0] == var


def nonneg(t: Term) -> bool:
    """Whether an integer term is certainly >= 0, given that sizes and loop variables are."""
    c = const(t)
    if c is not None:
        return c >= 0
    if t.op in ("size", "axis"):
        return True
    kids = t.kids()
    if t.op in ("add", "mul", "min"):
        return all(map(nonneg, kids))
    if t.op == "max":
        return any(map(nonneg, kids))
    if t.op in ("idiv", "mod"):
        d = const(kids[1])
        return d is not None and d > 0 and (t.op == "mod" or nonneg(kids[0]))
    return False


Interval = tuple[int | None, int | None]


def interval(t: Term, extents: Mapping[str, Term]) -> Interval:
    """Bounds of an integer term; ``extents`` gives the extent of each loop variable. None: not bounded by a constant."""
    c = const(t)
    if c is not None:
        return c, c
    if t.op == "size":
        return 0, None
    if t.op == "axis":
        e = extents.get(str(t.args[0]))
        hi = interval(e, extents)[1] if e is not None else None
        return 0, None if hi is None else hi - 1
    if t.op in ("add", "sub", "mul", "min", "max"):
        (a, b), (c1, d) = (interval(k, extents) for k in t.kids())
        if t.op == "add":
            return (None if a is None or c1 is None else a + c1), (None if b is None or d is None else b + d)
        if t.op == "sub":
            return (None if a is None or d is None else a - d), (None if b is None or c1 is None else b - c1)
        if t.op == "min":
            tops = [x for x in (b, d) if x is not None]
            return (None if a is None or c1 is None else min(a, c1)), (min(tops) if tops else None)
        if t.op == "max":
            lows = [x for x in (a, c1) if x is not None]
            return (max(lows) if lows else None), (None if b is None or d is None else max(b, d))
        if a is not None and a >= 0 and c1 is not None and c1 >= 0:
            return a * c1, (None if b is None or d is None else b * d)
    if t.op == "idiv":
        (a, b), k = interval(t.args[0], extents), const(t.args[1])  # type: ignore[arg-type]
        if k is not None and k > 0:
            return (None if a is None else a // k), (None if b is None else b // k)
    return None, None
