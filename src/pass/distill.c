/* distill: a teacher is joined into the segments that train another model, the student. It reads the same inputs, computes
 * without dropout and with the statistics that it has, and has no gradient. The loss becomes
 *     (1 - alpha) · loss + alpha · T² · Σ KL(softmax(t / T) || softmax(s / T))
 *     + hidden_weight · n · mean((s_h · P - t_h)²)          for each pair of modules; P where their widths differ
 *     + attention_weight · n · mean KL(t_a || s_a)          for each pair, of the rows of attention weights
 * Sums are over the n rows that the loss counts, so that its mean is one of comparable terms. Without `loss_sum`, which stays
 * the student's own, nobody would see what it learned. Teacher and student are found by their losses: cross_entropy of logits. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/distill.h"

enum { LOGITS, PAIRS, MOST_WANTED = 1 + 3 * HT_MOST_MODULE_PAIRS };

typedef struct distiller {
    ht_graph *g;
    const ht_distill_options *options;
    const ht_graph *teacher;
    /* Logits, hidden states, queries and keys, in this order. */
    ht_val wanted[MOST_WANTED]; /* of the teacher, in its graph */
    ht_val taught[MOST_WANTED]; /* the same in g */
    ht_val own[MOST_WANTED];    /* of the student */
    size_t count;
    ht_node attention[HT_MOST_MODULE_PAIRS]; /* the student's nodes */
    /* Of the student's loss. */
    ht_val loss, targets;
    int64_t ignored;
    bool mean;
    ht_val rows; /* how many it counts, as a number; 1 where it is a mean */
} distiller;

/* ---- what there is in a segment ---- */

static const ht_attr *attr_of(const ht_node *n, const char *key)
{
    for (size_t i = 0; i < ht_op_attr_count(n->op); i++)
        if (strcmp(n->op->attrs[i].key, key) == 0) return &n->attr[i];
    return NULL;
}

static const ht_node *find_loss(const ht_graph *g, ht_graph *report, uint32_t segment, const char *who)
{
    const ht_segment *s = &g->segments[segment];
    const ht_node *n = NULL;
    for (size_t i = 0; i < s->output_count; i++)
        if (strcmp(s->outputs[i].name, "loss") == 0) n = ht_producer(g, s->outputs[i].value);
    bool entropy = n && strcmp(n->op->name, "cross_entropy") == 0;
    if (entropy && strcmp(attr_of(n, "reduction")->text, "none") != 0) return n;
    ht_graph_fail(report, HT_ENOTSUP, "distill: the loss of the %s (%s of segment '%s') is no cross_entropy of logits",
                  who, n ? n->op->name : "none", s->name);
    return NULL;
}

static bool is_within(const char *site, const char *module)
{
    size_t length = strlen(module);
    return site && strncmp(site, module, length) == 0 && (site[length] == '\0' || site[length] == '.');
}

static bool is_read_outside(const ht_graph *g, const ht_segment *s, size_t at, ht_val v, const char *module)
{
    for (size_t i = at + 1; i < s->node_count; i++) {
        const ht_node *n = &g->nodes[s->nodes[i]];
        for (size_t k = 0; k < n->n_in && !is_within(n->site, module); k++)
            if (ht_node_in(g, n, k).id == v.id) return true;
    }
    return false;
}

/* The last number that a module makes for others. */
static ht_val find_result(const ht_graph *g, uint32_t segment, const char *module)
{
    const ht_segment *s = &g->segments[segment];
    for (size_t i = s->node_count; i-- > 0;) {
        const ht_node *n = &g->nodes[s->nodes[i]];
        if (!is_within(n->site, module) || n->n_out == 0) continue;
        ht_val v = ht_node_out(n, 0);
        if (ht_dtype_is_float(ht_type_of(g, v)->dtype) && is_read_outside(g, s, i, v, module)) return v;
    }
    return HT_NONE;
}

static const ht_node *find_attention(const ht_graph *g, uint32_t segment, const char *module)
{
    const ht_segment *s = &g->segments[segment];
    for (size_t i = s->node_count; i-- > 0;) {
        const ht_node *n = &g->nodes[s->nodes[i]];
        if (is_within(n->site, module) && strcmp(n->op->name, "attention") == 0) return n;
    }
    return NULL;
}

static ht_status fail_module(const distiller *d, const char *what, const char *who, const char *module)
{
    HT_FAIL(d->g->ctx, HT_EINVAL, "distill: the %s has no module '%s' with %s", who, module, what);
}

