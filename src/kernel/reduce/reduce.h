/* The axes of a reduction of a value without gaps, as few as say the same: neighbours in memory that are both kept or both
 * reduced are one, axes of size 1 are none. The innermost one is the run, which lies in memory without gaps; the others
 * alternate. */
#ifndef HT_KERNEL_REDUCE_H
#define HT_KERNEL_REDUCE_H

#include "kernel/kernel.h"
#include "op/op.h"

/* Axes outside the run, outermost first. */
typedef struct ht_reduce_axes {
    int rank;
    int64_t count; /* product of the sizes */
    int64_t size[HT_MAX_RANK], stride[HT_MAX_RANK];
} ht_reduce_axes;

typedef struct ht_reduce_shape {
    ht_reduce_axes kept, reduced;
    int64_t run;
    bool run_reduced;
    int64_t outputs; /* kept.count, times the run where it is kept */
    int64_t length;  /* elements per output */
} ht_reduce_shape;

static inline void ht_reduce_axis(ht_reduce_axes *axes, int64_t size, int64_t stride)
{
    memmove(axes->size + 1, axes->size, (size_t)axes->rank * sizeof axes->size[0]);
    memmove(axes->stride + 1, axes->stride, (size_t)axes->rank * sizeof axes->stride[0]);
    axes->size[0] = size;
    axes->stride[0] = stride;
    axes->count *= size;
    axes->rank++;
}

/* The axes, outermost first as they lie in memory. */
static inline void ht_reduce_order(const ht_type *x, int axes[HT_MAX_RANK])
{
    for (int d = 0; d < x->rank; d++) {
        int at = d;
        for (; at > 0 && x->stride[axes[at - 1]] < x->stride[d]; at--) axes[at] = axes[at - 1];
        axes[at] = d;
    }
}

/* Are the results of a reduction row-major if they are made in the order in which x lies? */
static inline bool ht_reduce_keeps_order(const ht_call *call)
{
    const ht_type *x = call->in[0];
    unsigned mask = ht_call_axes(call, "axes", x->rank);
    int axes[HT_MAX_RANK], last = -1;
    bool ordered = ht_type_dense(x);
    ht_reduce_order(x, axes);
    for (int i = 0; i < x->rank; i++) {
        if (mask >> axes[i] & 1 || x->dim[axes[i]] == 1) continue;
        ordered &= axes[i] > last;
        last = axes[i];
    }
    return ordered;
}

static inline ht_reduce_shape ht_reduce_shape_of(const ht_call *call)
{
    const ht_type *x = call->in[0];
    unsigned mask = ht_call_axes(call, "axes", x->rank);
    ht_reduce_shape s = {.kept.count = 1, .reduced.count = 1, .run = 1, .run_reduced = true};
    int64_t stride = 1;
    bool in_run = true;
    int axes[HT_MAX_RANK];
    ht_reduce_order(x, axes);
    for (int i = x->rank - 1; i >= 0;) {
        bool reduced = mask >> axes[i] & 1;
        int64_t size = 1;
        for (; i >= 0 && ((mask >> axes[i] & 1) == reduced || x->dim[axes[i]] == 1); i--) size *= x->dim[axes[i]];
        if (size == 1) continue;
        if (in_run) {
            s.run = size;
            s.run_reduced = reduced;
        } else {
            ht_reduce_axis(reduced ? &s.reduced : &s.kept, size, stride);
        }
        in_run = false;
        stride *= size;
    }
    s.outputs = s.kept.count * (s.run_reduced ? 1 : s.run);
    s.length = s.reduced.count * (s.run_reduced ? s.run : 1);
    return s;
}

/* Elements from the tensor's first to position `index` of these axes. */
static inline int64_t ht_reduce_offset(const ht_reduce_axes *axes, int64_t index)
{
    int64_t offset = 0;
    for (int i = axes->rank - 1; i > 0; i--) {
        offset += index % axes->size[i] * axes->stride[i];
        index /= axes->size[i];
    }
    return axes->rank ? offset + index * axes->stride[0] : 0;
}

#endif
