"""Barriers between the steps of a block.

A step (one ``Threads`` nest, or a uniform condition or extent) must wait when it reads what another thread wrote, or overwrites what another thread
read or wrote, since the last barrier. In a loop the state at the end of the body meets the state at its start, until nothing changes.
No barrier is needed where both steps run over the same box and touch a buffer only at one cell that tells the box's indices apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..terms import Term, free_axes, subterms
from .cuda_program import Barrier, CudaNode, Threads
from .loops import Comment, Declare, If, Let, Loop, Store, Update, expressions, nodes


@dataclass(frozen=True)
class Touch:
    """How a step touches a buffer; ``cell`` is the pair (box, index) when all its accesses are at that one cell of each thread, else None."""

    write: bool
    buffer: str
    cell: tuple[tuple[tuple[str, Term], ...], tuple[Term, ...]] | None


State = frozenset[Touch]


class Placer:
    """``common(b)``: whether several threads see buffer b. ``base(e)``: the loop variables an expression depends on, definitions looked through.
    ``grid``: the variables that are constant in a block."""

    def __init__(self, common: Callable[[str], bool], base: Callable[[Term], frozenset[str]], grid: frozenset[str]) -> None:
        self.common, self.base, self.grid = common, base, grid

    def place(self, body: tuple[CudaNode, ...], shared: frozenset[str]) -> tuple[CudaNode, ...]:
        """The body with its barriers. ``shared``: the buffers that it finds again, as it left them, when it runs for the next block of the grid; where
        that needs a barrier it is the last node."""
        out, end = self.sequence(body, frozenset())
        left = frozenset(t if self.same_in_all_blocks(t) else replace(t, cell=None) for t in end if t.buffer in shared)
        return out if self.sequence(body, left)[0] == out else (*out, Barrier("the next block of the grid"))

    def same_in_all_blocks(self, t: Touch) -> bool:
        """Whether a cell belongs to the same thread whatever the block."""
        return t.cell is not None and not any(self.base(e) for _, e in t.cell[0][1:])

    def loop(self, body: tuple[CudaNode, ...], before: State) -> tuple[tuple[CudaNode, ...], State]:
        start = before
        while True:
            out, end = self.sequence(body, start)
            if end <= start:
                return out, start
            start = start | end

    def sequence(self, body: tuple[CudaNode, ...], state: State) -> tuple[tuple[CudaNode, ...], State]:
        out: list[CudaNode] = []
        for n in body:
            step = self.touches(n)
            clash = sorted({t.buffer for t in step for s in state if self.clash(s, t)})
            if clash:
                out.append(Barrier(", ".join(clash)))
                state = frozenset()
            state = state | step
            match n:
                case Loop():
                    inner, state = self.loop(n.body, state)
                    out.append(replace(n, body=inner))  # type: ignore[arg-type]
                case If():
                    then, a = self.sequence(n.then, state)
                    other, b = self.sequence(n.other, state)
                    state = a | b
                    out.append(replace(n, then=then, other=other))  # type: ignore[arg-type]
                case _:
                    out.append(n)
        return tuple(out), state

    def clash(self, before: Touch, now: Touch) -> bool:
        return before.buffer == now.buffer and (before.write or now.write) and (before.cell is None or before.cell != now.cell)

    def touches(self, n: CudaNode) -> State:
        """What a step itself touches; the bodies of uniform loops and conditions are steps of their own."""
        match n:
            case Threads():
                return self.box(n)
            case Loop() | If() | Let():
                return frozenset(Touch(False, b, None) for e in expressions(n) for b, _ in gets(e) if self.common(b))
            case Comment() | Declare() | Barrier():
                return frozenset()
        raise TypeError(f"{type(n).__name__} outside Threads")

    def box(self, n: Threads) -> State:
        seen: dict[str, set[tuple[Term, ...]]] = {}
        written = set()
        for u in nodes(n.body):
            if isinstance(u, (Store, Update)) and self.common(u.buffer):
                written.add(u.buffer)
                seen.setdefault(u.buffer, set()).add(u.index)
            for e in expressions(u):
                for b, at in gets(e):
                    if self.common(b):
                        seen.setdefault(b, set()).add(at)
        out = set()
        for b in sorted(seen):
            (at, *more) = seen[b]
            # which thread has an index depends on all extents but the first: they must not change with a uniform loop
            steady = all(self.base(e) <= self.grid for _, e in n.loops[1:])
            cell = (n.loops, at) if not more and steady and self.owns(n.loops, at) else None
            cell = cell if n.loops else ((), ())  # one thread: all its accesses are in order
            out.add(Touch(b in written, b, cell))
        return frozenset(out)

    def owns(self, box: tuple[tuple[str, Term], ...], at: tuple[Term, ...]) -> bool:
        """Whether different indices of the box give different cells: each box variable stands alone among them in some index that is a variable."""
        names = {a for a, _ in box}
        alone = {next(iter(own)) for e in at if e.op == "axis" and len(own := self.base(e) & names) == 1}
        return names == alone and all(self.base(e) & names for e in at if e.op == "axis" and free_axes(e) & names)


def gets(e: Term) -> Iterator[tuple[str, tuple[Term, ...]]]:
    for u in subterms(e):
        if u.op == "get":
            yield str(u.args[0]), tuple(a for a in u.args[1].args if isinstance(a, Term))  # type: ignore[union-attr]
