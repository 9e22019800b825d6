"""Run CUDA source on the CPU: translate, build with g++, load, call with NumPy arrays, and report what the hardware would not forgive.

One fiber per CUDA thread; every access to global and shared memory is checked for bounds, initialisation and races, barriers for divergence; warp
instructions are counted with the 32-byte sectors and the shared-memory wavefronts they move. The runtime is in codegen/cuda/simt*.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from ..data import data_path
from ..errors import FAULT, MoaError

_PARTS = ("fiber", "memory", "count", "sched")
_FLAGS = ["-std=c++17", "-O2", "-g1", "-fPIC", "-w", "-ffp-contract=off"]
_CTYPES = {"float32": ctypes.c_float, "float64": ctypes.c_double, "int32": ctypes.c_int32, "int64": ctypes.c_int64, "bool": ctypes.c_bool}


class _Count(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in ("instructions", "lanes", "bytes", "moved", "ideal", "worst")]


class _Stats(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_char * 64), *[(n, ctypes.c_uint64) for n in ("grid", "block", "shared")],
        ("count", _Count * 6),
        *[(n, ctypes.c_uint64) for n in ("sectors_read", "sectors_written", "barriers", "shuffles", "votes", "warp_syncs", "local", "races", "out_of_bounds",
          "uninitialised", "divergent_barriers", "warp_errors", "misaligned", "deadlocks")],
    ]  # fmt: skip


@dataclass(frozen=True)
class Traffic:
    """Accesses of one kind in one launch. ``moved`` counts 32-byte sectors (global) or wavefronts (shared); ``ideal`` is the least possible for the bytes
    asked for, ``worst`` the most that one warp instruction needed."""

    instructions: int
    lanes: int
    bytes: int
    moved: int
    ideal: int
    worst: int


@dataclass(frozen=True)
class Faults:
    races: int = 0
    out_of_bounds: int = 0
    uninitialised: int = 0
    divergent_barriers: int = 0
    warp_errors: int = 0
    misaligned: int = 0
    deadlocks: int = 0

    def __bool__(self) -> bool:
        return any(getattr(self, f.name) for f in fields(self))


@dataclass(frozen=True)
class Launch:
    """One kernel launch. ``traffic`` maps "global load", "shared store", ... to what was moved; ``sectors_read`` counts distinct sectors."""

    kernel: str
    grid: int
    block: int
    shared: int
    traffic: dict[str, Traffic]
    sectors_read: int
    sectors_written: int
    barriers: int
    shuffles: int
    warp_syncs: int
    faults: Faults


@dataclass(frozen=True)
class Result:
    """``code`` is what the function returned; ``unwritten`` the bytes of each output that no thread wrote; ``leaked`` allocations left behind."""

    code: int
    outputs: list[np.ndarray]
    launches: list[Launch]
    messages: list[str]
    unwritten: list[int]
    leaked: int

    @property
    def faults(self) -> Faults:
        return Faults(**{f.name: sum(getattr(n.faults, f.name) for n in self.launches) for f in fields(Faults)})


def translate(cuda: str, file: str = "kernel.cu") -> str:
    """CUDA source as host C++, line for line: launches become calls, dynamic shared memory a pointer. All else is macros of simt.hpp."""
    text = re.sub(r"extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;", r"\1* const \2 = (\1*)simt_dynamic_shared();", cuda)
    out, at = [f'#include "simt.hpp"\n#line 1 "{file}"\n'], 0
    for m in re.finditer(r"([A-Za-z_]\w*)\s*<<<(.*?)>>>\s*\(", text, re.S):
        depth, end = 1, m.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        grid, block, shared = (_split(m.group(2)) + ["0"])[:3]
        out.append(text[at : m.start()])
        out.append(f'simt::launch("{m.group(1)}", {m.group(1)}, {grid}, {block}, {shared}, [=]{{ {m.group(1)}({text[m.end() : end - 1]}); }})')
        at = end
    return "".join([*out, text[at:]])


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def _compiler(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise MoaError(702, f"{command[0]} is not installed", hint="the emulator of CUDA kernels is built with g++", exit_code=FAULT) from None
    if done.returncode:
        raise MoaError(703, f"{command[0]} failed on the translated kernel", notes=done.stderr.splitlines()[:20], exit_code=FAULT)


def _runtime(spare: Path) -> list[str]:
    """Object files of the runtime, compiled once per version of its text and kept in the user's cache, or in ``spare`` where there is none."""
    folder = data_path("codegen", "cuda")
    texts = b"".join((folder / n).read_bytes() for n in sorted(["simt.hpp", "simt_rt.hpp", *[f"simt_{p}.cpp" for p in _PARTS]]))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "moarw"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        cache = spare
    at = cache / f"simt-{hashlib.sha256(texts + ' '.join(_FLAGS).encode()).hexdigest()[:16]}"
    if not at.exists():
        with tempfile.TemporaryDirectory(dir=cache) as t:
            fresh = Path(t) / "objects"
            fresh.mkdir()
            for p in _PARTS:
                _compiler(["g++", *_FLAGS, "-c", str(folder / f"simt_{p}.cpp"), "-o", str(fresh / f"{p}.o")])
            try:
                fresh.rename(at)
            except OSError:  # another process was faster
                if not at.exists():
                    raise
    return [str(at / f"{p}.o") for p in _PARTS]


