/* all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send, recv, each as a pair: `…_start` begins,
 * `…_done` waits and has the result. They are effects: their order is the same on all ranks of their group.
 * reduce_scatter_within leaves the sum of a rank's piece at its place in the value, whose other pieces stay as they are:
 * it can lie over what it reads.
 *
 * Gradients are those of the sum of all ranks' losses, unless an all_reduce says otherwise. A rank alone is a group of
 * one, for which the references stand: there everything is a copy, and nobody sends. */
#include "op/collective.h"

#include <string.h>

#include "op/op.h"
#include "op/view.h"

/* ---- shapes ---- */

enum { MOST_RANKS = 1 << 20 };

static ht_status need_group(ht_context *ctx, const ht_call *call)
{
    int64_t ranks = ht_call_int(call, "ranks");
    if (!ht_call_text(call, "group")[0]) HT_FAIL(ctx, HT_EINVAL, "the group has no name");
    if (ranks < 1 || ranks > MOST_RANKS)
        HT_FAIL(ctx, HT_EINVAL, "ranks=%lld: a group has 1 to %d", (long long)ranks, MOST_RANKS);
    return HT_OK;
}

static ht_status need_reduction(ht_context *ctx, const ht_call *call)
{
    const char *reduction = ht_call_text(call, "reduction");
    ht_dtype dtype = call->in[0]->dtype;
    bool sum = strcmp(reduction, "sum") == 0;
    if (!sum && strcmp(reduction, "max") != 0 && strcmp(reduction, "min") != 0)
        HT_FAIL(ctx, HT_EINVAL, "reduction is \"%s\", and none of sum, max, min", reduction);
    bool bytes = dtype == HT_U8 || dtype == HT_BOOL;
    if (dtype == HT_F8E4M3 || dtype == HT_F8E5M2 || dtype == HT_I8 || (bytes && sum))
        HT_FAIL(ctx, HT_EDTYPE, "%s has no %s over ranks", ht_dtype_name(dtype), reduction);
    return HT_OK;
}

/* Axis 0 of input 0, in a piece for each rank. */
static ht_status need_pieces(ht_context *ctx, const ht_call *call)
{
    int64_t ranks = ht_call_int(call, "ranks");
    ht_type_text text;
    if (call->in[0]->rank < 1 || call->in[0]->dim[0] % ranks)
        HT_FAIL(ctx, HT_ESHAPE, "%s is not cut along axis 0 into %lld pieces", ht_type_str(call->in[0], &text),
                (long long)ranks);
    return HT_OK;
}

static ht_status need_gradient(ht_context *ctx, const ht_call *call)
{
    static const char *const words[] = {"sum", "identity", "none"};
    const char *gradient = ht_call_text(call, "gradient");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i], gradient) == 0) return HT_OK;
    HT_FAIL(ctx, HT_EINVAL, "gradient is sum, identity or none, not '%s'", gradient);
}

static ht_status all_reduce_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_gradient(ctx, call));
    HT_TRY(need_group(ctx, call));
    HT_TRY(need_reduction(ctx, call));
    out[0] = *call->in[0];
    return HT_OK;
}

static ht_status all_gather_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_gradient(ctx, call));
    HT_TRY(need_group(ctx, call));
    out[0] = *call->in[0];
    if (out[0].rank < 1) HT_FAIL(ctx, HT_ESHAPE, "a single number has no axis to gather along");
    if (__builtin_mul_overflow(out[0].dim[0], ht_call_int(call, "ranks"), &out[0].dim[0]))
        HT_FAIL(ctx, HT_ESHAPE, "the size of axis 0 overflows");
    return HT_OK;
}

static ht_status reduce_scatter_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_group(ctx, call));
    HT_TRY(need_reduction(ctx, call));
    HT_TRY(need_pieces(ctx, call));
    out[0] = *call->in[0];
    out[0].dim[0] /= ht_call_int(call, "ranks");
    return HT_OK;
}

static ht_status reduce_scatter_within_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(reduce_scatter_infer(ctx, call, out));
    out[0] = *call->in[0];
    return HT_OK;
}

static ht_status all_to_all_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_group(ctx, call));
    HT_TRY(need_pieces(ctx, call));
    out[0] = *call->in[0];
    return HT_OK;
}

