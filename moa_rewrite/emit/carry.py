"""Running sums: a scan that stands as a sum over ``k < i + 1`` for every i is carried from one i to the next.

    for i:n for k:i+1 X[i] += e        becomes        new C: for i:n { C += e with i for k ; X[i] = C }

The order of the additions is the same, so no rounding changes. It needs the loop over i to run in sequence and e not to depend on i.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..terms import I, Kernel, Stage, Term, axis, free_axes, get, ix, reads, seq, substitute
from ..terms.ops import MONOIDS


def scan(kernel: Kernel, t: Term) -> bool:
    """Whether a statement is ``for i for k:i+1 emit`` of the form above."""
    args: tuple[Any, ...] = t.args
    if t.op != "for" or args[2] != "seq" or args[3].op != "for":
        return False
    i, inner = args[0], args[3]
    k, extent, place, e = inner.args
    if extent is not Term("add", axis(i), I(1)) or place != "seq" or e.op != "emit":
        return False
    m, x, at, value = e.args
    depends = kernel.base_axes(free_axes(value)) & kernel.base_axes(frozenset([i]))
    return MONOIDS[m] is not None and axis(i) in at.args and k not in free_axes(at) and not depends and x not in reads(value)


def carry(t: Term, name: str, dtype: str, statement: Callable[[Term], Term]) -> tuple[Term, Stage]:
    """The carried form of a scan, and its new scalar stage ``name``."""
    args: tuple[Any, ...] = t.args
    i, n, place = args[:3]
    k, _, _, e = args[3].args
    m, x, at, value = e.args
    step = Term("emit", m, name, ix(), substitute(value, {k: axis(i)}))
    body = Term("for", i, n, place, seq(statement(step), Term("emit", "once", x, at, get(name))))
    return Term("new", name, body), Stage(name, dtype, (), (), m, value)
