/* The page: escaping, ticks, lines, insets, histograms, bars. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "context_fixture.h"
#include "report/page.h"

static int start(void **state)
{
    return context_setup(state) != 0 || ht_report_create((ht_report **)state, test_ctx, "a <title>") != HT_OK;
}

static int stop(void **state)
{
    ht_report_free(*state);
    return context_teardown(state);
}

static int count_of(const char *page, const char *what)
{
    int count = 0;
    for (const char *at = page; (at = strstr(at, what)); at += strlen(what)) count++;
    return count;
}

/* Tags open and close in order; what stands alone ends with a slash or is known to. */
static void check_tags(const char *page)
{
    char open[64][16];
    int depth = 0;
    for (const char *at = page; (at = strchr(at, '<')); at++) {
        const char *end = strchr(at, '>');
        assert_non_null(end);
        if (at[1] == '!' || end[-1] == '/' || strncmp(at, "<meta", 5) == 0) continue;
        bool closes = at[1] == '/';
        const char *name = at + 1 + closes;
        size_t length = strcspn(name, " >\n");
        assert_true(length < 16);
        if (!closes) {
            assert_true(depth < 64);
            snprintf(open[depth++], sizeof open[0], "%.*s", (int)length, name);
        } else {
            assert_true(depth > 0);
            depth--;
            if (strlen(open[depth]) != length || strncmp(open[depth], name, length) != 0)
                fail_msg("</%.*s> closes <%s>", (int)length, name, open[depth]);
        }
    }
    assert_int_equal(depth, 0);
}

static void text__cannot_become_markup(void **state)
{
    ht_report *report = *state;
    const char *evil = "<script>alert('1')</script>&amp;\"\x01";
    const char *escaped = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;amp;&quot; ";
    const double x[] = {1, 2}, y[] = {1, 2};
    ht_report_paragraph(report, evil);
    ht_report_table(report, &(ht_page_table){.title = evil, .columns = 1, .rows = 1, .heads = &evil, .cells = &evil});
    ht_series series = {evil, 2, x, y};
    ht_report_chart(report, &(ht_chart){.title = evil,
                                        .x_label = evil,
                                        .y_label = evil,
                                        .series = &series,
                                        .series_count = 1,
                                        .level = 1.5,
                                        .level_name = evil});
    ht_report_histogram(report, &(ht_histogram){.title = evil, .x_label = evil, .count = 2, .values = x});
    const char *page = ht_report_page(report);
    assert_non_null(page);
    assert_null(strstr(page, "<script"));
    assert_non_null(strstr(page, "<title>a &lt;title&gt;</title>"));
    /* paragraph, table 3, chart 2 titles, 2 labels, series, level, histogram 2 titles, label */
    assert_int_equal(count_of(page, escaped), 13);
    check_tags(page);
}

static void page__loads_and_runs_nothing(void **state)
{
    ht_report *report = *state;
    const double x[] = {1, 2}, y[] = {1, 2};
    ht_series series = {"a", 2, x, y};
    ht_report_chart(report, &(ht_chart){.series = &series, .series_count = 1});
    const char *page = ht_report_page(report);
    static const char *const words[] = {"http", "src=", "href", "url(", "@import", "script"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) assert_null(strstr(page, words[i]));
    assert_non_null(strstr(page, "<svg viewBox"));
    assert_string_equal(page + strlen(page) - 8, "</html>\n");
    assert_ptr_equal(ht_report_page(report), page);
}

static void table__numbers_stand_to_the_right(void **state)
{
    ht_report *report = *state;
    const char *heads[] = {"a", "b"}, *cells[] = {"word", "1.5", "-2e3", "1.5 ms"};
    ht_report_table(report, &(ht_page_table){.columns = 2, .rows = 2, .heads = heads, .cells = cells});
    const char *page = ht_report_page(report);
    assert_non_null(strstr(page, "<tr><td>word</td><td class=\"n\">1.5</td></tr>"));
    assert_non_null(strstr(page, "<tr><td class=\"n\">-2e3</td><td>1.5 ms</td></tr>"));
}

