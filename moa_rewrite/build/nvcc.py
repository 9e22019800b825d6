"""Compile CUDA with nvcc and read what ptxas reports: registers, shared memory, stack, spills. Needs no GPU."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ..data import data_path
from ..errors import FAULT, MoaError

# contraction to fused multiply-add is permitted and recorded; no fast math
FLAGS = ("-std=c++17", "-O3", "-fmad=true")


@dataclass(frozen=True)
class Resources:
    """One kernel, as ptxas reports it; bytes per block (``shared``, static only) or per thread (``stack``, ``spill_*``)."""

    kernel: str
    registers: int
    barriers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int


@dataclass(frozen=True)
class Compiled:
    cubin: Path
    command: tuple[str, ...]
    version: str  # e.g. "13.0"
    kernels: tuple[Resources, ...]


def compile_cubin(source: Path, arch: str = "sm_80", flags: tuple[str, ...] = FLAGS) -> Compiled:
    """Device code of a .cu for one architecture, beside it. A warning is an error. MoaError if nvcc is missing or refuses."""
    cubin = source.with_suffix(".cubin")
    command = _command(source, cubin, arch, flags, ("-cubin", "-Xptxas", "-v"))
    text = run_nvcc(command)
    if re.search(r"\bwarning\b", text):
        raise MoaError(712, f"nvcc warns about {source.name}", notes=text.splitlines()[:20], exit_code=FAULT)
    return Compiled(cubin, command, nvcc_version(), tuple(parse_resources(text)))


def compile_host(source: Path, arch: str = "sm_80", flags: tuple[str, ...] = FLAGS) -> Path:
    """The object file of a .cu with its launcher, for linking into a program; warnings of the host compiler are errors too."""
    out = source.with_suffix(".o")
    run_nvcc(_command(source, out, arch, flags, ("-c",)))
    return out


def _command(source: Path, out: Path, arch: str, flags: tuple[str, ...], how: tuple[str, ...]) -> tuple[str, ...]:
    strict = ("-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror")
    return ("nvcc", f"-arch={arch}", *how, *flags, *strict, f"-I{data_path('codegen', 'cuda')}", "-o", str(out), str(source))


def run_nvcc(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise MoaError(710, "nvcc is not installed", hint="CUDA kernels are compiled with the CUDA toolkit, 11.0 or later", exit_code=FAULT) from None
    text = done.stdout + done.stderr
    if done.returncode:
        raise MoaError(711, "nvcc refuses the emitted kernel", notes=text.splitlines()[:20], exit_code=FAULT)
    return text


def nvcc_version() -> str:
    found = re.search(r"release (\d+\.\d+)", run_nvcc(("nvcc", "--version")))
    assert found
    return found.group(1)


def parse_resources(text: str) -> list[Resources]:
    """The kernels in the output of ``ptxas -v``, in its order. A figure that ptxas leaves out is 0."""
    out = []
    for part in re.split(r"Compiling entry function '", text)[1:]:
        name = part.split("'", 1)[0]

        def figure(pattern: str, part: str = part) -> int:
            found = re.search(pattern, part)
            return int(found.group(1)) if found else 0

        out.append(
            Resources(
                name, figure(r"Used (\d+) registers"), figure(r"used (\d+) barriers"), figure(r"(\d+) bytes smem"), figure(r"(\d+) bytes stack frame"),
                figure(r"(\d+) bytes spill stores"), figure(r"(\d+) bytes spill loads"),
            )
        )  # fmt: skip
    return out


def blocks_per_sm(threads: int, registers: int, shared: int) -> tuple[int, str]:
    """Blocks of a kernel that an SM of compute capability 8.0 holds at once, and what limits them: blocks, warps, registers or shared.

    ``threads`` and ``shared`` bytes per block, ``registers`` per thread. 0 when a block cannot run at all.
    """
    warps = -(-threads // 32)
    per_warp = -(-max(registers, 1) * 32 // 256) * 256  # registers are given out to warps in units of 256
    if threads > 1024 or shared > 163 * 1024 or registers > 255:
        return 0, "block"
    if per_warp * -(-warps // 4) * 4 > 65536:  # whole warps in each of four register files
        return 0, "registers"
    limits = {"blocks": 32, "warps": 64 // warps, "registers": 65536 // 4 // per_warp * 4 // warps, "shared": 164 * 1024 // (-(-(shared + 1024) // 128) * 128)}
    tightest = min(limits, key=lambda k: limits[k])
    return limits[tightest], tightest
