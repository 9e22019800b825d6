"""Memory of a call beyond its arrays, as the operating system saw it."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable
from pathlib import Path


def peak_growth(f: Callable[[], object]) -> int:
    """Bytes by which resident memory rose above its start during a call whose arrays were touched before. On Linux exact to a few pages, since the
    high-water mark is reset first; elsewhere only the growth beyond the largest size so far (0 when an earlier peak was higher)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
    except OSError:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        f()
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    f()
    return max(0, _status("VmHWM") - before) * 1024


def _status(key: str) -> int:
    """A value in KiB from the process's status."""
    found = re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"), re.M)
    if found is None:
        raise OSError(f"no {key}")
    return int(found[1])
