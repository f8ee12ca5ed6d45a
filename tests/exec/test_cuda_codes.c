/* Layers of 8-bit codes on a GPU, by cublasLt there or the emulator's: the bits of the processor's kernels, whatever sizes and ways
 * operands have, zero points included, as numbers and as codes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "plan/plan.h"
#include "session_fixture.h"

enum { SKIPPED = 77 };

typedef struct layer_case {
    int64_t m, n, k;
    bool tb, is_signed, fixed, bias, codes; /* fixed: one scale and zero point for all of x; codes: of the result */
    const char *row;
} layer_case;

static const char library[] = "matmul_q_cublaslt.cuda", own[] = "matmul_q.cuda";

/* x is quantised and multiplied. */
static void write_graph(char *text, size_t size, const layer_case *c)
{
    long long m = c->m, n = c->n, k = c->k;
    const char *code = c->is_signed ? "i8" : "u8";
    char quantize[256], product[256];
    if (c->fixed)
        snprintf(quantize, sizeof quantize, "%%q = quantize_linear %s[%lld,%lld] (%%x, %%s, %%z)", code, m, k);
    else
        snprintf(quantize, sizeof quantize,
                 "%%q, %%qs, %%qz = quantize_dynamic %s[%lld,%lld], f32[%lld], i32[%lld] (%%x) axes=[1]", code, m, k, m,
                 m);
    snprintf(product, sizeof product, "%%y = matmul_q %s[%lld,%lld] (%%q, %%w, %s, %%ws, %s, %s%s) tb=%d",
             c->codes ? "i8" : "f32", m, n, c->fixed ? "%s" : "%qs", c->fixed ? "%z" : "%qz", c->bias ? "%b" : "_",
             c->codes ? ", %ys" : "", c->tb);
    snprintf(
        text, size,
        "segment step (%%x f32[%lld,%lld], %%w i8[%lld,%lld], %%ws f32[%lld], %%b f32[%lld], %%s f32[], %%z i32[], "
        "%%ys f32[]) -> (y=%%y) {\n  %s\n  %s\n}\n",
        m, k, c->tb ? n : k, c->tb ? k : n, n, n, quantize, product);
}

static ht_session *open_on(const char *device, const layer_case *c, ht_graph **g, ht_plan **plan)
{
    char text[2048];
    ht_session *s;
    ht_target target;
    ht_text target_text = {0};
    ht_plan_opts opts = HT_PLAN_OPTS;
    ht_target_here(test_ctx, &target);
    context_must(test_ctx, ht_target_bind(test_ctx, &target, device));
    ht_device_describe(test_ctx, &target);
    ht_target_print(&target_text, &target);
    opts.target = target_text.data;
    write_graph(text, sizeof text, c);
    context_must(test_ctx, ht_graph_parse(g, test_ctx, "layer", text, strlen(text)));
    context_must(test_ctx, ht_plan_create(plan, *g, &opts));
    context_must(test_ctx, ht_session_create(&s, *plan, NULL));
    ht_text_free(&target_text);
    return s;
}

static void write_floats(ht_session *s, const char *name, int64_t n, double low, double high, uint64_t seed)
{
    float *x = malloc((size_t)n * sizeof *x + 1);
    ht_stream stream = {.seed = seed};
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(low + (high - low) * ht_stream_uniform(&stream, (uint64_t)i));
    context_must(test_ctx, ht_session_write(s, name, x, (size_t)n * sizeof *x));
    free(x);
}

static void write_codes(ht_session *s, const char *name, int64_t n)
{
    int8_t *w = malloc((size_t)n + 1);
    ht_stream stream = {.seed = 7};
    assert_non_null(w);
    for (int64_t i = 0; i < n; i++) w[i] = (int8_t)((int)(256 * ht_stream_uniform(&stream, (uint64_t)i)) - 128);
    context_must(test_ctx, ht_session_write(s, name, w, (size_t)n));
    free(w);
}

static bool has_row(const ht_plan *plan, const char *row)
{
    for (size_t i = 0; i < plan->segments[0].instr_count; i++)
        if (strcmp(plan->segments[0].instrs[i].kernel->name, row) == 0) return true;
    return false;
}

static void run_on(const char *device, const char *row, const layer_case *c, unsigned char *y, size_t bytes)
{
    ht_graph *g;
    ht_plan *plan;
    ht_session *s = open_on(device, c, &g, &plan);
    const int32_t zero = c->is_signed ? -11 : 117;
    if (row && !has_row(plan, row)) fail_msg("no %s", row);
    write_floats(s, "x", c->m * c->k, -1, 3, 1);
    write_codes(s, "w", c->n * c->k);
    write_floats(s, "ws", c->n, 0.001, 0.02, 2);
    if (c->bias) write_floats(s, "b", c->n, -5, 5, 3);
    if (c->fixed) write_floats(s, "s", 1, 0.012, 0.012, 0);
    if (c->fixed) context_must(test_ctx, ht_session_write(s, "z", &zero, sizeof zero));
    if (c->codes) write_floats(s, "ys", 1, 0.4, 0.4, 0);
    context_must(test_ctx, ht_session_run(s, "step"));
    context_must(test_ctx, ht_session_read(s, "y", y, bytes));
    ht_session_free(s);
    ht_plan_free(plan);
    ht_graph_free(g);
}

static void products_of_codes__have_the_bits_of_the_processor(void **state)
{
    (void)state;
    static const layer_case cases[] = {
        {33, 64, 48, .row = library},
        {12, 20, 32, .tb = true, .is_signed = true, .row = library}, /* read where they lie */
        {5, 100, 70, .tb = true, .bias = true, .row = library},      /* sums are filled up to whole steps */
        {40, 36, 130, .is_signed = true, .bias = true, .row = library},
        {17, 64, 64, .fixed = true, .tb = true, .codes = true, .row = library},
        {3, 4, 16, .fixed = true, .is_signed = true, .bias = true, .codes = true, .row = library},
        {1, 4, 1, .row = library},
        {9, 13, 21, .bias = true, .row = library},
        {4, 7, 33, .tb = true, .fixed = true, .codes = true, .row = library},
        {5, 7, 0, .bias = true, .row = own}, /* nothing to multiply */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const layer_case *c = &cases[i];
        size_t bytes = (size_t)(c->m * c->n) * (c->codes ? 1 : sizeof(float));
        unsigned char *theirs = malloc(bytes), *ours = malloc(bytes);
        assert_true(theirs && ours);
        run_on("cpu", NULL, c, theirs, bytes);
        run_on("cuda", c->row, c, ours, bytes);
        for (size_t k = 0; k < bytes; k++)
            if (ours[k] != theirs[k])
                fail_msg("case %zu: byte %zu of %zu is %d, not %d", i, k, bytes, ours[k], theirs[k]);
        free(theirs);
        free(ours);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_codes__have_the_bits_of_the_processor),
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
