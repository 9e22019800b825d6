"""From an ONF kernel to source text: lowering to loops, then a printer per target."""

from .cprint import CSource, print_c
from .loops import LoopProgram
from .lower import Options, lower

__all__ = ["CSource", "LoopProgram", "Options", "lower", "print_c"]
