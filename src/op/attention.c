/* attention: y = softmax(scale q k' + mask) v, with grouped-query heads: head h reads the keys and values of group h /
 * (H / G).
 *
 * The mask: query i of sequence b attends to key j when j < lengths[b], j <= i + Tk - Tq (causal), and both positions
 * are of one document. A key whose score is -inf counts as masked. A fully masked query gives y = 0 and lse = -inf.
 *
 * The gradient saves only lse, the logarithm of the sum of exp(score), and recomputes the attention weights. */
#include "op/op.h"

#include <inttypes.h>

enum { AT_Q, AT_K, AT_V, AT_LENGTHS, AT_DOCUMENT, ATTENTION_INPUTS };
enum { GRAD_Y = AT_V + 1, GRAD_LSE, GRAD_DY, GRAD_LENGTHS, GRAD_DOCUMENT, ATTENTION_GRAD_INPUTS };

typedef struct extent {
    int64_t batch, heads, groups, queries, keys, width, value_width;
} extent;

static const ht_type *input_or_none(const ht_call *call, size_t input)
{
    return input < call->n_in ? call->in[input] : NULL;
}

static extent extent_of(const ht_call *call)
{
    const ht_type *q = call->in[AT_Q], *v = call->in[AT_V];
    return (extent){q->dim[0], q->dim[1], v->dim[1], q->dim[2], v->dim[2], q->dim[3], v->dim[3]};
}

static double scale_of(const ht_call *call, int64_t width)
{
    double scale = ht_call_float(call, "scale");
    if (scale != 0) return scale;
    return width > 0 ? 1 / sqrt((double)width) : 1;
}

/* ---- shapes ---- */

static ht_status need_floats(ht_context *ctx, const ht_call *call, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!call->in[i]) HT_FAIL(ctx, HT_EINVAL, "input %zu is missing", i);
        HT_TRY(ht_need_float(ctx, call, i));
    }
    return HT_OK;
}

static ht_status need_shape(ht_context *ctx, const ht_call *call, size_t input, int rank, const int64_t *dims)
{
    ht_type want = ht_type_make(call->in[input]->dtype, rank, dims);
    ht_type_text a, b;
    if (!ht_type_same_shape(call->in[input], &want))
        HT_FAIL(ctx, HT_ESHAPE, "input %zu is %s, not %s", input, ht_type_str(call->in[input], &a),
                ht_type_str(&want, &b));
    return HT_OK;
}

static ht_status check_masks(ht_context *ctx, const ht_call *call, const extent *e, size_t lengths, size_t document)
{
    if (input_or_none(call, lengths)) {
        HT_TRY(ht_need_int(ctx, call, lengths));
        HT_TRY(need_shape(ctx, call, lengths, 1, &e->batch));
    }
    if (input_or_none(call, document)) {
        HT_TRY(ht_need_int(ctx, call, document));
        HT_TRY(need_shape(ctx, call, document, HT_DIMS(e->batch, e->keys)));
        if (e->queries != e->keys)
            HT_FAIL(ctx, HT_ESHAPE, "documents need as many queries as keys, not %" PRId64 " and %" PRId64, e->queries,
                    e->keys);
    }
    return HT_OK;
}

static ht_status check_attributes(ht_context *ctx, const ht_call *call)
{
    int64_t causal = ht_call_int(call, "causal");
    double scale = ht_call_float(call, "scale");
    if (causal != 0 && causal != 1) HT_FAIL(ctx, HT_EINVAL, "causal is %" PRId64 ", not 0 or 1", causal);
    if (!isfinite(scale)) HT_FAIL(ctx, HT_EINVAL, "scale is %g, not a finite number", scale);
    return HT_OK;
}

/* q, k and v, which both ops begin with. */
static ht_status check_sides(ht_context *ctx, const ht_call *call, extent *e)
{
    HT_TRY(check_attributes(ctx, call));
    HT_TRY(need_floats(ctx, call, AT_V + 1));
    for (size_t i = AT_Q; i <= AT_V; i++) HT_TRY(ht_need_rank(ctx, call, i, 4));
    *e = extent_of(call);
    if (e->groups == 0 ? e->heads != 0 : e->heads % e->groups != 0)
        HT_FAIL(ctx, HT_ESHAPE, "%" PRId64 " heads are no multiple of %" PRId64 " groups", e->heads, e->groups);
    HT_TRY(need_shape(ctx, call, AT_K, HT_DIMS(e->batch, e->groups, e->keys, e->width)));
    return need_shape(ctx, call, AT_V, HT_DIMS(e->batch, e->groups, e->keys, e->value_width));
}

