/* Collectives in graphs, run by ranks that are threads, each with a context, a plan and a session of its own. With
 * HALFTONE_TEST_RANKS=cuda each has a GPU of its own, too, and they exchange by NCCL. */
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"
#include "device/device.h"
#include "plan/plan.h"
#include "session_fixture.h"

enum { RANKS = 4, STEPS = 3, ROWS = 256, WIDTH = 64, SKIPPED = 77 };

/* ---- a rank ---- */

typedef struct rank_session {
    ht_context *ctx;
    ht_graph *g;
    ht_plan *plan;
    ht_session *s;
} rank_session;

typedef struct rank_job {
    const char *text;
    const char *device;            /* NULL: cpu */
    const ht_train_opts *training; /* NULL: the graph as it is */
    bool canaries;
} rank_job;

static bool on_gpus(void)
{
    const char *device = getenv("HALFTONE_TEST_RANKS");
    return device && strcmp(device, "cuda") == 0;
}

static ht_status open_session(rank_session *r, const rank_job *job, ht_comm *world)
{
    ht_plan_opts planning = HT_PLAN_OPTS;
    ht_session_opts opts = HT_SESSION_OPTS;
    char gpu[16];
    snprintf(gpu, sizeof gpu, "cuda:%d", world ? ht_comm_rank(world) : 0);
    planning.device = on_gpus() ? gpu : job->device;
    planning.canaries = job->canaries;
    opts.comm = world;
    HT_TRY(ht_graph_parse(&r->g, r->ctx, "text", job->text, strlen(job->text)));
    if (job->training) HT_TRY(ht_graph_train(r->g, job->training));
    HT_TRY(ht_plan_create(&r->plan, r->g, &planning));
    return ht_session_create(&r->s, r->plan, &opts);
}

static void end_session(rank_session *r)
{
    ht_session_free(r->s);
    ht_plan_free(r->plan);
    ht_graph_free(r->g);
    ht_context_free(r->ctx);
}

typedef ht_status (*session_fn)(rank_session *r, ht_comm *world, void *arg);

static ht_status with_session(const rank_job *job, ht_comm *world, ht_context *messages, session_fn fn, void *arg)
{
    rank_session r = {.ctx = context_create(1, NULL)};
    ht_status status = open_session(&r, job, world);
    if (status == HT_OK) status = fn(&r, world, arg);
    if (status != HT_OK) ht_fail(messages, status, "%s", ht_context_message(r.ctx));
    end_session(&r);
    return status;
}

static ht_status run_ranks(int ranks, double delay_us, uint64_t seed, ht_rank_fn fn, void *arg)
{
    ht_thread_ranks_opts opts = {.ranks = ranks, .most_delay_us = delay_us, .seed = seed, .timeout_s = 60};
    return ht_thread_ranks_run(test_ctx, &opts, fn, arg);
}

/* ---- overlap ---- */

/* Two exchanges beside products, and one whose result is stored. */
static const char overlapped[] = "state %sum f32[256,64] heading=statistics\n"
                                 "segment step (%x f32[256,64], %w f32[64,64]) -> (y=%out, low=%low) {\n"
                                 "  %h = matmul f32[256,64] (%x, %w)\n"
                                 "  %t = all_reduce_start f32[256,64] (%h) ranks=4\n"
                                 "  %a = tanh f32[256,64] (%x)\n"
                                 "  %ah = cast bf16[256,64] (%a)\n"
                                 "  %u = reduce_scatter_start bf16[64,64] (%ah) ranks=4\n"
                                 "  %b = matmul f32[256,64] (%a, %w)\n"
                                 "  %c = matmul f32[256,64] (%b, %w)\n"
                                 "  %r = all_reduce_done f32[256,64] (%t, %h)\n"
                                 "  %out = add f32[256,64] (%c, %r)\n"
                                 "  %n = add f32[256,64] (%sum, %out)\n"
                                 "  %low = reduce_scatter_done bf16[64,64] (%u, %ah)\n"
                                 "  store %sum = %n\n"
                                 "}\n";

