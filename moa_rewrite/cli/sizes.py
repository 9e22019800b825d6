"""Sizes: what the command line gives, checked against the kernel, and what it leaves out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from ..errors import MoaError
from ..report.pretty import expression
from ..terms import Kernel, Term

POINTS = 2**30
_ELEMENTS = 2**22
_POWERS = tuple(2**k for k in range(20, -1, -1))
_TRIES = 100_000


def holds(condition: Term, sizes: Mapping[str, int]) -> bool:
    from ..semantics.env import Env, integer

    return bool(integer(condition, Env(sizes, {})))


def check(kernel: Kernel, given: Mapping[str, int], flag: str = "-D") -> None:
    """MoaError 754 for a name the kernel has no size of, or a condition of its ``where`` that the given values already break."""
    for name in given:
        if name not in kernel.sizes:
            known = f"its sizes are {', '.join(kernel.sizes)}" if kernel.sizes else "it has none"
            hint = f"{flag} {kernel.sizes[0]} 1000" if kernel.sizes else ""
            raise MoaError(754, f"kernel {kernel.name} has no size {name!r}; {known}", file="moarw", hint=hint)
    for w in kernel.where:
        if names(w) <= given.keys() and not holds(w, given):
            values = ", ".join(f"{n} = {given[n]}" for n in sorted(names(w)))
            raise MoaError(754, f"kernel {kernel.name} asks for {expression(w)}", file="moarw", witness=values, hint=f"other values with {flag}")


def names(t: Term) -> frozenset[str]:
    """The sizes a term mentions."""
    if t.op == "size":
        return frozenset([str(t.args[0])])
    return frozenset().union(*[names(a) for a in t.kids()])


def complete(
    kernel: Kernel, given: Mapping[str, int], points: int = POINTS, most: int = 2**20, typical: Mapping[str, int] | None = None
) -> dict[str, int]:
    """A value for every size. Those not given get what the program calls ``typical``, or else one power of two: the largest up to ``most`` that keeps the
    product of all sizes within ``points`` and every array within 2^22 elements; smaller ones where the kernel's ``where`` demands it. MoaError 754
    if none is found."""
    check(kernel, given)
    usual_sizes = {n: v for n, v in (typical or {}).items() if n in kernel.sizes}
    if usual_sizes and all(holds(w, {**usual_sizes, **given}) for w in kernel.where if names(w) <= {**usual_sizes, **given}.keys()):
        given = {**usual_sizes, **given}
    free = [s for s in kernel.sizes if s not in given]
    usual = next(u for u in _POWERS if u == 1 or (u <= most and _fits(kernel, {**dict.fromkeys(free, u), **given}, points)))
    tries = [u for u in (*_POWERS, 3, 5, 7, 9, 0) if u <= max(usual, 9)]
    for values in itertools.islice(itertools.product(tries, repeat=len(free)), _TRIES):
        sizes = {**given, **dict(zip(free, values, strict=True))}
        if all(holds(w, sizes) for w in kernel.where):
            return {s: sizes[s] for s in kernel.sizes}
    raise MoaError(
        754, f"no usual sizes meet what kernel {kernel.name} asks for: {', '.join(expression(w) for w in kernel.where)}", file="moarw",
        hint=" ".join(f"-D {s} VALUE" for s in free) or "other values with -D",
    )  # fmt: skip


def _fits(kernel: Kernel, sizes: Mapping[str, int], points: int) -> bool:
    from ..semantics.env import shape_of

    arrays = [math.prod(shape_of(a, sizes)) for a in (*kernel.inputs, *kernel.outputs)]
    return math.prod(sizes.values()) <= points and max(arrays, default=0) <= _ELEMENTS
