"""Times of several compiled kernels of one program on the same arrays, taken in turns.

The calls happen in one process of their own, so that they meet the same buffers, the same threads and the same disturbances, and so that a kernel which
crashes, hangs or computes something else is left out with the reason while the others are measured.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import MoaError
from ..terms import Kernel, evaluate
from .apart import ending
from .call import NUMPY, load

LINE = 64  # bytes: buffers start on a cache line
BLANK = {"f": np.nan, "i": -1, "b": True}  # what cells hold before a call, by kind of type

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Contender:
    so: Path
    kernel: Kernel
    symbol: str


@dataclass(frozen=True)
class Timed:
    """Seconds a call: the median over the rounds, and each round's."""

    seconds: float
    rounds: tuple[float, ...]


def interleaved(
    contenders: Sequence[Contender], sizes: Mapping[str, int], arrays: Arrays, folder: Path, accept: Callable[[int, Arrays], str], *, rounds: int = 7,
    least: float = 0.002, most: float = 10.0, budget: float = 30.0, threads: int = 1, patience: float = 60.0,
) -> list[Timed | str]:  # fmt: skip
    """For each contender its time, or why it has none.

    Each is called once; what it wrote goes to ``accept``, which says what is wrong with it, "" if nothing. Then each round takes one sample of
    each: calls until ``least`` seconds are over. One whose first call took more than ``most`` seconds is not called again; there are fewer
    rounds, but three, where all would take more than ``budget`` seconds or so. ``patience``: seconds that a single step may take. One thread is
    timed by the clock of the process, which a busy machine cannot lengthen; more by elapsed time.
    """
    found: dict[int, Timed | str] = {}
    for name, a in arrays.items():
        np.save(folder / f"in-{name}.npy", a)
    while todo := [k for k in range(len(contenders)) if k not in found]:
        (folder / "request").write_bytes(pickle.dumps((dict(enumerate(contenders)), todo, dict(sizes), list(arrays), least, threads)))
        with _Process(folder, threads, patience) as child:
            found |= _conversation(child, todo, folder, accept, most, rounds, budget)
    return [found[k] for k in range(len(contenders))]


def _conversation(
    child: _Process, todo: list[int], folder: Path, accept: Callable[[int, Arrays], str], most: float, rounds: int, budget: float
) -> dict[int, Timed | str]:
    """What became known until the process ended, normally or not: all of ``todo``, or those that are out."""
    out: dict[int, Timed | str] = {}
    first: dict[int, float] = {}
    for k in todo:
        said = child.ask({"first": k})
        if "seconds" not in said:
            return {**out, k: str(said["why"])}
        first[k] = float(said["seconds"])
        if wrong := accept(k, {n: np.load(folder / f"out-{n}.npy") for n in said["outputs"]}):
            out[k] = wrong
        elif first[k] > most:
            out[k] = f"one call takes {first[k]:.3g} s"
    live = [k for k in todo if k not in out]
    times: dict[int, list[float]] = {k: [] for k in live}
    turn = sum(2 * first[k] for k in live)
    for _ in range(max(3, min(rounds, int(budget / turn))) if turn > 0 else rounds):
        for k in live:
            said = child.ask({"time": k})
            if "seconds" not in said:
                return {**out, k: str(said["why"])}
            times[k].append(float(said["seconds"]))
    return {**out, **{k: Timed(statistics.median(t), tuple(t)) for k, t in times.items()}}


class _Process:
    """The process that calls, and the lines exchanged with it."""

    def __init__(self, folder: Path, threads: int, patience: float) -> None:
        path = os.pathsep.join([str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": path}
        self.patience = patience
        self.log = folder / "log"
        self.child = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve()", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log.open("wb"), env=env, text=True,
        )  # fmt: skip

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.communicate()

    def ask(self, what: dict[str, int]) -> dict[str, Any]:
        """The answer, or {"why": ...} when there is none."""
        assert self.child.stdin is not None and self.child.stdout is not None
        try:
            self.child.stdin.write(json.dumps(what) + "\n")
            self.child.stdin.flush()
            if not select.select([self.child.stdout], [], [], self.patience)[0]:
                return {"why": f"it did not return within {self.patience:g} s"}
            line = self.child.stdout.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else {"why": self._ending()}

    def _ending(self) -> str:
        """Why the process is no more: the signal, or the last words of one that ended by itself."""
        status = self.child.wait()
        words = self.log.read_text(errors="replace").strip().splitlines() if status > 0 else []
        return words[-1] if words else ending(status)


def aligned(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An uninitialised array that starts on a cache line, like those of every framework."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + LINE, np.uint8)
    at = -raw.ctypes.data % LINE
    return raw[at : at + size].view(dtype).reshape(shape)


def serve() -> None:
    """The other side: answers the questions on standard input, one line each."""
    folder = Path(sys.argv[1])
    contenders, todo, sizes, names, least, threads = pickle.loads((folder / "request").read_bytes())
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a kernel prints does not disturb the conversation
    loaded = {k: load(c.so, c.kernel, c.symbol) for k, c in contenders.items() if k in todo}
    arrays = {}
    for n in names:
        a = np.load(folder / f"in-{n}.npy")
        arrays[n] = aligned(a.shape, a.dtype)
        arrays[n][...] = a
    kernel = contenders[todo[0]].kernel
    outputs = {a.name: aligned([evaluate(e, sizes) for e in a.shape], NUMPY[a.dtype]) for a in kernel.outputs}
    clock = time.process_time if threads == 1 else time.perf_counter

    def call(k: int) -> float:
        start = clock()
        loaded[k].run(sizes, arrays, outputs)
        return clock() - start

    for line in sys.stdin:
        match json.loads(line):
            case {"first": k}:
                for o in outputs.values():
                    o.fill(BLANK[o.dtype.kind])
                try:
                    answer: dict[str, Any] = {"seconds": call(k), "outputs": list(outputs)}
                except MoaError as e:
                    _say(channel, {"why": e.message})
                    return
                for n, o in outputs.items():
                    np.save(folder / f"out-{n}.npy", o)
            case {"time": k}:
                call(k)  # the others have used the caches in between
                spent = [call(k)]
                while sum(spent) < least:
                    spent.append(call(k))
                answer = {"seconds": sum(spent) / len(spent)}
        _say(channel, answer)


def _say(channel: IO[str], answer: dict[str, Any]) -> None:
    channel.write(json.dumps(answer) + "\n")
    channel.flush()