static void want(distiller *d, ht_val teacher, ht_val student)
{
    d->wanted[d->count] = teacher;
    d->own[d->count++] = student;
}

static ht_status want_hidden(distiller *d, uint32_t to, uint32_t from)
{
    for (size_t i = 0; i < d->options->hidden_count; i++) {
        const ht_module_pair *pair = &d->options->hidden[i];
        ht_val t = find_result(d->teacher, from, pair->teacher), s = find_result(d->g, to, pair->student);
        if (!t.id) return fail_module(d, "results", "teacher", pair->teacher);
        if (!s.id) return fail_module(d, "results", "student", pair->student);
        want(d, t, s);
    }
    return HT_OK;
}

static bool is_same_attention(const ht_graph *tg, const ht_node *t, const ht_graph *sg, const ht_node *s)
{
    const ht_type *a = ht_type_of(tg, ht_node_in(tg, t, 0)), *b = ht_type_of(sg, ht_node_in(sg, s, 0));
    bool masked = (t->n_in > 4 && ht_node_in(tg, t, 4).id) || (s->n_in > 4 && ht_node_in(sg, s, 4).id);
    return !masked && a->dim[1] == b->dim[1] && a->dim[2] == b->dim[2] &&
           attr_of(t, "causal")->i == attr_of(s, "causal")->i && attr_of(t, "scale")->f == attr_of(s, "scale")->f;
}

static ht_status want_attention(distiller *d, uint32_t to, uint32_t from)
{
    for (size_t i = 0; i < d->options->attention_count; i++) {
        const ht_module_pair *pair = &d->options->attention[i];
        const ht_node *t = find_attention(d->teacher, from, pair->teacher);
        const ht_node *s = find_attention(d->g, to, pair->student);
        if (!t) return fail_module(d, "attention", "teacher", pair->teacher);
        if (!s) return fail_module(d, "attention", "student", pair->student);
        if (!is_same_attention(d->teacher, t, d->g, s))
            HT_FAIL(d->g->ctx, HT_ENOTSUP,
                    "distill: attention of '%s' and '%s' differs in heads or masks, or is within packed documents",
                    pair->teacher, pair->student);
        for (size_t k = 0; k < 2; k++) want(d, ht_node_in(d->teacher, t, k), ht_node_in(d->g, s, k));
        d->attention[i] = *s; /* the builder may move the graph's */
    }
    return HT_OK;
}

static ht_status find_wanted(distiller *d, uint32_t to, uint32_t from)
{
    ht_graph *g = d->g;
    const ht_node *own = find_loss(g, g, to, "student"), *taught = find_loss(d->teacher, g, from, "teacher");
    ht_type_text a, b;
    if (!own || !taught) return g->status;
    ht_val logits = ht_node_in(g, own, 0), other = ht_node_in(d->teacher, taught, 0);
    if (!ht_type_same_shape(ht_type_of(g, logits), ht_type_of(d->teacher, other)))
        HT_FAIL(g->ctx, HT_ESHAPE, "distill: the teacher's logits are %s, the student's %s",
                ht_type_str(ht_type_of(d->teacher, other), &a), ht_type_str(ht_type_of(g, logits), &b));
    d->loss = ht_node_out(own, 0);
    d->targets = ht_node_in(g, own, 1);
    d->ignored = attr_of(own, "ignore_index")->i;
    d->mean = strcmp(attr_of(own, "reduction")->text, "mean") == 0;
    d->count = 0;
    want(d, other, logits);
    HT_TRY(want_hidden(d, to, from));
    return want_attention(d, to, from);
}

/* ---- terms of the loss ---- */

/* Σ over the last axis of p · (log p - log q). */
static ht_val divergence(ht_graph *g, ht_val log_p, ht_val log_q)
{
    return ht_sum(g, ht_mul(g, ht_exp(g, log_p), ht_sub(g, log_p, log_q)), 1, (const int64_t[]){-1}, false);
}

static ht_val soften(ht_graph *g, ht_val logits, double temperature)
{
    return ht_log_softmax(g, ht_scale(g, logits, 1 / temperature), -1);
}