static ht_status attention_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    extent e;
    HT_TRY(check_sides(ctx, call, &e));
    HT_TRY(check_masks(ctx, call, &e, AT_LENGTHS, AT_DOCUMENT));
    ht_dtype widest = ht_wider(call->in[AT_Q]->dtype, ht_wider(call->in[AT_K]->dtype, call->in[AT_V]->dtype));
    out[0] = ht_type_make(widest, HT_DIMS(e.batch, e.heads, e.queries, e.value_width));
    out[1] = ht_type_make(widest == HT_F64 ? HT_F64 : HT_F32, HT_DIMS(e.batch, e.heads, e.queries));
    return HT_OK;
}

static ht_status attention_grad_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    extent e;
    HT_TRY(check_sides(ctx, call, &e));
    HT_TRY(need_floats(ctx, call, GRAD_DY + 1));
    HT_TRY(need_shape(ctx, call, GRAD_Y, HT_DIMS(e.batch, e.heads, e.queries, e.value_width)));
    HT_TRY(need_shape(ctx, call, GRAD_LSE, HT_DIMS(e.batch, e.heads, e.queries)));
    HT_TRY(need_shape(ctx, call, GRAD_DY, HT_DIMS(e.batch, e.heads, e.queries, e.value_width)));
    HT_TRY(check_masks(ctx, call, &e, GRAD_LENGTHS, GRAD_DOCUMENT));
    for (size_t i = AT_Q; i <= AT_V; i++) out[i] = *call->in[i];
    return HT_OK;
}

/* ---- cost ---- */

enum { SOFTMAX_FLOPS = 5 }; /* of a pair of query and key */

/* Pairs of query and key under the causal mask; masks by lengths and documents are unknown before the run. */
static double pairs_of(const ht_call *call, const extent *e)
{
    double per_head = (double)e->queries * (double)e->keys;
    if (ht_call_int(call, "causal") && e->queries > 0) {
        double first = e->keys >= e->queries ? (double)(e->keys - e->queries + 1) : 1, last = (double)e->keys;
        per_head = (first + last) * (last - first + 1) / 2;
    }
    return (double)e->batch * (double)e->heads * per_head;
}

static void attention_cost(const ht_call *call, ht_cost *cost)
{
    extent e = extent_of(call);
    double pairs = pairs_of(call, &e);
    cost->dot_flops = pairs * 2.0 * (double)(e.width + e.value_width);
    cost->other_flops = pairs * SOFTMAX_FLOPS;
}

/* Five products (scores, dp, dq, dk, dv) instead of two. */
static void attention_grad_cost(const ht_call *call, ht_cost *cost)
{
    extent e = extent_of(call);
    double pairs = pairs_of(call, &e);
    cost->dot_flops = pairs * 2.0 * (3.0 * (double)e.width + 2.0 * (double)e.value_width);
    cost->other_flops = pairs * SOFTMAX_FLOPS;
}

/* ---- gradient ---- */

static ht_status attention_grad(ht_graph *g, const ht_grad *d)
{
    if (!d->dy[0].id || !(d->need[AT_Q] || d->need[AT_K] || d->need[AT_V])) return HT_OK;
    ht_val lengths = input_or_none(d->call, AT_LENGTHS) ? d->x[AT_LENGTHS] : HT_NONE;
    ht_val document = input_or_none(d->call, AT_DOCUMENT) ? d->x[AT_DOCUMENT] : HT_NONE;
    ht_val dx[3] = {HT_NONE};
    ht_emit_n(
        g, "attention_grad", NULL,
        HT_VALS(d->x[AT_Q], d->x[AT_K], d->x[AT_V], d->y[0], d->y[1], d->dy[0], lengths, document),
        HT_ATTRS(HT_INT("causal", ht_call_int(d->call, "causal")), HT_FLOAT("scale", ht_call_float(d->call, "scale"))),
        dx);
    for (size_t i = AT_Q; i <= AT_V; i++)
        if (d->need[i]) d->dx[i] = dx[i];
    return ht_graph_status(g);
}

/* ---- reference ---- */

typedef struct sight {
    extent e;
    const double *lengths, *document; /* NULL: no mask */
    bool causal;
    double scale;
} sight;

static sight sight_of(const ht_call *call, const double *const *in, size_t lengths, size_t document)
{
    sight s = {.e = extent_of(call), .causal = ht_call_int(call, "causal") != 0};
    s.lengths = input_or_none(call, lengths) ? in[lengths] : NULL;
    s.document = input_or_none(call, document) ? in[document] : NULL;
    s.scale = scale_of(call, s.e.width);
    return s;
}

static bool sees(const sight *s, int64_t b, int64_t i, int64_t j)
{
    if (s->lengths && (double)j >= s->lengths[b]) return false;
    if (s->causal && j > i + s->e.keys - s->e.queries) return false;
    return !s->document || s->document[b * s->e.keys + i] == s->document[b * s->e.keys + j];
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++) sum += a[d] * b[d];
    return sum;
}

