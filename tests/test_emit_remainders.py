"""Tiles that are not full: rows in groups, lanes in strips, lanes of a reduction past the last. Values against NumPy at sizes that are multiples of nothing."""

from __future__ import annotations

import itertools
import subprocess

import numpy as np
import onf
import pytest
from onf import array, kernel, nest, stage

from moa_rewrite.build import SANITIZE, WARNINGS, LoadedKernel, Standalone, compile_c, load
from moa_rewrite.emit import Options, lower, print_c
from moa_rewrite.emit.loops import If, Let, Loop, Update, nodes
from moa_rewrite.emit.remainders import group_size, strip_widths
from moa_rewrite.terms import Kernel

NUMPY = {"f32": np.float32, "f64": np.float64, "i64": np.int64}
FOLD = {"add": lambda p: p.sum(1), "max": lambda p: p.max(1, initial=-np.inf), "mul": lambda p: p.prod(1), "min": lambda p: p.min(1, initial=np.inf)}


def product(ty: str = "f32", rows: int = 6, cols: int = 16, deep: int = 0, monoid: str = "add", place: str = "seq") -> Kernel:
    """out[i, j] = the monoid's sum over l of A[i, l] * B[l, j], both read in place; ``deep``: the sum in pieces of so many, added in memory."""
    inner = [f"i.i:min({rows}, n - @i.o*{rows}):unroll", f"j.i:min({cols}, m - @j.o*{cols}):simd"]
    outer = [f"i.o:(n + {rows - 1}) // {rows}:{place}", f"j.o:(m + {cols - 1}) // {cols}:seq"]
    pieces = [f"l.o:(p + {deep - 1}) // {deep}:seq"] if deep else []
    body = nest(
        [*pieces, *outer, f"l.i:min({deep}, p - @l.o*{deep}):seq" if deep else "l:p:seq", *inner], f'emit("{monoid}", "C", <@i, @j>, A[@i, @l] * B[@l, @j])'
    )
    defs = f"i = @i.o*{rows} + @i.i; j = @j.o*{cols} + @j.i" + (f"; l = @l.o*{deep} + @l.i" if deep else "")
    return kernel("product", "n m p", [array("A", ty, "n", "p"), array("B", ty, "p", "m")], [array("C", ty, "n", "m")], body, [], defs)


def batched(ty: str = "f32", order: str = "i j l k") -> Kernel:
    """Small products of no tiles at all: k on lanes, to its end."""
    loops = {"b": "b:h:seq", "i": "b:h:seq", "j": "j:n:seq", "l": "l:p:seq", "k": "k:m:simd"}
    body = nest([loops[x] for x in order.split()], 'emit("add", "C", <@b, @j, @k>, A[@b, @j, @l] * B[@b, @l, @k])')
    arrays = [array("A", ty, "h", "n", "p"), array("B", ty, "h", "p", "m")]
    return kernel("batched", "h n m p", arrays, [array("C", ty, "h", "n", "m")], body)


def built(k: Kernel, where, options: Options | None = None) -> LoadedKernel:
    prog = lower(k, options=options)
    src = print_c(prog)
    return load(compile_c(src.c_text, src.h_text, where, prog.name, extra=(*WARNINGS, "-Werror")), k, prog.name)


