/* How rows whose code is text are prepared and run. */
#include <stdlib.h>
#include <string.h>

#include "kernel/cuda/cuda.h"

/* What a launch needs of its code; the addresses of the operands are fixed. */
typedef struct prepared {
    ht_cuda_program *program;
    int grid_count;
    ht_cuda_shape grids[HT_CUDA_GRIDS];
    void **arguments; /* addresses of the values behind them */
    const void *values[];
} prepared;

static prepared *make_prepared(const ht_launch *launch, const ht_cuda_emission *e)
{
    size_t operands = launch->call->n_in + launch->call->n_out, count = operands + 1;
    prepared *p = calloc(1, sizeof *p + 2 * count * sizeof(void *));
    if (!p) return NULL;
    p->arguments = (void **)(p->values + count);
    for (size_t i = 0; i < operands; i++)
        p->values[i] = i < launch->call->n_in ? launch->in[i] : launch->out[i - launch->call->n_in];
    p->values[operands] = launch->workspace;
    for (size_t i = 0; i < count; i++) p->arguments[i] = (void *)&p->values[i];
    p->grid_count = e->grid_count;
    memcpy(p->grids, e->grids, sizeof p->grids);
    return p;
}

ht_status ht_cuda_prepare(ht_launch *launch)
{
    ht_cuda_emission e;
    prepared *p = NULL;
    ht_status status = ht_cuda_emit(&e, launch->ctx, launch);
    if (status == HT_OK && !(p = make_prepared(launch, &e)))
        status = ht_fail(launch->ctx, HT_ENOMEM, "out of memory for a launch");
    launch->prepared = p;
    if (status == HT_OK && e.grid_count)
        status = ht_cuda_program_get(launch->queue->device, e.name, e.text.data, e.grid_count, &p->program);
    ht_cuda_emission_free(&e);
    return status;
}

ht_status ht_cuda_run(const ht_launch *launch)
{
    prepared *p = launch->prepared;
    for (int i = 0; i < p->grid_count; i++)
        HT_TRY(ht_cuda_program_launch(launch->queue, p->program, i, &p->grids[i], p->arguments));
    return HT_OK;
}
