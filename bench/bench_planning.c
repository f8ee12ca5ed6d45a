/* How long planning takes and how it grows: an MLP of many layers, differentiated, with AdamW, through all passes and
 * the planner, at about 1,000, 10,000 and 100,000 nodes. The peer of each size is ten times the size before it: a ratio
 * near 1 is linear growth. */
#include "bench_common.h"
#include "train/train.h"

enum { WIDTH = 4, BATCH = 2 };

static void build(ht_graph *g, int layers)
{
    char name[32];
    ht_val h = ht_input(g, "x", HT_F32, 2, (int64_t[]){BATCH, WIDTH});
    for (int i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "l%d", i);
        ht_scope_push(g, name);
        snprintf(name, sizeof name, "l%d.w", i);
        ht_val w = ht_param(g, name, HT_F32, 2, (int64_t[]){WIDTH, WIDTH}, HT_NORMAL(0, 0.5));
        snprintf(name, sizeof name, "l%d.b", i);
        ht_val b = ht_param(g, name, HT_F32, 1, (int64_t[]){WIDTH}, HT_ZERO);
        h = ht_tanh(g, ht_add(g, ht_matmul(g, h, w, NULL), b));
        ht_scope_pop(g);
    }
    ht_output(g, "loss", ht_mean(g, ht_mul(g, h, h), 0, NULL, false));
}

/* Seconds for passes and planning together; nodes of the training step. */
static double plan_once(ht_context *ctx, int layers, size_t *nodes, double *pass_seconds)
{
    ht_graph *g = NULL;
    ht_plan *plan = NULL;
    if (ht_graph_create(&g, ctx) != HT_OK) return -1;
    build(g, layers);
    double start = bench_now();
    ht_status status = ht_graph_train(g, NULL);
    if (status == HT_OK) status = ht_pass_run(g, ht_pass_find("regions"), NULL);
    *pass_seconds = bench_now() - start;
    if (status == HT_OK) status = ht_plan_create(&plan, g, NULL);
    double seconds = bench_now() - start;
    *nodes = g->node_count;
    if (status != HT_OK) fprintf(stderr, "%s\n", ht_context_message(ctx));
    ht_plan_free(plan);
    ht_graph_free(g);
    return status == HT_OK ? seconds : -1;
}

int main(void)
{
    static const int layers[] = {60, 600, 6000};
    static const char *const names[] = {"planning_1k", "planning_10k", "planning_100k"};
    enum { SIZES = 3, ROUNDS = 5 };
    ht_context *ctx;
    double before = 0;
    size_t nodes_before = 0;
    if (ht_context_create(&ctx, NULL) != HT_OK) return 1;
    for (int i = 0; i < SIZES; i++) {
        double seconds[ROUNDS], passes;
        size_t nodes = 0;
        for (int r = 0; r < ROUNDS; r++)
            if ((seconds[r] = plan_once(ctx, layers[i], &nodes, &passes)) < 0) return 1;
        double now = bench_median(seconds, ROUNDS);
        double linear = i ? before * (double)nodes / (double)nodes_before : now;
        bench_line(names[i], now * 1e3, linear * 1e3, i ? "linear_growth" : "itself", "ms");
        printf("  %zu nodes, %.2f us per node, %.0f %% in autodiff, optimizer and regions\n", nodes,
               now * 1e6 / (double)nodes, 100 * passes / seconds[ROUNDS - 1]);
        before = now;
        nodes_before = nodes;
    }
    ht_context_free(ctx);
    return 0;
}
