/* The segment "init": every state as its declaration says. State without one starts as zero bytes and needs no node.
 * Random numbers are drawn in main, where the seed is; what belongs elsewhere is copied. */
#include "pass/pass.h"

static ht_val initial(ht_graph *g, ht_val state, ht_init init, ht_rng rng)
{
    const ht_value value = *ht_value_of(g, state);
    const ht_type *t = &value.type;
    switch (init.kind) {
    case HT_INIT_CONSTANT: return ht_fill(g, t->dtype, t->rank, t->dim, init.a);
    case HT_INIT_NORMAL: return ht_random_normal(g, t->dtype, t->rank, t->dim, init.a, init.b, rng, value.name);
    case HT_INIT_UNIFORM: return ht_random_uniform(g, t->dtype, t->rank, t->dim, init.a, init.b, rng, value.name);
    case HT_INIT_ZERO: break;
    }
    return HT_NONE;
}

static bool is_random(ht_init init)
{
    return init.kind == HT_INIT_NORMAL || init.kind == HT_INIT_UNIFORM;
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
        ht_val first = initial(g, s.value, s.init, rng);
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
