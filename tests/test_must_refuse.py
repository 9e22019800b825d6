"""Wrong rules and changed certificates, through the commands: none of them passes."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moa_rewrite.cli import pipeline
from moa_rewrite.cli.main import main
from moa_rewrite.proof.certificate import digest, dump

ROOT = Path(__file__).resolve().parent.parent
Capture = pytest.CaptureFixture[str]

# "lift" as it stands in rules/structure.moar, but for the remainder
NO_REMAINDER = """rule "tile" {
  doc "tiling that forgets the last, shorter block"
  param T
  for(i, n, "seq", s) => for(i.o, n // T, "seq", for(i.i, T, "seq", s))
  when tile(T), noreads(n), absent(i.o, i, s), absent(i.i, i, s), notin(i.o, n)
  define @i = @i.o * T + @i.i
}
"""
# the last, shorter block is made whole: it reaches beyond the array
OVERRUN = NO_REMAINDER.replace("n // T", "(n + T - 1) // T")
WRONG_SUM = """rule "sum-of-difference" {
  doc "a sum of differences as a sum of sums"
  reduce("add", k, n, a - b) => reduce("add", k, n, a) + reduce("add", k, n, b)
}
"""


def moarw(*words: str | Path) -> int:
    return main([str(w) for w in words])


@pytest.mark.parametrize("program", ["pairwise_distances", "matmul"])
@pytest.mark.parametrize(("law", "kind", "witness"), [(NO_REMAINDER, "cover", "reaches it"), (OVERRUN, "bounds", "n = ")], ids=["no remainder", "overrun"])
def test_a_wrong_tiling_is_refuted_with_a_witness(tmp_path: Path, capsys: Capture, law: str, kind: str, witness: str, program: str) -> None:
    (tmp_path / "wrong.moar").write_text(law)
    out = tmp_path / "out"
    words = ["optimize", ROOT / "examples" / f"{program}.moa", "-m", "delta-cpu", "--rules", tmp_path / "wrong.moar", "--without", "lift", "-o", out]
    assert moarw(*words) == 2
    told = capsys.readouterr()
    assert told.out == "" and f"error[MOA0652]: refuted: {kind}" in told.err and "witness: " in told.err and witness in told.err
    assert not out.exists()


def test_a_wrong_law_of_scalars_is_refuted_by_values(tmp_path: Path, need, capsys: Capture) -> None:
    """No obligation is about what a law of scalars means; the comparison with the source's values is."""
    need("gcc")
    (tmp_path / "wrong.moar").write_text(WRONG_SUM)
    (tmp_path / "d.moa").write_text("kernel d(A: f32[n, m], B: f32[n, m]) -> f32[n] = + red Ω<1> (A - B)\n", encoding="utf-8")
    words = [tmp_path / "d.moa", "-m", "delta-cpu", "--rules", tmp_path / "wrong.moar"]
    for command in (["optimize", *words, "-o", tmp_path / "b"], ["run", *words, "-D", "n", "50", "-D", "m", "70"]):
        assert moarw(*command) == 2
        told = capsys.readouterr()
        assert told.out == "" and "error[MOA0654]: refuted: " in told.err and "sum-of-difference" in told.err and "witness: " in told.err
    assert not (tmp_path / "b").exists()
    assert moarw("run", *words[:-2], "-D", "n", "50", "-D", "m", "70", "--repeat", "1") == 0


def test_a_wrong_law_is_found_at_the_latest_when_the_kernel_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need, capsys: Capture) -> None:
    """With the comparison of forms left out, `run` tells by the values of the compiled kernel, and `check` knows no such law."""
    need("gcc")
    monkeypatch.setattr(pipeline, "compare", lambda *_: None)
    (tmp_path / "wrong.moar").write_text(WRONG_SUM)
    (tmp_path / "d.moa").write_text("kernel d(A: f32[n, m], B: f32[n, m]) -> f32[n] = + red Ω<1> (A - B)\n", encoding="utf-8")
    assert moarw("optimize", tmp_path / "d.moa", "-m", "delta-cpu", "--rules", tmp_path / "wrong.moar", "-o", tmp_path / "b") == 0
    capsys.readouterr()
    assert moarw("check", tmp_path / "b") == 2
    assert "sum-of-difference" in capsys.readouterr().out
    assert moarw("run", tmp_path / "b", "-D", "n", "50", "-D", "m", "70", "--repeat", "1") == 2
    assert "OUTSIDE its bound" in capsys.readouterr().out


