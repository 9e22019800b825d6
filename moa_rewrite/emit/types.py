"""Types of the expressions of a loop program.

A literal takes the type of what it meets (``0.5 * x`` is f32 for an f32 x). Sizes and axes are i64. Where two types meet the later in
bool, i32, i64, f32, f64 wins. ``/`` and the functions of analysis of integers are f64.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..terms import Term
from ..terms.ops import COMPARE, LOGIC

ORDER = ("bool", "i32", "i64", "f32", "f64")
FLOATS = ("f32", "f64")
_ANALYSIS = ("exp", "expn", "log", "sqrt", "sin", "cos", "tanh", "erf")


def join(a: tuple[str, bool], b: tuple[str, bool]) -> tuple[str, bool]:
    """The common type of two operands; the flag says that it is a bare literal (or made of literals only)."""
    (s, weak_s), (t, weak_t) = a, b
    if weak_s != weak_t:
        literal, other = (s, t) if weak_s else (t, s)
        if literal in FLOATS and other not in FLOATS:
            return "f64", False
        return (literal if other == "bool" else other), False
    return max(s, t, key=ORDER.index), weak_s


def infer(t: Term, types: Mapping[str, str]) -> tuple[str, bool]:
    """(type, whether made of literals only) of a scalar expression; ``types`` gives the type of each buffer."""
    op = t.op
    if op == "int":
        return "i64", True
    if op == "num":
        return "f64", True
    if op in ("size", "axis"):
        return "i64", False
    if op == "get":
        return types[str(t.args[0])], False
    if op == "cast":
        return str(t.args[0]), False
    if op == "bool" or op in COMPARE or op in LOGIC or op == "not":
        return "bool", False
    kids = [infer(a, types) for a in t.kids()]
    if op == "select":
        return join(kids[1], kids[2])
    if op in _ANALYSIS:
        return (kids[0] if kids[0][0] in FLOATS else ("f64", False))
    if len(kids) == 1:
        return ("i64", kids[0][1]) if kids[0][0] == "bool" else kids[0]
    out = join(*kids)
    if op == "div" and out[0] not in FLOATS:
        return "f64", out[1]
    return ("i64", out[1]) if out[0] == "bool" and op not in ("max", "min") else out


def dtype(t: Term, types: Mapping[str, str]) -> str:
    return infer(t, types)[0]
