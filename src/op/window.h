/* Sliding windows over the planes of x [N, C, H, W]: geometry shared by convolution and pooling, their references and
 * their kernels. Pairs are height, width. */
#ifndef HT_OP_WINDOW_H
#define HT_OP_WINDOW_H

#include "graph/graph.h"

typedef struct ht_window {
    int64_t plane[2]; /* sizes of the plane */
    int64_t size[2];  /* elements of the window */
    int64_t stride[2], padding[2], dilation[2];
    int64_t steps[2]; /* number of positions: sizes of the output */
} ht_window;

/* A list of two numbers, each from `low` to 2^31 - 1: no product of two such overflows. */
ht_status ht_need_pair(ht_context *ctx, const ht_call *call, const char *key, int64_t low, int64_t pair[2]);
/* The same for a call that was checked before. */
void ht_call_pair(const ht_call *call, const char *key, int64_t pair[2]);
/* From the other fields to `steps`; refuses sizes beyond 2^31 - 1 and a window that does not fit. */
ht_status ht_window_slide(ht_context *ctx, ht_window *window);
/* The same for sizes that were checked before. */
void ht_window_count(ht_window *window);

/* A row of an op's attribute table: a pair, and what holds when it is not given. */
#define HT_DEF_PAIR(name, a, b)                                                                                        \
    {                                                                                                                  \
        .key = (name), .kind = HT_ATTR_INTS, .standard = {.count = 2, .ints = (const int64_t[]){(a), (b)} }            \
    }

/* The sizes of a convolution; the three ops of conv.c differ in which of x, w and y is the result. */
typedef struct ht_conv {
    ht_window window;
    int64_t batch, groups;
    int64_t in_channels, out_channels; /* of one group */
} ht_conv;
/* The attributes of a convolution, as rows of an op's table. */
#define HT_DEF_CONV                                                                                                    \
    HT_DEF_PAIR("stride", 1, 1), HT_DEF_PAIR("padding", 0, 0), HT_DEF_PAIR("dilation", 1, 1), HT_DEF_INT("groups", 1)
/* The sizes of the result, of a call that is checked here. */
ht_status ht_conv_slide(ht_context *ctx, const ht_call *call, const ht_type *x, const ht_type *w, int64_t y[4]);
/* Of a call that was checked before. */
ht_conv ht_conv_of(const ht_call *call, const ht_type *x, const ht_type *w);

/* The sizes of a pooling over x, the same. */
ht_window ht_pool_of(const ht_call *call, const ht_type *x);

/* The index along one axis of element `tap` of the window at position `step`; outside the plane it is padding. */
static inline int64_t ht_window_at(const ht_window *window, int axis, int64_t step, int64_t tap)
{
    return step * window->stride[axis] - window->padding[axis] + tap * window->dilation[axis];
}

/* A half-open range of indices. */
typedef struct ht_span {
    int64_t from, to;
} ht_span;

/* The i of from..to-1 with 0 <= start + i stride < size. */
static inline ht_span ht_span_inside(int64_t start, int64_t stride, int64_t size, int64_t from, int64_t to)
{
    int64_t low = start >= 0 ? 0 : (-start + stride - 1) / stride;
    int64_t high = size <= start ? 0 : (size - start + stride - 1) / stride;
    if (low > to) low = to;
    if (low < from) low = from;
    if (high > to) high = to;
    return (ht_span){low, high < low ? low : high};
}

/* How many elements an average divides by along one axis at place `step`. */
static inline int64_t ht_pool_count(const ht_window *window, int axis, int64_t step, bool exclude_padding)
{
    if (!exclude_padding) return window->size[axis];
    ht_span inside = ht_span_inside(ht_window_at(window, axis, step, 0), 1, window->plane[axis], 0, window->size[axis]);
    return inside.to - inside.from;
}

#endif
