"""Certificates, the checker that replays them, and the obligations an operational form must meet."""

from .obligations import Limits, Obligation, obligations
from .solver import Verdict, prove, prove_all

__all__ = ["Limits", "Obligation", "Verdict", "obligations", "prove", "prove_all"]
