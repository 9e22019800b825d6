"""Machine files: those that come along, units, duplicate keys, schema, and mistakes that other projects' files contain."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path

import pytest
import yaml

from moa_rewrite import machine
from moa_rewrite.data import data_path
from moa_rewrite.errors import MoaError
from moa_rewrite.machine import fields
from moa_rewrite.machine.check import Checker, quantities
from moa_rewrite.machine.load import from_text, problems
from moa_rewrite.machine.text import read
from moa_rewrite.machine.units import UnitError, quantity, written

SHIPPED = ["anvil-cpu", "delta-a100", "delta-cpu"]
SCHEMA = json.loads(data_path("machines", "schema.json").read_text())


def text_of(name: str) -> str:
    return data_path("machines", f"{name}.yaml").read_text()


def edited(old: str, new: str, name: str = "delta-cpu") -> str:
    text = text_of(name)
    assert old in text
    return text.replace(old, new, 1)


def refused(text: str, code: int, *words: str) -> MoaError:
    """The file is refused with this code first, at a line, in these words."""
    with pytest.raises(MoaError) as e:
        from_text(text, "m.yaml", "m")
    assert e.value.code == code, str(e.value)
    assert e.value.line > 0 and all(w in str(e.value) for w in words), str(e.value)
    return e.value


def test_names() -> None:
    assert machine.names() == ["host", *SHIPPED]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_files_hold_together(name: str) -> None:
    assert machine.check(name) == []
    document, _ = read(text_of(name), name)
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(document)) == []
    m = machine.load(name)
    again = from_text(machine.dump(m), "again", name)
    assert again == m and hash(again) == hash(m)


def test_delta_cpu() -> None:
    """Two EPYC 7763, SMT off, NPS4; peak single precision of 2 x 16 lanes x 2.45 GHz per core."""
    m = machine.load("delta-cpu")
    assert (m.kind, m.cores, m.sockets, m.numa_domains, m.threads_per_core) == ("cpu", 128, 2, 8, 1)
    assert (m.simd_bytes, m.vector_registers, m.fma_per_cycle, m.clock_hz) == (32, 16, 2.0, 2.45e9)
    assert [(lv.name, lv.bytes, lv.shared_by, lv.groups) for lv in m.levels] == [("L1", 32768, 1, 128), ("L2", 524288, 1, 128), ("L3", 2**25, 8, 16)]
    assert m.memory_bandwidth == pytest.approx(409.6e9) and m.memory_bytes == 256 * 2**30 and m.levels[0].latency == pytest.approx(4 / 2.45e9)
    assert (m.march, m.partition) == ("znver3", "cpu")
    assert m.origin("memory hierarchy/L1/bandwidth").kind == "measured" and m.origin("memory hierarchy/L1/size per group").kind == "vendor"
    assert m.origin("exp cycles").kind == "guessed" and m.origin("FLOPs per cycle/SP").kind == "vendor"
    with pytest.raises(KeyError):
        m.origin("colour")


def test_delta_a100() -> None:
    """One A100-SXM4-40GB: 108 SMs, 64 lanes, 1.41 GHz; the host is one socket with four NUMA domains."""
    m = machine.load("delta-a100")
    assert (m.kind, m.sms, m.cores, m.warp, m.max_threads_per_block, m.regs_per_sm) == ("gpu", 108, 108, 32, 1024, 65536)
    assert (m.shared_per_sm, m.shared_per_block, m.shared_bytes, m.l2_bytes) == (164 * 1024, 163 * 1024, 163 * 1024, 40 * 2**20)
    assert (m.memory_bandwidth, m.fp32_flops, m.arch, m.partition, m.gpus) == (1555e9, 19.5e12, "sm_80", "gpuA100x4", 4)
    assert m.host is not None and (m.host.cores, m.host.numa_domains, m.host.kind) == (64, 4, "cpu")


def test_unknown_machines_are_named() -> None:
    with pytest.raises(MoaError, match="unknown machine 'delta-a10'") as e:
        machine.load("delta-a10")
    assert e.value.code == 501 and all(n in str(e.value) for n in SHIPPED) and "-m delta-a100" in str(e.value)
    with pytest.raises(MoaError, match=r"no machine file nowhere/x\.yaml") as e:
        machine.load("nowhere/x.yaml")
    assert e.value.code == 501


def test_a_file_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(edited("clock: 2.45 GHz", "clock: 2450 MHz"))
    m = machine.load(path)
    assert (m.name, m.clock_hz) == ("mine", 2.45e9)
    assert machine.load(str(path)) == m and machine.check(path) == []


@pytest.mark.parametrize(
    "text, kind, value",
    [
        ("32 KiB", "size", 32768),
        ("32KiB", "size", 32768),
        ("1.5 MiB", "size", 1.5 * 2**20),
        ("64 B", "size", 64),
        ("40 GiB", "size", 40 * 2**30),
        ("15.5 GB/s", "rate", 15.5e9),
        ("1 kB/s", "rate", 1e3),
        ("19.1 TB/s", "rate", 19.1e12),
        ("2.45 GHz", "frequency", 2.45e9),
        ("800 MHz", "frequency", 8e8),
        ("19.5 TFLOP/s", "flops", 19.5e12),
        ("5 us", "time", 5e-6),
        ("1e3 ns", "time", 1e-6),
        ("4 cy", "latency", 4),
        ("100 ns", "latency", 1e-7),
    ],
)
def test_units(text: str, kind: str, value: float) -> None:
    assert quantity(text, kind)[0] == pytest.approx(value, rel=1e-12)
    assert quantity(written(value, kind), kind)[0] == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize(
    "value, kind, words",
    [
        ("32 kB", "size", "KiB"),
        ("16.00 MB", "size", "MiB"),
        ("512 KB", "size", "KiB"),
        (32768, "size", "no unit"),
        ("32768", "size", "no unit"),
        ("15 GiB/s", "rate", "powers of 1000"),
        ("15 GB", "rate", "not one of"),
        ("2.45", "frequency", "no unit"),
        ("2.45 GB/s", "frequency", "not one of"),
        ("-5 us", "time", "write it like"),
        ("5 ns", "cycles", "not one of"),
        (True, "size", "write it like"),
        (["1 B"], "size", "write it like"),
        ("5 Kibit", "size", "not one of"),
    ],
)
def test_wrong_units(value: object, kind: str, words: str) -> None:
    with pytest.raises(UnitError, match=words):
        quantity(value, kind)


def test_a_prefix_scale_that_is_consistent() -> None:
    """Each prefix is 1000 times the one before (a published class has T = 1e13)."""
    for kind in ("rate", "frequency", "flops"):
        unit = {"rate": "B/s", "frequency": "Hz", "flops": "FLOP/s"}[kind]
        values = [quantity(f"1 {p}{unit}", kind)[0] for p in ("", "k", "M", "G", "T", "P")]
        assert [b / a for a, b in itertools.pairwise(values)] == [1000.0] * 5


# --- mistakes found in the files of others -------------------------------------------------------------------------------------------
def test_threads_per_group_that_contradict_the_cores() -> None:
    """kerncraft's Zen2_EPYC-7452.yml: L3 with 4 cores per group, 2 threads per core, and 6 threads per group."""
    text = edited("cores per group: 8\n  groups: 16\n  threads per group: 8", "cores per group: 8\n  groups: 16\n  threads per group: 6")
    assert "threads per group is 6" in str(refused(text, 505, "L3"))


