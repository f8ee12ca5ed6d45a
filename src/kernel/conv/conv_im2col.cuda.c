/* conv2d of pictures, whose channels are too few for cuDNN's engines (which would widen them to eight and compute with the
 * zeros), and its weight gradient, as products: the windows become the rows of a matrix m in the workspace (im2col.cu).
 * x, w, y: f16 or bf16, of one type, channels-last, a result also f32; by the row of cublasLt, which says what holds for
 * its numerics: sums in f32, one rounding, the same bits on every run.
 *     conv2d              y[p,k] = Σ m[p,i] w[k,i]
 *     conv2d_grad_weight  w[k,i] = Σ y[p,k] m[p,i]
 * Traffic: m, which is size of the window / stride times x, is written and read once. Bound: bandwidth. */
#include <stdlib.h>

#include "kernel/conv/conv_operands.h"
#include "kernel/conv/window_text.h"
#include "kernel/cuda/inner_launch.h"

extern const ht_kernel ht_kernel_cuda_matmul_cublaslt, ht_kernel_cuda_pad, ht_kernel_cuda_copy;

enum {
    EIGHT = 8,               /* columns of m and of w in it: what tensor cores read at once */
    MOST_SHARED = 48 * 1024, /* bytes for the rows of a picture that a row of windows sees */
    WORKSPACE_ROUND = 256,
};

static bool is_half(ht_dtype dtype)
{
    return dtype == HT_F16 || dtype == HT_BF16;
}

/* ---- sizes ---- */

typedef struct matrices {
    int64_t positions, columns, pitch, channels; /* columns: of m without the zeros; channels: of y */
} matrices;

static matrices matrices_of(const ht_conv *c)
{
    matrices m = {.positions = c->batch * c->window.steps[0] * c->window.steps[1],
                  .columns = c->in_channels * c->window.size[0] * c->window.size[1],
                  .channels = c->out_channels};
    m.pitch = (m.columns + EIGHT - 1) / EIGHT * EIGHT;
    return m;
}

static int64_t shared_bytes(const ht_conv *c)
{
    const ht_window *v = &c->window;
    int64_t seen = (v->steps[1] - 1) * v->stride[1] + (v->size[1] - 1) * v->dilation[1] + 1;
    return v->size[0] * seen * c->in_channels * (int64_t)sizeof(uint16_t);
}

static ht_type matrix(ht_dtype dtype, int64_t rows, int64_t columns, int space)
{
    ht_type type = ht_type_make(dtype, HT_DIMS(rows, columns));
    type.space = space;
    return type;
}

/* ---- what it takes ---- */

/* Operands: m, w as it stands in it, y. */
static ht_inner_launch product_of(const ht_call *call, conv_result result)
{
    ht_conv c = conv_sizes(call, result);
    matrices m = matrices_of(&c);
    int space = call->in[0]->space;
    ht_type windows = matrix(call->in[0]->dtype, m.positions, m.pitch, space);
    ht_type w = matrix(conv_type(call, result, CONV_W)->dtype, m.channels, m.pitch, space);
    ht_type y = matrix(conv_type(call, result, CONV_Y)->dtype, m.positions, m.channels, space);
    bool makes_y = result == CONV_MAKES_Y;
    return (ht_inner_launch){
        .row = &ht_kernel_cuda_matmul_cublaslt,
        .types = {makes_y ? windows : y, makes_y ? w : windows, makes_y ? y : w},
        .n_in = 2,
        .attrs = {{.key = "ta", .kind = HT_ATTR_INT, .i = !makes_y}, {.key = "tb", .kind = HT_ATTR_INT, .i = makes_y}},
        .n_attr = 2};
}

static const char *refuse(const ht_call *call, const ht_target *target, conv_result result)
{
    ht_dtype dtype = call->in[0]->dtype;
    if (!is_half(dtype) || call->in[1]->dtype != dtype) return "the inputs are not of one half type";
    if (conv_is_empty(call, result)) return "there is nothing to compute";
    ht_conv c = conv_sizes(call, result);
    if (c.groups != 1) return "the channels are in groups";
    if (c.in_channels % EIGHT == 0 || c.in_channels > EIGHT) return "the channels are enough for an engine of cuDNN";
    if (!conv_channels_last(call, result)) return "channels do not lie last";
    if (shared_bytes(&c) > MOST_SHARED) return "the rows of a picture are too long";
    ht_inner_launch inner = product_of(call, result);
    return inner.row->can(ht_inner_call(&inner), target);
}

/* ---- the matrix of windows ---- */

static void im2col_emit(ht_cuda_emission *e, const ht_launch *launch)
{
    ht_conv c = ht_conv_of(launch->call, launch->call->in[0], launch->call->in[1]);
    ht_window_text window;
    ht_cuda_include(e, "window");
    ht_cuda_include(e, "im2col");
    ht_cuda_add_grid(e, c.batch * c.window.steps[0], HT_CUDA_THREADS, (int)shared_bytes(&c),
                     "im2col<%s, %lld, %lld>(in0, out0);", ht_window_write(&c.window, &window),
                     (long long)c.in_channels, (long long)matrices_of(&c).pitch);
}

/* No op of graphs: only convolutions are made of it. */
static const ht_kernel im2col_row = {
    .size = sizeof(ht_kernel),
    .op = "conv2d",
    .name = "im2col.cuda",
    .device = HT_DEVICE_CUDA,
    .emit = im2col_emit,
    .prepare = ht_cuda_prepare,
    .run = ht_cuda_run,
};

