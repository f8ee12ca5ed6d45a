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
        /* What stands in a script is no markup until its end. */
        if (strncmp(at, "<script", 7) == 0) {
            at = strstr(at, "</script>");
            assert_non_null(at);
            continue;
        }
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
    ht_series series = {.name = evil, .count = 2, .x = x, .y = y};
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
    assert_null(strstr(page, "<script>alert"));
    assert_null(strstr(page, "\"name\":\"<"));
    assert_int_equal(count_of(page, "</script>"), 2); /* of the data and of the page */
    assert_non_null(strstr(page, "\"name\":\"\\u003cscript>alert('1')\\u003c/script>"));
    assert_non_null(strstr(page, "<title>a &lt;title&gt;</title>"));
    /* paragraph, table 3, chart: heading, legend 2, per canvas title, 2 labels, 2 strips of 2; histogram: heading, per
     * canvas title, label */
    assert_int_equal(count_of(page, escaped), 4 + 3 + 2 * (3 + 4) + 1 + 2 * 2);
    check_tags(page);
}

static void page__loads_nothing_and_runs_its_own_script_alone(void **state)
{
    ht_report *report = *state;
    const double x[] = {1, 2}, y[] = {1, 2};
    ht_series series = {.name = "a", .count = 2, .x = x, .y = y};
    ht_report_chart(report, &(ht_chart){.series = &series, .series_count = 1});
    const char *page = ht_report_page(report);
    static const char *const words[] = {"http:", "https", "src=", "href", "url(", "@import", "import("};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) assert_null(strstr(page, words[i]));
    assert_non_null(strstr(page, "content=\"default-src 'none'; "));
    assert_int_equal(count_of(page, "<script>"), 1);
    assert_int_equal(count_of(page, "<script type=\"application/json\">"), 1);
    assert_null(strstr(page, "data-refresh=\""));
    assert_non_null(strstr(page, "<svg class=\"wide\" viewBox"));
    assert_non_null(strstr(page, "<svg class=\"narrow\" viewBox"));
    assert_string_equal(page + strlen(page) - 8, "</html>\n");
    assert_ptr_equal(ht_report_page(report), page);
}

static void page__without_charts_has_no_script(void **state)
{
    ht_report *report = *state;
    ht_report_paragraph(report, "a");
    assert_null(strstr(ht_report_page(report), "<script"));
}

static void page__that_is_served_asks_for_its_next_version(void **state)
{
    ht_report *report = *state;
    ht_report_refresh(report, 2.5);
    const char *page = ht_report_page(report);
    assert_non_null(strstr(page, "data-refresh=\"2.5\""));
    assert_int_equal(count_of(page, "<script>"), 1);
    assert_non_null(strstr(page, "connect-src 'self'"));
    check_tags(page);
}

static void table__columns_of_numbers_stand_to_the_right_with_their_heads(void **state)
{
    ht_report *report = *state;
    const char *heads[] = {"a", "b", "c"}, *cells[] = {"word", "1.5", "<0.01%", "-2e3", "-", "2 ms"};
    ht_report_table(report, &(ht_page_table){.columns = 3, .rows = 2, .heads = heads, .cells = cells});
    const char *page = ht_report_page(report);
    assert_non_null(strstr(page, "<th>a</th><th class=\"n\">b</th><th>c</th>"));
    assert_non_null(strstr(page, "<tr><td>word</td><td class=\"n\">1.5</td><td>&lt;0.01%</td></tr>"));
    assert_non_null(strstr(page, "<tr><td>-2e3</td><td class=\"n\">-</td><td>2 ms</td></tr>"));
    assert_null(strstr(page, "class=\"fold\""));
    check_tags(page);
}

