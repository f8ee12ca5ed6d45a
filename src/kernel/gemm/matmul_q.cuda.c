/* matmul_q for the CUDA device. a: rows evenly apart; w: i8 by rows or by columns; y: f32 or codes, row-major.
 *
 * matmul_q_cublaslt: the library multiplies i8 by i8 along k. What does not lie so is copied into the workspace, a moved to i8 and w
 * by its columns, both filled up with zeros to sizes that the library takes; sums of w's columns make up for zero points. Then
 * the product, i32, and our own grid makes results of the sums.
 * Numerics: sums are exact, and what is done to them is f32 with one rounding each: the bits of the CPU's rows.
 * Traffic: a and w up to three times, sums once and back, y once.  Bound: compute, where a has many rows.
 *
 * matmul_q: a thread for each result. It serves what the library does not take, and machines without it. */
#include <stdlib.h>

#include "kernel/cuda/inner_launch.h"
#include "op/op.h"

extern const ht_kernel ht_kernel_cuda_matmul_cublaslt_i8;

enum { A, W, A_SCALE, W_SCALE, A_ZERO, BIAS, Y_SCALE, Y_ZERO };
enum { STEP = 16, WORKSPACE_ROUND = 256, SQUARE = 32, PACK = 4 };

/* ---- sizes ---- */

typedef struct sizes {
    int64_t m, n, k, pitch, down, across;           /* pitch: of rows of a */
    int64_t depth, wide;                            /* k and n, filled up to what the library takes */
    bool copies_a, copies_w;                        /* the library cannot read them where they lie */
    int64_t w_at, column_sums_at, sums_at, rest_at; /* in the workspace, behind a */
} sizes;

static int64_t round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

static sizes sizes_of(const ht_call *call)
{
    const ht_type *a = call->in[A], *w = call->in[W];
    bool tb = ht_call_int(call, "tb");
    sizes s = {.m = 1,
               .n = w->dim[tb ? 0 : 1],
               .k = w->dim[tb ? 1 : 0],
               .pitch = a->stride[a->rank - 2],
               .down = w->stride[tb ? 1 : 0],
               .across = w->stride[tb ? 0 : 1]};
    for (int axis = 0; axis < a->rank - 1; axis++) s.m *= a->dim[axis];
    s.depth = round_up(s.k, STEP);
    s.wide = round_up(s.n, STEP);
    s.copies_a = a->dtype != HT_I8 || s.depth != s.k || s.pitch != s.k;
    s.copies_w = s.wide != s.n || s.depth != s.k || s.down != 1 || s.across != s.k;
    s.w_at = s.copies_a ? round_up(s.m * s.depth, WORKSPACE_ROUND) : 0;
    s.column_sums_at = s.w_at + (s.copies_w ? round_up(s.wide * s.depth, WORKSPACE_ROUND) : 0);
    s.sums_at = s.column_sums_at + round_up(s.n * (int64_t)sizeof(int32_t), WORKSPACE_ROUND);
    s.rest_at = s.sums_at + round_up(s.m * s.wide * (int64_t)sizeof(int32_t), WORKSPACE_ROUND);
    return s;
}

/* ---- what they take ---- */

/* Rows of a lie evenly, each without gaps. */
static bool has_even_rows(const ht_type *a)
{
    if (a->dim[a->rank - 1] > 1 && a->stride[a->rank - 1] != 1) return false;
    for (int axis = a->rank - 3; axis >= 0; axis--)
        if (a->dim[axis] > 1 && a->stride[axis] != a->stride[axis + 1] * a->dim[axis + 1]) return false;
    return true;
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    if (!ht_type_contiguous(call->out[0])) return "the result is strided";
    if (!has_even_rows(call->in[A])) return "rows of a are strided";
    for (size_t i = A_SCALE; i < call->n_in; i++)
        if (call->in[i] && !ht_type_contiguous(call->in[i])) return "a scale, a zero point or the bias is strided";
    return NULL;
}

