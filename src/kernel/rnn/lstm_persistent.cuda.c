/* lstm and lstm_grad for the CUDA device, as products over all steps and one grid for the steps (lstm_tiles.cu).
 * x and both weights: f32, f16 or bf16, the same; all else any float but f8 and f64; row-major; a multiple of 8 units, up to
 * 1024 in half.
 * Numerics: f32 sums in a fixed order, c and dc unrounded from step to step. In half, tensor cores read h and d(gates)
 * rounded to the type of the weights: as h from step to step, and as d(gates) for dh, dx and the gradients of the weights.
 * Blocks: 16 units by tiles of 32 sequences, of 64 in f32, all of them on the device at the same time; they wait for each other in every
 * step. The products with x are those of matmul's rows: tensor cores by cublasLt where it is there,
 * in f32 those of tf32 in the rows for it.
 * Traffic: per step and block h (128 KB at 1024 units) from L2; w_hidden once per call in half.  Bound: latency of a step.
 * A device with too few processors or too little shared memory runs the rows of lstm.cuda.c. */
#include <stdio.h>
#include <stdlib.h>

#include "kernel/cuda/inner_launch.h"
#include "op/op.h"

enum { UNITS = 16, QUAD = 4, PASS = 32, THREADS = 256, COUNTER_BYTES = 128, ALIGN = 256 }; /* as in the text */
enum { HALF_BYTES = 128 << 10, REAL_BYTES = (64 * 64 + 2 * 16 * 68) * 4, BIAS_BYTES = 8 * THREADS * 4 };
enum { UNIT_STEP = 8, MOST_HALF_UNITS = 1024 };

extern const ht_kernel ht_kernel_cuda_matmul, ht_kernel_cuda_matmul_cublaslt, ht_kernel_cuda_matmul_cublaslt_tf32;
extern const ht_kernel ht_kernel_cuda_lstm, ht_kernel_cuda_lstm_grad;

/* ---- sizes ---- */

typedef struct layer {
    long long steps, batch, inputs, hidden, gates, rows; /* rows: of all steps */
    ht_dtype dtype;                                      /* of x and the weights */
    bool has_lengths;
} layer;

static bool has(const ht_call *call, size_t input)
{
    return input < call->n_in && call->in[input];
}

static layer layer_of(const ht_call *call)
{
    const ht_type *x = call->in[0], *h0 = call->in[1];
    layer l = {.steps = x->dim[0], .batch = x->dim[1], .inputs = x->dim[2], .hidden = h0->dim[1], .dtype = x->dtype};
    l.gates = 4 * l.hidden, l.rows = l.steps * l.batch;
    l.has_lengths = has(call, 6); /* of both ops */
    return l;
}

/* Sequences of a tile. */
static int tile_of(const layer *l)
{
    return l->dtype == HT_F32 ? 2 * PASS : PASS;
}

/* How the steps are spread over blocks. */
typedef struct spread {
    int groups, parts; /* of units, of tiles */
    int shared_bytes;
    bool fits;
} spread;

static spread spread_of(const layer *l, const ht_launch *launch, bool back)
{
    ht_cuda_limits limits = ht_cuda_launch_limits(launch);
    int64_t tiles = ht_cuda_blocks(l->batch, tile_of(l)), groups = ht_cuda_blocks(l->hidden, UNITS);
    if (back) groups = ht_cuda_blocks(groups, QUAD) * QUAD;
    if (groups > limits.processors) return (spread){.fits = false};
    int64_t parts = limits.processors / groups < tiles ? limits.processors / groups : tiles;
    /* c and h of its units, in all its tiles; d(bias). */
    int64_t states = (tiles + parts - 1) / parts * (2 * UNITS * tile_of(l) * 4) + (back ? BIAS_BYTES : 0);
    int64_t bytes = (l->dtype == HT_F32 ? REAL_BYTES : HALF_BYTES) + states;
    return (spread){(int)groups, (int)parts, (int)bytes, bytes <= limits.shared_bytes};
}

