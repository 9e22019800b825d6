// A CUDA source compiled as host C++ (g++ >= 11): the names a kernel and its launcher may use. simt_*.cpp is the runtime behind them.
//
// Kernels are compiled with -fsanitize=thread and linked with the runtime in place of libtsan, so that every load and store that can be seen
// by another thread reaches simt_access. Non-escaping locals are not instrumented: on the device they are registers.
#pragma once
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define SIMT_HOST 1
#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __shared__ static __attribute__((aligned(16), section("simt_shared")))  // blocks run one after another

struct uint3 { unsigned x, y, z; };
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
using std::max;
using std::min;

enum { SIMT_LOAD, SIMT_STORE, SIMT_ATOMIC };                                             // what an access does
enum { SIMT_GLOBAL, SIMT_SHARED };                                                      // where it goes
enum { SIMT_SYNC, SIMT_IDX, SIMT_UP, SIMT_DOWN, SIMT_XOR, SIMT_BALLOT, SIMT_ANY, SIMT_ALL };  // warp operations

extern "C" {
// `const`: the compiler may hoist them, since a kernel's frame belongs to exactly one CUDA thread
uint3 simt_thread() __attribute__((const));
uint3 simt_block() __attribute__((const));
uint3 simt_block_dim() __attribute__((const));
uint3 simt_grid_dim() __attribute__((const));
int simt_barrier(int line, int op, int predicate);  // op: -1 none, 0 count, 1 and, 2 or
uint64_t simt_warp(int op, unsigned mask, uint64_t value, int arg, int width, int line);
void* simt_dynamic_shared();
void simt_access(const void* p, int size, int kind, const void* site);
}

#define threadIdx (simt_thread())
#define blockIdx (simt_block())
#define blockDim (simt_block_dim())
#define gridDim (simt_grid_dim())
static const int warpSize __attribute__((unused)) = 32;

// --- barriers and warp operations; a barrier is known by its source line ---------------------------------------------------------
#define SIMT_LINE int line = __builtin_LINE()
#define SIMT_INLINE static inline __attribute__((always_inline, unused))
SIMT_INLINE void __syncthreads(SIMT_LINE) { simt_barrier(line, -1, 0); }
SIMT_INLINE int __syncthreads_count(int p, SIMT_LINE) { return simt_barrier(line, 0, p); }
SIMT_INLINE int __syncthreads_and(int p, SIMT_LINE) { return simt_barrier(line, 1, p); }
SIMT_INLINE int __syncthreads_or(int p, SIMT_LINE) { return simt_barrier(line, 2, p); }
SIMT_INLINE void __syncwarp(unsigned m = ~0u, SIMT_LINE) { simt_warp(SIMT_SYNC, m, 0, 0, 32, line); }
SIMT_INLINE unsigned __ballot_sync(unsigned m, int p, SIMT_LINE) { return (unsigned)simt_warp(SIMT_BALLOT, m, p != 0, 0, 32, line); }
SIMT_INLINE int __any_sync(unsigned m, int p, SIMT_LINE) { return (int)simt_warp(SIMT_ANY, m, p != 0, 0, 32, line); }
SIMT_INLINE int __all_sync(unsigned m, int p, SIMT_LINE) { return (int)simt_warp(SIMT_ALL, m, p != 0, 0, 32, line); }
template <class T> SIMT_INLINE T simt_shuffle(int op, unsigned m, T v, int arg, int width, int line) {
  static_assert(sizeof(T) <= 8, "a shuffle moves 4 or 8 bytes");
  uint64_t u = 0;
  __builtin_memcpy(&u, &v, sizeof(T));
  u = simt_warp(op, m, u, arg, width, line);
  __builtin_memcpy(&v, &u, sizeof(T));
  return v;
}
template <class T> SIMT_INLINE T __shfl_sync(unsigned m, T v, int a, int w = 32, SIMT_LINE) { return simt_shuffle(SIMT_IDX, m, v, a, w, line); }
template <class T> SIMT_INLINE T __shfl_up_sync(unsigned m, T v, unsigned a, int w = 32, SIMT_LINE) { return simt_shuffle(SIMT_UP, m, v, (int)a, w, line); }
template <class T> SIMT_INLINE T __shfl_down_sync(unsigned m, T v, unsigned a, int w = 32, SIMT_LINE) { return simt_shuffle(SIMT_DOWN, m, v, (int)a, w, line); }
template <class T> SIMT_INLINE T __shfl_xor_sync(unsigned m, T v, int a, int w = 32, SIMT_LINE) { return simt_shuffle(SIMT_XOR, m, v, a, w, line); }

