"""Scalar terms at one point: a term becomes a Python function of the axis values. Written apart from ``scalars``, so the two check each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..terms import Term, show
from .arrays import array_value
from .env import Env, OutOfRange, SemanticsError

Point = Mapping[str, int]
Function = Callable[[Point], Any]
NOTHING = (-math.inf, 0.0)  # the identity of osm


def osm(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    """The monoid of online softmax on (m, w)."""
    if math.isnan(a[0]) or math.isnan(b[0]):
        return math.nan, math.nan
    m = max(a[0], b[0])
    return m, sum((w * math.exp(s - m) for s, w in (a, b) if s > -math.inf), 0.0)


def _real(f: Callable[..., Any]) -> Callable[..., Any]:
    def g(*args: Any) -> float:
        with np.errstate(all="ignore"):
            return float(f(*[np.float64(a) for a in args]))

    return g


def _keep(f: Callable[..., Any]) -> Callable[..., Any]:
    """Python arithmetic for integers, IEEE for floats."""
    real = _real(f)
    return lambda a, b: f(a, b) if isinstance(a, int) and isinstance(b, int) else real(a, b)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "neg": lambda a: -a, "abs": abs, "exp": _real(np.exp), "log": _real(np.log), "sqrt": _real(np.sqrt), "sin": _real(np.sin), "cos": _real(np.cos),
    "tanh": _real(np.tanh), "erf": math.erf, "floor": lambda a: a if isinstance(a, int) else float(np.floor(a)),
    "ceil": lambda a: a if isinstance(a, int) else float(np.ceil(a)), "sign": lambda a: (a > 0) - (a < 0) if isinstance(a, int) else float(np.sign(a)),
    "not": lambda a: not a, "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": _real(np.divide),
    "pow": _keep(lambda a, b: a**b), "max": _keep(lambda a, b: np.maximum(a, b) if isinstance(a, float) else max(a, b)),
    "min": _keep(lambda a, b: np.minimum(a, b) if isinstance(a, float) else min(a, b)), "idiv": lambda a, b: a // b, "mod": lambda a, b: a % b,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "and": lambda a, b: a and b, "or": lambda a, b: a or b,
}  # fmt: skip


def combine(monoid: str, a: Any, b: Any) -> Any:
    """Two contributions under a monoid other than ``once``."""
    return osm(a, b) if monoid == "osm" else FUNCTIONS[monoid](a, b)


def unit(monoid: str, dtype: str) -> Any:
    """The identity of a monoid in a type, as a Python value."""
    if monoid == "osm":
        return NOTHING
    if monoid in ("and", "or"):
        return monoid == "and"
    if dtype in ("f32", "f64"):
        return {"add": 0.0, "mul": 1.0, "max": -math.inf, "min": math.inf}[monoid]
    bits = 31 if dtype == "i32" else 63
    return {"add": 0, "mul": 1, "max": -(2**bits), "min": 2**bits - 1}[monoid]


class Points:
    """Compiles terms. ``read(name, index, term, point)`` gives the element of a named array; ``dtype(term)`` the type of an empty reduction."""

    def __init__(self, env: Env, read: Callable[[str, tuple[int, ...], Term, Point], Any], dtype: Callable[[Term], str]) -> None:
        self.env, self.read, self.dtype = env, read, dtype
        self.made: dict[Term, Function] = {}
        self.arrays: dict[Term, np.ndarray] = {}

    def function(self, t: Term) -> Function:
        if t not in self.made:
            self.made[t] = self._make(t)
        return self.made[t]

    def index(self, t: Term) -> Callable[[Point], tuple[int, ...]]:
        parts = [self.function(e) for e in t.kids()]
        return lambda p: tuple(f(p) for f in parts)

    def _make(self, t: Term) -> Function:
        op, a = t.op, t.args
        if op in ("int", "bool", "num", "size"):
            value = {"int": int, "bool": bool, "num": float, "size": lambda s: int(self.env.sizes[s])}[op](a[0])  # type: ignore[operator]
            return lambda p: value
        if op == "axis":
            name = str(a[0])
            defined = self.function(self.env.defs[name]) if name in self.env.defs else None

            def axis(p: Point) -> int:
                if name in p:
                    return p[name]
                if defined is None:
                    raise SemanticsError(f"axis @{name} has no value")
                return defined(p)

            return axis
        if op == "get":
            index, name = self.index(a[1]), str(a[0])  # type: ignore[arg-type]
            return lambda p: self.read(name, index(p), t, p)
        if op == "psi":
            return self._psi(t)
        if op == "reduce":
            return self._reduce(t)
        kids = [self.function(k) for k in t.kids()]
        if op == "select":
            c, yes, no = kids
            return lambda p: yes(p) if c(p) else no(p)
        if op == "cast":
            to = str(a[0])
            convert: Callable[[Any], Any] = float if to in ("f32", "f64") else bool if to == "bool" else int
            return lambda p: convert(kids[0](p))
        if op == "pair":
            return lambda p: (kids[0](p), kids[1](p))
        if op in ("fst", "snd"):
            which = int(op == "snd")
            return lambda p: kids[0](p)[which]
        f = FUNCTIONS[op]
        if op in ("idiv", "mod"):

            def divide(p: Point) -> int:
                x, y = kids[0](p), kids[1](p)
                if y == 0:
                    raise SemanticsError(f"{show(t)} divides by zero; witness {witness(p)}")
                return f(x, y)

            return divide
        if len(kids) == 1:
            return lambda p: f(kids[0](p))
        left, right = kids
        return lambda p: f(left(p), right(p))

    def _psi(self, t: Term) -> Function:
        index, source = self.index(t.args[0]), t.args[1]  # type: ignore[arg-type]

        def element(p: Point) -> Any:
            if source not in self.arrays:
                self.arrays[source] = array_value(source, self.env)  # type: ignore[arg-type,index]
            return element_of(self.arrays[source], index(p), t, p)  # type: ignore[index]

        return element

    def _reduce(self, t: Term) -> Function:
        monoid, axis = str(t.args[0]), str(t.args[1])
        extent, body = (self.function(k) for k in t.kids())

        def reduce(p: Point) -> Any:
            n, acc = extent(p), None
            for k in range(n):
                e = body({**p, axis: k})
                if monoid == "osm":
                    acc = osm(NOTHING if acc is None else acc, e)
                else:
                    acc = e if acc is None else FUNCTIONS[monoid](acc, e)
            return acc if acc is not None else unit(monoid, self.dtype(t) if monoid != "osm" else "")

        return reduce


def element_of(array: np.ndarray, index: tuple[int, ...], t: Term, p: Point) -> Any:
    """One element as a Python value; OutOfRange names the access and the point."""
    if len(index) != array.ndim or not all(0 <= i < n for i, n in zip(index, array.shape, strict=True)):
        raise OutOfRange(f"{show(t)} is out of range: index {index}, shape {array.shape}; witness {witness(p)}")
    return array[index].item()


def witness(p: Point) -> str:
    return ", ".join(f"{n}={v}" for n, v in p.items()) or "no axes"


def box(shape: tuple[int, ...]) -> itertools.product:
    """All indices of a shape, row-major."""
    return itertools.product(*[range(n) for n in shape])
