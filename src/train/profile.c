#include "train/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/run_state.h"

const char *const ht_phase_names[HT_PHASE_COUNT] = {"data",    "forward",        "backward",      "update",
                                                    "records", "gaps and waits", "communication", "copies"};

static ht_status out_of_memory(const ht_run *run)
{
    HT_FAIL(run->ctx, HT_ENOMEM, "out of memory for a profile");
}

ht_status ht_profile_open(ht_profile **out, ht_run *run, size_t most_steps, size_t most_events)
{
    ht_profile *p = *out = calloc(1, sizeof *p);
    if (!p) return out_of_memory(run);
    *p = (ht_profile){.plan = run->job.plan, .run = run, .capacity = most_steps};
    p->step_begin = calloc(most_steps + 1, sizeof *p->step_begin);
    p->step_seconds = calloc(most_steps + 1, sizeof *p->step_seconds);
    size_t spans = most_steps * ((size_t)run->job.train_config->accumulate + 1);
    p->span_capacity = spans < most_events ? spans : most_events;
    p->spans = calloc(p->span_capacity + 1, sizeof *p->spans);
    ht_status status = p->step_begin && p->step_seconds && p->spans ? HT_OK : out_of_memory(run);
    if (status == HT_OK) status = ht_instr_times_create(&p->times, p->plan, most_events);
    if (status == HT_OK) status = ht_executor_observe(run->job.session->executor, ht_instr_times_observer(p->times));
    p->observes = status == HT_OK;
    p->hardware = ht_perf_counters_open(p->no_counters, sizeof p->no_counters);
    if (status == HT_OK) return HT_OK;
    ht_profile_free(p);
    *out = NULL;
    return status;
}

/* Adds what was counted since `before`. */
static void add_counters(ht_profile *p, const int64_t before[HT_COUNTER_COUNT])
{
    int64_t now[HT_COUNTER_COUNT];
    if (!p->hardware) return;
    ht_perf_counters_read(p->hardware, now);
    for (int i = 0; i < HT_COUNTER_COUNT; i++) p->counters[i] += (double)(now[i] - before[i]);
}

void ht_profile_span(ht_profile *p, ht_phase phase, double begin, double end)
{
    if (!p) return;
    *(phase == HT_PHASE_DATA ? &p->data_seconds : &p->record_seconds) += end - begin;
    if (p->span_count < p->span_capacity) p->spans[p->span_count++] = (ht_phase_span){phase, begin, end};
}

ht_status ht_profile_step(ht_profile *p, bool *dropped)
{
    ht_run *run = p->run;
    int64_t counted[HT_COUNTER_COUNT] = {0};
    ht_step_report report;
    double data = p->data_seconds, records = p->record_seconds, begin;
    size_t spans = p->span_count;
    if (p->steps == p->capacity) HT_FAIL(run->ctx, HT_EINVAL, "a profile of %zu steps is full", p->capacity);
    if (p->hardware) ht_perf_counters_read(p->hardware, counted);
    begin = ht_instr_clock();
    run->profile = p;
    ht_status status = ht_run_step(run, &report, dropped);
    run->profile = NULL;
    HT_TRY(status);
    if (*dropped) {
        p->data_seconds = data;
        p->record_seconds = records;
        p->span_count = spans;
        return HT_OK;
    }
    p->step_begin[p->steps] = begin;
    p->step_seconds[p->steps++] = ht_instr_clock() - begin;
    add_counters(p, counted);
    p->tokens += report.tokens_per_second * report.step_ms / 1e3;
    return HT_OK;
}

/* ---- the sums ---- */

ht_phase ht_instr_phase(const ht_instr *instr)
{
    if (instr->queue == HT_QUEUE_COMM || (instr->call->op->flags & HT_OP_COLLECTIVE)) return HT_PHASE_COMMUNICATION;
    if (instr->queue != HT_QUEUE_COMPUTE) return HT_PHASE_COPIES;
    if (instr->role == HT_ROLE_UPDATE) return HT_PHASE_UPDATE;
    return instr->role == HT_ROLE_FWD && !instr->recomputed ? HT_PHASE_FORWARD : HT_PHASE_BACKWARD;
}

void ht_phase_profile_add(ht_phase_profile *sum, const ht_instr_profile *i)
{
    sum->seconds += i->seconds;
    sum->flops += i->runs * ht_cost_flops(i->instr->cost);
    sum->bytes += i->runs * i->instr->cost.bytes;
    sum->limit_seconds += i->runs * i->limit.limit_s;
    sum->bound_seconds[i->limit.bound] += i->seconds;
}

