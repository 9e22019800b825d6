"""Compile, load, call, verify, measure."""

from .call import LoadedKernel, bind_sizes, evaluate, load
from .check import Times, Verdict, measure, verify
from .compile import C_FLAGS, SANITIZE, WARNINGS, compile_c
from .memory import peak_growth
from .standalone import Standalone

__all__ = [
    "C_FLAGS", "SANITIZE", "WARNINGS", "LoadedKernel", "Standalone", "Times", "Verdict", "bind_sizes", "compile_c", "evaluate", "load", "measure",
    "peak_growth", "verify",
]  # fmt: skip
