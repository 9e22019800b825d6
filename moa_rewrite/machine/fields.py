"""The keys of a machine file. Names are kerncraft's where it has one. machines/schema.json says the same to editors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """``kind``: count (a whole number above 0), number, text, texts, a kind of units.py, or the name of a table below."""

    kind: str
    required: bool = True


CACHE = {"sets": Field("count"), "ways": Field("count"), "cl_size": Field("size")}
LEVEL = {
    "level": Field("text"),
    "cache per group": Field("cache", False),
    "cores per group": Field("count"),
    "groups": Field("count"),
    "threads per group": Field("count", False),
    "size per group": Field("size"),
    "bandwidth": Field("rate"),  # of a cache: to one core; of MEM: of one group
    "bandwidth per core": Field("rate", False),  # MEM only
    "latency": Field("latency"),
}
COMPILER = {"cc": Field("text", False), "fc": Field("text", False), "flags": Field("texts", False), "march": Field("text", False), "nvcc": Field("text", False),
            "arch": Field("text", False)}  # fmt: skip
SLURM = {"partition": Field("text")}
ORIGIN = {"kind": Field("text"), "source": Field("text")}
FLOPS = {"SP": Field("total"), "DP": Field("total")}
TOTAL = {"total": Field("number")}
_BOTH = {
    "kind": Field("text"),
    "model name": Field("text"),
    "notes": Field("text", False),
    "clock": Field("frequency"),
    "exp cycles": Field("cycles"),
    "div cycles": Field("cycles"),
    "barrier": Field("time"),
    "atomic": Field("time"),
    "memory hierarchy": Field("levels"),
    "compiler": Field("compiler"),
    "slurm": Field("slurm", False),
    "provenance": Field("provenance"),
}
CPU = {
    **_BOTH,
    "isa": Field("text"),
    "sockets": Field("count"),
    "cores per socket": Field("count"),
    "threads per core": Field("count"),
    "NUMA domains per socket": Field("count"),
    "cores per NUMA domain": Field("count"),
    "cacheline size": Field("size"),
    "SIMD width": Field("size"),
    "vector registers": Field("count"),
    "FLOPs per cycle": Field("flops_per_cycle"),
    "loop overhead": Field("cycles"),
    "fork": Field("time"),
}
GPU = {
    **_BOTH,
    "GPUs": Field("count"),
    "SMs": Field("count"),
    "FP32 lanes per SM": Field("count"),
    "FP32 rate": Field("flops"),
    "FP64 rate": Field("flops"),
    "warp size": Field("count"),
    "warps per SM": Field("count"),
    "blocks per SM": Field("count"),
    "max threads per block": Field("count"),
    "registers per SM": Field("count"),
    "registers per thread": Field("count"),
    "shared memory per SM": Field("size"),
    "shared memory per block": Field("size"),
    "launch": Field("time"),
    "host": Field("host"),
}
TABLES = {"cache": CACHE, "compiler": COMPILER, "slurm": SLURM, "flops_per_cycle": FLOPS, "total": TOTAL}
NO_ORIGIN = ("text", "texts", "compiler", "slurm", "provenance", "notes")  # values that need no provenance
