"""Does a machine file hold together? Every problem found, not only the first."""

from __future__ import annotations

import difflib
from typing import Any

from ..errors import MoaError
from .fields import CPU, GPU, LEVEL, NO_ORIGIN, ORIGIN, TABLES, Field
from .model import PROVENANCE, Provenance, origin
from .text import Path, placeholder
from .units import UNITS, UnitError, quantity


class Checker:
    """Collects problems of one document. Codes: 0503 unit, 0504 key or type, 0505 values that contradict each other, 0506 not filled in, 0507 provenance."""

    def __init__(self, file: str, lines: dict[Path, int]) -> None:
        self.file, self.lines = file, lines
        self.problems: list[MoaError] = []

    def say(self, code: int, path: Path, message: str, hint: str = "") -> None:
        at = path
        while at not in self.lines and at:
            at = at[:-1]
        shown = "/".join(str(p) for p in path)
        self.problems.append(MoaError(code, f"{shown}: {message}" if shown else message, self.file, self.lines.get(at, 0), 1, hint=hint))

    # --- keys, types, units ---
    def document(self, d: Any, path: Path = ()) -> None:
        if not isinstance(d, dict):
            self.say(504, path, "a machine file is a mapping")
            return
        kind = d.get("kind")
        if kind not in ("cpu", "gpu"):
            self.say(504, (*path, "kind"), f"must be cpu or gpu, not {kind!r}")
        self.table(d, GPU if kind == "gpu" else CPU, path)
        (self.gpu if kind == "gpu" else self.cpu)(d, path)
        self.hierarchy(d, path)
        self.origins(d, GPU if kind == "gpu" else CPU, path)

    def table(self, d: dict, fields: dict[str, Field], path: Path) -> None:
        for key, value in d.items():
            if placeholder(value):
                self.say(506, (*path, key), f"not filled in: {value!r}", "measure it, or leave the machine out")
            elif key not in fields:
                close = difflib.get_close_matches(str(key), fields, 1)
                self.say(504, (*path, key), "unknown key", f"{close[0]!r}?" if close else "")
            else:
                self.value(value, fields[key].kind, (*path, key))
        for key, f in fields.items():
            if f.required and key not in d:
                self.say(504, path, f"key {key!r} is missing")

    def value(self, v: Any, kind: str, path: Path) -> None:
        if kind == "count":
            if not isinstance(v, int) or isinstance(v, bool) or v < 1:
                self.say(504, path, f"{v!r} is not a whole number above 0")
        elif kind == "number":
            if not isinstance(v, (int, float)) or isinstance(v, bool) or v <= 0:
                self.say(504, path, f"{v!r} is not a number above 0")
        elif kind == "text":
            if not isinstance(v, str):
                self.say(504, path, f"{v!r} is not text")
        elif kind == "texts":
            if not isinstance(v, list) or not all(isinstance(x, str) for x in v):
                self.say(504, path, f"{v!r} is not a list of texts")
        elif kind in UNITS:
            try:
                if quantity(v, kind)[0] <= 0:
                    self.say(505, path, f"{v} must be above 0")
            except UnitError as e:
                self.say(503, path, str(e))
        elif kind in TABLES:
            if isinstance(v, dict):
                self.table(v, TABLES[kind], path)
            else:
                self.say(504, path, f"{v!r} is not a mapping")
        elif kind == "levels":
            if not isinstance(v, list) or not v or not all(isinstance(x, dict) for x in v):
                self.say(504, path, "must be a list of levels")
                return
            for n, level in enumerate(v):
                self.table(level, LEVEL, (*path, n))
        elif kind == "host":
            self.document(v, path)
        elif kind != "provenance":
            raise KeyError(kind)

    # --- values against each other ---
    def get(self, d: Any, *path: str, kind: str = "") -> Any:
        """A number of the document, or None where it is missing or malformed (which was said already)."""
        for p in path:
            if not isinstance(d, dict) or p not in d:
                return None
            d = d[p]
        if kind:
            try:
                return quantity(d, kind)[0]
            except UnitError:
                return None
        return d if isinstance(d, (int, float)) and not isinstance(d, bool) else None

    def same(self, path: Path, left: tuple[str, float | None], right: tuple[str, float | None], slack: float = 0.0) -> None:
        a, b = left[1], right[1]
        if a is not None and b is not None and abs(a - b) > slack * max(abs(a), abs(b)):
            self.say(505, path, f"{left[0]} is {a:.10g}, but {right[0]} is {b:.10g}")

    def cpu(self, d: dict, path: Path) -> None:
        def g(key: str) -> Any:
            return self.get(d, key)

        def times(*v: float | None) -> float | None:
            out = 1.0
            for x in v:
                if x is None:
                    return None
                out *= x
            return out

        self.same((*path, "cores per NUMA domain"), ("NUMA domains x cores per domain", times(g("NUMA domains per socket"), g("cores per NUMA domain"))),
                  ("cores per socket", g("cores per socket")))  # fmt: skip
        single, double = self.get(d, "FLOPs per cycle", "SP", "total"), self.get(d, "FLOPs per cycle", "DP", "total")
        self.same((*path, "FLOPs per cycle"), ("twice the DP total", times(double, 2)), ("the SP total", single))

    def gpu(self, d: dict, path: Path) -> None:
        def g(key: str, kind: str = "") -> Any:
            return self.get(d, key, kind=kind)

        sms, lanes, clock, rate = g("SMs"), g("FP32 lanes per SM"), g("clock", "frequency"), g("FP32 rate", "flops")
        if None not in (sms, lanes, clock, rate):
            self.same((*path, "FP32 rate"), ("SMs x lanes x 2 x clock", sms * lanes * 2 * clock), ("the FP32 rate", rate), slack=0.02)
        for small, large, kind in (("shared memory per block", "shared memory per SM", "size"), ("warp size", "max threads per block", "")):
            a, b = g(small, kind), g(large, kind)
            if a is not None and b is not None and a > b:
                self.say(505, (*path, small), f"{d[small]} is above the {large}, {d[large]}")
        if None not in (g("warp size"), g("max threads per block")) and g("max threads per block") % g("warp size"):
            self.say(505, (*path, "max threads per block"), f"{d['max threads per block']} is no multiple of the warp size {d['warp size']}")

    def hierarchy(self, d: dict, path: Path) -> None:
        levels = d.get("memory hierarchy")
        if not isinstance(levels, list) or not all(isinstance(x, dict) for x in levels):
            return
        cores = self.get(d, "SMs")
        if d.get("kind") != "gpu":
            sockets, per = self.get(d, "sockets"), self.get(d, "cores per socket")
            cores = None if sockets is None or per is None else sockets * per
        threads, line, clock = self.get(d, "threads per core"), self.get(d, "cacheline size", kind="size"), self.get(d, "clock", kind="frequency")
        names = [lv.get("level") for lv in levels]
        if names[-1] != "MEM" or "MEM" in names[:-1]:
            self.say(504, (*path, "memory hierarchy"), "the last level, and only that, is MEM")
        before: dict[str, tuple[str, float]] = {}
        for n, lv in enumerate(levels):
            at = (*path, "memory hierarchy", n)
            size, per_group, groups = self.get(lv, "size per group", kind="size"), self.get(lv, "cores per group"), self.get(lv, "groups")
            cache = lv.get("cache per group", {})
            sets, ways, cl = self.get(cache, "sets"), self.get(cache, "ways"), self.get(cache, "cl_size", kind="size")
            if None not in (sets, ways, cl):
                self.same((*at, "size per group"), (f"{names[n]}: sets x ways x line", sets * ways * cl), ("its size", size))
            if cl is not None and line is not None:
                self.same((*at, "cache per group"), (f"{names[n]}: its line", cl), ("the cacheline size", line))
            if per_group is not None and groups is not None:
                self.same((*at, "groups"), (f"{names[n]}: groups x cores per group", per_group * groups), ("the number of cores", cores))
            if per_group is not None and threads is not None:
                self.same((*at, "threads per group"), (f"{names[n]}: threads per group", self.get(lv, "threads per group")),
                          ("cores per group x threads per core", per_group * threads))  # fmt: skip
            own = self.get(lv, "bandwidth per core" if names[n] == "MEM" and "bandwidth per core" in lv else "bandwidth", kind="rate")
            if names[n] == "MEM" and "bandwidth per core" not in lv and own is not None and per_group is not None:
                own /= per_group
            total = self.get(lv, "bandwidth", kind="rate")
            if names[n] == "MEM" and own is not None and total is not None and own > total:
                self.say(505, (*at, "bandwidth per core"), f"{lv['bandwidth per core']} is above the bandwidth of the group, {lv['bandwidth']}")
            latency = self.latency(lv.get("latency"), clock)
            for what, v, grows in (("size per group", size, True), ("bandwidth to one core", own, False), ("latency", latency, True)):
                if v is None:
                    continue
                if what in before and (v < before[what][1] if grows else v > before[what][1]):
                    self.say(505, at, f"{what} of {names[n]} is {'below' if grows else 'above'} that of {before[what][0]}, which is nearer to the core")
                before[what] = (str(names[n]), v)

    def latency(self, v: Any, clock: float | None) -> float | None:
        try:
            value, unit = quantity(v, "latency")
        except UnitError:
            return None
        return value if unit != "cy" else None if not clock else value / clock

    # --- provenance ---
    def origins(self, d: dict, fields: dict[str, Field], path: Path) -> None:
        table = d.get("provenance")
        if not isinstance(table, dict):
            self.say(504, (*path, "provenance"), "must be a mapping from keys to {kind, source}")
            return
        known: dict[str, Provenance] = {}
        for key, entry in table.items():
            at = (*path, "provenance", key)
            if not isinstance(entry, dict):
                self.say(504, at, "must be {kind: ..., source: ...}")
                continue
            self.table(entry, ORIGIN, at)
            if entry.get("kind") not in PROVENANCE:
                self.say(507, at, f"kind {entry.get('kind')!r} is not one of {', '.join(PROVENANCE)}")
            known[str(key)] = Provenance(str(entry.get("kind")), str(entry.get("source")))
        paths = quantities(d, fields)
        for p in paths:
            if origin(p, known) is None:
                self.say(507, (*path, "provenance"), f"does not say where {p!r} comes from")
        for key in known:
            if not any(p == key or p.startswith(f"{key}/") for p in paths):
                self.say(507, (*path, "provenance", key), "names no value of this file")


def quantities(d: dict, fields: dict[str, Field]) -> list[str]:
    """Paths of the values that need a provenance; a level goes by its name."""
    out = []
    for key, f in fields.items():
        if key not in d or f.kind in NO_ORIGIN or f.kind == "host":
            continue
        if f.kind == "levels":
            for lv in d[key] if isinstance(d[key], list) else []:
                out += [f"{key}/{lv.get('level')}/{k}" for k in lv if k != "level"] if isinstance(lv, dict) else []
        else:
            out.append(key)
    return out
