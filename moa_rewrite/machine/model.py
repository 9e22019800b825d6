"""What the cost model and the printers need to know of a machine. Units are SI: bytes, bytes per second, seconds, Hz; cycles where a name says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PROVENANCE = ("vendor", "measured", "detected", "guessed")  # site documentation counts as vendor


@dataclass(frozen=True)
class Provenance:
    """Where a value comes from: one of PROVENANCE, and in words."""

    kind: str
    source: str


@dataclass(frozen=True)
class Level:
    """A cache (GPU: shared memory, L2). ``bytes`` in one instance, which ``shared_by`` cores (SMs) use; ``bandwidth`` in bytes/s to one core
    alone; ``latency`` in seconds; ``groups`` instances in the machine; ``line`` in bytes; ``ways``: lines of one set."""

    name: str
    bytes: int
    shared_by: int
    bandwidth: float
    latency: float
    groups: int = 1
    line: int = 64
    ways: int = 8


@dataclass(frozen=True)
class Compiler:
    """``march``: gcc's name of the processor. ``arch``: nvcc's name of the GPU, such as sm_80. Programs are names to be found on the path."""

    cc: str = "gcc"
    fc: str = "gfortran"
    flags: tuple[str, ...] = ()
    march: str = "native"
    nvcc: str = "nvcc"
    arch: str = ""


@dataclass(frozen=True)
class Machine:
    """One node of a machine. ``cores`` are the usable ones (GPU: SMs). Fields of the other kind are 0.

    ``fma_per_cycle``: vector FMAs per cycle and core. ``exp_cycles``, ``div_cycles``: per f32 element in a vectorised loop (GPU: per thread, when others
    hide its latency). ``memory_bandwidth``: all cores together; ``memory_bandwidth_core``: one core alone. ``fork_s``: to start a parallel
    region, ``barrier_s``: one barrier, both with all cores; ``atomic_s``: one uncontended atomic update. ``host``: the CPU side of a GPU node.
    """

    name: str
    kind: str  # "cpu" or "gpu"
    model: str
    cores: int
    clock_hz: float
    levels: tuple[Level, ...]
    memory_bytes: int
    memory_bandwidth: float
    memory_bandwidth_core: float
    memory_latency: float
    exp_cycles: float
    div_cycles: float
    atomic_s: float
    barrier_s: float
    compiler: Compiler
    provenance: tuple[tuple[str, Provenance], ...] = ()
    partition: str = ""  # of Slurm
    # CPU
    isa: str = ""
    sockets: int = 1
    threads_per_core: int = 1
    numa_domains: int = 1
    cacheline: int = 64
    simd_bytes: int = 0
    vector_registers: int = 0
    fma_per_cycle: float = 0.0
    loop_overhead_cycles: float = 0.0
    fork_s: float = 0.0
    # GPU
    sms: int = 0
    fp32_lanes: int = 0
    fp32_flops: float = 0.0
    fp64_flops: float = 0.0
    warp: int = 0
    warps_per_sm: int = 0
    blocks_per_sm: int = 0
    max_threads_per_block: int = 0
    regs_per_sm: int = 0
    regs_per_thread: int = 0
    shared_per_sm: int = 0
    shared_per_block: int = 0
    launch_s: float = 0.0
    gpus: int = 0
    host: Machine | None = None
    document: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)  # as the file says it

    @property
    def march(self) -> str:
        return self.compiler.march

    @property
    def arch(self) -> str:
        return self.compiler.arch

    @property
    def l2_bytes(self) -> int:
        return next(lv.bytes for lv in self.levels if lv.name == "L2")

    @property
    def shared_bytes(self) -> int:
        """Shared memory that one thread block may use."""
        return self.shared_per_block

    def origin(self, path: str) -> Provenance:
        """Where the value at a path of the file, such as ``memory hierarchy/L1/bandwidth``, comes from: the entry of the longest prefix.

        KeyError without one.
        """
        found = origin(path, dict(self.provenance))
        if found is None:
            raise KeyError(path)
        return found


def origin(path: str, table: dict[str, Provenance]) -> Provenance | None:
    while path not in table:
        path, _, _ = path.rpartition("/")
        if not path:
            return None
    return table[path]
