"""Laws that are not first-order patterns. Each function takes the kernel, a position and the rule's params, and returns the new kernel or raises RuleError."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..semantics.types import dtype as type_of
from ..terms import I, Kernel, Path, Stage, Term, Touch, at, free_axes, ix, put, subterms, writes
from ..terms import replace as replace_term
from ..terms.ops import ARGS, DTYPES, STATEMENTS
from .masks import idle_unless
from .names import bound_axes, extents, outer_reads
from .polynomial import is_index, polynomial
from .rule import RuleError, Value

PLACES = ("core", "simd", "unroll", "grid", "block", "numa")


def alpha(kernel: Kernel, path: Path, new: Term) -> Kernel:
    """A subterm may be replaced by one that differs only in the names of axes bound inside it. Definitions of lifted axes may mention neither an old nor a
    new name, and every loop or reduction that the step introduces has the extent that its name has everywhere else."""
    old = at(kernel.body, path)
    renamed: set[str] = set()
    if not alpha_equal(old, new, {}, {}, renamed):
        raise RuleError("not equal up to the names of bound axes")
    fixed = {n for a, t in kernel.defs for n in (a, *free_axes(t))}
    if renamed & fixed:
        raise RuleError(f"the definition of a lifted axis uses {', '.join(sorted(renamed & fixed))}")
    out = kernel.with_body(put(kernel.body, path, new))
    before, after, everywhere = extents(old), extents(new), extents(out.body)
    for name, found in after.items():
        if found != before.get(name) and len(everywhere[name]) > 1:
            raise RuleError(f"axis {name} would have more than one extent: {', '.join(map(repr, everywhere[name]))}")
    return out


def alpha_equal(a: Term, b: Term, left: dict[str, int], right: dict[str, int], renamed: set[str]) -> bool:
    """Equality up to bound axes; ``left``, ``right`` number the bound names in scope. Names bound in one and not the same in the other go to ``renamed``."""
    if a.op != b.op or len(a.args) != len(b.args):
        return False
    if a.op == "axis":
        x, y = str(a.args[0]), str(b.args[0])
        return left[x] == right.get(y) if x in left else y not in right and x == y
    k = {"for": 0, "reduce": 1}.get(a.op)
    if k is None:
        pairs = zip(a.args, b.args, strict=True)
        return all(alpha_equal(p, q, left, right, renamed) if isinstance(p, Term) and isinstance(q, Term) else p == q for p, q in pairs)
    x, y = str(a.args[k]), str(b.args[k])
    if x != y:
        renamed |= {x, y}
    for n, (p, q) in enumerate(zip(a.args[:-1], b.args[:-1], strict=True)):
        if isinstance(p, Term) and isinstance(q, Term):
            if not alpha_equal(p, q, left, right, renamed):
                return False
        elif n != k and p != q:
            return False
    depth = 1 + max(left.values(), default=0)  # the newest binder has the largest number in both
    return alpha_equal(a.args[-1], b.args[-1], {**left, x: depth}, {**right, y: depth}, renamed)  # type: ignore[arg-type]


def ring(kernel: Kernel, path: Path, new: Term) -> Kernel:
    """An index term (integers, sizes, axes under + - * and idiv, mod, min, max) may be replaced by one with the same polynomial over the integers."""
    old = at(kernel.body, path)
    if not (is_index(old) and is_index(new)):
        raise RuleError("not integer arithmetic over constants, sizes and axes")
    if polynomial(old) != polynomial(new):
        raise RuleError(f"{old} and {new} are different polynomials")
    return kernel.with_body(put(kernel.body, path, new))


def materialise(kernel: Kernel, path: Path, T: str, dtype: str, axes: tuple[Term, ...], e: Term) -> Kernel:
    """A scalar e may be computed first and read afterwards: s becomes new(T, seq(nest, s')), where s' is s with every e replaced by T[axes], and nest fills T.

    ``axes`` are the free axes of e in any order: the key axes of T. The nest loops over those that no loop around the position binds.
    """
    s = at(kernel.body, path)
    names = tuple(str(a.args[0]) for a in axes)
    taken = {*kernel.sizes, *(a.name for a in (*kernel.inputs, *kernel.outputs)), *(t.name for t in kernel.stages)}
    if T in taken:
        raise RuleError(f"the name {T} is taken")
    if s.op not in STATEMENTS:
        raise RuleError("the position is not a statement's")
    if any(a.op != "axis" for a in axes) or len(set(names)) != len(names) or set(names) != free_axes(e):
        raise RuleError(f"the key axes must be the free axes of the definition, {', '.join(sorted(free_axes(e)))}")
    try:
        if dtype not in DTYPES or type_of(e, kernel) != dtype:
            raise RuleError(f"the definition is not of type {dtype}")
    except ValueError as error:
        raise RuleError(str(error)) from None
    rest = replace_term(s, e, Term("get", T, ix(*axes)))
    if rest is s:
        raise RuleError("the definition does not occur in the statement")
    if outer_reads(e) & (writes(s) | _scopes(s)):
        raise RuleError("the definition reads what the statement writes")
    known = extents(kernel.body)
    shape = tuple(_extent(n, known) for n in names)
    around = _bound_around(kernel.body, path)
    nest = Term("emit", "once", T, ix(*axes), e)
    for name, n in reversed(list(zip(names, shape, strict=True))):
        if name in around:
            if name in bound_axes(s):
                raise RuleError(f"axis {name} is bound around the statement and again inside it")
        elif kernel.definition(name) is not None:
            raise RuleError(f"axis {name} is lifted: store the definition before lifting")
        else:
            nest = Term("for", name, n, "seq", nest)
    monoid = str(e.args[0]) if e.op == "reduce" else "osm" if e.op == "snd" and e.args[0].op == "reduce" else "once"  # type: ignore[union-attr]
    body = put(kernel.body, path, Term("new", T, Term("seq", nest, rest)))
    return replace(kernel, body=body, stages=(*kernel.stages, Stage(T, dtype, names, shape, monoid, e)))


def _scopes(s: Term) -> frozenset[str]:
    """Stages whose storage is made inside a statement."""
    return frozenset(str(u.args[0]) for u in subterms(s) if u.op == "new")


def _extent(name: str, known: dict[str, tuple[Term, ...]]) -> Term:
    found = known.get(name, ())
    if len(found) != 1:
        raise RuleError(f"axis {name} has {'no known extent' if not found else 'more than one extent'}")
    if free_axes(found[0]) or outer_reads(found[0]):
        raise RuleError(f"the extent {found[0]} of axis {name} is not a function of sizes")
    return found[0]


def _bound_around(body: Term, path: Path) -> frozenset[str]:
    """Axes of the loops that a position lies in."""
    out = set()
    for k in path:
        if body.op == "for" and k == 3:
            out.add(str(body.args[0]))
        body = body.args[k]  # type: ignore[assignment]
    return frozenset(out)


def parts(kernel: Kernel, path: Path, a: str, b: str, D: int) -> Kernel:
    """A reduction over k < n is one over at most D runs of equal length q, the last shorter or empty: k = a*q + b. Monoids are associative, and the runs
    keep their order; pairs of a dependent reduction do not reduce once more."""
    t = at(kernel.body, path)
    if t.op != "reduce" or t.args[0] == "osm":
        raise RuleError("the position is not a reduction's under the monoid of a scalar")
    m, k, n, e = t.args
    arrays = {a.name for a in (*kernel.inputs, *kernel.outputs)} | {s.name for s in kernel.stages}
    taken = arrays | {*kernel.sizes, *(d for d, _ in kernel.defs), *extents(kernel.body)}
    for name in (a, b):
        if name in taken or a == b:
            raise RuleError(f"the name {name} is taken")
    if D < 1 or free_axes(n) or outer_reads(n):  # type: ignore[arg-type]
        raise RuleError(f"{n} is not cut into {D} parts: both must be known at entry")
    if k in bound_axes(e) or any(k in free_axes(d) for _, d in kernel.defs):  # type: ignore[arg-type]
        raise RuleError(f"axis {k} is bound again inside, or a lifted axis is defined by it")
    q = Term("idiv", Term("add", n, I(D - 1)), I(D))
    start = Term("mul", Term("axis", a), q)
    inside = Term("reduce", m, b, Term("min", q, Term("sub", n, start)), replace_term(e, Term("axis", k), Term("add", start, Term("axis", b))))  # type: ignore
    out = kernel.with_body(put(kernel.body, path, Term("reduce", m, a, I(D), inside)))
    before = extents(kernel.body)
    if any(len(found) > len(before.get(name, (n,))) for name, found in extents(out.body).items()):
        raise RuleError(f"an extent inside depends on axis {k}, and the same axis stands elsewhere")
    return out


def place(kernel: Kernel, path: Path, level: str) -> Kernel:
    """A sequential loop may run on a level of the machine: the sum of what its iterations emit does not depend on who computes it. That they do not race is
    an obligation on the final form."""
    old = at(kernel.body, path)
    if old.op != "for" or old.args[2] != "seq":
        raise RuleError("not a sequential loop")
    if level not in PLACES:
        raise RuleError(f"{level} is no level of a machine: {', '.join(PLACES)}")
    return kernel.with_body(put(kernel.body, path, Term("for", old.args[0], old.args[1], level, old.args[3])))


def collect(kernel: Kernel, path: Path, T: str) -> Kernel:
    """What is written once to each cell of a stage is the sum of what is written there, which may be left out where it is 0."""
    if path:
        raise RuleError("the monoid belongs to the header: the position must be the root")
    if all(s.name != T or s.monoid != "once" for s in kernel.stages):
        raise RuleError(f"no stage {T} of which each cell is written once")
    stages = tuple(replace(s, monoid="add") if s.name == T else s for s in kernel.stages)
    if any(s.name == T and s.dtype == "bool" for s in kernel.stages):
        raise RuleError(f"{T} holds no numbers")

    def walk(t: Term) -> Term:
        if t.op == "emit":
            return Term("emit", "add", *t.args[1:]) if t.args[1] == T else t
        return t.map(walk) if t.op in STATEMENTS else t

    return replace(kernel, stages=stages, body=walk(kernel.body))


def layout(kernel: Kernel, path: Path, T: str, order: tuple[Term, ...]) -> Kernel:
    """The axes of a stage may be stored in any order (a permutation, slowest axis first): which cell an index names does not change."""
    if path:
        raise RuleError("the layout belongs to the header: the position must be the root")
    stages = list(kernel.stages)
    for n, s in enumerate(stages):
        if s.name == T:
            perm = tuple(a.args[0] if a.op == "int" else -1 for a in order)
            if sorted(perm) != list(range(len(s.axes))):  # type: ignore[type-var]
                raise RuleError(f"{perm} is no permutation of the axes of {T}")
            stages[n] = replace(s, layout=perm)  # type: ignore[arg-type]
            return replace(kernel, stages=tuple(stages))
    raise RuleError(f"no stage {T}")


def panel(kernel: Kernel, path: Path, T: str, width: Term) -> Kernel:
    """The axis of a stage that is stored last may be cut into panels of so many cells, the panels slowest: which cell an index names does not change."""
    if path:
        raise RuleError("the layout belongs to the header: the position must be the root")
    if width.op != "int" or width.args[0] < 1:  # type: ignore[operator]
        raise RuleError(f"{width} is no number of cells")
    if all(s.name != T or not s.axes for s in kernel.stages):
        raise RuleError(f"no stage {T} with axes")
    stages = tuple(replace(s, panel=int(width.args[0])) if s.name == T else s for s in kernel.stages)  # type: ignore[arg-type]
    return replace(kernel, stages=stages)


def admit(kernel: Kernel, path: Path, c: Term) -> Kernel:
    """A kernel may be made for fewer sizes: a further condition on sizes holds for every call (and is tested at entry)."""
    if path:
        raise RuleError("the sizes belong to the header: the position must be the root")
    if c.op not in ("lt", "le", "eq", "ne") or any(u.op not in _SIZES for a in c.kids() for u in subterms(a)):
        raise RuleError(f"{c} is no comparison of sizes")
    unknown = sorted({str(u.args[0]) for u in subterms(c) if u.op == "size"} - set(kernel.sizes))
    if unknown:
        raise RuleError(f"no size {', '.join(unknown)}")
    return replace(kernel, where=(*kernel.where, c))


def skip(kernel: Kernel, path: Path, c: Term) -> Kernel:
    """A statement may be left out where a condition fails without which nothing needs it: all that outlives it is masked or read elsewhere only, and c
    follows from each mask (c must be the condition that masks.idle_unless computes)."""
    s = at(kernel.body, path)
    if s.op not in STATEMENTS:
        raise RuleError("the position is not a statement's")
    if idle_unless(kernel, s, _bound_around(kernel.body, path)) is not c:
        raise RuleError(f"{c} is not what the masks of the statement's emissions say of all its iterations")
    return kernel.with_body(put(kernel.body, path, Term("guard", c, s)))


def touch(kernel: Kernel, path: Path, array: str, axis: int, rows: Term, domains: int) -> Kernel:
    """The pages of an output or stage may be placed anywhere: no value depends on it. That each domain computes what it places is an obligation on the
    final form."""
    if path:
        raise RuleError("the placement of pages belongs to the header: the position must be the root")
    shapes = {o.name: o.shape for o in kernel.outputs} | {s.name: s.shape for s in kernel.stages}
    if not 0 <= axis < len(shapes.get(array, ())):
        raise RuleError(f"no output or stage {array} with an axis {axis}")
    if domains < 1 or any(u.op not in _SIZES for u in subterms(rows)):
        raise RuleError(f"{rows} is no number of rows for each of {domains} domains")
    if any(t.array == array for t in kernel.touches):
        raise RuleError(f"the pages of {array} are placed already")
    return replace(kernel, touches=(*kernel.touches, Touch(array, axis, rows, domains)))


_SIZES = ("size", "int", "add", "sub", "mul", "idiv", "mod", "min", "max")
BUILTINS: dict[str, Callable[..., Kernel]] = {f.__name__: f for f in (alpha, ring, parts, materialise, collect, place, layout, panel, admit, skip, touch)}
PARAMS: dict[str, dict[str, type]] = {
    "alpha": {"new": Term},
    "ring": {"new": Term},
    "parts": {"a": str, "b": str, "D": int},
    "materialise": {"T": str, "dtype": str, "axes": tuple, "e": Term},
    "collect": {"T": str},
    "place": {"level": str},
    "layout": {"T": str, "order": tuple},
    "panel": {"T": str, "width": Term},
    "admit": {"c": Term},
    "skip": {"c": Term},
    "touch": {"array": str, "axis": int, "rows": Term, "domains": int},
}


def well_formed(t: Term) -> bool:
    """Every operator is in the table and has arguments of the kinds it says."""
    for u in subterms(t):
        sig = ARGS.get(u.op)
        if sig is None or (sig != "*" and len(sig) != len(u.args)):
            return False
        kinds = [{"s": str, "i": int}.get(k, Term) for k in sig] if sig != "*" else [Term] * len(u.args)
        if any(type(a) is not k for a, k in zip(u.args, kinds, strict=True)):
            return False
    return True


def apply_builtin(name: str, kernel: Kernel, path: Path, params: dict[str, Value]) -> Kernel:
    """Check the params of a builtin and apply it."""
    kinds = PARAMS[name]
    if params.keys() != kinds.keys():
        raise RuleError(f"{name} takes {', '.join(kinds)}, not {', '.join(sorted(params)) or 'nothing'}")
    for p, kind in kinds.items():
        value = params[p]
        items = value if isinstance(value, tuple) else (value,)
        if type(value) is not kind or not all(well_formed(t) for t in items if isinstance(t, Term)):
            raise RuleError(f"{name}: {p} is no {kind.__name__}")
    return BUILTINS[name](kernel, path, **params)
