"""The loop program: what lowering makes of an ONF and what the printers for C, Fortran and CUDA read.

Expressions are ``Term``s with a machine meaning:
* ``axis(v)``   the integer variable v (a loop variable or a ``Let``), int64
* ``size(n)``   a size parameter, int64
* ``get(b, <...>)`` an element of the buffer named b; one index per axis of ``Buffer.shape``, in the same order; ``get(b, <>)`` a scalar
* literals, the scalar functions of ``terms/ops.py``, ``select``, ``cast``. ``idiv`` and ``mod`` are floor division and its remainder, whatever the
  signs. ``max`` and ``min`` propagate NaN; ``qmax(a, b)``, made by lowering only, may return either operand when one is NaN.
  ``expn(a)``, in programs for C only, is exp(a) of an a that is <= 0 or NaN.
There is no ``psi``, ``reduce``, ``pair``, nor array operator. ``emit/types.py`` gives the type of an expression.

All names (axes, sizes, buffers, kernel) are already valid identifiers in C, Fortran and CUDA, unique without regard to case.
All loops run from 0 to extent - 1; an extent <= 0 means no iteration. A loop body executes in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Union

from ..terms import Term

Node = Union["Let", "Declare", "Store", "Update", "Loop", "If", "Comment"]

KINDS = ("seq", "unroll", "simd", "core", "numa", "grid", "block")
SPACES = ("input", "output", "value", "register", "stack", "private", "shared")


@dataclass(frozen=True)
class Buffer:
    """Storage. ``shape`` holds the extents in storage order, slowest first (row-major); () is a scalar.

    space     meaning
    input     array parameter, read only, contiguous          output    array parameter, written
    value     rank-0 input, passed by value                   register  accumulator: constant extents, meant for registers
    stack     local array of constant size                    private   workspace, one per thread (per iteration of the core/grid loops around)
    shared    workspace, one per call of the kernel
    ``register`` and ``stack`` appear in the body as ``Declare``; ``private`` and ``shared`` are listed in ``LoopProgram.workspaces`` and their
    extents are terms over sizes and integers, so all are allocated at entry.
    """

    name: str
    dtype: str
    shape: tuple[Term, ...]
    space: str
    source: str = ""  # the kernel's own name of the array or stage, or what the buffer is for


@dataclass(frozen=True)
class Let:
    """An int64 constant for the rest of the enclosing block, e.g. ``i = i_o*16 + i_i``."""

    name: str
    value: Term


@dataclass(frozen=True)
class Declare:
    """A register or stack buffer, alive for the rest of the enclosing block; contents undefined at entry."""

    buffer: str


@dataclass(frozen=True)
class Store:
    """buffer[index] = value (value converted to the buffer's type)."""

    buffer: str
    index: tuple[Term, ...]
    value: Term


@dataclass(frozen=True)
class Update:
    """buffer[index] = monoid(buffer[index], value); monoid is the name of a scalar function: add mul max min and or qmax."""

    monoid: str
    buffer: str
    index: tuple[Term, ...]
    value: Term


@dataclass(frozen=True)
class Loop:
    """for var in range(extent): body.

    ``kind``   seq; unroll (unroll fully when ``trip`` is known); simd (one vector lane per iteration, iterations independent);
               core (iterations independent, over threads); numa (over memory domains, in C only: holds one core loop,
               Lets apart); grid, block (GPU blocks and threads, iterations independent).
    ``trip``   the constant number of iterations when lowering knows it.
    ``unroll`` advice for a seq loop: unroll by this factor (0: none).
    ``stream``, ``scan``, ``ahead`` are for C only and change no value, see stream.py:
    ``stream`` what the loop stores goes past the caches; ``scan`` the monoid of a running sum that the loop carries;
    ``piece``  the stack buffer that a loop with one of these computes into;
    ``ahead``  elements that will be read soon, fetched at the start of each iteration (of a loop that streams or scans: for each line of the array).
    Directly nested core loops are independent of each other and may be collapsed.
    """

    var: str
    extent: Term
    kind: str
    body: tuple[Node, ...]
    trip: int | None = None
    unroll: int = 0
    stream: bool = False
    scan: str = ""
    piece: str = ""
    ahead: tuple[Term, ...] = ()


@dataclass(frozen=True)
class If:
    cond: Term
    then: tuple[Node, ...]
    other: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Comment:
    text: str


@dataclass(frozen=True)
class Note:
    """One application of a lowering rule, for the trace: the rule's name and what it did."""

    rule: str
    text: str


@dataclass(frozen=True)
class LoopProgram:
    """``sizes``: parameter names in the ABI's order; ``fixed``: those compiled in (still parameters, checked at entry).

    ``where`` and ``parallel_if`` are boolean terms over sizes; with ``parallel_if`` false the kernel runs on one thread.
    ABI: ``int name(sizes..., inputs..., outputs...)``, 0 good, 1 sizes refused, 2 out of memory. Arrays are contiguous and row-major.
    """

    name: str
    sizes: tuple[str, ...]
    where: tuple[Term, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    workspaces: tuple[Buffer, ...]
    buffers: dict[str, Buffer]  # every buffer by name, also registers and stack arrays
    body: tuple[Node, ...]
    fixed: dict[str, int] = field(default_factory=dict)
    parallel_if: Term | None = None
    notes: tuple[Note, ...] = ()
    names: dict[str, str] = field(default_factory=dict)  # the kernel's name -> identifier, for sizes, arrays and axes
    touch: tuple[Node, ...] = ()  # a body that zeroes the outputs, each row in the domain that computes it; () where there are no domains


def nodes(body: tuple[Node, ...]) -> Iterator[Node]:
    """Every node of a body, parents before children."""
    for n in body:
        yield n
        if isinstance(n, Loop):
            yield from nodes(n.body)
        elif isinstance(n, If):
            yield from nodes(n.then)
            yield from nodes(n.other)


def expressions(n: Node) -> tuple[Term, ...]:
    """The expressions that stand directly in a node."""
    match n:
        case Let(value=v):
            return (v,)
        case Store(index=ix, value=v) | Update(index=ix, value=v):
            return (*ix, v)
        case Loop(extent=e, ahead=ahead):
            return (e, *ahead)
        case If(cond=c):
            return (c,)
        case _:
            return ()


def replaced(n: Node, old: Term, new: Term) -> Node:
    """A node with a term replaced wherever it occurs in its expressions and those of the nodes inside."""

    def term(t: Term) -> Term:
        return new if t is old else t.map(term)

    def terms(ts: tuple[Term, ...]) -> tuple[Term, ...]:
        return tuple(map(term, ts))

    def body(ns: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(replaced(m, old, new) for m in ns)

    match n:
        case Let():
            return replace(n, value=term(n.value))
        case Store() | Update():
            return replace(n, index=terms(n.index), value=term(n.value))
        case Loop():
            return replace(n, extent=term(n.extent), body=body(n.body), ahead=terms(n.ahead))
        case If():
            return replace(n, cond=term(n.cond), then=body(n.then), other=body(n.other))
        case Declare() | Comment():
            return n
