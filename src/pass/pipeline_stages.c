/* Pipeline parallel training, before gradients: of every segment of the model a rank keeps the nodes of its stage.
 *
 * A node has a place in the row of stages if it computes something of data and of the model's state, or stores. All others
 * (masks, positions, views of weights) are computed by every stage that needs them. The segment "forward" is cut by cost
 * (pipeline_balance.c); other segments follow the parameters that their nodes read. A value that a later stage reads goes
 * from stage to stage up to the last one that does.
 *
 * Outputs are those of the last stage; on others they are zeros that stand for them. The model hash stays: what is
 * received, and zeros, have the hash of what they replace (`was`). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/param_patterns.h"
#include "pass/pipeline_balance.h"
#include "pass/train_options.h"

static const double BYTE_MOVED = 4; /* in memory: as long as so many FLOPs */

/* What a value follows from. */
enum { FROM_DATA = 1, FROM_MODEL = 2, FROM_TRAINED = 4 };

typedef struct cutter {
    ht_graph *g;
    int64_t stages, stage;
    uint64_t *held; /* by value id of a state: the stages whose nodes name it */
    bool *named;    /* by value id of a state: a node of the whole model names it */
    /* Of the segment at hand. */
    uint32_t segment;
    bool forward;      /* it is differentiated */
    uint8_t *follows;  /* by value id */
    bool *stored;      /* by value id of a state: the segment stores it */
    bool *needs;       /* by value id: its gradient is asked for */
    bool *live;        /* by value id: the loss depends on it */
    int *stage_of;     /* by node id: -1: computed wherever it is needed */
    bool *only_stored; /* by node id: a store, or nothing but stores follows from it */
    uint64_t *wanted;  /* by node id of a node without a place: by which stages */
    int *last;         /* by value id of a node with a place: the last stage that reads it */
} cutter;

static uint64_t bit(int64_t stage)
{
    return UINT64_C(1) << stage;
}

static const ht_segment *segment_of(const cutter *c)
{
    return &c->g->segments[c->segment];
}

static bool is_forward(const ht_segment *s)
{
    return strcmp(s->name, "forward") == 0 || strncmp(s->name, "forward:", 8) == 0;
}

static bool is_model_state(const cutter *c, ht_val v)
{
    const ht_state *s = ht_state_of(c->g, v);
    return s && s->heading != HT_HEADING_SCALARS;
}

/* ---- what has a place ---- */

static void look_at_states(cutter *c)
{
    ht_graph *g = c->g;
    const ht_segment *s = segment_of(c);
    for (size_t i = 0; i < s->node_count; i++) {
        const ht_node *n = &g->nodes[s->nodes[i]];
        if (n->op == &ht_op_store) c->stored[ht_node_in(g, n, 0).id] = true;
    }
    for (size_t i = 0; i < g->state_count; i++) {
        ht_val v = g->states[i].value;
        c->follows[v.id] = is_model_state(c, v) ? FROM_MODEL : FROM_DATA;
        if (g->states[i].trained) c->follows[v.id] |= FROM_TRAINED;
        if (c->stored[v.id]) c->follows[v.id] |= FROM_DATA | FROM_MODEL;
        c->needs[v.id] = g->states[i].trained;
    }
    for (size_t i = 0; i < s->input_count; i++) c->follows[s->inputs[i].id] = FROM_DATA;
}

/* Before any node has a stage, those with a place have 0. */
static void find_places(cutter *c)
{
    ht_graph *g = c->g;
    const ht_segment *s = segment_of(c);
    look_at_states(c);
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        uint8_t follows = 0;
        bool needs = false;
        for (size_t i = 0; i < n->n_in; i++) {
            follows |= c->follows[ht_node_in(g, n, i).id];
            needs |= c->needs[ht_node_in(g, n, i).id];
        }
        bool effect = (n->op->flags | (n->op->start ? n->op->start->flags : 0)) & HT_OP_EFFECT;
        bool placed = effect || (follows & (FROM_DATA | FROM_MODEL)) == (FROM_DATA | FROM_MODEL);
        c->stage_of[s->nodes[at]] = placed ? 0 : -1;
        for (size_t i = 0; i < n->n_out; i++) {
            bool floats = ht_dtype_is_float(ht_type_of(g, ht_node_out(n, i))->dtype) && !(n->op->aux_out >> i & 1);
            c->follows[n->out + i] = placed ? FROM_DATA | FROM_MODEL : follows;
            c->needs[n->out + i] = needs && floats;
        }
    }
}

