/* Products that leave out the zeros of a weight: the same as with them, in every shape, on every instruction set, and after the
 * weight was written. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session_fixture.h"

enum { RUNS = 4, LANES = 16 }; /* runs: before, and with what is prepacked */

typedef struct shape {
    int64_t m, k, n;
    bool turned, epilogue;
    double zeros; /* share of blocks of 1 x LANES weights (inputs x outputs) */
} shape;

static double number(int64_t i)
{
    return (double)((i * 7919 + 104729) % 257 - 128) / 256;
}

/* The same blocks of both layouts. */
static double weight(const shape *s, int64_t k, int64_t n, int seed)
{
    uint32_t block = (uint32_t)(k * 131 + n / LANES * 8191 + seed) * 2654435761u >> 16;
    return (block & 1023) < s->zeros * 1024 ? 0 : number(k * s->n + n + seed);
}

static void write_weight(const session_fixture *w, const shape *s, int seed)
{
    double *data = malloc((size_t)(s->k * s->n) * sizeof *data);
    assert_non_null(data);
    for (int64_t k = 0; k < s->k; k++)
        for (int64_t n = 0; n < s->n; n++) data[s->turned ? n * s->k + k : k * s->n + n] = weight(s, k, n, seed);
    must(w, ht_session_write_f64(w->s, "w", data, (size_t)(s->k * s->n)));
    free(data);
}

static session_fixture open_product(const shape *s, ht_dtype dtype, const char *isa, bool sparse)
{
    session_fixture w = {.ctx = context_create(2, isa)};
    must(&w, ht_graph_create(&w.g, w.ctx));
    ht_train_setting setting = {"sparse", "^w$"};
    ht_plan_opts plan = HT_PLAN_OPTS;
    ht_matmul_opts opts = {.size = sizeof opts, .transpose_b = s->turned};
    int64_t rows[2] = {s->m, s->k}, dims[2] = {s->turned ? s->n : s->k, s->turned ? s->k : s->n};
    ht_val x = ht_input(w.g, "x", dtype, 2, rows);
    ht_val y = ht_matmul(w.g, x, ht_param(w.g, "w", dtype, 2, dims, HT_NORMAL(0, 1)), &opts);
    if (s->epilogue) y = ht_gelu(w.g, ht_add(w.g, y, ht_param(w.g, "b", dtype, 1, &s->n, HT_CONSTANT(0.5))));
    ht_output(w.g, "y", y);
    plan.settings = &setting;
    plan.setting_count = sparse;
    plan.canaries = true;
    session_plan(&w, &plan, 0);
    double *data = malloc((size_t)(s->m * s->k) * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < s->m * s->k; i++) data[i] = number(i + 17);
    must(&w, ht_session_write_f64(w.s, "x", data, (size_t)(s->m * s->k)));
    free(data);
    return w;
}

static const char *kernel_of(const session_fixture *w)
{
    const ht_plan_segment *s = &w->plan->segments[ht_plan_segment_find(w->plan, "forward")];
    for (size_t i = 0; i < s->instr_count; i++)
        if (strncmp(s->instrs[i].kernel->name, "matmul", 6) == 0) return s->instrs[i].kernel->name;
    return "";
}

static void run(const session_fixture *w, const shape *s, double *y)
{
    must(w, ht_session_run(w->s, "forward"));
    must(w, ht_session_read_f64(w->s, "y", y, (size_t)(s->m * s->n)));
}

/* dense: with the zeros. Both through the GEMM core have the same bits; a single row is another kernel's. */
static void compare(const shape *s, const double *sparse, const double *dense, bool exact)
{
    for (int64_t i = 0; i < s->m * s->n; i++)
        if (exact ? sparse[i] != dense[i] : !(fabs(sparse[i] - dense[i]) <= 1e-4 * (1 + fabs(dense[i]))))
            fail_msg("%lld x %lld x %lld: element %lld is %.9g, not %.9g", (long long)s->m, (long long)s->k,
                     (long long)s->n, (long long)i, sparse[i], dense[i]);
}

static void check(const shape *s, ht_dtype dtype, const char *isa)
{
    size_t bytes = (size_t)(s->m * s->n) * sizeof(double);
    double *want = malloc(bytes), *first = malloc(bytes), *y = malloc(bytes);
    assert_true(want && first && y);
    session_fixture dense = open_product(s, dtype, isa, false), sparse = open_product(s, dtype, isa, true);
    bool exact = strncmp(kernel_of(&dense), "matmul_gemm.", 12) == 0;
    assert_int_equal(strncmp(kernel_of(&sparse), "matmul_sparse.", 14), 0);
    for (int seed = 0; seed < 2; seed++) {
        write_weight(&dense, s, seed);
        write_weight(&sparse, s, seed);
        run(&dense, s, want);
        for (int i = 0; i < RUNS; i++) {
            run(&sparse, s, i == 0 ? first : y);
            compare(s, i == 0 ? first : y, want, exact);
            if (i > 0) assert_memory_equal(y, first, bytes);
        }
    }
    session_end(&dense);
    session_end(&sparse);
    free(want);
    free(first);
    free(y);
}

static void zeros__change_no_product(void **state)
{
    (void)state;
    static const shape shapes[] = {
        {1, 300, 45, false, false, 0.7},   {1, 2100, 130, true, true, 0.5},  {2, 64, 16, false, true, 0.9},
        {3, 1100, 75, true, false, 0.3},   {7, 513, 64, false, false, 0},    {9, 1024, 200, true, true, 0.8},
        {16, 40, 513, false, true, 0.5},   {17, 700, 48, false, false, 0.7}, {29, 1030, 290, true, true, 0.6},
        {130, 1500, 33, false, true, 0.5}, {40, 90, 128, false, false, 1},   {1200, 900, 20, true, false, 0.5},
    };
    ht_isa best = context_shared()->isa;
    for (int isa = 0; isa <= (int)best; isa++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            check(&shapes[i], HT_F32, ht_isa_name((ht_isa)isa));
            check(&shapes[i], HT_F64, ht_isa_name((ht_isa)isa));
        }
}

/* Batches of rows are rows of one product. */
static void zeros__are_left_out_where_rows_have_several_axes(void **state)
{
    (void)state;
    enum { B = 3, T = 5, K = 96, N = 64 };
    session_fixture w = session_begin(1);
    ht_train_setting setting = {"sparse", "w"};
    ht_plan_opts plan = HT_PLAN_OPTS;
    ht_val x = ht_input(w.g, "x", HT_F32, 3, (int64_t[]){B, T, K});
    ht_output(w.g, "y", ht_matmul(w.g, x, ht_param(w.g, "w", HT_F32, 2, (int64_t[]){K, N}, HT_NORMAL(0, 1)), NULL));
    plan.settings = &setting;
    plan.setting_count = 1;
    session_plan(&w, &plan, 0);
    assert_int_equal(strncmp(kernel_of(&w), "matmul_sparse.", 14), 0);
    assert_int_equal(w.plan->prepacked_count, 1);
    session_end(&w);
}

/* Halves have rows of their own, which are faster; the mark changes nothing there. */
static void half__keeps_its_kernels(void **state)
{
    (void)state;
    const shape s = {16, 300, 48, false, false, 0.5};
    session_fixture marked = open_product(&s, HT_BF16, NULL, true), plain = open_product(&s, HT_BF16, NULL, false);
    assert_string_equal(kernel_of(&marked), kernel_of(&plain));
    session_end(&marked);
    session_end(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeros__change_no_product),
        cmocka_unit_test(zeros__are_left_out_where_rows_have_several_axes),
        cmocka_unit_test(half__keeps_its_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
