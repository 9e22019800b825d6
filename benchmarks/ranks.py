"""How well predicted times order measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations


def tau(predicted: Sequence[float], measured: Sequence[float], same: float = 0.0) -> float:
    """Kendall's tau-b: 1 when both give the same order, -1 when opposite ones, 0 without relation.

    Two measured times closer than the share ``same`` of the larger are a tie, since the measurement does not order them. NaN if all are ties.
    """
    pairs = 0
    left = right = 0
    for (p, m), (q, n) in combinations(zip(predicted, measured, strict=True), 2):
        a = (p > q) - (p < q)
        b = 0 if abs(m - n) <= same * max(m, n) else (m > n) - (m < n)
        pairs += a * b
        left += a != 0
        right += b != 0
    return pairs / (left * right) ** 0.5 if left and right else float("nan")


def regret(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Measured time of what is predicted to be fastest, over the fastest measured time. 1 is perfect."""
    first = min(range(len(predicted)), key=lambda k: predicted[k])
    return measured[first] / min(measured)
