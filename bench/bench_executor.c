/* What the executor adds to an instruction: 10,000 tiny adds as a plan, against the same kernel called in a plain loop
 * on the same operands. Rounds of both alternate; medians. */
#include "bench_common.h"
#include "train/train.h"

enum { OPS = 10000, ROUNDS = 51 };

static ht_status build(ht_graph *g)
{
    ht_val x = ht_input(g, "x", HT_F32, 1, (int64_t[]){8}), v = x;
    for (int i = 0; i < OPS; i++) v = ht_add(g, v, x);
    ht_output(g, "y", v);
    return ht_graph_status(g);
}

static double time_loop(const ht_instr *instr, ht_pool *pool)
{
    float a[8] = {1}, b[8] = {2}, c[8];
    const void *in[2] = {a, b};
    void *out[1] = {c};
    ht_launch launch = {.call = instr->call, .in = in, .out = out, .pool = pool, .fused = instr->fused};
    double start = bench_now();
    for (int i = 0; i < OPS; i++) instr->kernel->run(&launch);
    return bench_now() - start;
}

static double time_run(ht_session *s)
{
    double start = bench_now();
    ht_session_run(s, "forward");
    return bench_now() - start;
}

static int measure(int threads)
{
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.threads = threads;
    ht_context *ctx;
    ht_graph *g = NULL;
    ht_plan *plan = NULL;
    ht_session *s = NULL;
    double run[ROUNDS], loop[ROUNDS];
    if (ht_context_create(&ctx, &opts) != HT_OK) return 1;
    ht_status status = ht_graph_create(&g, ctx);
    if (status == HT_OK) status = build(g);
    ht_plan_opts plan_opts = HT_PLAN_OPTS;
    plan_opts.no_fusion = true;
    if (status == HT_OK) status = ht_plan_create(&plan, g, &plan_opts);
    if (status == HT_OK) status = ht_session_create(&s, plan, NULL);
    if (status == HT_OK) {
        const ht_plan_segment *segment = &plan->segments[ht_plan_segment_find(plan, "forward")];
        for (int i = 0; i < ROUNDS; i++) {
            run[i] = time_run(s);
            loop[i] = time_loop(&segment->instrs[segment->instr_count / 2], ctx->pool);
        }
        double ours = bench_median(run, ROUNDS) / OPS * 1e9, peer = bench_median(loop, ROUNDS) / OPS * 1e9;
        char name[64];
        snprintf(name, sizeof name, "executor_instruction_%dt", threads);
        bench_line(name, ours, peer, "kernel_in_a_loop", "ns");
        printf("  %zu instructions, overhead %.1f ns each\n", segment->instr_count, ours - peer);
    } else {
        fprintf(stderr, "%s\n", ht_context_message(ctx));
    }
    ht_session_free(s);
    ht_plan_free(plan);
    ht_graph_free(g);
    ht_context_free(ctx);
    return status != HT_OK;
}

int main(void)
{
    return measure(1) || measure(2);
}
