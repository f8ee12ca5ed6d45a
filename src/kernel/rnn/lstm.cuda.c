/* lstm and lstm_grad for the CUDA device (lstm.cu). Every operand: any float but f8, row-major.
 * Numerics: real inside, FMA; h, c, dh and dc go from step to step unrounded, results are rounded once.
 * Blocks: tiles of the products over all steps; four sequences for the steps. Traffic: w_hidden once per step and
 * block, from L2 where it fits. Bound: that. */
#include <stdio.h>

#include "kernel/cuda/cuda.h"
#include "op/op.h"

enum { ROWS = 4, THREADS = 512 };          /* as in lstm.cu */
enum { TILE = 64, PRODUCT_THREADS = 256 }; /* as in tile_product.cu */

typedef struct layer {
    long long steps, batch, inputs, hidden, gates, rows; /* rows: of all steps */
    int64_t real_bytes;
    char shape[96];
} layer;

static layer layer_of(const ht_call *call)
{
    const ht_type *x = call->in[0], *h0 = call->in[1];
    layer l = {.steps = x->dim[0], .batch = x->dim[1], .inputs = x->dim[2], .hidden = h0->dim[1]};
    l.gates = 4 * l.hidden, l.rows = l.steps * l.batch;
    l.real_bytes = ht_cuda_has_f64(call) ? 8 : 4;
    snprintf(l.shape, sizeof l.shape, "lstm_shape<%lld, %lld, %lld>", l.steps, l.batch, l.hidden);
    return l;
}

static int64_t tiles(int64_t rows, int64_t columns)
{
    return ht_cuda_blocks(rows, TILE) * ht_cuda_blocks(columns, TILE);
}

/* An input that may be left out, in the text. */
typedef struct operand {
    char text[40];
} operand;

static operand optional(const ht_call *call, size_t input)
{
    operand o;
    bool given = input < call->n_in && call->in[input];
    if (given)
        snprintf(o.text, sizeof o.text, "in%zu", input);
    else
        snprintf(o.text, sizeof o.text, "(const int32_t *)nullptr");
    return o;
}

static void include(ht_cuda_emission *e)
{
    ht_cuda_include(e, "tile_product");
    ht_cuda_include(e, "lstm");
}

/* ---- forward ---- */

/* The products with x lie in the reserve itself where that is of type real, else behind the state. */
static bool pre_in_reserve(const ht_call *call, const layer *l)
{
    return call->out[3]->dtype == (l->real_bytes == 8 ? HT_F64 : HT_F32);
}

static int64_t state_bytes(const layer *l, int count)
{
    return count * l->batch * l->hidden * l->real_bytes;
}

static void lstm(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    layer l = layer_of(call);
    bool inside = pre_in_reserve(call, &l);
    long long pitch = inside ? 5 * l.hidden : l.gates, state = state_bytes(&l, 3);
    char pre[64];
    if (inside)
        snprintf(pre, sizeof pre, "(real *)out3");
    else
        snprintf(pre, sizeof pre, "(real *)(workspace + %lld)", state);
    if (l.hidden == 0) return;
    include(e);
    ht_cuda_add_grid(e, tiles(l.rows, l.gates), PRODUCT_THREADS, 0,
                     "multiply_inputs<%lld, %lld, %lld, %lld>(in0, in3, %s);", l.rows, l.inputs, l.gates, pitch, pre);
    ht_cuda_add_grid(e, ht_cuda_blocks(l.batch, ROWS), THREADS, 0,
                     "run_steps<%s, %lld>(in1, in2, in4, %s, %s, %s, (real *)workspace, out0, out1, out2, out3);",
                     l.shape, pitch, optional(call, 5).text, optional(call, 6).text, pre);
}

static int64_t lstm_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    layer l = layer_of(call);
    return state_bytes(&l, 3) + (pre_in_reserve(call, &l) ? 0 : l.rows * l.gates * l.real_bytes);
}

/* ---- backward ---- */

static void lstm_grad(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    layer l = layer_of(call);
    long long pre = state_bytes(&l, 2), h_before = pre + l.rows * l.gates * l.real_bytes;
    operand lengths = optional(call, 6);
    include(e);
    ht_cuda_add_grid(e, l.hidden ? ht_cuda_blocks(l.batch, ROWS) : 0, THREADS, 0,
                     "run_steps_back<%s>(in1, in2, in4, in5, %s, %s, %s, %s, (real *)(workspace + %lld), "
                     "(real *)(workspace + %lld), (real *)workspace, out1, out2);",
                     l.shape, lengths.text, optional(call, 7).text, optional(call, 8).text, optional(call, 9).text, pre,
                     h_before);
    ht_cuda_add_grid(e, tiles(l.rows, l.inputs), PRODUCT_THREADS, 0,
                     "input_gradient<%lld, %lld, %lld>((const real *)(workspace + %lld), in3, out0);", l.rows, l.inputs,
                     l.gates, pre);
    ht_cuda_add_grid(e, tiles(l.gates, l.inputs), PRODUCT_THREADS, 0,
                     "weight_gradient<%lld, %lld, %lld, %lld>((const real *)(workspace + %lld), in0, %s, out3);",
                     l.rows, l.batch, l.inputs, l.gates, pre, lengths.text);
    ht_cuda_add_grid(e, tiles(l.gates, l.hidden), PRODUCT_THREADS, 0,
                     "weight_gradient<%lld, %lld, %lld, %lld>((const real *)(workspace + %lld), "
                     "(const real *)(workspace + %lld), %s, out4);",
                     l.rows, l.batch, l.hidden, l.gates, pre, h_before, lengths.text);
    ht_cuda_add_grid(e, ht_cuda_blocks(l.gates, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "bias_gradient<%lld, %lld>((const real *)(workspace + %lld), out5);", l.rows, l.gates, pre);
}

static int64_t lstm_grad_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    layer l = layer_of(call);
    return state_bytes(&l, 2) + l.rows * (l.gates + l.hidden) * l.real_bytes;
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

HT_CUDA_KERNEL(lstm, can, lstm_workspace, lstm)
HT_CUDA_KERNEL(lstm_grad, can, lstm_grad_workspace, lstm_grad)
