"""The commands end to end on small programs: what they write, print and return."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from moa_rewrite.cli import bundle
from moa_rewrite.cli.main import main
from moa_rewrite.errors import MoaError

PROGRAM = """# Rows of A weighted by w.
kernel weigh(A: f64[n, m], w: f64[m]) -> y: f64[n] where m >= 1 = A +.× w
"""
Capture = pytest.CaptureFixture[str]


def moarw(*words: str | Path) -> int:
    return main([str(w) for w in words])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program and its bundle, which no test changes."""
    folder = tmp_path_factory.mktemp("weigh")
    (folder / "weigh.moa").write_text(PROGRAM, encoding="utf-8")
    assert moarw("optimize", folder / "weigh.moa", "-m", "delta-cpu", "-o", folder / "b") == 0
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def test_what_a_bundle_holds(made: Path, root: Path) -> None:
    b = bundle.read(made / "b")
    assert sorted(b.contents) == ["Makefile", "certificate.json", "manifest.json", "moarw.h", "moarw_numa.h", "weigh.c", "weigh.h"]
    jsonschema.validate(b.manifest, json.loads((root / "docs" / "manifest.schema.json").read_text()))
    assert [(a["name"], a["role"]) for a in b.manifest["entry"]["arguments"]] == [("n", "size"), ("m", "size"), ("A", "input"), ("w", "input"), ("y", "output")]
    assert b.certificate["source"]["text"] == PROGRAM
    assert "-march=znver3" in b.manifest["flags"]


def test_the_makefile_builds_it(copy: Path, need) -> None:
    need("make")
    need("gcc")
    assert subprocess.run(["make", "-C", str(copy / "b")], capture_output=True).returncode == 0
    assert (copy / "b" / "libweigh.so").is_file()
    assert moarw("check", copy / "b") == 0, "a built library beside the bundle does no harm"


def test_the_plan_fits_a_screen(made: Path, tmp_path: Path, capsys: Capture) -> None:
    assert moarw("optimize", made / "weigh.moa", "-m", "delta-cpu", "-o", tmp_path / "b", "-D", "n", "500") == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert len(lines) <= 60
    labels = [line.split()[0] for line in lines if line[:1].strip()]
    assert [x for x in labels if x != "stages"] == ["kernel", "plan", "traffic", "time", "proved", "tried", "derived", "rejected", "search", "written"]
    assert "judged at n = 500, m = " in lines[0]
    assert "y[i] += A[i, " in out and "obligations for all sizes" in out


