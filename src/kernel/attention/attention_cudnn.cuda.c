/* attention and attention_grad by cuDNN's engines for graphs of this form.
 * q, k, v, y, dy: f16 or bf16, [B,H or G,T,D], any strides whose rows lie together and begin at multiples of 16 bytes, so
 * that packed projections need no copy; results likewise. As many queries as keys, a multiple of 8 from 64 up; D a
 * multiple of 8 up to 128; causal or all, no lengths, no documents.
 *
 * Numerics: scores, sums and softmax in f32; the weights, and in backward the gradients of scores, are rounded to the
 * operands' type before the second product. The same bits on every run: the product that makes dq is written as it is
 * summed, for which backward needs the gradients of scores of a part of the batch in memory; in the row for it dq is
 * summed by atomic adds instead. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernel/cuda/cudnn.h"

enum { Q, K, V, Y, LSE, DY, DQ, DK, DV, SUMS, DQ_SUMS, SCALE, MINUS_INFINITY, ONE, IDS }; /* + 1: ids of bound values */
enum { FORWARD_INPUTS = 3, BACKWARD_INPUTS = 6 }; /* before lengths and documents */
enum {
    SHORTEST = 64,
    WIDEST = 128,
    ELEMENTS = 8,    /* of 16 bytes */
    ALIGN = 256,     /* of a workspace */
    SLACK = 1 << 20, /* bytes that engines ask for besides */
};
static const int64_t most_bytes = INT64_C(5) << 30; /* of the gradients of scores at a time */

typedef struct shape {
    int64_t batch, heads, groups, length, width;
    int type;
    bool causal, backward;
    bool any_order; /* dq is summed by atomic adds */
} shape;

static shape shape_of(const ht_call *call, bool backward)
{
    const ht_type *q = call->in[Q];
    return (shape){.batch = q->dim[0],
                   .heads = q->dim[1],
                   .groups = call->in[K]->dim[1],
                   .length = q->dim[2],
                   .width = q->dim[3],
                   .type = q->dtype == HT_F16 ? HT_CUDNN_F16 : HT_CUDNN_BF16,
                   .causal = ht_call_int(call, "causal") != 0,
                   .backward = backward};
}

/* Where a value is among the operands: 1 + the input, -1 - the result; 0: it is none. */
static int place_of(const shape *s, int id)
{
    static const int places[2][IDS] = {
        {[Q] = 1, [K] = 2, [V] = 3, [Y] = -1, [LSE] = -2},
        {[Q] = 1, [K] = 2, [V] = 3, [Y] = 4, [LSE] = 5, [DY] = 6, [DQ] = -1, [DK] = -2, [DV] = -3},
    };
    return places[s->backward][id];
}

static const ht_type *type_of(const ht_call *call, const shape *s, int id)
{
    int place = place_of(s, id);
    return place > 0 ? call->in[place - 1] : place < 0 ? call->out[-place - 1] : NULL;
}

static char *address_of(const ht_launch *launch, const shape *s, int id)
{
    int place = place_of(s, id);
    return place > 0 ? (char *)launch->in[place - 1] : launch->out[-place - 1];
}

/* ---- what it takes ---- */

static bool is_placed(const ht_type *type)
{
    bool placed = type->dim[3] == 1 || type->stride[3] == 1;
    for (int axis = 0; axis < 3; axis++) placed &= type->stride[axis] % ELEMENTS == 0;
    return placed;
}