/* The row of k or v at key j for query head h of sequence b. */
static int64_t key_row(const extent *e, int64_t b, int64_t h, int64_t j)
{
    return (b * e->groups + h / (e->heads / e->groups)) * e->keys + j;
}

static double score(const sight *s, const double *const *in, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const extent *e = &s->e;
    if (!sees(s, b, i, j)) return -INFINITY;
    const double *q = in[AT_Q] + ((b * e->heads + h) * e->queries + i) * e->width;
    return s->scale * dot(q, in[AT_K] + key_row(e, b, h, j) * e->width, e->width);
}

/* One query: its row of y, and lse. */
static double attend(const sight *s, const double *const *in, int64_t b, int64_t h, int64_t i, double *y)
{
    const extent *e = &s->e;
    double max = -INFINITY, sum = 0;
    for (int64_t d = 0; d < e->value_width; d++) y[d] = 0;
    for (int64_t j = 0; j < e->keys; j++) max = fn_max(max, score(s, in, b, h, i, j));
    if (max == -INFINITY) return max;
    for (int64_t j = 0; j < e->keys; j++) {
        if (!sees(s, b, i, j)) continue;
        double weight = exp(score(s, in, b, h, i, j) - max);
        const double *v = in[AT_V] + key_row(e, b, h, j) * e->value_width;
        sum += weight;
        for (int64_t d = 0; d < e->value_width; d++) y[d] += weight * v[d];
    }
    for (int64_t d = 0; d < e->value_width; d++) y[d] /= sum;
    return max + log(sum);
}

static void attention_ref(const ht_call *call, const double *const *in, double *const *out)
{
    sight s = sight_of(call, in, AT_LENGTHS, AT_DOCUMENT);
    int64_t row = 0;
    for (int64_t b = 0; b < s.e.batch; b++)
        for (int64_t h = 0; h < s.e.heads; h++)
            for (int64_t i = 0; i < s.e.queries; i++, row++)
                out[1][row] = attend(&s, in, b, h, i, out[0] + row * s.e.value_width);
}

/* Accumulates the contribution of one query to dq, dk and dv. */
static void attend_grad(const sight *s, const double *const *in, int64_t b, int64_t h, int64_t i, double *const *out)
{
    const extent *e = &s->e;
    int64_t row = (b * e->heads + h) * e->queries + i;
    const double *q = in[AT_Q] + row * e->width, *dy = in[GRAD_DY] + row * e->value_width;
    double lse = in[GRAD_LSE][row], delta = dot(dy, in[GRAD_Y] + row * e->value_width, e->value_width);
    if (lse == -INFINITY) return;
    for (int64_t j = 0; j < e->keys; j++) {
        if (!sees(s, b, i, j)) continue;
        int64_t at = key_row(e, b, h, j);
        const double *k = in[AT_K] + at * e->width, *v = in[AT_V] + at * e->value_width;
        double weight = exp(score(s, in, b, h, i, j) - lse);
        double slope = s->scale * weight * (dot(dy, v, e->value_width) - delta);
        for (int64_t d = 0; d < e->width; d++) out[0][row * e->width + d] += slope * k[d];
        for (int64_t d = 0; d < e->width; d++) out[1][at * e->width + d] += slope * q[d];
        for (int64_t d = 0; d < e->value_width; d++) out[2][at * e->value_width + d] += weight * dy[d];
    }
}

static void attention_grad_ref(const ht_call *call, const double *const *in, double *const *out)
{
    sight s = sight_of(call, in, GRAD_LENGTHS, GRAD_DOCUMENT);
    for (size_t r = 0; r < 3; r++) memset(out[r], 0, (size_t)ht_type_elems(call->out[r]) * sizeof(double));
    for (int64_t b = 0; b < s.e.batch; b++)
        for (int64_t h = 0; h < s.e.heads; h++)
            for (int64_t i = 0; i < s.e.queries; i++) attend_grad(&s, in, b, h, i, out);
}

/* ---- rows ---- */

static const ht_attr_def attention_attrs[] = {HT_DEF_INT("causal", 0), HT_DEF_FLOAT("scale", 0), HT_DEF_END};

