"""Tile sizes: starting assignments for the e-graph's symbolic tiles, and numeric refinement on a chosen plan."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from .cost import Cost, Entry
from .problem import Problem
from .structure import Space, loop_axes

CACHE = (32, 64, 128, 256, 512)
UNROLL = (2, 3, 4, 5, 6, 8, 12)
THREADS = (4, 8, 16, 32, 64, 128)
EACH = "*"


Tiles = dict[str, int]


def assignments(space: Space, model: Any, known: list[tuple[str, Tiles]]) -> list[tuple[str, Tiles]]:
    """Tile sizes for each choice of the SIMD axis, which comes first: register tiles of that axis hold two vectors, those of others are unrolled. "" for
    none; EACH where nests may differ: outer tiles, and those of axes that have only one, are all lanes, the inner ones are unrolled.

    ``known`` assignments of another form of the program are taken over instead, as far as their tiles exist here.
    """
    lanes = _lanes(space, model)
    roots = sorted({v.axis.split(".")[0] for v in space.lifts})
    outputs = {a.name for a in space.problem.kernel.outputs}
    results = frozenset().union(*(x.key for x in space.problem.leaves if x.target in outputs))
    out: list[tuple[str, Tiles]] = []
    small = len(space.problem.leaves) <= 3
    for simd in [*roots, ""]:
        for unroll, cache in model.tiles if small else model.tiles[:2]:
            tiles = {}
            for v in space.lifts:
                register = 2 * lanes if v.axis.split(".")[0] == simd else unroll
                deeper = any(w.axis == f"{v.axis}.i" for w in space.lifts)
                # an axis that no result has is summed over: its only tile is one for a cache
                large = deeper or ("." not in v.axis and v.axis not in results)
                tiles[v.tile] = register * max(1, cache // register) if large else register
            out.append((simd, tiles))
    if not small and any("." in v.axis for v in space.lifts):
        out.append((EACH, {v.tile: 4 if "." in v.axis else 4 * lanes for v in space.lifts}))
    if known:
        out = [(simd, {v.tile: k.get(v.tile, 64) for v in space.lifts}) for simd, k in known]
    return [(simd, t) for n, (simd, t) in enumerate(out) if all(t != u for _, u in out[:n])]


def _lanes(space: Space, model: Any) -> int:
    return max(1, model.simd_bytes // max(space.problem.width[a] for a in space.problem.arrays))


def replay(plan: tuple, cost: Cost, part: Callable[[tuple], Entry | None] | None = None) -> Entry | None:
    """The entry of a fixed plan under the tile sizes of ``cost``; None where a placement does not fit them any more. ``part`` replays a part of it."""
    if plan[0] == "leaf":
        return cost.leaf(plan[1])
    parts = [part(p) if part else replay(p, cost) for p in _parts(plan)]
    if None in parts:
        return None
    if plan[0] == "for":
        return next((x for x in cost.loop(plan[1], parts[0]) if x.plan[2] == plan[2]), None)  # type: ignore[arg-type]
    return cost.seq(parts[0], parts[1])  # type: ignore[arg-type]


def _parts(plan: tuple) -> tuple[tuple, ...]:
    return {"leaf": (), "for": plan[3:], "seq": plan[1:3]}[plan[0]]


class _Replays:
    """Replays of one plan under changing tile sizes: a part is priced again only where a tile of one of its loops has another size."""

    def __init__(self, plan: tuple, space: Space, cost: Cost) -> None:
        self.plan, self.space, self.cost = plan, space, cost
        self.known: dict[tuple, Entry | None] = {}
        self.tiles: dict[int, tuple[str, ...]] = {}  # those that the loops of a part depend on
        self._note(plan)

    def _note(self, plan: tuple) -> set[str]:
        names = {plan[1]} if plan[0] == "for" else set()
        names = names.union(*map(self._note, _parts(plan)))
        self.tiles[id(plan)] = tuple(v.tile for v in self.space.lifts if any(n.startswith(f"{v.axis}.") for n in names))
        return names

    def under(self, tiles: Tiles) -> tuple[Entry | None, Cost]:
        cost = copy(self.cost)  # what entries touch keeps its numbers
        cost.axes, cost.reached = loop_axes(self.space, tiles), {}

        def entry(plan: tuple) -> Entry | None:
            key = (id(plan), *[tiles[t] for t in self.tiles[id(plan)]])
            if key not in self.known:
                self.known[key] = replay(plan, cost, entry)
            return self.known[key]

        return entry(self.plan), cost


def refine(entry: Entry, space: Space, kind: type[Cost], model: Any, tiles: dict[str, int], outer: float) -> tuple[Entry, Cost, dict[str, int], float]:
    """Coordinate descent over tile sizes, largest tiles first, until nothing improves."""
    replays = _Replays(entry.plan, space, kind(space.problem, model, loop_axes(space, tiles)))

    def judge(t: dict[str, int]) -> tuple[float, Entry, Cost] | None:
        e, cost = replays.under(t)
        if e is None:
            return None
        e = cost.closed(e)
        return cost.seconds(e, outer, outer)[0], e, cost

    used = _used(entry.plan)
    first = judge(tiles)
    assert first is not None
    best, now = first, dict(tiles)
    for _ in range(4):
        before = best[0]
        for v in space.lifts:
            place = used.get(f"{v.axis}.i")
            if place is None:
                continue
            lanes = _lanes(space, model)
            deeper = now.get(f"{v.axis}.i.T", 1) if f"{v.axis}.i.i" in used else 1
            cache = tuple(deeper * max(1, c // deeper) for c in CACHE)
            options = {"unroll": UNROLL, "simd": tuple(lanes * n for n in (1, 2, 3, 4, 6, 8)), "block": THREADS, "seq": cache}[place]
            for value in options:
                if value == now[v.tile] or value > _extent(space.problem, v.axis):
                    continue
                trial = {**now, v.tile: value}
                parent = v.axis.removesuffix(".i") + ".T"  # a cache tile stays a multiple of the register tile inside it
                if v.axis.endswith(".i") and parent in trial:
                    trial[parent] = value * max(1, now[parent] // value)
                found = judge(trial)
                if found is not None and found[0] < best[0] * 0.995:
                    best, now = found, trial
        if best[0] > before * 0.999:
            break
    return best[1], best[2], now, best[0]


def _extent(p: Problem, axis: str) -> int:
    return p.extents[axis.split(".")[0]]


_RANK = {"seq": 0, "unroll": 1, "simd": 2, "block": 3}


def _used(plan: tuple) -> dict[str, str]:
    """Loops of a plan and their placement, the one that asks most of the tile size when a loop occurs several times."""
    if plan[0] == "leaf":
        return {}
    parts = [{plan[1]: plan[2]}, _used(plan[3])] if plan[0] == "for" else [_used(plan[1]), _used(plan[2])]
    out: dict[str, str] = {}
    for part in parts:
        for axis, place in part.items():
            if axis not in out or _RANK[place] > _RANK[out[axis]]:
                out[axis] = place
    return out
