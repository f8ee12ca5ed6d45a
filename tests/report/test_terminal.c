/* What report makes for the terminal: curves, columns, and the statistics behind them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "report/report.h"

/* ---- curves ---- */

static char *drawn(const ht_term_plot *curve)
{
    ht_text text = {0};
    ht_term_plot_add(&text, curve);
    assert_false(text.failed);
    return text.data;
}

static void term_plot__falls_from_the_upper_left_to_the_lower_right(void **state)
{
    (void)state;
    const double y[] = {8, 4, 2, 1};
    ht_term_plot curve = {.y = y, .count = 4, .columns = 4, .rows = 4};
    char *text = drawn(&curve);
    assert_string_equal(text, "       8 |*\n"
                              "         | *\n"
                              "       2 |  *\n"
                              "       1 |   *\n"
                              "          1  4\n");
    free(text);
}

static void term_plot__is_drawn_in_braille_where_it_can_be(void **state)
{
    (void)state;
    const double y[] = {1, 1, 1, 1};
    ht_term_plot curve = {.y = y, .count = 4, .columns = 2, .rows = 2, .unicode = true, .level = 2};
    char *text = drawn(&curve);
    /* The level in the top row of dots, at every third; the curve in the lowest. */
    assert_string_equal(text, "       2 │⠁⠈\n"
                              "       1 │⣀⣀\n"
                              "          14\n");
    free(text);
}

static void term_plot__leaves_out_what_is_no_loss(void **state)
{
    (void)state;
    const double y[] = {NAN, INFINITY, 0, -1};
    ht_term_plot curve = {.y = y, .count = 4, .columns = 4, .rows = 4};
    char *text = drawn(&curve);
    assert_string_equal(text, "(nothing to draw)\n");
    free(text);
    const double some[] = {4, NAN, 1, 1};
    curve.y = some;
    text = drawn(&curve);
    assert_string_equal(text, "       4 |*\n"
                              "         |\n"
                              "    1.59 |\n"
                              "       1 |  **\n"
                              "          1  4\n");
    free(text);
}

static void term_plot__fits_its_field_whatever_the_count(void **state)
{
    (void)state;
    double y[1000];
    for (int i = 0; i < 1000; i++) y[i] = 1 + fabs(sin(i)) * 1000;
    for (size_t count = 1; count <= 1000; count = count * 3 + 1) {
        ht_term_plot curve = {.y = y, .count = count, .columns = 30, .rows = 5};
        char *text = drawn(&curve);
        int lines = 0;
        for (char *at = text, *end; *at; at = end + 1, lines++) {
            end = strchr(at, '\n');
            assert_non_null(end);
            assert_true(end - at <= 10 + 30);
        }
        assert_int_equal(lines, 6);
        free(text);
    }
}

static void unicode__is_what_the_environment_promises(void **state)
{
    (void)state;
    unsetenv("LC_CTYPE");
    setenv("LC_ALL", "fr_FR.UTF-8", 1);
    assert_true(ht_terminal_unicode());
    setenv("LC_ALL", "C", 1);
    setenv("LANG", "fr_FR.UTF-8", 1);
    assert_false(ht_terminal_unicode());
    unsetenv("LC_ALL");
    assert_true(ht_terminal_unicode());
    unsetenv("LANG");
    assert_false(ht_terminal_unicode());
}

/* ---- statistics ---- */

