"""Scans run in one pass: the values of NumPy's, and an amount of work that grows with the length, not with its square."""

from __future__ import annotations

import numpy as np
import pytest
from test_search import Machine

from moa_rewrite import build, emit, lang, rules, search
from moa_rewrite.build.fortran import compile_fortran
from moa_rewrite.emit.carry import scan
from moa_rewrite.emit.fortran import print_fortran
from moa_rewrite.terms import Array, Kernel, parse_term, size

PROGRAMS = {
    "one axis": ("kernel f(x: f64[n]) -> f64[n] = + scan x", lambda x: np.cumsum(x), (1,)),
    "rows": ("kernel f(x: f64[n, m]) -> f64[n, m] = (+ scan _) Ω<1> x", lambda x: np.cumsum(x, 1), (2,)),
    "columns": ("kernel f(x: f64[n, m]) -> f64[n, m] = + scan x", lambda x: np.cumsum(x, 0), (2,)),
    "running maximum": ("kernel f(x: f64[n]) -> f64[n] = max scan x", lambda x: np.maximum.accumulate(x), (1,)),
    "used again": ("kernel f(x: f64[n]) -> f64[n] = let s = + scan (x × x) in s ÷ (1 + s)", lambda x: np.cumsum(x * x) / (1 + np.cumsum(x * x)), (1,)),
}


def compiled(text: str, tmp_path, fortran: bool = False):
    kernel = lang.elaborate(lang.load(text))
    result = search.optimize(kernel, rules.load(), Machine, dict.fromkeys(kernel.sizes, 64), search.Options(timeout=120))
    program = emit.lower(result.kernel, "fortran" if fortran else "c")
    assert any(n.rule == "carry" for n in program.notes)
    if fortran:
        (tmp_path / "f.f90").write_text(print_fortran(program).f90_text, encoding="utf-8")
        return build.load(compile_fortran(tmp_path / "f.f90"), kernel, program.name)
    source = emit.print_c(program)
    return build.load(build.compile_c(source.c_text, source.h_text, tmp_path, name=program.name), kernel, program.name)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.parametrize("fortran", [False, True])
def test_values(name, fortran, tmp_path):
    text, oracle, (rank,) = PROGRAMS[name]
    f = compiled(text, tmp_path, fortran)
    for shape in ((0, 0), (1, 1), (5, 3), (37, 29), (0, 4), (4, 0)):
        x = np.random.default_rng(2).standard_normal(shape[:rank])
        np.testing.assert_allclose(f(x=x, sizes=dict(zip("nm", shape[:rank], strict=False))), oracle(x), rtol=1e-12, atol=1e-12)


def test_a_million_elements_take_no_million_squared(tmp_path):
    f = compiled(PROGRAMS["one axis"][0], tmp_path)
    x = np.ones(1_000_000)
    assert f(x=x)[-1] == 1_000_000.0  # the square would take minutes


@pytest.mark.parametrize(
    "body",
    [
        'for("i", n, "core", for("k", @i + 1, "seq", emit("add", "X", <@i>, A[@k])))',  # not in sequence
        'for("i", n, "seq", for("k", @i + 1, "seq", emit("add", "X", <@i>, A[@k] * A[@i])))',  # depends on i
        'for("i", n, "seq", for("k", @i + 2, "seq", emit("add", "X", <@i>, A[@k])))',  # another extent
        'for("i", n, "seq", for("k", @i + 1, "seq", emit("add", "X", <0>, A[@k])))',  # one cell for all i
    ],
)
def test_other_loops_are_not_carried(body):
    kernel = Kernel("f", ("n",), (), (Array("A", "f64", (size("n"),)),), (Array("X", "f64", (size("n"),)),), parse_term(body))
    assert not scan(kernel, kernel.body)
