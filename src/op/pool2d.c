/* max_pool2d: the largest element of each window and its tap, row · width + column inside the window (the first of
 * equals; NaN is largest, the last one of several, as in PyTorch); x may be codes. The tap is all that the gradient needs, and a byte
 * holds it for windows of up to 256 elements. avg_pool2d: the mean of each window, with padding counted as zeros or
 * left out. Both gradients are linear, and their own gradients are a gather and avg_pool2d. */
#include "op/op.h"
#include "op/window.h"

#include <inttypes.h>
#include <string.h>

/* ---- shapes ---- */

/* Reads window, stride and padding; a stride of 0 is the window. */
static ht_status pool_window(ht_context *ctx, const ht_call *call, const int64_t plane[2], ht_window *window)
{
    *window = (ht_window){.plane = {plane[0], plane[1]}, .dilation = {1, 1}};
    HT_TRY(ht_need_pair(ctx, call, "window", 1, window->size));
    HT_TRY(ht_need_pair(ctx, call, "stride", 0, window->stride));
    HT_TRY(ht_need_pair(ctx, call, "padding", 0, window->padding));
    for (int axis = 0; axis < 2; axis++) {
        if (plane[axis] == 0)
            HT_FAIL(ctx, HT_ESHAPE, "a plane of %" PRId64 " by %" PRId64 " has nothing to pool", plane[0], plane[1]);
        /* Every window must overlap the plane. */
        if (window->padding[axis] > window->size[axis] / 2)
            HT_FAIL(ctx, HT_EINVAL, "padding %" PRId64 " is more than half of window %" PRId64, window->padding[axis],
                    window->size[axis]);
        if (window->stride[axis] == 0) window->stride[axis] = window->size[axis];
    }
    return ht_window_slide(ctx, window);
}

ht_window ht_pool_of(const ht_call *call, const ht_type *x)
{
    ht_window window = {.plane = {x->dim[2], x->dim[3]}, .dilation = {1, 1}};
    ht_call_pair(call, "window", window.size);
    ht_call_pair(call, "stride", window.stride);
    ht_call_pair(call, "padding", window.padding);
    for (int axis = 0; axis < 2; axis++)
        if (window.stride[axis] == 0) window.stride[axis] = window.size[axis];
    ht_window_count(&window);
    return window;
}

static ht_status pool_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    ht_window window;
    HT_TRY(ht_need_rank(ctx, call, 0, 4));
    const ht_type *x = call->in[0];
    HT_TRY(pool_window(ctx, call, x->dim + 2, &window));
    out[0] = ht_type_make(x->dtype, HT_DIMS(x->dim[0], x->dim[1], window.steps[0], window.steps[1]));
    return HT_OK;
}

static ht_status avg_pool_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(ht_need_float(ctx, call, 0));
    return pool_infer(ctx, call, out);
}

static ht_status max_pool_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    int64_t size[2], taps;
    /* The largest of codes is the code of the largest. */
    if (!ht_dtype_is_code(call->in[0]->dtype)) HT_TRY(ht_need_float(ctx, call, 0));
    HT_TRY(pool_infer(ctx, call, out));
    HT_TRY(ht_need_pair(ctx, call, "window", 1, size));
    if (__builtin_mul_overflow(size[0], size[1], &taps) || taps > INT32_MAX)
        HT_FAIL(ctx, HT_ESHAPE, "a window of %" PRId64 " by %" PRId64 " has more taps than an i32 counts", size[0],
                size[1]);
    out[1] = ht_type_make(taps <= UINT8_MAX + 1 ? HT_U8 : HT_I32, 4, out[0].dim);
    return HT_OK;
}

/* dx from dy, which is as large as the pooling makes it. */
static ht_status pool_grad_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    int64_t size[2];
    ht_window window;
    HT_TRY(ht_need_float(ctx, call, 0));
    HT_TRY(ht_need_rank(ctx, call, 0, 4));
    HT_TRY(ht_need_pair(ctx, call, "size", 1, size));
    HT_TRY(pool_window(ctx, call, size, &window));
    const ht_type *dy = call->in[0];
    if (dy->dim[2] != window.steps[0] || dy->dim[3] != window.steps[1])
        HT_FAIL(ctx, HT_ESHAPE,
                "dy has planes of %" PRId64 " by %" PRId64 "; the pooling makes %" PRId64 " by %" PRId64, dy->dim[2],
                dy->dim[3], window.steps[0], window.steps[1]);
    out[0] = ht_type_make(dy->dtype, HT_DIMS(dy->dim[0], dy->dim[1], size[0], size[1]));
    return HT_OK;
}

