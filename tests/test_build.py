"""Compiling, loading, calling, checking, measuring."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading

import numpy as np
import onf
import pytest
from test_emit_c import agree, build, values

from moa_rewrite.build import SANITIZE, WARNINGS, Standalone, compile_c, load, measure, verify
from moa_rewrite.emit import lower, print_c
from moa_rewrite.errors import MoaError


@pytest.fixture(scope="module")
def matmul(tmp_path_factory):
    return build(onf.matmul_tiled("f32"), tmp_path_factory.mktemp("matmul"))


def test_any_strides(matmul):
    """Transposed, reversed, strided, Fortran order, read-only, unaligned views give what NumPy gives."""
    rng = np.random.default_rng(0)
    big = rng.standard_normal((40, 40)).astype(np.float32)
    raw = np.zeros(4 * 35 + 1, np.uint8)
    odd = raw[1:].view(np.float32).reshape(7, 5)
    odd[:] = big[:7, :5]
    frozen = big[:7, :5].copy()
    frozen.flags.writeable = False
    for a in (big[:7, :5], big.T[3:10, 2:7], big[20:6:-2, 9:4:-1], np.asfortranarray(big[:7, :5]), odd, frozen):
        b = big[5:10, 1:36:2]
        np.testing.assert_allclose(matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)
    assert matmul(frozen, big[:5]).flags.c_contiguous


def test_empty_and_fortran(matmul):
    assert matmul(np.zeros((0, 2), np.float32, order="F"), np.zeros((2, 3), np.float32)).shape == (0, 3)
    k = onf.kernel("twice_t", "n m", [onf.array("A", "i64", "n", "m")], [onf.array("B", "i64", "m", "n")],
                   onf.nest(["i:m:seq", "j:n:simd"], 'emit("once", "B", <@i, @j>, A[@j, @i] * 2)'))  # fmt: skip
    a = np.arange(10).reshape(2, 5)
    prog = lower(k)
    src = print_c(prog)
    import tempfile

    with tempfile.TemporaryDirectory() as d:
        f = load(compile_c(src.c_text, src.h_text, d, prog.name), k, prog.name)
        assert f(a).tolist() == (a.T * 2).tolist()
        bits = 2 ** np.arange(25).reshape(5, 5)
        assert f(bits.T).tolist() == (bits * 2).tolist()
        assert f(np.zeros((0, 2), np.int64, order="F")).shape == (2, 0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda f: f(np.ones((2, 3))), "MOA0610"),
        (lambda f: f(np.ones((2, 3)), np.ones((3, 2))), "A has type float64, the kernel takes f32"),
        (lambda f: f(np.ones(3, "f"), np.ones((3, 2), "f")), "A has rank 1"),
        (lambda f: f(np.ones((2, 3), "f"), np.ones((4, 2), "f")), r"size p is 3 \(axis 1 of A\) and 4 \(axis 0 of B\)"),
        (lambda f: f(np.ones((2, 3), "f"), np.ones((3, 2), "f"), np.ones(2, "f")), "takes 2 inputs, not 3"),
        (lambda f: f(np.ones((2, 3), "f"), X=np.ones((3, 2), "f")), "no further input 'X'"),
        (lambda f: f(np.ones((2, 3), "f"), np.ones((3, 2), "f"), sizes={"n": 5}), r"size n is 5 \(given\) and 2"),
    ],
)  # fmt: skip
def test_clear_refusals(matmul, call, text):
    with pytest.raises(MoaError, match=text):
        call(matmul)


def test_conditions_on_sizes(tmp_path):
    k = onf.kernel("even", "n", [onf.array("X", "f32", "n")], [onf.array("Y", "f32", "n - 2")],
                   onf.nest(["i:n - 2:simd"], 'emit("once", "Y", <@i>, X[@i])'), where="n % 2 == 0")  # fmt: skip
    f = build(k, tmp_path)
    assert f(np.ones(6, np.float32)).shape == (4,)
    with pytest.raises(MoaError, match=r"n % 2 == 0 does not hold(.|\n)*n = 5"):
        f(np.ones(5, np.float32))
    p = ctypes.c_void_p(0)
    raw = f.library.even
    raw.argtypes = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
    assert [raw(n, p, p) for n in (5, -2, 0, 2**62)] == [1, 1, 1, 1]  # condition, negative size, negative extent, bytes beyond int64
    assert raw(2, p, p) == 0


def test_overflowing_sizes_are_refused(matmul):
    raw = matmul.library.matmul
    raw.argtypes = [ctypes.c_int64] * 3 + [ctypes.c_void_p] * 3
    assert raw(2**40, 2**40, 1, None, None, None) == 1
    assert raw(2**40, 0, 2**40, None, None, None) == 1  # an empty axis does not hide the overflow
    assert raw(0, 0, 0, None, None, None) == 0


def test_out_of_memory_is_a_status(tmp_path):
    """Workspace of m floats that cannot be had: status 2 and no crash."""
    k = onf.softmax_staged("f32")
    prog = lower(k)
    src = print_c(prog)
    so = compile_c(src.c_text, src.h_text, tmp_path, prog.name)
    code = f"""