def test_placeholders() -> None:
    """kerncraft's A64FX_qpace4.yml: ten INFORMATION_REQUIRED; and a size left null."""
    text = edited("SP: {total: 32}\n  DP: {total: 16}", "SP: {total: INFORMATION_REQUIRED}\n  DP: {total: INFORMATION_REQUIRED}")
    e = refused(text, 506, "INFORMATION_REQUIRED")
    assert len(e.notes) == 1
    refused(edited("size per group: 128 GiB", "size per group:"), 506, "size per group", "not filled in")
    refused(edited("isa: x86", 'isa: "x86 (TODO: check)"'), 506)
    assert problems(edited("isa: x86", "isa: autodoc"), "m") == []


def test_sizes_in_powers_of_1000() -> None:
    """kerncraft writes 32.00 kB and means 32768."""
    e = refused(edited("size per group: 32 KiB", "size per group: 32.00 kB"), 503, "kB", "KiB")
    assert e.line == text_of("delta-cpu").splitlines().index("  size per group: 32 KiB") + 1


def test_a_key_twice() -> None:
    """ZigZag's tpu_like.yaml: one memory has the key `ports` twice, and YAML readers silently take the last."""
    text = edited("  groups: 16\n", "  groups: 16\n  bandwidth: 99 GB/s\n")
    e = refused(text, 502, "'bandwidth' twice")
    lines = text.splitlines()
    second = next(n for n, line in enumerate(lines, 1) if line.startswith("  bandwidth: 47"))
    first = next(n for n, line in enumerate(lines, 1) if line.startswith("  bandwidth: 99"))
    assert e.line == second and f"line {first}" in str(e)
    refused("kind: cpu\nkind: gpu\n", 502, "'kind' twice")


