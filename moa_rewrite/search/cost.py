"""The cost of a plan, composed bottom up: ``leaf``, then a loop around it, then sequences. Extraction and refinement use the same functions.

An entry holds compute cycles, bytes moved into each cache level per array, and the footprint (bytes touched) of each array. A loop over axis x multiplies
the footprint of the arrays x indexes. Traffic into a level: everything inside once if it fits there; else an array that x indexes, or that does not
survive one iteration, is fetched in every iteration. A stage all of whose readers are inside has no cold misses when it fits.
Inputs and outputs move in cache lines, and rows whose distance shares a large power of two with the size of a way fill only some sets of a cache.

The innermost loops around a leaf form a block (one SIMD axis, unrolled axes); the loop around it closes the block. If that loop is a
reduction and the block's cells fit the vector registers, they stay there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..terms import free_axes
from .problem import Leaf, Problem

LOOP = 1.5  # cycles of one iteration of a plain loop
NEST = 8.0  # cycles to enter a loop on lanes (test for a full tile, address arithmetic)
TILE = 60.0  # cycles to enter and leave a tile of accumulators, which is a function of its own
LATENCY = 4.0  # cycles of a dependent add or FMA
LOAD = 64.0  # bytes a core loads from L1 in a cycle, by two loads at most
STORE = 32.0  # bytes it stores
SPARE = 4  # vector registers that a tile of accumulators leaves free
UNROLLED = 8  # vectors of a SIMD loop up to which compilers unroll it, which registers need
DENSITY = 0.55  # share of the tiles that a mask leaves, of many
LINE = 64.0  # bytes
START = 45.0  # cycles until the lines of a row that does not go on where the last one ended come in as fast as they can
PAGE, ENTRIES, WALK = 4096.0, 64.0, 6.0  # bytes of a page, pages that the first TLB knows, cycles to find another one
SHARED = 0.25  # of the time of a cause that another one hides is not hidden
GROWTH, PRODUCT = 0.03, 0.3  # charges for memory that grows with sizes: for each doubling beyond a page, and for growing with a product of two
POINTERS, SPILL = 12, 2.0  # rows of an array that a tile walks along at once with pointers in registers; cycles for each further one
PARTIAL = 2.0  # extra work on the part of an axis that lies in partial tiles
GATHER = 1.5  # cycles per element of a strided SIMD access


@dataclass(frozen=True)
class Model:
    """A machine as the model sees it; sizes in bytes, rates per core and cycle."""

    caps: tuple[float, ...]  # capacity of each level a core can use
    rates: tuple[float, ...]  # bytes a cycle moved into the level from the next
    names: tuple[str, ...]
    clock: float
    cores: int
    simd_bytes: int
    registers: int
    fma: float  # vector FMAs a cycle
    exp_cycles: float  # per element in a vectorised loop, f32
    fork_cycles: float
    dram: float  # bytes a cycle, all cores together
    ways: tuple[tuple[float, int], ...] = ()  # of each level: bytes of a way (addresses so far apart share a set), how many lines a set holds
    tiles: tuple[tuple[int, int], ...] = ((4, 64), (8, 128), (8, 512))  # register tile of an unrolled axis and cache tile around it, to start from
    domains: int = 1  # memories of the machine, each nearest to as many cores

    @staticmethod
    def of(m: Any) -> Model:
        levels = list(m.levels)
        clock = float(m.clock_hz)
        caps = tuple(float(lv.bytes) / max(1, min(lv.shared_by, m.cores)) * 0.75 for lv in levels)
        # a level's own bandwidth is what it delivers inwards: into level l flows what level l+1 delivers
        rates = [float(lv.bandwidth) / clock for lv in levels[1:]] + [float(m.memory_bandwidth_core) / clock]
        return Model(caps, tuple(max(r, 0.25) for r in rates), tuple(lv.name for lv in levels), clock, int(m.cores), int(m.simd_bytes), int(m.vector_registers),
                     float(m.fma_per_cycle), float(m.exp_cycles), float(m.fork_s) * clock, float(m.memory_bandwidth) / clock,
                     tuple((float(lv.bytes) / lv.ways, lv.ways) for lv in levels), domains=int(getattr(m, "numa_domains", 1)))  # fmt: skip


@dataclass(frozen=True)
class LoopAxis:
    """A loop: its root axis, mean trip count, the constant trip count of its full tiles (None if it runs to a size), and the
    share of the axis in partial tiles. ``even``: how many iterations as large as the largest it amounts to, where that differs."""

    root: str
    trips: float
    const: int | None = None
    partial: float = 0.0
    even: float = 0.0


@dataclass(frozen=True)
class Block:
    leaf: int
    simd: str = ""  # root axis in the SIMD lanes
    vec: float = 1.0  # elements along it
    unroll: tuple[tuple[str, int], ...] = ()  # (root axis, trips)
    waste: float = 1.0  # factor for partial tiles

    @property
    def count(self) -> int:
        n = 1
        for _, t in self.unroll:
            n *= t
        return n


@dataclass(eq=False, slots=True)
class Entry:
    cycles: float
    traffic: np.ndarray  # bytes, levels x arrays; then how often a row of an array is entered anew, and a page not in the TLB
    foot: np.ndarray  # arrays
    mask: int  # leaves inside
    plan: tuple
    cold: np.ndarray  # 1.0, or 0.0 for a closed stage
    run: np.ndarray  # contiguous bytes of each array
    over: np.ndarray  # share of it, 0 to 1, that a level does not keep; then of the first for what is used again and again, and of the TLB
    block: Block | None = None
    layout: tuple[tuple[str, str], ...] = ()  # stage -> root axis that is contiguous
    par: float = 1.0  # iterations that may run in parallel
    forks: float = 1.0
    thin: bool = False  # tiles that a mask leaves idle are accounted for
    owed: tuple[float, ...] = ()  # per osm group: cycles for its probabilities, not in ``cycles`` while sums may still share them
    open: int = 0  # roots of loops inside whose trip count is not a constant, as bits
    grown: int = 0  # roots that storage of closed stages grows with
    memory: float = 0.0  # what is charged for it
    products: int = 0  # how many times storage grows with one more size at a time
    paid: int = 0  # osm groups whose probabilities another sum of the same sequence may use
    bytes: int = 0  # number of what is touched: leaves, footprints, runs, cold misses
    price: float = 0.0


@dataclass(eq=False, slots=True)
class Joined:
    """What of a sequence does not depend on how its parts run."""

    mask: int
    foot: np.ndarray
    run: np.ndarray
    over: np.ndarray
    cold: np.ndarray
    shut: tuple[str, ...]  # stages that close here
    kept: np.ndarray  # the share of traffic that they leave
    rescale: float  # cycles
    bytes: int
    paying: np.ndarray  # price of a byte of the dearer part, and of what both parts fetch


@dataclass(eq=False, slots=True)
class Pair:
    """A sequence of two entries that is priced, but not yet an entry."""

    a: Entry
    b: Entry
    joined: Joined
    layout: tuple[tuple[str, str], ...]
    cycles: float
    open: int
    grown: int
    memory: float
    products: int
    paid: int
    price: float = 0.0

    @property
    def par(self) -> float:
        return min(self.a.par, self.b.par)

    @property
    def bytes(self) -> int:
        return self.joined.bytes

    @property
    def block(self) -> None:
        return None


class Cost:
    def __init__(self, problem: Problem, model: Any, axes: dict[str, LoopAxis]) -> None:
        self.p, self.m, self.axes = problem, model, axes
        self.index = {a: k for k, a in enumerate(problem.arrays)}
        n = len(problem.arrays)
        self.width = np.array([float(problem.width[a]) for a in problem.arrays])
        written = {x.target for x in problem.leaves}
        self.weight = np.array([2.0 if a in written else 1.0 for a in problem.arrays])
        self.moves: dict[str, np.ndarray] = {}
        for root in problem.extents:
            self.moves[root] = np.array([root in problem.roots[a] for a in problem.arrays])
        self.caps = np.array([*model.caps, 2.0 * model.caps[0], 1.0])
        self.prices = np.vstack([*[SHARED / r * self.weight for r in model.rates], np.full(n, START), np.full(n, WALK)])
        pitch = np.array([float(problem.pitch[a]) for a in problem.arrays])
        self.units = {root: np.array([root in problem.units[a] for a in problem.arrays]) for root in problem.extents}
        self.none = np.zeros(n)
        self.only = np.eye(n, dtype=bool)
        self.fixed = np.array([a not in problem.stages for a in problem.arrays])
        self.pitched = np.flatnonzero(pitch) if model.ways else np.flatnonzero(self.none)
        self.reached: dict[tuple, tuple] = {}
        self.joins: dict[tuple[int, int], Joined | None] = {}
        self.layouts: dict[tuple, tuple | None] = {}
        self.numbers: dict[tuple, int] = {}
        self.touched: list[tuple[np.ndarray, np.ndarray]] = []  # footprints and cold misses by number
        self.pitch = pitch
        # rows of an array start at places of a way that lie ``apart`` bytes; ``room``: how many rows the places hold
        self.apart = np.array([[float(math.gcd(int(w), int(s))) for s in pitch[self.pitched]] for w, _ in model.ways])
        self.room = np.array([w * n for w, n in model.ways])[:, None] / self.apart if model.ways else self.apart
        self.users = {self.index[s]: problem.users[s] for s in sorted(problem.stages)}
        self.groups: list[tuple[Any, int]] = []  # osm groups and their leaves
        for g in dict.fromkeys(x.group for x in problem.leaves if x.monoid == "osm"):
            self.groups.append((g, sum(1 << k for k, x in enumerate(problem.leaves) if x.group is g)))
        self.bit = {root: 1 << k for k, root in enumerate(problem.extents)}
        self.keyed = {x.target: sum(self.bit[a] for a in x.key) for x in problem.leaves}
        self.scored = [free_axes(g) for g, _ in self.groups]
        self.owners = {root: frozenset(problem.keyed(root)) for root in problem.extents}

    # --- the three ways entries are made --------------------------------------------------------------------------------------------
    def leaf(self, k: int) -> Entry:
        x = self.p.leaves[k]
        touched = np.zeros(len(self.p.arrays))
        for r in x.reads:
            touched[self.index[r.array]] = max(r.times, touched[self.index[r.array]])
        touched[self.index[x.target]] = max(1.0, float(x.scan))
        foot = touched * self.width
        run = np.maximum(foot, self.width)
        lines, over = self._spread(foot, run)
        cold = np.ones_like(foot)
        number = self._number(1 << k, foot, run, cold)
        return Entry(0.0, lines, foot, 1 << k, ("leaf", k), cold, run, over, Block(k), owed=self._probabilities(x), bytes=number)

    def loop(self, axis: str, e: Entry) -> list[Entry]:
        """The ways to run a loop over ``axis`` around ``e``: as SIMD lanes or unrolled if ``e`` is an open block, else one after another."""
        ax = self.axes[axis]
        out = []
        b = e.block
        if b is not None:
            leaf = self.p.leaves[b.leaf]
            lanes = self._lanes(leaf)
            # the loops inside a scan run in sequence, so none around it is a lane or unrolled
            if not leaf.scan and not b.simd and not b.unroll and ax.trips >= lanes / 2 and (ax.const is None or ax.const % lanes == 0):
                out.append(self._simd(axis, ax, e, b, leaf))
            # reduction loops stay loops (the printer unrolls them); unrolled key axes multiply the independent sums
            if not leaf.scan and ax.const is not None and ax.root in leaf.key and b.count * ax.const <= 16:
                nb = replace(b, unroll=(*b.unroll, (ax.root, ax.const)), waste=b.waste * (1.0 + PARTIAL * ax.partial))
                vectors = max(1.0, b.vec / lanes)
                if nb.count * vectors <= self.m.registers - SPARE:
                    out.append(self._around(axis, ax, replace(e, block=nb), "unroll", e.cycles))
        closed, per = self._close(e, ax.root, ax.trips)
        held = self.index[self.p.leaves[b.leaf].target] if b is not None and self._in_registers(b, ax.root) else None
        out.append(self._around(axis, ax, closed, "seq", (per + LOOP) * ax.trips, held))
        return [self._priced(x) for x in out]

    def seq(self, a: Entry, b: Entry) -> Entry | None:
        found = self.pairs([(self.closed(a), self.closed(b))])
        return self.entry(found[0]) if found else None

    def pairs(self, parts: list[tuple[Entry, Entry]]) -> list[Pair]:
        """Sequences of closed entries, priced together, without those whose layouts contradict each other or whose stages do not fit."""
        self._join(parts)
        out = [x for a, b in parts if (x := self._pair(a, b)) is not None]
        if out:
            a, b = np.array([x.a.traffic for x in out]), np.array([x.b.traffic for x in out])
            paying = np.array([x.joined.paying for x in out])
            moved = np.einsum("pla,pla->p", np.maximum(a, b), paying[:, 0]) + np.einsum("pla,pla->p", np.minimum(a, b), paying[:, 1])
            for x, t in zip(out, moved.tolist(), strict=True):
                x.price = (x.cycles + t) * self.charge(x)
        return out

    def _pair(self, a: Entry, b: Entry) -> Pair | None:
        both = (a.layout, b.layout)
        if both not in self.layouts:
            self.layouts[both] = self._agreed(*both)
        layout = self.layouts[both]
        if layout is None:
            return None
        j = self.joins[a.bytes, b.bytes]
        if j is None:
            return None
        wide, grown, memory, products = a.open | b.open, a.grown | b.grown, a.memory + b.memory, a.products + b.products
        for s in j.shut:
            bits = wide & self.keyed[s]
            if bits:
                grown, products = grown | bits, products + bits.bit_count() - 1
                memory += PRODUCT * (bits.bit_count() - 1) + GROWTH * max(0.0, math.log2(j.foot[self.index[s]] / PAGE))
        cycles, paid = a.cycles + b.cycles + j.rescale, a.paid | b.paid
        for n in range(len(self.groups)):
            if a.owed[n] or b.owed[n]:
                free = paid >> n & 1 and not (a.owed[n] and b.owed[n])
                cycles += 0.0 if free else max(a.owed[n], b.owed[n])
                paid |= 1 << n
        return Pair(a, b, j, layout, cycles, wide, grown, memory, products, 0 if j.shut else paid)

    @staticmethod
    def _agreed(a: tuple[tuple[str, str], ...], b: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...] | None:
        """Two choices of layouts together; None if they contradict each other."""
        layout = dict(a)
        for s, r in b:
            if layout.setdefault(s, r) != r:
                return None
        return tuple(sorted(layout.items()))

    def entry(self, x: Pair) -> Entry:
        a, b, j = x.a, x.b, x.joined
        t = (np.maximum(a.traffic, b.traffic) + j.over[:, None] * np.minimum(a.traffic, b.traffic)) * j.kept
        return Entry(x.cycles, t, j.foot, j.mask, ("seq", a.plan, b.plan, j.shut), j.cold, j.run, j.over, None, x.layout, x.par, a.forks + b.forks,
                     a.thin or b.thin, (0.0,) * len(self.groups), x.open, x.grown, x.memory, x.products, x.paid, j.bytes, x.price)  # fmt: skip

    def _join(self, parts: list[tuple[Entry, Entry]]) -> None:
        """Note in ``joins`` what the sequences of these entries touch, as far as it is not known."""
        new = {key: (a, b) for a, b in parts if (key := (a.bytes, b.bytes)) not in self.joins}
        if not new:
            return
        foot = np.maximum(np.array([a.foot for a, _ in new.values()]), np.array([b.foot for _, b in new.values()]))
        run = np.maximum(np.array([a.run for a, _ in new.values()]), np.array([b.run for _, b in new.values()]))
        cold = np.minimum(np.array([a.cold for a, _ in new.values()]), np.array([b.cold for _, b in new.values()]))
        over = self._rows(foot, run)[-1]
        for n, (key, (a, b)) in enumerate(new.items()):
            self.joins[key] = self._joined(a, b, foot[n], run[n], over[n], cold[n])

    def _joined(self, a: Entry, b: Entry, foot: np.ndarray, run: np.ndarray, over: np.ndarray, cold: np.ndarray) -> Joined | None:
        """None where the stages that are closed do not fit."""
        mask = a.mask | b.mask
        kept = np.ones((len(self.caps), len(foot)))
        shut = []
        for k, users in self.users.items():
            if cold[k] and users & ~mask == 0 and users & a.mask and users & b.mask:
                kept[:, k] = over
                shut.append(self.p.arrays[k])
                cold[k] = 0.0
        if not self.fits(foot, cold):
            return None
        rescale = sum(self._rescale(g, mask, foot, cold) for g, members in self.groups if members & mask)
        paying = kept * self.prices
        number = self._number(mask, foot, run, cold)
        return Joined(mask, foot, run, over, cold, tuple(shut), kept, rescale, number, np.array([paying, over[:, None] * paying]))

    def fits(self, foot: np.ndarray, cold: np.ndarray) -> bool:
        """Whether the closed stages, those without cold misses, can be stored at all."""
        return True

    def _number(self, mask: int, foot: np.ndarray, run: np.ndarray, cold: np.ndarray) -> int:
        """Equal for entries that touch the same bytes, which most of a class do."""
        n = self.numbers.setdefault((mask, foot.tobytes(), run.tobytes(), cold.tobytes()), len(self.touched))
        if n == len(self.touched):
            self.touched.append((foot, cold))
        return n

    def closed(self, e: Entry) -> Entry:
        """An entry whose open block, if any, is executed once as it stands."""
        if e.block is None:
            return e
        c, per = self._close(e, "")
        return self._priced(replace(c, cycles=per))

    # --- details ------------------------------------------------------------------------------------------------------------------
    def _lanes(self, leaf: Leaf) -> int:
        widest = max([leaf.bytes, *[self.p.width[r.array] for r in leaf.reads]])
        return max(1, self.m.simd_bytes // widest)

    def _simd(self, axis: str, ax: LoopAxis, e: Entry, b: Block, leaf: Leaf) -> Entry:
        layout = dict(e.layout)
        stages = [r.array for r in leaf.reads if r.exact and ax.root in r.roots]
        if leaf.target in self.p.stages and ax.root in leaf.key:
            stages.append(leaf.target)
        for name in stages:
            layout.setdefault(name, ax.root)
        nb = replace(b, simd=ax.root, vec=float(ax.const) if ax.const else ax.trips, waste=b.waste * (1.0 + PARTIAL * ax.partial))
        out = self._around(axis, ax, replace(e, block=nb, layout=tuple(sorted(layout.items()))), "simd", e.cycles)
        if ax.const is None or ax.root in leaf.reduction:  # runs to a size, or sums across lanes: the block is complete
            closed, per = self._close(out, "")
            out = replace(closed, cycles=per + (0.0 if nb.vec > UNROLLED * self._lanes(leaf) else NEST) + (LATENCY * 4 if ax.root in leaf.reduction else 0.0))
        return out

    def _close(self, e: Entry, loop_root: str, trips: float = 1.0) -> tuple[Entry, float]:
        """Cycles of one execution of the body inside a loop over ``loop_root`` ("" for none) of so many trips."""
        b = e.block
        if b is None:
            return e, e.cycles
        leaf = self.p.leaves[b.leaf]
        if leaf.scan:
            return replace(e, block=None), leaf.scan * max(LATENCY, leaf.work / self.m.fma, leaf.exps * self.m.exp_cycles * 4.0)
        lanes = self._lanes(leaf) if b.simd else 1
        vectors = max(1.0, b.vec / lanes) if b.simd else 1.0
        count = b.count * vectors
        layout = dict(e.layout)
        loads, rows = 0.0, 0.0  # cycles, rows walked along
        for r in leaf.reads:
            n = 0.5
            for root, t in b.unroll:
                n *= t if root in r.roots else 1
            rows += 2.0 * n if r.array not in self.p.stages else 0.0
            if b.simd and b.simd in r.roots:
                unit = layout.get(r.array) == b.simd if r.exact else r.unit == b.simd
                n *= vectors * max(1.0, 2.0 * self.m.simd_bytes / LOAD) if unit else vectors * lanes * GATHER * 2
            loads += n
        arith = 0.0
        for roots, work in leaf.ops:  # an operation that the lanes do not change is one of scalars
            arith += work * math.prod(t for root, t in b.unroll if root in roots) * (vectors if b.simd in roots else 1.0) / self.m.fma
        if not b.simd and not b.unroll and self._contiguous(leaf, loop_root, layout):  # compilers run such a loop in lanes
            arith, loads, side = arith / self._lanes(leaf), loads / self._lanes(leaf), 1.0 / self._lanes(leaf)
        else:
            side = 1.0
        if leaf.exps and leaf.group is None:
            arith += count * lanes * leaf.exps * self.m.exp_cycles * leaf.bytes / 4.0 * (1.0 if b.simd or side < 1.0 else 4.0)
        stored = 1.0
        if b.simd and b.simd in leaf.key:
            unit = layout.get(leaf.target) == b.simd if leaf.target in self.p.stages else leaf.unit == b.simd
            stored = self.m.simd_bytes / STORE if unit else lanes * GATHER
        cells = self._cells(b)
        accumulates = leaf.monoid != "once"
        in_registers = self._in_registers(b, loop_root)
        cycles = max(arith, loads) + SPILL * max(0.0, rows - POINTERS) * (loop_root in leaf.reduction)
        if accumulates and loop_root in leaf.reduction:  # additions to one cell wait for each other
            cycles = max(cycles, LATENCY)
        if b.simd and b.simd in leaf.reduction:
            cycles = max(arith, loads, LATENCY * vectors)
        if not in_registers:
            cycles += cells * stored * side * (2.0 if accumulates else 1.0)
        if vectors > UNROLLED:  # a loop of its own, as one that runs to a size
            cycles += NEST
        out = replace(e, block=None)
        if in_registers:
            cycles += (cells * stored * 2.0 + TILE) / max(1.0, trips)
        return out, cycles * b.waste

    def _contiguous(self, leaf: Leaf, root: str, layout: dict[str, str]) -> bool:
        """Whether a leaf moves along an axis by one cell at a time, in all it reads and in what it writes."""

        def last(array: str) -> str:
            return layout.get(array) or self.p.kernel.stage(array).axes[-1]

        written = last(leaf.target) if leaf.target in self.p.stages and leaf.key else leaf.unit
        return root in leaf.key and written == root and all(root not in r.roots or (last(r.array) if r.exact else r.unit) == root for r in leaf.reads)

    def _cells(self, b: Block) -> float:
        """Vectors (scalars without lanes) that the cells of a block take."""
        leaf, cells = self.p.leaves[b.leaf], 1.0
        for root, t in b.unroll:
            cells *= t if root in leaf.key else 1
        return cells * (max(1.0, b.vec / self._lanes(leaf)) if b.simd in leaf.key else 1.0)

    def _in_registers(self, b: Block, loop_root: str) -> bool:
        """Whether a loop over ``loop_root`` around a block adds to cells that stay in registers."""
        leaf = self.p.leaves[b.leaf]
        vectors = max(1.0, b.vec / self._lanes(leaf)) if b.simd else 1.0
        return leaf.monoid != "once" and loop_root in leaf.reduction and self._cells(b) <= self.m.registers - SPARE and vectors <= UNROLLED

    def _probabilities(self, x: Leaf) -> tuple[float, ...]:
        """Cycles for one exp(score - maximum), the maximum included, per osm group: lowering runs them in lanes whatever the sums do."""
        per = (self.m.exp_cycles + 3.0 / (self.m.simd_bytes / 4.0)) * x.bytes / 4.0
        return tuple(per if x.group is g else 0.0 for g, _ in self.groups)

    def _rescale(self, group: Any, mask: int, foot: np.ndarray, cold: np.ndarray) -> float:
        """Cycles to rescale the sums of an osm group once, charged where its tile is complete."""
        total = 0.0
        for k, x in enumerate(self.p.leaves):
            if mask >> k & 1 and x.group is group:
                total += foot[self.index[x.target]] / self.m.simd_bytes * 2.0
        return total

    def _around(self, axis: str, ax: LoopAxis, e: Entry, place: str, cycles: float, held: int | None = None) -> Entry:
        """``held``: an array that the loop does not touch, its cells being in registers."""
        n = ax.trips
        key = (axis, held, e.bytes)
        if key not in self.reached:
            self.reached[key] = self._reach(axis, ax, e, held)
        g, run, over, first, often, number, owner, masked = self.reached[key]
        t = first + often * e.traffic
        if held is not None:
            t[:, held] = e.traffic[:, held]
        par = (ax.even or n) * (e.par if e.plan[0] == "for" else 1.0) if owner and place == "seq" else (1.0 if place != "seq" else e.par)
        forks = 1.0 if owner else n * e.forks
        thin = place == "seq" and not e.thin and ".i" not in axis and masked
        bounded = ".i" in axis or self.p.extent_terms[ax.root].op == "int"  # part of a tile, or a size compiled in
        owed = tuple(c * n if ax.root in axes else c for c, axes in zip(e.owed, self.scored, strict=True))
        if thin:
            left = min(1.0, DENSITY + 0.5 / n)
            cycles, t, owed = cycles * left, t * left, tuple(c * left for c in owed)
        return Entry(cycles, t, g, e.mask, ("for", axis, place, e.plan), e.cold, run, over, e.block, e.layout, par, forks, e.thin or thin, owed,
                     e.open | (0 if bounded else self.bit[ax.root]), e.grown, e.memory, e.products, 0, number)  # fmt: skip

    def _reach(self, axis: str, ax: LoopAxis, e: Entry, held: int | None) -> tuple:
        """What a loop around an entry touches: bytes, runs, the share that levels do not keep; and per level and array what comes in once, and how often what
        an iteration fetches comes in; then the number of what it touches, whether its iterations own
        what they write, and whether a mask leaves some idle."""
        moved = self.moves[ax.root] & (e.cold > 0)
        g = np.where(moved, e.foot * ax.trips, e.foot)
        run = np.where(moved & self.units[ax.root], e.run * ax.trips, e.run)
        lines, over = self._spread(g, run)
        if held is None:
            inner, outer = e.over[:, None], over[:, None]
        else:
            inner, outer = (self._spread(np.where(self.only[held], 0.0, f), r)[1][:, None] for f, r in ((e.foot, e.run), (g, run)))
        # kept by the level: once; else, where an iteration's share is kept, each part once, and where it is not, in every iteration
        share = e.cold * (1.0 - outer + outer * (1.0 - inner) * moved)
        if held is None:  # rows entered part by part, whole lines at a time and other rows between
            parted = moved & self.units[ax.root] & (e.run >= LINE) & (e.run < e.foot) & (self.pitch > 0)
            lines[-2] = np.where(parted, np.maximum(lines[-2], e.foot / e.run * ax.trips), lines[-2])
        often = outer * ((1.0 - inner) * ~moved + inner * ax.trips)
        own = self.owners[ax.root]
        owner = all(x.target in own or not e.cold[self.index[x.target]] for k, x in enumerate(self.p.leaves) if e.mask >> k & 1)
        return g, run, over, lines * share, often, self._number(e.mask, g, run, e.cold), owner, self._masked(axis, ax.root, e)

    def _spread(self, foot: np.ndarray, run: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of the cache lines that hold so many bytes in contiguous runs, per level and array, the runs that are apart, the pages; and the share of all
        that a level does not keep."""
        lines, runs, pages, over = self._rows(foot, run)
        out = np.empty((len(self.caps), len(foot)))
        out[:-2], out[-2], out[-1] = lines, runs, pages
        return out, over

    def _rows(self, foot: np.ndarray, run: np.ndarray) -> tuple[np.ndarray, ...]:
        """Bytes of lines, runs apart and pages per array, and the share that a level does not keep; arguments: an entry's row, or several."""
        whole = np.ceil(run / LINE) * LINE
        lines = np.where(self.fixed, foot / run * whole, foot)
        k, runs, pages = self.pitched, np.zeros(foot.shape), foot / PAGE
        full = lines.sum(axis=-1)[..., None] / self.caps
        if k.size:
            rows, length = foot[..., k] / run[..., k], run[..., k]
            # a longer run fills all places
            crowded = ((rows[..., None, :] > self.room) & (whole[..., None, k] < self.apart)).any(axis=-1)
            apart = length < self.pitch[k]
            runs[..., k] = np.where(apart, rows, 1.0)
            pages[..., k] = np.where(apart, rows * np.maximum(np.minimum(self.pitch[k] / PAGE, 1.0), length / PAGE), pages[..., k])
        full[..., -1] = pages.sum(axis=-1) / ENTRIES
        over = np.minimum(np.maximum(full - 1.0, 0.0), 1.0)
        if k.size:
            over[..., :-2][crowded] = 1.0
        return lines, runs, pages, over

    def _masked(self, axis: str, root: str, e: Entry) -> bool:
        """All that outlives an iteration is masked by a comparison of this axis with another, so idle tiles are skipped."""
        open_ = [x for k, x in enumerate(self.p.leaves) if e.mask >> k & 1 and e.cold[self.index[x.target]]]
        if ".o" not in axis and any(x.monoid == "osm" for x in open_):
            return False  # see plan.skips
        return all(x.mask is not None and root in free_axes(x.mask) and len(free_axes(x.mask)) > 1 for x in open_)

    def _priced(self, e: Entry) -> Entry:
        cycles = e.cycles if e.block is None else self._close(e, "")[1]
        e.price = (cycles + sum(e.owed) + float(np.vdot(e.traffic, self.prices))) * self.charge(e)
        return e

    def charge(self, e: Entry | Pair) -> float:
        """A factor for storage that grows with sizes: memory is not free, that of a product of sizes least of all."""
        return 1.0 + e.memory

    # --- a whole plan ---------------------------------------------------------------------------------------------------------------
    def seconds(self, e: Entry, outer: float = 1.0, outer_par: float = 1.0) -> tuple[float, dict[str, float]]:
        """Predicted time of ``outer`` repetitions (batch axes) of a plan, and its terms in seconds."""
        par = min(float(self.m.cores), max(1.0, outer_par * (e.par if outer_par < self.m.cores * 4 else 1.0)))
        waves = np.ceil(max(1.0, outer_par * e.par) / par) * par / max(1.0, outer_par * e.par)
        moved = (e.traffic * self.weight).sum(axis=1) * outer
        terms = {
            "compute": (e.cycles + sum(e.owed)) * outer / par * waves / self.m.clock,
            "latency": float(e.traffic[-2].sum() * START + e.traffic[-1].sum() * WALK) * outer / par * waves / self.m.clock,
        }
        for k in range(len(self.m.names)):
            source = self.m.names[k + 1] if k + 1 < len(self.m.names) else "DRAM"
            rate = self.m.rates[k] * par if k + 1 < len(self.m.names) else min(self.m.rates[k] * par, self.m.dram)
            terms[source] = float(moved[k]) / rate / self.m.clock
        forks = (1.0 if outer_par > 1 else e.forks) if par > 1 else 0.0
        terms["fork"] = forks * self.m.fork_cycles / self.m.clock
        work = [terms["compute"] + terms["latency"], *(v for k, v in terms.items() if k not in ("compute", "latency", "fork"))]
        return max(work) + SHARED * (sum(work) - max(work)) + terms["fork"], terms
