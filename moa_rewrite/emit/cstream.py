"""The C of loops that stream.py marked: a head up to a line's boundary, pieces of PIECE bytes, the rest.

A piece is computed into a local array, which compilers keep in vector registers, and goes to the output from there. Head
and rest are one piece of text, so that a loop's expression stands twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..terms import I, Term, axis, get, substitute
from ..terms import replace as put_for
from .context import BYTES
from .fold import const
from .loops import Declare, Let, Loop, Node, Store, Update
from .stream import LINE, inlined, lets_of

if TYPE_CHECKING:
    from .cprint import CPrinter

AT, LANE = axis("moarw_at"), axis("moarw_lane")  # where the piece starts, the place in it


def fetch(p: CPrinter, a: Term) -> None:
    """A prefetch. The element may lie outside its array, so its address is not computed as a pointer."""
    name = str(a.args[0])
    offset = p.e.access(name, a.args[1].args)[len(name) + 1 : -1]  # type: ignore[union-attr, arg-type]
    p.put(f"moarw_prefetch({name}, ({offset}) * {BYTES[p.e.types[name]]});")


def print_marked(p: CPrinter, n: Loop) -> None:
    """A loop with ``piece`` set."""
    store = n.body[-1]
    assert isinstance(store, Store)
    index = inlined(store.index, lets_of(n.body, {}))
    size = BYTES[p.e.types[store.buffer]]
    p.put("{")
    p.depth += 1
    p.put(f"const int64_t moarw_n = {p.e.text(n.extent, 'i64')};")
    first = p.e.access(store.buffer, tuple(substitute(i, {n.var: I(0)}) for i in index))
    p.put(f"int64_t moarw_at = moarw_head(&{first}, moarw_n, {size});")
    here = p.e.access(store.buffer, tuple(substitute(i, {n.var: AT}) for i in index))
    (_scan if n.scan else _stream)(p, n, store, here)
    p.depth -= 1
    p.put("}")


def _piece(p: CPrinter, n: Loop, value: Term) -> int:
    """The head of the loop over pieces, its prefetches and the values of a piece; how many there are."""
    piece = p.p.buffers[n.piece]
    lanes = const(piece.shape[0]) or 1
    p.put(f"for (; moarw_at + {lanes} <= moarw_n; moarw_at += {lanes}) {{")
    p.depth += 1
    for a in n.ahead:
        step = LINE // BYTES[p.e.types[str(a.args[0])]]
        p.put(f"for (int64_t moarw_lane = 0; moarw_lane < {lanes}; moarw_lane += {step})")
        p.depth += 1
        fetch(p, substitute(a, {n.var: Term("add", AT, LANE)}))
        p.depth -= 1
    p.block((Declare(n.piece), _lanes(n, lanes, Store(n.piece, (LANE,), value))), parallel=True)
    return lanes


def _lanes(n: Loop, lanes: int, s: Store) -> Loop:
    """A statement for every element of a piece, the loop's variable and its definitions at hand."""
    lets: tuple[Node, ...] = (Let(n.var, Term("add", AT, LANE)), *(b for b in n.body if isinstance(b, Let)))
    return Loop("moarw_lane", I(lanes), "simd", (*lets, s), lanes)


def _part(p: CPrinter, n: Loop, low: str, high: str, simd: bool) -> None:
    if simd:
        p.put("#pragma omp simd")
    p.put(f"for (int64_t {n.var} = {low}; {n.var} < {high}; {n.var}++) {{")
    p.nested(n.body, parallel=True)
    p.put("}")


def _stream(p: CPrinter, n: Loop, store: Store, here: str) -> None:
    p.put("const int64_t moarw_first = moarw_at;")
    _piece(p, n, store.value)
    p.put(f"moarw_stream(&{here}, {n.piece}, sizeof {n.piece});")
    p.depth -= 1
    p.put("}")
    p.put("for (int64_t moarw_side = 0; moarw_side < 2; moarw_side++) {")
    p.depth += 1
    _part(p, n, "moarw_side ? moarw_at : 0", "(moarw_side ? moarw_n : moarw_first)", simd=True)
    p.depth -= 1
    p.put("}")


def _scan(p: CPrinter, n: Loop, store: Store, here: str) -> None:
    """What is before the first boundary and after the last piece runs one after another."""
    update = n.body[-2]
    assert isinstance(update, Update)
    carry = update.buffer
    _part(p, n, "0", "moarw_at", simd=False)
    lanes = _piece(p, n, update.value)
    p.put(f"{carry} = moarw_scan_{n.scan}_{p.e.types[carry]}({n.piece}, {carry});")
    if n.stream:
        p.put(f"moarw_stream(&{here}, {n.piece}, sizeof {n.piece});")
    else:
        sums = put_for(store.value, get(carry), get(n.piece, LANE))
        p.block((_lanes(n, lanes, Store(store.buffer, store.index, sums)),), parallel=True)
    p.depth -= 1
    p.put("}")
    _part(p, n, "moarw_at", "moarw_n", simd=False)
