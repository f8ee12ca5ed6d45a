/* Activation checkpointing: values that forward made and backward reads are not kept but computed again in backward,
 * right before they are read. It changes when things are computed, never what: a node that runs again has the same op,
 * types, site and operands, so its bits are the same.
 *
 * What is dropped is chosen by a policy (ht_recompute_policy). All but `budget` look at the graph alone; `budget` asks
 * the model (recompute_model.h) for the fastest choice that fits, and the planner whether it does. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pass/recompute_model.h"

extern const ht_pass ht_pass_dce, ht_pass_regions, ht_pass_recompute;

/* ---- emission ---- */

typedef struct recomputer {
    ht_graph *g;
    const ht_recompute_model *m;
    const bool *dropped;
    ht_rewrite rw;
    ht_val *again; /* by value id of what was there before: its second edition, or none */
} recomputer;

static ht_val value_again(recomputer *r, ht_val v);

/* Emits a node a second time, and what it reads and is not at hand before it. */
static void run_again(recomputer *r, uint32_t node)
{
    ht_graph *g = r->g;
    ht_node n = g->nodes[node];
    ht_val few[8], *in = n.n_in <= 8 ? few : HT_NEW(r->m->arena, ht_val, n.n_in), out[8];
    ht_type want[8];
    if (!in) {
        ht_graph_fail(g, HT_ENOMEM, "recompute: out of memory");
        return;
    }
    for (size_t i = 0; i < n.n_in; i++) in[i] = value_again(r, ht_node_in(g, &n, i));
    for (size_t i = 0; i < n.n_out; i++) want[i] = g->values[n.out + i].type;
    ht_emit(g, n.op, n.n_in, in, ht_op_attr_count(n.op), n.attr, want, out);
    if (g->status != HT_OK) return;
    ht_node *clone = &g->nodes[g->node_count - 1];
    clone->role = n.role;
    clone->site = n.site;
    clone->full = n.full;
    clone->was = n.was;
    clone->no_merge = true;
    clone->recomputed = true;
    for (size_t i = 0; i < n.n_out; i++) r->again[n.out + i] = out[i];
}

static ht_val value_again(recomputer *r, ht_val v)
{
    if (!v.id || ht_recompute_at_hand(r->m, r->dropped, v)) return v;
    if (!r->again[v.id].id) run_again(r, ht_value_of(r->g, v)->owner);
    return r->again[v.id];
}

static ht_status rewrite_segment(ht_graph *g, uint32_t segment, const ht_recompute_model *m, const bool *dropped)
{
    size_t values = g->value_count;
    recomputer r = {.g = g, .m = m, .dropped = dropped, .again = calloc(values, sizeof(ht_val))};
    if (!r.again) HT_FAIL(g->ctx, HT_ENOMEM, "recompute: out of memory");
    if (ht_rewrite_begin(&r.rw, g, segment)) {
        for (size_t at = 0; at < r.rw.count && g->status == HT_OK; at++) {
            const ht_node n = g->nodes[r.rw.old[at]];
            for (size_t i = 0; ht_node_is_backward(&n) && i < n.n_in && g->status == HT_OK; i++) {
                ht_val v = ht_node_in(g, &n, i);
                const ht_node *producer = v.id && v.id < values ? ht_producer(g, v) : NULL;
                if (!producer || !ht_node_is_forward(producer)) continue;
                ht_val again = value_again(&r, v);
                g->operands[n.in + i] = again;
            }
            ht_rewrite_keep(&r.rw, r.rw.old[at]);
        }
    }
    ht_status status = ht_rewrite_end(&r.rw);
    free(r.again);
    return status;
}

/* ---- policies that look at the graph ---- */

/* Ops that cost bandwidth and little else. Numbers drawn again cost arithmetic. */
static bool is_cheap(const ht_node *n, bool attention_too)
{
    if (attention_too && strcmp(n->op->name, "attention") == 0) return true;
    return n->op->prec != HT_PREC_DOT && strncmp(n->op->name, "random_", 7) != 0;
}