static const char in_turn[] = "state %sum f32[256,64] heading=statistics\n"
                              "segment step (%x f32[256,64], %w f32[64,64]) -> (y=%out, low=%low) {\n"
                              "  %h = matmul f32[256,64] (%x, %w)\n"
                              "  %t = all_reduce_start f32[256,64] (%h) ranks=4\n"
                              "  %r = all_reduce_done f32[256,64] (%t, %h)\n"
                              "  %a = tanh f32[256,64] (%x)\n"
                              "  %ah = cast bf16[256,64] (%a)\n"
                              "  %u = reduce_scatter_start bf16[64,64] (%ah) ranks=4\n"
                              "  %low = reduce_scatter_done bf16[64,64] (%u, %ah)\n"
                              "  %b = matmul f32[256,64] (%a, %w)\n"
                              "  %c = matmul f32[256,64] (%b, %w)\n"
                              "  %out = add f32[256,64] (%c, %r)\n"
                              "  %n = add f32[256,64] (%sum, %out)\n"
                              "  store %sum = %n\n"
                              "}\n";

typedef struct outcome {
    float sum[RANKS][ROWS * WIDTH];
    uint16_t low[RANKS][ROWS / RANKS * WIDTH];
} outcome;

typedef struct overlap_job {
    rank_job job;
    outcome *out;
} overlap_job;

static ht_status run_steps(rank_session *r, ht_comm *world, void *arg)
{
    outcome *out = arg;
    int rank = ht_comm_rank(world);
    static _Thread_local float x[ROWS * WIDTH], w[WIDTH * WIDTH];
    for (int i = 0; i < WIDTH * WIDTH; i++) w[i] = (float)((i * 13) % 29 - 14) / 64;
    HT_TRY(ht_session_write(r->s, "w", w, sizeof w));
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < ROWS * WIDTH; i++) x[i] = (float)((i * 7 + step * 3 + rank * 5) % 31 - 15) / 16;
        HT_TRY(ht_session_write(r->s, "x", x, sizeof x));
        HT_TRY(ht_session_run(r->s, "step"));
    }
    HT_TRY(ht_session_read(r->s, "sum", out->sum[rank], sizeof out->sum[rank]));
    return ht_session_read(r->s, "low", out->low[rank], sizeof out->low[rank]);
}

static ht_status overlap_rank(void *arg, ht_comm *world, ht_context *messages)
{
    const overlap_job *job = arg;
    return with_session(&job->job, world, messages, run_steps, job->out);
}

static outcome expected, found;

static void check_overlap(const char *device, bool canaries, double delay_us, uint64_t seed)
{
    memset(&found, 0, sizeof found);
    overlap_job job = {{overlapped, device, NULL, canaries}, &found};
    context_must(test_ctx, run_ranks(RANKS, delay_us, seed, overlap_rank, &job));
    assert_memory_equal(&found, &expected, sizeof found);
}

static void ranks__overlap_changes_no_bit(void **state)
{
    (void)state;
    overlap_job job = {{in_turn, NULL, NULL, false}, &expected};
    context_must(test_ctx, run_ranks(RANKS, 0, 0, overlap_rank, &job));
    assert_memory_not_equal(expected.low[0], expected.low[1], sizeof expected.low[0]);
    check_overlap(NULL, false, 0, 0);
    if (on_gpus()) return;
    check_overlap(NULL, true, 300, 1);
    check_overlap("fake", false, 0, 2);
    int seeds = getenv("HALFTONE_LONG") ? 30 : 3;
    for (int seed = 0; seed < seeds; seed++) check_overlap(NULL, false, 2000, (uint64_t)seed);
}

static ht_plan *plan_of(const char *text)
{
    ht_graph *g;
    ht_plan *plan;
    context_must(test_ctx, ht_graph_parse(&g, test_ctx, "text", text, strlen(text)));
    context_must(test_ctx, ht_plan_create(&plan, g, NULL));
    ht_graph_free(g);
    return plan;
}

