"""From the DNF to the materialised form: every reduction that is not a whole right side becomes a stage with a loop nest of its own.

The result is the normal form of all ONFs of the program: ``new`` at the top, one perfect nest per stage and output. The steps taken are the
rules ``alpha``, ``materialise``, ``scope-*`` and ``reduce-loop``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..rules import RuleSet, Step, Value, apply_step, match
from ..rules.masks import zero_unless
from ..semantics.types import dtype
from ..terms import I, Kernel, Path, Term, at, free_axes, positions, show
from ..terms.axes import alpha_normal

_LETTERS = "ijklpqrstuvw"
TRANSCENDENTAL = frozenset(["exp", "log", "pow", "sin", "cos", "tanh", "erf"])
COSTLY = frozenset(["exp", "log", "div", "sqrt", "pow", "sin", "cos", "tanh", "erf", "idiv", "mod"])


@dataclass(frozen=True)
class Pack:
    """A copy of an input, in a layout of its own, that the nest which fills ``target`` reads instead of the input."""

    read: Term
    target: str

    def __str__(self) -> str:
        return f"{show(self.read)} for {self.target}"


class Names:
    """Axis names by extent: a reduction takes the first name of its extent that is not free in it, so equal reductions become equal terms."""

    def __init__(self, taken: dict[str, Term], reserved: frozenset[str]) -> None:
        self.extent = dict(taken)  # name -> extent
        self.reserved = reserved  # names a new axis must not have (sizes, arrays)

    def pick(self, extent: Term, blocked: frozenset[str]) -> str:
        for name, ext in self.extent.items():
            if ext is extent and name not in blocked:
                return name
        for name in self._fresh():
            if name not in self.extent and name not in self.reserved:
                self.extent[name] = extent
                return name
        raise AssertionError

    def _fresh(self) -> Iterator[str]:
        yield from _LETTERS
        n = 0
        while True:
            yield f"a{n}"
            n += 1


def canonical(e: Term, names: Names) -> Term:
    """``e`` with its bound axes renamed by ``names``; alpha-equal to ``e``. A name may be bound again inside where the outer one is not used."""

    def walk(u: Term, env: dict[str, str]) -> Term:
        if u.op == "axis":
            return Term("axis", env.get(str(u.args[0]), str(u.args[0])))
        if u.op == "reduce":
            m, k, extent, body = u.args
            extent = walk(extent, env)  # type: ignore[arg-type]
            name = names.pick(extent, frozenset(env.get(a, a) for a in free_axes(u)))
            return Term("reduce", m, name, extent, walk(body, {**env, str(k): name}))  # type: ignore[arg-type]
        return u.map(lambda a: walk(a, env))

    return walk(e, {})


def nests(body: Term, path: Path = ()) -> Iterator[tuple[Path, list[Term], Path, Term]]:
    """Every perfect nest of a sequence: (position, its for nodes, position of the leaf, leaf)."""
    if body.op == "seq":
        yield from nests(body.args[0], (*path, 0))  # type: ignore[arg-type]
        yield from nests(body.args[1], (*path, 1))  # type: ignore[arg-type]
    elif body.op == "new":
        yield from nests(body.args[1], (*path, 1))  # type: ignore[arg-type]
    else:
        start, fors = path, []
        while body.op == "for":
            fors.append(body)
            path, body = (*path, 3), body.args[3]  # type: ignore[assignment]
        yield start, fors, path, body


def carried(fors: list[Term], leaf: Term) -> bool:
    """Whether the two innermost loops of a nest are a scan, ``for i for k:i+1``, of values that do not depend on i: it runs in sequence, once over i."""
    if len(fors) < 2 or leaf.op != "emit" or leaf.args[0] in ("once", "osm"):
        return False
    i = Term("axis", fors[-2].args[0])
    return fors[-1].args[1] is Term("add", i, I(1)) and i in leaf.args[2].args and fors[-2].args[0] not in free_axes(leaf.args[3])  # type: ignore


def scan_last(fors: list[Term]) -> list[Term]:
    """The loops of a nest with the axis that a triangular extent names moved next to the loop of that extent, the last."""
    if not fors or not free_axes(fors[-1].args[1]):  # type: ignore[arg-type]
        return fors
    names = free_axes(fors[-1].args[1])  # type: ignore[arg-type]
    return [*[f for f in fors[:-1] if f.args[0] not in names], *[f for f in fors[:-1] if f.args[0] in names], fors[-1]]


def rename_axes(kernel: Kernel, rules: RuleSet) -> tuple[Kernel, list[Step]]:
    """One ``alpha`` step per output expression whose bound axes are not canonical yet."""
    steps: list[Step] = []
    taken: dict[str, Term] = {}
    todo = list(nests(kernel.body))
    for _, fors, _, _ in todo:
        taken.update({str(f.args[0]): f.args[1] for f in fors})  # type: ignore[misc]
    reserved = frozenset([*kernel.sizes, *[a.name for a in (*kernel.inputs, *kernel.outputs)]])
    names = Names(taken, reserved)
    for _, _, path, leaf in todo:
        e: Term = leaf.args[3]  # type: ignore[assignment]
        new = canonical(e, names)
        if new is not e:
            assert alpha_normal(new) is alpha_normal(e)
            kernel = _apply(kernel, rules, "alpha", (*path, 3), steps, {"new": new})
    return kernel, steps


def _apply(kernel: Kernel, rules: RuleSet, rule: str, path: Path, steps: list[Step], params: dict | None = None, forward: bool = True) -> Kernel:
    subst = match(rules[rule], kernel, path, forward, params)
    if subst is None:
        raise LookupError(f"{rule} does not apply at {path}: {show(at(kernel.body, path))[:300]}")
    step = Step(rule, path, subst, forward)
    steps.append(step)
    return apply_step(kernel, rules, step)


def materialise(
    kernel: Kernel, rules: RuleSet, share: bool = False, packed: tuple[Pack, ...] = (), points: dict[str, float] | None = None
) -> tuple[Kernel, list[Step]]:
    """Stages for every inner reduction, for costly scalars that depend on few axes and, if ``share``, for costly scalars that several nests compute;
    loops for reductions, sums of single terms where masks leave tiles out; then the copies ``packed``."""
    steps: list[Step] = []
    order = _axis_order(kernel)
    inline: set[Term] = set()  # what cannot be stored (an extent that varies) stays where it is

    def store(e: Term, stem: str) -> None:
        nonlocal kernel
        stored = _stage(kernel, rules, e, _fresh_name(kernel, stem), order, steps)
        if stored is None:
            inline.add(e)
        else:
            kernel = stored

    while (e := _next_stage(kernel, inline)) is not None:
        store(e, "S")
    while (e := _next_hoist(kernel, points or {}, inline)) is not None:
        store(e, "P")
    while share and (e := _next_shared(kernel, inline)) is not None:
        store(e, "E")
    done = False
    while not done:
        done = True
        for _, _, path, leaf in nests(kernel.body):
            rule = _loop_rule(leaf)
            if rule is not None:
                kernel = _apply(kernel, rules, rule, path, steps)
                done = False
                break
    for x in kernel.stages:
        fill = next(leaf for _, _, _, leaf in nests(kernel.body) if leaf.op == "emit" and leaf.args[1] == x.name)
        q = zero_unless(fill.args[3], kernel) if x.monoid == "once" and "collect" in rules else None  # type: ignore[arg-type]
        if q is not None and len(free_axes(q)) > 1:  # so that tiles of zeros may be skipped
            kernel = _apply(kernel, rules, "collect", (), steps, {"T": x.name})
    for p in packed:
        copied = _stage(kernel, rules, p.read, _fresh_name(kernel, f"{p.read.args[0]}p"), order, steps, p.target)
        kernel = kernel if copied is None else copied
    return kernel, steps


def _next_hoist(kernel: Kernel, points: dict[str, float], inline: set[Term]) -> Term | None:
    """A costly scalar of some leaf that has far fewer points than the leaf's loops, so that it is worth storing."""
    for _, fors, _, leaf in nests(kernel.body):
        e: Term = leaf.args[3]  # type: ignore[assignment]
        around = {str(f.args[0]) for f in fors}
        if e.op == "snd" and e.args[0].op == "reduce":  # type: ignore[union-attr]
            e = e.args[0]  # type: ignore[assignment]
        if e.op == "reduce":
            around.add(str(e.args[1]))
            e = e.args[3]  # type: ignore[assignment]
            if e.op == "pair":  # the score is evaluated once per point of its own axes by lowering
                e = e.args[1]  # type: ignore[assignment]
        found = _costly(e, frozenset(around), points, e is leaf.args[3], inline)
        if found is not None:
            return found
    return None


