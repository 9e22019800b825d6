"""Runs of a kernel: inputs, the call, what it took, and the comparison with the reference interpreter."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import FAULT, REFUTED, MoaError
from ..semantics import reference
from ..semantics.env import SemanticsError, shape_of
from ..terms import Array, Kernel
from . import emission, tiles

if TYPE_CHECKING:
    from ..build import Times, Verdict
    from ..semantics.reference import Reference

NUMPY: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "bool": np.bool_}
Arrays = dict[str, np.ndarray]
ALL = 2**26  # compare every row when the product of all sizes is at most this
ROWS = 64  # otherwise about so many
WORK = {"c": 2**23, "fortran": 2**23, "cuda": 2**18}  # product of all sizes of one try, at most
PATIENCE = 60.0  # seconds until a try counts as endless


def read_arrays(pairs: list[str], kernel: Kernel) -> Arrays:
    """``--input NAME=FILE``. MoaError 758 for an unknown name, an unreadable file, another type or rank than declared."""
    known = {a.name: a for a in kernel.inputs}
    out: Arrays = {}
    for name, path in split(pairs, "--input", known):
        try:
            value = np.load(path, allow_pickle=False)
        except OSError as e:
            raise MoaError(758, f"cannot read {path}: {e.strerror or 'not a .npy file'}", file="moarw") from None
        except (ValueError, EOFError):
            raise MoaError(758, f"{path} is no .npy file of numbers", file="moarw", hint="numpy.save writes one") from None
        a = known[name]
        if not isinstance(value, np.ndarray) or value.dtype != NUMPY[a.dtype]:
            kind = value.dtype if isinstance(value, np.ndarray) else "an archive of arrays"
            hint = f"numpy.save(path, a.astype(numpy.{np.dtype(NUMPY[a.dtype]).name}))"
            raise MoaError(758, f"{path} holds {kind}, {name} is declared {a.dtype}", file="moarw", hint=hint)
        if value.ndim != len(a.shape):
            raise MoaError(758, f"{path} has shape {value.shape}, {name} has {len(a.shape)} axes", file="moarw")
        out[name] = value
    return out


def split(pairs: list[str], flag: str, known: Mapping[str, Array]) -> list[tuple[str, str]]:
    """NAME=FILE arguments as pairs. MoaError 758 for another form or a name that the kernel lacks."""
    out = []
    for pair in pairs:
        name, sign, path = pair.partition("=")
        if not sign or not path:
            raise MoaError(758, f"{flag} {pair}: expected NAME=FILE", file="moarw", hint=f"{flag} {next(iter(known), 'A')}=a.npy")
        if name not in known:
            raise MoaError(758, f"{flag} {pair}: the kernel has no {flag[2:]} {name!r}", file="moarw", hint=", ".join(known))
        out.append((name, path))
    return out


def sizes_of(kernel: Kernel, arrays: Arrays) -> dict[str, tuple[int, str]]:
    """The sizes that stand alone on an axis of a given array, with that place. MoaError 758 when two axes disagree."""
    out: dict[str, tuple[int, str]] = {}
    for a in kernel.inputs:
        for k, (e, n) in enumerate(zip(a.shape, arrays[a.name].shape, strict=True) if a.name in arrays else ()):
            if e.op == "size":
                seen, place = out.setdefault(str(e.args[0]), (n, f"axis {k} of {a.name}"))
                if seen != n:
                    raise MoaError(758, f"size {e.args[0]} is {seen} on {place} and {n} on axis {k} of {a.name}", file="moarw")
    return out


def random_arrays(kernel: Kernel, sizes: Mapping[str, int], given: Arrays, seed: int) -> Arrays:
    """All inputs: the given ones, the others random. Integers lie in [0, smallest size), so that they may serve as indices."""
    rng = np.random.default_rng(seed)
    top = max(1, min(sizes.values(), default=8))
    out: Arrays = {}
    for a in kernel.inputs:
        shape = shape_of(a, sizes)
        value: np.ndarray | np.generic | float
        if a.dtype in ("f32", "f64"):
            value = rng.standard_normal(shape, dtype=NUMPY[a.dtype])
        elif a.dtype == "bool":
            value = rng.integers(0, 2, shape).astype(np.bool_)
        else:
            value = rng.integers(0, top, shape, dtype=NUMPY[a.dtype])
        out[a.name] = given.get(a.name, np.asarray(value))
        if out[a.name].shape != shape:
            raise MoaError(758, f"{a.name} has shape {out[a.name].shape}, at these sizes it should be {shape}", file="moarw")
    return out


@dataclass(frozen=True)
class Ran:
    """``extra``: bytes beyond inputs and outputs at the peak; ``note`` what else to say."""

    outputs: Arrays
    times: Times | None
    extra: int | None
    threads: int
    note: str = ""


def native(contents: Mapping[str, bytes], manifest: Mapping[str, Any], kernel: Kernel, sizes: Mapping[str, int], arrays: Arrays, folder: Path, threads: int,
           repeat: int) -> Ran:  # fmt: skip
    """Compile C or Fortran for this computer, call it, and measure."""
    from ..build import load, measure, peak_growth

    flags = emission.here(manifest["flags"])
    os.environ["OMP_NUM_THREADS"] = str(threads)  # read when the OpenMP library is loaded, which is below
    loaded = load(emission.build(manifest["target"], contents, manifest["source"], folder, flags), kernel, manifest["entry"]["symbol"])
    ready = {n: np.require(a, requirements=["C", "A"]) for n, a in arrays.items()}
    outputs = loaded.outputs(sizes)
    for o in outputs.values():
        o.fill(0)
    extra = peak_growth(lambda: loaded.run(sizes, ready, outputs))
    times = measure(lambda: loaded.run(sizes, ready, outputs), repeat)[0]
    note = "" if flags == tuple(manifest["flags"]) else f"written for {manifest['machine']}, built here with -march=native"
    return Ran(outputs, times, extra, threads, note)


def emulated(contents: Mapping[str, bytes], manifest: Mapping[str, Any], kernel: Kernel, sizes: Mapping[str, int], arrays: Arrays, folder: Path) -> Ran:
    """Run CUDA for its values on the CPU. MoaError (exit 2) for what the hardware would not forgive: a race, an access out of bounds, ..."""
    from ..build.simt import build

    source = str(manifest["source"])
    library = build(contents[source].decode(), folder, Path(source).stem)
    inputs = [arrays[a.name] if a.shape else NUMPY[a.dtype](arrays[a.name].item()) for a in kernel.inputs]
    like: list[np.ndarray] = [np.empty(shape_of(o, sizes), NUMPY[o.dtype]) for o in kernel.outputs]
    result = library.call(manifest["entry"]["symbol"], [sizes[s] for s in kernel.sizes], inputs, like)
    if result.code:
        raise MoaError(761, f"the kernel returned {result.code}", file="moarw", notes=result.messages[:8], exit_code=REFUTED)
    if result.faults or any(result.unwritten):
        raise MoaError(761, "the emulated kernel misbehaves", file="moarw", notes=[*result.messages[:8], f"{result.faults}"], exit_code=REFUTED)
    grids = ", ".join(f"{n.kernel} {n.grid} x {n.block} threads" for n in result.launches)
    return Ran(dict(zip([o.name for o in kernel.outputs], result.outputs, strict=True)), None, None, 1, f"emulated on the CPU, no GPU time: {grids}")


class Compared(NamedTuple):
    """One output: ``cells`` of ``of`` were compared."""

    name: str
    verdict: Verdict
    cells: int
    of: int


def wanted(normal: Kernel, arrays: Arrays, sizes: Mapping[str, int]) -> dict[str, Reference]:
    """What the outputs of a kernel in normal form must be: all rows or, for large sizes, a sample of them."""
    return reference(normal, arrays, sizes, None if math.prod(sizes.values()) <= ALL else ROWS)


def compare(right: Mapping[str, Reference], outputs: Arrays) -> list[Compared]:
    """Each output against the reference."""
    from ..build import verify

    out = []
    for name, w in right.items():
        got = outputs[name] if w.points is None else outputs[name][np.ix_(*w.points)]
        out.append(Compared(name, verify(got, w.value, w.bound), got.size, outputs[name].size))
    return out


def attempt(
    e: emission.Emitted, manifest: Mapping[str, Any], built: Path | None, placed: Kernel, normal: Kernel, seed: int, folder: Path
) -> list[dict[str, int]]:
    """Call what was emitted on random inputs at sizes that fill and cut every tile of the placed kernel, and compare with its normal form; CUDA runs
    in the emulator. Returns the sizes; none without a compiler to call it with. MoaError 655 (a fault) if a value lies outside its bound, or a call fails."""
    if not shutil.which("g++") if e.target == "cuda" else built is None:
        return []
    found, right = [], []
    for at in tiles.trial_sizes(placed, manifest["sizes"]["fixed"], WORK[e.target]):
        arrays = random_arrays(normal, at, {}, seed)
        try:
            right.append(wanted(normal, arrays, at))
        except SemanticsError:  # the program has no meaning on these inputs, such as an index out of range
            continue
        found.append((at, arrays))
    for (at, _), r, got in zip(found, right, _called(e, manifest, built, placed, found, folder), strict=False):
        bad = got if isinstance(got, str) else next((f"{c.name}: {c.verdict.text}" for c in compare(r, got) if not c.verdict.ok), "")
        if bad:
            where = f"at {', '.join(f'{n} = {v}' for n, v in at.items())}, " if at else ""
            raise MoaError(
                655, f"the {e.target} emitted for {placed.name} computes something else than its program; nothing is written",
                witness=f"{where}random inputs (seed {seed}): {bad}",
                hint="a fault of moarw or of the compiler, please report it; meanwhile another --target or --without RULE", exit_code=FAULT,
            )  # fmt: skip
    return [at for at, _ in found]


def _called(
    e: emission.Emitted, manifest: Mapping[str, Any], built: Path | None, placed: Kernel, calls: list[tuple[dict[str, int], Arrays]], folder: Path
) -> list[Arrays | str]:
    """Outputs, or what went wrong."""
    if built is not None and e.target != "cuda":
        from ..build.apart import call_apart

        return call_apart(built, placed, manifest["entry"]["symbol"], calls, len(os.sched_getaffinity(0)), PATIENCE, folder)
    return [emulated(e.files, manifest, placed, at, arrays, folder).outputs for at, arrays in calls]
