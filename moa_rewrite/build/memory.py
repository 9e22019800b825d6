"""Memory of a call beyond its arrays: what the kernel says it allocates, and what the operating system saw."""

from __future__ import annotations

import resource
from collections.abc import Callable


def peak_growth(f: Callable[[], object]) -> int:
    """Bytes by which a call raises the largest resident size of this process so far (0 when an earlier peak was higher): an upper bound on
    nothing, a check from outside. Run it in a fresh process with the arrays already touched."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    f()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
