"""What the CUDA lowering adds to the loop program: launches, loops over the threads of a block, barriers.

Spaces of ``Buffer`` on a GPU: ``input``, ``output`` and ``shared`` (one per call) are global memory, ``private`` (one per block) is shared memory,
``register`` and ``stack`` belong to a thread. Code outside ``Threads`` is uniform: all threads of the block run it with the same values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..terms import Term, reads
from .loops import Buffer, If, Loop, Node, Note, Store, Update, expressions


@dataclass(frozen=True)
class Threads:
    """``body`` for every index of the box ``loops`` (name, extent; the last varies fastest), one index per thread, strided over the block's threads.

    No loops: one thread runs the body. ``narrow``: the box has fewer than 2^31 indices. ``wide``: strided over all threads of the grid.
    """

    loops: tuple[tuple[str, Term], ...]
    body: tuple[Node, ...]
    narrow: bool = False
    wide: bool = False


@dataclass(frozen=True)
class Barrier:
    """All threads of the block wait; shared and global writes before it are seen after it."""

    why: str = field(compare=False)  # the buffers that make it necessary


CudaNode = Node | Threads | Barrier


@dataclass(frozen=True)
class Launch:
    """One kernel. ``grid``: (axis, extent) of the loops over blocks, outermost first; an extent depends on sizes only.

    ``shared``: buffers in shared memory. ``threads``: threads per block.
    """

    name: str
    grid: tuple[tuple[str, Term], ...]
    body: tuple[CudaNode, ...]
    shared: tuple[Buffer, ...]
    threads: int


@dataclass(frozen=True)
class CudaProgram:
    """Launches in order. ABI of the host function: ``int name(sizes..., inputs..., outputs...)`` with device pointers; 0 good, 1 sizes refused,
    2 out of memory, 3 more shared memory than a block has, 4 the driver refused a launch."""

    name: str
    sizes: tuple[str, ...]
    where: tuple[Term, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    buffers: dict[str, Buffer]
    launches: tuple[Launch, ...]
    fixed: dict[str, int] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    names: dict[str, str] = field(default_factory=dict)


def steps(body: tuple[CudaNode, ...]) -> Iterator[CudaNode]:
    """Every node outside ``Threads`` and these themselves, parents first."""
    for n in body:
        yield n
        match n:
            case Loop():
                yield from steps(n.body)
            case If():
                yield from steps(n.then)
                yield from steps(n.other)


def every_node(body: tuple[CudaNode, ...]) -> Iterator[CudaNode]:
    """Every node, also inside ``Threads``, parents first."""
    for n in body:
        yield n
        match n:
            case Loop() | Threads():
                yield from every_node(n.body)
            case If():
                yield from every_node(n.then)
                yield from every_node(n.other)


def terms_of(n: CudaNode) -> tuple[Term, ...]:
    """The expressions that stand directly in a node."""
    match n:
        case Threads():
            return tuple(e for _, e in n.loops)
        case Barrier():
            return ()
    return expressions(n)


def mentions(body: tuple[CudaNode, ...]) -> tuple[frozenset[str], list[Term]]:
    """(buffers, expressions) of a body."""
    found = list(every_node(body))
    terms = [e for n in found for e in terms_of(n)]
    return frozenset(n.buffer for n in found if isinstance(n, Store | Update)).union(*map(reads, terms)), terms