# --- changed certificates --------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificate")
    assert moarw("optimize", ROOT / "examples" / "softmax.moa", "-m", "delta-cpu", "-o", folder / "b") == 0
    return folder / "b"


def first_param(steps: list[Any]) -> tuple[int, str]:
    return next((n, k) for n, s in enumerate(steps) for k in s[2])


def substitution(c: dict[str, Any]) -> None:
    n, k = first_param(c["derivation"]["steps"])
    c["derivation"]["steps"][n][2][k] = "zz"


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "rule of a step": lambda c: c["derivation"]["steps"][5].__setitem__(0, "lift"),
    "position of a step": lambda c: c["derivation"]["steps"][5].__setitem__(1, [*c["derivation"]["steps"][5][1], 0]),
    "substitution of a step": substitution,
    "direction of a step": lambda c: c["derivation"]["steps"][5].__setitem__(3, not c["derivation"]["steps"][5][3]),
    "a step left out": lambda c: c["derivation"]["steps"].pop(5),
    "a step twice": lambda c: c["derivation"]["steps"].insert(5, c["derivation"]["steps"][5]),
    "an obligation left out": lambda c: c["obligations"].pop(3),
    "text of an obligation": lambda c: c["obligations"][3].__setitem__("smt", "(assert false)\n(check-sat)"),
    "verdict of an obligation": lambda c: c["obligations"][3].__setitem__("verdict", "assumed"),
    "effort of an obligation": lambda c: c["obligations"][3].__setitem__("rlimit", c["obligations"][3]["rlimit"] + 1),
    "body of the form": lambda c: c["onf"].__setitem__("body", c["onf"]["body"].replace('"simd"', '"seq"', 1)),
    "where of the form": lambda c: c["onf"]["where"].append("n < 100"),
    "source kernel": lambda c: c["source"]["kernel"].__setitem__("name", "hardmax"),
    "source text": lambda c: c["source"].__setitem__("text", c["source"]["text"].replace("max red", "min red")),
    "a flag added": lambda c: c["build"]["flags"].append("-ffast-math"),
    "a flag left out": lambda c: c["build"]["flags"].pop(),
    "a flag for another": lambda c: c["build"].__setitem__("flags", [f.replace("-O3", "-O2") for f in c["build"]["flags"]]),
    "compiler": lambda c: c["build"].__setitem__("compiler", "gcc 1"),
    "machine": lambda c: c["target"].__setitem__("machine", "anvil-cpu"),
    "digest of a file": lambda c: c["files"].__setitem__("softmax.c", "0" * 64),
    "a file left out": lambda c: c["files"].pop("softmax.h"),
    "digest of a law": lambda c: c["rules"].__setitem__(sorted(c["rules"])[0], "0" * 64),
    "permissions": lambda c: c["floating_point"].__setitem__("reassociation", not c["floating_point"]["reassociation"]),
    "solver": lambda c: c.__setitem__("solver", "z3 0.0.0"),
    "format": lambda c: c.__setitem__("format", 2),
}


@pytest.mark.parametrize("new_digest", [False, True], ids=["", "new digest"])
@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_certificate_is_refused(made: Path, tmp_path: Path, capsys: Capture, what: str, new_digest: bool) -> None:
    """Also when whoever changed it computed the digest anew."""
    folder = shutil.copytree(made, tmp_path / "b")
    before = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    after = copy.deepcopy(before)
    CHANGES[what](after)
    assert after != before
    if new_digest:
        after["digest"] = digest(after)
    (folder / "certificate.json").write_text(dump(after), encoding="utf-8")
    assert moarw("check", folder) == 2
    out = capsys.readouterr().out
    assert ": refuted\n" in out and len(out.splitlines()) >= 2 and "Traceback" not in out


def test_the_unchanged_certificate_passes(made: Path) -> None:
    assert moarw("check", made) == 0


@pytest.mark.parametrize("field", ["format", "moarw", "source", "derivation", "onf", "obligations", "solver", "rules", "target", "build", "floating_point",
                                   "files", "error_model", "digest"])  # fmt: skip
def test_no_field_can_be_left_out(made: Path, tmp_path: Path, field: str) -> None:
    data = json.loads((made / "certificate.json").read_text(encoding="utf-8"))
    assert field in data
    del data[field]
    if field != "digest":
        data["digest"] = digest(data)
    (tmp_path / "certificate.json").write_text(dump(data), encoding="utf-8")
    assert moarw("check", tmp_path / "certificate.json", "--certificate-only") == 2
