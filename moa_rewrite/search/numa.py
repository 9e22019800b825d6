"""A placed kernel on a machine with several memory domains: each domain gets one contiguous part of every parallel loop, and first touches what it computes.

The machine is the array <numa, cores, simd>; a loop over cores is lifted onto its outermost axis by the laws ``split`` and ``place``, and ``touch`` records for
each array keyed by that axis which rows a domain computes, so which it should place in its memory. All are ordinary steps of the derivation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..rules import RuleSet, Step, apply_step, match
from ..rules.masks import upper
from ..terms import I, Kernel, Path, Term, at, evaluate, free_axes, subterms
from .cost import PAGE
from .problem import BYTES

LAWS = ("exchange", "split", "place", "touch")
SLACK = 1.25  # a split may make the cores take so many times the rounds


def split(kernel: Kernel, rules: RuleSet, domains: int, cores: int, sizes: dict[str, int]) -> tuple[Kernel, list[Step]]:
    """The kernel with its parallel loops split over the machine's memory domains, where that keeps the cores busy at ``sizes``, and the steps to it."""
    k, steps = kernel, []
    if domains < 2 or not rules.keys() >= set(LAWS):
        return k, []
    for path in list(regions(k.body)):
        chain = collapsed(at(k.body, path))
        which = next((n for n in preferred(k, chain) if not idle(k, chain, n, domains, cores, sizes)), None)
        made = None if which is None else _steps(k, rules, path, which, domains)
        if made is not None:
            k, more = made
            steps += more
    for s in touches(k, domains):
        k = apply_step(k, rules, s)
        steps.append(s)
    return k, steps


def whole(k: Kernel, domains: int, cores: int, sizes: dict[str, int]) -> list[str]:
    """Why parallel loops of a kernel that went through ``split`` are not split, one line per loop."""
    out = []
    for path in regions(k.body) if domains > 1 else ():
        chain = collapsed(at(k.body, path))
        why = [idle(k, chain, n, domains, cores, sizes) for n in range(len(chain))]
        out.append(f"{chain[0].args[0]} is not split over {domains} memory domains: {why[0] if all(why) else 'it has other parts elsewhere'}")
    return list(dict.fromkeys(out))


def _steps(k: Kernel, rules: RuleSet, path: Path, which: int, domains: int) -> tuple[Kernel, list[Step]] | None:
    """The loop that stands ``which`` places below ``path`` is brought there and split; None where its axis has other parts elsewhere."""
    out = []
    for rule, down in [*[("exchange", n) for n in reversed(range(which))], ("split", 0)]:
        here = (*path, *(3,) * down)
        subst = match(rules[rule], k, here, params={"D": I(domains)} if rule == "split" else None)
        if subst is None:
            return None
        out.append(Step(rule, here, subst))
        k = apply_step(k, rules, out[-1])
    out.append(Step("place", path, {"level": "numa"}))
    return apply_step(k, rules, out[-1]), out


def regions(t: Term, path: Path = ()) -> Iterator[Path]:
    """Positions of the outermost loops over cores that are not split yet."""
    if t.op == "for" and t.args[2] == "core":
        yield path
    elif t.op in ("seq", "new", "guard") or (t.op == "for" and t.args[2] != "numa"):
        for n, a in enumerate(t.args):
            if isinstance(a, Term) and a.op in ("for", "seq", "new", "guard"):
                yield from regions(a, (*path, n))


def preferred(k: Kernel, chain: list[Term]) -> list[int]:
    """The loops of a chain in the order of preference: those over the slowest storage axes of what is written first, whose parts are contiguous."""
    slowest = []
    for array, index, _ in emissions(chain[-1].args[3], "", frozenset()):  # type: ignore[arg-type]
        slowest += [k.base_axes(free_axes(index[_stored(k, array)[0]]))] if index else []
    return sorted(range(len(chain)), key=lambda n: (-sum(bool(_bases(k, chain[n]) & axes) for axes in slowest), n))


def _bases(k: Kernel, loop: Term) -> frozenset[str]:
    """What the axis of a loop stands for: where it is lifted in another place of the kernel, its parts there."""
    return k.base_axes(frozenset([str(loop.args[0])]))


def _stored(k: Kernel, array: str) -> tuple[int, ...]:
    """Axes of an array in storage order, slowest first."""
    layout = next((s.layout for s in k.stages if s.name == array), ())
    return layout or tuple(range(len(k.array(array).shape)))


