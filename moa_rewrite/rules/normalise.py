"""Rewriting to normal form: leftmost outermost, deterministic, memoised on shared subterms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..terms import Kernel, Path, Term
from .pattern import instantiate, match_term
from .polynomial import canonical, is_index
from .rule import Rule, RuleError, RuleSet, Subst
from .step import Step, apply_step, holds, match

_SURROUNDINGS = ("below",)  # guards that look at the rest of the body
_Chain = list[tuple[Path, str, Subst]]  # steps relative to a subterm


class _Rewriter:
    """Normal forms of terms of one kernel, with the steps that lead there. Guards may look at the header, which does not change meanwhile."""

    def __init__(self, kernel: Kernel, rules: Iterable[Rule], budget: int) -> None:
        self.kernel, self.budget = kernel, budget
        self.memo: dict[Term, tuple[Term, _Chain]] = {}
        self.index: dict[tuple[str, str], list[Rule]] = {}
        for r in rules:
            if r.lhs is None or r.params or r.define or any(g.op in _SURROUNDINGS for g in r.guards):
                raise ValueError(f"{r.name} is no plain rewrite rule")
            self.index.setdefault((r.lhs.op, _last(r.lhs)), []).append(r)

    def root(self, t: Term) -> tuple[Term, str, Subst] | None:
        """One rewrite at the root."""
        last = _last(t)
        for key in ((t.op, last), (t.op, "")) if last else ((t.op, ""),):
            for rule in self.index.get(key, ()):
                subst = match_term(rule.lhs, t)  # type: ignore[arg-type]
                if subst is not None and all(holds(g, self.kernel, subst) for g in rule.guards):
                    return instantiate(rule.rhs, subst), rule.name, subst  # type: ignore[arg-type]
        return None

    def normal(self, t: Term) -> tuple[Term, _Chain]:
        found = self.memo.get(t)
        if found is not None:
            return found
        start = t
        chain: _Chain = []
        while True:
            while (hit := self.root(t)) is not None:
                t, name, subst = hit
                chain.append(((), name, subst))
                self.check(len(chain))
            args = list(t.args)
            for k, a in enumerate(args):
                if isinstance(a, Term):
                    new, steps = self.normal(a)
                    if steps:
                        args[k] = new
                        chain.extend(((k, *p), name, subst) for p, name, subst in steps)
                        self.check(len(chain))
            new = Term(t.op, *args)
            if new is t:
                break
            t = new
        self.memo[start] = t, chain
        return t, chain

    def check(self, steps: int) -> None:
        if steps > self.budget:
            raise RuleError(f"no normal form after {self.budget} steps")


def _last(t: Term) -> str:
    """Operator of the last argument: with the root it selects the few rules that can apply."""
    a = t.args[-1] if t.args else None
    return a.op if isinstance(a, Term) and a.op != "var" else ""


def normalise(kernel: Kernel, ruleset: RuleSet, names: Iterable[str], budget: int = 100000) -> tuple[Kernel, list[Step]]:
    """The normal form of the body under the named rules, used from left to right, and the steps to it. RuleError after ``budget`` steps; ValueError for a
    rule with params, definitions, or a guard that looks at extents."""
    rewriter = _Rewriter(kernel, [ruleset[n] for n in names], budget)
    body, chain = rewriter.normal(kernel.body)
    return kernel.with_body(body), [Step(name, path, subst) for path, name, subst in chain]


def psi_normalise(kernel: Kernel, ruleset: RuleSet) -> tuple[Kernel, list[Step]]:
    """The DNF: no array operator is left, and index arithmetic is in its readable form (rules of psi.moar, then ``ring`` and simplify.moar in turn)."""
    kernel, steps = normalise(kernel, ruleset, ruleset.group("psi"))
    rules = [ruleset[n] for n in ruleset.group("simplify")]
    while True:
        found = len(steps)
        for path, new in list(_untidy(kernel.body)) if "ring" in ruleset else []:
            steps.append(Step("ring", path, {"new": new}))
            kernel = apply_step(kernel, ruleset, steps[-1])
        for path, _ in list(_redexes(kernel.body, rules)):
            for rule in rules:  # the kernel may have changed since the position was found
                subst = match(rule, kernel, path)
                if subst is not None:
                    steps.append(Step(rule.name, path, subst))
                    kernel = apply_step(kernel, ruleset, steps[-1])
                    break
        if len(steps) == found:
            return kernel, steps


def _redexes(t: Term, rules: list[Rule], path: Path = ()) -> Iterator[tuple[Path, Term]]:
    """Positions where the left side of a rule may stand, innermost first, so that a step moves none that is still to come."""
    for k, a in enumerate(t.args):
        if isinstance(a, Term):
            yield from _redexes(a, rules, (*path, k))
    if any(r.lhs is not None and r.lhs.op == t.op and match_term(r.lhs, t) is not None for r in rules):
        yield path, t


def _untidy(t: Term, path: Path = ()) -> Iterator[tuple[Path, Term]]:
    """Largest index terms that are not in readable form, with that form."""
    if is_index(t):
        new = canonical(t)
        if new is not t:
            yield path, new
        return
    for k, a in enumerate(t.args):
        if isinstance(a, Term):
            yield from _untidy(a, (*path, k))