static const char *refuse(const ht_call *call, const ht_target *target, bool backward)
{
    shape s = shape_of(call, backward);
    ht_dtype dtype = call->in[Q]->dtype;
    if (!ht_target_has_library(target, HT_LIBRARY_CUDNN)) return "the target lacks cuDNN";
    if (dtype != HT_F16 && dtype != HT_BF16) return "the inputs are not half";
    for (size_t i = backward ? BACKWARD_INPUTS : FORWARD_INPUTS; i < call->n_in; i++)
        if (call->in[i]) return "keys are hidden by lengths or documents";
    if (s.batch * s.groups == 0 || s.length < SHORTEST || s.length % ELEMENTS != 0) return "the length is too odd";
    if (call->in[K]->dim[2] != s.length) return "there are more or fewer keys than queries";
    if (s.width % ELEMENTS != 0 || s.width > WIDEST || call->in[V]->dim[3] != s.width) return "the heads' width is odd";
    for (int id = Q; id <= DV; id++) {
        const ht_type *type = type_of(call, &s, id);
        if (!type) continue;
        if (id == LSE ? type->dtype != HT_F32 || !ht_type_contiguous(type) : type->dtype != dtype || !is_placed(type))
            return "an operand is strided, or of another type";
    }
    return NULL;
}

static const char *can(const ht_call *call, const ht_target *target)
{
    return refuse(call, target, false);
}

static const char *can_grad(const ht_call *call, const ht_target *target)
{
    return refuse(call, target, true);
}

static const char *can_grad_any_order(const ht_call *call, const ht_target *target)
{
    return ht_target_allows(target, HT_LIBERTY_ANY_ORDER) ? refuse(call, target, true) : ht_not_asked;
}

/* ---- workspace ---- */

