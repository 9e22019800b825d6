"""What lowering keeps track of: names, buffers, layouts, bound axes; and the making of one loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ..terms import I, Kernel, Term, axis, free_axes, get, identity
from ..terms.ops import size as size_term
from . import numa
from .fold import const, fold
from .loops import Buffer, Let, Loop, Node, Note
from .names import Names
from .osm import expand_osm, shifted
from .prepare import emissions, prepare, types_of
from .rows import scoped
from .storage import Layout, loop_extents, rejoin

STACK_BYTES = 64 * 1024  # local arrays of a kernel together
BYTES = {"f32": 4, "f64": 8, "i32": 4, "i64": 8, "bool": 1}
NOT_SUMMED = ("once", "assign", "rescale")  # the last two are made by osm.py: a store to a cell that starts at its identity, and X *= e
MOST_UNROLLED = 16

Body = Callable[["Ctx"], list[Node]]


@dataclass(frozen=True)
class Options:
    """``fix``: sizes compiled in. ``parallel_if``: a boolean term over sizes; where false one thread runs the
    kernel (None: where there is little to do, see work.py). ``unroll``: of reduction loops.

    ``vector_bytes``, ``vector_registers``: of the machine; a register tile holds no more accumulators than there are registers (unrolled axes that would
    exceed them become loops outside the reduction). ``cache_bytes``: of its last cache, see stream.py; 0 where it is not known.
    """

    fix: Mapping[str, int] = field(default_factory=dict)
    parallel_if: Term | None = None
    unroll: int = 4
    vector_bytes: int = 32
    vector_registers: int = 16
    cache_bytes: int = 0
    plain_c: bool = False  # the printer knows ``expn`` and running sums


@dataclass(frozen=True)
class Ctx:
    """Surroundings of a statement: the axes with a value, and what was passed on the way down: ("for", axis), ("seq", ""), ("guard", ""), ("new", T)."""

    known: frozenset[str] = frozenset()
    path: tuple[tuple[str, str], ...] = ()
    parallel: bool = False  # inside a core or grid loop

    def into(self, kind: str, name: str = "") -> Ctx:
        return replace(self, path=(*self.path, (kind, name)))


class Context:
    def __init__(self, kernel: Kernel, options: Options) -> None:
        self.options = options
        self.notes: list[Note] = []
        self.source = kernel
        plain, carried = prepare(kernel, options.fix)
        self.k, osm_notes = expand_osm(plain)
        for rule, _, text in (line.partition(": ") for line in carried):
            self.note(rule, text)
        self.note("osm", *osm_notes)
        if options.plain_c:
            self.k, lines = shifted(self.k)
            self.note("shifted", *lines)
        self.k = self.k.with_body(scoped(self.k.body))
        self.plain = self.k
        body, joined = rejoin(self.k)
        self.note("rejoin", *joined)
        self.k = self.k.with_body(body)
        self.types = types_of(self.k)
        self.extents = loop_extents(self.k.body, self.k) | numa.extents(self.k)
        self.names = Names()
        self.buffers: dict[str, Buffer] = {}
        self.workspaces: list[Buffer] = []
        self.layouts: dict[str, Layout] = {}
        self.array_of: dict[str, str] = {}  # array or stage -> buffer
        self.needs_init: set[str] = set()
        self.stack_left = STACK_BYTES
        self.counts: dict[str, int] = {}
        self.known: frozenset[str] = frozenset()  # axes with a value in the loop that was entered last
        for e in emissions(self.k.body):
            if e.args[0] not in NOT_SUMMED:
                self.counts[str(e.args[1])] = self.counts.get(str(e.args[1]), 0) + 1

    def note(self, rule: str, *texts: str) -> None:
        for text in texts:
            if Note(rule, text) not in self.notes:
                self.notes.append(Note(rule, text))

    def parameter(self, name: str, ty: str, shape: tuple[Term, ...], space: str) -> Buffer:
        b = Buffer(self.names.of("array", name), ty, tuple(self.expr(fold(e)) for e in shape), space, name)
        self.buffers[b.name] = b
        self.array_of[name] = b.name
        return b

    def new_buffer(self, base: str, ty: str, shape: tuple[Term, ...], space: str, source: str) -> Buffer:
        b = Buffer(self.names.fresh(base), ty, shape, space, source)
        self.buffers[b.name] = b
        if space in ("private", "shared"):
            self.workspaces.append(b)
        return b

    # --- expressions ---

    def expr(self, t: Term) -> Term:
        """A scalar term of the kernel as an expression over buffers."""
        if t.op == "axis":
            return axis(self.names.of("axis", str(t.args[0])))
        if t.op == "expn" and not self.options.plain_c:
            return Term("exp", *map(self.expr, t.kids()))
        if t.op == "size":
            return size_term(self.names.of("size", str(t.args[0])))
        if t.op == "get":
            return get(self.array_of[str(t.args[0])], *self.index(str(t.args[0]), t.args[1]))  # type: ignore[arg-type]
        return t.map(self.expr)

    def index(self, name: str, at: Term) -> tuple[Term, ...]:
        items_ = tuple(a for a in at.args if isinstance(a, Term))
        layout = self.layouts.get(name)
        return tuple(self.expr(fold(e)) for e in (layout.index(items_, self.known) if layout else items_))

    # --- loops ---

    def is_direct(self, t: Term, ctx: Ctx) -> bool:
        """Whether what an emission adds up below ctx is all that its cells receive, so that it may write them without reading them."""
        x = str(t.args[1])
        if self.counts[x] > 1:
            return False
        keys = self.k.base_axes(free_axes(t.args[2]))  # type: ignore[arg-type]
        start = max((n + 1 for n, (kind, name) in enumerate(ctx.path) if kind == "new" and name == x), default=0)
        return all(kind != "guard" and (kind != "for" or self.is_key(name, keys)) for kind, name in ctx.path[start:])

    def bases(self, a: str) -> frozenset[str]:
        return self.k.base_axes(frozenset([a]))

    def is_key(self, a: str, keys: frozenset[str]) -> bool:
        """Whether the loop over a runs over cells (``keys``: base axes of the emission's index), rather than over what a cell sums."""
        return bool(self.bases(a) & keys)

    def bind(self, a: str, ctx: Ctx) -> tuple[Ctx, list[Node]]:
        """The context inside a loop over a, and the definitions that become computable there."""
        known = ctx.known | {a}
        lets: list[Node] = []
        todo = [(n, d) for n, d in self.k.defs if n not in known]
        while True:
            ready = [(n, d) for n, d in todo if free_axes(d) <= known]
            if not ready:
                self.known = known
                return replace(ctx.into("for", a), known=known), lets
            for n, d in ready:
                lets.append(Let(self.names.of("axis", n), self.expr(fold(d))))
                self.note("let", f"{n} = {d}")
            known |= {n for n, _ in ready}
            todo = [(n, d) for n, d in todo if n not in known]

    def loop(self, f: Term, ctx: Ctx, body: Body, kind: str = "", trip: int | None = None, unroll: int = 0) -> list[Node]:
        """One loop; ``body(ctx)`` makes what is inside."""
        a, place = str(f.args[0]), kind or str(f.args[2])
        inner, lets = self.bind(a, ctx)
        if place == "numa" and (f.args[3].op != "for" or f.args[3].args[2] != "core"):  # type: ignore[union-attr]
            place = "core"  # no cores to share a domain: a thread for each
        if place in ("core", "grid"):
            inner = replace(inner, parallel=True)
        extent: Term = f.args[1]  # type: ignore[assignment]
        if trip is None:
            trip = const(fold(extent))
        extent = I(trip) if trip is not None else fold(extent)
        if place == "unroll" and (trip is None or trip > MOST_UNROLLED):
            place = "seq"
        if place == "seq" and trip == 1:
            unroll = 0
        return [Loop(self.names.of("axis", a), self.expr(extent), place, (*lets, *body(inner)), trip, unroll)]


def neutral(monoid: str, ty: str) -> Term:
    return identity("max" if monoid == "qmax" else monoid, ty)
