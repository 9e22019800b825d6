"""Sums of products over one dimension, and the monoid of online softmax, on arrays whose dimensions stand for axes (length 1: does not depend)."""

from __future__ import annotations

import math

import numpy as np

from .numeric import Approx, Fold, Rounding, gamma


def contract(a: np.ndarray, b: np.ndarray, dim: int) -> np.ndarray:
    """sum over ``dim`` of a*b, kept with length 1, without forming the product. Both have the same number of dimensions."""
    n = max(a.shape[dim], b.shape[dim])
    others = [d for d in range(a.ndim) if d != dim]
    if any(0 in (a.shape[d], b.shape[d]) for d in others):
        return np.zeros([1 if d == dim else s for d, s in enumerate(np.broadcast_shapes(a.shape, b.shape))])
    batch = [d for d in others if a.shape[d] > 1 and b.shape[d] > 1]
    rows = [d for d in others if a.shape[d] > 1 and b.shape[d] == 1]
    cols = [d for d in others if a.shape[d] == 1 and b.shape[d] > 1]
    rest = [d for d in others if a.shape[d] == 1 and b.shape[d] == 1]

    def grouped(x: np.ndarray, groups: list[list[int]]) -> np.ndarray:
        shape = list(x.shape)
        shape[dim] = n
        x = np.broadcast_to(x, shape).transpose([d for g in groups for d in g] + [d for d in range(x.ndim) if all(d not in g for g in groups)])
        return x.reshape([math.prod(shape[d] for d in g) for g in groups])

    with np.errstate(all="ignore"):
        if not rows and not cols:
            out = np.einsum("bn,bn->b", grouped(a, [batch, [dim]]), grouped(b, [batch, [dim]]))
        else:
            out = np.matmul(grouped(a, [batch, rows, [dim]]), grouped(b, [batch, [dim], cols]))
    order = [*batch, *rows, *cols, *rest, dim]
    full = out.reshape([max(a.shape[d], b.shape[d]) if d != dim else 1 for d in order])
    return full.transpose(np.argsort(order))


def product_sum(fold: Fold, a: Approx, b: Approx) -> None:
    """Feed a*b to a sum without forming it: the bounds of the products (see numeric) are themselves sums of products."""
    value = contract(a.value, b.value, fold.dim)
    if fold.r is None or value.dtype.kind != "f":
        fold.add(value, None, None)
        return
    u, size_a, size_b = fold.r.u, np.abs(a.value), np.abs(b.value)
    size = contract(size_a, size_b, fold.dim)
    err = u * size
    with np.errstate(all="ignore"):
        if b.err is not None:
            err = err + (1 + u) * contract(size_a, b.err, fold.dim)
        if a.err is not None:
            err = err + (1 + u) * contract(a.err, size_b if b.err is None else size_b + b.err, fold.dim)
        fold.add(value, err, size + err)


class Osm:
    """Reduction under the monoid of online softmax: pairs (s, x) give (m, w) = (max s, sum of x*exp(s - m)); nothing, or all s = -inf, gives (-inf, 0).

    Bound of w: each term has the relative error of exp, of its argument s - m (both of them off, plus rounding), of one rescale per ``tile`` terms,
    and of the product; the sum adds gamma_n. Kept while feeding: a = sum p|x|, b = what the errors of s and x and the differences s - m cause.
    """

    def __init__(self, dim: int, r: Rounding | None) -> None:
        self.dim, self.r = dim, r
        self.max = Fold("max", dim, "f64", r)
        self.w: np.ndarray | None = None
        self.a: np.ndarray | None = None
        self.b: np.ndarray | None = None
        self.x_max: np.ndarray | float = 0.0

    def feed(self, s: Approx, x: Approx, active: np.ndarray | None) -> None:
        """A chunk. ``active`` masks terms out."""
        sv = np.asarray(s.value, float) if active is None else np.where(active, s.value, -np.inf)
        xv = np.asarray(x.value, float)
        with np.errstate(all="ignore"):
            m = np.maximum.reduce(sv, axis=self.dim, keepdims=True, initial=-np.inf)
            p = np.where(sv == -np.inf, 0.0, np.exp(sv - m))
            none = p == 0  # such terms count for nothing, whatever x holds
            if active is not None or not np.isfinite(xv).all():
                xv = np.where(np.broadcast_to(none, np.broadcast_shapes(none.shape, xv.shape)), 0.0, xv)
            w = contract(p, xv, self.dim)
            a = b = None
            if self.r is not None:
                size = np.abs(xv)
                off = np.where(none, 0.0, s.error() + self.r.u * np.abs(sv - m))
                a, b = contract(p, size, self.dim), contract(p * np.expm1(off), size, self.dim)
                if x.err is not None:
                    b = b + contract(p * np.exp(off), np.where(np.isfinite(x.err), x.err, np.inf), self.dim)
                self.x_max = np.maximum(self.x_max, np.max(size, axis=self.dim, keepdims=True, initial=0.0))
            before = self.max.value
            self.max.feed(Approx(sv, None if self.r is None else np.where(none, 0.0, s.error())))
            if before is None:
                self.w, self.a, self.b = w, a, b
                return
            old, new = self._rescale(before), self._rescale(m)
            self.w = self.w * old + w * new  # type: ignore[operator]
            if self.r is not None:
                scaled = [(self.a * old, self.b * old, before), (a * new, b * new, m)]  # type: ignore[operator]
                self.a, self.b = scaled[0][0] + scaled[1][0], sum(self._drift(*q) for q in scaled)  # type: ignore[assignment]

    def _rescale(self, m: np.ndarray) -> np.ndarray:
        return np.where(m == -np.inf, 0.0, np.exp(m - self.max.value))

    def _drift(self, a: np.ndarray, b: np.ndarray, m: np.ndarray) -> np.ndarray:
        """b after the reference moved from m to the present maximum."""
        assert self.r is not None and self.max.value is not None
        d = np.where(m == -np.inf, 0.0, self.r.u * np.abs(m - self.max.value))
        return b * np.exp(d) + a * np.expm1(d)

    def result(self, count: np.ndarray | int) -> tuple[Approx, Approx]:
        """(m, w) after ``count`` terms."""
        assert self.w is not None and self.max.value is not None
        m = self.max.result(count)
        if self.r is None:
            return m, Approx(self.w)
        u, n = self.r.u, np.asarray(count, float)
        with np.errstate(all="ignore"):
            c = m.error() + (10 + 10 * np.ceil(n / self.r.tile)) * u
            e = self.b * np.exp(c) + self.a * np.expm1(c)  # type: ignore[operator]
            e = e + gamma(n, self.r) * (self.a + e) + n * self.r.tiny * (1 + self.x_max)
            return m, Approx(self.w, np.where(np.isfinite(self.w), np.where(np.isnan(e), np.inf, e), 0.0))
