"""Array terms evaluated whole, each operator by its own meaning in NumPy: the oracle of the psi rules, which it does not use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..terms import Term, show
from ..terms.ops import SCALAR_FUNCTIONS
from .env import Env, OutOfRange, SemanticsError, integer
from .numeric import Approx, Fold, Rounding, apply, cast, constant, prefixes


def array_value(t: Term, env: Env) -> np.ndarray:
    """The value of an elaborated array term without free axes, float64, int64 or bool. SemanticsError where shapes disagree or a read is out of range."""
    return array_approx(t, env, None).value


def array_approx(t: Term, env: Env, r: Rounding | None) -> Approx:
    """As ``array_value``, with the rounding bound of computing each element in the type of ``r`` (None: no bound)."""
    memo: dict[Term, Approx] = {}

    def at(u: Term) -> Approx:
        found = memo.get(u)
        if found is None:
            found = memo[u] = _eval(u, at, env, r)
        return found

    return at(t)


def _eval(u: Term, at: Callable[[Term], Approx], env: Env, r: Rounding | None) -> Approx:
    op, a = u.op, u.args

    def num(k: int) -> int:
        return integer(a[k], env)  # type: ignore[arg-type]

    def need(ok: bool, what: str) -> None:
        if not ok:
            raise SemanticsError(f"{show(u)}: {what}")

    if op == "arr":
        return Approx(env.arrays[str(a[0])])
    if op == "int":
        return Approx(np.asarray(int(a[0])))  # type: ignore[arg-type]
    if op == "bool":
        return Approx(np.asarray(bool(a[0])))
    if op == "num":
        return constant(float(str(a[0])), r)
    if op == "size":
        return Approx(np.asarray(env.sizes[str(a[0])]))
    if op in ("get", "psi", "reduce", "axis", "fst", "snd"):
        from .scalars import approx  # a scalar as a rank-0 array

        out = approx(u, Env(env.sizes, env.arrays, {}, env.defs, env.names), r)
        need(isinstance(out, Approx), "a pair is no array element")
        return out  # type: ignore[return-value]
    if op == "cast":
        return cast(str(a[0]), at(a[1]), r)  # type: ignore[arg-type]
    if op in SCALAR_FUNCTIONS:
        args = [at(x) for x in u.kids()]
        need(len({x.value.shape for x in args}) == 1, f"shapes {', '.join(str(x.value.shape) for x in args)} differ")
        return apply(op, args, r)
    if op == "iota":
        return Approx(np.arange(num(0)))
    if op == "fill":
        c = at(a[1])  # type: ignore[arg-type]
        need(c.value.ndim == 0, f"fills with an array of shape {c.value.shape}")
        shape = tuple(integer(e, env) for e in a[0].kids())  # type: ignore[union-attr]
        return c.each(lambda v: np.broadcast_to(v, shape))
    if op == "cat":
        k, left, right = int(a[0]), at(a[2]), at(a[3])  # type: ignore[arg-type]
        shapes = [[n for d, n in enumerate(x.value.shape) if d != k] for x in (left, right)]
        need(left.value.shape[k] == num(1) and shapes[0] == shapes[1], f"joins {left.value.shape} and {right.value.shape} along axis {k}")
        err = None if left.err is None and right.err is None else np.concatenate([left.error(), right.error()], axis=k)
        return Approx(np.concatenate([left.value, right.value], axis=k), err)
    x = at(a[-1])  # type: ignore[arg-type]
    if op == "transpose":
        v = [integer(e, env) for e in a[0].kids()]  # type: ignore[union-attr]
        need(len(v) == x.value.ndim and sorted(set(v)) == list(range(max(v, default=-1) + 1)), f"{v} is not onto, or not of rank {x.value.ndim}")
        shape = tuple(min(n for n, j in zip(x.value.shape, v, strict=True) if j == k) for k in sorted(set(v)))
        grid = np.indices(shape, sparse=True)
        return x.each(lambda w: w[tuple(grid[j] for j in v)])
    if op == "reshape":
        new, old = (tuple(integer(e, env) for e in s.kids()) for s in a[:2])  # type: ignore[union-attr]
        need(x.value.shape == old and np.prod(new) == np.prod(old), f"reshapes {x.value.shape} to {new}")
        return x.each(lambda w: w.reshape(new))
    k = int(a[1] if op in ("red", "scan") else a[0])  # type: ignore[arg-type]
    if op == "spread":
        n = num(1)
        need(n >= 0 and k <= x.value.ndim, f"axis {k}, length {n}")
        return x.each(lambda w: np.broadcast_to(np.expand_dims(w, k), (*w.shape[:k], n, *w.shape[k:])))
    if op == "gather":
        e = at(a[1]).value  # type: ignore[arg-type]
        need(e.shape == x.value.shape[:k], f"selects by shape {e.shape} in {x.value.shape}")
        bad = np.argwhere((e < 0) | (e >= x.value.shape[k]))
        if len(bad):
            raise OutOfRange(f"{show(u)} is out of range: {e[tuple(bad[0])]} at {tuple(int(i) for i in bad[0])}, axis length {x.value.shape[k]}")
        where = (*np.indices(e.shape, sparse=True), e)
        return x.each(lambda w: w[where])
    n = x.value.shape[k]
    if op in ("red", "scan"):
        need(num(3) == n, f"axis {k} has length {n}, not {num(3)}")
        if op == "scan":
            return prefixes(str(a[0]), k, x, r)
        return _red(str(a[0]), k, x, env, r, u)
    if op in ("take", "taker", "drop", "dropr"):
        t = num(1)
        need(0 <= t <= n, f"{t} of {n} items")
        need(op != "taker" or num(2) == n, f"axis {k} has length {n}")
        cut = {"take": slice(0, t), "taker": slice(n - t, n), "drop": slice(t, n), "dropr": slice(0, n - t)}[op]
        return x.each(lambda w: w[(slice(None),) * k + (cut,)])
    if op == "reverse":
        need(num(1) == n, f"axis {k} has length {n}")
        return x.each(lambda w: np.flip(w, k))
    if op == "rotate":
        need(num(2) == n, f"axis {k} has length {n}")
        return x.each(lambda w: np.roll(w, -num(1), k))
    raise KeyError(f"no array operator {op}")


def _red(monoid: str, k: int, x: Approx, env: Env, r: Rounding | None, u: Term) -> Approx:
    fold = Fold(monoid, k, env.dtype(u) if x.value.dtype.kind == "i" else "f64", r)
    fold.feed(x)
    return fold.result(x.value.shape[k]).each(lambda w: np.squeeze(w, k))
