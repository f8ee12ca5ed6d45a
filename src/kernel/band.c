#include "kernel/kernel.h"

/* Elements of a band, about. At most: a few such arrays fit in the second cache. At least: a band costs each part a
 * start. Between them, a few bands for each of a few threads. */
enum { BAND_MOST = 16384, BAND_LEAST = 4096, BANDS = 16 };

typedef struct band {
    const ht_kernel *const *kernels;
    const ht_launch *launches;
    size_t count;
    int64_t rows, grain;
} band;

static int64_t elems_of(const ht_launch *launch)
{
    return launch->fused ? launch->fused->elems : ht_type_elems(launch->call->in[0]);
}

static void run_band(void *arg, int64_t tile)
{
    const band *b = arg;
    int64_t from = tile * b->grain, to = from + b->grain < b->rows ? from + b->grain : b->rows;
    for (size_t i = 0; i < b->count; i++) {
        const ht_launch *launch = &b->launches[i];
        if (b->kernels[i]->each)
            ht_fused_rows(launch->fused, launch, from, to, b->rows);
        else
            b->kernels[i]->folding->run_rows(launch, from, to);
    }
}

void ht_band_run(const ht_kernel *const *kernels, const ht_launch *launches, size_t count, int64_t rows)
{
    int64_t elems = rows;
    for (size_t i = 0; i < count; i++)
        if (elems_of(&launches[i]) > elems) elems = elems_of(&launches[i]);
    int64_t most = elems / BANDS < BAND_LEAST ? BAND_LEAST : elems / BANDS < BAND_MOST ? elems / BANDS : BAND_MOST;
    band b = {kernels, launches, count, rows, most / (elems / rows)};
    if (b.grain < 1) b.grain = 1;
    ht_parallel(launches[0].pool, (rows + b.grain - 1) / b.grain, run_band, &b);
}
