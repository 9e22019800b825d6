"""Compile emitted Fortran with gfortran to a shared object; its functions have the C ABI and load like those of emitted C."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ..errors import FAULT, MoaError

FLAGS = ("-O3", "-std=f2008", "-fopenmp", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
WARNINGS = (
    "-Wall", "-Wextra", "-Wno-unused-dummy-argument", "-Wno-maybe-uninitialized", "-Wno-compare-reals", "-Wno-intrinsic-shadow", "-Wno-zerotrip", "-Werror",
)  # fmt: skip


def compile_fortran(source: Path, flags: tuple[str, ...] = FLAGS) -> Path:
    """The shared object of a .f90, beside it. A warning is an error. MoaError if gfortran is missing or refuses."""
    out = source.with_suffix(".f.so")
    command = ["gfortran", *flags, *WARNINGS, "-fPIC", "-shared", f"-J{source.parent}", "-o", str(out), str(source)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise MoaError(720, "gfortran is not installed", hint="install a Fortran compiler, or choose --target c", exit_code=FAULT) from None
    if done.returncode:
        raise MoaError(721, "gfortran refuses the emitted kernel", notes=done.stderr.splitlines()[:20], exit_code=FAULT)
    return out


def gfortran_version() -> str:
    return subprocess.run(["gfortran", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()
