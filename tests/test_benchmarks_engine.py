"""The benchmark of the engine: programs that grow as they should, and the fit."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType

import pytest

from moa_rewrite import lang


@pytest.fixture(scope="module")
def engine(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("engine", root / "benchmarks" / "engine.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["engine"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("k", [1, 2, 5, 16])
def test_programs_grow(engine: ModuleType, k: int) -> None:
    chain = lang.elaborate(lang.load(engine.chained(k)))
    assert repr(chain.body).count('red("add"') == k and len(chain.outputs) == 1
    apart = lang.elaborate(lang.load(engine.independent(k)))
    assert len(apart.outputs) == k and len(apart.inputs) == k + 1
    many = lang.load(engine.file(k))
    assert [lang.elaborate(many, f"product{n}").name for n in range(k)] == [f"product{n}" for n in range(k)]


@pytest.mark.parametrize("k", range(1, 7))
def test_axes(engine: ModuleType, k: int) -> None:
    program = lang.load(engine.axes(k))
    kernel = lang.elaborate(program)
    assert len(kernel.sizes) == k and len(kernel.outputs[0].shape) == k - 1
    assert set(program.typical(kernel.name)) == set(kernel.sizes)


def test_exponent(engine: ModuleType) -> None:
    ks = [1, 2, 4, 8, 16]
    assert engine.exponent(ks, [3.0 * k**1.2 for k in ks]) == pytest.approx(1.2)
    assert engine.exponent(ks, [5.0] * 5) == pytest.approx(0)
    assert engine.exponent([1, 2, 4], [1, 2, 16]) == pytest.approx(2), "least squares, the middle one counts nothing"
    assert math.isnan(engine.exponent([1], [1.0]))


def test_processes(engine: ModuleType, tmp_path: Path) -> None:
    import sys

    done = engine.run([sys.executable, "-c", "x = bytearray(200 << 20); print('hello')"], str(tmp_path))
    assert done.text == "hello\n" and done.peak_MiB > 200 and done.cpu_s > 0 and done.wall_s > 0
    assert engine.run([sys.executable, "-c", "while True: pass"], str(tmp_path), limit=1) is None
    with pytest.raises(SystemExit, match="failed"):
        engine.run([sys.executable, "-c", "raise SystemExit(3)"], str(tmp_path))


def test_the_table(engine: ModuleType) -> None:
    row = {"cpu_s": 2.0, "search_s": 1.0, "nodes": 1000.0, "peak_MiB": 100.0, "check_s": 0.5, "check_MiB": 80.0}
    fit = dict.fromkeys(("cpu_s", "nodes", "peak_MiB", "check_s"), 1.25)
    text = engine.table({"chained": {"rows": {4: row, 8: None}, "exponent": fit, "last_step": {**fit, "cpu_s": 2.5}}})
    assert "| chained | 4 | 2.00 | 1.00 | 1,000 | 100 | 0.50 | 80 |" in text and "| chained | 8 | over the limit |" in text
    assert "**exponent** | 1.25 |" in text and "**of the last step** | 2.50 |" in text
