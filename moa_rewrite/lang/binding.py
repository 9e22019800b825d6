"""Sizes of a call: from the shapes of its inputs, checked against each other and against the `where`."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import MoaError
from ..terms import Kernel, Term, show
from .poly import evaluate, size_names


def bind_sizes(kernel: Kernel, inputs: Mapping[str, object]) -> dict[str, int]:
    """The value of every size, from the inputs' shapes (arrays with a ``shape``; scalars need none).

    MoaError 312: an input is missing, has another rank, or two shapes disagree; 313: a size does not follow from the shapes.
    """
    facts: list[tuple[Term, int, str]] = []  # size expression, its value, where that was seen
    for a in kernel.inputs:
        if a.name not in inputs:
            raise MoaError(312, f"`{kernel.name}` needs the input `{a.name}`", hint=f"its inputs are {', '.join(i.name for i in kernel.inputs)}")
        shape = tuple(getattr(inputs[a.name], "shape", ()))
        declared = "<" + ", ".join(map(show, a.shape)) + ">"
        if len(shape) != len(a.shape):
            raise MoaError(312, f"`{a.name}` of `{kernel.name}` has rank {len(a.shape)}, not {len(shape)}", notes=[f"declared {declared}", f"given {shape}"])
        facts += [(e, int(n), f"axis {k} of {a.name}") for k, (e, n) in enumerate(zip(a.shape, shape, strict=True))]
    unknown = [name for name in inputs if name not in {a.name for a in kernel.inputs}]
    if unknown:
        raise MoaError(312, f"`{kernel.name}` has no input `{unknown[0]}`", hint=f"its inputs are {', '.join(i.name for i in kernel.inputs)}")
    sizes: dict[str, int] = {}
    places: dict[str, str] = {}
    while True:
        progress = False
        for e, n, place in facts:
            free = [s for s in size_names(e) if s not in sizes]
            if len(free) == 1 and (value := _solve(e, free[0], n, sizes)) is not None:
                sizes[free[0]], places[free[0]], progress = value, place, True
        if not progress:
            break
    for s in kernel.sizes:
        if s not in sizes:
            shown = [f"{show(e)} = {n}: {place}" for e, n, place in facts if s in size_names(e)]
            message = f"the size `{s}` of `{kernel.name}` does not follow from the shapes given"
            raise MoaError(313, message, notes=shown, hint="give each size an axis of its own")
    for e, n, place in facts:
        if _value(kernel, e, sizes) != n:
            first = [f"{s} = {sizes[s]}: {places[s]}" for s in size_names(e)]
            raise MoaError(312, f"the shapes given to `{kernel.name}` disagree", notes=[*first, f"{show(e)} = {n}: {place}"])
    return {s: sizes[s] for s in kernel.sizes}


def _value(kernel: Kernel, e: Term, sizes: Mapping[str, int]) -> int:
    try:
        return evaluate(e, sizes)
    except ZeroDivisionError:
        shown = ", ".join(f"{s} = {sizes[s]}" for s in size_names(e))
        raise MoaError(314, f"`{kernel.name}` divides by zero in {show(e)}", witness=shown, hint="give arrays of other sizes") from None


def _solve(e: Term, name: str, value: int, sizes: Mapping[str, int]) -> int | None:
    """The size that gives an expression its value, if the expression is linear in it."""
    try:
        at = [evaluate(e, {**sizes, name: x}) for x in (1, 2, 3, 5)]
    except ZeroDivisionError:  # no linear expression divides by a size
        return None
    slope = at[1] - at[0]
    if slope == 0 or at[2] - at[1] != slope or at[3] - at[2] != 2 * slope or (value - at[0]) % slope:
        return None
    found = 1 + (value - at[0]) // slope
    return found if found >= 0 and evaluate(e, {**sizes, name: found}) == value else None


def check_where(kernel: Kernel, sizes: Mapping[str, int]) -> None:
    """MoaError 314 if the sizes break a constraint of the kernel."""
    for w in kernel.where:
        if not _value(kernel, w, sizes):
            shown = ", ".join(f"{s} = {sizes[s]}" for s in size_names(w))
            raise MoaError(314, f"`{kernel.name}` needs {show(w)}", witness=shown, hint="give arrays of other sizes, or weaken the `where`")