static void find_live(cutter *c)
{
    ht_graph *g = c->g;
    const ht_segment *s = segment_of(c);
    for (size_t i = 0; i < s->output_count; i++)
        if (strcmp(s->outputs[i].name, "loss") == 0) c->live[s->outputs[i].value.id] = true;
    for (size_t at = s->node_count; at-- > 0;) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        bool live = false;
        for (size_t i = 0; i < n->n_out; i++) live |= c->live[n->out + i] && !(n->op->aux_out >> i & 1);
        for (size_t i = 0; live && i < n->n_in; i++) c->live[ht_node_in(g, n, i).id] = true;
    }
}

/* Stores stand at the end of a segment, and belong to where what they store is made. */
static void find_only_stored(cutter *c)
{
    ht_graph *g = c->g;
    const ht_segment *s = segment_of(c);
    bool *read = c->live; /* by value id: something else reads it; live is found behind it */
    for (size_t i = 0; i < s->output_count; i++) read[s->outputs[i].value.id] = true;
    for (size_t at = s->node_count; at-- > 0;) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        bool only = n->op == &ht_op_store ||
                    (n->n_out > 0 && c->stage_of[s->nodes[at]] >= 0 && !(n->op->flags & HT_OP_EFFECT) && !n->op->start);
        for (size_t i = 0; i < n->n_out; i++) only &= !read[n->out + i];
        c->only_stored[s->nodes[at]] = only;
        for (size_t i = 0; !only && i < n->n_in; i++) read[ht_node_in(g, n, i).id] = true;
    }
    memset(read, 0, g->value_count * sizeof *read);
}

/* The last stage that reads the state, or makes what is stored: whatever leads to a store, or else names its state. */
static int stage_of_store(const cutter *c, const ht_node *n)
{
    const ht_graph *g = c->g;
    int stage = -1;
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(g, n, i);
        const ht_node *p = ht_producer(g, v);
        int from = p ? c->stage_of[p - g->nodes] : c->stored[v.id] ? c->last[v.id] : -1;
        if (from > stage) stage = from;
    }
    return stage;
}

static void place_stores(cutter *c)
{
    ht_graph *g = c->g;
    const ht_segment *s = segment_of(c);
    int *last = c->last; /* of a state: the last stage whose nodes read it; of what is stored: that of its store */
    memset(last, 0xff, g->value_count * sizeof *last);
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        int stage = c->only_stored[s->nodes[at]] ? -1 : c->stage_of[s->nodes[at]];
        for (size_t i = 0; i < n->n_in; i++)
            if (stage > last[ht_node_in(g, n, i).id]) last[ht_node_in(g, n, i).id] = stage;
    }
    for (size_t at = 0; at < s->node_count; at++)
        if (c->only_stored[s->nodes[at]]) c->stage_of[s->nodes[at]] = stage_of_store(c, &g->nodes[s->nodes[at]]);
    for (size_t at = s->node_count; at-- > 0;) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        int *stage = &c->stage_of[s->nodes[at]];
        if (!c->only_stored[s->nodes[at]]) continue;
        for (size_t i = 0; i < n->n_out; i++)
            if (last[n->out + i] > *stage) *stage = last[n->out + i];
        if (*stage < 0) *stage = 0;
        for (size_t i = 0; i < n->n_in; i++)
            if (*stage > last[ht_node_in(g, n, i).id]) last[ht_node_in(g, n, i).id] = *stage;
    }
    memset(last, 0, g->value_count * sizeof *last);
}

/* ---- stages by cost ---- */

/* Bytes of values that are made before a cut and read behind it; a pair stays together. */
static void count_sent(const cutter *c, ht_pipeline_places *p)
{
    const ht_graph *g = c->g;
    const ht_segment *s = segment_of(c);
    size_t *last = calloc(g->value_count, sizeof *last);
    double *change = calloc(p->count + 2, sizeof *change);
    for (size_t at = 0; last && at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        bool counts = c->stage_of[s->nodes[at]] >= 0 && !c->only_stored[s->nodes[at]];
        for (size_t i = 0; counts && i < n->n_in; i++) last[ht_node_in(g, n, i).id] = at;
    }
    for (size_t i = 0; last && i < s->output_count; i++) last[s->outputs[i].value.id] = s->node_count;
    for (size_t at = 0; last && change && at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        for (size_t i = 0; c->stage_of[s->nodes[at]] >= 0 && i < n->n_out; i++) {
            size_t end = last[n->out + i];
            if (end <= at) continue;
            change[at + 1] += (double)ht_type_bytes(ht_type_of(g, ht_node_out(n, i)));
            change[end + 1] -= (double)ht_type_bytes(ht_type_of(g, ht_node_out(n, i)));
            for (size_t k = at + 1; n->op->done && k <= end; k++) p->refused[k] = true;
        }
    }
    for (size_t at = 0; change && at <= p->count; at++) p->bytes[at] = (at ? p->bytes[at - 1] : 0) + change[at];
    if (!last || !change) ht_graph_fail(c->g, HT_ENOMEM, "pipeline: out of memory");
    free(last);
    free(change);
}