/* A rank of the group; with `nobody` also -1. */
static ht_status need_rank_of_group(ht_context *ctx, const ht_call *call, const char *key, bool nobody)
{
    HT_TRY(need_group(ctx, call));
    int64_t rank = ht_call_int(call, key), ranks = ht_call_int(call, "ranks");
    if (rank >= ranks || rank < (nobody ? -1 : 0))
        HT_FAIL(ctx, HT_EINVAL, "%s=%lld: the group has %lld ranks", key, (long long)rank, (long long)ranks);
    return HT_OK;
}

static ht_status broadcast_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    out[0] = *call->in[0];
    return need_rank_of_group(ctx, call, "root", false);
}

static ht_status need_peer_gradient(ht_context *ctx, const ht_call *call)
{
    const char *gradient = ht_call_text(call, "gradient");
    if (strcmp(gradient, "none") == 0 || strcmp(gradient, "peer") == 0) return HT_OK;
    HT_FAIL(ctx, HT_EINVAL, "gradient is none or peer, not '%s'", gradient);
}

/* A token to wait for: a value without bytes would be no instruction. */
static ht_status send_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_peer_gradient(ctx, call));
    out[0] = (ht_type){.dtype = HT_BOOL, .space = call->in[0]->space};
    return need_rank_of_group(ctx, call, "peer", true);
}

static ht_status recv_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    (void)out; /* as the caller says: the peer knows */
    HT_TRY(need_peer_gradient(ctx, call));
    return need_rank_of_group(ctx, call, "peer", true);
}

static ht_status done_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    (void)ctx;
    out[0] = *call->in[0];
    return HT_OK;
}

/* ---- references: a group of one; what others would have sent is what this rank has ---- */

static void copy_ref(const ht_call *call, const double *const *in, double *const *out)
{
    int64_t n = ht_type_elems(call->out[0]), given = ht_type_elems(call->in[0]);
    for (int64_t i = 0; i < n; i++) out[0][i] = in[0][i % given];
}

static void send_ref(const ht_call *call, const double *const *in, double *const *out)
{
    (void)call;
    (void)in;
    out[0][0] = 1;
}

static void recv_ref(const ht_call *call, const double *const *in, double *const *out)
{
    (void)in;
    int64_t n = ht_type_elems(call->out[0]);
    for (int64_t i = 0; i < n; i++) out[0][i] = 0;
}

/* ---- building ---- */

static ht_val begin(ht_graph *g, const ht_op *start, ht_val x, size_t n_attr, const ht_attr *attr)
{
    ht_val t = HT_NONE;
    ht_emit(g, start, HT_VALS(x), n_attr, attr, NULL, &t);
    return t;
}

ht_val ht_collective_end(ht_graph *g, ht_val start, ht_val x)
{
    ht_val y = HT_NONE;
    if (g->status != HT_OK) return HT_NONE;
    ht_emit(g, ht_producer(g, start)->op->done, HT_VALS(start, x), HT_NO_ATTRS, NULL, &y);
    return y;
}

static ht_val emit_pair(ht_graph *g, const ht_op *start, ht_val x, size_t n_attr, const ht_attr *attr)
{
    ht_val t = begin(g, start, x, n_attr, attr);
    return ht_collective_end(g, t, x);
}

#define START(id) extern const ht_op ht_op_##id##_start, ht_op_##id##_done;
START(all_reduce)
START(all_gather)
START(reduce_scatter)
START(reduce_scatter_within)
START(all_to_all)
START(broadcast)
START(send)
START(recv)

ht_val ht_all_reduce_begin(ht_graph *g, ht_val x, ht_group group, const char *reduction)
{
    return begin(g, &ht_op_all_reduce_start, x,
                 HT_ATTRS(HT_TEXT("group", group.name), HT_INT("ranks", group.ranks), HT_TEXT("reduction", reduction)));
}

ht_val ht_all_reduce(ht_graph *g, ht_val x, ht_group group, const char *reduction)
{
    return ht_all_reduce_with(g, x, group, reduction, "sum");
}

ht_val ht_all_reduce_with(ht_graph *g, ht_val x, ht_group group, const char *reduction, const char *gradient)
{
    return emit_pair(g, &ht_op_all_reduce_start, x,
                     HT_ATTRS(HT_TEXT("group", group.name), HT_INT("ranks", group.ranks),
                              HT_TEXT("reduction", reduction), HT_TEXT("gradient", gradient)));
}