/* The plan, and with it the memory, says where exchanges run and how long they keep what they work with. */
static void ranks__a_workspace_is_kept_until_the_exchange_is_done(void **state)
{
    (void)state;
    ht_plan *plan = plan_of(overlapped);
    const ht_plan_segment *s = &plan->segments[0];
    int exchanges = 0;
    for (size_t i = 0; i < s->instr_count; i++) {
        const ht_instr *start = &s->instrs[i];
        bool collective = start->call->op->flags & HT_OP_COLLECTIVE;
        assert_int_equal(start->queue, collective ? HT_QUEUE_COMM : HT_QUEUE_COMPUTE);
        if (!collective) continue;
        exchanges++;
        assert_int_equal(start->workspace.area, HT_AREA_TRANSIENT);
        int64_t end = start->workspace.offset + start->kernel->workspace(start->call, &plan->target);
        for (size_t k = i + 1; k < s->instr_count && s->instrs[k].wait != i + 1; k++)
            for (size_t o = 0; o < s->instrs[k].call->n_out; o++) {
                ht_place place = s->instrs[k].out[o];
                int64_t last = place.offset + ht_type_bytes(s->instrs[k].call->out[o]);
                if (place.area == HT_AREA_TRANSIENT && place.offset < end && last > start->workspace.offset)
                    fail_msg("%s writes into the workspace of %s", s->instrs[k].kernel->name, start->kernel->name);
            }
    }
    assert_int_equal(exchanges, 2);
    ht_plan_free(plan);
}

/* Whether the first collective of a graph writes over what it reads. */
static bool is_in_place(const char *text)
{
    ht_plan *plan = plan_of(text);
    const ht_plan_segment *s = &plan->segments[0];
    size_t i = 0;
    while (!(s->instrs[i].call->op->flags & HT_OP_COLLECTIVE)) i++;
    bool same = ht_place_same(s->instrs[i].in[0], s->instrs[i].out[0]);
    ht_plan_free(plan);
    return same;
}

#define BEGIN "state %g f32[64] heading=gradients\nsegment step (%x f32[64]) -> (y=%y) {\n"
static void ranks__an_all_reduce_takes_the_bytes_that_only_it_reads(void **state)
{
    (void)state;
    assert_true(is_in_place(BEGIN "  %h = tanh (%x)\n  %t = all_reduce_start (%h) ranks=2\n  %a = neg (%x)\n"
                                  "  %r = all_reduce_done (%t, %h)\n  %y = sub (%a, %r)\n}\n"));
    assert_true(is_in_place(BEGIN "  %t = all_reduce_start (%g) ranks=2\n  %y = neg (%x)\n"
                                  "  %r = all_reduce_done (%t, %g)\n  store %g = %r\n}\n"));
    /* Something else reads them, between the two or behind. */
    assert_false(is_in_place(BEGIN "  %h = tanh (%x)\n  %t = all_reduce_start (%h) ranks=2\n  %a = cumsum (%h)\n"
                                   "  %r = all_reduce_done (%t, %h)\n  %y = sub (%a, %r)\n}\n"));
    assert_false(is_in_place(BEGIN "  %h = tanh (%x)\n  %t = all_reduce_start (%h) ranks=2\n"
                                   "  %r = all_reduce_done (%t, %h)\n  %y = sub (%h, %r)\n}\n"));
    assert_false(is_in_place(BEGIN "  %t = all_reduce_start (%g) ranks=2\n  %y = neg (%g)\n"
                                   "  %r = all_reduce_done (%t, %g)\n  store %g = %r\n}\n"));
    /* A value that is stored is not made where an exchange still reads. */
    ht_plan *plan = plan_of(BEGIN "  %t = all_reduce_start (%g) ranks=2\n  %y = neg (%x)\n"
                                  "  %n = tanh (%x)\n  %r = all_reduce_done (%t, %g)\n  %z = add (%r, %y)\n"
                                  "  store %g = %n\n}\n");
    for (size_t i = 0; i < plan->segments[0].instr_count && !plan->segments[0].instrs[i].wait; i++)
        assert_int_not_equal(plan->segments[0].instrs[i].out[0].area, HT_AREA_STATE);
    ht_plan_free(plan);
}

/* ---- every collective ---- */

/* 2 ranks; x has 4 elements: 10·rank + i. */
typedef struct collective_case {
    const char *line, *result; /* with %%t, of %x */
    double expected[2][8];
    int count;
} collective_case;

