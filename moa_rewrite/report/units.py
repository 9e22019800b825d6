"""Numbers for people: bytes in binary units, times and rates in SI, percentages; three significant digits."""

from __future__ import annotations

import math


def _digits(x: float) -> str:
    if x == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(x))))
    text = f"{x:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def size(n: float) -> str:
    """Bytes: ``size(98304) == "96 KiB"``."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(n) < 1000 or unit == "TiB":
            return f"{_digits(n)} {unit}"
        n /= 1024
    raise AssertionError


def seconds(s: float) -> str:
    """``seconds(0.00123) == "1.23 ms"``."""
    if not math.isfinite(s):
        return str(s)
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if s >= scale * 0.9995 or unit == "ns":
            return f"{_digits(s / scale)} {unit}"
    raise AssertionError


def rate(x: float, unit: str) -> str:
    """``rate(51.2e9, "B/s") == "51.2 GB/s"``."""
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(x) >= scale:
            return f"{_digits(x / scale)} {prefix}{unit}"
    return f"{_digits(x)} {unit}"


def count(n: int, what: str, many: str = "") -> str:
    """``count(3, "step") == "3 steps"``."""
    return f"{n:,} {what if n == 1 else many or what + 's'}"
