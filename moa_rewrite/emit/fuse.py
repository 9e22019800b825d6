"""Neighbouring nests of a block made one, and cells of shared memory that only one thread uses made registers.

    fuse      two nests over the same box, where each thread meets what the first wrote or read only at the cell that it owns itself
    register  a shared buffer used in one nest only, at one cell per thread, stored there before it is read
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ..terms import Term, get
from .barriers import Placer, gets
from .cuda_program import CudaNode, Threads, steps
from .loops import Buffer, Declare, If, Let, Loop, Node, Store, Update, expressions, nodes


def fuse(body: tuple[CudaNode, ...], placer: Placer) -> tuple[CudaNode, ...]:
    """The body with neighbours fused, everywhere."""
    out: list[CudaNode] = []
    for n in body:
        match n:
            case Loop():
                n = replace(n, body=fuse(n.body, placer))  # type: ignore[arg-type]
            case If():
                n = replace(n, then=fuse(n.then, placer), other=fuse(n.other, placer))  # type: ignore[arg-type]
            case Threads() if out and isinstance(before := out[-1], Threads) and _joins(before, n, placer):
                known = [b for b in before.body if isinstance(b, Let)]
                out[-1] = replace(before, body=(*before.body, *(b for b in n.body if b not in known)))
                continue
        out.append(n)
    return tuple(out)


def _joins(a: Threads, b: Threads, placer: Placer) -> bool:
    if a.loops != b.loops:
        return False
    return not any(placer.clash(s, t) for s in placer.touches(a) for t in placer.touches(b))


def registers(body: tuple[CudaNode, ...], shared: list[Buffer], placer: Placer, renew: Callable[[Buffer], Buffer]) -> tuple[CudaNode, ...]:
    """The body with the shared buffers that need not be shared replaced by registers. ``renew`` makes the register of a buffer."""
    for b in shared:
        users = [n for n in steps(body) if any(t.buffer == b.name for t in placer.touches(n))]
        if len(users) == 1 and isinstance(users[0], Threads) and (at := _one_cell(users[0], b.name, placer)) is not None:
            own = renew(b)
            body = _replace_step(body, users[0], replace(users[0], body=(Declare(own.name), *(_use(n, b.name, at, own.name) for n in users[0].body))))
    return body


def _one_cell(n: Threads, name: str, placer: Placer) -> tuple[Term, ...] | None:
    """The one cell of a buffer that a thread uses in a nest, when it is the thread's own and its first use is a plain store."""
    cells = {at for b, at in _uses(n.body) if b == name}
    if len(cells) != 1:
        return None
    (at,) = cells
    inner = {u.var for u in nodes(n.body) if isinstance(u, Loop)}
    if (n.loops and not placer.owns(n.loops, at)) or any(placer.base(i) & inner for i in at):
        return None
    for u in n.body:
        if any(b == name for e in expressions(u) for b, _ in gets(e)):
            return None
        if isinstance(u, Store) and u.buffer == name:
            return at
        if isinstance(u, Update) and u.buffer == name:
            return None
        if isinstance(u, Loop | If) and any(b == name for b, _ in _uses((u,))):
            return None
    return None


def _uses(body: tuple[Node, ...]) -> Iterator[tuple[str, tuple[Term, ...]]]:
    for u in nodes(body):
        if isinstance(u, Store | Update):
            yield u.buffer, u.index
        for e in expressions(u):
            yield from gets(e)


def _replace_step(body: tuple[CudaNode, ...], old: Threads, new: Threads) -> tuple[CudaNode, ...]:
    out: list[CudaNode] = []
    for n in body:
        match n:
            case Threads():
                out.append(new if n is old else n)
            case Loop():
                out.append(replace(n, body=_replace_step(n.body, old, new)))  # type: ignore[arg-type]
            case If():
                then, other = (_replace_step(b, old, new) for b in (n.then, n.other))
                out.append(replace(n, then=then, other=other))  # type: ignore[arg-type]
            case _:
                out.append(n)
    return tuple(out)


def _use(n: Node, old: str, at: tuple[Term, ...], new: str) -> Node:
    """A node with the cell ``old[at]`` replaced by the scalar ``new``."""
    cell = get(old, *at)

    def term(t: Term) -> Term:
        return get(new) if t is cell else t.map(term)

    match n:
        case Store(buffer, _, value) if buffer == old:
            return Store(new, (), term(value))
        case Update(monoid, buffer, _, value) if buffer == old:
            return Update(monoid, new, (), term(value))
        case Store() | Update():
            return replace(n, index=tuple(map(term, n.index)), value=term(n.value))
        case Let():
            return replace(n, value=term(n.value))
        case Loop():
            return replace(n, extent=term(n.extent), body=tuple(_use(b, old, at, new) for b in n.body))
        case If():
            return If(term(n.cond), tuple(_use(b, old, at, new) for b in n.then), tuple(_use(b, old, at, new) for b in n.other))
    return n
