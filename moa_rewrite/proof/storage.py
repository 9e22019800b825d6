"""Where a stage's cells lie: extents of its local storage, the part of an index that is constant there, and the memory that holds it.

Lowering must follow this file: the obligations about local storage, capacity and offsets are stated on it. Where ``new(T, s)`` stands, a key
axis bound around it is constant, so a cell needs room only for what loops inside may reach: ``local index = index - outer part``. For
``i = i.o*64 + i.i`` with i.o outside, the outer part is ``i.o*64`` and the extent 64; with no part outside it is 0 and the full extent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..terms import I, Kernel, Term, axis
from ..terms.kernel import Stage
from .walk import Access, Frames, accesses, bases, bound_names, refused

BYTES = {"f32": 4, "f64": 8, "i32": 4, "i64": 8, "bool": 1}
THREADS = ("block",)  # places whose iterations are GPU threads; ``grid`` iterations are thread blocks


@dataclass(frozen=True)
class Limits:
    """What the target allows. ``target`` c, fortran or cuda. ``index_bits`` of offsets: 32 or 64. ``stack_bytes`` per thread for stages of
    constant size (CPU: those that do not fit any more go to the heap; GPU: thread-local). ``shared_bytes`` per thread block (GPU); with
    ``shared_checked`` the emitted code refuses sizes whose shared stages do not fit, otherwise that all sizes fit must be proved."""

    target: str = "c"
    index_bits: int = 64
    stack_bytes: int = 65536
    shared_bytes: int = 49152
    shared_checked: bool = False


@dataclass(frozen=True)
class Storage:
    """Local storage of one ``new``: per key axis its extent (a term over sizes) and the outer part of an index."""

    stage: Stage
    frames: Frames  # up to and with the ``new``
    extents: tuple[Term, ...]
    outer: tuple[Term, ...]
    memory: str  # stack, heap (CPU, or GPU global memory), shared (per thread block), local (per GPU thread)

    @property
    def constant(self) -> int | None:
        """Number of cells when the program fixes it."""
        n = 1
        for e in stored_shape(self):
            if e.op != "int":
                return None
            n *= int(e.args[0])  # type: ignore[arg-type]
        return n

    @property
    def cell_bytes(self) -> int:
        """Bytes per cell; a cell of the online-softmax monoid is counted with its running maximum."""
        return BYTES[self.stage.dtype] * (2 if self.stage.monoid == "osm" else 1)


def storages(kernel: Kernel, limits: Limits, found: list[Access] | None = None) -> list[Storage]:
    """The storage of every ``new``, in program order."""
    found = accesses(kernel) if found is None else found
    out: list[Storage] = []
    for frames in dict.fromkeys(a.frames[: n + 1] for a in found for n, f in enumerate(a.frames) if f.kind == "new"):
        stage, bound = kernel.stage(frames[-1].name), bound_names(frames)
        parts = [_axis(kernel, a, n, bound) for a, n in zip(stage.axes, stage.shape, strict=True)]
        s = Storage(stage, frames, tuple(fold(e) for e, _ in parts), tuple(fold(o) for _, o in parts), "heap")
        out.append(replace(s, memory=_memory(s, out, limits)))
    return out


def _axis(kernel: Kernel, name: str, full: Term, bound: frozenset[str]) -> tuple[Term, Term]:
    """(extent, outer part) of a key axis with ``full`` values."""
    parts = bases(kernel, name, bound)
    if parts <= bound:
        return I(1), axis(name)
    if not parts & bound:
        return full, I(0)
    d = kernel.definition(name)
    if d is None or d.op != "add" or d.kids()[0].op != "mul" or [a.op for a in (*d.kids()[0].kids(), d.kids()[1])] != ["axis", "int", "axis"]:
        raise refused(f"axis {name} is partly bound around storage and its definition is not x*T + y")
    x, t = d.kids()[0].kids()
    high, high_outer = _axis(kernel, str(x.args[0]), Term("idiv", Term("add", full, Term("sub", t, I(1))), t), bound)
    low, low_outer = _axis(kernel, str(d.kids()[1].args[0]), t, bound)
    outer = Term("add", Term("mul", high_outer, t), low_outer)
    return (low if high is I(1) else Term("mul", high, t)), outer


def fold(t: Term) -> Term:
    """Integer constants evaluated; 0 and 1 as neutral elements dropped."""
    t = t.map(fold)
    if t.op not in ("add", "sub", "mul", "idiv"):
        return t
    a, b = t.kids()
    if a.op == b.op == "int":
        x, y = int(a.args[0]), int(b.args[0])  # type: ignore[arg-type]
        return I({"add": x + y, "sub": x - y, "mul": x * y}[t.op] if t.op != "idiv" else x // y)
    if t.op == "mul" and I(0) in (a, b):
        return I(0)
    if (t.op == "add" and a is I(0)) or (t.op == "mul" and a is I(1)):
        return b
    return a if (t.op in ("add", "sub") and b is I(0)) or (t.op in ("mul", "idiv") and b is I(1)) else t


def _memory(s: Storage, before: list[Storage], limits: Limits) -> str:
    places = [f.place for f in s.frames if f.kind == "for"]
    if limits.target == "cuda":
        return "local" if any(p in THREADS for p in places) else "shared" if "grid" in places else "heap"
    used = sum(bytes_of(o) for o in before if o.memory == "stack")
    return "stack" if s.constant is not None and used + bytes_of(s) <= limits.stack_bytes else "heap"


def memory_limit(memory: str, limits: Limits) -> int | None:
    """Bytes that all stages in a memory may take together; None for the heap, which the entry check bounds."""
    return {"stack": limits.stack_bytes, "local": limits.stack_bytes, "shared": limits.shared_bytes, "heap": None}[memory]


def bytes_of(s: Storage) -> int:
    return (s.constant or 0) * s.cell_bytes


def around(s: Storage, all_: list[Storage]) -> list[Storage]:
    """The storages alive where ``s`` begins."""
    return [o for o in all_ if o is not s and s.frames[: len(o.frames)] == o.frames]


def stored_shape(s: Storage) -> tuple[Term, ...]:
    """Local extents in storage order, slowest first; the last axis in panels if the stage has them. (That the layout is a permutation is an obligation
    of its own; j -> (j div W, j mod W) names every j once.)"""
    shape = tuple(s.extents[k] for k in (s.stage.layout or range(len(s.extents))) if k < len(s.extents))
    if s.stage.panel <= 0 or not shape:
        return shape
    width = I(s.stage.panel)
    pieces = Term("idiv", Term("add", shape[-1], I(s.stage.panel - 1)), width)
    return tuple(map(fold, (pieces, *shape[:-1], width)))


def entry_checks(kernel: Kernel, limits: Limits) -> list[tuple[str, tuple[Term, ...]]]:
    """(array, extents) whose product of extents the emitted kernel must check against 2^63 - 1 at entry: arrays and heap stages.
    The offset obligations assume these checks."""
    out = [(a.name, a.shape) for a in (*kernel.inputs, *kernel.outputs) if a.shape]
    return out + [(s.stage.name, stored_shape(s)) for s in storages(kernel, limits) if s.memory == "heap"]