static const collective_case cases[] = {
    {"  %t = all_reduce_start f32[4] (%x) ranks=2\n  %y = all_reduce_done f32[4] (%t, %x)\n",
     "f32[4]",
     {{10, 12, 14, 16}, {10, 12, 14, 16}},
     4},
    {"  %t = all_reduce_start f32[4] (%x) ranks=2 reduction=\"max\"\n  %y = all_reduce_done f32[4] (%t, %x)\n",
     "f32[4]",
     {{10, 11, 12, 13}, {10, 11, 12, 13}},
     4},
    {"  %t = all_reduce_start f32[4] (%x) ranks=2 reduction=\"min\"\n  %y = all_reduce_done f32[4] (%t, %x)\n",
     "f32[4]",
     {{0, 1, 2, 3}, {0, 1, 2, 3}},
     4},
    {"  %t = all_gather_start f32[8] (%x) ranks=2\n  %y = all_gather_done f32[8] (%t, %x)\n",
     "f32[8]",
     {{0, 1, 2, 3, 10, 11, 12, 13}, {0, 1, 2, 3, 10, 11, 12, 13}},
     8},
    {"  %t = reduce_scatter_start f32[2] (%x) ranks=2\n  %y = reduce_scatter_done f32[2] (%t, %x)\n",
     "f32[2]",
     {{10, 12}, {14, 16}},
     2},
    {"  %t = reduce_scatter_within_start f32[4] (%x) ranks=2\n  %y = reduce_scatter_within_done f32[4] (%t, %x)\n",
     "f32[4]",
     {{10, 12, 2, 3}, {10, 11, 14, 16}},
     4},
    {"  %t = all_to_all_start f32[4] (%x) ranks=2\n  %y = all_to_all_done f32[4] (%t, %x)\n",
     "f32[4]",
     {{0, 1, 10, 11}, {2, 3, 12, 13}},
     4},
    {"  %t = broadcast_start f32[4] (%x) ranks=2 root=1\n  %y = broadcast_done f32[4] (%t, %x)\n",
     "f32[4]",
     {{10, 11, 12, 13}, {10, 11, 12, 13}},
     4},
    {"  %t = all_reduce_start f32[4] (%x) group=\"alone\"\n  %y = all_reduce_done f32[4] (%t, %x)\n",
     "f32[4]",
     {{0, 1, 2, 3}, {10, 11, 12, 13}},
     4},
};

static ht_status check_case(rank_session *r, ht_comm *world, void *arg)
{
    const collective_case *c = arg;
    int rank = ht_comm_rank(world);
    double x[4], y[8];
    for (int i = 0; i < 4; i++) x[i] = 10 * rank + i;
    HT_TRY(ht_session_write_f64(r->s, "x", x, 4));
    HT_TRY(ht_session_run(r->s, "step"));
    HT_TRY(ht_session_read_f64(r->s, "y", y, (size_t)c->count));
    for (int i = 0; i < c->count; i++)
        if (y[i] != c->expected[rank][i])
            HT_FAIL(r->ctx, HT_EVERIFY, "%s: rank %d, element %d: %g", c->line, rank, i, y[i]);
    return HT_OK;
}

static ht_status case_rank(void *arg, ht_comm *world, ht_context *messages)
{
    const collective_case *c = arg;
    char text[1024];
    ht_comm *alone;
    HT_TRY(ht_comm_add_group(&alone, world, messages, "alone", (int[]){ht_comm_rank(world)}, 1));
    snprintf(text, sizeof text, "segment step (%%x f32[4]) -> (y=%%y) {\n%s}\n", c->line);
    return with_session(&(rank_job){.text = text}, world, messages, check_case, arg);
}

static void ranks__every_collective_of_a_graph_exchanges(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        context_must(test_ctx, run_ranks(2, 0, 0, case_rank, (void *)(uintptr_t)&cases[i]));
}

/* ---- messages between two ranks: each has a graph of its own ---- */

static ht_status check_doubled(rank_session *r, ht_comm *world, void *arg)
{
    double x[3] = {1, 2, 3}, y[3];
    (void)arg;
    int rank = ht_comm_rank(world);
    if (rank == 0) HT_TRY(ht_session_write_f64(r->s, "x", x, 3));
    HT_TRY(ht_session_run(r->s, "step"));
    HT_TRY(ht_session_read_f64(r->s, "y", y, 3));
    for (int i = 0; i < 3; i++)
        if (y[i] != 2 * x[i]) HT_FAIL(r->ctx, HT_EVERIFY, "rank %d, element %d: %g", rank, i, y[i]);
    return HT_OK;
}

