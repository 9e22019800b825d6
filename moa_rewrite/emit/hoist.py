"""Quotients and remainders of indices that do not change in a loop are computed before it: compilers do not move a division that might trap.

Only divisors that are sure to be positive there count: constants, and extents of loops around (inside whose body an extent is at least 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..terms import Term, axis, free_axes, subterms
from .loops import If, Let, Loop, Node, expressions, nodes, replaced
from .numa import positive as in_domains


def hoist(body: tuple[Node, ...], fresh: Callable[[str], str]) -> tuple[tuple[Node, ...], list[str]]:
    """The body with such terms in ``Let``s, and what was moved."""
    moved: list[str] = []
    return _block(body, frozenset(), frozenset(), fresh, moved), moved


def _block(body: tuple[Node, ...], known: frozenset[str], positive: frozenset[Term], fresh: Callable[[str], str], moved: list[str]) -> tuple[Node, ...]:
    out: list[Node] = []
    names: dict[Term, str] = {}
    for n in body:
        if isinstance(n, Loop):
            if n.kind not in ("core", "grid", "block"):  # nothing may stand between loops that collapse
                for t in _candidates(n, known, positive):
                    if t not in names:
                        names[t] = fresh("q" if t.op == "idiv" else "r")
                        out.append(Let(names[t], t))
                        moved.append(f"{t} before {n.var}")
                        known |= {names[t]}
                    n = replaced(n, t, axis(names[t]))
                    assert isinstance(n, Loop)
                if any(t.op == "max" for t in subterms(n.extent)):  # gfortran 12 fails on such a bound of a simd loop
                    name = fresh("n")
                    out.append(Let(name, n.extent))
                    n, known = replace(n, extent=axis(name)), known | {name}
            n = replace(n, body=_block(n.body, known | {n.var}, positive | {n.extent} | in_domains(n), fresh, moved))
        elif isinstance(n, If):
            n = replace(n, then=_block(n.then, known, positive, fresh, moved), other=_block(n.other, known, positive, fresh, moved))
        elif isinstance(n, Let):
            known |= {n.name}
        out.append(n)
    return tuple(out)


def _candidates(loop: Loop, known: frozenset[str], positive: frozenset[Term]) -> list[Term]:
    """Largest quotients and remainders inside a loop that depend on what is known before it."""
    found: dict[Term, None] = {}
    for n in nodes(loop.body):
        for e in expressions(n):
            for t in subterms(e):
                if t.op in ("idiv", "mod") and free_axes(t) and free_axes(t) <= known and _sure(t.kids()[1], positive) and _index(t):
                    found[t] = None
    inner = {u for t in found for u in subterms(t) if u is not t}
    return [t for t in found if t not in inner]


def _sure(divisor: Term, positive: frozenset[Term]) -> bool:
    return divisor in positive or (divisor.op == "int" and divisor.args[0] > 0)  # type: ignore[operator]


def _index(t: Term) -> bool:
    return t.op in ("int", "size", "axis") or (t.op in ("add", "sub", "mul", "neg", "idiv", "mod", "min", "max") and all(map(_index, t.kids())))
