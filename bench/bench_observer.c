/* What looking costs: steps of GPT-2 with the times of every instruction taken, against the same steps without, which
 * alternate; how much of a step those times add up to; and the question that an executor asks before each instruction
 * when nobody looks. */
#include "bench_common.h"
#include "exec/instr_times.h"
#include "trainee.h"

enum { ROUNDS = 31, QUESTIONS = 1000000 };

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

/* As ht_executor_run_instr asks it: two loads and a branch that is never taken. */
static double time_question(void)
{
    static volatile bool canary;
    static const void *volatile observer;
    double start = bench_now();
    for (int i = 0; i < QUESTIONS; i++)
        if (canary || observer) abort();
    return (bench_now() - start) / QUESTIONS;
}

int main(void)
{
    ht_context *ctx = ours_context();
    trainee t = {.name = "gpt2_6x384_t256_v8192_b4",
                 .type = "gpt2",
                 .json = "{\"n_layer\": 6, \"n_head\": 6, \"n_embd\": 384}",
                 .optimizer = "adamw",
                 .request = {.task = HT_TASK_LM, .batch = 4, .length = 256, .vocabulary = 8192}};
    double seen[ROUNDS], unseen[ROUNDS], share[ROUNDS], question[ROUNDS];
    int64_t instrs = 0;
    trainee_start(&t, ctx);
    ht_session *s = t.ours.session;
    ht_instr_times *times;
    must(ctx, ht_instr_times_create(&times, t.ours.plan, 0));
    for (int i = 0; i < 2; i++) time_step(ctx, s);
    for (int i = 0; i < ROUNDS; i++) {
        must(ctx, ht_executor_observe(s->executor, NULL));
        unseen[i] = time_step(ctx, s);
        ht_instr_times_reset(times);
        must(ctx, ht_executor_observe(s->executor, ht_instr_times_observer(times)));
        seen[i] = time_step(ctx, s);
        share[i] = sum_times(times, t.ours.plan, &instrs) / seen[i];
        question[i] = time_question();
    }
    must(ctx, ht_executor_observe(s->executor, NULL));
    double on = 1e3 * bench_median(seen, ROUNDS), off = 1e3 * bench_median(unseen, ROUNDS);
    bench_line("observer_on_gpt2_6x384", on, off, "observer_off", "ms");
    printf("  %lld runs of instructions in a step; medians differ by %.2f %%, the fastest steps by %.2f %%\n",
           (long long)instrs, 100 * (on / off - 1), 100 * (seen[0] / unseen[0] - 1));
    printf("  times of instructions add up to %.2f %% of the step\n", 100 * bench_median(share, ROUNDS));
    printf("  nobody looks: the question takes %.2f ns\n", 1e9 * bench_median(question, ROUNDS));
    ht_instr_times_free(times);
    trainee_stop(&t);
    ht_context_free(ctx);
    return 0;
}
