/* Products of halves accumulate in f32 and round once: every row that this machine can run, K up to 4096, within
 *     1 ulp of the result's type + √K · 2^-24 · Σ|a b|
 * of the f64 result; and so do PyTorch's (tests/reference/make_half.py), which ours meet within the same bound. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_call.h"

typedef struct product {
    int64_t m, k, n;
    bool ta, tb;
} product;

/* The last ones have several strips and tiles of the rows for pairs, blocks of K that end whole and ragged, rows of a
 * page. */
static const product shapes[] = {
    {1, 1, 1, 0, 0},     {1, 2, 3, 0, 0},      {2, 3, 1, 0, 0},     {3, 17, 5, 0, 0},      {1, 300, 8, 0, 0},
    {7, 64, 1, 0, 0},    {5, 257, 9, 0, 1},    {19, 513, 35, 1, 0}, {33, 1024, 17, 0, 0},  {40, 100, 70, 1, 1},
    {9, 2048, 20, 0, 1}, {1, 4096, 21, 0, 0},  {1, 4096, 6, 0, 1},  {6, 4096, 1, 0, 0},    {5, 4096, 3, 1, 0},
    {3, 4096, 5, 0, 0},  {20, 4096, 34, 0, 0}, {2, 4095, 40, 1, 1}, {34, 1056, 270, 0, 0}, {70, 1100, 66, 1, 0},
    {67, 96, 40, 0, 1},  {66, 2048, 34, 0, 0},
};

static double operand(uint64_t which, int64_t index)
{
    ht_stream stream = {.seed = which, .site = ht_hash_text("half_matmul")};
    int q = (int)floor(ht_stream_uniform(&stream, (uint64_t)index) * 1024);
    double size = ldexp(128 + q % 128, -7 - q / 128 % 4);
    return q / 512 ? -size : size;
}

/* The distance from |x| to the next number of the type. */
static double ulp(ht_dtype dtype, double x)
{
    int digits = dtype == HT_F16 ? 11 : dtype == HT_BF16 ? 8 : 24, low = dtype == HT_F16 ? -14 : -126, exponent;
    frexp(x, &exponent);
    return ldexp(1, (x == 0 || exponent - 1 < low ? low : exponent - 1) - digits + 1);
}

static void open_product(op_call *c, const product *p, const char *a, const char *b, const char *y)
{
    op_call_open(c, "matmul", "(%s[%lld,%lld], %s[%lld,%lld]) -> %s[%lld,%lld] ta=%d tb=%d", a,
                 (long long)(p->ta ? p->k : p->m), (long long)(p->ta ? p->m : p->k), b,
                 (long long)(p->tb ? p->n : p->k), (long long)(p->tb ? p->k : p->n), y, (long long)p->m,
                 (long long)p->n, p->ta, p->tb);
    for (size_t i = 0; i < 2; i++)
        for (int64_t e = 0; e < op_call_elems_in(c, i); e++) c->a.in[i][e] = operand(i, e);
}

/* The exact product and the bound of element (row, column). */
static double exact(const op_call *c, const product *p, int64_t row, int64_t column, double *bound)
{
    double sum = 0, size = 0;
    for (int64_t k = 0; k < p->k; k++) {
        double a = c->a.in[0][p->ta ? k * p->m + row : row * p->k + k];
        double b = c->a.in[1][p->tb ? column * p->k + k : k * p->n + column];
        sum += a * b;
        size += fabs(a * b);
    }
    *bound = ulp(c->c.call->out[0]->dtype, sum) + sqrt((double)p->k) * 0x1p-24 * size;
    return sum;
}

static void check(const op_call *c, const product *p, const char *what)
{
    for (int64_t i = 0; i < p->m * p->n; i++) {
        double bound, sum = exact(c, p, i / p->n, i % p->n, &bound), y = c->a.out[0][i];
        if (!(fabs(y - sum) <= bound))
            op_case_fail(&c->c, "%s: element %lld is %.9g, exactly %.17g: off by %g, bound %g", what, (long long)i, y,
                         sum, fabs(y - sum), bound);
    }
}

typedef struct seen {
    char names[32][64];
    size_t count;
} seen;

static void note(seen *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->names[i], name) == 0) return;
    assert_true(s->count < 32);
    snprintf(s->names[s->count++], sizeof s->names[0], "%s", name);
}

static bool has(const seen *s, const char *part)
{
    for (size_t i = 0; i < s->count; i++)
        if (strstr(s->names[i], part)) return true;
    return false;
}