/* A sum is not worth reading all its terms again. */
static bool is_large(const ht_recompute_model *m, const ht_node *n, uint32_t v)
{
    enum { SMALLEST_SHARE = 8 };
    int64_t most = 0;
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val in = ht_node_in(m->g, n, i);
        int64_t bytes = in.id ? ht_type_distinct_bytes(ht_type_of(m->g, in)) : 0;
        if (bytes > most) most = bytes;
    }
    return ht_type_bytes(&m->g->values[v].type) >= most / SMALLEST_SHARE;
}

/* By value id: can it be had again by cheap nodes alone, if all that can is dropped? In order. */
static void drop_cheap(const ht_recompute_model *m, bool attention_too, bool *cheap, bool *dropped)
{
    const ht_graph *g = m->g;
    for (size_t at = 0; at < m->s->node_count; at++) {
        const ht_node *n = &g->nodes[m->s->nodes[at]];
        bool all = n->role == HT_ROLE_FWD && !m->fixed[m->s->nodes[at]] && is_cheap(n, attention_too);
        for (size_t i = 0; i < n->n_in && all; i++) {
            ht_val v = ht_node_in(g, n, i);
            all = !v.id || cheap[m->root[v.id].id] || ht_recompute_at_hand(m, dropped, v);
        }
        for (uint32_t v = n->out; v < n->out + n->n_out; v++) {
            cheap[v] = all;
            if (all && m->candidate_of[v] && is_large(m, n, v)) dropped[m->candidate_of[v] - 1] = true;
        }
    }
}

/* The length of the part of a site that names its layer: up to and with the first part that is a number, "h.3" of
 * "h.3.attn"; 0: there is none. */
static size_t layer_length(const char *site)
{
    for (const char *part = site, *end; part && *part; part = *end ? end + 1 : end) {
        end = part + strcspn(part, ".");
        const char *at = part;
        while (at < end && isdigit((unsigned char)*at)) at++;
        if (at == end && end > part) return (size_t)(end - site);
    }
    return 0;
}

/* Without numbers: the whole site but its last part, or all of it. */
static size_t module_length(const char *site)
{
    const char *dot = site ? strchr(site, '.') : NULL;
    return !site ? 0 : dot ? (size_t)(dot - site) : strlen(site);
}

static bool has_numbers(const ht_recompute_model *m)
{
    for (size_t at = 0; at < m->s->node_count; at++) {
        const ht_node *n = &m->g->nodes[m->s->nodes[at]];
        if (n->role == HT_ROLE_FWD && n->site && layer_length(n->site)) return true;
    }
    return false;
}

/* By node id: the number of its layer from 1, in order; 0: none. Returns how many there are. */
static uint32_t number_layers(const ht_recompute_model *m, uint32_t *layer)
{
    bool numbered = has_numbers(m);
    const char *last = NULL;
    size_t last_length = 0;
    uint32_t count = 0;
    for (size_t at = 0; at < m->s->node_count; at++) {
        const ht_node *n = &m->g->nodes[m->s->nodes[at]];
        if (n->role != HT_ROLE_FWD || !n->site) continue;
        size_t length = numbered ? layer_length(n->site) : module_length(n->site);
        if (!length) continue;
        if (!last || length != last_length || memcmp(last, n->site, length) != 0) count++;
        last = n->site;
        last_length = length;
        layer[m->s->nodes[at]] = count;
    }
    return count;
}

