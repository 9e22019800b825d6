"""From a placed kernel to the files of a target, with what builds them, and the build itself."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data import data_path
from ..terms import Kernel

if TYPE_CHECKING:
    from ..emit.cuda_program import CudaProgram
    from ..emit.loops import LoopProgram

SUFFIX = {"c": ".c", "fortran": ".f90", "cuda": ".cu"}
FOLDER = {"c": "c", "fortran": "fortran", "cuda": "cuda"}
COMPILER = {"c": "gcc", "fortran": "gfortran", "cuda": "nvcc"}


@dataclass(frozen=True)
class Emitted:
    """``files``: what is handed over, by name; ``source`` the one with the kernel. ``flags``: those the proof is about; ``build`` a shell command."""

    target: str
    source: str
    files: dict[str, bytes]
    lowered: LoopProgram | CudaProgram
    compiler: str
    flags: tuple[str, ...]
    build: str


def emit(kernel: Kernel, target: str, stem: str, fix: Mapping[str, int], machine: Any) -> Emitted:
    """Lower, print, and add the runtime headers that the text includes, and a Makefile."""
    lowered, texts, flags = _PRINT[target](kernel, stem, fix, machine)
    source = stem + SUFFIX[target]
    texts |= _headers(texts, target)
    command, product = _command(target, stem, source, flags)
    texts["Makefile"] = _makefile(target, product, source, sorted(n for n in texts if n != source), command)
    return Emitted(target, source, {n: t.encode() for n, t in sorted(texts.items())}, lowered, version(target), flags, command)


def _c(kernel: Kernel, stem: str, fix: Mapping[str, int], machine: Any) -> tuple[LoopProgram, dict[str, str], tuple[str, ...]]:
    from ..build import C_FLAGS
    from ..emit import Options, lower, print_c

    cache = max((level.bytes for level in machine.levels), default=0)
    lowered = lower(kernel, "c", Options(fix=fix, vector_bytes=machine.simd_bytes, vector_registers=machine.vector_registers, cache_bytes=cache))
    printed = print_c(lowered)
    return lowered, {f"{stem}.c": _renamed(printed.c_text, lowered.name, stem), f"{stem}.h": printed.h_text}, _march(C_FLAGS, machine)


def _fortran(kernel: Kernel, stem: str, fix: Mapping[str, int], machine: Any) -> tuple[LoopProgram, dict[str, str], tuple[str, ...]]:
    from ..build.fortran import FLAGS
    from ..emit import Options, lower
    from ..emit.fortran import print_fortran

    lowered = lower(kernel, "fortran", Options(fix=fix, vector_bytes=machine.simd_bytes, vector_registers=machine.vector_registers))
    return lowered, {f"{stem}.f90": print_fortran(lowered).f90_text}, _march(FLAGS, machine)


def _cuda(kernel: Kernel, stem: str, fix: Mapping[str, int], machine: Any) -> tuple[CudaProgram, dict[str, str], tuple[str, ...]]:
    from ..build.nvcc import FLAGS
    from ..emit import Options
    from ..emit.cuda import print_cuda
    from ..emit.lower_cuda import lower_cuda

    lowered = lower_cuda(kernel, Options(fix=fix))
    printed = print_cuda(lowered)
    return lowered, {f"{stem}.cu": _renamed(printed.cu_text, lowered.name, stem), f"{stem}.h": printed.h_text}, (f"-arch={machine.arch}", *FLAGS)


_PRINT: dict[str, Callable[..., tuple[LoopProgram | CudaProgram, dict[str, str], tuple[str, ...]]]] = {"c": _c, "fortran": _fortran, "cuda": _cuda}


def _renamed(text: str, name: str, stem: str) -> str:
    """The text with its own header included under the name of the written file."""
    return text.replace(f'#include "{name}.h"', f'#include "{stem}.h"', 1)


def _march(flags: tuple[str, ...], machine: Any) -> tuple[str, ...]:
    """Flags for another machine than this one name its architecture."""
    march = getattr(machine, "march", "") or "native"
    return tuple(f"-march={march}" if f.startswith("-march=") else f for f in flags)


def _headers(texts: Mapping[str, str], target: str) -> dict[str, str]:
    """The runtime headers that some texts include, and those that these include."""
    found: dict[str, str] = {}
    todo = [n for text in texts.values() for n in _includes(text)]
    while todo:
        name = todo.pop()
        if name not in texts and name not in found:
            found[name] = data_path("codegen", FOLDER[target], name).read_text(encoding="utf-8")
            todo += _includes(found[name])
    return found


def _includes(text: str) -> list[str]:
    return re.findall(r'^#include "([^"]+)"', text, re.M)


def _command(target: str, stem: str, source: str, flags: tuple[str, ...]) -> tuple[str, str]:
    """(build command, what it makes)."""
    if target == "cuda":
        return f"nvcc {' '.join(flags)} -Xcompiler -fPIC -shared -o lib{stem}.so {source}", f"lib{stem}.so"
    return f"{COMPILER[target]} {' '.join(flags)} -shared -fPIC -o lib{stem}.so {source} -lm", f"lib{stem}.so"


def _makefile(target: str, product: str, source: str, headers: list[str], command: str) -> str:
    return f"# Builds {product} with the flags that the certificate names.\n{product}: {' '.join([source, *headers])}\n\t{command}\n"


def version(target: str) -> str:
    """Name and version of a target's compiler; the name alone where there is none."""
    compiler = COMPILER[target]
    flag = "--version" if target == "cuda" else "-dumpfullversion"
    try:
        out = subprocess.run([compiler, flag], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return compiler
    found = re.search(r"V([\d.]+)" if target == "cuda" else r"([\d.]+)", out)
    return f"{compiler} {found[1]}" if found else compiler


def built(e: Emitted, folder: Path) -> Path | None:
    """What a compiler makes of the text in a folder, to be called on this computer where it is C or Fortran; None if no compiler is there.
    MoaError (a fault) when it refuses."""
    if version(e.target) == COMPILER[e.target]:
        return None
    return build(e.target, e.files, e.source, folder, here(e.flags))


def here(flags: Sequence[str]) -> tuple[str, ...]:
    """Flags for another machine, changed to those for this computer."""
    return tuple("-march=native" if f.startswith("-march=") else f for f in flags)


def build(target: str, contents: Mapping[str, bytes], source: str, folder: Path, flags: tuple[str, ...]) -> Path:
    """Compile emitted files in a folder: the shared object of C or Fortran, the device code of CUDA."""
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    stem = Path(source).stem
    if target == "c":
        from ..build import compile_c

        return compile_c(contents[source].decode(), contents[f"{stem}.h"].decode(), folder, stem, flags=flags)
    if target == "fortran":
        from ..build.fortran import compile_fortran

        return compile_fortran(folder / source, flags)
    from ..build.nvcc import compile_cubin

    arch = next(f for f in flags if f.startswith("-arch=")).removeprefix("-arch=")
    return compile_cubin(folder / source, arch, tuple(f for f in flags if not f.startswith("-arch="))).cubin
