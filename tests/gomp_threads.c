/* The part of GCC's OpenMP runtime that emitted kernels call, over POSIX threads.
 *
 * libgomp is not built for ThreadSanitizer, which therefore does not see its barriers and the end of its regions, and reports races that there are not.
 * Linked into a program, these definitions take the place of libgomp's, and what is reported is real.
 *
 * It also makes races easy to see. A region always has all threads, even where its `if` asks for one: tests have small sizes. Chunks of a dynamic schedule
 * are dealt out in turn, so every thread has its share however short the loop is, and dealing needs no shared counter that would order the threads.
 *
 * Threads: variable MOARW_TEST_THREADS, 2 if it is not set. The file named by MOARW_TEST_REPORT gets the number of regions and of loops dealt out. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long ull;

struct thread {
    int id, count;
    pthread_barrier_t *barrier;
    ull chunk, turn, chunks; /* of the loop that is dealt out: a chunk's length, this thread's next one, how many */
    ull start, end, step;
    bool up;
};

static __thread struct thread self = {.count = 1};
static long regions, loops; /* written by the first thread only, outside of regions */

static int threads(void) {
    const char *text = getenv("MOARW_TEST_THREADS");
    const int n = text ? atoi(text) : 2;
    return n > 0 ? n : 1;
}

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("MOARW_TEST_REPORT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    fprintf(f, "%ld %ld\n", regions, loops);
    fclose(f);
}

int omp_get_thread_num(void) { return self.id; }
int omp_get_num_threads(void) { return self.count; }
int omp_get_max_threads(void) { return threads(); }
int omp_get_num_procs(void) { return threads(); }
int omp_in_parallel(void) { return self.barrier != NULL; }

/* --- loops with a dynamic schedule --- */
static void deal(bool up, ull start, ull end, ull step, ull chunk) {
    const bool some = up ? (long long)start < (long long)end : (long long)start > (long long)end;
    const ull each = up ? step : 0 - step, length = up ? end - start : start - end;
    const ull trips = some ? (length + each - 1) / each : 0;
    self.up = up, self.start = start, self.end = end, self.step = step, self.chunk = chunk ? chunk : 1;
    self.turn = (ull)self.id, self.chunks = (trips + self.chunk - 1) / self.chunk;
    if (self.id == 0) loops++;
}

static bool next(ull *from, ull *to) {
    if (self.turn >= self.chunks) return false;
    *from = self.start + self.turn * self.chunk * self.step;
    *to = self.turn + 1 == self.chunks ? self.end : *from + self.chunk * self.step;
    self.turn += (ull)self.count;
    return true;
}

#define LOOP(KIND)                                                                                                                  \
    bool GOMP_loop_##KIND##_next(long *from, long *to) { return next((ull *)from, (ull *)to); }                                      \
    bool GOMP_loop_##KIND##_start(long start, long end, long step, long chunk, long *from, long *to) {                               \
        deal(step > 0, (ull)start, (ull)end, (ull)step, (ull)chunk);                                                                 \
        return next((ull *)from, (ull *)to);                                                                                         \
    }                                                                                                                                \
    bool GOMP_loop_ull_##KIND##_next(ull *from, ull *to) { return next(from, to); }                                                  \
    bool GOMP_loop_ull_##KIND##_start(bool up, ull start, ull end, ull step, ull chunk, ull *from, ull *to) {                        \
        deal(up, start, end, step, chunk);                                                                                           \
        return next(from, to);                                                                                                       \
    }
LOOP(dynamic)
LOOP(nonmonotonic_dynamic)
LOOP(guided)
LOOP(nonmonotonic_guided)

void GOMP_barrier(void) {
    if (self.barrier) pthread_barrier_wait(self.barrier);
}
void GOMP_loop_end(void) { GOMP_barrier(); }
void GOMP_loop_end_nowait(void) {}

/* --- regions --- */
struct work {
    void (*body)(void *);
    void *data;
    struct thread thread; /* what the thread starts with */
};

static void *run(void *p) {
    const struct work *w = p;
    self = w->thread;
    w->body(w->data);
    return NULL;
}

static void region(void (*body)(void *), void *data, struct thread first, int n) {
    const struct thread outside = self;
    pthread_barrier_t barrier;
    pthread_t id[n];
    struct work work[n];
    if (outside.barrier) n = 1; /* a region inside another has one thread */
    else regions++;
    if (pthread_barrier_init(&barrier, NULL, (unsigned)n)) abort();
    for (int t = n - 1; t >= 0; t--) {
        work[t] = (struct work){body, data, first};
        work[t].thread.id = t, work[t].thread.count = n, work[t].thread.turn = (ull)t, work[t].thread.barrier = &barrier;
        if (t > 0 && pthread_create(&id[t], NULL, run, &work[t])) abort();
    }
    run(&work[0]);
    self = outside;
    for (int t = 1; t < n; t++) pthread_join(id[t], NULL);
    pthread_barrier_destroy(&barrier);
}

void GOMP_parallel(void (*body)(void *), void *data, unsigned n, unsigned flags) {
    (void)n, (void)flags;
    region(body, data, self, threads());
}

#define PARALLEL_LOOP(KIND)                                                                                                         \
    void GOMP_parallel_loop_##KIND(void (*body)(void *), void *data, unsigned n, long start, long end, long step, long chunk, unsigned flags) { \
        (void)n, (void)flags;                                                                                                        \
        const struct thread outside = self;                                                                                          \
        deal(step > 0, (ull)start, (ull)end, (ull)step, (ull)chunk);                                                                 \
        const struct thread first = self;                                                                                            \
        self = outside;                                                                                                              \
        region(body, data, first, threads());                                                                                        \
    }
PARALLEL_LOOP(dynamic)
PARALLEL_LOOP(nonmonotonic_dynamic)
PARALLEL_LOOP(guided)
PARALLEL_LOOP(nonmonotonic_guided)
