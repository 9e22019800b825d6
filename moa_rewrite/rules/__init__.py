"""The laws: rule files, matching, side conditions, steps and their application. Nothing here searches."""

from .explain import derivation_text
from .load import load
from .normalise import normalise, psi_normalise
from .rule import Rule, RuleError, RuleSet, Subst, Value
from .step import Step, apply_step, match, step_from_json, step_to_json

__all__ = [
    "Rule", "RuleError", "RuleSet", "Step", "Subst", "Value", "apply_step", "derivation_text", "load", "match", "normalise", "psi_normalise",
    "step_from_json", "step_to_json",
]  # fmt: skip
