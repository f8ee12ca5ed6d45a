/* Long series in buckets: nothing that a reader could miss is lost. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "report/page.h"

enum { MANY = 5000 };

static uint64_t random_state;

static double uniform(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

typedef struct case_series {
    double x[MANY], y[MANY];
    ht_series series;
} case_series;

/* A walk with spikes, and pieces that are no numbers. */
static void make_series(case_series *c, uint64_t seed, double gaps)
{
    random_state = seed;
    double walk = 3;
    c->series = (ht_series){.name = "a", .count = 1 + (size_t)(uniform() * (MANY - 1)), .x = c->x, .y = c->y};
    for (size_t i = 0; i < c->series.count; i++) {
        walk += uniform() - 0.5;
        c->x[i] = (double)(i + 1);
        c->y[i] = uniform() < 0.001 ? 1000 * walk : walk;
        if (uniform() < gaps) c->y[i] = uniform() < 0.5 ? NAN : INFINITY;
    }
}

/* The median is a value of the series, near to where it is said to be: x counts the points from 1. */
static void check_bucket(const case_series *c, const ht_buckets *b, size_t at, size_t size)
{
    size_t i = (size_t)b->x[at] - 1, first = i > size ? i - size : 0, end = i + size;
    bool found = false;
    for (size_t k = first; k <= end && k < c->series.count; k++) found = found || c->y[k] == b->middle[at];
    assert_true(found);
    assert_true(b->low[at] <= b->middle[at] && b->middle[at] <= b->high[at]);
    if (at > 0) assert_true(b->x[at - 1] <= b->x[at]);
}

static void buckets__keep_the_least_and_the_greatest_of_random_series(void **state)
{
    static case_series c;
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        size_t most = 1 + (size_t)seed % 97, finite = 0;
        double low = INFINITY, high = -INFINITY, least = INFINITY, greatest = -INFINITY;
        ht_plot_field field = {.x.low = 0};
        ht_buckets b;
        make_series(&c, seed, seed % 3 == 0 ? 0.01 : 0);
        assert_true(ht_buckets_make(&b, &c.series, &field, -INFINITY, INFINITY, most));
        for (size_t i = 0; i < c.series.count; i++) {
            if (!isfinite(c.y[i])) continue;
            finite++;
            least = fmin(least, c.y[i]);
            greatest = fmax(greatest, c.y[i]);
        }
        for (size_t i = 0; i < b.count; i++) {
            if (isnan(b.middle[i])) continue;
            check_bucket(&c, &b, i, c.series.count / most + 1);
            low = fmin(low, b.low[i]);
            high = fmax(high, b.high[i]);
        }
        assert_true(low == least && high == greatest);
        assert_true(b.count <= 2 * most + 1); /* a gap at most behind each bucket, or as many points */
        if (c.series.count <= 2 * most && finite == c.series.count) assert_int_equal(b.count, c.series.count);
        ht_buckets_free(&b);
    }
}

static void buckets__show_a_gap_where_something_is_no_number(void **state)
{
    static case_series c;
    (void)state;
    make_series(&c, 5, 0);
    c.series.count = MANY;
    for (size_t i = 0; i < MANY; i++) c.x[i] = (double)(i + 1), c.y[i] = 1;
    c.y[2345] = NAN;
    ht_plot_field field = {.x.low = 0};
    ht_buckets b;
    assert_true(ht_buckets_make(&b, &c.series, &field, -INFINITY, INFINITY, 100));
    assert_int_equal(b.count, 101);
    size_t gaps = 0;
    for (size_t i = 0; i < b.count; i++) {
        if (!isnan(b.middle[i])) continue;
        gaps++;
        assert_true(b.x[i] >= 2346 && b.x[i] <= 2346 + MANY / 100);
    }
    assert_int_equal(gaps, 1);
    assert_false(b.some);
    ht_buckets_free(&b);
}

static void buckets__of_a_part_and_of_a_logarithmic_axis(void **state)
{
    static case_series c;
    (void)state;
    c.series = (ht_series){.count = MANY, .x = c.x, .y = c.y};
    for (size_t i = 0; i < MANY; i++) c.x[i] = (double)i, c.y[i] = i < 1000 ? 0 : (double)i;
    ht_plot_field field = {.y.logarithmic = true};
    ht_buckets b;
    assert_true(ht_buckets_make(&b, &c.series, &field, 2000, 2999, 10));
    assert_int_equal(b.count, 10);
    assert_true(b.low[0] == 2000 && b.high[9] == 2999);
    ht_buckets_free(&b);
    assert_true(ht_buckets_make(&b, &c.series, &field, -INFINITY, INFINITY, 10));
    for (size_t i = 0; i < b.count; i++) assert_true(isnan(b.low[i]) || b.low[i] >= 1000);
    ht_buckets_free(&b);
    c.series.count = 0;
    assert_true(ht_buckets_make(&b, &c.series, &field, -INFINITY, INFINITY, 10));
    assert_int_equal(b.count, 0);
    ht_buckets_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets__keep_the_least_and_the_greatest_of_random_series),
        cmocka_unit_test(buckets__show_a_gap_where_something_is_no_number),
        cmocka_unit_test(buckets__of_a_part_and_of_a_logarithmic_axis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
