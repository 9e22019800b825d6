"""From an ONF kernel to source text: lowering to loops, then a printer per target."""

from .cprint import CSource, print_c
from .cuda import CudaSource, print_cuda
from .cuda_program import CudaProgram
from .fortran import FortranSource, layout_obligation, print_fortran
from .loops import LoopProgram
from .lower import Options, lower
from .lower_cuda import lower_cuda

__all__ = [
    "CSource", "CudaProgram", "CudaSource", "FortranSource", "LoopProgram", "Options", "layout_obligation", "lower", "lower_cuda", "print_c", "print_cuda",
    "print_fortran",
]  # fmt: skip