static ht_status pipeline_rank(void *arg, ht_comm *world, ht_context *messages)
{
    static const char *const texts[] = {"segment step (%x f32[3]) -> (y=%y) {\n"
                                        "  %t = send_start bool[] (%x) ranks=2 peer=1\n"
                                        "  %e = send_done bool[] (%t, %x)\n"
                                        "  %u = recv_start f32[3] () ranks=2 peer=1\n"
                                        "  %y = recv_done f32[3] (%u)\n"
                                        "  %v = send_start bool[] (%x) ranks=2\n" /* to nobody */
                                        "  %f = send_done bool[] (%v, %x)\n"
                                        "}\n",
                                        "segment step () -> (y=%y) {\n"
                                        "  %t = recv_start f32[3] () ranks=2 peer=0\n"
                                        "  %x = recv_done f32[3] (%t)\n"
                                        "  %y = add f32[3] (%x, %x)\n"
                                        "  %u = send_start bool[] (%y) ranks=2 peer=0\n"
                                        "  %e = send_done bool[] (%u, %y)\n"
                                        "}\n"};
    (void)arg;
    return with_session(&(rank_job){.text = texts[ht_comm_rank(world)]}, world, messages, check_doubled, NULL);
}

static void ranks__a_value_goes_to_another_rank_and_back(void **state)
{
    (void)state;
    context_must(test_ctx, run_ranks(2, 0, 0, pipeline_rank, NULL));
}

/* ---- gradients: of the sum over ranks of Σ a·y, where y follows from the trained %x; or of their one loss ---- */

/* The gradient of x on each of 2 ranks, where a is 1 + 10·rank + i. */
static const struct gradient_case {
    const char *lines;
    int elems; /* of y and a */
    double expected[2][4];
} gradients[] = {
    {"  %t = all_reduce_start f32[4] (%x) ranks=2\n  %y = all_reduce_done f32[4] (%t, %x)\n",
     4,
     {{12, 14, 16, 18}, {12, 14, 16, 18}}},
    {"  %t = all_gather_start f32[8] (%x) ranks=2\n  %y = all_gather_done f32[8] (%t, %x)\n",
     8,
     {{12, 14, 16, 18}, {20, 22, 24, 26}}},
    {"  %t = reduce_scatter_start f32[2] (%x) ranks=2\n  %y = reduce_scatter_done f32[2] (%t, %x)\n",
     2,
     {{1, 2, 11, 12}, {1, 2, 11, 12}}},
    {"  %t = all_to_all_start f32[4] (%x) ranks=2\n  %y = all_to_all_done f32[4] (%t, %x)\n",
     4,
     {{1, 2, 11, 12}, {3, 4, 13, 14}}},
    /* Of one loss that all ranks have. */
    {"  %y = fan_out f32[4] (%x) ranks=2\n", 4, {{12, 14, 16, 18}, {12, 14, 16, 18}}},
    {"  %t = all_reduce_start f32[4] (%x) ranks=2 gradient=\"identity\"\n  %y = all_reduce_done f32[4] (%t, %x)\n",
     4,
     {{1, 2, 3, 4}, {11, 12, 13, 14}}},
    {"  %t = all_gather_start f32[8] (%x) ranks=2 gradient=\"identity\"\n  %y = all_gather_done f32[8] (%t, %x)\n",
     8,
     {{6, 7, 8, 9}, {10, 11, 12, 13}}},
};

static ht_status check_gradient(rank_session *r, ht_comm *world, void *arg)
{
    const struct gradient_case *c = arg;
    int rank = ht_comm_rank(world);
    double a[8], x[4];
    for (int i = 0; i < c->elems; i++) a[i] = 1 + 10 * rank + i;
    HT_TRY(ht_session_write_f64(r->s, "a", a, (size_t)c->elems));
    HT_TRY(ht_session_run(r->s, "train"));
    HT_TRY(ht_session_read_f64(r->s, "x", x, 4));
    for (int i = 0; i < 4; i++)
        if (x[i] != -c->expected[rank][i])
            HT_FAIL(r->ctx, HT_EVERIFY, "%s: rank %d, element %d: %g", c->lines, rank, i, -x[i]);
    return HT_OK;
}