/* What one block alone reads in forward is dropped; blocks by node id. */
static void drop_inside(const ht_recompute_model *m, const uint32_t *block, bool *crosses, bool *dropped)
{
    const ht_graph *g = m->g;
    for (size_t at = 0; at < m->s->node_count; at++) {
        const ht_node *n = &g->nodes[m->s->nodes[at]];
        for (size_t i = 0; n->role == HT_ROLE_FWD && i < n->n_in; i++) {
            ht_val v = ht_node_in(g, n, i);
            const ht_node *producer = v.id ? ht_producer(g, v) : NULL;
            if (producer && block[producer - g->nodes] != block[m->s->nodes[at]]) crosses[m->root[v.id].id] = true;
        }
    }
    for (size_t i = 0; i < m->s->output_count; i++) crosses[m->root[m->s->outputs[i].value.id].id] = true;
    for (size_t i = 0; i < m->candidate_count; i++) {
        uint32_t v = m->candidates[i].value.id;
        dropped[i] = block[g->values[v].owner] && !crosses[v];
    }
}

static void group_layers(const ht_recompute_model *m, uint32_t *layer, uint32_t count, uint32_t groups)
{
    for (size_t at = 0; at < m->s->node_count; at++) {
        uint32_t *own = &layer[m->s->nodes[at]];
        if (*own) *own = 1 + (uint32_t)((uint64_t)(*own - 1) * groups / count);
    }
}

static void drop_layers(const ht_recompute_model *m, const ht_recompute_options *o, uint32_t *block, bool *crosses,
                        bool *dropped)
{
    if (o->policy == HT_RECOMPUTE_MARKED) {
        for (uint32_t id = 1; id < m->g->node_count; id++) block[id] = m->g->nodes[id].checkpoint;
    } else {
        uint32_t count = number_layers(m, block), groups = count;
        if (o->policy == HT_RECOMPUTE_SQRT) groups = (uint32_t)lround(sqrt((double)count));
        if (o->checkpoints && o->checkpoints < (int64_t)count) groups = (uint32_t)o->checkpoints;
        if (groups) group_layers(m, block, count, groups);
    }
    drop_inside(m, block, crosses, dropped);
}

static ht_status drop_by_policy(const ht_recompute_model *m, const ht_recompute_options *o, bool *dropped)
{
    uint32_t *block = calloc(m->g->node_count, sizeof *block);
    bool *marks = calloc(m->g->value_count, sizeof *marks), ok = block && marks;
    if (ok && (o->policy == HT_RECOMPUTE_CHEAP || o->policy == HT_RECOMPUTE_SELECTIVE))
        drop_cheap(m, o->policy == HT_RECOMPUTE_SELECTIVE, marks, dropped);
    else if (ok)
        drop_layers(m, o, block, marks, dropped);
    free(block);
    free(marks);
    return ok ? HT_OK : ht_fail(m->g->ctx, HT_ENOMEM, "recompute: out of memory");
}

/* ---- a budget ---- */

typedef struct budget {
    ht_graph *g;
    const ht_pass_env *env;
    int64_t bytes;            /* of the plan in main */
    ht_memory_profile before; /* of the graph as it is */
} budget;

static bool has_backward(const ht_graph *g, const ht_segment *s)
{
    for (size_t at = 0; at < s->node_count; at++)
        if (ht_node_is_backward(&g->nodes[s->nodes[at]])) return true;
    return false;
}

/* What stays of the graph once its segments are rewritten. */
static ht_status tidy(ht_graph *g, const ht_pass_env *env)
{
    HT_TRY(ht_pass_dce.run(g, env));
    return ht_pass_regions.run(g, env);
}

/* A choice for every segment, on a graph that may be a clone: transients of at most `limit` bytes, as far as can be
 * told. *seconds: what it costs, of the dearest segment. */
static ht_status drop_to(const budget *b, ht_graph *g, int64_t limit, double *seconds)
{
    *seconds = 0;
    for (uint32_t s = 0; s < g->segment_count; s++) {
        ht_recompute_model m;
        if (!has_backward(g, &g->segments[s])) continue;
        ht_status status = ht_recompute_model_open(&m, g, s, b->env->target, &b->before);
        bool *dropped = calloc(m.candidate_count + 1, sizeof *dropped);
        if (status == HT_OK && !dropped) status = ht_fail(g->ctx, HT_ENOMEM, "recompute: out of memory");
        if (status == HT_OK) status = drop_by_policy(&m, &(ht_recompute_options){.policy = HT_RECOMPUTE_ALL}, dropped);
        if (status == HT_OK) {
            ht_recompute_choose(&m, limit, dropped);
            double own = ht_recompute_try(&m, dropped, limit).seconds;
            if (own > *seconds) *seconds = own;
            status = rewrite_segment(g, s, &m, dropped);
        }
        free(dropped);
        ht_recompute_model_close(&m);
        HT_TRY(status);
    }
    return tidy(g, b->env);
}

