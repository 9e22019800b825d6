"""The value of an integer (or boolean) term over sizes and axes."""

from __future__ import annotations

from collections.abc import Mapping

from .term import Term


def evaluate(t: Term, sizes: Mapping[str, int], axes: Mapping[str, float] | None = None) -> int:
    """Value of an index term, size or condition on sizes at given sizes; ``axes`` gives the values of axes (0 for those not named).

    Division is floor division, 0 by 0. With mean values of axes the result is an estimate and may be a float. ValueError for another operator.
    """
    a = [evaluate(k, sizes, axes) for k in t.kids()]
    match t.op:
        case "int" | "bool":
            return int(t.args[0])  # type: ignore[arg-type]
        case "size":
            return sizes[str(t.args[0])]
        case "axis":
            return (axes or {}).get(str(t.args[0]), 0)  # type: ignore[return-value]
        case "add":
            return a[0] + a[1]
        case "sub":
            return a[0] - a[1]
        case "mul":
            return a[0] * a[1]
        case "idiv":
            return a[0] // a[1] if a[1] else 0
        case "mod":
            return a[0] % a[1] if a[1] else 0
        case "max":
            return max(a)
        case "min":
            return min(a)
        case "neg":
            return -a[0]
        case "lt":
            return a[0] < a[1]
        case "le":
            return a[0] <= a[1]
        case "eq":
            return a[0] == a[1]
        case "ne":
            return a[0] != a[1]
        case "and":
            return a[0] and a[1]
        case "or":
            return a[0] or a[1]
        case "not":
            return not a[0]
        case "select":
            return a[1] if a[0] else a[2]
    raise ValueError(f"{t.op} in an index or size")
