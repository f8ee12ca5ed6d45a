/* y = sum of x over any axes.  x, y: i32 or i64, row-major.
 * Numerics: exact modulo 2^32 or 2^64.  Threads: outer kept axes.  Traffic: 1 read.  Bound: bandwidth. */
#include "kernel/reduce/reduce.h"

typedef struct reduction {
    const ht_launch *launch;
    ht_reduce_shape shape;
} reduction;

/* Unsigned, because those wrap where signed ones are undefined. */
#define DEFINE_SUM_TILE(name, integer)                                                                                 \
    static void name(void *arg, int64_t kept)                                                                          \
    {                                                                                                                  \
        const reduction *job = arg;                                                                                    \
        const ht_reduce_shape *s = &job->shape;                                                                        \
        const integer *x = (const integer *)job->launch->in[0] + ht_reduce_offset(&s->kept, kept);                     \
        integer *y = (integer *)job->launch->out[0] + kept * (s->run_reduced ? 1 : s->run);                            \
        memset(y, 0, (size_t)(s->run_reduced ? 1 : s->run) * sizeof *y);                                               \
        for (int64_t r = 0; r < s->reduced.count; r++) {                                                               \
            const integer *row = x + ht_reduce_offset(&s->reduced, r);                                                 \
            if (s->run_reduced)                                                                                        \
                for (int64_t i = 0; i < s->run; i++) y[0] += row[i];                                                   \
            else                                                                                                       \
                for (int64_t i = 0; i < s->run; i++) y[i] += row[i];                                                   \
        }                                                                                                              \
    }

DEFINE_SUM_TILE(sum_tile_32, uint32_t)
DEFINE_SUM_TILE(sum_tile_64, uint64_t)

static ht_status sum_int_run(const ht_launch *launch)
{
    reduction job = {launch, ht_reduce_shape_of(launch->call)};
    if (job.shape.outputs == 0) return HT_OK;
    bool narrow = launch->call->in[0]->dtype == HT_I32;
    ht_parallel(launch->pool, job.shape.kept.count, narrow ? sum_tile_32 : sum_tile_64, &job);
    return HT_OK;
}

static const char *sum_int_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    ht_dtype dtype = call->in[0]->dtype;
    if (dtype != HT_I32 && dtype != HT_I64) return "x is neither i32 nor i64";
    return ht_refuse_strided(call);
}

extern const ht_kernel ht_kernel_sum_int;
const ht_kernel ht_kernel_sum_int = {
    .size = sizeof(ht_kernel),
    .op = "sum",
    .name = "sum.int",
    .isa = HT_ISA_PORTABLE,
    .can = sum_int_can,
    .run = sum_int_run,
};