/* workspace: NULL where only sizes matter. */
static ht_inner_launch product_of(const sizes *s, const ht_launch *launch, char *workspace)
{
    int64_t a[2] = {s->m, s->depth}, w[2] = {s->wide, s->depth}, y[2] = {s->m, s->wide};
    ht_inner_launch inner = {.row = &ht_kernel_cuda_matmul_cublaslt_i8, .n_in = 2, .n_attr = 2};
    inner.types[0] = ht_type_make(HT_I8, 2, a);
    inner.types[1] = ht_type_make(HT_I8, 2, w);
    inner.types[2] = ht_type_make(HT_I32, 2, y);
    inner.attrs[0] = (ht_attr){.key = "ta", .kind = HT_ATTR_INT, .i = 0};
    inner.attrs[1] = (ht_attr){.key = "tb", .kind = HT_ATTR_INT, .i = 1};
    if (!workspace) return inner;
    inner.addresses[0] = s->copies_a ? workspace : (void *)(uintptr_t)launch->in[A];
    inner.addresses[1] = s->copies_w ? workspace + s->w_at : (void *)(uintptr_t)launch->in[W];
    inner.addresses[2] = workspace + s->sums_at;
    inner.workspace = workspace + s->rest_at;
    return inner;
}

static const char *library_can(const ht_call *call, const ht_target *target)
{
    sizes s = sizes_of(call);
    if (!ht_target_has_library(target, HT_LIBRARY_CUBLASLT)) return "the target lacks cublasLt";
    if (s.m == 0 || s.n == 0 || s.k == 0) return "there is nothing to multiply";
    if (s.down != 1 && s.across != 1) return "w is strided";
    return can(call, target);
}

static int64_t library_workspace(const ht_call *call, const ht_target *target)
{
    sizes s = sizes_of(call);
    ht_inner_launch inner = product_of(&s, NULL, NULL);
    return WORKSPACE_ROUND + s.rest_at + inner.row->workspace(ht_inner_call(&inner), target);
}

/* ---- our grids ---- */

static bool is_list(const ht_call *call, size_t input)
{
    return input < call->n_in && call->in[input] && call->in[input]->rank > 0;
}

static const char *operand(const ht_call *call, size_t input)
{
    return input < call->n_in && call->in[input] ? ht_cuda_optional(call, input) : "nullptr";
}

/* The struct `finished` of the text. */
static void write_finished(ht_text *text, const ht_call *call)
{
    ht_text_add(text, "finished<%s>{in2, in3, %s, %s, %s, %s, %d, %d, %d}", ht_cuda_type(call->out[0]->dtype),
                operand(call, BIAS), operand(call, Y_SCALE), operand(call, A_ZERO), operand(call, Y_ZERO),
                is_list(call, A_SCALE), is_list(call, A_ZERO), is_list(call, W_SCALE));
}

static void include(ht_cuda_emission *e)
{
    ht_cuda_include(e, "codes");
    ht_cuda_include(e, "matmul_q");
}

