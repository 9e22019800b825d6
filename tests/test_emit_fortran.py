"""Emitted Fortran: the cases of the C printer, against the interpreter of statements and against the C."""

from __future__ import annotations

import re

import numpy as np
import onf
import pytest
from test_emit_c import CASES, agree, values
from test_emit_c import build as build_c

from moa_rewrite.build import LoadedKernel, load
from moa_rewrite.build.fortran import compile_fortran
from moa_rewrite.emit import Options, lower
from moa_rewrite.emit.fortran import layout_obligation, print_fortran, wrap
from moa_rewrite.terms import Kernel


def build(k: Kernel, where, options: Options | None = None) -> LoadedKernel:
    prog = lower(k, "fortran", options)
    source = where / f"{prog.name}.f90"
    source.write_text(print_fortran(prog).f90_text, encoding="utf-8")
    return load(compile_fortran(source), k, prog.name)


@pytest.mark.parametrize("n", range(len(CASES)), ids=[f"{k.name}-{n}" for n, (k, _) in enumerate(CASES)])
def test_values(n, tmp_path):
    k, cases = CASES[n]
    f = build(k, tmp_path)
    for sizes in cases:
        agree(f, dict(zip(k.sizes, sizes, strict=True)))


def test_same_answers_as_c(tmp_path):
    k = onf.attention("f32")
    sizes = {"H": 2, "n": 37, "m": 90, "D": 13}
    x = values(k, sizes)
    a, b = (build_it(k, tmp_path)(sizes=sizes, **x) for build_it in (build, build_c))
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def evaluate(t, env):
    a = [evaluate(k, env) for k in t.kids()]
    match t.op:
        case "int":
            return t.args[0]
        case "axis" | "size":
            return env[t.args[0]]
        case "add":
            return a[0] + a[1]
        case "mul":
            return a[0] * a[1]
    raise ValueError(t.op)


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4), (2, 1, 3, 2)])
def test_layout_obligation_states_what_numpy_does(shape):
    row, column = layout_obligation(len(shape))
    order_c = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    order_f = np.arange(np.prod(shape, dtype=int)).reshape(shape[::-1], order="F")
    for index in np.ndindex(*shape):
        env = {f"i{k}": v for k, v in enumerate(index)} | {f"s{k}": v for k, v in enumerate(shape)}
        assert evaluate(row, env) == order_c[index] and evaluate(column, env) == order_f[index[::-1]]
        assert order_c[index] == order_f[index[::-1]]


def test_lines_are_within_the_standard_and_sizes_are_64_bit():
    for k, _ in CASES:
        text = print_fortran(lower(k, "fortran")).f90_text
        assert max(map(len, text.splitlines())) <= 132
        assert f"integer(c_int64_t), value :: {', '.join(lower(k).sizes)}\n" in text
        assert "ishft" not in text


def test_continued_lines_are_the_same_line():
    line = "  x = " + " + ".join(f"a({i}, {i + 1})" for i in range(60))
    parts = wrap(line)
    assert len(parts) > 3 and max(map(len, parts)) <= 132
    assert re.sub(r" &\n\s*", " ", "\n".join(parts)) == line
    assert all(p.lstrip().startswith("!$omp") for p in wrap("  !$omp simd " + " ".join(f"reduction(+:a{i})" for i in range(20))))
