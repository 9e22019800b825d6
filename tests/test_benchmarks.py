"""What benchmarks/ measures is the same computation for every contender; and a run that was interrupted goes on where it stopped."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moa_rewrite import lang

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module", autouse=True)
def _path() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield
    sys.path.remove(str(ROOT / "benchmarks"))


def small() -> list[Any]:
    """One case of every program, at sizes that the interpreter can do."""
    c = importlib.import_module("cases")
    gradients = [c.attention_backward(2, 5, 3, causal, forward) for causal in (False, True) for forward in (False, True)]
    return [
        c.attention(2, 5, 3, False), c.attention(2, 5, 3, True), *gradients, c.decode(2, 5, 3), c.rmsnorm(3, 5), c.softmax(3, 5), c.gated_mlp(3, 5, 7),
        c.matmul(3, 5, 7), c.matmul(5, 5, 5, "nt"), c.matmul(5, 5, 5, "tn"), c.matmul(3, 5, 7, dtype="float64"), c.batched_matmul(3, 4), c.stencil5(5, 7, 1),
        c.stencil5(5, 7, 2), c.stencil5_drop(5, 7), c.stencil9(5, 7), c.vector("sum", 9), c.vector("dot", 9), c.vector("prefix_sum", 9), c.outer(3, 5),
        c.pairwise_distances(3, 5, 2), c.kernel_density(3, 5), c.cross_entropy(3, 5), c.jacobi3d(3, 4, 5), c.conv1d_stride2(2, 3, 5, 3), c.mahalanobis(5, 3),
    ]  # fmt: skip


def answers(case: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    inputs = case.inputs()
    return inputs, {n: np.asarray(a) for n, a in case.reference({n: a.astype(np.float64) for n, a in inputs.items()}).items()}


def same(got: dict[str, Any], want: dict[str, np.ndarray], case: Any, within: float) -> None:
    assert got.keys() >= want.keys()
    for name, w in want.items():
        g = np.asarray(got[name], np.float64)
        np.testing.assert_allclose(g.reshape(w.shape), w, rtol=within, atol=within * max(1.0, float(np.abs(w).max())), err_msg=f"{case.name}: {name}")


def test_every_program_has_a_case_here() -> None:
    """So that what follows misses none."""
    groups = {c.group for c in small()}
    assert groups == {c.group for c in importlib.import_module("cases").CASES.values()}


def test_the_answer_is_that_of_the_program() -> None:
    """Also that sizes, shapes and scalars are those that the kernel asks for."""
    for case in small():
        program = lang.load_file(ROOT / "examples" / f"{case.file}.moa")
        inputs, want = answers(case)
        got = lang.interpret(program, case.kernel, {**inputs, **case.scalars}, case.sizes)
        same(got, want, case, 1e-6 if case.dtype == "float32" else 1e-12)


@pytest.mark.parametrize("peer", ["numpy", "torch"])
def test_peers_compute_the_same(peer: str, tmp_path: Path) -> None:
    if peer == "torch":
        pytest.importorskip("torch")
    make = importlib.import_module(f"peer_{peer}").make
    cannot = importlib.import_module("worker").Cannot
    done = 0
    for case in small():
        inputs, want = answers(case)
        try:
            call, outputs = make(case, inputs, peer, 1, tmp_path)
        except cannot:
            continue
        call()
        call()  # a second call starts from what the first left in the buffers
        same(outputs(), want, case, 1e-5)
        done += 1
    assert done >= 20


def test_ours_makes_as_many_steps_as_the_case_says(tmp_path: Path) -> None:
    case = importlib.import_module("cases").stencil5(5, 7, 6)  # three calls of a program that makes two steps
    inputs, want = answers(case)
    call, outputs = importlib.import_module("peer_moarw").make(case, inputs, "moarw", 1, tmp_path)
    call()
    call()
    same(outputs(), want, case, 1e-5)


# --- results that were kept --------------------------------------------------------------------------------------------------------------------
def run(monkeypatch: pytest.MonkeyPatch, file: Path, *words: str) -> tuple[dict[str, Any], list[str]]:
    """A run in which measuring a row is noting its name."""
    r = importlib.import_module("run")
    seen: list[str] = []

    def measured(case: Any, *_: Any) -> dict[str, Any]:
        if "stop" in words and len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(case.name)
        return {"contenders": {}, "left_out": {}, "limits": dict.fromkeys(("f32", "f64", "copy", "read"), 1.0), "number": len(seen)}

    class Nobody(r.Contenders):
        def __init__(self, args: argparse.Namespace, threads: int, folder: Path) -> None:
            self.workers, self.limits, self.pythons, self.threads = {}, None, [], threads

        def __exit__(self, *_: object) -> None:
            pass

    for name, value in (("measured", measured), ("Contenders", Nobody), ("prepared", lambda *_: None)):
        monkeypatch.setattr(r, name, value)
    monkeypatch.setattr(sys, "argv", ["run.py", "--only", "untuned", "--threads", "1", "2", "--resume", str(file), *[w for w in words if w != "stop"]])
    try:
        r.main()
    except KeyboardInterrupt:
        assert "stop" in words
    return json.loads(file.read_text(encoding="utf-8")), seen


def test_an_interrupted_run_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "results.json"
    first, seen = run(monkeypatch, file, "stop")
    assert list(first["threads"]["1"]) == seen and len(seen) == 2
    second, more = run(monkeypatch, file)
    assert len(more) == 10 and [list(rows) for rows in second["threads"].values()] == [seen + more[:4], more[4:]]
    assert second["threads"]["1"][seen[1]]["number"] == 2, "the rows of the first run are kept"
    assert "10 of 10 rows, about 0 min left" in capsys.readouterr().err
    assert run(monkeypatch, file)[1] == []


def test_rows_of_other_options_are_not_mixed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    run(monkeypatch, file, "stop")
    with pytest.raises(SystemExit, match="measured with --rounds 7"):
        run(monkeypatch, file, "--rounds", "3")


def test_a_silent_contender_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    r = importlib.import_module("run")
    monkeypatch.setattr(r, "PATIENCE", 0.0)
    w = r.Worker("numpy", sys.executable, 1)
    assert not w.alive
    w.end()
    assert w.process.poll() is not None
