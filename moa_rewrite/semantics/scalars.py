"""Scalar terms evaluated for many values of their axes at once: every free or bound axis is one broadcast dimension.

A reduction is evaluated in chunks of its axis, so memory stays near a few times CHUNK elements beyond the result; what does not depend on the
axis is evaluated once, outside. Sums of products contract without forming the products. Extents may depend on outer axes: terms beyond are
masked. Reads are checked where they count (not in the branch a ``select`` leaves out, not beyond an extent).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from ..terms import Term, free_axes, show
from ..terms.ops import SCALAR_FUNCTIONS
from .arrays import array_approx
from .contract import Osm, product_sum
from .env import Env, OutOfRange, SemanticsError
from .numeric import F32, F64, Approx, Fold, Rounding, apply, cast, constant, neutral, prefixes

CHUNK = 1 << 20  # elements of one intermediate
Value = Approx | tuple[Approx, Approx]


def evaluate(t: Term, env: Env) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Values of a scalar term in float64 (int64, bool), shape (length of each axis of ``env.axes``, in order). A pair gives two arrays.

    OutOfRange names the access and the axis values of the first read outside an array.
    """
    out = approx(t, env, None)
    return (out[0].value, out[1].value) if not isinstance(out, Approx) else out.value


def evaluate_with_bound(t: Term, env: Env, r: Rounding | str = F32) -> tuple[np.ndarray, np.ndarray]:
    """(values, bounds) of a scalar term: evaluating it in the type of ``r`` ("f32", "f64" or a Rounding), with its sums in any order,
    differs from ``values`` by at most ``bounds`` (see numeric)."""
    out = approx(t, env, rounding(r))
    assert isinstance(out, Approx)
    return out.value, np.broadcast_to(out.error(), out.value.shape)


def rounding(r: Rounding | str) -> Rounding:
    return {"f32": F32, "f64": F64}[r] if isinstance(r, str) else r


def approx(t: Term, env: Env, r: Rounding | None) -> Value:
    """As ``evaluate``, values together with bounds (r None: without)."""
    shape = tuple(len(v) for v in env.axes.values())
    out = _Evaluation(t, env, r).run()

    def fit(a: Approx) -> Approx:
        return a.each(lambda v: np.broadcast_to(np.asarray(v).reshape(np.shape(v)[: len(shape)]), shape))

    return fit(out) if isinstance(out, Approx) else (fit(out[0]), fit(out[1]))


@dataclass
class _Frame:
    """What is in scope at one depth of reductions: its axis with the chunk of its values, and the mask of the points that count."""

    depth: int
    axis: str
    values: np.ndarray | None
    active: np.ndarray | None
    parent: _Frame | None
    memo: dict[tuple[Term, int], Value] = field(default_factory=dict)
    faults: set[Term] = field(default_factory=set)
    keep: list[np.ndarray] = field(default_factory=list)  # masks whose ids are in memo keys

    def find(self, axis: str) -> _Frame | None:
        f: _Frame | None = self
        while f is not None and f.axis != axis:
            f = f.parent
        return f


