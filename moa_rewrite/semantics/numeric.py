"""Elementwise functions and reductions on float64 arrays, each with a bound of the rounding error of computing it in a narrower type.

Error model (Higham, Accuracy and Stability of Numerical Algorithms, ch. 3). A value x stands beside e >= 0 with |computed - x| <= e. Inputs have
e = 0. A function maps e by its derivative (taken over the interval where that is simple) and adds u*|result| for its own rounding, 8u (4 ulp) for
library functions, and the smallest normal number where a result may underflow (flushing to zero is allowed). A sum of n terms in ANY order adds
gamma_n * sum |term|, gamma_n = n*u/(1 - n*u). max and min are exact. A comparison whose operands are closer than their errors is uncertain (e = 1),
and a select under it is off by at most the distance of its branches. Errors are absolute, so cancellation needs no special case. Results that
are infinite because an operand was have e = 0; finite ones that the narrow type cannot hold have e = inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Rounding:
    """A floating-point type: unit roundoff, smallest normal, largest finite. ``tile``: an online softmax rescales at most once per so many terms."""

    u: float
    tiny: float
    huge: float
    tile: int = 16


# The float64 evaluation that the bound is used with errs too, by the same formulas with its own u; hence the sums.
F32 = Rounding(2.0**-24 + 2.0**-53, 2.0**-126, (2 - 2.0**-23) * 2.0**127)
F64 = Rounding(2.0**-52, 2.0**-1022, float(np.finfo(np.float64).max))


class Approx(NamedTuple):
    """A value and the bound of its error; None is an exact value."""

    value: np.ndarray
    err: np.ndarray | None = None

    def each(self, f: Callable[[np.ndarray], np.ndarray]) -> Approx:
        """The same structural operation on value and bound."""
        return Approx(f(self.value), None if self.err is None else f(self.err))

    def error(self) -> np.ndarray:
        return np.zeros(np.shape(self.value)) if self.err is None else self.err


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _pow(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "i" and b.dtype.kind == "i" and (b >= 0).all():
        return np.power(a, b)
    return np.power(np.asarray(a, float), b)


VALUE: dict[str, Callable[..., np.ndarray]] = {
    "neg": np.negative, "abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "erf": lambda a: _erf(np.asarray(a, float)), "floor": np.floor, "ceil": np.ceil, "sign": np.sign, "not": np.logical_not,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide, "pow": _pow, "max": np.maximum, "min": np.minimum,
    "idiv": np.floor_divide, "mod": np.mod, "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal,
    "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def constant(value: float | int | bool, r: Rounding | None) -> Approx:
    """A literal; one that the type does not hold exactly is rounded."""
    v = np.asarray(value)
    if r is None or v.dtype.kind != "f" or not np.isfinite(v) or (r.u < 2.0**-40 or float(np.float32(value)) == value):
        return Approx(v)
    return Approx(v, np.asarray(r.u * abs(float(value))))


def apply(op: str, args: list[Approx], r: Rounding | None) -> Approx:
    """A scalar function on broadcast arrays. Integers and booleans are exact; ``r`` None skips the bounds. Errors: none; IEEE rules for values."""
    x = [a.value for a in args]
    with np.errstate(all="ignore"):
        if op == "select":
            return Approx(np.where(*x), None if r is None else _select_error(args))
        value = VALUE[op](*x)
        if r is None or all(v.dtype.kind != "f" for v in (value, *x)):
            return Approx(value)
        if op in _COMPARE:
            near = np.abs(x[0] - x[1]) <= args[0].error() + args[1].error()
            exact = (args[0].err is None or (args[0].err == 0)) & (args[1].err is None or (args[1].err == 0))
            return Approx(value, (near & ~np.asarray(exact)).astype(float))
        if value.dtype.kind == "b":
            return Approx(value, None if all(a.err is None for a in args) else np.maximum(args[0].error(), args[-1].error()))
        own = _OWN.get(op, 0)
        if own == 0 and all(a.err is None for a in args):
            return Approx(value)
        size = np.abs(value)
        e = _PROPAGATE[op](*[w for a in args for w in (a.value, a.error())], value)
        e = e + own * r.u * (size + e) + (r.tiny if op in _UNDERFLOW else 0.0)
        return Approx(value, settle(value, e, r))


def settle(value: np.ndarray, e: np.ndarray, r: Rounding) -> np.ndarray:
    """Infinite results are exact (an operand was infinite); a finite one too large for the type, or of unknown error, is unbounded."""
    e = np.where(np.isnan(e) | (np.abs(value) + e > r.huge), np.inf, e)
    return np.where(np.isfinite(value), e, 0.0)


def _select_error(args: list[Approx]) -> np.ndarray | None:
    c, a, b = args
    if c.err is None and a.err is None and b.err is None:
        return None
    e = np.where(c.value, a.error(), b.error())
    if c.err is None:
        return e
    apart = np.abs(np.asarray(a.value, float) - np.asarray(b.value, float))
    return np.where(c.err > 0, np.where(np.isnan(apart), np.inf, apart) + np.maximum(a.error(), b.error()), e)


def _jump(f: Callable[[np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda a, ea, y: np.maximum(f(a + ea) - y, y - f(a - ea))


def _extreme(sign: int) -> Callable[..., np.ndarray]:
    def error(a: np.ndarray, ea: np.ndarray, b: np.ndarray, eb: np.ndarray, y: np.ndarray) -> np.ndarray:
        gap = np.where(np.asarray(a) == b, 0.0, sign * (np.asarray(a, float) - b))
        return np.where(gap > ea + eb, ea, np.where(-gap > ea + eb, eb, np.maximum(ea, eb)))

    return error


def _pow_error(a: np.ndarray, ea: np.ndarray, b: np.ndarray, eb: np.ndarray, y: np.ndarray) -> np.ndarray:
    size = np.abs(a)
    relative = np.where(ea == 0, 0.0, np.where(ea < size, np.abs(b) * ea / (size - ea), np.inf)) + np.where(eb > 0, np.abs(np.log(size)) * eb, 0.0)
    near_zero = np.where((b > 0) & (eb == 0), np.power(size + ea, b) + np.abs(y), np.inf)
    moved = np.where((ea < size) | (ea == 0), np.abs(y) * np.expm1(relative), near_zero)
    return np.where((ea == 0) & (eb == 0), 0.0, moved)


_COMPARE = ("lt", "le", "eq", "ne")
# own rounding in units of u; 16 for pow covers small powers by products too
_OWN = {"add": 1, "sub": 1, "mul": 1, "div": 1, "sqrt": 1, "exp": 8, "log": 8, "sin": 8, "cos": 8, "tanh": 8, "erf": 8, "pow": 16}
_UNDERFLOW = ("mul", "div", "exp", "pow", "sin", "tanh", "erf")
_PROPAGATE: dict[str, Callable[..., np.ndarray]] = {
    "neg": lambda a, ea, y: ea,
    "abs": lambda a, ea, y: ea,
    "exp": lambda a, ea, y: np.where(ea == 0, 0.0, y * np.expm1(ea)),
    "log": lambda a, ea, y: np.where(ea == 0, 0.0, np.where(ea < a, -np.log1p(-ea / a), np.inf)),
    "sqrt": lambda a, ea, y: np.where(ea == 0, 0.0, np.minimum(ea / y, np.sqrt(ea))),
    "sin": lambda a, ea, y: ea,
    "cos": lambda a, ea, y: ea,
    "tanh": lambda a, ea, y: ea,
    "erf": lambda a, ea, y: 2 / math.sqrt(math.pi) * ea,
    "floor": _jump(np.floor),
    "ceil": _jump(np.ceil),
    "sign": _jump(np.sign),
    "add": lambda a, ea, b, eb, y: ea + eb,
    "sub": lambda a, ea, b, eb, y: ea + eb,
    "mul": lambda a, ea, b, eb, y: np.where(eb == 0, 0.0, np.abs(a) * eb) + np.where(ea == 0, 0.0, np.abs(b) * ea) + ea * eb,
    "div": lambda a, ea, b, eb, y: np.where((ea == 0) & (eb == 0), 0.0, np.where(eb < np.abs(b), (ea + np.abs(y) * eb) / (np.abs(b) - eb), np.inf)),
    "pow": _pow_error,
    "max": _extreme(1),
    "min": _extreme(-1),
}


def cast(to: str, a: Approx, r: Rounding | None) -> Approx:
    """Conversion. Values are not rounded to f32 (the bound accounts for it); a float becomes an integer by truncation."""
    v = a.value
    if to in ("f32", "f64"):
        out = np.asarray(v, float)
        if r is None:
            return Approx(out)
        u = max(r.u, 2.0**-24) if to == "f32" else r.u
        if v.dtype.kind != "f" and np.abs(out).max(initial=0.0) <= 1 / u / 2:
            return Approx(out, a.err)  # small integers are exact
        return Approx(out, settle(out, a.error() + u * (np.abs(out) + a.error()), r))
    if to == "bool":
        return Approx(v != 0, None if a.err is None or r is None else ((np.abs(v) <= a.err) & (a.err > 0)).astype(float))
    with np.errstate(all="ignore"):
        out = np.trunc(v).astype(np.int64) if v.dtype.kind == "f" else v.astype(np.int64)
        return Approx(out, None if a.err is None or r is None else np.maximum(np.trunc(v + a.err) - out, out - np.trunc(v - a.err)))


# --- reductions along one dimension, which is kept with length 1 -----------------------------------------------------------------
_REDUCE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.logical_and, "or": np.logical_or}


def gamma(n: np.ndarray | float, r: Rounding) -> np.ndarray:
    nu = np.asarray(n, float) * r.u
    return np.where(nu < 1, nu / (1 - nu), np.inf)


def neutral(monoid: str, kind: str, dtype: str) -> float | int | bool:
    """The identity of a monoid for values of NumPy kind "f", "i" or "b"; ``dtype`` tells i32 from i64."""
    if monoid in ("and", "or"):
        return monoid == "and"
    if kind == "f":
        return {"add": 0.0, "mul": 1.0, "max": -math.inf, "min": math.inf}[monoid]
    bits = 31 if dtype == "i32" else 63
    return {"add": 0, "mul": 1, "max": -(2**bits), "min": 2**bits - 1}[monoid]


class Fold:
    """A reduction over chunks of its axis: feed the chunks in order, take the result. ``dim``: the reduced dimension. Works for scalar monoids."""

    def __init__(self, monoid: str, dim: int, dtype: str, r: Rounding | None) -> None:
        self.monoid, self.dim, self.dtype, self.r = monoid, dim, dtype, r
        self.value: np.ndarray | None = None
        self.err: np.ndarray | None = None
        self.size: np.ndarray | None = None  # sum of |term| + e, or the product of it

    def feed(self, a: Approx) -> None:
        f, kind = _REDUCE[self.monoid], a.value.dtype.kind
        with np.errstate(all="ignore"):
            part = f.reduce(a.value, axis=self.dim, keepdims=True, initial=neutral(self.monoid, kind, self.dtype))
            err = size = None
            if self.r is not None and kind == "f":
                if self.monoid in ("add", "mul"):
                    size = f.reduce(np.abs(a.value) + a.error(), axis=self.dim, keepdims=True)
                if self.monoid == "add":
                    err = None if a.err is None else np.add.reduce(a.err, axis=self.dim, keepdims=True)
                elif self.monoid != "mul":
                    err = None if a.err is None else np.maximum.reduce(a.err, axis=self.dim, keepdims=True, initial=0.0)
            elif a.err is not None:
                err = np.maximum.reduce(a.err, axis=self.dim, keepdims=True, initial=0.0)
            self.add(part, err, size)

    def add(self, part: np.ndarray, err: np.ndarray | None, size: np.ndarray | None) -> None:
        """Merge what one chunk gave."""
        with np.errstate(all="ignore"):
            f = _REDUCE[self.monoid]
            join = np.add if self.monoid == "add" else np.maximum
            self.value = part if self.value is None else f(self.value, part)
            self.err = err if self.err is None else (self.err if err is None else join(self.err, err))
            self.size = size if self.size is None or size is None else f(self.size, size)

    def result(self, count: np.ndarray | int) -> Approx:
        """The value after ``count`` terms (per point where extents vary), with its bound."""
        assert self.value is not None
        if self.r is None or self.value.dtype.kind != "f" or self.monoid not in ("add", "mul"):
            return Approx(self.value, self.err)
        with np.errstate(all="ignore"):
            n = gamma(count, self.r)
            grow = n * np.asarray(self.size) + np.asarray(count) * self.r.tiny
            spread = (0.0 if self.err is None else self.err) if self.monoid == "add" else np.asarray(self.size) - np.abs(self.value)
            return Approx(self.value, settle(self.value, spread + grow, self.r))


def prefixes(monoid: str, k: int, x: Approx, r: Rounding | None) -> Approx:
    """The reductions of the first 1, 2, ... elements along axis k."""
    f = _REDUCE[monoid]
    with np.errstate(all="ignore"):
        value = f.accumulate(x.value, axis=k)
        if r is None or x.value.dtype.kind != "f":
            return Approx(value)
        if monoid in ("max", "min"):
            return Approx(value, None if x.err is None else np.maximum.accumulate(x.err, axis=k))
        size = f.accumulate(np.abs(x.value) + x.error(), axis=k)
        spread = np.add.accumulate(x.error(), axis=k) if monoid == "add" else size - np.abs(value)
        count = np.arange(1, x.value.shape[k] + 1).reshape([-1 if d == k else 1 for d in range(x.value.ndim)])
        return Approx(value, settle(value, spread + gamma(count, r) * size + count * r.tiny, r))
