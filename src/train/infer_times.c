#include "train/infer_times.h"

#include <stdlib.h>
#include <string.h>

/* At least so many runs, and for so long; the first ones warm up. */
enum { WARM_UP = 3, FEWEST_RUNS = 10, MOST_RUNS = 1000 };

int ht_infer_segment(const ht_plan *plan)
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
ht_status ht_infer_times_measure(ht_infer_times *out, ht_context *ctx, ht_session *session, double enough_s)
{
    double seconds[MOST_RUNS];
    int segment = ht_infer_segment(session->plan), count = 0;
    double sum = 0;
    if (segment < 0) HT_FAIL(ctx, HT_ENOTSUP, "the model has no evaluation");
    for (int i = 0; i < WARM_UP; i++) HT_TRY(run_once(session, (size_t)segment, &seconds[0]));
    for (; count < MOST_RUNS && (count < FEWEST_RUNS || sum < enough_s); count++) {
        HT_TRY(run_once(session, (size_t)segment, &seconds[count]));
        sum += seconds[count];
    }
    qsort(seconds, (size_t)count, sizeof seconds[0], by_value);
    out->p50_s = seconds[count / 2];
    out->p90_s = seconds[(count - 1) * 9 / 10];
    out->p99_s = seconds[(count - 1) * 99 / 100];
    ht_infer_cost(out, session);
    return HT_OK;
}

void ht_infer_cost(ht_infer_times *out, const ht_session *session)
{
    const ht_plan_segment *s = &session->plan->segments[ht_infer_segment(session->plan)];
    out->cost = ht_plan_segment_cost(s);
    out->plan_bytes = ht_plan_bytes(session->plan);
    out->weight_bytes = bytes_of_weights(s);
}

/* ---- in turns with others ---- */

ht_status ht_infer_turn(ht_infer_samples *samples, ht_context *ctx, ht_session *session, double enough_s, double *p50_s)
{
    enum { FEWEST = 3 };
    int segment = ht_infer_segment(session->plan);
    size_t before = samples->count;
    double sum = 0;
    if (segment < 0) HT_FAIL(ctx, HT_ENOTSUP, "the model has no evaluation");
    HT_TRY(run_once(session, (size_t)segment, p50_s)); /* its memory may be in no cache by now */
    while (samples->count - before < FEWEST || sum < enough_s) {
        if (!ht_grow((void **)&samples->seconds, &samples->capacity, samples->count + 1, sizeof *samples->seconds))
            HT_FAIL(ctx, HT_ENOMEM, "out of memory for times");
        HT_TRY(run_once(session, (size_t)segment, &samples->seconds[samples->count]));
        sum += samples->seconds[samples->count++];
    }
    double *turn = samples->seconds + before;
    qsort(turn, samples->count - before, sizeof *turn, by_value);
    *p50_s = turn[(samples->count - before) / 2];
    return HT_OK;
}

double ht_infer_samples_quantile(ht_infer_samples *samples, double share)
{
    qsort(samples->seconds, samples->count, sizeof *samples->seconds, by_value);
    return samples->seconds[(size_t)(share * (double)(samples->count - 1))];
}

void ht_infer_samples_free(ht_infer_samples *samples)
{
    free(samples->seconds);
    *samples = (ht_infer_samples){0};
}
