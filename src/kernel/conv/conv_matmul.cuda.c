/* conv2d and its gradients as one product, where the window is a single element and meets every position: with channels
 * last x is a matrix of positions by channels. x, w, y: f16 or bf16, of one type, a result also f32; by the row of
 * cublasLt, which says what holds for its numerics: sums in f32, one rounding, the same bits on every run.
 *     conv2d              y[p,k] = Σ x[p,c] w[k,c]
 *     conv2d_grad_input   x[p,c] = Σ y[p,k] w[k,c]
 *     conv2d_grad_weight  w[k,c] = Σ y[p,k] x[p,c] */
#include <stdlib.h>

#include "kernel/conv/conv_operands.h"
#include "kernel/cuda/inner_launch.h"

extern const ht_kernel ht_kernel_cuda_matmul_cublaslt;

/* x, w or y as a matrix. */
static ht_type matrix_of(const ht_call *call, conv_result result, conv_operand operand)
{
    const ht_type *type = conv_type(call, result, operand);
    int64_t rows = operand == CONV_W ? type->dim[0] : type->dim[0] * type->dim[2] * type->dim[3];
    ht_type matrix = ht_type_make(type->dtype, HT_DIMS(rows, type->dim[1]));
    matrix.space = type->space;
    return matrix;
}

/* The operands of the product: a, b, result; turned: bits of the two. */
typedef struct plan {
    conv_operand operands[HT_INNER_OPERANDS];
    bool a_turned, b_turned;
} plan;
static const plan plans[] = {
    [CONV_MAKES_Y] = {{CONV_X, CONV_W, CONV_Y}, false, true},
    [CONV_MAKES_X] = {{CONV_Y, CONV_W, CONV_X}, false, false},
    [CONV_MAKES_W] = {{CONV_Y, CONV_X, CONV_W}, true, false},
};

static ht_inner_launch product_of(const ht_call *call, conv_result result)
{
    const plan *p = &plans[result];
    ht_inner_launch inner = {.row = &ht_kernel_cuda_matmul_cublaslt, .n_in = 2, .n_attr = 2};
    for (int i = 0; i < HT_INNER_OPERANDS; i++) inner.types[i] = matrix_of(call, result, p->operands[i]);
    inner.attrs[0] = (ht_attr){.key = "ta", .kind = HT_ATTR_INT, .i = p->a_turned};
    inner.attrs[1] = (ht_attr){.key = "tb", .kind = HT_ATTR_INT, .i = p->b_turned};
    return inner;
}

static bool is_single(const ht_conv *c)
{
    bool single = c->groups == 1;
    for (int i = 0; i < 2; i++)
        single &= c->window.size[i] == 1 && c->window.stride[i] == 1 && c->window.padding[i] == 0;
    return single;
}

static const char *refuse(const ht_call *call, const ht_target *target, conv_result result)
{
    ht_dtype dtype = call->in[0]->dtype;
    if (dtype != HT_F16 && dtype != HT_BF16) return "the inputs are not half";
    if (conv_is_empty(call, result)) return "there is nothing to compute";
    ht_conv c = conv_sizes(call, result);
    if (!is_single(&c)) return "the window is not one element at every position";
    if (!conv_channels_last(call, result)) return "channels do not lie last";
    ht_inner_launch inner = product_of(call, result);
    return inner.row->can(ht_inner_call(&inner), target);
}

static int64_t workspace_of(const ht_call *call, const ht_target *target, conv_result result)
{
    ht_inner_launch inner = product_of(call, result);
    return inner.row->workspace(ht_inner_call(&inner), target);
}

static ht_status prepare_convolution(ht_launch *launch, conv_result result)
{
    ht_inner_launch *inner = launch->prepared = malloc(sizeof *inner);
    if (!inner) HT_FAIL(launch->ctx, HT_ENOMEM, "out of memory for a launch");
    *inner = product_of(launch->call, result);
    inner->workspace = launch->workspace;
    for (int i = 0; i < HT_INNER_OPERANDS; i++)
        inner->addresses[i] = conv_address(launch, result, plans[result].operands[i]);
    return ht_inner_prepare(inner, launch);
}

static void release(ht_launch *launch)
{
    if (launch->prepared) ht_inner_release(launch->prepared);
}

static ht_status run(const ht_launch *launch)
{
    return ht_inner_run(launch->prepared);
}

/* ---- rows ---- */

CONV_ROWS(matmul)