static ht_val emit_answers(distiller *d)
{
    ht_graph *g = d->g;
    double t = d->options->temperature, alpha = d->options->alpha;
    ht_val rows = divergence(g, soften(g, d->taught[LOGITS], t), soften(g, d->own[LOGITS], t));
    ht_val known = ht_ne(g, d->targets, ht_fill_like(g, d->targets, (double)d->ignored));
    ht_val sum = ht_sum(g, ht_select(g, known, rows, ht_fill_like(g, rows, 0)), 0, NULL, false);
    ht_val count = ht_sum(g, ht_cast(g, known, HT_I64), 0, NULL, false);
    ht_val number = ht_cast(g, count, ht_type_of(g, sum)->dtype);
    if (d->mean) sum = ht_div(g, sum, ht_max(g, number, ht_fill_like(g, number, 1)));
    d->rows = d->mean ? ht_fill_like(g, number, 1) : number;
    ht_val taught = ht_scale(g, sum, alpha * t * t);
    return alpha < 1 ? ht_add(g, ht_scale(g, d->loss, 1 - alpha), taught) : taught;
}

static ht_val project(distiller *d, ht_val x, size_t pair, int64_t width)
{
    ht_graph *g = d->g;
    const ht_type type = *ht_type_of(g, x);
    int64_t own = type.dim[type.rank - 1];
    char name[64];
    snprintf(name, sizeof name, HT_DISTILL_PREFIX "projection.%zu.weight", pair);
    ht_val p = ht_find(g, name);
    if (!p.id) p = ht_param(g, name, type.dtype, 2, (const int64_t[]){own, width}, HT_NORMAL(0, 1 / sqrt((double)own)));
    return ht_matmul(g, x, p, NULL);
}

/* Do they differ in the size of the last axis alone? */
static bool differ_in_width(const ht_type *a, const ht_type *b)
{
    if (a->rank != b->rank || a->rank < 2 || a->rank > 3) return false;
    return memcmp(a->dim, b->dim, (size_t)(a->rank - 1) * sizeof a->dim[0]) == 0;
}

static ht_val emit_hidden(distiller *d, size_t pair)
{
    ht_graph *g = d->g;
    ht_val t = d->taught[PAIRS + pair], s = d->own[PAIRS + pair];
    const ht_type want = *ht_type_of(g, t), have = *ht_type_of(g, s);
    ht_type_text a, b;
    if (!ht_type_same_shape(&want, &have) && !differ_in_width(&want, &have)) {
        ht_graph_fail(g, HT_ESHAPE, "distill: '%s' of the teacher is %s, '%s' of the student is %s",
                      d->options->hidden[pair].teacher, ht_type_str(&want, &a), d->options->hidden[pair].student,
                      ht_type_str(&have, &b));
        return HT_NONE;
    }
    if (!ht_type_same_shape(&want, &have)) s = project(d, s, pair, want.dim[want.rank - 1]);
    ht_val error = ht_sub(g, s, t);
    return ht_scale(g, ht_mean(g, ht_mul(g, error, error), 0, NULL, false), d->options->hidden_weight);
}

/* log softmax(scale · q · k' + mask) as [B, G, H/G, Tq, Tk]. `like`: the student's attention. */
static ht_val attention_logs(ht_graph *g, const ht_node *like, ht_val q, ht_val k, ht_val hidden)
{
    const ht_type a = *ht_type_of(g, q), b = *ht_type_of(g, k);
    double scale = attr_of(like, "scale")->f != 0 ? attr_of(like, "scale")->f : 1 / sqrt((double)a.dim[3]);
    ht_matmul_opts opts = {.size = sizeof opts, .transpose_b = true};
    q = ht_reshape(g, q, 5, (const int64_t[]){a.dim[0], b.dim[1], a.dim[1] / b.dim[1], a.dim[2], a.dim[3]});
    k = ht_reshape(g, k, 5, (const int64_t[]){b.dim[0], b.dim[1], 1, b.dim[2], b.dim[3]});
    ht_val scores = ht_scale(g, ht_matmul(g, q, k, &opts), scale);
    if (hidden.id) scores = ht_select(g, hidden, ht_fill_like(g, scores, -1e30), scores);
    scores = ht_log_softmax(g, scores, -1);
    return ht_reshape(g, scores, 4, (const int64_t[]){a.dim[0], a.dim[1], a.dim[2], b.dim[2]});
}

