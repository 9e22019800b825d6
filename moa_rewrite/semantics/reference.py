"""The reference values of a kernel in source or DNF form, with the bound of the rounding error of any faithful implementation.

Unlike ``statements`` it is vectorised and serves large sizes; then give it the DNF, since source bodies evaluate whole arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..terms import Kernel, Term, show
from .env import Env, SemanticsError, bind, integer, shape_of
from .numeric import Approx, Rounding
from .scalars import CHUNK, approx, rounding


class Reference(NamedTuple):
    """``points``: the indices evaluated per axis (value is the array at their product, ``out[np.ix_(*points)]``), None for all of them."""

    points: tuple[np.ndarray, ...] | None
    value: np.ndarray
    bound: np.ndarray


@dataclass(frozen=True)
class _Nest:
    """Perfect loops around one ``emit(once)``, indexed by the loops' own axes."""

    output: str
    axes: tuple[tuple[str, int], ...]  # name and extent, in index order
    body: Term


def reference(
    kernel: Kernel, inputs: Mapping[str, object], sizes: Mapping[str, int], sample: int | None = None, precision: Rounding | str | None = None
) -> dict[str, Reference]:
    """Values and error bounds per output.

    ``sample``: evaluate only about that many points of the leading axes (all but the last; of the only axis of a vector), spread
    evenly, the first and last of each axis among them. ``precision``: the type that the bound is for, by default the type of the output.
    SemanticsError: a bad call, an access out of range, an output without a value.
    """
    env = bind(kernel, inputs, sizes)
    nests = {n.output: n for n in _nests(kernel.body, env)}
    out = {}
    for o in kernel.outputs:
        if o.name not in nests:
            raise SemanticsError(f"output {o.name} gets no contribution")
        nest, shape = nests[o.name], shape_of(o, sizes)
        if tuple(n for _, n in nest.axes) != shape:
            raise SemanticsError(f"output {o.name} has shape {shape}, the loops give {tuple(n for _, n in nest.axes)}")
        r = rounding(precision if precision is not None else o.dtype if o.dtype in ("f32", "f64") else "f64")
        points = tuple(np.arange(n) for n in shape) if sample is None else _sample(shape, sample)
        value, bound = _blocks(nest, env, points, r)
        out[o.name] = Reference(None if sample is None else points, value, bound)
    return out


def _nests(s: Term, env: Env, axes: tuple[tuple[str, int], ...] = ()) -> Iterator[_Nest]:
    if s.op == "seq":
        for k in s.kids():
            yield from _nests(k, env, axes)
    elif s.op == "for":
        yield from _nests(s.args[3], env, (*axes, (str(s.args[0]), integer(s.args[1], env))))  # type: ignore[arg-type]
    elif s.op == "emit" and s.args[0] == "once":
        index = [str(e.args[0]) if e.op == "axis" else "" for e in s.args[2].kids()]  # type: ignore[union-attr]
        extents = dict(axes)
        if sorted(index) != sorted(extents):
            raise SemanticsError(f"{show(s)}: the index is not the loops' own axes")
        yield _Nest(str(s.args[1]), tuple((n, extents[n]) for n in index), s.args[3])  # type: ignore[arg-type]
    elif s.op != "skip":
        raise SemanticsError(f"{s.op} in a body that is neither source nor DNF")


def _sample(shape: tuple[int, ...], count: int) -> tuple[np.ndarray, ...]:
    """Per axis the indices to evaluate: the last axis whole, the leading ones thinned to a product of about ``count``."""
    lead = shape[:-1] if len(shape) > 1 else shape
    left = max(count, 1)
    picked: list[tuple[int, np.ndarray]] = []
    for k, n in sorted(enumerate(lead), key=lambda p: (p[1], p[0])):  # short axes first: what they don't use goes to the long ones
        share = max(2, math.floor(left ** (1 / (len(lead) - len(picked))) + 1e-9))
        take = min(n, share)
        picked.append((k, np.unique(np.linspace(0, n - 1, take).round().astype(np.int64)) if n else np.arange(0)))
        left = max(1, left // max(1, take))
    return tuple(v for _, v in sorted(picked, key=lambda p: p[0])) + tuple(np.arange(n) for n in shape[len(lead) :])


def _blocks(nest: _Nest, env: Env, points: tuple[np.ndarray, ...], r: Rounding) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate in blocks of the first axes, so that one block of the result stays small."""
    names = [n for n, _ in nest.axes]
    shape = tuple(len(p) for p in points)
    value, bound = None, np.zeros(shape)
    for block in _cut(shape):
        axes = {n: p[b] for n, p, b in zip(names, points, block, strict=True)}
        out = approx(nest.body, replace(env, axes=axes), r)
        if not isinstance(out, Approx):
            raise SemanticsError(f"output {nest.output} is given a pair")
        if value is None:
            value = np.zeros(shape, out.value.dtype)
        value[block] = out.value
        bound[block] = out.error()
    return np.zeros(shape) if value is None else value, bound


def _cut(shape: tuple[int, ...], limit: int = CHUNK // 2) -> Iterator[tuple[slice, ...]]:
    """Slices that tile a shape, each of at most ``limit`` elements where the last axis allows."""
    if not shape:
        yield ()
        return
    inner = math.prod(shape[1:])
    if inner <= limit:
        step = max(1, limit // max(1, inner))
        for start in range(0, shape[0], step):
            yield (slice(start, min(start + step, shape[0])), *[slice(0, n) for n in shape[1:]])
    else:
        for i in range(shape[0]):
            for rest in _cut(shape[1:], limit):
                yield (slice(i, i + 1), *rest)