static void count_costs(const cutter *c, ht_pipeline_places *p)
{
    ht_graph *g = c->g;
    const ht_segment *s = segment_of(c);
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        ht_call_storage storage;
        const ht_call *call = ht_node_call(g, n, g->arena, &storage);
        if (c->stage_of[s->nodes[at]] < 0 || n->op == &ht_op_store || !call) continue;
        ht_cost cost = ht_call_cost(call);
        p->cost[at] = ht_cost_flops(cost) + BYTE_MOVED * cost.bytes;
        for (size_t i = 0; i < n->n_in; i++)
            p->has_weight[at] |= (c->follows[ht_node_in(g, n, i).id] & FROM_TRAINED) != 0;
    }
    count_sent(c, p);
}

static ht_status balance(const cutter *c, ht_pipeline_places *p, size_t *cuts)
{
    ht_graph *g = c->g;
    bool found = false;
    count_costs(c, p);
    HT_TRY(g->status);
    HT_TRY(ht_pipeline_balance(g->ctx, p, c->stages, cuts, &found));
    if (found) return HT_OK;
    HT_FAIL(g->ctx, HT_EINVAL,
            "pipeline: this model cannot be cut into %lld stages (halftone.parallel.pipeline) that each have a "
            "parameter to train",
            (long long)c->stages);
}

static ht_status cut_forward(cutter *c)
{
    const ht_segment *s = segment_of(c);
    size_t count = s->node_count, cuts[HT_MOST_STAGES];
    ht_pipeline_places p = {.count = count,
                            .cost = calloc(count + 1, sizeof *p.cost),
                            .bytes = calloc(count + 2, sizeof *p.bytes),
                            .refused = calloc(count + 2, sizeof *p.refused),
                            .has_weight = calloc(count + 1, sizeof *p.has_weight)};
    ht_status status = p.cost && p.bytes && p.refused && p.has_weight
                           ? balance(c, &p, cuts)
                           : ht_fail(c->g->ctx, HT_ENOMEM, "pipeline: out of memory");
    for (size_t at = 0, stage = 0; at < count && status == HT_OK; at++) {
        while (stage + 1 < (size_t)c->stages && at >= cuts[stage]) stage++;
        if (c->stage_of[s->nodes[at]] >= 0) c->stage_of[s->nodes[at]] = (int)stage;
    }
    free(p.cost);
    free(p.bytes);
    free(p.refused);
    free(p.has_weight);
    return status;
}

/* ---- stages by parameters ---- */

/* Stages that hold all of the state that v, no result of a node with a place, follows from. */
static uint64_t holders(const cutter *c, ht_val v)
{
    const ht_graph *g = c->g;
    const ht_node *n = ht_producer(g, v);
    uint64_t all = UINT64_MAX;
    if (ht_state_of(g, v)) return is_model_state(c, v) && c->held[v.id] ? c->held[v.id] : all;
    for (size_t i = 0; n && c->stage_of[n - g->nodes] < 0 && i < n->n_in; i++) all &= holders(c, ht_node_in(g, n, i));
    return all;
}

/* Nodes between two that read parameters go with the first of them. */
static ht_status follow_parameters(cutter *c)
{
    ht_graph *g = c->g;
    const ht_segment *s = segment_of(c);
    int stage = 0;
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        if (c->stage_of[s->nodes[at]] < 0) continue;
        uint64_t held = UINT64_MAX;
        for (size_t i = 0; i < n->n_in; i++) held &= holders(c, ht_node_in(g, n, i));
        while (stage < c->stages && !(held >> stage & 1)) stage++;
        if (stage == c->stages)
            HT_FAIL(g->ctx, HT_ENOTSUP,
                    "pipeline: segment '%s' reads its parameters in another order than 'forward', at %s%s%s: with "
                    "halftone.parallel.pipeline this is not there yet",
                    s->name, n->op->name, n->site ? " of " : "", n->site ? n->site : "");
        c->stage_of[s->nodes[at]] = stage;
    }
    return HT_OK;
}