/* Keys that no query may see: [B, 1, 1, Tq, Tk] with sizes 1 where they do not matter; none: all are seen. */
static ht_val hidden_keys(ht_graph *g, const ht_node *n)
{
    const ht_type q = *ht_type_of(g, ht_node_in(g, n, 0)), k = *ht_type_of(g, ht_node_in(g, n, 1));
    int64_t queries = q.dim[2], keys = k.dim[2];
    ht_val lengths = n->n_in > 3 ? ht_node_in(g, n, 3) : HT_NONE, later = HT_NONE, behind = HT_NONE;
    ht_val key = ht_iota(g, HT_I64, 5, (const int64_t[]){1, 1, 1, 1, keys}, 4);
    if (attr_of(n, "causal")->i) {
        ht_val query = ht_iota(g, HT_I64, 5, (const int64_t[]){1, 1, 1, queries, 1}, 3);
        later = ht_gt(g, key, ht_add_scalar(g, query, (double)(keys - queries)));
    }
    if (lengths.id) {
        ht_val length = ht_reshape(g, ht_cast(g, lengths, HT_I64), 5, (const int64_t[]){q.dim[0], 1, 1, 1, 1});
        behind = ht_ge(g, key, length);
    }
    return later.id && behind.id ? ht_or(g, later, behind) : later.id ? later : behind;
}

static ht_val emit_attention(distiller *d, size_t pair)
{
    ht_graph *g = d->g;
    const ht_node n = d->attention[pair];
    size_t at = PAIRS + d->options->hidden_count + 2 * pair;
    ht_val hidden = hidden_keys(g, &n);
    ht_val t = attention_logs(g, &n, d->taught[at], d->taught[at + 1], hidden);
    ht_val s = attention_logs(g, &n, d->own[at], d->own[at + 1], hidden);
    return ht_scale(g, ht_mean(g, divergence(g, t, s), 0, NULL, false), d->options->attention_weight);
}

static ht_val emit_loss(distiller *d)
{
    ht_graph *g = d->g;
    ht_val loss = emit_answers(d), alike = HT_NONE;
    for (size_t i = 0; i < d->options->hidden_count && g->status == HT_OK; i++) {
        ht_val term = emit_hidden(d, i);
        alike = alike.id ? ht_add(g, alike, term) : term;
    }
    for (size_t i = 0; i < d->options->attention_count && g->status == HT_OK; i++) {
        ht_val term = emit_attention(d, i);
        alike = alike.id ? ht_add(g, alike, term) : term;
    }
    return alike.id ? ht_add(g, loss, ht_mul(g, alike, d->rows)) : loss;
}

/* ---- the pass ---- */

/* The teacher first: what it computes on the way is gone before the student keeps its own for backward. */
static ht_status distill_segment(distiller *d, uint32_t to, uint32_t from)
{
    ht_graph *g = d->g;
    ht_rewrite rw;
    HT_TRY(find_wanted(d, to, from));
    if (ht_rewrite_begin(&rw, g, to)) {
        ht_status status = ht_teacher_join(g, to, d->teacher, from, d->count, d->wanted, d->taught);
        for (size_t i = 0; i < rw.count && status == HT_OK; i++) ht_rewrite_keep(&rw, rw.old[i]);
        ht_scope_push(g, "distill");
        ht_val loss = g->status == HT_OK ? emit_loss(d) : HT_NONE;
        ht_scope_pop(g);
        ht_segment *s = &g->segments[to];
        for (size_t i = 0; i < s->output_count && loss.id; i++)
            if (strcmp(s->outputs[i].name, "loss") == 0) s->outputs[i].value = loss;
    }
    return ht_rewrite_end(&rw);
}

static ht_status distill_run(ht_graph *g, const ht_pass_env *env)
{
    const ht_distill_options *options = &env->options->distill;
    distiller d = {.g = g, .options = options, .teacher = options->teacher};
    if (!d.teacher) HT_FAIL(g->ctx, HT_EINVAL, "distill: there is no teacher; halftone compress has one");
    size_t segments = g->segment_count;
    for (uint32_t i = 0; i < segments; i++) {
        const char *name = g->segments[i].name;
        char of_teacher[64];
        if (strcmp(name, "forward") != 0 && strncmp(name, "forward:", 8) != 0) continue;
        snprintf(of_teacher, sizeof of_teacher, "eval%.50s", name + strlen("forward"));
        int from = ht_segment_find(d.teacher, of_teacher);
        if (from < 0) HT_FAIL(g->ctx, HT_EINVAL, "distill: the teacher has no segment '%s'", of_teacher);
        HT_TRY(distill_segment(&d, i, (uint32_t)from));
    }
    return g->status;
}

const ht_pass ht_pass_distill = {
    .name = "distill",
    .help = "join a teacher into what trains, and learn from its answers",
    .run = distill_run,
};
