#include "op_layout.h"

const char *const op_layout_names[OP_LAYOUT_COUNT] = {"row-major",           "axes reversed in memory",
                                                      "channels last",       "gaps between elements",
                                                      "first axis repeated", "last axis repeated"};

ht_type op_layout_type(const ht_type *like, op_layout how)
{
    ht_type t = *like;
    ht_type_row_major(&t);
    if (how == OP_REVERSED) {
        int64_t stride = 1;
        for (int axis = 0; axis < t.rank; axis++) {
            t.stride[axis] = stride;
            stride *= t.dim[axis];
        }
    }
    if (how == OP_CHANNELS_LAST && t.rank >= 3) ht_type_channels_last(&t);
    if (how == OP_GAPPED)
        for (int axis = 0; axis < t.rank; axis++) t.stride[axis] *= 3;
    if (how == OP_FIRST_REPEATED && t.rank > 0) t.stride[0] = 0;
    if (how == OP_LAST_REPEATED && t.rank > 0) t.stride[t.rank - 1] = 0;
    return t;
}

int64_t op_layout_offset(const ht_type *t, int64_t index)
{
    int64_t offset = 0;
    for (int axis = t->rank - 1; axis >= 0; axis--) {
        offset += index % t->dim[axis] * t->stride[axis];
        index /= t->dim[axis];
    }
    return offset;
}

size_t op_layout_bytes(const ht_type *t)
{
    if (ht_type_elems(t) == 0) return 0;
    int64_t last = 0;
    for (int axis = 0; axis < t->rank; axis++) last += (t->dim[axis] - 1) * t->stride[axis];
    return (size_t)(last + 1) * ht_dtype_bytes(t->dtype);
}
