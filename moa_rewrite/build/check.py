"""Comparing results with a reference, and measuring."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Verdict:
    """``error``: largest |result - reference| over cells; ``where`` the index of that cell. Cells equal as NaN or infinities count 0."""

    ok: bool
    error: float
    bound: float
    where: tuple[int, ...]
    text: str


def verify(result: np.ndarray, reference: np.ndarray, bound: float | np.ndarray) -> Verdict:
    """Whether every cell is within its ``bound`` (absolute; one for all, or an array) of the reference; shapes must agree, NaN and infinities must stand in
    the same cells. The cell shown is the one worst in proportion to its bound."""
    limit = np.broadcast_to(np.asarray(bound, np.float64), reference.shape)
    if result.shape != reference.shape:
        return Verdict(False, float("inf"), 0.0, (), f"shape {result.shape}, reference {reference.shape}")
    if result.size == 0:
        return Verdict(True, 0.0, 0.0, (), "empty")
    r, s = result.astype(np.float64), reference.astype(np.float64)
    same = (r == s) | (np.isnan(r) & np.isnan(s))
    with np.errstate(invalid="ignore"):
        d = np.where(same, 0.0, np.abs(r - s))
    d = np.where(np.isnan(d), np.inf, d)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(d == 0, 0.0, np.where(np.isinf(d), np.inf, d / limit))
    at = np.unravel_index(int(np.argmax(share)), d.shape)
    error, most = float(d[at]), float(limit[at])
    where = tuple(int(i) for i in at)
    text = f"error {error:.3g} at {list(where)}: {float(r[at])!r}, reference {float(s[at])!r} (bound {most:.3g})"
    return Verdict(bool((d <= limit).all()), error, most, where, text)


@dataclass(frozen=True)
class Times:
    """Seconds per call."""

    median: float
    best: float
    worst: float
    calls: int


def measure(functions: Sequence[Callable[[], object]] | Callable[[], object], repeat: int = 15, least: float = 0.002) -> list[Times]:
    """Times of functions, interleaved so that they meet the same disturbances; each sample repeats a function until ``least`` seconds have gone."""
    fs = [functions] if callable(functions) else list(functions)
    samples: list[list[float]] = [[] for _ in fs]
    counts = []
    for f in fs:
        f()
        start = time.perf_counter()
        f()
        counts.append(max(1, int(least / max(time.perf_counter() - start, 1e-9))))
    for _ in range(repeat):
        for k, f in enumerate(fs):
            start = time.perf_counter()
            for _ in range(counts[k]):
                f()
            samples[k].append((time.perf_counter() - start) / counts[k])
    return [Times(statistics.median(s), min(s), max(s), repeat) for s in samples]
