/* The small formats, bit by bit: every pattern, every tie between neighbours, and the worked table of conversions. The
 * expected roundings come from doubles and exact arithmetic, not from the code under test. */
#include "base/half.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

typedef struct kind {
    const char *name;
    int exponent_bits, mantissa_bits, bias;
    uint32_t max, beyond, sign;
    uint32_t (*from_f32)(float x);
    uint32_t (*from_f64)(double x);
    float (*to_f32)(uint32_t code);
} kind;

/* One set of uniform wrappers per format. */
#define WRAP(format, word)                                                                                             \
    static uint32_t format##_from32(float x)                                                                           \
    {                                                                                                                  \
        return ht_##format##_from_f32(x).bits;                                                                         \
    }                                                                                                                  \
    static uint32_t format##_from64(double x)                                                                          \
    {                                                                                                                  \
        return ht_##format##_from_f64(x).bits;                                                                         \
    }                                                                                                                  \
    static float format##_to32(uint32_t code)                                                                          \
    {                                                                                                                  \
        return ht_##format##_to_f32((ht_##format){(word)code});                                                        \
    }
WRAP(f16, uint16_t)
WRAP(bf16, uint16_t)
WRAP(f8e4m3, uint8_t)
WRAP(f8e5m2, uint8_t)

static const kind kinds[] = {
    {"f16", 5, 10, 15, 0x7bff, 0x7c00, 0x8000, f16_from32, f16_from64, f16_to32},
    {"bf16", 8, 7, 127, 0x7f7f, 0x7f80, 0x8000, bf16_from32, bf16_from64, bf16_to32},
    {"f8e4m3", 4, 3, 7, 0x7e, 0x7e, 0x80, f8e4m3_from32, f8e4m3_from64, f8e4m3_to32},
    {"f8e5m2", 5, 2, 15, 0x7b, 0x7b, 0x80, f8e5m2_from32, f8e5m2_from64, f8e5m2_to32},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* The magnitude of a finite code from the definition of the format; one past max is what rounding would reach. */
static double value_of(const kind *k, uint32_t code)
{
    int exponent = (int)(code >> k->mantissa_bits);
    double fraction = (double)(code & ((1u << k->mantissa_bits) - 1));
    if (exponent == 0) return ldexp(fraction, 1 - k->bias - k->mantissa_bits);
    return ldexp(fraction + (double)(1u << k->mantissa_bits), exponent - k->bias - k->mantissa_bits);
}

static void expect32(const kind *k, float x, uint32_t want)
{
    uint32_t got = k->from_f32(x);
    if (got != want) fail_msg("%s: %a (f32) gives %#x, not %#x", k->name, (double)x, got, want);
}

static void expect64(const kind *k, double x, uint32_t want)
{
    uint32_t got = k->from_f64(x);
    if (got != want) fail_msg("%s: %a (f64) gives %#x, not %#x", k->name, x, got, want);
}

static void both_signs(const kind *k, double x, uint32_t want)
{
    expect64(k, x, want);
    expect64(k, -x, want | k->sign);
    if ((double)(float)x != x) return;
    expect32(k, (float)x, want);
    expect32(k, -(float)x, want | k->sign);
}

static void half__every_finite_pattern_is_its_value_and_comes_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        const kind *k = &kinds[i];
        for (uint32_t code = 0; code <= k->max; code++) {
            assert_true((double)k->to_f32(code) == value_of(k, code));
            assert_true((double)k->to_f32(code | k->sign) == -value_of(k, code));
            assert_int_equal(!!signbit(k->to_f32(code | k->sign)), 1);
            both_signs(k, value_of(k, code), code);
        }
    }
}

static void half__every_other_pattern_is_infinity_or_nan(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        const kind *k = &kinds[i];
        for (uint32_t code = k->max + 1; code < k->sign; code++) {
            for (int negative = 0; negative < 2; negative++) {
                float x = k->to_f32(code | (negative ? k->sign : 0));
                bool is_infinity = k->bias != 7 && (code & ((1u << k->mantissa_bits) - 1)) == 0;
                assert_true(is_infinity ? isinf(x) != 0 : isnan(x) != 0);
                assert_int_equal(!!signbit(x), negative);
            }
        }
    }
}