static ht_status gradient_rank(void *arg, ht_comm *world, ht_context *messages)
{
    const struct gradient_case *c = arg;
    char text[1024];
    ht_train_opts training = HT_TRAIN_OPTS;
    training.optimizer = "sgd";
    training.lr = 1;
    snprintf(text, sizeof text,
             "state %%x f32[4] heading=parameters trained\n"
             "segment forward (%%a f32[%d]) -> (loss=%%loss) {\n%s  %%p = mul f32[%d] (%%a, %%y)\n  %%loss = sum f32[] "
             "(%%p)\n}\n",
             c->elems, c->lines, c->elems);
    return with_session(&(rank_job){.text = text, .training = &training}, world, messages, check_gradient, arg);
}

static void ranks__gradients_are_those_of_the_sum_of_all_losses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof gradients / sizeof gradients[0]; i++)
        context_must(test_ctx, run_ranks(2, 0, 0, gradient_rank, (void *)(uintptr_t)&gradients[i]));
}

/* ---- what is refused ---- */

static void refuse(const char *line, ht_comm *world, const char *part)
{
    char text[1024];
    rank_session r = {.ctx = context_create(1, NULL)};
    snprintf(text, sizeof text, "segment step (%%x f32[4]) -> (y=%%y) {\n%s}\n", line);
    ht_status status = open_session(&r, &(rank_job){.text = text}, world);
    if (status == HT_OK || !strstr(ht_context_message(r.ctx), part))
        fail_msg("%s: '%s' lacks '%s'", line, ht_context_message(r.ctx), part);
    end_session(&r);
}

static void ranks__what_does_not_fit_the_world_is_refused_before_it_runs(void **state)
{
    (void)state;
    ht_comm *self;
    context_must(test_ctx, ht_comm_open_self(&self, test_ctx));
    refuse("  %t = all_reduce_start f32[4] (%x) ranks=2\n  %y = all_reduce_done f32[4] (%t, %x)\n", self,
           "the plan has 2 ranks in the group 'world', the session 1");
    refuse("  %t = all_reduce_start f32[4] (%x) ranks=2\n  %y = all_reduce_done f32[4] (%t, %x)\n", NULL,
           "the session 1");
    refuse("  %t = all_reduce_start f32[4] (%x) group=\"data\"\n  %y = all_reduce_done f32[4] (%t, %x)\n", self,
           "no group 'data'");
    refuse("  %t = reduce_scatter_start (%x) ranks=3\n  %y = reduce_scatter_done (%t, %x)\n", self,
           "not cut along axis 0 into 3 pieces");
    refuse("  %t = all_reduce_start (%x) reduction=\"mean\"\n  %y = all_reduce_done (%t, %x)\n", self, "sum, max, min");
    refuse("  %t = broadcast_start (%x) root=1\n  %y = broadcast_done (%t, %x)\n", self, "root=1");
    refuse("  %t = all_reduce_start (%x)\n  %y = neg (%x)\n", self, "has no all_reduce_done");
    ht_comm_free(self);
}

/* ---- failures ---- */

static ht_status dying_rank(void *arg, ht_comm *world, ht_context *messages)
{
    static _Thread_local outcome own;
    (void)arg;
    return with_session(&(rank_job){.text = overlapped}, world, messages, run_steps, &own);
}

static void ranks__a_rank_that_dies_ends_the_sessions_of_all(void **state)
{
    (void)state;
    ht_thread_ranks_opts opts = {.ranks = RANKS, .death_rank = 2, .death_at = 5};
    assert_int_equal(ht_thread_ranks_run(test_ctx, &opts, dying_rank, NULL), HT_ERANK);
    assert_non_null(strstr(ht_context_message(test_ctx), "rank 2: "));
    assert_non_null(strstr(ht_context_message(test_ctx), "told to die"));
}

/* ---- order ---- */

static uint64_t effects_of(const char *text)
{
    ht_plan *plan = plan_of(text);
    uint64_t hash = ht_plan_effects_hash(plan);
    ht_plan_free(plan);
    return hash;
}

