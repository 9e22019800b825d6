"""Sizes to try an emitted kernel at: such that every tile of its plan is full somewhere and cut short somewhere, at little work."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..errors import MoaError
from ..semantics.agree import admits
from ..terms import I, Kernel, Term, evaluate, free_axes, subterms
from . import sizes

LANES = {"simd": 16, "block": 32}  # the widest vectors hold so many f32, a warp so many threads: such loops are tried with whole ones and a rest
_NEAR = (0, 1, 2, 3, 4, -1, -2)
_LITTLE = (3, 5, 2, 4, 1, 7, 9, 33, 16, 8, 64, 0)
_TRIES = 20_000


@dataclass(frozen=True)
class Tile:
    """``width`` iterations at a time of ``extent`` in all; ``outer``: the loops around whose axes the extent mentions, outermost first."""

    axis: str
    extent: Term
    width: int
    outer: tuple[tuple[str, Term], ...] = ()

    @property
    def sizes(self) -> frozenset[str]:
        return frozenset().union(sizes.names(self.extent), *[sizes.names(e) for _, e in self.outer])

    def hit(self, at: Mapping[str, int]) -> tuple[bool, bool]:
        """Whether some tile is full at these sizes, and whether some is cut short."""
        found = list(_values(self.extent, self.outer, at, {}))
        return any(n >= self.width for n in found), any(n > 0 and n % self.width for n in found)


def _values(extent: Term, outer: tuple[tuple[str, Term], ...], at: Mapping[str, int], axes: dict[str, float]) -> Iterator[int]:
    """What an extent is in the first and the last round of each loop around."""
    if not outer:
        yield evaluate(extent, at, axes)
        return
    (axis, rounds), *rest = outer
    n = evaluate(rounds, at, axes)
    for k in sorted({0, n - 1}) if n > 0 else []:
        yield from _values(extent, tuple(rest), at, {**axes, axis: k})


def tiles(kernel: Kernel) -> list[Tile]:
    """The tiles of a placed kernel, and the vectors or warps of its other loops, each once."""
    return list(dict.fromkeys(_tiles(kernel.body, {})))


def _tiles(s: Term, around: dict[str, Term]) -> Iterator[Tile]:
    if s.op != "for":
        for k in s.kids():
            if k.op in ("for", "seq", "new", "guard"):
                yield from _tiles(k, around)
        return
    axis, extent, place, body = s.args
    assert isinstance(axis, str) and isinstance(extent, Term) and isinstance(body, Term)
    # the tiles of an axis may be dealt out to parts of the machine: their number is further in
    counts = [u for u in subterms(extent) if u.op == "idiv" and u.kids()[1].op == "int" and all(v.op != "idiv" for v in subterms(u.kids()[0]))]
    if counts:
        width = int(counts[0].kids()[1].args[0])  # type: ignore[arg-type]
        whole = Term("sub", counts[0].kids()[0], I(width - 1))
        if width > 1:
            yield Tile(axis, whole, width, _mentioned(whole, around))
    elif place in LANES and extent.op != "int" and _most(extent) >= LANES[str(place)]:
        yield Tile(axis, extent, LANES[str(place)], _mentioned(extent, around))
    yield from _tiles(body, {**around, axis: extent})


def _most(extent: Term) -> float:
    """What an extent never exceeds, as far as its text shows."""
    if extent.op == "min":
        return min(_most(k) for k in extent.kids())
    return float(evaluate(extent, {})) if extent.op == "int" else math.inf


def _mentioned(t: Term, around: Mapping[str, Term]) -> tuple[tuple[str, Term], ...]:
    """The loops around that a term depends on, through the extents of others too."""
    needed: set[str] = set()
    todo = sorted(free_axes(t) & around.keys())
    while todo:
        a = todo.pop()
        if a not in needed:
            needed.add(a)
            todo += sorted(free_axes(around[a]) & around.keys())
    return tuple((a, e) for a, e in around.items() if a in needed)


def trial_sizes(kernel: Kernel, fixed: Mapping[str, int], points: int) -> list[dict[str, int]]:
    """Sizes of a placed kernel to try it at: ones; small odd ones; and for every tile a size just above, within ``points`` as the product of all sizes:
    if they are too many at once, each in its turn while the others stay small. None that the kernel does not admit."""
    small = {s: fixed.get(s, 3 + 2 * (n % 4)) for n, s in enumerate(kernel.sizes)}
    large = {s: n for s, n in _large(kernel, tiles(kernel)).items() if s not in fixed}
    wanted = [{s: fixed.get(s, 1) for s in kernel.sizes}, small]
    while large:
        at, todo = dict(small), dict(large)
        for s, n in todo.items():
            if math.prod({**at, s: n}.values()) <= points or at == small:
                at[s] = n
                del large[s]
        wanted.append(at)
    near = [a for w in wanted if math.prod(w.values()) <= sizes.POINTS and (a := _near(kernel, w, fixed)) is not None]
    return list({tuple(w.items()): w for w in near}.values())


def _large(kernel: Kernel, found: list[Tile]) -> dict[str, int]:
    """For each size that tiles depend on the first odd number, different from the others, that makes one of each full and cuts one of each."""
    out: dict[str, int] = {}
    for s in kernel.sizes:
        mine = [t for t in found if s in t.sizes]
        known = [t for t in mine if t.sizes <= {*out, s}]
        start = sum({t.width for t in mine}) | 1
        tries = [n for n in range(start, start + 200, 2) if n not in out.values()]
        if mine:
            out[s] = next((n for n in tries if all(all(t.hit({**out, s: n})) for t in known)), start)
    return out


def _near(kernel: Kernel, wanted: Mapping[str, int], fixed: Mapping[str, int]) -> dict[str, int] | None:
    """The first sizes near the wanted ones that the kernel admits, only those changed that conditions and shapes speak of; None if there are none."""
    shapes = [e for a in (*kernel.inputs, *kernel.outputs) for e in a.shape if e.op != "size"]
    bound = frozenset().union(*[sizes.names(t) for t in (*kernel.where, *shapes)])
    related = [k for n in wanted.values() for k in (n, 2 * n, n // 2)]
    choices = [
        list(dict.fromkeys([*[n + k for k in _NEAR if n + k > 0], n // 2 | 1, *_LITTLE, *related])) if s in bound and s not in fixed else [n]
        for s, n in wanted.items()
    ]  # fmt: skip
    for values in itertools.islice(itertools.product(*choices), _TRIES):
        at = dict(zip(wanted, values, strict=True))
        if admits(kernel, at):
            return at
    try:
        at = sizes.complete(kernel, fixed, most=256)
    except MoaError:
        return None
    return at if admits(kernel, at) else None