static void half__nan_stays_a_quiet_nan_with_its_sign(void **state)
{
    (void)state;
    const uint32_t payloads[] = {0x7fc00000, 0x7f800001, 0x7fffffff, 0x7fa00000, 0x7f802000};
    for (size_t i = 0; i < sizeof payloads / sizeof payloads[0]; i++) {
        for (uint32_t sign = 0; sign < 2; sign++) {
            float x = ht_f32_from_bits(payloads[i] | sign << 31);
            uint32_t f16 = f16_from32(x), bf16 = bf16_from32(x);
            assert_int_equal(f16 & 0xfe00, 0x7e00 | sign << 15);
            assert_int_equal(bf16 & 0xffc0, 0x7fc0 | sign << 15);
            assert_int_equal(f8e4m3_from32(x), 0x7f | sign << 7);
            assert_int_equal(f8e5m2_from32(x), 0x7e | sign << 7);
            assert_int_equal(f16_from64((double)x), 0x7e00 | sign << 15);
            assert_int_equal(bf16_from64((double)x), 0x7fc0 | sign << 15);
        }
    }
    for (uint32_t code = 0x7c01; code < 0x8000; code++) assert_int_equal(f16_from32(f16_to32(code)), code | 0x200);
    for (uint32_t code = 0x7f81; code < 0x8000; code++) assert_int_equal(bf16_from32(bf16_to32(code)), code | 0x40);
}

static void half__every_tie_goes_to_even_and_its_neighbours_do_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        const kind *k = &kinds[i];
        for (uint32_t code = 0; code <= k->max; code++) {
            double tie = (value_of(k, code) + value_of(k, code + 1)) / 2;
            uint32_t above = code == k->max ? k->beyond : code + 1;
            both_signs(k, tie, (code & 1) ? above : code);
            both_signs(k, nextafter(tie, 0), code);
            both_signs(k, nextafter(tie, INFINITY), above);
            if ((double)(float)tie != tie) continue; /* bf16's last tie is beyond f32 */
            both_signs(k, (double)nextafterf((float)tie, 0), code);
            both_signs(k, (double)nextafterf((float)tie, INFINITY), above);
        }
    }
}

static void half__overflow_and_infinity_go_where_the_format_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        const double large[] = {INFINITY, 0x1.fffffep127, 0x1p128, 0x1.fffffffffffffp1023};
        for (size_t j = 0; j < sizeof large / sizeof large[0]; j++) both_signs(&kinds[i], large[j], kinds[i].beyond);
        both_signs(&kinds[i], 0x1p-1074, 0);
        both_signs(&kinds[i], 0x1p-1022, 0);
        both_signs(&kinds[i], 0x1p-149, 0);
    }
}

static void half__f64_is_rounded_once(void **state)
{
    (void)state;
    /* Just above a tie of f16; rounding to f32 first would make it the tie, which goes down. */
    double x = 1 + 0x1p-11 + 0x1p-40;
    assert_int_equal(ht_f16_from_f64(x).bits, 0x3c01);
    assert_int_equal(ht_f16_from_f32((float)x).bits, 0x3c00);
    assert_int_equal(ht_bf16_from_f64(1 + 0x1p-8 + 0x1p-40).bits, 0x3f81);
}

typedef struct row {
    uint32_t f32;
    uint16_t f16, bf16;
    uint8_t e4m3, e5m2;
} row;

static void half__worked_table(void **state)
{
    (void)state;
    static const row rows[] = {
        {0x80000000, 0x8000, 0x8000, 0x80, 0x80}, {0x477FEF00, 0x7BFF, 0x4780, 0x7E, 0x7B},
        {0x477FF000, 0x7C00, 0x4780, 0x7E, 0x7B}, {0x33000000, 0x0000, 0x3300, 0x00, 0x00},
        {0x33000001, 0x0001, 0x3300, 0x00, 0x00}, {0x3F801000, 0x3C00, 0x3F80, 0x38, 0x3C},
        {0x3F803000, 0x3C02, 0x3F80, 0x38, 0x3C}, {0x3F808000, 0x3C04, 0x3F80, 0x38, 0x3C},
        {0x3F818000, 0x3C0C, 0x3F82, 0x38, 0x3C}, {0x3F980000, 0x3CC0, 0x3F98, 0x3A, 0x3D},
        {0x3DCCCCCD, 0x2E66, 0x3DCD, 0x1D, 0x2E}, {0x43E80000, 0x5F40, 0x43E8, 0x7E, 0x5F},
        {0x43E88000, 0x5F44, 0x43E8, 0x7E, 0x5F}, {0x476FFF00, 0x7B80, 0x4770, 0x7E, 0x7B},
        {0x47700000, 0x7B80, 0x4770, 0x7E, 0x7B}, {0x3A800000, 0x1400, 0x3A80, 0x00, 0x14},
        {0x3B400000, 0x1A00, 0x3B40, 0x02, 0x1A}, {0x37000000, 0x0080, 0x3700, 0x00, 0x00},
        {0x37C00000, 0x0180, 0x37C0, 0x00, 0x02}, {0x7F7FFFFF, 0x7C00, 0x7F80, 0x7E, 0x7B},
        {0x000116C2, 0x0000, 0x0001, 0x00, 0x00}, {0x7F800000, 0x7C00, 0x7F80, 0x7E, 0x7B},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float x = ht_f32_from_bits(rows[i].f32);
        const uint32_t want[KINDS] = {rows[i].f16, rows[i].bf16, rows[i].e4m3, rows[i].e5m2};
        for (size_t j = 0; j < KINDS; j++) {
            expect32(&kinds[j], x, want[j]);
            expect64(&kinds[j], (double)x, want[j]);
        }
    }
}

