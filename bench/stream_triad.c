#include "stream_triad.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "bench_common.h"

enum { MOST_THREADS = 64, ALIGN = 2 << 20, PIECE = 2 << 20 };

typedef struct share {
    double *memory;
    size_t pieces;
    int repeats;
    pthread_barrier_t *barrier;
    const struct share *all;
    int threads;
    double start; /* of the last piece */
    double best;  /* seconds of a piece, from the first thread's start to the last one's end */
} share;

static void *run_share(void *arg)
{
    share *s = arg;
    for (size_t r = 0; r < s->pieces * (size_t)s->repeats; r++) {
        double *restrict a = s->memory + r % s->pieces * 3 * PIECE, scale = 3 + (double)(r % 2);
        const double *restrict b = a + PIECE, *restrict c = b + PIECE;
        pthread_barrier_wait(s->barrier);
        s->start = bench_now();
        for (size_t i = 0; i < PIECE; i++) a[i] = b[i] + scale * c[i];
        __asm__ volatile("" ::: "memory");
        pthread_barrier_wait(s->barrier);
        double end = bench_now(), start = s->start;
        for (int t = 0; t < s->threads; t++)
            if (s->all[t].start < start) start = s->all[t].start;
        if (r == 0 || end - start < s->best) s->best = end - start;
        pthread_barrier_wait(s->barrier); /* nobody starts anew while starts are read */
    }
    return NULL;
}

double stream_triad(size_t bytes, int threads, int repeats)
{
    pthread_t made[MOST_THREADS];
    share shares[MOST_THREADS];
    pthread_barrier_t barrier;
    size_t pieces = bytes / sizeof(double) / (3 * PIECE) / (size_t)threads;
    double *all = aligned_alloc(ALIGN, (bytes / ALIGN + 1) * ALIGN);
    if (!all || threads > MOST_THREADS || pthread_barrier_init(&barrier, NULL, (unsigned)threads) != 0) return 0;
    madvise(all, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < bytes / sizeof(double); i++) all[i] = 1;
    for (int t = threads; t-- > 0;) {
        shares[t] = (share){all + 3 * PIECE * pieces * (size_t)t, pieces, repeats, &barrier, shares, threads, 0, 0};
        if (t == 0)
            run_share(&shares[0]);
        else if (pthread_create(&made[t], NULL, run_share, &shares[t]) != 0)
            exit(1);
    }
    for (int t = 1; t < threads; t++) pthread_join(made[t], NULL);
    pthread_barrier_destroy(&barrier);
    free(all);
    return 3.0 * PIECE * sizeof(double) * threads / shares[0].best;
}