static void table__texts_fold_and_verdicts_have_a_mark_and_a_colour(void **state)
{
    ht_report *report = *state;
    const char *heads[] = {"claim", "here", "why"};
    const char *cells[] = {"true", "true", "a", "b", "false", "c", "d", "not distinguishable here", "e"};
    ht_report_table(report,
                    &(ht_page_table){.columns = 3, .rows = 3, .heads = heads, .cells = cells, .verdict_column = 1});
    const char *page = ht_report_page(report);
    assert_non_null(strstr(page, "<table class=\"fold\">"));
    assert_non_null(strstr(page, ".fold td{display:block"));
    assert_non_null(
        strstr(page, "<td data-head=\"claim\">true</td><td class=\"good\" data-head=\"here\">\u2713 true</td>"));
    assert_non_null(strstr(page, "<td class=\"bad\" data-head=\"here\">\u2717 false</td>"));
    assert_non_null(strstr(page, "<td class=\"open\" data-head=\"here\">? not distinguishable here</td>"));
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

static void axis__ticks_share_one_notation(void **state)
{
    (void)state;
    static const struct {
        double low, high;
        bool logarithmic;
        const char *text;
    } cases[] = {{0, 2, false, "0 0.5 1.0 1.5 2.0 "},     {0, 4e-4, false, "0 1e-4 2e-4 3e-4 4e-4 "},
                 {0, 2e6, false, "0 5e5 1e6 1.5e6 2e6 "}, {1e-4, 1, true, "1e-4 1e-3 1e-2 1e-1 1e0 "},
                 {0.01, 100, true, "0.01 0.1 1 10 100 "}, {0.5, 5, true, "0.5 1.0 2.0 5.0 "},
                 {0, 0, false, "0 0.2 0.4 0.6 0.8 1.0 "}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ht_axis axis = {.low = cases[i].low, .high = cases[i].high, .logarithmic = cases[i].logarithmic};
        ht_text text = {0};
        ht_axis_settle(&axis, 5);
        for (int k = 0; k < axis.tick_count; k++) {
            ht_axis_tick(&text, &axis, k);
            ht_text_add(&text, " ");
        }
        assert_string_equal(text.data, cases[i].text);
        ht_text_free(&text);
    }
}

/* The first curve of the first canvas, without its "d=". */
static const char *path_of(const char *page, int which)
{
    const char *at = page;
    for (int i = 0; i <= which; i++) {
        at = strstr(at, " d=\"M");
        assert_non_null(at);
        at += 4;
    }
    return at;
}

/* What is no number interrupts the line, and nothing that is no number gets onto the page. */
static void chart__lines_stop_at_what_is_no_number(void **state)
{
    ht_report *report = *state;
    const double x[] = {0, 1, 2, 3, 4}, y[] = {1, 2, NAN, 1, 2};
    ht_series series = {.name = "a", .count = 5, .x = x, .y = y};
    ht_report_chart(report, &(ht_chart){.series = &series, .series_count = 1});
    const char *page = ht_report_page(report), *path = path_of(page, 0);
    char line[256];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(path, "\""), path);
    assert_string_equal(line, "M50.20 364.00h0L234.88 10.00M604.23 364.00h0L788.90 10.00");
    assert_null(strstr(page, "nan"));
    assert_null(strstr(page, "inf"));
}

static void chart__a_logarithmic_axis_leaves_out_zero(void **state)
{
    ht_report *report = *state;
    const double x[] = {1, 10, 100}, y[] = {100, 0, 1};
    ht_series series = {.name = "a", .count = 3, .x = x, .y = y};
    ht_report_chart(report, &(ht_chart){.series = &series, .series_count = 1, .x_log = true, .y_log = true});
    const char *path = path_of(ht_report_page(report), 0);
    char line[256];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(path, "\""), path);
    assert_string_equal(line, "M50.20 10.00h0M788.90 364.00h0");
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
    ht_series series = {.name = "a", .count = MANY, .x = x, .y = y};
    ht_report_chart(report, &(ht_chart){.series = &series, .series_count = 1});
    const char *page = ht_report_page(report);
    assert_true(strlen(page) < 100000);
    /* 1 to 9 has ticks from 0 or 1 to 10 or 9: the peak is the one point of its height, in the band of each canvas. */
    const char *band = page;
    for (int i = 0; i < HT_CANVASES; i++) {
        double highest = 1e9;
        band = strstr(band + 1, "<path class=\"band c0\" d=\"");
        assert_non_null(band);
        for (const char *at = band + 25; *at != '"'; at++)
            if (*at == ' ') highest = fmin(highest, atof(at));
        assert_true(highest < 100);
    }
    free(x);
    free(y);
}