/* Places in the workspace, in bytes; the space of a library's product and of what this row needs besides. */
typedef struct layout {
    int64_t counters, pre, hidden;                      /* forward */
    int64_t d_gates, h_before, exchange, bias_parts, x; /* backward */
    int64_t products, bytes;
} layout;

static int64_t take(layout *at, int64_t bytes)
{
    int64_t start = at->bytes;
    at->bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return start;
}

/* For any device: all units have blocks of their own, tiles perhaps. */
static layout layout_of(const layer *l, bool back)
{
    layout at = {0};
    int64_t tiles = ht_cuda_blocks(l->batch, tile_of(l)), quads = ht_cuda_blocks(l->hidden, UNITS * QUAD);
    int64_t size = (int64_t)ht_dtype_bytes(l->dtype);
    at.counters = take(&at, tiles * (1 + quads) * COUNTER_BYTES);
    if (back) {
        at.d_gates = take(&at, l->rows * l->gates * size);
        at.h_before = take(&at, l->rows * l->hidden * size);
        at.exchange = take(&at, tiles * quads * QUAD * UNITS * QUAD * tile_of(l) * 4);
        at.bias_parts = take(&at, tiles * l->gates * 4);
        at.x = take(&at, l->has_lengths ? l->rows * l->inputs * size : 0);
    } else {
        at.pre = take(&at, l->rows * l->gates * 4);
        at.hidden = take(&at, 2 * l->batch * l->hidden * size);
    }
    at.products = at.bytes;
    return at;
}

/* ---- products: launches of matmul's rows ---- */

enum { PRODUCTS = 3 };

static ht_inner_launch product_of(ht_type a, bool turn_a, ht_type b, bool turn_b, ht_type y)
{
    ht_inner_launch inner = {.row = &ht_kernel_cuda_matmul_cublaslt, .n_in = 2, .n_attr = 2};
    inner.types[0] = a, inner.types[1] = b, inner.types[2] = y;
    inner.attrs[0] = (ht_attr){.key = "ta", .kind = HT_ATTR_INT, .i = turn_a};
    inner.attrs[1] = (ht_attr){.key = "tb", .kind = HT_ATTR_INT, .i = turn_b};
    return inner;
}

static ht_type matrix(ht_dtype dtype, int64_t rows, int64_t columns)
{
    return ht_type_make(dtype, HT_DIMS(rows, columns));
}

/* x w_input'. */
static size_t describe_forward(const layer *l, ht_inner_launch *p)
{
    p[0] = product_of(matrix(l->dtype, l->rows, l->inputs), false, matrix(l->dtype, l->gates, l->inputs), true,
                      matrix(HT_F32, l->rows, l->gates));
    return 1;
}

/* dx, then the gradients of w_input and w_hidden. */
static size_t describe_back(const layer *l, const ht_call *call, ht_inner_launch *p)
{
    ht_type slopes = matrix(l->dtype, l->rows, l->gates), x = matrix(l->dtype, l->rows, l->inputs);
    p[0] = product_of(slopes, false, matrix(l->dtype, l->gates, l->inputs), false,
                      matrix(call->out[0]->dtype, l->rows, l->inputs));
    p[1] = product_of(slopes, true, x, false, matrix(call->out[3]->dtype, l->gates, l->inputs));
    p[2] = product_of(slopes, true, matrix(l->dtype, l->rows, l->hidden), false,
                      matrix(call->out[4]->dtype, l->gates, l->hidden));
    return PRODUCTS;
}

/* Whatever row runs it. */
static int64_t product_workspace(ht_inner_launch *p)
{
    return ht_kernel_cuda_matmul_cublaslt.workspace(ht_inner_call(p), NULL);
}

static bool takes_tf32(const ht_kernel *row);

