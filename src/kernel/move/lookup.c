/* gather: y[.., k, ..] = x[.., index[.., k, ..], ..].  embedding: y[n,:] = table[index[n],:].  one_hot: y[n,d] = 1
 * where d = label[n].  An index outside gives zeros.  Any type, index i32 or i64, row-major. Numerics: bytes move.
 * Threads: rows of the result.  Traffic: index, what it asks for, 1 write.  Bound: latency of rows that lie apart, else
 * bandwidth. */
#include <string.h>

#include "kernel/move/strided.h"
#include "op/op.h"

enum { GRAIN = 8192 }; /* elements of the result in one tile, in whole rows */

typedef struct lookup {
    const ht_launch *launch;
    int64_t rows, columns, rows_per_tile;
    size_t bytes; /* of one element */
    int axis;     /* gather only */
    uint64_t one; /* one_hot only: its bits */
    void (*row)(const struct lookup *job, int64_t row);
} lookup;

static void lookup_tile(void *arg, int64_t tile)
{
    const lookup *job = arg;
    int64_t first = tile * job->rows_per_tile, end = first + job->rows_per_tile;
    for (int64_t r = first; r < (end < job->rows ? end : job->rows); r++) job->row(job, r);
}

/* The result as rows of its last axis; a scalar is one row of one. */
static void run_rows(lookup *job)
{
    const ht_type *out = job->launch->call->out[0];
    int64_t elems = ht_type_elems(out);
    if (elems == 0) return;
    job->columns = out->rank ? out->dim[out->rank - 1] : 1;
    job->rows = elems / job->columns;
    job->rows_per_tile = job->columns < GRAIN ? GRAIN / job->columns : 1;
    job->bytes = ht_dtype_bytes(out->dtype);
    ht_parallel(job->launch->pool, (job->rows + job->rows_per_tile - 1) / job->rows_per_tile, lookup_tile, job);
}

static void put(char *to, const char *from, size_t bytes)
{
    switch (bytes) { /* constant sizes, for memcpy to become one instruction */
    case 1: memcpy(to, from, 1); break;
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    default: memcpy(to, from, 8); break;
    }
}

static void gather_row(const lookup *job, int64_t row)
{
    static const char zero[8] = {0};
    const ht_type *x = job->launch->call->in[0], *index = job->launch->call->in[1];
    int64_t bytes = (int64_t)job->bytes, from = 0, rest = row;
    bool along = job->axis == x->rank - 1;
    for (int i = x->rank - 2; i >= 0; i--) {
        if (i != job->axis) from += rest % index->dim[i] * x->stride[i];
        rest /= index->dim[i];
    }
    char *to = (char *)job->launch->out[0] + row * job->columns * bytes;
    for (int64_t c = 0; c < job->columns; c++) {
        int64_t at = ht_index_at(job->launch->in[1], index->dtype, row * job->columns + c, x->dim[job->axis]);
        int64_t place = from + at * x->stride[job->axis] + (along ? 0 : c);
        put(to + c * bytes, at < 0 ? zero : (const char *)job->launch->in[0] + place * bytes, job->bytes);
    }
}

static ht_status gather_run(const ht_launch *launch)
{
    int axis = ht_call_axis(launch->call, "axis", launch->call->in[0]->rank);
    run_rows(&(lookup){.launch = launch, .axis = axis, .row = gather_row});
    return HT_OK;
}

static void embedding_row(const lookup *job, int64_t row)
{
    const ht_type *table = job->launch->call->in[0], *index = job->launch->call->in[1];
    size_t bytes = (size_t)job->columns * job->bytes;
    char *to = (char *)job->launch->out[0] + row * (int64_t)bytes;
    int64_t at = ht_index_at(job->launch->in[1], index->dtype, row, table->dim[0]);
    if (at < 0)
        memset(to, 0, bytes);
    else
        memcpy(to, (const char *)job->launch->in[0] + at * (int64_t)bytes, bytes);
}

static ht_status embedding_run(const ht_launch *launch)
{
    run_rows(&(lookup){.launch = launch, .row = embedding_row});
    return HT_OK;
}

static void one_hot_row(const lookup *job, int64_t row)
{
    size_t bytes = (size_t)job->columns * job->bytes;
    char *to = (char *)job->launch->out[0] + row * (int64_t)bytes;
    int64_t at = ht_index_at(job->launch->in[0], job->launch->call->in[0]->dtype, row, job->columns);
    memset(to, 0, bytes);
    if (at >= 0) put(to + at * (int64_t)job->bytes, (const char *)&job->one, job->bytes);
}

static ht_status one_hot_run(const ht_launch *launch)
{
    lookup job = {.launch = launch, .row = one_hot_row};
    ht_store_f64(&job.one, launch->call->out[0]->dtype, 0, 1);
    run_rows(&job);
    return HT_OK;
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_refuse_strided(call);
}

HT_MOVE_ROW(gather, can, gather_run)
HT_MOVE_ROW(embedding, can, embedding_run)
HT_MOVE_ROW(one_hot, can, one_hot_run)
