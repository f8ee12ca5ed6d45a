/* matmul of f32 by tensor cores, in parts of tf32 (parts.cu): a = a1 + a2, b = b1 + b2, and a b is the sum of a1 b2, a2 b1
 * and a1 b1; what is left out, a2 b2, is 2^-22 of it. One product of three times the depth by cublasLt, whose operands are
 * made in the workspace; where that would be too large, several, each on a stretch of k, added up in ascending order.
 * a, b: f32, two axes, with neighbours along rows or columns, sizes that are multiples of 4; y: f32, row-major.
 *
 * Numerics: sums in f32 in the tensor cores, small parts first; errors are those of f32 products (docs/performance.md),
 * bits are not. The same bits on every run. An operand that is not finite makes a result that is not.
 * Traffic: operands once, three times as much to and from the workspace. Bound: compute. */
#include <stdlib.h>

#include "kernel/cuda/inner_launch.h"
#include "kernel/gemm/product.h"
#include "op/op.h"

extern const ht_kernel ht_kernel_cuda_matmul_cublaslt_tf32;

enum {
    PARTS = 3,
    LOW_OF_A = 1, /* which of its parts is the low one: never the same as of b */
    LOW_OF_B = 0,
    QUAD = 4,
    STEP_ROUND = 64,  /* a stretch of k is a multiple of it */
    LEAST_STEP = 512, /* shorter ones would mostly move y */
    WORKSPACE_ROUND = 256,
};
#define LEAST_WORK ((int64_t)1 << 30) /* multiplications from which on it is worth the parts */
#define MOST_BYTES ((int64_t)1 << 30) /* of all parts */

/* ---- what it takes ---- */

/* An operand as it lies: rows without gaps, `pitch` apart. */
typedef struct lying {
    int64_t rows, columns, pitch;
    bool down; /* k goes down the rows */
} lying;

static bool has_quads(const lying *l)
{
    return l->pitch >= l->columns && l->pitch % QUAD == 0 && l->columns % QUAD == 0;
}

/* `depth_across`: k goes along the matrix's own columns. */
static bool find_rows(const matrix *m, int64_t rows, int64_t columns, bool depth_across, lying *out)
{
    if (m->across == 1)
        *out = (lying){rows, columns, m->down, !depth_across};
    else if (m->down == 1)
        *out = (lying){columns, rows, m->across, depth_across};
    else
        return false;
    return has_quads(out);
}

/* How k is cut: stretches of `step`, of which the last is filled up with zeros. */
typedef struct cut {
    int64_t step, count;
} cut;

static cut cut_of(const product *p)
{
    int64_t most = MOST_BYTES / (PARTS * (int64_t)sizeof(float) * (p->m + p->n)) / STEP_ROUND * STEP_ROUND;
    if (most < STEP_ROUND) return (cut){0, 0};
    int64_t count = (p->k + most - 1) / most, step = (p->k + count - 1) / count;
    return (cut){(step + STEP_ROUND - 1) / STEP_ROUND * STEP_ROUND, count};
}

static const char *parts_can(const ht_call *call, const ht_target *target)
{
    lying a, b;
    product p = product_as_called(call, NULL, NULL);
    if (!ht_target_allows(target, HT_LIBERTY_TF32_PARTS)) return ht_not_asked;
    if (!ht_target_has_library(target, HT_LIBRARY_CUBLASLT)) return "the target lacks cublasLt";
    if (call->in[0]->dtype != HT_F32 || call->in[1]->dtype != HT_F32 || call->out[0]->dtype != HT_F32)
        return "an operand is not f32";
    if (!ht_type_contiguous(call->out[0])) return "the result is strided";
    if (product_batches(&p) != 1) return "a batch of products";
    if (p.m * p.n == 0 || p.k < LEAST_WORK / (p.m * p.n)) return "the product is small";
    if (!find_rows(&p.a, p.m, p.k, true, &a) || !find_rows(&p.b, p.k, p.n, false, &b)) return "an input is strided";
    cut c = cut_of(&p);
    return c.count > 1 && c.step < LEAST_STEP ? "its parts are too large" : NULL;
}

/* ---- making parts ---- */

