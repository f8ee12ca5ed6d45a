/* Linear regression: recover y = 3·x0 − 2·x1 + 0.5 from noisy points. The smallest whole program: build a graph, let
 * the engine derive the training step, plan it, run it. */
#include <stdio.h>
#include <stdlib.h>

#include <halftone/halftone.h>

enum { POINTS = 64, STEPS = 300 };

/* A small generator of our own, so that every run sees the same points. */
static double random_unit(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) / 16777216.0 - 0.5;
}

static ht_status build(ht_graph *g)
{
    ht_val x = ht_input(g, "x", HT_F32, 2, (int64_t[]){POINTS, 2});
    ht_val y = ht_input(g, "y", HT_F32, 2, (int64_t[]){POINTS, 1});
    ht_val w = ht_param(g, "w", HT_F32, 2, (int64_t[]){2, 1}, HT_ZERO);
    ht_val b = ht_param(g, "b", HT_F32, 1, (int64_t[]){1}, HT_ZERO);
    ht_val error = ht_sub(g, ht_add(g, ht_matmul(g, x, w, NULL), b), y);
    ht_output(g, "loss", ht_mean(g, ht_mul(g, error, error), 0, NULL, false));
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.optimizer = "sgd";
    opts.lr = 0.5;
    return ht_graph_train(g, &opts);
}

static ht_status train(ht_session *s)
{
    float x[POINTS][2], y[POINTS];
    unsigned state = 1;
    for (int i = 0; i < POINTS; i++) {
        x[i][0] = (float)random_unit(&state);
        x[i][1] = (float)random_unit(&state);
        y[i] = 3 * x[i][0] - 2 * x[i][1] + 0.5f + 0.01f * (float)random_unit(&state);
    }
    ht_status status = ht_session_write(s, "x", x, sizeof x);
    if (status == HT_OK) status = ht_session_write(s, "y", y, sizeof y);
    for (int step = 0; step < STEPS && status == HT_OK; step++) {
        float loss;
        status = ht_session_run(s, "train");
        if (status == HT_OK) status = ht_session_read(s, "loss", &loss, sizeof loss);
        if (status == HT_OK && step % 50 == 0) printf("step %3d  loss %.6f\n", step, loss);
    }
    return status;
}

int main(void)
{
    ht_context *ctx;
    ht_graph *g = NULL;
    ht_plan *plan = NULL;
    ht_session *s = NULL;
    float w[2] = {0}, b = 0;
    if (ht_context_create(&ctx, NULL) != HT_OK) return 1;
    ht_status status = ht_graph_create(&g, ctx);
    if (status == HT_OK) status = build(g);
    if (status == HT_OK) status = ht_plan_create(&plan, g, NULL);
    if (status == HT_OK) status = ht_session_create(&s, plan, NULL);
    if (status == HT_OK) status = train(s);
    if (status == HT_OK) status = ht_session_read(s, "w", w, sizeof w);
    if (status == HT_OK) status = ht_session_read(s, "b", &b, sizeof b);
    if (status != HT_OK)
        fprintf(stderr, "%s\n", ht_context_message(ctx));
    else
        printf("y = %.3f x0 %+.3f x1 %+.3f\n", w[0], w[1], b);
    ht_session_free(s);
    ht_plan_free(plan);
    ht_graph_free(g);
    ht_context_free(ctx);
    bool good = w[0] > 2.97f && w[0] < 3.03f && w[1] > -2.03f && w[1] < -1.97f && b > 0.49f && b < 0.51f;
    return status == HT_OK && good ? 0 : 1;
}