/* A limit tried on a clone of the graph. */
typedef struct trial {
    int64_t limit;
    int64_t plan_bytes;
    double seconds;
} trial;

static ht_status try_limit(const budget *b, trial *t)
{
    ht_graph *clone;
    ht_memory_profile after = {0};
    HT_TRY(ht_graph_clone(&clone, b->g));
    ht_status status = drop_to(b, clone, t->limit, &t->seconds);
    if (status == HT_OK) status = b->env->measure(b->env->measure_arg, &ht_pass_recompute, clone, &after);
    t->plan_bytes = after.plan_bytes[HT_SPACE_MAIN];
    ht_memory_profile_free(&after);
    ht_graph_free(clone);
    return status;
}

/* The limit on transients for which the plan fits: the model does not know how buffers are laid out, so what it missed
 * by is taken off, and tried again; then half of what was left over is given back. */
static ht_status find_limit(const budget *b, trial *best)
{
    enum { TRIES = 6 };
    int64_t lasting = b->before.plan_bytes[HT_SPACE_MAIN] - ht_memory_transients(&b->before);
    trial t = {.limit = b->bytes - lasting};
    *best = (trial){0};
    for (int i = 0; i < TRIES && t.limit > 0; i++) {
        HT_TRY(try_limit(b, &t));
        int64_t over = t.plan_bytes - b->bytes;
        if (over <= 0 && (!best->limit || t.seconds < best->seconds)) *best = t;
        if (over == 0 || (best->limit && -over < b->bytes / 256)) break;
        t.limit -= best->limit ? over / 2 : over;
    }
    return HT_OK;
}

/* The smallest plan that can be found: what is computed again takes memory, too, so less is not always less. */
static ht_status find_smallest(const budget *b, trial *best)
{
    enum { TRIES = 8 };
    *best = (trial){.limit = 1};
    HT_TRY(try_limit(b, best));
    for (int i = 1; i < TRIES; i++) {
        trial t = {.limit = ht_memory_transients(&b->before) / TRIES * i};
        HT_TRY(try_limit(b, &t));
        if (t.plan_bytes < best->plan_bytes) *best = t;
    }
    return HT_OK;
}

static ht_status drop_to_fit(const budget *b)
{
    trial found;
    HT_TRY(find_limit(b, &found));
    if (!found.limit) HT_TRY(find_smallest(b, &found));
    if (found.plan_bytes > b->bytes)
        HT_FAIL(
            b->g->ctx, HT_EINVAL,
            "recompute: no plan takes at most %lld bytes in main: the smallest takes smallest_bytes=%lld, for about "
            "%.3g ms of recomputation in each backward pass",
            (long long)b->bytes, (long long)found.plan_bytes, found.seconds * 1e3);
    ht_note(
        b->g->ctx, HT_LOG_INFO,
        "recompute: a plan of %lld bytes in main instead of %lld, at most %lld; about %.3g ms more in each backward "
        "pass",
        (long long)found.plan_bytes, (long long)b->before.plan_bytes[HT_SPACE_MAIN], (long long)b->bytes,
        found.seconds * 1e3);
    return drop_to(b, b->g, found.limit, &found.seconds);
}