static void ranks__the_order_of_collectives_is_one_number(void **state)
{
    (void)state;
    static const char one[] = "segment step (%x f32[4], %z f32[8]) -> (y=%y, w=%w) {\n"
                              "  %t = all_reduce_start (%x) ranks=2\n  %u = all_reduce_start (%z) ranks=2\n"
                              "  %y = all_reduce_done (%t, %x)\n  %w = all_reduce_done (%u, %z)\n}\n";
    static const char other[] = "segment step (%x f32[4], %z f32[8]) -> (y=%y, w=%w) {\n"
                                "  %u = all_reduce_start (%z) ranks=2\n  %t = all_reduce_start (%x) ranks=2\n"
                                "  %y = all_reduce_done (%t, %x)\n  %w = all_reduce_done (%u, %z)\n}\n";
    static const char later[] = "segment step (%x f32[4], %z f32[8]) -> (y=%y, w=%w) {\n"
                                "  %t = all_reduce_start (%x) ranks=2\n  %u = all_reduce_start (%z) ranks=2\n"
                                "  %w = all_reduce_done (%u, %z)\n  %y = all_reduce_done (%t, %x)\n}\n";
    assert_true(effects_of(one) == effects_of(one));
    assert_true(effects_of(one) != effects_of(other));
    assert_true(effects_of(one) == effects_of(later)); /* when a rank waits is its own affair */
}

/* ---- on GPUs ---- */