# --- cross-checks: each refuses what contradicts ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "old, new, code, words",
    [
        ("{sets: 64, ways: 8,", "{sets: 64, ways: 4,", 505, "sets x ways x line is 16384"),
        ("ways: 8, cl_size: 64 B", "ways: 4, cl_size: 128 B", 505, "its line is 128"),
        ("groups: 16", "groups: 15", 505, "groups x cores per group is 120, but the number of cores is 128"),
        ("cores per NUMA domain: 16", "cores per NUMA domain: 8", 505, "NUMA domains x cores per domain is 32"),
        ("sockets: 2", "sockets: 1", 505, "number of cores is 64"),
        ("DP: {total: 16}", "DP: {total: 8}", 505, "twice the DP total"),
        ("bandwidth: 47 GB/s", "bandwidth: 95 GB/s", 505, "bandwidth to one core of L3 is above that of L2"),
        ("bandwidth per core: 13 GB/s", "bandwidth per core: 60 GB/s", 505, "above that of L3"),
        ("bandwidth: 204.8 GB/s", "bandwidth: 12 GB/s", 505, "above the bandwidth of the group"),
        ("latency: 40 cy", "latency: 10 cy", 505, "latency of L3 is below that of L2"),
        ("latency: 120 ns", "latency: 1 ns", 505, "latency of MEM is below"),
        ("size per group: 128 GiB", "size per group: 1 MiB", 505, "size per group of MEM is below"),
        ("sockets: 2\n", "", 504, "'sockets' is missing"),
        ("sockets: 2\n", "socket: 2\n", 504, "unknown key"),
        ("isa: x86", "isa: 86", 504, "not text"),
        ("vector registers: 16", "vector registers: 0", 504, "whole number above 0"),
        ("vector registers: 16", "vector registers: 16.5", 504, "whole number above 0"),
        ("vector registers: 16", "vector registers: true", 504, "whole number above 0"),
        ("kind: cpu", "kind: tpu", 504, "cpu or gpu"),
        ("level: MEM", "level: L4", 504, "last level"),
        ("march: znver3", "march: [znver3]", 504, "not text"),
        ("SP: {total: 32}", "SP: 32", 504, "not a mapping"),
        ("clock: 2.45 GHz", "clock: 0 GHz", 505, "above 0"),
        ("kind: guessed", "kind: hoped", 507, "hoped"),
        ("  clock: {kind: vendor,", "  clocks: {kind: vendor,", 507, "where 'clock' comes from"),
        ("  memory hierarchy/L2: {", "  memory hierarchy/L5: {", 507, "memory hierarchy/L2/"),
    ],
)
def test_contradictions(old: str, new: str, code: int, words: str) -> None:
    found = problems(edited(old, new), "m.yaml")
    assert any(p.code == code and words in p.message and p.line > 0 for p in found), [str(p) for p in found]


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("FP32 rate: 19.5 TFLOP/s", "FP32 rate: 156 TFLOP/s", "SMs x lanes x 2 x clock"),
        ("shared memory per block: 163 KiB", "shared memory per block: 227 KiB", "above the shared memory per SM"),
        ("max threads per block: 1024", "max threads per block: 1000", "no multiple of the warp size"),
        ("max threads per block: 1024", "max threads per block: 16", "above the max threads per block"),
        ("  groups: 108", "  groups: 100", "number of cores is 108"),
        ("    groups: 8\n", "    groups: 9\n", "number of cores is 64"),
    ],
)
def test_contradictions_of_a_gpu(old: str, new: str, words: str) -> None:
    found = problems(edited(old, new, "delta-a100"), "m.yaml")
    assert any(p.code == 505 and words in p.message for p in found), [str(p) for p in found]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "kind: cpu",
        "kind: cpu\nmemory hierarchy: 3\nprovenance: []\n",
        "kind: gpu\nhost: 3\nmemory hierarchy: [3]\n",
        "kind: cpu\nmemory hierarchy: [{}]\nprovenance: {a: 1}\n",
    ],
)
def test_files_that_are_no_machines(text: str) -> None:
    assert problems(text, "m.yaml") and all(p.code in (504, 507) for p in problems(text, "m.yaml"))