static void axis__ticks_are_round(void **state)
{
    (void)state;
    ht_axis linear = {.low = 0.3, .high = 9.7, .from = 0, .to = 100};
    ht_axis_settle(&linear, 5);
    assert_int_equal(linear.tick_count, 6);
    for (int i = 0; i < 6; i++) assert_float_equal(linear.ticks[i], 2 * i, 1e-12);
    assert_float_equal(ht_axis_place(&linear, 5), 50, 1e-9);
    ht_axis wide = {.low = 0.01, .high = 1000, .logarithmic = true, .from = 0, .to = 100};
    ht_axis_settle(&wide, 6);
    assert_int_equal(wide.tick_count, 6);
    for (int i = 0; i < 6; i++) assert_float_equal(log10(wide.ticks[i]), i - 2, 1e-9);
    ht_axis narrow = {.low = 0.5, .high = 6, .logarithmic = true, .from = 0, .to = 100};
    ht_axis_settle(&narrow, 6);
    assert_int_equal(narrow.tick_count, 4); /* 0.5 1 2 5 */
    assert_float_equal(narrow.ticks[3], 5, 1e-9);
}

static void axis__anything_becomes_an_axis(void **state)
{
    (void)state;
    const double ends[][2] = {{INFINITY, -INFINITY}, {0, 0},           {-3, -3},
                              {-1e308, 1e308},       {5e-324, 1e-323}, {1e300, 1.1e300},
                              {1, nextafter(1, 2)}};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        for (int logarithmic = 0; logarithmic < 2; logarithmic++) {
            ht_axis axis = {.low = ends[i][0], .high = ends[i][1], .logarithmic = logarithmic, .to = 100};
            if (logarithmic && !(axis.low > 0)) continue;
            ht_axis_settle(&axis, 5);
            assert_true(axis.low < axis.high);
            assert_true(axis.tick_count >= 0 && axis.tick_count <= HT_MOST_TICKS);
        }
}

static void axis__numbers_are_short(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},         {0.1 + 0.2, "0.3"},  {-2.5, "-2.5"},     {1500, "1500"},
                 {2000000, "2e6"}, {0.00025, "2.5e-4"}, {1e-300 / 10, "0"}, {123456, "123456"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ht_text text = {0};
        ht_axis_number(&text, cases[i].value);
        assert_string_equal(text.data, cases[i].text);
        ht_text_free(&text);
    }
}

static const char *path_of(const char *page, int which)
{
    const char *at = page;
    for (int i = 0; i <= which; i++) {
        at = strstr(at, "d=\"M");
        assert_non_null(at);
        at += 3;
    }
    return at;
}

/* What is no number interrupts the line, and nothing that is no number gets onto the page. */
static void chart__lines_stop_at_what_is_no_number(void **state)
{
    ht_report *report = *state;
    const double x[] = {0, 1, 2, 3, 4}, y[] = {1, 2, NAN, 1, 2};
    ht_series series = {"a", 5, x, y};
    ht_report_chart(report, &(ht_chart){.series = &series, .series_count = 1});
    const char *page = ht_report_page(report), *path = path_of(page, 0);
    char line[256];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(path, "\""), path);
    assert_string_equal(line, "M70.00 370.00L247.50 20.00M602.50 370.00L780.00 20.00");
    assert_null(strstr(page, "nan"));
    assert_null(strstr(page, "inf"));
}

static void chart__a_logarithmic_axis_leaves_out_zero(void **state)
{
    ht_report *report = *state;
    const double x[] = {1, 10, 100}, y[] = {100, 0, 1};
    ht_series series = {"a", 3, x, y};
    ht_report_chart(report, &(ht_chart){.series = &series, .series_count = 1, .x_log = true, .y_log = true});
    const char *path = path_of(ht_report_page(report), 0);
    char line[256];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(path, "\""), path);
    assert_string_equal(line, "M70.00 20.00M780.00 370.00");
}

static void chart__long_series_keep_their_extremes(void **state)
{
    ht_report *report = *state;
    enum { MANY = 100000 };
    double *x = calloc(MANY, sizeof *x), *y = calloc(MANY, sizeof *y);
    assert_non_null(x);
    assert_non_null(y);
    for (int i = 0; i < MANY; i++) x[i] = i, y[i] = 1;
    y[54321] = 9;
    ht_series series = {"a", MANY, x, y};
    ht_report_chart(report, &(ht_chart){.series = &series, .series_count = 1});
    const char *page = ht_report_page(report);
    assert_true(strlen(page) < 100000);
    /* 1 to 9 has ticks from 0 or 1 to 10 or 9: the peak is the one point of its height. */
    const char *path = path_of(page, 0);
    double lowest = 1e9;
    for (const char *at = path; *at != '"'; at++)
        if (*at == ' ') lowest = fmin(lowest, atof(at));
    assert_true(lowest < 100);
    free(x);
    free(y);
}

