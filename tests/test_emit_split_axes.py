"""An axis that one nest loops over as it is and another nest splits further: lanes beyond the last cell must not be stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moa_rewrite.build import compile_c, load
from moa_rewrite.emit import Options, lower, print_c
from moa_rewrite.terms import Array, Kernel, Stage, parse_term, size

N = size("n")
TILE = "min(64, n - @j.o*64)"
KERNEL = Kernel(
    "split", ("n",), (), (Array("A", "f32", (N,)),), (Array("out", "f32", (N,)),),
    parse_term(
        'for("j.o", (n + 64 - 1) // 64, "seq", new("S", seq('
        f'for("j.i.o", ({TILE} + 16 - 1) // 16, "seq", for("j.i.i", min(16, {TILE} - @j.i.o*16), "simd", emit("once", "S", <@j>, A[@j] * 2.0))),'
        f'for("j.i", {TILE}, "simd", emit("once", "out", <@j>, S[@j] + 1.0)))))'
    ),
    (Stage("S", "f32", ("j",), (N,), "once", parse_term("A[@j] * 2.0")),),
    (("j", parse_term("@j.o*64 + @j.i")), ("j.i", parse_term("@j.i.o*16 + @j.i.i"))),
)  # fmt: skip


@pytest.mark.parametrize("n", [0, 1, 16, 40, 64, 100])
def test_nothing_is_stored_beyond_the_end(tmp_path: Path, n: int, need) -> None:
    need("gcc")
    prog = lower(KERNEL, "c", Options())
    src = print_c(prog)
    kernel = load(compile_c(src.c_text, src.h_text, tmp_path, prog.name), KERNEL, prog.name)
    a = np.arange(n, dtype=np.float32)
    out = np.full(n + 128, -7, np.float32)
    kernel.run({"n": n}, {"A": a}, {"out": out})
    np.testing.assert_array_equal(out[:n], 2 * a + 1)
    np.testing.assert_array_equal(out[n:], -7)
