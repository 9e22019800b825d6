"""Quantities of machine files: a number and its unit, always written. Sizes take IEC units (1 KiB = 1024 B), rates and times SI ones (1 GB/s = 1e9 B/s)."""

from __future__ import annotations

import re

_SI = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
UNITS: dict[str, dict[str, float]] = {
    "size": {"B": 1, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40},
    "rate": {f"{p}B/s": f for p, f in _SI.items()},
    "frequency": {f"{p}Hz": f for p, f in _SI.items()},
    "flops": {f"{p}FLOP/s": f for p, f in _SI.items()},
    "time": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
    "cycles": {"cy": 1.0},
}
_EXAMPLES = {"size": "32 KiB", "rate": "15.5 GB/s", "frequency": "2.45 GHz", "flops": "19.5 TFLOP/s", "time": "5 us", "cycles": "4 cy", "latency": "4 cy"}
UNITS["latency"] = {**UNITS["cycles"], **UNITS["time"]}
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*(.*)", re.IGNORECASE)


class UnitError(ValueError):
    """A quantity without its unit or with one of another kind; the text says what would be right."""


def quantity(text: object, kind: str) -> tuple[float, str]:
    """(value in the base unit, unit as written) of ``"32 KiB"`` for kind "size", and so on. UnitError otherwise."""
    units = UNITS[kind]
    example = _EXAMPLES[kind]
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        raise UnitError(f"{text} has no unit; write a {kind} like {example}")
    found = _NUMBER.fullmatch(text.strip()) if isinstance(text, str) else None
    if not found:
        raise UnitError(f"{text!r} is not a {kind}; write it like {example}")
    unit = found[2].strip()
    if unit not in units:
        si = re.fullmatch(r"([kKMGT])i?B", unit)
        if kind == "size" and si:
            raise UnitError(f"{text!r}: {unit} would be a power of 1000; a size is written in {si[1].upper()}iB, a power of 1024")
        if kind == "rate" and re.fullmatch(r"[KMGT]iB/s", unit):
            raise UnitError(f"{text!r}: a rate is written in powers of 1000, like {example}")
        raise UnitError(f"{text!r}: unit {unit!r} is not one of {', '.join(units)}" if unit else f"{text!r} has no unit; write a {kind} like {example}")
    return float(found[1]) * units[unit], unit


def written(value: float, kind: str) -> str:
    """A quantity as a file would say it, in the largest unit that keeps the number at 1 or more; a size exactly."""
    units = sorted(UNITS[kind].items(), key=lambda u: -u[1])
    fits = [u for u, f in units if (value % f == 0 if kind == "size" else value >= f)]
    unit = fits[0] if fits else units[-1][0]
    return f"{value / UNITS[kind][unit]:.{15 if kind == 'size' else 6}g} {unit}"