static const char *const attention_samples[] = {
    "(f32[2,2,4,3], f32[2,2,5,3], f32[2,2,5,3])",
    "(f32[1,2,5,4], f32[1,2,5,4], f32[1,2,5,4]) causal=1",
    "(f32[1,1,3,4] -2..2, f32[1,1,6,4] -2..2, f32[1,1,6,2]) causal=1 scale=0.7",
    "(f32[1,1,6,2], f32[1,1,4,2], f32[1,1,4,3]) causal=1",
    "(f32[2,4,3,2], f32[2,2,3,2], f32[2,2,3,2], i32[2] 1..3)",
    "(f32[2,2,6,3], f32[2,1,6,3], f32[2,1,6,3], i64[2] 0..6, i32[2,6] 0..2) causal=1",
    "(f32[2,2,6,3], f32[2,2,6,3], f32[2,2,6,3], _, i64[2,6] 0..1)",
    "(f32[2,1,3,2], f32[2,1,0,2], f32[2,1,0,2])",
    "(f32[1,2,0,2], f32[1,2,3,2], f32[1,2,3,2]) causal=1",
    "(f32[1,2,70,6] -2..2, f32[1,1,81,6] -2..2, f32[1,1,81,5]) causal=1",
    "(f32[2,2,5,530], f32[2,1,6,530], f32[2,1,6,540], i32[2] 1..6)",
    NULL,
};

static const char *const attention_grad_samples[] = {
    "(f32[2,2,4,3], f32[2,2,5,3], f32[2,2,5,3], f32[2,2,4,3], f32[2,2,4] 1..2, f32[2,2,4,3])",
    "(f32[1,1,3,4], f32[1,1,6,4], f32[1,1,6,2], f32[1,1,3,2], f32[1,1,3] 1..2, f32[1,1,3,2]) causal=1 scale=0.7",
    "(f32[1,1,6,2], f32[1,1,4,2], f32[1,1,4,3], f32[1,1,6,3], f32[1,1,6] 1..2, f32[1,1,6,3]) causal=1",
    "(f32[2,4,3,2], f32[2,2,3,2], f32[2,2,3,2], f32[2,4,3,2], f32[2,4,3] 1..2, f32[2,4,3,2], i32[2] 1..3)",
    "(f32[2,2,6,3], f32[2,1,6,3], f32[2,1,6,3], f32[2,2,6,3], f32[2,2,6] 1..2, f32[2,2,6,3], i64[2] 0..6,"
    " i32[2,6] 0..2) causal=1",
    "(f32[2,1,3,2], f32[2,1,0,2], f32[2,1,0,2], f32[2,1,3,2], f32[2,1,3], f32[2,1,3,2])",
    "(f32[1,2,0,2], f32[1,2,3,2], f32[1,2,3,2], f32[1,2,0,2], f32[1,2,0], f32[1,2,0,2])",
    "(f32[1,2,70,6], f32[1,1,81,6], f32[1,1,81,5], f32[1,2,70,5], f32[1,2,70] 3..4, f32[1,2,70,5]) causal=1",
    "(f32[2,2,5,530], f32[2,1,6,530], f32[2,1,6,540], f32[2,2,5,540], f32[2,2,5] 1..2, f32[2,2,5,540], i32[2] 1..6)",
    NULL,
};

const ht_op ht_op_attention = {
    .size = sizeof(ht_op),
    .name = "attention",
    .prec = HT_PREC_DOT,
    .fuse = HT_FUSE_NONE,
    .min_in = AT_V + 1,
    .max_in = ATTENTION_INPUTS,
    .n_out = 2,
    .aux_out = 1u << 1,
    .half_in = 1u << AT_Q | 1u << AT_K | 1u << AT_V,
    .f32_out = 1u << 1,
    .attrs = attention_attrs,
    .infer = attention_infer,
    .cost = attention_cost,
    .grad = attention_grad,
    .ref = attention_ref,
    .samples = attention_samples,
};

const ht_op ht_op_attention_grad = {
    .size = sizeof(ht_op),
    .name = "attention_grad",
    .prec = HT_PREC_DOT,
    .fuse = HT_FUSE_NONE,
    .min_in = GRAD_DY + 1,
    .max_in = ATTENTION_GRAD_INPUTS,
    .n_out = 3,
    .half_in = 1u << AT_Q | 1u << AT_K | 1u << AT_V | 1u << GRAD_Y | 1u << GRAD_DY,
    .attrs = attention_attrs,
    .infer = attention_grad_infer,
    .cost = attention_grad_cost,
    .ref = attention_grad_ref,
    .no_grad = "attention keeps only lse for its gradient: there is no second derivative",
    .samples = attention_grad_samples,
};

ht_val ht_attention(ht_graph *g, ht_val q, ht_val k, ht_val v, const ht_attention_opts *opts)
{
    ht_attention_opts standard = {.size = sizeof standard};
    if (!opts) opts = &standard;
    ht_val out[2] = {HT_NONE};
    ht_emit_n(g, "attention", NULL, HT_VALS(q, k, v, opts->lengths, opts->document),
              HT_ATTRS(HT_INT("causal", opts->causal), HT_FLOAT("scale", opts->scale)), out);
    return out[0];
}
