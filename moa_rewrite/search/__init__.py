"""From a kernel to its cheapest placed form on a machine, with every step. egglog is imported here and nowhere else."""

from .optimize import Options, Plan, Result, optimize

__all__ = ["Options", "Plan", "Result", "optimize"]
