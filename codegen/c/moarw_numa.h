/* How threads share the iterations of a machine's memory domains. Written for kernels made by moarw; see moarw.h.
 *
 * D domains and nt threads divide one line of D * nt units: domain o owns the units [o*nt, (o+1)*nt), thread t the units [t*D, (t+1)*D). A thread runs, of each
 * domain that it meets, the part of the domain's iterations that its units are of the domain's. So the iterations of a domain are shared out whole, contiguously
 * and in order of threads, and all threads get equally many units, whatever nt is. When D divides nt each thread serves the one domain t * D / nt, which is
 * where OMP_PLACES=cores with proc_bind(spread) puts it on a machine whose cores are numbered domain by domain. */
#ifndef MOARW_NUMA_H
#define MOARW_NUMA_H

#include "moarw.h"

#ifdef _OPENMP
MOARW_INLINE int64_t moarw_team(void) { return omp_get_num_threads(); }
#else
MOARW_INLINE int64_t moarw_team(void) { return 1; }
#endif

/* The domains that thread t serves: first, and one past the last. */
MOARW_INLINE int64_t moarw_first(int64_t domains, int64_t t, int64_t nt) { return t * domains / nt; }
MOARW_INLINE int64_t moarw_last(int64_t domains, int64_t t, int64_t nt) { return ((t + 1) * domains + nt - 1) / nt; }

/* Iterations of two nested loops. */
MOARW_INLINE int64_t moarw_all(int64_t a, int64_t b) { return a > 0 && b > 0 ? a * b : 0; }

/* The iterations [*lo, *hi) of the count iterations of a domain that thread t of nt runs; none for a count below 1. */
MOARW_INLINE void moarw_share(int64_t domain, int64_t domains, int64_t count, int64_t t, int64_t nt, int64_t *lo, int64_t *hi) {
    const int64_t n = count > 0 ? count : 0, each = n / nt, rest = n % nt; /* n * units / nt without overflow */
    const int64_t from = t * domains - domain * nt, to = from + domains;
    const int64_t a = from > 0 ? (from < nt ? from : nt) : 0, b = to > 0 ? (to < nt ? to : nt) : 0;
    *lo = each * a + rest * a / nt;
    *hi = each * b + rest * b / nt;
}

#endif
