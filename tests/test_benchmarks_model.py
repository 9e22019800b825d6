"""The comparison of the cost model with measurements: rank statistics, and the sample of schedules."""

from __future__ import annotations

import itertools
import math
import pickle
import random
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from moa_rewrite import lang, machine, rules
from moa_rewrite.search.cost import Model

PROGRAM = "kernel product(A: f32[n, k], B: f32[k, m]) -> f32[n, m] = A +.× B"
SIZES = {"n": 300, "k": 200, "m": 250}


@pytest.fixture(scope="module")
def benchmarks(root: Path) -> dict[str, ModuleType]:
    """The modules of benchmarks/, which are no package."""
    sys.path.insert(0, str(root / "benchmarks"))
    try:
        import model
        import ranks
        import schedules
    finally:
        sys.path.remove(str(root / "benchmarks"))
    return {"ranks": ranks, "schedules": schedules, "model": model}


def plain_tau(p: list[float], m: list[float]) -> float:
    """Tau-b from its definition, pair by pair."""
    sign = lambda x: (x > 0) - (x < 0)  # noqa: E731
    a = [sign(x - y) for x, y in itertools.combinations(p, 2)]
    b = [sign(x - y) for x, y in itertools.combinations(m, 2)]
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def test_tau(benchmarks: dict[str, ModuleType]) -> None:
    tau = benchmarks["ranks"].tau
    assert tau([1, 2, 3], [10, 20, 30]) == 1 and tau([1, 2, 3], [3, 2, 1]) == -1
    assert tau([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(4 / 6)
    assert math.isnan(tau([1, 2], [5, 5]))
    rng = random.Random(1)
    for _ in range(20):
        p, m = ([float(rng.randint(0, 9)) for _ in range(12)] for _ in range(2))
        assert tau(p, m) == pytest.approx(plain_tau(p, m))


def test_times_that_the_measurement_cannot_tell_apart_do_not_count(benchmarks: dict[str, ModuleType]) -> None:
    tau = benchmarks["ranks"].tau
    assert tau([1, 2, 9], [1.0, 0.99, 5.0]) < 1
    assert tau([1, 2, 9], [1.0, 0.99, 5.0], same=0.03) == pytest.approx(2 / math.sqrt(3 * 2))


def test_regret(benchmarks: dict[str, ModuleType]) -> None:
    regret = benchmarks["ranks"].regret
    assert regret([3, 1, 2], [5.0, 6.0, 4.0]) == 1.5
    assert regret([3, 1, 2], [5.0, 4.0, 6.0]) == 1.0


def test_the_sample_holds_different_schedules_that_replay(benchmarks: dict[str, ModuleType]) -> None:
    """Each is priced alike after it was written to disk and read again, and realises its own text."""
    host = replace(machine.load("delta-cpu"), cores=1)
    kernel = lang.elaborate(lang.load(PROGRAM))
    laws = rules.load()
    sample = benchmarks["schedules"].sample
    found = sample(kernel, laws, host, SIZES, 20, 0)
    model = Model.of(host)
    assert len(found) == 20 and [s.role for s in found].count("chosen") == 1
    assert len({s.plan for s in found}) >= 5
    assert len({(s.form.label, s.plan, *s.tiles.items()) for s in found}) == 20
    predicted = [s.candidate(model).seconds for s in found]
    assert max(predicted) > 3 * min(predicted), "good and bad ones"
    assert predicted[0] <= min(predicted) * 1.1, "the first is the search's choice"
    again = pickle.loads(pickle.dumps(found))
    assert [s.candidate(model).seconds for s in again] == predicted
    assert predicted == [s.candidate(model).seconds for s in sample(kernel, laws, host, SIZES, 20, 0)]


def test_a_tile_size_that_a_placement_cannot_have(benchmarks: dict[str, ModuleType]) -> None:
    host = replace(machine.load("delta-cpu"), cores=1)
    kernel = lang.elaborate(lang.load(PROGRAM))
    found = benchmarks["schedules"].sample(kernel, rules.load(), host, SIZES, 12, 0)
    s = next(s for s in found if re.search(r"\.i', 'simd'", str(s.plan)))
    assert s.candidate(Model.of(host)) is not None
    assert replace(s, tiles=dict.fromkeys(s.tiles, 3)).candidate(Model.of(host)) is None, "no vector has three lanes"


def test_the_table(benchmarks: dict[str, ModuleType]) -> None:
    row = {"program": "p 4", "schedules": 31, "plans": 12, "range": 8.0, "tau": 0.71, "regret": 1.2, "measured_over_predicted": 0.9}
    text = benchmarks["model"].table([row, {**row, "program": "q 5", "regret": 1.0, "tau": 0.65}])
    assert "| p 4 | 31 | 12 | 8.0 | 0.71 | 1.20 | 0.90 |" in text
    assert "Regret: median 1.10, worst 1.20; least tau 0.65." in text
