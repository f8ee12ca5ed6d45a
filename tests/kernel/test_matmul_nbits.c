/* Products by weights of 4 and 8 bits: where each code lies, and every row that this machine can run against the reference: bit for
 * bit where all sums are exact, near it elsewhere (the samples, in test_ops_kernel). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_call.h"

enum { SHAPES = 400 };

/* ---- where codes lie ---- */

static void check_codes(int bits)
{
    enum { K = 21, N = 70, GROUP = 10, GROUPS = 3 };
    op_call c;
    ht_type words = ht_nbits_type(bits, K, N);
    op_call_open(&c, "matmul_nbits", "(f32[%d,%d], i32[%d,%d], f32[%d,%d], u8[%d,%d]) group=%d bits=%d", K, K,
                 (int)words.dim[0], N, GROUPS, N, GROUPS, N, GROUP, bits);
    for (int i = 0; i < K * K; i++) c.a.in[0][i] = i / K == i % K;
    for (int64_t i = 0; i < op_call_elems_in(&c, 1); i++) {
        /* The first code of a word is its lowest bits; as i32 a word may be negative. */
        uint32_t word = 0, row = (uint32_t)(i / N) * (32 / (uint32_t)bits), column = (uint32_t)(i % N);
        for (uint32_t t = 0; t < 32 / (uint32_t)bits; t++)
            word |= ((row + t) * 31 + column * 7) % (1u << bits) << t * (uint32_t)bits;
        c.a.in[1][i] = (double)(int32_t)word;
    }
    for (int group = 0; group < GROUPS; group++)
        for (int column = 0; column < N; column++) {
            c.a.in[2][group * N + column] = 1 + group + 4 * (column % 3);
            c.a.in[3][group * N + column] = (group + column) % (1 << bits);
        }
    op_runner runners[] = {op_call_reference, op_call_kernel};
    for (int r = 0; r < 2; r++) {
        runners[r](&c);
        for (int row = 0; row < K; row++)
            for (int column = 0; column < N; column++) {
                int code = (row * 31 + column * 7) % (1 << bits), group = row / GROUP;
                int steps = code - (group + column) % (1 << bits);
                assert_true(c.a.out[0][row * N + column] == steps * (1 + group + 4 * (column % 3)));
            }
    }
    op_call_close(&c);
}

static void a_code__is_found_by_its_row_and_column(void **state)
{
    (void)state;
    check_codes(4);
    check_codes(8);
}

static void codes_without_zero_points__count_from_the_middle(void **state)
{
    (void)state;
    for (int bits = 4; bits <= 8; bits += 4) {
        op_call c;
        op_call_open(&c, "matmul_nbits", "(f32[1,1], i32[1,1], f32[1,1], _, f32[1]) bits=%d", bits);
        c.a.in[0][0] = 3;
        c.a.in[1][0] = 0x5d; /* 13, or 93 */
        c.a.in[2][0] = 0.5;
        c.a.in[4][0] = 4;
        op_call_kernel(&c);
        assert_true(c.a.out[0][0] == 3 * 4 * 0.5 * (bits == 4 ? 13 - 8 : 0x5d - 128));
        op_call_close(&c);
    }
}

/* ---- every row ---- */

typedef struct draws {
    ht_stream stream;
    uint64_t next;
} draws;

static int64_t draw(draws *d, int64_t low, int64_t high)
{
    double u = ht_stream_uniform(&d->stream, d->next++);
    return low + (int64_t)(u * (double)(high - low + 1));
}

static int64_t draw_size(draws *d, int64_t most)
{
    static const int64_t near[] = {14, 16, 32, 64, 128, 256, 512, 1024};
    int64_t size = draw(d, 0, 3) ? draw(d, 1, 80) : near[draw(d, 0, 7)] + draw(d, -1, 1);
    return size > most ? most : size;
}