/* ---- who needs what ---- */

/* A stage names v: a state is held there, and what has no place is computed there. */
static void want(cutter *c, ht_val v, int stage)
{
    const ht_graph *g = c->g;
    const ht_node *n = ht_producer(g, v);
    if (ht_state_of(g, v)) c->held[v.id] |= bit(stage);
    if (!n) return;
    uint32_t id = (uint32_t)(n - g->nodes);
    if (c->stage_of[id] >= 0) {
        if (stage > c->last[v.id]) c->last[v.id] = stage;
        return;
    }
    if (c->wanted[id] & bit(stage)) return;
    c->wanted[id] |= bit(stage);
    for (size_t i = 0; i < n->n_in; i++) want(c, ht_node_in(g, n, i), stage);
}

static void find_readers(cutter *c)
{
    const ht_graph *g = c->g;
    const ht_segment *s = segment_of(c);
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        for (size_t i = 0; c->stage_of[s->nodes[at]] >= 0 && i < n->n_in; i++)
            want(c, ht_node_in(g, n, i), c->stage_of[s->nodes[at]]);
    }
    for (size_t i = 0; i < s->output_count; i++) want(c, s->outputs[i].value, (int)c->stages - 1);
}

/* What a step changes is changed by one stage. */
static ht_status check_stored(const cutter *c)
{
    const ht_graph *g = c->g;
    for (size_t i = 0; i < g->state_count; i++) {
        ht_val v = g->states[i].value;
        uint64_t held = c->held[v.id];
        if (c->stored[v.id] && (held & (held - 1)))
            HT_FAIL(g->ctx, HT_ENOTSUP,
                    "pipeline: several stages would change '%s': with halftone.parallel.pipeline this is not there yet",
                    ht_value_of(g, v)->name);
    }
    return HT_OK;
}

/* ---- the graph of one stage ---- */

static const char *gradient_of(const cutter *c, ht_val v)
{
    return c->forward && c->needs[v.id] && c->live[v.id] ? "peer" : "none";
}

/* Does v go over the cut before a stage? */
static bool crosses(const cutter *c, const ht_node *n, ht_val v, int64_t stage)
{
    int from = c->stage_of[n - c->g->nodes];
    return from >= 0 && from < stage && c->last[v.id] >= stage;
}

static void receive(cutter *c, ht_rewrite *rw, const uint64_t *hashes)
{
    ht_graph *g = c->g;
    for (size_t at = 0; at < rw->count && g->status == HT_OK; at++) {
        const ht_node n = g->nodes[rw->old[at]];
        for (size_t i = 0; i < n.n_out && g->status == HT_OK; i++) {
            ht_val v = ht_node_out(&n, i);
            if (!crosses(c, &g->nodes[rw->old[at]], v, c->stage)) continue;
            ht_type type = *ht_type_of(g, v);
            ht_val got = ht_recv(g, &type, (ht_group){"pipeline", c->stages}, c->stage - 1, gradient_of(c, v));
            if (g->status != HT_OK) return;
            g->nodes[ht_producer(g, got) - g->nodes].was = hashes[v.id];
            g->nodes[ht_producer(g, got) - g->nodes].site = n.site;
            ht_rewrite_replace(rw, v, got);
        }
    }
}

static void send(cutter *c, ht_rewrite *rw)
{
    ht_graph *g = c->g;
    for (size_t at = 0; at < rw->count && g->status == HT_OK; at++) {
        const ht_node n = g->nodes[rw->old[at]];
        for (size_t i = 0; i < n.n_out && g->status == HT_OK; i++) {
            ht_val v = ht_node_out(&n, i);
            if (crosses(c, &g->nodes[rw->old[at]], v, c->stage + 1))
                ht_send(g, ht_rewrite_map(rw, v), (ht_group){"pipeline", c->stages}, c->stage + 1, gradient_of(c, v));
        }
    }
}

