/* Casts of f16 through the kernels: every pattern up, every tie and its neighbours down, on each ISA of the machine. The
 * processor's own conversion must give the bits of the portable one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "context_fixture.h"
#include "train/train.h"

enum { PATTERNS = 65536, TIES = 3 * 63488 };

static const ht_kernel *cast_kernel(ht_context *ctx, const ht_call *call, ht_isa isa)
{
    ht_target target = {.isa = isa, .threads = 1};
    const ht_kernel *kernel = ht_kernel_choose(ctx, call, &target, NULL);
    assert_non_null(kernel);
    return kernel;
}

static void run_cast(ht_context *ctx, ht_isa isa, ht_dtype from, const void *x, ht_dtype to, void *y, int64_t n)
{
    ht_type in = ht_type_make(from, 1, &n), out = ht_type_make(to, 1, &n);
    const ht_type *ins[] = {&in}, *outs[] = {&out};
    ht_call call = {ht_op_find(ctx, "cast", 4), 1, 1, 0, ins, outs, NULL};
    const void *in_data[] = {x};
    void *out_data[] = {y};
    ht_launch launch = {.call = &call, .in = in_data, .out = out_data};
    cast_kernel(ctx, &call, isa)->run(&launch);
}

static void cast__every_f16_becomes_the_same_f32_on_each_isa(void **state)
{
    (void)state;
    ht_context *ctx = test_ctx;
    static ht_f16 x[PATTERNS];
    static float y[PATTERNS];
    for (int i = 0; i < PATTERNS; i++) x[i].bits = (uint16_t)i;
    for (int isa = 0; isa <= (int)ht_cpu_isa(); isa++) {
        run_cast(ctx, (ht_isa)isa, HT_F16, x, HT_F32, y, PATTERNS);
        for (int i = 0; i < PATTERNS; i++) assert_int_equal(ht_f32_bits(y[i]), ht_f32_bits(ht_f16_to_f32(x[i])));
    }
}

/* Between each finite f16 and the next one away from zero: the middle, and the floats on either side of it. */
static void cast__every_tie_rounds_the_same_on_each_isa(void **state)
{
    (void)state;
    ht_context *ctx = test_ctx;
    static float x[TIES];
    static ht_f16 y[TIES];
    int n = 0;
    for (int i = 0; i < PATTERNS; i++) {
        double here = ht_f16_to_f32((ht_f16){(uint16_t)i});
        if (!isfinite(here)) continue;
        double next = (i & 0x7fff) == 0x7bff ? copysign(65536, here) : ht_f16_to_f32((ht_f16){(uint16_t)(i + 1)});
        float middle = (float)((here + next) / 2);
        x[n++] = middle;
        x[n++] = nextafterf(middle, INFINITY);
        x[n++] = nextafterf(middle, -INFINITY);
    }
    assert_int_equal(n, TIES);
    for (int isa = 0; isa <= (int)ht_cpu_isa(); isa++) {
        run_cast(ctx, (ht_isa)isa, HT_F32, x, HT_F16, y, n);
        for (int i = 0; i < n; i++) assert_int_equal(y[i].bits, ht_f16_from_f32(x[i]).bits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cast__every_f16_becomes_the_same_f32_on_each_isa),
        cmocka_unit_test(cast__every_tie_rounds_the_same_on_each_isa),
    };
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