static ht_status max_pool_grad_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *dy = call->in[0], *tap = call->in[1];
    ht_type_text a, b;
    if (tap->dtype != HT_U8) HT_TRY(ht_need_int(ctx, call, 1));
    HT_TRY(pool_grad_infer(ctx, call, out));
    if (!ht_type_same_shape(dy, tap))
        HT_FAIL(ctx, HT_ESHAPE, "dy is %s, tap is %s", ht_type_str(dy, &a), ht_type_str(tap, &b));
    return HT_OK;
}

/* ---- cost ---- */

static void pool_cost(const ht_call *call, ht_cost *cost)
{
    int64_t size[2];
    ht_call_pair(call, "window", size);
    cost->other_flops = (double)ht_type_elems(call->out[0]) * (double)size[0] * (double)size[1];
}

static void avg_pool_grad_cost(const ht_call *call, ht_cost *cost)
{
    int64_t size[2];
    ht_call_pair(call, "window", size);
    cost->other_flops = (double)ht_type_elems(call->in[0]) * (double)size[0] * (double)size[1];
}

static void max_pool_grad_cost(const ht_call *call, ht_cost *cost)
{
    cost->other_flops = (double)ht_type_elems(call->in[0]);
}

/* ---- gradients ---- */

static ht_type like(const ht_graph *g, ht_val v)
{
    ht_type type = *ht_type_of(g, v);
    ht_type_row_major(&type);
    return type;
}

/* window, stride and padding as in the call, exclude_padding of an average, and space for one more. */
enum { MAX_ATTRS = 3, AVG_ATTRS };
static void shared_attrs(const ht_call *call, size_t count, ht_attr attrs[AVG_ATTRS + 1])
{
    static const char *const keys[AVG_ATTRS] = {"window", "stride", "padding", "exclude_padding"};
    for (size_t i = 0; i < count; i++) attrs[i] = *ht_call_attr(call, keys[i]);
}

static ht_status max_pool_grad(ht_graph *g, const ht_grad *d)
{
    ht_attr attrs[AVG_ATTRS + 1];
    ht_type want = like(g, d->x[0]);
    shared_attrs(d->call, MAX_ATTRS, attrs);
    attrs[MAX_ATTRS] = (ht_attr)HT_INTS("size", 2, want.dim + 2);
    d->dx[0] = ht_emit1(g, "max_pool2d_grad", &want, HT_VALS(d->dy[0], d->y[1]), MAX_ATTRS + 1, attrs);
    return ht_graph_status(g);
}

/* The index of each tap in a plane that has its padding around it. */
static ht_val index_of_taps(ht_graph *g, const ht_window *v, int64_t padded_width, ht_val tap)
{
    const ht_type type = *ht_type_of(g, tap);
    ht_val row = ht_scale(g, ht_cast(g, tap, HT_F64), 1 / (double)v->size[1]);
    /* Half an element more, and no rounding of the quotient takes it below its row. */
    row = ht_cast(g, ht_add_scalar(g, row, 0.5 / (double)v->size[1]), HT_I64);
    ht_val step_h = ht_iota(g, HT_I64, 4, type.dim, 2), step_w = ht_iota(g, HT_I64, 4, type.dim, 3);
    ht_val first = ht_add(g, ht_scale(g, step_h, (double)(v->stride[0] * padded_width)),
                          ht_scale(g, step_w, (double)v->stride[1]));
    ht_val inside = ht_add(g, ht_cast(g, tap, HT_I64), ht_scale(g, row, (double)(padded_width - v->size[1])));
    return ht_add(g, first, inside);
}

/* Each element of dy was added at one index: its gradient is gathered from there. */
static ht_status max_pool_grad_grad(ht_graph *g, const ht_grad *d)
{
    ht_type dy = like(g, d->x[0]);
    ht_window v = ht_pool_of(d->call, ht_type_of(g, d->dy[0]));
    int64_t around[4] = {0, 0, v.padding[0], v.padding[1]}, width = v.plane[1] + 2 * v.padding[1];
    int64_t plane = (v.plane[0] + 2 * v.padding[0]) * width, places = dy.dim[2] * dy.dim[3];
    if (!d->need[0]) return HT_OK;
    ht_val planes = ht_reshape(g, ht_pad(g, d->dy[0], around, around, 0), HT_DIMS(dy.dim[0], dy.dim[1], plane));
    ht_val index = ht_reshape(g, index_of_taps(g, &v, width, d->x[1]), HT_DIMS(dy.dim[0], dy.dim[1], places));
    d->dx[0] = ht_reshape(g, ht_gather(g, planes, index, 2), 4, dy.dim);
    return ht_graph_status(g);
}