ht_val ht_fan_out(ht_graph *g, ht_val x, ht_group group)
{
    return ht_emit1(g, "fan_out", NULL, HT_VALS(x),
                    HT_ATTRS(HT_TEXT("group", group.name), HT_INT("ranks", group.ranks)));
}

ht_val ht_all_gather_begin(ht_graph *g, ht_val x, ht_group group)
{
    return begin(g, &ht_op_all_gather_start, x, HT_ATTRS(HT_TEXT("group", group.name), HT_INT("ranks", group.ranks)));
}

ht_val ht_all_gather_with(ht_graph *g, ht_val x, ht_group group, const char *gradient)
{
    return emit_pair(
        g, &ht_op_all_gather_start, x,
        HT_ATTRS(HT_TEXT("group", group.name), HT_INT("ranks", group.ranks), HT_TEXT("gradient", gradient)));
}

ht_val ht_all_gather(ht_graph *g, ht_val x, ht_group group)
{
    return ht_collective_end(g, ht_all_gather_begin(g, x, group), x);
}

ht_val ht_reduce_scatter_begin(ht_graph *g, ht_val x, ht_group group, const char *reduction)
{
    return begin(g, &ht_op_reduce_scatter_start, x,
                 HT_ATTRS(HT_TEXT("group", group.name), HT_INT("ranks", group.ranks), HT_TEXT("reduction", reduction)));
}

ht_val ht_reduce_scatter_within_begin(ht_graph *g, ht_val x, ht_group group)
{
    return begin(g, &ht_op_reduce_scatter_within_start, x,
                 HT_ATTRS(HT_TEXT("group", group.name), HT_INT("ranks", group.ranks)));
}

ht_val ht_reduce_scatter(ht_graph *g, ht_val x, ht_group group, const char *reduction)
{
    return ht_collective_end(g, ht_reduce_scatter_begin(g, x, group, reduction), x);
}

ht_val ht_all_to_all(ht_graph *g, ht_val x, ht_group group)
{
    return emit_pair(g, &ht_op_all_to_all_start, x,
                     HT_ATTRS(HT_TEXT("group", group.name), HT_INT("ranks", group.ranks)));
}

ht_val ht_broadcast(ht_graph *g, ht_val x, ht_group group, int64_t root)
{
    return emit_pair(g, &ht_op_broadcast_start, x,
                     HT_ATTRS(HT_TEXT("group", group.name), HT_INT("ranks", group.ranks), HT_INT("root", root)));
}

void ht_send(ht_graph *g, ht_val x, ht_group group, int64_t peer, const char *gradient)
{
    emit_pair(g, &ht_op_send_start, x,
              HT_ATTRS(HT_TEXT("group", group.name), HT_INT("ranks", group.ranks), HT_INT("peer", peer),
                       HT_TEXT("gradient", gradient)));
}

ht_val ht_recv(ht_graph *g, const ht_type *type, ht_group group, int64_t peer, const char *gradient)
{
    ht_val t = HT_NONE, y = HT_NONE;
    ht_emit(g, &ht_op_recv_start, 0, NULL,
            HT_ATTRS(HT_TEXT("group", group.name), HT_INT("ranks", group.ranks), HT_INT("peer", peer),
                     HT_TEXT("gradient", gradient)),
            type, &t);
    if (g->status == HT_OK) ht_emit(g, &ht_op_recv_done, HT_VALS(t), HT_NO_ATTRS, NULL, &y);
    return y;
}

bool ht_message_has_gradient(const ht_node *n, ht_group *group, int64_t *peer)
{
    if (n->op != &ht_op_send_start && n->op != &ht_op_recv_start) return false;
    *group = (ht_group){n->attr[0].text, n->attr[1].i};
    *peer = n->attr[2].i;
    return strcmp(n->attr[3].text, "peer") == 0;
}

/* ---- gradients ---- */

static ht_group group_of(const ht_call *call)
{
    return (ht_group){ht_call_text(call, "group"), ht_call_int(call, "ranks")};
}

static bool sums(ht_graph *g, const ht_call *call)
{
    const char *reduction = ht_call_text(call, "reduction");
    bool sum = strcmp(reduction, "sum") == 0;
    if (!sum) ht_graph_fail(g, HT_ENOTSUP, "%s: the %s over ranks has no gradient", call->op->name, reduction);
    return sum;
}

