/* conv2d: y[n,o,i,j] = sum over c, a, b of x[n, c, i*stride - padding + a*dilation, j*...] w[o,c,a,b], in groups: the
 * channels of x and of y fall into `groups` parts, and part k of y sees part k of x. It is bilinear in x and w, and so
 * are its two gradients, conv2d_grad_input in (dy, w) and conv2d_grad_weight in (x, dy): each one's derivative is made
 * of the other two, to any order. */
#include "op/op.h"
#include "op/window.h"

#include <inttypes.h>
#include <string.h>

/* ---- shapes ---- */

ht_status ht_conv_slide(ht_context *ctx, const ht_call *call, const ht_type *x, const ht_type *w, int64_t y[4])
{
    ht_window window = {.plane = {x->dim[2], x->dim[3]}, .size = {w->dim[2], w->dim[3]}};
    int64_t groups = ht_call_int(call, "groups"), channels = x->dim[1], out_channels = w->dim[0];
    HT_TRY(ht_need_pair(ctx, call, "stride", 1, window.stride));
    HT_TRY(ht_need_pair(ctx, call, "padding", 0, window.padding));
    HT_TRY(ht_need_pair(ctx, call, "dilation", 1, window.dilation));
    if (groups < 1) HT_FAIL(ctx, HT_EINVAL, "groups must be 1 or more, not %" PRId64, groups);
    if (channels % groups || out_channels % groups)
        HT_FAIL(ctx, HT_ESHAPE, "%" PRId64 " groups do not divide %" PRId64 " input and %" PRId64 " output channels",
                groups, channels, out_channels);
    if (w->dim[1] != channels / groups)
        HT_FAIL(ctx, HT_ESHAPE, "weights see %" PRId64 " channels; the input has %" PRId64 " in %" PRId64 " groups",
                w->dim[1], channels, groups);
    HT_TRY(ht_window_slide(ctx, &window));
    y[0] = x->dim[0];
    y[1] = out_channels;
    y[2] = window.steps[0];
    y[3] = window.steps[1];
    return HT_OK;
}

/* Shape inference: checks x and w under the call's attributes, and computes the type of y. */
static ht_status conv_result(ht_context *ctx, const ht_call *call, const ht_type *x, const ht_type *w, ht_type *y)
{
    int64_t dim[4];
    HT_TRY(ht_conv_slide(ctx, call, x, w, dim));
    *y = ht_type_make(ht_wider(x->dtype, w->dtype), 4, dim);
    return HT_OK;
}

static ht_status need_images(ht_context *ctx, const ht_call *call)
{
    for (size_t i = 0; i < 2; i++) {
        HT_TRY(ht_need_float(ctx, call, i));
        HT_TRY(ht_need_rank(ctx, call, i, 4));
    }
    return HT_OK;
}

static ht_status need_shape(ht_context *ctx, const ht_type *dy, const ht_type *y)
{
    ht_type_text have, want;
    if (ht_type_same_shape(dy, y)) return HT_OK;
    HT_FAIL(ctx, HT_ESHAPE, "dy is %s, but the convolution's result is %s", ht_type_str(dy, &have),
            ht_type_str(y, &want));
}

static ht_status conv_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_images(ctx, call));
    return conv_result(ctx, call, call->in[0], call->in[1], out);
}

static ht_status conv_grad_input_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    int64_t size[2], channels;
    ht_type y;
    HT_TRY(need_images(ctx, call));
    HT_TRY(ht_need_pair(ctx, call, "size", 0, size));
    const ht_type *dy = call->in[0], *w = call->in[1];
    if (__builtin_mul_overflow(w->dim[1], ht_call_int(call, "groups"), &channels) || channels < 0)
        HT_FAIL(ctx, HT_ESHAPE, "%" PRId64 " groups of %" PRId64 " channels are no number of channels",
                ht_call_int(call, "groups"), w->dim[1]);
    ht_type x = ht_type_make(ht_wider(dy->dtype, w->dtype), HT_DIMS(dy->dim[0], channels, size[0], size[1]));
    HT_TRY(conv_result(ctx, call, &x, w, &y));
    HT_TRY(need_shape(ctx, dy, &y));
    out[0] = x;
    return HT_OK;
}

