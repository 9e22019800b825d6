"""What terms mean: types, and reference interpreters in float64 that share nothing with the rules."""

from .arrays import array_value
from .env import Env, OutOfRange, SemanticsError
from .numeric import F32, F64, Rounding
from .reference import Reference, reference
from .scalars import evaluate, evaluate_with_bound
from .statements import run
from .types import dtype, is_literal

__all__ = [
    "F32", "F64", "Env", "OutOfRange", "Reference", "Rounding", "SemanticsError", "array_value", "dtype", "evaluate", "evaluate_with_bound", "is_literal",
    "reference", "run",
]  # fmt: skip
