"""Perfect nests down to one emission: constant-trip versions, register accumulation, reductions on lanes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..terms import I, Term, axis, free_axes, get
from .context import BYTES, MOST_UNROLLED, NOT_SUMMED, Body, Ctx, neutral
from .fold import bounded, const, fold, interval, nonneg
from .loops import Declare, If, Let, Loop, Node, Store, Update
from .remainders import CHAINS, Part, Remainders
from .storage import whole_extent

MOST_LANES = 128


@dataclass(frozen=True)
class Chain:
    """Perfectly nested loops down to one emission."""

    loops: tuple[Term, ...]
    emit: Term


@dataclass(frozen=True)
class Plan:
    """``trips``: loops that run with a constant trip count. ``late``: for a lane axis that computes with its full trip count although the
    tile may be partial, the tests that say whether it is full: only what leaves the registers is cut to the extent. ``parts``: loops of which the tile takes
    a part."""

    trips: dict[str, int] = field(default_factory=dict)
    late: dict[str, tuple[Term, ...]] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)

    def taking(self, f: Term, part: Part) -> Plan:
        """This plan with a part of a loop."""
        return replace(self, parts={**self.parts, str(f.args[0]): part})

    def count(self, f: Term) -> int | None:
        """How many cells of a loop a tile takes, if that is a constant."""
        part = self.parts.get(str(f.args[0]))
        return part.count if part else self.trips.get(str(f.args[0]))


class Nests(Remainders):
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

    def chain(self, t: Term) -> Chain | None:
        """The loops from t down when there is nothing else around one emission."""
        out = []
        while t.op == "for":
            out.append(t)
            t = t.args[3]  # type: ignore[assignment]
        return Chain(tuple(out), t) if t.op == "emit" else None

    def nest(self, chain: Chain, ctx: Ctx) -> list[Node]:
        """A chain: loops that the full-tile tests depend on, then its versions."""
        if self.varies(chain):
            rest = Chain(chain.loops[1:], chain.emit)
            return self.loop(chain.loops[0], ctx, lambda c: self.nest(rest, c) if rest.loops else self.emission(chain.emit, c))
        return self.versions(chain, ctx)

    def varies(self, chain: Chain) -> bool:
        """Whether the first loop must be made before the full-tile tests of the others can stand outside: they depend on it or on one further in."""
        if any(f.args[2] in ("core", "grid", "block") for f in chain.loops):
            return True
        inside = frozenset().union(*(self.bases(str(f.args[0])) for f in chain.loops))
        return any(inside & self.deps(f) for f in chain.loops if f.args[2] in ("simd", "unroll") and not self.lane_sum(chain, f))

    def deps(self, f: Term) -> frozenset[str]:
        """The loop axes that the extent of a loop depends on."""
        return self.k.base_axes(free_axes(f.args[1]))  # type: ignore[arg-type]

    # --- versions ---

    def versions(self, chain: Chain, ctx: Ctx) -> list[Node]:
        """The chain with constant trip counts where all its placed loops are full, and with those that need no test elsewhere."""
        plan = Plan()
        tests: dict[str, list[Term]] = {"simd": [], "unroll": []}
        tested: dict[str, dict[str, int]] = {"simd": {}, "unroll": {}}
        for f in chain.loops:
            a, place = str(f.args[0]), str(f.args[2])
            if place not in tests or self.lane_sum(chain, f):
                continue
            top, others = bounded(f.args[1])  # type: ignore[arg-type]
            if top is None or top > (MOST_UNROLLED if place == "unroll" else MOST_LANES):
                continue
            need = [Term("le", I(top), o) for o in others if not self.certain(top, o)]
            if need and place == "simd" and self.padded(chain.emit.args[3], a, top):  # type: ignore[arg-type]
                if self.padded(get(str(chain.emit.args[1]), *chain.emit.args[2].args), a, top):  # type: ignore
                    self.note("pad-lanes", f"{a}: all {top} lanes compute, in storage of {top} lanes")
                    need = []
                elif self.in_tile(chain, f):
                    self.note("pad-lanes", f"{a}: all {top} lanes compute, those in range are stored")
                    plan.late[a], need = tuple(map(self.expr, need)), []
            if need:
                tests[place] += map(self.expr, need)
                tested[place][a] = top
            else:
                plan.trips[a] = top
        lanes = replace(plan, trips={**plan.trips, **tested["simd"]})
        full = replace(plan, trips={**lanes.trips, **tested["unroll"]})
        other = self.accumulate(chain, ctx, plan)
        if tests["simd"] and tests["unroll"]:
            other = self.when(tests["simd"], self.accumulate(chain, ctx, lanes), other)
        return self.when(tests["simd"] + tests["unroll"], self.accumulate(chain, ctx, full), other) if tested["simd"] or tested["unroll"] else other

    def when(self, tests: list[Term], then: list[Node], other: list[Node]) -> list[Node]:
        cond = tests[0]
        for t in tests[1:]:
            cond = Term("and", cond, t)
        self.note("full-tile", f"constant trip counts where {cond}")
        return [If(cond, tuple(then), tuple(other))]

    def certain(self, top: int, other: Term) -> bool:
        """Whether ``top <= other`` whatever the sizes and the iteration."""
        low, _ = interval(other, self.extents)
        if low is not None and low >= top:
            return True
        # n - i.o*T >= T for every i.o < ceil(n/T) when T divides n
        if other.op == "sub" and (n := const(other.kids()[0])) is not None:
            _, hi = interval(other.kids()[1], self.extents)
            return hi is not None and n - hi >= top
        return False

    def padded(self, e: Term, a: str, lanes: int) -> bool:
        """Whether an expression may be computed on lanes of axis a beyond its extent: a indexes nothing but the last axis, of extent ``lanes``,
        of local storage, and no integer arithmetic uses what is read there."""
        if e.op == "get":
            name = str(e.args[0])
            at = e.args[1].args  # type: ignore[union-attr]
            layout = self.layouts.get(name)
            if layout is None:
                return not any(self.is_key(a, self.k.base_axes(free_axes(i))) for i in at)  # type: ignore[arg-type]
            if any(s.op == "get" or not self.padded(s, a, lanes) for i in at for s in [i] if isinstance(s, Term) and _reads_any(s)):
                return False
            index = layout.index(at, self.known)  # type: ignore[arg-type]
            uses = [n for n, i in enumerate(index) if self.is_key(a, self.k.base_axes(free_axes(i)))]
            if not uses:
                return True
            floats = self.types[name] in ("f32", "f64")
            return floats and uses == [len(index) - 1] and index[-1] == axis(a) and layout.shape[-1] == I(lanes)
        if e.op == "cast" and e.args[0] in ("i32", "i64") and _reads_any(e):
            return False
        return all(self.padded(k, a, lanes) for k in e.kids())

    def in_tile(self, chain: Chain, f: Term) -> bool:
        """Whether a loop of a chain will be one over accumulators."""
        keys = self.k.base_axes(free_axes(chain.emit.args[2]))  # type: ignore[arg-type]
        if chain.emit.args[0] in NOT_SUMMED:
            return False
        trips = {str(g.args[0]): 1 for g in chain.loops}
        for n in range(len(chain.loops)):
            loops = list(chain.loops[n:])
            if all(self.is_key(str(g.args[0]), keys) for g in loops):
                return False
            split = self.register_tile(loops, keys, trips)
            if split is not None:
                return f in split[2]
        return False

    # --- accumulation ---

    def accumulate(self, chain: Chain, ctx: Ctx, plan: Plan) -> list[Node]:
        """A chain with given constant trip counts; the accumulation rule where it applies."""
        loops, e = list(chain.loops), chain.emit
        keys = self.k.base_axes(free_axes(e.args[2]))  # type: ignore[arg-type]
        if e.args[0] in NOT_SUMMED or all(self.is_key(str(f.args[0]), keys) for f in loops):
            return self.over(loops, ctx, lambda c: self.emission(e, c), plan)
        split = self.register_tile(loops, keys, plan.trips)
        if split is None:
            first, rest = loops[0], Chain(tuple(loops[1:]), e)
            if self.partial_tiles and rest.loops and self.shares_reads(first, loops[1:], e, keys):
                split = self.register_tile(loops[1:], keys, plan.trips, endless=True)
                if split is not None and not split[0] and split[2] and self.vectors(split[2], e, plan) < CHAINS:
                    return self.pieces(first, *split[1:], e, ctx, plan)
            trip = plan.trips.get(str(first.args[0]))
            return self.loop(first, ctx, lambda c: self.accumulate(rest, c, plan) if rest.loops else self.emission(e, c), trip=trip)
        outer, reductions, tile = split
        if len(outer) > 1 or (outer and not (tile and self.partial_tiles)):
            rest = Chain((*outer[1:], *reductions, *tile), e)
            kind = "seq" if outer[0].args[2] == "unroll" else ""
            return self.loop(outer[0], ctx, lambda c: self.accumulate(rest, c, plan), kind=kind)
        if not tile and not outer and (lanes := self.lanes(reductions, e, ctx)):
            return lanes
        return self.pieces(outer[0] if outer else None, reductions, tile, e, ctx, plan)

    def pieces(self, row: Term | None, reductions: list[Term], tile: list[Term], e: Term, ctx: Ctx, plan: Plan) -> list[Node]:
        """A register tile for the rows of one more loop, in groups, and in strips where its lanes are not of a number that fills vectors."""

        def grouped(c: Ctx, p: Plan) -> list[Node]:
            if row is None:
                return self.tile(reductions, tile, e, c, p)
            return self.groups(row, self.vectors(tile, e, p), c, lambda d, part: self.tile(reductions, [row, *tile], e, d, p.taking(row, part)))

        if self.partial_tiles:
            ragged = [f for f in tile if f.args[2] == "simd" and self.ragged(str(f.args[0]), plan)]
            if len(ragged) == 1:
                f = ragged[0]
                return self.strips(f, self.types[str(e.args[1])], ctx, lambda c, part: grouped(c, plan.taking(f, part)))
        return grouped(ctx, plan)

    @staticmethod
    def ragged(a: str, plan: Plan) -> bool:
        """Whether a tile's lanes are of a number known at run time only, or of one that leaves single lanes over."""
        trip = plan.trips.get(a)
        return a not in plan.late and (trip is None or (trip > 4 and trip % 4 != 0))

    def vectors(self, tile: list[Term], e: Term, plan: Plan) -> int:
        """Vectors of accumulators that a tile holds."""
        n, size = 1, BYTES[self.types[str(e.args[1])]]
        for f in tile:
            count = plan.count(f) or bounded(f.args[1])[0] or 1  # type: ignore[arg-type]
            n *= -(-count * size // self.options.vector_bytes) if f.args[2] == "simd" else count
        return n

    def over(self, loops: list[Term], ctx: Ctx, leaf: Body, plan: Plan, unroll: int = 0, own: bool = False) -> list[Node]:
        """Nested loops around a leaf; ``unroll`` is for the innermost. ``own``: only the cells that are a part's own."""
        if not loops:
            return leaf(ctx)
        f, last = loops[0], len(loops) == 1

        def inside(c: Ctx) -> list[Node]:
            return self.over(loops[1:], c, leaf, plan, unroll, own)

        a = str(f.args[0])
        part = plan.parts.get(a)
        if part is None:
            return self.loop(f, ctx, inside, trip=plan.trips.get(a), unroll=unroll if last else 0)
        c, lets = self.bind(a, ctx)
        body: tuple[Node, ...] = (Let(self.names.of("axis", a), part.value), *lets, *inside(c))
        if own and part.own is not None:
            body = (If(part.own, body),)
        return [Loop(part.var, I(part.count), "simd" if f.args[2] == "simd" else "unroll", body, part.count)]

    def register_tile(
        self, loops: list[Term], keys: frozenset[str], trips: dict[str, int], endless: bool = False
    ) -> tuple[list[Term], list[Term], list[Term]] | None:
        """(loops to put outside, reduction loops, loops over accumulators) when the whole chain is one accumulation.

        None when its first loop is not part of one. ``endless``: lanes of any number will be cut into strips.
        """
        reductions = [f for f in loops if not self.is_key(str(f.args[0]), keys)]
        cells = [f for f in loops if f not in reductions]
        if any(f.args[2] not in ("unroll", "simd") for f in cells) or any(f.args[2] in ("core", "grid", "block") for f in loops):
            return None
        for n, f in enumerate(loops):  # an extent may only depend on what stays outside it
            for g in loops[:n]:
                moved = (f in reductions) != (g in reductions)
                if moved and self.bases(str(g.args[0])) & self.deps(f):
                    return None
        ty = self.types[str(_emission(loops[-1]).args[1])]
        outer: list[Term] = []
        rows: list[Term] = []
        lanes: list[Term] = []
        vectors = 1
        for f in cells:
            if f.args[2] == "simd":
                top = bounded(f.args[1])[0]  # type: ignore[arg-type]
                if top is None or top > MOST_LANES:
                    if not endless or lanes:
                        return None
                    top = 2 * self.options.vector_bytes // BYTES[ty]
                vectors *= -(-top * BYTES[ty] // self.options.vector_bytes)
                lanes.append(f)
        for f in reversed([f for f in cells if f.args[2] == "unroll"]):
            top = bounded(f.args[1])[0] if str(f.args[0]) in trips else None  # type: ignore[arg-type]
            if top is None or vectors * top > self.options.vector_registers:
                outer.insert(0, f)
            else:
                vectors *= top
                rows.insert(0, f)
        return outer, reductions, rows + lanes

    def tile(self, reductions: list[Term], tile: list[Term], e: Term, ctx: Ctx, plan: Plan) -> list[Node]:
        """Accumulators for the cells of a tile, the reduction loops around their updates, and the flush."""
        m, x, _, value = e.args
        x, m = str(x), str(m)
        shape = tuple(I(plan.count(f) or bounded(f.args[1])[0]) for f in tile)  # type: ignore[arg-type]
        acc = self.new_buffer("acc", self.types[x], shape, "register", f"partial {m} for {x}")
        cell = tuple(axis(part.var if (part := plan.parts.get(str(f.args[0]))) else self.names.of("axis", str(f.args[0]))) for f in tile)
        self.note("accumulate", f"{x}: over {', '.join(str(f.args[0]) for f in reductions)} in {acc.name}[{', '.join(map(str, shape))}]")
        start = self.over(tile, ctx, lambda c: [Store(acc.name, cell, neutral(m, acc.dtype))], plan)
        full = all(plan.count(f) for f in tile)

        def inside(c: Ctx) -> list[Node]:
            return self.over(tile, c, lambda d: [Update(m, acc.name, cell, self.expr(fold(value)))], plan)  # type: ignore[arg-type]

        main = self.over(list(map(_as_seq, reductions)), ctx, inside, plan, self.options.unroll if full else 0)
        flush = self.flush(e, get(acc.name, *cell), tile, ctx, plan)
        return [Declare(acc.name), *start, *main, *flush]

    def flush(self, e: Term, part: Term, tile: list[Term], ctx: Ctx, plan: Plan) -> list[Node]:
        """What was accumulated goes to its cells."""
        m, x, at, _ = e.args
        direct = self.is_direct(e, ctx)
        if not direct:
            self.needs_init.add(str(x))

        def leaf(c: Ctx) -> list[Node]:
            buffer, where = self.array_of[str(x)], self.index(str(x), at)  # type: ignore[arg-type]
            return [Store(buffer, where, part) if direct else Update(str(m), buffer, where, part)]

        late = [t for f in tile for t in plan.late.get(str(f.args[0]), ())]
        full = self.over(tile, ctx, leaf, plan, own=not direct)
        if not late:
            return full
        cut = replace(plan, trips={a: n for a, n in plan.trips.items() if a not in plan.late})
        return self.when(late, full, self.over(tile, ctx, leaf, cut, own=not direct))

    # --- reductions on lanes ---

    def lane_sum(self, chain: Chain, f: Term) -> bool:
        """Whether a loop is a reduction on simd lanes: it needs no full-tile test, see ``lanes``."""
        keys = self.k.base_axes(free_axes(chain.emit.args[2]))  # type: ignore[arg-type]
        return f.args[2] == "simd" and chain.emit.args[0] not in NOT_SUMMED and not self.is_key(str(f.args[0]), keys)

    def lanes(self, reductions: list[Term], e: Term, ctx: Ctx) -> list[Node]:
        """One partial result per lane of an innermost simd reduction, a remainder shorter than them on the first ones; combined pairwise at the end.

        Loops x, y with the extents ceil(n/T), min(T, n - x*T) keep their T; any other lane loop is cut into pieces of four vectors.
        [] when the innermost reduction is not on lanes.
        """
        *outer, y = reductions
        if y.args[2] != "simd":
            return []
        m, x, _, value = e.args
        m, ty = str(m), self.types[str(x)]
        top, _ = bounded(y.args[1])  # type: ignore[arg-type]
        whole = whole_extent(outer[-1].args[1], y.args[1], str(outer[-1].args[0]), top) if outer and top is not None and top <= MOST_LANES else None  # type: ignore
        split = whole is not None and top is not None and top & (top - 1) == 0
        width = top if split and top is not None else 4 * self.options.vector_bytes // BYTES[ty]
        extent: Term = whole if split and whole is not None else y.args[1]  # type: ignore[assignment]
        acc = self.new_buffer("acc", ty, (I(width),), "register", f"partial {m} for {x}, one per lane")
        name = str(y.args[0])
        lane, piece = self.names.fresh(f"{name}_lane"), self.names.fresh(f"{name}_piece")
        self.note("lanes", f"{x}: over {', '.join(str(f.args[0]) for f in reductions)} in {acc.name}[{width}]")
        pieces = fold(Term("idiv", extent, I(width)))
        rest = fold(Term("sub", extent, Term("mul", pieces, I(width))))

        def at(c: Ctx, which: Term) -> tuple[Node, ...]:
            """One contribution: lane ``lane`` of piece ``which``."""
            if split:
                part = str(outer[-1].args[0])
                c, lets = self.bind(part, c)
                c, more = self.bind(name, c)
                first = (Let(self.names.of("axis", part), which), Let(self.names.of("axis", name), axis(lane)))
                return (*first, *lets, *more, Update(m, acc.name, (axis(lane),), self.expr(fold(value))))  # type: ignore[arg-type]
            c, lets = self.bind(name, c)
            here = fold(Term("add", Term("mul", which, I(width)), axis(lane)))
            return (Let(self.names.of("axis", name), here), *lets, Update(m, acc.name, (axis(lane),), self.expr(fold(value))))  # type: ignore[arg-type]

        def both(c: Ctx) -> list[Node]:
            full = Loop(lane, I(width), "simd", at(c, axis(piece)), width)
            tail = Loop(lane, self.expr(rest), "simd", at(c, self.expr(pieces)), const(rest))
            loops: list[Node] = [Loop(piece, self.expr(pieces), "seq", (full,), const(pieces), self.options.unroll), tail]
            return loops if nonneg(extent) else [If(self.expr(fold(Term("lt", I(0), extent))), tuple(loops))]

        main = self.over([_as_seq(f) for f in (outer[:-1] if split else outer)], ctx, both, Plan())
        start: list[Node] = [Declare(acc.name), Loop(lane, I(width), "simd", (Store(acc.name, (axis(lane),), neutral(m, ty)),), width)]
        pairs: list[Node] = []
        while width > 1:
            width //= 2
            other = get(acc.name, Term("add", axis(lane), I(width)))
            pairs.append(Loop(lane, I(width), "simd", (Update(m, acc.name, (axis(lane),), other),), width))
        return [*start, *main, *pairs, *self.flush(e, get(acc.name, I(0)), [], ctx, Plan())]


def _reads_any(t: Term) -> bool:
    return t.op == "get" or any(map(_reads_any, t.kids()))


def _emission(t: Term) -> Term:
    while t.op == "for":
        t = t.args[3]  # type: ignore[assignment]
    return t


def _as_seq(f: Term) -> Term:
    return Term("for", f.args[0], f.args[1], "seq", f.args[3])
