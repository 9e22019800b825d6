"""Sizes in normal form: polynomials with integer coefficients over size names (and over idiv, mod, max, min of sizes, kept whole).

Two sizes are equal for all values of their names if their normal forms are equal; for such polynomials the converse holds too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..terms import I, Term, show

Monomial = tuple[Term, ...]  # factors, sorted by their text; () is the constant


@dataclass(frozen=True)
class Poly:
    items: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def of(coeffs: Mapping[Monomial, int]) -> Poly:
        kept = [(m, c) for m, c in coeffs.items() if c]
        return Poly(tuple(sorted(kept, key=lambda mc: (-len(mc[0]), mc[1] < 0, [show(t) for t in mc[0]]))))

    @staticmethod
    def const(value: int) -> Poly:
        return Poly.of({(): value})

    @staticmethod
    def atom(t: Term) -> Poly:
        return Poly.of({(t,): 1})

    def value(self) -> int | None:
        """The number, if it is one."""
        if not self.items:
            return 0
        return self.items[0][1] if self.items[0][0] == () else None

    def __add__(self, other: Poly) -> Poly:
        out = dict(self.items)
        for m, c in other.items:
            out[m] = out.get(m, 0) + c
        return Poly.of(out)

    def __neg__(self) -> Poly:
        return Poly(tuple((m, -c) for m, c in self.items))

    def __sub__(self, other: Poly) -> Poly:
        return self + -other

    def __mul__(self, other: Poly) -> Poly:
        out: dict[Monomial, int] = {}
        for m, c in self.items:
            for m2, c2 in other.items:
                key = tuple(sorted(m + m2, key=show))
                out[key] = out.get(key, 0) + c * c2
        return Poly.of(out)

    def term(self) -> Term:
        """The size as a term, the same for equal polynomials."""
        out: Term | None = None
        for m, c in self.items:
            product: Term | None = None if abs(c) == 1 and m else I(abs(c))
            for a in m:
                product = a if product is None else Term("mul", product, a)
            assert product is not None
            if out is None:
                out = product if c > 0 else I(-product.args[0]) if product.op == "int" else Term("neg", product)  # type: ignore[operator]
            else:
                out = Term("add" if c > 0 else "sub", out, product)
        return I(0) if out is None else out

    def __str__(self) -> str:
        return show(self.term())


ZERO, ONE = Poly.const(0), Poly.const(1)


def combine(op: str, a: Poly, b: Poly) -> Poly:
    """add sub mul idiv mod max min of two sizes. ZeroDivisionError for a division by the constant 0."""
    if op in ("add", "sub", "mul"):
        return a + b if op == "add" else a - b if op == "sub" else a * b
    x, y = a.value(), b.value()
    if op in ("idiv", "mod") and y == 0:
        raise ZeroDivisionError
    if x is not None and y is not None:
        return Poly.const({"idiv": lambda: x // y, "mod": lambda: x % y, "max": lambda: max(x, y), "min": lambda: min(x, y)}[op]())
    if a == b and op in ("max", "min"):
        return a
    return Poly.atom(Term(op, a.term(), b.term()))


def product(shape: tuple[Poly, ...]) -> Poly:
    out = ONE
    for s in shape:
        out = out * s
    return out


def evaluate(t: Term, sizes: Mapping[str, int]) -> int:
    """Value of an integer or boolean term over sizes. KeyError for a size without value, ZeroDivisionError."""
    if t.op in ("int", "bool"):
        return int(t.args[0])  # type: ignore[arg-type]
    if t.op == "size":
        return sizes[str(t.args[0])]
    a = [evaluate(k, sizes) for k in t.kids()]
    match t.op:
        case "neg":
            return -a[0]
        case "not":
            return int(not a[0])
        case "add":
            return a[0] + a[1]
        case "sub":
            return a[0] - a[1]
        case "mul":
            return a[0] * a[1]
        case "idiv":
            return a[0] // a[1]
        case "mod":
            return a[0] % a[1]
        case "max":
            return max(a)
        case "min":
            return min(a)
        case "lt":
            return int(a[0] < a[1])
        case "le":
            return int(a[0] <= a[1])
        case "eq":
            return int(a[0] == a[1])
        case "ne":
            return int(a[0] != a[1])
        case "and":
            return a[0] & a[1]
        case "or":
            return a[0] | a[1]
    raise ValueError(f"not an integer term over sizes: {show(t)}")


def size_names(t: Term) -> list[str]:
    """Names of the sizes in a term, sorted."""
    from ..terms import subterms

    return sorted(str(u.args[0]) for u in subterms(t) if u.op == "size")
