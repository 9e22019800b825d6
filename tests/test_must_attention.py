"""Attention as a user runs it: for this computer and for a GPU; no array of n by m anywhere, at any size; what each law is worth."""

from __future__ import annotations

import ctypes
import json
import re
from pathlib import Path
from typing import Any

import pytest

from moa_rewrite.cli import optimize, pipeline
from moa_rewrite.cli.main import main, parser

ATTENTION = Path(__file__).resolve().parent.parent / "examples" / "attention.moa"
LARGE = ["-D", "h", "8", "-D", "n", "8192", "-D", "m", "8192", "-D", "d", "64", "-D", "e", "64"]
MOST = 16 << 20  # bytes of extra memory at n = m = 8192, of which the scores of one head would take 256 MiB
Capture = pytest.CaptureFixture[str]


def moarw(*words: str | Path) -> int:
    return main([str(w) for w in words])


@pytest.fixture(scope="module", params=["usual", pytest.param("large", marks=pytest.mark.slow)])
def judged(request: pytest.FixtureRequest) -> list[str]:
    return [] if request.param == "usual" else LARGE


@pytest.fixture(scope="module")
def for_host(judged: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("host")
    assert moarw("optimize", ATTENTION, "--machine", "host", "-o", folder, *judged) == 0
    return folder


@pytest.fixture(scope="module")
def for_gpu(judged: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu")
    assert moarw("optimize", ATTENTION, "--machine", "delta-a100", "-o", folder, *judged) == 0
    return folder


def test_check_on_both(for_host: Path, for_gpu: Path, capsys: Capture) -> None:
    assert moarw("check", for_host) == 0 and moarw("check", for_gpu) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "valid (" in lines[0] and "valid, for d <= " in lines[1], "the sizes that the GPU's shared memory does not hold are named"


def test_run_for_this_computer(for_host: Path, need, capsys: Capture) -> None:
    """Also where both axes end within a tile, and where one is shorter than any tile."""
    need("gcc")
    for h, n, m, d, e in ((2, 1000, 777, 64, 64), (1, 129, 257, 33, 65), (3, 1, 1, 1, 1), (2, 5, 300, 7, 130)):
        sizes = [w for name, v in zip("hnmde", (h, n, m, d, e), strict=True) for w in ("-D", name, v)]
        assert moarw("run", for_host, *map(str, sizes), "--repeat", "1") == 0
        assert "within its bound" in capsys.readouterr().out


def test_run_in_the_emulator(for_gpu: Path, need, capsys: Capture) -> None:
    need("g++")
    for h, n, m, d, e in ((1, 70, 150, 5, 3), (2, 3, 67, 16, 9), (1, 1, 1, 1, 1)):
        sizes = [w for name, v in zip("hnmde", (h, n, m, d, e), strict=True) for w in ("-D", name, v)]
        assert moarw("run", for_gpu, *map(str, sizes)) == 0
        assert "within its bound" in capsys.readouterr().out


def test_the_command_of_the_readme(need, capsys: Capture) -> None:
    need("gcc")
    assert moarw("run", ATTENTION, "--machine", "host", "-D", "n", "1000", "-D", "m", "777", "-D", "d", "64", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] and told["outputs"][0]["error"] <= told["outputs"][0]["bound"] and told["extra_bytes"] < MOST


def test_no_array_of_n_by_m_in_the_c(for_host: Path, need) -> None:
    """The kernel's own account of the storage it asks for: nothing in it grows with n times m. Arrays on the stack have constant extents."""
    need("make")
    import subprocess

    subprocess.run(["make", "-s", "-C", str(for_host), "-B"], check=True, capture_output=True)
    workspace = ctypes.CDLL(str(for_host / "libattention.so")).attention_workspace
    workspace.restype = ctypes.c_int64

    def asked(n: int, m: int) -> int:
        return workspace(*(ctypes.c_int64(v) for v in (8, n, 64, m, 64, 2)))

    assert [a["name"] for a in json.loads((for_host / "manifest.json").read_text())["entry"]["arguments"]][:5] == ["h", "n", "d", "m", "e"]
    big = 1 << 20
    assert asked(2 * big, 2 * big) - asked(2 * big, big) - asked(big, 2 * big) + asked(big, big) == 0
    assert asked(8192, 8192) < MOST
    text = (for_host / "attention.c").read_text()
    assert len(re.findall(r"alloc\(", text)) == 1, "the workspace is the only memory asked for"
    local = re.findall(r"_Alignas\(64\) \w+ \w+((?:\[[^]]*\])+)", text)
    assert local and all(re.fullmatch(r"(\[\d+\])+", extents) for extents in local)


def test_no_array_of_n_by_m_in_the_cuda(for_gpu: Path) -> None:
    text = (for_gpu / "attention.cu").read_text()
    assert "__shared__" in text and "alloc(" not in text.lower(), "all storage is shared memory of a block"
    certificate = json.loads((for_gpu / "certificate.json").read_text())
    assert sum(o["kind"] == "capacity" and o["verdict"] == "proved" for o in certificate["obligations"]) > 0


@pytest.mark.slow
def test_memory_of_a_run_at_8192(for_host: Path, need, capsys: Capture) -> None:
    need("gcc")
    sizes = ["-D", "h", "2", "-D", "n", "8192", "-D", "m", "8192", "-D", "d", "64", "-D", "e", "64"]
    assert moarw("run", for_host, *sizes, "--repeat", "1", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] and 0 < told["extra_bytes"] < MOST


# --- what the laws are worth -----------------------------------------------------------------------------------------------------------
def planned(folder: Path, *more: str) -> tuple[float, str, dict[str, Any]]:
    """Predicted seconds, the plan table, and the same as data."""
    words = ["optimize", str(ATTENTION), "-m", "delta-cpu", "-D", "h", "8", "-D", "n", "1024", "-D", "m", "1024", "-D", "d", "64", "-D", "e", "64", *more]
    args = parser().parse_args(words)
    j = pipeline.job(args)
    done = pipeline.certified(j, pipeline.search(j, args))
    data = optimize.summary(done, folder)
    return next(p["predicted_s"] for p in data["plans"] if p["chosen"]), optimize.report(done, folder, 0, args.top), data


@pytest.fixture(scope="module")
def with_all_laws(tmp_path_factory: pytest.TempPathFactory) -> tuple[float, str]:
    return planned(tmp_path_factory.mktemp("all"))[:2]


def test_the_plan_with_all_laws(with_all_laws: tuple[float, str]) -> None:
    table = with_all_laws[1]
    assert "running max" in table and "for j.o:ceil(n / " in table and not re.search(r"^ +S\d: .*l < m\]", table, re.M)
    assert re.search(r"stage S0: f32\[j\.i[.io]* < \d+, l\.i[.io]* < \d+\]", table), "a tile of scores"


def test_without_dependent_reductions_scores_are_stored(with_all_laws: tuple[float, str], tmp_path: Path) -> None:
    """Without the law for reductions that depend on a maximum, a whole row of scores is stored, or read again, before its exponentials can be summed."""
    seconds, table, data = planned(tmp_path, "--without", "dependent-reduction")
    assert "running max" not in table and "max=" in table
    assert re.search(r"stage S0: f32\[.*l < m\]", table) or len(re.findall(r"S0\[i, j, l\] \+=", table)) > 1
    assert seconds > with_all_laws[0]
    assert not any(p["summary"].startswith("dependent") for p in data["plans"])


def test_without_lifting_there_is_no_tile(with_all_laws: tuple[float, str], tmp_path: Path) -> None:
    seconds, table, data = planned(tmp_path, "--without", "lift")
    loops = re.findall(r"for ([\w.]+):.*?(?:  (\w+))?$", table[table.index("plan") : table.index("stages")], re.M)
    split = {axis.removesuffix(".o") for axis, place in loops if place == "numa"}  # over memory domains, which is no tile
    assert {axis for axis, _ in loops if "." in axis} == {f"{axis}.{part}" for axis in split for part in "oi"}
    assert data["plans"][0]["tiles"] == {}
    assert seconds > 2 * with_all_laws[0]