def build(cuda: str, folder: Path, stem: str = "kernel") -> Library:
    """Write, build and load a CUDA source. ``extern "C"`` functions can then be called. MoaError if g++ is missing or refuses the text."""
    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / f"{stem}.simt.cpp", folder / f"{stem}.simt.so"
    source.write_text(translate(cuda, f"{stem}.cu"), encoding="utf-8")
    include = [f"-I{data_path('codegen', 'cuda')}"]
    hooks = ["-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0"]
    object_file = str(folder / f"{stem}.simt.o")
    _compiler(["g++", *_FLAGS, *hooks, *include, "-c", str(source), "-o", object_file])
    _compiler(["g++", "-shared", "-Wl,-Bsymbolic", object_file, *_runtime(folder), "-o", str(library)])
    return Library(library)


class Library:
    """A loaded emulation. Calls are not re-entrant."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lib = ctypes.CDLL(str(path))
        self._lib.simt_messages.restype = ctypes.c_char_p
        self._lib.simt_download.restype = ctypes.c_size_t
        self._lib.simt_live.restype = ctypes.c_size_t

    def call(self, name: str, sizes: Sequence[int], inputs: Sequence[np.ndarray | np.generic], outputs: Sequence[np.ndarray], seed: int = 0) -> Result:
        """``int name(int64 sizes..., inputs..., outputs...)``: arrays go to device memory, NumPy scalars by value. Outputs give shape and dtype and
        reach the device uninitialised; a writeable input is copied back too. ``seed`` other than 0 permutes the order in which threads run."""
        lib = self._lib
        lib.simt_reset(ctypes.c_uint(seed))
        arguments: list = [ctypes.c_int64(n) for n in sizes]
        back = []
        for a in inputs:
            if isinstance(a, np.generic):
                arguments.append(_CTYPES[a.dtype.name](a.item()))
                continue
            given = np.ascontiguousarray(a)
            device = self._device(given)
            lib.simt_upload(device, given.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(given.nbytes))
            arguments.append(device)
        results = [np.empty(o.shape, o.dtype) for o in outputs]
        for r in results:
            back.append(self._device(r))
        own = lib.simt_live()
        code = getattr(lib, name)(*arguments, *back)
        unwritten = [
            int(lib.simt_download(r.ctypes.data_as(ctypes.c_void_p), d, ctypes.c_size_t(r.nbytes))) for r, d in zip(results, back, strict=True)
        ]  # fmt: skip
        leaked = lib.simt_live() - own
        lib.simt_free_all()
        launches = [self._launch(i) for i in range(lib.simt_launches())]
        messages = self._with_lines(lib.simt_messages().decode().splitlines())
        return Result(code, results, launches, messages, unwritten, leaked)

    def _device(self, a: np.ndarray) -> ctypes.c_void_p:
        p = ctypes.c_void_p()
        if self._lib.simt_malloc(ctypes.byref(p), ctypes.c_size_t(a.nbytes)):
            raise MoaError(704, f"{a.nbytes} bytes do not fit into the emulator's device memory", hint="emulate at smaller sizes")
        return p

    def _launch(self, i: int) -> Launch:
        s = _Stats()
        self._lib.simt_stats(i, ctypes.byref(s))
        names = [f"{space} {kind}" for space in ("global", "shared") for kind in ("load", "store", "atomic")]
        traffic = {n: Traffic(**{f.name: getattr(c, f.name) for f in fields(Traffic)}) for n, c in zip(names, s.count, strict=True)}
        plain = {f.name: getattr(s, f.name) for f in fields(Launch) if f.name not in ("kernel", "traffic", "faults")}
        return Launch(kernel=s.kernel.decode(), traffic=traffic, faults=Faults(**{f.name: getattr(s, f.name) for f in fields(Faults)}), **plain)

    def _with_lines(self, messages: list[str]) -> list[str]:
        """Addresses of accesses replaced by their source lines."""
        sites = sorted({m.group(1) for text in messages for m in re.finditer(r"site 0x([0-9a-f]+)", text)})
        if not sites:
            return messages
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        base = min(int(n.split("-")[0], 16) for n in maps if n.endswith(str(self.path.resolve())))
        offsets = [hex(int(s, 16) - base - 1) for s in sites]
        found = subprocess.run(["addr2line", "-e", str(self.path), *offsets], capture_output=True, text=True, check=False).stdout.splitlines()
        line = {f"0x{s}": f.rsplit("/", 1)[-1] for s, f in zip(sites, found, strict=True)}
        return [re.sub(r"site (0x[0-9a-f]+)", lambda m: line[m.group(1)], text) for text in messages]