/* Small whole numbers and powers of two: every sum is exact, whatever its order. */
static void open_exact(draws *d, op_call *c)
{
    int64_t m = draw(d, 0, 1) ? 1 : draw_size(d, 40), n = draw_size(d, 300), k = draw_size(d, 1100);
    while (m * n * k > 300000) *(m > n ? &m : n > k / 8 ? &n : &k) /= 2;
    int bits = draw(d, 0, 1) ? 4 : 8;
    int64_t group = draw(d, 0, 2) ? 32 << draw(d, 0, 2) : draw(d, 1, 100), groups = (k + group - 1) / group;
    bool zeros = draw(d, 0, 1), factors = draw(d, 0, 1);
    char zero[64] = "_", factor[64] = "";
    if (zeros)
        snprintf(zero, sizeof zero, "u8[%lld,%lld] 0..%d", (long long)groups, (long long)n, bits == 4 ? 15 : 255);
    if (factors) snprintf(factor, sizeof factor, ", f32[%lld]", (long long)k);
    op_call_open(c, "matmul_nbits",
                 "(%s[%lld,%lld], i32[%lld,%lld] -2147483648..2147483647, f32[%lld,%lld], %s%s) -> f32[%lld,%lld] "
                 "group=%lld bits=%d",
                 draw(d, 0, 2) ? "f32" : "bf16", (long long)m, (long long)k,
                 (long long)(k + 32 / bits - 1) / (32 / bits), (long long)n, (long long)groups, (long long)n, zero,
                 factor, (long long)m, (long long)n, (long long)group, bits);
    for (int64_t i = 0; i < op_call_elems_in(c, 0); i++) c->a.in[0][i] = (double)draw(d, -3, 3);
    for (int64_t i = 0; i < op_call_elems_in(c, 2); i++) c->a.in[2][i] = draw(d, 0, 1) ? 0.5 : 1;
    for (int64_t i = 0; factors && i < k; i++) c->a.in[4][i] = draw(d, 0, 1) ? 0.5 : 1;
}

static size_t check_rows(op_call *c, ht_target machine)
{
    const ht_context *ctx = context_shared();
    size_t bytes = (size_t)op_call_elems_out(c, 0) * sizeof(double), ran = 0;
    double *want = malloc(bytes + 1);
    assert_non_null(want);
    op_call_reference(c);
    memcpy(want, c->a.out[0], bytes);
    for (size_t i = 0; i < ctx->kernel_count; i++) {
        const ht_kernel *row = ctx->kernels[i];
        ht_target target = {.isa = row->isa, .features = machine.features, .threads = 1 + (int)(i % 3)};
        if (strcmp(row->op, "matmul_nbits") != 0 || row->isa > machine.isa || row->can(c->c.call, &target)) continue;
        op_kernel_run(row, &target, c->c.call, &c->a);
        for (int64_t e = 0; e < op_call_elems_out(c, 0); e++)
            if (c->a.out[0][e] != want[e])
                op_case_fail(&c->c, "%s: element %lld is %.9g, not %.9g", row->name, (long long)e, c->a.out[0][e],
                             want[e]);
        ran++;
    }
    free(want);
    return ran;
}

static void every_row__has_the_bits_of_the_reference_where_sums_are_exact(void **state)
{
    (void)state;
    draws d = {.stream = {.seed = 4, .site = ht_hash_text("matmul_nbits")}};
    ht_target machine = {.isa = ht_cpu_isa(), .features = ht_cpu_features()};
    for (int i = 0; i < SHAPES; i++) {
        op_call c;
        open_exact(&d, &c);
        assert_true(check_rows(&c, machine) > 0);
        op_call_close(&c);
    }
}

static void bad_operands__are_refused_by_name(void **state)
{
    (void)state;
    op_call_refused("matmul_nbits", "(f32[3,9], u8[2,5], f32[1,5])", "codes is u8[2,5], not i32");
    op_call_refused("matmul_nbits", "(f32[3,9], i32[1,5], f32[1,5])", "codes is i32[1,5], not i32[2,5]");
    op_call_refused("matmul_nbits", "(f32[3,9], i32[2,5], f32[1,5]) bits=8", "codes is i32[2,5], not i32[3,5]");
    op_call_refused("matmul_nbits", "(f32[3,9], i32[2,5], f32[1,5]) bits=3", "codes of 3 bits, not 4 or 8");
    op_call_refused("matmul_nbits", "(f32[3,9], i32[2,5], f32[5])", "scale is f32[5]");
    op_call_refused("matmul_nbits", "(f32[3,9], i32[2,5], f32[1,5]) group=8", "scale is f32[1,5], not f32[2,5]");
    op_call_refused("matmul_nbits", "(f32[3,9], i32[2,5], f32[1,5], i32[1,5])", "zero is i32[1,5], not u8");
    op_call_refused("matmul_nbits", "(f32[3,9], i32[2,5], f32[1,5], u8[1,4])", "zero is u8[1,4], not u8[1,5]");
    op_call_refused("matmul_nbits", "(f32[3,9], i32[2,5], f32[1,5], _, f32[5])", "a_scale is f32[5], not f32[9]");
    op_call_refused("matmul_nbits", "(i32[3,9], i32[2,5], f32[1,5])", "input 0 is i32");
    op_call_refused("matmul_nbits", "(f32[3,9], i32[2,5], f32[1,5]) group=0", "a group of 0 inputs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_code__is_found_by_its_row_and_column),
        cmocka_unit_test(codes_without_zero_points__count_from_the_middle),
        cmocka_unit_test(every_row__has_the_bits_of_the_reference_where_sums_are_exact),
        cmocka_unit_test(bad_operands__are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
