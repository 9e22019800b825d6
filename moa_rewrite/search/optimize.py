"""The whole search: source body -> DNF -> its alternatives -> materialised forms -> loop structures -> the best placed ONF, with every step.

Budgets are counts (nodes, rounds, entries), never seconds, so that the same input gives the same output on every machine; ``timeout`` only stops a
run with an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import UNDECIDED, MoaError
from ..rules import RuleSet, Step, psi_normalise
from ..terms import Kernel, Term
from ..terms.ops import STATEMENTS
from .algebra import alternatives
from .candidate import MANY, Candidate, Form, explore, realise, refined
from .cost import Model
from .egraph import Report
from .form import packs, rename_axes
from .gpu import GpuModel
from .parts import parted

FEW = 3  # leaves of a program of which there is little to search
# groups of rules with a place of their own; rules of other files are laws of scalars or statements that a user added
_OWN = ("psi", "simplify", "rearrange", "algebra", "structure", "placement", "storage")


@dataclass(frozen=True)
class Options:
    """``top``: DNFs and plans kept; ``timeout`` seconds before giving up; ``nodes``: e-nodes of one graph; ``target`` the language of the kernel;
    ``keep``: plans to rank at least, where there are so many."""

    top: int = 4
    timeout: float = 300.0
    seed: int = 0
    fix: dict[str, int] = field(default_factory=dict)
    target: str = "c"
    verbose: int = 0
    nodes: int = 60000
    keep: int = 0
    progress: Callable[[str], None] | None = None


@dataclass
class Plan:
    """One alternative: ``label`` names its form by the laws used, ``summary`` is the plan in one line, ``terms`` are predicted seconds by cause,
    ``moved`` bytes by memory."""

    rank: int
    label: str
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
    ranked: list[Candidate] = field(default_factory=list)  # what ``plans`` describe


class _Search:
    def __init__(self, kernel: Kernel, rules: RuleSet, machine: Any, sizes: dict[str, int], options: Options) -> None:
        self.kernel, self.rules, self.sizes, self.opt = kernel, rules, sizes, options
        self.gpu = machine.kind == "gpu"
        self.model = GpuModel.of(machine) if self.gpu else Model.of(machine)
        self.start = time.monotonic()
        self.spent: dict[str, float] = {}
        self.reports: dict[str, Report] = {}
        self.pool: list[Candidate] = []

    def done(self, phase: str) -> None:
        """Note the time of a phase, show progress, and stop when the timeout is over."""
        now = time.monotonic() - self.start
        self.spent[phase] = now - sum(self.spent.values())
        if self.opt.progress is not None:
            self.opt.progress(phase)
        if now > self.opt.timeout:
            hint = "--timeout, or fewer alternatives with --top"
            raise MoaError(801, f"the search did not finish within {self.opt.timeout:g} s", hint=hint, exit_code=UNDECIDED)

    def run(self) -> Result:
        dnf, forms = self.normal_forms()
        for form in forms:
            self.explore(form, 4)
            self.explore(replace(form, shared=True, label=f"{form.label}; shared"), 4)
            if not self.gpu and (cut := parted(form, self.rules, self.model.cores, self.sizes)) is not None:
                self.explore(cut, 4)
        if not self.gpu:
            self.pack()
        several = self.distinct()
        first = max(8, self.opt.keep)
        ranked = sorted([*map(refined, several[:first]), *several[first:]], key=lambda c: c.rank)
        self.done("tile sizes")
        out = chosen(Result(self.kernel, dnf, [], [], self.reports, self.sizes, self.spent, ranked), 0, self.rules)
        self.done("derivation")
        return out

    def normal_forms(self) -> tuple[Kernel, list[Form]]:
        """The DNF, and it and its alternatives with the steps that lead to them."""
        normal, psi = psi_normalise(self.kernel, self.rules)
        dnf, alpha = rename_axes(normal, self.rules)
        self.done("normal form")
        return dnf, self.forms(dnf, (*psi, *alpha))

    def forms(self, dnf: Kernel, steps: tuple[Step, ...]) -> list[Form]:
        """The DNF and its alternatives by the laws of scalars, named by the laws that lead to them."""
        laws = [r.name for r in self.rules.values() if (r.group == "algebra" or r.group not in _OWN) and r.lhs is not None and r.lhs.op not in STATEMENTS]
        found, reports = alternatives(dnf, self.rules, laws, self.sizes, self.opt.top)
        self.reports |= {f"algebra {n}": r for n, r in enumerate(reports)}
        self.done("algebra")
        out: list[Form] = []
        for kernel, chain in found:
            used = list(dict.fromkeys(s.rule for s in chain))
            label = ", ".join(used) or "as written"
            same = sum(f.label.split(" #")[0] == label for f in out)
            out.append(Form(kernel, (*steps, *chain), f"{label} #{same + 1}" if same else label))
        return out

    def explore(self, form: Form, most: int) -> list[Candidate]:
        ranked = sorted(self.pool, key=lambda c: c.rank)
        first = list({c.lanes: (c.lanes, c.tiles) for c in reversed(ranked)}.values())[::-1]  # the best for each SIMD axis, then the next best
        known = [*first, *[t for c in ranked if (t := (c.lanes, c.tiles)) not in first]]
        found = explore(form, self.rules, self.model, self.sizes, self.opt.nodes, known[:most])
        self.pool += found
        if found:
            self.reports[f"structure: {form.label}"] = found[0].space.report
        self.done(form.label)
        return found

    def pack(self) -> None:
        """Copies of inputs in another layout, for the best form, and in small programs for the best of each other DNF: what reads the copy may be less work."""
        best: dict[Term, Candidate] = {}
        for c in sorted(self.pool, key=lambda c: c.rank):
            best.setdefault(c.form.kernel.body, c)
        first, *others = best.values()
        self.copies(first)
        if len(first.space.problem.leaves) <= FEW:
            for c in others:
                self.copies(c)

    def copies(self, best: Candidate) -> None:
        """Copies one at a time: in small programs also pairs of which neither pays alone."""
        problem = best.space.problem
        copies = packs(problem.kernel)
        small = len(problem.leaves) <= MANY
        # in large programs only for nests that are no good in lanes as they are, if there are any
        needed = [] if small else [[p for p in copies if p.target == x.target] for x in problem.leaves if not problem.lanes(x)]
        # where there is little to search, a copy may want tiles that nothing else did
        most = 0 if len(problem.leaves) <= FEW else 3
        for some in [copies, copies] if small else needed or [copies]:
            found = [best]
            for p in some:
                if p not in best.form.packed:
                    single = sum(q.read.args[0] == p.read.args[0] for q in copies) == 1
                    label = f"{best.form.label}; {p.read.args[0]} packed" + ("" if single else f" for {p.target}")
                    found += self.explore(replace(best.form, packed=(*best.form.packed, p), label=label), most)
            best = min((found[1:] if small else []) or found, key=lambda c: c.rank)

    def distinct(self) -> list[Candidate]:
        """Several plans of the best form, since refining may reorder them, and the best plan of every other."""
        out: list[Candidate] = []
        count: dict[str, int] = {}
        self.pool.sort(key=lambda c: c.rank)
        seen: set[tuple] = set()
        for c in self.pool:
            label = c.form.label
            most = max(4, self.opt.keep) if label == self.pool[0].form.label else 1
            if count.get(label, 0) < most and (label, c.entry.plan) not in seen:
                seen.add((label, c.entry.plan))
                count[label] = count.get(label, 0) + 1
                out.append(c)
        return out


def optimize(kernel: Kernel, rules: RuleSet, machine: Any, sizes: dict[str, int], options: Options | None = None) -> Result:
    """The cheapest ONF found for a machine, judged at ``sizes``. MoaError (undecided) when the timeout is reached."""
    return _Search(kernel, rules, machine, sizes, options or Options()).run()


def chosen(r: Result, n: int, rules: RuleSet) -> Result:
    """The result with plan ``n`` of its ranking as the kernel."""
    c = r.ranked[n]
    final, tail = realise(c, rules)
    return replace(r, kernel=final, steps=[*c.form.steps, *tail], plans=[_plan(k, x, c) for k, x in enumerate(r.ranked)])


def _plan(rank: int, c: Candidate, best: Candidate) -> Plan:
    seconds, terms = c.cost.seconds(c.entry, c.outer, c.outer)
    moved = (c.entry.traffic[:-2] * c.cost.weight).sum(axis=1) * c.outer
    names = [*c.cost.m.names[1:], "DRAM"]
    reason = ""
    if c is not best:
        ratio, theirs = seconds / best.seconds, best.cost.seconds(best.entry, best.outer, best.outer)[1]
        worse = max(terms, key=lambda k: terms[k] - theirs.get(k, 0.0))
        reason = "the same cost, found later" if ratio < 1.005 else f"{ratio:.2f}x the time: more {worse}"
    tiles = {f"{k.removesuffix('.T')}": v for k, v in c.tiles.items()}
    traffic = dict(zip(names, map(float, moved), strict=True))
    return Plan(rank, c.form.label, summary(c.entry.plan, c), seconds, terms, traffic, tiles, c is best, reason)


def summary(plan: tuple, c: Candidate) -> str:
    """A plan in one line: loops around what they fill, ``[stages]`` where their storage opens; ``|`` SIMD lanes, ``*`` unrolled, ``'`` threads."""
    if plan[0] == "leaf":
        return c.space.problem.leaves[plan[1]].target
    if plan[0] == "for":
        mark = {"seq": "", "simd": "|", "unroll": "*", "block": "'"}[plan[2]]
        return f"{plan[1]}{mark} {summary(plan[3], c)}"
    text = f"{summary(plan[1], c)}; {summary(plan[2], c)}"
    opened = f"[{', '.join(sorted(plan[3]))}] " if plan[3] else ""
    return f"{{{opened}{text}}}"


__all__ = ["Options", "Plan", "Result", "chosen", "optimize", "summary"]