static ht_status prepare_product(const ht_launch *whole, ht_inner_launch *p, const void *a, const void *b, void *y,
                                 void *workspace)
{
    ht_device *device = whole->queue->device;
    ht_target here = {.device = HT_DEVICE_CUDA};
    device->class->describe(device, &here);
    if (takes_tf32(whole->row)) here.liberties |= 1u << HT_LIBERTY_TF32;
    if (takes_tf32(whole->row)) p->row = &ht_kernel_cuda_matmul_cublaslt_tf32;
    if (p->row->can(ht_inner_call(p), &here)) p->row = &ht_kernel_cuda_matmul;
    p->addresses[0] = (void *)(uintptr_t)a, p->addresses[1] = (void *)(uintptr_t)b, p->addresses[2] = y;
    p->workspace = product_workspace(p) ? workspace : NULL;
    return ht_inner_prepare(p, whole);
}

/* ---- a launch and its parts ---- */

typedef struct prepared {
    ht_launch steps; /* the text, or all of the call in the row of lstm.cuda.c */
    size_t product_count;
    ht_inner_launch products[PRODUCTS];
} prepared;

static ht_status prepare_fallback(const ht_launch *launch, prepared *p, const ht_kernel *row)
{
    p->steps = *launch;
    p->steps.row = row;
    p->steps.prepared = NULL;
    return row->prepare(&p->steps);
}

static prepared *make_prepared(ht_launch *launch)
{
    prepared *p = launch->prepared = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->steps = *launch;
    p->steps.prepared = NULL;
    return p;
}

static void release(ht_launch *launch)
{
    prepared *p = launch->prepared;
    if (!p) return;
    for (size_t i = 0; i < p->product_count; i++) ht_inner_release(&p->products[i]);
    free(p->steps.prepared);
}

static ht_status run_products(const prepared *p)
{
    for (size_t i = 0; i < p->product_count; i++) HT_TRY(ht_inner_run(&p->products[i]));
    return HT_OK;
}

/* An input that may be left out, in the text. */
typedef struct operand {
    char text[40];
} operand;

static operand optional(const ht_call *call, size_t input)
{
    operand o;
    if (has(call, input))
        snprintf(o.text, sizeof o.text, "in%zu", input);
    else
        snprintf(o.text, sizeof o.text, "(const int32_t *)nullptr");
    return o;
}

typedef struct shape_text {
    char text[128];
} shape_text;

static shape_text write_shape(const ht_launch *launch, const layer *l, const spread *s)
{
    shape_text t;
    bool aligned = ht_cuda_pack(launch, l->hidden, UNIT_STEP) == UNIT_STEP;
    snprintf(t.text, sizeof t.text, "step_shape<%s, %lld, %lld, %lld, %d, %d, %s>", ht_cuda_type(l->dtype), l->steps,
             l->batch, l->hidden, s->groups, s->parts, aligned ? "true" : "false");
    return t;
}

/* The templates, and the first grid. */
static void begin_text(ht_cuda_emission *e, const char *file, int64_t counters, const layout *at)
{
    ht_cuda_include(e, "lstm_tiles");
    ht_cuda_include(e, file);
    ht_cuda_add_grid(e, 1, THREADS, 0, "reset_counters<%lld>((uint32_t *)(workspace + %lld));", (long long)counters,
                     (long long)at->counters);
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    layer l = layer_of(call);
    const char *reason = ht_cuda_refuse(call);
    if (reason) return reason;
    if (ht_cuda_has_f64(call)) return "an operand is f64";
    if (call->in[3]->dtype != l.dtype || call->in[4]->dtype != l.dtype) return "x and the weights differ in type";
    if (l.rows == 0 || l.inputs == 0 || l.hidden == 0) return "there is nothing to multiply";
    if (l.hidden % UNIT_STEP != 0) return "the number of units is no multiple of 8";
    if (l.dtype != HT_F32 && l.hidden > MOST_HALF_UNITS)
        return "more than 1024 units, whose weights registers do not hold";
    return NULL;
}