def test_text_that_is_no_yaml() -> None:
    assert refused("kind: cpu\n  sockets: 2: 3\n", 502, "not YAML").line == 2
    assert [p.code for p in problems("a: \x00", "m")] == [502]


def test_all_problems_are_told_at_once() -> None:
    text = edited("sockets: 2\n", "socket: 2\n").replace("32 KiB", "32 kB")
    e = refused(text, 504, "unknown key", "sockets")
    assert any("kB" in n for n in e.notes) and any("missing" in n for n in e.notes)


# --- the schema says what the reader says ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name, table", [("cpu", fields.CPU), ("gpu", fields.GPU), ("level", fields.LEVEL), *[(k, t) for k, t in fields.TABLES.items()]])
def test_schema_has_the_keys_of_the_reader(name: str, table: dict[str, fields.Field]) -> None:
    d = SCHEMA["$defs"][name]
    assert sorted(d["properties"]) == sorted(table) and sorted(d["required"]) == sorted(k for k, f in table.items() if f.required)
    assert d["additionalProperties"] is False
    for key, f in table.items():
        if key != "kind":
            assert d["properties"][key] == {"$ref": f"#/$defs/{f.kind}"}


@pytest.mark.parametrize("name", SHIPPED)
def test_schema_and_reader_refuse_the_same_slips(name: str) -> None:
    """Each key dropped, made null, misspelt: refused by both; optional keys may go."""
    validator = pytest.importorskip("jsonschema").Draft202012Validator(SCHEMA)
    whole = yaml.safe_load(text_of(name))
    for key in whole:
        for change in ("drop", "null", "misspell"):
            d = copy.deepcopy(whole)
            v = d.pop(key)
            if change != "drop":
                d[key if change == "null" else f"{key}x"] = None if change == "null" else v
            checker = Checker("m", {})
            checker.document(d)
            mine = [p for p in checker.problems if p.code in (503, 504, 506)]
            assert bool(mine) == (not validator.is_valid(d)), (key, change)


def test_every_value_of_the_shipped_files_says_where_it_comes_from() -> None:
    for name in SHIPPED:
        m = machine.load(name)
        for path in quantities(m.document, fields.GPU if m.kind == "gpu" else fields.CPU):
            assert m.origin(path).source