class _Evaluation:
    def __init__(self, t: Term, env: Env, r: Rounding | None) -> None:
        self.t, self.env, self.r = t, env, r
        self.free = list(env.axes)
        self.rank = len(self.free) + _nesting(t, env)
        self.shared = _shared(t)
        self.arrays: dict[Term, Approx] = {}
        self.root = _Frame(0, "", None, None, None)

    def run(self) -> Value:
        return self.at(self.t, self.root, None)

    # --- scope ---
    def vector(self, values: np.ndarray, dim: int) -> np.ndarray:
        return np.asarray(values, np.int64).reshape([-1 if d == dim else 1 for d in range(self.rank)])

    def home(self, t: Term, frame: _Frame) -> _Frame:
        """The outermost frame that binds all a term depends on."""
        bound, f = set(), frame
        while f.parent is not None:
            bound.add(f.axis)
            f = f.parent
        needs = self.env.base(free_axes(t), frozenset(bound))
        f = frame
        while f.parent is not None and f.axis not in needs:
            f = f.parent
        return f

    def at(self, t: Term, frame: _Frame, active: np.ndarray | None) -> Value:
        if t.op in ("int", "num", "size", "bool", "axis"):
            return self.leaf(t, frame, active)
        home = self.home(t, frame)
        if home is not frame:
            return self.hoisted(t, frame, home, active)
        if t not in self.shared:
            return self.eval(t, frame, active)
        key = (t, id(active))
        if key not in frame.memo:
            frame.memo[key] = self.eval(t, frame, active)
            if active is not None:
                frame.keep.append(active)
        return frame.memo[key]

    def hoisted(self, t: Term, frame: _Frame, home: _Frame, active: np.ndarray | None) -> Value:
        """A term that the inner axes do not change: evaluated in its home frame, there for all points; only if that reads out of range
        somewhere, for the points at which it is wanted."""
        key = (t, id(home.active))
        if key in home.memo:
            return home.memo[key]
        if t not in home.faults:
            try:
                home.memo[key] = self.eval(t, home, home.active)
                return home.memo[key]
            except OutOfRange:
                if active is home.active:
                    raise
                home.faults.add(t)
        inner = tuple(range(len(self.free) + home.depth, self.rank))
        wanted = None if active is None else np.asarray(active.any(axis=inner, keepdims=True))
        return self.eval(t, home, wanted)

    # --- evaluation ---
    def leaf(self, t: Term, frame: _Frame, active: np.ndarray | None) -> Value:
        a = t.args[0]
        if t.op == "axis":
            name = str(a)
            found = frame.find(name)
            if found is not None and found.values is not None:
                return Approx(self.vector(found.values, len(self.free) + found.depth - 1))
            if name in self.env.axes:
                return Approx(self.vector(self.env.axes[name], self.free.index(name)))
            if name in self.env.defs:
                return self.at(self.env.defs[name], frame, active)
            raise SemanticsError(f"axis @{name} has no value")
        if t.op == "num":
            v = constant(float(str(a)), self.r)
        else:
            v = Approx(np.asarray(self.env.sizes[str(a)] if t.op == "size" else bool(a) if t.op == "bool" else a))
        return v.each(lambda w: np.reshape(w, (1,) * self.rank))

    def scalar(self, t: Term, frame: _Frame, active: np.ndarray | None) -> Approx:
        out = self.at(t, frame, active)
        if not isinstance(out, Approx):
            raise SemanticsError(f"{show(t)} is a pair")
        return out

    def eval(self, t: Term, frame: _Frame, active: np.ndarray | None) -> Value:
        op, a = t.op, t.args
        kids = t.kids()
        if op in ("get", "psi"):
            return self.read(t, frame, active)
        if op == "reduce":
            return self.reduce(t, frame, active)
        if op == "pair":
            return self.scalar(kids[0], frame, active), self.scalar(kids[1], frame, active)
        if op in ("fst", "snd"):
            both = self.at(kids[0], frame, active)
            if isinstance(both, Approx):
                raise SemanticsError(f"{show(t)} takes a component of a scalar")
            return both[op == "snd"]
        if op == "cast":
            return cast(str(a[0]), self.scalar(kids[0], frame, active), self.r)
        if op == "select":
            c = self.scalar(kids[0], frame, active)
            yes, no = (self.at(k, frame, _both(active, m)) for k, m in ((kids[1], _taken(c)), (kids[2], _taken(c, False))))
            if isinstance(yes, Approx) and isinstance(no, Approx):
                return apply("select", [c, yes, no], self.r)
            if isinstance(yes, Approx) or isinstance(no, Approx):
                raise SemanticsError(f"{show(t)} selects between a scalar and a pair")
            return apply("select", [c, yes[0], no[0]], self.r), apply("select", [c, yes[1], no[1]], self.r)
        if op in SCALAR_FUNCTIONS:
            args = [self.scalar(k, frame, active) for k in kids]
            if op in ("idiv", "mod"):
                self.check(t, args[1].value == 0, active, "divides by zero", SemanticsError, frame)
            return apply(op, args, self.r)
        raise KeyError(f"no scalar operator {op}")

    def read(self, t: Term, frame: _Frame, active: np.ndarray | None) -> Approx:
        if t.op == "get":
            if str(t.args[0]) not in self.env.arrays:
                raise SemanticsError(f"{show(t)}: no array {t.args[0]} to read")
            array, index = Approx(self.env.arrays[str(t.args[0])]), t.args[1]
        else:
            index, source = t.args
            if source not in self.arrays:
                self.arrays[source] = array_approx(source, self.env, self.r)  # type: ignore[arg-type,index]
            array = self.arrays[source]  # type: ignore[index]
        shape = array.value.shape
        idx = [self.scalar(e, frame, active).value for e in index.kids()]  # type: ignore[union-attr]
        if len(idx) != len(shape):
            raise SemanticsError(f"{show(t)}: {len(idx)} indices for shape {shape}")
        for d, (i, n) in enumerate(zip(idx, shape, strict=True)):
            self.check(t, (i < 0) | (i >= n), active, f"is out of range: index {d} is {{value}}, the axis has length {n}", OutOfRange, frame, i)
        if 0 in shape:  # in range nowhere, so it counts nowhere
            return Approx(np.zeros((1,) * self.rank, array.value.dtype))
        where = tuple(np.clip(i, 0, n - 1) for i, n in zip(idx, shape, strict=True))
        return array.each(lambda w: w[where] if where else np.reshape(w, (1,) * self.rank))

    def check(
        self, t: Term, bad: np.ndarray, active: np.ndarray | None, text: str, kind: type[SemanticsError], frame: _Frame, shown: np.ndarray | None = None
    ) -> None:
        """Raise at the first point that counts and is bad, naming the axis values there."""
        if not bad.any() or any(len(v) == 0 for v in self.env.axes.values()):
            return
        hit = bad if active is None else bad & active
        if not hit.any():
            return
        point = [int(i) for i in np.argwhere(hit)[0]]
        names = {n: int(v[min(p, len(v) - 1)]) for p, (n, v) in zip(point, self.env.axes.items(), strict=False)}
        f: _Frame | None = frame
        while f is not None and f.values is not None:
            names[f.axis] = int(f.values[point[len(self.free) + f.depth - 1]])
            f = f.parent
        value = "" if shown is None else int(np.broadcast_to(shown, hit.shape)[tuple(point)])
        raise kind(f"{show(t)} {text.format(value=value)}; witness {', '.join(f'{n}={v}' for n, v in names.items())}")

    def reduce(self, t: Term, frame: _Frame, active: np.ndarray | None) -> Value:
        monoid, axis, extent_term, body = str(t.args[0]), str(t.args[1]), t.args[2], t.args[3]
        extent = self.scalar(extent_term, frame, active).value  # type: ignore[arg-type]
        if not np.issubdtype(extent.dtype, np.integer):
            raise SemanticsError(f"{show(t)}: the extent is no integer")
        dim = len(self.free) + frame.depth
        ragged = extent.size != 1
        counting = extent if active is None else np.where(active, extent, 0)
        length = max(int(counting.max(initial=0)), 0)
        count = np.maximum(extent, 0) if ragged else length
        dtype = self.env.dtype(t)
        osm, fold = Osm(dim, self.r), Fold(monoid, dim, dtype, self.r)
        fits = length * self.width(body, frame, axis) <= 4 * CHUNK  # type: ignore[arg-type]
        if ragged and length and fits and monoid != "osm" and active is None and self.apart(body, extent_term, axis):  # type: ignore[arg-type]
            inner = _Frame(frame.depth + 1, axis, np.arange(length), None, frame)
            return _prefixes(monoid, dim, _along(self.scalar(body, inner, None), dim, length), extent, dtype, self.r)  # type: ignore[arg-type]
        # the mask of what lies within a ragged extent depends on both
        wide = self.width(Term("add", body, extent_term) if ragged else body, frame, axis)  # type: ignore[arg-type]
        step = max(1, min(length, CHUNK // max(1, wide)))
        for start in range(0, length, step):
            values = np.arange(start, min(start + step, length))
            mask = active
            if ragged:
                mask = _both(active, self.vector(values, dim) < extent)
            inner = _Frame(frame.depth + 1, axis, values, mask, frame)
            live = mask if ragged else None
            if monoid == "osm":
                pair = self.at(body, inner, mask)  # type: ignore[arg-type]
                if isinstance(pair, Approx):
                    raise SemanticsError(f"{show(t)} reduces scalars, not pairs")
                s, x = (_along(p, dim, len(values)) if q == 0 else p for q, p in enumerate(pair))
                osm.feed(s, x, live)
            elif monoid == "add" and body.op == "mul" and not ragged and self.home(body, inner) is inner:  # type: ignore[union-attr,arg-type]
                left, right = (self.scalar(k, inner, mask) for k in body.kids())  # type: ignore[union-attr]
                product_sum(fold, _along(left, dim, len(values)), right)
            else:
                part = _along(self.scalar(body, inner, mask), dim, len(values))  # type: ignore[arg-type]
                if live is not None:
                    unit = neutral(monoid, part.value.dtype.kind, dtype)
                    part = Approx(np.where(live, part.value, unit), None if part.err is None else np.where(live, part.err, 0.0))
                fold.feed(part)
        if monoid == "osm":
            if not length:
                empty = np.full((1,) * self.rank, -math.inf)
                return Approx(empty), Approx(np.zeros_like(empty))
            return osm.result(count)
        if not length:
            kind = {"bool": "b", "i32": "i", "i64": "i"}.get(dtype, "f")
            return Approx(np.full((1,) * self.rank, neutral(monoid, kind, dtype)))
        return fold.result(count)

    def apart(self, body: Term, extent: Term, axis: str) -> bool:
        """Whether a body does not change with the axes its extent depends on, as in a scan: then all its sums are prefixes of one sequence."""
        return not self.env.base(free_axes(extent)) & self.env.base(free_axes(body), frozenset([axis])) - {axis}

    def width(self, t: Term, frame: _Frame, axis: str) -> int:
        """Elements per value of ``axis`` of the largest intermediate that evaluating a body forms."""
        if t.op in ("mul", "pair"):
            return max(self.width(k, frame, axis) for k in t.kids())
        lengths = {n: len(v) for n, v in self.env.axes.items()}
        f: _Frame | None = frame
        bound = {axis}
        while f is not None and f.values is not None:
            lengths[f.axis] = len(f.values)
            bound.add(f.axis)
            f = f.parent
        return math.prod(lengths[n] for n in sorted(self.env.base(free_axes(t), frozenset(bound))) if n in lengths and n != axis)


def _prefixes(monoid: str, dim: int, x: Approx, extent: np.ndarray, dtype: str, r: Rounding | None) -> Approx:
    """Reductions of the first ``extent`` elements along ``dim``; x does not depend on the dimensions that ``extent`` has."""
    unit_shape = [1 if d == dim else n for d, n in enumerate(x.value.shape)]
    unit = np.full(unit_shape, neutral(monoid, x.value.dtype.kind, dtype))
    sums = prefixes(monoid, dim, x, r)
    grid = [np.arange(n).reshape([-1 if d == e else 1 for e in range(x.value.ndim)]) for d, n in enumerate(x.value.shape)]
    where = tuple(np.maximum(extent, 0) if d == dim else g for d, g in enumerate(grid))
    value = np.concatenate([unit, sums.value], axis=dim)[where]
    return Approx(value, None if sums.err is None else np.concatenate([np.zeros(unit_shape), sums.err], axis=dim)[where])


def _along(a: Approx, dim: int, n: int) -> Approx:
    """A body that does not depend on its axis still counts n times."""
    if a.value.shape[dim] == n and (a.err is None or a.err.shape[dim] == n):
        return a
    return a.each(lambda v: np.broadcast_to(v, (*v.shape[:dim], n, *v.shape[dim + 1 :])))


def _taken(c: Approx, yes: bool = True) -> np.ndarray:
    """Where a branch is taken; an uncertain condition is settled by its float64 value."""
    return c.value if yes else ~c.value


def _both(a: np.ndarray | None, b: np.ndarray) -> np.ndarray:
    return b if a is None else a & b


def _nesting(t: Term, env: Env) -> int:
    """The greatest number of reductions around a subterm."""
    memo: dict[Term, int] = {}

    def depth(u: Term) -> int:
        if u not in memo:
            kids = u.args[2:] if u.op == "reduce" else u.args[:1] if u.op == "psi" else u.args
            memo[u] = max((depth(a) for a in kids if isinstance(a, Term)), default=0) + (u.op == "reduce")
        return memo[u]

    return depth(t)


def _shared(t: Term) -> frozenset[Term]:
    """Subterms with more than one parent: only their values are worth keeping."""
    uses: Counter[Term] = Counter()
    stack, seen = [t], {t}
    while stack:
        for a in stack.pop().kids():
            uses[a] += 1
            if a not in seen:
                seen.add(a)
                stack.append(a)
    return frozenset(a for a, n in uses.items() if n > 1)