/* ---- forward ---- */

static void lstm_emit(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    layer l = layer_of(call);
    spread s = spread_of(&l, launch, false);
    layout at = layout_of(&l, false);
    begin_text(e, "lstm_persistent", ht_cuda_blocks(l.batch, tile_of(&l)), &at);
    ht_cuda_add_grid(
        e, (int64_t)s.groups * s.parts, THREADS, s.shared_bytes,
        "run_forward<%s>(in1, in2, in4, %s, %s, (const float *)(workspace + %lld), (%s *)(workspace + %lld), "
        "(uint32_t *)(workspace + %lld), out0, out1, out2, out3);",
        write_shape(launch, &l, &s).text, optional(call, 5).text, optional(call, 6).text, (long long)at.pre,
        ht_cuda_type(l.dtype), (long long)at.hidden, (long long)at.counters);
    ht_cuda_run_together(e);
}

static int64_t lstm_workspace(const ht_call *call, const ht_target *target)
{
    layer l = layer_of(call);
    ht_inner_launch p;
    describe_forward(&l, &p);
    int64_t bytes = layout_of(&l, false).bytes + product_workspace(&p);
    int64_t fallback = ht_kernel_cuda_lstm.workspace(call, target);
    return bytes > fallback ? bytes : fallback;
}

static ht_status lstm_prepare(ht_launch *launch)
{
    layer l = layer_of(launch->call);
    layout at = layout_of(&l, false);
    char *workspace = launch->workspace;
    prepared *p = make_prepared(launch);
    if (!p) HT_FAIL(launch->ctx, HT_ENOMEM, "out of memory for a launch");
    if (!spread_of(&l, launch, false).fits) return prepare_fallback(launch, p, &ht_kernel_cuda_lstm);
    p->product_count = describe_forward(&l, p->products);
    HT_TRY(prepare_product(launch, p->products, launch->in[0], launch->in[3], workspace + at.pre,
                           workspace + at.products));
    return ht_cuda_prepare(&p->steps);
}

static ht_status lstm_run(const ht_launch *launch)
{
    const prepared *p = launch->prepared;
    HT_TRY(run_products(p));
    return ht_cuda_run(&p->steps);
}

/* ---- backward ---- */

static void lstm_grad_emit(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    layer l = layer_of(call);
    spread s = spread_of(&l, launch, true);
    layout at = layout_of(&l, true);
    const char *type = ht_cuda_type(l.dtype);
    operand lengths = optional(call, 6);
    long long pack = ht_cuda_pack(launch, l.inputs, 8);
    begin_text(e, "lstm_grad_persistent", ht_cuda_blocks(l.batch, tile_of(&l)) * (1 + s.groups / QUAD), &at);
    ht_cuda_add_grid(
        e, (int64_t)s.groups * s.parts, THREADS, s.shared_bytes,
        "run_back<%s>(in1, in2, in4, in5, %s, %s, %s, %s, (%s *)(workspace + %lld), (%s *)(workspace + %lld), "
        "(float *)(workspace + %lld), (float *)(workspace + %lld), (uint32_t *)(workspace + %lld), out1, out2);",
        write_shape(launch, &l, &s).text, lengths.text, optional(call, 7).text, optional(call, 8).text,
        optional(call, 9).text, type, (long long)at.d_gates, type, (long long)at.h_before, (long long)at.exchange,
        (long long)at.bias_parts, (long long)at.counters);
    ht_cuda_run_together(e);
    ht_cuda_add_grid(e, ht_cuda_blocks(l.gates, THREADS), THREADS, 0,
                     "add_bias_parts<%lld, %d>((const float *)(workspace + %lld), out5);", l.gates, s.parts,
                     (long long)at.bias_parts);
    if (l.has_lengths)
        ht_cuda_add_grid(e, ht_cuda_blocks(l.rows * l.inputs / pack, THREADS), THREADS, 0,
                         "copy_alive<%lld, %lld, %lld, %lld>(in0, %s, (%s *)(workspace + %lld));", l.rows, l.batch,
                         l.inputs, pack, lengths.text, type, (long long)at.x);
}

