"""From an extracted plan to statement terms: the unplaced ONF, and the placements and layouts that follow as steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..rules import Step
from ..rules.masks import idle_unless
from ..terms import Kernel, Path, Term, free_axes, subterms
from .cost import Cost, Entry
from .structure import Space, with_tiles

FEW = 0.75  # a share of busy cores below which parallel loops are looked for further in
WORTH = 8.0  # starts of a parallel region that it must last


def statement(plan: tuple, space: Space, tiles: dict[str, int]) -> Term:
    """The ONF without placement; batch loops outermost, each stage's storage opened at the sequence that holds all its users."""
    leaves = space.problem.leaves

    def build(p: tuple) -> Term:
        if p[0] == "leaf":
            return leaves[p[1]].term
        if p[0] == "for":
            return Term("for", p[1], with_tiles(space.extents[p[1]], tiles), "seq", build(p[3]))
        t = Term("seq", build(p[1]), build(p[2]))
        for s in sorted(p[3], reverse=True):
            t = Term("new", s, t)
        return t

    t = build(plan)
    for a in reversed(space.batch):
        t = Term("for", a, space.problem.extent_terms[a], "seq", t)
    return t


def right_nested(p: tuple) -> tuple:
    """The plan with its sequences nested to the right, as the materialised form has them; a sequence that opens storage stays one item."""
    if p[0] == "for":
        return (*p[:3], right_nested(p[3]))
    if p[0] == "seq":
        a, b, shut = p[1:]
        if a[0] == "seq" and not a[3]:
            return right_nested(("seq", a[1], ("seq", a[2], b, ()), shut))
        return ("seq", right_nested(a), right_nested(b), shut)
    return p


def gathered(p: tuple) -> tuple:
    """The plan with all storage of a sequence opened at its start, so that lowering sees what its parts share: one run of statements."""
    if p[0] == "leaf":
        return p
    if p[0] == "for":
        return (*p[:3], gathered(p[3]))
    items, opened = _items(p)
    out = items[-1]
    for n, item in enumerate(reversed(items[:-1])):
        out = ("seq", item, out, tuple(opened) if n == len(items) - 2 else ())
    return out


def _items(p: tuple) -> tuple[list[tuple], list[str]]:
    if p[0] != "seq":
        return [gathered(p)], []
    (a, x), (b, y) = _items(p[1]), _items(p[2])
    return [*a, *b], [*p[3], *x, *y]


@dataclass(frozen=True)
class Placement:
    path: Path
    place: str


def placements(plan: tuple, space: Space, cost: Cost, t: Term, level: str, seconds: float) -> list[Placement]:
    """Placement of every loop that does not stay sequential, outermost first. ``level`` ("core", "grid" or "") takes the outermost loops that own
    their writes, of a plan that is predicted to take ``seconds``."""
    inner = list(_inner(plan, t, len(space.batch), space))
    taken = {p.path for p in inner}
    outer = [p for p in _owners(t, cost, (), level, seconds) if p.path not in taken] if level else []
    return sorted([*outer, *inner], key=lambda x: (len(x.path), x.path))


def _inner(plan: tuple, t: Term, batch: int, space: Space) -> Iterator[Placement]:
    path: Path = ()
    for _ in range(batch):
        path, t = (*path, 3), t.args[3]  # type: ignore[assignment]

    def walk(p: tuple, u: Term, path: Path) -> Iterator[Placement]:
        while u.op == "new":
            path, u = (*path, 1), u.args[1]  # type: ignore[assignment]
        if p[0] == "for":
            if p[2] != "seq":
                yield Placement(path, p[2])
            yield from walk(p[3], u.args[3], (*path, 3))  # type: ignore[arg-type]
        elif p[0] == "seq":
            yield from walk(p[1], u.args[0], (*path, 0))  # type: ignore[arg-type]
            yield from walk(p[2], u.args[1], (*path, 1))  # type: ignore[arg-type]

    yield from walk(plan, t, path)


def _owners(t: Term, cost: Cost, path: Path, level: str, seconds: float) -> list[Placement]:
    """The outermost loops whose iterations own all they write, collapsed until there are several iterations per core; those further in where that leaves
    cores idle and each parallel region is still long enough to be worth its start."""
    if t.op == "new":
        return _owners(t.args[1], cost, (*path, 1), level, seconds)  # type: ignore[arg-type]
    if t.op == "seq":
        return [p for k in (0, 1) for p in _owners(t.args[k], cost, (*path, k), level, seconds)]  # type: ignore[arg-type]
    out: list[Placement] = []
    trips = 1.0
    names: set[str] = set()
    while t.op == "for" and owned(t, cost) and not (free_axes(t.args[1]) & names) and trips < 4 * cost.m.cores:  # type: ignore[arg-type]
        name = str(t.args[0])
        out.append(Placement(path, level))
        trips *= cost.axes[name].trips
        names.add(name)
        path, t = (*path, 3), t.args[3]  # type: ignore[assignment]
    if level == "core" and trips < FEW * cost.m.cores * math.ceil(trips / cost.m.cores):
        while t.op == "for" and t.args[2] == "seq" and not owned(t, cost):  # a sum: its iterations follow each other, those inside need not
            trips *= cost.axes[str(t.args[0])].trips
            path, t = (*path, 3), t.args[3]  # type: ignore[assignment]
        inner = _owners(t, cost, path, level, seconds / trips) if t.op in ("for", "new", "seq") else []
        if inner and seconds / trips > WORTH * len(inner) * cost.m.fork_cycles / cost.m.clock:
            return inner
    return out