static void matmul_q(ht_cuda_emission *e, const ht_launch *launch)
{
    sizes s = sizes_of(launch->call);
    ht_text finished = {0};
    if (s.m * s.n == 0) return;
    write_finished(&finished, launch->call);
    include(e);
    ht_cuda_add_grid(e, ht_cuda_blocks(s.m * s.n, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "multiply_codes<%lld, %lld, %lld, %lld, %lld, %lld>(in0, in1, out0, %s);", (long long)s.m,
                     (long long)s.n, (long long)s.k, (long long)s.pitch, (long long)s.down, (long long)s.across,
                     finished.data ? finished.data : "");
    e->text.failed |= finished.failed;
    ht_text_free(&finished);
}

static void emit_copies(ht_cuda_emission *e, const ht_launch *launch)
{
    sizes s = sizes_of(launch->call);
    include(e);
    if (s.copies_a)
        ht_cuda_add_grid(e, ht_cuda_blocks(s.m * s.depth / PACK, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                         "copy_codes<%lld, %lld, %lld, %lld>(in0, (int8_t *)workspace);", (long long)s.m,
                         (long long)s.k, (long long)s.pitch, (long long)s.depth);
    ht_cuda_add_grid(
        e, (s.wide + SQUARE - 1) / SQUARE, HT_CUDA_THREADS, 0,
        "turn_weights<%lld, %lld, %lld, %lld, %lld, %lld, %s>(in1, (int8_t *)(workspace + %lld), (int32_t *)(workspace "
        "+ %lld));",
        (long long)s.n, (long long)s.k, (long long)s.down, (long long)s.across, (long long)s.depth, (long long)s.wide,
        s.copies_w ? "true" : "false", (long long)s.w_at, (long long)s.column_sums_at);
}

static void emit_results(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    sizes s = sizes_of(call);
    ht_text finished = {0};
    write_finished(&finished, call);
    include(e);
    ht_cuda_add_grid(
        e, ht_cuda_blocks(s.m * s.n, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
        "finish_sums<%lld, %lld, %lld, %d>((const int32_t *)(workspace + %lld), (const int32_t *)(workspace + "
        "%lld), out0, %s);",
        (long long)s.m, (long long)s.n, (long long)s.wide, call->in[A]->dtype == HT_U8 ? 128 : 0, (long long)s.sums_at,
        (long long)s.column_sums_at, finished.data ? finished.data : "");
    e->text.failed |= finished.failed;
    ht_text_free(&finished);
}

/* No ops of graphs: the row by the library is made of them. */
#define PART(name_, emit_)                                                                                             \
    {                                                                                                                  \
        .size = sizeof(ht_kernel), .op = "matmul_q", .name = name_, .device = HT_DEVICE_CUDA, .emit = emit_,           \
        .prepare = ht_cuda_prepare, .run = ht_cuda_run                                                                 \
    }
static const ht_kernel copies_row = PART("matmul_q_copies.cuda", emit_copies);
static const ht_kernel results_row = PART("matmul_q_results.cuda", emit_results);

/* ---- by the library ---- */

typedef struct prepared {
    ht_launch copies, results;
    ht_inner_launch product;
} prepared;

static ht_status prepare_part(ht_launch *part, const ht_launch *outer, const ht_kernel *row, char *workspace)
{
    *part = *outer;
    part->row = row;
    part->workspace = workspace;
    part->prepared = NULL;
    return row->prepare(part);
}

static ht_status library_prepare(ht_launch *launch)
{
    sizes s = sizes_of(launch->call);
    prepared *x = launch->prepared = calloc(1, sizeof *x);
    if (!x) HT_FAIL(launch->ctx, HT_ENOMEM, "out of memory for a launch");
    char *workspace = (char *)round_up((intptr_t)launch->workspace, WORKSPACE_ROUND);
    x->product = product_of(&s, launch, workspace);
    HT_TRY(prepare_part(&x->copies, launch, &copies_row, workspace));
    HT_TRY(prepare_part(&x->results, launch, &results_row, workspace));
    return ht_inner_prepare(&x->product, launch);
}

static void library_release(ht_launch *launch)
{
    prepared *x = launch->prepared;
    if (!x) return;
    free(x->copies.prepared);
    free(x->results.prepared);
    ht_inner_release(&x->product);
}

static ht_status library_run(const ht_launch *launch)
{
    const prepared *x = launch->prepared;
    HT_TRY(x->copies.row->run(&x->copies));
    HT_TRY(ht_inner_run(&x->product));
    return x->results.row->run(&x->results);
}

HT_CUDA_KERNEL(matmul_q, can, NULL, matmul_q)

const ht_kernel ht_kernel_cuda_matmul_q_cublaslt = {
    .size = sizeof(ht_kernel),
    .op = "matmul_q",
    .name = "matmul_q_cublaslt.cuda",
    .device = HT_DEVICE_CUDA,
    .can = library_can,
    .workspace = library_workspace,
    .prepare = library_prepare,
    .release = library_release,
    .run = library_run,
};
