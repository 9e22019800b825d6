"""Where the cells of a stage live: which key axes take storage inside ``new``, with what extent and index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..rules.polynomial import polynomial
from ..terms import I, Kernel, Stage, Term, axis, free_axes, substitute, subterms
from .fold import bounded, const, fold


def loop_extents(t: Term, kernel: Kernel) -> dict[str, Term]:
    """Extent of every loop axis of a statement; a loop over a lifted axis (see ``rejoin``) stands for loops over its parts."""
    out: dict[str, Term] = {}

    def add(a: str, extent: Term) -> None:
        out[a] = extent
        d = kernel.definition(a)
        if d is not None and (s := split(d)):
            add(s[0], ceil_div(extent, s[1]))
            add(s[2], Term("min", I(s[1]), Term("sub", extent, Term("mul", axis(s[0]), I(s[1])))))

    for f in _loops(t):
        add(str(f.args[0]), f.args[1])  # type: ignore[arg-type]
    return out


def ceil_div(e: Term, t: int) -> Term:
    return Term("idiv", Term("add", e, I(t - 1)), I(t))


def rejoin(kernel: Kernel) -> tuple[Term, list[str]]:
    """The body with adjacent seq loops over both parts of a lifted axis made one loop over the axis, where nothing inside needs a part alone."""
    lines: list[str] = []

    def needs(names: frozenset[str], whole: str) -> frozenset[str]:
        """Axis names that a statement depends on, definitions other than that of ``whole`` looked through."""
        defs, out, todo = dict(kernel.defs), set(), sorted(names)
        while todo:
            n = todo.pop()
            if n not in out:
                out.add(n)
                todo += sorted(free_axes(defs[n])) if n in defs and n != whole else []
        return frozenset(out)

    def in_panels(t: Term, whole: str, tile: int) -> bool:
        """Whether a statement touches a stage whose last axis depends on ``whole`` and lies in panels that divide its tiles."""
        used = {str(u.args[1] if u.op == "emit" else u.args[0]) for u in subterms(t) if u.op in ("get", "emit")}
        last = [s.axes[s.layout[-1] if s.layout else -1] for s in kernel.stages if s.panel and tile % s.panel == 0 and s.name in used]
        return bool(needs(frozenset(last), whole) & {whole})

    def walk(t: Term) -> Term:
        if t.op not in ("for", "seq", "new", "guard"):
            return t
        t = t.map(lambda a: walk(a) if a.op in ("for", "seq", "new", "guard") else a)
        if t.op != "for" or not isinstance(t.args[3], Term) or t.args[3].op != "for":
            return t
        x, count, place, inner = t.args
        y, part, place_y, body = inner.args  # type: ignore[union-attr]
        for a, d in kernel.defs:
            s = split(d)
            if s is None or (s[0], s[2]) != (x, y) or place != "seq" or place_y != "seq":
                continue
            extent = whole_extent(count, part, x, s[1])  # type: ignore[arg-type]
            if extent is not None and not needs(free_axes(body), a) & {x, y} and not in_panels(body, a, s[1]):  # type: ignore[arg-type]
                line = f"{x}, {y} as {a}"
                if line not in lines:
                    lines.append(line)
                return Term("for", a, extent, "seq", body)  # type: ignore[arg-type]
        return t

    return walk(kernel.body), lines


def whole_extent(count: Term, part: Term, x: str, t: int) -> Term | None:
    """e when the extents of a lifted pair are ceil(e / t) and min(t, e - x*t)."""
    top, others = bounded(part)
    rest = [o for o in others if o.op == "sub" and fold(o.kids()[1]) == fold(Term("mul", axis(x), I(t)))]
    for o in rest:
        whole = o.kids()[0]
        if top == t and len(others) == 1 and _same_quotient(fold(count), fold(ceil_div(whole, t))):
            return whole
    return None


def _same_quotient(a: Term, b: Term) -> bool:
    """Whether two quotients by one constant are of numbers with the same polynomial: x + 4 - 1 is x + 3."""
    return a is b or (a.op == b.op == "idiv" and a.kids()[1] is b.kids()[1] and polynomial(a.kids()[0]) == polynomial(b.kids()[0]))


def _loops(t: Term) -> Iterator[Term]:
    if t.op == "for":
        yield t
    if t.op in ("for", "seq", "new", "guard"):
        for a in t.kids():
            yield from _loops(a)


@dataclass(frozen=True)
class Cell:
    """One key axis in storage: index of the cell of the current axis value, extent, and the value of the axis at index 0.

    ``offset`` is None when the cells are not a contiguous range of the axis: then only the axis itself can index it.
    """

    index: Term
    extent: Term
    offset: Term | None


class Layout:
    """Storage of one stage inside its ``new``."""

    def __init__(self, kernel: Kernel, stage: Stage, inside: Mapping[str, Term]) -> None:
        """``inside``: the loop axes bound within ``new`` with their extents."""
        self.kernel, self.stage, self.inside = kernel, stage, inside
        self.defs = dict(kernel.defs)
        self.cells = [self._cell(a, n) for a, n in zip(stage.axes, stage.shape, strict=True)]
        order = stage.layout or tuple(range(len(stage.axes)))
        self.order = [k for k in order if self.cells[k] is not None]
        self.shape = tuple(fold(c.extent) for k in self.order if (c := self.cells[k]) is not None)
        self.panel = stage.panel if order and self.cells[order[-1]] is not None else 0
        if self.panel:
            self.shape = (fold(ceil_div(self.shape[-1], self.panel)), *self.shape[:-1], I(self.panel))

    def index(self, at: tuple[Term, ...], known: frozenset[str]) -> tuple[Term, ...]:
        """Storage indices of the element at given key values. ``known``: axes with a value."""
        out = []
        for k in self.order:
            cell, e = self.cells[k], at[k]
            assert cell is not None
            if e == axis(self.stage.axes[k]):
                out.append(cell.index)
            elif cell.offset is not None:
                out.append(fold(Term("sub", e, cell.offset)))
            else:
                raise ValueError(f"{self.stage.name} is stored in pieces along {self.stage.axes[k]} and read at {e}")
        if self.panel:
            which, within = self._cut(fold(out[-1]), known)
            return (which, *out[:-1], within)
        return tuple(out)

    def _cut(self, e: Term, known: frozenset[str]) -> tuple[Term, Term]:
        """The panel of an index along the last axis, and its place there."""
        w = self.panel
        if e.op == "axis" and (d := self.defs.get(str(e.args[0]))) is not None:
            parts = split(d)
            if parts is not None and parts[1] % w == 0 and {parts[0], parts[2]} <= known:
                return self._cut(fold(d), known)
        if e.op == "axis" and self._below(e):
            return I(0), e
        if e.op == "add" and e.args[0].op == "mul" and (t := const(e.args[0].args[1])) is not None and t % w == 0:  # type: ignore[union-attr, arg-type]
            which, within = self._cut(e.args[1], known)  # type: ignore[arg-type]
            return fold(Term("add", Term("mul", e.args[0].args[0], I(t // w)), which)), within  # type: ignore[union-attr]
        return Term("idiv", e, I(w)), Term("mod", e, I(w))

    def _below(self, e: Term) -> bool:
        """Whether an axis stays below the width of a panel."""
        extent = self.inside.get(str(e.args[0]))
        top = bounded(extent)[0] if extent is not None else None
        return top is not None and top <= self.panel

    def _cell(self, a: str, extent: Term) -> Cell | None:
        bases = self.kernel.base_axes(frozenset([a]))
        kept = sorted(b for b in bases if b in self.inside)
        if not kept:
            return None
        if len(kept) == len(bases):
            return Cell(axis(a), extent, I(0))
        d = self.defs[a]
        parts = split(d)
        if parts is None:
            return Cell(axis(a), extent, I(0))
        x, t, y = parts
        high = self._cell(x, ceil_div(extent, t))
        low = self._cell(y, I(t))
        if high is None:
            assert low is not None
            return Cell(low.index, low.extent, None if low.offset is None else fold(Term("add", Term("mul", axis(x), I(t)), low.offset)))
        if low is None:
            return Cell(high.index, high.extent, None)
        whole = low.extent == I(t) and low.index == axis(y)
        step = I(t) if whole else low.extent
        offset = fold(Term("mul", high.offset, I(t))) if whole and high.offset is not None else None
        return Cell(fold(Term("add", Term("mul", high.index, step), low.index)), fold(Term("mul", high.extent, step)), offset)


def split(d: Term) -> tuple[str, int, str] | None:
    """(x, T, y) when a definition is ``x*T + y``; ``x + y`` is the split by 1."""
    if d.op == "add":
        m, y = d.kids()
        if m.op == "axis" and y.op == "axis":
            return str(m.args[0]), 1, str(y.args[0])
        if m.op == "mul" and y.op == "axis" and m.kids()[0].op == "axis" and (t := const(m.kids()[1])) is not None:
            return str(m.kids()[0].args[0]), t, str(y.args[0])
    return None


def span(kernel: Kernel, a: str, extents: Mapping[str, Term]) -> Term:
    """An upper bound, over sizes and integers, of the number of values of an axis."""
    d = kernel.definition(a)
    if d is None:
        top, _ = bounded(extents[a])
        e = extents[a] if top is None else I(top)
        outer = sorted(kernel.base_axes(free_axes(e)))
        # an extent that varies with outer axes and has no constant bound: take its value at the last outer iterations and at the first
        if not outer:
            return fold(e)
        last = substitute(e, {o: fold(Term("sub", span(kernel, o, extents), I(1))) for o in sorted(free_axes(e))})
        first = substitute(e, {o: I(0) for o in sorted(free_axes(e))})
        return fold(Term("max", last, first))
    parts = split(d)
    if parts is None and a in extents:  # parts of a length that sizes decide
        return fold(extents[a])
    if parts is None:
        raise ValueError(f"no bound for axis {a} = {d}")
    x, t, _ = parts
    return fold(Term("mul", span(kernel, x, extents), I(t)))
