"""What a term is evaluated in: sizes, arrays, axis values, definitions of lifted axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..terms import Array, Kernel, Term, free_axes, show
from .types import dtype_of_names, names_of


class SemanticsError(ValueError):
    """A term or statement without meaning on the given data: an access out of range, a cell read before it was written, shapes that disagree."""


class OutOfRange(SemanticsError):
    """An access outside an array; the text names the access and a witness."""


@dataclass(frozen=True)
class Env:
    """``sizes``: value per size name. ``arrays``: float64, int64 or bool per array name. ``axes``: per free axis the int vector of its values,
    in the order of the result's dimensions. ``defs``: lifted axes, name -> term. ``names``: declared (name, dtype) pairs, by default
    the types of the arrays; they matter for the identities of empty reductions."""

    sizes: Mapping[str, int]
    arrays: Mapping[str, np.ndarray]
    axes: Mapping[str, np.ndarray] = field(default_factory=dict)
    defs: Mapping[str, Term] = field(default_factory=dict)
    names: tuple[tuple[str, str], ...] = ()

    def dtype(self, t: Term) -> str:
        """The element type of a term, from the declared names or else from the arrays at hand."""
        held = tuple((n, {"f": "f64", "i": "i64", "b": "bool"}[a.dtype.kind]) for n, a in sorted(self.arrays.items()))
        return dtype_of_names(t, self.names or held)

    def base(self, names: frozenset[str], bound: frozenset[str] = frozenset()) -> frozenset[str]:
        """The axes that given ones stand for, definitions looked through, except for names bound by a reduction around."""
        out, todo = set(), list(names)
        while todo:
            n = todo.pop()
            if n in self.defs and n not in self.axes and n not in bound:
                todo.extend(free_axes(self.defs[n]))
            else:
                out.add(n)
        return frozenset(out)


def widen(a: object) -> np.ndarray:
    """An array as the interpreters hold it: float64, int64 or bool."""
    arr = np.asarray(a)
    kind = {"f": np.float64, "i": np.int64, "u": np.int64, "b": np.bool_}[arr.dtype.kind]
    return np.ascontiguousarray(arr, dtype=kind) if arr.ndim else np.asarray(arr, dtype=kind)


def bind(kernel: Kernel, inputs: Mapping[str, object], sizes: Mapping[str, int]) -> Env:
    """The environment of a call. SemanticsError when a size is missing, an input has another shape or a ``where`` fails."""
    if missing := [s for s in kernel.sizes if s not in sizes]:
        raise SemanticsError(f"no value for size {missing[0]}")
    env = Env(sizes, {}, {}, dict(kernel.defs), names_of(kernel))
    arrays = {}
    for a in kernel.inputs:
        arr, want = widen(inputs[a.name]), shape_of(a, sizes)
        if arr.shape != want:
            raise SemanticsError(f"input {a.name} has shape {arr.shape}, declared {want}")
        if (arr.dtype.kind == "f") != (a.dtype in ("f32", "f64")) or (arr.dtype.kind == "b") != (a.dtype == "bool"):
            raise SemanticsError(f"input {a.name} holds {arr.dtype}, declared {a.dtype}")
        arrays[a.name] = arr
    for w in kernel.where:
        if not integer(w, env):
            raise SemanticsError(f"where {show(w)} does not hold at {dict(sizes)}")
    return Env(sizes, arrays, {}, env.defs, env.names)


def shape_of(a: Array, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The extents of an array at given sizes."""
    return tuple(integer(e, Env(sizes, {})) for e in a.shape)


def integer(t: Term, env: Env) -> int:
    """The value of an integer (or boolean) term without free axes, in exact arithmetic."""

    def at(u: Term) -> int:
        op, args = u.op, u.args
        if op in ("int", "bool"):
            return int(args[0])  # type: ignore[arg-type]
        if op == "size":
            return int(env.sizes[str(args[0])])
        if op in ("get", "arr"):
            index = tuple(at(e) for e in args[1].kids()) if op == "get" else ()  # type: ignore[union-attr]
            array = env.arrays[str(args[0])]
            if len(index) != array.ndim or not all(0 <= i < n for i, n in zip(index, array.shape, strict=True)):
                raise OutOfRange(f"{show(u)} is out of range: index {index}, shape {array.shape}")
            return int(array[index])
        if op == "cast":
            return at(args[1])  # type: ignore[arg-type]
        if op == "select":
            return at(args[1]) if at(args[0]) else at(args[2])  # type: ignore[arg-type]
        v = [at(a) for a in u.kids()]
        if op in ("idiv", "mod") and v[1] == 0:
            raise SemanticsError(f"{show(u)} divides by zero")
        return _INTEGER[op](*v)

    return at(t)


_INTEGER: dict[str, Callable[..., int]] = {
    "neg": lambda a: -a, "abs": abs, "sign": lambda a: (a > 0) - (a < 0), "not": lambda a: int(not a), "floor": lambda a: a, "ceil": lambda a: a,
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "max": max, "min": min, "pow": lambda a, b: a**b,
    "idiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "lt": lambda a, b: int(a < b), "le": lambda a, b: int(a <= b),
    "eq": lambda a, b: int(a == b), "ne": lambda a, b: int(a != b), "and": lambda a, b: int(a and b), "or": lambda a, b: int(a or b),
}  # fmt: skip
