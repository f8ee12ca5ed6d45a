/* A few rows by weights that stay as they are: prepacked, against packed in every run. */
#include <string.h>

#include "contest.h"
#include "ours.h"

typedef struct shape {
    ht_dtype dtype;
    int64_t m, n, k;
    bool turned; /* b is stored by columns */
} shape;

static const shape shapes[] = {
    {HT_F32, 8, 3072, 768, false},   {HT_F32, 32, 3072, 768, false}, {HT_F32, 128, 3072, 768, false},
    {HT_F32, 8, 3072, 768, true},    {HT_F32, 32, 3072, 768, true},  {HT_F32, 128, 3072, 768, true},
    {HT_F32, 8, 50257, 768, true},   {HT_F32, 32, 50257, 768, true}, {HT_F32, 128, 50257, 768, true},
    {HT_F32, 32, 8192, 384, true},   {HT_BF16, 8, 3072, 768, true},  {HT_BF16, 32, 3072, 768, true},
    {HT_BF16, 128, 3072, 768, true},
};

static void build_product(ours *o, ht_context *ctx, const shape *s, bool no_prepack)
{
    ht_matmul_opts opts = {.size = sizeof opts, .transpose_b = s->turned};
    ours_begin(o, ctx);
    o->no_prepack = no_prepack;
    ht_val a = ht_input(o->graph, "a", s->dtype, 2, (int64_t[]){s->m, s->k});
    int64_t dims[2] = {s->turned ? s->n : s->k, s->turned ? s->k : s->n};
    ht_val b = ht_param(o->graph, "b", s->dtype, 2, dims, HT_ZERO);
    ht_output(o->graph, "y", ht_matmul(o->graph, a, b, &opts));
    ours_ready(o);
}

enum { HIDDEN = 256 };

static void build_lstm(ours *o, ht_context *ctx, int64_t steps, int64_t batch, bool no_prepack)
{
    ours_begin(o, ctx);
    o->no_prepack = no_prepack;
    ht_graph *g = o->graph;
    ht_val x = ht_input(g, "x", HT_F32, 3, (int64_t[]){steps, batch, HIDDEN});
    ht_val start = ht_fill(g, HT_F32, 2, (int64_t[]){batch, HIDDEN}, 0);
    ht_val w_input = ht_param(g, "w_input", HT_F32, 2, (int64_t[]){4 * HIDDEN, HIDDEN}, HT_ZERO);
    ht_val w_hidden = ht_param(g, "w_hidden", HT_F32, 2, (int64_t[]){4 * HIDDEN, HIDDEN}, HT_ZERO);
    ht_output(g, "y", ht_lstm(g, x, start, start, w_input, w_hidden, HT_NONE, HT_NONE).y);
    ours_ready(o);
}

static void compare(const char *name, ours *prepacked, ours *packed)
{
    contest c = {.name = name, .unit = "ms", .seconds = 0.7};
    int mine = contest_add(&c, "prepacked", ours_turn, prepacked, 0);
    int other = contest_add(&c, "packed_each_run", ours_turn, packed, 0);
    contest_run(&c);
    contest_row(&c, NULL, mine, other, NULL);
    ours_end(prepacked);
    ours_end(packed);
}

/* bench_prepack [PART]: only the rows whose names contain it. */
int main(int argc, char **argv)
{
    static const int64_t lstms[][2] = {{1, 8}, {1, 32}, {8, 8}, {4, 32}};
    const char *only = argc > 1 ? argv[1] : "";
    ht_context *ctx = ours_context();
    ours prepacked, packed;
    char name[64];
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const shape *s = &shapes[i];
        snprintf(name, sizeof name, "kept_%s_%s_%lldx%lldx%lld", ht_dtype_name(s->dtype), s->turned ? "nt" : "nn",
                 (long long)s->m, (long long)s->n, (long long)s->k);
        if (!strstr(name, only)) continue;
        build_product(&prepacked, ctx, s, false);
        build_product(&packed, ctx, s, true);
        compare(name, &prepacked, &packed);
    }
    for (size_t i = 0; i < sizeof lstms / sizeof lstms[0]; i++) {
        snprintf(name, sizeof name, "kept_lstm_%d_t%lld_b%lld", HIDDEN, (long long)lstms[i][0], (long long)lstms[i][1]);
        if (!strstr(name, only)) continue;
        build_lstm(&prepacked, ctx, lstms[i][0], lstms[i][1], false);
        build_lstm(&packed, ctx, lstms[i][0], lstms[i][1], true);
        compare(name, &prepacked, &packed);
    }
    ht_context_free(ctx);
    return 0;
}
