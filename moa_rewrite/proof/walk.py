"""Every access of a statement with all that surrounds it: loops, reductions, conditions, scopes of stages, order in sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import REFUTED, MoaError
from ..terms import Kernel, Path, Term, free_axes, show
from ..terms.kernel import Stage

SEQUENTIAL = ("seq", "unroll")  # places whose iterations run one after the other; all others run at the same time

DIVISOR = "divisor"  # array name of the pseudo-accesses that stand for integer divisions: the "index" must be positive
_INDEX = ("int", "size", "axis", "add", "sub", "mul", "idiv", "mod", "max", "min", "neg", "abs")


@dataclass(frozen=True)
class Frame:
    """One thing around an access. kind: for, reduce (axis ``name``, extent ``term``, ``place``), if (``term`` holds), new (stage ``name``),
    seq (``branch`` 0 or 1). ``path`` tells nodes apart that look alike."""

    kind: str
    path: Path
    name: str = ""
    term: Term | None = None
    place: str = ""
    branch: int = 0


Frames = tuple[Frame, ...]


@dataclass(frozen=True)
class Access:
    """A read (``get``) or an emission. ``where`` names the statement; monoid and value are those of an emission."""

    write: bool
    array: str
    index: tuple[Term, ...]
    frames: Frames
    where: str
    monoid: str = ""
    value: Term | None = None

    def __str__(self) -> str:
        return f"{self.array}[{', '.join(show(i).replace('@', '') for i in self.index)}]"


def is_index(t: Term) -> bool:
    """Whether a term is arithmetic on sizes and axes only."""
    return t.op in _INDEX and all(is_index(a) for a in t.kids())


def loops_in(frames: Frames) -> list[Frame]:
    return [f for f in frames if f.kind == "for"]


def bound_names(frames: Frames) -> frozenset[str]:
    return frozenset(f.name for f in frames if f.kind in ("for", "reduce"))


def common(a: Frames, b: Frames) -> int:
    """How many outermost frames two accesses share."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def scope(frames: Frames, array: str) -> int:
    """How many frames, from outside, lie around the storage of an array: up to its ``new``, or 0 for an input or output."""
    return next((n + 1 for n, f in enumerate(frames) if f.kind == "new" and f.name == array), 0)


def bases(kernel: Kernel, axis: str, bound: frozenset[str]) -> frozenset[str]:
    """The loop axes that an axis stands for where the axes ``bound`` are bound; a bound name is its own base. Unbound ones are returned too."""
    definition = None if axis in bound else kernel.definition(axis)
    if definition is None:
        return frozenset([axis])
    return frozenset().union(*[bases(kernel, a, bound) for a in free_axes(definition)])


def accesses(kernel: Kernel) -> list[Access]:
    """All reads and emissions of the body, in program order, those in extents, conditions and index lists included. Checks that axes are bound,
    ranks right, stages inside their ``new`` and monoids agreed on; raises MoaError otherwise."""
    return list(dict.fromkeys(_statement(kernel, kernel.body, (), ())))


def _statement(kernel: Kernel, t: Term, frames: Frames, path: Path) -> Iterator[Access]:
    args: tuple = t.args
    match t.op:
        case "for":
            name, extent, place, body = args
            yield from _expr(kernel, extent, frames, f"extent of {name}")
            yield from _statement(kernel, body, (*frames, Frame("for", path, _fresh(kernel, name, frames), extent, place)), (*path, 3))
        case "seq":
            for k in (0, 1):
                yield from _statement(kernel, args[k], (*frames, Frame("seq", path, branch=k)), (*path, k))
        case "new":
            if scope(frames, args[0]) or not any(s.name == args[0] for s in kernel.stages):
                raise refused(f"new({args[0]}) inside itself or of no stage")
            yield from _statement(kernel, args[1], (*frames, Frame("new", path, args[0])), (*path, 1))
        case "guard":
            yield from _expr(kernel, args[0], frames, "guard")
            yield from _statement(kernel, args[1], (*frames, Frame("if", path, term=args[0])), (*path, 1))
        case "emit":
            monoid, name, index, value = args
            for e in (*index.args, value):
                yield from _expr(kernel, e, frames, f"emit {name}")
            yield _checked(kernel, Access(True, name, index.args, frames, f"emit {name}", monoid, value))
        case "skip":
            return
        case _:
            raise refused(f"{t.op} is no statement")


def _expr(kernel: Kernel, t: Term, frames: Frames, where: str) -> Iterator[Access]:
    seen: set[tuple[Term, Frames]] = set()

    def walk(u: Term, frames: Frames) -> Iterator[Access]:
        if (u, frames) in seen:
            return
        seen.add((u, frames))
        args: tuple = u.args
        match u.op:
            case "select":
                yield from walk(args[0], frames)
                yield from walk(args[1], (*frames, Frame("if", (), term=args[0])))
                yield from walk(args[2], (*frames, Frame("if", (), term=Term("not", args[0]))))
            case "reduce":
                yield from walk(args[2], frames)
                if any(args[1] in free_axes(t) for _, t in kernel.defs):  # else it may hide an axis of that name
                    _fresh(kernel, args[1], frames)
                yield from walk(args[3], (*frames, Frame("reduce", (), args[1], args[2])))
            case _:
                for a in u.kids():
                    yield from walk(a, frames)
                if u.op in ("idiv", "mod") and is_index(args[1]) and not (args[1].op == "int" and args[1].args[0] > 0):
                    yield Access(False, DIVISOR, (args[1],), frames, where)
                if u.op == "get":
                    yield _checked(kernel, Access(False, args[0], args[1].args, frames, where))
                elif u.op == "axis" and (loose := bases(kernel, args[0], bound_names(frames)) - bound_names(frames)):
                    raise refused(f"axis {min(loose)} is bound by no loop in {where}")

    yield from walk(t, frames)


def _fresh(kernel: Kernel, name: str, frames: Frames) -> str:
    if name in bound_names(frames):
        raise refused(f"axis {name} is bound twice")
    return name


def _checked(kernel: Kernel, a: Access) -> Access:
    try:
        array = kernel.array(a.array)
    except KeyError:
        raise refused(f"{a.where}: no array {a.array}") from None
    if len(array.shape) != len(a.index):
        raise refused(f"{a.where}: {a} has {len(a.index)} indices, the array {len(array.shape)} axes")
    if isinstance(array, Stage) and not scope(a.frames, a.array):
        raise refused(f"{a.where}: stage {a.array} is used outside its new")
    if a.write and array in kernel.inputs:
        raise refused(f"{a.where}: {a.array} is an input")
    if a.write and isinstance(array, Stage) and a.monoid not in (array.monoid, "once"):
        raise refused(f"{a.where}: emission under {a.monoid} to a stage under {array.monoid}")
    return a


def refused(message: str) -> MoaError:
    """An operational form that is ill-formed; no obligation can be stated for it."""
    return MoaError(651, f"not a well-formed program: {message}", exit_code=REFUTED)
