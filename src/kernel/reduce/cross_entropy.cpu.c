/* loss[r] = lse[r] - (1-s) x[r,label] - s mean(x[r]) and its mean or sum; lse[r] = log Σ exp x[r];
 * dlogits[r] = weight[r] (exp(x[r] - lse[r]) - target[r]).  x, dlogits: any float; labels: i32 or i64; row-major.
 * Numerics: exponentials in real, what is one per row in double; dlogits is scaled before its only rounding.
 * Threads: rows; partial losses of tiles wait in the workspace and are added in order.
 * Traffic: 1 read, as long as a row stays in L2; the gradient 1 read, 1 write, past the caches where it is large.
 * Bound: bandwidth, exponentials. FMA.
 * An ignored row gives 0 and does not count; a label outside the classes gives NaN. */
/* HT_COMPILE: -ffp-contract=fast */
#include "kernel/reduce/rows.h"
#include "kernel/stream_store.h"
#include "op/op.h"

#include <string.h>

typedef struct partial {
    double loss;
    int64_t counted;
} partial;

typedef struct loss_job {
    const ht_launch *launch;
    ht_dtype dtype, label_dtype;
    int64_t rows, classes, grain, ignore_index;
    double smoothing;
    bool mean, none, stream;
    int64_t counted; /* rows that count, where the gradient of a mean needs them */
    bool both;       /* the loss and its gradient, which is result `gradient` */
    size_t gradient;
    real weight; /* of the loss, where both are made: the loss may lie over it */
} loss_job;

static loss_job job_of(const ht_call *call)
{
    const ht_type *logits = call->in[0];
    const char *reduction = ht_call_text(call, "reduction");
    loss_job job = {
        .dtype = logits->dtype,
        .label_dtype = call->in[1]->dtype,
        .rows = ht_type_elems(call->in[1]),
        .classes = logits->dim[logits->rank - 1],
        .ignore_index = ht_call_int(call, "ignore_index"),
        .smoothing = ht_call_float(call, "label_smoothing"),
        .mean = strcmp(reduction, "mean") == 0,
        .none = strcmp(reduction, "none") == 0,
    };
    job.grain = ht_row_grain(job.classes);
    return job;
}

static int64_t label_of(const loss_job *job, int64_t row)
{
    return ht_load_int(job->launch->in[1], job->label_dtype, row);
}

/* ---- loss ---- */

static double row_mean(const loss_job *job, int64_t start)
{
    real x[HT_ROW_CHUNK];
    double sum = 0;
    for (int64_t at = 0; at < job->classes; at += HT_ROW_CHUNK) {
        int64_t count = ht_min_i64(HT_ROW_CHUNK, job->classes - at);
        sum += (double)ht_lane_sum(ht_view(x, job->launch->in[0], job->dtype, start + at, count), count);
    }
    return sum / (double)job->classes;
}

/* Differences to the maximum come first: a confident row keeps its digits. */
static double row_loss(const loss_job *job, int64_t start, int64_t label, double max, double log_sum)
{
    if (label == job->ignore_index) return 0;
    if (label < 0 || label >= job->classes) return NAN;
    double loss = log_sum + (max - (double)ht_load1(job->launch->in[0], job->dtype, start + label));
    if (job->smoothing == 0) return loss;
    return (1 - job->smoothing) * loss + job->smoothing * (log_sum + (max - row_mean(job, start)));
}

/* ---- the gradient of a row ---- */

static void grad_row(const loss_job *job, int64_t row, int64_t label, real weight, real lse)
{
    const ht_launch *launch = job->launch;
    real buffer[HT_ROW_CHUNK], dx[HT_ROW_CHUNK];
    real spread = (real)(job->smoothing / (double)job->classes), peak = (real)(1 - job->smoothing);
    for (int64_t at = 0; at < job->classes; at += HT_ROW_CHUNK) {
        int64_t count = ht_min_i64(HT_ROW_CHUNK, job->classes - at), start = row * job->classes + at;
        if (label == job->ignore_index) {
            memset(dx, 0, (size_t)count * sizeof *dx);
        } else {
            const real *x = ht_view(buffer, launch->in[0], job->dtype, start, count);
            for (int64_t i = 0; i < count; i++) dx[i] = (fn_exp(x[i] - lse) - spread) * weight;
            if (label >= at && label < at + count)
                dx[label - at] = (fn_exp(x[label - at] - lse) - spread - peak) * weight;
        }
        ht_save_streamed(launch->out[job->gradient], launch->call->out[job->gradient]->dtype, start, dx, count,
                         job->stream);
    }
}

