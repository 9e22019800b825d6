"""Nests that only move elements, row by row.

    rows     a perfect nest that stores every element of a row once, and reads along it contiguously or not at all, gains nothing from tiles of the row: its
             loops over parts of the row become one, innermost
    fission  a loop over pieces of a row whose body is one such nest after another becomes a loop for each
    fuse     two neighbouring loops over the same axis become one where the second, at each of its iterations, needs of the first only what the same
             iteration made; so a row is still in the nearest cache when it is written

All three change only the order of independent iterations. They are for rows longer than any tile: with short rows, constant trip counts pay.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..terms import I, Kernel, Term, axis, free_axes, reads, seq, subterms, writes
from ..terms.ops import MONOIDS
from .fold import bounded, steps_by_one
from .prepare import emissions, items, nest
from .storage import ceil_div, split, whole_extent

Loops = tuple[Term, ...]


def rows(kernel: Kernel) -> tuple[Term, list[tuple[str, str]]]:
    """The body in such a form, and notes, (rule, text)."""
    r = _Rows(kernel)
    return r.walk(kernel.body), list(r.notes)


def chain(t: Term) -> tuple[Loops, Term] | None:
    """The loops of a perfect nest down to one emission, and that emission."""
    out = []
    while t.op == "for":
        out.append(t)
        t = t.args[3]  # type: ignore[assignment]
    return (tuple(out), t) if t.op == "emit" else None


class _Rows:
    def __init__(self, kernel: Kernel) -> None:
        self.k = kernel
        self.outputs = {a.name for a in kernel.outputs}
        self.stages = {s.name: s for s in kernel.stages}
        self.notes: dict[tuple[str, str], None] = {}

    def walk(self, t: Term) -> Term:
        if t.op not in ("for", "seq", "new", "guard"):
            return t
        found = chain(t)
        if found:
            return self.row_form(*found) or t
        if t.op == "for" and (parts := self.parts(t)):
            return self.walk(seq(*parts))
        if t.op == "seq":
            return seq(*self.fused([self.walk(s) for s in items(t)]))
        return t.map(lambda a: self.walk(a) if a.op in ("for", "seq", "new", "guard") else a)

    def bases(self, names: frozenset[str]) -> frozenset[str]:
        return self.k.base_axes(names)

    # --- rows ---

    def row_form(self, loops: Loops, e: Term) -> Term | None:
        """The nest with the loops over its row joined and innermost; None where there is no such row, or it is so already."""
        _, x, at, value = e.args
        assert isinstance(at, Term) and isinstance(value, Term)
        row = self.row_of(loops, e)
        if row is None:
            return None
        parts = self.bases(frozenset([row]))
        inner = tuple(f for f in loops if self.bases(frozenset([str(f.args[0])])) & parts)
        outer = tuple(f for f in loops if f not in inner)
        if self.bases(frozenset(str(f.args[0]) for f in inner)) != parts or any(f.args[2] not in ("seq", "unroll", "simd") for f in inner):
            return None
        if any(self.bases(free_axes(f.args[1])) & parts for f in outer):  # type: ignore[arg-type]
            return None
        extent = self.whole(row, {str(f.args[0]): f.args[1] for f in inner})  # type: ignore[misc]
        if extent is None or self.named(free_axes(at) | free_axes(value), row) & (parts - {row}) or not self.along(e, row, parts):
            return None
        joined = Term("for", row, extent, "simd", e)
        out = nest(tuple(Term("for", *f.args[:2], "seq" if f.args[2] == "unroll" else f.args[2], f.args[3]) for f in outer), joined)
        if len(inner) == 1 and loops[-1] is inner[0] and inner[0].args[2] == "simd":
            return None
        self.notes["rows", f"{x}: {', '.join(str(f.args[0]) for f in inner)} as {row}, innermost"] = None
        return out

    def row_of(self, loops: Loops, e: Term) -> str | None:
        """The axis that a nest's rows run along: the last axis of what it stores, or what alone it sums over."""
        m, x, at, _ = e.args
        if m == "once":
            stage = self.stages.get(str(x))
            last = at.args[stage.layout[-1] if stage and stage.layout else -1] if at.args else None  # type: ignore[union-attr]
            if (stage and stage.panel) or not isinstance(last, Term) or last.op != "axis":
                return None
            row = str(last.args[0])
            return row if stage is None or stage.axes[stage.layout[-1] if stage.layout else -1] == row else None
        if MONOIDS.get(str(m)) is None or loops[-1].args[2] != "simd":
            return None
        names = frozenset(str(f.args[0]) for f in loops)
        whole = [a for a, _ in self.k.defs if self.bases(frozenset([a])) == self.bases(names)]
        return whole[0] if whole and not self.bases(names) & self.bases(free_axes(at)) else None  # type: ignore[arg-type]

    def whole(self, a: str, extents: Mapping[str, Term]) -> Term | None:
        """The extent of an axis whose parts have loops with these extents."""
        if a in extents:
            return extents[a]
        d = self.k.definition(a)
        parts = split(d) if d is not None else None
        if parts is None:
            return None
        x, t, y = parts
        count, part = self.whole(x, extents), self.whole(y, extents)
        if count is None or part is None:
            return None
        return whole_extent(_rounded(count, t), part, x, t)

    def named(self, names: frozenset[str], whole: str) -> frozenset[str]:
        """Loop axes that names depend on, the definition of ``whole`` not looked through."""
        return self.bases(names - {whole})

    def along(self, e: Term, row: str, parts: frozenset[str]) -> bool:
        """Whether every access of an emission is along the row by ones, or does not depend on it."""
        _, x, at, value = e.args
        places = [Term("get", x, at)] if e.args[0] == "once" else []
        for u in [*places, *(u for u in subterms(value) if u.op == "get")]:  # type: ignore[arg-type]
            stage = self.stages.get(str(u.args[0]))
            index = u.args[1].args  # type: ignore[union-attr]
            last = (stage.layout[-1] if stage and stage.layout else len(index) - 1) if index else -1
            for n, i in enumerate(index):
                if not self.bases(free_axes(i)) & parts:  # type: ignore[arg-type]
                    continue
                if n != last or (stage and (stage.panel or i is not axis(row))) or not steps_by_one(i, row):  # type: ignore[arg-type]
                    return False
        return True

    # --- fission and fusion ---

    def parts(self, t: Term) -> list[Term]:
        """A loop over pieces of a row cut into one for each nest of its body; [] where that may not be, or is of no use."""
        place, body = t.args[2:]
        inside = items(body) if isinstance(body, Term) and body.op == "seq" else []
        chains = [c for c in map(chain, inside) if c]
        if place != "seq" or len(chains) < 2 or len(chains) != len(inside):
            return []
        done: set[str] = set()
        out = []
        for n, (loops, e) in enumerate(chains):
            later = {str(f.args[1]) for _, f in chains[n + 1 :]}
            if later & reads(e) or (n < len(chains) - 1 and e.args[0] != "once") or str(e.args[1]) in done:
                return []
            done.add(str(e.args[1]))
            new = self.row_form((t, *loops), e)
            if new is None:
                return []
            out.append(new)
        return out

    def fused(self, parts: list[Term]) -> list[Term]:
        out: list[Term] = []
        for s in parts:
            if out and (both := self.fuse(out[-1], s)):
                out[-1] = both
            else:
                out.append(s)
        return out

    def fuse(self, a: Term, b: Term) -> Term | None:
        """One loop for two; both hold rows that no constant bounds."""
        if a.op != "for" or b.op != "for" or a.args[:2] != b.args[:2] or {a.args[2], b.args[2]} - {"seq", "unroll"} or not (_long(a) and _long(b)):
            return None
        name = str(a.args[0])
        shared = (writes(a) & (reads(b) | writes(b))) | (reads(a) & writes(b))
        for x in sorted(shared):
            stage = self.stages.get(x)
            mine = [n for n, key in enumerate(stage.axes) if name in self.bases(frozenset([key]))] if stage else []
            places = [e.args[2].args for s in (a, b) for e in emissions(s) if e.args[1] == x]  # type: ignore[union-attr]
            places += [u.args[1].args for s in (a, b) for e in emissions(s) for u in subterms(e.args[3]) if u.op == "get" and u.args[0] == x]  # type: ignore
            assert stage is not None or not mine
            if not mine or stage is None or any(p[mine[0]] is not axis(stage.axes[mine[0]]) for p in places):
                return None
        self.notes["fuse", f"the loops over {name}, row by row"] = None
        return Term("for", name, a.args[1], "seq", seq(*items(a.args[3]), *items(b.args[3])))  # type: ignore[arg-type]


