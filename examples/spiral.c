/* Three spiral arms, told apart by a small network with two hidden layers: the whole path from a model in C to a
 * trained one, with the memory it takes printed before the first step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <halftone/halftone.h>

enum { ARMS = 3, PER_ARM = 100, POINTS = ARMS * PER_ARM, WIDTH = 64, STEPS = 400 };

static ht_val linear(ht_graph *g, const char *name, ht_val x, int64_t in, int64_t out)
{
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    ht_scope_push(g, name);
    ht_val w = ht_param(g, weight, HT_F32, 2, (int64_t[]){in, out}, HT_NORMAL(0, sqrt(2.0 / (double)in)));
    ht_val b = ht_param(g, bias, HT_F32, 1, (int64_t[]){out}, HT_ZERO);
    ht_val y = ht_add(g, ht_matmul(g, x, w, NULL), b);
    ht_scope_pop(g);
    return y;
}

static ht_status build(ht_graph *g)
{
    ht_val x = ht_input(g, "x", HT_F32, 2, (int64_t[]){POINTS, 2});
    ht_val label = ht_input(g, "label", HT_I32, 1, (int64_t[]){POINTS});
    ht_val h1 = ht_relu(g, linear(g, "layer1", x, 2, WIDTH));
    ht_val h2 = ht_relu(g, linear(g, "layer2", h1, WIDTH, WIDTH));
    ht_val logits = linear(g, "head", h2, WIDTH, ARMS);
    ht_val right = ht_eq(g, ht_argmax(g, logits, -1, false), ht_cast(g, label, HT_I64));
    ht_output(g, "loss", ht_cross_entropy(g, logits, label, NULL));
    ht_output(g, "accuracy", ht_mean(g, ht_cast(g, right, HT_F32), 0, NULL, false));
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.lr = 1e-2;
    opts.clip = 1.0;
    return ht_graph_train(g, &opts);
}

static void make_spiral(float x[POINTS][2], int32_t label[POINTS])
{
    for (int i = 0; i < POINTS; i++) {
        double radius = (i % PER_ARM + 1) / (double)PER_ARM;
        double angle = 4 * radius + (i / PER_ARM) * 2 * acos(-1.0) / ARMS + 0.1 * sin(37.0 * i);
        x[i][0] = (float)(radius * cos(angle));
        x[i][1] = (float)(radius * sin(angle));
        label[i] = i / PER_ARM;
    }
}

static ht_status train(ht_session *s, float *accuracy)
{
    static float x[POINTS][2];
    static int32_t label[POINTS];
    make_spiral(x, label);
    ht_status status = ht_session_write(s, "x", x, sizeof x);
    if (status == HT_OK) status = ht_session_write(s, "label", label, sizeof label);
    for (int step = 0; step < STEPS && status == HT_OK; step++) {
        float loss, norm;
        status = ht_session_run(s, "train");
        if (status == HT_OK) status = ht_session_read(s, "loss", &loss, sizeof loss);
        if (status == HT_OK) status = ht_session_read(s, "grad_norm", &norm, sizeof norm);
        if (status == HT_OK) status = ht_session_read(s, "accuracy", accuracy, sizeof *accuracy);
        if (status == HT_OK && (step % 50 == 0 || step == STEPS - 1))
            printf("step %3d  loss %.4f  accuracy %5.1f %%  grad norm %.3f\n", step, loss, 100 * *accuracy, norm);
    }
    return status;
}

int main(void)
{
    ht_context *ctx;
    ht_graph *g = NULL;
    ht_plan *plan = NULL;
    ht_session *s = NULL;
    float accuracy = 0;
    if (ht_context_create(&ctx, NULL) != HT_OK) return 1;
    printf("halftone %s, %d threads, %s kernels\n", ht_version(), ht_context_threads(ctx), ht_context_isa(ctx));
    ht_status status = ht_graph_create(&g, ctx);
    if (status == HT_OK) status = build(g);
    if (status == HT_OK) status = ht_plan_create(&plan, g, NULL);
    if (status == HT_OK) printf("the plan takes %lld bytes, all of them known now\n", (long long)ht_plan_bytes(plan));
    if (status == HT_OK) status = ht_session_create(&s, plan, NULL);
    if (status == HT_OK) status = train(s, &accuracy);
    if (status != HT_OK) fprintf(stderr, "%s\n", ht_context_message(ctx));
    ht_session_free(s);
    ht_plan_free(plan);
    ht_graph_free(g);
    ht_context_free(ctx);
    return status == HT_OK && accuracy > 0.98f ? 0 : 1;
}