static real weight_of(const loss_job *job, int64_t label, real weight)
{
    if (job->mean) weight /= (real)job->counted;
    return label < 0 || label >= job->classes ? (real)NAN : weight;
}

static void count_rows(loss_job *job)
{
    for (int64_t r = 0; job->mean && r < job->rows; r++) job->counted += label_of(job, r) != job->ignore_index;
}

/* ---- rows ---- */

static void loss_tile(void *arg, int64_t tile)
{
    const loss_job *job = arg;
    const ht_launch *launch = job->launch;
    partial sum = {0, 0};
    for (int64_t r = tile * job->grain; r < ht_min_i64(job->rows, (tile + 1) * job->grain); r++) {
        int64_t start = r * job->classes, label = label_of(job, r);
        real max = ht_row_max(launch->in[0], job->dtype, start, job->classes);
        double log_sum = log(ht_row_sum_exp(launch->in[0], job->dtype, start, job->classes, max));
        double loss = row_loss(job, start, label, (double)max, log_sum);
        real lse = (real)((double)max + log_sum);
        ht_save1(launch->out[1], launch->call->out[1]->dtype, r, lse);
        if (job->none) ht_save1(launch->out[0], launch->call->out[0]->dtype, r, (real)loss);
        if (job->both) grad_row(job, r, label, weight_of(job, label, job->weight), lse);
        sum.loss += loss;
        sum.counted += label != job->ignore_index;
    }
    if (job->both && job->stream) ht_nt_fence();
    if (!job->none) ((partial *)launch->workspace)[tile] = sum;
}

static void run_loss(loss_job *job)
{
    const ht_launch *launch = job->launch;
    int64_t tiles = ht_tiles(job->rows, job->grain);
    ht_parallel(launch->pool, tiles, loss_tile, job);
    if (job->none) return;
    const partial *partials = launch->workspace;
    partial total = {0, 0};
    for (int64_t i = 0; i < tiles; i++) {
        total.loss += partials[i].loss;
        total.counted += partials[i].counted;
    }
    if (job->mean && total.counted) total.loss /= (double)total.counted;
    ht_save1(launch->out[0], launch->call->out[0]->dtype, 0, (real)total.loss);
}

static ht_status cross_entropy_run(const ht_launch *launch)
{
    loss_job job = job_of(launch->call);
    job.launch = launch;
    run_loss(&job);
    return HT_OK;
}

static bool is_streamed(const ht_launch *launch, size_t gradient)
{
    return ht_type_bytes(launch->call->out[gradient]) >= HT_NT_STORE_BYTES && launch->in[0] != launch->out[gradient];
}

static ht_status cross_entropy_both_run(const ht_launch *launch)
{
    loss_job job = job_of(launch->call);
    job.launch = launch;
    job.both = true;
    job.gradient = 2;
    job.weight = ht_load1(launch->in[2], launch->call->in[2]->dtype, 0);
    job.stream = is_streamed(launch, job.gradient);
    count_rows(&job);
    run_loss(&job);
    return HT_OK;
}

static int64_t cross_entropy_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    loss_job job = job_of(call);
    return job.none ? 0 : ht_tiles(job.rows, job.grain) * (int64_t)sizeof(partial);
}

/* ---- the gradient alone ---- */

static void grad_tile(void *arg, int64_t tile)
{
    const loss_job *job = arg;
    const ht_launch *launch = job->launch;
    for (int64_t r = tile * job->grain; r < ht_min_i64(job->rows, (tile + 1) * job->grain); r++) {
        int64_t label = label_of(job, r);
        real weight = ht_load1(launch->in[3], launch->call->in[3]->dtype, job->none ? r : 0);
        grad_row(job, r, label, weight_of(job, label, weight), ht_load1(launch->in[2], launch->call->in[2]->dtype, r));
    }
    if (job->stream) ht_nt_fence();
}

static ht_status cross_entropy_grad_run(const ht_launch *launch)
{
    loss_job job = job_of(launch->call);
    job.launch = launch;
    job.stream = is_streamed(launch, 0);
    count_rows(&job);
    ht_parallel(launch->pool, ht_tiles(job.rows, job.grain), grad_tile, &job);
    return HT_OK;
}

static const char *cross_entropy_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(cross_entropy, cross_entropy_can, cross_entropy_workspace, cross_entropy_run)
HT_CPU_KERNEL(cross_entropy_grad, cross_entropy_can, NULL, cross_entropy_grad_run)
HT_CPU_KERNEL(cross_entropy_both, cross_entropy_can, cross_entropy_workspace, cross_entropy_both_run)