// --- arithmetic that glibc lacks or names otherwise -------------------------------------------------------------------------------
#define __expf(x) expf(x)
#define __logf(x) logf(x)
SIMT_INLINE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
SIMT_INLINE float __fdividef(float a, float b) { return a / b; }
SIMT_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
SIMT_INLINE int __ffs(int x) { return __builtin_ffs(x); }
SIMT_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
template <class T> SIMT_INLINE T __ldg(const T* p) { return *p; }

// --- atomics: fibers switch only at synchronisation, so a plain read-modify-write is atomic; it is logged as one access -------------
#define SIMT_RAW __attribute__((noinline, unused, no_sanitize("thread")))
#define SIMT_ATOMIC_OP(name, T, expr)                              \
  SIMT_RAW static T name(T* p, T v) {                              \
    simt_access(p, sizeof(T), SIMT_ATOMIC, __builtin_return_address(0)); \
    T o = *p;                                                      \
    *p = (expr);                                                   \
    return o;                                                      \
  }
SIMT_ATOMIC_OP(atomicAdd, float, o + v)
SIMT_ATOMIC_OP(atomicAdd, double, o + v)
SIMT_ATOMIC_OP(atomicAdd, int, o + v)
SIMT_ATOMIC_OP(atomicAdd, unsigned, o + v)
SIMT_ATOMIC_OP(atomicMax, int, o > v ? o : v)
SIMT_ATOMIC_OP(atomicMin, int, o < v ? o : v)
SIMT_ATOMIC_OP(atomicExch, int, v)
SIMT_RAW static unsigned atomicCAS(unsigned* p, unsigned c, unsigned v) {
  simt_access(p, 4, SIMT_ATOMIC, __builtin_return_address(0));
  unsigned o = *p;
  if (o == c) *p = v;
  return o;
}
// one request of 16 bytes: a plain float4 copy may be split before it is instrumented
SIMT_RAW static float4 simt_load4(const float* p) {
  simt_access(p, 16, SIMT_LOAD, __builtin_return_address(0));
  float4 r;
  memcpy(&r, p, 16);
  return r;
}
SIMT_RAW static void simt_store4(float* p, float4 v) {
  simt_access(p, 16, SIMT_STORE, __builtin_return_address(0));
  memcpy(p, &v, 16);
}

// --- host side: the part of the CUDA runtime API that launchers use -----------------------------------------------------------------
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorInvalidConfiguration = 9, cudaErrorLaunchFailure = 719 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
typedef struct SimtStream* cudaStream_t;
extern "C" {
cudaError_t simt_malloc(void** p, size_t n);
cudaError_t cudaFree(void* p);
cudaError_t cudaGetLastError();
cudaError_t cudaDeviceSynchronize();
cudaError_t simt_allow_shared(const void* kernel, int bytes);
void simt_launch(const char* name, const void* kernel, dim3 grid, dim3 block, size_t shared, void (*body)(void*), void* closure, size_t closure_size);
}
template <class T> static inline cudaError_t cudaMalloc(T** p, size_t n) { return simt_malloc((void**)p, n); }
template <class F> static inline cudaError_t cudaFuncSetAttribute(F* f, cudaFuncAttribute, int bytes) { return simt_allow_shared((const void*)f, bytes); }
namespace simt {
template <class K, class F> void launch(const char* name, K* kernel, dim3 grid, dim3 block, size_t shared, F body) {
  simt_launch(name, (const void*)kernel, grid, block, shared, [](void* c) { (*(F*)c)(); }, &body, sizeof body);
}
}  // namespace simt

// --- what is counted, per launch; read by the Python side through ctypes ------------------------------------------------------------
struct SimtCount { uint64_t instructions, lanes, bytes, moved, ideal, worst; };  // moved: 32-byte sectors (global) or wavefronts (shared)
struct SimtStats {
  char kernel[64];
  uint64_t grid, block, shared;
  SimtCount count[2][3];  // [global, shared][load, store, atomic], in warp instructions
  uint64_t sectors_read, sectors_written;  // distinct 32-byte sectors of global memory
  uint64_t barriers, shuffles, votes, warp_syncs, local;
  uint64_t races, out_of_bounds, uninitialised, divergent_barriers, warp_errors, misaligned, deadlocks;
};
