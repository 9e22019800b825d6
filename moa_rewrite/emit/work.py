"""How much a kernel does, roughly: whether it is worth starting threads."""

from __future__ import annotations

from ..terms import Term, free_axes, num, substitute
from .fold import bounded, const, fold
from .loops import If, Let, Loop, Node, nodes

LEAST_PARALLEL_WORK = 32768  # innermost iterations; some ten microseconds, a few times the start of a parallel region


def worth_threads(body: tuple[Node, ...]) -> Term | None:
    """A condition over sizes: the innermost iterations of the deepest nest with a core loop exceed LEAST_PARALLEL_WORK. None without a core loop.

    In floating point, so that no product overflows; an extent that depends on outer loops is taken at their middle.
    """
    nests = [(depth, factors) for n in body for depth, factors, core in [_deepest(n, {})] if core]
    if not nests:
        return None
    factors = max(nests, key=lambda p: p[0])[1]
    product: Term = num("1.0")
    for f in factors:
        c = const(f)
        value = num(f"{c}.0") if c is not None else Term("cast", "f64", f)
        product = value if product == num("1.0") else Term("mul", product, value)
    return Term("lt", num(f"{LEAST_PARALLEL_WORK}.0"), product)


def uneven(body: tuple[Node, ...], axes: frozenset[str]) -> bool:
    """Whether iterations of parallel loops over ``axes`` differ much in what they do: a loop inside has an extent that depends on them and has no
    constant bound, or a guard does. Guards of the cells of a register tile do not count."""
    for n in body:
        if isinstance(n, Loop) and n.kind in ("unroll", "simd") and all(m.trip for m in nodes((n,)) if isinstance(m, Loop)):
            continue
        if isinstance(n, Let) and free_axes(n.value) & axes:
            axes |= {n.name}
        elif isinstance(n, If):
            if (not n.other and free_axes(n.cond) & axes) or uneven(n.then, axes) or uneven(n.other, axes):
                return True
        elif isinstance(n, Loop) and ((bounded(n.extent)[0] is None and free_axes(n.extent) & axes) or uneven(n.body, axes)):
            return True
    return False


def _size(nest: tuple[int, list[Term], bool]) -> tuple[int, int]:
    """Depth, then how many extents have no constant bound."""
    return nest[0], sum(bounded(f)[0] is None for f in nest[1])


def _deepest(n: Node, middle: dict[str, Term]) -> tuple[int, list[Term], bool]:
    """(depth, extents of its loops, whether one is a core loop) of the deepest nest in a node."""
    if isinstance(n, If):
        return max((_deepest(k, middle) for k in n.then), key=_size, default=(0, [], False))
    if not isinstance(n, Loop):
        return 0, [], False
    extent = fold(substitute(n.extent, middle))
    inner = {**middle, n.var: Term("int", 0) if n.kind == "numa" else Term("idiv", extent, Term("int", 2))}  # the last domains may have nothing to do
    for let in n.body:
        if isinstance(let, Let):
            inner[let.name] = fold(substitute(let.value, inner))
    kids = [_deepest(k, inner) for k in n.body]
    depth, factors, core = max(kids, key=_size, default=(0, [], False))
    known = [] if free_axes(extent) else [extent]
    return depth + 1, [*known, *factors], core or n.kind == "core" or any(k[2] for k in kids)