def owned(loop: Term, cost: Cost) -> bool:
    """Every array that outlives an iteration and is written in it is keyed by the loop's axis."""
    own = cost.owners[cost.axes[str(loop.args[0])].root]
    return all(x in own for x in _outliving(loop.args[3]))  # type: ignore[arg-type]


def _outliving(t: Term) -> frozenset[str]:
    if t.op == "emit":
        return frozenset([str(t.args[1])])
    out: frozenset[str] = frozenset().union(*[_outliving(a) for a in t.kids() if a.op in ("for", "seq", "new", "emit", "guard")])
    return out - {str(t.args[0])} if t.op == "new" else out


def skips(kernel: Kernel) -> list[Step]:
    """Tiles that masks leave idle: one ``skip`` below each outermost sequential loop whose own axis the masks speak of, innermost positions first."""
    out: list[Step] = []

    def walk(t: Term, path: Path, around: frozenset[str]) -> None:
        if t.op == "for":
            name, inside = str(t.args[0]), around | {str(t.args[0])}
            body: Term = t.args[3]  # type: ignore[assignment]
            c = idle_unless(kernel, body, inside) if t.args[2] == "seq" and body.op != "emit" else None
            if c is not None and name in free_axes(c) and not (".o" not in name and _sums_pairs(body)):
                out.append(Step("skip", (*path, 3), {"c": c}))
                return
            walk(body, (*path, 3), inside)
        elif t.op in ("seq", "new", "guard"):
            for n, a in enumerate(t.args):
                if isinstance(a, Term) and a.op in ("for", "seq", "new", "guard"):
                    walk(a, (*path, n), around)

    walk(kernel.body, (), frozenset())
    return out[::-1]


def _sums_pairs(t: Term) -> bool:
    """Whether a statement adds pairs to a weighted sum: cut at every index of a plain loop, the sum would be rescaled at every index."""
    return any(u.op == "emit" and u.args[0] == "osm" for u in subterms(t))


def layouts(entry: Entry, space: Space) -> dict[str, tuple[int, ...]]:
    """Stage -> storage order that puts its contiguous axis last, where that differs from index order."""
    out = {}
    for name, root in entry.layout:
        axes = space.problem.kernel.stage(name).axes
        if root in axes and axes[-1] != root:
            k = axes.index(root)
            out[name] = (*[j for j in range(len(axes)) if j != k], k)
    return out


def panelled(plan: tuple, cost: Cost, layout: tuple[tuple[str, str], ...]) -> tuple[tuple, dict[str, int]]:
    """The plan with the lanes of users of panels as wide as these, and the widths: a stage is stored in panels where all its users run over its
    contiguous axis in lanes of one constant width (what fills it may use longer ones, which are cut into these), and its storage is wider."""
    out: dict[str, int] = {}
    for stage, root in sorted(layout):
        lanes = {leaf: loops[-1][0] for leaf, loops in leaves(plan) if loops and loops[-1][1] == "simd"}
        key = next(x.key for x in cost.p.leaves if x.target == stage)
        users = [k for k, x in enumerate(cost.p.leaves) if cost.p.users[stage] >> k & 1 and root in x.axes]
        if len(key) < 2 or not users or any(k not in lanes or cost.axes[lanes[k]].root != root for k in users):
            continue
        axis = max((lanes[k] for k in users), key=len)
        width, inside = cost.axes[axis].const, _where_opened(plan, stage)
        wider = frozenset(k for k in users if lanes[k] != axis)
        if width is None or inside is None or any(lanes[k] != axis.removesuffix(".i") or cost.p.leaves[k].target != stage for k in wider):
            continue
        loops_inside = {a for _, loops in leaves(inside) for a, _ in loops}
        if sum(any(cost.axes[a].root == r for a in loops_inside) for r in key) > 1 and {a for a in loops_inside if cost.axes[a].root == root} - {axis}:
            plan = _narrowed(plan, wider, axis)
            out[stage] = width
    return plan, out


def _narrowed(plan: tuple, users: frozenset[int], axis: str) -> tuple:
    """The plan with the lanes of some leaves cut into those of ``axis``."""
    if plan[0] == "leaf":
        return plan
    if plan[0] == "for":
        body = _narrowed(plan[3], users, axis)
        if plan[2] == "simd" and body[0] == "leaf" and body[1] in users:
            return ("for", axis.removesuffix(".i") + ".o", "seq", ("for", axis, "simd", body))
        return (*plan[:3], body)
    return ("seq", _narrowed(plan[1], users, axis), _narrowed(plan[2], users, axis), plan[3])


def leaves(plan: tuple, around: tuple[tuple[str, str], ...] = ()) -> Iterator[tuple[int, tuple[tuple[str, str], ...]]]:
    """Every leaf of a plan with the loops around it and their places, outermost first."""
    if plan[0] == "leaf":
        yield plan[1], around
    elif plan[0] == "for":
        yield from leaves(plan[3], (*around, (plan[1], plan[2])))
    else:
        yield from leaves(plan[1], around)
        yield from leaves(plan[2], around)


def _where_opened(plan: tuple, stage: str) -> tuple | None:
    if plan[0] == "leaf":
        return None
    if plan[0] == "for":
        return _where_opened(plan[3], stage)
    return plan if stage in plan[3] else _where_opened(plan[1], stage) or _where_opened(plan[2], stage)
