"""The computer at hand, from /proc and /sys: cores this process may use, caches, NUMA domains, SIMD width, clock. Linux.

Only what the CPU set of the process contains counts: on a shared node a job sees its own cores. Rates and latencies are in no file of the system;
they are guessed from the clock with figures measured on Zen 3, and marked so.
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FAULT, MoaError
from .load import HOST, build
from .model import Machine
from .units import written

_ZEN = "bytes per cycle measured on Zen 4 (read, one thread), times the clock"
_BYTES_PER_CYCLE = {"L2": 31.0, "L3": 24.0}  # L1: 1.25 times the SIMD width
_CYCLES = {"L1": 4, "L2": 13, "L3": 45}
_DRAM_CORE, _DRAM_SOCKET = 20e9, 150e9


def detect(root: str | os.PathLike[str] = "/", affinity: Iterable[int] | None = None) -> Machine:
    """This computer as a machine named ``host``. ``root``: where /proc and /sys lie. ``affinity``: the CPUs to count, by default those this
    process may run on (all that are online under another root). MOA0508 where the files of the system cannot be read."""
    base = Path(root)
    if affinity is None and base == Path("/"):
        affinity = os.sched_getaffinity(0)
    return build(_document(_System(base, affinity)), HOST)


@dataclass(frozen=True)
class _Cache:
    level: int
    bytes: int
    sets: int
    ways: int
    line: int
    cpus: frozenset[int]


class _System:
    """What the files say, restricted to the usable CPUs."""

    def __init__(self, root: Path, affinity: Iterable[int] | None) -> None:
        self.root = root
        self.cpu = root / "sys/devices/system/cpu"
        blocks = [b for b in self.read("proc/cpuinfo").split("\n\n") if b.strip()]
        self.info = [dict(_pair(line) for line in b.splitlines() if ":" in line) for b in blocks]
        online = cpus(self.read("sys/devices/system/cpu/online") or f"0-{len(self.info) - 1}")
        self.cpus = sorted(online if affinity is None else online & set(affinity))
        if not self.info or not self.cpus:
            raise MoaError(508, f"cannot describe this computer: {'no usable CPU' if self.info else 'no /proc/cpuinfo'}", file=str(root),
                           hint="name a machine file with -m", exit_code=FAULT)  # fmt: skip
        number = {int(b["processor"]): b for b in self.info if "processor" in b}
        self.first = number.get(self.cpus[0], self.info[0])
        self.flags = set((self.first.get("flags") or self.first.get("Features") or "").split())
        self.core = {c: (self.topology(c, "physical_package_id", 0), self.topology(c, "die_id", 0), self.topology(c, "core_id", c)) for c in self.cpus}
        self.cores = sorted(set(self.core.values()))
        self.mhz = [float(b["cpu MHz"]) for b in self.info if "cpu MHz" in b]

    def read(self, path: str) -> str:
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""

    def topology(self, cpu: int, what: str, default: int) -> int:
        text = self.read(f"sys/devices/system/cpu/cpu{cpu}/topology/{what}")
        return int(text) if re.fullmatch(r"\d+", text) else default

    def usable(self, shared: Iterable[int]) -> int:
        """Number of usable cores among some CPUs."""
        return len({self.core[c] for c in shared if c in self.core})

    def caches(self) -> dict[int, list[_Cache]]:
        """Data caches per level, one entry per instance that usable CPUs share."""
        found: dict[int, dict[frozenset[int], _Cache]] = defaultdict(dict)
        for c in self.cpus:
            for index in sorted((self.cpu / f"cpu{c}/cache").glob("index*")):
                at = str(index.relative_to(self.root))
                if self.read(f"{at}/type") not in ("Data", "Unified") or not self.read(f"{at}/size"):
                    continue
                shared = frozenset(cpus(self.read(f"{at}/shared_cpu_list") or str(c)))
                level = int(self.read(f"{at}/level"))
                n = [int(self.read(f"{at}/{k}") or 0) for k in ("number_of_sets", "ways_of_associativity", "coherency_line_size")]
                found[level][shared] = _Cache(level, size(self.read(f"{at}/size")), n[0], n[1], n[2] or 64, shared)
        return {level: list(found[level].values()) for level in sorted(found)}

    def nodes(self) -> list[tuple[int, frozenset[int]]]:
        """(number, usable CPUs) of each NUMA domain that has any."""
        out = []
        for path in sorted((self.root / "sys/devices/system/node").glob("node[0-9]*"), key=lambda p: int(p.name[4:])):
            mine = frozenset(cpus(self.read(str((path / "cpulist").relative_to(self.root)))) & set(self.cpus))
            if mine:
                out.append((int(path.name[4:]), mine))
        return out

    def memory(self) -> int:
        """Bytes of the NUMA domains in use."""
        total = 0
        for n, _ in self.nodes():
            found = re.search(r"MemTotal:\s+(\d+)", self.read(f"sys/devices/system/node/node{n}/meminfo"))
            total += int(found[1]) * 1024 if found else 0
        found = re.search(r"MemTotal:\s+(\d+)", self.read("proc/meminfo"))
        return total or (int(found[1]) * 1024 if found else 2**32)

    def clock(self) -> tuple[float, str]:
        for name in ("base_frequency", "cpuinfo_max_freq"):
            text = self.read(f"sys/devices/system/cpu/cpu{self.cpus[0]}/cpufreq/{name}")
            if text.isdigit() and int(text):
                return int(text) * 1e3, f"cpufreq/{name}"
        named = re.search(r"@ ([0-9.]+)GHz", self.first.get("model name", ""))
        if named:
            return float(named[1]) * 1e9, "model name of /proc/cpuinfo"
        # the present clock wanders; rounded, so that two runs agree
        return (max(100, round(max(self.mhz), -2)) * 1e6, "cpu MHz of /proc/cpuinfo") if self.mhz else (2e9, "")


def _document(s: _System) -> dict[str, Any]:
    """The machine file that describes a system."""
    clock, clock_from = s.clock()
    x86 = "flags" in s.first
    simd, registers, fma = _simd(s, x86)
    lanes = simd / 4
    cores, packages = len(s.cores), len({c[0] for c in s.cores})
    sockets = packages if all(sum(c[0] == p for c in s.cores) * packages == cores for p in {c[0] for c in s.cores}) else 1
    domains = len(s.nodes()) or 1
    even = domains % sockets == 0 and cores % domains == 0 and all(s.usable(n) * domains == cores for _, n in s.nodes())
    if not even:
        domains = sockets
    per_core = min(_DRAM_CORE, _BYTES_PER_CYCLE["L3"] * clock)
    levels, guesses = _levels(s, clock, simd)
    total = max(per_core, min(per_core * cores, _DRAM_SOCKET * sockets))
    levels.append({
        "level": "MEM", "cores per group": cores, "groups": 1, "size per group": written(s.memory(), "size"),
        "bandwidth": written(total, "rate"), "bandwidth per core": written(per_core, "rate"), "latency": "100 ns",
    })  # fmt: skip

    def seen(where: str) -> dict[str, str]:
        return {"kind": "detected", "source": where}

    def guess(why: str) -> dict[str, str]:
        return {"kind": "guessed", "source": why}

    tree = ("sockets", "cores per socket", "threads per core", "NUMA domains per socket", "cores per NUMA domain", "cacheline size", "memory hierarchy")
    origins: dict[str, Any] = {
        "clock": seen(clock_from) if clock_from else guess("the system does not say"),
        **{key: seen("/sys/devices/system") for key in tree},
        **{key: seen("flags of /proc/cpuinfo") for key in ("SIMD width", "vector registers")},
        "FLOPs per cycle": guess("pipes usual for these flags"), "exp cycles": guess("20 vector operations"), "div cycles": guess("12 vector operations"),
        **{key: guess("order of magnitude") for key in ("loop overhead", "fork", "barrier", "atomic")},
    }  # fmt: skip
    for lv in levels:
        at = f"memory hierarchy/{lv['level']}"
        if lv["level"] in guesses:
            origins[at] = guess("the system does not say")
        origins[f"{at}/bandwidth"] = guess(_ZEN if lv["level"] != "MEM" else "order of magnitude of servers")
        origins[f"{at}/latency"] = guess("typical")
    origins["memory hierarchy/MEM/bandwidth per core"] = guess("order of magnitude of servers")
    return {
        "kind": "cpu", "model name": s.first.get("model name") or s.first.get("CPU part") or "unknown", "isa": "x86" if x86 else "aarch64",
        "clock": written(clock, "frequency"), "sockets": sockets, "cores per socket": cores // sockets, "threads per core": math.ceil(len(s.cpus) / cores),
        "NUMA domains per socket": domains // sockets, "cores per NUMA domain": cores // domains,
        "cacheline size": levels[0].get("cache per group", {}).get("cl_size", "64 B"),
        "SIMD width": f"{simd} B", "vector registers": registers, "FLOPs per cycle": {"SP": {"total": int(fma * 2 * lanes)}, "DP": {"total": int(fma * lanes)}},
        "exp cycles": f"{20 / (fma * lanes):g} cy", "div cycles": f"{12 / (fma * lanes):g} cy", "loop overhead": "1.5 cy",
        "fork": written(2e-6 + 5e-8 * cores, "time"), "barrier": written(5e-7 + 3e-8 * cores, "time"), "atomic": "20 ns",
        "memory hierarchy": levels, "compiler": {"cc": "gcc", "fc": "gfortran", "march": "native"}, "provenance": origins,
    }  # fmt: skip


def _levels(s: _System, clock: float, simd: int) -> tuple[list[dict[str, Any]], set[str]]:
    """The caches as levels of a machine file, and the names of those that were guessed."""
    cores, out, guesses = len(s.cores), [], set()
    found = s.caches()
    if not found:
        found = {1: [_Cache(1, 32 << 10, 0, 0, 64, frozenset([c])) for c in s.cpus], 2: [_Cache(2, 512 << 10, 0, 0, 64, frozenset([c])) for c in s.cpus]}
        guesses = {"L1", "L2"}
    for level, caches in found.items():
        name, one = f"L{level}", caches[0]
        share = [s.usable(c.cpus) for c in caches]
        instances = len({frozenset(s.core[c] for c in k.cpus if c in s.core) for k in caches})
        even = len(set(share)) == 1 and instances * share[0] == cores
        entry: dict[str, Any] = {"level": name}
        if even and one.sets * one.ways * one.line == one.bytes:
            entry["cache per group"] = {"sets": one.sets, "ways": one.ways, "cl_size": f"{one.line} B"}
        # cores that share unevenly (a CPU set across caches) each get the share of the most crowded one
        each = one.bytes if even else one.bytes // max(share)
        rate = (1.25 * simd if level == 1 else _BYTES_PER_CYCLE.get(name, 12.0)) * clock
        entry |= {"cores per group": share[0] if even else 1, "groups": instances if even else cores, "size per group": written(each, "size"),
                  "bandwidth": written(rate, "rate"), "latency": f"{_CYCLES.get(name, 60)} cy"}  # fmt: skip
        out.append(entry)
    return out, guesses


def _simd(s: _System, x86: bool) -> tuple[int, int, float]:
    """(bytes of a vector, vector registers, vector FMAs per cycle) by the flags of the processor."""
    if not x86:
        sve = s.read("proc/sys/abi/sve_default_vector_length")
        return (int(sve) if "sve" in s.flags and sve.isdigit() else 16), 32, 2.0
    if "avx512f" in s.flags:
        zen4 = s.first.get("vendor_id") == "AuthenticAMD" and s.first.get("cpu family") == "25"
        return 64, 32, 1.0 if zen4 else 2.0  # Zen 4 runs a 512-bit operation on two 256-bit pipes
    if "avx" in s.flags:
        return 32, 16, 2.0 if "fma" in s.flags else 1.0
    return 16, 16, 1.0


def cpus(text: str) -> set[int]:
    """The CPUs of a kernel list such as ``0-3,8``."""
    out: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        out |= set(range(int(low), int(high or low) + 1))
    return out


def size(text: str) -> int:
    """Bytes of a cache size as sysfs writes it, ``32K``."""
    return int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0)


def _pair(line: str) -> tuple[str, str]:
    key, _, value = line.partition(":")
    return key.strip(), value.strip()