/* The coordinates of a path: highest and lowest pixel. */
static void heights_of(const char *path, double *top, double *bottom)
{
    *top = 1e9;
    *bottom = -1e9;
    for (const char *at = path; *at != '"'; at++)
        if (*at == ' ') *top = fmin(*top, atof(at)), *bottom = fmax(*bottom, atof(at));
}

static void chart__has_a_legend_and_enlarges_below_itself(void **state)
{
    ht_report *report = *state;
    const double x[] = {0, 10, 20, 30}, y[] = {8, 4, 2, 1};
    ht_series series[] = {{.name = "first", .count = 4, .x = x, .y = y},
                          {.name = "second", .count = 4, .x = x, .y = x}};
    ht_chart chart = {.series = series, .series_count = 2, .zoom_from = 20, .zoom_to = 30};
    ht_report_chart(report, &chart);
    chart.zoom_to = 20; /* none */
    ht_report_chart(report, &chart);
    chart.zoom_from = 50, chart.zoom_to = 60; /* nothing there */
    ht_report_chart(report, &chart);
    const char *page = ht_report_page(report);
    double top, bottom, zoom_top, zoom_bottom;
    heights_of(path_of(page, 0), &top, &bottom);
    heights_of(path_of(page, 2), &zoom_top, &zoom_bottom);
    assert_true(zoom_top > bottom); /* nothing is covered */
    assert_int_equal(count_of(page, "<g class=\"zoom\">"), HT_CANVASES);
    assert_int_equal(count_of(page, "></i>first</span>"), 3);
    assert_int_equal(count_of(page, "<path class=\"curve "), HT_CANVASES * (2 * 3 + 2));
    check_tags(page);
}

static void chart__draws_constants_zeros_and_single_points(void **state)
{
    ht_report *report = *state;
    const double x[] = {1, 2, 3}, constant[] = {5, 5, 5}, zero[] = {0, 0, 0};
    ht_series series = {.name = "a", .count = 3, .x = x, .y = constant};
    ht_report_chart(report, &(ht_chart){.series = &series, .series_count = 1, .y_log = true});
    series.y = zero;
    ht_report_chart(report, &(ht_chart){.series = &series, .series_count = 1});
    /* A logarithm of zero there is not, so this axis is linear. */
    ht_report_chart(report, &(ht_chart){.series = &series, .series_count = 1, .y_log = true});
    series.count = 1;
    ht_report_chart(report, &(ht_chart){.series = &series, .series_count = 1});
    const char *page = ht_report_page(report);
    double top, bottom, floor;
    heights_of(path_of(page, 0), &top, &bottom);
    assert_float_equal(top, bottom, 0);
    heights_of(path_of(page, 2), &top, &floor);
    assert_float_equal(top, floor, 0);
    assert_true(floor > bottom); /* at the bottom of its field, where the constant was in the middle */
    heights_of(path_of(page, 4), &top, &bottom);
    assert_float_equal(bottom, floor, 0);
    assert_non_null(strstr(path_of(page, 6), "h0\"")); /* a dot, by its round ends */
}

