"""Machine files: finding, reading, checking, turning into a Machine, and writing."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any

import yaml

from ..data import data_path
from ..errors import MoaError
from .check import Checker
from .model import Compiler, Level, Machine, Provenance
from .text import read
from .units import quantity

HOST = "host"


def names() -> list[str]:
    """Names that ``load`` knows: ``host`` and the machine files that come with moarw."""
    return [HOST, *sorted(p.stem for p in data_path("machines").glob("*.yaml"))]


def load(name: str | os.PathLike[str]) -> Machine:
    """The machine of a name (see ``names``) or of a file.

    MOA0501 for an unknown one; MOA0502 to 0507 for the first problem of its file, with the others as notes.
    """
    text = os.fspath(name)
    if text == HOST:
        from .detect import detect

        return detect()
    path = find(text)
    return from_text(path.read_text(encoding="utf-8"), str(path), path.stem)


def check(name: str | os.PathLike[str]) -> list[MoaError]:
    """All problems of a machine file. MOA0501 for an unknown one."""
    text = os.fspath(name)
    if text == HOST:
        from .detect import detect

        return problems(dump(detect()), HOST)
    path = find(text)
    return problems(path.read_text(encoding="utf-8"), str(path))


def problems(text: str, file: str) -> list[MoaError]:
    """All problems of the text of a machine file; a duplicate key or broken YAML is the only one then."""
    return examine(text, file)[1]


def examine(text: str, file: str) -> tuple[Any, list[MoaError]]:
    """The document and its problems."""
    try:
        document, lines = read(text, file)
    except MoaError as e:
        return None, [e]
    checker = Checker(file, lines)
    checker.document(document)
    return document, checker.problems


def find(name: str) -> Path:
    """The file of a machine name or path. MOA0501 when there is none."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or os.sep in name:
        if path.is_file():
            return path
        raise MoaError(501, f"no machine file {name}", hint=f"a file that exists, or one of {', '.join(names())}")
    if name in names():
        return data_path("machines", f"{name}.yaml")
    close = difflib.get_close_matches(name, names(), 1)
    hint = f"-m {close[0]}" if close else "a name above, or the path of a machine file"
    raise MoaError(501, f"unknown machine {name!r}", notes=[f"known: {', '.join(names())}"], hint=hint)


def from_text(text: str, file: str, name: str) -> Machine:
    """The machine a file's text describes; see ``load`` for errors."""
    document, found = examine(text, file)
    if found:
        first, rest = found[0], found[1:]
        first.notes += [f"line {p.line}: {p.message}" for p in rest[:8]] + ([f"and {len(rest) - 8} more"] if len(rest) > 8 else [])
        raise first
    return build(document, name)


def dump(m: Machine) -> str:
    """The text of a machine file that describes ``m``."""
    return yaml.safe_dump(m.document, sort_keys=False, allow_unicode=True, width=160)


def build(d: dict[str, Any], name: str) -> Machine:
    """A Machine from a document that was checked."""

    def q(key: str, kind: str) -> float:
        return quantity(d[key], kind)[0]

    gpu = d["kind"] == "gpu"
    clock = q("clock", "frequency")
    *caches, memory = [_level(lv, clock) for lv in d["memory hierarchy"]]
    mem = d["memory hierarchy"][-1]
    cores = d["SMs"] if gpu else d["sockets"] * d["cores per socket"]
    total = memory.bandwidth * memory.groups
    per_core = quantity(mem["bandwidth per core"], "rate")[0] if "bandwidth per core" in mem else total / cores
    compiler: dict[str, Any] = {k: tuple(v) if k == "flags" else v for k, v in d["compiler"].items()}
    simd = 0 if gpu else int(q("SIMD width", "size"))
    common: dict[str, Any] = {
        "name": name, "kind": d["kind"], "model": d["model name"], "cores": cores, "clock_hz": clock, "levels": tuple(caches),
        "memory_bytes": memory.bytes * memory.groups, "memory_bandwidth": total, "memory_bandwidth_core": per_core, "memory_latency": memory.latency,
        "exp_cycles": q("exp cycles", "cycles"), "div_cycles": q("div cycles", "cycles"), "atomic_s": q("atomic", "time"), "barrier_s": q("barrier", "time"),
        "compiler": Compiler(**compiler),
        "provenance": tuple((k, Provenance(v["kind"], v["source"])) for k, v in d["provenance"].items()),
        "partition": d.get("slurm", {}).get("partition", ""), "document": d,
    }  # fmt: skip
    if gpu:
        return Machine(
            **common, sms=cores, fp32_lanes=d["FP32 lanes per SM"], fp32_flops=q("FP32 rate", "flops"), fp64_flops=q("FP64 rate", "flops"), warp=d["warp size"],
            warps_per_sm=d["warps per SM"], blocks_per_sm=d["blocks per SM"], max_threads_per_block=d["max threads per block"],
            regs_per_sm=d["registers per SM"], regs_per_thread=d["registers per thread"], shared_per_sm=int(q("shared memory per SM", "size")),
            shared_per_block=int(q("shared memory per block", "size")), launch_s=q("launch", "time"), gpus=d["GPUs"], host=build(d["host"], f"{name}/host"),
        )  # fmt: skip
    return Machine(
        **common, isa=d["isa"], sockets=d["sockets"], threads_per_core=d["threads per core"], numa_domains=d["sockets"] * d["NUMA domains per socket"],
        cacheline=int(q("cacheline size", "size")), simd_bytes=simd, vector_registers=d["vector registers"],
        fma_per_cycle=d["FLOPs per cycle"]["SP"]["total"] / (2 * simd / 4), loop_overhead_cycles=q("loop overhead", "cycles"), fork_s=q("fork", "time"),
    )  # fmt: skip


def _level(lv: dict[str, Any], clock: float) -> Level:
    latency, unit = quantity(lv["latency"], "latency")
    cache = lv.get("cache per group", {})
    return Level(lv["level"], int(quantity(lv["size per group"], "size")[0]), lv["cores per group"], quantity(lv["bandwidth"], "rate")[0],
                 latency / clock if unit == "cy" else latency, lv["groups"], int(quantity(cache.get("cl_size", "64 B"), "size")[0]),
                 int(cache.get("ways", 8)))  # fmt: skip
