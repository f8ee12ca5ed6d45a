/* cross_entropy, cross_entropy_grad.  Logits: any float but f8; labels: integers; row-major.  Threads: a block for a row;
 * the losses of rows wait in the workspace, and one block adds them in order.  Traffic: 1 read; the gradient 1 read,
 * 1 write.  Bound: bandwidth. */
#include <stdio.h>
#include <string.h>

#include "kernel/cuda/cuda.h"
#include "op/op.h"

enum { PACK = 8, JOIN_THREADS = 1024, MOST_THREADS = 768 };

typedef struct loss {
    int64_t rows, classes, ignored;
    double smoothing;
    bool mean, none;
} loss;

static loss loss_of(const ht_call *call)
{
    const ht_type *logits = call->in[0];
    const char *reduction = ht_call_text(call, "reduction");
    return (loss){
        .rows = ht_type_elems(call->in[1]),
        .classes = logits->dim[logits->rank - 1],
        .ignored = ht_call_int(call, "ignore_index"),
        .smoothing = ht_call_float(call, "label_smoothing"),
        .mean = strcmp(reduction, "mean") == 0,
        .none = strcmp(reduction, "none") == 0,
    };
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

static int64_t workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    loss l = loss_of(call);
    return l.none ? 0 : l.rows * (int64_t)sizeof(double);
}

/* How a block takes a row: `row_shape` of the text. Few rows are at work at once on a processor of the GPU, so that one
 * is still in the cache when its gradient is written. */
typedef struct row_shape {
    int threads;
    char text[64];
} row_shape;

static row_shape shape_of(const ht_launch *launch, const loss *l)
{
    int pack = ht_cuda_pack(launch, l->classes, PACK);
    int64_t packs = l->classes / pack;
    row_shape shape = {.threads = packs < MOST_THREADS ? ht_cuda_row_threads(packs) : MOST_THREADS};
    snprintf(shape.text, sizeof shape.text, "row_shape<%lld, %d, %d>", (long long)l->classes, pack, shape.threads);
    return shape;
}

/* The losses of the rows become one. */
static void emit_join(ht_cuda_emission *e, const loss *l)
{
    if (l->none) return;
    ht_cuda_add_grid(e, 1, JOIN_THREADS, 0,
                     "cross_entropy_join<%lld, %d, %s>(in1, (const double *)workspace, out0, %lld);",
                     (long long)l->rows, JOIN_THREADS, l->mean ? "true" : "false", (long long)l->ignored);
}

static void cross_entropy(ht_cuda_emission *e, const ht_launch *launch)
{
    loss l = loss_of(launch->call);
    row_shape shape = shape_of(launch, &l);
    ht_cuda_include(e, "cross_entropy");
    ht_cuda_add_grid(e, l.rows, shape.threads, 0,
                     "cross_entropy_row<%s, %s>(in0, in1, out0, out1, (double *)%s, %lld, %a);", shape.text,
                     l.smoothing != 0 ? "true" : "false", l.none ? "nullptr" : "workspace", (long long)l.ignored,
                     l.smoothing);
    emit_join(e, &l);
}

static int64_t grad_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return loss_of(call).mean ? (int64_t)sizeof(int64_t) : 0;
}

static void cross_entropy_grad(ht_cuda_emission *e, const ht_launch *launch)
{
    loss l = loss_of(launch->call);
    row_shape shape = shape_of(launch, &l);
    ht_cuda_number spread, peak;
    if (l.rows == 0) return;
    ht_cuda_include(e, "cross_entropy");
    if (l.mean)
        ht_cuda_add_grid(e, 1, JOIN_THREADS, 0, "cross_entropy_count<%lld, %d>(in1, (int64_t *)workspace, %lld);",
                         (long long)l.rows, JOIN_THREADS, (long long)l.ignored);
    ht_cuda_add_grid(e, l.rows, shape.threads, 0,
                     "cross_entropy_grad_row<%s, %s>(in0, in1, in2, in3, out0, (const int64_t *)%s, %lld, %s, %s);",
                     shape.text, l.none ? "true" : "false", l.mean ? "workspace" : "nullptr", (long long)l.ignored,
                     ht_cuda_real(l.smoothing / (double)l.classes, &spread), ht_cuda_real(1 - l.smoothing, &peak));
}

/* ---- both ---- */

/* Losses of rows, then the number that counts. */
static int64_t both_workspace(const ht_call *call, const ht_target *target)
{
    return workspace(call, target) + grad_workspace(call, target);
}

/* Shared memory that nobody uses, of which a processor has no more for a second block: where two rows on each would not
 * stay in the cache, and one would. */
static int bytes_to_be_alone(const ht_launch *launch, const loss *l)
{
    ht_cuda_limits limits = ht_cuda_launch_limits(launch);
    int64_t row = l->classes * (int64_t)ht_dtype_bytes(launch->call->in[0]->dtype), one = row * limits.processors;
    return one <= limits.l2_bytes && 2 * one > limits.l2_bytes ? limits.shared_bytes / 2 : 0;
}

static void cross_entropy_both(ht_cuda_emission *e, const ht_launch *launch)
{
    loss l = loss_of(launch->call);
    row_shape shape = shape_of(launch, &l);
    long long losses = (long long)l.rows * (long long)sizeof(double);
    ht_cuda_number spread, peak;
    ht_text counted = {0};
    ht_text_add(&counted, l.mean ? "(int64_t *)(workspace + %lld)" : "(int64_t *)nullptr", losses);
    ht_cuda_include(e, "cross_entropy");
    if (l.mean && l.rows)
        ht_cuda_add_grid(e, 1, JOIN_THREADS, 0, "cross_entropy_count<%lld, %d>(in1, %s, %lld);", (long long)l.rows,
                         JOIN_THREADS, counted.data, (long long)l.ignored);
    ht_cuda_add_grid(e, l.rows, shape.threads, bytes_to_be_alone(launch, &l),
                     "cross_entropy_both_row<%s, %s>(in0, in1, in2, out0, out1, out2, (double *)workspace, %s, "
                     "%lld, %a, %s, %s);",
                     shape.text, l.smoothing != 0 ? "true" : "false", counted.data, (long long)l.ignored, l.smoothing,
                     ht_cuda_real(l.smoothing / (double)l.classes, &spread), ht_cuda_real(1 - l.smoothing, &peak));
    emit_join(e, &l);
    e->text.failed |= counted.failed;
    ht_text_free(&counted);
}

HT_CUDA_KERNEL(cross_entropy, can, workspace, cross_entropy)
HT_CUDA_KERNEL(cross_entropy_grad, can, grad_workspace, cross_entropy_grad)
HT_CUDA_KERNEL(cross_entropy_both, can, both_workspace, cross_entropy_both)