/* Tiles are cut for the target's threads; the bits are the same for any number. */
static void check_threads(const ht_kernel *row, const ht_target *target, op_call *c)
{
    size_t bytes = (size_t)op_call_elems_out(c, 0) * sizeof(double);
    double *first = malloc(bytes + 1);
    assert_non_null(first);
    memcpy(first, c->a.out[0], bytes);
    for (int threads = 1; threads <= 16; threads *= 4) {
        ht_target other = *target;
        other.threads = threads;
        op_kernel_run(row, &other, c->c.call, &c->a);
        assert_memory_equal(first, c->a.out[0], bytes);
    }
    free(first);
}

static void half_product__rounds_once_in_every_row(void **state)
{
    (void)state;
    static const char *const types[][3] = {{"f16", "f16", "f16"},   {"bf16", "bf16", "bf16"}, {"f16", "f16", "f32"},
                                           {"bf16", "bf16", "f32"}, {"bf16", "f32", "bf16"},  {"f32", "f16", "f16"}};
    ht_context *ctx = context_shared();
    ht_target target;
    ht_target_here(ctx, &target);
    seen rows = {.count = 0};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            op_call c;
            open_product(&c, &shapes[s], types[t][0], types[t][1], types[t][2]);
            size_t ran = 0;
            for (size_t i = 0; i < ctx->kernel_count; i++) {
                const ht_kernel *row = ctx->kernels[i];
                if (strcmp(row->op, "matmul") != 0 || row->device != HT_DEVICE_CPU) continue;
                if (row->isa > target.isa || row->can(c.c.call, &target)) continue;
                memset(c.a.out[0], 0, (size_t)op_call_elems_out(&c, 0) * sizeof(double));
                op_kernel_run(row, &target, c.c.call, &c.a);
                check(&c, &shapes[s], row->name);
                check_threads(row, &target, &c);
                note(&rows, row->name);
                ran++;
            }
            assert_true(ran > 0);
            op_call_close(&c);
        }
    }
    assert_true(has(&rows, "matmul_line.f32.portable"));
    assert_true(has(&rows, "matmul_gemm.f32.portable"));
    assert_true(has(&rows, "matmul.f32.portable"));
    for (size_t i = 0; i < rows.count; i++) print_message("%s%s", i ? ", " : "rows: ", rows.names[i]);
    print_message("\n");
}

/* Sums on the way may leave f16's range, as long as the last one does not. */
static void half_product__may_overflow_f16_on_the_way(void **state)
{
    (void)state;
    static const product p = {4, 2048, 33, 0, 0};
    op_call c;
    open_product(&c, &p, "f16", "f16", "f16");
    for (int64_t e = 0; e < op_call_elems_in(&c, 0); e++) c.a.in[0][e] = e % p.k < p.k / 2 ? 192 : -192;
    for (int64_t e = 0; e < op_call_elems_in(&c, 1); e++) c.a.in[1][e] = e == 0 ? 129 : 128;
    op_call_kernel(&c);
    for (int64_t i = 0; i < p.m * p.n; i++) assert_true(c.a.out[0][i] == (i % p.n ? 0 : 192));
    op_call_close(&c);
}

static void half_product__meets_pytorch(void **state)
{
    (void)state;
    FILE *file = fopen(HT_TEST_DIR "/reference/half_matmul.txt", "r");
    char line[256], type[8];
    int m, k, n, read = 0;
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    while (fscanf(file, "%7s %d %d %d", type, &m, &k, &n) == 4) {
        op_call c;
        product p = {m, k, n, false, false};
        open_product(&c, &p, type, type, type);
        op_call_kernel(&c);
        for (int64_t i = 0; i < p.m * p.n; i++) {
            double torch, bound, sum = exact(&c, &p, i / p.n, i % p.n, &bound), y = c.a.out[0][i];
            assert_int_equal(fscanf(file, "%lf", &torch), 1);
            if (!(fabs(torch - sum) <= bound) || !(fabs(y - torch) <= bound))
                op_case_fail(&c.c, "element %lld is %.9g here, %.9g there, exactly %.17g; bound %g", (long long)i, y,
                             torch, sum, bound);
        }
        op_call_close(&c);
        read++;
    }
    assert_true(feof(file));
    fclose(file);
    assert_int_equal(read, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_product__rounds_once_in_every_row),
        cmocka_unit_test(half_product__may_overflow_f16_on_the_way),
        cmocka_unit_test(half_product__meets_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
