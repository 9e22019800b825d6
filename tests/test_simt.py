"""The CUDA emulator: values, counts, and one kernel per kind of bug that it must find, each beside a clean twin."""

from __future__ import annotations

import numpy as np
import pytest

from moa_rewrite.build import simt

KERNELS = r"""
#include <stdint.h>
__global__ void add(const float* a, const float* b, float* c, int64_t n) {
  int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
__global__ void reverse(const float* a, float* o, int barrier) {
  __shared__ float s[128];
  s[threadIdx.x] = a[threadIdx.x];
  if (barrier) __syncthreads();
  o[threadIdx.x] = s[127 - threadIdx.x];
}
__global__ void reuse(const float* a, float* o, int barrier) {
  extern __shared__ float s[];
  float v = 0;
  for (int t = 0; t < 4; ++t) {
    s[threadIdx.x] = a[threadIdx.x] * t;
    __syncthreads();
    v += s[127 - threadIdx.x];
    if (barrier) __syncthreads();
  }
  o[threadIdx.x] = v;
}
__global__ void warp_reverse(const float* a, float* o, int sync) {
  __shared__ float s[32];
  s[threadIdx.x] = a[threadIdx.x];
  if (sync) __syncwarp();
  o[threadIdx.x] = s[31 - threadIdx.x];
}
__global__ void histogram(const int* x, int* h, int atomic) {
  int k = x[blockIdx.x * blockDim.x + threadIdx.x];
  if (atomic) atomicAdd(h + k, 1);
  else h[k] += 1;
}
__global__ void past_end(float* o, int64_t n) { o[n + threadIdx.x] = 1.0f; }
__global__ void read_past_end(const float* a, float* o, int64_t n) { o[threadIdx.x] = a[threadIdx.x + n]; }
__global__ void shared_past_end(float* o, int shift) {
  extern __shared__ float s[];
  s[threadIdx.x + shift] = 1.0f;
  __syncthreads();
  o[threadIdx.x] = s[threadIdx.x];
}
__global__ void unset(float* o, int n) {
  __shared__ float s[64];
  if (threadIdx.x < n) s[threadIdx.x] = 1.0f;
  __syncthreads();
  o[threadIdx.x + 64 * blockIdx.x] = s[threadIdx.x];
}
__global__ void unset_global(const float* t, float* o) { o[threadIdx.x] = t[threadIdx.x]; }
__global__ void divergent(float* o, int n) {
  if (threadIdx.x < n) __syncthreads();
  else
    __syncthreads();
  o[threadIdx.x] = 1.0f;
}
__global__ void early_exit(float* o, int n) {
  o[threadIdx.x] = 1.0f;
  if (threadIdx.x >= n) return;
  __syncthreads();
}
__global__ void halves(float* o, int from) {
  float v = threadIdx.x;
  if (threadIdx.x < 16) v = __shfl_sync(0xffffu, v, from);
  o[threadIdx.x] = v;
}
__global__ void absent(float* o) {
  float v = threadIdx.x;
  if (threadIdx.x < 16) v = __shfl_xor_sync(0xffffffffu, v, 1);
  o[threadIdx.x] = v;
}
__global__ void warp_sum(const float* a, float* o) {
  float v = a[threadIdx.x];
  for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
  o[threadIdx.x] = v;
}
__global__ void wide(const float* a, float* o, int shift) {
  float4 v = simt_load4(a + shift + 4 * threadIdx.x);
  o[threadIdx.x] = v.x + v.y + v.z + v.w;
}
__global__ void null_write(float* o) { if (o == nullptr) *(float* volatile*)0 = o; else { float* p = nullptr; p[(int64_t)threadIdx.x] = 1.0f; } }
__global__ void transpose(const float* a, float* o, int pad) {
  extern __shared__ float s[];
  int x = threadIdx.x % 32, y = threadIdx.x / 32;
  s[y * (32 + pad) + x] = a[threadIdx.x];
  __syncthreads();
  o[threadIdx.x] = s[x * (32 + pad) + y];
}
__global__ void gather(const float* a, float* o, int64_t stride) { o[threadIdx.x] = a[threadIdx.x * stride]; }
"""