static ht_status avg_pool_grad(ht_graph *g, const ht_grad *d)
{
    ht_attr attrs[AVG_ATTRS + 1];
    ht_type want = like(g, d->x[0]);
    shared_attrs(d->call, AVG_ATTRS, attrs);
    attrs[AVG_ATTRS] = (ht_attr)HT_INTS("size", 2, want.dim + 2);
    d->dx[0] = ht_emit1(g, "avg_pool2d_grad", &want, HT_VALS(d->dy[0]), AVG_ATTRS + 1, attrs);
    return ht_graph_status(g);
}

static ht_status avg_pool_grad_grad(ht_graph *g, const ht_grad *d)
{
    ht_attr attrs[AVG_ATTRS + 1];
    ht_type want = like(g, d->x[0]);
    shared_attrs(d->call, AVG_ATTRS, attrs);
    d->dx[0] = ht_emit1(g, "avg_pool2d", &want, HT_VALS(d->dy[0]), AVG_ATTRS, attrs);
    return ht_graph_status(g);
}

/* ---- references ---- */

/* The part of a window that lies inside the plane: its rows and columns. */
typedef struct ref_part {
    ht_span rows, columns;
} ref_part;

static ref_part ref_part_at(const ht_window *v, int64_t step_h, int64_t step_w)
{
    int64_t h = ht_window_at(v, 0, step_h, 0), w = ht_window_at(v, 1, step_w, 0);
    ht_span rows = ht_span_inside(h, 1, v->plane[0], 0, v->size[0]);
    ht_span columns = ht_span_inside(w, 1, v->plane[1], 0, v->size[1]);
    return (ref_part){{h + rows.from, h + rows.to}, {w + columns.from, w + columns.to}};
}

static void max_pool_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ht_window v = ht_pool_of(call, call->in[0]);
    int64_t places = v.steps[0] * v.steps[1], elems = ht_type_elems(call->out[0]);
    for (int64_t i = 0; i < elems; i++) {
        const double *x = in[0] + i / places * v.plane[0] * v.plane[1];
        int64_t step_h = i % places / v.steps[1], step_w = i % v.steps[1];
        ref_part part = ref_part_at(&v, step_h, step_w);
        int64_t best_h = part.rows.from, best_w = part.columns.from;
        for (int64_t h = part.rows.from; h < part.rows.to; h++) {
            for (int64_t w = part.columns.from; w < part.columns.to; w++) {
                double value = x[h * v.plane[1] + w];
                if (value > x[best_h * v.plane[1] + best_w] || value != value) best_h = h, best_w = w;
            }
        }
        int64_t row = best_h - ht_window_at(&v, 0, step_h, 0), column = best_w - ht_window_at(&v, 1, step_w, 0);
        out[0][i] = x[best_h * v.plane[1] + best_w];
        out[1][i] = (double)(row * v.size[1] + column);
    }
}

/* A tap outside the window or the plane is skipped. */
static void max_pool_grad_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *dx = call->out[0];
    ht_window v = ht_pool_of(call, dx);
    int64_t places = v.steps[0] * v.steps[1], plane = v.plane[0] * v.plane[1], elems = ht_type_elems(call->in[0]);
    memset(out[0], 0, (size_t)ht_type_elems(dx) * sizeof(double));
    for (int64_t i = 0; i < elems; i++) {
        if (!(in[1][i] >= 0 && in[1][i] < (double)(v.size[0] * v.size[1]))) continue;
        int64_t tap = (int64_t)in[1][i];
        int64_t h = ht_window_at(&v, 0, i % places / v.steps[1], tap / v.size[1]);
        int64_t w = ht_window_at(&v, 1, i % v.steps[1], tap % v.size[1]);
        bool inside = h >= 0 && h < v.plane[0] && w >= 0 && w < v.plane[1];
        if (inside) out[0][i / places * plane + h * v.plane[1] + w] += in[0][i];
    }
}