/* Weight gradients leave in f32 where the operands are narrower. */
static ht_status conv_grad_weight_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    int64_t window[2], groups = ht_call_int(call, "groups");
    ht_type y;
    HT_TRY(need_images(ctx, call));
    HT_TRY(ht_need_pair(ctx, call, "window", 1, window));
    const ht_type *x = call->in[0], *dy = call->in[1];
    if (groups < 1) HT_FAIL(ctx, HT_EINVAL, "groups must be 1 or more, not %" PRId64, groups);
    ht_dtype dtype = x->dtype == HT_F64 || dy->dtype == HT_F64 ? HT_F64 : HT_F32;
    ht_type w = ht_type_make(dtype, HT_DIMS(dy->dim[1], x->dim[1] / groups, window[0], window[1]));
    HT_TRY(conv_result(ctx, call, x, &w, &y));
    HT_TRY(need_shape(ctx, dy, &y));
    out[0] = w;
    return HT_OK;
}

ht_conv ht_conv_of(const ht_call *call, const ht_type *x, const ht_type *w)
{
    int64_t groups = ht_call_int(call, "groups");
    ht_conv conv = {
        .window = {.plane = {x->dim[2], x->dim[3]}, .size = {w->dim[2], w->dim[3]}},
        .batch = x->dim[0],
        .groups = groups,
        .in_channels = w->dim[1],
        .out_channels = w->dim[0] / groups,
    };
    ht_window *window = &conv.window;
    ht_call_pair(call, "stride", window->stride);
    ht_call_pair(call, "padding", window->padding);
    ht_call_pair(call, "dilation", window->dilation);
    ht_window_count(window);
    return conv;
}

/* ---- cost: the same products for all three ---- */

static void conv_flops(const ht_type *w, const ht_type *y, ht_cost *cost)
{
    cost->dot_flops = 2.0 * (double)ht_type_elems(y) * (double)w->dim[1] * (double)w->dim[2] * (double)w->dim[3];
}

/* Does a tap of a window lie there? Taps so far that the last window is ahead of the place are passed over, and of the
 * others as many as the stride are enough: then their distances from a window's begin come again. */
static bool is_read(const ht_window *w, int axis, int64_t place)
{
    int64_t at = place + w->padding[axis], stride = w->stride[axis], last = (w->steps[axis] - 1) * stride;
    int64_t tap = at > last ? (at - last + w->dilation[axis] - 1) / w->dilation[axis] : 0;
    for (int64_t i = 0; i < stride && tap < w->size[axis] && at >= tap * w->dilation[axis]; i++, tap++)
        if ((at - tap * w->dilation[axis]) % stride == 0) return true;
    return false;
}

/* Places of a plane along an axis that a window reads; of a plane that is too large to be looked at, all. */
static int64_t places_read(const ht_window *w, int axis)
{
    enum { MOST_PLACES = 1 << 20 };
    int64_t read = 0;
    if (w->plane[axis] > MOST_PLACES) return w->plane[axis];
    for (int64_t place = 0; place < w->plane[axis]; place++) read += is_read(w, axis, place);
    return read;
}

/* Strides and dilations leave out elements of x. */
static void skip_unread(const ht_call *call, const ht_type *w, ht_cost *cost)
{
    const ht_type *x = call->in[0];
    ht_window window = ht_conv_of(call, x, w).window;
    ht_type read = *x;
    for (int axis = 0; axis < 2; axis++) read.dim[2 + axis] = places_read(&window, axis);
    cost->bytes -= (double)(ht_type_distinct_bytes(x) - ht_type_distinct_bytes(&read));
}

static void conv_cost(const ht_call *call, ht_cost *cost)
{
    conv_flops(call->in[1], call->out[0], cost);
    skip_unread(call, call->in[1], cost);
}

static void conv_grad_input_cost(const ht_call *call, ht_cost *cost)
{
    conv_flops(call->in[1], call->in[0], cost);
}

static void conv_grad_weight_cost(const ht_call *call, ht_cost *cost)
{
    conv_flops(call->out[0], call->in[1], cost);
    skip_unread(call, call->out[0], cost);
}

/* ---- gradients ---- */

/* stride, padding, dilation and groups as in the call, and space for one more. Lists are borrowed from the call's
 * attributes, which live as long as the graph. */
enum { SHARED_ATTRS = 4 };
static void shared_attrs(const ht_call *call, ht_attr attrs[SHARED_ATTRS + 1])
{
    static const char *const keys[SHARED_ATTRS] = {"stride", "padding", "dilation", "groups"};
    for (int i = 0; i < SHARED_ATTRS; i++) attrs[i] = *ht_call_attr(call, keys[i]);
}

