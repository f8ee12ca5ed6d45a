#include "pass/pass.h"

#include <string.h>

/* ---- the table ---- */

static bool is_training(const ht_pass_options *options)
{
    return options->training;
}

static bool is_accumulating(const ht_pass_options *options)
{
    return options->training && options->train.accumulate > 1;
}

static bool is_casting(const ht_pass_options *options)
{
    return options->precision.precision != HT_PRECISION_FP32;
}

static const ht_pass_condition always = {NULL, NULL}, training = {"training", is_training},
                               accumulating = {"accumulate is more than 1", is_accumulating},
                               casting = {"precision is not fp32", is_casting};

#define HT_PASS(id, stage, condition) extern const ht_pass ht_pass_##id;
#include "pass/passes.def"
#undef HT_PASS

const ht_pipeline_row ht_pipeline[] = {
#define HT_PASS(id, stage, condition) {&ht_pass_##id, HT_STAGE_##stage, &condition},
#include "pass/passes.def"
#undef HT_PASS
    {NULL, HT_STAGE_ANY, NULL},
};

const ht_pass *ht_pass_find(const char *name)
{
    for (const ht_pipeline_row *row = ht_pipeline; row->pass; row++)
        if (strcmp(row->pass->name, name) == 0) return row->pass;
    return NULL;
}

/* ---- running it ---- */

ht_status ht_pass_run(ht_graph *g, const ht_pass *pass, const ht_pass_env *env)
{
    const ht_pass_options standard = ht_pass_options_standard();
    const ht_pass_env plain = {.options = &standard};
    uint64_t before = pass->system ? ht_model_hash(g) : 0;
    HT_TRY(pass->run(g, env ? env : &plain));
    ht_status status = ht_graph_verify(g);
    if (status != HT_OK) {
        char message[sizeof g->ctx->message];
        memcpy(message, g->ctx->message, sizeof message);
        HT_FAIL(g->ctx, status, "after pass %s: %s", pass->name, message);
    }
    if (pass->system && ht_model_hash(g) != before)
        HT_FAIL(g->ctx, HT_EVERIFY, "pass %s changed the model", pass->name);
    return HT_OK;
}

ht_status ht_pipeline_run(ht_graph *g, ht_stage stage, const ht_pass_env *env, const ht_pass_observer *observer)
{
    for (const ht_pipeline_row *row = ht_pipeline; row->pass; row++) {
        if (row->stage != stage || (row->when->holds && !row->when->holds(env->options))) continue;
        HT_TRY(ht_pass_run(g, row->pass, env));
        if (observer) HT_TRY(observer->after(observer->arg, row->pass, g));
    }
    return HT_OK;
}

void ht_memory_profile_free(ht_memory_profile *profile)
{
    ht_arena_free(profile->arena);
    *profile = (ht_memory_profile){0};
}

const char *ht_prec_name(ht_prec prec)
{
    static const char *const names[] = {
        [HT_PREC_DOT] = "dot",   [HT_PREC_REDUCE] = "reduce", [HT_PREC_POINT] = "point",
        [HT_PREC_MOVE] = "move", [HT_PREC_EXACT] = "exact",
    };
    return names[prec];
}
