/* Products by weights whose blocks are zero, for which there is no kernel in Halftone, against our own dense f32: what one would
 * gain. Blocks of 1 × 16 and of 16 × 16 weights (inputs × outputs). The sparse side keeps the blocks of each 16 outputs, and the
 * numbers of their inputs, in order; it multiplies 12 packed rows at a time, with AVX-512. */
#include <math.h>

#include "contest.h"
#include "ours.h"

#if defined(__x86_64__)
enum { LANES = 16, ROWS = 12, MOST_COLUMNS = 4096 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

typedef struct product {
    ht_pool *pool;
    int64_t m, k, n, height; /* of a block */
    float *x, *y, *packed;   /* x by tiles of ROWS, [k, ROWS] each */
    float *blocks;           /* those that are not zero, by outputs */
    int32_t *inputs;         /* the first one of each */
    int64_t first[MOST_COLUMNS / LANES + 1];
} product;

static int64_t row_tiles(const product *p)
{
    return (p->m + ROWS - 1) / ROWS;
}

static int64_t rows_of(const product *p, int64_t tile)
{
    return p->m - tile * ROWS < ROWS ? p->m - tile * ROWS : ROWS;
}

static void pack_rows(void *arg, int64_t tile)
{
    const product *p = arg;
    float *to = p->packed + tile * ROWS * p->k;
    int64_t rows = rows_of(p, tile);
    for (int64_t k = 0; k < p->k; k++)
        for (int64_t r = 0; r < rows; r++) to[k * rows + r] = p->x[(tile * ROWS + r) * p->k + k];
}

static inline __attribute__((always_inline, target("avx512f"))) void multiply_tile(const product *p, int64_t tile,
                                                                                   int64_t column, int rows)
{
    lanes sums[ROWS] = {0};
    const float *x = p->packed + tile * ROWS * p->k;
    const float *w = p->blocks + p->first[column] * p->height * LANES;
    for (int64_t b = p->first[column]; b < p->first[column + 1]; b++) {
        const float *at = x + p->inputs[b] * rows;
        for (int64_t i = 0; i < p->height; i++, w += LANES, at += rows)
            for (int r = 0; r < rows; r++) sums[r] += at[r] * *(const lanes *)w;
    }
    for (int r = 0; r < rows; r++) *(lanes *)(p->y + (tile * ROWS + r) * p->n + column * LANES) = sums[r];
}

__attribute__((target("avx512f"))) static void multiply(void *arg, int64_t column)
{
    const product *p = arg;
    for (int64_t tile = 0; tile < row_tiles(p); tile++) switch (rows_of(p, tile)) {
        case 1: multiply_tile(p, tile, column, 1); break;
        case 8: multiply_tile(p, tile, column, 8); break;
        default: multiply_tile(p, tile, column, ROWS); break;
        }
}

static double sparse_turn(void *arg, int calls)
{
    product *p = arg;
    double start = bench_now();
    for (int i = 0; i < calls; i++) {
        ht_parallel(p->pool, row_tiles(p), pack_rows, p);
        ht_parallel(p->pool, p->n / LANES, multiply, p);
    }
    return (bench_now() - start) / calls;
}

/* ---- setting up ---- */

static void *allocate(int64_t bytes)
{
    void *block = NULL;
    if (posix_memalign(&block, 64, (size_t)bytes + 64) != 0) abort();
    memset(block, 0, (size_t)bytes + 64);
    return block;
}

static float small_number(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) / (1 << 24) - 0.5f;
}

/* Every block is zero with the same chance. */
static void fill_blocks(product *p, double sparsity)
{
    uint64_t state = 17;
    int64_t count = 0;
    for (int64_t i = 0; i < p->m * p->k; i++) p->x[i] = small_number(&state);
    for (int64_t column = 0; column < p->n / LANES; column++) {
        p->first[column] = count;
        for (int64_t k = 0; k < p->k; k += p->height) {
            if ((double)small_number(&state) + 0.5 < sparsity) continue;
            for (int64_t i = 0; i < p->height * LANES; i++)
                p->blocks[count * p->height * LANES + i] = small_number(&state);
            p->inputs[count++] = (int32_t)k;
        }
    }
    p->first[p->n / LANES] = count;
}

