/* sum, mean, reduce_max, norm over any axes.  x, y: any float but f8, row-major, x also in another order
 * that keeps that of the results; of sum also i32 and i64.
 * Threads: outputs, and parts of each reduction, whose results wait in the workspace and are joined in order.  How a
 * reduction is split follows from its shape alone.  Traffic: 1 read.  Bound: bandwidth. */
#include <string.h>

#include "kernel/cuda/cuda.h"
#include "kernel/reduce/reduce.h"

enum {
    PACK = 8,
    WARP = 32,
    SHORT = 1024,           /* elements that a warp folds */
    RUN_PART = 16384,       /* elements of a run that a block folds */
    BLOCKS = 1024,          /* that fill a device */
    MOST_THREAD_ROWS = 128, /* that a thread folds */
    FEW_THREAD_ROWS = 8,
};

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_cuda_refuse_types(call);
    if (!reason) reason = ht_refuse_strided_results(call);
    return reason || ht_reduce_keeps_order(call) ? reason : "the input lies in another order than the results";
}

typedef struct reduction {
    ht_reduce_shape shape;
    int64_t parts, part; /* of an output; elements or rows of one */
    int columns;         /* threads side by side, where the run is kept */
} reduction;

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit;
}

/* By the widest pack that the run allows: there are no addresses yet when the workspace is asked for. */
static int columns_of(int64_t run)
{
    int pack = PACK, columns = 1;
    while (run % pack != 0) pack /= 2;
    while (columns < WARP && columns < run / pack) columns *= 2;
    return columns;
}

static reduction reduction_of(const ht_call *call)
{
    reduction r = {.shape = ht_reduce_shape_of(call), .parts = 1, .columns = 1};
    const ht_reduce_shape *s = &r.shape;
    r.part = RUN_PART;
    if (!s->run_reduced) {
        r.columns = columns_of(s->run);
        int64_t slices = HT_CUDA_THREADS / r.columns;
        int64_t wanted = round_up(BLOCKS, 1 + s->outputs / (r.columns * PACK)); /* parts that make enough blocks */
        r.part = round_up(s->length, wanted);
        if (r.part < slices * FEW_THREAD_ROWS) r.part = slices * FEW_THREAD_ROWS;
        if (r.part > slices * MOST_THREAD_ROWS) r.part = slices * MOST_THREAD_ROWS;
    }
    if (s->length > r.part) r.parts = round_up(s->length, r.part);
    return r;
}

static int64_t workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    reduction r = reduction_of(call);
    return r.parts > 1 ? r.parts * r.shape.outputs * (int64_t)sizeof(double) : 0;
}

/* The function that gives the offset of position i of some axes. */
static void write_axes(ht_text *text, const char *name, const ht_reduce_axes *axes)
{
    int64_t below = 1;
    ht_text_add(text, "    static DEVICE_MEMBER int64_t %s(int64_t i) { return 0", name);
    for (int axis = axes->rank - 1; axis >= 0; below *= axes->size[axis--]) {
        ht_text_add(text, " + i / %lldll", (long long)below);
        if (axis > 0) ht_text_add(text, " %% %lldll", (long long)axes->size[axis]);
        ht_text_add(text, " * %lldll", (long long)axes->stride[axis]);
    }
    ht_text_add(text, "; }\n");
}

static void emit_runs(ht_cuda_emission *e, const ht_launch *launch, const reduction *r, const char *fold)
{
    const ht_reduce_shape *s = &r->shape;
    int width = s->length <= SHORT ? WARP : HT_CUDA_THREADS;
    ht_cuda_add_grid(e, ht_cuda_blocks(s->outputs * r->parts, HT_CUDA_THREADS / width), HT_CUDA_THREADS, 0,
                     "reduce_runs<%s, %lld, %lld, %lld, %lld, %lld, %d, %d, %d>(in0, out0, (%s::total *)workspace);",
                     fold, (long long)s->outputs, (long long)s->length, (long long)r->parts, (long long)r->part,
                     (long long)(s->run ? s->run : 1), ht_cuda_pack(launch, s->run, PACK), width, HT_CUDA_THREADS,
                     fold);
}

static void emit_columns(ht_cuda_emission *e, const ht_launch *launch, const reduction *r, const char *fold)
{
    const ht_reduce_shape *s = &r->shape;
    int pack = ht_cuda_pack(launch, s->run, PACK);
    int64_t tiles = round_up(s->run, (int64_t)r->columns * pack);
    ht_cuda_add_grid(e, r->parts * tiles * s->kept.count, HT_CUDA_THREADS, 0,
                     "reduce_columns<%s, %lld, %lld, %lld, %lld, %lld, %d, %d, %d>(in0, out0, (%s::total *)workspace);",
                     fold, (long long)s->outputs, (long long)s->length, (long long)r->parts, (long long)r->part,
                     (long long)s->run, pack, r->columns, HT_CUDA_THREADS, fold);
}

static void emit_join(ht_cuda_emission *e, const reduction *r, const char *fold)
{
    int columns = 1;
    while (columns < PACK && columns < r->shape.outputs) columns *= 2;
    ht_cuda_add_grid(e, ht_cuda_blocks(r->shape.outputs, columns), HT_CUDA_THREADS, 0,
                     "reduce_join<%s, %lld, %lld, %lld, %d, %d>((const %s::total *)workspace, out0);", fold,
                     (long long)r->shape.outputs, (long long)r->shape.length, (long long)r->parts, columns,
                     HT_CUDA_THREADS, fold);
}

static void emit_reduction(ht_cuda_emission *e, const ht_launch *launch, const char *fold)
{
    reduction r = reduction_of(launch->call);
    if (r.shape.outputs == 0) return;
    ht_text_add(&e->text, "struct axes {\n");
    write_axes(&e->text, "kept", &r.shape.kept);
    write_axes(&e->text, "reduced", &r.shape.reduced);
    ht_text_add(&e->text, "};\n");
    ht_cuda_include(e, "reduce");
    if (r.shape.run_reduced)
        emit_runs(e, launch, &r, fold);
    else
        emit_columns(e, launch, &r, fold);
    if (r.parts > 1) emit_join(e, &r, fold);
}

static void sum(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_reduction(e, launch, ht_dtype_is_float(launch->call->in[0]->dtype) ? "fold_sum" : "fold_integers");
}

static void mean(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_reduction(e, launch, "fold_mean");
}

static void reduce_max(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_reduction(e, launch, "fold_max");
}

static void norm(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_reduction(e, launch, "fold_squares");
}

HT_CUDA_KERNEL(sum, can, workspace, sum)
HT_CUDA_KERNEL(mean, can, workspace, mean)
HT_CUDA_KERNEL(reduce_max, can, workspace, reduce_max)
HT_CUDA_KERNEL(norm, can, workspace, norm)
