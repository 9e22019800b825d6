"""Many schedules of one program, good and bad, taken from the spaces that the search explored, with what the cost model says of each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from moa_rewrite.rules import RuleSet
from moa_rewrite.search.candidate import Candidate, Form, cost_of
from moa_rewrite.search.cost import Cost, Entry, Model, Pair
from moa_rewrite.search.extract import Extractor
from moa_rewrite.search.optimize import Options, _Search, summary
from moa_rewrite.search.problem import build
from moa_rewrite.search.structure import Space
from moa_rewrite.search.tiles import CACHE, UNROLL, assignments, replay
from moa_rewrite.terms import Kernel

FORMS = 6  # spaces that are sampled: those with the best plans
ASSIGNMENTS = 4  # tile sizes under which each is extracted, and as many random ones
WORST = 16.0  # schedules predicted to be this many times slower than the best are of no interest


@dataclass(frozen=True)
class Schedule:
    """A plan with its tile sizes, and its space without the graph, which is all that prices it again. ``role``: how it came into the sample."""

    form: Form
    space: Space
    plan: tuple
    tiles: dict[str, int]
    role: str

    def candidate(self, model: Model) -> Candidate | None:
        """With what a model says of it; None where the plan and the tile sizes do not fit each other (any more)."""
        space = replace(self.space, problem=build(self.space.problem.kernel, self.space.problem.sizes))
        cost = cost_of(space, model, self.tiles)
        e = replay(self.plan, cost)
        return None if e is None else Candidate.priced(cost.closed(e), cost, space, self.tiles, self.form)


def schedule(c: Candidate, role: str) -> Schedule:
    return Schedule(c.form, replace(c.space, nodes={}), c.entry.plan, c.tiles, role)


class Roving(Extractor):
    """Keeps of every class, besides the cheapest entries, some at random."""

    def __init__(self, space: Space, cost: Cost, rng: random.Random) -> None:
        super().__init__(space, cost, keep=3, kinds=3, pairs=4)
        self.rng = rng

    def prune(self, found: list[Entry | Pair]) -> list[Entry | Pair]:
        good = super().prune(found)
        rest = [e for e in found if not any(e is g for g in good)]
        return good[:4] + self.rng.sample(rest, min(3, len(rest)))


def random_tiles(space: Space, rng: random.Random, lanes: int) -> dict[str, int]:
    """Tile sizes of the kinds that the search considers, blindly."""
    tiles: dict[str, int] = {}
    for v in space.lifts:
        deeper = any(w.axis == f"{v.axis}.i" for w in space.lifts)
        tiles[v.tile] = rng.choice((*UNROLL, *[lanes * k for k in (1, 2, 3, 4)])) if not deeper else 0
    for v in space.lifts:
        if tiles[v.tile] == 0:
            inner = tiles[f"{v.axis}.i.T"]
            tiles[v.tile] = inner * max(1, rng.choice(CACHE) // inner)
    return tiles


def pool(search: _Search, rng: random.Random) -> Iterator[Candidate]:
    """Candidates of the best spaces under regular and random tile sizes."""
    model = search.model
    assert isinstance(model, Model)
    best: dict[str, Candidate] = {}
    for c in sorted(search.pool, key=lambda c: c.rank):
        best.setdefault(c.form.label, c)
    for first in list(best.values())[:FORMS]:
        space = first.space
        lanes = model.simd_bytes // max(space.problem.width.values())
        chosen = [t for _, t in assignments(space, model, [])]
        regular = rng.sample(chosen, min(ASSIGNMENTS, len(chosen)))
        for tiles in [first.tiles, *regular, *[random_tiles(space, rng, lanes) for _ in range(ASSIGNMENTS)]]:
            cost = cost_of(space, model, tiles)
            for e in Roving(space, cost, rng).root():
                yield Candidate.priced(e, cost, space, tiles, first.form)


def varied_tiles(c: Candidate, rng: random.Random) -> Iterator[Candidate]:
    """The same plan with other tile sizes, without end."""
    s = schedule(c, "")
    while True:
        tiles = dict(c.tiles)
        for v in rng.sample(c.space.lifts, rng.randint(1, min(3, len(c.space.lifts)))):
            lanes = c.cost.m.simd_bytes // max(c.space.problem.width.values())
            tiles[v.tile] = random_tiles(c.space, rng, lanes)[v.tile]
        for v in c.space.lifts:  # a cache tile stays a multiple of the register tile inside it
            inner = tiles.get(f"{v.axis}.i.T")
            if inner:
                tiles[v.tile] = inner * max(1, tiles[v.tile] // inner)
        found = replace(s, tiles=tiles).candidate(c.cost.m) if tiles != c.tiles else None
        yield found if found is not None else c


def spread(found: list[Candidate], count: int, rng: random.Random) -> list[Candidate]:
    """So many of the candidates, evenly over the logarithm of the predicted time, of each stretch one whose plan is new."""
    best = found[0].seconds
    stretch = WORST ** (1.0 / count)
    out: list[Candidate] = []
    plans: set[tuple] = set()
    for k in range(count):
        low, high = best * stretch**k, best * stretch ** (k + 1)
        here = [c for c in found if low <= c.seconds < high]
        new = [c for c in here if c.entry.plan not in plans]
        if here:
            out.append(rng.choice(new or here))
            plans.add(out[-1].entry.plan)
    return out


def sample(kernel: Kernel, rules: RuleSet, machine: Any, sizes: dict[str, int], count: int, seed: int) -> list[Schedule]:
    """About ``count`` schedules: the search's first choices, the same plans with other tile sizes, and others over the range of predicted times."""
    rng = random.Random(seed)
    search = _Search(kernel, rules, machine, sizes, Options(timeout=3600.0))
    chosen = search.run().ranked[: max(2, count // 6)]
    out = [schedule(c, "chosen" if k == 0 else "considered") for k, c in enumerate(chosen)]
    seen = {(s.form.label, s.plan, tuple(sorted(s.tiles.items()))) for s in out}

    def add(c: Candidate, role: str) -> bool:
        key = (c.form.label, c.entry.plan, tuple(sorted(c.tiles.items())))
        new = key not in seen
        seen.add(key)
        if new:
            out.append(schedule(c, role))
        return new

    others = sorted((c for c in pool(search, rng)), key=lambda c: c.seconds)
    others = [c for c in others if c.seconds < others[0].seconds * WORST]
    for c in spread(others, count // 2, rng):
        add(c, "other plan")
    tries = [varied_tiles(c, rng) for c in [*chosen[:3], *spread(others, 3, rng)]]
    for turn in range(20 * count):
        if len(out) >= count:
            break
        c = next(tries[turn % len(tries)])
        if c.seconds < others[0].seconds * WORST:
            add(c, "other tiles")
    return out


__all__ = ["Schedule", "sample", "summary"]
