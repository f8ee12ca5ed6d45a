/* Geometry of sliding windows: sizes of outputs, ranges inside the padding. */
#include "op/window.h"

#include <inttypes.h>

ht_status ht_need_pair(ht_context *ctx, const ht_call *call, const char *key, int64_t low, int64_t pair[2])
{
    const ht_attr *attr = ht_call_attr(call, key);
    if (attr->count != 2) HT_FAIL(ctx, HT_EINVAL, "%s takes 2 numbers (height, width), not %zu", key, attr->count);
    for (int axis = 0; axis < 2; axis++) {
        pair[axis] = attr->ints[axis];
        if (pair[axis] < low || pair[axis] > INT32_MAX)
            HT_FAIL(ctx, HT_EINVAL, "%s %" PRId64 " is outside %" PRId64 "..%" PRId32, key, pair[axis], low, INT32_MAX);
    }
    return HT_OK;
}

void ht_call_pair(const ht_call *call, const char *key, int64_t pair[2])
{
    const ht_attr *attr = ht_call_attr(call, key);
    pair[0] = attr->ints[0];
    pair[1] = attr->ints[1];
}

static int64_t reach_of(const ht_window *window, int axis)
{
    return (window->size[axis] - 1) * window->dilation[axis] + 1;
}

void ht_window_count(ht_window *window)
{
    for (int axis = 0; axis < 2; axis++) {
        int64_t range = window->plane[axis] + 2 * window->padding[axis] - reach_of(window, axis);
        window->steps[axis] = range / window->stride[axis] + 1;
    }
}

ht_status ht_window_slide(ht_context *ctx, ht_window *window)
{
    for (int axis = 0; axis < 2; axis++) {
        int64_t plane = window->plane[axis], size = window->size[axis], padding = window->padding[axis];
        if (plane > INT32_MAX || size > INT32_MAX)
            HT_FAIL(ctx, HT_ESHAPE, "sizes beyond %" PRId32 ": a window of %" PRId64 " over %" PRId64, INT32_MAX, size,
                    plane);
        if (size < 1) HT_FAIL(ctx, HT_ESHAPE, "a window of size %" PRId64 " sees nothing", size);
        int64_t reach = reach_of(window, axis);
        if (plane + 2 * padding >= reach) continue;
        if (window->dilation[axis] == 1)
            HT_FAIL(ctx, HT_ESHAPE, "window %" PRId64 " does not fit into %" PRId64 " + 2*%" PRId64, size, plane,
                    padding);
        HT_FAIL(ctx, HT_ESHAPE,
                "window %" PRId64 " with dilation %" PRId64 " reaches %" PRId64 " and does not fit into %" PRId64
                " + 2*%" PRId64,
                size, window->dilation[axis], reach, plane, padding);
    }
    ht_window_count(window);
    return HT_OK;
}
