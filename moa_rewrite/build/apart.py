"""Calling a compiled kernel in a process of its own: one that crashes or never returns does not take the caller with it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..errors import MoaError
from ..terms import Kernel
from .call import LoadedKernel, load

Call = tuple[dict[str, int], dict[str, np.ndarray]]  # sizes and inputs
Result = dict[str, np.ndarray] | str  # outputs, or why there are none


def call_apart(so: Path, kernel: Kernel, symbol: str, calls: Sequence[Call], threads: int, seconds: float, folder: Path) -> list[Result]:
    """A result for each call; after one that ended the process, or took too long, there are no more. ``seconds``: how long to wait in all. Cells that the
    kernel does not write come back as NaN, -1 or true."""
    out = folder / "results"
    (folder / "calls").write_bytes(pickle.dumps((so, kernel, symbol, list(calls), out)))
    path = os.pathsep.join([str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": path}
    command = [sys.executable, "-c", f"from {__name__} import serve; serve()", str(folder / "calls")]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=seconds)
        why = (ran.stderr.strip().splitlines() or [ending(ran.returncode)])[-1]
    except subprocess.TimeoutExpired:
        why = f"it did not return within {seconds:g} s"
    done: list[Result] = []
    with out.open("rb") as f:
        while len(done) < len(calls):
            try:
                done.append(pickle.load(f))
            except (EOFError, pickle.UnpicklingError):
                return [*done, why]
    return done


def ending(status: int) -> str:
    return f"the process ended with {signal.Signals(-status).name}" if status < 0 else f"the process ended with status {status}"


def serve() -> None:
    """The other side: what is to be called stands in the file that the command line names; each result is written before the next call."""
    so, kernel, symbol, calls, out = pickle.loads(Path(sys.argv[1]).read_bytes())
    with out.open("wb") as f:
        loaded = load(so, kernel, symbol)
        for sizes, arrays in calls:
            pickle.dump(_call(loaded, sizes, arrays), f)
            f.flush()


def _call(loaded: LoadedKernel, sizes: Mapping[str, int], arrays: Mapping[str, np.ndarray]) -> Result:
    outputs = loaded.outputs(sizes)
    for o in outputs.values():
        o.fill({"f": np.nan, "i": -1, "b": True}[o.dtype.kind])
    try:
        loaded.run(sizes, {n: np.require(a, requirements=["C", "A"]) for n, a in arrays.items()}, outputs)
    except MoaError as e:
        return e.message
    return dict(outputs)
