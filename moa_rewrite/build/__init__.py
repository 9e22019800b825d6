"""Compile, load, call, verify, measure."""

from .call import LoadedKernel, bind_sizes, evaluate, load
from .check import Times, Verdict, measure, verify
from .compile import C_FLAGS, SANITIZE, WARNINGS, compile_c

__all__ = ["C_FLAGS", "SANITIZE", "WARNINGS", "LoadedKernel", "Times", "Verdict", "bind_sizes", "compile_c", "evaluate", "load", "measure", "verify"]
