"""The reference interpreter of the surface language: the syntax tree, evaluated by the definitions, in float64 and int64.

It is naive on purpose (Ω is a loop over the frame, a reduction a right fold, a product its sum) and shares nothing with elaboration
but the parser, so that agreement of the two means something. Checks of sizes and types are the elaborator's; here they are assertions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from . import builtins as B
from .tree import App, Body, Bool, Def, Expr, Fn, Fold, Hole, Inner, KernelDef, Name, Num, Outer, Param, Part, Prim, Rank, Ref, Tuple, Type, Vector

Array = np.ndarray
Result = Array | tuple[Array, ...]


@dataclass(frozen=True)
class _Closure:
    definition: Def
    env: Mapping[str, object]


def interpret_kernel(
    k: KernelDef, prelude: tuple[Def, ...], definitions: tuple[Def, ...], inputs: Mapping[str, object], sizes: Mapping[str, int]
) -> dict[str, Array]:
    """Values of the results by name (``out``, or ``out0``, ``out1``, ... if they have none)."""
    env: dict[str, object] = {}
    for d in (*prelude, *definitions):
        env[d.name] = _Closure(d, dict(env))
    env |= {n: np.asarray(v, np.int64) for n, v in sizes.items()}
    for p in k.params:
        assert p.type is not None
        env[p.name] = _convert(np.asarray(inputs[p.name]), p.type.name)
    with np.errstate(all="ignore"):
        out = _Interpreter().body(k.body, env)
    parts = out if isinstance(out, tuple) else (out,)
    names = [r.name or ("out" if len(parts) == 1 else f"out{n}") for n, r in enumerate(k.results)]
    return {n: _convert(v, r.type.name) for n, v, r in zip(names, parts, k.results, strict=True)}


def _convert(a: Array, dtype: str) -> Array:
    if dtype in B.INTS:
        return np.trunc(a).astype(np.int64) if a.dtype.kind == "f" else a.astype(np.int64)
    return a.astype(bool) if dtype == "bool" else a.astype(np.float64)


_erf = np.vectorize(math.erf, otypes=[np.float64])
_UNARY: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "erf": _erf, "floor": np.floor, "ceil": np.ceil,
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "not": np.logical_not,
}  # fmt: skip
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide, "max": np.maximum, "min": np.minimum, "idiv": np.floor_divide,
    "mod": np.mod, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "and": np.logical_and, "or": np.logical_or, "pow": lambda a, b: np.power(a.astype(np.float64), b),
}  # fmt: skip


def _identity(op: str, a: Array) -> object:
    if op in ("max", "min"):
        low, high = (-np.inf, np.inf) if a.dtype.kind == "f" else (np.iinfo(np.int64).min, np.iinfo(np.int64).max)
        return low if op == "max" else high
    return {"add": 0, "sub": 0, "mul": 1, "div": 1, "and": True, "or": False}[op]


def scalar(op: str, *args: Array) -> Array:
    """A scalar function elementwise: equal shapes, or scalars."""
    shapes = {a.shape for a in args if a.ndim}
    assert len(shapes) <= 1, (op, shapes)
    if op == "select":
        return np.asarray(np.where(*args))
    if op in B.DTYPES:
        return _convert(args[0], op)
    return np.asarray(_UNARY[op](*args) if len(args) == 1 else _BINARY[op](*args))


def right_fold(op: str, a: Array) -> Array:
    """op red a = a[0] op (op red the rest); the identity if there is nothing."""
    if len(a) == 0:
        return np.full(a.shape[1:], _identity(op, a), np.float64 if op == "div" else a.dtype)
    out = np.asarray(a[-1])
    for item in a[-2::-1]:
        out = scalar(op, item, out)
    return out


class _Interpreter:
    def __init__(self) -> None:
        self.shape_only = 0  # > 0 while a cell of an empty frame is evaluated for its shape alone

    def body(self, b: Body, env: Mapping[str, object]) -> Result:
        env = dict(env)
        for x in b.bindings:
            if isinstance(x, Def):
                env[x.name] = _Closure(x, dict(env))
            else:
                v = self.body(x.value, env)
                env.update(zip(x.names, v if isinstance(v, tuple) else (v,), strict=True))
        return self.expr(b.result, env)

    def expr(self, e: Expr, env: Mapping[str, object]) -> Result:
        match e:
            case Num(text):
                return np.asarray(float(text) if e.is_float else int(text))
            case Bool(value):
                return np.asarray(value)
            case Name(id):
                v = {"pi": np.asarray(np.pi), "inf": np.asarray(np.inf)}.get(id, env.get(id))
                assert isinstance(v, np.ndarray), id
                return v
            case Hole(k):
                v = env[f"_{k}"]
                assert isinstance(v, np.ndarray)
                return v
            case Vector(items):
                return np.stack(self.values(items, env)) if items else np.zeros(0, np.int64)
            case Tuple(items):
                return tuple(self.values(items, env))
            case App(fn, args):
                return self.apply(fn, self.values(args, env), env)
        raise AssertionError(e)

    def values(self, es: tuple[Expr, ...], env: Mapping[str, object]) -> list[Array]:
        out = []
        for e in es:
            v = self.expr(e, env)
            assert isinstance(v, np.ndarray)
            out.append(v)
        return out

    def apply(self, fn: Fn, args: list[Array], env: Mapping[str, object]) -> Result:
        match fn:
            case Prim(name):
                if name == "sub" and len(args) == 1:
                    name = "neg"
                return scalar(name, *args) if name in B.SCALAR else np.asarray(getattr(self, f"do_{name}")(*args))
            case Ref(name):
                f = env[name]
                if isinstance(f, np.dtype):  # a type variable as a cast
                    return args[0].astype(f)
                assert isinstance(f, _Closure), name
                return self.call(f, args)
            case Fold("red", op):
                return right_fold(op, args[0])
            case Fold(_, op):
                a = args[0]
                rows = [right_fold(op, a[: i + 1]) for i in range(len(a))]
                return np.stack(rows) if rows else a
            case Outer(op):
                a, b = args
                return self.by_index(a.shape + b.shape, lambda i: scalar(op, a[i[: a.ndim]], b[i[a.ndim :]]), scalar(op, *self.ones(a, b)))
            case Inner(op, by):
                a, b = args
                assert a.shape[-1] == b.shape[0]
                n = a.ndim - 1

                def item(i: tuple[int, ...]) -> Array:
                    column = b.transpose(*range(1, b.ndim), 0)[i[n:]]
                    return right_fold(op, scalar(by, a[i[:n]], column))

                return self.by_index(a.shape[:-1] + b.shape[1:], item, scalar(by, *self.ones(a, b)))
            case Rank(f, ranks):
                return self.omega(f, ranks, args, env)
            case Part(e, _):
                return self.expr(e, {**env, **{f"_{k}": v for k, v in enumerate(args)}})
        raise AssertionError(fn)

    def ones(self, a: Array, b: Array) -> tuple[Array, Array]:
        return np.ones((), a.dtype), np.ones((), b.dtype)

    def by_index(self, shape: tuple[int, ...], item: Callable[[tuple[int, ...]], Array], like: Array) -> Array:
        """The array of a shape with the given item at every index."""
        out = np.zeros(shape, like.dtype)
        for i in itertools.product(*map(range, shape)):
            out[i] = item(i)
        return out

    # --- definitions ---
    def call(self, f: _Closure, args: list[Array]) -> Result:
        d = f.definition
        env = dict(f.env)
        args = [self.typed(p, v) for p, v in zip(d.params, args, strict=True)]
        for p, v in zip(d.params, args, strict=True):
            if isinstance(p.type, Type):
                if p.type.name and p.type.name not in B.DTYPES:
                    same = [w.dtype for q, w in zip(d.params, args, strict=True) if q.type is not None and q.type.name == p.type.name]
                    env[p.type.name] = np.result_type(*same)
                for e, n in zip(p.type.dims or (), v.shape if p.type.dims is not None else (), strict=True):
                    if isinstance(e, Name) and e.id not in env:
                        env[e.id] = np.asarray(n)
                    assert self.shape_only or self.expr(e, env) == n
        return self.body(d.body, {**env, **{p.name: v for p, v in zip(d.params, args, strict=True)}})

    def typed(self, p: Param, v: Array) -> Array:
        return _convert(v, p.type.name) if p.type is not None and p.type.name in B.DTYPES else v

    # --- Ω ---
    def omega(self, f: Fn, ranks: tuple[int, ...], args: list[Array], env: Mapping[str, object]) -> Result:
        frames = [a.shape[: a.ndim - r] for a, r in zip(args, ranks, strict=True)]
        frame = max(frames, key=len)
        assert all(frame[len(frame) - len(x) :] == x for x in frames), frames
        if 0 in frame:
            self.shape_only += 1
            cell = self.apply(f, [np.zeros(a.shape[a.ndim - r :], a.dtype) if x else a for a, r, x in zip(args, ranks, frames, strict=True)], env)
            self.shape_only -= 1
            empty = tuple(np.zeros(frame + c.shape, c.dtype) for c in (cell if isinstance(cell, tuple) else (cell,)))
            return empty if isinstance(cell, tuple) else empty[0]
        cells = []
        for i in itertools.product(*map(range, frame)):
            cells.append(self.apply(f, [np.asarray(a[i[len(frame) - len(x) :]]) for a, x in zip(args, frames, strict=True)], env))
        if isinstance(cells[0], tuple):
            return tuple(np.stack([c[n] for c in cells]).reshape(frame + cells[0][n].shape) for n in range(len(cells[0])))
        return np.stack(cells).reshape(frame + cells[0].shape)  # type: ignore[arg-type, union-attr]

    # --- structural operators, each by its psi rule ---
    def do_rho(self, a: Array) -> Array:
        return np.asarray(a.shape, np.int64)

    def do_dim(self, a: Array) -> Array:
        return np.asarray(a.ndim)

    def do_tau(self, a: Array) -> Array:
        return np.asarray(a.size)

    def do_iota(self, n: Array) -> Array:
        if n.ndim == 0:
            return np.arange(max(int(n), 0) if self.shape_only else int(n))
        shape = tuple(int(x) for x in n)
        return np.array(list(itertools.product(*map(range, shape))), np.int64).reshape(*shape, len(shape))

    def do_rav(self, a: Array) -> Array:
        return a.reshape(-1)

    def do_reshape(self, v: Array, a: Array) -> Array:
        return a.reshape(tuple(int(n) for n in np.atleast_1d(v)))

    def do_fill(self, v: Array, a: Array) -> Array:
        return np.full(tuple(int(n) for n in np.atleast_1d(v)), a)

    def do_take(self, t: Array, a: Array) -> Array:
        for axis, k in enumerate(int(x) for x in np.atleast_1d(t)):
            assert abs(k) <= a.shape[axis], (k, a.shape)
            a = np.take(a, range(k) if k >= 0 else range(a.shape[axis] + k, a.shape[axis]), axis)
        return a

    def do_drop(self, t: Array, a: Array) -> Array:
        for axis, k in enumerate(int(x) for x in np.atleast_1d(t)):
            assert abs(k) <= a.shape[axis], (k, a.shape)
            a = np.take(a, range(k, a.shape[axis]) if k >= 0 else range(a.shape[axis] + k), axis)
        return a

    def do_cat(self, a: Array, b: Array) -> Array:
        return np.concatenate([a, b])

    def do_reverse(self, a: Array) -> Array:
        return np.asarray([a[len(a) - 1 - i] for i in range(len(a))], a.dtype).reshape(a.shape)

    def do_rotate(self, r: Array, a: Array) -> Array:
        for axis, k in enumerate(int(x) for x in np.atleast_1d(r)):
            n = a.shape[axis]
            a = np.take(a, [(i + k) % n for i in range(n)], axis) if n else a
        return a

    def do_transpose(self, *args: Array) -> Array:
        a = args[-1]
        v = [int(x) for x in args[0]] if len(args) == 2 else list(range(a.ndim))[::-1]
        shape = tuple(min(a.shape[j] for j in range(a.ndim) if v[j] == k) for k in range(max(v, default=-1) + 1))
        return self.by_index(shape, lambda i: a[tuple(i[k] for k in v)], a)

    def do_psi(self, index: Array, a: Array) -> Array:
        for i in (int(x) for x in np.atleast_1d(index)):
            if self.shape_only:
                a = np.zeros(a.shape[1:], a.dtype)
            else:
                assert 0 <= i < len(a), f"index {i} out of range {len(a)}"
                a = np.asarray(a[i])
        return a