/* Walks the windows over a tensor like x: y[place] = mean, or dx += dy[place] / count. */
static void ref_average(const ht_call *call, const ht_type *x_type, const ht_type *y_type, const double *x, double *y,
                        const double *dy, double *dx)
{
    ht_window v = ht_pool_of(call, x_type);
    bool exclude = ht_call_int(call, "exclude_padding") != 0;
    int64_t places = v.steps[0] * v.steps[1], elems = ht_type_elems(y_type);
    for (int64_t i = 0; i < elems; i++) {
        int64_t step_h = i % places / v.steps[1], step_w = i % v.steps[1];
        int64_t plane = i / places * v.plane[0] * v.plane[1];
        ref_part part = ref_part_at(&v, step_h, step_w);
        double count = (double)ht_pool_count(&v, 0, step_h, exclude) * (double)ht_pool_count(&v, 1, step_w, exclude);
        double sum = 0;
        for (int64_t h = part.rows.from; h < part.rows.to; h++) {
            for (int64_t w = part.columns.from; w < part.columns.to; w++) {
                if (x) sum += x[plane + h * v.plane[1] + w];
                if (dx) dx[plane + h * v.plane[1] + w] += dy[i] / count;
            }
        }
        if (y) y[i] = sum / count;
    }
}

static void avg_pool_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ref_average(call, call->in[0], call->out[0], in[0], out[0], NULL, NULL);
}

static void avg_pool_grad_ref(const ht_call *call, const double *const *in, double *const *out)
{
    memset(out[0], 0, (size_t)ht_type_elems(call->out[0]) * sizeof(double));
    ref_average(call, call->out[0], call->in[0], NULL, NULL, in[0], out[0]);
}

/* ---- rows ---- */

#define POOL_ATTRS     HT_DEF_REQUIRED("window", HT_ATTR_INTS), HT_DEF_PAIR("stride", 0, 0), HT_DEF_PAIR("padding", 0, 0)
#define AVG_POOL_ATTRS POOL_ATTRS, HT_DEF_INT("exclude_padding", 0)

static const ht_attr_def max_pool_attrs[] = {POOL_ATTRS, HT_DEF_END};
static const ht_attr_def max_pool_grad_attrs[] = {POOL_ATTRS, HT_DEF_REQUIRED("size", HT_ATTR_INTS), HT_DEF_END};
static const ht_attr_def avg_pool_attrs[] = {AVG_POOL_ATTRS, HT_DEF_END};
static const ht_attr_def avg_pool_grad_attrs[] = {AVG_POOL_ATTRS, HT_DEF_REQUIRED("size", HT_ATTR_INTS), HT_DEF_END};

/* A wide range keeps the largest elements of a window apart: a near tie is a kink. */
static const char *const max_pool_samples[] = {
    "(f32[2,3,6,4] -40..40) window=[2,2]",
    "(f32[1,2,7,6] -40..40) window=[3,2] stride=[2,1] padding=[1,1]",
    "(f32[2,1,5,5] -40..40) window=[2,3] stride=[3,1] padding=[1,0]",
    "(f32[1,2,4,3] -40..40) window=[4,3]",
    "(f32[0,3,4,4] -40..40) window=[2,2]",
    "(f32[3,2,18,17] -40..40) window=[3,3] stride=[2,2] padding=[1,1]",
    NULL,
};

static const char *const max_pool_grad_samples[] = {
    "(f32[2,3,3,2], u8[2,3,3,2] 0..3) window=[2,2] size=[6,4]",
    "(f32[1,2,2,3], i32[1,2,2,3] 0..8) window=[3,3] stride=[2,1] padding=[1,1] size=[4,3]",
    "(f32[2,1,2,3], u8[2,1,2,3] 0..5) window=[2,3] stride=[3,1] padding=[1,0] size=[5,5]",
    "(f32[1,2,1,1], i64[1,2,1,1] 0..11) window=[4,3] size=[4,3]",
    "(f32[0,3,2,2], u8[0,3,2,2]) window=[2,2] size=[4,4]",
    "(f32[1,2,15,15], u8[1,2,15,15] 0..24) window=[5,5] stride=[3,3] padding=[2,2] size=[44,45]",
    "(f32[1,1,2,300], u8[1,1,2,300] 0..3) window=[2,2] size=[5,601]",
    NULL,
};

static const char *const avg_pool_samples[] = {
    "(f32[2,3,6,4]) window=[2,2]",
    "(f32[1,2,7,6]) window=[3,2] stride=[2,1] padding=[1,1]",
    "(f32[1,2,7,6]) window=[3,2] stride=[2,1] padding=[1,1] exclude_padding=1",
    "(f32[2,1,5,5]) window=[2,3] stride=[3,1] padding=[1,0] exclude_padding=1",
    "(f32[0,3,4,4]) window=[2,2]",
    "(f32[3,2,18,17]) window=[3,3] stride=[2,2] padding=[1,1]",
    NULL,
};