def test_json_of_optimize(made: Path, tmp_path: Path, capsys: Capture) -> None:
    assert moarw("optimize", made / "weigh.moa", "-m", "delta-cpu", "-o", tmp_path / "b", "--stem", "w2", "--fix", "m", "8", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["fixed"] == {"m": 8} and told["sizes"]["m"] == 8 and "w2.c" in told["files"]
    assert [p["chosen"] for p in told["plans"]].count(True) == 1 and told["proved"]["bounds"] >= 3
    assert '#include "w2.h"' in (tmp_path / "b" / "w2.c").read_text()
    assert bundle.read(tmp_path / "b").manifest["sizes"]["fixed"] == {"m": 8}
    assert moarw("run", tmp_path / "b", "-D", "n", "9", "--repeat", "1") == 0
    assert moarw("run", tmp_path / "b", "-D", "m", "9") == 1
    assert "size m is 9 (-D) and 8 (compiled in)" in capsys.readouterr().err


def test_check_loads_neither_egglog_nor_the_search(made: Path) -> None:
    program = (
        "import sys; from moa_rewrite.cli.main import main; code = main(['check', sys.argv[1]]);"
        "never = ('egglog', 'moa_rewrite.search', 'moa_rewrite.emit', 'moa_rewrite.machine');"
        "print(sorted(m for m in sys.modules if m.startswith(never))); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(made / "b")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    verdict, modules = done.stdout.splitlines()
    assert "certificate.json: valid (" in verdict and "6 files compared" in verdict
    assert modules == "[]"


def test_check_refuses_what_was_changed(copy: Path, capsys: Capture) -> None:
    kernel = copy / "b" / "weigh.c"
    text = kernel.read_text()
    kernel.write_text(text + "\n")
    assert moarw("check", copy / "b") == 2
    assert "weigh.c is not the file that was certified" in capsys.readouterr().out
    assert moarw("check", copy / "b", "--certificate-only") == 0
    kernel.unlink()
    assert moarw("check", copy / "b") == 2
    kernel.write_text(text)
    assert moarw("check", copy / "b") == 0
    certificate = copy / "b" / "certificate.json"
    certificate.write_text(certificate.read_text().replace("A +.× w", "A +.× (2 × w)"))
    capsys.readouterr()
    assert moarw("check", copy / "b", "--json") == 2
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "refuted" and told["findings"]


def test_run_on_random_inputs(made: Path, capsys: Capture, need) -> None:
    need("gcc")
    assert moarw("run", made / "b", "-D", "n", "33", "-D", "m", "70", "--repeat", "1", "--threads", "1") == 0
    out = capsys.readouterr().out
    assert "at n = 33, m = 70" in out and "within its bound" in out and "all cells compared" in out and "1 thread" in out
    assert "built here with -march=native" in out


@pytest.mark.parametrize(("n", "m"), [(0, 1), (1, 1), (1, 9), (5, 17)])
def test_run_on_given_inputs(made: Path, tmp_path: Path, n: int, m: int, capsys: Capture, need) -> None:
    need("gcc")
    rng = np.random.default_rng(3)
    a, w = rng.normal(size=(n, m)), rng.normal(size=m)
    np.save(tmp_path / "a.npy", np.asfortranarray(a))
    np.save(tmp_path / "w.npy", w)
    words = ["--input", f"A={tmp_path / 'a.npy'}", "--input", f"w={tmp_path / 'w.npy'}", "--output", f"y={tmp_path / 'y.npy'}", "--repeat", "1", "--json"]
    assert moarw("run", made / "b", *words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sizes"] == {"n": n, "m": m} and told["ok"]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), a @ w, rtol=1e-12, atol=1e-12)


def test_a_wrong_kernel_is_told(copy: Path, capsys: Capture, need) -> None:
    """With the digests of the manifest made to fit, only the values give the changed kernel away."""
    need("gcc")
    b = bundle.read(copy / "b")
    text = b.contents["weigh.c"].decode()
    wrong = text.replace("int weigh(", "static int right(").rstrip() + (
        "\nint weigh(const int64_t n, const int64_t m, const double *MOARW_RESTRICT A, const double *MOARW_RESTRICT w, double *MOARW_RESTRICT y) {\n"
        "    const int status = right(n, m, A, w, y);\n    if (n > 2) y[2] += 0.001;\n    return status;\n}\n"
    )
    contents = {n: d for n, d in b.contents.items() if n not in ("manifest.json", "certificate.json")} | {"weigh.c": wrong.encode()}
    bundle.Bundle({**bundle.described(contents, b.manifest), "certificate.json": b.contents["certificate.json"]}).write(copy / "b")
    assert moarw("run", copy / "b", "-D", "n", "2", "--repeat", "1") == 0
    capsys.readouterr()
    assert moarw("run", copy / "b", "-D", "n", "20", "--repeat", "1") == 2
    assert "OUTSIDE its bound: error 0.001 at [2]" in capsys.readouterr().out


def test_run_a_program(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, need) -> None:
    need("gcc")
    monkeypatch.chdir(tmp_path)
    assert moarw("run", made / "weigh.moa", "-m", "delta-cpu", "-D", "n", "40", "--repeat", "1") == 0
    assert "within its bound" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [], "nothing is written beside"


def test_run_fortran(made: Path, tmp_path: Path, capsys: Capture, need) -> None:
    need("gfortran")
    assert moarw("optimize", made / "weigh.moa", "-m", "delta-cpu", "--target", "fortran", "-o", tmp_path / "f") == 0
    assert (tmp_path / "f" / "weigh.f90").is_file()
    assert moarw("check", tmp_path / "f") == 0
    assert moarw("run", tmp_path / "f", "-D", "n", "33", "-D", "m", "70", "--repeat", "1") == 0


def test_run_cuda_in_the_emulator(made: Path, tmp_path: Path, capsys: Capture, need) -> None:
    need("g++")
    assert moarw("optimize", made / "weigh.moa", "-m", "delta-a100", "-o", tmp_path / "g") == 0
    assert moarw("check", tmp_path / "g") == 0
    capsys.readouterr()
    assert moarw("run", tmp_path / "g", "-D", "n", "33", "-D", "m", "70") == 0
    out = capsys.readouterr().out
    assert "emulated on the CPU, no GPU time" in out and "within its bound" in out and "\ntime" not in out


def test_explain(made: Path, capsys: Capture) -> None:
    assert moarw("explain", made / "b") == 0
    out = capsys.readouterr().out
    assert "y[i] = sum[" in out and "1. psi-red in for i > emit y" in out and "rules used" in out
    assert moarw("explain", made / "b" / "certificate.json", "--json") == 0
    steps = json.loads(capsys.readouterr().out)
    assert steps[0]["rule"] == "psi-red" and steps[0]["meaning"]


def test_cost(made: Path, capsys: Capture) -> None:
    words = ["cost", made / "weigh.moa", "-m", "delta-cpu", "-D", "m", "512"]
    assert moarw(*words, "-D", "n", "4096") == 0
    assert "binds" in capsys.readouterr().out
    predicted = []
    for n in ("4096", "8192"):
        assert moarw(*words, "-D", "n", n, "--json") == 0
        predicted.append(json.loads(capsys.readouterr().out)["predicted_s"])
    assert predicted[0] < predicted[1]


@pytest.mark.parametrize(("code", "status"), [(2, "refuted"), (3, "undecided")])
def test_nothing_is_written_without_proof(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, code: int, status: str) -> None:
    def discharge(*args: object) -> None:
        raise MoaError(652, f"{status}: bounds A[i, k]", witness="n = 1", exit_code=code)

    monkeypatch.setattr(importlib.import_module("moa_rewrite.proof.certify"), "discharge", discharge)
    assert moarw("optimize", made / "weigh.moa", "-m", "delta-cpu", "-o", tmp_path / "b") == code
    out, err = capsys.readouterr()
    assert out == "" and "witness: n = 1" in err and not (tmp_path / "b").exists()


def test_out_of_time(made: Path, tmp_path: Path, capsys: Capture) -> None:
    assert moarw("optimize", made / "weigh.moa", "-m", "delta-cpu", "-o", tmp_path / "b", "--timeout", "1e-9") == 3
    assert "MOA0801" in capsys.readouterr().err and not (tmp_path / "b").exists()


def test_fmt(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "k.moa").write_text("kernel   k(A : f32[n])->f32[n]=A*2.0\n")
    assert moarw("fmt", "--check", tmp_path / "k.moa") == 1
    assert moarw("fmt", tmp_path / "k.moa") == 0
    text = capsys.readouterr().out.split("\n", 1)[1]
    assert moarw("fmt", "-i", tmp_path / "k.moa") == 0 and (tmp_path / "k.moa").read_text() == text
    assert moarw("fmt", "--check", tmp_path / "k.moa") == 0
    (tmp_path / "s.moa").write_text("kernel s(x: f32[n]) -> f32[n] = x × 2.0\n")
    capsys.readouterr()
    assert moarw("fmt", "--ascii", tmp_path / "s.moa") == 0
    assert capsys.readouterr().out.isascii()


def test_rules_and_machines(capsys: Capture) -> None:
    assert moarw("rules", "show", "lift") == 0
    assert "when tile(T)" in capsys.readouterr().out
    assert moarw("rules", "list", "--json", "--without", "lift") == 0
    assert "lift" not in [r["name"] for r in json.loads(capsys.readouterr().out)]
    assert moarw("machine", "list") == 0
    assert "delta-a100" in capsys.readouterr().out
    assert moarw("machine", "check", "delta-a100") == 0
    assert moarw("machine", "show", "delta-a100", "--json") == 0


def test_a_bad_machine_file(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "m.yaml").write_text("kind: cpu\nclock: 2.6\n")
    assert moarw("machine", "check", tmp_path / "m.yaml") == 1
    assert "m.yaml:2:1: error[MOA0503]" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["delta-cpu", "delta-a100", "anvil-cpu"])
def test_same_bytes_whatever_the_hash_seed(made: Path, root: Path, tmp_path: Path, machine: str) -> None:
    """Every file of a bundle, for machines that do not depend on where this runs."""
    for program, words in ((made / "weigh.moa", ()), (root / "examples" / "attention.moa", ("-D", "n", "512"))):
        found = []
        for seed in ("0", "1", "2"):
            out = tmp_path / f"{program.stem}{seed}"
            command = [sys.executable, "-m", "moa_rewrite", "optimize", str(program), "-m", machine, *words, "-o", str(out)]
            subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True)
            found.append({p.name: p.read_bytes() for p in sorted(out.iterdir())})
        numa = "moarw_numa.h" in found[0]  # written where a kernel is split among memories
        assert len(found[0]) == 6 + numa and found[0] == found[1] == found[2]
