/* Products and a training step on all cores, against PyTorch: set HALFTONE_BENCH_THREADS to their number.
 *
 *     bench_scaling           all rows
 *     bench_scaling PART      only the rows whose names contain it (gemm_f32_nn_1024x768x768, train_gpt2 …) */
#include <string.h>

#include "contest.h"
#include "peer.h"
#include "trainee.h"

typedef struct shape {
    int64_t m, n, k;
} shape;

/* The products of gpt2 12x768 with 1,024 and 4,096 tokens, then squares. */
static const shape shapes[] = {
    {1024, 768, 768},   {1024, 3072, 768},  {1024, 768, 3072},  {4096, 2304, 768},
    {1024, 1024, 1024}, {2048, 2048, 2048}, {4096, 4096, 4096},
};
static const char *const layouts[] = {"NN", "NT", "TN"};

static void measure_product(ht_context *ctx, peer *torch, shape s, const char *layout, ht_dtype dtype, const char *only)
{
    char name[64], sizes[48];
    ours o;
    ht_matmul_opts opts = {.size = sizeof opts, .transpose_a = layout[0] == 'T', .transpose_b = layout[1] == 'T'};
    int64_t a_dims[2] = {opts.transpose_a ? s.k : s.m, opts.transpose_a ? s.m : s.k};
    int64_t b_dims[2] = {opts.transpose_b ? s.n : s.k, opts.transpose_b ? s.k : s.n};
    snprintf(sizes, sizeof sizes, "%lldx%lldx%lld", (long long)s.m, (long long)s.n, (long long)s.k);
    snprintf(name, sizeof name, "gemm_%s_%c%c_%s", ht_dtype_name(dtype), layout[0] | 32, layout[1] | 32, sizes);
    if (!strstr(name, only)) return;
    ours_begin(&o, ctx);
    ht_val a = ht_input(o.graph, "a", dtype, 2, a_dims), b = ht_input(o.graph, "b", dtype, 2, b_dims);
    ht_output(o.graph, "y", ht_matmul(o.graph, a, b, &opts));
    ours_ready(&o);
    peer_request request = {.peer = torch};
    snprintf(request.text, sizeof request.text, "gemm %s %s %lld %lld %lld", ht_dtype_name(dtype), layout,
             (long long)s.m, (long long)s.n, (long long)s.k);
    double flop = 2.0 * (double)s.m * (double)s.n * (double)s.k;
    contest c = {.name = name, .unit = "GFLOP/s", .seconds = 1};
    int mine = contest_add(&c, "halftone", ours_turn, &o, flop);
    int theirs = contest_add(&c, "torch", peer_turn, &request, flop);
    contest_run(&c);
    contest_row(&c, NULL, mine, theirs, "torch");
    ours_end(&o);
}

static void measure_step(ht_context *ctx, peer *torch, const char *precision, const char *op, const char *only)
{
    char name[64];
    trainee t = {.name = "gpt2_12x768_t512_v8192_b8",
                 .type = "gpt2",
                 .json = "{\"n_layer\": 12, \"n_head\": 12, \"n_embd\": 768}",
                 .optimizer = "adamw",
                 .precision = precision,
                 .request = {.task = HT_TASK_LM, .batch = 8, .length = 512, .vocabulary = 8192}};
    snprintf(name, sizeof name, "train_%s_%s", t.name, precision);
    if (!strstr(name, only)) return;
    peer_request request = {.peer = torch};
    snprintf(request.text, sizeof request.text, "%s f32 12 12 768 512 8192 8", op);
    trainee_start(&t, ctx);
    contest c = {.name = name, .unit = "ms", .seconds = 20};
    int mine = contest_add(&c, "halftone", ours_turn, &t.ours, 0);
    int theirs = contest_add(&c, "torch", peer_turn, &request, 0);
    contest_run(&c);
    contest_row(&c, NULL, mine, theirs, "torch");
    trainee_stop(&t);
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : "";
    ht_context *ctx = ours_context();
    peer *torch = peer_start("torch");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int l = 0; l < 3; l++) {
            measure_product(ctx, torch, shapes[i], layouts[l], HT_F32, only);
            measure_product(ctx, torch, shapes[i], layouts[l], HT_BF16, only);
        }
    }
    measure_step(ctx, torch, "fp32", "train_gpt2", only);
    measure_step(ctx, torch, "bf16", "autocast_train_gpt2", only);
    peer_stop(torch);
    ht_context_free(ctx);
    return 0;
}