/* Zeros in place of what the last stage makes. */
static void blank_outputs(const cutter *c, const uint64_t *hashes)
{
    ht_graph *g = c->g;
    for (size_t i = 0; i < g->segments[c->segment].output_count && g->status == HT_OK; i++) {
        ht_val v = g->segments[c->segment].outputs[i].value;
        const ht_type type = *ht_type_of(g, v);
        ht_val zero = ht_fill(g, type.dtype, type.rank, type.dim, 0);
        if (g->status != HT_OK) return;
        g->nodes[ht_producer(g, zero) - g->nodes].was = hashes[v.id];
        g->segments[c->segment].outputs[i].value = zero;
    }
}

static ht_status keep_stage(cutter *c)
{
    ht_graph *g = c->g;
    ht_rewrite rw;
    uint64_t *hashes = ht_value_hashes(g, c->segment);
    if (!hashes) HT_FAIL(g->ctx, HT_ENOMEM, "pipeline: out of memory");
    if (ht_rewrite_begin(&rw, g, c->segment)) {
        receive(c, &rw, hashes);
        for (size_t at = 0; at < rw.count && g->status == HT_OK; at++) {
            uint32_t id = rw.old[at];
            bool here = c->stage_of[id] < 0 ? c->wanted[id] & bit(c->stage) : c->stage_of[id] == c->stage;
            if (here) ht_rewrite_keep(&rw, id);
        }
        send(c, &rw);
        if (c->stage < c->stages - 1) blank_outputs(c, hashes);
    }
    free(hashes);
    return ht_rewrite_end(&rw);
}

/* ---- all segments ---- */

static ht_status cut_segment(cutter *c, uint32_t segment, bool by_cost)
{
    ht_graph *g = c->g;
    size_t values = g->value_count, nodes = g->node_count;
    c->segment = segment;
    c->forward = is_forward(&g->segments[segment]);
    c->follows = calloc(values, sizeof *c->follows);
    c->stored = calloc(values, sizeof *c->stored);
    c->needs = calloc(values, sizeof *c->needs);
    c->live = calloc(values, sizeof *c->live);
    c->last = calloc(values, sizeof *c->last);
    c->stage_of = calloc(nodes, sizeof *c->stage_of);
    c->only_stored = calloc(nodes, sizeof *c->only_stored);
    c->wanted = calloc(nodes, sizeof *c->wanted);
    bool ok = c->follows && c->stored && c->needs && c->live && c->last && c->stage_of && c->only_stored && c->wanted;
    ht_status status = ok ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "pipeline: out of memory");
    if (ok) {
        find_places(c);
        find_only_stored(c);
        find_live(c);
        status = by_cost ? cut_forward(c) : follow_parameters(c);
    }
    if (status == HT_OK) place_stores(c);
    if (status == HT_OK) find_readers(c);
    if (status == HT_OK) status = check_stored(c);
    if (status == HT_OK) status = keep_stage(c);
    free(c->follows);
    free(c->stored);
    free(c->needs);
    free(c->live);
    free(c->last);
    free(c->stage_of);
    free(c->only_stored);
    free(c->wanted);
    return status;
}

static void mark_named(const ht_graph *g, bool *named)
{
    for (size_t s = 0; s < g->segment_count; s++)
        for (size_t i = 0; i < g->segments[s].node_count; i++) {
            const ht_node *n = &g->nodes[g->segments[s].nodes[i]];
            for (size_t k = 0; k < n->n_in; k++) named[ht_node_in(g, n, k).id] = true;
        }
}

/* State of other stages goes; what is trained on several knows them. */
static ht_status share_states(cutter *c)
{
    ht_graph *g = c->g;
    bool *here = calloc(g->value_count, sizeof *here), *drop = calloc(g->state_count + 1, sizeof *drop);
    if (here && drop) {
        mark_named(g, here);
        for (size_t i = 0; i < g->state_count; i++) {
            ht_state *s = &g->states[i];
            uint64_t held = c->held[s->value.id];
            drop[i] = c->named[s->value.id] && !here[s->value.id];
            if (s->trained && (held & (held - 1))) s->stages = held;
        }
        ht_graph_drop_states(g, drop);
    } else {
        ht_graph_fail(g, HT_ENOMEM, "pipeline: out of memory");
    }
    free(here);
    free(drop);
    return g->status;
}

static ht_status cut(cutter *c, uint32_t forward)
{
    ht_graph *g = c->g;
    mark_named(g, c->named);
    HT_TRY(cut_segment(c, forward, true));
    for (uint32_t i = 0; i < g->segment_count; i++)
        if (i != forward) HT_TRY(cut_segment(c, i, false));
    return share_states(c);
}

