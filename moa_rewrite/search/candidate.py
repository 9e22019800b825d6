"""A plan for one form of the program: how it was found, what it costs, and its realisation as a placed kernel with the steps that lead to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ..rules import RuleSet, Step, apply_step
from ..terms import I, Kernel, Term, size
from . import numa
from .algebra import extent_points
from .cost import Cost, Entry
from .extract import Extractor
from .form import Pack, materialise
from .gpu import GpuCost, GpuModel, admitted
from .plan import gathered, layouts, panelled, placements, right_nested, skips, statement
from .problem import build
from .structure import Space, loop_axes, saturate
from .tiles import Tiles, assignments, refine

DEPTH = 8  # loops around a leaf, tiles included
MANY, FULL = 6, 3  # leaves above which only so many of the starting tile sizes are searched in full, the others roughly


@dataclass(frozen=True)
class Form:
    """A DNF, the steps from the source to it, the reads of inputs that are copied first, and whether costly scalars are shared between nests."""

    kernel: Kernel
    steps: tuple[Step, ...]
    label: str
    packed: tuple[Pack, ...] = ()
    shared: bool = False  # costly scalars of several nests are stored

    def materialised(self, rules: RuleSet, sizes: dict[str, int]) -> tuple[Kernel, list[Step]]:
        return materialise(self.kernel, rules, self.shared, self.packed, extent_points(self.kernel, sizes))


@dataclass(frozen=True)
class Candidate:
    seconds: float
    entry: Entry
    cost: Cost
    space: Space
    tiles: Tiles
    form: Form
    lanes: str = ""  # the axis that the tile sizes were chosen for

    @staticmethod
    def priced(entry: Entry, cost: Cost, space: Space, tiles: Tiles, form: Form, lanes: str = "") -> Candidate:
        """An entry of a whole program with the seconds that it is predicted to take."""
        return Candidate(cost.seconds(entry, outer(space), outer(space))[0], entry, cost, space, tiles, form, lanes)

    @property
    def growth(self) -> tuple[int, int]:
        return self.entry.grown, self.entry.products

    @property
    def rank(self) -> float:
        """Seconds, with a charge for every size that storage grows with."""
        return self.seconds * self.cost.charge(self.entry)

    @property
    def outer(self) -> float:
        """Iterations of the batch loops."""
        return outer(self.space)


def outer(space: Space) -> float:
    n = 1.0
    for a in space.batch:
        n *= space.problem.extents[a]
    return n


def cost_of(space: Space, model: Any, tiles: Tiles) -> Cost:
    """What prices the plans of a space under given tile sizes."""
    kind = GpuCost if isinstance(model, GpuModel) else Cost
    return kind(space.problem, model, loop_axes(space, tiles))


def explore(form: Form, rules: RuleSet, model: Any, sizes: dict[str, int], nodes: int, known: list[tuple[str, Tiles]]) -> list[Candidate]:
    """Candidates of one form, cheapest first, under all starting tile sizes or, if given, those that served another form well."""
    onf, steps = form.materialised(rules, sizes)
    if form.shared and onf == replace(form, shared=False).materialised(rules, sizes)[0]:
        return []  # nothing to share
    space = saturate(build(onf, sizes), rules, model, DEPTH, nodes)
    space.origin = steps
    starts = assignments(space, model, known)
    many = len(space.problem.leaves) > MANY
    if many and len(starts) > FULL:
        starts = scouted(space, model, starts, form)
    wide = 3 if many else 4  # fewer entries per class where there are many classes
    found = [c for s in starts for c in extracted(space, model, s, form, keep=wide, pairs=wide + 2)]
    found.sort(key=lambda c: c.rank)
    return varied(found, 12)


def extracted(space: Space, model: Any, start: tuple[str, Tiles], form: Form, **effort: int) -> list[Candidate]:
    """The plans of a space under starting tile sizes."""
    lanes, tiles = start
    cost = cost_of(space, model, tiles)
    return [Candidate.priced(e, cost, space, tiles, form, lanes) for e in Extractor(space, cost, **effort).root()]


def scouted(space: Space, model: Any, starts: list[tuple[str, Tiles]], form: Form) -> list[tuple[str, Tiles]]:
    """The tile sizes that serve best when hardly any entries of a class are kept."""
    ranks = [min((c.rank for c in extracted(space, model, s, form, keep=1, kinds=2, pairs=2)), default=math.inf) for s in starts]
    best = sorted(range(len(starts)), key=ranks.__getitem__)[:FULL]
    return [starts[n] for n in sorted(best)]


def varied(found: list[Candidate], keep: int) -> list[Candidate]:
    """The first candidates, and the first of each way in which storage grows and for each choice of the SIMD axis."""
    seen: set[tuple[int, int] | str] = set()
    out = []
    for n, c in enumerate(found):
        if n < keep or not {c.growth, c.lanes} <= seen:
            out.append(c)
        seen |= {c.growth, c.lanes}
    return out


def refined(c: Candidate) -> Candidate:
    """The same plan with the tile sizes that the model likes best."""
    e, cost, tiles, seconds = refine(c.entry, c.space, type(c.cost), c.cost.m, c.tiles, c.outer)
    return Candidate(seconds, e, cost, c.space, tiles, c.form, c.lanes)


def realise(c: Candidate, rules: RuleSet) -> tuple[Kernel, list[Step]]:
    """The candidate as a placed kernel, with the steps that follow its form: materialise, structure, place, layout, admit."""
    from .derive import derive

    k, origin = c.space.problem.kernel, c.space.origin
    gpu = isinstance(c.cost, GpuCost)
    plan = right_nested(c.entry.plan)
    widths: dict[str, int] = {}
    if not gpu:
        plan, widths = panelled(gathered(plan), c.cost, c.entry.layout)
    target = statement(plan, c.space, c.tiles)
    steps = derive(target, k.body, rules)
    for s in steps:
        k = apply_step(k, rules, s)
    assert k.body is target
    level = "grid" if gpu else "core" if c.cost.m.cores > 1 else ""
    tail = [Step("place", p.path, {"level": p.place}) for p in placements(plan, c.space, c.cost, target, level, c.seconds)]
    tail += [Step("layout", (), {"T": t, "order": tuple(I(x) for x in order)}) for t, order in sorted(layouts(c.entry, c.space).items())]
    tail += [Step("panel", (), {"T": t, "width": I(w)}) for t, w in widths.items()]
    if gpu:
        bounds = admitted(plan, c.space, c.cost.m, c.tiles, c.cost.m.shared)
        tail += [Step("admit", (), {"c": Term("le", size(n), I(v))}) for n, v in bounds.items()]
    for s in tail:
        k = apply_step(k, rules, s)
    if "skip" in rules:
        for s in skips(k):
            k = apply_step(k, rules, s)
            tail.append(s)
    k, parts = numa.split(k, rules, 1 if gpu else c.cost.m.domains, c.cost.m.cores, c.space.problem.sizes)
    return k, [*origin, *steps, *tail, *parts]
