#include "pass/pass.h"

#include <stdio.h>
#include <string.h>

/* ---- the table ---- */

static bool is_training(const ht_pass_options *options)
{
    return options->training;
}

/* Is the batch of a step cut, over time or over ranks? */
static bool is_cutting(const ht_pass_options *options)
{
    return options->training && (options->train.accumulate > 1 || options->zero.ranks > 1);
}

static bool is_sharing(const ht_pass_options *options)
{
    return options->training && options->parallel.tensor.ranks > 1;
}

static bool is_synchronizing(const ht_pass_options *options)
{
    return options->training && options->zero.ranks > 1 && options->zero.sync_batchnorm;
}

static bool is_pipelining(const ht_pass_options *options)
{
    return options->training && options->parallel.pipeline.ranks > 1;
}

static bool is_exchanging(const ht_pass_options *options)
{
    return options->zero.ranks > 1;
}

static bool is_casting(const ht_pass_options *options)
{
    return options->precision.precision != HT_PRECISION_FP32;
}

static bool is_recomputing(const ht_pass_options *options)
{
    return options->recompute.policy != HT_RECOMPUTE_NONE;
}

static bool is_chunking(const ht_pass_options *options)
{
    return options->head.chunks != 1;
}

static bool is_scaling(const ht_pass_options *options)
{
    return options->precision.fp8 != HT_FP8_OFF;
}

static bool is_quantizing(const ht_pass_options *options)
{
    return options->quantize.group_count > 0 && !options->training;
}

static bool is_sparsing(const ht_pass_options *options)
{
    return options->sparse.count > 0 && !options->training;
}

static bool is_rounding(const ht_pass_options *options)
{
    return options->quantize.group_count > 0 && options->training;
}

static bool is_distilling(const ht_pass_options *options)
{
    return options->training && options->distill.teacher;
}

static bool is_offloading(const ht_pass_options *options)
{
    const ht_offload_options *o = &options->offload;
    return o->optimizer != HT_SPACE_MAIN || o->params != HT_SPACE_MAIN || o->gradients != HT_SPACE_MAIN ||
           o->activations != HT_SPACE_MAIN;
}

static const ht_pass_condition always = {NULL, NULL}, training = {"training", is_training},
                               cutting = {"there are several micro-batches or ranks", is_cutting},
                               sharing = {"ranks share layers", is_sharing},
                               synchronizing = {"sync_batchnorm is on, for several ranks", is_synchronizing},
                               pipelining = {"ranks are stages", is_pipelining},
                               exchanging = {"there are several ranks", is_exchanging},
                               casting = {"precision is not fp32", is_casting},
                               chunking = {"head_chunks is not 1", is_chunking},
                               recomputing = {"recompute asks for it", is_recomputing},
                               scaling = {"fp8 is not off", is_scaling},
                               distilling = {"there is a teacher", is_distilling},
                               quantizing = {"quantize names layers", is_quantizing},
                               sparsing = {"sparse names weights", is_sparsing},
                               rounding = {"quantize names layers, and it trains", is_rounding},
                               offloading = {"something is offloaded", is_offloading};

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

static ht_status verify_after(ht_graph *g, const ht_pass *pass)
{
    ht_status status = ht_graph_verify(g);
    if (status == HT_OK) return HT_OK;
    char message[sizeof g->ctx->message];
    memcpy(message, g->ctx->message, sizeof message);
    HT_FAIL(g->ctx, status, "after pass %s: %s", pass->name, message);
}

/* A pass that keeps the step: `known` are the hashes of the graph as it is, or empty; afterwards of what the pass left. */
static ht_status run_keeping(ht_graph *g, const ht_pass *pass, const ht_pass_env *env, ht_step_hashes *known)
{
    char who[64];
    if (!known->segments) HT_TRY(ht_step_hashes_take(known, g));
    HT_TRY(pass->run(g, env));
    HT_TRY(verify_after(g, pass));
    snprintf(who, sizeof who, "pass %s", pass->name);
    return ht_step_hashes_check(known, g, who);
}

/* Any other pass; one of the system keeps the model. */
static ht_status run_other(ht_graph *g, const ht_pass *pass, const ht_pass_env *env)
{
    uint64_t before = 0, after = 0;
    if (pass->system) HT_TRY(ht_model_hash(&before, g));
    HT_TRY(pass->run(g, env));
    HT_TRY(verify_after(g, pass));
    if (pass->system) HT_TRY(ht_model_hash(&after, g));
    return after == before ? HT_OK : ht_fail(g->ctx, HT_EVERIFY, "pass %s changed the model", pass->name);
}

static ht_status run_pass(ht_graph *g, const ht_pass *pass, const ht_pass_env *env, ht_step_hashes *known)
{
    if (pass->keeps_step) return run_keeping(g, pass, env, known);
    ht_step_hashes_free(known);
    return run_other(g, pass, env);
}

ht_status ht_pass_run(ht_graph *g, const ht_pass *pass, const ht_pass_env *env)
{
    const ht_pass_options standard = ht_pass_options_standard();
    ht_step_hashes known = {0};
    const ht_pass_env plain = {.options = &standard};
    ht_status status = run_pass(g, pass, env ? env : &plain, &known);
    ht_step_hashes_free(&known);
    return status;
}

static bool runs_in(const ht_pipeline_row *row, ht_stage stage, const ht_graph *g, const ht_pass_options *options)
{
    if (row->stage != stage || (row->when->holds && !row->when->holds(options))) return false;
    return !row->pass->idle || !row->pass->idle(g, options);
}

/* The rows from `row` on. */
static ht_status run_rows(ht_graph *g, const ht_pipeline_row *row, ht_stage stage, const ht_pass_env *env,
                          const ht_pass_observer *observer)
{
    ht_step_hashes known = {0};
    ht_status status = HT_OK;
    for (; row->pass && status == HT_OK; row++) {
        if (!runs_in(row, stage, g, env->options)) continue;
        status = run_pass(g, row->pass, env, &known);
        if (status == HT_OK && observer) status = observer->after(observer->arg, row->pass, g);
    }
    ht_step_hashes_free(&known);
    return status;
}

ht_status ht_pipeline_run(ht_graph *g, ht_stage stage, const ht_pass_env *env, const ht_pass_observer *observer)
{
    return run_rows(g, ht_pipeline, stage, env, observer);
}

ht_status ht_pipeline_run_behind(ht_graph *g, const ht_pass *pass, const ht_pass_env *env)
{
    const ht_pipeline_row *last = ht_pipeline;
    for (const ht_pipeline_row *row = ht_pipeline; row->pass; row++)
        if (row->pass == pass) last = row;
    return run_rows(g, last + 1, last->stage, env, NULL);
}

void ht_memory_profile_free(ht_memory_profile *profile)
{
    ht_arena_free(profile->arena);
    *profile = (ht_memory_profile){0};
}

int64_t ht_memory_transients(const ht_memory_profile *profile)
{
    int64_t most = 0;
    for (size_t s = 0; s < profile->segment_count; s++)
        if (profile->segments[s].transient_bytes[HT_SPACE_MAIN] > most)
            most = profile->segments[s].transient_bytes[HT_SPACE_MAIN];
    return most;
}

const char *ht_prec_name(ht_prec prec)
{
    static const char *const names[] = {
        [HT_PREC_DOT] = "dot",   [HT_PREC_REDUCE] = "reduce", [HT_PREC_POINT] = "point",
        [HT_PREC_MOVE] = "move", [HT_PREC_EXACT] = "exact",
    };
    return names[prec];
}
