"""Detection from trees of /proc and /sys made for the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moa_rewrite import machine
from moa_rewrite.errors import MoaError
from moa_rewrite.machine.detect import cpus, size
from moa_rewrite.machine.load import from_text, problems

AVX2 = "fpu sse2 avx avx2 fma"


def put(root: Path, path: str, text: object) -> None:
    f = root / path
    f.parent.mkdir(parents=True, exist_ok=True)
    f.write_text(f"{text}\n")


def tree(
    root: Path, sockets: int = 1, cores: int = 4, smt: int = 1, nodes: int = 1, ccx: int = 4, flags: str = AVX2, vendor: str = "AuthenticAMD", family: int = 25,
    model: str = "Some CPU", base: int | None = None, caches: bool = True, mhz: str = "2596.144",
) -> Path:  # fmt: skip
    """sockets x cores x smt CPUs; thread t of core c is CPU c + t*(all cores), as Linux numbers them. L3 is shared by ``ccx`` cores."""
    total = sockets * cores
    sys = "sys/devices/system"
    blocks = [
        f"processor\t: {p}\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel name\t: {model}\ncpu MHz\t\t: {mhz}\nflags\t\t: {flags}"
        for p in range(total * smt)
    ]
    put(root, "proc/cpuinfo", "\n\n".join(blocks) + "\n")
    put(root, "proc/meminfo", "MemTotal:       16777216 kB")
    put(root, f"{sys}/cpu/online", f"0-{total * smt - 1}")
    for p in range(total * smt):
        core = p % total
        at = f"{sys}/cpu/cpu{p}"
        put(root, f"{at}/topology/physical_package_id", core // cores)
        put(root, f"{at}/topology/core_id", core % cores)
        if base:
            put(root, f"{at}/cpufreq/base_frequency", base)
        mine = ",".join(str(core + t * total) for t in range(smt))
        group = core // ccx * ccx
        wide = ",".join(f"{group + t * total}-{group + ccx - 1 + t * total}" for t in range(smt))
        for k, (level, kind, text, sets, ways, shared) in enumerate([
            (1, "Data", "32K", 64, 8, mine), (1, "Instruction", "64K", 128, 8, mine), (2, "Unified", "512K", 1024, 8, mine), 
            (3, "Unified", "32768K", 32768, 16, wide),
        ] if caches else []):  # fmt: skip
            for name, value in (
                ("level", level), ("type", kind), ("size", text), ("number_of_sets", sets), ("ways_of_associativity", ways), ("coherency_line_size", 64),
                ("shared_cpu_list", shared),
            ):  # fmt: skip
                put(root, f"{at}/cache/index{k}/{name}", value)
    per = total // nodes
    for n in range(nodes):
        put(root, f"{sys}/node/node{n}/cpulist", ",".join(f"{n * per + t * total}-{n * per + per - 1 + t * total}" for t in range(smt)))
        put(root, f"{sys}/node/node{n}/meminfo", f"Node {n} MemTotal:       8388608 kB")
    return root


def levels(m: machine.Machine) -> list[tuple[str, int, int, int]]:
    return [(lv.name, lv.bytes, lv.shared_by, lv.groups) for lv in m.levels]


def test_two_sockets_with_smt_and_numa(tmp_path: Path) -> None:
    m = machine.detect(tree(tmp_path, sockets=2, cores=8, smt=2, nodes=4, ccx=4, base=2450000))
    assert (m.name, m.sockets, m.cores, m.threads_per_core, m.numa_domains) == ("host", 2, 16, 2, 4)
    assert levels(m) == [("L1", 32768, 1, 16), ("L2", 524288, 1, 16), ("L3", 2**25, 4, 4)]
    assert m.clock_hz == 2.45e9 and m.memory_bytes == 4 * 8388608 * 1024
    assert (m.simd_bytes, m.vector_registers, m.fma_per_cycle, m.march) == (32, 16, 2.0, "native")
    assert m.origin("clock").kind == "detected" and m.origin("memory hierarchy/L3/size per group").kind == "detected"
    assert m.origin("memory hierarchy/L3/bandwidth").kind == "guessed" and m.origin("exp cycles").kind == "guessed"


def test_only_the_cpu_set_counts(tmp_path: Path) -> None:
    """A job with cores 4 to 7 and their second threads: one socket of two, one NUMA domain of four, one L3 of four."""
    root = tree(tmp_path, sockets=2, cores=8, smt=2, nodes=4, ccx=4)
    m = machine.detect(root, affinity=[4, 5, 6, 7, 20, 21, 22, 23])
    assert (m.cores, m.sockets, m.numa_domains, m.threads_per_core) == (4, 1, 1, 2)
    assert levels(m)[2] == ("L3", 2**25, 4, 1) and m.memory_bytes == 8388608 * 1024
    assert machine.detect(root, affinity=[4, 20]).cores == 1
    assert levels(machine.detect(root, affinity=[0, 1]))[2] == ("L3", 2**25, 2, 1)


def test_a_cpu_set_across_caches(tmp_path: Path) -> None:
    """Three cores in one L3 and one in another, on two sockets: each is given the share of the crowded one, and the file still holds together."""
    m = machine.detect(tree(tmp_path, sockets=2, cores=4, nodes=2, ccx=4), affinity=[0, 1, 2, 4])
    assert (m.cores, m.sockets, m.numa_domains) == (4, 1, 1)
    assert levels(m)[2] == ("L3", 2**25 // 3, 1, 4)
    assert problems(machine.dump(m), "host") == []


@pytest.mark.parametrize("kind", ["plain", "smt", "no caches", "uneven", "one core"])
def test_a_detected_machine_is_a_machine_file(tmp_path: Path, kind: str) -> None:
    root = tree(tmp_path, sockets=2 if kind == "uneven" else 1, cores=4, smt=2 if kind == "smt" else 1, caches=kind != "no caches", ccx=2)
    m = machine.detect(root, affinity={"uneven": [0, 1, 2, 5], "one core": [3]}.get(kind))
    text = machine.dump(m)
    assert problems(text, "host.yaml") == [] and from_text(text, "host.yaml", "host") == m and "&" not in text
    if kind == "no caches":
        assert levels(m)[0] == ("L1", 32768, 1, 4) and m.origin("memory hierarchy/L1/size per group").kind == "guessed"


@pytest.mark.parametrize(
    "flags, vendor, family, want",
    [
        ("sse2", "GenuineIntel", 6, (16, 16, 1.0)),
        ("sse2 avx", "GenuineIntel", 6, (32, 16, 1.0)),
        (AVX2, "AuthenticAMD", 25, (32, 16, 2.0)),
        (AVX2 + " avx512f", "GenuineIntel", 6, (64, 32, 2.0)),
        (AVX2 + " avx512f", "AuthenticAMD", 25, (64, 32, 1.0)),
        (AVX2 + " avx512f", "AuthenticAMD", 26, (64, 32, 2.0)),
    ],
)
def test_simd_from_the_flags(tmp_path: Path, flags: str, vendor: str, family: int, want: tuple[int, int, float]) -> None:
    m = machine.detect(tree(tmp_path, flags=flags, vendor=vendor, family=family))
    assert (m.simd_bytes, m.vector_registers, m.fma_per_cycle) == want


def test_arm(tmp_path: Path) -> None:
    put(tmp_path, "proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd sve\nCPU part\t: 0xd40\n\nprocessor\t: 1\nFeatures\t: fp asimd sve\n")
    put(tmp_path, "proc/sys/abi/sve_default_vector_length", 32)
    m = machine.detect(tmp_path)
    assert (m.isa, m.cores, m.simd_bytes, m.vector_registers, m.clock_hz) == ("aarch64", 2, 32, 32, 2e9)
    assert m.origin("clock").kind == "guessed"


def test_the_clock(tmp_path: Path) -> None:
    """The base frequency, else the one in the name, else the present one rounded: it wanders, and plans must not."""
    assert machine.detect(tree(tmp_path / "a", base=2100000, model="X @ 3.00GHz")).clock_hz == 2.1e9
    assert machine.detect(tree(tmp_path / "b", model="X @ 3.00GHz")).clock_hz == 3e9
    near = [machine.detect(tree(tmp_path / f"c{k}", mhz=mhz)) for k, mhz in enumerate(("2596.144", "2603.900"))]
    assert near[0] == near[1] and near[0].clock_hz == 2.6e9


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(MoaError, match="no /proc/cpuinfo") as e:
        machine.detect(tmp_path)
    assert e.value.code == 508
    with pytest.raises(MoaError, match="no usable CPU"):
        machine.detect(tree(tmp_path), affinity=[99])


def test_lists_and_sizes_of_the_kernel() -> None:
    assert cpus("0-3,8,10-11") == {0, 1, 2, 3, 8, 10, 11} and cpus("") == set() and cpus("5") == {5}
    assert (size("32K"), size("1M"), size("512")) == (32768, 2**20, 512)


def test_this_computer() -> None:
    m = machine.load("host")
    assert m.kind == "cpu" and 1 <= m.cores <= len(os.sched_getaffinity(0)) and m.levels and m.memory_bandwidth >= m.memory_bandwidth_core
    assert machine.check("host") == [] and machine.detect() == m
