/* The segment "init": every state as its declaration says. State without one starts as zero bytes and needs no node.
 * Random numbers are drawn in main, where the seed is; what belongs elsewhere is copied. */
#include "pass/pass.h"

/* A piece of a tensor that ranks share draws the numbers that the whole would have there: as [.., blocks, size of a
 * piece, ..] it is a part of [.., blocks, size, ..] along one axis. */
static ht_val initial_piece(ht_graph *g, const ht_value *value, const ht_state *s, ht_rng rng)
{
    const ht_type *t = &value->type;
    const ht_cut *cut = &s->cut;
    int64_t dim[HT_MAX_RANK], piece = t->dim[cut->axis] / cut->blocks;
    int rank = 0;
    if (t->rank == HT_MAX_RANK) {
        ht_graph_fail(g, HT_ENOTSUP, "init: ranks share '%s', which has too many axes", value->name);
        return HT_NONE;
    }
    for (int i = 0; i < t->rank; i++) {
        if (i == cut->axis) dim[rank++] = cut->blocks;
        dim[rank++] = i == cut->axis ? piece : t->dim[i];
    }
    rng.sample = ht_fill(g, HT_I64, 0, NULL, (double)(cut->rank * piece));
    ht_init init = s->init;
    ht_val drawn = init.kind == HT_INIT_NORMAL
                       ? ht_random_normal(g, t->dtype, rank, dim, init.a, init.b, rng, value->name)
                       : ht_random_uniform(g, t->dtype, rank, dim, init.a, init.b, rng, value->name);
    if (g->status != HT_OK) return HT_NONE;
    ht_batch_axis(g, drawn, cut->axis + 1);
    uint32_t node = (uint32_t)(ht_producer(g, drawn) - g->nodes);
    ht_node_set_int(g, node, "batch_extent", piece * cut->ranks);
    return ht_reshape(g, drawn, t->rank, t->dim);
}

static bool is_random(ht_init init)
{
    return init.kind == HT_INIT_NORMAL || init.kind == HT_INIT_UNIFORM;
}

static ht_val initial(ht_graph *g, const ht_state *s, ht_rng rng)
{
    const ht_value value = *ht_value_of(g, s->value);
    const ht_type *t = &value.type;
    ht_init init = s->init;
    if (s->cut.ranks && is_random(init)) return initial_piece(g, &value, s, rng);
    switch (init.kind) {
    case HT_INIT_CONSTANT: return ht_fill(g, t->dtype, t->rank, t->dim, init.a);
    case HT_INIT_NORMAL: return ht_random_normal(g, t->dtype, t->rank, t->dim, init.a, init.b, rng, value.name);
    case HT_INIT_UNIFORM: return ht_random_uniform(g, t->dtype, t->rank, t->dim, init.a, init.b, rng, value.name);
    case HT_INIT_ZERO: break;
    }
    return HT_NONE;
}

static ht_status init_run(ht_graph *g, const ht_pass_env *env)
{
    (void)env;
    if (ht_segment_find(g, "init") >= 0) return HT_OK;
    uint32_t resume = g->segment;
    bool random = false;
    for (size_t i = 0; i < g->state_count; i++) random |= is_random(g->states[i].init);
    ht_rng rng = random ? ht_rng_state(g) : (ht_rng){HT_NONE, HT_NONE, HT_NONE};
    g->segment = ht_graph_add_segment(g, "init");
    for (size_t i = 0; i < g->state_count && g->status == HT_OK; i++) {
        ht_state s = g->states[i];
        if (s.init.kind == HT_INIT_ZERO) continue;
        ht_val first = initial(g, &s, rng);
        if (g->status == HT_OK) ht_store(g, s.value, ht_to_space(g, first, ht_type_of(g, s.value)->space));
    }
    g->segment = resume;
    return g->status;
}

const ht_pass ht_pass_init = {
    .name = "init",
    .help = "add the segment that gives state its first values",
    .system = true,
    .keeps_step = true,
    .run = init_run,
};
