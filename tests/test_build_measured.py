"""Kernels measured in turns: good ones get times, bad ones are left out with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moa_rewrite import lang
from moa_rewrite.build import compile_c
from moa_rewrite.build.measured import Contender, Timed, aligned, interleaved

KERNEL = lang.elaborate(lang.load("kernel twice(x: f32[n]) -> f32[n] = 2 × x"))
HEAD = "#include <stdint.h>\n#include <stdlib.h>\nint twice(int64_t n, const float *x, float *out) {\n"
LOOP = "for (int64_t i = 0; i < n; i++) out[i] = 2 * x[i];"
BODIES = {
    "good": f"{LOOP} return 0;",
    "slow": f"for (volatile int k = 0; k < 200000; k++); {LOOP} return 0;",
    "wrong": "for (int64_t i = 0; i < n; i++) out[i] = 3 * x[i]; return 0;",
    "idle": "return 0;",
    "crash": "abort();",
    "loop": "volatile int go = 1; while (go); return 0;",
    "refuse": "return 1;",
    "late": f"static int calls; if (++calls == 3) abort(); {LOOP} return 0;",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, need) -> dict[str, Contender]:
    need("gcc")
    folder = tmp_path_factory.mktemp("twice")
    return {n: Contender(compile_c(HEAD + b + "\n}\n", "", folder / n, n, flags=("-O1",)), KERNEL, "twice") for n, b in BODIES.items()}


def measured(contenders: list[Contender], folder: Path, n: int = 1000, **more: float) -> list[Timed | str]:
    x = np.arange(n, dtype=np.float32)

    def accept(k: int, outputs: dict[str, np.ndarray]) -> str:
        return "" if np.array_equal(outputs["out"], 2 * x) else f"number {k} is wrong"

    return interleaved(contenders, {"n": n}, {"x": x}, folder, accept, **{"rounds": 3, "least": 1e-4, **more})


def test_times(made: dict[str, Contender], tmp_path: Path) -> None:
    slow, good = measured([made["slow"], made["good"]], tmp_path)
    assert isinstance(slow, Timed) and isinstance(good, Timed)
    assert len(slow.rounds) == 3 and min(slow.rounds) <= slow.seconds <= max(slow.rounds)
    assert slow.seconds > 5 * good.seconds > 0, "a hundred times the work"


def test_bad_ones_are_left_out_and_the_others_measured(made: dict[str, Contender], tmp_path: Path) -> None:
    order = ["crash", "good", "wrong", "idle", "refuse", "late", "slow"]
    found = dict(zip(order, measured([made[n] for n in order], tmp_path), strict=True))
    assert isinstance(found["good"], Timed) and isinstance(found["slow"], Timed)
    assert found["crash"] == found["late"] == "the process ended with SIGABRT"
    assert found["wrong"] == "number 2 is wrong"
    assert found["idle"] == "number 3 is wrong", "cells that are not written hold no leftovers of another kernel"
    assert "refuses these sizes" in str(found["refuse"])


def test_one_that_does_not_return(made: dict[str, Contender], tmp_path: Path) -> None:
    found = measured([made["loop"], made["good"]], tmp_path, patience=2.0)
    assert found[0] == "it did not return within 2 s" and isinstance(found[1], Timed)


def test_slow_ones_are_called_once_or_less_often(made: dict[str, Contender], tmp_path: Path) -> None:
    assert "one call takes" in str(measured([made["slow"]], tmp_path, most=1e-6)[0])
    few = measured([made["slow"]], tmp_path, rounds=50, budget=1e-6)[0]
    assert isinstance(few, Timed) and len(few.rounds) == 3


def test_no_elements_and_none_to_measure(made: dict[str, Contender], tmp_path: Path) -> None:
    assert isinstance(measured([made["good"]], tmp_path, n=0)[0], Timed)
    assert measured([], tmp_path) == []


def test_alignment() -> None:
    for shape in ((3, 5), (), (0, 4)):
        a = aligned(shape, np.float64)
        assert a.shape == shape and a.dtype == np.float64 and (a.ctypes.data % 64 == 0 or not a.size)
