"""What extraction needs to know of a materialised kernel: its leaves, their accesses and work, and the axes with numeric extents."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from ..rules.masks import idle
from ..rules.polynomial import is_index
from ..terms import Kernel, Term, evaluate, free_axes, positions
from .form import carried, nests, scan_last

BYTES = {"f32": 4, "f64": 8, "i32": 4, "i64": 8, "bool": 1}
# vector operations per element that an operator costs, in units of one add; exp is the machine's own figure
_WORK = {"div": 4.0, "sqrt": 6.0, "log": 12.0, "pow": 40.0, "sin": 20.0, "cos": 20.0, "tanh": 30.0, "erf": 30.0, "idiv": 20.0, "mod": 20.0}
_FREE = {"get", "axis", "int", "num", "bool", "size", "ix", "pair", "fst", "snd", "cast", "neg"}


@dataclass(frozen=True)
class Access:
    """One read of a leaf. ``roots``: the axes its index depends on; ``unit``: the axis it is contiguous in ("" if none)."""

    array: str
    roots: frozenset[str]
    unit: str
    exact: bool  # a stage read at its own axes, so its layout is ours to choose
    times: float = 1.0  # elements it touches in one execution of the leaf


@dataclass(frozen=True)
class Leaf:
    """An emission. ``key``: axes of the cell it writes. ``ops``: the axes that an operation depends on, and the vector adds it counts for; ``exps``
    exponentials per execution."""

    target: str
    monoid: str
    key: tuple[str, ...]
    axes: tuple[str, ...]
    reads: tuple[Access, ...]
    unit: str  # the axis its cell is contiguous in when the layout is fixed (an output)
    ops: tuple[tuple[frozenset[str], float], ...]
    exps: float
    bytes: int
    term: Term
    group: Term | None = None  # osm: the score term that the emissions of a group share
    scan: int = 0  # trips of the sequential loop inside; 0 for a plain emission
    mask: Term | None = None  # the condition without which it contributes nothing

    @property
    def work(self) -> float:
        """Vector adds per execution, if all operations were done in each."""
        return sum(n for _, n in self.ops)

    @property
    def reduction(self) -> tuple[str, ...]:
        return tuple(a for a in self.axes if a not in self.key)


@dataclass
class Problem:
    kernel: Kernel
    sizes: dict[str, int]
    leaves: list[Leaf]
    extents: dict[str, int]  # root axis -> extent at the sizes cost is judged at
    extent_terms: dict[str, Term]
    arrays: list[str] = field(default_factory=list)
    width: dict[str, int] = field(default_factory=dict)  # array -> bytes of an element
    roots: dict[str, frozenset[str]] = field(default_factory=dict)  # array -> axes that index it in any leaf
    units: dict[str, frozenset[str]] = field(default_factory=dict)  # array -> axes along which some access of it is contiguous
    pitch: dict[str, int] = field(default_factory=dict)  # array -> bytes from one row of its last axis to the next; 0 where storage is ours or has one row
    users: dict[str, int] = field(default_factory=dict)  # stage -> bit mask of leaves that touch it
    stages: frozenset[str] = frozenset()

    def keyed(self, axis: str) -> list[str]:
        """Stages and outputs whose cells are keyed by this root axis, all reads being at their own axes."""
        out = []
        for name in [*self.stages, *[a.name for a in self.kernel.outputs]]:
            leaf = next(x for x in self.leaves if x.target == name)
            reads = [a for x in self.leaves for a in x.reads if a.array == name]
            if axis in leaf.key and all(a.exact for a in reads):
                out.append(name)
        return sorted(out)

    def batch(self, small: float) -> list[str]:
        """Axes that every leaf runs over and every access depends on, arrays of at most ``small`` bytes apart: no tile of them is worth keeping."""

        def free(a: str, r: Access) -> bool:
            return a in r.roots or math.prod(self.extents[x] for x in self.roots[r.array]) * self.width[r.array] <= small

        out = []
        for a in self.leaves[0].axes:
            if all(a in x.axes and a in x.key and all(free(a, r) for r in x.reads) for x in self.leaves):
                keyed = self.keyed(a)
                if all(x.target in keyed for x in self.leaves):
                    out.append(a)
        return out

    def lanes(self, x: Leaf) -> list[str]:
        """The key axes of a leaf along which all that it reads or writes there is contiguous, or in a layout that is ours to choose."""

        def along(a: str) -> bool:
            return (x.target in self.stages or x.unit == a) and all(a not in r.roots or r.exact or r.unit == a for r in x.reads)

        return [a for a in x.key if along(a)]

    def rank(self, array: str) -> int:
        a = self.kernel.array(array)
        return len(a.shape)


def build(kernel: Kernel, sizes: dict[str, int]) -> Problem:
    leaves: list[Leaf] = []
    extents: dict[str, int] = {}
    terms: dict[str, Term] = {}
    for _, fors, _, leaf in nests(kernel.body):
        for f in fors:
            name, ext = str(f.args[0]), f.args[1]
            terms[name] = ext  # type: ignore[assignment]
            # a triangular extent (a scan) is judged by its mean
            vals = {a: extents.get(a, 2) / 2 for a in free_axes(ext)}  # type: ignore[arg-type]
            extents[name] = max(1, math.ceil(evaluate(ext, sizes, vals)))  # type: ignore[arg-type]
        axes = tuple(str(f.args[0]) for f in fors)
        ordered = scan_last(fors)
        if carried(ordered, leaf):
            around = tuple(str(f.args[0]) for f in ordered[:-2])
            leaves.append(_scan(_leaf(kernel, leaf, axes, extents, sizes), around, ordered[-2:], extents))
        else:
            leaves.append(_leaf(kernel, leaf, axes, extents, sizes))
    p = Problem(kernel, sizes, leaves, extents, terms, stages=frozenset(s.name for s in kernel.stages))
    names = sorted({x.target for x in leaves} | {r.array for x in leaves for r in x.reads})
    p.arrays = names
    for n in names:
        p.width[n] = BYTES[kernel.array(n).dtype]
        sets = [r.roots for x in leaves for r in x.reads if r.array == n] + [frozenset(x.key) for x in leaves if x.target == n]
        p.roots[n] = frozenset().union(*sets)
        p.units[n] = frozenset(r.unit for x in leaves for r in x.reads if r.array == n) | {x.unit for x in leaves if x.target == n}
        shape = () if n in p.stages else kernel.array(n).shape
        p.pitch[n] = p.width[n] * max(1, evaluate(shape[-1], sizes, {})) if len(shape) > 1 else 0
        p.users[n] = sum(1 << k for k, x in enumerate(leaves) if x.target == n or any(r.array == n for r in x.reads))
    return p


def _scan(x: Leaf, around: tuple[str, ...], loops: list[Term], extents: dict[str, int]) -> Leaf:
    """A scan as one leaf: its two loops are inside."""
    i, k = (str(f.args[0]) for f in loops)
    n = extents[i]
    reads = tuple(replace(r, roots=r.roots - {i, k}, unit="" if r.unit in (i, k) else r.unit, times=float(n) if r.roots & {i, k} else 1.0) for r in x.reads)
    term = Term("for", loops[0].args[0], loops[0].args[1], "seq", Term("for", loops[1].args[0], loops[1].args[1], "seq", x.term))
    key = tuple(a for a in x.key if a != i)
    return replace(x, key=key, axes=around, reads=reads, unit="" if x.unit == i else x.unit, term=term, scan=n)


def _leaf(kernel: Kernel, emit: Term, axes: tuple[str, ...], extents: dict[str, int], sizes: dict[str, int]) -> Leaf:
    monoid, target, cell, e = emit.args
    assert isinstance(cell, Term) and isinstance(e, Term)
    stages = {s.name: s for s in kernel.stages}
    reads, exps = [], 0.0
    everywhere = frozenset(axes)
    ops: dict[Term | None, tuple[frozenset[str], float]] = {}  # by subterm; None: the addition to the cell
    seen: set[Term] = set()
    value = e
    group: Term | None = None
    if monoid == "osm":
        # lowered to P = exp(s - max) once per score and an ordinary sum of P*x: the sum is charged here
        group, value = e.args[0], e.args[1]  # type: ignore[assignment]
        if value.op != "num":
            ops[None] = (everywhere, 0.5)
        else:
            exps += 1.0
            ops[None] = (everywhere, 2.0)
    # the score of a weighted sum is worked out once for all sums, with the one that has no weights
    shared = [] if group is None else [u for u in _scalars(group) if u.op == "get" or value.op == "num"]
    for t in [*_scalars(value), *shared]:
        if t in seen:
            continue
        seen.add(t)
        if t.op == "get":
            reads.append(_access(kernel, t, stages, axes))
        elif t.op == "exp":
            exps += 1.0
        elif t.op == "reduce":  # left inside because its extent varies: its loop is part of the leaf
            vals = {a: extents.get(a, 8) / 2 for a in free_axes(t.args[2])}  # type: ignore[arg-type]
            n = 2.0 * max(1.0, evaluate(t.args[2], sizes, vals)) * max(1, sum(1 for _ in _scalars(t.args[3])) / 4)  # type: ignore[arg-type]
            ops[t] = (free_axes(t) & everywhere, n)
        elif t.op not in _FREE and not _is_index(t) and not is_index(t):
            ops[t] = (free_axes(t) & everywhere, _WORK.get(t.op, 1.0))
    if monoid not in ("once", "osm"):
        ops[None] = (everywhere, 1.0)
    products = [t for t in (value, *ops) if t is not None and t.op == "mul" and t in ops]
    if monoid == "add" and products:
        del ops[products[0]]  # fused with the addition
    key = tuple(a for a in axes if a in free_axes(cell))
    last = cell.args[-1] if cell.args else None
    unit = last.args[0] if isinstance(last, Term) and last.op == "axis" and target not in stages else ""
    width = BYTES[kernel.array(str(target)).dtype]
    return Leaf(str(target), str(monoid), key, axes, tuple(reads), str(unit), tuple(ops.values()), exps, width, emit, group, mask=idle(kernel, emit))


def _scalars(e: Term):
    """Subterms outside the index lists of reads."""
    yield e
    if e.op != "get":
        for a in e.kids():
            yield from _scalars(a)


def _is_index(t: Term) -> bool:
    return t.op in ("lt", "le", "eq", "ne") and all(dt.op in ("axis", "int", "size", "add", "sub", "mul") for _, dt in positions(t) if dt is not t)


def _access(kernel: Kernel, t: Term, stages: dict, axes: tuple[str, ...]) -> Access:
    name, index = str(t.args[0]), t.args[1]
    assert isinstance(index, Term)
    roots = free_axes(index) & frozenset(axes)
    exact = False
    unit = ""
    if name in stages:
        exact = tuple(a.args[0] if a.op == "axis" else None for a in index.kids()) == stages[name].axes
    if index.args:
        last: Term = index.args[-1]  # type: ignore[assignment]
        others = frozenset().union(*[free_axes(a) for a in index.args[:-1]])  # type: ignore[arg-type]
        linear = [a for a in sorted(free_axes(last)) if a not in others and _unit_in(last, a)]
        unit = linear[0] if len(linear) == 1 and linear[0] in axes else ""
    return Access(name, roots, unit, exact)


def _unit_in(e: Term, axis: str) -> bool:
    """Does e move by one when the axis does? A remainder does, but where it wraps round."""
    if e.op == "axis":
        return e.args[0] == axis
    if e.op == "mod":
        return _unit_in(e.kids()[0], axis) and axis not in free_axes(e.kids()[1])
    if e.op in ("add", "sub"):
        a, b = e.kids()
        return (_unit_in(a, axis) and axis not in free_axes(b)) or (e.op == "add" and _unit_in(b, axis) and axis not in free_axes(a))
    return False
