"""Emitted CUDA: values in the emulator at sizes with tails and empty axes, no faults, and clean compilation for the device."""

from __future__ import annotations

import gpu_kernels as g
import numpy as np
import pytest

from moa_rewrite.build import nvcc, simt
from moa_rewrite.emit.cuda import print_cuda
from moa_rewrite.emit.lower_cuda import lower_cuda

TYPE = {"f32": np.float32, "f64": np.float64}
TOLERANCE = {"f32": 2e-5, "f64": 1e-13}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """``built(kernel function, type)``: the emulation, made once."""
    done = {}

    def get(make, ty="f32"):
        if (make, ty) not in done:
            done[make, ty] = simt.build(print_cuda(lower_cuda(make(ty))).cu_text, tmp_path_factory.mktemp(make.__name__), make.__name__)
        return done[make, ty]

    return get


def data(*shape, ty="f32", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(TYPE[ty])


def check(result, answer, ty="f32"):
    assert result.code == 0 and not result.faults, (result.code, result.faults, result.messages)
    assert result.unwritten == [0] and result.leaked == 0
    np.testing.assert_allclose(result.outputs[0], answer, rtol=TOLERANCE[ty], atol=TOLERANCE[ty])


@pytest.mark.parametrize(("make", "ty"), [(g.matmul, "f32"), (g.matmul, "f64"), (g.matmul_registers, "f32")])
@pytest.mark.parametrize(("n", "m", "p"), [(16, 32, 8), (17, 33, 9), (1, 1, 1), (5, 0, 3), (5, 4, 0), (0, 3, 2), (40, 20, 30)])
def test_matmul(built, make, ty, n, m, p):
    a, b = data(n, p, ty=ty), data(p, m, ty=ty, seed=1)
    r = built(make, ty).call(make(ty).name, [n, m, p], [a, b], [np.empty((n, m), TYPE[ty])])
    check(r, a.astype(float) @ b.astype(float), ty)


@pytest.mark.parametrize("make", [g.softmax, g.softmax_launches])
@pytest.mark.parametrize(("n", "m"), [(3, 100), (1, 1), (4, 300), (0, 5), (5, 0)])
def test_softmax(built, make, n, m):
    x = 3 * data(n, m)
    r = built(make).call("softmax", [n, m], [x], [np.empty((n, m), np.float32)])
    check(r, g.softmax_answer(x))
    assert all(launch.grid > 0 for launch in r.launches)


@pytest.mark.parametrize(("n", "m"), [(8, 32), (1, 1), (9, 33), (2, 70), (0, 0)])
def test_stencil(built, n, m):
    x = data(n, m)
    check(built(g.stencil).call("stencil", [n, m], [x], [np.empty((n, m), np.float32)]), g.stencil_answer(x))


@pytest.mark.parametrize("ty", ["f32", "f64"])
@pytest.mark.parametrize(("h", "n", "m", "d"), [(2, 8, 32, 16), (1, 1, 1, 1), (2, 13, 37, 5), (1, 9, 0, 3), (0, 2, 2, 2), (1, 0, 4, 2), (3, 3, 50, 0)])
def test_attention(built, ty, h, n, m, d):
    q, k, v = data(h, n, d, ty=ty), data(h, m, d, ty=ty, seed=1), data(h, m, d, ty=ty, seed=2)
    with np.errstate(invalid="ignore"):
        answer = g.attention_answer(0.3, q, k, v)
    r = built(g.attention, ty).call("attention", [h, n, m, d], [TYPE[ty](0.3), q, k, v], [np.empty((h, n, d), TYPE[ty])])
    check(r, answer, ty)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_order_of_threads_does_not_matter(built, seed):
    q, k, v = data(1, 13, 5), data(1, 37, 5, seed=1), data(1, 37, 5, seed=2)
    o = np.empty((1, 13, 5), np.float32)
    one, other = (built(g.attention).call("attention", [1, 13, 37, 5], [np.float32(0.3), q, k, v], [o], s) for s in (0, seed))
    assert np.array_equal(one.outputs[0], other.outputs[0])


def test_shared_memory_above_48_kib_is_asked_for_and_above_the_limit_refused(built):
    lib = built(g.softmax)
    for m, code in ((13_000, 0), (41_000, 0), (42_000, 3)):  # 4m bytes and two words, each rounded up to 64
        x = data(1, m)
        r = lib.call("softmax", [1, m], [x], [np.empty((1, m), np.float32)])
        assert r.code == code, m
        if code == 0:
            check(r, g.softmax_answer(x))
            assert r.launches[0].shared == (4 * m + 63) // 64 * 64 + 128


def test_sizes_refused(built):
    lib = built(g.stencil)
    assert lib.call("stencil", [-1, 4], [data(1)], [np.empty(1, np.float32)]).code == 1
    assert lib.call("stencil", [2**62, 2**62], [data(1)], [np.empty(1, np.float32)]).code == 1


CALLS = {
    g.matmul: ([20, 20, 20], lambda: [data(20, 20), data(20, 20, seed=1)], (20, 20)),
    g.softmax: ([3, 40], lambda: [data(3, 40)], (3, 40)),
    g.attention: ([2, 13, 37, 5], lambda: [np.float32(0.3), data(2, 13, 5), data(2, 37, 5, seed=1), data(2, 37, 5, seed=2)], (2, 13, 5)),
}


@pytest.mark.parametrize("make", list(CALLS))
def test_every_barrier_is_needed(tmp_path, make):
    """All blocks of the grid run by one block in turn: right with all barriers, a race without any one of them."""
    text = print_cuda(lower_cuda(make("f32"))).cu_text.replace("<<<moarw_grid(moarw_blocks)", "<<<1")
    sizes, inputs, shape = CALLS[make]
    lines = text.splitlines()
    at = [n for n, line in enumerate(lines) if "__syncthreads();" in line]
    assert len(at) >= 2
    for n in [None, *at]:
        without = "\n".join(line for k, line in enumerate(lines) if k != n)
        r = simt.build(without, tmp_path / str(n)).call(make("f32").name, sizes, inputs(), [np.empty(shape, np.float32)], seed=3)
        assert (r.faults.races > 0) == (n is not None), (n and lines[n], r.messages)


@pytest.mark.parametrize("make", [g.matmul, g.matmul_registers, g.softmax, g.softmax_launches, g.stencil, g.attention])
def test_compiles_for_the_device_without_warnings(tmp_path, make):
    source = tmp_path / "kernel.cu"
    program = lower_cuda(make("f32"))
    source.write_text(print_cuda(program).cu_text, encoding="utf-8")
    compiled = nvcc.compile_cubin(source)
    assert [r.kernel for r in compiled.kernels] and {r.kernel for r in compiled.kernels} == {launch.name for launch in program.launches}
    assert all(r.spill_stores == r.spill_loads == r.stack == 0 for r in compiled.kernels)


def test_launcher_compiles_without_warnings(tmp_path):
    source = tmp_path / "kernel.cu"
    source.write_text(print_cuda(lower_cuda(g.softmax_launches())).cu_text, encoding="utf-8")
    assert nvcc.compile_host(source).exists()