/* ---- the pass ---- */

static ht_status check(const ht_graph *g, const ht_pass_env *env)
{
    static const char later[] = "with halftone.parallel.pipeline above 1 is not there yet";
    const ht_pass_options *o = env->options;
    const ht_offload_options *offload = &o->offload;
    const ht_axis *axis = &o->parallel.pipeline;
    if (axis->rank >= axis->ranks)
        HT_FAIL(g->ctx, HT_EINVAL, "rank %lld of the pipeline axis: there are %lld", (long long)axis->rank,
                (long long)axis->ranks);
    if (axis->ranks > HT_MOST_STAGES)
        HT_FAIL(g->ctx, HT_ENOTSUP, "pipeline: halftone.parallel.pipeline: at most %d stages", HT_MOST_STAGES);
    bool moves = offload->optimizer != HT_SPACE_MAIN || offload->params != HT_SPACE_MAIN ||
                 offload->gradients != HT_SPACE_MAIN || offload->activations != HT_SPACE_MAIN;
    if (moves) HT_FAIL(g->ctx, HT_ENOTSUP, "pipeline: an offload %s", later);
    if (o->precision.fp8 != HT_FP8_OFF) HT_FAIL(g->ctx, HT_ENOTSUP, "pipeline: halftone.fp8 %s", later);
    if (o->precision.stochastic) HT_FAIL(g->ctx, HT_ENOTSUP, "pipeline: stochastic rounding %s", later);
    if (o->head.chunks != 1) HT_FAIL(g->ctx, HT_ENOTSUP, "pipeline: halftone.head_chunks %s", later);
    if (o->recompute.policy == HT_RECOMPUTE_BUDGET)
        HT_FAIL(g->ctx, HT_ENOTSUP, "pipeline: a budget of halftone.recompute %s: choose a policy", later);
    if (o->zero.ranks > 1 && o->zero.stage > 1)
        HT_FAIL(g->ctx, HT_ENOTSUP, "pipeline: zero_optimization.stage %lld %s: 0 and 1 are", (long long)o->zero.stage,
                later);
    return HT_OK;
}

/* What options say of parameters by name is checked while all of them are there. */
static ht_status choose_params(ht_graph *g, const ht_train_options *options)
{
    size_t *groups = NULL;
    HT_TRY(ht_params_freeze(g, options));
    HT_TRY(ht_params_group(g, options, false, &groups));
    free(groups);
    return HT_OK;
}

static ht_status pipeline_stages_run(ht_graph *g, const ht_pass_env *env)
{
    const ht_axis *axis = &env->options->parallel.pipeline;
    if (axis->ranks == 1 || g->segment_count == 0) return HT_OK;
    int forward = ht_segment_find(g, "forward");
    if (forward < 0) HT_FAIL(g->ctx, HT_EINVAL, "pipeline: the graph has no segment 'forward'");
    HT_TRY(check(g, env));
    HT_TRY(choose_params(g, &env->options->train));
    cutter c = {.g = g, .stages = axis->ranks, .stage = axis->rank};
    c.held = calloc(g->value_count, sizeof *c.held);
    c.named = calloc(g->value_count, sizeof *c.named);
    ht_status status =
        c.held && c.named ? cut(&c, (uint32_t)forward) : ht_fail(g->ctx, HT_ENOMEM, "pipeline: out of memory");
    free(c.held);
    free(c.named);
    return status;
}

static const ht_setting_key pipeline_keys[] = {{.name = "pipeline",
                                                .kind = HT_SETTING_WHOLE,
                                                .at = offsetof(ht_parallel_options, pipeline.ranks),
                                                .low = 1,
                                                .high = HT_MOST_STAGES,
                                                .help = "ranks that share the layers: stages"},
                                               {.name = "pipeline_rank",
                                                .kind = HT_SETTING_WHOLE,
                                                .at = offsetof(ht_parallel_options, pipeline.rank),
                                                .low = 0,
                                                .high = HT_MOST_STAGES - 1,
                                                .help = "the one of them whose graph this is"},
                                               {.name = NULL}};
static const ht_pass_settings settings[] = {{pipeline_keys, offsetof(ht_pass_options, parallel)}, {NULL, 0}};

const ht_pass ht_pass_pipeline_stages = {
    .name = "pipeline_stages",
    .help = "keep the layers of one stage; send and receive what crosses its ends",
    .system = true,
    .run = pipeline_stages_run,
    .settings = settings,
};
