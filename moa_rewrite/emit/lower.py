"""Lowering: an ONF kernel becomes a loop program. Each decision is a named lowering rule, noted for the trace.

    let          an axis defined by others is computed as soon as they are bound
    storage      a stage stores only the key axes whose loops lie inside its ``new``
    init         cells start at the identity of their monoid where their storage opens
    direct       ... unless one accumulation writes them whole
    accumulate   a reduction next to its emission runs in register accumulators, one per cell of the unroll and simd axes inside
    lanes        a reduction on simd lanes keeps one partial result per lane
    full-tile    loops of extent min(T, ...) get a version with constant trip count where the tile is full
    rejoin       seq loops over both parts of a lifted axis become one loop
    osm          see osm.py
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..terms import I, Kernel, Term, axis, free_axes, get, identity
from ..terms.ops import size as size_term
from .fold import bounded, const, fold, interval
from .loops import Buffer, Comment, Declare, If, Let, Loop, LoopProgram, Node, Note, Store, Update, expressions, nodes
from .names import Names
from .osm import expand_osm
from .prepare import emissions, items, prepare, types_of
from .storage import Layout, loop_extents, rejoin
from .types import dtype, infer

STACK_BYTES = 64 * 1024  # local arrays of a kernel together
TILE_VECTORS = 32  # accumulators in vectors of LANE_BYTES
LANE_BYTES = 32
BYTES = {"f32": 4, "f64": 8, "i32": 4, "i64": 8, "bool": 1}
NOT_SUMMED = ("once", "assign", "rescale")  # the last two are made by osm.py: a store to a cell that starts at its identity, and X *= e


@dataclass(frozen=True)
class Options:
    """``fix``: sizes compiled in. ``parallel_if``: a boolean term over sizes; where false one thread runs the kernel. ``unroll``: of reduction loops."""

    fix: Mapping[str, int] = field(default_factory=dict)
    parallel_if: Term | None = None
    unroll: int = 4


@dataclass(frozen=True)
class Ctx:
    """Surroundings of a statement: the axes with a value, and what was passed on the way down: ("for", axis), ("seq", ""), ("guard", ""), ("new", T)."""

    known: frozenset[str] = frozenset()
    path: tuple[tuple[str, str], ...] = ()
    parallel: bool = False  # inside a core or grid loop
    trips: tuple[tuple[str, int], ...] = ()  # loops in a full-tile version

    def into(self, kind: str, name: str = "") -> Ctx:
        return replace(self, path=(*self.path, (kind, name)))


@dataclass(frozen=True)
class Chain:
    """Perfectly nested loops down to one emission."""

    loops: tuple[Term, ...]
    emit: Term


class Lower:
    def __init__(self, kernel: Kernel, options: Options) -> None:
        self.options = options
        self.notes: list[Note] = []
        self.source = kernel
        plain = prepare(kernel, options.fix)
        self.k, osm_notes = expand_osm(plain)
        self.note("osm", *osm_notes)
        body, joined = rejoin(self.k)
        self.note("rejoin", *joined)
        self.k = self.k.with_body(body)
        self.types = types_of(self.k)
        self.extents = loop_extents(self.k.body, self.k)
        self.names = Names()
        self.buffers: dict[str, Buffer] = {}
        self.workspaces: list[Buffer] = []
        self.layouts: dict[str, Layout] = {}
        self.array_of: dict[str, str] = {}  # array or stage -> buffer
        self.needs_init: set[str] = set()
        self.stack_left = STACK_BYTES
        self.counts: dict[str, int] = {}
        for e in emissions(self.k.body):
            if e.args[0] not in NOT_SUMMED:
                self.counts[str(e.args[1])] = self.counts.get(str(e.args[1]), 0) + 1

    def note(self, rule: str, *texts: str) -> None:
        for text in texts:
            if Note(rule, text) not in self.notes:
                self.notes.append(Note(rule, text))

    # --- the whole kernel ---

    def run(self) -> LoopProgram:
        k, names = self.k, self.names
        kernel_name = names.fresh(k.name)
        sizes = tuple(names.of("size", s) for s in k.sizes)
        inputs = tuple(self.parameter(a.name, a.dtype, a.shape, "input" if a.shape else "value") for a in k.inputs)
        outputs = tuple(self.parameter(a.name, a.dtype, a.shape, "output") for a in k.outputs)
        body = self.statement(k.body, Ctx())
        first: list[Node] = []
        for a in k.outputs:
            if a.name in self.needs_init:
                first += self.initialise(a.name)
        lines = prune((*first, *body))
        return LoopProgram(
            kernel_name, sizes, tuple(map(self.expr, self.source.where)), inputs, outputs, tuple(self.workspaces), dict(self.buffers), lines,
            {names.of("size", s): v for s, v in self.options.fix.items()}, None if self.options.parallel_if is None else self.expr(self.options.parallel_if),
            tuple(self.notes), {n: i for (_, n), i in self.names.given.items()},
        )  # fmt: skip

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
        if t.op == "size":
            return size_term(self.names.of("size", str(t.args[0])))
        if t.op == "get":
            return get(self.array_of[str(t.args[0])], *self.index(str(t.args[0]), t.args[1]))  # type: ignore[arg-type]
        return t.map(self.expr)

    def index(self, name: str, at: Term) -> tuple[Term, ...]:
        items_ = tuple(a for a in at.args if isinstance(a, Term))
        layout = self.layouts.get(name)
        return tuple(self.expr(fold(e)) for e in (layout.index(items_) if layout else items_))

    # --- statements ---

    def statement(self, t: Term, ctx: Ctx) -> list[Node]:
        match t.op:
            case "skip":
                return []
            case "seq":
                return list(itertools.chain.from_iterable(self.statement(s, ctx.into("seq")) for s in items(t)))
            case "guard":
                body = self.statement(t.args[1], ctx.into("guard"))  # type: ignore[arg-type]
                return [If(self.expr(fold(t.args[0])), tuple(body))] if body else []  # type: ignore[arg-type]
            case "new":
                return self.new(str(t.args[0]), t.args[1], ctx)  # type: ignore[arg-type]
            case "emit":
                return self.emission(t, ctx)
            case "for":
                chain = self.chain(t)
                return self.nest(chain, ctx) if chain else self.loop(t, ctx, lambda c: self.statement(t.args[3], c))  # type: ignore[arg-type]
        raise ValueError(f"{t.op} is no statement")

    def new(self, name: str, body: Term, ctx: Ctx) -> list[Node]:
        stage = self.k.stage(name)
        layout = self.layouts[name] = Layout(self.k, stage, loop_extents(body, self.k))
        shape = tuple(self.expr(e) for e in layout.shape)
        sizes = [const(e) for e in shape]
        if all(s is not None for s in sizes):
            n = BYTES[stage.dtype]
            for s in sizes:
                n *= s  # type: ignore[operator]
            space = "register" if not shape else "stack" if n <= self.stack_left else None
            if space == "stack":
                self.stack_left -= n
        else:
            space = None
        if space is None:
            space = "private" if ctx.parallel else "shared"
        buffer = self.new_buffer(name, stage.dtype, shape, space, name)
        self.array_of[name] = buffer.name
        self.note("storage", f"{name}[{', '.join(stage.axes)}] is {buffer.name}[{', '.join(map(str, shape))}], {space}")
        inner = self.statement(body, ctx.into("new", name))
        first: list[Node] = [Declare(buffer.name)] if space in ("register", "stack") else []
        if name in self.needs_init:
            self.needs_init.discard(name)
            first += self.initialise(name)
        return first + inner

    def initialise(self, name: str) -> list[Node]:
        """Loops that set every cell of an array to the identity of its monoid."""
        b = self.buffers[self.array_of[name]]
        summed = (str(e.args[0]) for e in emissions(self.k.body) if e.args[1] == name and e.args[0] not in NOT_SUMMED)
        monoid = next(summed, None) or self.k.stage(name).monoid
        at = tuple(axis(self.names.fresh(f"c{n}")) for n in range(len(b.shape)))
        body: tuple[Node, ...] = (Store(b.name, at, neutral(monoid, b.dtype)),)
        for n in reversed(range(len(at))):
            kind = "simd" if n == len(at) - 1 else "core" if n == 0 and b.space in ("output", "shared") else "seq"
            body = (Loop(str(at[n].args[0]), b.shape[n], kind, body, trip=const(b.shape[n])),)
        self.note("init", f"{name} starts at {neutral(monoid, b.dtype)}")
        return list(body)

    def emission(self, t: Term, ctx: Ctx) -> list[Node]:
        """An emission that no reduction loop directly around it accumulates."""
        m, x, at, e = t.args
        buffer, where, value = self.array_of[str(x)], self.index(str(x), at), self.expr(fold(e))  # type: ignore[arg-type]
        if m == "rescale":
            return [Update("mul", buffer, where, value)]
        if m == "once" or (m != "assign" and self.is_direct(t, ctx)):
            return [Store(buffer, where, value)]
        self.needs_init.add(str(x))
        return [Store(buffer, where, value) if m == "assign" else Update(str(m), buffer, where, value)]

    def is_direct(self, t: Term, ctx: Ctx) -> bool:
        """Whether what an emission adds up below ctx is all that its cells receive, so that it may write them without reading them."""
        x = str(t.args[1])
        if self.counts[x] > 1:
            return False
        keys = self.k.base_axes(free_axes(t.args[2]))  # type: ignore[arg-type]
        start = max((n + 1 for n, (kind, name) in enumerate(ctx.path) if kind == "new" and name == x), default=0)
        return all(kind != "guard" and (kind != "for" or self.is_key(name, keys)) for kind, name in ctx.path[start:])

    # --- loops ---

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
                return replace(ctx.into("for", a), known=known), lets
            for n, d in ready:
                lets.append(Let(self.names.of("axis", n), self.expr(fold(d))))
                self.note("let", f"{n} = {d}")
            known |= {n for n, _ in ready}
            todo = [(n, d) for n, d in todo if n not in known]

    def loop(self, f: Term, ctx: Ctx, body, kind: str = "", trip: int | None = None, unroll: int = 0) -> list[Node]:
        """One loop; ``body(ctx)`` makes what is inside."""
        a, place = str(f.args[0]), kind or str(f.args[2])
        inner, lets = self.bind(a, ctx)
        if place in ("core", "grid"):
            inner = replace(inner, parallel=True)
        extent: Term = f.args[1]  # type: ignore[assignment]
        if trip is None:
            trip = const(fold(extent))
        extent = I(trip) if trip is not None else fold(extent)
        if place == "unroll" and (trip is None or trip > 16):
            place = "seq"
        if place == "seq" and trip == 1:
            unroll = 0
        return [Loop(self.names.of("axis", a), self.expr(extent), place, (*lets, *body(inner)), trip, unroll)]

    def chain(self, t: Term) -> Chain | None:
        """The loops from t down when there is nothing else around one emission."""
        out = []
        while t.op == "for":
            out.append(t)
            t = t.args[3]  # type: ignore[assignment]
        return Chain(tuple(out), t) if t.op == "emit" else None

    def nest(self, chain: Chain, ctx: Ctx) -> list[Node]:
        """A chain: key loops, then (where there are reduction loops) the accumulation; constant-trip versions around as much as possible."""
        loops, e = chain.loops, chain.emit
        first = loops[0]
        if self.varies(chain):  # full-tile tests depend on this loop: they go inside
            rest = Chain(loops[1:], e)
            return self.loop(first, ctx, lambda c: self.nest(rest, c) if rest.loops else self.emission(e, c))
        return self.versions(chain, ctx)

    def varies(self, chain: Chain) -> bool:
        """Whether the first loop must be made before the full-tile tests of the others can stand outside."""
        first, *rest = chain.loops
        if first.args[2] in ("core", "grid", "block"):
            return True
        a = self.bases(str(first.args[0]))
        return any(a & self.k.base_axes(free_axes(f.args[1])) for f in rest if f.args[2] in ("simd", "unroll"))  # type: ignore[arg-type]

    def versions(self, chain: Chain, ctx: Ctx) -> list[Node]:
        """The chain with constant trip counts where all its placed loops are full, and without elsewhere."""
        tiles = [f for f in chain.loops if f.args[2] in ("simd", "unroll")]
        trips: dict[str, int] = {}
        tests: list[Term] = []
        for f in tiles:
            top, others = bounded(f.args[1])  # type: ignore[arg-type]
            if top is None or (f.args[2] == "unroll" and top > 16):
                continue
            trips[str(f.args[0])] = top
            tests += [Term("le", I(top), o) for o in others if not self.certain(top, o)]
        full = self.accumulate(chain, ctx, trips)
        if not tests:
            return full
        cond = self.expr(tests[0])
        for test in tests[1:]:
            cond = Term("and", cond, self.expr(test))
        self.note("full-tile", f"{', '.join(trips)}: constant trip count where {cond}")
        return [If(cond, tuple(full), tuple(self.accumulate(chain, ctx, {})))]

    def certain(self, top: int, other: Term) -> bool:
        low, _ = interval(other, self.extents)
        if low is not None and low >= top:
            return True
        # n - i.o*T >= T for every i.o < ceil(n/T) when T divides n
        if other.op == "sub" and (n := const(other.kids()[0])) is not None:
            _, hi = interval(other.kids()[1], self.extents)
            return hi is not None and n - hi >= top
        return False

    def accumulate(self, chain: Chain, ctx: Ctx, trips: dict[str, int]) -> list[Node]:
        """A chain with given constant trip counts; the accumulation rule where it applies."""
        loops, e = list(chain.loops), chain.emit
        keys = self.k.base_axes(free_axes(e.args[2]))  # type: ignore[arg-type]
        if e.args[0] in NOT_SUMMED or all(self.is_key(str(f.args[0]), keys) for f in loops):
            return self.plain(loops, e, ctx, trips)
        split = self.register_tile(loops, keys, trips)
        if split is None:
            first, rest = loops[0], Chain(tuple(loops[1:]), e)
            return self.loop(first, ctx, lambda c: self.accumulate(rest, c, trips) if rest.loops else self.emission(e, c), trip=trips.get(str(first.args[0])))
        outer, reductions, tile = split
        if outer:
            return self.loop(outer[0], ctx, lambda c: self.accumulate(Chain((*outer[1:], *reductions, *tile), e), c, trips), kind=_seq(outer[0]), trip=None)
        return self.tile(reductions, tile, e, ctx, trips)

    def plain(self, loops: list[Term], e: Term, ctx: Ctx, trips: Mapping[str, int]) -> list[Node]:
        if not loops:
            return self.emission(e, ctx)
        f = loops[0]
        return self.loop(f, ctx, lambda c: self.plain(loops[1:], e, c, trips), trip=trips.get(str(f.args[0])))

    def register_tile(self, loops: list[Term], keys: frozenset[str], trips: Mapping[str, int]) -> tuple[list[Term], list[Term], list[Term]] | None:
        """(loops to put outside, reduction loops, loops over accumulators) when the whole chain is one accumulation.

        None when its first loop is not part of one.
        """
        reductions = [f for f in loops if not self.is_key(str(f.args[0]), keys)]
        cells = [f for f in loops if f not in reductions]
        if any(f.args[2] not in ("unroll", "simd") for f in cells) or any(f.args[2] in ("core", "grid", "block") for f in loops):
            return None
        for n, f in enumerate(loops):  # an extent may only depend on what stays outside it
            deps = self.k.base_axes(free_axes(f.args[1]))  # type: ignore[arg-type]
            for g in loops[:n]:
                moved = (f in reductions and g in cells) or (f in cells and g in reductions)
                if moved and self.bases(str(g.args[0])) & deps:
                    return None
        outer, tile = [], []
        vectors = 1
        for f in sorted(cells, key=lambda f: f.args[2] == "simd", reverse=True):  # simd loops first: they must stay
            top = trips.get(str(f.args[0])) if f.args[2] == "unroll" else bounded(f.args[1])[0]  # type: ignore[arg-type]
            if f.args[2] == "simd":
                if top is None or top > 128:
                    return None
                vectors *= -(-top * 4 // LANE_BYTES)
                tile.append(f)
            elif top is None or vectors * top > TILE_VECTORS:
                outer.append(f)
            else:
                vectors *= top
                tile.insert(0, f)
        tile.sort(key=lambda f: f.args[2] == "simd")
        return [f for f in loops if f in outer], reductions, tile

    def tile(self, reductions: list[Term], tile: list[Term], e: Term, ctx: Ctx, trips: Mapping[str, int]) -> list[Node]:
        """Accumulators for the cells of a tile, the reduction loops around their updates, and the flush."""
        m, x, at, value = e.args
        x = str(x)
        ty = self.types[x]
        direct = self.is_direct(e, ctx)
        if not direct:
            self.needs_init.add(x)
        shape = tuple(I(bounded(f.args[1])[0]) for f in tile)  # type: ignore[arg-type]
        acc = self.new_buffer("acc", ty, shape, "register", f"partial {m} for {x}")
        cell = tuple(axis(self.names.of("axis", str(f.args[0]))) for f in tile)
        self.note("accumulate", f"{x}: over {', '.join(str(f.args[0]) for f in reductions)} in {acc.name}[{', '.join(map(str, shape))}]")

        def over(loops: list[Term], leaf, c: Ctx, unroll: int = 0) -> list[Node]:
            if not loops:
                return leaf(c)
            f, last = loops[0], len(loops) == 1
            return self.loop(f, c, lambda d: over(loops[1:], leaf, d, unroll), trip=trips.get(str(f.args[0])), unroll=unroll if last else 0)

        def inside(c: Ctx) -> list[Node]:
            return over(tile, lambda d: [Update(str(m), acc.name, cell, self.expr(fold(value)))], c)  # type: ignore[arg-type]

        def flush(c: Ctx) -> list[Node]:
            where = self.index(x, at)  # type: ignore[arg-type]
            part = get(acc.name, *cell)
            return [Store(self.array_of[x], where, part) if direct else Update(str(m), self.array_of[x], where, part)]

        start = over(tile, lambda d: [Store(acc.name, cell, neutral(str(m), ty))], ctx)
        lanes = [f for f in reductions if f.args[2] == "simd"]
        full = all(str(f.args[0]) in trips or f.args[2] == "unroll" for f in tile)
        main = over([_as_seq(f) if f in lanes and tile else f for f in reductions], inside, ctx, self.options.unroll if full else 0)
        if lanes and not tile:
            main = [_with_reduce(n, str(m), acc.name) for n in main]
        return [Declare(acc.name), *start, *main, *over(tile, flush, ctx)]


def _seq(f: Term) -> str:
    return "seq" if f.args[2] == "unroll" else str(f.args[2])


def _as_seq(f: Term) -> Term:
    return Term("for", f.args[0], f.args[1], "seq", f.args[3])


def _with_reduce(n: Node, monoid: str, acc: str) -> Node:
    """The simd loops of a reduction told that they accumulate into ``acc``."""
    if isinstance(n, Loop):
        body = tuple(_with_reduce(b, monoid, acc) for b in n.body)
        return replace(n, body=body, unroll=0, reduces=((monoid, acc),)) if n.kind == "simd" else replace(n, body=body)
    return n


def neutral(monoid: str, ty: str) -> Term:
    return identity("max" if monoid == "qmax" else monoid, ty)


def prune(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Without the Lets that nothing uses and the loops and tests that hold nothing."""

    def uses(n: Node) -> frozenset[str]:
        out: frozenset[str] = frozenset()
        for u in nodes((n,)):
            for e in expressions(u):
                out |= free_axes(e)
        return out

    out: list[Node] = []
    needed: frozenset[str] = frozenset()
    for n in reversed(body):
        if isinstance(n, Let) and n.name not in needed:
            continue
        if isinstance(n, Loop):
            n = replace(n, body=prune(n.body))
            if not n.body:
                continue
        elif isinstance(n, If):
            n = replace(n, then=prune(n.then), other=prune(n.other))
            if not n.then and not n.other:
                continue
        needed |= uses(n)
        out.append(n)
    return tuple(reversed(out))


def lower(kernel: Kernel, target: str = "c", options: Options | None = None) -> LoopProgram:
    """The loop program of an ONF kernel. ``target``: c, fortran or cuda."""
    assert target in ("c", "fortran", "cuda"), target
    return Lower(kernel, options or Options()).run()


__all__ = ["Comment", "Options", "dtype", "infer", "lower"]
