"""Derivations as text that people read."""

from __future__ import annotations

from collections.abc import Sequence

from ..terms import Kernel, Path, Term, at, show
from .rule import RuleSet
from .step import Step, apply_step


def derivation_text(kernel: Kernel, steps: Sequence[Step], ruleset: RuleSet, width: int = 100) -> str:
    """One paragraph per step: number, rule, place, and the subterm before and after, shortened to ``width`` characters. Replays the steps."""
    lines = []
    for n, step in enumerate(steps, 1):
        after = apply_step(kernel, ruleset, step)
        arrow = "" if step.forward else " (right to left)"
        lines.append(f"{n}. {step.rule}{arrow} in {place_text(kernel.body, step.path)}")
        lines.append(f"     {shorten(show(at(kernel.body, step.path)), width)}")
        lines.append(f"  -> {shorten(show(at(after.body, step.path)), width)}")
        lines += [f"     where @{a} = {show(t)}" for a, t in after.defs[len(kernel.defs) :]]
        lines += [f"     stage {s.name}[{', '.join(s.axes)}] = {shorten(show(s.definition), width)}" for s in after.stages[len(kernel.stages) :]]
        kernel = after
    return "\n".join(lines)


def place_text(body: Term, path: Path) -> str:
    """Where a position lies: the loops, scopes and emissions around it, outermost first."""
    out = []
    for k in path:
        if body.op == "for" and k == 3:
            out.append(f"for {body.args[0]}")
        elif body.op == "new":
            out.append(f"new {body.args[0]}")
        elif body.op == "emit":
            out.append(f"emit {body.args[1]}")
        elif body.op == "reduce" and k == 3:
            out.append(f"{body.args[0]} over {body.args[1]}")
        body = body.args[k]  # type: ignore[assignment]
    return " > ".join(out) or "the whole body"


def shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width // 2 - 2] + " ... " + text[-(width - width // 2 - 3) :]
