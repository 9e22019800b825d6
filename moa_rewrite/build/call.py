"""Loading a compiled kernel and calling it with NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FAULT, MoaError
from ..terms import Kernel, evaluate, show

NUMPY = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "bool": np.bool_}
_CTYPE = {"f32": ctypes.c_float, "f64": ctypes.c_double, "i32": ctypes.c_int32, "i64": ctypes.c_int64, "bool": ctypes.c_bool}


def bind_sizes(kernel: Kernel, arrays: Mapping[str, np.ndarray], given: Mapping[str, int]) -> dict[str, int]:
    """Sizes from shapes: a size that is alone on an axis is read off it, others must be given. MOA0612 when two axes disagree."""
    sizes = dict(given)
    origin = dict.fromkeys(given, "given")
    for a in kernel.inputs:
        shape = arrays[a.name].shape
        for n, e in enumerate(a.shape):
            if e.op != "size":
                continue
            s, where = str(e.args[0]), f"axis {n} of {a.name}"
            if s not in sizes:
                sizes[s], origin[s] = shape[n], where
            elif sizes[s] != shape[n]:
                raise MoaError(612, f"size {s} is {sizes[s]} ({origin[s]}) and {shape[n]} ({where})", notes=[f"{a.name} has shape {shape}"])
    for s in kernel.sizes:
        if s not in sizes:
            raise MoaError(613, f"size {s} stands alone on no axis of an input", hint=f"give it: sizes={{'{s}': ...}}")
    for a in kernel.inputs:
        wanted = tuple(evaluate(e, sizes) for e in a.shape)
        if arrays[a.name].shape != wanted:
            text = ", ".join(map(show, a.shape))
            raise MoaError(612, f"{a.name} has shape {arrays[a.name].shape}, its type says [{text}] = {wanted}")
    for w in kernel.where:
        if not evaluate(w, sizes):
            raise MoaError(614, f"the condition {show(w)} does not hold", witness=", ".join(f"{s} = {sizes[s]}" for s in kernel.sizes))
    return sizes


def as_input(name: str, dtype: str, rank: int, value: Any) -> np.ndarray:
    """An array the kernel can read: of the type, contiguous, aligned. MOA0611 for another type or rank; strided arrays are copied.

    Python numbers and lists are converted; arrays never change their type.
    """
    a = value if isinstance(value, np.ndarray) else np.asarray(value, dtype=NUMPY[dtype] if isinstance(value, int | float | list | bool) else None)
    if a.dtype != NUMPY[dtype]:
        raise MoaError(611, f"{name} has type {a.dtype}, the kernel takes {dtype}", hint=f"{name}.astype(np.{np.dtype(NUMPY[dtype]).name})")
    if a.ndim != rank:
        raise MoaError(611, f"{name} has rank {a.ndim}, the kernel takes rank {rank}", notes=[f"{name} has shape {a.shape}"])
    return np.require(a, requirements=["C", "A"])


class LoadedKernel:
    """A kernel of a shared object. ``k(Q, K, V)`` returns its output, or a tuple of them in order."""

    def __init__(self, so: Path | str, kernel: Kernel, symbol: str | None = None) -> None:
        self.kernel = kernel
        self.library = ctypes.CDLL(str(so))
        self.function = getattr(self.library, symbol or kernel.name)
        self.function.restype = ctypes.c_int
        types: list[Any] = [ctypes.c_int64] * len(kernel.sizes)
        for a in kernel.inputs:
            types.append(ctypes.c_void_p if a.shape else _CTYPE[a.dtype])
        types += [ctypes.c_void_p] * len(kernel.outputs)
        self.function.argtypes = types
        self.symbol = symbol or kernel.name

    def prepare(self, *values: Any, sizes: Mapping[str, int] | None = None, **named: Any) -> tuple[dict[str, int], dict[str, np.ndarray]]:
        """Checked sizes and inputs of a call."""
        k = self.kernel
        if len(values) > len(k.inputs):
            raise MoaError(610, f"{k.name} takes {len(k.inputs)} inputs, not {len(values)}")
        given = dict(zip((a.name for a in k.inputs), values, strict=False))
        for name, v in named.items():
            if name in given or name not in [a.name for a in k.inputs]:
                raise MoaError(610, f"{k.name} has no further input {name!r}", notes=[f"inputs: {', '.join(a.name for a in k.inputs)}"])
            given[name] = v
        missing = [a.name for a in k.inputs if a.name not in given]
        if missing:
            raise MoaError(610, f"{k.name} needs {', '.join(missing)}")
        arrays = {a.name: as_input(a.name, a.dtype, len(a.shape), given[a.name]) for a in k.inputs}
        return bind_sizes(k, arrays, sizes or {}), arrays

    def outputs(self, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        return {a.name: np.empty(tuple(evaluate(e, sizes) for e in a.shape), NUMPY[a.dtype]) for a in self.kernel.outputs}

    def run(self, sizes: Mapping[str, int], arrays: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> None:
        """The bare call with prepared arguments. MOA0615 when the kernel refuses the sizes, MOA0616 when it is out of memory."""
        k = self.kernel
        args: list[Any] = [sizes[s] for s in k.sizes]
        args += [arrays[a.name].ctypes.data if a.shape else arrays[a.name].item() for a in k.inputs]
        args += [outputs[a.name].ctypes.data for a in k.outputs]
        code = self.function(*args)
        if code == 1:
            raise MoaError(615, f"{k.name} refuses these sizes", witness=", ".join(f"{s} = {sizes[s]}" for s in k.sizes))
        if code == 2:
            raise MoaError(616, f"{k.name} is out of memory", exit_code=FAULT)
        if code != 0:
            raise MoaError(617, f"{k.name} returned {code}", exit_code=FAULT)

    def touch(self, sizes: Mapping[str, int], outputs: Mapping[str, np.ndarray]) -> bool:
        """Zero the outputs in the memory domains whose threads compute them, before anything else writes to their pages. False if the kernel knows of no
        domains; MOA0615 when it refuses the sizes."""
        k = self.kernel
        try:
            f = getattr(self.library, f"{self.symbol}_touch")
        except AttributeError:
            return False
        f.restype, f.argtypes = ctypes.c_int, [*[ctypes.c_int64] * len(k.sizes), *[ctypes.c_void_p] * len(k.outputs)]
        if f(*[sizes[s] for s in k.sizes], *[outputs[a.name].ctypes.data for a in k.outputs]) != 0:
            raise MoaError(615, f"{k.name} refuses these sizes", witness=", ".join(f"{s} = {sizes[s]}" for s in k.sizes))
        return True

    def workspace(self, sizes: Mapping[str, int], threads: int) -> int:
        """Bytes of workspace that a call allocates."""
        try:
            f = getattr(self.library, f"{self.symbol}_workspace")
        except AttributeError:
            return 0
        f.restype, f.argtypes = ctypes.c_int64, [ctypes.c_int64] * (len(self.kernel.sizes) + 1)
        return int(f(*[sizes[s] for s in self.kernel.sizes], threads))

    def __call__(self, *values: Any, sizes: Mapping[str, int] | None = None, **named: Any) -> Any:
        bound, arrays = self.prepare(*values, sizes=sizes, **named)
        outputs = self.outputs(bound)
        self.run(bound, arrays, outputs)
        out = tuple(outputs.values())
        return out[0] if len(out) == 1 else out


def load(so: Path | str, kernel: Kernel, symbol: str | None = None) -> LoadedKernel:
    """The kernel in a shared object; ``symbol`` when the C name differs from the kernel's (``LoopProgram.name``)."""
    return LoadedKernel(so, kernel, symbol)
