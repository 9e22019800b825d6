"""What is left of tiles that are not full, and tiles that no plan made: still with constant trip counts, so that accumulators stay in registers.

    group   rows, some at a time. A row past the last one is the last one again: it reads nothing that a row in range does not.
    strip   lanes, in strips of a power of two that is no more than there are lanes. The last strip starts early enough to be full, and computes again what
            the one before it has computed.

Cells that are computed twice are stored twice where an emission writes its cell whole, and added once where it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..terms import I, Term, axis, free_axes, reads
from .context import BYTES, MOST_UNROLLED, Context, Ctx
from .fold import bounded, const, fold
from .loops import If, Let, Loop, Node

CHAINS = 8  # vectors of accumulators that keep the multiply-add units busy: their latency times how many there are


@dataclass(frozen=True)
class Part:
    """Cells of one loop that a tile takes: ``count`` of them, numbered by ``var``. ``value``: of the loop's axis; ``own``: the test whether a cell is none
    that another part, or another cell of this one, stands for; None where all are."""

    var: str
    count: int
    value: Term
    own: Term | None


class Remainders(Context):
    partial_tiles = True  # whether this target uses the rules of this file

    def named(self, what: str, t: Term) -> tuple[Term, list[Node]]:
        """A term to be used several times, as a variable unless it is a size or a constant, and the definition of the variable."""
        if t.op in ("int", "size", "axis"):
            return t, []
        name = self.names.fresh(what)
        return axis(name), [Let(name, t)]

    def groups(self, f: Term, vectors: int, ctx: Ctx, body: Callable[[Ctx, Part], list[Node]]) -> list[Node]:
        """The rows of a loop in groups that make enough vectors of accumulators; ``vectors``: of one row."""
        a = str(f.args[0])
        top, _ = bounded(f.args[1])  # type: ignore[arg-type]
        count, lets = self.named(f"{a}_rows", self.expr(fold(f.args[1])))  # type: ignore[arg-type]
        number = const(count)
        size = group_size(number, top, vectors, self.options.vector_registers)
        group, row = self.names.fresh(f"{a}_group"), self.names.fresh(f"{a}_row")
        at = Term("add", Term("mul", axis(group), I(size)), axis(row))
        whole = number is not None and number % size == 0
        part = Part(row, size, fold(at if whole else Term("min", at, Term("sub", count, I(1)))), None if whole else Term("lt", at, count))
        self.note("group", f"{a}: {size} rows at a time")
        groups = _at_most(_pieces(count, size), top, size)
        return [*lets, Loop(group, groups, "seq", tuple(body(ctx, part)), const(groups))]

    def strips(self, f: Term, ty: str, ctx: Ctx, body: Callable[[Ctx, Part], list[Node]]) -> list[Node]:
        """The lanes of a loop in strips, as wide as the number of lanes allows."""
        a = str(f.args[0])
        top, others = bounded(f.args[1])  # type: ignore[arg-type]
        count, lets = self.named(f"{a}_lanes", self.expr(fold(f.args[1])))  # type: ignore[arg-type]
        number = const(count)
        widths = strip_widths(top, bool(others), self.options.vector_bytes // BYTES[ty])
        out: list[Node] = []
        for width in reversed(widths):
            if number is not None and number < width:
                break
            part, loop = self.strip(a, count, width, top)
            strip = loop(body(ctx, part))
            out = [strip] if number is not None or width == 1 else [If(Term("le", I(width), count), (strip,), tuple(out))]
        self.note("strip", f"{a}: lanes in strips of {', '.join(map(str, widths))}")
        return [*lets, *out]

    def strip(self, a: str, count: Term, width: int, top: int | None) -> tuple[Part, Callable[[list[Node]], Node]]:
        """The part that is one strip, and the loop over strips to put around its tile."""
        name, lane = self.names.fresh(f"{a}_strip"), self.names.fresh(f"{a}_lane")
        number = const(count)
        strips = _at_most(_pieces(count, width), top, width)
        start = fold(Term("mul", axis(name), I(width)))
        lets: list[Node] = []
        own: Term | None = None
        if width > 1 and (number is None or number % width):
            first, lets = self.named(f"{a}_first", Term("min", start, fold(Term("sub", count, I(width)))))
            start, own = first, Term("le", start, Term("add", first, axis(lane)))
        part = Part(lane, width, fold(Term("add", start, axis(lane))), own)
        return part, lambda inside: Loop(name, strips, "seq", (*lets, *inside), const(strips))

    def shares_reads(self, f: Term, inner: list[Term], e: Term, keys: frozenset[str]) -> bool:
        """Whether the rows of a loop around an accumulation may be computed side by side and read something in common. Loops inside must not depend on it."""
        own, x = self.bases(str(f.args[0])), e.args[1]
        value: Term = e.args[3]  # type: ignore[assignment]
        if f.args[2] != "seq" or not own & keys or const(fold(f.args[1])) == 1 or x in reads(value):  # type: ignore[arg-type]
            return False
        if any(own & self.k.base_axes(free_axes(g.args[1])) for g in inner):  # type: ignore[arg-type]
            return False
        lanes = frozenset().union(*(self.bases(str(g.args[0])) for g in inner if g.args[2] == "simd"))
        return any(bases & lanes and not bases & own for bases in self.read_axes(value))

    def read_axes(self, e: Term) -> list[frozenset[str]]:
        """The base axes of each element that an expression reads."""
        inside = [b for k in e.kids() for b in self.read_axes(k)]
        return [*inside, self.k.base_axes(free_axes(e))] if e.op == "get" else inside


def group_size(number: int | None, top: int | None, vectors: int, registers: int) -> int:
    """Rows in a group: enough to hide the latency of additions, or all of a tile when it has no more than twice as many. For a known number of rows, of the
    sizes that fit in registers, one that wastes least."""
    need = max(1, min(-(-CHAINS // vectors), MOST_UNROLLED))
    if number is None:
        if top is not None and top <= 2 * need and top * vectors <= registers:
            return top
        return need if top is None else -(-top // -(-top // need))
    if number <= need:
        return max(number, 1)
    most = max(need, min(MOST_UNROLLED, registers * 3 // 4 // vectors))
    return min(range(need, most + 1), key=lambda g: (-(-number // g) * g, g))


def strip_widths(top: int | None, partial: bool, lanes: int) -> list[int]:
    """Powers of two in falling order: from one that ``top`` lanes fill (``partial``: fewer than top) down to a quarter of a vector, then 1."""
    width = 2 * lanes
    if top is not None:
        width = 1
        while 2 * width <= top - partial:
            width *= 2
    out = []
    while width > 1 and width >= min(4, lanes // 4):
        out.append(width)
        width //= 2
    return [*out, 1]


def _pieces(count: Term, size: int) -> Term:
    return fold(Term("idiv", Term("add", count, I(size - 1)), I(size)))


def _at_most(pieces: Term, top: int | None, size: int) -> Term:
    """The number of pieces, with its constant bound in view where there is one."""
    return pieces if top is None or const(pieces) is not None else Term("min", I(-(-top // size)), pieces)
