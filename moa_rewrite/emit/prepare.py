"""Rewrites of a kernel before lowering: sizes compiled in, guards at emissions turned into values, reductions inside an expression made stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as with_fields

from ..terms import I, Kernel, Stage, Term, emissions, get, identity, ix, seq, subterms
from .carry import carry, scan
from .fold import fold
from .types import dtype
from .wrap import own, wrap, wraps


def items(t: Term) -> list[Term]:
    """The statements of a sequence, flattened; skip gives none."""
    if t.op == "seq":
        return [*items(t.args[0]), *items(t.args[1])]  # type: ignore[arg-type]
    return [] if t.op == "skip" else [t]


def nest(loops: Sequence[Term], body: Term) -> Term:
    """A statement in loops with the heads of these."""
    for f in reversed(loops):
        body = Term("for", *f.args[:-1], body)
    return body


def types_of(k: Kernel) -> dict[str, str]:
    return {a.name: a.dtype for a in (*k.inputs, *k.outputs)} | {s.name: s.dtype for s in k.stages}


def fix_sizes(k: Kernel, fixed: Mapping[str, int]) -> Kernel:
    """Sizes replaced by the integers given, everywhere."""

    def walk(t: Term) -> Term:
        return I(fixed[str(t.args[0])]) if t.op == "size" and t.args[0] in fixed else t.map(walk)

    def f(t: Term) -> Term:
        return fold(walk(t))

    arrays = {n: tuple(with_fields(a, shape=tuple(map(f, a.shape))) for a in getattr(k, n)) for n in ("inputs", "outputs", "stages")}
    touches = tuple(with_fields(t, rows=f(t.rows)) for t in k.touches)
    return with_fields(k, body=f(k.body), defs=tuple((a, f(d)) for a, d in k.defs), touches=touches, **arrays)  # type: ignore[arg-type]


def neutral(monoid: str, like: str) -> Term:
    """What contributes nothing to an emission; for osm the pair (-inf, 0)."""
    if monoid == "osm":
        return Term("pair", identity("max", like), identity("add", like))
    return identity(monoid, like)


class Prepare:
    """``run`` gives a kernel whose emissions hold no ``reduce``, ``fst`` or ``snd``, and whose innermost guards are part of the value emitted."""

    def __init__(self, kernel: Kernel) -> None:
        self.k = kernel
        self.types = types_of(kernel)
        self.stages: list[Stage] = list(kernel.stages)
        self.notes: list[str] = []
        self.axes = {str(u.args[0]) for u in subterms(kernel.body) if u.op in ("for", "axis")} | {a for a, _ in kernel.defs}

    def run(self) -> Kernel:
        body = self.statement(own(self.k.body))
        return with_fields(self.k, body=body, stages=tuple(self.stages))

    def fresh(self, base: str) -> str:
        n = 0
        while f"{base}{n}" in self.types:
            n += 1
        return f"{base}{n}"

    def fresh_axis(self, base: str) -> str:
        n = 0
        while f"{base}{n}" in self.axes:
            n += 1
        self.axes.add(f"{base}{n}")
        return f"{base}{n}"

    def statement(self, t: Term) -> Term:
        match t.op:
            case "seq" | "skip":
                return seq(*[self.statement(s) for s in items(t)])
            case "for" if scan(self.k, t):
                target = str(t.args[3].args[3].args[1])  # type: ignore[union-attr]
                name = self.fresh("c")
                self.types[name] = self.types[target]
                out, stage = carry(t, name, self.types[target], self.statement)
                self.stages.append(stage)
                self.notes.append(f"carry: {target}: running sum {name} over {t.args[0]}")
                return out
            case "for" if wraps(self.k, t):
                self.notes.append(f"wrap: {t.args[0]}: cut where an index modulo {t.args[1]} wraps round")
                return seq(*[self.statement(s) for s in wrap(t, self.fresh_axis)])
            case "for" | "new":
                return Term(t.op, *t.args[:-1], self.statement(t.args[-1]))  # type: ignore[arg-type]
            case "guard":
                return self.guard(t.args[0], self.statement(t.args[1]))  # type: ignore[arg-type]
            case "emit":
                return self.emission(t)
        raise ValueError(f"{t.op} is no statement")

    def guard(self, cond: Term, s: Term) -> Term:
        if s.op != "emit" or s.args[0] == "once":
            return Term("guard", cond, s)
        m, x, at, e = s.args
        other = neutral(str(m), self.types[str(x)])
        if m == "osm" and isinstance(e, Term) and e.op == "pair":
            value = Term("pair", *[Term("select", cond, a, b) for a, b in zip(e.kids(), other.kids(), strict=True)])
        else:
            value = Term("select", cond, e, other)
        return Term("emit", m, x, at, value)

    def emission(self, t: Term) -> Term:
        m, x, at, e = t.args
        made: list[tuple[str, Term]] = []
        value = self.value(e, (), made)  # type: ignore[arg-type]
        out = seq(*[s for _, s in made], Term("emit", m, x, at, value))
        for name, _ in reversed(made):
            out = Term("new", name, out)
        return out

    def value(self, e: Term, under: tuple[Term, ...], made: list[tuple[str, Term]]) -> Term:
        """``e`` with reductions replaced by reads of scalar stages; ``made`` collects (stage, statement that fills it)."""
        if not any(u.op in ("reduce", "fst", "snd") for u in subterms(e)):
            return e
        if e.op == "select":
            c, a, b = e.kids()
            c = self.value(c, under, made)
            return Term("select", c, self.value(a, (*under, c), made), self.value(b, (*under, Term("not", c)), made))
        if e.op in ("fst", "snd"):
            (r,) = e.kids()
            if r.op == "pair":
                return self.value(r.kids()[e.op == "snd"], under, made)
            if r.op == "reduce" and e.op == "fst":
                extent, body = r.kids()
                return self.value(Term("reduce", "max", r.args[1], extent, Term("fst", body)), under, made)
            return self.value(r, under, made)
        if e.op == "reduce":
            m, axis = str(e.args[0]), str(e.args[1])
            extent, body = e.kids()
            like = dtype(body.kids()[0] if body.op == "pair" else body, self.types)
            name = self.fresh("r")
            self.types[name] = like
            self.stages.append(Stage(name, like, (), (), m, e))
            fill = Term("emit", m, name, ix(), body)
            for c in reversed(under):
                fill = self.guard(c, fill)
            made.append((name, Term("for", axis, self.value(extent, under, made), "seq", self.statement(fill))))
            return get(name)
        return e.map(lambda a: self.value(a, under, made))


def prepare(kernel: Kernel, fixed: Mapping[str, int]) -> tuple[Kernel, list[str]]:
    """The kernel, and one note, `rule: text`, per scan carried and loop cut."""
    p = Prepare(fix_sizes(kernel, fixed))
    return p.run(), p.notes


__all__ = ["Prepare", "emissions", "fix_sizes", "items", "nest", "neutral", "prepare", "types_of"]
