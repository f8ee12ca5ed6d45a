/* What calibration keeps of numbers, and the ranges that its methods choose. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compress/ranges.h"

enum { COUNT = 20000 };

/* Sums of uniform numbers: nearly normal, between -6 and 6. */
static void fill(float *x, int64_t count, uint64_t seed, float spread)
{
    for (int64_t i = 0; i < count; i++) {
        float sum = -6;
        for (int k = 0; k < 12; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(seed >> 40) * 0x1p-24f;
        }
        x[i] = spread * sum;
    }
}

static int begin(void **state)
{
    *state = calloc(1, sizeof(ht_histogram));
    return *state ? 0 : -1;
}

static int end(void **state)
{
    free(*state);
    return 0;
}

static double total(const ht_histogram *h)
{
    double sum = 0;
    for (int i = 0; i < HT_HISTOGRAM_BINS; i++) sum += h->bins[i];
    return sum;
}

static void histogram__keeps_every_number_when_it_widens(void **state)
{
    ht_histogram *h = *state;
    static float x[COUNT];
    for (int i = 0; i < 20; i++) {
        fill(x, COUNT, (uint64_t)i + 1, exp2f((float)i));
        assert_true(ht_histogram_add(h, x, COUNT));
        assert_true(total(h) == (double)COUNT * (i + 1) && h->count == (int64_t)COUNT * (i + 1));
        assert_true((double)h->high <= h->limit && -(double)h->low <= h->limit);
    }
    /* Half of them are negative, whatever was joined. */
    double negative = 0;
    for (int i = 0; i < HT_HISTOGRAM_BINS / 2; i++) negative += h->bins[i];
    assert_true(fabs(negative / total(h) - 0.5) < 0.01);
}

static void histogram__refuses_what_is_not_finite(void **state)
{
    ht_histogram *h = *state;
    const float x[] = {1, 2, INFINITY}, y[] = {NAN};
    assert_false(ht_histogram_add(h, x, 3));
    assert_false(ht_histogram_add(h, y, 1));
}

static void zeros__have_an_empty_range(void **state)
{
    ht_histogram *h = *state;
    const float zeros[100] = {0}, one = 0.75f;
    assert_true(ht_histogram_add(h, zeros, 100));
    for (int method = HT_RANGE_MINMAX; method <= HT_RANGE_MSE; method++) {
        ht_code_span span = ht_range_choose(h, (ht_range_method)method, false, 99);
        assert_true(span.low == 0 && span.high == 0);
    }
    assert_true(ht_histogram_add(h, &one, 1));
    assert_true(total(h) == 101 && h->bins[HT_HISTOGRAM_BINS / 2] == 100);
}

static void minmax__is_the_span_of_all_numbers(void **state)
{
    ht_histogram *h = *state;
    const float x[] = {-0.3f, 0.1f, 2.5f}, y[] = {-0.7f};
    assert_true(ht_histogram_add(h, x, 3) && ht_histogram_add(h, y, 1));
    ht_code_span span = ht_range_choose(h, HT_RANGE_MINMAX, false, 0);
    assert_true(span.low == -0.7f && span.high == 2.5f);
    span = ht_range_choose(h, HT_RANGE_MINMAX, true, 0);
    assert_true(span.low == -2.5f && span.high == 2.5f);
}

static void percentile__leaves_out_as_many_as_it_says(void **state)
{
    ht_histogram *h = *state;
    static float x[COUNT];
    fill(x, COUNT, 7, 1);
    assert_true(ht_histogram_add(h, x, COUNT));
    ht_code_span span = ht_range_choose(h, HT_RANGE_PERCENTILE, false, 98);
    int below = 0, above = 0;
    for (int i = 0; i < COUNT; i++) {
        below += x[i] < span.low;
        above += x[i] > span.high;
    }
    assert_true(abs(below - COUNT / 100) < COUNT / 400 && abs(above - COUNT / 100) < COUNT / 400);
}

static double squared_error(const float *x, int count, ht_code_span span)
{
    double step = (double)(span.high - span.low) / 255, sum = 0;
    for (int i = 0; i < count; i++) {
        double inside = fmin(fmax((double)x[i], (double)span.low), (double)span.high);
        double code = nearbyint(inside / step) * step;
        sum += ((double)x[i] - code) * ((double)x[i] - code);
    }
    return sum;
}

/* One number far away takes most codes from all others. */
static void outliers__are_cut_off_by_all_but_minmax(void **state)
{
    ht_histogram *h = *state;
    static float x[COUNT + 1];
    fill(x, COUNT, 3, 0.01f);
    x[COUNT] = 1;
    assert_true(ht_histogram_add(h, x, COUNT + 1));
    assert_true(ht_range_choose(h, HT_RANGE_MINMAX, true, 0).high == 1);
    assert_true(ht_range_choose(h, HT_RANGE_PERCENTILE, true, 99.9).high < 0.1f);
    assert_true(ht_range_choose(h, HT_RANGE_ENTROPY, true, 0).high < 0.5f);
}

static void mse__is_no_worse_than_minmax(void **state)
{
    ht_histogram *h = *state;
    static float x[COUNT];
    for (int seed = 1; seed < 6; seed++) {
        *h = (ht_histogram){0};
        fill(x, COUNT, (uint64_t)seed, 1);
        for (int i = 0; i < COUNT; i++) x[i] = x[i] * x[i] * x[i]; /* long tails */
        assert_true(ht_histogram_add(h, x, COUNT));
        double all = squared_error(x, COUNT, ht_range_choose(h, HT_RANGE_MINMAX, true, 0));
        double best = squared_error(x, COUNT, ht_range_choose(h, HT_RANGE_MSE, true, 0));
        if (!(best < all)) fail_msg("%g, not below %g", best, all);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(histogram__keeps_every_number_when_it_widens),
        CASE(histogram__refuses_what_is_not_finite),
        CASE(zeros__have_an_empty_range),
        CASE(minmax__is_the_span_of_all_numbers),
        CASE(percentile__leaves_out_as_many_as_it_says),
        CASE(outliers__are_cut_off_by_all_but_minmax),
        CASE(mse__is_no_worse_than_minmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