static ht_status all_reduce_grad(ht_graph *g, const ht_grad *d)
{
    const char *gradient = ht_call_text(d->call, "gradient");
    if (strcmp(gradient, "none") == 0) return HT_OK;
    if (strcmp(gradient, "identity") == 0)
        d->dx[0] = d->dy[0];
    else if (sums(g, d->call))
        d->dx[0] = ht_all_reduce(g, d->dy[0], group_of(d->call), "sum");
    return ht_graph_status(g);
}

static ht_status all_gather_grad(ht_graph *g, const ht_grad *d)
{
    const char *gradient = ht_call_text(d->call, "gradient");
    if (strcmp(gradient, "none") == 0) return HT_OK;
    d->dx[0] = ht_reduce_scatter(g, d->dy[0], group_of(d->call), "sum");
    /* All ranks have the same: so many times what one has. */
    if (strcmp(gradient, "identity") == 0) d->dx[0] = ht_scale(g, d->dx[0], 1 / (double)group_of(d->call).ranks);
    return ht_graph_status(g);
}

static ht_status reduce_scatter_grad(ht_graph *g, const ht_grad *d)
{
    if (sums(g, d->call)) d->dx[0] = ht_all_gather(g, d->dy[0], group_of(d->call));
    return ht_graph_status(g);
}

static ht_status all_to_all_grad(ht_graph *g, const ht_grad *d)
{
    d->dx[0] = ht_all_to_all(g, d->dy[0], group_of(d->call));
    return ht_graph_status(g);
}

/* The gradient goes the whole way through the start. */
static ht_status done_grad(ht_graph *g, const ht_grad *d)
{
    d->dx[0] = d->dy[0];
    return ht_graph_status(g);
}

/* What was exchanged is in memory already. */
static void done_cost(const ht_call *call, ht_cost *cost)
{
    (void)call;
    *cost = (ht_cost){0};
}

/* ---- rows ---- */

#define GROUP HT_DEF_TEXT("group", "world"), HT_DEF_INT("ranks", 1)
static const ht_attr_def move_attrs[] = {GROUP, HT_DEF_END};
static const ht_attr_def reduce_attrs[] = {GROUP, HT_DEF_TEXT("reduction", "sum"), HT_DEF_END};
static const ht_attr_def all_reduce_attrs[] = {GROUP, HT_DEF_TEXT("reduction", "sum"), HT_DEF_TEXT("gradient", "sum"),
                                               HT_DEF_END};
static const ht_attr_def all_gather_attrs[] = {GROUP, HT_DEF_TEXT("gradient", "sum"), HT_DEF_END};
static const ht_attr_def root_attrs[] = {GROUP, HT_DEF_INT("root", 0), HT_DEF_END};
/* In the order in which ht_message_has_gradient reads them. */
static const ht_attr_def peer_attrs[] = {GROUP, HT_DEF_INT("peer", -1), HT_DEF_TEXT("gradient", "none"), HT_DEF_END};

static const char *const samples[] = {
    "(f32[3,4])", "(f32[1])", "(f32[2,0])", "(f16[5,3])", "(bf16[7])", "(i32[9] 0..9)", "(f32[70,50])", NULL,
};
static const char *const done_samples[] = {"(f32[3,4], f32[3,4])", "(f32[2,0], f32[2,0])", "(bf16[7], bf16[7])", NULL};
static const char *const send_done_samples[] = {"(bool[], f32[3,4])", NULL};
static const char *const recv_samples[] = {"() -> f32[3,4]", "() -> bf16[7]", "() -> f32[2,0]", NULL};
static const char *const recv_done_samples[] = {"(f32[3,4])", "(f32[2,0])", NULL};

static const char no_broadcast_grad[] =
    "ranks that send nothing have no gradient of what the root sends: sum it by all_reduce";
static const char no_within_grad[] = "it is there for sums of gradients that lie in place";
static const char no_peer_grad[] = "gradients go back by a send and a recv of their own, which autodiff makes";

