"""Sums of many elements in two levels: a loop over pieces, each added to partial sums on lanes, is cut into blocks of BLOCK pieces with sums of their own.

    for p:P for l:W acc[l] += e      becomes      for b for l part[l] = 0 ; for p of the block for l part[l] += e ; for l acc[l] += part[l]

The bound of the rounding error grows with BLOCK + P / BLOCK additions in a row instead of P. For sums of a kernel's whole input, outside of all loops: with
many sums, each of a row, the second version and the test for it cost more than they give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..terms import I, Term, axis, get, num, reads
from .fold import bounded, fold
from .loops import Buffer, Declare, If, Let, Loop, Node, Store, Update, expressions, nodes
from .types import FLOATS

BLOCK = 256  # pieces
LEAST = 4096  # pieces of a sum that is worth a second level; fewer are added as they come

Fresh = Callable[[str], str]
Partial = Callable[[Buffer], Buffer]


def blocks(body: tuple[Node, ...], buffers: Mapping[str, Buffer], fresh: Fresh, partial: Partial) -> tuple[tuple[Node, ...], list[str]]:
    """The body with such sums in blocks, and what was cut. ``partial`` makes a buffer like another."""
    made: dict[str, None] = {}

    def walk(n: Node) -> Node:
        match n:
            case If():
                return replace(n, then=tuple(map(walk, n.then)), other=tuple(map(walk, n.other)))
            case Loop():
                sums = _sums(n, buffers)
                if sums is None:
                    return n
                made[f"{buffers[sums].source} in blocks of {BLOCK} pieces"] = None
                return If(Term("lt", I(LEAST), n.extent), (_cut(n, buffers[sums], fresh, partial),), (n,))
        return n

    return tuple(map(walk, body)), list(made)


def _sums(n: Loop, buffers: Mapping[str, Buffer]) -> str | None:
    """The accumulators of a loop over pieces that only adds to them."""
    inner = [b for b in n.body if not isinstance(b, Let)]
    if n.kind != "seq" or bounded(n.extent)[0] is not None or len(inner) != 1 or not isinstance(lanes := inner[0], Loop) or lanes.kind != "simd":
        return None
    updates = [u for u in lanes.body if isinstance(u, Update)]
    if lanes.trip is None or len(updates) != 1 or any(isinstance(u, Loop | If) for u in lanes.body):
        return None
    (u,) = updates
    b = buffers[u.buffer]
    plain = u.monoid == "add" and b.space == "register" and b.dtype in FLOATS and u.index == (axis(lanes.var),) and b.shape == (I(lanes.trip),)
    return u.buffer if plain and not any(u.buffer in reads(e) for m in nodes(n.body) for e in expressions(m)) else None


def _cut(n: Loop, acc: Buffer, fresh: Fresh, partial: Partial) -> Loop:
    (lanes,) = (b for b in n.body if isinstance(b, Loop))
    part, block, piece = partial(acc), fresh(f"{n.var}_block"), fresh(f"{n.var}_in")
    start = Term("mul", axis(block), I(BLOCK))
    cell = (axis(lanes.var),)
    to_part = replace(lanes, body=tuple(replace(u, buffer=part.name) if isinstance(u, Update) else u for u in lanes.body))
    inner = Loop(
        piece, fold(Term("min", I(BLOCK), Term("sub", n.extent, start))), "seq",
        (Let(n.var, Term("add", start, axis(piece))), *(to_part if b is lanes else b for b in n.body)), unroll=n.unroll,
    )  # fmt: skip
    return Loop(
        block, fold(Term("idiv", Term("add", n.extent, I(BLOCK - 1)), I(BLOCK))), "seq",
        (
            Declare(part.name),
            Loop(lanes.var, lanes.extent, "simd", (Store(part.name, cell, num("0.0")),), lanes.trip),
            inner,
            Loop(lanes.var, lanes.extent, "simd", (Update("add", acc.name, cell, get(part.name, *cell)),), lanes.trip),
        ),
    )  # fmt: skip
