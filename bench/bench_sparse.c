/* Products by weights of which blocks are zero, without these blocks, against our own product of the whole matrix. Blocks of 1 × 16
 * and of 16 × 16 weights (inputs × outputs). */
#include "contest.h"
#include "ours.h"

enum { LANES = 16 };

static float small_number(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) / (1 << 24) - 0.5f;
}

/* Every block is zero with the same chance. */
static void fill_blocks(ours *o, int64_t k, int64_t n, int64_t height, double sparsity)
{
    uint64_t state = 17;
    float *b = calloc((size_t)(k * n), sizeof *b);
    if (!b) exit(1);
    for (int64_t first = 0; first < k; first += height)
        for (int64_t column = 0; column < n; column += LANES) {
            if ((double)small_number(&state) + 0.5 < sparsity) continue;
            for (int64_t i = 0; i < height * LANES; i++)
                b[(first + i / LANES) * n + column + i % LANES] = small_number(&state);
        }
    ht_session_write(o->session, "b", b, (size_t)(k * n) * sizeof *b);
    free(b);
}

static bool open_product(ours *o, ht_context *ctx, int64_t m, int64_t k, int64_t n, const char *sparse)
{
    ours_begin(o, ctx);
    o->sparse = sparse;
    ht_val a = ht_input(o->graph, "a", HT_F32, HT_DIMS(m, k));
    ht_val b = ht_param(o->graph, "b", HT_F32, HT_DIMS(k, n), HT_ZERO);
    ht_output(o->graph, "y", ht_matmul(o->graph, a, b, NULL));
    return ours_ready(o);
}

static void measure(ht_context *ctx, int64_t m, int64_t k, int64_t n, const char *only)
{
    static const double sparsities[] = {0.5, 0.7, 0.9};
    static const int64_t heights[] = {1, 16};
    enum { SPARSITIES = 3, SIDES = 6 };
    char name[64], names[SIDES][96];
    ours products[SIDES], dense;
    int sides[SIDES];
    snprintf(name, sizeof name, "sparse_%lldx%lldx%lld", (long long)m, (long long)n, (long long)k);
    if (!strstr(name, only)) return;
    contest c = {.name = name, .unit = "ms", .seconds = 4};
    for (int i = 0; i < SIDES; i++) {
        if (!open_product(&products[i], ctx, m, k, n, "^b$")) exit(1);
        fill_blocks(&products[i], k, n, heights[i / SPARSITIES], sparsities[i % SPARSITIES]);
        snprintf(names[i], sizeof names[i], "%s_%lldx16_%.0f%%", name, (long long)heights[i / SPARSITIES],
                 100 * sparsities[i % SPARSITIES]);
        sides[i] = contest_add(&c, names[i] + strlen(name) + 1, ours_turn, &products[i], 0);
    }
    if (!open_product(&dense, ctx, m, k, n, NULL)) exit(1);
    int theirs = contest_add(&c, "f32", ours_turn, &dense, 0);
    contest_run(&c);
    for (int i = 0; i < SIDES; i++) {
        contest_row(&c, names[i], sides[i], theirs, "halftone_f32");
        ours_end(&products[i]);
    }
    ours_end(&dense);
}

/* bench_sparse [PART]: only the rows whose names contain it (sparse_1x3072x768: rows, columns, inputs). */
int main(int argc, char **argv)
{
    static const int64_t rows[] = {1, 8, 128, 512}, shapes[][2] = {{768, 3072}, {3072, 768}, {2048, 2048}};
    ht_context *ctx = ours_context();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
            measure(ctx, rows[r], shapes[i][0], shapes[i][1], argc > 1 ? argv[1] : "");
    ht_context_free(ctx);
    return 0;
}
