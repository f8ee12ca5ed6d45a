/* What looking costs: steps of a GPT-2, a convolutional network and a translator of LSTMs, with the times of every
 * instruction taken, against the same steps without, which alternate; how much of a step those times add up to; and what
 * an instruction takes longer since the executor asks whether anybody looks.
 *
 *     bench_observer [NAME]     one of the models, or "question" */
#include <string.h>

#include "bench_common.h"
#include "exec/executor_own.h"
#include "exec/instr_times.h"
#include "trainee.h"

enum { ROUNDS = 31, ADDS = 10000, ASKED = 501 };

static void must(const ht_context *ctx, ht_status status)
{
    if (status == HT_OK) return;
    fprintf(stderr, "%s\n", ht_context_message(ctx));
    exit(1);
}

static double time_step(ht_context *ctx, ht_session *s)
{
    double start = bench_now();
    must(ctx, ht_session_run(s, "train"));
    return bench_now() - start;
}

static double sum_times(const ht_instr_times *times, const ht_plan *plan, int64_t *instrs)
{
    double sum = 0;
    *instrs = 0;
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++) {
            sum += ht_instr_times_seconds(times, s, i);
            *instrs += ht_instr_times_runs(times, s, i);
        }
    return sum;
}

/* ---- a step ---- */

static trainee trainees[] = {
    {.name = "gpt2_6x384",
     .type = "gpt2",
     .json = "{\"n_layer\": 6, \"n_head\": 6, \"n_embd\": 384}",
     .optimizer = "adamw",
     .request = {.task = HT_TASK_LM, .batch = 4, .length = 256, .vocabulary = 8192}},
    {.name = "resnet18_cifar_b32",
     .type = "resnet",
     .json = "{\"depth\": 18, \"stem\": \"cifar\"}",
     .optimizer = "sgd",
     .request = {.task = HT_TASK_CLASS, .batch = 32, .classes = 10, .feature_rank = 3, .feature = {3, 32, 32}}},
    {.name = "seq2seq_2x256_b32",
     .type = "seq2seq",
     .json = "{\"hidden\": 256, \"layers\": 2}",
     .optimizer = "adam",
     .request = {.task = HT_TASK_PAIRS,
                 .batch = 32,
                 .length = 32,
                 .source_length = 32,
                 .vocabulary = 8000,
                 .source_vocabulary = 8000}},
};

static double least(const double *values, int count)
{
    double least = values[0];
    for (int i = 1; i < count; i++)
        if (values[i] < least) least = values[i];
    return least;
}

static void measure_steps(ht_context *ctx, trainee *t)
{
    double seen[ROUNDS], unseen[ROUNDS], share[ROUNDS];
    char name[64];
    int64_t instrs = 0;
    trainee_start(t, ctx);
    ht_session *s = t->ours.session;
    ht_instr_times *times;
    must(ctx, ht_instr_times_create(&times, t->ours.plan, 0));
    for (int i = 0; i < 2; i++) time_step(ctx, s);
    for (int i = 0; i < ROUNDS; i++) {
        must(ctx, ht_executor_observe(s->executor, NULL));
        unseen[i] = time_step(ctx, s);
        ht_instr_times_reset(times);
        must(ctx, ht_executor_observe(s->executor, ht_instr_times_observer(times)));
        seen[i] = time_step(ctx, s);
        share[i] = sum_times(times, t->ours.plan, &instrs) / seen[i];
    }
    must(ctx, ht_executor_observe(s->executor, NULL));
    double fastest = least(seen, ROUNDS) / least(unseen, ROUNDS);
    double on = 1e3 * bench_median(seen, ROUNDS), off = 1e3 * bench_median(unseen, ROUNDS);
    snprintf(name, sizeof name, "observer_on_%s", t->name);
    bench_line(name, on, off, "observer_off", "ms");
    printf("  %lld runs of instructions in a step; medians differ by %.2f %%, the fastest steps by %.2f %%\n",
           (long long)instrs, 100 * (on / off - 1), 100 * (fastest - 1));
    printf("  times of instructions add up to %.2f %% of the step (median), %.2f %% at least\n",
           100 * bench_median(share, ROUNDS), 100 * least(share, ROUNDS));
    ht_instr_times_free(times);
    trainee_stop(t);
}

/* ---- the question ---- */

/* ht_executor_run_instr without the question, where all instructions run on one queue. */
static __attribute__((noinline)) ht_status run_unasked(ht_executor *e, size_t segment, unsigned slot, size_t index,
                                                       ht_lane **order)
{
    ht_launch *launch = &e->launches[slot * e->plan->segment_count + segment][index];
    ht_run_fn run = e->runs[segment][index];
    (void)order;
    if (!run) return HT_OK;
    if (e->beside) return HT_EINVAL;
    HT_TRY(ht_queue_launch(launch->queue, run, launch));
    return e->beside ? HT_EINVAL : HT_OK;
}

static double time_instrs(ht_context *ctx, ht_executor *e, size_t segment,
                          ht_status (*run)(ht_executor *e, size_t segment, unsigned slot, size_t index,
                                           ht_lane **order))
{
    ht_lane *order = NULL;
    size_t count = e->plan->segments[segment].instr_count;
    double start = bench_now();
    for (size_t i = 0; i < count; i++) must(ctx, run(e, segment, 0, i, &order));
    return (bench_now() - start) / (double)count;
}

/* Tiny adds, which alternate in the executor's own loop and in one that does not ask. */
static void measure_question(ht_context *ctx)
{
    double asked[ASKED], unasked[ASKED];
    ours o = {.run = "forward"};
    ht_plan_opts opts = HT_PLAN_OPTS;
    must(ctx, ht_graph_create(&o.graph, ctx));
    ht_val x = ht_input(o.graph, "x", HT_F32, 1, (int64_t[]){8}), v = x;
    for (int i = 0; i < ADDS; i++) v = ht_add(o.graph, v, x);
    ht_output(o.graph, "y", v);
    must(ctx, ht_graph_status(o.graph));
    opts.no_fusion = true;
    must(ctx, ht_plan_create(&o.plan, o.graph, &opts));
    must(ctx, ht_session_create(&o.session, o.plan, NULL));
    must(ctx, ht_session_run(o.session, "forward"));
    ht_executor *e = o.session->executor;
    size_t segment = (size_t)ht_plan_segment_find(o.plan, "forward");
    for (int i = 0; i < ASKED; i++) {
        asked[i] = time_instrs(ctx, e, segment, ht_executor_run_instr);
        unasked[i] = time_instrs(ctx, e, segment, run_unasked);
    }
    double with = 1e9 * bench_median(asked, ASKED), without = 1e9 * bench_median(unasked, ASKED);
    bench_line("observer_question", with, without, "without_it", "ns");
    printf("  nobody looks: an instruction takes %.2f ns with the question, %.2f without (fastest %.2f, %.2f)\n", with,
           without, 1e9 * least(asked, ASKED), 1e9 * least(unasked, ASKED));
    ours_end(&o);
}

int main(int count, char **words)
{
    ht_context *ctx = ours_context();
    for (size_t i = 0; i < sizeof trainees / sizeof trainees[0]; i++)
        if (count < 2 || strstr(trainees[i].name, words[1])) measure_steps(ctx, &trainees[i]);
    if (count < 2 || strcmp(words[1], "question") == 0) measure_question(ctx);
    ht_context_free(ctx);
    return 0;
}