static const char *const avg_pool_grad_samples[] = {
    "(f32[2,3,3,2]) window=[2,2] size=[6,4]",
    "(f32[1,2,4,7]) window=[3,2] stride=[2,1] padding=[1,1] size=[7,6]",
    "(f32[1,2,4,7]) window=[3,2] stride=[2,1] padding=[1,1] exclude_padding=1 size=[7,6]",
    "(f32[2,1,2,3]) window=[2,3] stride=[3,1] padding=[1,0] exclude_padding=1 size=[5,5]",
    "(f32[0,3,2,2]) window=[2,2] size=[4,4]",
    "(f32[3,2,9,9]) window=[3,3] stride=[2,2] padding=[1,1] size=[18,17]",
    NULL,
};

const ht_op ht_op_max_pool2d = {
    .size = sizeof(ht_op),
    .name = "max_pool2d",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_NONE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 2,
    .aux_out = 1u << 1,
    .attrs = max_pool_attrs,
    .infer = max_pool_infer,
    .cost = pool_cost,
    .grad = max_pool_grad,
    .ref = max_pool_ref,
    .samples = max_pool_samples,
};

const ht_op ht_op_max_pool2d_grad = {
    .size = sizeof(ht_op),
    .name = "max_pool2d_grad",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attrs = max_pool_grad_attrs,
    .infer = max_pool_grad_infer,
    .cost = max_pool_grad_cost,
    .grad = max_pool_grad_grad,
    .ref = max_pool_grad_ref,
    .samples = max_pool_grad_samples,
};

const ht_op ht_op_avg_pool2d = {
    .size = sizeof(ht_op),
    .name = "avg_pool2d",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = avg_pool_attrs,
    .infer = avg_pool_infer,
    .cost = pool_cost,
    .grad = avg_pool_grad,
    .ref = avg_pool_ref,
    .samples = avg_pool_samples,
};

const ht_op ht_op_avg_pool2d_grad = {
    .size = sizeof(ht_op),
    .name = "avg_pool2d_grad",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = avg_pool_grad_attrs,
    .infer = pool_grad_infer,
    .cost = avg_pool_grad_cost,
    .grad = avg_pool_grad_grad,
    .ref = avg_pool_grad_ref,
    .samples = avg_pool_grad_samples,
};

static bool good_opts(ht_graph *g, const char *op, const ht_pool_opts *opts)
{
    if (!ht_graph_need(g, opts, op, "opts")) return false;
    if (opts->size >= sizeof *opts) return true;
    ht_graph_fail(g, HT_EINVAL, "%s: options must start from HT_POOL_OPTS", op);
    return false;
}

ht_val ht_max_pool2d(ht_graph *g, ht_val x, const ht_pool_opts *opts)
{
    ht_val out[2] = {HT_NONE, HT_NONE};
    if (!good_opts(g, "max_pool2d", opts)) return HT_NONE;
    ht_emit_n(g, "max_pool2d", NULL, HT_VALS(x),
              HT_ATTRS(HT_INTS("window", 2, opts->window), HT_INTS("stride", 2, opts->stride),
                       HT_INTS("padding", 2, opts->padding)),
              out);
    return out[0];
}

ht_val ht_avg_pool2d(ht_graph *g, ht_val x, const ht_pool_opts *opts)
{
    if (!good_opts(g, "avg_pool2d", opts)) return HT_NONE;
    return ht_emit1(g, "avg_pool2d", NULL, HT_VALS(x),
                    HT_ATTRS(HT_INTS("window", 2, opts->window), HT_INTS("stride", 2, opts->stride),
                             HT_INTS("padding", 2, opts->padding), HT_INT("exclude_padding", opts->exclude_padding)));
}

ht_val ht_global_avg_pool2d(ht_graph *g, ht_val x)
{
    if (ht_graph_status(g) != HT_OK) return HT_NONE;
    if (ht_val_rank(g, x) != 4) {
        ht_type_text text;
        ht_graph_fail(g, HT_ESHAPE, "global_avg_pool2d: takes [N, C, H, W], not %s",
                      ht_type_str(ht_type_of(g, x), &text));
        return HT_NONE;
    }
    return ht_mean(g, x, 2, (const int64_t[]){2, 3}, false);
}
