"""A kernel: its header (sizes, arrays, stages, axis definitions) and its body, one statement term.

The same type serves every stage of the pipeline; only the body changes:
* source  ``for i:n for j:m emit(once) X[i,j] psi(<i,j>, array term)``
* DNF     the same loops around a scalar term without array operators
* ONF     staged, tiled, placed loops
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .term import Term


@dataclass(frozen=True)
class Array:
    """An input or output. ``shape``: one integer term over ``size`` names per axis. Rank-0 inputs are passed by value."""

    name: str
    dtype: str
    shape: tuple[Term, ...]


@dataclass(frozen=True)
class Stage:
    """An intermediate array T, defined by ``T[axes] = definition``: mathematically always equal to it, operationally filled by emissions.

    ``axes`` are the names of its key axes in index order, ``shape`` their full extents (integer terms over sizes), ``monoid`` the one
    its cells collect under. ``layout`` orders the axes in storage, slowest first (a permutation of range(rank)). With ``panel`` = W > 0 the axis stored
    last is cut into panels of W cells, and the panels are slowest: cell (i, j) of <n, m> lies at [j div W][i][j mod W].
    """

    name: str
    dtype: str
    axes: tuple[str, ...]
    shape: tuple[Term, ...]
    monoid: str
    definition: Term
    layout: tuple[int, ...] = ()
    panel: int = 0


@dataclass(frozen=True)
class Touch:
    """Whose memory an output or stage lies in: the cells whose index along ``axis`` (a number, from 0) is r are first written, and so their pages
    placed, by memory domain ``r // rows``. ``rows`` is an integer term over sizes, ``domains`` how many there are."""

    array: str
    axis: int
    rows: Term
    domains: int


@dataclass(frozen=True)
class Kernel:
    name: str
    sizes: tuple[str, ...]
    where: tuple[Term, ...]  # boolean terms over sizes that hold for every call
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    body: Term
    stages: tuple[Stage, ...] = ()
    defs: tuple[tuple[str, Term], ...] = ()  # lifted axes: ("i", i.o*T + i.i), in the order they were made
    touches: tuple[Touch, ...] = ()  # at most one per array

    def array(self, name: str) -> Array | Stage:
        found: list[Array | Stage] = [*self.inputs, *self.outputs, *self.stages]
        for a in found:
            if a.name == name:
                return a
        raise KeyError(name)

    def stage(self, name: str) -> Stage:
        return next(s for s in self.stages if s.name == name)

    def with_body(self, body: Term) -> Kernel:
        return replace(self, body=body)

    def definition(self, axis: str) -> Term | None:
        """What a lifted axis stands for, e.g. ``i.o*64 + i.i``; None for an axis that a loop runs over."""
        return dict(self.defs).get(axis)

    def base_axes(self, names: frozenset[str]) -> frozenset[str]:
        """The loop axes that given axis names depend on, definitions looked through."""
        from .axes import free_axes

        defs, out, todo = dict(self.defs), set(), list(names)
        while todo:
            n = todo.pop()
            if n in defs:
                todo.extend(free_axes(defs[n]))
            else:
                out.add(n)
        return frozenset(out)


def loops(t: Term) -> Iterator[Term]:
    """Every ``for`` node in a statement, outermost first."""
    if t.op == "for":
        yield t
    for a in t.kids():
        if a.op in ("for", "seq", "new", "guard"):
            yield from loops(a)


def emissions(t: Term) -> Iterator[Term]:
    """Every emission of a statement, in order of text."""
    if t.op == "emit":
        yield t
    elif t.op in ("for", "seq", "new", "guard"):
        for a in t.kids():
            yield from emissions(a)
