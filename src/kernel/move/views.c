/* copy, copy_start: y = x from any strides to any.  copy_done: nothing, since a plan puts its result where copy_start
 * has written; a result with bytes of its own is copied.  reshape, permute, slice, expand, fan_out, straight_through: the view that the op says,
 * copied; a plan makes views of them where it can, so these rows serve where it cannot.  Numerics, threads, traffic:
 * strided.c. */
#include "kernel/move/strided.h"

static ht_status copy_run(const ht_launch *launch)
{
    const ht_type *in = launch->call->in[0], *out = launch->call->out[0];
    ht_strided to = ht_strided_at(launch->out[0], out, 0), from = ht_strided_at(launch->in[0], in, 0);
    ht_strided_copy(launch->pool, ht_dtype_bytes(in->dtype), in->rank, in->dim, &to, &from);
    return HT_OK;
}

static ht_status copy_done_run(const ht_launch *launch)
{
    return launch->out[0] == launch->in[0] ? HT_OK : copy_run(launch);
}

static ht_status view_run(const ht_launch *launch)
{
    const ht_type *in = launch->call->in[0];
    ht_type view = *launch->call->out[0], whole = *launch->call->out[0];
    int64_t offset;
    ht_type_row_major(&whole);
    if (!launch->call->op->view(launch->call, &view, &offset)) {
        /* A reshape of strided elements: they are written in the order in which the input counts them. */
        view = whole = *in;
        ht_type_row_major(&whole);
        offset = 0;
    }
    ht_strided to = ht_strided_at(launch->out[0], &whole, 0), from = ht_strided_at(launch->in[0], &view, offset);
    ht_strided_copy(launch->pool, ht_dtype_bytes(in->dtype), view.rank, view.dim, &to, &from);
    return HT_OK;
}

static const char *copy_can(const ht_call *call, const ht_target *target)
{
    (void)call;
    (void)target;
    return NULL;
}

static const char *view_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_type_contiguous(call->out[0]) ? NULL : "the result is strided";
}

HT_MOVE_ROW(copy, copy_can, copy_run)
HT_MOVE_ROW(copy_start, copy_can, copy_run)
HT_MOVE_ROW(copy_done, copy_can, copy_done_run)
HT_MOVE_ROW(reshape, view_can, view_run)
HT_MOVE_ROW(permute, view_can, view_run)
HT_MOVE_ROW(fan_out, view_can, view_run)
HT_MOVE_ROW(straight_through, view_can, view_run)
HT_MOVE_ROW(slice, view_can, view_run)
HT_MOVE_ROW(expand, view_can, view_run)
