/* What memory bounds, as shares of the best copy that this machine makes, by bytes moved: each input counted once, each
 * result once. */
#include <string.h>

#include "ceilings.h"
#include "contest.h"
#include "handwritten.h"
#include "optim/optim.h"
#include "ours.h"
#include "peer.h"

static ceiling copies[2] = {{.kind = CEILING_COPY}, {.kind = CEILING_COPY_STREAM}};

/* Both copies as sides of the contest; returns the first one's number. */
static int add_copies(contest *c)
{
    copies[0].threads = copies[1].threads = bench_threads();
    int first = contest_add(c, "copy", ceiling_turn, &copies[0], ceiling_work(&copies[0]));
    contest_add(c, "copy_stream", ceiling_turn, &copies[1], ceiling_work(&copies[1]));
    return first;
}

static void best_copy_row(const contest *c, int mine, int first_copy)
{
    contest_row(c, NULL, mine, contest_better(c, first_copy, first_copy + 1), "best_copy");
}

/* ---- a chain of point-wise ops, to bf16 ---- */

static void measure_chain(ht_context *ctx)
{
    enum { ROWS = 65536, COLUMNS = 1024 }; /* 64 Mi elements */
    ours o;
    ours_begin(&o, ctx);
    ht_graph *g = o.graph;
    ht_val x = ht_input(g, "x", HT_F32, 2, (int64_t[]){ROWS, COLUMNS});
    ht_val row = ht_input(g, "row", HT_F32, 1, (int64_t[]){COLUMNS});
    ht_val v = ht_relu(g, ht_add_scalar(g, ht_scale(g, x, 1.5), 0.25));
    ht_output(g, "y", ht_cast(g, ht_mul(g, ht_clip(g, v, 0.125, 0.75), row), HT_BF16));
    ours_ready(&o);
    contest c = {.name = "chain_f32_to_bf16_64Mi", .unit = "GB/s", .seconds = 3};
    int mine = contest_add(&c, "halftone", ours_turn, &o, 6.0 * ROWS * COLUMNS), first_copy = add_copies(&c);
    contest_run(&c);
    best_copy_row(&c, mine, first_copy);
    ours_end(&o);
}

/* ---- gelu and a residual ---- */

static float *random_floats(int64_t n)
{
    float *values = malloc((size_t)n * sizeof *values);
    if (!values) exit(1);
    for (int64_t i = 0; i < n; i++) values[i] = (float)(i * 7919 % 1000) / 1000 - 0.5f;
    return values;
}

static void measure_gelu(ht_context *ctx)
{
    enum { ROWS = 16384, COLUMNS = 1024 };
    ours o;
    ours_begin(&o, ctx);
    ht_graph *g = o.graph;
    ht_val x = ht_input(g, "x", HT_F32, 2, (int64_t[]){ROWS, COLUMNS});
    ht_val residual = ht_input(g, "residual", HT_F32, 2, (int64_t[]){ROWS, COLUMNS});
    ht_val bias = ht_input(g, "bias", HT_F32, 1, (int64_t[]){COLUMNS});
    ht_output(g, "y", ht_add(g, residual, ht_gelu(g, ht_add(g, x, bias))));
    ours_ready(&o);
    int64_t elems = (int64_t)ROWS * COLUMNS;
    float *data[4] = {random_floats(elems), random_floats(COLUMNS), random_floats(elems), random_floats(elems)};
    gelu_job job = {ctx->pool, ROWS, COLUMNS, data[0], data[1], data[2], data[3]};
    double bytes = 12.0 * ROWS * COLUMNS;
    contest c = {.name = "chain_gelu_residual_16Mi", .unit = "GB/s", .seconds = 3};
    int mine = contest_add(&c, "halftone", ours_turn, &o, bytes);
    int loop = contest_add(&c, "handwritten_loop", gelu_turn, &job, bytes), first_copy = add_copies(&c);
    contest_run(&c);
    contest_row(&c, NULL, mine, loop, NULL);
    best_copy_row(&c, mine, first_copy);
    for (int i = 0; i < 4; i++) free(data[i]);
    ours_end(&o);
}

/* ---- layernorm ---- */