import ctypes, resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))
f = ctypes.CDLL({str(so)!r}).softmax
f.argtypes = [ctypes.c_int64] * 2 + [ctypes.c_void_p] * 2
print(f(0, 1 << 33, None, None))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "2"


@pytest.mark.parametrize(
    ("k", "sizes"),
    [
        (onf.matmul_tiled("f32"), {"n": 7, "m": 17, "p": 3}),
        (onf.attention("f32", 16, 8, 4, 4), {"H": 2, "n": 19, "m": 11, "D": 6}),
        (onf.softmax_lanes("f32", 8, 16), {"n": 3, "m": 27}),
        (onf.stencil("f64"), {"n": 5, "m": 19}),
        (onf.dot("f32"), {"n": 7}),
    ],
    ids=["matmul", "attention", "softmax", "stencil", "dot"],
)
def test_clean_under_sanitizers(tmp_path, k, sizes):
    prog = lower(k)
    env = {**os.environ, "OMP_NUM_THREADS": "2", "ASAN_OPTIONS": "detect_leaks=1"}
    exe = Standalone(k, prog, tmp_path, extra=(*SANITIZE, "-O1"))
    plain = build(k, tmp_path)
    arrays = values(k, sizes)
    out = exe.run(arrays, sizes, env)
    for name, want in agree(plain, sizes, arrays).items():
        np.testing.assert_allclose(out[name], want, rtol=1e-4, atol=1e-5)


def test_sanitizers_would_see_an_overrun(tmp_path):
    """The guard itself: a loop one too long is caught."""
    k = onf.kernel("overrun", "n", [onf.array("X", "f32", "n")], [onf.array("Y", "f32", "n")], onf.nest(["i:n + 1:seq"], 'emit("once", "Y", <@i>, X[@i])'))
    exe = Standalone(k, lower(k), tmp_path, extra=(*SANITIZE, "-O1"))
    with pytest.raises(MoaError, match="heap-buffer-overflow"):
        exe.run({"X": np.ones(5, np.float32)})


def test_header_serves_cpp_and_plain_c(tmp_path):
    k = onf.attention("f32")
    prog = lower(k)
    src = print_c(prog)
    compile_c(src.c_text, src.h_text, tmp_path, prog.name, extra=(*WARNINGS, "-Werror", "-pedantic"))
    compile_c(src.c_text, src.h_text, tmp_path, prog.name, extra=(*WARNINGS, "-Werror", "-fno-openmp", "-fopenmp-simd"))
    (tmp_path / "use.cpp").write_text('#include "attention.h"\nint main() { return attention(0, 0, 0, 0, 1.0f, nullptr, nullptr, nullptr, nullptr); }\n')
    subprocess.run(["g++", "-Wall", "-Wextra", "-Werror", "-pedantic", "use.cpp", "attention.so", "-o", "use", "-Wl,-rpath,."], cwd=tmp_path, check=True)
    assert subprocess.run(["./use"], cwd=tmp_path, check=False).returncode == 0