static ht_type like(const ht_graph *g, ht_val v)
{
    ht_type type = *ht_type_of(g, v);
    ht_type_row_major(&type);
    return type;
}

/* The result has the number type of `as`. */
static ht_val emit_forward(ht_graph *g, const ht_call *call, ht_val x, ht_val w, ht_val as)
{
    ht_attr attrs[SHARED_ATTRS + 1];
    if (ht_graph_status(g) != HT_OK) return HT_NONE;
    ht_type want = like(g, as);
    shared_attrs(call, attrs);
    return ht_emit1(g, "conv2d", &want, HT_VALS(x, w), SHARED_ATTRS, attrs);
}

static ht_val emit_grad_input(ht_graph *g, const ht_call *call, ht_val dy, ht_val w, ht_val as)
{
    ht_attr attrs[SHARED_ATTRS + 1];
    if (ht_graph_status(g) != HT_OK) return HT_NONE;
    ht_type want = like(g, as);
    shared_attrs(call, attrs);
    attrs[SHARED_ATTRS] = (ht_attr)HT_INTS("size", 2, want.dim + 2);
    return ht_emit1(g, "conv2d_grad_input", &want, HT_VALS(dy, w), SHARED_ATTRS + 1, attrs);
}

static ht_val emit_grad_weight(ht_graph *g, const ht_call *call, ht_val x, ht_val dy, ht_val w)
{
    ht_attr attrs[SHARED_ATTRS + 1];
    if (ht_graph_status(g) != HT_OK) return HT_NONE;
    ht_type weights = like(g, w);
    shared_attrs(call, attrs);
    attrs[SHARED_ATTRS] = (ht_attr)HT_INTS("window", 2, weights.dim + 2);
    return ht_emit1(g, "conv2d_grad_weight", NULL, HT_VALS(x, dy), SHARED_ATTRS + 1, attrs);
}

static ht_status conv_grad(ht_graph *g, const ht_grad *d)
{
    ht_val x = d->x[0], w = d->x[1], dy = d->dy[0];
    if (d->need[0]) d->dx[0] = emit_grad_input(g, d->call, dy, w, x);
    if (d->need[1]) d->dx[1] = emit_grad_weight(g, d->call, x, dy, w);
    return ht_graph_status(g);
}

/* The result is an image, and so is its gradient. */
static ht_status conv_grad_input_grad(ht_graph *g, const ht_grad *d)
{
    ht_val dy = d->x[0], w = d->x[1], image = d->dy[0];
    if (d->need[0]) d->dx[0] = emit_forward(g, d->call, image, w, dy);
    if (d->need[1]) d->dx[1] = emit_grad_weight(g, d->call, image, dy, w);
    return ht_graph_status(g);
}

/* The result is a weight, and so is its gradient. */
static ht_status conv_grad_weight_grad(ht_graph *g, const ht_grad *d)
{
    ht_val x = d->x[0], dy = d->x[1], weights = d->dy[0];
    if (d->need[0]) d->dx[0] = emit_grad_input(g, d->call, dy, weights, x);
    if (d->need[1]) d->dx[1] = emit_forward(g, d->call, x, weights, dy);
    return ht_graph_status(g);
}

/* ---- references ---- */

enum { X, W, Y };

/* One array of a product and which of x, w and y it is indexed as. */
typedef struct ref_operand {
    const double *data;
    int as;
} ref_operand;

static void ref_output_channel(const ht_conv *c, int64_t n, int64_t o, ref_operand a, ref_operand b, double *out,
                               int as)
{
    const ht_window *v = &c->window;
    int64_t at[3], all_in = c->in_channels * c->groups, first = o / c->out_channels * c->in_channels;
    for (int64_t i = 0; i < v->steps[0] * v->steps[1]; i++) {
        at[Y] = (n * c->out_channels * c->groups + o) * v->steps[0] * v->steps[1] + i;
        for (int64_t k = 0; k < c->in_channels * v->size[0] * v->size[1]; k++) {
            int64_t tap_w = k % v->size[1], tap_h = k / v->size[1] % v->size[0], ch = k / v->size[1] / v->size[0];
            int64_t h = ht_window_at(v, 0, i / v->steps[1], tap_h), w = ht_window_at(v, 1, i % v->steps[1], tap_w);
            if (h < 0 || h >= v->plane[0] || w < 0 || w >= v->plane[1]) continue;
            at[X] = ((n * all_in + first + ch) * v->plane[0] + h) * v->plane[1] + w;
            at[W] = o * c->in_channels * v->size[0] * v->size[1] + k;
            out[at[as]] += a.data[at[a.as]] * b.data[at[b.as]];
        }
    }
}

