"""Expansion of the composite monoid of online softmax into plain statements.

A group of emissions ``emit("osm", X, ix, pair(s, x))`` with the same s becomes, for a tile of the reduction:

    mt = max over the tile of s          M  the running maximum, a hidden stage that lives as long as X, keyed by the key axes in s, and by those
                                            that are not but whose loops lie around the tile: each of their iterations rescales cells of its own
    mn = max(M, mt); sh = mn, or 0 where mn = -inf; al = exp(M - sh); M = mn
    X *= al                              once for each X of the group ("rescale")
    P = exp(s - sh)                      once, shared by the group; kept in the buffer of s when s is a stage read nowhere else
    X += P * x

Where the tile is the whole reduction there is no running maximum and nothing to rescale.
A row whose s are all -inf gives 0: sh = 0 there, so no inf - inf arises. The tile is the largest statement around the group that holds
no other statement and no key loop outside its reductions except unroll and simd loops.
Source of the recurrence: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as with_fields

from ..terms import Kernel, Path, Stage, Term, at, axis, free_axes, get, ix, num, positions, put, reads, seq, subterms
from . import numa
from .prepare import nest, types_of
from .storage import loop_extents, span, split, whole_extent
from .types import dtype


@dataclass(frozen=True)
class Group:
    s: Term
    keys: frozenset[str]  # base axes of s that are key axes of the emissions
    where: tuple[Path, ...]  # positions of the emissions


def expand_osm(kernel: Kernel) -> tuple[Kernel, list[str]]:
    """The kernel without osm emissions, and one line per group expanded."""
    lines: list[str] = []
    while True:
        group = _first_group(kernel)
        if group is None:
            stages = tuple(with_fields(s, monoid="add") if s.monoid == "osm" else s for s in kernel.stages)
            return with_fields(kernel, stages=stages), lines
        kernel, line = _Expand(kernel, group).run()
        lines.append(line)


def shifted(kernel: Kernel) -> tuple[Kernel, list[str]]:
    """``exp(e - S)`` as ``expn`` where S is the maximum of that e over an axis of it, so that e - S <= 0 but for rounding; and one line for each S.

    That is so where all emissions to S give it e, under no guard: the loops of both have the same axes, and an axis has one extent.
    """
    values: dict[str, set[Term | None]] = {}

    def collect(t: Term, guarded: bool) -> None:
        if t.op == "emit" and t.args[0] in ("max", "qmax"):
            stage = next((s for s in kernel.stages if s.name == t.args[1]), None)
            plain = stage is not None and not guarded and t.args[2] is ix(*map(axis, stage.axes))
            values.setdefault(str(t.args[1]), set()).add(t.args[3] if plain else None)  # type: ignore[arg-type]
        for a in t.kids():
            if _is_statement(a):
                collect(a, guarded or t.op == "guard")

    collect(kernel.body, False)
    tops = {get(s.name, *map(axis, s.axes)): e for s in kernel.stages if len(found := values.get(s.name, set())) == 1 and (e := next(iter(found))) is not None}
    lines: dict[str, None] = {}

    def walk(t: Term) -> Term:
        if t.op == "exp" and (d := t.kids()[0]).op == "sub" and tops.get(d.kids()[1]) is d.kids()[0]:
            lines[f"exp({d}) of nothing above 0"] = None
            return Term("expn", d.map(walk))
        return t.map(walk)

    return kernel.with_body(walk(kernel.body)), list(lines)


def _is_statement(t: Term) -> bool:
    return t.op in ("for", "emit", "seq", "new", "guard", "skip")


def _chain_root(body: Term, p: Path) -> Path:
    """The outermost position reached from p through ``for`` parents alone."""
    while p and at(body, p[:-1]).op == "for":
        p = p[:-1]
    return p


def _sequence(body: Term, p: Path) -> Path:
    """The outermost ``seq`` node of the right-nested sequence that the statement at p is an item of; p itself if none."""
    while p and at(body, p[:-1]).op == "seq":
        p = p[:-1]
    return p


def _first_group(k: Kernel) -> Group | None:
    body = k.body
    found = [(p, t) for p, t in positions(body) if t.op == "emit" and t.args[0] == "osm"]
    if not found:
        return None

    def sort(p: Path, t: Term) -> tuple[Term, frozenset[str], Path]:
        s = t.args[3].args[0]  # type: ignore[union-attr]
        at_keys = k.base_axes(free_axes(t.args[2]))  # type: ignore[arg-type]
        return s, k.base_axes(free_axes(s)) & at_keys, _sequence(body, _chain_root(body, p))  # type: ignore[arg-type, return-value]

    first = sort(*found[0])
    return Group(first[0], first[1], tuple(p for p, t in found if sort(p, t) == first))


class _Expand:
    def __init__(self, kernel: Kernel, group: Group) -> None:
        self.k, self.g = kernel, group
        self.types = types_of(kernel)
        self.dtype = dtype(group.s, self.types)
        self.extents = loop_extents(kernel.body, kernel) | numa.extents(kernel)
        self.made: list[Stage] = []

    def run(self) -> tuple[Kernel, str]:
        body, g = self.k.body, self.g
        served = {str(at(body, p).args[1]) for p in g.where}
        if any(t.op == "emit" and t.args[:2] == ("osm", x) and p not in g.where for x in served for p, t in positions(body)):
            raise ValueError(f"{', '.join(sorted(served))}: contributions in two places have no running maximum in common")
        top = self._tile()
        tile = at(body, top)
        rel = [p[len(top) :] for p in g.where]
        chain = self._chain(tile, rel)
        s_axes = self.k.base_axes(free_axes(g.s))
        named = sorted(free_axes(g.s), key=lambda a: self._order(a))
        s_loops = [f for f in chain if self._over(f, s_axes)]
        key_loops = self._across([f for f in s_loops if self._over(f, g.keys)], [a for a in named if self.k.base_axes(frozenset([a])) <= g.keys])
        s_loops = self._across(s_loops, named)

        key_axes = [a for a in named if self.k.base_axes(frozenset([a])) <= g.keys]
        names = sorted({str(at(tile, r).args[1]) for r in rel})
        whole = self._whole(top, names)
        mt, sh = self._stage("m_tile", key_axes), self._stage("shift", key_axes)

        def cell(t: str) -> Term:
            return get(t, *map(axis, key_axes))

        def put_once(t: str, e: Term, how: str = "once") -> Term:
            return Term("emit", how, t, ix(*map(axis, key_axes)), e)

        prob = Term("expn", Term("sub", g.s, cell(sh)))
        steps = [nest(s_loops, put_once(mt, g.s, "qmax"))]
        opened = [mt, sh]

        def shift_by(top_cell: Term) -> Term:
            return put_once(sh, Term("select", Term("eq", top_cell, num("-inf")), num("0.0"), top_cell))

        if whole:
            steps.append(nest(key_loops, shift_by(cell(mt))))
        else:
            scope = self._scope(top, names)
            around = self._around(scope, top)
            m, mn, al = self._stage("m_run", [*around, *key_axes]), self._stage("m_new", key_axes), self._stage("alpha", key_axes)
            opened += [mn, al]
            run_ix = ix(*map(axis, [*around, *key_axes]))
            running = Term("get", m, run_ix)
            new_top = put_once(mn, Term("qmax", running, cell(mt)))
            scale = put_once(al, Term("expn", Term("sub", running, cell(sh))))
            steps.append(nest(key_loops, seq(new_top, shift_by(cell(mn)), scale, Term("emit", "assign", m, run_ix, cell(mn)))))
            for name in names:
                r = next(r for r in rel if at(tile, r).args[1] == name)
                cells: Term = at(tile, r).args[2]  # type: ignore[assignment]
                axes = self.k.base_axes(free_axes(cells))
                steps.append(nest([f for f in self._loops_to(tile, r) if self._over(f, axes)], Term("emit", "rescale", name, cells, cell(al))))
        once_each = len(rel) == 1 and all(self._over(f, s_axes) for f in self._loops_to(tile, rel[0]))
        own = self._own_stage(top)
        if once_each:
            how = "inline"
        elif own:
            how = f"in {own}"
            steps.append(nest(s_loops, Term("emit", "once", own, g.s.args[1], prob)))
            prob = g.s
        else:
            p_axes = named
            p = self._stage("prob", p_axes)
            how = f"in {p}"
            opened.append(p)
            steps.append(nest(s_loops, Term("emit", "once", p, ix(*map(axis, p_axes)), prob)))
            prob = get(p, *map(axis, p_axes))
        for r in rel:
            _, x, where, e = at(tile, r).args
            value = e.args[1]  # type: ignore[union-attr]
            one = isinstance(value, Term) and value.op in ("num", "int") and float(value.args[0]) == 1.0  # type: ignore[arg-type]
            tile = put(tile, r, Term("emit", "add", x, where, prob if one else Term("mul", prob, value)))  # type: ignore[arg-type]
        new_tile = seq(*steps, tile)
        for t in reversed(opened):
            new_tile = Term("new", t, new_tile)
        body = put(body, top, new_tile)
        if not whole:
            body = put(body, scope, Term("new", m, at(body, scope)))
        line = f"{', '.join(names)}: {f'maximum {mt}' if whole else f'running maximum {m}'} over {g.s}, probabilities {how}"
        return with_fields(self.k, body=body, stages=(*self.k.stages, *self.made)), line

    def _around(self, scope: Path, top: Path) -> list[str]:
        """Axes of the loops between the running maximum and the tile that s does not depend on: each of their iterations rescales cells of its own."""
        keys = self._all_keys() - self.g.keys
        return [str(u.args[0]) for n in range(len(scope), len(top)) if (u := at(self.k.body, top[:n])).op == "for" and self._over(u, keys)]

    def _tile(self) -> Path:
        """The statement B that the group's tile is."""
        body, where = self.k.body, self.g.where
        if len(where) == 1:
            (p,) = where
        else:
            p = _common(where)
            while at(body, p).op not in ("seq",) and p:  # the smallest sequence that holds all
                p = p[:-1]
            # the part of a right-nested sequence from the first to the last emission: the tail from p is a seq; others behind stay in the tile
        best, q = p, p
        while q and at(body, q[:-1]).op == "for":
            q = q[:-1]
            f = at(body, q)
            if not self._over(f, self._all_keys()) or f.args[2] in ("unroll", "simd", "block"):
                best = q
        names = sorted({str(at(body, p).args[1]) for p in where})
        keys = self._all_keys() - self.g.keys
        # loops of other keys around a tile that is a part of the reduction: its maximum and its probabilities serve all their iterations
        while best and (f := at(body, best[:-1])).op == "for" and f.args[2] == "seq" and self._over(f, keys) and not self._whole(best, names):
            best = best[:-1]
        return best

    def _over(self, loop: Term, axes: frozenset[str]) -> bool:
        """Whether a loop runs over one of the base axes; a loop over a lifted axis runs over its parts."""
        return bool(self.k.base_axes(frozenset([str(loop.args[0])])) & axes)

    def _all_keys(self) -> frozenset[str]:
        t = at(self.k.body, self.g.where[0])
        return self.k.base_axes(free_axes(t.args[2]))  # type: ignore[arg-type]

    def _loops_to(self, t: Term, p: Path) -> list[Term]:
        """The loops between the root of t and position p, outermost first."""
        return [u for n in range(len(p)) if (u := at(t, p[:n])).op == "for"]

    def _chain(self, tile: Term, rel: list[Path]) -> list[Term]:
        """The loops of the first emission; those of s among them place the nests that are added."""
        return self._loops_to(tile, rel[0])

    def _across(self, loops: list[Term], axes: list[str]) -> list[Term]:
        """Loops for a value per point of ``axes`` (the last is contiguous) instead of those of a weighted sum: the last axis in one piece and on lanes."""
        if not axes or any(f.args[2] not in ("seq", "unroll", "simd") for f in loops):
            return loops
        last = self.k.base_axes(frozenset(axes[-1:]))
        rest = [Term("for", f.args[0], f.args[1], "seq", Term("skip")) for f in loops if not self._over(f, last)]
        mine = [Term("for", f.args[0], f.args[1], "seq", Term("skip")) for f in loops if self._over(f, last)]
        panels = any(s.panel and s.name in reads(self.g.s) for s in self.k.stages)
        for a, d in reversed(self.k.defs) if not panels else ():
            pair = [f for f in mine if (s := split(d)) and f.args[0] in (s[0], s[2])]
            if len(pair) == 2 and (s := split(d)):
                extent = whole_extent(pair[0].args[1], pair[1].args[1], s[0], s[1])  # type: ignore[arg-type]
                if extent is not None:
                    mine = [f for f in mine if f not in pair] + [Term("for", a, extent, "seq", Term("skip"))]
        if not mine or any(self.k.base_axes(free_axes(f.args[1])) & last for f in rest):  # type: ignore[arg-type]
            return loops
        lanes = mine[-1]
        return [*rest, *mine[:-1], Term("for", lanes.args[0], lanes.args[1], "simd", Term("skip"))]

    def _order(self, a: str) -> tuple[int, str]:
        """The axis last that is contiguous in the stage that the scores are read from; else axes on SIMD lanes."""
        for t in subterms(self.g.s):
            stage = next((s for s in self.k.stages if t.op == "get" and s.name == t.args[0] and s.axes), None)
            if stage is not None and (at_end := stage.axes[stage.layout[-1] if stage.layout else -1]) in free_axes(self.g.s):
                return int(a == at_end), a
        simd = self.k.base_axes(frozenset(str(f.args[0]) for _, f in positions(self.k.body) if f.op == "for" and f.args[2] == "simd"))
        return (1 if self.k.base_axes(frozenset([a])) & simd else 0), a

    def _stage(self, base: str, axes: list[str]) -> str:
        taken = {*self.types, *(s.name for s in self.made)}
        n = 0
        while f"{base}{n}" in taken:
            n += 1
        name = f"{base}{n}"
        shape = tuple(span(self.k, a, self.extents) for a in axes)
        monoid = "max" if base.startswith("m_") else "add"
        self.made.append(Stage(name, self.dtype, tuple(axes), shape, monoid, self.g.s))
        return name

    def _own_stage(self, top: Path) -> str | None:
        """The stage whose buffer can take the probabilities: s reads exactly it, nothing else does, and it is refilled before each tile."""
        s, body = self.g.s, self.k.body
        if s.op != "get" or not any(t.name == s.args[0] for t in self.k.stages):
            return None
        stage = self.k.stage(str(s.args[0]))
        if tuple(s.args[1].args) != tuple(map(axis, stage.axes)):  # type: ignore[union-attr]
            return None
        users = [p for p, t in positions(body) if t.op == "emit" and stage.name in reads(t)]
        if sorted(users) != sorted(self.g.where) or any(stage.name in reads(t.args[3].args[1]) for t in (at(body, p) for p in users)):  # type: ignore
            return None
        for n in range(len(top) - 1, -1, -1):
            u = at(body, top[:n])
            if u.op == "new" and u.args[0] == stage.name:
                return stage.name
            if u.op == "for":
                return None
        return None

    def _whole(self, top: Path, names: list[str]) -> bool:
        """Whether the tile is the whole reduction, so that no maximum runs on: nothing else is added to the cells of what it serves."""
        body, keys = self.k.body, self._all_keys()
        if any(t.op == "emit" and t.args[0] == "osm" and t.args[1] in names and p not in self.g.where for p, t in positions(body)):
            return False
        births = {str(u.args[0]): n for n in range(len(top)) if (u := at(body, top[:n])).op == "new"}
        start = min(births.get(x, 0) for x in names)
        return all(self._over(u, keys) for n in range(start, len(top)) if (u := at(body, top[:n])).op == "for")

    def _scope(self, top: Path, names: list[str]) -> Path:
        """Where the running maximum opens: outside the group's reduction loops, inside the storage of what it serves."""
        body = self.k.body
        start = max((n + 1 for n in range(len(top)) if at(body, top[:n]).op == "new" and at(body, top[:n]).args[0] in names), default=0)
        path = top[:start]
        keys = self._all_keys()
        for n in range(start, len(top)):
            u = at(body, top[:n])
            if u.op == "for" and not self._over(u, keys):
                return top[:n]
            path = top[: n + 1]
        return path


def _common(paths: tuple[Path, ...]) -> Path:
    n = 0
    while all(len(p) > n for p in paths) and len({p[n] for p in paths}) == 1:
        n += 1
    return paths[0][:n]
