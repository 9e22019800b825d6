"""A second, tiny evaluator for the tests of rules: array terms by NumPy's own functions, scalar terms point by point. It shares nothing with the package."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from moa_rewrite.terms import Array, I, Kernel, Term, axis, ix

UFUNC: dict[str, Any] = {
    "neg": np.negative, "abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[float]), "floor": np.floor, "ceil": np.ceil, "sign": np.sign, "not": np.logical_not,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power, "max": np.maximum, "min": np.minimum,
    "idiv": np.floor_divide, "mod": np.mod, "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal,
    "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip
ACCUMULATE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
START = {"add": 0.0, "mul": 1.0, "max": -math.inf, "min": math.inf}


class Oracle:
    def __init__(self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int] | None = None, defs: Mapping[str, Term] | None = None) -> None:
        self.arrays, self.sizes, self.defs = dict(arrays), dict(sizes or {}), dict(defs or {})

    # --- arrays, by NumPy -----------------------------------------------------------------------------------------------------
    def array(self, t: Term) -> np.ndarray:
        a: Any = t.args
        op = t.op
        if op == "arr":
            return np.asarray(self.arrays[a[0]])
        if op in ("int", "num", "bool", "size"):
            return np.asarray(self.scalar(t, {}))
        if op in UFUNC:
            return UFUNC[op](*[self.array(x) for x in a])
        if op == "select":
            return np.where(self.array(a[0]), self.array(a[1]), self.array(a[2]))
        if op == "cast":
            x = self.array(a[1])
            return np.trunc(x).astype(np.int64) if a[0] in ("i32", "i64") else x.astype(bool) if a[0] == "bool" else x.astype(float)
        n = [self.scalar(x, {}) if isinstance(x, Term) and x.op not in ("ix", *ARRAY_OPS) else x for x in a]
        if op == "iota":
            return np.arange(n[0])
        if op == "fill":
            return np.full(self.shape(a[0]), self.array(a[1]))
        x = self.array(a[-1])
        if op == "spread":
            return np.repeat(np.expand_dims(x, n[0]), n[1], n[0])
        if op == "take":
            return np.take(x, range(n[1]), n[0])
        if op == "taker":
            return np.take(x, range(n[2] - n[1], n[2]), n[0])
        if op == "drop":
            return np.take(x, range(n[1], x.shape[n[0]]), n[0])
        if op == "dropr":
            return np.take(x, range(x.shape[n[0]] - n[1]), n[0])
        if op == "cat":
            return np.concatenate([self.array(a[2]), x], n[0])
        if op == "reverse":
            return np.flip(x, n[0])
        if op == "rotate":
            return np.roll(x, -n[1], n[0])
        if op == "transpose":
            v = [k.args[0] for k in a[0].args]
            return np.einsum(x, v, list(range(1 + max(v))))
        if op == "reshape":
            assert x.shape == self.shape(a[1])
            return x.reshape(self.shape(a[0]))
        if op == "red":
            return ACCUMULATE[a[0]].reduce(x, axis=a[1], initial=START[a[0]])
        if op == "scan":
            return ACCUMULATE[a[0]].accumulate(x, axis=a[1])
        if op == "gather":
            e, k = self.array(a[1]), a[0]
            return np.take_along_axis(x, e.reshape(e.shape + (1,) * (x.ndim - k)), k).squeeze(k)
        raise KeyError(op)

    def shape(self, t: Term) -> tuple[int, ...]:
        return tuple(self.scalar(s, {}) for s in t.kids())

    # --- scalars, point by point ------------------------------------------------------------------------------------------------
    def scalar(self, t: Term, at: Mapping[str, int]) -> Any:
        a: Any = t.args
        op = t.op
        if op in ("int", "bool"):
            return a[0]
        if op == "num":
            return float(a[0])
        if op == "size":
            return self.sizes[a[0]]
        if op == "axis":
            return at[a[0]] if a[0] in at else self.scalar(self.defs[a[0]], at)
        if op == "get":
            index = tuple(int(self.scalar(x, at)) for x in a[1].args)
            x = self.arrays[a[0]]
            assert len(index) == x.ndim and all(0 <= i < n for i, n in zip(index, x.shape, strict=True)), f"{t} out of range: {index} in {x.shape}"
            return x[index]
        if op == "select":
            return self.scalar(a[1] if self.scalar(a[0], at) else a[2], at)
        if op == "cast":
            x = self.scalar(a[1], at)
            return math.trunc(x) if a[0] in ("i32", "i64") else bool(x) if a[0] == "bool" else float(x)
        if op == "reduce":
            m, k, n, body = a
            items = [self.scalar(body, {**at, k: j}) for j in range(self.scalar(n, at))]
            if m == "osm":
                top = max([s for s, _ in items], default=-math.inf)
                return top, sum(x * math.exp(s - top) for s, x in items)
            out = START[m]
            for x in items:
                out = ACCUMULATE[m](out, x)
            return out
        if op == "pair":
            return self.scalar(a[0], at), self.scalar(a[1], at)
        if op in ("fst", "snd"):
            return self.scalar(a[0], at)[op == "snd"]
        return UFUNC[op](*[self.scalar(x, at) for x in a])

    def table(self, t: Term, names: list[str], shape: tuple[int, ...]) -> np.ndarray:
        """The values of a scalar term for all values of the named axes."""
        out = np.zeros(shape)
        for index in itertools.product(*map(range, shape)):
            out[index] = self.scalar(t, dict(zip(names, index, strict=True)))
        return out


ARRAY_OPS = ("arr", "iota", "fill", "spread", "take", "taker", "drop", "dropr", "cat", "reverse", "rotate", "transpose", "reshape", "red", "scan", "gather",
             "select", "cast", *UFUNC)  # fmt: skip


def source(expr: Term, rank: int, extents: tuple[Term, ...], arrays: Mapping[str, np.ndarray], sizes: tuple[str, ...] = (), shapes=None) -> Kernel:
    """The kernel that computes an array term: for i0 for i1 ... emit once X[i0, i1, ...] psi(<i0, i1, ...>, expr)."""
    names = [f"i{k}" for k in range(rank)]
    index = ix(*map(axis, names))
    body = Term("emit", "once", "X", index, Term("psi", index, expr))
    for name, n in reversed(list(zip(names, extents, strict=True))):
        body = Term("for", name, n, "seq", body)
    inputs = tuple(
        Array(a, {"f": "f64", "i": "i64", "b": "bool"}[x.dtype.kind], shapes[a] if shapes else tuple(map(I, x.shape))) for a, x in sorted(arrays.items())
    )
    return Kernel("t", sizes, (), inputs, (Array("X", "f64", tuple(extents)),), body)


def dnf_of(k: Kernel) -> Term:
    body = k.body
    while body.op == "for":
        body = body.args[3]  # type: ignore[assignment]
    return body.args[3]  # type: ignore[return-value]
