"""Does a derived form compute what its source says? Both are run in float64 at a few small sizes on random data.

A second opinion on the laws themselves: obligations speak of bounds, order and coverage, not of values, so a wrong law of scalars would pass them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np

from ..terms import Kernel
from .env import Env, SemanticsError, integer, shape_of
from .statements import run

POINTS = 3000  # product of the sizes tried, at most
TOLERANCE = 1e-6  # relative to the larger of 1 and the values; rounding in float64 stays far below


def small_sizes(kernel: Kernel, count: int) -> Iterator[dict[str, int]]:
    """The first few small sizes that the kernel admits."""
    found = 0
    for values in itertools.product((3, 2, 4, 1, 5), repeat=len(kernel.sizes)):
        sizes = dict(zip(kernel.sizes, values, strict=True))
        if math.prod(values) <= POINTS and admits(kernel, sizes):
            yield sizes
            found += 1
            if found == count:
                return


def admits(kernel: Kernel, sizes: Mapping[str, int]) -> bool:
    """Whether sizes meet the kernel's ``where`` and leave every array an extent of at least 0."""
    env = Env(sizes, {})
    return all(integer(w, env) for w in kernel.where) and all(n >= 0 for a in (*kernel.inputs, *kernel.outputs) for n in shape_of(a, sizes))


def disagreement(source: Kernel, form: Kernel, count: int = 2) -> str | None:
    """Where two kernels of the same inputs and outputs differ, as a witness in words; None if they agree wherever they were tried."""
    for n, sizes in enumerate(small_sizes(form, count)):
        rng = np.random.default_rng(n)
        inputs = {a.name: _data(a.dtype, shape_of(a, sizes), rng) for a in source.inputs}
        at = ", ".join(f"{s} = {v}" for s, v in sizes.items()) or "its only sizes"
        want = run(source, inputs, sizes)
        try:
            got = run(form, inputs, sizes)
        except SemanticsError as e:
            return f"at {at}: {e}"
        for name, w in want.items():
            g = got[name]
            scale = np.maximum(1.0, np.where(np.isfinite(w), np.abs(w), 1.0))
            with np.errstate(invalid="ignore"):
                bad = ~((w == g) | (np.isnan(w) & np.isnan(g)) | (np.abs(w - g) <= TOLERANCE * scale))
            if bad.any():
                cell = tuple(int(i) for i in np.argwhere(bad)[0])
                return f"at {at}, random inputs (seed {n}): {name}{list(cell) if cell else ''} is {g[cell]:.6g} instead of {w[cell]:.6g}"
    return None


def _data(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if dtype in ("f32", "f64"):
        return rng.standard_normal(shape)
    return rng.integers(0, 2 if dtype == "bool" else 10, shape)


__all__ = ["admits", "disagreement", "small_sizes"]
