"""A plan by its name: the text of ``optimize.summary`` and the tile sizes say all, so a plan can be realised again without a search.

    loops around what they fill     i.o j| out
    sequences                       {[S0] i.o S0; i.o out}     [stages]: their storage opens here
    placement of a loop             |  SIMD lanes     *  unrolled     '  threads

The form is found by its label among those that the algebra gives, and its loops are saturated again, since the graph knows their extents.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from ..rules import RuleSet
from ..terms import Kernel
from .candidate import DEPTH, Candidate, Form, cost_of
from .form import packs
from .optimize import Options, Result, _Search, chosen, summary
from .parts import parted
from .problem import build
from .structure import Space, saturate
from .tiles import replay

MARKS = {"|": "simd", "*": "unroll", "'": "block", "": "seq"}


@dataclass(frozen=True)
class Named:
    """A plan: the label of its form, the reads that are copied first, the loops, and the size of every tile that the loops have."""

    form: str
    packed: tuple[str, ...]
    loops: str
    tiles: dict[str, int]


def name(c: Candidate) -> Named:
    """What ``planned`` finds a candidate again by."""
    axes = _axes(c.entry.plan)
    used = {v.axis: c.tiles[v.tile] for v in c.space.lifts if axes & {f"{v.axis}.o", f"{v.axis}.i"} or any(a.startswith(f"{v.axis}.i.") for a in axes)}
    return Named(c.form.label, tuple(map(str, c.form.packed)), summary(c.entry.plan, c), used)


def planned(kernel: Kernel, rules: RuleSet, machine: Any, sizes: dict[str, int], options: Options, named: Named) -> Result:
    """What the search would give if it chose this plan. NoPlan if there is no such plan (any more)."""
    s = _Search(kernel, rules, machine, sizes, options)
    dnf, forms = s.normal_forms()
    f = form(named, forms, rules, sizes, s.model.cores)
    onf, steps = f.materialised(rules, sizes)
    space = saturate(build(onf, sizes), rules, s.model, DEPTH, options.nodes)
    space.origin = steps
    s.reports[f"structure: {f.label}"] = space.report
    s.done(f.label)
    c = candidate(named, f, space, s.model)
    s.pool.append(c)
    return chosen(Result(kernel, dnf, [], [], s.reports, sizes, s.spent, [c]), 0, rules)


def candidate(named: Named, f: Form, space: Space, model: Any) -> Candidate:
    """The plan in its space. NoPlan if the space has other loops, or the tile sizes do not fit the placements."""
    plan = parse(named.loops, [x.target for x in space.problem.leaves])
    if unknown := sorted(_axes(plan) - space.extents.keys()):
        raise NoPlan(f"there is no loop {unknown[0]}")
    _covers(plan, space, frozenset())
    needed = {v.axis for v in space.lifts if any(a.startswith(f"{v.axis}.") for a in _axes(plan))}
    if needed != named.tiles.keys():
        raise NoPlan(f"its tiles are of {', '.join(sorted(needed)) or 'no axis'}")
    tiles = {v.tile: named.tiles.get(v.axis, 1) for v in space.lifts}
    cost = cost_of(space, model, tiles)
    e = replay(plan, cost)
    if e is None or _ordered(e.plan) != _ordered(plan):
        raise NoPlan("the placement of some loop does not fit its tile sizes")
    return Candidate.priced(cost.closed(e), cost, space, tiles, f)


def _ordered(plan: tuple) -> tuple:
    """The plan with the stages of every sequence in alphabetic order."""
    if plan[0] == "seq":
        return ("seq", _ordered(plan[1]), _ordered(plan[2]), tuple(sorted(plan[3])))
    return (*plan[:3], _ordered(plan[3])) if plan[0] == "for" else plan


def _axes(plan: tuple) -> frozenset[str]:
    if plan[0] == "leaf":
        return frozenset()
    return frozenset([plan[1]]) | _axes(plan[3]) if plan[0] == "for" else _axes(plan[1]) | _axes(plan[2])


def _covers(plan: tuple, space: Space, around: frozenset[str]) -> None:
    """NoPlan unless every leaf stands in exactly the loops whose axes it runs over."""
    if plan[0] == "seq":
        _covers(plan[1], space, around)
        _covers(plan[2], space, around)
    elif plan[0] == "for":
        _covers(plan[3], space, around | {plan[1]})
    else:
        leaf = space.problem.leaves[plan[1]]
        wanted = {a for a in leaf.axes if a not in space.batch}
        if {a.split(".")[0] for a in around} != wanted:
            raise NoPlan(f"{leaf.target} runs over {', '.join(sorted(wanted)) or 'no axis'}")


class NoPlan(Exception):
    """The text names no plan of this program, these rules and this machine."""


def parse(text: str, leaves: list[str]) -> tuple:
    """The plan that a text stands for. ``leaves``: what each leaf of the space fills. NoPlan if it is none."""
    words = re.findall(r"\[[^\]]*\]|[{};]|[^\s{};\[\]]+", text)
    at = 0

    def item() -> tuple:
        nonlocal at
        if at >= len(words):
            raise NoPlan("the text ends early")
        word = words[at]
        at += 1
        if word == "{":
            shut: tuple[str, ...] = ()
            if at < len(words) and words[at].startswith("["):
                shut = tuple(s.strip() for s in words[at][1:-1].split(","))
                at += 1
            a = item()
            expect(";")
            b = item()
            expect("}")
            return ("seq", a, b, shut)
        if word in leaves and (at == len(words) or words[at] in ";}"):
            return ("leaf", leaves.index(word))
        if word in (";", "}") or word.startswith("["):
            raise NoPlan(f"{word!r} where a loop or an array is expected")
        mark = word[-1] if word[-1] in MARKS else ""
        return ("for", word[: len(word) - len(mark)], MARKS[mark], item())

    def expect(what: str) -> None:
        nonlocal at
        if at >= len(words) or words[at] != what:
            raise NoPlan(f"{words[at] if at < len(words) else 'the end'!r} where {what!r} is expected")
        at += 1

    plan = item()
    if at < len(words):
        raise NoPlan(f"{words[at]!r} after the plan")
    return plan


def form(named: Named, forms: list[Form], rules: RuleSet, sizes: dict[str, int], cores: int) -> Form:
    """The form of a label such as ``online-softmax; shared; K packed``. NoPlan if there is none."""
    base, *more = named.form.split("; ")
    found = next((f for f in forms if f.label == base), None)
    if found is None:
        raise NoPlan(f"no form is called {base!r}; there are {', '.join(repr(f.label) for f in forms)}")
    if "in parts" in more and (found := parted(found, rules, cores, sizes)) is None:
        raise NoPlan(f"the form {base!r} has no reduction that is worth parts")
    found = replace(found, shared="shared" in more, label=named.form)
    if not named.packed:
        return found
    known = {str(p): p for p in packs(found.materialised(rules, sizes)[0])}
    for text in named.packed:
        if text not in known:
            raise NoPlan(f"the form {base!r} does not read {text}")
    return replace(found, packed=tuple(known[text] for text in named.packed))