def inputs(shapes: dict[str, tuple[int, ...]], ty: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    if ty == "i64":
        return {n: rng.integers(-9, 9, s) for n, s in shapes.items()}
    return {n: rng.standard_normal(s).astype(NUMPY[ty]) for n, s in shapes.items()}


def run(f: LoadedKernel, sizes: dict[str, int], arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs, filled with nonsense before the call."""
    bound, ready = f.prepare(sizes=sizes, **arrays)
    out = f.outputs(bound)
    for a in out.values():
        a.reshape(-1).view(np.uint8).fill(0x7F)
    f.run(bound, ready, out)
    return out


def close(got: np.ndarray, want: np.ndarray, ty: str) -> None:
    eps = {"f32": 3e-5, "f64": 1e-12, "i64": 0}[ty]
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=eps, atol=eps * 10)


def check_product(f: LoadedKernel, n: int, m: int, p: int, ty: str, monoid: str = "add") -> None:
    a = inputs({"A": (n, p), "B": (p, m)}, ty)
    want = FOLD[monoid](a["A"].astype(np.float64)[:, :, None] * a["B"].astype(np.float64)[None])
    close(run(f, {"n": n, "m": m, "p": p}, a)["C"], want, ty)


def around(tile: int) -> list[int]:
    return [0, 1, 2, 3, 5, tile - 1, tile, tile + 1, 2 * tile + 3]


@pytest.mark.parametrize(("ty", "rows", "cols", "vector"), [("f32", 12, 32, 64), ("f32", 6, 16, 32), ("f64", 5, 24, 64), ("f64", 3, 4, 16), ("i64", 4, 8, 32)])
@pytest.mark.parametrize("deep", [0, 5])
def test_product(tmp_path, ty, rows, cols, vector, deep):
    f = built(product(ty, rows, cols, deep), tmp_path, Options(vector_bytes=vector, vector_registers=32))
    for n, m in itertools.product(around(rows), around(cols)):
        check_product(f, n, m, 11, ty)
    for n in (1, rows + 1):
        for m in range(1, 2 * cols + 1):
            check_product(f, n, m, 6, ty)
    check_product(f, 2 * rows + 1, cols + 3, 0, ty)


@pytest.mark.parametrize("monoid", ["mul", "max", "min"])
def test_cells_count_once(tmp_path, monoid):
    """What a strip or a group computes again is not added again, in memory that other pieces of the sum have been added to."""
    f = built(product("f64", 5, 16, 3, monoid), tmp_path)
    for n, m in itertools.product((1, 4, 5, 7), (1, 3, 5, 7, 11, 13, 15, 17, 31)):
        check_product(f, n, m, 8, "f64", monoid)


@pytest.mark.parametrize("ty", ["f32", "f64"])
@pytest.mark.parametrize("order", ["b j l k", "b l j k", "j b l k"])
def test_batched(tmp_path, ty, order):
    f = built(batched(ty, order), tmp_path, Options(vector_bytes=64, vector_registers=32))
    for h, n, m, p in [
        (0, 3, 3, 3),
        (3, 0, 2, 2),
        (2, 2, 0, 2),
        (2, 3, 5, 0),
        *((2, x, y, z) for x in (1, 7, 8, 9, 15) for y in (1, 3, 4, 15, 16, 17, 70) for z in (1, 15)),
    ]:
        a = inputs({"A": (h, n, p), "B": (h, p, m)}, ty)
        close(run(f, {"h": h, "n": n, "m": m, "p": p}, a)["C"], a["A"].astype(np.float64) @ a["B"].astype(np.float64), ty)


@pytest.mark.parametrize(("n", "m"), [(15, 15), (16, 16), (1, 59), (17, 3), (13, 70), (40, 23)])
def test_fixed_sizes(tmp_path, n, m):
    """Sizes compiled in: group and strip are of known number, so no test is left at run time."""
    k, fix = batched("f32", "b j l k"), {"n": n, "m": m, "p": n}
    f = built(k, tmp_path, Options(fix=fix, vector_bytes=64, vector_registers=32))
    a = inputs({"A": (3, n, n), "B": (3, n, m)}, "f32")
    close(run(f, {"h": 3, **fix}, a)["C"], a["A"].astype(np.float64) @ a["B"].astype(np.float64), "f32")
    assert not any(isinstance(u, If) for u in nodes(lower(k, options=Options(fix=fix)).body))


def triangular() -> Kernel:
    """Lanes whose number depends on the row: no strips outside the rows, no rows side by side across it."""
    inner = ["i.i:min(4, n - @i.o*4):unroll", "j.i:min(16, @i + 1 - @j.o*16):simd"]
    body = nest(["i.o:(n + 3) // 4:seq", "j.o:(n + 15) // 16:seq", "l:p:seq", *inner], 'emit("add", "C", <@i, @j>, A[@i, @l] * B[@l, @j])')
    arrays = [array("A", "f64", "n", "p"), array("B", "f64", "p", "n")]
    return kernel("triangular", "n p", arrays, [array("C", "f64", "n", "n")], body, [], "i = @i.o*4 + @i.i; j = @j.o*16 + @j.i")


def test_lanes_that_depend_on_rows(tmp_path):
    f = built(triangular(), tmp_path)
    for n in (1, 3, 4, 15, 17, 33):
        a = inputs({"A": (n, 5), "B": (5, n)}, "f64")
        close(np.tril(run(f, {"n": n, "p": 5}, a)["C"]), np.tril(a["A"] @ a["B"]), "f64")


def running() -> Kernel:
    """Sums whose length depends on the row."""
    body = nest(["i:n:seq", "l:@i + 1:seq", "j:m:simd"], 'emit("add", "C", <@i, @j>, A[@i, @l] * B[@l, @j])')
    return kernel("running", "n m", [array("A", "f64", "n", "n"), array("B", "f64", "n", "m")], [array("C", "f64", "n", "m")], body)


def test_sums_that_depend_on_rows(tmp_path):
    f = built(running(), tmp_path)
    for n, m in [(1, 1), (9, 15), (17, 3), (8, 40)]:
        a = inputs({"A": (n, n), "B": (n, m)}, "f64")
        close(run(f, {"n": n, "m": m}, a)["C"], np.tril(a["A"]) @ a["B"], "f64")


def lanes_summed() -> Kernel:
    """Rows of sums over lanes, tiled or not: the lanes stay lanes."""
    plain = nest(["i:n:seq", "l:p:simd"], 'emit("add", "C", <@i>, A[@i, @l] * B[@l])')
    tiled = nest(["j.o:(n + 3) // 4:seq", "j.i:min(4, n - @j.o*4):unroll", "l2:p:simd"], 'emit("add", "D", <@j>, A[@j, @l2] * B[@l2])')
    arrays = [array("A", "f32", "n", "p"), array("B", "f32", "p")]
    out = [array("C", "f32", "n"), array("D", "f32", "n")]
    return kernel("summed", "n p", arrays, out, onf.block(plain, tiled), [], "j = @j.o*4 + @j.i")


def test_sums_over_lanes_stay_on_lanes(tmp_path):
    k = lanes_summed()
    prog = lower(k)
    assert [n.rule for n in prog.notes].count("lanes") >= 2 and "group" not in [n.rule for n in prog.notes]
    rest = [n for n in nodes(prog.body) if isinstance(n, Loop) and n.kind == "simd" and n.trip is None]
    assert len(rest) == 2 and "summed_tile2" in print_c(prog).c_text  # the lanes left over as well, and in the function that keeps the accumulators
    f = built(k, tmp_path)
    for n, p in [(1, 1), (5, 3), (9, 33), (4, 100), (2, 63), (2, 64), (3, 127)]:
        a = inputs({"A": (n, p), "B": (p,)}, "f32")
        got = run(f, {"n": n, "p": p}, a)
        for name in "CD":
            close(got[name], a["A"].astype(np.float64) @ a["B"].astype(np.float64), "f32")


def recurrence() -> Kernel:
    """Each row reads the one before it: rows side by side would read what is not there yet."""
    body = nest(["i:n:seq", "l:p:seq", "j:m:simd"], 'emit("add", "X", <@i, @j>, B[@l, @j] + select(0 < @i, X[max(@i - 1, 0), @j], 0.0))')
    whole = f'new("X", seq({body}, for("i", n, "seq", for("j", m, "simd", emit("once", "C", <@i, @j>, X[@i, @j])))))'
    return kernel("recurrence", "n m p", [array("B", "f64", "p", "m")], [array("C", "f64", "n", "m")], whole, [stage("X", "f64", "i j", "n; m", "add")])


def test_rows_that_read_each_other(tmp_path):
    f = built(recurrence(), tmp_path)
    for n, m, p in [(1, 3, 2), (9, 17, 3), (5, 1, 1)]:
        a = inputs({"B": (p, m)}, "f64")
        want = np.zeros((n, m))
        for i in range(n):
            want[i] = a["B"].sum(0) + (p * want[i - 1] if i else 0)
        close(run(f, {"n": n, "m": m, "p": p}, a)["C"], want, "f64")


@pytest.mark.parametrize(("k", "cases"), [
    (product("f32", 12, 32, 5), [(1, 1, 7), (11, 31, 5), (13, 33, 6), (27, 67, 3), (5, 7, 1)]),
    (product("f64", 5, 24), [(1, 2, 3), (4, 23, 2), (7, 49, 2)]),
    (batched("f32", "b j l k"), [(2, 15, 15, 15), (1, 1, 1, 1), (3, 9, 37, 2), (2, 7, 5, 3)]),
], ids=["pieces", "whole", "batched"])  # fmt: skip
def test_reads_and_writes_nothing_outside(tmp_path, k, cases):
    exe = Standalone(k, lower(k, options=Options(vector_bytes=64, vector_registers=32)), tmp_path, extra=(*SANITIZE, "-O2"))
    for s in cases:
        sizes = dict(zip(k.sizes, s, strict=True))
        shapes = {a.name: tuple(sizes[str(e.args[0])] for e in a.shape) for a in k.inputs}
        a = inputs(shapes, k.outputs[0].dtype)
        close(exe.run(a, sizes)["C"], a["A"].astype(np.float64) @ a["B"].astype(np.float64), k.outputs[0].dtype)


def test_constant_trip_counts_everywhere():
    """Every accumulation, full tile or not, updates its cells in loops of constant length."""
    prog = lower(product("f32", 12, 32), options=Options(vector_bytes=64, vector_registers=32))
    innermost = [n for n in nodes(prog.body) if isinstance(n, Loop) and any(isinstance(u, Update) and u.buffer.startswith("acc") for u in n.body)]
    assert len(innermost) == 6 and all(n.trip and n.kind == "simd" for n in innermost)


def test_names_of_the_rules():
    rules = {n.rule: n.text for n in lower(product("f32", 12, 32), options=Options(vector_bytes=64, vector_registers=32)).notes}
    assert rules["strip"] == "j.i: lanes in strips of 16, 8, 4, 1"
    assert "rows at a time" in rules["group"]


def test_group_sizes():
    assert group_size(None, 12, 2, 32) == 4  # two vectors a row: four rows are eight chains
    assert group_size(None, 12, 1, 32) == 12  # not many more than needed: all of the tile's
    assert group_size(None, 10, 2, 32) == 4 and group_size(None, 9, 2, 16) == 3  # equal groups rather than 4, 4 and 1
    assert group_size(None, None, 1, 16) == 8
    assert group_size(15, 15, 1, 32) == 15  # all rows at once waste none
    assert group_size(16, 16, 1, 16) == 8
    assert group_size(3, 3, 1, 32) == 3
    assert group_size(1, 1, 16, 32) == 1


def test_strip_widths():
    assert strip_widths(32, True, 16) == [16, 8, 4, 1]
    assert strip_widths(59, False, 16) == [32, 16, 8, 4, 1]
    assert strip_widths(None, False, 8) == [16, 8, 4, 2, 1]
    assert strip_widths(1, True, 16) == [1]
    assert strip_widths(24, True, 4) == [16, 8, 4, 2, 1]


def test_a_parallel_loop_over_full_and_partial_tiles_is_static():
    """The guards of cells in a partial tile are no reason to hand out iterations one by one."""
    text = print_c(lower(product("f32", 12, 32, 128, place="core"))).c_text
    assert "schedule(static)" in text and "schedule(dynamic)" not in text


def test_index_variables_are_defined_before_use(tmp_path):
    """gcc's own checks, with the warnings of all versions as errors, on a text with every width."""
    src = print_c(lower(batched(), options=Options(vector_bytes=64, vector_registers=32)))
    where = compile_c(src.c_text, src.h_text, tmp_path, "batched", extra=(*WARNINGS, "-Werror", "-Wshadow"))
    assert subprocess.run(["nm", "-D", str(where)], capture_output=True, text=True, check=True).stdout.count(" T batched") >= 1
    assert any(isinstance(n, Let) for n in nodes(lower(batched()).body))


def test_same_values_in_fortran(tmp_path):
    from moa_rewrite.build.fortran import compile_fortran
    from moa_rewrite.emit.fortran import print_fortran

    k = product("f32", 6, 16, 5)
    prog = lower(k, "fortran")
    (tmp_path / "product.f90").write_text(print_fortran(prog).f90_text)
    f = load(compile_fortran(tmp_path / "product.f90"), k, prog.name)
    for n, m in itertools.product((1, 5, 7, 15), (1, 7, 15, 17, 33)):
        check_product(f, n, m, 11, "f32")