def idle(k: Kernel, chain: list[Term], which: int, domains: int, cores: int, sizes: dict[str, int]) -> str:
    """Why one loop of a chain should not be split: equal contiguous parts would leave cores without work, or no memory is parted with it; "" if it may."""
    body: Term = chain[-1].args[3]  # type: ignore[assignment]
    if uneven(k, body, frozenset().union(*[_bases(k, f) for f in chain])):
        return "its iterations differ in work"
    if any(free_axes(f.args[1]) for f in chain):  # type: ignore[arg-type]
        return "its length varies"
    if largest(k, body, _bases(k, chain[which]), sizes) < domains * PAGE:
        return "its parts of every array are in pieces smaller than a page"
    trips = [max(0, evaluate(f.args[1], sizes)) for f in chain]  # type: ignore[arg-type]
    rest = math.prod(trips[:which] + trips[which + 1 :])
    together = math.ceil(trips[which] * rest / cores)
    parts = math.ceil(math.ceil(trips[which] / domains) * rest / max(1.0, cores / domains))
    return f"the parts would take {parts} rounds, all together take {together}" if parts > SLACK * together else ""


def largest(k: Kernel, body: Term, axes: frozenset[str], sizes: dict[str, int]) -> int:
    """Bytes of the largest contiguous piece, over all arrays that a loop over ``axes`` indexes, that its parts make up together."""
    own = frozenset(str(u.args[0]) for u in subterms(body) if u.op == "new")
    most = 0
    for u in subterms(body):
        array, index = (u.args[0], u.args[1]) if u.op == "get" else (u.args[1], u.args[2]) if u.op == "emit" else ("", None)
        if not isinstance(index, Term) or array in own:
            continue
        a = k.array(str(array))
        order = _stored(k, a.name)
        at = next((n for n, x in enumerate(order) if axes & k.base_axes(free_axes(index.kids()[x]))), None)
        if at is not None:
            most = max(most, BYTES[a.dtype] * math.prod(max(0, evaluate(a.shape[x], sizes)) for x in order[at:]))
    return most


def collapsed(t: Term) -> list[Term]:
    """The perfectly nested loops over cores from ``t`` down."""
    out = [t]
    while (t := t.args[3]).op == "for" and t.args[2] == "core":  # type: ignore[assignment, union-attr]
        out.append(t)
    return out


def uneven(k: Kernel, s: Term, axes: frozenset[str]) -> bool:
    """Whether how much a statement does depends on axes around it: by a guard, or the extent of a loop that no constant bounds."""

    def varies(t: Term) -> bool:
        return bool(k.base_axes(free_axes(t)) & axes)

    if s.op == "for" and varies(s.args[1]) and upper(s.args[1]) is None:  # type: ignore[arg-type]
        return True
    if s.op == "guard" and varies(s.args[0]):  # type: ignore[arg-type]
        return True
    return any(uneven(k, a, axes) for a in s.kids() if a.op in ("for", "seq", "new", "guard"))


# --- first touch ---------------------------------------------------------------------------------------------------------------------
def touches(k: Kernel, domains: int) -> list[Step]:
    """A ``touch`` for every output and every stage shared by the domains of which all emissions go to equal parts along one axis."""
    parts: dict[str, list[dict[int, Term]]] = {}
    for array, index, over in emissions(k.body, None, frozenset()):
        found = {n: r for n, e in enumerate(index) if over is not None and (r := rows(k, e, over)) is not None}
        parts.setdefault(array, []).append(found)
    out = []
    for array in [n for n in (*[o.name for o in k.outputs], *[s.name for s in k.stages]) if n in parts]:
        first, *others = parts[array]
        cut = _stored(k, array)[-1:] if any(s.name == array and s.panel for s in k.stages) else ()  # panels and parts would not end together
        same = [n for n, r in first.items() if n not in cut and all(o.get(n) is r for o in others)]
        if same:
            out.append(Step("touch", (), {"array": array, "axis": same[0], "rows": first[same[0]], "domains": domains}))
    return out


def emissions(t: Term, over: str | None, own: frozenset[str]) -> Iterator[tuple[str, tuple[Term, ...], str | None]]:
    """(array, index, axis of the loop over domains around it) of every emission, those to storage that a domain makes itself left out."""
    if t.op == "emit":
        if t.args[1] not in own:
            yield str(t.args[1]), t.args[2].args, over  # type: ignore[union-attr, misc]
    elif t.op == "for":
        yield from emissions(t.args[3], str(t.args[0]) if t.args[2] == "numa" else over, own)  # type: ignore[arg-type]
    elif t.op == "new":
        yield from emissions(t.args[1], over, own | {str(t.args[0])} if over is not None else own)  # type: ignore[arg-type]
    elif t.op in ("seq", "guard"):
        for a in t.kids()[t.op == "guard" :]:
            yield from emissions(a, over, own)


def rows(k: Kernel, e: Term, over: str) -> Term | None:
    """T when an index is ``over * T + rest`` with 0 <= rest < T by the definitions of lifted axes; None otherwise."""
    out: Term = I(1)
    while e.op == "axis" and (d := k.definition(str(e.args[0]))) is not None and d.op == "add" and d.kids()[0].op == "mul":
        e, tile = d.kids()[0].kids()
        out = tile if out is I(1) else Term("mul", tile, out)
        if e.op == "axis" and e.args[0] == over:
            return out
    return None
