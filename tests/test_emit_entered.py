"""Register tiles ask whether their loop runs at all: both ways give the same values, and accumulators are not stored on the way."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from test_search import Machine
from through_c import compiled

from moa_rewrite import build, emit, lang, rules, search
from moa_rewrite.emit.entered import entered
from moa_rewrite.emit.loops import Declare, If, Let, Loop, Store
from moa_rewrite.terms import I, axis, parse_term, size

PRODUCT = "kernel f(A: f32[n, k], B: f32[k, m]) -> f32[n, m] = A +.× B"
INIT = Loop("j", I(4), "simd", (Store("acc", (axis("j"),), I(0)),), 4)
FLUSH = Loop("j", I(4), "simd", (Store("C", (axis("j"),), parse_term("acc[@j]")),), 4)


def main(extent: str, trip: int | None = None) -> Loop:
    return Loop("p", parse_term(extent), "seq", (INIT,), trip)


def test_the_loop_is_left_out_where_it_would_not_run() -> None:
    body = (Declare("acc"), INIT, main("k"), FLUSH)
    assert entered(body) == (Declare("acc"), If(parse_term("0 < k"), (INIT, main("k"), FLUSH), (INIT, FLUSH)))


def test_what_the_extent_needs_stays_before_the_test() -> None:
    rows = Let("rows", size("k"))
    assert entered((Declare("acc"), rows, INIT, main("@rows"), FLUSH))[:2] == (Declare("acc"), rows)
    late = (Declare("acc"), INIT, rows, main("@rows"), FLUSH)
    assert entered(late) == late


def test_other_tiles_stay() -> None:
    for body in [(Declare("acc"), INIT, main("8", 8), FLUSH), (Declare("acc"), INIT, FLUSH), (Declare("acc"), main("k"), main("n"))]:
        assert entered(body) == body


@pytest.mark.parametrize("k", [0, 1, 5, 64])
def test_values(k: int, tmp_path: Path) -> None:
    f = compiled(PRODUCT, tmp_path, n=256, m=256, k=256)
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-3, 4, s).astype(np.float32) for s in ((37, k), (k, 50)))
    assert np.array_equal(f(a, b), a @ b)


def test_compilers_keep_the_accumulators_in_registers(tmp_path: Path) -> None:
    """In the full tile of a product there are at least twice as many stores of vectors without the test."""
    kernel = lang.elaborate(lang.load(PRODUCT))
    result = search.optimize(kernel, rules.load(), Machine, {"n": 256, "m": 256, "k": 256}, search.Options(timeout=120))
    source = emit.print_c(emit.lower(result.kernel, "c"))
    stored = stores(source.c_text, source.h_text, tmp_path)
    plain = re.sub(r"if \(0 < [^{]*\) \{\n((?:(?!\n    \} else \{).)*)\n    \} else \{.*?\n    \}\n", r"{\n\1\n    }\n", source.c_text, flags=re.S)
    assert plain != source.c_text
    assert 2 * stored <= stores(plain, source.h_text, tmp_path)


def stores(c_text: str, h_text: str, folder: Path) -> int:
    """Stores of vectors in the assembly of the first tile, for registers of 32 bytes."""
    flags = ("-std=c11", "-O3", "-mavx2", "-mfma", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-S")
    assembly = build.compile_c(c_text, h_text, folder, name="f", flags=flags).read_text(encoding="utf-8")
    body = re.search(r"^f_tile1:.*?\.size\s+f_tile1", assembly, re.S | re.M)
    assert body is not None
    return len(re.findall(r"^\s*vmov\w+\s+%[xy]mm\d+, ", body.group(0), re.M))
