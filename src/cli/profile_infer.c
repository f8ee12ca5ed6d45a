#include "cli/profile_infer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* At least so many runs, and for so long; the first ones warm up. */
enum { WARM_UP = 3, FEWEST_RUNS = 10, MOST_RUNS = 1000 };
static const double enough_seconds = 1;

/* The evaluation of the longest batches, where there are several shapes. */
static int find_segment(const ht_plan *plan)
{
    int found = -1;
    double most = -1;
    for (size_t s = 0; s < plan->segment_count; s++) {
        double flops = ht_cost_flops(ht_plan_segment_cost(&plan->segments[s]));
        if (strncmp(plan->segments[s].name, "eval", 4) != 0 || flops <= most) continue;
        most = flops;
        found = (int)s;
    }
    return found;
}

/* Has an instruction before this operand, counted from the first of the segment, read the same place? */
static bool was_read(const ht_plan_segment *s, size_t instr, size_t operand)
{
    ht_place place = s->instrs[instr].in[operand];
    for (size_t i = 0; i <= instr; i++)
        for (size_t k = 0; k < s->instrs[i].call->n_in && (i < instr || k < operand); k++)
            if (ht_place_same(s->instrs[i].in[k], place)) return true;
    return false;
}

/* State that a segment reads: weights, each once, in the number type that it computes with. */
static int64_t bytes_of_weights(const ht_plan_segment *s)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < s->instr_count; i++)
        for (size_t k = 0; k < s->instrs[i].call->n_in; k++)
            if (s->instrs[i].in[k].area == HT_AREA_STATE && !was_read(s, i, k))
                bytes += ht_type_distinct_bytes(s->instrs[i].call->in[k]);
    return bytes;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static ht_status run_once(ht_session *session, size_t segment, double *seconds)
{
    double begin = ht_instr_clock();
    HT_TRY(ht_session_start_segment(session, segment, 0));
    HT_TRY(ht_executor_sync(session->executor));
    *seconds = ht_instr_clock() - begin;
    return HT_OK;
}

/* Inputs are as the plan begins them: their values do not change the time. */
static ht_status measure(ht_context *ctx, ht_session *session, cli_infer_row *row)
{
    static double seconds[MOST_RUNS];
    int segment = find_segment(session->plan), count = 0;
    double sum = 0;
    if (segment < 0) HT_FAIL(ctx, HT_ENOTSUP, "--infer: the model has no evaluation");
    for (int i = 0; i < WARM_UP; i++) HT_TRY(run_once(session, (size_t)segment, &seconds[0]));
    for (; count < MOST_RUNS && (count < FEWEST_RUNS || sum < enough_seconds); count++) {
        HT_TRY(run_once(session, (size_t)segment, &seconds[count]));
        sum += seconds[count];
    }
    qsort(seconds, (size_t)count, sizeof seconds[0], by_value);
    row->p50_s = seconds[count / 2];
    row->p90_s = seconds[(count - 1) * 9 / 10];
    row->p99_s = seconds[(count - 1) * 99 / 100];
    row->cost = ht_plan_segment_cost(&session->plan->segments[segment]);
    row->plan_bytes = ht_plan_bytes(session->plan);
    row->weight_bytes = bytes_of_weights(&session->plan->segments[segment]);
    return HT_OK;
}

static ht_status infer_batch(ht_context *ctx, const ht_config *config, const char *folder, cli_infer_row *row,
                             ht_byte_table *bytes)
{
    ht_run *run;
    ht_run_request request = {.config = config, .mode = HT_RUN_EVALUATE, .folder = folder};
    HT_TRY(ht_run_open(&run, ctx, &request));
    ht_status status = measure(ctx, ht_run_session(run), row);
    *bytes = ht_run_info_of(run).bytes;
    ht_status closed = ht_run_close(run);
    return status == HT_OK ? closed : status;
}

ht_status cli_profile_infer(ht_context *ctx, const cli_job *job, const char *folder, const int64_t *batches,
                            size_t count, cli_profile_view *view)
{
    for (size_t i = 0; i < count; i++) {
        const char *sets[CLI_MOST_SETS + 3];
        char batch[2][48];
        ht_config_request request = job->request;
        ht_config *config;
        ht_byte_table bytes;
        memcpy(sets, job->sets, request.set_count * sizeof *sets);
        snprintf(batch[0], sizeof batch[0], "train.batch=%" PRId64, batches[i]);
        snprintf(batch[1], sizeof batch[1], "train.micro_batch=%" PRId64, batches[i]);
        sets[request.set_count++] = batch[0];
        sets[request.set_count++] = batch[1];
        sets[request.set_count++] = "train.accumulate=1";
        request.sets = sets;
        ht_status status = ht_config_read(&config, ctx, &request);
        cli_infer_row *row = &view->infer[i];
        *row = (cli_infer_row){.batch = batches[i]};
        if (status == HT_OK) status = infer_batch(ctx, config, folder, row, &bytes);
        if (status == HT_OK && i == 0) view->infer_bytes = bytes;
        if (config && ht_config_problems(config)->errors)
            status = ht_fail(ctx, HT_EINVAL, "--batch %" PRId64 ": %s", batches[i],
                             ht_config_problems(config)->list[0].text);
        ht_config_free(config);
        HT_TRY(status);
        view->infer_count = i + 1;
    }
    return HT_OK;
}
