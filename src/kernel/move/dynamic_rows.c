/* dynamic_slice: y = x[first : first + rows].  dynamic_update_slice: y = x, y[first : first + rows] = update.  Any type,
 * row-major.  Numerics: bytes move.  Threads, traffic: strided.c; an update in place writes its own rows alone. */
#include "kernel/move/strided.h"
#include "op/op.h"

static void copy_elements(const ht_launch *launch, void *to, const void *from, const ht_type *type)
{
    int64_t elems = ht_type_elems(type);
    ht_strided target = {.first = to, .stride = {1}}, source = {.first = (void *)from, .stride = {1}};
    if (elems) ht_strided_copy(launch->pool, ht_dtype_bytes(type->dtype), 1, &elems, &target, &source);
}

/* Bytes of x before the part. */
static int64_t offset_of(const ht_launch *launch, size_t input)
{
    const ht_type *x = launch->call->in[0];
    int64_t first = ht_dynamic_first_row(launch->call, *(const int64_t *)launch->in[input]);
    return x->dim[0] ? first * (ht_type_bytes(x) / x->dim[0]) : 0;
}

static ht_status dynamic_slice_run(const ht_launch *launch)
{
    copy_elements(launch, launch->out[0], (const char *)launch->in[0] + offset_of(launch, 1), launch->call->out[0]);
    return HT_OK;
}

static ht_status dynamic_update_slice_run(const ht_launch *launch)
{
    char *to = launch->out[0];
    const ht_type *update = launch->call->in[1];
    if (to == launch->in[1]) return HT_OK; /* in the bytes of an update of all rows */
    if (to != launch->in[0]) copy_elements(launch, to, launch->in[0], launch->call->out[0]);
    copy_elements(launch, to + offset_of(launch, 2), launch->in[1], update);
    return HT_OK;
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_refuse_strided(call);
}

HT_MOVE_ROW(dynamic_slice, can, dynamic_slice_run)
HT_MOVE_ROW(dynamic_update_slice, can, dynamic_update_slice_run)