static void chart__curves_that_coincide_are_a_rope_of_their_colours(void **state)
{
    ht_report *report = *state;
    const double x[] = {1, 2, 3, 4}, y[] = {8, 4, 2, 1}, same[] = {8, 4.001, 2, 1}, other[] = {1, 2, 4, 8};
    const ht_series series[] = {{.name = "one", .count = 4, .x = x, .y = y},
                                {.name = "two", .count = 4, .x = x, .y = same},
                                {.name = "apart", .count = 4, .x = x, .y = other},
                                {.name = "three", .count = 4, .x = x, .y = y}};
    ht_report_chart(report, &(ht_chart){.series = series, .series_count = 4});
    const char *page = ht_report_page(report);
    assert_int_equal(count_of(page, "<path class=\"curve c1\" stroke-dasharray=\"7 14\" stroke-dashoffset=\"-7\""), 2);
    assert_int_equal(count_of(page, "<path class=\"curve c3\" stroke-dasharray=\"7 14\" stroke-dashoffset=\"-14\""), 2);
    assert_int_equal(count_of(page, "<path class=\"curve c0\" d="), 2);
    assert_int_equal(count_of(page, "<path class=\"curve c2\" d="), 2);
    assert_int_equal(count_of(page, "<small>(coincides with one)</small>"), 2);
}

static void chart__references_are_grey_and_dashes_are_asked_for(void **state)
{
    ht_report *report = *state;
    const double x[] = {1, 2}, y[] = {1, 2};
    const double other[] = {2, 1};
    const ht_series series[] = {{.name = "mixed", .count = 2, .x = x, .y = y},
                                {.name = "seed", .count = 2, .x = x, .y = y, .line = HT_LINE_REFERENCE},
                                {.name = "scale 1", .count = 2, .x = x, .y = other, .line = HT_LINE_DASHED},
                                {.name = "scale 2", .count = 2, .x = x, .y = other, .line = HT_LINE_DASHED}};
    ht_report_chart(report, &(ht_chart){.series = series, .series_count = 4});
    const char *page = ht_report_page(report);
    const char *reference = strstr(page, "<path class=\"curve reference\""),
               *mixed = strstr(page, "<path class=\"curve c0\"");
    assert_true(reference && mixed && reference < mixed); /* below the others */
    assert_int_equal(count_of(page, "<path class=\"curve c1 dashed\""), 2);
    /* One that lies on another dashed one takes turns with it. */
    assert_int_equal(count_of(page, "<path class=\"curve c2\" stroke-dasharray=\"7 7\""), 2);
    assert_int_equal(count_of(page, "<i class=\"c2 dashed\"></i>scale 2 <small>(coincides with scale 1)</small>"), 1);
    assert_int_equal(count_of(page, "coincides"), 1);
}

static void chart__one_bad_series_does_not_flatten_the_others(void **state)
{
    ht_report *report = *state;
    const double x[] = {1, 2, 3, 4}, good[] = {1.3, 1.2, 1.4, 1.3}, fine[] = {1.35, 1.25, 1.3, 1.2};
    const double bad[] = {110, 120, 119, 118};
    const ht_series series[] = {{.name = "good", .count = 4, .x = x, .y = good},
                                {.name = "fine", .count = 4, .x = x, .y = fine},
                                {.name = "bad", .count = 4, .x = x, .y = bad}};
    ht_report_chart(report, &(ht_chart){.series = series, .series_count = 3});
    const char *page = ht_report_page(report);
    double top, bottom, edge;
    heights_of(path_of(page, 0), &top, &bottom);
    assert_true(bottom - top > 100);
    heights_of(path_of(page, 2), &edge, &bottom);
    assert_true(edge <= top && edge == bottom); /* along the upper edge, not outside */
    assert_non_null(strstr(page, "bad <small>(leaves the chart: up to 120)</small>"));
}

