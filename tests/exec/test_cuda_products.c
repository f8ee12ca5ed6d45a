/* Products of f32 in parts, by cublasLt on a GPU or the emulator's: every way operands lie, stretches of a long sum, and
 * numbers that are not finite. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "plan/plan.h"
#include "session_fixture.h"

enum { SKIPPED = 77 };

typedef struct matmul_case {
    int64_t m, n, k;
    bool ta, tb;
} matmul_case;

static ht_session *open_on(const char *device, const matmul_case *c, ht_graph **g, ht_plan **plan)
{
    char text[512];
    ht_session *s;
    ht_target target;
    ht_text target_text = {0};
    ht_plan_opts opts = HT_PLAN_OPTS;
    ht_target_here(test_ctx, &target);
    context_must(test_ctx, ht_target_bind(test_ctx, &target, device));
    ht_device_describe(test_ctx, &target);
    target.liberties = 1u << HT_LIBERTY_TF32_PARTS;
    ht_target_print(&target_text, &target);
    opts.target = target_text.data;
    snprintf(text, sizeof text,
             "segment step (%%a f32[%lld,%lld], %%b f32[%lld,%lld]) -> (y=%%y) {\n"
             "  %%y = matmul f32[%lld,%lld] (%%a, %%b) ta=%d tb=%d\n}\n",
             (long long)(c->ta ? c->k : c->m), (long long)(c->ta ? c->m : c->k), (long long)(c->tb ? c->n : c->k),
             (long long)(c->tb ? c->k : c->n), (long long)c->m, (long long)c->n, c->ta, c->tb);
    context_must(test_ctx, ht_graph_parse(g, test_ctx, "product", text, strlen(text)));
    context_must(test_ctx, ht_plan_create(plan, *g, &opts));
    context_must(test_ctx, ht_session_create(&s, *plan, NULL));
    ht_text_free(&target_text);
    return s;
}

static void run_on(const char *device, const char *row, const matmul_case *c, const float *a, const float *b, float *y)
{
    ht_graph *g;
    ht_plan *plan;
    ht_session *s = open_on(device, c, &g, &plan);
    if (row) assert_string_equal(plan->segments[0].instrs[0].kernel->name, row);
    context_must(test_ctx, ht_session_write(s, "a", a, (size_t)(c->m * c->k) * sizeof *a));
    context_must(test_ctx, ht_session_write(s, "b", b, (size_t)(c->k * c->n) * sizeof *b));
    context_must(test_ctx, ht_session_run(s, "step"));
    context_must(test_ctx, ht_session_read(s, "y", y, (size_t)(c->m * c->n) * sizeof *y));
    ht_session_free(s);
    ht_plan_free(plan);
    ht_graph_free(g);
}

static float *draw(int64_t n, uint64_t seed)
{
    float *x = malloc((size_t)n * sizeof *x);
    ht_stream stream = {.seed = seed};
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(2 * ht_stream_uniform(&stream, (uint64_t)i) - 1);
    return x;
}

/* Of sums of k products of numbers up to 1: errors against the processor's f32, in units of what rounding once costs. */
static void check_case(const matmul_case *c)
{
    float *a = draw(c->m * c->k, 1), *b = draw(c->k * c->n, 2);
    float *ours = malloc((size_t)(c->m * c->n) * sizeof *ours),
          *theirs = malloc((size_t)(c->m * c->n) * sizeof *theirs);
    double worst = 0, typical = sqrt((double)c->k) / 3;
    assert_true(ours && theirs);
    run_on("cuda", "matmul_parts.cuda", c, a, b, ours);
    run_on("cpu", NULL, c, a, b, theirs);
    for (int64_t i = 0; i < c->m * c->n; i++) worst = fmax(worst, fabs((double)ours[i] - (double)theirs[i]));
    if (!(worst < 4e-6 * typical * fmax(1, sqrt((double)c->k) / 100)))
        fail_msg("%lld x %lld x %lld, ta %d, tb %d: %g, of sums of about %g", (long long)c->m, (long long)c->k,
                 (long long)c->n, c->ta, c->tb, worst, typical);
    free(a);
    free(b);
    free(ours);
    free(theirs);
}

static void parts__have_the_values_of_f32_products(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) check_case(&(matmul_case){1024, 1024, 1028, i & 1, i & 2});
    check_case(&(matmul_case){2052, 516, 1100, false, false});
    if (!getenv("HALFTONE_LONG")) return;
    for (int i = 0; i < 4; i++) check_case(&(matmul_case){64, 128, 500000, i & 1, i & 2}); /* in stretches */
}

static void parts__of_what_is_not_finite_are_not_finite(void **state)
{
    (void)state;
    const matmul_case c = {1024, 1024, 1024, false, false};
    float *a = draw(c.m * c.k, 1), *b = draw(c.k * c.n, 2), *y = malloc((size_t)(c.m * c.n) * sizeof *y);
    assert_non_null(y);
    a[3 * c.k + 5] = INFINITY;
    a[4 * c.k + 5] = NAN;
    a[6 * c.k + 5] = 3.4028235e38f; /* the largest, which rounds to infinity in 11 bits */
    for (int64_t i = 0; i < c.n; i++) b[5 * c.n + i] = 0.25f;
    run_on("cuda", "matmul_parts.cuda", &c, a, b, y);
    for (int64_t i = 0; i < c.n; i++) {
        assert_false(isfinite(y[3 * c.n + i]));
        assert_false(isfinite(y[4 * c.n + i]));
        assert_true(isfinite(y[5 * c.n + i]));
        assert_true(fabsf(y[6 * c.n + i] / 8.5070587e37f - 1) < 1e-6f);
    }
    free(a);
    free(b);
    free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts__have_the_values_of_f32_products),
        cmocka_unit_test(parts__of_what_is_not_finite_are_not_finite),
    };
    ht_device *device;
    ht_target target = {.device = HT_DEVICE_CUDA};
    context_setup(NULL);
    bool there = ht_device_get(&device, test_ctx, "cuda") == HT_OK;
    if (there) device->class->describe(device, &target);
    context_teardown(NULL);
    if (!there || !ht_target_has_library(&target, HT_LIBRARY_CUBLASLT)) {
        printf("1..0 # SKIP there is no GPU with cublasLt\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
