/* A sum of squares in parts of whole blocks: the bits of norm_finite, and its finite flag. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "op/op.h"
#include "session_fixture.h"

enum { ELEMS = 3 * HT_SUM_SQUARES_BLOCK + 1234, FIRST = HT_SUM_SQUARES_BLOCK, SECOND = 2 * HT_SUM_SQUARES_BLOCK };

/* The norm of x at once, and by three parts. */
static const char text[] = "segment s (%%x %s[%d]) -> (whole=%%n, whole_finite=%%f, parts=%%r, parts_finite=%%f2) {\n"
                           "  %%n, %%f = norm_finite f64[], bool[] (%%x)\n"
                           "  %%a = slice %s[%d] (%%x) start=[0]\n"
                           "  %%b = slice %s[%d] (%%x) start=[%d]\n"
                           "  %%c = slice %s[%d] (%%x) start=[%d]\n"
                           "  %%s0, %%f0 = sum_squares_finite f64[], bool[] (%%a)\n"
                           "  %%s1, %%f1 = sum_squares_finite f64[], bool[] (%%b, %%s0, %%f0)\n"
                           "  %%s2, %%f2 = sum_squares_finite f64[], bool[] (%%c, %%s1, %%f1)\n"
                           "  %%r = sqrt f64[] (%%s2)\n"
                           "}\n";

static session_fixture open_sums(const char *dtype, int threads)
{
    session_fixture f = {.ctx = context_create(threads, NULL)};
    char graph[2048];
    int rest = ELEMS - FIRST - SECOND;
    snprintf(graph, sizeof graph, text, dtype, ELEMS, dtype, FIRST, dtype, SECOND, FIRST, dtype, rest, FIRST + SECOND);
    must(&f, ht_graph_parse(&f.g, f.ctx, "sums", graph, strlen(graph)));
    must(&f, ht_plan_create(&f.plan, f.g, NULL));
    must(&f, ht_session_create(&f.s, f.plan, NULL));
    return f;
}

/* Both ways give the same; returns whether all is finite. */
static bool compare(session_fixture *f, const double *x)
{
    double whole, parts;
    uint8_t whole_finite, parts_finite;
    must(f, ht_session_write_f64(f->s, "x", x, ELEMS));
    must(f, ht_session_run(f->s, "s"));
    must(f, ht_session_read(f->s, "whole", &whole, sizeof whole));
    must(f, ht_session_read(f->s, "parts", &parts, sizeof parts));
    must(f, ht_session_read(f->s, "whole_finite", &whole_finite, 1));
    must(f, ht_session_read(f->s, "parts_finite", &parts_finite, 1));
    if (memcmp(&whole, &parts, sizeof whole) != 0 && !(isnan(whole) && isnan(parts)))
        fail_msg("the whole has %a, its parts %a", whole, parts);
    assert_int_equal(whole_finite, parts_finite);
    return whole_finite;
}

static void sum_squares__of_parts_has_the_bits_of_the_whole(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"f32", "bf16", "f16", "f64"};
    static double x[ELEMS];
    ht_stream rng = {.seed = 7};
    for (int i = 0; i < ELEMS; i++) x[i] = (ht_stream_uniform(&rng, (uint64_t)i) - 0.5) * (i % 7 ? 1 : 60);
    for (int threads = 1; threads <= 3; threads += 2)
        for (size_t k = 0; k < sizeof dtypes / sizeof dtypes[0]; k++) {
            session_fixture f = open_sums(dtypes[k], threads);
            assert_true(compare(&f, x));
            session_end(&f);
        }
}

/* In any part; and squares of f64 may overflow where every element is finite. */
static void sum_squares__finds_what_is_not_finite(void **state)
{
    (void)state;
    static const int places[] = {3, FIRST, FIRST + SECOND - 1, ELEMS - 1};
    static const double strange[] = {INFINITY, -INFINITY, NAN};
    static double x[ELEMS];
    for (int wide = 0; wide < 2; wide++) {
        session_fixture f = open_sums(wide ? "f64" : "f32", 2);
        for (int i = 0; i < 12; i++) {
            x[places[i / 3]] = strange[i % 3];
            assert_false(compare(&f, x));
            x[places[i / 3]] = wide ? 1e200 : 3e38;
            assert_true(compare(&f, x));
            x[places[i / 3]] = 0;
        }
        session_end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sum_squares__of_parts_has_the_bits_of_the_whole),
        cmocka_unit_test(sum_squares__finds_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