#define COLLECTIVE(id, flags_, inputs, attrs_, infer_, ref_, samples_, done_samples_, ...)                             \
    const ht_op ht_op_##id##_start = {                                                                                 \
        .size = sizeof(ht_op),                                                                                         \
        .name = #id "_start",                                                                                          \
        .prec = HT_PREC_MOVE,                                                                                          \
        .fuse = HT_FUSE_NONE,                                                                                          \
        .flags = HT_OP_EFFECT | HT_OP_COLLECTIVE | HT_OP_NO_FOLD | (flags_),                                           \
        .min_in = (inputs),                                                                                            \
        .max_in = (inputs),                                                                                            \
        .n_out = 1,                                                                                                    \
        .attrs = attrs_,                                                                                               \
        .infer = infer_,                                                                                               \
        .cost = ht_cost_none,                                                                                          \
        .ref = ref_,                                                                                                   \
        .samples = samples_,                                                                                           \
        .done = &ht_op_##id##_done,                                                                                    \
        __VA_ARGS__,                                                                                                   \
    };                                                                                                                 \
    const ht_op ht_op_##id##_done = {                                                                                  \
        .size = sizeof(ht_op),                                                                                         \
        .name = #id "_done",                                                                                           \
        .prec = HT_PREC_MOVE,                                                                                          \
        .fuse = HT_FUSE_NONE,                                                                                          \
        .flags = HT_OP_NO_FOLD | ((flags_)&HT_OP_ERASED),                                                              \
        .min_in = 1 + (inputs),                                                                                        \
        .max_in = 1 + (inputs),                                                                                        \
        .n_out = 1,                                                                                                    \
        .infer = done_infer,                                                                                           \
        .cost = done_cost,                                                                                             \
        .grad = done_grad,                                                                                             \
        .ref = copy_ref,                                                                                               \
        .samples = done_samples_,                                                                                      \
        .start = &ht_op_##id##_start,                                                                                  \
    };

COLLECTIVE(all_reduce, HT_OP_ERASED | HT_OP_INPLACE, 1, all_reduce_attrs, all_reduce_infer, copy_ref, samples,
           done_samples, .grad = all_reduce_grad)
COLLECTIVE(all_gather, HT_OP_ERASED, 1, all_gather_attrs, all_gather_infer, copy_ref, samples, done_samples,
           .grad = all_gather_grad)
COLLECTIVE(reduce_scatter, HT_OP_ERASED, 1, reduce_attrs, reduce_scatter_infer, copy_ref, samples, done_samples,
           .grad = reduce_scatter_grad)
COLLECTIVE(reduce_scatter_within, HT_OP_ERASED | HT_OP_INPLACE, 1, reduce_attrs, reduce_scatter_within_infer, copy_ref,
           samples, done_samples, .no_grad = no_within_grad)
COLLECTIVE(all_to_all, HT_OP_ERASED, 1, move_attrs, all_to_all_infer, copy_ref, samples, done_samples,
           .grad = all_to_all_grad)
COLLECTIVE(broadcast, HT_OP_ERASED | HT_OP_INPLACE, 1, root_attrs, broadcast_infer, copy_ref, samples, done_samples,
           .no_grad = no_broadcast_grad)
COLLECTIVE(send, 0, 1, peer_attrs, send_infer, send_ref, samples, send_done_samples, .no_grad = no_peer_grad)
COLLECTIVE(recv, HT_OP_TYPED, 0, peer_attrs, recv_infer, recv_ref, recv_samples, recv_done_samples,
           .no_grad = no_peer_grad)

/* ---- fan_out ---- */

/* fan_out: a value that all ranks have, where each goes on with it by itself (Megatron's f, JAX's pvary). It moves nothing;
 * its gradient is the sum of what ranks have of it. */
static bool fan_out_view(const ht_call *call, ht_type *out, int64_t *offset)
{
    memcpy(out->stride, call->in[0]->stride, sizeof out->stride);
    *offset = 0;
    return true;
}

static ht_status fan_out_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    out[0] = *call->in[0];
    return need_group(ctx, call);
}

static ht_status fan_out_grad(ht_graph *g, const ht_grad *d)
{
    d->dx[0] = ht_all_reduce_with(g, d->dy[0], group_of(d->call), "sum", "identity");
    return ht_graph_status(g);
}

const ht_op ht_op_fan_out = {
    .size = sizeof(ht_op),
    .name = "fan_out",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_MOVE,
    .flags = HT_OP_ERASED,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = move_attrs,
    .infer = fan_out_infer,
    .cost = ht_cost_view,
    .grad = fan_out_grad,
    .ref = copy_ref,
    .view = fan_out_view,
    .samples = samples,
};
