"""A step of a derivation, and its application: the part of rewriting that a certificate's checker trusts (with guards.py and builtin.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..terms import Kernel, Path, Term, at, parse_term, put, show
from .builtin import apply_builtin
from .guards import GUARDS
from .pattern import instantiate, lookup, match_term
from .rule import Kind, Rule, RuleError, Subst, Value


@dataclass(frozen=True)
class Step:
    """Rule ``rule`` applied at ``path`` of the kernel's body with ``subst``, from left to right when ``forward``."""

    rule: str
    path: Path
    subst: Subst = field(default_factory=dict)
    forward: bool = True


def match(rule: Rule, kernel: Kernel, path: Path, forward: bool = True, params: Mapping[str, Value] | None = None) -> Subst | None:
    """The substitution under which the rule applies at a position, side conditions included, or None. ``params`` gives the rule's params."""
    subst: Subst | None = dict(params or {})
    if not rule.builtin:
        side = rule.lhs if forward else rule.rhs
        if side is None or not (forward or rule.twoway):
            return None
        subst = match_term(side, at(kernel.body, path))
        if subst is None:
            return None
        for p, value in (params or {}).items():
            if subst.setdefault(p, value) != value:
                return None
    assert subst is not None
    try:
        apply_rule(kernel, rule, Step(rule.name, path, subst, forward))
    except RuleError:
        return None
    return subst


def apply_step(kernel: Kernel, ruleset: Mapping[str, Rule], step: Step) -> Kernel:
    """The kernel after a step. RuleError when the rule is unknown, nothing stands at the position, the pattern under the given substitution is not exactly
    the subterm there, the substitution has too few or too many keys or values of a wrong kind, or a guard fails."""
    rule = ruleset.get(step.rule)
    if rule is None:
        raise RuleError(f"unknown rule {step.rule}")
    return apply_rule(kernel, rule, step)


def apply_rule(kernel: Kernel, rule: Rule, step: Step) -> Kernel:
    """As ``apply_step``, for a rule that is at hand."""
    try:
        target = at(kernel.body, step.path)
    except IndexError:
        raise RuleError(f"{rule.name}: nothing at {list(step.path)}") from None
    if not step.forward and not rule.twoway:
        raise RuleError(f"{rule.name} does not apply from right to left")
    if rule.builtin:
        return apply_builtin(rule.name, kernel, step.path, step.subst)
    assert rule.lhs is not None and rule.rhs is not None
    before, after = (rule.lhs, rule.rhs) if step.forward else (rule.rhs, rule.lhs)
    check_kinds(rule, step.subst)
    if instantiate(before, step.subst) is not target:
        raise RuleError(f"{rule.name}: the {'left' if step.forward else 'right'} side is not what stands at {list(step.path)}")
    for guard in rule.guards:
        if not holds(guard, kernel, step.subst):
            raise RuleError(f"{rule.name}: {show(guard)} does not hold")
    out = kernel.with_body(put(kernel.body, step.path, instantiate(after, step.subst)))
    for name, pattern in rule.define:
        out = define(out, str(lookup(name.lstrip("?"), step.subst)), instantiate(pattern, step.subst))
    return out


def check_kinds(rule: Rule, subst: Subst) -> None:
    """The substitution gives a value of the right kind to every variable of the rule, and no others."""
    kinds = rule.variables()
    if subst.keys() != kinds.keys():
        missing, extra = sorted(kinds.keys() - subst.keys()), sorted(subst.keys() - kinds.keys())
        raise RuleError(f"{rule.name}: no value for {', '.join(missing)}" if missing else f"{rule.name}: no variable {', '.join(extra)}")
    for v, kind in kinds.items():
        if not is_kind(subst[v], kind):
            raise RuleError(f"{rule.name}: the value of {v} is no {kind}")


def is_kind(value: Value, kind: Kind) -> bool:
    if kind == "term":
        return isinstance(value, Term)
    if kind == "name":
        return type(value) in (str, int)
    return isinstance(value, tuple) and all(isinstance(t, Term) for t in value)


def holds(guard: Term, kernel: Kernel, subst: Subst) -> bool:
    """Whether a side condition holds under a substitution."""
    values: list[Any] = []
    for a in guard.args:
        if isinstance(a, Term):
            values.append(lookup(str(a.args[0]), subst) if a.op == "var" else instantiate(a, subst))
        else:
            values.append(a)
    return GUARDS[guard.op](kernel, *values)


def define(kernel: Kernel, name: str, term: Term) -> Kernel:
    """Add ``name = term`` to the axis definitions; a second definition of a name must be the same."""
    found = kernel.definition(name)
    if found is not None and found is not term:
        raise RuleError(f"axis {name} is already {found!r}")
    return kernel if found is not None else replace(kernel, defs=(*kernel.defs, (name, term)))


# --- JSON ---------------------------------------------------------------------------------------------------------------------------
def step_to_json(step: Step) -> dict[str, Any]:
    """A step as JSON data. Values: a term is ``{"term": text}``, a sequence a list of texts, names and numbers themselves."""

    def value(v: Value) -> Any:
        return {"term": show(v)} if isinstance(v, Term) else [show(t) for t in v] if isinstance(v, tuple) else v

    return {"rule": step.rule, "path": list(step.path), "subst": {k: value(v) for k, v in sorted(step.subst.items())}, "forward": step.forward}


def step_from_json(data: Mapping[str, Any]) -> Step:
    """The step of ``step_to_json``. RuleError for anything else."""

    def value(v: Any) -> Value:
        if type(v) in (str, int):
            return v
        if isinstance(v, list):
            return tuple(parse_term(t) for t in v)
        if isinstance(v, dict) and v.keys() == {"term"}:
            return parse_term(v["term"])
        raise RuleError(f"not a value: {v!r}")

    if data.keys() != {"rule", "path", "subst", "forward"} or type(data["forward"]) is not bool or not isinstance(data["rule"], str):
        raise RuleError("not a step")
    if not isinstance(data["path"], list) or not all(type(k) is int and k >= 0 for k in data["path"]):
        raise RuleError("not a position")
    try:
        subst = {str(k): value(v) for k, v in data["subst"].items()}
    except (SyntaxError, TypeError, AttributeError) as e:
        raise RuleError(f"not a term: {e}") from None
    except Exception as e:  # lark's errors share no base class with SyntaxError
        if type(e).__module__.startswith("lark"):
            raise RuleError("not a term") from None
        raise
    return Step(data["rule"], tuple(data["path"]), subst, data["forward"])