# name of the C function -> launch (kernel, grid, block, shared); flag distinguishes the clean from the faulty run
FLAGGED = {
    "run_reverse": "reverse<<<1, 128>>>(a, o, (int)flag)",
    "run_reuse": "reuse<<<1, 128, 512>>>(a, o, (int)flag)",
    "run_warp": "warp_reverse<<<1, 32>>>(a, o, (int)flag)",
    "run_read_past": "read_past_end<<<1, 32>>>(a, o, flag)",
    "run_wide": "wide<<<1, 16>>>(a, o, (int)flag)",
    "run_transpose": "transpose<<<1, 1024, 4224>>>(a, o, (int)flag)",
    "run_gather": "gather<<<1, 32>>>(a, o, flag)",
    "run_warp_sum": "warp_sum<<<1, 32>>>(a, o)",
    "run_add": "add<<<(unsigned)((flag + 127) / 128), 128>>>(a, a, o, flag)",
    "run_threads": "unset_global<<<1, (unsigned)flag>>>(a, o)",
    "run_grid": "unset_global<<<(unsigned)flag, 32>>>(a, o)",
    "run_shared_limit": "transpose<<<1, 1024, (size_t)flag>>>(a, o, 0)",
}
PLAIN = {
    "run_past": "past_end<<<1, 32>>>(o, flag)",
    "run_shared_past": "shared_past_end<<<1, 64, 256>>>(o, (int)flag)",
    "run_unset": "unset<<<2, 64>>>(o, (int)flag)",
    "run_divergent": "divergent<<<1, 32>>>(o, (int)flag)",
    "run_exit": "early_exit<<<1, 64>>>(o, (int)flag)",
    "run_halves": "halves<<<1, 32>>>(o, (int)flag)",
    "run_absent": "absent<<<1, 32>>>(o)",
    "run_null": "null_write<<<1, 32>>>(o)",
}
HOST = r"""
extern "C" int run_histogram(int64_t atomic, const int* x, int* h) {
  histogram<<<4, 32>>>(x, h, (int)atomic);
  return cudaGetLastError();
}
extern "C" int run_scratch(int64_t fill, const float* a, float* o) {
  float* t;
  if (cudaMalloc(&t, 128 * sizeof(float)) != cudaSuccess) return 2;
  if (fill) add<<<1, 128>>>(a, a, t, 128);
  unset_global<<<1, 128>>>(t, o);
  return fill > 1 ? 0 : cudaFree(t);
}
extern "C" int run_opt_in(int64_t bytes, const float* a, float* o) {
  cudaFuncSetAttribute(transpose, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  transpose<<<1, 1024, (size_t)bytes>>>(a, o, 1);
  return cudaGetLastError();
}
"""


@pytest.fixture(scope="module")
def lib(tmp_path_factory):
    text = KERNELS
    for name, launch in FLAGGED.items():
        text += f'extern "C" int {name}(int64_t flag, const float* a, float* o) {{\n  {launch};\n  return cudaGetLastError();\n}}\n'
    for name, launch in PLAIN.items():
        text += f'extern "C" int {name}(int64_t flag, float* o) {{\n  {launch};\n  return cudaGetLastError();\n}}\n'
    return simt.build(text + HOST, tmp_path_factory.mktemp("simt"), "bugs")


def ramp(n):
    return np.arange(1, n + 1, dtype=np.float32)


def only(kind, faults, also=""):
    """The run has faults of this kind, and of no other but ``also``."""
    others = {k: n for k, n in faults.__dict__.items() if k not in (kind, also)}
    return getattr(faults, kind) > 0 and not any(others.values())


# (function, flag of the clean run, flag of the faulty run, elements of a (0: no input), elements of the output, kind of fault)
BUGS = [
    ("run_reverse", 1, 0, 128, 128, "races"),
    ("run_reuse", 1, 0, 128, 128, "races"),
    ("run_warp", 1, 0, 32, 32, "races"),
    ("run_past", 0, 1, 0, 32, "out_of_bounds"),
    ("run_read_past", 0, 1, 32, 32, "out_of_bounds"),
    ("run_unset", 64, 60, 0, 128, "uninitialised"),
    ("run_divergent", 32, 16, 0, 32, "divergent_barriers"),
    ("run_exit", 64, 40, 0, 64, "divergent_barriers"),
    ("run_halves", 3, 20, 0, 32, "warp_errors"),
    ("run_wide", 0, 1, 65, 16, "misaligned"),
]