def _next_shared(kernel: Kernel, inline: set[Term]) -> Term | None:
    """A transcendental scalar that stands in the leaves of two or more nests."""
    seen: set[Term] = set()
    for _, _, _, leaf in nests(kernel.body):
        e: Term = leaf.args[3]  # type: ignore[assignment]
        here = {u for _, u in positions(e) if u.op in TRANSCENDENTAL and u not in inline and u is not e and free_axes(u)}
        for u in sorted(here & seen, key=show):
            return u
        seen |= here
    return None


def _costly(t: Term, around: frozenset[str], points: dict[str, float], top: bool, inline: set[Term]) -> Term | None:
    if t.op in ("get", "ix"):
        return None
    own = free_axes(t)
    if not top and own and own < around and t not in inline and any(u.op in COSTLY for _, u in positions(t)):
        saved = math.prod(points.get(a, 16.0) for a in sorted(around - own))
        if saved >= 4.0:
            return t
    for k in t.kids():
        found = _costly(k, around, points, False, inline)
        if found is not None:
            return found
    return None


def packs(kernel: Kernel) -> list[Pack]:
    """Reads of inputs, of a materialised kernel, that may be worth a copy: in a reduction, with two or more axes, and reused by an axis they do not
    depend on."""
    out: list[Pack] = []
    inputs = {a.name for a in kernel.inputs}
    for _, fors, _, leaf in nests(kernel.body):
        if leaf.op != "emit" or leaf.args[0] == "once":
            continue
        axes = {str(f.args[0]) for f in fors}
        for _, t in positions(leaf.args[3]):  # type: ignore[arg-type]
            p = Pack(t, str(leaf.args[1]))
            if t.op == "get" and t.args[0] in inputs and len(free_axes(t)) >= 2 and free_axes(t) < axes and p not in out:
                out.append(p)
    return out


