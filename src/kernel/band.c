#include "kernel/kernel.h"

enum { BAND_ELEMS = 16384 }; /* of a band, about: a few such arrays fit in the second cache */

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
    band b = {kernels, launches, count, rows, BAND_ELEMS / (elems / rows)};
    if (b.grain < 1) b.grain = 1;
    ht_parallel(launches[0].pool, (rows + b.grain - 1) / b.grain, run_band, &b);
}
