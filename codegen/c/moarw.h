/* Runtime of kernels written by moarw: C99/C11, GCC or Clang. Nothing here touches the floating-point environment.
 *
 * exp: x = n ln2 + r, |r| <= ln2/2; e^r = 1 + r + r^2 q(r) with q the minimax polynomial for the relative error of e^r (Remez exchange in
 * 50 digits, coefficients rounded to the type; q has degree 4: 3.1e-9, degree 9: 3.7e-18); then n is added to the exponent.
 * Measured: below 1.5 ulp in both types. -inf and everything whose result is subnormal give 0; overflow gives inf; NaN stays NaN. */
#ifndef MOARW_H
#define MOARW_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __SSE2__
#include <immintrin.h>
#endif

#define MOARW_INLINE static inline __attribute__((always_inline, unused))
#define MOARW_NOINLINE __attribute__((noinline))

MOARW_INLINE float moarw_exp_f32(float x) {
    const float low = -87.33654f, high = 88.72283f;
    float c = x < low ? low : x;
    c = c > high ? high : c;
    const float shifted = c * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the sum's low bits are round(c / ln2) */
    const float n = shifted - 12582912.0f;
    const float r = (c - n * 0.693359375f) + n * 2.12194440e-4f; /* ln2 = 355/512 - 2.1219444e-4 */
    float p = 0x1.6a23d0p-10f;
    p = p * r + 0x1.123a20p-7f;
    p = p * r + 0x1.5558f2p-5f;
    p = p * r + 0x1.555492p-3f;
    p = p * r + 0x1.fffffcp-2f;
    p = p * (r * r) + r + 1.0f;
    uint32_t bits, exponent;
    memcpy(&bits, &p, 4);
    memcpy(&exponent, &shifted, 4);
    bits += exponent << 23;
    memcpy(&p, &bits, 4);
    p = x < low ? 0.0f : p;
    p = x > high ? INFINITY : p;
    return x != x ? x : p;
}