static void chart__has_a_legend_and_an_inset(void **state)
{
    ht_report *report = *state;
    const double x[] = {0, 10, 20, 30}, y[] = {8, 4, 2, 1};
    ht_series series[] = {{"first", 4, x, y}, {"second", 4, x, x}};
    ht_chart chart = {.series = series, .series_count = 2, .zoom_from = 20, .zoom_to = 30};
    ht_report_chart(report, &chart);
    chart.zoom_to = 20; /* none */
    ht_report_chart(report, &chart);
    chart.zoom_from = 50, chart.zoom_to = 60; /* nothing there */
    ht_report_chart(report, &chart);
    const char *page = ht_report_page(report);
    assert_int_equal(count_of(page, "class=\"zoom\""), 1);
    assert_int_equal(count_of(page, ">first</text>"), 3);
    assert_int_equal(count_of(page, "<path fill=\"none\""), 2 * 3 + 2);
    check_tags(page);
}

static void histogram__counts_every_number_once(void **state)
{
    ht_report *report = *state;
    const double values[] = {0, 0, 0, 1, 4, NAN, INFINITY};
    ht_report_histogram(report, &(ht_histogram){.count = 7, .values = values, .bins = 4});
    const double none[] = {NAN};
    ht_report_histogram(report, &(ht_histogram){.count = 1, .values = none});
    const double far[] = {-1e308, 1e308};
    ht_report_histogram(report, &(ht_histogram){.count = 2, .values = far, .bins = 1000000});
    const char *page = ht_report_page(report);
    assert_int_equal(count_of(page, "class=\"bar\""), 3 + 0 + 2); /* bins 0, 1 and 3; the ends */
    assert_null(strstr(page, "nan"));
}

static void bars__are_stacks_of_what_is_above_zero(void **state)
{
    ht_report *report = *state;
    const double heights[] = {1, 0, NAN, 2, 4, -1, INFINITY, 1};
    const char *const labels[] = {"a<", NULL, "c", NULL}, *const parts[] = {"below&", "above"};
    ht_bars bars = {
        .title = "t<", .count = 4, .labels = labels, .part_count = 2, .part_names = parts, .heights = heights};
    ht_report_bars(report, &bars);
    ht_report_bars(report, &(ht_bars){.part_names = parts});
    const char *page = ht_report_page(report);
    assert_int_equal(count_of(page, "class=\"part\""), 2 + 2 + 2); /* a's, the last one's, the legend's; c has none */
    assert_int_equal(count_of(page, ">c</text>"), 1);
    assert_int_equal(count_of(page, ">below&amp;</text>"), 1);
    assert_null(strstr(page, "nan"));
    check_tags(page);
}

static void page__is_written_whole_or_not_at_all(void **state)
{
    ht_report *report = *state;
    char path[64], *text;
    size_t length;
    snprintf(path, sizeof path, "/tmp/halftone-report-%d.html", (int)getpid());
    assert_int_equal(ht_report_write(report, path), HT_OK);
    assert_int_equal(ht_read_file(test_ctx, &text, &length, path), HT_OK);
    assert_string_equal(text, ht_report_page(report));
    free(text);
    unlink(path);
    assert_int_equal(ht_report_write(report, "/nowhere/at/all.html"), HT_EIO);
    assert_non_null(strstr(ht_context_message(test_ctx), "/nowhere/at/all.html"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(text__cannot_become_markup, start, stop),
        cmocka_unit_test_setup_teardown(page__loads_and_runs_nothing, start, stop),
        cmocka_unit_test_setup_teardown(table__numbers_stand_to_the_right, start, stop),
        cmocka_unit_test(axis__ticks_are_round),
        cmocka_unit_test(axis__anything_becomes_an_axis),
        cmocka_unit_test(axis__numbers_are_short),
        cmocka_unit_test_setup_teardown(chart__lines_stop_at_what_is_no_number, start, stop),
        cmocka_unit_test_setup_teardown(chart__a_logarithmic_axis_leaves_out_zero, start, stop),
        cmocka_unit_test_setup_teardown(chart__long_series_keep_their_extremes, start, stop),
        cmocka_unit_test_setup_teardown(chart__has_a_legend_and_an_inset, start, stop),
        cmocka_unit_test_setup_teardown(histogram__counts_every_number_once, start, stop),
        cmocka_unit_test_setup_teardown(bars__are_stacks_of_what_is_above_zero, start, stop),
        cmocka_unit_test_setup_teardown(page__is_written_whole_or_not_at_all, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