static ht_status fit_budget(ht_graph *g, const ht_pass_env *env)
{
    const ht_recompute_options *o = &env->options->recompute;
    budget b = {.g = g, .env = env};
    if (!env->measure) HT_FAIL(g->ctx, HT_EINVAL, "recompute: a budget needs a planner, and there is none here");
    HT_TRY(env->measure(env->measure_arg, &ht_pass_recompute, g, &b.before));
    int64_t now = b.before.plan_bytes[HT_SPACE_MAIN], most = ht_memory_transients(&b.before);
    b.bytes = o->budget_bytes ? o->budget_bytes : env->target->memory_bytes[HT_SPACE_MAIN];
    if (!o->budget_bytes && o->share > 0) b.bytes = now - most + (int64_t)((double)most * o->share);
    ht_status status = b.bytes && now > b.bytes ? drop_to_fit(&b) : HT_OK;
    ht_memory_profile_free(&b.before);
    return status;
}

/* ---- the pass ---- */

static bool has_marks(const ht_graph *g)
{
    for (size_t i = 1; i < g->node_count; i++)
        if (g->nodes[i].checkpoint) return true;
    return false;
}

static ht_status apply_policy(ht_graph *g, const ht_pass_env *env)
{
    for (uint32_t s = 0; s < g->segment_count; s++) {
        ht_recompute_model m;
        if (!has_backward(g, &g->segments[s])) continue;
        ht_status status = ht_recompute_model_open(&m, g, s, env->target, NULL);
        bool *dropped = calloc(m.candidate_count + 1, sizeof *dropped);
        if (status == HT_OK && !dropped) status = ht_fail(g->ctx, HT_ENOMEM, "recompute: out of memory");
        if (status == HT_OK) status = drop_by_policy(&m, &env->options->recompute, dropped);
        if (status == HT_OK) status = rewrite_segment(g, s, &m, dropped);
        free(dropped);
        ht_recompute_model_close(&m);
        HT_TRY(status);
    }
    return tidy(g, env);
}

static bool recompute_idle(const ht_graph *g, const ht_pass_options *options)
{
    ht_recompute_policy policy = options->recompute.policy;
    return policy == HT_RECOMPUTE_NONE || (policy == HT_RECOMPUTE_MARKED && !has_marks(g));
}

static ht_status recompute_run(ht_graph *g, const ht_pass_env *env)
{
    ht_recompute_policy policy = env->options->recompute.policy;
    if (recompute_idle(g, env->options)) return HT_OK;
    return policy == HT_RECOMPUTE_BUDGET ? fit_budget(g, env) : apply_policy(g, env);
}

/* ---- options ---- */

#define RECOMPUTE(field) .at = offsetof(ht_recompute_options, field)
static const ht_setting_key keys[] = {
    {.name = "recompute",
     .kind = HT_SETTING_CHOICE,
     RECOMPUTE(policy),
     .words = "none|marked|cheap|selective|all|sqrt|budget", /* as ht_recompute_policy */
     .help = "what backward computes again instead of keeping it"},
    {.name = "recompute_checkpoints",
     .kind = HT_SETTING_WHOLE,
     RECOMPUTE(checkpoints),
     .low = 0,
     .high = 1e9,
     .help = "of recompute=all: groups of layers; 0: each layer is one"},
    {.name = "recompute_bytes",
     .kind = HT_SETTING_WHOLE,
     RECOMPUTE(budget_bytes),
     .low = 0,
     .high = 1e18,
     .help = "of recompute=budget: bytes of the plan in main; 0: recompute_share counts"},
    {.name = "recompute_share",
     .kind = HT_SETTING_BOUNDED,
     RECOMPUTE(share),
     .low = 0,
     .high = 1,
     .help = "of recompute=budget: of the transients without it; 0: what the machine's memory leaves"},
    {.name = NULL}};
#undef RECOMPUTE

static const ht_pass_settings settings[] = {{keys, offsetof(ht_pass_options, recompute)}, {NULL, 0}};

const ht_pass ht_pass_recompute = {
    .name = "recompute",
    .help = "compute again in backward what would take memory to keep",
    .system = true,
    .keeps_step = true,
    .run = recompute_run,
    .idle = recompute_idle,
    .settings = settings,
};
