/* quantize, quantize_both, quantize_sum: y = x / scale in f8, the scale that was used, and the largest magnitude of x.  x: f32, f16, bf16,
 * row-major.
 * Numerics: the division is a multiplication by the scale's inverse in f32; the rounding is base/half.c's.
 * Threads: blocks of x; the largest magnitudes of blocks wait in the workspace.
 * Traffic: x once, twice where the scale is found from it; y once.  Slow and portable: it is here for tests. */
#include "kernel/kernel.h"
#include "op/op.h"

enum { BLOCK = 16384 };

typedef struct quantize_job {
    const void *x;
    ht_dtype from, f8;
    int64_t elems;
    float inverse;
    uint8_t *codes;
    float *largest; /* of each block */
} quantize_job;

static float element(const quantize_job *job, int64_t i)
{
    if (job->from == HT_F32) return ((const float *)job->x)[i];
    if (job->from == HT_F16) return ht_f16_to_f32(((const ht_f16 *)job->x)[i]);
    return ht_bf16_to_f32(((const ht_bf16 *)job->x)[i]);
}

static int64_t end_of(const quantize_job *job, int64_t tile)
{
    int64_t end = (tile + 1) * BLOCK;
    return end < job->elems ? end : job->elems;
}

static void find_largest(void *arg, int64_t tile)
{
    const quantize_job *job = arg;
    float amax = 0;
    for (int64_t i = tile * BLOCK; i < end_of(job, tile); i++) amax = ht_amax_of(amax, element(job, i));
    job->largest[tile] = amax;
}

static void write_codes(void *arg, int64_t tile)
{
    const quantize_job *job = arg;
    for (int64_t i = tile * BLOCK; i < end_of(job, tile); i++)
        job->codes[i] = ht_quantize_one(job->f8, element(job, i), job->inverse);
}

static int64_t blocks_of(const ht_call *call)
{
    return (ht_type_elems(call->in[0]) + BLOCK - 1) / BLOCK;
}

/* y and its two numbers. */
static void quantize(const ht_launch *launch, float *scale_out, float *amax_out)
{
    const ht_call *call = launch->call;
    quantize_job job = {.x = launch->in[0],
                        .from = call->in[0]->dtype,
                        .f8 = call->out[0]->dtype,
                        .elems = ht_type_elems(call->in[0]),
                        .codes = launch->out[0],
                        .largest = launch->workspace};
    float amax = 0, scale = call->n_in > 1 && call->in[1] ? *(const float *)launch->in[1] : 0;
    ht_parallel(launch->pool, blocks_of(call), find_largest, &job);
    for (int64_t i = 0; i < blocks_of(call); i++) amax = ht_amax_of(amax, job.largest[i]);
    if (!ht_scale_is_known(scale)) scale = ht_scale_of_amax(job.f8, amax);
    if (!ht_scale_is_known(scale)) scale = 1;
    job.inverse = 1 / scale;
    ht_parallel(launch->pool, blocks_of(call), write_codes, &job);
    *scale_out = scale;
    *amax_out = amax;
}

static ht_status quantize_run(const ht_launch *launch)
{
    quantize(launch, launch->out[1], launch->out[2]);
    return HT_OK;
}

static void turn(const ht_launch *launch)
{
    const ht_type *x = launch->call->in[0];
    const uint8_t *codes = launch->out[0];
    uint8_t *turned = launch->out[1];
    int64_t columns = x->dim[x->rank - 1], rows = columns ? ht_type_elems(x) / columns : 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) turned[c * rows + r] = codes[r * columns + c];
}

static ht_status quantize_both_run(const ht_launch *launch)
{
    quantize(launch, launch->out[2], launch->out[3]);
    turn(launch);
    return HT_OK;
}

static ht_status quantize_sum_run(const ht_launch *launch)
{
    const ht_type *x = launch->call->in[0];
    const quantize_job job = {.x = launch->in[0], .from = x->dtype};
    int64_t columns = x->dim[x->rank - 1], rows = columns ? ht_type_elems(x) / columns : 0;
    float *sums = launch->out[2];
    quantize(launch, launch->out[3], launch->out[4]);
    turn(launch);
    for (int64_t c = 0; c < columns; c++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += (double)element(&job, r * columns + c);
        sums[c] = (float)sum;
    }
    return HT_OK;
}

static int64_t workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return blocks_of(call) * (int64_t)sizeof(float);
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_refuse_strided(call);
}

extern const ht_kernel ht_kernel_quantize, ht_kernel_quantize_both, ht_kernel_quantize_sum;
const ht_kernel ht_kernel_quantize = {.size = sizeof(ht_kernel),
                                      .op = "quantize",
                                      .name = "quantize",
                                      .can = can,
                                      .workspace = workspace,
                                      .run = quantize_run};
const ht_kernel ht_kernel_quantize_both = {.size = sizeof(ht_kernel),
                                           .op = "quantize_both",
                                           .name = "quantize_both",
                                           .can = can,
                                           .workspace = workspace,
                                           .run = quantize_both_run};
const ht_kernel ht_kernel_quantize_sum = {.size = sizeof(ht_kernel),
                                          .op = "quantize_sum",
                                          .name = "quantize_sum",
                                          .can = can,
                                          .workspace = workspace,
                                          .run = quantize_sum_run};
