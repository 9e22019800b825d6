"""Long sums in two levels: values, errors, and which loops are cut."""

from __future__ import annotations

import numpy as np
import pytest
from test_search import Machine

from moa_rewrite import build, emit, lang, rules, search
from moa_rewrite.emit.blocks import BLOCK, LEAST

LANES = 32  # of a sum in f32: four vectors of 32 bytes


def lowered(text: str):
    kernel = lang.elaborate(lang.load(text))
    onf = search.optimize(kernel, rules.load(), Machine, dict.fromkeys(kernel.sizes, 1 << 20), search.Options(timeout=120)).kernel
    return kernel, emit.lower(onf, "c")


def compiled(text: str, folder):
    kernel, program = lowered(text)
    source = emit.print_c(program)
    return build.load(build.compile_c(source.c_text, source.h_text, folder, name=program.name), kernel, program.name)


@pytest.mark.parametrize("extra", [-LANES, 0, 1, LANES - 1, LANES, LANES * BLOCK, LANES * BLOCK + LANES + 5])
def test_values_around_the_least_length(extra, tmp_path):
    """Small integers: every order of additions is exact."""
    f = compiled("kernel f(x: f32[n], y: f32[n]) -> f32 = + red (x × y)", tmp_path)
    n = LEAST * LANES + extra
    rng = np.random.default_rng(4)
    x, y = (rng.integers(-2, 3, n).astype(np.float32) for _ in range(2))
    assert f(x, y) == (x.astype(np.float64) * y).sum()


def test_errors_are_those_of_short_sums(tmp_path):
    """4 Mi times the same number: added in a row, 2**17 roundings in each lane, nearly all in one direction."""
    f = compiled("kernel f(x: f32[n]) -> f32 = + red x", tmp_path)
    n = 1 << 22
    one = np.float32(0.1)
    in_a_row = float(np.cumsum(np.full(n // LANES, one))[-1]) * LANES
    want = float(one) * n
    assert abs(in_a_row - want) / want > 2e-5  # what the second level is for
    assert abs(float(f(np.full(n, one))) - want) / want < 4e-6


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("kernel f(x: f32[n]) -> f32 = + red x", True),
        ("kernel f(x: f64[n]) -> f64 = + red (x × x)", True),
        ("kernel f(x: f32[n]) -> f32 = max red x", False),  # no rounding
        ("kernel f(x: i64[n]) -> i64 = + red x", False),
        ("kernel f(x: f32[n, m]) -> f32[n] = + red Ω<1> x", False),  # rows
    ],
)
def test_what_is_cut(text, cut):
    assert any(n.rule == "blocks" for n in lowered(text)[1].notes) == cut