def scoped(t: Term) -> Term:
    """A statement in which a loop stands next to another with the same head when only the opening of stages' storage is between them."""
    if t.op == "seq":
        return seq(*_scoped([scoped(s) for s in items(t)]))
    return Term(t.op, *t.args[:-1], scoped(t.args[-1])) if t.op in ("for", "new", "guard") else t  # type: ignore[arg-type]


def _scoped(parts: list[Term]) -> list[Term]:
    out: list[Term] = []
    for s in parts:
        if out and s.op == "new" and (first := _first(s)).op == "for" and _last(out[-1]).args[:3] == first.args[:3]:
            if out[-1].op == "new":  # its storage stays open
                t, inside = out.pop().args
                s = Term("new", t, seq(*_scoped([*items(inside), s])))  # type: ignore[arg-type]
            elif out[-1].op == "for" and s.args[0] not in reads(out[-1]) | writes(out[-1]):
                s = Term("new", s.args[0], seq(*_scoped([out.pop(), *items(s.args[1])])))  # type: ignore[arg-type]
        out.append(s)
    return out


def _last(t: Term) -> Term:
    while t.op in ("new", "seq"):
        t = t.args[1]  # type: ignore[assignment]
    return t


def _first(t: Term) -> Term:
    while t.op in ("new", "seq"):
        t = t.args[1] if t.op == "new" else t.args[0]  # type: ignore[assignment]
    return t


def _rounded(count: Term, t: int) -> Term:
    """``(e + t - 1) // t`` in the form of ``ceil_div``."""
    if count.op == "idiv" and count.kids()[0].op == "sub":
        total, one = count.kids()[0].kids()
        if total.op == "add" and total.kids()[1] is I(t) and one is I(1):
            return ceil_div(total.kids()[0], t)
    return count


def _long(t: Term) -> bool:
    """Whether some loop inside has an extent that no constant bounds."""
    return any(u.op == "for" and bounded(u.args[1])[0] is None for u in subterms(t) if u is not t)  # type: ignore[arg-type]