/* What begins far away and comes near is no bad run, and neither are two levels. */
static void chart__ordinary_series_stay_whole(void **state)
{
    ht_report *report = *state;
    const double x[] = {1, 2, 3, 4}, falls[] = {90, 2, 1.3, 1.2}, late[] = {NAN, NAN, 1.4, 1.2};
    const double one[] = {1, 1, 1, 1}, thousand[] = {1024, 1024, 1024, 1024};
    const ht_series first[] = {{.name = "falls", .count = 4, .x = x, .y = falls},
                               {.name = "late", .count = 4, .x = x, .y = late}};
    const ht_series second[] = {{.name = "1", .count = 4, .x = x, .y = one},
                                {.name = "1024", .count = 4, .x = x, .y = thousand}};
    ht_report_chart(report, &(ht_chart){.series = first, .series_count = 2});
    ht_report_chart(report, &(ht_chart){.series = second, .series_count = 2, .y_log = true});
    assert_null(strstr(ht_report_page(report), "leaves the chart"));
}

static void chart__tells_its_values_where_a_pointer_rests(void **state)
{
    ht_report *report = *state;
    const double x[] = {0, 100}, y[] = {0.25, 0.5}, none[] = {NAN, 3};
    const ht_series series[] = {{.name = "a", .count = 2, .x = x, .y = y},
                                {.name = "b", .count = 2, .x = x, .y = none}};
    ht_report_chart(report, &(ht_chart){.x_label = "step", .series = series, .series_count = 2});
    const char *page = ht_report_page(report);
    assert_int_equal(count_of(page, "<title>step 0\na: 0.25</title>"), HT_CANVASES);
    assert_int_equal(count_of(page, "<title>step 100\na: 0.5\nb: 3</title>"), HT_CANVASES);
    assert_int_equal(count_of(page, "class=\"hover\""), 2 * HT_CANVASES);
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
    assert_int_equal(count_of(page, "class=\"bar c0\""), HT_CANVASES * (3 + 0 + 2)); /* bins 0, 1 and 3; the ends */
    assert_int_equal(count_of(page, "<title>0 to 1: 3</title>"), HT_CANVASES);
    assert_null(strstr(page, "nan"));
}

static void bars__are_stacks_of_what_is_above_zero(void **state)
{
    ht_report *report = *state;
    const double heights[] = {1, 0, NAN, 2, 4, -1, INFINITY, 1, 0, 0, -1, NAN};
    const char *const labels[] = {"a<", NULL, "c", NULL}, *const parts[] = {"below&", "above", "nowhere"};
    ht_bars bars = {
        .title = "t<", .count = 4, .labels = labels, .part_count = 3, .part_names = parts, .heights = heights};
    ht_report_bars(report, &bars);
    ht_report_bars(report, &(ht_bars){.part_names = parts});
    const char *page = ht_report_page(report);
    assert_int_equal(count_of(page, "<rect class=\"part c"),
                     HT_CANVASES * (2 + 2)); /* a's, the last one's; c has none */
    assert_int_equal(count_of(page, "<title>a&lt;, below&amp;: 1</title>"), HT_CANVASES);
    assert_int_equal(count_of(page, ">c</text>"), HT_CANVASES);
    assert_int_equal(count_of(page, "<i class=\"part c0\"></i>below&amp;</span>"), 1);
    assert_null(strstr(page, "nowhere"));
    assert_null(strstr(page, "nan"));
    check_tags(page);
}

/* Labels that would run into each other stand above their bars, which lie. */
static void bars__with_long_labels_lie(void **state)
{
    ht_report *report = *state;
    const char *const labels[] = {"fp16 with a dynamic loss scale", "fp16 with a loss scale of 1024", "b"};
    const char *const parts[] = {"a"};
    const double heights[] = {1, 2, 3};
    ht_report_bars(report,
                   &(ht_bars){.count = 3, .labels = labels, .part_count = 1, .part_names = parts, .heights = heights});
    const char *page = ht_report_page(report), *narrow = strstr(page, "class=\"narrow\"");
    assert_int_equal(count_of(page, "text-anchor=\"start\">fp16 with a dynamic loss scale</text>"), 1);
    assert_int_equal(count_of(narrow, "text-anchor=\"start\">fp16 with a dynamic loss scale</text>"), 1);
    assert_int_equal(count_of(page, "text-anchor=\"middle\">b</text>"), 1);
}