static int64_t lstm_grad_workspace(const ht_call *call, const ht_target *target)
{
    layer l = layer_of(call);
    ht_inner_launch p[PRODUCTS];
    int64_t products = 0, fallback = ht_kernel_cuda_lstm_grad.workspace(call, target);
    for (size_t i = 0, count = describe_back(&l, call, p); i < count; i++)
        products = product_workspace(&p[i]) > products ? product_workspace(&p[i]) : products;
    int64_t bytes = layout_of(&l, true).bytes + products;
    return bytes > fallback ? bytes : fallback;
}

static ht_status lstm_grad_prepare(ht_launch *launch)
{
    layer l = layer_of(launch->call);
    layout at = layout_of(&l, true);
    char *workspace = launch->workspace;
    prepared *p = make_prepared(launch);
    if (!p) HT_FAIL(launch->ctx, HT_ENOMEM, "out of memory for a launch");
    if (!spread_of(&l, launch, true).fits) return prepare_fallback(launch, p, &ht_kernel_cuda_lstm_grad);
    p->product_count = describe_back(&l, launch->call, p->products);
    const void *x = l.has_lengths ? workspace + at.x : launch->in[0];
    char *slopes = workspace + at.d_gates, *scratch = workspace + at.products;
    HT_TRY(prepare_product(launch, &p->products[0], slopes, launch->in[3], launch->out[0], scratch));
    HT_TRY(prepare_product(launch, &p->products[1], slopes, x, launch->out[3], scratch));
    HT_TRY(prepare_product(launch, &p->products[2], slopes, workspace + at.h_before, launch->out[4], scratch));
    return ht_cuda_prepare(&p->steps);
}

static ht_status lstm_grad_run(const ht_launch *launch)
{
    const prepared *p = launch->prepared;
    HT_TRY(ht_cuda_run(&p->steps));
    return run_products(p);
}

/* ---- rows ---- */

/* The products over all steps alone: the steps stay f32. */
static const char *can_tf32(const ht_call *call, const ht_target *target)
{
    if (!ht_target_allows(target, HT_LIBERTY_TF32)) return ht_not_asked;
    if (!ht_target_has_library(target, HT_LIBRARY_CUBLASLT)) return "the target lacks cublasLt";
    if (call->in[0]->dtype != HT_F32) return "the inputs are not f32";
    return can(call, target);
}

#define ROW(op_, name_, can_, parts_)                                                                                  \
    const ht_kernel ht_kernel_cuda_##name_ = {                                                                         \
        .size = sizeof(ht_kernel),                                                                                     \
        .op = #op_,                                                                                                    \
        .name = #name_ ".cuda",                                                                                        \
        .device = HT_DEVICE_CUDA,                                                                                      \
        .can = can_,                                                                                                   \
        .workspace = op_##_workspace,                                                                                  \
        .emit = op_##_emit,                                                                                            \
        .prepare = op_##_prepare,                                                                                      \
        .release = release,                                                                                            \
        .run = op_##_run,                                                                                              \
        .rounds_inside = true,                                                                                         \
        .parts.count = parts_,                                                                                         \
        .parts.format = HT_FORMAT_TF32,                                                                                \
    };

ROW(lstm, lstm_persistent_tf32, can_tf32, 1)
ROW(lstm, lstm_persistent, can, 0)
ROW(lstm_grad, lstm_grad_persistent_tf32, can_tf32, 1)
ROW(lstm_grad, lstm_grad_persistent, can, 0)

static bool takes_tf32(const ht_kernel *row)
{
    return row->can == can_tf32;
}
