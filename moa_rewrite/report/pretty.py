"""Kernels as text for people: an ONF as indented loops, a DNF as formulas. No sigils: an axis prints as its name.

The text that certificates hold, and that parses back, is ``terms.show``; this one only reads well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from ..terms import Array, I, Kernel, Stage, Term, free_axes, subterms

_INFIX = {"or": (1, "or"), "and": (2, "and"), "lt": (3, "<"), "le": (3, "<="), "eq": (3, "=="), "ne": (3, "!="), "add": (4, "+"),
          "sub": (4, "-"), "mul": (5, "*"), "div": (5, "/"), "idiv": (5, "//"), "mod": (5, "mod")}  # fmt: skip
_SUMS = {"add": "sum", "mul": "product", "and": "all", "or": "any"}
_ASSIGN = {"once": "=", "add": "+=", "mul": "*=", "max": "max=", "min": "min=", "and": "and=", "or": "or=", "osm": "osm="}
_LOOP = 0  # binding strength of `sum[k < n] body`, which reaches as far right as it can


def expression(t: Term, names: Mapping[Term, str] | None = None, level: int = 0) -> str:
    """A scalar or array term. ``names``: terms that print as a name of their own. ``level``: binding strength the surroundings ask for."""
    if names and t in names:
        return names[t]

    def sub(a: object, p: int = 0) -> str:
        return expression(a, names, p) if isinstance(a, Term) else str(a)

    def wrapped(text: str, p: int) -> str:
        return f"({text})" if p < level else text

    op, args = t.op, t.args
    ceiling = _ceiling(t)
    if ceiling is not None:
        return f"ceil({sub(ceiling[0], 5)} / {sub(ceiling[1], 6)})"
    if op in _INFIX:
        p, sign = _INFIX[op]
        return wrapped(f"{sub(args[0], p + (p == 3))} {sign} {sub(args[1], p + 1)}", p)
    if op in ("int", "num", "size", "axis", "arr"):
        return wrapped(str(args[0]), 6 if str(args[0]).startswith("-") else 9)
    if op == "bool":
        return "true" if args[0] else "false"
    if op == "neg":
        return wrapped("-" + sub(args[0], 6), 6)
    if op == "not":
        return wrapped("not " + sub(args[0], 6), 6)
    if op == "get":
        return element(str(args[0]), args[1], names)
    if op == "psi":
        return f"{sub(args[1], 9)}[{', '.join(sub(a) for a in args[0].args)}]"  # type: ignore[union-attr]
    if op == "ix":
        return "<" + " ".join(sub(a, 9) for a in args) + ">"
    if op == "select":
        return wrapped(f"{sub(args[1], 1)} if {sub(args[0], 1)} else {sub(args[2], 1)}", _LOOP)
    if op == "pow":
        return wrapped(f"{sub(args[0], 8)}^{sub(args[1], 8)}", 7)
    if op == "reduce":
        monoid, name, extent, body = args
        inner = _LOOP if isinstance(body, Term) and body.op == "reduce" else 5
        return wrapped(f"{_SUMS.get(str(monoid), str(monoid))}[{name} < {sub(extent)}] {sub(body, inner)}", _LOOP)
    if op == "red":
        monoid, k, _, _, a = args
        return wrapped(f"{_SUMS.get(str(monoid), str(monoid))}[axis {k}] {sub(a, 5)}", _LOOP)
    if op == "snd" and isinstance(args[0], Term) and args[0].op == "reduce" and args[0].args[0] == "osm" and args[0].kids()[1].op == "pair":
        score, weight = args[0].kids()[1].kids()
        factor = "" if weight is Term("num", "1.0") else f" * {sub(weight, 6)}"
        return wrapped(f"sum[{args[0].args[1]} < {sub(args[0].args[2])}] exp({sub(score)} - max){factor}", _LOOP)
    if op == "cast":
        return f"{args[0]}({sub(args[1])})"
    return f"{op}({', '.join(sub(a) for a in args)})"


def element(name: str, index: object, names: Mapping[Term, str] | None = None) -> str:
    items = index.args if isinstance(index, Term) else ()
    inside = ", ".join(expression(a, names) for a in items if isinstance(a, Term))
    return f"{name}[{inside}]" if items else name


def _ceiling(t: Term) -> tuple[Term, Term] | None:
    """``(n + 63) // 64`` and ``(n + 64 - 1) // 64`` are ceil(n / 64)."""
    if t.op != "idiv":
        return None
    up, width = t.kids()
    if up.op == "sub" and up.args[1] is I(1) and isinstance(up.args[0], Term) and up.args[0].op == "add" and up.args[0].args[1] is width:
        return up.args[0].kids()[0], width
    if up.op == "add" and width.op == "int" and up.args[1] is I(int(width.args[0]) - 1):  # type: ignore[arg-type]
        return up.kids()[0], width
    return None


def shape(extents: Iterable[Term]) -> str:
    return "[" + ", ".join(expression(e) for e in extents) + "]"


def _array(a: Array) -> str:
    return f"{a.name}: {a.dtype}{shape(a.shape) if a.shape else ''}"


def header(k: Kernel) -> list[str]:
    """The kernel's interface, its conditions, and what lifted axes stand for."""
    lines = [f"kernel {k.name}({', '.join(_array(a) for a in k.inputs)}) -> {', '.join(_array(a) for a in k.outputs)}"]
    if k.where:
        lines.append(f"  where {', '.join(expression(w) for w in k.where)}")
    lines += [f"  {name} = {expression(e)}" for name, e in k.defs]
    lines += [f"  index r along axis {t.axis} of {t.array} is first touched by domain r // {expression(t.rows, level=9)} of {t.domains}" for t in k.touches]
    return lines


