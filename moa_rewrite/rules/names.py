"""What the names in a kernel depend on: axes through their definitions, extents, and the arrays a statement touches from outside."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from ..terms import Kernel, Term, free_axes, subterms


def closure(kernel: Kernel, names: Iterable[str], bound: str = "") -> frozenset[str]:
    """The axes named, and every axis they are defined from, at any depth. The definition of ``bound``, an axis that a loop runs over, is not used."""
    if not kernel.defs:
        return frozenset(names)
    defs, out, todo = {a: t for a, t in kernel.defs if a != bound}, set(), list(names)
    while todo:
        n = todo.pop()
        if n not in out:
            out.add(n)
            if n in defs:
                todo.extend(free_axes(defs[n]))
    return frozenset(out)


@functools.lru_cache(maxsize=4096)
def bound_axes(t: Term) -> frozenset[str]:
    """Names that a loop, reduction or scan inside ``t`` binds."""
    return frozenset(name for name, _ in _binders(t))


@functools.lru_cache(maxsize=64)
def extents(t: Term) -> dict[str, tuple[Term, ...]]:
    """Every extent that a bound axis name has inside ``t``; one per name in a well-formed kernel."""
    out: dict[str, tuple[Term, ...]] = {}
    for name, n in _binders(t):
        if n not in out.get(name, ()):
            out[name] = (*out.get(name, ()), n)
    return out


def _binders(t: Term) -> Iterator[tuple[str, Term]]:
    for u in subterms(t):
        if u.op == "for":
            yield u.args[0], u.args[1]  # type: ignore[misc]
        elif u.op == "reduce":
            yield u.args[1], u.args[2]  # type: ignore[misc]
        elif u.op in ("red", "scan"):
            yield u.args[2], u.args[3]  # type: ignore[misc]


@functools.lru_cache(maxsize=4096)
def outer_reads(t: Term) -> frozenset[str]:
    """Arrays that ``t`` reads, without those whose storage it makes itself."""
    if t.op in ("get", "arr"):
        own = frozenset([str(t.args[0])])
    else:
        own = frozenset()
    found = own.union(*[outer_reads(a) for a in t.kids()])
    return found - {t.args[0]} if t.op == "new" else found  # type: ignore[operator]


@functools.lru_cache(maxsize=4096)
def outer_writes(s: Term) -> frozenset[str]:
    """Arrays that ``s`` emits to, without those whose storage it makes itself."""
    if s.op == "emit":
        return frozenset([str(s.args[1])])
    if s.op not in ("for", "seq", "new", "guard"):
        return frozenset()
    found = frozenset().union(*[outer_writes(a) for a in s.kids()])
    return found - {s.args[0]} if s.op == "new" else found


def accesses(s: Term, array: str) -> Iterator[Term]:
    """Index lists of the reads of and emissions to an array, without those to inner storage of the same name."""
    if s.op == "new" and s.args[0] == array:
        return
    if s.op == "get" and s.args[0] == array:
        yield s.args[1]  # type: ignore[misc]
    elif s.op == "emit" and s.args[1] == array:
        yield s.args[2]  # type: ignore[misc]
    for a in s.kids():
        yield from accesses(a, array)


def keyed_by(kernel: Kernel, array: str, i: str, *parts: Term) -> bool:
    """Every cell of a stage is touched in one iteration of loop ``i`` only.

    That is: the array is a stage, i is one of its key axes or one is defined from i, every access in the parts is exactly at the key axes, and no loop or
    reduction in the parts binds an axis that stands for i again.
    """
    stage = next((s for s in kernel.stages if s.name == array), None)
    if stage is None or i not in closure(kernel, stage.axes):
        return False
    exact = Term("ix", *[Term("axis", a) for a in stage.axes])
    for part in parts:
        if any(i in closure(kernel, [b]) for b in sorted(bound_axes(part))):
            return False
        if any(index is not exact for index in accesses(part, array)):
            return False
    return True
