"""All loop structures of a materialised kernel in one e-graph: lift, interchange, fusion, re-association, compiled from the rules.

``new`` is left out of the graph: storage opens at the innermost sequence that holds all users of a stage, which extraction knows; the scope rules
appear again in the derivation. Batch axes are left out too: they stay outermost, fused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..rules import Rule, RuleSet
from ..terms import I, Term, size
from .cost import LoopAxis
from .egraph import Graph, Report
from .form import nests
from .problem import Problem

# the laws that extraction and the derivation know how to use, and in which directions they search
LAWS = {"interchange": (True,), "fission": (False,), "assoc": (True, False)}


def lifting_law(rules: RuleSet) -> Rule | None:
    """The rule that lifts an axis: `lift`, or else the first that replaces a loop by two and defines the old axis by the new ones."""
    found = [r for r in rules.values() if r.define and r.params == ("T",) and r.lhs is not None and r.lhs.op == "for"]
    return next((r for r in found if r.name == "lift"), found[0] if found else None)


@dataclass(frozen=True)
class Lift:
    """One allowed lifting: axis -> axis.o, axis.i by the tile size named ``axis.T``."""

    axis: str

    @property
    def tile(self) -> str:
        return f"{self.axis}.T"


@dataclass
class Space:
    """The saturated graph, frozen: class -> nodes, restricted to statements."""

    problem: Problem
    batch: list[str]
    lifts: list[Lift]
    nodes: dict[int, list[tuple]]
    root: int
    extents: dict[str, Term]
    leaf_of: dict[int, int]
    report: Report
    origin: list = field(default_factory=list)  # steps from the form to the materialised kernel


def choose_lifts(p: Problem, model: Any, batch: list[str], depth: int) -> list[Lift]:
    """Which axes may be tiled, and how often: twice where a cache tile and a register tile both make sense, within a budget of loops per leaf."""
    lanes = max(2, model.simd_bytes // 8)
    out: list[Lift] = []
    axes = [a for a in p.extents if a not in batch]
    for a in axes:
        if p.extent_terms[a].op not in ("int", "size", "add", "sub", "mul", "idiv"):
            continue  # an extent that depends on another axis (a scan) is not tiled
        if p.extents[a] >= lanes:
            out.append(Lift(a))
    budget = depth - max(sum(1 for a in x.axes if a not in batch) + sum(1 for v in out if v.axis in x.axes) for x in p.leaves)
    for a in sorted(axes, key=lambda a: -p.extents[a]):
        if budget <= 0:
            break
        if p.extents[a] >= 128 and Lift(a) in out and _reused(p, a):
            out.append(Lift(f"{a}.i"))
            budget -= 1
    return out


def _reused(p: Problem, axis: str) -> bool:
    """Some access of a leaf that runs over the axis does not depend on it: a tile of it can be kept."""
    return any(axis in x.axes and any(axis not in r.roots for r in x.reads) for x in p.leaves)


def saturate(p: Problem, rules: RuleSet, model: Any, depth: int, nodes: int) -> Space:
    batch = p.batch(model.caps[0] / 4)
    if all(a in batch for x in p.leaves for a in x.axes):  # keep one axis for SIMD
        batch = batch[:-1]
    lift = lifting_law(rules)
    lifts = choose_lifts(p, model, batch, depth) if lift is not None else []
    names = list(p.extents)
    for v in lifts:
        names += [f"{v.axis}.o", f"{v.axis}.i"]
    bit = {n: 1 << k for k, n in enumerate(names)}
    if len(bit) > 60:
        raise OverflowError("more than 60 axes")
    abits = {n: sum(b for m, b in bit.items() if m == n or m.startswith(n + ".")) for n in names}
    arrays = {a: 1 << k for k, a in enumerate(p.arrays)}
    keyed = {n: sum(arrays[x] for x in p.keyed(n.split(".")[0])) for n in names}
    g = Graph(abits, arrays, keyed)
    leaves = []
    for k, (_, fors, _, _) in enumerate(nests(p.kernel.body)):
        t = p.leaves[k].term
        g.add(t, f"leaf{k}")
        for f in reversed([f for f in fors if f.args[0] in p.leaves[k].axes and f.args[0] not in batch]):
            t = Term("for", f.args[0], f.args[1], "seq", t)
        leaves.append(t)
    root = leaves[-1]
    for t in reversed(leaves[:-1]):
        root = Term("seq", t, root)
    g.add(root, "root")
    for name, directions in LAWS.items():
        if name in rules:
            g.add_rule(rules[name], directions)
    if lift is not None:
        g.add_rule(lift)
        loop = str(lift.lhs.args[0]).lstrip("?")  # type: ignore[union-attr]
        for v in lifts:
            g.param(lift, {loop: v.axis}, {"T": size(v.tile)})
    report = g.run(nodes)
    found = g.classes()
    leaf_of = {g.class_of(f"leaf{k}"): k for k in range(len(leaves))}
    small = _smallest(found)
    extents = {str(n[1]): small[n[2][0]] for ns in found.values() for n in ns if n[0] == "for"}
    statements = {c: [n for n in ns if n[0] in ("for", "seq", "emit")] for c, ns in found.items()}
    return Space(p, batch, lifts, {c: ns for c, ns in statements.items() if ns}, g.class_of("root"), extents, leaf_of, report)


def _smallest(classes: dict[int, list[tuple]]) -> dict[int, Term]:
    """A smallest term of every class of scalars (extents)."""
    best: dict[int, tuple[int, Term]] = {}
    changed = True
    while changed:
        changed = False
        for c, ns in classes.items():
            for op, *kids in ns:
                if op in ("for", "seq", "emit", "new", "guard", "nil", "cons", "get"):
                    continue
                if not all(not isinstance(k, tuple) or k[0] in best for k in kids):
                    continue
                t = Term(op, *[best[k[0]][1] if isinstance(k, tuple) else k for k in kids])
                w = 1 + sum(best[k[0]][0] for k in kids if isinstance(k, tuple))
                if c not in best or w < best[c][0]:
                    best[c] = (w, t)
                    changed = True
    return {c: t for c, (_, t) in best.items()}


def loop_axes(space: Space, tiles: dict[str, int]) -> dict[str, LoopAxis]:
    """Mean trip counts of all loops for given tile sizes, and how much of an axis falls into partial tiles."""
    p = space.problem
    pieces: dict[str, list[tuple[int, int]]] = {a: [(n, 1)] for a, n in p.extents.items()}  # (length, how many) of the runs of a loop
    out = {a: LoopAxis(a, float(n)) for a, n in p.extents.items()}
    for v in space.lifts:
        parent, t = out[v.axis], tiles[v.tile]
        inner: dict[int, int] = {}
        for length, count in pieces[v.axis]:
            for size_, many in ((t, length // t), (length % t, 1)):
                if size_ and many:
                    inner[size_] = inner.get(size_, 0) + many * count
        runs, total = sum(inner.values()), sum(k * n for k, n in inner.items())
        outer = sum(n for _, n in pieces[v.axis])
        pieces[f"{v.axis}.i"] = sorted(inner.items(), reverse=True)
        out[f"{v.axis}.o"] = LoopAxis(parent.root, runs / outer, even=total / max(inner, default=1) / outer)
        full = t if t in inner else None
        out[f"{v.axis}.i"] = LoopAxis(parent.root, total / runs, full, 1.0 - t * inner.get(t, 0) / total)
    return out


def with_tiles(t: Term, tiles: dict[str, int]) -> Term:
    """Tile names replaced by their sizes."""
    if t.op == "size" and t.args[0] in tiles:
        return I(tiles[str(t.args[0])])
    return t.map(lambda a: with_tiles(a, tiles))
