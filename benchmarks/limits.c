// What the machine can do, for the denominators of the tables: fused multiply-adds and streams over memory. Every function returns seconds.
#include <omp.h>
#include <stdint.h>
#include <time.h>

// One thread: processor time, as for the contenders.
static double now(int threads) {
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#ifdef __AVX512F__
#define BYTES 64
#else
#define BYTES 32
#endif
#define CHAINS 12  // enough to hide the latency of two pipes

#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define START(c) vector a##c = {0}; a##c += c;
#define STEP(c) a##c = a##c * b + b; __asm__("" : "+v"(a##c));
#define END(c) sink += (double)a##c[0];
#define FMA(NAME, TYPE)                                                                             \
    double NAME(int threads, int64_t rounds, double *flops) {                                       \
        typedef TYPE vector __attribute__((vector_size(BYTES)));                                    \
        double sink = 0;                                                                            \
        const double start = now(threads);                                                       \
        _Pragma("omp parallel num_threads(threads) reduction(+ : sink)") {                          \
            vector b = {0};                                                                         \
            b += (TYPE)1e-9;                                                                        \
            EACH(START)                                                                             \
            for (int64_t r = 0; r < rounds; r++) { EACH(STEP) }                                     \
            EACH(END)                                                                               \
        }                                                                                           \
        const double took = now(threads) - start;                                                \
        *flops = 2.0 * CHAINS * (BYTES / sizeof(TYPE)) * (double)rounds * threads + 0 * sink;       \
        return took;                                                                                \
    }
FMA(fma_f32, float)
FMA(fma_f64, double)

typedef float v8 __attribute__((vector_size(32)));

double copy(int threads, const float *x, float *y, int64_t n) {
    const double start = now(threads);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i += 8) *(v8 *)(y + i) = *(const v8 *)(x + i);
    return now(threads) - start;
}

double copy_streaming(int threads, const float *x, float *y, int64_t n) {
    const double start = now(threads);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i += 8) __builtin_ia32_movntps256(y + i, *(const v8 *)(x + i));
    __builtin_ia32_sfence();
    return now(threads) - start;
}

double read_all(int threads, const float *x, int64_t n, float *out) {
    float total = 0;
    const double start = now(threads);
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        v8 acc[8] = {{0}};
#pragma omp for schedule(static)
        for (int64_t i = 0; i < n; i += 64)
            for (int c = 0; c < 8; c++) acc[c] += *(const v8 *)(x + i + 8 * c);
        for (int c = 0; c < 8; c++) total += acc[c][0];
    }
    *out = total;
    return now(threads) - start;
}
