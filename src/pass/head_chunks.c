/* The pass head_chunks: how many chunks the head is cut into (head_cut.c), as a job says, or as few as its plan needs to
 * fit. */
#include "pass/head_cut.h"

extern const ht_pass ht_pass_dce, ht_pass_regions, ht_pass_recompute;

/* ---- how many ---- */

typedef struct trial {
    int64_t chunks, plan_bytes;
} trial;

/* What the plan may take: the budget of recompute, or what the machine has; 0: not known. */
static int64_t limit_of(const ht_pass_env *env, const ht_memory_profile *whole)
{
    const ht_recompute_options *o = &env->options->recompute;
    int64_t now = whole->plan_bytes[HT_SPACE_MAIN], most = ht_memory_transients(whole);
    if (o->policy == HT_RECOMPUTE_BUDGET && o->budget_bytes) return o->budget_bytes;
    if (o->policy == HT_RECOMPUTE_BUDGET && o->share > 0) return now - most + (int64_t)((double)most * o->share);
    return env->target->memory_bytes[HT_SPACE_MAIN];
}

static ht_status try_chunks(const ht_graph *g, const ht_pass_env *env, trial *t)
{
    ht_graph *clone;
    ht_memory_profile profile = {0};
    const char *reason;
    HT_TRY(ht_graph_clone(&clone, g));
    ht_status status = ht_head_cut(clone, t->chunks, &reason);
    if (status == HT_OK) status = ht_pass_dce.run(clone, env);
    if (status == HT_OK) status = ht_pass_regions.run(clone, env);
    if (status == HT_OK) status = env->measure(env->measure_arg, &ht_pass_recompute, clone, &profile);
    t->plan_bytes = profile.plan_bytes[HT_SPACE_MAIN];
    ht_memory_profile_free(&profile);
    ht_graph_free(clone);
    return status;
}

/* The fewest for which the plan fits without recomputation; else those of the smallest plan. */
static ht_status choose_chunks(const ht_graph *g, const ht_pass_env *env, int64_t *chunks)
{
    enum { MOST_TRIED = 16 };
    ht_memory_profile whole = {0};
    *chunks = 1;
    if (!env->measure) HT_FAIL(g->ctx, HT_EINVAL, "head_chunks: \"auto\" needs a planner, and there is none here");
    HT_TRY(env->measure(env->measure_arg, &ht_pass_recompute, g, &whole));
    int64_t limit = limit_of(env, &whole), least = whole.plan_bytes[HT_SPACE_MAIN];
    ht_memory_profile_free(&whole);
    for (trial t = {.chunks = 2}; t.chunks <= MOST_TRIED && limit && least > limit; t.chunks *= 2) {
        HT_TRY(try_chunks(g, env, &t));
        if (t.plan_bytes >= least) break;
        least = t.plan_bytes;
        *chunks = t.chunks;
    }
    return HT_OK;
}

/* ---- the pass ---- */

static ht_status head_chunks_run(ht_graph *g, const ht_pass_env *env)
{
    int64_t chunks = env->options->head.chunks;
    const char *reason = NULL;
    if (chunks == 0) HT_TRY(choose_chunks(g, env, &chunks));
    if (chunks < 2) return HT_OK;
    HT_TRY(ht_head_cut(g, chunks, &reason));
    if (reason) ht_note(g->ctx, HT_LOG_WARN, "head_chunks: the head stays whole: %s", reason);
    return HT_OK;
}

static bool head_chunks_idle(const ht_graph *g, const ht_pass_options *options)
{
    (void)g;
    return options->head.chunks == 1;
}

static const ht_setting_key keys[] = {{.name = "head_chunks",
                                       .kind = HT_SETTING_WHOLE,
                                       .at = offsetof(ht_head_options, chunks),
                                       .low = 0,
                                       .high = HT_MOST_HEAD_CHUNKS,
                                       .help = "chunks of rows that logits and loss are computed in; 1: none; 0: as "
                                               "many as recompute's budget asks for, or the machine"},
                                      {.name = NULL}};
static const ht_pass_settings settings[] = {{keys, offsetof(ht_pass_options, head)}, {NULL, 0}};

const ht_pass ht_pass_head_chunks = {
    .name = "head_chunks",
    .help = "logits, loss and their gradients for some rows at a time",
    .system = true,
    .keeps_step = true,
    .run = head_chunks_run,
    .idle = head_chunks_idle,
    .settings = settings,
};
