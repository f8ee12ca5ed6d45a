/* cross_entropy, cross_entropy_grad.  Logits: any float but f8; labels: integers; row-major.  Threads: a block for a row;
 * the losses of rows wait in the workspace, and one block adds them in order.  Traffic: 1 read; the gradient 1 read,
 * 1 write.  Bound: bandwidth. */
#include <string.h>

#include "kernel/cuda/cuda.h"
#include "op/op.h"

enum { PACK = 8, JOIN_THREADS = 1024, MOST_HELD_BYTES = 108 << 10 };

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
    int pack = ht_cuda_pack(launch, l.classes, PACK);
    ht_cuda_include(e, "cross_entropy");
    ht_cuda_add_grid(e, l.rows, ht_cuda_row_threads(l.classes / pack), 0,
                     "cross_entropy_row<%lld, %d, %s>(in0, in1, out0, out1, (double *)%s, %lld, %a);",
                     (long long)l.classes, pack, l.smoothing != 0 ? "true" : "false", l.none ? "nullptr" : "workspace",
                     (long long)l.ignored, l.smoothing);
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
    int pack = ht_cuda_pack(launch, l.classes, PACK);
    ht_cuda_number spread, peak;
    if (l.rows == 0) return;
    ht_cuda_include(e, "cross_entropy");
    if (l.mean)
        ht_cuda_add_grid(e, 1, JOIN_THREADS, 0, "cross_entropy_count<%lld, %d>(in1, (int64_t *)workspace, %lld);",
                         (long long)l.rows, JOIN_THREADS, (long long)l.ignored);
    ht_cuda_add_grid(
        e, l.rows, ht_cuda_row_threads(l.classes / pack), 0,
        "cross_entropy_grad_row<%lld, %d, %s>(in0, in1, in2, in3, out0, (const int64_t *)%s, %lld, %s, %s);",
        (long long)l.classes, pack, l.none ? "true" : "false", l.mean ? "workspace" : "nullptr", (long long)l.ignored,
        ht_cuda_real(l.smoothing / (double)l.classes, &spread), ht_cuda_real(1 - l.smoothing, &peak));
}

/* ---- both ---- */

/* Losses of rows, then the number that counts. */
static int64_t both_workspace(const ht_call *call, const ht_target *target)
{
    return workspace(call, target) + grad_workspace(call, target);
}

/* Bytes of a row that stays in shared memory until its gradient is written, two at a time on a processor of the GPU; 0:
 * it is too long. */
static int held_bytes(const ht_call *call, const loss *l)
{
    int64_t bytes = l->classes * (int64_t)ht_dtype_bytes(call->in[0]->dtype);
    return bytes <= MOST_HELD_BYTES ? (int)bytes : 0;
}

static int threads_of_both(int64_t packs)
{
    return packs < HT_CUDA_THREADS ? ht_cuda_row_threads(packs) : 2 * HT_CUDA_THREADS;
}

static void cross_entropy_both(ht_cuda_emission *e, const ht_launch *launch)
{
    loss l = loss_of(launch->call);
    int pack = ht_cuda_pack(launch, l.classes, PACK), held = held_bytes(launch->call, &l);
    long long losses = (long long)l.rows * (long long)sizeof(double);
    ht_cuda_number spread, peak;
    ht_text counted = {0};
    ht_text_add(&counted, l.mean ? "(int64_t *)(workspace + %lld)" : "(int64_t *)nullptr", losses);
    ht_cuda_include(e, "cross_entropy");
    if (l.mean && l.rows)
        ht_cuda_add_grid(e, 1, JOIN_THREADS, 0, "cross_entropy_count<%lld, %d>(in1, %s, %lld);", (long long)l.rows,
                         JOIN_THREADS, counted.data, (long long)l.ignored);
    ht_cuda_add_grid(
        e, l.rows, threads_of_both(l.classes / pack), held,
        "cross_entropy_both_row<%lld, %d, %s, %s>(in0, in1, in2, out0, out1, out2, (double *)workspace, %s, "
        "%lld, %a, %s, %s);",
        (long long)l.classes, pack, l.smoothing != 0 ? "true" : "false", held ? "true" : "false", counted.data,
        (long long)l.ignored, l.smoothing, ht_cuda_real(l.smoothing / (double)l.classes, &spread),
        ht_cuda_real(1 - l.smoothing, &peak));
    emit_join(e, &l);
    e->text.failed |= counted.failed;
    ht_text_free(&counted);
}

HT_CUDA_KERNEL(cross_entropy, can, workspace, cross_entropy)
HT_CUDA_KERNEL(cross_entropy_grad, can, grad_workspace, cross_entropy_grad)
HT_CUDA_KERNEL(cross_entropy_both, can, both_workspace, cross_entropy_both)