/* What its products take at the ceilings, those of an update left out. */
static void add_products(ht_profile *p, const ht_instr_profile *i)
{
    ht_target shipped = p->plan->target;
    double flops = i->runs * i->instr->cost.dot_flops;
    if (i->instr->role == HT_ROLE_UPDATE) return;
    memset(shipped.flops, 0, sizeof shipped.flops);
    p->product_seconds += flops / i->limit.product_flops;
    p->product_seconds_default += flops / ht_instr_roofline(&shipped, i->instr).product_flops;
    if (flops > 0 && p->plan->target.flops[i->limit.format] > 0) p->measured_ceilings = true;
}

static ht_status add_instr(ht_profile *p, size_t segment, size_t index)
{
    const ht_plan_segment *s = &p->plan->segments[segment];
    const ht_instr *instr = &s->instrs[index];
    double runs = (double)ht_instr_times_runs(p->times, segment, index) / (double)p->steps;
    if (runs == 0) return HT_OK;
    ht_instr_profile *i = &p->instrs[p->instr_count++];
    *i = (ht_instr_profile){
        .segment = s,
        .index = index,
        .instr = instr,
        .layer = ht_instr_layer(s, index),
        .phase = ht_instr_phase(instr),
        .seconds = ht_instr_times_seconds(p->times, segment, index) / (double)p->steps,
        .runs = runs,
        .work = ht_instr_work(instr),
        .limit = ht_instr_roofline(&p->plan->target, instr),
    };
    ht_phase_profile_add(&p->phases[i->phase], i);
    add_products(p, i);
    ht_step_flops_add(&p->flops, instr, runs);
    return ht_module_tree_add(&p->modules, p->plan, s, index, runs, i->seconds);
}

static ht_status sum_up(ht_profile *p)
{
    size_t most = 0;
    if (p->steps == 0) HT_FAIL(p->run->ctx, HT_EINVAL, "a profile without steps");
    for (size_t s = 0; s < p->plan->segment_count; s++) most += p->plan->segments[s].instr_count;
    p->instrs = calloc(most + 1, sizeof *p->instrs);
    if (!p->instrs) return out_of_memory(p->run);
    HT_TRY(ht_module_tree_create(&p->modules, p->plan));
    for (size_t s = 0; s < p->plan->segment_count; s++)
        for (size_t i = 0; i < p->plan->segments[s].instr_count; i++) HT_TRY(add_instr(p, s, i));
    HT_TRY(ht_module_tree_sort(&p->modules, p->plan));
    for (int i = 0; i < HT_COUNTER_COUNT; i++) p->counters[i] /= (double)p->steps;
    for (size_t i = 0; i < p->steps; i++) p->mean_seconds += p->step_seconds[i] / (double)p->steps;
    p->phases[HT_PHASE_DATA].seconds = p->data_seconds / (double)p->steps;
    p->phases[HT_PHASE_RECORDS].seconds = p->record_seconds / (double)p->steps;
    double rest = p->mean_seconds;
    for (int phase = 0; phase < HT_PHASE_REST; phase++) rest -= p->phases[phase].seconds;
    p->phases[HT_PHASE_REST].seconds = rest > 0 ? rest : 0; /* queues of a device may work beside each other */
    return HT_OK;
}

ht_status ht_profile_finish(ht_profile *p)
{
    p->observes = false;
    HT_TRY(ht_executor_observe(p->run->job.session->executor, NULL));
    const ht_train_config *c = p->run->job.train_config;
    bool counts_tokens = p->run->job.task != HT_TASK_CLASS && p->run->job.task != HT_TASK_REGRESSION;
    p->samples = (double)c->batch;
    p->tokens = counts_tokens && p->steps ? p->tokens / (double)p->steps : 0;
    return sum_up(p);
}

void ht_profile_free(ht_profile *p)
{
    if (!p) return;
    if (p->observes) (void)ht_executor_observe(p->run->job.session->executor, NULL); /* its failure was told */
    ht_module_tree_free(&p->modules);
    ht_instr_times_free(p->times);
    ht_perf_counters_close(p->hardware);
    free(p->step_begin);
    free(p->step_seconds);
    free(p->spans);
    free(p->instrs);
    free(p);
}

/* ---- questions ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double ht_profile_percentile(const ht_profile *p, double percent)
{
    double *sorted = malloc((p->steps + 1) * sizeof *sorted);
    if (!sorted || p->steps == 0) {
        free(sorted);
        return NAN;
    }
    memcpy(sorted, p->step_seconds, p->steps * sizeof *sorted);
    qsort(sorted, p->steps, sizeof *sorted, by_value);
    double at = percent / 100 * (double)(p->steps - 1);
    size_t below = (size_t)at, above = below + 1 < p->steps ? below + 1 : below;
    double value = sorted[below] + (at - (double)below) * (sorted[above] - sorted[below]);
    free(sorted);
    return value;
}

double ht_profile_mfu(const ht_profile *p, bool measured)
{
    return (measured ? p->product_seconds : p->product_seconds_default) / p->mean_seconds;
}
