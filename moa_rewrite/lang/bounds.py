"""Is an index in range? The generic element of an integer array term, as a term over its axes, for the prover.

What cannot be followed (data, reductions) becomes an unknown integer, so a claim proved holds for all data.
"""

from __future__ import annotations

import itertools

from ..terms import I, Term, axis
from ..terms.ops import BINARY, UNARY
from .poly import Poly
from .prove import UNKNOWN, Verdict
from .values import Context, Val


def in_range(c: Context, index: Val, n: Poly) -> Verdict:
    """0 <= index < n for every element of the index?"""
    if isinstance(index.static, Poly):
        e, given = index.static.term(), tuple[Term, ...]()
    else:
        names = [f"{'ijklpqst'[k % 8]}{k // 8 or ''}" for k in range(index.depth)]
        e = element(index.term, [axis(a) for a in names], itertools.count())
        given = tuple(Term("lt", axis(a), extent.term()) for a, extent in zip(names, c.frame, strict=False))
    return c.prover.check(Term("and", Term("le", I(0), e), Term("lt", e, n.term())), given, ("index", e))


def element(t: Term, i: list[Term], fresh: itertools.count) -> Term:
    """psi(i, t) as far as it can be followed; a term over axes and sizes, with select for cat and unknown sizes ``data0``, ...

    An unknown is the difference of two sizes, since sizes are at least 0 and data need not be.
    """
    a = t.args
    go = lambda u, j: element(u, j, fresh)  # noqa: E731
    match t.op:
        case "int" | "size":
            return t
        case "iota":
            return i[0]
        case "fill":
            return go(a[1], [])
        case "spread":
            return go(a[2], [*i[: a[0]], *i[a[0] + 1 :]])  # type: ignore
        case "take" | "dropr":
            return go(a[2], i)
        case "drop":
            return go(a[2], _at(i, a[0], lambda x: Term("add", x, a[1])))
        case "taker":
            return go(a[3], _at(i, a[0], lambda x: Term("add", x, Term("sub", a[2], a[1]))))
        case "reverse":
            return go(a[2], _at(i, a[0], lambda x: Term("sub", Term("sub", a[1], I(1)), x)))
        case "rotate":
            return go(a[3], _at(i, a[0], lambda x: Term("mod", Term("add", x, a[1]), a[2])))
        case "cat":
            k, n = a[0], a[1]
            return Term("select", Term("lt", i[k], n), go(a[2], i), go(a[3], _at(i, k, lambda x: Term("sub", x, n))))  # type: ignore
        case "transpose":
            return go(a[1], [i[v.args[0]] for v in a[0].args])  # type: ignore
        case "gather":
            k = a[0]
            return go(a[2], [*i[:k], go(a[1], i[:k]), *i[k:]])  # type: ignore
        case "cast" if a[0] in ("i32", "i64"):  # the integer part of a float is an integer that data may make anything
            return go(a[1], i)
    if t.op in ("neg", "abs", "add", "sub", "mul", "max", "min", "idiv", "mod"):
        return Term(t.op, *[go(k, i) for k in t.kids()])
    assert t.op in (*UNARY, *BINARY, "select", "arr", "red", "scan", "reshape", "cast"), t
    number = next(fresh)
    return Term("sub", Term("size", f"{UNKNOWN}{number}"), Term("size", f"{UNKNOWN}{number}'"))


def _at(i: list[Term], k: object, f) -> list[Term]:
    assert isinstance(k, int)
    return [*i[:k], f(i[k]), *i[k + 1 :]]