static void ref_products(const ht_conv *c, ref_operand a, ref_operand b, double *out, int as, const ht_type *type)
{
    memset(out, 0, (size_t)ht_type_elems(type) * sizeof *out);
    for (int64_t n = 0; n < c->batch; n++)
        for (int64_t o = 0; o < c->out_channels * c->groups; o++) ref_output_channel(c, n, o, a, b, out, as);
}

static void conv_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ht_conv c = ht_conv_of(call, call->in[0], call->in[1]);
    ref_products(&c, (ref_operand){in[0], X}, (ref_operand){in[1], W}, out[0], Y, call->out[0]);
}

static void conv_grad_input_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ht_conv c = ht_conv_of(call, call->out[0], call->in[1]);
    ref_products(&c, (ref_operand){in[0], Y}, (ref_operand){in[1], W}, out[0], X, call->out[0]);
}

static void conv_grad_weight_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ht_conv c = ht_conv_of(call, call->in[0], call->out[0]);
    ref_products(&c, (ref_operand){in[0], X}, (ref_operand){in[1], Y}, out[0], W, call->out[0]);
}

/* ---- rows ---- */

static const ht_attr_def conv_attrs[] = {HT_DEF_CONV, HT_DEF_END};
static const ht_attr_def conv_grad_input_attrs[] = {HT_DEF_CONV, HT_DEF_REQUIRED("size", HT_ATTR_INTS), HT_DEF_END};
static const ht_attr_def conv_grad_weight_attrs[] = {HT_DEF_CONV, HT_DEF_REQUIRED("window", HT_ATTR_INTS), HT_DEF_END};

/* Depthwise ones have as many groups as channels; then come lists that cross the kernels' blocks, lines longer than a
 * vector, and a window that sees mostly padding. */
static const char *const conv_samples[] = {
    "(f32[2,3,6,5], f32[4,3,3,3])",
    "(f32[2,3,4,5], f32[4,3,1,1])",
    "(f32[1,4,7,6], f32[6,2,3,2]) stride=[2,1] padding=[1,0] groups=2",
    "(f32[2,2,8,7], f32[3,2,2,3]) stride=[1,2] padding=[2,3] dilation=[2,2]",
    "(f32[2,5,6,5], f32[5,1,3,3]) padding=[1,1] groups=5",
    "(f32[1,3,9,8], f32[6,1,3,2]) stride=[2,3] padding=[1,1] dilation=[2,1] groups=3",
    "(f32[0,3,4,4], f32[2,3,3,3])",
    "(f32[1,2,5,4], f32[34,2,2,2])",
    "(f32[1,9,9,8], f32[2,9,3,3]) padding=[1,1]",
    "(f32[2,2,3,70], f32[15,2,3,3]) padding=[1,1]",
    "(f32[1,4,5,75], f32[4,1,3,3]) stride=[1,2] padding=[1,1] groups=4",
    "(f32[2,2,3,4], f32[3,2,2,2]) stride=[40,50] padding=[40,50]",
    NULL,
};

static const char *const conv_grad_input_samples[] = {
    "(f32[2,4,4,3], f32[4,3,3,3]) size=[6,5]",
    "(f32[2,4,2,3], f32[4,3,1,1]) size=[3,5] stride=[2,2]",
    "(f32[1,6,4,5], f32[6,2,3,2]) size=[7,6] stride=[2,1] padding=[1,0] groups=2",
    "(f32[2,3,10,5], f32[3,2,2,3]) size=[8,7] stride=[1,2] padding=[2,3] dilation=[2,2]",
    "(f32[2,5,6,5], f32[5,1,3,3]) size=[6,5] padding=[1,1] groups=5",
    "(f32[1,6,4,3], f32[6,1,3,2]) size=[9,8] stride=[2,3] padding=[1,1] dilation=[2,1] groups=3",
    "(f32[0,2,2,2], f32[2,3,3,3]) size=[4,4]",
    "(f32[1,34,4,3], f32[34,2,2,2]) size=[5,4]",
    "(f32[1,2,9,8], f32[2,9,3,3]) size=[9,8] padding=[1,1]",
    "(f32[2,15,3,70], f32[15,2,3,3]) size=[3,70] padding=[1,1]",
    "(f32[1,4,5,38], f32[4,1,3,3]) size=[5,75] stride=[1,2] padding=[1,1] groups=4",
    "(f32[2,3,3,3], f32[3,2,2,2]) size=[3,4] stride=[40,50] padding=[40,50]",
    NULL,
};

