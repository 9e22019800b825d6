"""Bad command lines: each gives one clear error on standard error, the right code and exit code, and writes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moa_rewrite.cli.main import main

PROGRAM = """kernel double(x: f32[n]) -> f32[n] where n >= 1 = x × 2.0
kernel product(A: f32[n, d], B: f32[d, m]) -> C: f32[n, m] where d <= 64 = A +.× B
"""
HOST = "-m delta-cpu"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    f = tmp_path_factory.mktemp("bad")
    (f / "p.moa").write_text(PROGRAM, encoding="utf-8")
    (f / "syntax.moa").write_text("kernel f(x: f32[n]) -> f32[n] = x +\n")
    (f / "bad.moar").write_text('rule "r" { doc "nothing" frobnicate(a) => }\n')
    (f / "list.json").write_text("[1, 2]")
    (f / "broken.json").write_text('{"format": 1')
    (f / "text.npy").write_text("not an array")
    (f / "empty").mkdir()
    np.save(f / "good.npy", np.zeros((3, 4), np.float32))
    np.save(f / "other.npy", np.zeros((5, 6), np.float32))
    np.save(f / "double.npy", np.zeros((3, 4)))
    np.save(f / "vector.npy", np.zeros(3, np.float32))
    np.save(f / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(f / "many.npz", a=np.zeros(3))
    assert main(["optimize", str(f / "p.moa"), "--kernel", "double", "-m", "delta-cpu", "-o", str(f / "bundle")]) == 0
    (f / "cut").mkdir()
    for name in ("manifest.json", "double.c"):
        (f / "cut" / name).write_bytes((f / "bundle" / name).read_bytes())
    return f


BAD = [
    ("optimize none.moa", 1, 100, "none.moa: error", "No such file"),
    ("optimize syntax.moa", 1, 105, "syntax.moa:", "expression"),
    (f"optimize p.moa {HOST} --kernel triple", 1, 213, "triple", "double, product"),
    ("optimize p.moa -m delta-a1000", 1, 501, "unknown machine 'delta-a1000'", "-m delta-a100"),
    ("optimize p.moa -m none.yaml", 1, 501, "none.yaml", ""),
    (f"optimize p.moa {HOST} -D q 3", 1, 754, "no size 'q'", "-D n 1000"),
    (f"optimize p.moa {HOST} -D d 65", 1, 754, "asks for d <= 64", "d = 65"),
    (f"optimize p.moa {HOST} -D n many", 1, 753, "-D n many", "-D n 1000"),
    (f"optimize p.moa {HOST} -D n -3", 1, 753, "at least 0", ""),
    (f"optimize p.moa {HOST} -D n 1 -D n 2", 1, 753, "two values, 1 and 2", ""),
    (f"optimize p.moa {HOST} --fix d 8 -D d 9", 1, 753, "--fix d 8 and -D d 9 disagree", ""),
    (f"optimize p.moa {HOST} --fix k 8", 1, 754, "no size 'k'", "--fix n"),
    ("optimize p.moa --target opencl", 1, 701, "'opencl' is not one of c, fortran, cuda", ""),
    (f"optimize p.moa {HOST} --target cuda", 1, 759, "does not run kernels written in cuda", "-m delta-a100"),
    ("optimize p.moa -m delta-a100 --target c", 1, 759, "does not run kernels written in c", "--target cuda"),
    (f"optimize p.moa {HOST} --without lft", 1, 405, '"lft"', "lift"),
    (f"optimize p.moa {HOST} --rules none.moar", 1, 409, "none.moar", "No such file"),
    (f"optimize p.moa {HOST} --rules bad.moar", 1, 401, "bad.moar:1:", ""),
    (f"optimize p.moa {HOST} -o p.moa", 1, 752, "p.moa is a file", "-o DIR"),
    (f"optimize p.moa {HOST} -o p.moa/out", 1, 752, "p.moa is a file", "-o DIR"),
    (f"optimize p.moa {HOST} --stem a/b", 1, 753, "--stem a/b", ""),
    (f"optimize p.moa {HOST} --timeout 0", 1, 701, "positive number of seconds", ""),
    ("check none.json", 1, 751, "cannot read none.json", ""),
    ("check empty", 1, 751, "certificate.json", ""),
    ("check list.json", 1, 757, "list.json is no certificate", ""),
    ("check broken.json", 1, 757, "broken.json is no certificate", ""),
    ("check p.moa", 1, 757, "p.moa is no certificate", ""),
    ("explain list.json", 1, 757, "no certificate", ""),
    ("explain bundle/manifest.json", 1, 757, "no certificate", ""),
    ("run empty", 1, 751, "manifest.json", ""),
    ("run cut", 1, 751, "cut/Makefile", ""),
    ("run none", 1, 100, "none", "No such file"),
    (f"run p.moa {HOST} --input A", 1, 758, "expected NAME=FILE", "--input A=a.npy"),
    (f"run p.moa {HOST} --input Z=good.npy", 1, 758, "no input 'Z'", "A, B"),
    (f"run p.moa {HOST} --output Z=z.npy", 1, 758, "no output 'Z'", "C"),
    (f"run p.moa {HOST} --input A=none.npy", 1, 758, "cannot read none.npy", ""),
    (f"run p.moa {HOST} --input A=text.npy", 1, 758, "text.npy is no .npy file", "numpy.save"),
    (f"run p.moa {HOST} --input A=objects.npy", 1, 758, "objects.npy is no .npy file of numbers", ""),
    (f"run p.moa {HOST} --input A=many.npz", 1, 758, "an archive of arrays", ""),
    (f"run p.moa {HOST} --input A=double.npy", 1, 758, "holds float64, A is declared f32", "astype(numpy.float32)"),
    (f"run p.moa {HOST} --input A=vector.npy", 1, 758, "A has 2 axes", ""),
    (f"run p.moa {HOST} --input A=good.npy --input B=other.npy", 1, 758, "size d is 4 on axis 1 of A and 5 on axis 0 of B", ""),
    (f"run p.moa {HOST} --input A=good.npy -D n 7", 1, 758, "size n is 7 (-D) and 3 (axis 0 of A)", ""),
    ("run bundle -D n 0", 1, 754, "asks for 1 <= n", "n = 0"),
    (f"cost p.moa {HOST} -D q 1", 1, 754, "no size 'q'", ""),
    ("rules show lft", 1, 756, "no rule 'lft'", "lift"),
    ("machine show nope", 1, 501, "unknown machine 'nope'", ""),
    ("fmt none.moa", 1, 751, "cannot read none.moa", ""),
    ("fmt syntax.moa", 1, 105, "syntax.moa:1:", ""),
]


@pytest.mark.parametrize(("line", "exit_code", "code", "says", "also"), BAD, ids=[b[0] for b in BAD])
def test_bad_command_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, exit_code: int, code: int, says: str, also: str
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    assert main(line.split()) == exit_code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("error[MOA") == 1 and f"error[MOA{code:04d}]: " in err.splitlines()[0], err
    assert says in err and also in err and "Traceback" not in err
    assert len(err.splitlines()) <= 8
    assert sorted(folder.rglob("*")) == before


# each says its code in its first line; a wrong in-source test (MOA0111) is no mistake of the kernel, and `optimize` does not read it
PROGRAMS = [p for p in sorted((Path(__file__).parent / "bad").glob("*.moa")) if "MOA0111" not in p.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_bad_program(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code = int(path.read_text(encoding="utf-8")[5:9])
    monkeypatch.chdir(tmp_path)
    assert main(["optimize", str(path), "-m", "delta-cpu"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("error[MOA") == 1 and f"error[MOA{code:04d}]: " in err and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_there_are_enough_of_both() -> None:
    assert len(BAD) >= 20 and len(PROGRAMS) >= 20