/* w counts by its sizes alone, which say what the window is. */
static ht_inner_launch windows_of(const ht_call *call, conv_result result)
{
    static const char *const keys[] = {"stride", "padding", "dilation", "groups"};
    ht_conv c = conv_sizes(call, result);
    matrices m = matrices_of(&c);
    const ht_type *x = conv_type(call, result, CONV_X);
    ht_inner_launch inner = {.row = &im2col_row, .n_in = 2, .n_attr = sizeof keys / sizeof keys[0]};
    inner.types[0] = *x;
    inner.types[1] = *conv_type(call, result, CONV_W);
    inner.types[2] = matrix(x->dtype, m.positions, m.pitch, x->space);
    for (size_t i = 0; i < inner.n_attr; i++) inner.attrs[i] = *ht_call_attr(call, keys[i]);
    return inner;
}

/* ---- weights ---- */

/* w with zeros behind each row, before the product. */
static ht_inner_launch widened_weights(const ht_type *wide, int64_t columns)
{
    static const int64_t none[2];
    ht_inner_launch inner = {.row = &ht_kernel_cuda_pad,
                             .n_in = 1,
                             .attrs = {{.key = "before", .kind = HT_ATTR_INTS, .count = 2, .ints = none},
                                       {.key = "value", .kind = HT_ATTR_FLOAT, .f = 0}},
                             .n_attr = 2};
    inner.types[0] = matrix(wide->dtype, wide->dim[0], columns, wide->space);
    inner.types[1] = *wide;
    return inner;
}

/* And what there is of a gradient, behind it. */
static ht_inner_launch narrowed_weights(const ht_type *wide, int64_t columns)
{
    ht_inner_launch inner = {.row = &ht_kernel_cuda_copy, .n_in = 1};
    inner.types[0] = inner.types[1] = matrix(wide->dtype, wide->dim[0], columns, wide->space);
    inner.types[0].stride[0] = wide->stride[0];
    return inner;
}

/* ---- launches ---- */

/* In the workspace, one behind the other: m, w as wide as its columns, what the library wants. */
typedef struct layout {
    int64_t w, library, bytes;
} layout;

static int64_t round_up(int64_t bytes)
{
    return (bytes + WORKSPACE_ROUND - 1) / WORKSPACE_ROUND * WORKSPACE_ROUND;
}

static layout lay_out(ht_inner_launch *product, conv_result result, const ht_target *target)
{
    const ht_type *windows = &product->types[result == CONV_MAKES_Y ? 0 : 1];
    const ht_type *w = &product->types[result == CONV_MAKES_Y ? 1 : 2];
    layout l = {.w = round_up(ht_type_bytes(windows))};
    l.library = l.w + round_up(ht_type_bytes(w));
    l.bytes = l.library + (target ? product->row->workspace(ht_inner_call(product), target) : 0);
    return l;
}

static int64_t workspace_of(const ht_call *call, const ht_target *target, conv_result result)
{
    ht_inner_launch product = product_of(call, result);
    return WORKSPACE_ROUND + lay_out(&product, result, target).bytes; /* the planner aligns to less */
}

enum { LAUNCHES = 3 };
typedef struct prepared {
    ht_inner_launch steps[LAUNCHES];
} prepared;

static ht_status prepare_convolution(ht_launch *launch, conv_result result)
{
    prepared *x = launch->prepared = calloc(1, sizeof *x);
    if (!x) HT_FAIL(launch->ctx, HT_ENOMEM, "out of memory for a launch");
    ht_conv c = conv_sizes(launch->call, result);
    int64_t columns = matrices_of(&c).columns;
    bool makes_y = result == CONV_MAKES_Y;
    ht_inner_launch windows = windows_of(launch->call, result), product = product_of(launch->call, result);
    layout l = lay_out(&product, result, NULL);
    char *m = (char *)round_up((intptr_t)launch->workspace), *w = m + l.w;
    ht_inner_launch weights =
        makes_y ? widened_weights(&product.types[1], columns) : narrowed_weights(&product.types[2], columns);
    windows.addresses[0] = conv_address(launch, result, CONV_X);
    windows.addresses[1] = conv_address(launch, result, CONV_W);
    windows.addresses[2] = m;
    weights.addresses[makes_y ? 0 : 1] = conv_address(launch, result, CONV_W);
    weights.addresses[makes_y ? 1 : 0] = w;
    product.addresses[makes_y ? 0 : 1] = m;
    product.addresses[makes_y ? 1 : 2] = w;
    product.addresses[makes_y ? 2 : 0] = conv_address(launch, result, CONV_Y);
    product.workspace = m + l.library;
    x->steps[0] = windows;
    x->steps[makes_y ? 1 : 2] = weights;
    x->steps[makes_y ? 2 : 1] = product;
    for (int i = 0; i < LAUNCHES; i++) HT_TRY(ht_inner_prepare(&x->steps[i], launch));
    return HT_OK;
}

static void release(ht_launch *launch)
{
    prepared *x = launch->prepared;
    for (int i = 0; x && i < LAUNCHES; i++) ht_inner_release(&x->steps[i]);
}

static ht_status run(const ht_launch *launch)
{
    const prepared *x = launch->prepared;
    for (int i = 0; i < LAUNCHES; i++) HT_TRY(ht_inner_run(&x->steps[i]));
    return HT_OK;
}

/* ---- rows ---- */

CONV_ROW(conv2d, im2col, CONV_MAKES_Y)
CONV_ROW(conv2d_grad_weight, im2col, CONV_MAKES_W)
