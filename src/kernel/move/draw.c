/* random_uniform, random_normal: y[i] from its number (op/rules.h: ht_random_index) of a Philox stream.  y: any float, row-major.
 * Numerics: f64 inside, one rounding, the same functions as the reference.  Threads: tiles of elements.  Traffic: one
 * write.  Bound: compute. */
#include "kernel/kernel.h"
#include "op/op.h"

enum { GRAIN = 4096 };

typedef struct drawing {
    void *to;
    ht_dtype dtype;
    int64_t elems;
    ht_stream stream;
    ht_random_index index;
    double shift, scale;
    double (*draw)(const ht_stream *stream, uint64_t index);
} drawing;

static void draw_tile(void *arg, int64_t tile)
{
    const drawing *job = arg;
    int64_t end = (tile + 1) * GRAIN < job->elems ? (tile + 1) * GRAIN : job->elems;
    for (int64_t i = tile * GRAIN; i < end; i++)
        ht_store_f64(job->to, job->dtype, i,
                     job->shift + job->scale * job->draw(&job->stream, ht_random_number(&job->index, (uint64_t)i)));
}

static void run(const ht_launch *launch, double shift, double scale,
                double (*draw)(const ht_stream *stream, uint64_t index))
{
    const ht_type *type = launch->call->out[0];
    const int64_t *const *in = (const int64_t *const *)launch->in;
    drawing job = {
        .to = launch->out[0],
        .dtype = type->dtype,
        .elems = ht_type_elems(type),
        .stream = {(uint64_t)*in[0], (uint64_t)*in[1], ht_hash_text(ht_call_text(launch->call, "site"))},
        .index = ht_random_indices(launch->call, *in[2]),
        .shift = shift,
        .scale = scale,
        .draw = draw,
    };
    ht_parallel(launch->pool, (job.elems + GRAIN - 1) / GRAIN, draw_tile, &job);
}

static ht_status random_uniform_run(const ht_launch *launch)
{
    double low = ht_call_float(launch->call, "low"), high = ht_call_float(launch->call, "high");
    run(launch, low, high - low, ht_stream_uniform);
    return HT_OK;
}

static ht_status random_normal_run(const ht_launch *launch)
{
    run(launch, ht_call_float(launch->call, "mean"), ht_call_float(launch->call, "deviation"), ht_stream_normal);
    return HT_OK;
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_refuse_strided(call);
}

const ht_kernel ht_kernel_random_uniform = {
    .size = sizeof(ht_kernel), .op = "random_uniform", .name = "random_uniform", .can = can, .run = random_uniform_run};
const ht_kernel ht_kernel_random_normal = {
    .size = sizeof(ht_kernel), .op = "random_normal", .name = "random_normal", .can = can, .run = random_normal_run};
