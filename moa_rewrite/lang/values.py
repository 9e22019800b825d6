"""Values during elaboration, and lifting over the frame of Ω.

Inside ``f Ω<r> A`` every value lives in a *frame*, a list of extents that grows inwards. A value carries the first ``depth`` axes
of the frame in front of its own (cell) axes and is constant along the others. Primitives act on cell axes only, so a primitive
under Ω is the same primitive with its axis number raised by ``depth``; values of different depth meet after a ``spread``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NoReturn

from ..errors import MoaError
from ..terms import I, Term, ix, num, show
from ..terms.ops import ARGS, ARRAYS
from . import builtins as B
from .poly import Poly
from .prove import Prover, Verdict
from .tree import Pos

Shape = tuple[Poly, ...]
PRELUDE = "prelude.moa"


@dataclass(frozen=True)
class Val:
    """An array in a frame. ``dtype``: one of the five types, or "int" / "float" for a literal that still adapts to its surroundings.

    ``static``: the value as sizes, where it is known from sizes alone (a Poly for rank 0, a tuple for rank 1).
    """

    term: Term
    shape: Shape
    dtype: str
    pos: Pos
    depth: int = 0
    static: Poly | tuple[Poly, ...] | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)


Value = Val | tuple[Val, ...]


def text(shape: Shape) -> str:
    return "<" + ", ".join(map(str, shape)) + ">"


def shape_term(shape: Shape) -> Term:
    return ix(*[s.term() for s in shape])


@dataclass
class Context:
    """State of one elaboration."""

    prover: Prover = field(default_factory=Prover)
    frame: Shape = ()
    calls: list[tuple[str, Pos]] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)  # names that axes must not have
    reductions: int = 0

    def fail(self, code: int, message: str, pos: Pos, notes: list[str] | None = None, witness: str = "", hint: str = "") -> NoReturn:
        trace = [f"in `{name}`, applied at {at}" for name, at in reversed(self.calls)]
        mine = [at for _, at in self.calls if at.file != PRELUDE]
        if pos.file == PRELUDE and mine:  # the mistake is where the program applied the definition
            trace.insert(0, f"found at {pos}")
            pos = mine[-1]
        raise MoaError(code, message, pos.file, pos.line, pos.col, [*(notes or []), *trace], witness, hint)

    def fresh_axis(self) -> str:
        """The next name r0, r1, ... that is nothing else's."""
        while f"r{self.reductions}" in self.taken:
            self.reductions += 1
        self.reductions += 1
        return f"r{self.reductions - 1}"

    # --- claims about sizes ---
    def equal(self, a: Poly, b: Poly) -> Verdict:
        return Verdict(True) if a == b else self.prover.equal(a.term(), b.term())

    def same_shape(self, a: Shape, b: Shape) -> Verdict:
        """Are two shapes of equal rank equal? The first difference otherwise."""
        for x, y in zip(a, b, strict=True):
            v = self.equal(x, y)
            if not v.proved:
                return v
        return Verdict(True)

    def at_most(self, a: Poly, b: Poly) -> Verdict:
        return self.prover.check(Term("le", a.term(), b.term()))

    # --- lifting ---
    def lift(self, v: Val, depth: int, cell: Shape) -> Term:
        """The term of a value at a greater depth; a rank-0 cell becomes one of shape ``cell`` (scalar extension)."""
        t = v.term
        extend = cell if not v.shape else ()
        if v.depth == 0 and v.rank == 0 and (depth or extend):
            return Term("fill", shape_term(self.frame[:depth] + extend), t)
        for k, n in enumerate(extend):
            t = Term("spread", v.depth + k, n.term(), t)
        for k in range(v.depth, depth):
            t = Term("spread", k, self.frame[k].term(), t)
        return t

    def at_depth(self, v: Val, depth: int) -> Val:
        return v if v.depth == depth else replace(v, term=self.lift(v, depth, ()), depth=depth)


def literal(value: int, dtype: str) -> Term:
    return num(repr(float(value))) if dtype in B.FLOATS or dtype == "float" else I(value)


def vector_term(items: list[Term]) -> Term:
    """A rank-1 array term from rank-0 terms."""
    if not items:
        return Term("iota", I(0))
    out = Term("fill", ix(I(1)), items[0])
    for n, t in enumerate(items[1:], 1):
        out = Term("cat", 0, I(n), out, Term("fill", ix(I(1)), t))
    return out


def _size_term(value: Poly, dtype: str) -> Term:
    """Sizes are i64, so one of type i32 is a cast."""
    return Term("cast", "i32", value.term()) if dtype == "i32" and value.value() is None else value.term()


def static_int(value: Poly, dtype: str, pos: Pos) -> Val:
    return Val(_size_term(value, dtype), (), dtype, pos, static=value)


def static_vector(values: tuple[Poly, ...], dtype: str, pos: Pos) -> Val:
    return Val(vector_term([_size_term(p, dtype) for p in values]), (Poly.const(len(values)),), dtype, pos, static=values)


def adapt(v: Val, dtype: str) -> Val:
    """A literal's value in a definite type (or "float"); the caller has checked that it fits."""
    if v.dtype == dtype:
        return v
    if v.dtype == "int" and dtype in (*B.FLOATS, "float"):
        return replace(v, term=_to_num(v.term), dtype=dtype, static=None)
    return replace(v, dtype=dtype)


def _to_num(t: Term) -> Term:
    """Integer literals become floating-point ones: through arithmetic and structure, not into shapes, indices and conditions."""
    match t.op:
        case "int":
            return literal(int(t.args[0]), "f64")  # type: ignore[arg-type]
        case "iota":  # the empty vector
            return Term("cast", "f64", t)
        case "neg" | "add" | "sub" | "mul" | "max" | "min" | "abs" | "sign":
            return t.map(_to_num)
        case "select":
            return Term("select", t.args[0], *[_to_num(k) for k in t.kids()[1:]])
    assert t.op in ARRAYS, show(t)
    return Term(t.op, *[_to_num(a) if k == "A" else a for k, a in zip(ARGS[t.op], t.args, strict=True)])  # type: ignore[arg-type]


def concrete(v: Val) -> Val:
    """A literal without surroundings: i64 or f64."""
    return adapt(v, {"int": "i64", "float": "f64"}.get(v.dtype, v.dtype))