static product open_product(ht_context *ctx, int64_t m, int64_t k, int64_t n, int64_t height, double sparsity)
{
    product p = {.pool = ctx->pool, .m = m, .k = k, .n = n, .height = height};
    p.x = allocate(m * k * 4);
    p.y = allocate(m * n * 4);
    p.packed = allocate((m + ROWS) * k * 4);
    p.blocks = allocate(k * n * 4);
    p.inputs = allocate(k / height * (n / LANES) * 4);
    fill_blocks(&p, sparsity);
    return p;
}

static void close_product(product *p)
{
    free(p->x);
    free(p->y);
    free(p->packed);
    free(p->blocks);
    free(p->inputs);
}

/* The last row, in double. */
static void check(product *p)
{
    sparse_turn(p, 1);
    for (int64_t j = 0; j < p->n; j++) {
        const float *x = p->x + (p->m - 1) * p->k;
        double sum = 0;
        for (int64_t b = p->first[j / LANES]; b < p->first[j / LANES + 1]; b++)
            for (int64_t i = 0; i < p->height; i++)
                sum += (double)x[p->inputs[b] + i] * (double)p->blocks[(b * p->height + i) * LANES + j % LANES];
        if (!(fabs(sum - (double)p->y[(p->m - 1) * p->n + j]) < 1e-3)) {
            fprintf(stderr, "bench_sparse: column %lld is %g, not %g\n", (long long)j,
                    (double)p->y[(p->m - 1) * p->n + j], sum);
            exit(1);
        }
    }
}

static void measure(ht_context *ctx, int64_t m, int64_t k, int64_t n, const char *only)
{
    static const double sparsities[] = {0.5, 0.7, 0.9};
    static const int64_t heights[] = {1, 16};
    enum { SPARSITIES = 3, SIDES = 6 };
    char name[64], names[SIDES][96];
    product products[SIDES];
    int sides[SIDES];
    snprintf(name, sizeof name, "sparse_%lldx%lldx%lld", (long long)m, (long long)n, (long long)k);
    if (!strstr(name, only)) return;
    ours dense;
    ours_begin(&dense, ctx);
    ht_val a = ht_input(dense.graph, "a", HT_F32, HT_DIMS(m, k));
    ht_val b = ht_param(dense.graph, "b", HT_F32, HT_DIMS(k, n), HT_ZERO);
    ht_output(dense.graph, "y", ht_matmul(dense.graph, a, b, NULL));
    ours_ready(&dense);
    contest c = {.name = name, .unit = "ms", .seconds = 4};
    for (int i = 0; i < SIDES; i++) {
        products[i] = open_product(ctx, m, k, n, heights[i / SPARSITIES], sparsities[i % SPARSITIES]);
        check(&products[i]);
        snprintf(names[i], sizeof names[i], "%s_%lldx16_%.0f%%", name, (long long)heights[i / SPARSITIES],
                 100 * sparsities[i % SPARSITIES]);
        sides[i] = contest_add(&c, names[i] + strlen(name) + 1, sparse_turn, &products[i], 0);
    }
    int theirs = contest_add(&c, "f32", ours_turn, &dense, 0);
    contest_run(&c);
    for (int i = 0; i < SIDES; i++) {
        contest_row(&c, names[i], sides[i], theirs, "halftone_f32");
        close_product(&products[i]);
    }
    ours_end(&dense);
}

/* bench_sparse [PART]: only the rows whose names contain it (sparse_1x3072x768: rows, columns, inputs). */
int main(int argc, char **argv)
{
    static const int64_t rows[] = {1, 8, 128, 512}, shapes[][2] = {{768, 3072}, {3072, 768}, {2048, 2048}};
    if (!__builtin_cpu_supports("avx512f")) {
        printf("bench_sparse: this processor has no AVX-512\n");
        return 77;
    }
    ht_context *ctx = ours_context();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
            measure(ctx, rows[r], shapes[i][0], shapes[i][1], argc > 1 ? argv[1] : "");
    ht_context_free(ctx);
    return 0;
}
#else
int main(void)
{
    printf("bench_sparse: its kernel is for x86-64\n");
    return 77;
}
#endif
