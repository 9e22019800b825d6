"""Rows that go past the caches, running sums on lanes, what is fetched ahead: values against NumPy at sizes and alignments that leave heads and remainders."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from test_search import Machine

from moa_rewrite import build, emit, lang, rules, search
from moa_rewrite.emit.fold import fold
from moa_rewrite.emit.fortran import print_fortran
from moa_rewrite.emit.osm import shifted
from moa_rewrite.emit.rows import rows, scoped
from moa_rewrite.emit.stream import PIECE, ROW
from moa_rewrite.emit.wrap import own
from moa_rewrite.terms import Array, Kernel, Stage, parse_term, size

SOFT = "let e = exp(x - Ω<1,0> (max red Ω<1> x)) in e ÷ Ω<1,0> (+ red Ω<1> e)"


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return e / e.sum(-1, keepdims=True)


def torus(a):
    return np.roll(a, -1, 0) + np.roll(a, 1, 0) + np.roll(a, -1, 1) + np.roll(a, 1, 1)


# text with T for the type; the answer for inputs of the shapes
PROGRAMS = {
    "product": ("kernel f(x: T[n], y: T[m]) -> T[n, m] = x •× y", lambda x, y: np.outer(x, y), ("n", "m")),
    "squares": ("kernel f(x: T[n, m]) -> T[n, m] = x × x + 1", lambda x: x * x + 1, ("nm",)),
    "vector": ("kernel f(x: T[m]) -> T[m] = 2 × x", lambda x: 2 * x, ("m",)),
    "softmax": (f"kernel f(x: T[n, m]) -> T[n, m] = {SOFT}", softmax, ("nm",)),
    "norm": (
        "kernel f(x: T[n, m], g: T[m], eps: T) -> T[n, m] where m >= 1 = rmsnorm(_, g, eps) Ω<1> x",
        lambda x, g: g * x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.5),
        ("nm", "m"),
    ),
    "torus": (
        "kernel f(a: T[n, m]) -> T[n, m] where n >= 1, m >= 1 = (1 θ a) + (-1 θ a) + ((1 θ _) Ω<1> a) + ((-1 θ _) Ω<1> a)", torus, ("nm",),
    ),
    "torus twice": (
        """kernel f(a: T[n, m]) -> T[n, m] where n >= 1, m >= 1
             = def step(b) = (1 θ b) + (-1 θ b) + ((1 θ _) Ω<1> b) + ((-1 θ _) Ω<1> b) in step(step(a))""",
        lambda a: torus(torus(a)), ("nm",),
    ),
    "interior": ("kernel f(a: T[n, m]) -> T[n, m - 2] where m >= 2 = ((2 ↓ _) Ω<1> a) - ((-2 ↓ _) Ω<1> a)", lambda a: a[:, 2:] - a[:, :-2], ("nm",)),
    "two": ("kernel f(x: T[n, m]) -> (p: T[n, m], q: T[n, m]) = (x + 1, 2 × x)", lambda x: (x + 1, 2 * x), ("nm",)),
    "scan": ("kernel f(x: T[m]) -> T[m] = + scan x", np.cumsum, ("m",)),
    "scan of rows": ("kernel f(x: T[n, m]) -> T[n, m] = (+ scan _) Ω<1> (x × x)", lambda x: np.cumsum(x * x, 1), ("nm",)),
    "scan, then more": ("kernel f(x: T[m]) -> T[m] = let s = + scan (x × x) in s ÷ (1 + s)", lambda x: np.cumsum(x * x) / (1 + np.cumsum(x * x)), ("m",)),
    "running maximum": ("kernel f(x: T[m]) -> T[m] = max scan x", np.maximum.accumulate, ("m",)),
    "running minimum": ("kernel f(x: T[n, m]) -> T[n, m] = (min scan _) Ω<1> x", lambda x: np.minimum.accumulate(x, 1), ("nm",)),
    "running product": ("kernel f(x: T[m]) -> T[m] = × scan (1 + x ÷ 1000)", lambda x: np.cumprod(1 + x / 1000), ("m",)),
}  # fmt: skip
SHAPES = ((0, 1500), (3, 0), (1, 1), (2, 3), (3, 1023), (5, 1024), (9, 1030), (2, 4099), (130, 1111))


@cache
def optimized(name: str, dtype: str):
    kernel = lang.elaborate(lang.load(PROGRAMS[name][0].replace("T[", f"{dtype}[").replace(": T)", f": {dtype})")))
    return kernel, search.optimize(kernel, rules.load(), Machine, dict.fromkeys(kernel.sizes, 2048), search.Options(timeout=120)).kernel


def lowered(name: str, dtype: str = "f32", cache_bytes: int = 64):
    kernel, onf = optimized(name, dtype)
    return kernel, emit.lower(onf, "c", emit.Options(cache_bytes=cache_bytes))


def loaded(name: str, dtype: str, folder):
    kernel, program = lowered(name, dtype)
    source = emit.print_c(program)
    extra = () if dtype == "f32" else ("-mno-avx512f",)  # the other width of vectors
    so = build.compile_c(source.c_text, source.h_text, folder, name=program.name, extra=extra)
    return kernel, program, build.load(so, kernel, program.name)


def shifted_by(shape, dtype, elements: int):
    """An array whose first element is so many elements past a line's boundary, and the 16 elements on either side of it, which nothing may write."""
    item = np.dtype(dtype).itemsize
    count = int(np.prod(shape))
    raw = np.full(count + 48 + 64 // item, 77, dtype)
    start = -raw.ctypes.data % 64 // item + 16 + elements
    return raw[start : start + count].reshape(shape), raw[start - 16 : start], raw[start + count : start + count + 16]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_values(name, dtype, tmp_path):
    kernel, program, f = loaded(name, dtype, tmp_path)
    assert any(loop.stream or loop.scan for loop in emit_loops(program.body))
    _, oracle, shapes = PROGRAMS[name]
    ty = {"f32": np.float32, "f64": np.float64}[dtype]
    rng = np.random.default_rng(5)
    for number, (n, m) in enumerate(SHAPES):
        if any("where" in PROGRAMS[name][0] and s < least for s, least in ((n, 1), (m, 2))):
            continue
        sizes = {s: v for s, v in (("n", n), ("m", m)) if s in kernel.sizes}
        arrays = [rng.standard_normal([sizes[s] for s in shape]).astype(ty) for shape in shapes]
        bound, ready = f.prepare(*arrays, *([ty(0.5)] if name == "norm" else []), sizes=sizes)
        made = {a: shifted_by(v.shape, ty, number % 5) for a, v in f.outputs(bound).items()}
        f.run(bound, ready, {a: v[0] for a, v in made.items()})
        want = oracle(*(a.astype(np.float64) for a in arrays))
        for (got, before, after), w in zip(made.values(), want if isinstance(want, tuple) else (want,), strict=True):
            assert (before == 77).all() and (after == 77).all()
            scale = max(1.0, float(np.abs(w).max(initial=0.0))) * (m if name == "running product" else 64)  # roundings that add up
            np.testing.assert_allclose(got, w, rtol=0, atol=scale * np.finfo(ty).eps, err_msg=f"{n} x {m}")


def emit_loops(body):
    return [n for n in emit.loops.nodes(body) if isinstance(n, emit.loops.Loop)]


def test_integers_and_special_values_in_scans(tmp_path):
    text = "kernel f(x: i32[m], y: f32[m]) -> (s: i32[m], t: f32[m]) = (+ scan x, max scan y)"
    kernel = lang.elaborate(lang.load(text))
    onf = search.optimize(kernel, rules.load(), Machine, {"m": 512}, search.Options(timeout=120)).kernel
    program = emit.lower(onf, "c")
    assert [loop.scan for loop in emit_loops(program.body) if loop.scan] == ["add", "max"]
    source = emit.print_c(program)
    f = build.load(build.compile_c(source.c_text, source.h_text, tmp_path, name=program.name), kernel, program.name)
    x = np.random.default_rng(1).integers(-1000, 1000, 700).astype(np.int32)
    y = np.linspace(-3, 3, 700, dtype=np.float32)
    y[[5, 400]] = -np.inf, np.nan
    s, t = f(x, y)
    np.testing.assert_array_equal(s, np.cumsum(x))
    np.testing.assert_array_equal(t, np.maximum.accumulate(y))  # NaN from element 400 on


# --- what streams --------------------------------------------------------------------------------------------------------------------------


def test_the_size_decides_when_it_runs():
    """The plain version stands beside the other, word for word; without a cache's size there is no other."""
    _, program = lowered("squares", cache_bytes=32 << 20)
    (both,) = program.body
    assert isinstance(both, emit.loops.If) and both.other == lowered("squares", cache_bytes=0)[1].body
    text = emit.print_c(program).c_text
    assert f"8388608.0 < 4.0 * (double)n * (double)m && {ROW // 4} <= m" in text
    assert text.count("moarw_stream(") == 1 and text.count("moarw_fence();") == 1
    assert "moarw_fence" not in emit.print_c(lowered("squares", cache_bytes=0)[1]).c_text


def test_the_fence_stands_in_the_parallel_region():
    text = emit.print_c(lowered("squares")[1]).c_text
    region = text[text.index("#pragma omp parallel") :]
    assert re.search(r"#pragma omp for[^\n]*\n( *)for .*?\n\1}\n\1moarw_fence\(\);\n", region, re.S)


def test_what_does_not_stream():
    """An element a row; the text is that without a cache."""
    kernel = lang.elaborate(lang.load("kernel f(x: f32[n, m]) -> f32[n] = + red Ω<1> x"))
    onf = search.optimize(kernel, rules.load(), Machine, {"n": 2048, "m": 2048}, search.Options(timeout=120)).kernel
    program = emit.lower(onf, "c", emit.Options(cache_bytes=64))
    assert emit.print_c(program) == emit.print_c(emit.lower(onf, "c"))


def test_outputs_that_are_read_again_do_not_stream():
    k = tiled("A[@i, @j]")
    again = parse_term('for("i", n, "core", for("j", m, "simd", emit("once", "X", <@i, @j>, A[@i, @j] + X[@i, 0])))')
    k = Kernel(k.name, k.sizes, k.where, k.inputs, k.outputs, again)
    assert not any(loop.stream for loop in emit_loops(emit.lower(k, "c", emit.Options(cache_bytes=64)).body))


def test_other_targets_do_not_stream():
    _, onf = optimized("scan of rows", "f32")
    program = emit.lower(onf, "fortran", emit.Options(cache_bytes=64))
    assert not any(loop.piece for loop in emit_loops(program.body)) and "do" in print_fortran(program).f90_text


# --- rows ----------------------------------------------------------------------------------------------------------------------------------

N, M = size("n"), size("m")
TILED = (
    'for("i.o", (n + 7) // 8, "core", for("j.o", (m + 128 - 1) // 128, "seq", for("i.i", min(8, n - @i.o * 8), "unroll", '
    'for("j.i", min(128, m - @j.o * 128), "simd", emit("once", "X", <@i, @j>, {value})))))'
)


def tiled(value: str, text: str = TILED, stages: tuple[Stage, ...] = ()) -> Kernel:
    arrays = tuple(Array(n, "f32", (N, M)) for n in "ABX")
    defs = (("i", parse_term("@i.o * 8 + @i.i")), ("j", parse_term("@j.o * 128 + @j.i")))
    return Kernel("f", ("n", "m"), (), arrays[:2], arrays[2:], parse_term(text.replace("{value}", value)), stages, defs)


def test_tiles_of_a_row_are_joined():
    body, notes = rows(tiled("A[@i, @j] * B[0, @j]"))
    want = 'for("i.o", (n + 7) // 8, "core", for("i.i", min(8, n - @i.o * 8), "seq", for("j", m, "simd", emit("once", "X", <@i, @j>, A[@i, @j] * B[0, @j]))))'
    assert body is parse_term(want) and notes == [("rows", "X: j.o, j.i as j, innermost")]


@pytest.mark.parametrize(
    "value",
    [
        "A[@j, @i]",  # down a column
        "A[@i, m - 1 - @j]",  # backwards
        "A[@i, 2 * @j]",
        'cast("f32", @j.o)',  # needs a part of the row's axis
        'cast("f32", @j.i) * A[@i, @j]',
    ],
)
def test_tiles_that_stay(value):
    k = tiled(value)
    assert rows(k) == (k.body, [])


ROWS = (
    'new("P", seq(for("i", n, "seq", new("S", seq(for("j", m, "simd", emit("add", "S", <@i>, A[@i, @j])), emit("once", "P", <@i>, S[@i])))), '
    'for("i", n, "seq", for("j", m, "simd", emit("once", "X", <@i, @j>, A[@i, @j] / {value})))))'
)


def two_passes(value: str) -> Kernel:
    one = parse_term("1.0")
    stages = tuple(Stage(n, "f32", ("i",), (N,), monoid, one) for n, monoid in (("P", "once"), ("S", "add")))
    k = tiled(value, ROWS)
    return Kernel(k.name, k.sizes, k.where, k.inputs, k.outputs, k.body, stages)


def test_loops_over_rows_become_one_where_each_needs_its_own():
    body, notes = rows(two_passes("P[@i]"))
    assert [t.args[0] for t in _fors(body)] == ["i", "j", "j"] and notes == [("fuse", "the loops over i, row by row")]


@pytest.mark.parametrize("value", ["P[0]", "P[n - 1 - @i]", "(P[@i] + P[0])"])
def test_loops_that_need_other_rows_stay(value):
    k = two_passes(value)
    assert rows(k) == (k.body, [])


def _fors(t):
    return [t, *_fors(t.args[3])] if t.op == "for" else [f for a in t.kids() for f in _fors(a)] if t.op in ("seq", "new", "guard") else []


def test_a_row_is_filled_where_it_is_summed():
    text = emit.print_c(lowered("softmax")[1]).c_text
    assert re.search(r"E0\[j\] = moarw_expn_f32\(x\[i \* m \+ j\] - S0\w*\);\n *acc\w*\[\w+\] \+= E0\[j\];", text)


BUFFERED = (
    'for("i", n, "core", new("E", seq(for("j", m, "simd", emit("once", "E", <@i, @j>, A[@i, @j])), '
    'for("j", m, "simd", emit("once", "X", <@i, @j>, E[@i, @j])))))'
)


def test_a_workspace_serves_both_versions():
    k = tiled("", BUFFERED)
    k = Kernel(k.name, k.sizes, k.where, k.inputs, k.outputs, k.body, (Stage("E", "f32", ("i", "j"), (N, M), "once", parse_term("A[@i, @j]")),))
    program = emit.lower(k, "c", emit.Options(cache_bytes=64))
    assert any(loop.stream for loop in emit_loops(program.body)) and len(program.workspaces) == 1


def test_scope_moves_only_what_the_stage_does_not_need():
    def text(value):
        return f'seq(for("j", m, "simd", emit("once", "E", <@j>, {value})), new("S", seq(for("j", m, "simd", emit("add", "S", <>, E[@j])), skip)))'

    moved = scoped(parse_term(text("A[0, @j]")))
    assert moved.op == "new" and moved.args[1].op == "seq"
    assert scoped(parse_term(text("S[]"))).op == "seq"


# --- what is fetched -----------------------------------------------------------------------------------------------------------------------


def test_the_next_row_is_fetched_by_the_loop_that_computes_most():
    """Of softmax's three loops over a row the second: the exponentials. Of the others' rows, what the loop reads, a little ahead."""
    notes = {n.text for n in lowered("softmax")[1].notes if n.rule == "prefetch"}
    (note,) = notes
    assert note.startswith("x: the row of the next i while")
    _, program = lowered("softmax")
    (loop,) = [n for n in emit_loops(program.body) if n.ahead]
    assert len(loop.ahead) == loop.body[0].trip * 4 // 64 and not loop.piece
    assert {n.text for n in lowered("interior")[1].notes if n.rule == "prefetch"} == {"a: 4096 bytes ahead of j"}
    assert not [n for n in lowered("product")[1].notes if n.rule == "prefetch"]  # y is read again in every row


# --- indices and exponentials --------------------------------------------------------------------------------------------------------------


def test_remainders_of_remainders():
    assert fold(parse_term("((@j + 1) % n + 1) % n")) is parse_term("(@j + 2) % n")
    assert fold(parse_term("((@j - 1) % n + 1) % n")) is parse_term("@j % n")
    assert fold(parse_term("((@j - 1) % n - 2) % n")) is parse_term("(@j - 3) % n")
    assert fold(parse_term("((@j - 1) % m + 1) % n")) is parse_term("((@j - 1) % m + 1) % n")
    loop = parse_term('for("j", n, "seq", emit("once", "X", <@j>, A[@j % n] + A[@j % m]))')
    assert own(loop) is parse_term('for("j", n, "seq", emit("once", "X", <@j>, A[@j] + A[@j % m]))')


def test_the_middle_of_two_steps_has_no_remainder():
    text = emit.print_c(lowered("torus twice", cache_bytes=0)[1]).c_text
    main = re.search(r"#pragma omp simd\n.*?\n *\}\n", text, re.S)
    assert main and "fmod" not in main[0] and "%" not in main[0]


SHIFT = 'seq(for("j", m, "simd", {emit}), for("j", m, "simd", emit("once", "X", <@i, @j>, exp(A[@i, @j] - S[@i]))))'
TOP = 'emit("max", "S", <@i>, A[@i, @j])'


@pytest.mark.parametrize(
    ("given", "holds"),
    [
        (TOP, True),
        (TOP.replace("A[", "B["), False),  # the maximum of something else
        (f'guard(lt(@j, 3), {TOP})', False),  # of a part
        (TOP.replace("max", "min"), False),
        (f"seq({TOP}, {TOP.replace('A[', 'B[')})", False),
    ],
)  # fmt: skip
def test_exponentials_below_their_maximum(given, holds):
    stage = Stage("S", "f32", ("i",), (N,), "max", parse_term("1.0"))
    k = tiled("", f'for("i", n, "core", new("S", {SHIFT.replace("{emit}", given)}))'.replace("lt(@j, 3)", "@j < 3"), (stage,))
    body, lines = shifted(k)
    assert ("expn(" in repr(body.body)) == holds == bool(lines)


def test_a_piece_is_whole_lines():
    assert PIECE % 64 == 0