static void chart__marks_a_point_by_itself(void **state)
{
    ht_report *report = *state;
    const double one[] = {3}, two[] = {3, 4};
    const ht_series series[] = {{.name = "one", .count = 1, .x = one, .y = one},
                                {.name = "two", .count = 2, .x = two, .y = two}};
    ht_report_chart(report, &(ht_chart){.title = "t", .series = series, .series_count = 2});
    const char *page = ht_report_page(report);
    assert_int_equal(count_of(page, "<path class=\"curve c0 alone\""), HT_CANVASES);
    assert_int_equal(count_of(page, "<path class=\"curve c1\""), HT_CANVASES);
}

/* On a phone rows and columns of a wide table with few rows change places. */
static void table__with_few_rows_is_marked_as_such(void **state)
{
    ht_report *report = *state;
    const char *const heads[] = {"a", "b", "c", "d", "e", "f"}, *const cells[] = {"x", "1", "2", "3", "4", "5",
                                                                                  "x", "1", "2", "3", "4", "5",
                                                                                  "x", "1", "2", "3", "4", "5",
                                                                                  "x", "1", "2", "3", "4", "5"};
    ht_report_table(report, &(ht_page_table){.columns = 6, .rows = 3, .heads = heads, .cells = cells});
    ht_report_table(report, &(ht_page_table){.columns = 6, .rows = 4, .heads = heads, .cells = cells});
    ht_report_table(report, &(ht_page_table){.columns = 5, .rows = 3, .heads = heads, .cells = cells});
    assert_int_equal(count_of(ht_report_page(report), "<table class=\"few\">"), 1);
    assert_int_equal(count_of(ht_report_page(report), "<table>"), 2);
}