static void split_emit(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    const ht_type *from = call->in[0];
    int64_t step = ht_call_int(call, "step");
    bool down = ht_call_int(call, "down");
    int64_t quads = (down ? step * from->dim[1] : from->dim[0] * step) / QUAD;
    ht_cuda_include(e, "parts");
    ht_cuda_add_grid(e, ht_cuda_blocks(quads, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "split_parts<%s, %lld, %lld, %lld, %lld, %lld>(in0, out0);", down ? "true" : "false",
                     (long long)from->dim[0], (long long)from->dim[1], (long long)from->stride[0], (long long)step,
                     (long long)ht_call_int(call, "low"));
}

/* No op of graphs: only products are made of it. */
static const ht_kernel split_row = {
    .size = sizeof(ht_kernel),
    .op = "matmul",
    .name = "split_parts.cuda",
    .device = HT_DEVICE_CUDA,
    .emit = split_emit,
    .prepare = ht_cuda_prepare,
    .run = ht_cuda_run,
};

static ht_attr number(const char *key, int64_t value)
{
    return (ht_attr){.key = key, .kind = HT_ATTR_INT, .i = value};
}

/* Of the stretch of k from `first` on, `count` long. */
static ht_inner_launch split_of(const lying *l, const void *data, int64_t first, int64_t count, int64_t step, int low,
                                void *to)
{
    int64_t dim[2] = {l->down ? count : l->rows, l->down ? l->columns : count};
    int64_t parts = PARTS * step * (l->down ? l->columns : l->rows);
    ht_inner_launch inner = {.row = &split_row, .n_in = 1, .n_attr = 3};
    inner.types[0] = ht_type_make(HT_F32, 2, dim);
    inner.types[0].stride[0] = l->pitch;
    inner.types[1] = ht_type_make(HT_F32, 1, &parts);
    inner.addresses[0] = (float *)data + first * (l->down ? l->pitch : 1);
    inner.addresses[1] = to;
    inner.attrs[0] = number("step", step);
    inner.attrs[1] = number("down", l->down);
    inner.attrs[2] = number("low", low);
    return inner;
}

/* ---- the product ---- */

/* Of parts, as they lie; `more`: y is added to. */
static ht_inner_launch product_of_parts(const product *p, const lying *a, const lying *b, int64_t step, void *parts_a,
                                        void *parts_b, void *y, bool more)
{
    int64_t depth = PARTS * step;
    int64_t a_dim[2] = {a->down ? depth : p->m, a->down ? p->m : depth};
    int64_t b_dim[2] = {b->down ? depth : p->n, b->down ? p->n : depth};
    int64_t y_dim[2] = {p->m, p->n};
    ht_inner_launch inner = {.row = &ht_kernel_cuda_matmul_cublaslt_tf32, .n_in = more ? 3 : 2, .n_attr = 2};
    inner.types[0] = ht_type_make(HT_F32, 2, a_dim);
    inner.types[1] = ht_type_make(HT_F32, 2, b_dim);
    inner.types[2] = inner.types[3] = ht_type_make(HT_F32, 2, y_dim);
    inner.addresses[0] = parts_a;
    inner.addresses[1] = parts_b;
    inner.addresses[2] = inner.addresses[3] = y;
    inner.attrs[0] = number("ta", a->down);
    inner.attrs[1] = number("tb", !b->down);
    return inner;
}

static int64_t round_up(int64_t bytes)
{
    return (bytes + WORKSPACE_ROUND - 1) / WORKSPACE_ROUND * WORKSPACE_ROUND;
}

/* Both parts, and behind them what the library wants; the planner aligns to less. */
static int64_t parts_workspace(const ht_call *call, const ht_target *target)
{
    product p = product_as_called(call, NULL, NULL);
    lying a, b;
    cut c = cut_of(&p);
    (void)find_rows(&p.a, p.m, p.k, true, &a);
    (void)find_rows(&p.b, p.k, p.n, false, &b);
    ht_inner_launch inner = product_of_parts(&p, &a, &b, c.step, NULL, NULL, NULL, false);
    int64_t wide = PARTS * c.step * (int64_t)sizeof(float);
    return WORKSPACE_ROUND + round_up(wide * p.m) + round_up(wide * p.n) +
           inner.row->workspace(ht_inner_call(&inner), target);
}

typedef struct prepared {
    ht_inner_launch *list; /* of each stretch: the parts of a, those of b, the product */
    size_t count;
} prepared;

static void parts_release(ht_launch *launch)
{
    prepared *x = launch->prepared;
    for (size_t i = 0; x && i < x->count; i++) ht_inner_release(&x->list[i]);
    if (x) free(x->list);
}

static ht_status parts_prepare(ht_launch *launch)
{
    enum { LAUNCHES = 3 };
    product p = product_as_called(launch->call, launch->in, launch->out);
    lying a, b;
    cut c = cut_of(&p);
    prepared *x = launch->prepared = calloc(1, sizeof *x);
    if (x) x->list = calloc((size_t)c.count * LAUNCHES, sizeof *x->list);
    if (!x || !x->list) HT_FAIL(launch->ctx, HT_ENOMEM, "out of memory for a launch");
    (void)find_rows(&p.a, p.m, p.k, true, &a);
    (void)find_rows(&p.b, p.k, p.n, false, &b);
    int64_t wide = PARTS * c.step * (int64_t)sizeof(float);
    char *parts_a = (char *)round_up((intptr_t)launch->workspace), *parts_b = parts_a + round_up(wide * p.m);
    for (int64_t i = 0; i < c.count; i++) {
        int64_t first = i * c.step, count = p.k - first < c.step ? p.k - first : c.step;
        ht_inner_launch *at = &x->list[x->count];
        at[0] = split_of(&a, p.a.data, first, count, c.step, LOW_OF_A, parts_a);
        at[1] = split_of(&b, p.b.data, first, count, c.step, LOW_OF_B, parts_b);
        at[2] = product_of_parts(&p, &a, &b, c.step, parts_a, parts_b, p.y, i > 0);
        at[2].workspace = parts_b + round_up(wide * p.n);
        for (int k = 0; k < LAUNCHES; k++, x->count++) HT_TRY(ht_inner_prepare(&at[k], launch));
    }
    return HT_OK;
}

static ht_status parts_run(const ht_launch *launch)
{
    const prepared *x = launch->prepared;
    for (size_t i = 0; i < x->count; i++) HT_TRY(ht_inner_run(&x->list[i]));
    return HT_OK;
}

const ht_kernel ht_kernel_cuda_matmul_parts = {
    .size = sizeof(ht_kernel),
    .op = "matmul",
    .name = "matmul_parts.cuda",
    .device = HT_DEVICE_CUDA,
    .can = parts_can,
    .workspace = parts_workspace,
    .prepare = parts_prepare,
    .release = parts_release,
    .run = parts_run,
    .parts = {PARTS, HT_FORMAT_TF32},
};