def onf(k: Kernel) -> str:
    """A kernel as indented loops: placement behind each loop that has one, stages with what they keep where they live."""
    return "\n".join([*header(k), *_statement(k, k.body, 1, frozenset())])


def loop_lines(k: Kernel) -> list[str]:
    """The loops alone, and briefly: of a loop whose last round may be shorter only the most iterations, ``<=64``."""
    return _statement(k, k.body, 0, frozenset(), brief=True)


def _statement(k: Kernel, s: Term, depth: int, outside: frozenset[str], brief: bool = False) -> list[str]:
    """Lines of a statement; ``outside``: the loop axes bound around it."""
    pad, args = "  " * depth, s.args
    if s.op == "for":
        name, extent, place, body = args
        where = "" if place == "seq" else f"  {place}"
        return [f"{pad}for {name}:{_extent(extent, brief)}{where}", *_statement(k, body, depth + 1, outside | {str(name)}, brief)]  # type: ignore[arg-type]
    if s.op == "emit":
        monoid, target, index, value = args
        return [pad + _emission(str(monoid), element(str(target), index), value)]  # type: ignore[arg-type]
    if s.op == "seq":
        return [line for a in s.kids() for line in _statement(k, a, depth, outside, brief)]
    if s.op == "new":
        stage = k.stage(str(args[0]))
        return [f"{pad}stage {stage.name}{_storage(k, stage, outside)}", *_statement(k, args[1], depth, outside, brief)]  # type: ignore[arg-type]
    if s.op == "guard":
        return [f"{pad}if {expression(args[0])}", *_statement(k, args[1], depth + 1, outside, brief)]  # type: ignore[arg-type]
    if s.op == "skip":
        return [pad + "skip"]
    raise ValueError(f"no statement: {s.op}")


def _extent(extent: Term, brief: bool) -> str:
    most = _most(extent) if brief else None
    return expression(extent, level=9) if most is None else str(most) if extent.op == "int" else f"<={most}"


def _most(extent: Term) -> int | None:
    """The constant that an extent cannot exceed, if its text shows one."""
    if extent.op == "int":
        return int(extent.args[0])  # type: ignore[arg-type]
    if extent.op == "min":
        found = [m for a in extent.kids() if (m := _most(a)) is not None]
        return min(found, default=None)
    if (tiles := _ceiling(extent)) is not None and (most := _most(tiles[0])) is not None and tiles[1].op == "int":
        return -(-most // int(tiles[1].args[0]))  # type: ignore[arg-type]
    return None


def _storage(k: Kernel, stage: Stage, outside: frozenset[str]) -> str:
    """Type and the key axes that take storage here: one bound outside is constant and takes none."""
    inside = [(a, e) for a, e in zip(stage.axes, stage.shape, strict=True) if not _bound(k, a, outside)]
    kept = ", ".join(_kept(k, a, e, outside) for a, e in inside)
    return f": {stage.dtype}{f'[{kept}]' if inside else ''}"


def _bound(k: Kernel, axis: str, outside: frozenset[str], test: Callable[[Iterable[bool]], bool] = all) -> bool:
    """Whether loops outside fix an axis: itself, or all (``any``: some) of what it is defined from."""
    d = k.definition(axis)
    return axis in outside or (d is not None and test([_bound(k, a, outside, test) for a in sorted(free_axes(d))]))


def _kept(k: Kernel, axis: str, extent: Term, outside: frozenset[str]) -> str:
    """``axis < extent``; of a lifted axis ``i = i.o*T + i.i`` whose outer part is bound outside, ``i.i < T``."""
    name, room = axis, extent
    while (d := k.definition(name)) is not None and _bound(k, name, outside, any):
        blocks, inner = d.kids()
        if inner.op != "axis" or blocks.op != "mul" or _bound(k, str(inner.args[0]), outside):
            return f"{axis} < {expression(extent)}"
        name, room = str(inner.args[0]), blocks.kids()[1]
    return f"{name} < {expression(room)}"


def _emission(monoid: str, place: str, value: Term) -> str:
    if monoid == "osm" and value.op == "pair":
        score, weight = value.args
        factor = "" if weight is Term("num", "1.0") else f" * {expression(weight, level=6)}"  # type: ignore[arg-type]
        return f"{place} += exp({expression(score)} - running max){factor}"  # type: ignore[arg-type]
    return f"{place} {_ASSIGN[monoid]} {expression(value)}"


# --- formulas ------------------------------------------------------------------------------------------------------------------
def formula(k: Kernel) -> str:
    """A DNF (or source) kernel: one line per output element, with names for large parts that occur more than once."""
    lines = header(k)
    for left, value in _emissions(k.body):
        parts = _repeated(value)
        names: dict[Term, str] = {}
        for n, part in enumerate(parts, start=1):
            text = expression(part, dict(names))
            names[part] = f"t{n}[{', '.join(sorted(free_axes(part)))}]"
            lines.append(f"  {names[part]} = {text}")
        lines.append(f"  {left} = {expression(value, names)}")
    return "\n".join(lines)


def _emissions(s: Term) -> list[tuple[str, Term]]:
    if s.op == "emit":
        return [(element(str(s.args[1]), s.args[2]), s.args[3])]  # type: ignore[list-item]
    return [e for a in s.kids() if a.op in ("for", "emit", "seq", "new", "guard") for e in _emissions(a)]


def _repeated(value: Term, least: int = 8) -> list[Term]:
    """Subterms of at least ``least`` nodes that occur twice or more and not only inside a larger such one; smaller first."""
    size: dict[Term, int] = {}
    uses: Counter[Term] = Counter()
    for t in subterms(value):
        size[t] = 1 + sum(size[a] for a in t.kids())
        uses.update(t.kids())
    return [t for t in size if uses[t] > 1 and size[t] >= least and t.op != "ix"]
