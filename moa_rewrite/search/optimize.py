"""The whole search: source body -> DNF -> its alternatives -> materialised forms -> loop structures -> the best placed ONF, with every step.

Budgets are counts (nodes, rounds, entries), never seconds, so that the same input gives the same output on every machine; ``timeout`` only stops a
run with an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import UNDECIDED, MoaError
from ..rules import RuleSet, Step, apply_step, psi_normalise
from ..terms import I, Kernel, Term, size
from ..terms.ops import STATEMENTS
from .algebra import alternatives, extent_points
from .cost import Cost, Entry, Model
from .derive import derive
from .egraph import Report
from .extract import Extractor
from .form import materialise, packs, rename_axes
from .gpu import GpuCost, GpuModel, admitted
from .plan import growing, layouts, placements, right_nested, statement
from .problem import Problem, build
from .structure import Space, loop_axes, saturate
from .tiles import assignments, refine


@dataclass(frozen=True)
class Options:
    """``top``: DNFs and plans kept; ``timeout`` seconds before giving up; ``target`` the language of the kernel."""

    top: int = 4
    timeout: float = 60.0
    seed: int = 0
    fix: dict[str, int] = field(default_factory=dict)
    target: str = "c"
    verbose: int = 0
    nodes: int = 60000
    progress: Callable[[str], None] | None = None


@dataclass
class Plan:
    """One alternative: ``summary`` says what it does in one line, ``terms`` are predicted seconds by cause, ``moved`` bytes by memory."""

    rank: int
    summary: str
    predicted_s: float
    terms: dict[str, float]
    moved: dict[str, float]
    tiles: dict[str, int]
    chosen: bool = False
    reason: str = ""


@dataclass
class Result:
    kernel: Kernel
    dnf: Kernel
    steps: list[Step]
    plans: list[Plan]
    reports: dict[str, Report]
    sizes: dict[str, int]
    seconds: dict[str, float]
    storage: dict[str, str] = field(default_factory=dict)


@dataclass
class _Candidate:
    seconds: float
    entry: Entry
    cost: Cost
    space: Space
    tiles: dict[str, int]
    form: Kernel
    steps: list[Step]
    label: str

    @property
    def growth(self) -> frozenset[str]:
        return growing(self.entry.plan, self.cost)

    @property
    def rank(self) -> float:
        """Seconds, with a charge for every size that storage grows with: on a GPU each limits the sizes that can be served."""
        return self.seconds * (1.0 + len(self.growth) * (0.2 if isinstance(self.cost, GpuCost) else 0.02))


DEPTH = 8  # loops around a leaf, tiles included


def optimize(kernel: Kernel, rules: RuleSet, machine: Any, sizes: dict[str, int], options: Options | None = None) -> Result:
    """The cheapest ONF found for a machine, judged at ``sizes``. MoaError (undecided) when the timeout is reached."""
    opt = options or Options()
    start = time.monotonic()
    spent: dict[str, float] = {}
    reports: dict[str, Report] = {}

    def tick(phase: str, message: str = "") -> None:
        now = time.monotonic() - start
        spent[phase] = now - sum(spent.values())
        if opt.progress is not None and message:
            opt.progress(message)
        if now > opt.timeout:
            raise MoaError(801, f"the search did not finish within {opt.timeout:g} s", hint="--timeout, or fewer alternatives with --top", exit_code=UNDECIDED)

    gpu = machine.kind == "gpu"
    model = GpuModel.of(machine) if gpu else Model.of(machine)
    normal, steps = psi_normalise(kernel, rules)
    dnf, more = rename_axes(normal, rules)
    steps = [*steps, *more]
    tick("dnf", "normal form")
    laws = [r.name for r in rules.values() if (r.group == "algebra" or r.group not in _OWN) and r.lhs is not None and r.lhs.op not in STATEMENTS]
    forms, algebra = alternatives(dnf, rules, laws, sizes, opt.top)
    for k, rep in enumerate(algebra):
        reports[f"algebra {k}"] = rep
    tick("algebra", f"{len(forms)} forms")
    pool: list[_Candidate] = []
    for n, (form, chain) in enumerate(forms):
        known = _promising(pool, 4) if pool else None
        pool += _explore(form, [*steps, *chain], rules, model, sizes, opt, (), f"form {n}", reports, known)
        tick(f"form {n}", f"form {n + 1} of {len(forms)}")
    pool.sort(key=lambda c: c.rank)
    best = pool[0]
    for read in packs(best.form) if not gpu else ():
        chain = best.steps
        base = next(f for f in forms if [*steps, *f[1]] == chain)
        pool += _explore(base[0], chain, rules, model, sizes, opt, (read,), f"{best.label}, {read.args[0]} packed", reports, _promising(pool, 3))
        tick(f"pack {read}", f"packing {read.args[0]}")
    pool.sort(key=lambda c: c.rank)
    top = _distinct(pool, max(4, opt.top))
    refined = []
    for c in top:
        outer = _outer(c.space)
        e, cost, tiles, sec = refine(c.entry, c.space, type(c.cost), model, c.tiles, outer)
        refined.append(_Candidate(sec, e, cost, c.space, tiles, c.form, c.steps, c.label))
    refined.sort(key=lambda c: c.rank)
    tick("refine", "tile sizes")
    best = refined[0]
    final, tail = realise(best, rules, gpu)
    tick("derive", "derivation")
    plans = [_plan(k, c, refined[0]) for k, c in enumerate(refined)]
    return Result(final, dnf, [*best.steps, *tail], plans, reports, sizes, spent)


_OWN = ("psi", "simplify", "rearrange", "algebra", "structure", "placement", "storage")


def _explore(form: Kernel, steps: list[Step], rules: RuleSet, model: Any, sizes: dict[str, int], opt: Options, packed: tuple[Term, ...], label: str,
             reports: dict[str, Report], known: list[dict[str, int]] | None) -> list[_Candidate]:  # fmt: skip
    """Candidates of one form, under all starting tile sizes or those that served another form well."""
    onf, more = materialise(form, rules, True, packed, extent_points(form, sizes))
    problem = build(onf, sizes)
    space = saturate(problem, rules, model, DEPTH, opt.nodes, 20.0)
    space.origin = more
    reports[f"structure {label}"] = space.report
    outer = _outer(space)
    found = []
    for tiles in assignments(space, model, known):
        cost = (GpuCost if isinstance(model, GpuModel) else Cost)(problem, model, loop_axes(space, tiles))
        for e in Extractor(space, cost).root():
            found.append(_Candidate(cost.seconds(e, outer, outer)[0], e, cost, space, tiles, form, steps, label))
    found.sort(key=lambda c: c.seconds)
    return _varied(found, 12)


def _varied(found: list[_Candidate], keep: int) -> list[_Candidate]:
    """The first candidates, and the first of each way in which storage grows."""
    seen: set[frozenset[str]] = set()
    out = []
    for n, c in enumerate(found):
        if n < keep or c.growth not in seen:
            out.append(c)
        seen.add(c.growth)
    return out


def _promising(pool: list[_Candidate], keep: int) -> list[dict[str, int]]:
    out: list[dict[str, int]] = []
    for c in sorted(pool, key=lambda c: c.seconds):
        if c.tiles not in out:
            out.append(c.tiles)
    return out[:keep]


def _outer(space: Space) -> float:
    n = 1.0
    for a in space.batch:
        n *= space.problem.extents[a]
    return n


def _distinct(pool: list[_Candidate], keep: int) -> list[_Candidate]:
    """The best candidates with different plans."""
    seen: set[tuple] = set()
    out = []
    for c in pool:
        key = (c.label, c.entry.plan)
        if key not in seen:
            seen.add(key)
            out.append(c)
        if len(out) == keep:
            break
    return out


def realise(c: _Candidate, rules: RuleSet, gpu: bool) -> tuple[Kernel, list[Step]]:
    """The candidate as a placed kernel, with the steps that follow its form: materialise, structure, place, layout."""
    onf, more = c.space.problem.kernel, c.space.origin
    plan = right_nested(c.entry.plan)
    target = statement(plan, c.space, c.tiles)
    steps = [*more, *derive(target, onf.body, rules)]
    k = onf
    for s in steps[len(more) :]:
        k = apply_step(k, rules, s)
    assert k.body is target
    level = "grid" if gpu else "core" if c.cost.m.cores > 1 else ""
    tail = [Step("place", p.path, {"level": p.place}) for p in placements(plan, c.space, c.cost, target, level)]
    tail += [Step("layout", (), {"T": t, "order": tuple(I(x) for x in order)}) for t, order in sorted(layouts(c.entry, c.space).items())]
    if gpu:
        bounds = admitted(plan, c.space, c.cost.m, c.tiles, c.cost.m.shared)  # type: ignore[arg-type, attr-defined]
        tail += [Step("admit", (), {"c": Term("le", size(n), I(v))}) for n, v in bounds.items()]
    for s in tail:
        k = apply_step(k, rules, s)
    return k, [*steps, *tail]


def _plan(rank: int, c: _Candidate, best: _Candidate) -> Plan:
    sec, terms = c.cost.seconds(c.entry, _outer(c.space), _outer(c.space))
    moved = (c.entry.traffic * c.cost.weight).sum(axis=1) * _outer(c.space)
    names = [*c.cost.m.names[1:], "DRAM"]
    reason = ""
    if c is not best:
        worse = max(terms, key=lambda k: terms[k] - best.cost.seconds(best.entry, _outer(best.space), _outer(best.space))[1].get(k, 0.0))
        reason = f"{sec / best.seconds:.2f}x the time: more {worse}"
    return Plan(rank, f"{c.label}: {summary(c.entry.plan)}", sec, terms, dict(zip(names, map(float, moved), strict=True)), c.tiles, c is best, reason)


def summary(plan: tuple) -> str:
    """A plan in one line."""
    if plan[0] == "leaf":
        return f"#{plan[1]}"
    if plan[0] == "for":
        mark = {"seq": "", "simd": "|", "unroll": "*", "block": "'"}[plan[2]]
        return f"{plan[1]}{mark} {summary(plan[3])}"
    text = f"{summary(plan[1])}; {summary(plan[2])}"
    return f"{{{text}}}"


__all__ = ["Options", "Plan", "Problem", "Result", "optimize", "realise"]