def _loop_rule(leaf: Term) -> str | None:
    if leaf.op != "emit" or leaf.args[0] != "once":
        return None
    e: Term = leaf.args[3]  # type: ignore[assignment]
    if e.op == "reduce":
        return "reduce-loop"
    if e.op == "snd" and e.args[0].op == "reduce":  # type: ignore[union-attr]
        return "reduce-loop-osm"
    return None


def _axis_order(kernel: Kernel) -> list[str]:
    """Output axes first, then reduction axes, outermost first."""
    order: list[str] = []
    for _, fors, _, leaf in nests(kernel.body):
        order += [str(f.args[0]) for f in fors if f.args[0] not in order]
        for _, t in positions(leaf):
            if t.op == "reduce" and t.args[1] not in order:
                order.append(str(t.args[1]))
    return order


def _next_stage(kernel: Kernel, inline: set[Term]) -> Term | None:
    """The first innermost reduction below a leaf's top that is not a stage yet."""
    for _, _, _, leaf in nests(kernel.body):
        top: Term = leaf.args[3]  # type: ignore[assignment]
        found = _innermost(top, top, leaf.args[1] in {s.name for s in kernel.stages}, inline)
        if found is not None:
            return found
    return None


def _is_unit(t: Term) -> bool:
    return t.op == "reduce" or (t.op in ("snd", "fst") and t.args[0].op == "reduce")  # type: ignore[union-attr]


def _innermost(t: Term, top: Term, stage: bool, inline: set[Term]) -> Term | None:
    kids = t.kids()
    if t.op in ("snd", "fst") and kids[0].op == "reduce":
        kids = kids[0].kids()
    for a in kids:
        found = _innermost(a, top, stage, inline)
        if found is not None:
            return found
    # an output cannot collect pairs itself, so a weighted sum at its top is a stage too
    below = t is not top or (t.op in ("snd", "fst") and not stage)
    return t if below and _is_unit(t) and t not in inline else None


def _fresh_name(kernel: Kernel, stem: str) -> str:
    taken = {*kernel.sizes, *[a.name for a in kernel.inputs], *[a.name for a in kernel.outputs], *[s.name for s in kernel.stages]}
    n = 0
    while f"{stem}{n}" in taken:
        n += 1
    return f"{stem}{n}"


def _stage(kernel: Kernel, rules: RuleSet, e: Term, name: str, order: list[str], steps: list[Step], target: str = "") -> Kernel | None:
    """materialise ``e`` below the ``new``s that are there already, for the nest that fills ``target``, or else for all from the first that reads it;
    None where the rule refuses."""
    path: Path = ()
    t = kernel.body
    while t.op == "new":
        path, t = (*path, 1), t.args[1]  # type: ignore[assignment]
    while t.op == "seq" and not (_fills(t.args[0], target) if target else _mentions(t.args[0], e)):  # type: ignore[arg-type]
        path, t = (*path, 1), t.args[1]  # type: ignore[assignment]
    if target and t.op == "seq":
        path = (*path, 0)
    axes = tuple(Term("axis", a) for a in order if a in free_axes(e))
    params: dict[str, Value] = {"T": name, "dtype": dtype(e, kernel), "e": e, "axes": axes}
    if match(rules["materialise"], kernel, path, True, params) is None:
        return None
    kernel = _apply(kernel, rules, "materialise", path, steps, params)
    if path and path[-1] == 0:
        path = path[:-1]
        kernel = _apply(kernel, rules, "scope-left", path, steps, forward=False)
        kernel = _apply(kernel, rules, "assoc", (*path, 1), steps)
    while path and path[-1] == 1 and at(kernel.body, path[:-1]).op == "seq":  # bring the new `new` to the top
        kernel = _apply(kernel, rules, "scope-right", path[:-1], steps, forward=False)
        path = path[:-1]
    return kernel


def _fills(nest: Term, target: str) -> bool:
    return any(u.op == "emit" and u.args[1] == target for _, u in positions(nest))


def _mentions(t: Term, e: Term) -> bool:
    return any(u is e for _, u in positions(t))
