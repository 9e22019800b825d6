"""Side conditions of rules: one small predicate each, of the kernel and the values of the guard's arguments.

``reads`` and ``writes`` of a statement do not count storage that the statement makes itself with ``new``.
"""

from __future__ import annotations

from collections.abc import Callable

from ..semantics.types import dtype
from ..terms import Kernel, Term, free_axes
from .names import bound_axes, closure, extents, keyed_by, outer_reads, outer_writes
from .polynomial import is_index


def notin(kernel: Kernel, i: str, *terms: Term) -> bool:
    """No term depends on axis i, definitions of lifted axes looked through in both."""
    return all(not (closure(kernel, [i]) & closure(kernel, free_axes(t))) for t in terms)


def absent(kernel: Kernel, i: str, bound: str, s: Term) -> bool:
    """The name i occurs in s neither free (also through definitions) nor bound; s is the body of a loop over ``bound``, which binds that name in it."""
    return i not in closure(kernel, free_axes(s), bound) and i not in bound_axes(s)


def distinct(kernel: Kernel, i: str, j: str) -> bool:
    """The names differ: of two loops over one name, only the inner one is seen."""
    return i != j


def noreads(kernel: Kernel, *terms: Term) -> bool:
    """The terms (extents, conditions) read no array, so it does not matter when they are evaluated."""
    return all(not outer_reads(t) for t in terms)


def keyed(kernel: Kernel, i: str, a: Term, b: Term) -> bool:
    """Whatever one of a, b writes and the other reads is a stage of which each cell is touched in one iteration of i only."""
    shared = (outer_writes(a) & outer_reads(b)) | (outer_writes(b) & outer_reads(a))
    return all(keyed_by(kernel, x, i, a, b) for x in sorted(shared))


def keyed_stage(kernel: Kernel, x: str, i: str, s: Term) -> bool:
    """Each cell of stage x is touched by s in one iteration of i only."""
    return keyed_by(kernel, x, i, s)


def keyed_either(kernel: Kernel, i: str, j: str, s: Term) -> bool:
    """Whatever s both writes and reads is a stage of which each cell is touched in one iteration of i only, or of j only."""
    shared = outer_writes(s) & outer_reads(s)
    return all(keyed_by(kernel, x, i, s) or keyed_by(kernel, x, j, s) for x in sorted(shared))


def disjoint(kernel: Kernel, a: Term, b: Term) -> bool:
    """Neither of a, b reads or writes what the other writes."""
    wa, wb = outer_writes(a), outer_writes(b)
    return not (wa & (wb | outer_reads(b))) and not (wb & outer_reads(a))


def untouched(kernel: Kernel, x: str, s: Term) -> bool:
    """s neither reads nor writes x."""
    return x not in outer_reads(s) | outer_writes(s)


def unwritten(kernel: Kernel, x: str, *statements: Term) -> bool:
    """No statement writes x."""
    return all(x not in outer_writes(s) for s in statements)


def unread(kernel: Kernel, x: str, *terms: Term) -> bool:
    """No term reads x."""
    return all(x not in outer_reads(t) for t in terms)


def unfed(kernel: Kernel, a: Term, b: Term) -> bool:
    """a reads nothing that b writes."""
    return not (outer_reads(a) & outer_writes(b))


def writes_only(kernel: Kernel, x: str, s: Term) -> bool:
    """s writes nothing but x."""
    return outer_writes(s) <= {x}


def collects(kernel: Kernel, x: str, monoid: str) -> bool:
    """The monoid is a scalar one, and x is an output or a stage that collects under it."""
    stage = next((s for s in kernel.stages if s.name == x), None)
    return monoid not in ("once", "osm") and (stage is None or stage.monoid == monoid)


def collects_pairs(kernel: Kernel, x: str) -> bool:
    """x is a stage that collects under osm."""
    return any(s.name == x and s.monoid == "osm" for s in kernel.stages)


def tile(kernel: Kernel, t: Term) -> bool:
    """An integer constant of at least 1."""
    return t.op == "int" and t.args[0] >= 1  # type: ignore[operator]


def over_sizes(kernel: Kernel, n: Term) -> bool:
    """Integer arithmetic over sizes and constants: the same number wherever it stands."""
    return is_index(n) and not free_axes(n)


def scalar(kernel: Kernel, t: Term) -> bool:
    """A scalar that is no function of array terms: a constant, size, axis, element or reduction."""
    return t.op in ("int", "num", "bool", "size", "axis", "get", "psi", "reduce")


def below(kernel: Kernel, e: Term, n: Term) -> bool:
    """0 <= e < n: e is an axis whose one extent in the kernel is n, or both are constants."""
    if e.op == "axis":
        name = str(e.args[0])
        return kernel.definition(name) is None and extents(kernel.body).get(name) == (n,)
    return e.op == "int" and n.op == "int" and 0 <= e.args[0] < n.args[0]  # type: ignore[operator]


def real(kernel: Kernel, *terms: Term) -> bool:
    """The terms are floating-point values (for integers an empty maximum is the least integer, which is not minus infinity)."""
    try:
        return all(dtype(t, kernel) in ("f32", "f64") for t in terms)
    except ValueError:  # a mixture of types: nothing is known
        return False


def positive(kernel: Kernel, e: Term) -> bool:
    """e > 0 by its form: positive constants, sizes that `where` says are positive, and exp, sqrt, +, *, /, max, min, cast to a float of such."""
    if e.op == "int":
        return e.args[0] > 0  # type: ignore[operator]
    if e.op == "num":
        return not str(e.args[0]).startswith("-") and float(e.args[0]) > 0  # type: ignore[arg-type]
    if e.op == "size":
        return any(w.op in ("lt", "le") and w.args[1] is e and w.args[0].op == "int" and w.args[0].args[0] >= (w.op == "le") for w in kernel.where)  # type: ignore
    if e.op == "exp":
        return True
    if e.op == "cast":
        return e.args[0] in ("f32", "f64") and positive(kernel, e.args[1])  # type: ignore[arg-type]
    return e.op in ("sqrt", "add", "mul", "div", "max", "min") and all(positive(kernel, a) for a in e.kids())


GUARDS: dict[str, Callable[..., bool]] = {
    f.__name__: f
    for f in (
        notin, absent, distinct, noreads, keyed, keyed_stage, keyed_either, disjoint, untouched, unwritten, unread, unfed, writes_only,
        collects, collects_pairs, tile, over_sizes, scalar, below, real, positive,
    )
}  # fmt: skip
