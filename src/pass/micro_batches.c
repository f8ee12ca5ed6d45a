/* Makes a step independent of how its batch is cut into micro-batches, `accumulate` for each rank. `micro.index`, an input, says which
 * of them a segment has at hand; from it follows
 *      where its rows begin in the global batch, for random ops: they draw the numbers of the whole batch;
 *      which rows of a carried state (carry.*) are its own: the state grows to the rows of the whole batch.
 * The model hash stays: what is put in place of a state has the state's hash (`was`). */
#include <stdlib.h>
#include <string.h>

#include "pass/pass.h"
#include "pass/train_options.h"

typedef struct cutter {
    ht_graph *g;
    int64_t micros;
    uint64_t *hashes; /* of states, by value id, before anything was changed */
    int64_t *rows;    /* by value id: of a carried state, the rows of one micro-batch; 0: not carried */
    size_t value_count;
    /* of the segment at hand */
    ht_rewrite rw;
    ht_val index; /* none: not asked for yet */
} cutter;

static bool is_forward(const ht_segment *s)
{
    return strcmp(s->name, "forward") == 0 || strncmp(s->name, "forward:", 8) == 0;
}

static int64_t rows_of(const cutter *c, ht_val v)
{
    return v.id < c->value_count ? c->rows[v.id] : 0;
}

/* ---- where a micro-batch begins ---- */

static ht_val micro_index(cutter *c)
{
    ht_type scalar = ht_type_make(HT_I64, 0, NULL);
    if (!c->index.id) c->index = ht_graph_add_input(c->g, "micro.index", &scalar, HT_ZERO);
    return c->index;
}

/* The first of its rows, if each micro-batch has so many. */
static ht_val first_row(cutter *c, int64_t rows)
{
    return ht_mul(c->g, micro_index(c), ht_fill(c->g, HT_I64, 0, NULL, (double)rows));
}

static void stands_for(cutter *c, ht_val made, ht_val state)
{
    const ht_node *n = c->g->status == HT_OK ? ht_producer(c->g, made) : NULL;
    if (n) c->g->nodes[n - c->g->nodes].was = c->hashes[state.id];
}

/* ---- random ops ---- */

/* A random op, whose last input is where its rows begin. One that says itself how large the batch is stays as it is. */
static void cut_random(cutter *c, uint32_t id)
{
    ht_graph *g = c->g;
    const ht_node n = g->nodes[id]; /* the builder may move the graph's */
    ht_val sample = ht_find(g, "rng.sample");
    if (!ht_op_has_attr(n.op, "batch_axis") || ht_node_in(g, &n, n.n_in - 1).id != sample.id) return;
    ht_call_storage storage;
    const ht_call *call = ht_node_call(g, &n, g->arena, &storage);
    if (!call) return;
    int64_t axis = ht_call_int(call, "batch_axis");
    if (axis < 0 || ht_call_int(call, "batch_extent") != 0) return;
    int64_t rows = call->out[0]->rank > 0 ? call->out[0]->dim[axis] : 1;
    ht_val first = ht_add(g, sample, first_row(c, rows));
    stands_for(c, first, sample);
    g->operands[n.in + n.n_in - 1] = first;
    ht_node_set_int(g, id, "batch_extent", rows * c->micros);
}

/* ---- carried state ---- */

/* A state that goes from batch to batch has a row for each of the batch, in every segment that has a look at it. */
static void find_carried(cutter *c)
{
    ht_graph *g = c->g;
    for (size_t s = 0; s < g->segment_count; s++) {
        for (size_t i = 0; is_forward(&g->segments[s]) && i < g->segments[s].node_count; i++) {
            const ht_node *n = &g->nodes[g->segments[s].nodes[i]];
            for (size_t k = 0; k < n->n_in; k++) {
                ht_val v = ht_node_in(g, n, k);
                const ht_type *type = ht_type_of(g, v);
                bool carried = ht_state_of(g, v) && strncmp(ht_value_of(g, v)->name, "carry.", 6) == 0;
                if (carried && type->rank > 0) c->rows[v.id] = type->dim[0];
            }
        }
    }
}

static void grow_carried(const cutter *c)
{
    for (size_t i = 0; i < c->value_count; i++) {
        ht_type *type = &c->g->values[i].type;
        if (!c->rows[i]) continue;
        if (__builtin_mul_overflow(type->dim[0], c->micros, &type->dim[0]))
            ht_graph_fail(c->g, HT_ESHAPE, "the state '%s' of the whole batch is too large", c->g->values[i].name);
        ht_type_row_major(type);
    }
}

/* Before the first node that reads it: the micro-batch's rows stand for the state. */
static void read_carried(cutter *c, const ht_node *n)
{
    for (size_t i = n->op == &ht_op_store; i < n->n_in; i++) {
        ht_val state = ht_node_in(c->g, n, i);
        int64_t rows = rows_of(c, state);
        if (!rows || ht_rewrite_map(&c->rw, state).id != state.id) continue;
        ht_val own = ht_dynamic_slice(c->g, state, first_row(c, rows), rows);
        stands_for(c, own, state);
        ht_rewrite_replace(&c->rw, state, own);
    }
}

static void store_carried(cutter *c, ht_val state, ht_val value)
{
    ht_graph *g = c->g;
    ht_val first = first_row(c, rows_of(c, state));
    ht_store(g, state, ht_dynamic_update_slice(g, state, ht_rewrite_map(&c->rw, value), first));
}

/* ---- the pass ---- */

static ht_status cut_segment(cutter *c, uint32_t segment)
{
    ht_graph *g = c->g;
    bool forward = is_forward(&g->segments[segment]);
    c->index = HT_NONE;
    if (ht_rewrite_begin(&c->rw, g, segment)) {
        for (size_t i = 0; i < c->rw.count && g->status == HT_OK; i++) {
            const ht_node n = g->nodes[c->rw.old[i]];
            read_carried(c, &n);
            if (forward) cut_random(c, c->rw.old[i]);
            if (n.op == &ht_op_store && rows_of(c, ht_node_in(g, &n, 0)))
                store_carried(c, ht_node_in(g, &n, 0), ht_node_in(g, &n, 1));
            else
                ht_rewrite_keep(&c->rw, c->rw.old[i]);
        }
    }
    return ht_rewrite_end(&c->rw);
}

static ht_status micro_batches_run(ht_graph *g, const ht_pass_env *env)
{
    HT_TRY(ht_autodiff_check(g->ctx, &env->options->train));
    int64_t micros = env->options->train.accumulate * env->options->zero.ranks;
    if (micros == 1 || g->segment_count == 0) return HT_OK;
    cutter c = {.g = g, .micros = micros, .value_count = g->value_count};
    c.hashes = ht_value_hashes(g, 0);
    c.rows = calloc(g->value_count, sizeof *c.rows);
    if (c.hashes && c.rows) {
        find_carried(&c);
        grow_carried(&c);
        for (uint32_t s = 0; s < g->segment_count && g->status == HT_OK; s++) cut_segment(&c, s);
    } else {
        ht_graph_fail(g, HT_ENOMEM, "out of memory for micro-batches");
    }
    free(c.hashes);
    free(c.rows);
    return g->status;
}

const ht_pass ht_pass_micro_batches = {
    .name = "micro_batches",
    .help = "random numbers and carried state of the whole batch, however it is cut",
    .system = true,
    .run = micro_batches_run,
    .settings = ht_micro_batches_settings,
};
