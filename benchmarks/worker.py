"""One contender in a process of its own: reads one JSON request a line from standard input, answers one a line.

    {"op": "setup", "case": NAME, "folder": DIR}   inputs and answers are DIR/*.npy; the answer says whether it can, and its error against float64
    {"op": "time", "seconds": S, "most": N}         one warming call, then calls until S seconds or N calls have passed; their times
    {"op": "rates"}                                 what the machine can do now (peer_limits.py only)
    {"op": "memory"}                                bytes by which resident memory rises in a call, outputs that the call allocates included
    {"op": "quit"}
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES, Case  # type: ignore[import-not-found]


class Cannot(Exception):
    """The contender has no form of this program."""


Run = tuple[Callable[[], Any], Callable[[], dict[str, np.ndarray]]]  # the timed call, and its outputs by name afterwards


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Uninitialised, on a 64-byte boundary like the arrays of every framework."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    at = -raw.ctypes.data % 64
    return raw[at : at + size].view(dtype).reshape(shape)


def load(case: Case, folder: Path) -> dict[str, np.ndarray]:
    out = {}
    for name in case.shapes:
        a = np.load(folder / f"{name}.npy")
        out[name] = aligned(a.shape, a.dtype)
        out[name][...] = a
    return out


def error(got: dict[str, np.ndarray], folder: Path) -> float:
    """The largest distance to the answer, relative to the answer's largest magnitude."""
    worst = 0.0
    for f in sorted(folder.glob("answer-*.npy")):
        want = np.load(f)
        have = np.asarray(got[f.stem.removeprefix("answer-")], np.float64)
        worst = max(worst, float(np.abs(have.reshape(want.shape) - want).max() / max(float(np.abs(want).max()), 1e-30)))
    return worst


def main(peer: str, threads: int) -> None:
    import importlib

    make = importlib.import_module(f"peer_{peer.split('-')[0]}").make
    # One thread: processor time, which other processes cannot lengthen by taking the core away. Two: elapsed time.
    clock = time.process_time if threads == 1 else time.perf_counter
    say(json.dumps({"ok": True}))
    call: Callable[[], Any] = lambda: None  # noqa: E731
    for line in sys.stdin:
        request = json.loads(line)
        match request["op"]:
            case "setup":
                try:
                    case, folder = CASES[request["case"]], Path(request["folder"])
                    start = time.perf_counter()
                    arrays = load(case, folder)  # kept as long as the call, which may hold bare addresses
                    call, outputs = make(case, arrays, peer, threads, folder)
                    call()
                    answer = {"ok": True, "setup_s": time.perf_counter() - start, "error": error(outputs(), folder), **getattr(call, "about", {})}
                except Cannot as e:
                    answer = {"ok": False, "why": str(e)}
                except Exception as e:  # a peer that fails is named, and the others are measured
                    traceback.print_exc()
                    answer = {"ok": False, "why": f"{type(e).__name__}: {e}"[:300]}
            case "time":
                call()
                times: list[float] = []
                end = time.perf_counter() + request["seconds"]
                while len(times) < request["most"] and (not times or time.perf_counter() < end):
                    start = clock()
                    call()
                    times.append(clock() - start)
                answer = {"times": times}
            case "rates":  # of the machine's limits
                answer = call.rates()  # type: ignore[attr-defined]
            case "memory":
                answer = {"bytes": growth(call)}
            case "quit":
                return
        say(json.dumps(answer))


def growth(call: Callable[[], Any]) -> int:
    """Linux: the high-water mark is reset, then read after the call."""
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    call()
    return max(0, resident("VmHWM") - before) * 1024


def resident(key: str) -> int:
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))


def say(text: str) -> None:
    os.write(CHANNEL, (text + "\n").encode())


if __name__ == "__main__":
    CHANNEL = os.dup(1)  # libraries that print do not disturb the conversation
    os.dup2(2, 1)
    main(sys.argv[1], int(sys.argv[2]))