static int64_t aligned(int64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t sums_bytes(const shape *s, int64_t part)
{
    return aligned(4 * part * s->heads * s->length);
}

/* Sums of dq in f32, where they have any order. */
static int64_t dq_bytes(const shape *s, int64_t part)
{
    return s->any_order ? aligned(4 * part * s->heads * s->length * s->width) : 0;
}

/* Gradients of scores, and of keys and values by head where heads share them. */
static int64_t score_bytes(const shape *s, int64_t part)
{
    int64_t shared = s->groups < s->heads ? 4 * part * s->heads * s->length * s->width : 0;
    return (s->any_order ? 0 : 2 * part * s->heads * s->length * s->length) + shared;
}

/* The next smaller part of the batch, a divisor of it; 0: there is none. */
static int64_t smaller_part(const shape *s, int64_t part)
{
    for (part--; part > 0 && s->batch % part != 0;) part--;
    return part;
}

/* Sequences at a time. */
static int64_t part_of(const shape *s)
{
    int64_t part = s->batch;
    while (s->backward && !s->any_order && part > 1 && 2 * part * s->heads * s->length * s->length > most_bytes)
        part = smaller_part(s, part);
    return part;
}

static int64_t workspace_of(const shape *s)
{
    int64_t part = part_of(s);
    return ALIGN + SLACK + (s->backward ? sums_bytes(s, part) + dq_bytes(s, part) + aligned(score_bytes(s, part)) : 0);
}

static int64_t workspace(const ht_call *call, const ht_target *target)
{
    shape s = shape_of(call, false);
    (void)target;
    return workspace_of(&s);
}

static int64_t workspace_grad_any_order(const ht_call *call, const ht_target *target)
{
    shape s = shape_of(call, true);
    (void)target;
    s.any_order = true;
    return workspace_of(&s);
}

static int64_t workspace_grad(const ht_call *call, const ht_target *target)
{
    shape s = shape_of(call, true);
    (void)target;
    return workspace_of(&s);
}

/* ---- graphs ---- */

typedef struct builder {
    ht_cudnn_graph g;
    const ht_call *call;
    shape s;
    int64_t part;
    int64_t scores[4], columns[4]; /* dimensions [B,H,T,T] and [B,H,T,1] */
    ht_cudnn_value minus_infinity;
} builder;

/* As it lies in memory; `turned`: with its last two axes exchanged. */
static ht_cudnn_value operand(builder *b, int id, bool turned)
{
    const ht_type *type = type_of(b->call, &b->s, id);
    int down = turned ? 3 : 2, across = turned ? 2 : 3;
    const int64_t dim[] = {b->part, type->dim[1], type->dim[down], type->dim[across]};
    const int64_t stride[] = {type->stride[0], type->stride[1], type->stride[down], type->stride[across]};
    return ht_cudnn_tensor(&b->g, id + 1, b->s.type, dim, stride);
}

/* f32 [B,H,T,1]. */
static ht_cudnn_value column_in_memory(builder *b, int id)
{
    const int64_t stride[] = {b->s.heads * b->s.length, b->s.length, 1, 1};
    return ht_cudnn_tensor(&b->g, id + 1, HT_CUDNN_F32, b->columns, stride);
}

static ht_cudnn_value between(builder *b, int type)
{
    return ht_cudnn_between(&b->g, type, b->scores, NULL);
}

static ht_cudnn_value column(builder *b)
{
    return ht_cudnn_between(&b->g, HT_CUDNN_F32, b->columns, NULL);
}

/* f32 scores from f32 scores. */
static ht_cudnn_value map(builder *b, int mode, ht_cudnn_value x, ht_cudnn_value other)
{
    ht_cudnn_value y = between(b, HT_CUDNN_F32);
    ht_cudnn_pointwise(&b->g, mode, HT_CUDNN_F32, (ht_cudnn_value[]){x, other, NULL}, y, -1);
    return y;
}

static ht_cudnn_value hide_later_keys(builder *b, ht_cudnn_value x)
{
    ht_cudnn_value row = between(b, HT_CUDNN_I32), key = between(b, HT_CUDNN_I32), seen = between(b, HT_CUDNN_BOOL);
    ht_cudnn_value y = between(b, HT_CUDNN_F32);
    ht_cudnn_pointwise(&b->g, HT_CUDNN_INDEX, HT_CUDNN_F32, (ht_cudnn_value[]){x, NULL, NULL}, row, 2);
    ht_cudnn_pointwise(&b->g, HT_CUDNN_INDEX, HT_CUDNN_F32, (ht_cudnn_value[]){x, NULL, NULL}, key, 3);
    ht_cudnn_pointwise(&b->g, HT_CUDNN_COMPARE_GE, HT_CUDNN_BOOL, (ht_cudnn_value[]){row, key, NULL}, seen, -1);
    ht_cudnn_pointwise(&b->g, HT_CUDNN_SELECT, HT_CUDNN_F32, (ht_cudnn_value[]){x, b->minus_infinity, seen}, y, -1);
    return y;
}

/* scale q k' */
static ht_cudnn_value scaled_scores(builder *b, ht_cudnn_value q, ht_cudnn_value turned_k, ht_cudnn_value scale)
{
    ht_cudnn_value x = between(b, HT_CUDNN_F32);
    ht_cudnn_matmul(&b->g, q, turned_k, x);
    return map(b, HT_CUDNN_MUL, x, scale);
}

static void build_forward(builder *b)
{
    ht_cudnn_graph *g = &b->g;
    ht_cudnn_value q = operand(b, Q, false), k = operand(b, K, true), v = operand(b, V, false);
    ht_cudnn_value y = operand(b, Y, false), lse = column_in_memory(b, LSE);
    ht_cudnn_value x = scaled_scores(b, q, k, ht_cudnn_number(g, SCALE + 1));
    if (b->s.causal) x = hide_later_keys(b, x);
    ht_cudnn_value most = column(b), sum = column(b), log_sum = column(b), weights = between(b, b->s.type);
    ht_cudnn_reduce(g, HT_CUDNN_MAX, x, most);
    ht_cudnn_value e = map(b, HT_CUDNN_EXP, map(b, HT_CUDNN_SUB, x, most), NULL);
    ht_cudnn_reduce(g, HT_CUDNN_SUM, e, sum);
    ht_cudnn_pointwise(g, HT_CUDNN_LOG, HT_CUDNN_F32, (ht_cudnn_value[]){sum, NULL, NULL}, log_sum, -1);
    ht_cudnn_pointwise(g, HT_CUDNN_ADD, HT_CUDNN_F32, (ht_cudnn_value[]){most, log_sum, NULL}, lse, -1);
    ht_cudnn_pointwise(g, HT_CUDNN_DIV, HT_CUDNN_F32, (ht_cudnn_value[]){e, sum, NULL}, weights, -1);
    ht_cudnn_matmul(g, weights, v, y);
}

/* The rows' sums of dy y. The product with one stands where engines look for dropout. */
static ht_cudnn_value sum_rows(builder *b, ht_cudnn_value dy)
{
    const shape *s = &b->s;
    const int64_t dim[] = {b->part, s->heads, s->length, s->width};
    const int64_t stride[] = {s->heads * s->length * s->width, s->length * s->width, s->heads * s->width, 1};
    ht_cudnn_value product = ht_cudnn_between(&b->g, HT_CUDNN_F32, dim, stride), plain, sums;
    ht_cudnn_pointwise(&b->g, HT_CUDNN_MUL, HT_CUDNN_F32, (ht_cudnn_value[]){dy, operand(b, Y, false), NULL}, product,
                       -1);
    plain = column(b);
    ht_cudnn_reduce(&b->g, HT_CUDNN_SUM, product, plain);
    sums = column_in_memory(b, SUMS);
    ht_cudnn_pointwise(&b->g, HT_CUDNN_MUL, HT_CUDNN_F32,
                       (ht_cudnn_value[]){plain, ht_cudnn_number(&b->g, ONE + 1), NULL}, sums, -1);
    return sums;
}

/* dk or dv: scores' x y, summed over the heads that share keys. */
static void multiply_turned(builder *b, ht_cudnn_value scores, ht_cudnn_value x, int id)
{
    const shape *s = &b->s;
    const int64_t turned_dim[] = {b->part, s->heads, s->length, s->length};
    const int64_t turned_stride[] = {s->heads * s->length * s->length, s->length * s->length, 1, s->length};
    const int64_t dim[] = {b->part, s->heads, s->length, s->width};
    ht_cudnn_value turned = ht_cudnn_between(&b->g, s->type, turned_dim, turned_stride);
    ht_cudnn_reshape(&b->g, scores, turned);
    ht_cudnn_value result = operand(b, id, false);
    ht_cudnn_value by_head = s->groups < s->heads ? ht_cudnn_between(&b->g, s->type, dim, NULL) : result;
    ht_cudnn_matmul(&b->g, turned, x, by_head);
    if (by_head != result) ht_cudnn_reduce(&b->g, HT_CUDNN_SUM, by_head, result);
}

static void build_backward(builder *b)
{
    ht_cudnn_graph *g = &b->g;
    ht_cudnn_value q = operand(b, Q, false), turned_k = operand(b, K, true), turned_v = operand(b, V, true);
    ht_cudnn_value dy = operand(b, DY, false), lse = column_in_memory(b, LSE), scale = ht_cudnn_number(g, SCALE + 1);
    ht_cudnn_value sums = sum_rows(b, dy);
    ht_cudnn_value x = map(b, HT_CUDNN_SUB, scaled_scores(b, q, turned_k, scale), lse);
    if (b->s.causal) x = hide_later_keys(b, x);
    ht_cudnn_value weights = map(b, HT_CUDNN_EXP, x, NULL);
    multiply_turned(b, weights, dy, DV);
    ht_cudnn_value slope = between(b, HT_CUDNN_F32);
    ht_cudnn_matmul(g, dy, turned_v, slope);
    slope = map(b, HT_CUDNN_MUL, map(b, HT_CUDNN_MUL, map(b, HT_CUDNN_SUB, slope, sums), weights), scale);
    multiply_turned(b, slope, q, DK);
    const ht_type *k = b->call->in[K];
    const int64_t dim[] = {b->part, k->dim[1], k->dim[2], k->dim[3]};
    ht_cudnn_value plain_k = ht_cudnn_between(g, HT_CUDNN_F32, dim, k->stride);
    ht_cudnn_reshape(g, turned_k, plain_k);
    if (!b->s.any_order) {
        ht_cudnn_matmul(g, slope, plain_k, operand(b, DQ, false));
        return;
    }
    const shape *s = &b->s;
    const int64_t dq_dim[] = {b->part, s->heads, s->length, s->width};
    const int64_t dq_stride[] = {s->heads * s->length * s->width, s->length * s->width, s->width, 1};
    ht_cudnn_value dq_sums = ht_cudnn_tensor(g, DQ_SUMS + 1, HT_CUDNN_F32, dq_dim, dq_stride);
    ht_cudnn_matmul(g, slope, plain_k, dq_sums);
    ht_cudnn_pointwise(g, HT_CUDNN_IDENTITY, HT_CUDNN_F32, (ht_cudnn_value[]){dq_sums, NULL, NULL},
                       operand(b, DQ, false), -1);
}

/* All that a plan follows from. */
static void name_plan(const ht_call *call, const shape *s, int64_t part, ht_text *name)
{
    ht_text_add(name, "cudnn attention %d %d %d %d %lld", s->backward, s->any_order, s->causal, s->type,
                (long long)part);
    for (int id = Q; id <= DV; id++) {
        const ht_type *type = type_of(call, s, id);
        for (int axis = 0; type && axis < type->rank; axis++)
            ht_text_add(name, " %lld:%lld", (long long)type->dim[axis], (long long)type->stride[axis]);
    }
}

static ht_status find_plan(const ht_launch *launch, const shape *s, int64_t part, ht_cudnn_plan **out)
{
    ht_device *device = launch->queue->device;
    ht_text name = {0};
    name_plan(launch->call, s, part, &name);
    if (name.failed) HT_FAIL(launch->ctx, HT_ENOMEM, "out of memory for a plan of cuDNN");
    *out = ht_cudnn_find(device, name.data);
    builder b = {.call = launch->call, .s = *s, .part = part};
    ht_status status = *out ? HT_OK : ht_cudnn_begin(&b.g, launch->ctx);
    if (!*out && status == HT_OK) {
        const int64_t scores[] = {part, s->heads, s->length, s->length};
        for (int i = 0; i < 4; i++) b.scores[i] = b.columns[i] = scores[i];
        b.columns[3] = 1;
        if (s->causal) b.minus_infinity = ht_cudnn_number(&b.g, MINUS_INFINITY + 1);
        if (s->backward)
            build_backward(&b);
        else
            build_forward(&b);
        status = ht_cudnn_plan_make(&b.g, device, name.data, out);
    }
    ht_text_free(&name);
    return status;
}

/* ---- launches ---- */

typedef struct prepared {
    const ht_cudnn_plan *plan;
    float scale, minus_infinity, one;
    int64_t count;
    void *packs[]; /* one for each part of the batch */
} prepared;

static char *first_aligned(void *address)
{
    return (char *)(((uintptr_t)address + ALIGN - 1) / ALIGN * ALIGN);
}

/* The largest part whose plan fits into the workspace. */
static ht_status choose_plan(const ht_launch *launch, const shape *s, int64_t *part, ht_cudnn_plan **plan)
{
    int64_t space = workspace_of(s) - ALIGN, sums = 0;
    for (*part = part_of(s); *part > 0; *part = smaller_part(s, *part)) {
        HT_TRY(find_plan(launch, s, *part, plan));
        sums = s->backward ? sums_bytes(s, *part) + dq_bytes(s, *part) : 0;
        if (sums + ht_cudnn_workspace(*plan) <= space) return HT_OK;
    }
    HT_FAIL(launch->ctx, HT_EDEVICE, "%s: cuDNN asks for %lld bytes of workspace, %lld were planned", launch->kernel,
            (long long)(sums + ht_cudnn_workspace(*plan)), (long long)space);
}

static void bind_id(ht_cudnn_binding *binding, int id, void *address)
{
    binding->ids[binding->count] = id + 1;
    binding->addresses[binding->count++] = address;
}

static ht_status bind_part(const ht_launch *launch, const shape *s, prepared *p, int64_t first, int64_t part,
                           void **pack)
{
    char *workspace = first_aligned(launch->workspace);
    char *dq_sums = workspace + (s->backward ? sums_bytes(s, part) : 0);
    ht_cudnn_binding binding = {.workspace = dq_sums + (s->backward ? dq_bytes(s, part) : 0)};
    for (int id = Q; id <= DV; id++) {
        const ht_type *type = type_of(launch->call, s, id);
        if (!type) continue;
        char *address = address_of(launch, s, id) + first * type->stride[0] * (int64_t)ht_dtype_bytes(type->dtype);
        if ((uintptr_t)address % 16 != 0)
            HT_FAIL(launch->ctx, HT_ENOTSUP, "%s: an operand begins at no multiple of 16 bytes", launch->kernel);
        bind_id(&binding, id, address);
    }
    bind_id(&binding, SCALE, &p->scale);
    if (s->causal) bind_id(&binding, MINUS_INFINITY, &p->minus_infinity);
    if (s->backward) bind_id(&binding, SUMS, workspace);
    if (s->backward) bind_id(&binding, ONE, &p->one);
    if (s->any_order) bind_id(&binding, DQ_SUMS, dq_sums);
    return ht_cudnn_bind(launch, &binding, pack);
}

extern const ht_kernel ht_kernel_cuda_attention_grad_cudnn_any_order;

static ht_status prepare_launch(ht_launch *launch, bool backward)
{
    shape s = shape_of(launch->call, backward);
    s.any_order = launch->row == &ht_kernel_cuda_attention_grad_cudnn_any_order;
    int64_t part;
    ht_cudnn_plan *plan = NULL;
    HT_TRY(choose_plan(launch, &s, &part, &plan));
    prepared *p = launch->prepared = calloc(1, sizeof *p + (size_t)(s.batch / part) * sizeof(void *));
    if (!p) HT_FAIL(launch->ctx, HT_ENOMEM, "out of memory for a launch");
    double scale = ht_call_float(launch->call, "scale");
    p->plan = plan;
    p->scale = (float)(scale != 0 ? scale : 1 / sqrt((double)s.width));
    p->minus_infinity = -INFINITY;
    p->one = 1;
    for (; p->count < s.batch / part; p->count++)
        HT_TRY(bind_part(launch, &s, p, p->count * part, part, &p->packs[p->count]));
    return HT_OK;
}

static ht_status prepare(ht_launch *launch)
{
    return prepare_launch(launch, false);
}

static ht_status prepare_grad(ht_launch *launch)
{
    return prepare_launch(launch, true);
}

static void release(ht_launch *launch)
{
    prepared *p = launch->prepared;
    for (int64_t i = 0; p && i < p->count; i++) ht_cudnn_unbind(p->packs[i]);
}

static ht_status run(const ht_launch *launch)
{
    const prepared *p = launch->prepared;
    for (int64_t i = 0; i < p->count; i++) HT_TRY(ht_cudnn_run(launch, p->plan, p->packs[i]));
    return HT_OK;
}

/* ---- rows ---- */

const ht_kernel ht_kernel_cuda_attention_cudnn = {
    .size = sizeof(ht_kernel),
    .op = "attention",
    .name = "attention_cudnn.cuda",
    .device = HT_DEVICE_CUDA,
    .can = can,
    .workspace = workspace,
    .prepare = prepare,
    .release = release,
    .run = run,
    .strided_results = true,
};

const ht_kernel ht_kernel_cuda_attention_grad_cudnn_any_order = {
    .size = sizeof(ht_kernel),
    .op = "attention_grad",
    .name = "attention_grad_cudnn_any_order.cuda",
    .device = HT_DEVICE_CUDA,
    .can = can_grad_any_order,
    .workspace = workspace_grad_any_order,
    .prepare = prepare_grad,
    .release = release,
    .run = run,
    .strided_results = true,
};

const ht_kernel ht_kernel_cuda_attention_grad_cudnn = {
    .size = sizeof(ht_kernel),
    .op = "attention_grad",
    .name = "attention_grad_cudnn.cuda",
    .device = HT_DEVICE_CUDA,
    .can = can_grad,
    .workspace = workspace_grad,
    .prepare = prepare_grad,
    .release = release,
    .run = run,
    .strided_results = true,
};