static void stats__know_mean_deviation_and_prediction_interval(void **state)
{
    (void)state;
    const double three[] = {1, 2, 3};
    assert_float_equal(ht_sample_mean(three, 3), 2, 0);
    assert_float_equal(ht_sample_deviation(three, 3), 1, 1e-15);
    /* Student's t with two degrees of freedom is 4.303, and the mean itself is a third as uncertain as a number. */
    assert_float_equal(ht_prediction_interval(three, 3), 4.303 * sqrt(4. / 3), 1e-12);
    assert_float_equal(ht_prediction_interval(three, 2), 12.706 * sqrt(0.5) * sqrt(1.5), 1e-12);
    assert_true(isnan(ht_sample_mean(three, 0)) && isnan(ht_sample_deviation(three, 1)) &&
                isnan(ht_prediction_interval(three, 1)));
    double many[20];
    for (int i = 0; i < 20; i++) many[i] = i % 2;
    assert_float_equal(ht_prediction_interval(many, 20), 2.262 * ht_sample_deviation(many, 20) * sqrt(1.05), 1e-12);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Against sorting: random numbers, many of them equal, and in order. */
static void stats__select_what_sorting_finds(void **state)
{
    enum { MOST = 60 };
    uint32_t seed = 1;
    (void)state;
    for (int turn = 0; turn < 2000; turn++) {
        double values[MOST], sorted[MOST];
        size_t count = 1 + (size_t)turn % MOST, rank = (size_t)(turn / 7) % count;
        for (size_t i = 0; i < count; i++) {
            seed = seed * 1664525u + 1013904223u;
            values[i] = sorted[i] = turn % 3 == 0 ? seed >> 30 : turn % 3 == 1 ? (double)i : (double)seed;
        }
        qsort(sorted, count, sizeof *sorted, by_value);
        assert_true(ht_sample_select(values, count, rank) == sorted[rank]);
    }
}

static void stats__forces_no_verdict(void **state)
{
    (void)state;
    /* A deviation of 0.01, so an interval of about 0.05. */
    const double wide[] = {0.99, 1.00, 1.01}, narrow[] = {0.9999, 1.0000, 1.0001};
    assert_int_equal(ht_verdict_as_good(1.00, wide, 3, 0.1), HT_VERDICT_TRUE);
    assert_int_equal(ht_verdict_as_good(1.00, wide, 3, 0.01), HT_VERDICT_UNCLEAR);
    assert_int_equal(ht_verdict_as_good(0.90, wide, 3, 0.01), HT_VERDICT_TRUE);
    assert_int_equal(ht_verdict_as_good(1.04, wide, 3, 0.01), HT_VERDICT_UNCLEAR);
    assert_int_equal(ht_verdict_as_good(1.06, wide, 3, 0.01), HT_VERDICT_FALSE);
    /* Worse for certain, but by less than the margin: as good. */
    assert_int_equal(ht_verdict_as_good(1.005, narrow, 3, 0.01), HT_VERDICT_TRUE);
    assert_int_equal(ht_verdict_as_good(1.005, narrow, 3, 0.001), HT_VERDICT_FALSE);
    assert_int_equal(ht_verdict_as_good(NAN, wide, 3, 0.01), HT_VERDICT_FALSE);
    assert_int_equal(ht_verdict_as_good(1.00, wide, 1, 0.01), HT_VERDICT_UNCLEAR);
    assert_int_equal(ht_verdict_worse(1.06, wide, 3, 0.01), HT_VERDICT_TRUE);
    assert_int_equal(ht_verdict_worse(1.04, wide, 3, 0.01), HT_VERDICT_UNCLEAR);
    assert_int_equal(ht_verdict_worse(0.95, wide, 3, 0.01), HT_VERDICT_FALSE);
    assert_int_equal(ht_verdict_worse(1.005, narrow, 3, 0.01), HT_VERDICT_TRUE); /* by little, but for certain */
    assert_int_equal(ht_verdict_worse(NAN, wide, 3, 0.01), HT_VERDICT_TRUE);
    assert_int_equal(ht_verdict_worse(1.06, wide, 1, 0.01), HT_VERDICT_UNCLEAR);
    assert_int_equal(ht_verdict_alike(1.04, wide, 3), HT_VERDICT_TRUE);
    assert_int_equal(ht_verdict_alike(0.5, wide, 3), HT_VERDICT_TRUE);
    assert_int_equal(ht_verdict_alike(1.06, wide, 3), HT_VERDICT_FALSE);
    assert_int_equal(ht_verdict_alike(NAN, wide, 3), HT_VERDICT_FALSE);
    assert_int_equal(ht_verdict_alike(1, wide, 1), HT_VERDICT_UNCLEAR);
}

/* ---- columns ---- */

static void write_list(ht_json_writer *json, const char *key, const void *row)
{
    ht_json_begin_array(json, key);
    ht_json_put_int(json, NULL, *(const int *)row);
    ht_json_end_array(json);
}

static size_t example_columns(ht_column *columns, const char *name, double loss, const int *number)
{
    const ht_column all[] = {
        {"name", "run", .cell = ht_cell_text(name), .width = 6},
        {"loss", "the loss", "%.2f", .cell = ht_cell_number(loss)},
        {NULL, "time", "%.0f s", .cell = ht_cell_number(*number), .right = true},
        {"steps", "steps", .cell = ht_cell_int(*number)},
        {"list", .cell = ht_cell_written(write_list, number)},
        {"error", .cell = ht_cell_text(NULL)},
    };
    memcpy(columns, all, sizeof all);
    return sizeof all / sizeof all[0];
}

static void columns__one_list_gives_the_table_and_the_object(void **state)
{
    (void)state;
    const int numbers[] = {7, 1000};
    ht_column columns[HT_MOST_COLUMNS];
    ht_table table = {0};
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    ht_table_row(&table, columns, example_columns(columns, "a", 0.5, &numbers[0]));
    ht_table_row(&table, columns, example_columns(columns, "b", NAN, &numbers[1]));
    ht_table_print(&text, &table, 0);
    assert_string_equal(text.data, "run     the loss    time  steps\n"
                                   "a           0.50     7 s      7\n"
                                   "b              -  1000 s   1000\n");
    text.length = 0;
    ht_json_put_row(&json, columns, example_columns(columns, "b", NAN, &numbers[1]));
    assert_string_equal(text.data,
                        "{\"name\": \"b\", \"loss\": null, \"steps\": 1000, \"list\": [1000], \"error\": null}");
    ht_table_free(&table);
    ht_text_free(&text);
}

static void table__leaves_out_columns_by_rank_until_it_fits(void **state)
{
    (void)state;
    ht_table table = {.count = 0};
    ht_text text = {0};
    static const char *const heads[] = {"run", "bits", "loss", "seconds"};
    static const char *const cells[] = {"a", "32", "0.5", "7", "b", "16", "-", "<1%"};
    for (int i = 0; i < 4; i++) ht_table_head(&table, heads[i]);
    for (int i = 0; i < 8; i++) ht_table_cell(&table, "%s", cells[i]);
    table.rank[1] = 2, table.rank[3] = 1;
    ht_table_print(&text, &table, 24);
    assert_string_equal(text.data, "run  bits  loss  seconds\n"
                                   "a      32   0.5        7\n"
                                   "b      16     -      <1%\n");
    text.length = 0;
    ht_table_print(&text, &table, 23);
    assert_string_equal(text.data, "run  loss  seconds\n"
                                   "a     0.5        7\n"
                                   "b       -      <1%\n"
                                   "(no space for: bits)\n");
    text.length = 0;
    ht_table_print(&text, &table, 5); /* what has no rank stays */
    assert_string_equal(text.data, "run  loss\n"
                                   "a     0.5\n"
                                   "b       -\n"
                                   "(no space for: bits, seconds)\n");
    ht_table_free(&table);
    ht_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(term_plot__falls_from_the_upper_left_to_the_lower_right),
        cmocka_unit_test(term_plot__is_drawn_in_braille_where_it_can_be),
        cmocka_unit_test(term_plot__leaves_out_what_is_no_loss),
        cmocka_unit_test(term_plot__fits_its_field_whatever_the_count),
        cmocka_unit_test(unicode__is_what_the_environment_promises),
        cmocka_unit_test(stats__know_mean_deviation_and_prediction_interval),
        cmocka_unit_test(stats__select_what_sorting_finds),
        cmocka_unit_test(stats__forces_no_verdict),
        cmocka_unit_test(table__leaves_out_columns_by_rank_until_it_fits),
        cmocka_unit_test(columns__one_list_gives_the_table_and_the_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