@pytest.mark.parametrize(("name", "clean", "faulty", "n", "m", "kind"), BUGS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_injected_bug_is_found_and_its_clean_twin_is_not_blamed(lib, name, clean, faulty, n, m, kind, seed):
    inputs = [ramp(n)] if n else []
    good = lib.call(name, [clean], inputs, [np.empty(m, np.float32)], seed)
    assert good.code == 0 and not good.faults and good.unwritten == [0], good.messages
    bad = lib.call(name, [faulty], inputs, [np.empty(m, np.float32)], seed)
    # without the barrier some lanes read shared memory before it is written: an uninitialised read as well
    also = "uninitialised" if name in ("run_reverse", "run_warp") else ""
    assert only(kind, bad.faults, also), (bad.faults, bad.messages)
    assert bad.messages


def test_race_between_blocks(lib):
    x = np.zeros(128, np.int32)
    h = np.zeros(1, np.int32)
    atomic = lib.call("run_histogram", [1], [x], [h])
    # the output reaches the device uninitialised, so the atomic read of it is the one fault left
    assert only("uninitialised", atomic.faults)
    assert lib.call("run_histogram", [0], [x], [h]).faults.races > 0


def test_shared_memory_past_the_launch_size(lib):
    assert not lib.call("run_shared_past", [0], [], [np.empty(64, np.float32)]).faults
    assert lib.call("run_shared_past", [1], [], [np.empty(64, np.float32)]).faults.out_of_bounds == 1


def test_scratch_between_launches_is_ordered_and_leaks_are_seen(lib):
    a, o = ramp(128), np.empty(128, np.float32)
    good = lib.call("run_scratch", [1], [a], [o])
    assert not good.faults and good.leaked == 0 and len(good.launches) == 2
    assert np.array_equal(good.outputs[0], 2 * a)
    assert only("uninitialised", lib.call("run_scratch", [0], [a], [o]).faults)
    assert lib.call("run_scratch", [2], [a], [o]).leaked == 1


def test_lane_that_does_not_take_part(lib):
    faults = lib.call("run_absent", [0], [], [np.empty(32, np.float32)]).faults
    assert faults.warp_errors > 0 and not (faults.races or faults.out_of_bounds)


def test_null_pointer_ends_the_thread_not_the_process(lib):
    r = lib.call("run_null", [0], [], [np.empty(32, np.float32)])
    assert r.faults.out_of_bounds == 32 and r.unwritten == [128]
    assert "wild access" in r.messages[0]


def test_messages_name_the_source_line(lib):
    text = KERNELS.splitlines()
    line = next(k for k, t in enumerate(text, 1) if "o[n + threadIdx.x]" in t)
    assert f"bugs.cu:{line}" in lib.call("run_past", [1], [], [np.empty(32, np.float32)]).messages[0]


@pytest.mark.parametrize("n", [1, 127, 128, 1000])
def test_values_and_tail(lib, n):
    r = lib.call("run_add", [n], [ramp(n)], [np.empty(n, np.float32)])
    assert np.array_equal(r.outputs[0], 2 * ramp(n)) and not r.faults and r.unwritten == [0]
    assert r.launches[0].grid == -(-n // 128)


def test_unwritten_bytes_of_an_output(lib):
    assert lib.call("run_add", [100], [ramp(100)], [np.empty(103, np.float32)]).unwritten == [12]


def test_warp_sum(lib):
    r = lib.call("run_warp_sum", [0], [ramp(32)], [np.empty(32, np.float32)])
    assert np.array_equal(r.outputs[0], np.full(32, 528, np.float32))
    assert r.launches[0].shuffles == 5


@pytest.mark.parametrize(("stride", "sectors"), [(1, 4), (2, 8), (8, 32), (64, 32)])
def test_sectors_of_a_strided_load(lib, stride, sectors):
    # 32 lanes of 4 bytes: 128 bytes are 4 sectors when contiguous, at most one per lane
    loads = lib.call("run_gather", [stride], [ramp(32 * stride)], [np.empty(32, np.float32)]).launches[0].traffic["global load"]
    assert (loads.instructions, loads.lanes, loads.bytes, loads.moved, loads.ideal) == (1, 32, 128, sectors, 4)


@pytest.mark.parametrize(("pad", "degree"), [(0, 32), (1, 1)])
def test_bank_conflicts_of_a_transpose(lib, pad, degree):
    a = np.arange(1024, dtype=np.float32)
    r = lib.call("run_transpose", [pad], [a], [np.empty(1024, np.float32)])
    assert np.array_equal(r.outputs[0], a.reshape(32, 32).T.ravel())
    loads = r.launches[0].traffic["shared load"]
    assert (loads.instructions, loads.moved, loads.worst) == (32, 32 * degree, degree)
    assert r.launches[0].barriers == 1


def test_launch_limits_of_the_device(lib):
    o = np.empty(1024, np.float32)
    a = ramp(1024)
    invalid_value, invalid_configuration = 1, 9
    assert lib.call("run_threads", [1025], [a], [o]).code == invalid_configuration
    assert lib.call("run_grid", [0], [a], [o]).code == invalid_configuration
    assert lib.call("run_shared_limit", [48 * 1024], [a], [o]).code == 0
    assert lib.call("run_shared_limit", [48 * 1024 + 1], [a], [o]).code == invalid_value
    assert lib.call("run_opt_in", [163 * 1024], [a], [o]).code == 0
    assert lib.call("run_opt_in", [163 * 1024 + 1], [a], [o]).code == invalid_value


def test_translation_keeps_lines():
    text = "__global__ void k(int* p) {}\nvoid f(int* p) {\n  k<<<dim3(1, 2), g(3, 4),\n      8>>>(p);\n}\n"
    out = simt.translate(text, "k.cu").split('#line 1 "k.cu"\n')[1]
    assert out.count("\n") <= text.count("\n") and "simt::launch(\"k\", k, dim3(1, 2),  g(3, 4)," in out


def test_the_runtime_is_compiled_once_and_again_where_nothing_can_be_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = 'extern "C" int nothing() { return 7; }\n'
    assert simt.build(text, tmp_path / "a").call("nothing", [], [], []).code == 7
    (kept,) = (tmp_path / "cache" / "moarw").iterdir()
    before = sorted((p.name, p.stat().st_mtime_ns) for p in kept.iterdir())
    assert simt.build(text, tmp_path / "b").call("nothing", [], [], []).code == 7
    assert sorted((p.name, p.stat().st_mtime_ns) for p in kept.iterdir()) == before
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # no folder can be made there
    assert simt.build(text, tmp_path / "c").call("nothing", [], [], []).code == 7