static void half__f32_and_f64_paths_agree_on_random_bits(void **state)
{
    (void)state;
    uint32_t bits = 1;
    for (int i = 0; i < 2000000; i++) {
        bits = bits * 1664525u + 1013904223u;
        float x = ht_f32_from_bits(bits);
        if (isnan(x)) continue;
        if (f16_from32(x) != f16_from64((double)x)) fail_msg("f16 of %a", (double)x);
        if (bf16_from32(x) != bf16_from64((double)x)) fail_msg("bf16 of %a", (double)x);
    }
}

static void round_to__integers_truncate_and_saturate(void **state)
{
    (void)state;
    assert_true(ht_round_to(HT_I8, -1.9) == -1 && ht_round_to(HT_I8, 127.99) == 127);
    assert_true(ht_round_to(HT_I8, 1e9) == 127 && ht_round_to(HT_I8, -INFINITY) == -128);
    assert_true(ht_round_to(HT_U8, -3) == 0 && ht_round_to(HT_U8, 255.5) == 255 && ht_round_to(HT_U8, 256) == 255);
    assert_true(ht_round_to(HT_I32, 0x1p31) == 2147483647.0 && ht_round_to(HT_I32, -0x1p40) == -0x1p31);
    assert_true(ht_round_to(HT_I64, 1e300) == 0x1p63 && ht_round_to(HT_I64, -1e300) == -0x1p63);
    assert_true(ht_round_to(HT_I32, NAN) == 0 && ht_round_to(HT_I64, NAN) == 0 && ht_round_to(HT_U8, NAN) == 0);
    assert_true(ht_round_to(HT_BOOL, 0.25) == 1 && ht_round_to(HT_BOOL, -0.0) == 0);
    assert_true(ht_round_to(HT_F32, 0.1) == (double)0.1f && ht_round_to(HT_F64, 0.1) == 0.1);
    assert_true(ht_round_to(HT_F8E4M3, 1000) == 448 && isinf(ht_round_to(HT_F16, 65520)));
}

static void load_store__every_dtype_keeps_what_it_rounded_to(void **state)
{
    (void)state;
    const double values[] = {0, 1, -1, 0.3, -2.7, 100, 300, 1e-5, 1e10, INFINITY};
    for (int dtype = 0; dtype < HT_DTYPE_COUNT; dtype++) {
        _Alignas(8) unsigned char array[4 * 8];
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            memset(array, 0xa5, sizeof array);
            ht_store_f64(array, (ht_dtype)dtype, 2, values[i]);
            assert_true(ht_load_f64(array, (ht_dtype)dtype, 2) == ht_round_to((ht_dtype)dtype, values[i]));
            size_t bytes = ht_dtype_bytes((ht_dtype)dtype);
            assert_int_equal(array[2 * bytes - 1], 0xa5);
            assert_int_equal(array[3 * bytes], 0xa5);
        }
    }
    int64_t large = INT64_MAX;
    ht_store_f64(&large, HT_I64, 0, 0x1p63);
    assert_true(large == INT64_MAX);
}

static void names__dtypes_and_statuses(void **state)
{
    (void)state;
    assert_string_equal(ht_dtype_name(HT_BF16), "bf16");
    assert_string_equal(ht_dtype_name((ht_dtype)99), "?");
    assert_string_equal(ht_dtype_name((ht_dtype)-1), "?");
    assert_int_equal(ht_dtype_bytes(HT_F64), 8);
    assert_true(ht_dtype_is_float(HT_F8E5M2) && !ht_dtype_is_float(HT_BOOL));
    assert_string_equal(ht_status_name(HT_EVERIFY), "HT_EVERIFY");
    assert_string_equal(ht_status_name((ht_status)77), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half__every_finite_pattern_is_its_value_and_comes_back),
        cmocka_unit_test(half__every_other_pattern_is_infinity_or_nan),
        cmocka_unit_test(half__nan_stays_a_quiet_nan_with_its_sign),
        cmocka_unit_test(half__every_tie_goes_to_even_and_its_neighbours_do_not),
        cmocka_unit_test(half__overflow_and_infinity_go_where_the_format_says),
        cmocka_unit_test(half__f64_is_rounded_once),
        cmocka_unit_test(half__worked_table),
        cmocka_unit_test(half__f32_and_f64_paths_agree_on_random_bits),
        cmocka_unit_test(round_to__integers_truncate_and_saturate),
        cmocka_unit_test(load_store__every_dtype_keeps_what_it_rounded_to),
        cmocka_unit_test(names__dtypes_and_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
