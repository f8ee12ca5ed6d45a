/* embedding_q: y[n,:] = table[index[n],:] · scale[index[n]].  table: i8, index i32 or i64, row-major; an index outside gives zeros.
 * Numerics: one product of f32.  Threads: rows of y.  Traffic: index, the rows that it names, 1 write.  Bound: bandwidth. */
#include <string.h>

#include "kernel/cpu.h"
#include "kernel/move/strided.h"
#include "op/op.h"

enum { TABLE, SCALE, INDEX, GRAIN = 8192 }; /* GRAIN: elements of a tile, in whole rows */

typedef struct embedding_q {
    const ht_launch *launch;
    int64_t rows, columns, rows_per_tile;
} embedding_q;

static void one_row(const embedding_q *job, int64_t row)
{
    const ht_launch *l = job->launch;
    int64_t at = ht_index_at(l->in[INDEX], l->call->in[INDEX]->dtype, row, l->call->in[TABLE]->dim[0]);
    float *restrict y = (float *)l->out[0] + row * job->columns;
    if (at < 0) {
        memset(y, 0, (size_t)job->columns * sizeof *y);
        return;
    }
    const int8_t *restrict codes = (const int8_t *)l->in[TABLE] + at * job->columns;
    float scale = ((const float *)l->in[SCALE])[l->call->in[SCALE]->rank ? at : 0];
    for (int64_t c = 0; c < job->columns; c++) y[c] = (float)codes[c] * scale;
}

static void rows_of_tile(void *arg, int64_t tile)
{
    const embedding_q *job = arg;
    int64_t first = tile * job->rows_per_tile;
    for (int64_t r = first; r < ht_min_i64(first + job->rows_per_tile, job->rows); r++) one_row(job, r);
}

static ht_status embedding_q_run(const ht_launch *launch)
{
    embedding_q job = {
        .launch = launch, .rows = ht_type_elems(launch->call->in[INDEX]), .columns = launch->call->in[TABLE]->dim[1]};
    if (job.columns == 0) return HT_OK;
    job.rows_per_tile = job.columns < GRAIN ? GRAIN / job.columns : 1;
    ht_parallel(launch->pool, ht_tiles(job.rows, job.rows_per_tile), rows_of_tile, &job);
    return HT_OK;
}

static const char *embedding_q_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(embedding_q, embedding_q_can, NULL, embedding_q_run)
