// Runtime of the CUDA kernels that moarw writes. Device functions say what C's and CUDA's operators leave open: NaN in max, signs in division.
#pragma once
#ifndef SIMT_HOST
#include <cuda_runtime.h>
#endif
#include <math.h>
#include <stdint.h>

#define MOARW_BOTH static __host__ __device__ __forceinline__
#define MOARW_RESTRICT __restrict__

// accurate, not the fast intrinsic: at most 2 ulp; -inf gives 0
MOARW_BOTH float moarw_exp_f32(float x) { return expf(x); }
MOARW_BOTH double moarw_exp_f64(double x) { return exp(x); }

// max and min propagate NaN; qmax may return either operand when one is NaN
MOARW_BOTH float moarw_qmax_f32(float a, float b) { return fmaxf(a, b); }
MOARW_BOTH double moarw_qmax_f64(double a, double b) { return fmax(a, b); }
MOARW_BOTH float moarw_max_f32(float a, float b) { return b > a || b != b ? b : a; }
MOARW_BOTH double moarw_max_f64(double a, double b) { return b > a || b != b ? b : a; }
MOARW_BOTH float moarw_min_f32(float a, float b) { return b < a || b != b ? b : a; }
MOARW_BOTH double moarw_min_f64(double a, double b) { return b < a || b != b ? b : a; }
MOARW_BOTH int64_t moarw_max_i64(int64_t a, int64_t b) { return b > a ? b : a; }
MOARW_BOTH int64_t moarw_qmax_i64(int64_t a, int64_t b) { return b > a ? b : a; }
MOARW_BOTH int64_t moarw_min_i64(int64_t a, int64_t b) { return b < a ? b : a; }

MOARW_BOTH float moarw_abs_f32(float a) { return fabsf(a); }
MOARW_BOTH double moarw_abs_f64(double a) { return fabs(a); }
MOARW_BOTH int64_t moarw_abs_i64(int64_t a) { return a < 0 ? -a : a; }
MOARW_BOTH float moarw_sign_f32(float a) { return a != a ? a : (float)((a > 0) - (a < 0)); }
MOARW_BOTH double moarw_sign_f64(double a) { return a != a ? a : (double)((a > 0) - (a < 0)); }
MOARW_BOTH int64_t moarw_sign_i64(int64_t a) { return (a > 0) - (a < 0); }

// floor division and its remainder: a == b * fdiv(a, b) + fmod(a, b), 0 <= fmod(a, b) < b for b > 0; an integer divided by 0 gives 0
MOARW_BOTH int64_t moarw_fdiv_i64(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return (int64_t)(0 - (uint64_t)a);
  return a / b - ((a % b != 0) & ((a < 0) != (b < 0)));
}
MOARW_BOTH int64_t moarw_fmod_i64(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  const int64_t r = a % b;
  return r + (((r != 0) & ((r < 0) != (b < 0))) ? b : 0);
}
MOARW_BOTH float moarw_fdiv_f32(float a, float b) { return floorf(a / b); }
MOARW_BOTH double moarw_fdiv_f64(double a, double b) { return floor(a / b); }
MOARW_BOTH float moarw_fmod_f32(float a, float b) {
  const float r = fmodf(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
MOARW_BOTH double moarw_fmod_f64(double a, double b) {
  const double r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
MOARW_BOTH float moarw_pow_f32(float a, float b) { return powf(a, b); }
MOARW_BOTH double moarw_pow_f64(double a, double b) { return pow(a, b); }
MOARW_BOTH int64_t moarw_pow_i64(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
  uint64_t r = 1, x = (uint64_t)a;
  for (; b > 0; b >>= 1, x *= x)
    if (b & 1) r *= x;
  return (int64_t)r;
}

// --- host: sizes, each operation sets *bad on overflow ---
static inline int64_t moarw_add(int64_t a, int64_t b, bool* bad) { int64_t r; *bad |= __builtin_add_overflow(a, b, &r); return r; }
static inline int64_t moarw_sub(int64_t a, int64_t b, bool* bad) { int64_t r; *bad |= __builtin_sub_overflow(a, b, &r); return r; }
static inline int64_t moarw_mul(int64_t a, int64_t b, bool* bad) { int64_t r; *bad |= __builtin_mul_overflow(a, b, &r); return r; }
// one more axis of an array; a zero extent does not hide an overflow of the others
static inline int64_t moarw_extent(int64_t count, int64_t extent, bool* bad) {
  *bad |= extent < 0;
  return moarw_mul(count, extent > 0 ? extent : 1, bad);
}
// bytes of a buffer, a multiple of 64
static inline int64_t moarw_bytes(int64_t count, int64_t each, bool* bad) { return moarw_add(moarw_mul(count, each, bad), 63, bad) / 64 * 64; }
// blocks of a launch: as many as there is work for, at most what gridDim.x can hold; kernels loop over the rest
static inline unsigned moarw_grid(int64_t blocks) { return (unsigned)(blocks < 0x7fffffff ? blocks : 0x7fffffff); }
// asks for dynamic shared memory: 0, or 3 when a block cannot have so much
template <class K> static inline int moarw_allow_shared(K* kernel, int64_t bytes) {
  if (bytes <= 48 * 1024) return 0;
  if (bytes > 0x7fffffff || cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) != cudaSuccess) {
    (void)cudaGetLastError();
    return 3;
  }
  return 0;
}
