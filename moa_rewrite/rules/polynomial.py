"""Integer ring identities: the polynomial of an index term, and the term of a polynomial in one readable form.

A polynomial maps monomials (sorted tuples of atoms) to coefficients. Atoms are sizes, axes, and idiv, mod, min, max of canonical terms.
"""

from __future__ import annotations

from ..terms import I, Term, show
from .meta import times

Poly = dict[tuple[Term, ...], int]


def is_index(t: Term) -> bool:
    """Whether a term is integer arithmetic over constants, sizes and axes (its value is then an integer whatever surrounds it)."""
    if t.op in ("int", "size", "axis"):
        return True
    return t.op in ("add", "sub", "mul", "neg", "idiv", "mod", "min", "max") and all(is_index(a) for a in t.kids())


def polynomial(t: Term) -> Poly:
    """Both sides of an integer identity have the same polynomial. KeyError for an operator that is no index arithmetic."""
    if t.op == "int":
        return {(): t.args[0]} if t.args[0] else {}  # type: ignore[dict-item]
    if t.op in ("size", "axis"):
        return {(t,): 1}
    parts = [polynomial(a) for a in t.kids()]
    if t.op == "neg":
        return {m: -c for m, c in parts[0].items()}
    if t.op in ("add", "sub"):
        sign = 1 if t.op == "add" else -1
        return _clean(_sum(parts[0], {m: sign * c for m, c in parts[1].items()}))
    if t.op == "mul":
        out: Poly = {}
        for m, c in parts[0].items():
            out = _sum(out, {tuple(sorted((*m, *n), key=show)): c * d for n, d in parts[1].items()})
        return _clean(out)
    return _atom(t.op, parts[0], parts[1])


def _atom(op: str, a: Poly, b: Poly) -> Poly:
    """idiv, mod, min, max: computed for constants (divisor > 0), otherwise one atom."""
    ca, cb = _constant(a), _constant(b)
    if op in ("idiv", "mod"):
        if cb == 1:
            return a if op == "idiv" else {}
        if ca is not None and cb is not None and cb > 0:
            return _clean({(): ca // cb if op == "idiv" else ca % cb})
    elif op in ("min", "max"):
        if a == b:
            return a
        if ca is not None and cb is not None:
            return _clean({(): min(ca, cb) if op == "min" else max(ca, cb)})
    else:
        raise KeyError(op)
    return {(Term(op, term(a), term(b)),): 1}


def _constant(p: Poly) -> int | None:
    return 0 if not p else p[()] if set(p) == {()} else None


def _sum(a: Poly, b: Poly) -> Poly:
    out = dict(a)
    for m, c in b.items():
        out[m] = out.get(m, 0) + c
    return out


def _clean(p: Poly) -> Poly:
    return {m: c for m, c in p.items() if c}


def term(p: Poly) -> Term:
    """One term per polynomial: what is added first (axes, sizes, constant), then what is subtracted (constant, sizes, axes): ``n - 1 - @i``."""

    def rank(m: tuple[Term, ...]) -> tuple[int, list[str]]:
        kind = 2 if not m else 0 if any(_has_axis(a) for a in m) else 1
        return kind, [show(a) for a in m]

    plus = sorted((m for m, c in p.items() if c > 0), key=rank)
    minus = sorted((m for m, c in p.items() if c < 0), key=lambda m: (-rank(m)[0], rank(m)[1]))
    out: Term | None = None
    for m in plus:
        t = _product(m, p[m])
        out = t if out is None else Term("add", out, t)
    for m in minus:
        if out is None:
            out = I(p[m]) if not m else Term("neg", m[0]) if p[m] == -1 and len(m) == 1 else _product(m, p[m])
        else:
            out = Term("sub", out, _product(m, -p[m]))
    return I(0) if out is None else out


def _has_axis(t: Term) -> bool:
    return t.op == "axis" or any(_has_axis(a) for a in t.kids())


def _product(m: tuple[Term, ...], c: int) -> Term:
    out = I(1)
    for a in m:
        out = times(out, a)
    return times(out, I(c)) if m else I(c)


def canonical(t: Term) -> Term:
    """The readable form of an index term; two index terms are equal by ring laws iff it is the same."""
    return term(polynomial(t))
