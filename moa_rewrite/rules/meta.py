"""Functions on index lists that the right side of a rule may use; they are evaluated when the rule is applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..terms import I, Term, ix
from .rule import RuleError


def plus(a: Term, b: Term) -> Term:
    """a + b, with constants folded and 0 left out."""
    if a.op == "int" and b.op == "int":
        return I(a.args[0] + b.args[0])  # type: ignore[operator, arg-type]
    return b if a is I(0) else a if b is I(0) else Term("add", a, b)


def times(a: Term, b: Term) -> Term:
    """a * b, with constants folded and 1 left out."""
    if a.op == "int" and b.op == "int":
        return I(a.args[0] * b.args[0])  # type: ignore[operator, arg-type]
    return b if a is I(1) else a if b is I(1) else Term("mul", a, b)


def permute(index: Term, v: Term) -> Term:
    """i[v] = <i[v[0]], i[v[1]], ...>; the axes in v may repeat."""
    out = []
    for k in v.args:
        n = k.args[0] if isinstance(k, Term) and k.op == "int" else None
        if not isinstance(n, int) or not 0 <= n < len(index.args):
            raise RuleError(f"permute: {k} is no position in {index}")
        out.append(index.args[n])
    return Term("ix", *out)


def gamma(index: Term, shape: Term) -> Term:
    """Row-major offset of an index in a shape, by Horner's scheme: ((i0*s1 + i1)*s2 + i2)..."""
    if len(index.args) != len(shape.args):
        raise RuleError(f"gamma: {index} has not the rank of {shape}")
    out = I(0)
    for i, s in zip(index.args, shape.args, strict=True):
        out = plus(times(out, s) if out is not I(0) else out, i)  # type: ignore[arg-type]
    return out


def unravel(offset: Term, shape: Term) -> Term:
    """The index whose row-major offset in a shape is given (0 <= offset < product of the shape)."""
    out: list[Term] = []
    inner = I(1)
    for k in range(len(shape.args) - 1, -1, -1):
        high = offset if inner is I(1) else Term("idiv", offset, inner)
        out.append(high if k == 0 else Term("mod", high, shape.args[k]))
        inner = times(shape.args[k], inner)  # type: ignore[arg-type]
    return ix(*reversed(out))


META: dict[str, Callable[..., Any]] = {"permute": permute, "gamma": gamma, "unravel": unravel}