MOARW_INLINE double moarw_exp_f64(double x) {
    const double low = -708.396418532264, high = 709.782712893384;
    double c = x < low ? low : x;
    c = c > high ? high : c;
    const double shifted = c * 1.4426950408889634 + 6755399441055744.0; /* 1.5 * 2^52 */
    const double n = shifted - 6755399441055744.0;
    const double r = (c - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10; /* ln2 in two parts, the first with 32 bits */
    double p = 0x1.ad7f3ee5d2f80p-26;
    p = p * r + 0x1.28ad9b8648615p-22;
    p = p * r + 0x1.71df25b30d420p-19;
    p = p * r + 0x1.a01999e26209fp-16;
    p = p * r + 0x1.a01a012a0f35cp-13;
    p = p * r + 0x1.6c16c18438b11p-10;
    p = p * r + 0x1.1111111127d0ep-7;
    p = p * r + 0x1.555555555083ep-5;
    p = p * r + 0x1.55555555554f9p-3;
    p = p * r + 0x1.000000000000ap-1;
    p = p * (r * r) + r + 1.0;
    uint64_t bits, exponent;
    memcpy(&bits, &p, 8);
    memcpy(&exponent, &shifted, 8);
    bits += exponent << 52;
    memcpy(&p, &bits, 8);
    p = x < low ? 0.0 : p;
    p = x > high ? (double)INFINITY : p;
    return x != x ? x : p;
}

/* exp(x) for x <= 0 or NaN: no overflow to look after; the power of two is a factor, 0 below the normal numbers. */
MOARW_INLINE float moarw_expn_f32(float x) {
    const float c = x < -88.02969f ? -88.02969f : x;
    const float shifted = c * 1.44269504f + 12583039.0f; /* 1.5 * 2^23 + 127: the low bits are the biased exponent */
    const float n = shifted - 12583039.0f;
    const float r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 0x1.6a23d0p-10f, scale;
    p = p * r + 0x1.123a20p-7f;
    p = p * r + 0x1.5558f2p-5f;
    p = p * r + 0x1.555492p-3f;
    p = p * r + 0x1.fffffcp-2f;
    p = p * (r * r) + r;
    uint32_t bits;
    memcpy(&bits, &shifted, 4);
    bits <<= 23;
    memcpy(&scale, &bits, 4);
    return p * scale + scale;
}
MOARW_INLINE double moarw_expn_f64(double x) { return moarw_exp_f64(x); }

/* max and min propagate NaN (an instruction of the machine, then the test of b); qmax may return either operand when one is NaN (one instruction). */
MOARW_INLINE float moarw_qmax_f32(float a, float b) { return b > a ? b : a; }
MOARW_INLINE double moarw_qmax_f64(double a, double b) { return b > a ? b : a; }
MOARW_INLINE float moarw_max_f32(float a, float b) { const float m = b > a ? b : a; return b != b ? b : m; }
MOARW_INLINE double moarw_max_f64(double a, double b) { const double m = b > a ? b : a; return b != b ? b : m; }
MOARW_INLINE float moarw_min_f32(float a, float b) { const float m = b < a ? b : a; return b != b ? b : m; }
MOARW_INLINE double moarw_min_f64(double a, double b) { const double m = b < a ? b : a; return b != b ? b : m; }
MOARW_INLINE int64_t moarw_max_i64(int64_t a, int64_t b) { return b > a ? b : a; }
MOARW_INLINE int64_t moarw_qmax_i64(int64_t a, int64_t b) { return b > a ? b : a; }
MOARW_INLINE int64_t moarw_min_i64(int64_t a, int64_t b) { return b < a ? b : a; }

MOARW_INLINE float moarw_abs_f32(float a) { return fabsf(a); }
MOARW_INLINE double moarw_abs_f64(double a) { return fabs(a); }
MOARW_INLINE int64_t moarw_abs_i64(int64_t a) { return a < 0 ? -a : a; }
MOARW_INLINE float moarw_sign_f32(float a) { return a != a ? a : (float)((a > 0) - (a < 0)); }
MOARW_INLINE double moarw_sign_f64(double a) { return a != a ? a : (double)((a > 0) - (a < 0)); }
MOARW_INLINE int64_t moarw_sign_i64(int64_t a) { return (a > 0) - (a < 0); }

/* Floor division and its remainder: a == b * fdiv(a, b) + fmod(a, b), 0 <= fmod(a, b) < b for b > 0. Division of an integer by 0 gives 0. */
MOARW_INLINE int64_t moarw_fdiv_i64(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    return a / b - ((a % b != 0) & ((a < 0) != (b < 0)));
}
MOARW_INLINE int64_t moarw_fmod_i64(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    const int64_t r = a % b;
    return r + (((r != 0) & ((r < 0) != (b < 0))) ? b : 0);
}
MOARW_INLINE double moarw_fdiv_f64(double a, double b) { return floor(a / b); }
MOARW_INLINE float moarw_fdiv_f32(float a, float b) { return floorf(a / b); }
MOARW_INLINE double moarw_fmod_f64(double a, double b) {
    const double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
MOARW_INLINE float moarw_fmod_f32(float a, float b) {
    const float r = fmodf(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

MOARW_INLINE float moarw_pow_f32(float a, float b) { return powf(a, b); }
MOARW_INLINE double moarw_pow_f64(double a, double b) { return pow(a, b); }
MOARW_INLINE int64_t moarw_pow_i64(int64_t a, int64_t b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    uint64_t r = 1, x = (uint64_t)a;
    for (; b > 0; b >>= 1, x *= x)
        if (b & 1) r *= x;
    return (int64_t)r;
}

/* Elements of a row of n before the first that begins a line; n where none does. */
MOARW_INLINE int64_t moarw_head(const void *row, int64_t n, int64_t size) {
    const int64_t head = (int64_t)(-(uintptr_t)row & 63) / size;
    return head < n && (uintptr_t)row % (uintptr_t)size == 0 ? head : n;
}
/* to is on a 64-byte boundary, from too; bytes is a multiple of 64. */
MOARW_INLINE void moarw_stream(void *to, const void *from, size_t bytes) {
#if defined(__AVX__)
    for (size_t k = 0; k < bytes / 32; k++) _mm256_stream_si256((__m256i *)to + k, _mm256_load_si256((const __m256i *)from + k));
#elif defined(__SSE2__)
    for (size_t k = 0; k < bytes / 16; k++) _mm_stream_si128((__m128i *)to + k, _mm_load_si128((const __m128i *)from + k));
#else
    memcpy(to, from, bytes);
#endif
}
/* Before others may read what was streamed. */
MOARW_INLINE void moarw_fence(void) {
#ifdef __SSE2__
    _mm_sfence();
#endif
}
/* The line of a byte at this distance from an array, which may end before it. */
MOARW_INLINE void moarw_prefetch(const void *array, int64_t bytes) { __builtin_prefetch((const void *)((uintptr_t)array + (uintptr_t)bytes), 0, 2); }

/* Running sums of a piece of 256 bytes, in place, after a carry; returns the last, the next carry. Those of a vector are made in log2 steps, each of which
 * adds to every lane the one so many places before it, and the carry waits for one addition a vector. One after another without GCC's shuffles. */
#define MOARW_ADD(a, b, I) ((a) + (b))
#define MOARW_MUL(a, b, I) ((a) * (b))
#define MOARW_PICK(a, b, I, test) ((__typeof__(a))(((I)(test) & (I)(b)) | (~(I)(test) & (I)(a))))
#define MOARW_MAX(a, b, I) MOARW_PICK(a, b, I, ((b) > (a)) | ((b) != (b)))
#define MOARW_MIN(a, b, I) MOARW_PICK(a, b, I, ((b) < (a)) | ((b) != (b)))
#if defined(__GNUC__) && !defined(__clang__)
#if defined(__AVX512F__)
#define MOARW_VECTOR 64
#define MOARW_LANES_4 {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
#define MOARW_LANES_8 {0, 1, 2, 3, 4, 5, 6, 7}
#elif defined(__AVX2__)
#define MOARW_VECTOR 32
#define MOARW_LANES_4 {0, 1, 2, 3, 4, 5, 6, 7}
#define MOARW_LANES_8 {0, 1, 2, 3}
#else
#define MOARW_VECTOR 16
#define MOARW_LANES_4 {0, 1, 2, 3}
#define MOARW_LANES_8 {0, 1}
#endif
typedef int32_t moarw_lanes_4 __attribute__((vector_size(MOARW_VECTOR)));
typedef int64_t moarw_lanes_8 __attribute__((vector_size(MOARW_VECTOR)));
#define MOARW_STEP(s, OP, I) \
    if (s < lanes) v = OP(__builtin_shuffle(none, v, place + (lanes - s)), v, I);
#define MOARW_SCAN(name, T, bytes, OP, identity)                                  \
    MOARW_INLINE T moarw_scan_##name(T *piece, T carry) {                         \
        typedef T V __attribute__((vector_size(MOARW_VECTOR)));                   \
        enum { lanes = MOARW_VECTOR / bytes };                                    \
        const moarw_lanes_##bytes place = MOARW_LANES_##bytes;                    \
        const V none = (V){0} + (T)(identity);                                    \
        V before = (V){0} + carry;                                                \
        for (int k = 0; k < 256 / bytes; k += lanes) {                            \
            V v;                                                                  \
            memcpy(&v, piece + k, sizeof v);                                      \
            MOARW_STEP(1, OP, moarw_lanes_##bytes)                                \
            MOARW_STEP(2, OP, moarw_lanes_##bytes)                                \
            MOARW_STEP(4, OP, moarw_lanes_##bytes)                                \
            MOARW_STEP(8, OP, moarw_lanes_##bytes)                                \
            const V all = __builtin_shuffle(v, place * 0 + (lanes - 1));          \
            v = OP(before, v, moarw_lanes_##bytes);                               \
            before = OP(before, all, moarw_lanes_##bytes);                        \
            memcpy(piece + k, &v, sizeof v);                                      \
        }                                                                         \
        return before[0];                                                         \
    }
#else
#define MOARW_SCAN(name, T, bytes, OP, identity)                                  \
    MOARW_INLINE T moarw_scan_##name(T *piece, T carry) {                         \
        for (int k = 0; k < 256 / bytes; k++) {                                   \
            carry = MOARW_ONE_##OP(carry, piece[k]);                              \
            piece[k] = carry;                                                     \
        }                                                                         \
        return carry;                                                             \
    }
#define MOARW_ONE_MOARW_ADD(a, b) ((a) + (b))
#define MOARW_ONE_MOARW_MUL(a, b) ((a) * (b))
#define MOARW_ONE_MOARW_MAX(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define MOARW_ONE_MOARW_MIN(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
#endif
#define MOARW_SCANS(ty, T, bytes, least, most)        \
    MOARW_SCAN(add_##ty, T, bytes, MOARW_ADD, 0)      \
    MOARW_SCAN(mul_##ty, T, bytes, MOARW_MUL, 1)      \
    MOARW_SCAN(max_##ty, T, bytes, MOARW_MAX, least)  \
    MOARW_SCAN(min_##ty, T, bytes, MOARW_MIN, most)
MOARW_SCANS(f32, float, 4, -INFINITY, INFINITY)
MOARW_SCANS(f64, double, 8, -(double)INFINITY, (double)INFINITY)
MOARW_SCANS(i32, int32_t, 4, INT32_MIN, INT32_MAX)
MOARW_SCANS(i64, int64_t, 8, INT64_MIN, INT64_MAX)

/* Sizes: each operation sets *bad on overflow. */
MOARW_INLINE int64_t moarw_add(int64_t a, int64_t b, bool *bad) { int64_t r; *bad |= __builtin_add_overflow(a, b, &r); return r; }
MOARW_INLINE int64_t moarw_sub(int64_t a, int64_t b, bool *bad) { int64_t r; *bad |= __builtin_sub_overflow(a, b, &r); return r; }
MOARW_INLINE int64_t moarw_mul(int64_t a, int64_t b, bool *bad) { int64_t r; *bad |= __builtin_mul_overflow(a, b, &r); return r; }
/* One more axis of an array: count so far times a non-negative extent. A zero extent does not hide an overflow of the others. */
MOARW_INLINE int64_t moarw_extent(int64_t count, int64_t extent, bool *bad) {
    *bad |= extent < 0;
    return moarw_mul(count, extent > 0 ? extent : 1, bad);
}
/* Bytes of a workspace, a multiple of 64. */
MOARW_INLINE int64_t moarw_bytes(int64_t count, int64_t each, bool *bad) {
    return moarw_add(moarw_mul(count, each, bad), 63, bad) / 64 * 64;
}

#ifdef _OPENMP
MOARW_INLINE int64_t moarw_threads(void) { return omp_get_max_threads(); }
MOARW_INLINE int64_t moarw_thread(void) { return omp_get_thread_num(); }
#else
MOARW_INLINE int64_t moarw_threads(void) { return 1; }
MOARW_INLINE int64_t moarw_thread(void) { return 0; }
#endif

#endif
