"""Not a contender: what this machine can do, measured in turn with the contenders. "f32" and "f64" in flop/s, the others in bytes/s."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
from cases import Case  # type: ignore[import-not-found]
from worker import Run, aligned  # type: ignore[import-not-found]

ELEMENTS = 1 << 25  # 128 MiB, beyond the caches


class Limits:
    def __init__(self, threads: int, folder: Path) -> None:
        so = folder / "limits.so"
        subprocess.run(["gcc", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", str(Path(__file__).with_name("limits.c")), "-o", str(so)], check=True)
        self.lib = ctypes.CDLL(str(so))
        for f in ("fma_f32", "fma_f64", "copy", "copy_streaming", "read_all"):
            getattr(self.lib, f).restype = ctypes.c_double
        self.threads = ctypes.c_int(threads)
        self.x, self.y = (aligned((ELEMENTS,), np.float32) for _ in range(2))
        self.x[...] = 1
        self.y[...] = 0
        self.about: dict[str, object] = {}

    def rates(self) -> dict[str, float]:
        flops, total, n = ctypes.c_double(), ctypes.c_float(), ctypes.c_int64(ELEMENTS)
        x, y = ctypes.c_void_p(self.x.ctypes.data), ctypes.c_void_p(self.y.ctypes.data)
        out = {}
        for kind in ("f32", "f64"):
            took = getattr(self.lib, f"fma_{kind}")(self.threads, ctypes.c_int64(600_000), ctypes.byref(flops))
            out[kind] = flops.value / took
        moved = 8.0 * ELEMENTS
        out["copy"] = moved / min(self.lib.copy(self.threads, x, y, n), self.lib.copy_streaming(self.threads, x, y, n))
        out["read"] = moved / 2 / self.lib.read_all(self.threads, x, n, ctypes.byref(total))
        return out

    def __call__(self) -> None:
        self.rates()


def make(case: Case, arrays: dict[str, np.ndarray], peer: str, threads: int, folder: Path) -> Run:
    limits = Limits(threads, folder)
    return limits, lambda: {}
