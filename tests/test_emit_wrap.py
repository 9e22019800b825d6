"""Rotated indices: loops cut where they wrap round, remainders out of inner loops; values and what is left of divisions."""

from __future__ import annotations

import re

import numpy as np
import pytest
from test_search import Machine

from moa_rewrite import build, emit, lang, rules, search
from moa_rewrite.build.fortran import compile_fortran
from moa_rewrite.emit.fortran import print_fortran
from moa_rewrite.emit.hoist import hoist
from moa_rewrite.emit.loops import Let, Loop, Store
from moa_rewrite.emit.wrap import shifts, wraps
from moa_rewrite.terms import Array, I, Kernel, Stage, axis, num, parse_term, size

PROGRAMS = {
    "ring": ("kernel f(a: f64[n]) -> f64[n] where n >= 1 = a + (1 θ a) × (-2 θ a)", lambda a: a + np.roll(a, -1) * np.roll(a, 2), 1),
    "far": ("kernel f(a: f64[n]) -> f64[n] where n >= 1 = (7 θ a) - (-5 θ a)", lambda a: np.roll(a, -7) - np.roll(a, 5), 1),
    "torus": (
        "kernel f(a: f64[n, m]) -> f64[n, m] where n >= 1, m >= 1 = (1 θ a) + (-1 θ a) + ((1 θ _) Ω<1> a) + ((-1 θ _) Ω<1> a)",
        lambda a: np.roll(a, -1, 0) + np.roll(a, 1, 0) + np.roll(a, -1, 1) + np.roll(a, 1, 1),
        2,
    ),
}


def lowered(name: str, target: str):
    kernel = lang.elaborate(lang.load(PROGRAMS[name][0]))
    result = search.optimize(kernel, rules.load(), Machine, {s: 4096 for s in kernel.sizes}, search.Options(timeout=120))  # noqa: C420
    return kernel, emit.lower(result.kernel, target)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.parametrize("target", ["c", "fortran"])
def test_values(name, target, tmp_path):
    kernel, program = lowered(name, target)
    assert name != "torus" or any(n.rule == "wrap" for n in program.notes)
    if target == "c":
        source = emit.print_c(program)
        f = build.load(build.compile_c(source.c_text, source.h_text, tmp_path, name=program.name), kernel, program.name)
    else:
        (tmp_path / "f.f90").write_text(print_fortran(program).f90_text, encoding="utf-8")
        f = build.load(compile_fortran(tmp_path / "f.f90"), kernel, program.name)
    _, oracle, rank = PROGRAMS[name]
    for shape in ((1, 1), (2, 3), (3, 1), (5, 4), (6, 7), (8, 9), (33, 70)):  # lengths below, at and above the shifts
        a = np.random.default_rng(3).standard_normal(shape[:rank])
        np.testing.assert_allclose(f(a), oracle(a), rtol=1e-13, atol=1e-13)


def test_the_main_loop_has_no_remainder():
    text = emit.print_c(lowered("torus", "c")[1]).c_text
    main = re.search(r"#pragma omp simd\n.*?\n *\}\n", text, re.S)
    assert main and "fmod" not in main[0] and "%" not in main[0]


def ring(body: str, place: str = "seq", stages: tuple[Stage, ...] = ()) -> Kernel:
    a, x = (Array(n, "f64", (size("n"),)) for n in "AX")
    return Kernel("f", ("n",), (), (a,), (x,), parse_term(f'for("j", n, "{place}", {body})'), stages)


def test_what_is_cut():
    plain = 'emit("once", "X", <@j>, A[(@j + 1) % n])'
    assert wraps(ring(plain), ring(plain).body) and shifts(ring(plain).body) == [1]
    for other, place in (
        (plain, "core"), ('emit("once", "X", <@j>, A[(@j + n) % n])', "seq"), ('emit("once", "X", <@j>, A[(@j + 1) % 7])', "seq"),
        ('emit("once", "X", <@j>, A[@j])', "seq"), ('for("k", n, "seq", emit("add", "X", <@j>, A[(@j + 1) % n]))', "seq"),
    ):  # fmt: skip
        assert not wraps(ring(other, place), ring(other, place).body)
    stage = Stage("T", "f64", ("j",), (size("n"),), "once", num("0.0"))
    assert not wraps(ring('emit("once", "T", <@j>, A[(@j + 1) % n])', stages=(stage,)), ring('emit("once", "T", <@j>, A[(@j + 1) % n])').body)


def test_only_safe_divisions_move():
    def loop(divisor, outer=size("n")):
        index = parse_term(f"(@i + 1) % {divisor}")
        return (Loop("i", outer, "seq", (Loop("j", size("m"), "seq", (Store("x", (index,), axis("j")),)),)),)

    def fresh(stem):
        return stem + "0"

    moved, _ = hoist(loop("n"), fresh)
    assert isinstance(moved[0].body[0], Let) and moved[0].body[1].body[0].index == (axis("r0"),)
    assert hoist(loop("8"), fresh)[1] and not hoist(loop("k"), fresh)[1]  # k may be 0 where no iteration runs
    assert not hoist((Loop("j", I(4), "seq", (Store("x", (parse_term("@j % 4"),), axis("j")),)),), fresh)[1]
