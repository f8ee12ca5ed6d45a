/* fill, constant, iota: y from attributes alone, any type, row-major.
 * Numerics: each value rounds once from f64.  Threads: tiles of fill.  Traffic: one write.  Bound: bandwidth. */
#include <string.h>

#include "kernel/kernel.h"
#include "op/op.h"

enum { GRAIN = 16384 };

typedef struct filling {
    char *first;
    int64_t elems;
    size_t bytes; /* of one element */
    union {
        uint8_t u8;
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
    } value;
} filling;

static void fill_tile(void *arg, int64_t tile)
{
    const filling *job = arg;
    int64_t start = tile * GRAIN, n = job->elems - start < GRAIN ? job->elems - start : GRAIN;
    char *to = job->first + start * (int64_t)job->bytes;
    if (job->bytes == 1)
        memset(to, job->value.u8, (size_t)n);
    else if (job->bytes == 2)
        for (int64_t i = 0; i < n; i++) ((uint16_t *)to)[i] = job->value.u16;
    else if (job->bytes == 4)
        for (int64_t i = 0; i < n; i++) ((uint32_t *)to)[i] = job->value.u32;
    else
        for (int64_t i = 0; i < n; i++) ((uint64_t *)to)[i] = job->value.u64;
}

static ht_status fill_run(const ht_launch *launch)
{
    const ht_type *type = launch->call->out[0];
    filling job = {.first = launch->out[0], .elems = ht_type_elems(type), .bytes = ht_dtype_bytes(type->dtype)};
    ht_store_f64(&job.value, type->dtype, 0, ht_call_float(launch->call, "value"));
    ht_parallel(launch->pool, (job.elems + GRAIN - 1) / GRAIN, fill_tile, &job);
    return HT_OK;
}

static ht_status constant_run(const ht_launch *launch)
{
    const ht_attr *data = ht_call_attr(launch->call, "data");
    for (size_t i = 0; i < data->count; i++)
        ht_store_f64(launch->out[0], launch->call->out[0]->dtype, (int64_t)i, data->floats[i]);
    return HT_OK;
}

static ht_status iota_run(const ht_launch *launch)
{
    const ht_type *type = launch->call->out[0];
    ht_around a = ht_around_axis(type, ht_call_axis(launch->call, "axis", type->rank));
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t k = 0; k < a.size; k++)
            for (int64_t i = 0; i < a.inner; i++)
                ht_store_f64(launch->out[0], type->dtype, (o * a.size + k) * a.inner + i, (double)k);
    return HT_OK;
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_refuse_strided(call);
}

const ht_kernel ht_kernel_fill = {.size = sizeof(ht_kernel), .op = "fill", .name = "fill", .can = can, .run = fill_run};
const ht_kernel ht_kernel_constant = {
    .size = sizeof(ht_kernel), .op = "constant", .name = "constant", .can = can, .run = constant_run};
const ht_kernel ht_kernel_iota = {.size = sizeof(ht_kernel), .op = "iota", .name = "iota", .can = can, .run = iota_run};
