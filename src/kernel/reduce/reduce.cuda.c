/* sum, mean, reduce_max, norm over any axes.  x, y: any float but f8, row-major, x also in another order
 * that keeps that of the results; of sum also i32 and i64.
 * Threads: outputs, and parts of each reduction, whose results wait in the workspace and are joined in order.  How a
 * reduction is split follows from its shape alone, so point-wise calls before it do not change its bits.  Traffic: 1 read.
 * Bound: bandwidth. */
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
    RESIDENT = 4, /* blocks with calls before them: else the compiler saves registers that loads could use */
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

/* How a grid folds. */
typedef struct folding {
    const char *name; /* of the fold in reduce.cu */
    const ht_cuda_fold *by;
    const reduction *r;
    int pack;
} folding;

static void emit_runs(ht_cuda_emission *e, const folding *f)
{
    const ht_reduce_shape *s = &f->r->shape;
    int width = s->length <= SHORT ? WARP : HT_CUDA_THREADS;
    ht_cuda_add_grid(e, ht_cuda_blocks(s->outputs * f->r->parts, HT_CUDA_THREADS / width), HT_CUDA_THREADS, 0,
                     "reduce_runs<%s, %lld, %lld, %lld, %lld, %lld, %d, %d, %d>(%s, out%d, (%s::total *)workspace);",
                     f->name, (long long)s->outputs, (long long)s->length, (long long)f->r->parts,
                     (long long)f->r->part, (long long)(s->run ? s->run : 1), f->pack, width, HT_CUDA_THREADS,
                     f->by->source.data, f->by->out, f->name);
}

static void emit_columns(ht_cuda_emission *e, const folding *f)
{
    const ht_reduce_shape *s = &f->r->shape;
    int64_t tiles = round_up(s->run, (int64_t)f->r->columns * f->pack);
    if (e->launch->fused) e->resident = RESIDENT;
    ht_cuda_add_grid(e, f->r->parts * tiles * s->kept.count, HT_CUDA_THREADS, 0,
                     "reduce_columns<%s, %lld, %lld, %lld, %lld, %lld, %d, %d, %d>(%s, out%d, (%s::total *)workspace);",
                     f->name, (long long)s->outputs, (long long)s->length, (long long)f->r->parts,
                     (long long)f->r->part, (long long)s->run, f->pack, f->r->columns, HT_CUDA_THREADS,
                     f->by->source.data, f->by->out, f->name);
}

static void emit_join(ht_cuda_emission *e, const folding *f)
{
    const reduction *r = f->r;
    int columns = 1;
    while (columns < PACK && columns < r->shape.outputs) columns *= 2;
    ht_cuda_add_grid(e, ht_cuda_blocks(r->shape.outputs, columns), HT_CUDA_THREADS, 0,
                     "reduce_join<%s, %lld, %lld, %lld, %d, %d>((const %s::total *)workspace, out%d);", f->name,
                     (long long)r->shape.outputs, (long long)r->shape.length, (long long)r->parts, columns,
                     HT_CUDA_THREADS, f->name, f->by->out);
}

static void emit_reduction(ht_cuda_emission *e, const ht_launch *launch, const char *name)
{
    reduction r = reduction_of(ht_cuda_fold_call(launch));
    if (r.shape.outputs == 0) return;
    int pack = ht_cuda_pack(launch, r.shape.run, PACK);
    ht_cuda_fold by = ht_cuda_fold_begin(e, launch, pack);
    const folding f = {name, &by, &r, pack};
    ht_text_add(&e->text, "struct axes {\n");
    write_axes(&e->text, "kept", &r.shape.kept);
    write_axes(&e->text, "reduced", &r.shape.reduced);
    ht_text_add(&e->text, "};\n");
    ht_cuda_include(e, "reduce");
    if (r.shape.run_reduced)
        emit_runs(e, &f);
    else
        emit_columns(e, &f);
    e->resident = 0;
    if (r.parts > 1) emit_join(e, &f);
    ht_cuda_fold_free(e, &by);
}

/* Sums of columns are what follows point-wise calls: gradients of biases. */
static const char *takes(const ht_call *call, const ht_fusion *fusion, const ht_target *target)
{
    (void)target;
    const char *reason = ht_cuda_refuse_before(call, fusion);
    if (!reason && ht_reduce_shape_of(call).run_reduced) reason = "it is no sum of columns";
    return reason;
}

static void sum(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_reduction(e, launch,
                   ht_dtype_is_float(ht_cuda_fold_call(launch)->in[0]->dtype) ? "fold_sum" : "fold_integers");
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

#define REDUCTION(op) const ht_kernel ht_kernel_cuda_##op = {HT_CUDA_FIELDS(op, can, workspace, op), .takes = takes};
REDUCTION(sum)
REDUCTION(mean)
REDUCTION(reduce_max)
REDUCTION(norm)
