/* Pipeline parallel training, behind all other passes of ranks: a micro-batch becomes parts (pipeline_split.c), and the
 * program of a rank lists them as 1F1B says (pipeline_1f1b.c). What stages agree on in a step is exchanged at its end:
 *      gradients of a parameter that several stages have (a token table that is the head, too), by the segment "tie":
 *      the first of them, which owns it, sums them in the order of stages and sends the sum back, so that all copies are
 *      updated alike;
 *      losses and counts, which the last stage knows, and who overflowed, by the segment "exchange". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/pipeline_split.h"
#include "pass/train_options.h"
#include "pass/zero.h"

/* ---- parameters of several stages ---- */

static ht_val gradient_of(const ht_graph *g, ht_val param)
{
    char name[512];
    snprintf(name, sizeof name, "%s.grad", ht_value_of(g, param)->name);
    return ht_find(g, name);
}

/* The owner's side. */
static ht_val sum_copies(ht_graph *g, const ht_axis *axis, uint64_t others, ht_val grad)
{
    const ht_group stages = {"pipeline", axis->ranks};
    const ht_type type = *ht_type_of(g, grad);
    ht_val sum = grad;
    for (int64_t i = 0; i < axis->ranks; i++)
        if (others >> i & 1) sum = ht_add(g, sum, ht_recv(g, &type, stages, i, "none"));
    for (int64_t i = 0; i < axis->ranks; i++)
        if (others >> i & 1) ht_send(g, sum, stages, i, "none");
    return sum;
}

static ht_val ask_owner(ht_graph *g, const ht_axis *axis, int64_t owner, ht_val grad)
{
    const ht_group stages = {"pipeline", axis->ranks};
    const ht_type type = *ht_type_of(g, grad);
    ht_send(g, grad, stages, owner, "none");
    return ht_recv(g, &type, stages, owner, "none");
}

/* All stages have their tensors in one order. */
static void tie_gradients(ht_graph *g, const ht_axis *axis)
{
    bool any = false;
    for (size_t i = 0; i < g->state_count && g->status == HT_OK; i++) {
        const ht_state s = g->states[i];
        if (!s.trained || !s.stages) continue;
        if (!any) g->segment = ht_graph_add_segment(g, "tie");
        any = true;
        int64_t owner = __builtin_ctzll(s.stages);
        ht_val grad = gradient_of(g, s.value);
        uint64_t others = s.stages & ~(UINT64_C(1) << owner);
        ht_store(g, grad, owner == axis->rank ? sum_copies(g, axis, others, grad) : ask_owner(g, axis, owner, grad));
    }
}

/* ---- what the record of a step tells ---- */

static void reduce_outputs(ht_graph *g, uint32_t exchange, ht_group stages)
{
    for (size_t i = 0; i < g->segments[exchange].output_count && g->status == HT_OK; i++) {
        const ht_named output = g->segments[exchange].outputs[i];
        bool rank = strcmp(output.name, "step_bad_rank") == 0;
        ht_val reduced = ht_all_reduce(g, output.value, stages, rank ? "min" : "sum");
        if (g->status == HT_OK) g->segments[exchange].outputs[i].value = reduced;
    }
}

/* zero made "exchange" where several ranks share a batch; then numbers are those of a stage. */
static void tell_losses(ht_graph *g, ht_group stages)
{
    int exchange = ht_segment_find(g, "exchange");
    if (exchange >= 0) {
        g->segment = (uint32_t)exchange;
        reduce_outputs(g, (uint32_t)exchange, stages);
        return;
    }
    uint32_t added = g->segment = ht_graph_add_segment(g, "exchange");
    if (g->status != HT_OK) return;
    ht_sum_losses(g, added, stages);
    ht_call_beside_update(g, added, false);
}

/* ---- the program ---- */

static uint32_t segment_of(const ht_pipeline_segments *s, const ht_pipeline_call *call)
{
    return call->part == HT_PIPELINE_BACKWARD && call->micro > 0 ? s->backward_more : s->part[call->part];
}

/* In place of the calls of micro-batches, with which it began. */
static ht_status list_calls(ht_graph *g, const ht_axis *axis, int64_t micros, const ht_pipeline_segments *s)
{
    int program = ht_program_find(g, "train"), tie = ht_segment_find(g, "tie");
    if (program < 0) return HT_OK;
    ht_pipeline_call *calls = calloc((size_t)micros * HT_PIPELINE_PARTS + 1, sizeof *calls);
    size_t old_count = g->programs[program].call_count, count = 0;
    ht_program_call *old = calloc(old_count + 1, sizeof *old);
    if (calls && old) {
        count = ht_pipeline_calls(axis->ranks, axis->rank, micros, calls);
        memcpy(old, g->programs[program].calls, old_count * sizeof *old);
        g->programs[program].call_count = 0;
        for (size_t i = 0; i < count; i++) {
            ht_program_call call = {.segment = segment_of(s, &calls[i]), .times = 1, .slot = calls[i].slot};
            ht_graph_add_program_call(g, "train", call);
        }
        if (tie >= 0) ht_graph_add_program_call(g, "train", (ht_program_call){.segment = (uint32_t)tie, .times = 1});
        for (size_t i = 0; i < old_count; i++)
            if (old[i].segment != s->part[HT_PIPELINE_BACKWARD] && old[i].segment != s->backward_more)
                ht_graph_add_program_call(g, "train", old[i]);
    } else {
        ht_graph_fail(g, HT_ENOMEM, "pipeline: out of memory");
    }
    free(calls);
    free(old);
    return g->status;
}

/* ---- the pass ---- */

static ht_status schedule(ht_graph *g, const ht_pass_options *options)
{
    const ht_axis *axis = &options->parallel.pipeline;
    ht_pipeline_segments shape, further;
    size_t segments = g->segment_count;
    g->role = HT_ROLE_UPDATE;
    tie_gradients(g, axis);
    tell_losses(g, (ht_group){"pipeline", axis->ranks});
    g->role = HT_ROLE_FWD;
    HT_TRY(g->status);
    for (uint32_t i = 0; i < segments; i++) {
        char ending[64];
        if (strncmp(g->segments[i].name, "micro_first", 11) != 0) continue;
        snprintf(ending, sizeof ending, "%s", g->segments[i].name + strlen("micro_first"));
        HT_TRY(ht_pipeline_split(g, axis, ending, ending[0] ? &further : &shape));
    }
    return list_calls(g, axis, options->train.accumulate, &shape);
}

static ht_status pipeline_schedule_run(ht_graph *g, const ht_pass_env *env)
{
    if (env->options->parallel.pipeline.ranks == 1 || ht_segment_find(g, "micro_first") < 0) return HT_OK;
    uint32_t resume = g->segment;
    ht_role role = g->role;
    ht_status status = schedule(g, env->options);
    g->segment = resume;
    g->role = role;
    return status;
}

const ht_pass ht_pass_pipeline_schedule = {
    .name = "pipeline_schedule",
    .help = "split a stage's micro-batches into forward and backward, one of each in turn",
    .system = true,
    .run = pipeline_schedule_run,
};