def test_float_mode_of_the_caller_is_kept(tmp_path):
    """Subnormals still exist in a process that loaded and ran a kernel."""
    build(onf.dot("f32"), tmp_path)(np.ones(40, np.float32), np.ones(40, np.float32))
    assert sys.float_info.min / 2 != 0
    assert np.float64(sys.float_info.min) / 2 != 0


def test_contraction_is_the_only_freedom(tmp_path):
    """P*Q - R with R the rounded product is 0 without contraction and the rounding error with it; nothing else is possible."""
    k = onf.kernel("fma", "n", [onf.array("P", "f64", "n"), onf.array("Q", "f64", "n"), onf.array("R", "f64", "n")], [onf.array("Y", "f64", "n")],
                   onf.nest(["i:n:simd"], 'emit("once", "Y", <@i>, P[@i] * Q[@i] - R[@i])'))  # fmt: skip
    p, q = np.full(9, 0.1), np.full(9, 300.0)
    fused = build(k, tmp_path / "fused")(p, q, p * q)
    exact = build(k, tmp_path / "exact", flags=("-ffp-contract=off",))(p, q, p * q)
    assert (exact == 0).all()
    assert set(fused.tolist()) <= {0.0, 1.6653345369377348e-15}


def test_compiler_faults(tmp_path):
    with pytest.raises(MoaError, match="MOA0601"):
        compile_c("", "", tmp_path, cc="no-such-compiler")
    with pytest.raises(MoaError, match=r"MOA0602(.|\n)*expected"):
        compile_c("int f( {", "", tmp_path)
    assert not list(tmp_path.glob("*.so")) and not list(tmp_path.glob("*.tmp"))


def test_concurrent_builds_of_one_kernel(tmp_path):
    """Several builders of the same file: each loads a whole shared object."""
    k = onf.dot("f32")
    prog = lower(k)
    src = print_c(prog)
    faults = []

    def one():
        try:
            assert load(compile_c(src.c_text, src.h_text, tmp_path, prog.name), k)(np.ones(3, np.float32), np.ones(3, np.float32)) == 3
        except Exception as e:
            faults.append(e)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_verify():
    a = np.array([1.0, np.nan, np.inf, 2.0])
    assert verify(a, a, 0.0).ok
    v = verify(np.array([1.0, np.nan, np.inf, 2.5]), a, 0.1)
    assert not v.ok and v.where == (3,) and v.error == 0.5
    assert not verify(np.array([1.0, 0.0, np.inf, 2.0]), a, 1e9).ok
    assert not verify(np.array([1.0, np.nan, -np.inf, 2.0]), a, 1e9).ok
    assert not verify(a[:3], a, 1e9).ok
    assert verify(np.zeros((0, 3)), np.zeros((0, 3)), 0.0).ok


def test_measure_counts_and_orders():
    calls = [0, 0]

    def f(n):
        calls[n] += 1

    times = measure([lambda: f(0), lambda: f(1)], repeat=3, least=0.0)
    assert calls == [5, 5] and all(t.best <= t.median <= t.worst for t in times)


def test_workspace_of_attention_does_not_grow_with_keys(tmp_path):
    f = build(onf.attention("f32"), tmp_path)
    at = {"H": 1, "n": 8192, "m": 8192, "D": 64}
    assert f.workspace(at, 2) == f.workspace({**at, "m": 10**6}, 2) == 2 * 2 * 16 * 64 * 4
    code = f"""
import sys; sys.path[:0] = {sys.path!r}
import numpy as np, onf
from moa_rewrite.build import load
from moa_rewrite.build.memory import peak_growth
f = load({str(tmp_path / 'attention.so')!r}, onf.attention("f32"))
a = [np.ones((1, 1024, 64), np.float32), np.ones((1, 4096, 64), np.float32), np.ones((1, 4096, 64), np.float32)]
sizes, arrays = f.prepare(0.1, *a)
out = f.outputs(sizes)
out["Out"][:] = 0
print(peak_growth(lambda: f.run(sizes, arrays, out)))
"""
    grown = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert grown < 4 * 1024 * 4096 // 2  # far below one n-by-m array