static void measure_layernorm(ht_context *ctx, peer *torch)
{
    enum { ROWS = 8192, COLUMNS = 768 };
    ours o;
    ours_begin(&o, ctx);
    ht_graph *g = o.graph;
    ht_val wrt[3] = {
        ht_input(g, "x", HT_F32, 2, (int64_t[]){ROWS, COLUMNS}),
        ht_param(g, "scale", HT_F32, 1, (int64_t[]){COLUMNS}, HT_ZERO),
        ht_param(g, "shift", HT_F32, 1, (int64_t[]){COLUMNS}, HT_ZERO),
    };
    ht_val y = ht_layernorm(g, wrt[0], wrt[1], wrt[2], 1e-5);
    ht_output(g, "y", y);
    ours_backward(&o, y, 3, wrt);
    ours_ready(&o);
    /* Forward reads x and writes y; backward reads x and dy and writes dx. */
    double bytes = 5.0 * 4 * ROWS * COLUMNS;
    peer_request r = {.peer = torch};
    snprintf(r.text, sizeof r.text, "layernorm f32 %d %d", ROWS, COLUMNS);
    contest c = {.name = "layernorm_8192x768", .unit = "GB/s", .seconds = 3};
    int mine = contest_add(&c, "halftone", ours_turn, &o, bytes), first_copy = add_copies(&c);
    int other = contest_add(&c, "torch", peer_turn, &r, bytes);
    contest_run(&c);
    contest_row(&c, NULL, mine, first_copy, NULL);
    best_copy_row(&c, mine, first_copy);
    contest_row(&c, NULL, mine, other, NULL);
    ours_end(&o);
}

/* ---- AdamW ---- */

enum { PARAMETERS = 100 * 1000 * 1000 };

/* The step alone: the optimiser's rule over one flat state; with `half`, and the copy of the parameters in bf16. */
static void build_adamw_step(ours *o, ht_context *ctx, bool half)
{
    int64_t dims[1] = {PARAMETERS};
    ours_begin(o, ctx);
    ht_graph *g = o->graph;
    const ht_optimizer *rule = ht_optimizer_find("adamw", NULL);
    ht_hyper hyper = ht_optimizer_standards(rule);
    ht_val param = ht_state_add(g, "param", HT_F32, 1, dims, HT_ZERO);
    ht_val grad = ht_input(g, "grad", HT_F32, 1, dims);
    ht_val moments[HT_MAX_MOMENTS] = {ht_state_add(g, "m", HT_F32, 1, dims, HT_ZERO),
                                      ht_state_add(g, "v", HT_F32, 1, dims, HT_ZERO)};
    ht_val lr = ht_state_add(g, "lr", HT_F32, 0, NULL, HT_CONSTANT(1e-3));
    ht_val applied = ht_state_add(g, "applied", HT_I64, 0, NULL, HT_ZERO);
    ht_val next[HT_MAX_MOMENTS] = {HT_NONE};
    ht_val updated = rule->step(g, &hyper, param, grad, moments, lr, applied, next);
    ht_store(g, param, updated);
    if (half) ht_store(g, ht_state_add(g, "half", HT_BF16, 1, dims, HT_ZERO), ht_cast(g, updated, HT_BF16));
    for (int i = 0; i < HT_MAX_MOMENTS; i++) ht_store(g, moments[i], next[i]);
    if (ours_ready(o)) ours_fill(o, "v", 0, 1e-3);
}

/* The update of a training step: with its finite check, the gradients' norm, and the choice to skip. */
static void build_update(ours *o, ht_context *ctx)
{
    ours_begin(o, ctx);
    ht_graph *g = o->graph;
    ht_val param = ht_param(g, "param", HT_F32, 1, (int64_t[]){PARAMETERS}, HT_ZERO);
    ht_output(g, "loss", ht_mean(g, param, 0, NULL, false));
    ht_graph_train(g, NULL);
    o->run = "update";
    if (ours_ready(o)) ours_fill(o, "flat.v.f32", 0, 1e-3);
}

/* Reads parameter, gradient and two moments; writes all but the gradient, and the half copy. */
typedef struct adamw_row {
    const char *name, *peer;
    bool whole, half;
} adamw_row;

static void measure_adamw(ht_context *ctx, peer *torch)
{
    static const adamw_row rows[] = {{"adamw_step_100M", "adamw", false, false},
                                     {"adamw_update_100M", "adamw", true, false},
                                     {"adamw_step_and_bf16_copy_100M", "adamw_and_cast", false, true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ours o;
        peer_request r = {.peer = torch};
        double bytes = (7.0 * 4 + (rows[i].half ? 2 : 0)) * PARAMETERS;
        snprintf(r.text, sizeof r.text, "%s f32 %d", rows[i].peer, PARAMETERS);
        if (rows[i].whole)
            build_update(&o, ctx);
        else
            build_adamw_step(&o, ctx, rows[i].half);
        contest c = {.name = rows[i].name, .unit = "GB/s", .seconds = 3};
        int mine = contest_add(&c, "halftone", ours_turn, &o, bytes), first_copy = add_copies(&c);
        int other = contest_add(&c, "torch", peer_turn, &r, bytes);
        contest_run(&c);
        best_copy_row(&c, mine, first_copy);
        contest_row(&c, NULL, mine, other, NULL);
        ours_end(&o);
    }
}

int main(void)
{
    ht_context *ctx = ours_context();
    peer *torch = peer_start("torch");
    measure_chain(ctx);
    measure_gelu(ctx);
    measure_layernorm(ctx, torch);
    measure_adamw(ctx, torch);
    peer_stop(torch);
    ceiling_end();
    ht_context_free(ctx);
    return 0;
}
