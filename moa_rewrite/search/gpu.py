"""The cost of plans on a GPU: grid loops over thread blocks, ``block`` loops over the threads of a block, sequential loops inside a thread.

A leaf's nest is, from the inside: reduction loops run by one thread with its sum in a register, then key loops spread over the threads. What lies
around several nests is uniform for the block, with a barrier between nests. Stages closed inside a block live in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .cost import Block, Cost, Entry, Pair
from .problem import Leaf, build
from .structure import Space, loop_axes
from .tiles import replay

THREADS = 256.0
BARRIER = 40.0  # cycles
ISSUE = 8.0  # cycles of one dependent step of a thread (load, FMA) when latency is not hidden
SECTOR = 8.0  # wasted traffic of an access that is not contiguous in the fastest thread axis


@dataclass(frozen=True)
class GpuModel:
    caps: tuple[float, ...]
    rates: tuple[float, ...]
    names: tuple[str, ...]
    clock: float
    cores: int  # SMs
    shared: float  # bytes that the stages of a block may take
    lanes: float  # f32 lanes of an SM
    fork_cycles: float
    dram: float
    simd_bytes: int = 64
    registers: int = 64
    fma: float = 1.0
    exp_cycles: float = 4.0
    tiles: tuple[tuple[int, int], ...] = ((8, 64), (16, 32))
    ways: tuple[tuple[float, int], ...] = ()  # not modelled

    @staticmethod
    def of(m: Any) -> GpuModel:
        clock, sms = float(m.clock_hz), int(m.sms)
        l2 = [lv for lv in m.levels if lv.name.upper() == "L2"]
        rate = float(l2[0].bandwidth) / clock if l2 else float(m.memory_bandwidth) * 3 / clock / sms
        hbm = float(m.memory_bandwidth) / clock
        # one block's share: two blocks on an SM
        return GpuModel((float(m.shared_per_sm) / 2, float(m.l2_bytes)), (rate, hbm / sms), ("shared", "L2"), clock, sms, float(m.shared_per_block) - 8192,
                        float(m.fp32_flops) / 2 / clock / sms, float(m.launch_s) * clock, hbm)  # fmt: skip


class GpuCost(Cost):
    """As ``Cost``, with threads in place of SIMD lanes and registers. A ``Block`` here holds the trips of the thread loops in ``vec``."""

    def loop(self, axis: str, e: Entry) -> list[Entry]:
        ax = self.axes[axis]
        out = []
        b = e.block
        if b is not None:
            leaf = self.p.leaves[b.leaf]
            if ax.root in leaf.reduction and b.vec == 1.0:
                per = e.cycles if e.cycles else self._thread(b)
                out.append(self._around(axis, ax, e, "seq", per * ax.trips))
            elif ax.root in leaf.key and (b.vec == 1.0 or b.vec * ax.trips <= 1 << 16):
                per = e.cycles if e.cycles else self._thread(b)
                nb = replace(b, vec=b.vec * ax.trips, simd=b.simd or ax.root)
                out.append(self._around(axis, ax, replace(e, block=nb), "block", per))
            if b.vec > 1.0:
                closed, per = self._close(e, "")
                out.append(self._around(axis, ax, closed, "seq", per * ax.trips))
        else:
            out.append(self._around(axis, ax, e, "seq", e.cycles * ax.trips))
        return [self._priced(x) for x in out]

    def _thread(self, b: Block) -> float:
        """Cycles of one execution of the leaf by a thread when others hide its latency."""
        leaf = self.p.leaves[b.leaf]
        return max(1.0, leaf.work + len(leaf.reads) + leaf.exps * self.m.exp_cycles)

    def _close(self, e: Entry, loop_root: str, trips: float = 1.0) -> tuple[Entry, float]:
        b = e.block
        if b is None:
            return e, e.cycles
        leaf = self.p.leaves[b.leaf]
        per = e.cycles if e.cycles else self._thread(b)
        waste = 1.0
        for r in leaf.reads:
            unit = r.unit == b.simd or (r.exact and r.array in self.p.stages)
            if b.simd in r.roots and not unit:
                waste += 0.5 * SECTOR / len(leaf.reads)
        rounds = -(-b.vec // THREADS)
        cycles = max(rounds * per * ISSUE / 4, b.vec * per / self.m.lanes) * waste + BARRIER  # type: ignore[attr-defined]
        return replace(e, block=None), cycles

    def fits(self, foot: np.ndarray, cold: np.ndarray) -> bool:
        """What the stages closed inside a block take must fit its shared memory."""
        return self._stored(foot, cold) <= self.m.caps[0]

    def held(self, e: Entry) -> float:
        """Bytes of the stages that are closed inside a block; a cell of pairs counts twice."""
        return self._stored(e.foot, e.cold)

    def _stored(self, foot: np.ndarray, cold: np.ndarray) -> float:
        pairs = {x.target for x in self.p.leaves if x.monoid == "osm"}
        twice = np.array([2.0 if a in pairs else 1.0 for a in self.p.arrays])
        return float((foot * twice)[cold == 0.0].sum())

    def charge(self, e: Entry | Pair) -> float:
        return 1.0 + 0.2 * e.grown.bit_count()

    def _probabilities(self, x: Leaf) -> tuple[float, ...]:
        return (0.0,) * len(self.groups)  # threads that share a sum share them through ``Leaf.exps``

    def _rescale(self, group: Any, mask: int, foot: np.ndarray, cold: np.ndarray) -> float:
        return 3 * BARRIER

    def seconds(self, e: Entry, outer: float = 1.0, outer_par: float = 1.0) -> tuple[float, dict[str, float]]:
        blocks = max(1.0, outer_par * e.par)
        par = min(2.0 * self.m.cores, blocks)
        waves = np.ceil(blocks / par) * par / blocks
        moved = (e.traffic * self.weight).sum(axis=1) * outer
        terms = {"compute": e.cycles * outer / min(float(self.m.cores), blocks) * waves / self.m.clock}
        terms["L2"] = float(moved[0]) / (self.m.rates[0] * min(float(self.m.cores), blocks)) / self.m.clock
        terms["DRAM"] = float(moved[1]) / self.m.dram / self.m.clock
        terms["launch"] = self.m.fork_cycles / self.m.clock
        return sum(terms.values()), terms


def admitted(plan: tuple, space: Space, model: GpuModel, tiles: dict[str, int], shared: float) -> dict[str, int]:
    """Upper bounds for the sizes that the shared memory of a plan grows with, such that it fits: powers of two at or above the sizes cost is judged at,
    raised together as long as they fit. Empty when no size matters."""
    roomy = replace(model, caps=(float("inf"), *model.caps[1:]))

    def held(sizes: dict[str, int]) -> float:
        here = replace(space, problem=build(space.problem.kernel, sizes))
        cost = GpuCost(here.problem, roomy, loop_axes(here, tiles))
        e = replay(plan, cost)
        return float("inf") if e is None else cost.held(cost.closed(e))

    sizes = space.problem.sizes
    grown = {n: {**sizes, n: 1 << max(3, v - 1).bit_length()} for n, v in sizes.items()}
    now = held(sizes)
    bounds = {n: grown[n][n] for n in sorted(sizes) if held({**sizes, n: 4 * grown[n][n]}) > now}
    if not bounds:
        return {}
    if held({**sizes, **bounds}) > shared:
        bounds = {n: sizes[n] for n in bounds}
    for _ in range(8):
        more = {n: 2 * v for n, v in bounds.items()}
        if held({**sizes, **more}) > shared:
            break
        bounds = more
    return bounds