static const char *const conv_grad_weight_samples[] = {
    "(f32[2,3,6,5], f32[2,4,4,3]) window=[3,3]",
    "(f32[2,3,3,5], f32[2,4,2,3]) window=[1,1] stride=[2,2]",
    "(f32[1,4,7,6], f32[1,6,4,5]) window=[3,2] stride=[2,1] padding=[1,0] groups=2",
    "(f32[2,2,8,7], f32[2,3,10,5]) window=[2,3] stride=[1,2] padding=[2,3] dilation=[2,2]",
    "(f32[2,5,6,5], f32[2,5,6,5]) window=[3,3] padding=[1,1] groups=5",
    "(f32[1,3,9,8], f32[1,6,4,3]) window=[3,2] stride=[2,3] padding=[1,1] dilation=[2,1] groups=3",
    "(f32[0,3,4,4], f32[0,2,2,2]) window=[3,3]",
    "(f32[2,0,3,3], f32[2,2,2,2]) window=[2,2]",
    "(f32[1,2,5,4], f32[1,34,4,3]) window=[2,2]",
    "(f32[1,9,9,8], f32[1,2,9,8]) window=[3,3] padding=[1,1]",
    "(f32[2,2,3,70], f32[2,15,3,70]) window=[3,3] padding=[1,1]",
    "(f32[1,4,5,75], f32[1,4,5,38]) window=[3,3] stride=[1,2] padding=[1,1] groups=4",
    "(f32[2,2,3,4], f32[2,3,3,3]) window=[2,2] stride=[40,50] padding=[40,50]",
    NULL,
};

const ht_op ht_op_conv2d = {
    .size = sizeof(ht_op),
    .name = "conv2d",
    .prec = HT_PREC_DOT,
    .fuse = HT_FUSE_DOT,
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .half_in = 3,
    .attrs = conv_attrs,
    .infer = conv_infer,
    .cost = conv_cost,
    .grad = conv_grad,
    .ref = conv_ref,
    .samples = conv_samples,
};

const ht_op ht_op_conv2d_grad_input = {
    .size = sizeof(ht_op),
    .name = "conv2d_grad_input",
    .prec = HT_PREC_DOT,
    .fuse = HT_FUSE_DOT,
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .half_in = 3,
    .attrs = conv_grad_input_attrs,
    .infer = conv_grad_input_infer,
    .cost = conv_grad_input_cost,
    .grad = conv_grad_input_grad,
    .ref = conv_grad_input_ref,
    .samples = conv_grad_input_samples,
};

const ht_op ht_op_conv2d_grad_weight = {
    .size = sizeof(ht_op),
    .name = "conv2d_grad_weight",
    .prec = HT_PREC_DOT,
    .fuse = HT_FUSE_DOT,
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .half_in = 3,
    .attrs = conv_grad_weight_attrs,
    .infer = conv_grad_weight_infer,
    .cost = conv_grad_weight_cost,
    .grad = conv_grad_weight_grad,
    .ref = conv_grad_weight_ref,
    .samples = conv_grad_weight_samples,
};

ht_val ht_conv2d(ht_graph *g, ht_val x, ht_val w, ht_val bias, const ht_conv_opts *opts)
{
    ht_conv_opts o = HT_CONV_OPTS;
    if (opts) {
        if (opts->size < sizeof o) ht_graph_fail(g, HT_EINVAL, "conv2d: options must start from HT_CONV_OPTS");
        o = *opts;
    }
    ht_val y = ht_emit1(g, "conv2d", NULL, HT_VALS(x, w),
                        HT_ATTRS(HT_INTS("stride", 2, o.stride), HT_INTS("padding", 2, o.padding),
                                 HT_INTS("dilation", 2, o.dilation), HT_INT("groups", o.groups)));
    if (!bias.id || !y.id) return y;
    const ht_type *b = ht_type_of(g, bias);
    if (b->rank != 1 || b->dim[0] != ht_type_of(g, y)->dim[1]) {
        ht_type_text text;
        ht_graph_fail(g, HT_ESHAPE, "conv2d: bias is %s for %" PRId64 " output channels", ht_type_str(b, &text),
                      ht_type_of(g, y)->dim[1]);
        return HT_NONE;
    }
    return ht_add(g, y, ht_reshape(g, bias, HT_DIMS(-1, 1, 1)));
}
