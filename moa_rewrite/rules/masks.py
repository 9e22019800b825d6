"""Masks: when an emission may be left out, and what that says of a whole tile.

An emission whose value is ``select(q, a, identity)`` contributes nothing where q is false; nor does a product with a factor that is 0 there, such as a cell
of a stage of which that is known; and what nothing needs where q is false need not be there. ``weaken`` gives a condition on the axes around a tile that
holds whenever q holds anywhere in the tile, so the tile may be skipped where it does not: a causal mask skips the tiles above the diagonal.
Values are finite, as for the laws of scalars: 0 times anything is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..terms import I, Kernel, Term, free_axes, subterms
from ..terms import emissions as all_emissions
from .polynomial import Poly, is_index, polynomial, term

_NOTHING = {"add": ("0", "0.0"), "mul": ("1", "1.0"), "max": ("-inf",), "min": ("inf",), "or": ("0",), "and": ("1",)}


def mask(monoid: str, value: Term) -> Term | None:
    """The condition without which an emission of ``value`` contributes nothing; None when its form does not say so."""
    if monoid == "osm" and value.op == "pair":
        monoid, value = "max", value.kids()[0]  # a score of -inf has weight 0
    if value.op != "select":
        return None
    q, _, other = value.kids()
    literal = other.op in ("int", "num", "bool") and str(other.args[0]) in _NOTHING.get(monoid, ())
    return q if literal else None


def idle(kernel: Kernel, emission: Term) -> Term | None:
    """The condition without which an emission may be left out; None when there is none to be seen."""
    monoid, name, _, value = emission.args
    q = mask(str(monoid), value)  # type: ignore[arg-type]
    if q is None and monoid == "add":
        q = zero_unless(value, kernel) or needed_if(kernel, str(name))  # type: ignore[arg-type]
    return q


def zero_unless(t: Term, kernel: Kernel | None = None, inside: frozenset[str] = frozenset()) -> Term | None:
    """A condition without which a value is 0, by its form; with a kernel, by that of what fills the stages it reads as well, except those ``inside`` whose
    own fill it stands. Cells that are sums are 0 where nothing is added; an empty maximum or product is not."""
    x = t.kids()
    if t.op == "select" and x[2].op in ("int", "num") and float(str(x[2].args[0])) == 0.0:
        return x[0]
    if t.op == "mul":
        return zero_unless(x[0], kernel, inside) or zero_unless(x[1], kernel, inside)
    if t.op in ("div", "neg"):
        return zero_unless(x[0], kernel, inside)
    if t.op == "get" and kernel is not None and t.args[0] not in inside and (fill := _fill(kernel, str(t.args[0]))) is not None:
        q = zero_unless(fill.args[3], kernel, inside | {str(t.args[0])}) if fill.args[0] in ("once", "add") else None  # type: ignore[arg-type]
        return None if q is None else _moved(q, fill.args[2], t.args[1])  # type: ignore[arg-type]
    return None


def needed_if(kernel: Kernel, name: str) -> Term | None:
    """A condition without which no value depends on a cell of a stage: all that reads it chooses something else there, or multiplies it by 0."""
    fill = _fill(kernel, name)
    if fill is None or any(_reads(a, name) for a in _outside_values(kernel.body)):
        return None
    uses: list[frozenset[Term]] = []
    for e in all_emissions(kernel.body):
        q = mask(str(e.args[0]), e.args[3])  # type: ignore[arg-type]
        for read, conditions in _uses(e.args[3], name, frozenset() if q is None else frozenset([q]), kernel):  # type: ignore[arg-type]
            moved = [_moved(q, read.args[1], fill.args[2]) for q in conditions if not any(u.op == "get" for u in subterms(q))]  # type: ignore[arg-type]
            uses.append(frozenset(q for q in moved if q is not None))
    common = frozenset.intersection(*uses) if uses else frozenset()
    return min(common, key=str, default=None)


def _fill(kernel: Kernel, name: str) -> Term | None:
    """The emission to a stage, if there is one and it has a cell of its own for every index."""
    found = [e for e in all_emissions(kernel.body) if e.args[1] == name]
    if len(found) != 1 or all(s.name != name for s in kernel.stages):
        return None
    index = found[0].args[2].kids()  # type: ignore[union-attr]
    return found[0] if all(i.op == "axis" for i in index) and len(set(index)) == len(index) else None


def _moved(q: Term, there: Term, here: Term) -> Term | None:
    """A condition on the index ``there`` of an array, as one on the index ``here``; None if it speaks of more, or an index is no axis."""
    names = {str(a.args[0]): b for a, b in zip(there.kids(), here.kids(), strict=True) if a.op == "axis"}
    if len(names) != len(there.kids()) or not free_axes(q) <= names.keys():
        return None
    return _renamed(q, names)


def _renamed(t: Term, names: Mapping[str, Term]) -> Term:
    return names[str(t.args[0])] if t.op == "axis" else t.map(lambda a: _renamed(a, names))


def _uses(t: Term, name: str, under: frozenset[Term], kernel: Kernel) -> Iterator[tuple[Term, frozenset[Term]]]:
    """Every read of an array in a value, with conditions that must hold for the value to depend on it."""
    x = t.kids()
    if t.op == "get" and t.args[0] == name:
        yield t, under
    if t.op == "select":
        parts = [(x[0], under), (x[1], under | {x[0]}), (x[2], under)]
    elif t.op == "mul":
        parts = [(a, under | {q} if (q := zero_unless(b, kernel)) is not None else under) for a, b in (x, x[::-1])]
    elif t.op == "reduce":  # conditions outside may speak of another axis of the same name
        parts = [(a, frozenset()) for a in x]
    else:
        parts = [(a, under) for a in x]
    for a, conditions in parts:
        yield from _uses(a, name, conditions, kernel)


def _outside_values(t: Term) -> Iterator[Term]:
    """Extents, conditions and indices of a statement."""
    for n, a in enumerate(t.args):
        if not isinstance(a, Term):
            continue
        if (t.op, n) in (("for", 3), ("guard", 1)) or t.op in ("seq", "new"):
            yield from _outside_values(a)
        elif (t.op, n) != ("emit", 3):
            yield a


def _reads(t: Term, name: str) -> bool:
    return any(u.op == "get" and u.args[0] == name for u in subterms(t))


def emissions(s: Term, inner: Mapping[str, Term], local: frozenset[str] = frozenset()) -> Iterator[tuple[Term, Mapping[str, Term]]]:
    """The emissions of a statement to arrays that outlive it, each with the loops around it inside the statement (axis -> extent)."""
    if s.op == "emit":
        if s.args[1] not in local:
            yield s, inner
    elif s.op == "for":
        yield from emissions(s.args[3], {**inner, str(s.args[0]): s.args[1]}, local)  # type: ignore[arg-type, dict-item]
    elif s.op == "new":
        yield from emissions(s.args[1], inner, local | {str(s.args[0])})  # type: ignore[arg-type]
    elif s.op in ("seq", "guard"):
        for a in s.kids()[s.op == "guard" :]:
            yield from emissions(a, inner, local)


def idle_unless(kernel: Kernel, s: Term, around: frozenset[str]) -> Term | None:
    """A condition on the axes bound around a statement without which the statement does nothing that outlives it; None if there is none to be had."""
    found = [_of(kernel, e, inner, around) for e, inner in emissions(s, {})]
    if not found or None in found:
        return None
    # conditions that differ by a constant: the one that is easiest to meet follows from all
    return max(found, key=_constant) if len({_shape(w) for w in found}) == 1 else None  # type: ignore[type-var, arg-type]


def _shape(w: Term) -> Term:
    """A condition without the constant of its right side."""
    if w.op == "and":
        return w
    return term({m: k for m, k in polynomial(w.args[1]).items() if m})  # type: ignore[arg-type]


def _constant(w: Term) -> int:
    return 0 if w.op == "and" else polynomial(w.args[1]).get((), 0)  # type: ignore[arg-type]


def _of(kernel: Kernel, emission: Term, inner: Mapping[str, Term], around: frozenset[str]) -> Term | None:
    q = idle(kernel, emission)
    return None if q is None else weaken(kernel, q, inner, around)


def weaken(kernel: Kernel, q: Term, inner: Mapping[str, Term], around: frozenset[str]) -> Term | None:
    """A condition that does not mention the ``inner`` loops and holds whenever q holds in one of their iterations; None if nothing follows.

    q is a comparison of index terms, or several joined by ``and``. An inner axis is replaced by the end of its range that makes the comparison easiest.
    """
    if q.op == "and":
        parts = [w for a in q.kids() if (w := weaken(kernel, a, inner, around)) is not None]
        return None if not parts else parts[0] if len(parts) == 1 else Term("and", *parts)
    if q.op not in ("le", "lt") or not all(is_index(a) for a in q.kids()):
        return None
    a, b = q.kids()
    slack = _expand(kernel, polynomial(Term("sub", Term("sub", b, a), I(int(q.op == "lt")))), inner, around)  # q: 0 <= slack
    out: Poly = {}
    for m, k in slack.items():
        axes = [u.args[0] for u in m if u.op == "axis" and u.args[0] in inner]
        if not axes and not any(_mentions(u, inner) for u in m):
            out[m] = out.get(m, 0) + k
        elif len(m) > 1 or not axes:
            return None
        elif k > 0:
            top = upper(inner[str(axes[0])])
            if top is None:
                return None
            out[()] = out.get((), 0) + k * (top - 1)
    return Term("le", I(0), term({m: k for m, k in out.items() if k}))


def _expand(kernel: Kernel, p: Poly, inner: Mapping[str, Term], around: frozenset[str]) -> Poly:
    """Lifted axes replaced by their definitions, unless a loop runs over the axis itself."""
    defs = dict(kernel.defs)
    for m in p:
        for u in m:
            if u.op == "axis" and u.args[0] in defs and u.args[0] not in inner and u.args[0] not in around:
                t = term(p)
                return _expand(kernel, polynomial(_replace(t, u, defs[str(u.args[0])])), inner, around)
    return p


def _replace(t: Term, old: Term, new: Term) -> Term:
    return new if t is old else t.map(lambda a: _replace(a, old, new))


def _mentions(t: Term, names: Mapping[str, Term]) -> bool:
    return (t.op == "axis" and t.args[0] in names) or any(_mentions(a, names) for a in t.kids())


def upper(n: Term) -> int | None:
    """A constant that an extent never exceeds; None if its form gives none. Axes and sizes are at least 0."""
    x = [upper(a) for a in n.kids()]
    match n.op:
        case "int":
            return n.args[0]  # type: ignore[return-value]
        case "min":
            known = [v for v in x if v is not None]
            return min(known) if known else None
        case "max" | "add":
            return None if None in x else max(x) if n.op == "max" else x[0] + x[1]  # type: ignore[type-var, operator]
        case "sub":
            return x[0] if _natural(n.kids()[1]) else None
        case "idiv":
            d = n.kids()[1]
            return x[0] // d.args[0] if x[0] is not None and d.op == "int" and d.args[0] > 0 else None  # type: ignore[operator]
    return None


def _natural(t: Term) -> bool:
    """At least 0 by its form."""
    if t.op == "int":
        return t.args[0] >= 0  # type: ignore[operator]
    return t.op in ("size", "axis") or (t.op in ("add", "mul", "min", "max") and all(_natural(a) for a in t.kids()))