/* One GPU is a world of one, and NCCL's smallest: every collective leaves what there is, in every type. */
static void ranks__a_gpu_alone_exchanges_with_itself(void **state)
{
    (void)state;
    static const char *const kinds[] = {"all_reduce", "all_gather", "reduce_scatter", "reduce_scatter_within",
                                        "all_to_all", "broadcast"};
    static const char *const dtypes[] = {"f32", "f16", "bf16", "i32"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (size_t t = 0; t < sizeof dtypes / sizeof dtypes[0]; t++) {
            char line[512], result[16];
            snprintf(result, sizeof result, "%s[4]", dtypes[t]);
            snprintf(line, sizeof line,
                     "  %%h = cast %s (%%x)\n  %%t = %s_start %s (%%h)\n  %%y = %s_done %s (%%t, %%h)\n", result,
                     kinds[i], result, kinds[i], result);
            collective_case c = {.line = line, .result = result, .expected = {{0, 1, 2, 3}}, .count = 4};
            context_must(test_ctx, run_ranks(1, 0, 0, case_rank, &c));
        }
}

/* A rank that leaves before some step, and what the others are told. */
typedef struct leaving {
    int at;                 /* 0: before they have exchanged anything; 1: between two exchanges */
    void (*hold)(int held); /* then the others wait for their GPUs; NULL: for their calls */
    atomic_int left, told;
    char reasons[RANKS][256];
} leaving;
enum { LEAVER = 2 };

static void leave(leaving *l, ht_comm *world)
{
    if (l->hold) l->hold(1);
    l->left = 1;
    ht_comm_abort(world, "the GPU is gone");
    while (l->told < RANKS - 1) sched_yield(); /* the end of its own session changes nothing for the others */
}

static ht_status run_until_left(rank_session *r, ht_comm *world, void *arg)
{
    leaving *l = arg;
    int rank = ht_comm_rank(world);
    ht_status status = HT_OK;
    for (int step = 0; step < STEPS && status == HT_OK; step++) {
        bool held = l->hold && step == l->at;
        if (rank == LEAVER && step == l->at) {
            leave(l, world);
            return HT_ERANK;
        }
        while (held && !l->left) sched_yield();
        if (!held) status = ht_session_run(r->s, "step");
        if (status == HT_OK) status = ht_session_wait(r->s);
    }
    snprintf(l->reasons[rank], sizeof l->reasons[rank], "%s", status == HT_OK ? "" : ht_context_message(r->ctx));
    l->told++;
    return status;
}

static ht_status leaving_rank(void *arg, ht_comm *world, ht_context *messages)
{
    return with_session(&(rank_job){.text = overlapped}, world, messages, run_until_left, arg);
}

static double seconds(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* How many of the others were told that it has left. */
static int run_leaving(leaving *l)
{
    double begin = seconds();
    int told = 0;
    assert_int_equal(run_ranks(RANKS, 0, 0, leaving_rank, l), HT_ERANK);
    assert_true(seconds() - begin < 10);
    for (int i = 0; i < RANKS; i++) told += strstr(l->reasons[i], "rank 2 has ended") != NULL;
    return told;
}

/* The others stand in NCCL, which waits for whoever does not come. */
static void ranks__with_gpus_end_when_one_of_them_dies(void **state)
{
    (void)state;
    for (int at = 0; at < 2; at++) {
        leaving l = {.at = at};
        assert_int_equal(run_leaving(&l), RANKS - 1);
        assert_non_null(strstr(l.reasons[0], "the GPU is gone"));
    }
}

/* What is in the queues ends when one of them gives its group up. */
static void ranks__whose_gpus_wait_for_a_dead_one_end(void **state)
{
    (void)state;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    leaving l = {.at = 1};
    if (driver) *(void **)&l.hold = dlsym(driver, "emulated_hold");
    if (!l.hold) skip();
    assert_true(run_leaving(&l) > 0);
}

/* One that hangs is given up after the timeout. */
static ht_status hanging_rank(void *arg, ht_comm *world, ht_context *messages)
{
    leaving *l = arg;
    if (ht_comm_rank(world) != LEAVER) return leaving_rank(arg, world, messages);
    while (l->told < RANKS - 1) sched_yield();
    return HT_OK;
}

static void ranks__with_gpus_wait_no_longer_than_the_timeout(void **state)
{
    (void)state;
    leaving l = {.at = STEPS};
    ht_thread_ranks_opts opts = {.ranks = RANKS, .timeout_s = 0.5};
    assert_int_equal(ht_thread_ranks_run(test_ctx, &opts, hanging_rank, &l), HT_ERANK);
    assert_non_null(strstr(ht_context_message(test_ctx), "timeout after 0.5 s"));
}

static int gpus(void)
{
    ht_device *device;
    if (ht_device_get(&device, test_ctx, "cuda") != HT_OK) return 0;
    return ht_cuda_device_count();
}

static int run_on_gpus(void)
{
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(ranks__a_gpu_alone_exchanges_with_itself),
    };
    const struct CMUnitTest several[] = {
        cmocka_unit_test(ranks__a_gpu_alone_exchanges_with_itself),
        cmocka_unit_test(ranks__overlap_changes_no_bit),
        cmocka_unit_test(ranks__every_collective_of_a_graph_exchanges),
        cmocka_unit_test(ranks__a_value_goes_to_another_rank_and_back),
        cmocka_unit_test(ranks__gradients_are_those_of_the_sum_of_all_losses),
        cmocka_unit_test(ranks__with_gpus_end_when_one_of_them_dies),
        cmocka_unit_test(ranks__whose_gpus_wait_for_a_dead_one_end),
        cmocka_unit_test(ranks__with_gpus_wait_no_longer_than_the_timeout),
    };
    context_setup(NULL);
    int count = gpus();
    context_teardown(NULL);
    if (count == 0) {
        printf("1..0 # SKIP there is no GPU\n");
        return SKIPPED;
    }
    if (count >= RANKS) return cmocka_run_group_tests(several, context_setup, context_teardown);
    printf("# %d of the %d GPUs that ranks need: only a rank alone is tested\n", count, RANKS);
    return cmocka_run_group_tests(alone, context_setup, context_teardown);
}

int main(void)
{
    if (on_gpus()) return run_on_gpus();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks__overlap_changes_no_bit),
        cmocka_unit_test(ranks__a_workspace_is_kept_until_the_exchange_is_done),
        cmocka_unit_test(ranks__an_all_reduce_takes_the_bytes_that_only_it_reads),
        cmocka_unit_test(ranks__every_collective_of_a_graph_exchanges),
        cmocka_unit_test(ranks__a_value_goes_to_another_rank_and_back),
        cmocka_unit_test(ranks__gradients_are_those_of_the_sum_of_all_losses),
        cmocka_unit_test(ranks__what_does_not_fit_the_world_is_refused_before_it_runs),
        cmocka_unit_test(ranks__a_rank_that_dies_ends_the_sessions_of_all),
        cmocka_unit_test(ranks__the_order_of_collectives_is_one_number),
    };
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
