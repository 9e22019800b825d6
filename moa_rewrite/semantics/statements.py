"""A plain interpreter of kernel bodies (source, DNF and ONF alike): the oracle of the structure rules. Small sizes only.

Loops run in order, ``new`` makes empty cells, emissions combine under their monoid. Refused with a SemanticsError: an access out of range, a second
contribution under ``once``, an output cell that got none, a stage read where nothing was written, a stage used outside its ``new``. A cell
whose contributions are legally none (a loop of length 0 or a false guard around its emission) holds the identity.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..terms import Array, Kernel, Stage, Term, show
from .env import OutOfRange, SemanticsError, bind, shape_of
from .points import NOTHING, Point, Points, box, combine, element_of, osm, unit, witness
from .types import dtype

_SEQUENTIAL = ("seq", "unroll")


@dataclass
class _Cells:
    """Storage of one array: contributions so far per index."""

    array: Array | Stage
    shape: tuple[int, ...]
    values: dict[tuple[int, ...], Any] = field(default_factory=dict)


def run(
    kernel: Kernel, inputs: Mapping[str, object], sizes: Mapping[str, int], shuffle: int | None = None, counts: Counter[str] | None = None
) -> dict[str, np.ndarray]:
    """The outputs (float64, int64 or bool) of a kernel.

    ``shuffle``: a seed; loops at a parallel place then run in a random order, which exposes order dependence. ``counts`` receives the
    number of emissions per array under its name and of stage and output reads under "read NAME". SemanticsError: see above.
    """
    return _Run(kernel, inputs, sizes, shuffle, Counter() if counts is None else counts).outputs()


class _Run:
    def __init__(self, kernel: Kernel, inputs: Mapping[str, object], sizes: Mapping[str, int], shuffle: int | None, counts: Counter[str]) -> None:
        self.kernel, self.counts = kernel, counts
        self.env = bind(kernel, inputs, sizes)
        self.random = None if shuffle is None else random.Random(shuffle)
        self.cells: dict[str, _Cells] = {o.name: _Cells(o, shape_of(o, sizes)) for o in kernel.outputs}
        self.stages = {s.name: (s, tuple(_closed(e, sizes) for e in s.shape)) for s in kernel.stages}
        self.points = Points(self.env, self.read, lambda t: dtype(t, kernel))

    def outputs(self) -> dict[str, np.ndarray]:
        self.run(self.kernel.body, {}, dry=False)
        return {o.name: self.collect(o) for o in self.kernel.outputs}

    def collect(self, o: Array) -> np.ndarray:
        cells = self.cells[o.name]
        kind = np.float64 if o.dtype in ("f32", "f64") else np.bool_ if o.dtype == "bool" else np.int64
        out: np.ndarray = np.zeros(cells.shape, kind)
        for index in box(cells.shape):
            if index not in cells.values:
                raise SemanticsError(f"output {o.name}{list(index)} gets no contribution")
            v = cells.values[index]
            out[index] = v[1] if isinstance(v, tuple) else v
        return out

    def read(self, name: str, index: tuple[int, ...], t: Term, p: Point) -> Any:
        if name in self.env.arrays:
            return element_of(self.env.arrays[name], index, t, p)
        self.counts[f"read {name}"] += 1
        if name not in self.cells:
            raise SemanticsError(f"{show(t)} reads {name} outside its storage; witness {witness(p)}")
        cells = self.cells[name]
        self.inside(cells, index, t, p)
        if index not in cells.values:
            raise SemanticsError(f"{show(t)} reads {name}{list(index)}, which was never written; witness {witness(p)}")
        v = cells.values[index]
        return v[1] if isinstance(v, tuple) else v

    def inside(self, cells: _Cells, index: tuple[int, ...], t: Term, p: Point) -> None:
        if len(index) != len(cells.shape) or not all(0 <= i < n for i, n in zip(index, cells.shape, strict=True)):
            raise OutOfRange(f"{show(t)} is out of range: index {index}, shape {cells.shape}; witness {witness(p)}")

    def run(self, s: Term, p: dict[str, int], dry: bool) -> None:
        """Run a statement at a point. ``dry``: nothing of it counts (length 0, false guard); cells it would collect in get the identity."""
        op, a = s.op, s.args
        if op == "seq":
            self.run(a[0], p, dry)  # type: ignore[arg-type]
            self.run(a[1], p, dry)  # type: ignore[arg-type]
        elif op == "for":
            self.loop(s, p, dry)
        elif op == "guard":
            holds = self.known(a[0], p) if dry else self.points.function(a[0])(p)  # type: ignore[arg-type]
            self.run(a[1], p, dry or not holds)  # type: ignore[arg-type]
        elif op == "new":
            name = str(a[0])
            outer = self.cells.get(name)
            self.cells[name] = _Cells(*self.stages[name])
            self.run(a[1], p, dry)  # type: ignore[arg-type]
            if outer is None:
                del self.cells[name]
            else:
                self.cells[name] = outer
        elif op == "emit":
            self.emit(s, p, dry)
        elif op != "skip":
            raise KeyError(f"no statement {op}")

    def known(self, t: Term, p: Point) -> Any:
        """The value of a term, None where it depends on an axis of a loop that has no iterations."""
        try:
            return self.points.function(t)(p)
        except SemanticsError:
            return None

    def loop(self, s: Term, p: dict[str, int], dry: bool) -> None:
        name, extent, place, body = s.args
        n = self.known(extent, p) if dry else self.points.function(extent)(p)  # type: ignore[arg-type]
        if n is None or n <= 0:
            self.run(body, {k: v for k, v in p.items() if k != name}, True)  # type: ignore[arg-type]
            return
        order = list(range(n))
        if self.random is not None and place not in _SEQUENTIAL:
            self.random.shuffle(order)
        for i in order:
            self.run(body, {**p, str(name): i}, dry)  # type: ignore[arg-type,dict-item]

    def emit(self, s: Term, p: Point, dry: bool) -> None:
        monoid, name = str(s.args[0]), str(s.args[1])
        if name not in self.cells:
            raise SemanticsError(f"{show(s)} writes {name} outside its storage; witness {witness(p)}")
        cells = self.cells[name]
        if dry:
            index = self.known_index(s.args[2], p)  # type: ignore[arg-type]
            if monoid != "once" and index is not None and all(0 <= i < n for i, n in zip(index, cells.shape, strict=True)):
                cells.values.setdefault(index, unit(monoid, cells.array.dtype))
            return
        index = self.points.index(s.args[2])(p)  # type: ignore[arg-type]
        self.inside(cells, index, s, p)
        value = self.points.function(s.args[3])(p)  # type: ignore[arg-type]
        if (monoid == "osm") != isinstance(value, tuple):
            raise SemanticsError(f"{show(s)}: {monoid} collects {'no pairs' if monoid != 'osm' else 'pairs only'}")
        self.counts[name] += 1
        if monoid == "osm":
            cells.values[index] = osm(cells.values.get(index, NOTHING), value)
        elif index not in cells.values:
            cells.values[index] = value
        elif monoid == "once":
            raise SemanticsError(f"{show(s)} contributes to {name}{list(index)} a second time; witness {witness(p)}")
        else:
            cells.values[index] = combine(monoid, cells.values[index], value)

    def known_index(self, t: Term, p: Point) -> tuple[int, ...] | None:
        index = [self.known(e, p) for e in t.kids()]
        return None if None in index else tuple(index)


def _closed(e: Term, sizes: Mapping[str, int]) -> int:
    from .env import Env, integer

    return integer(e, Env(sizes, {}))
