"""What people read: kernels as loops and formulas, numbers with units."""

from __future__ import annotations

import pytest

from moa_rewrite.report import pretty, units
from moa_rewrite.terms import Array, Kernel, Stage, parse_term, size

t = parse_term
N, M, D = size("n"), size("m"), size("d")
STAGE = Stage("S", "f32", ("i", "k"), (N, M), "add", t("0"))
ONF = Kernel(
    "scores", ("n", "m", "d"), (t("0 < m"),), (Array("Q", "f32", (N, D)), Array("K", "f32", (M, D)), Array("c", "f32", ())), (Array("O", "f32", (N,)),),
    t(
        'for("i.o", (n + 63) // 64, "core", for("i.i", min(64, n - @i.o*64), "seq", new("S", seq('
        'for("k", m, "seq", for("j", d, "simd", emit("add", "S", <@i, @k>, Q[@i, @j] * K[@k, @j]))),'
        'guard(@i < n - 1, for("k", m, "seq", emit("osm", "O", <@i>, pair(S[@i, @k] / c[], K[@k, 0]))))))))'
    ),
    (STAGE,), (("i", t("@i.o*64 + @i.i")),),
)  # fmt: skip


def test_loops() -> None:
    assert pretty.onf(ONF).splitlines() == [
        "kernel scores(Q: f32[n, d], K: f32[m, d], c: f32) -> O: f32[n]",
        "  where 0 < m",
        "  i = i.o * 64 + i.i",
        "  for i.o:ceil(n / 64)  core",
        "    for i.i:min(64, n - i.o * 64)",
        "      stage S: f32[k < m]",
        "      for k:m",
        "        for j:d  simd",
        "          S[i, k] += Q[i, j] * K[k, j]",
        "      if i < n - 1",
        "        for k:m",
        "          O[i] += exp(S[i, k] / c - running max) * K[k, 0]",
    ]


def test_brief_loops_show_the_most_iterations() -> None:
    body = t('for("i", n, "seq", for("j", min(64, n - @i), "simd", for("k", (min(64, n - @i) + 16 - 1) // 16, "seq", for("l", 6, "unroll", skip()))))')
    assert pretty.loop_lines(ONF.with_body(body)) == ["for i:n", "  for j:<=64  simd", "    for k:<=4", "      for l:6  unroll", "        skip"]


def test_a_stage_outside_a_tile_loop_keeps_the_tile() -> None:
    tile = t('for("i.o", (n + 63) // 64, "seq", new("S", for("k", m, "seq", for("i.i", min(64, n - @i.o*64), "seq", emit("once", "S", <@i, @k>, Q[@i, @k])))))')
    assert "    stage S: f32[i.i < 64, k < m]" in pretty.onf(ONF.with_body(tile)).splitlines()
    whole = t('new("S", for("i", n, "seq", skip()))')
    assert "  stage S: f32[i < n, k < m]" in pretty.onf(ONF.with_body(whole)).splitlines()


def test_a_stage_inside_two_levels_of_tiles() -> None:
    defs = (("i", t("@i.o*64 + @i.i")), ("i.i", t("@i.i.o*16 + @i.i.i")))
    k = Kernel(ONF.name, ONF.sizes, (), ONF.inputs, ONF.outputs, ONF.body, ONF.stages, defs)
    inner = 'for("i.i.i", 16, "seq", skip())'
    between = t(f'for("i.o", n, "seq", new("S", for("i.i.o", 4, "seq", {inner})))')
    inside = t(f'for("i.o", n, "seq", for("i.i.o", 4, "seq", new("S", {inner})))')
    other = t(f'for("i.i.i", 16, "seq", new("S", for("i.o", n, "seq", {inner})))')
    whole = t('for("i.o", n, "seq", for("i.i", 64, "seq", new("S", skip())))')
    assert "stage S: f32[k < m]" in pretty.onf(k.with_body(whole))
    for body, stage in ((between, "i.i < 64"), (inside, "i.i.i < 16"), (other, "i < n")):
        assert f"stage S: f32[{stage}, k < m]" in pretty.onf(k.with_body(body))


def test_a_formula_names_what_occurs_twice() -> None:
    e = 'exp(reduce("add", "j", d, Q[@i, @j]*K[@k, @j]) - reduce("max", "h", m, reduce("add", "j", d, Q[@i, @j]*K[@h, @j])))'
    body = t(f'for("i", n, "seq", emit("once", "O", <@i>, reduce("add", "k", m, {e} * K[@k, 0]) / reduce("add", "k", m, {e})))')
    assert pretty.formula(ONF.with_body(body)).splitlines()[3:] == [
        "  t1[i, k] = exp((sum[j < d] Q[i, j] * K[k, j]) - (max[h < m] sum[j < d] Q[i, j] * K[h, j]))",
        "  O[i] = (sum[k < m] t1[i, k] * K[k, 0]) / (sum[k < m] t1[i, k])",
    ]


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ("a - (b - c)", "a - (b - c)"),
        ("(a + b) * c", "(a + b) * c"),
        ("a - b - c", "a - b - c"),
        ("-(a + b)", "-(a + b)"),
        ("a * -3", "a * -3"),
        ("not (a < b and c < a)", "not (a < b and c < a)"),
        ("select(a < b, X[@i], 0.0) * c", "(X[i] if a < b else 0.0) * c"),
        ("pow(a + b, 2)", "(a + b)^2"),
        ('cast("f32", n)', "f32(n)"),
        ("(n + 7) // 8", "ceil(n / 8)"),
        ("(n + 64 - 1) // 64", "ceil(n / 64)"),
        ("(n + m + 7) // 8 * 2", "ceil((n + m) / 8) * 2"),
        ("(n + 7) // 9", "(n + 7) // 9"),
        ('psi(<@i>, red("add", 1, "k", m, arr("A")))', "(sum[axis 1] A)[i]"),
        ("n % 4", "n mod 4"),
        ('snd(reduce("osm", "k", m, pair(S[@k], V[@k]))) / n', "(sum[k < m] exp(S[k] - max) * V[k]) / n"),
        ('snd(reduce("osm", "k", m, pair(S[@k], 1.0)))', "sum[k < m] exp(S[k] - max)"),
    ],
)
def test_expressions_keep_their_meaning(term: str, text: str) -> None:
    assert pretty.expression(t(term)) == text


def test_units() -> None:
    assert [units.size(n) for n in (0, 999, 98304, 2**30)] == ["0 B", "999 B", "96 KiB", "1 GiB"]
    assert [units.seconds(s) for s in (0, 3e-9, 0.00123, 0.99999, 12.345)] == ["0 ns", "3 ns", "1.23 ms", "1 s", "12.3 s"]
    assert [units.rate(r, "B/s") for r in (51.2e9, 3)] == ["51.2 GB/s", "3 B/s"]
    assert [units.count(n, "entry", "entries") for n in (1, 1234)] == ["1 entry", "1,234 entries"]
