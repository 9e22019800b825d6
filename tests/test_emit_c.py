"""Lowering and the C printer: hand-written ONFs, compiled, against the interpreter of statements and NumPy."""

from __future__ import annotations

import re

import numpy as np
import onf
import pytest

from moa_rewrite.build import WARNINGS, LoadedKernel, compile_c, evaluate, load
from moa_rewrite.emit import Options, lower, print_c
from moa_rewrite.semantics.statements import run
from moa_rewrite.terms import Kernel

NUMPY = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "bool": np.bool_}


def build(k: Kernel, where, options: Options | None = None, flags: tuple[str, ...] = ()) -> LoadedKernel:
    prog = lower(k, options=options)
    src = print_c(prog)
    return load(compile_c(src.c_text, src.h_text, where, prog.name, extra=(*WARNINGS, "-Werror", *flags)), k, prog.name)


def values(k: Kernel, sizes: dict[str, int], seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    out = {}
    for a in k.inputs:
        shape = tuple(evaluate(e, sizes) for e in a.shape)
        out[a.name] = rng.integers(-20, 20, shape).astype(NUMPY[a.dtype]) if a.dtype[0] == "i" else np.asarray(rng.standard_normal(shape), NUMPY[a.dtype])
    return out


def agree(f: LoadedKernel, sizes: dict[str, int], inputs: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """The compiled kernel gives what the interpreter gives; returns it."""
    k = f.kernel
    arrays = values(k, sizes) if inputs is None else inputs
    wanted = run(k, arrays, sizes)
    bound, prepared = f.prepare(sizes=sizes, **arrays)
    got = f.outputs(bound)
    for a in got.values():
        a.reshape(-1).view(np.uint8).fill(0x7F)
    f.run(bound, prepared, got)
    for name, w in wanted.items():
        eps = {"f": 3e-5, "d": 1e-12}.get(got[name].dtype.char, 0)
        np.testing.assert_allclose(got[name].astype(np.float64), np.asarray(w, np.float64), rtol=eps, atol=eps, err_msg=f"{k.name} {name} {sizes}")
    return got


CASES = [
    (onf.matmul_plain("f64"), [(0, 3, 2), (3, 4, 0), (5, 6, 7)]),
    (onf.matmul_tiled("f32"), [(1, 1, 1), (6, 16, 3), (7, 17, 5), (0, 3, 2), (3, 4, 0), (11, 19, 2), (12, 5, 1)]),
    (onf.matmul_tiled("f64", 3, 4), [(1, 1, 1), (3, 4, 2), (7, 9, 5), (4, 11, 3)]),
    (onf.softmax_staged("f32"), [(3, 5), (1, 1), (4, 0), (0, 4)]),
    (onf.softmax_lanes("f32"), [(2, 1), (2, 16), (2, 17), (3, 63), (2, 64), (2, 65), (1, 130), (2, 0), (0, 3)]),
    (onf.attention_streamed("f64"), [(1, 1, 1), (2, 3, 2), (3, 7, 4)]),
    (onf.attention_streamed("f32", causal=True), [(1, 1, 1), (3, 3, 2)]),
    (onf.attention_turned("f64"), [(1, 1, 1), (5, 3, 2), (64, 7, 4), (67, 9, 3), (0, 2, 2), (3, 0, 2)]),
    (onf.dot("f32"), [(0,), (1,), (15,), (16,), (17,), (100,)]),
    (onf.dot("f64", 8, "max"), [(1,), (8,), (9,), (0,)]),
    (onf.scan("f64"), [(0,), (1,), (9,)]),
    (onf.scan_lanes("f32"), [(1,), (8,), (13,)]),
    (onf.concatenate(), [(2, 3), (0, 3), (2, 0), (0, 0)]),
    (onf.stencil("f32"), [(1, 1), (4, 16), (5, 17), (9, 33), (2, 3), (0, 2)]),
    (onf.nested_reduce("f64"), [(1, 1), (3, 4), (2, 5)]),
    (onf.partial_sums("f32"), [(1, 1, 1), (4, 8, 8), (5, 8, 17), (5, 3, 9)]),
    (onf.integers(), [(0,), (1,), (40,)]),
    (onf.reversed_tiles(), [(1,), (8,), (13,)]),
    (onf.two_regions(), [(1, 1), (4, 6), (0, 3), (7, 3)]),
    (onf.attention_causal("f64"), [(1, 1, 1, 1), (1, 9, 9, 3), (2, 6, 11, 2)]),
]


def test_probabilities_run_along_what_is_contiguous() -> None:
    """Whatever the weighted sum has on lanes: the axis on which scores lie side by side is the last of the probabilities, and that of their innermost loop."""
    text = print_c(lower(onf.attention_turned())).c_text
    found = re.findall(r"#pragma omp simd\n *for \(int64_t (\w+) = 0;.*\n(?: *const .*\n)* *\w+\[\w+ \* \w+ \+ (\w+)\] = moarw_expn_f32\(S", text)
    assert found and {(loop, last) for loop, last in found} == {("i_i", "i_i")}
    assert len(re.findall(r"\] = moarw_expn_f32\(S", text)) == len(found)


@pytest.mark.parametrize(("k", "sizes"), CASES, ids=[f"{k.name}-{k.outputs[0].dtype}-{n}" for n, (k, _) in enumerate(CASES)])
def test_against_interpreter(k, sizes, tmp_path):
    f = build(k, tmp_path)
    for s in sizes:
        agree(f, dict(zip(k.sizes, s, strict=True)))


@pytest.mark.parametrize("apart", ["", "outside", "inside"])
@pytest.mark.parametrize(("tiles", "ty"), [((16, 64, 4, 4), "f32"), ((8, 12, 3, 5), "f64")])
def test_attention(tmp_path, tiles, ty, apart):
    """Also where the tiles of the columns lie around those of the keys: every one of them rescales its own cells."""
    f = build(onf.attention(ty, *tiles, apart), tmp_path)
    agree(f, {"H": 1, "n": 3, "m": 5, "D": 2})
    rng = np.random.default_rng(3)
    for heads, n, m, d in ((1, 1, 1, 1), (2, 17, 65, 5), (1, 16, 64, 8), (2, 35, 77, 33)):
        q, k, v = (rng.standard_normal(s).astype(NUMPY[ty]) for s in ((heads, n, d), (heads, m, d), (heads, m, d)))
        s = 0.3 * np.einsum("hid,hkd->hik", q.astype(np.float64), k)
        p = np.exp(s - s.max(-1, keepdims=True))
        want = np.einsum("hik,hkv->hiv", p, v) / p.sum(-1, keepdims=True)
        np.testing.assert_allclose(f(0.3, q, k, v), want, atol=3e-6 if ty == "f32" else 1e-13)


def test_no_scores_array_in_attention():
    """Nothing of size n*m is stored: every workspace extent is a tile or D."""
    prog = lower(onf.attention())
    assert {str(e) for b in prog.workspaces for e in b.shape} <= {"16", "64", "D"}


def test_all_minus_infinity_rows_give_zero(tmp_path):
    f = build(onf.attention_streamed("f64"), tmp_path)
    q, k, v = np.array([[1.0], [0.0]]), np.array([[-np.inf], [-np.inf]]), np.array([[2.0], [3.0]])
    with np.errstate(invalid="ignore"):
        out = f(q, k, v)
    assert np.isnan(out[0, 0])  # 0 / 0, as the program says: the sum itself is 0
    stage_only = onf.kernel("osm_only", "m", [onf.array("X", "f64", "m")], [onf.array("R", "f64")],
                            onf.nest(["k:m:seq"], 'emit("osm", "R", <>, pair(X[@k], 5.0))'))  # fmt: skip
    g = build(stage_only, tmp_path)
    assert g(np.full(4, -np.inf)) == 0.0
    assert g(np.array([-np.inf, 1.0, -np.inf])) == 5.0
    assert g(np.zeros(0)) == 0.0
    assert np.isnan(g(np.array([1.0, np.nan])))


def test_empty_reductions(tmp_path):
    for monoid, want in (("add", 0.0), ("max", -np.inf), ("min", np.inf), ("mul", 1.0)):
        k = onf.kernel(f"empty_{monoid}", "n m", [onf.array("X", "f32", "n", "m")], [onf.array("Y", "f32", "n")],
                       onf.nest(["i:n:seq", "k:m:seq"], f'emit("{monoid}", "Y", <@i>, X[@i, @k])'))  # fmt: skip
        assert (build(k, tmp_path)(np.zeros((3, 0), np.float32)) == want).all()


def test_nan_goes_through_max(tmp_path):
    k = onf.dot("f32", 8, "max")
    f = build(k, tmp_path)
    for n in (1, 8, 11, 30):
        for at in range(n):
            x = np.ones(n, np.float32)
            x[at] = np.nan
            assert np.isnan(f(x, np.ones(n, np.float32))), (n, at)


def test_nan_in_an_output_is_not_read(tmp_path):
    """Outputs start undefined: NaN in them must not reach full or remainder tiles."""
    f = build(onf.matmul_tiled("f32"), tmp_path)
    a, b = np.ones((7, 3), np.float32), np.ones((3, 18), np.float32)
    sizes, arrays = f.prepare(a, b)
    out = {"C": np.full((7, 18), np.nan, np.float32)}
    f.run(sizes, arrays, out)
    assert (out["C"] == 3).all()


def test_fixed_size(tmp_path):
    k = onf.matmul_tiled("f32")
    prog = lower(k, options=Options(fix={"m": 32, "n": 12}))
    text = print_c(prog).c_text
    assert " <= m - " not in text and " <= n - " not in text  # tests of full tiles are decided
    f = build(k, tmp_path, Options(fix={"m": 32, "n": 12}))
    agree(f, {"n": 12, "m": 32, "p": 5})
    with pytest.raises(Exception, match="MOA0615"):
        f(np.ones((12, 5), np.float32), np.ones((5, 31), np.float32))


def test_same_bits_with_any_number_of_threads(tmp_path):
    import os
    import subprocess
    import sys

    k = onf.attention("f32")
    prog = lower(k)
    src = print_c(prog)
    so = compile_c(src.c_text, src.h_text, tmp_path, prog.name)
    code = f"""
import sys; sys.path[:0] = {sys.path!r}
import numpy as np, onf, hashlib
from moa_rewrite.build import load
rng = np.random.default_rng(0)
f = load({str(so)!r}, onf.attention("f32"))
print(hashlib.sha256(f(0.2, *(rng.standard_normal((3, 40, 24), np.float32) for _ in range(3))).tobytes()).hexdigest())
"""
    runs = set()
    for t in "123":
        runs.add(subprocess.run([sys.executable, "-c", code], env={**os.environ, "OMP_NUM_THREADS": t}, capture_output=True, text=True, check=True).stdout)
    assert len(runs) == 1


def test_threads_only_for_enough_work():
    """By default a condition on the trip counts; a triangular extent counts with its middle."""
    assert str(lower(onf.matmul_plain()).parallel_if) == '32768.0 < cast("f64", n) * cast("f64", m) * cast("f64", p)'
    assert "// 2" in str(lower(onf.scan_lanes()).parallel_if)
    assert lower(onf.scan()).parallel_if is None  # no core loop
    assert " if (n > 5)" in print_c(lower(onf.matmul_plain(), options=Options(parallel_if=onf.t("5 < n")))).c_text.replace("5 < n", "n > 5")


def test_uneven_iterations_are_dealt_out_dynamically():
    assert "schedule(dynamic)" in print_c(lower(onf.attention_causal())).c_text
    assert "schedule(dynamic)" in print_c(lower(onf.scan_lanes())).c_text
    assert "schedule(dynamic)" not in print_c(lower(onf.attention())).c_text


def test_lowering_is_deterministic_and_noted():
    a, b = lower(onf.attention()), lower(onf.attention())
    assert print_c(a) == print_c(b)
    assert {"let", "storage", "init", "accumulate", "full-tile", "rejoin", "osm", "pad-lanes"} <= {n.rule for n in a.notes}
    assert {n.rule for n in lower(onf.dot()).notes} == {"lanes", "let", "blocks"}


def test_names_that_are_c_words(tmp_path):
    k = onf.kernel("double", "int for", [onf.array("float", "f32", "int", "for"), onf.array("restrict", "f32")], [onf.array("return", "f32", "int")],
                   onf.nest(["if:int:core", "while.o:for:seq"], 'emit("add", "return", <@if>, float[@if, @while.o] * restrict[])'))  # fmt: skip
    f = build(k, tmp_path)
    np.testing.assert_allclose(f(np.ones((2, 3), np.float32), 2.0), [6, 6])


@pytest.mark.parametrize("name", ["fma", "read", "round", "while", "exp"])
def test_kernel_names_of_the_c_library(tmp_path, name):
    """A global symbol of that name would contradict a header or replace a function of the process."""
    k = onf.kernel(name, "n", [onf.array("X", "f32", "n")], [onf.array("Y", "f32", "n")], onf.nest(["i:n:simd"], 'emit("once", "Y", <@i>, X[@i])'))
    assert lower(k).name != name
    assert build(k, tmp_path)(np.ones(2, np.float32)).tolist() == [1, 1]