/* As many names as the catalogue of the probe has families: no two look alike. */
static void roofline__marks_of_forty_names_differ(void **state)
{
    enum { NAMES = 40 };
    static char names[NAMES][16];
    ht_report *report = *state;
    ht_roofline_point points[NAMES];
    const ht_roof roof = {"f32", 2e11, 3e10, false};
    for (int i = 0; i < NAMES; i++) {
        snprintf(names[i], sizeof names[i], "op%d", i);
        points[i] = (ht_roofline_point){names[i], NULL, 0.1 * (i + 1), 1e9 * (i + 1)};
    }
    ht_report_roofline(report, &(ht_roofline_chart){"Roofline", 1, NAMES, &roof, points});
    const char *page = ht_report_page(report);
    for (int i = 0; i < NAMES; i++) {
        char mark[64];
        static const char *const forms[] = {"", " hollow", " ringed", " cored"};
        snprintf(mark, sizeof mark, "<i class=\"dot c%d%s\"></i>", i % 10, forms[i / 10]);
        assert_int_equal(count_of(page, mark), 1);
    }
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

/* Every name stands within the picture, and what is not above zero is left out. */
static void roofline__has_roofs_points_and_a_legend_inside(void **state)
{
    (void)state;
    enum { NAMES = 13 };
    static char names[NAMES][16];
    ht_roofline_point points[NAMES + 1];
    const ht_roof roofs[] = {{"f32 <memory>", 2e11, 3e10, false}, {"f32 from L1", 2e11, 3e11, true}};
    for (int i = 0; i < NAMES; i++) {
        snprintf(names[i], sizeof names[i], "op%d", i);
        points[i] = (ht_roofline_point){names[i], "small", 0.1 * (i + 1), 1e9 * (i + 1)};
    }
    points[NAMES] = (ht_roofline_point){names[NAMES - 1], "large", 1, 0};
    const ht_roofline_chart roofline = {"Roofline", 2, NAMES + 1, roofs, points};
    ht_text text = {0};
    int width, height, marks = 0, curves = 0;
    ht_roofline_chart_svg(&text, &roofline);
    assert_false(text.failed);
    assert_int_equal(sscanf(strstr(text.data, "viewBox"), "viewBox=\"0 0 %d %d", &width, &height), 2);
    for (const char *at = text.data; (at = strstr(at, "<text x=\"")); at++) {
        double x, y;
        assert_int_equal(sscanf(at, "<text x=\"%lf\" y=\"%lf", &x, &y), 2);
        assert_true(x >= 0 && x < width && y > 0 && y < height);
    }
    for (const char *at = text.data; (at = strstr(at, "<circle")); at++) marks++;
    for (const char *at = text.data; (at = strstr(at, "<path class=\"curve")); at++) curves++;
    assert_int_equal(marks, 2 * NAMES); /* in the picture and in the legend */
    assert_int_equal(curves, 2);
    assert_non_null(strstr(text.data, "f32 &lt;memory&gt;"));
    ht_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roofline__has_roofs_points_and_a_legend_inside),
        cmocka_unit_test_setup_teardown(text__cannot_become_markup, start, stop),
        cmocka_unit_test_setup_teardown(page__loads_nothing_and_runs_its_own_script_alone, start, stop),
        cmocka_unit_test_setup_teardown(page__without_charts_has_no_script, start, stop),
        cmocka_unit_test_setup_teardown(page__that_is_served_asks_for_its_next_version, start, stop),
        cmocka_unit_test_setup_teardown(table__columns_of_numbers_stand_to_the_right_with_their_heads, start, stop),
        cmocka_unit_test_setup_teardown(table__texts_fold_and_verdicts_have_a_mark_and_a_colour, start, stop),
        cmocka_unit_test(axis__ticks_share_one_notation),
        cmocka_unit_test(axis__ticks_are_round),
        cmocka_unit_test(axis__anything_becomes_an_axis),
        cmocka_unit_test(axis__numbers_are_short),
        cmocka_unit_test_setup_teardown(chart__lines_stop_at_what_is_no_number, start, stop),
        cmocka_unit_test_setup_teardown(chart__a_logarithmic_axis_leaves_out_zero, start, stop),
        cmocka_unit_test_setup_teardown(chart__long_series_keep_their_extremes, start, stop),
        cmocka_unit_test_setup_teardown(chart__has_a_legend_and_enlarges_below_itself, start, stop),
        cmocka_unit_test_setup_teardown(chart__draws_constants_zeros_and_single_points, start, stop),
        cmocka_unit_test_setup_teardown(chart__curves_that_coincide_are_a_rope_of_their_colours, start, stop),
        cmocka_unit_test_setup_teardown(chart__references_are_grey_and_dashes_are_asked_for, start, stop),
        cmocka_unit_test_setup_teardown(chart__one_bad_series_does_not_flatten_the_others, start, stop),
        cmocka_unit_test_setup_teardown(chart__ordinary_series_stay_whole, start, stop),
        cmocka_unit_test_setup_teardown(chart__tells_its_values_where_a_pointer_rests, start, stop),
        cmocka_unit_test_setup_teardown(histogram__counts_every_number_once, start, stop),
        cmocka_unit_test_setup_teardown(bars__are_stacks_of_what_is_above_zero, start, stop),
        cmocka_unit_test_setup_teardown(bars__with_long_labels_lie, start, stop),
        cmocka_unit_test_setup_teardown(chart__marks_a_point_by_itself, start, stop),
        cmocka_unit_test_setup_teardown(table__with_few_rows_is_marked_as_such, start, stop),
        cmocka_unit_test_setup_teardown(roofline__marks_of_forty_names_differ, start, stop),
        cmocka_unit_test_setup_teardown(page__is_written_whole_or_not_at_all, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
