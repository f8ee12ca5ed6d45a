/* Evaluating a run: the loss of its state on the validation part. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/run_state.h"

/* A model that carries its state from batch to batch begins the validation text with none. */
static ht_status clear_carry(ht_run *run)
{
    const ht_plan *plan = run->job.plan;
    for (size_t i = 0; i < plan->slot_count; i++) {
        const ht_slot *slot = &plan->slots[i];
        if (slot->kind != HT_SLOT_STATE || strncmp(slot->name, "carry.eval", 10) != 0) continue;
        size_t bytes = (size_t)ht_type_bytes(&slot->type);
        void *zero = calloc(1, bytes + 1);
        ht_status status = zero ? ht_session_write(run->job.session, slot->name, zero, bytes)
                                : ht_fail(run->ctx, HT_ENOMEM, "out of memory for an evaluation");
        free(zero);
        HT_TRY(status);
    }
    return HT_OK;
}

enum { EVALS_IN_FLIGHT = 32, EVAL_NUMBERS = 3, NUMBER_BYTES = 8 };

/* Losses, counts and right answers of batches that the host has not waited for yet, and the sums of the others. */
typedef struct eval_sums {
    const ht_slot *slots[EVAL_NUMBERS]; /* NULL: the model has none */
    char cells[EVALS_IN_FLIGHT][EVAL_NUMBERS][NUMBER_BYTES];
    double total[EVAL_NUMBERS];
} eval_sums;

static ht_status fetch_eval(ht_run *run, eval_sums *sums, int64_t batch)
{
    for (int i = 0; i < EVAL_NUMBERS; i++)
        if (sums->slots[i])
            HT_TRY(ht_executor_fetch(run->job.session->executor, sums->slots[i]->place,
                                     sums->cells[batch % EVALS_IN_FLIGHT][i],
                                     (size_t)ht_type_bytes(&sums->slots[i]->type)));
    return HT_OK;
}

static ht_status add_evals(ht_run *run, eval_sums *sums, int64_t batches)
{
    HT_TRY(ht_executor_sync(run->job.session->executor));
    for (int64_t b = 0; b < batches; b++)
        for (int i = 0; i < EVAL_NUMBERS; i++)
            if (sums->slots[i]) sums->total[i] += ht_load_f64(sums->cells[b][i], sums->slots[i]->type.dtype, 0);
    return HT_OK;
}

static ht_status sum_evals(ht_run *run, int64_t batches, eval_sums *sums)
{
    HT_TRY(clear_carry(run));
    ht_loader_seek(run->validation, 0);
    int64_t own = (batches - run->eval_rank + run->eval_ranks - 1) / run->eval_ranks;
    for (int64_t i = 0; i < own; i++) {
        ht_bound_batch batch;
        HT_TRY(ht_batch_binding_next(&run->binding, run->validation, &batch));
        HT_TRY(ht_session_start_segment(run->job.session, (size_t)batch.shape->eval, batch.slot));
        HT_TRY(fetch_eval(run, sums, i));
        if (i + 1 == own || i % EVALS_IN_FLIGHT == EVALS_IN_FLIGHT - 1)
            HT_TRY(add_evals(run, sums, i % EVALS_IN_FLIGHT + 1));
    }
    /* Ranks that share a model, or make all of an evaluation, have the same numbers. */
    bool counts = ht_ranks_tells_losses(&run->ranks) && (run->eval_ranks > 1 || run->ranks.data.rank == 0);
    if (!counts) memset(sums->total, 0, sizeof sums->total);
    return run->ranks.size > 1 ? ht_ranks_sum(&run->ranks, run->ctx, sums->total, EVAL_NUMBERS) : HT_OK;
}

static ht_status evaluate(ht_run *run, int64_t batches, ht_eval_report *r)
{
    eval_sums sums = {.slots = {ht_plan_slot(run->job.plan, "loss_sum"), ht_plan_slot(run->job.plan, "count"),
                                ht_plan_slot(run->job.plan, "correct")}};
    ht_status status = sum_evals(run, batches, &sums);
    if (status != HT_OK) {
        /* The device may still write into the sums. */
        ht_executor_drain(run->job.session->executor);
        return status;
    }
    bool tokens = run->job.task != HT_TASK_CLASS && run->job.task != HT_TASK_REGRESSION;
    double loss = sums.total[0], count = sums.total[1], correct = sums.total[2];
    r->count = (int64_t)count;
    r->loss = count > 0 ? loss / count : NAN;
    r->perplexity = tokens ? exp(r->loss) : NAN;
    r->accuracy = sums.slots[2] && count > 0 ? correct / count : NAN;
    return HT_OK;
}

ht_status ht_run_evaluate(ht_run *run, ht_eval_report *report)
{
    HT_TRY(ht_run_catch_up(run));
    double start = ht_run_clock();
    ht_eval_report r = {.step = run->step, .loss = NAN, .perplexity = NAN, .accuracy = NAN};
    int64_t batches = ht_data_info_of(run->job.data)->parts[HT_DATA_VALIDATION].batches;
    int64_t most = run->job.train_config->eval_batches;
    if (most > 0 && most < batches) batches = most;
    if (run->validation) HT_TRY(evaluate(run, batches, &r));
    r.seconds = ht_run_clock() - start;
    if (report) *report = r;
    if (r.count == 0) return HT_OK;
    if (run->metrics) HT_TRY(ht_metrics_eval(run->metrics, &r));
    if (run->request.on_eval) run->request.on_eval(run->request.arg, &r);
    return HT_OK;
}
