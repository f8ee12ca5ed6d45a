/* What the rows of conv2d and its gradients share: which operand is which. */
#ifndef HT_KERNEL_CONV_OPERANDS_H
#define HT_KERNEL_CONV_OPERANDS_H

#include "kernel/kernel.h"
#include "op/op.h"

typedef enum conv_result {
    CONV_MAKES_Y,
    CONV_MAKES_X,
    CONV_MAKES_W
} conv_result; /* conv2d, _grad_input, _grad_weight */
typedef enum conv_operand { CONV_X, CONV_W, CONV_Y, CONV_OPERANDS } conv_operand;

/* The input that an operand is; -1: the result. */
static inline int conv_input(conv_result result, conv_operand operand)
{
    static const int inputs[][CONV_OPERANDS] = {
        [CONV_MAKES_Y] = {[CONV_X] = 0, [CONV_W] = 1, [CONV_Y] = -1},
        [CONV_MAKES_X] = {[CONV_X] = -1, [CONV_W] = 1, [CONV_Y] = 0},
        [CONV_MAKES_W] = {[CONV_X] = 0, [CONV_W] = -1, [CONV_Y] = 1},
    };
    return inputs[result][operand];
}

static inline const ht_type *conv_type(const ht_call *call, conv_result result, conv_operand operand)
{
    int input = conv_input(result, operand);
    return input < 0 ? call->out[0] : call->in[input];
}

static inline void *conv_address(const ht_launch *launch, conv_result result, conv_operand operand)
{
    int input = conv_input(result, operand);
    return input < 0 ? launch->out[0] : (void *)launch->in[input];
}

static inline ht_conv conv_sizes(const ht_call *call, conv_result result)
{
    return ht_conv_of(call, conv_type(call, result, CONV_X), conv_type(call, result, CONV_W));
}

/* Do all operands lie channels-last (where that makes no difference to row-major, too)? */
static inline bool conv_channels_last(const ht_call *call, conv_result result)
{
    bool last = true;
    for (int i = 0; i < CONV_OPERANDS; i++) {
        const ht_type *type = conv_type(call, result, (conv_operand)i);
        ht_type ordered = *type;
        ht_type_channels_last(&ordered);
        last &= ht_type_same_strides(type, &ordered);
    }
    return last;
}

static inline bool conv_is_empty(const ht_call *call, conv_result result)
{
    bool empty = false;
    for (int i = 0; i < CONV_OPERANDS; i++) empty |= ht_type_elems(conv_type(call, result, (conv_operand)i)) == 0;
    return empty;
}

/* The three rows of one way to convolve: CONV_ROWS(cudnn). The file has refuse, workspace_of, prepare_convolution, which take
 * the conv_result, release and run. */
#define CONV_ROW(op_, way_, result_)                                                                                   \
    static const char *can_##op_(const ht_call *call, const ht_target *target)                                         \
    {                                                                                                                  \
        return refuse(call, target, result_);                                                                          \
    }                                                                                                                  \
    static int64_t workspace_##op_(const ht_call *call, const ht_target *target)                                       \
    {                                                                                                                  \
        return workspace_of(call, target, result_);                                                                    \
    }                                                                                                                  \
    static ht_status prepare_##op_(ht_launch *launch)                                                                  \
    {                                                                                                                  \
        return prepare_convolution(launch, result_);                                                                   \
    }                                                                                                                  \
    const ht_kernel ht_kernel_cuda_##op_##_##way_ = {                                                                  \
        .size = sizeof(ht_kernel),                                                                                     \
        .op = #op_,                                                                                                    \
        .name = #op_ "_" #way_ ".cuda",                                                                                \
        .device = HT_DEVICE_CUDA,                                                                                      \
        .can = can_##op_,                                                                                              \
        .workspace = workspace_##op_,                                                                                  \
        .prepare = prepare_##op_,                                                                                      \
        .release = release,                                                                                            \
        .run = run,                                                                                                    \
        .channels = HT_CHANNELS_LAST,                                                                                  \
    };
#define CONV_ROWS(way_)                                                                                                \
    CONV_ROW(conv2d, way_, CONV_MAKES_Y)                                                                               \
    CONV_ROW(conv2d_grad_input, way_, CONV_MAKES_X)                                                                    \
    CONV_ROW(conv2d_grad_weight, way_, CONV_MAKES_W)

#endif
