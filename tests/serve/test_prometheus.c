/* Addresses, hosts and tokens; and Prometheus's text, by a reader of its grammar. */
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/serve.h"

/* ---- addresses ---- */

static void address__is_read_and_printed(void **state)
{
    static const struct {
        const char *text, *prints;
        bool loopback;
    } good[] = {
        {"127.0.0.1:8080", "127.0.0.1:8080", true},
        {"8080", "127.0.0.1:8080", true},
        {":0", "127.0.0.1:0", true},
        {"localhost:1", "127.0.0.1:1", true},
        {"127.9.9.9:65535", "127.9.9.9:65535", true},
        {"0.0.0.0:80", "0.0.0.0:80", false},
        {"10.0.0.1:80", "10.0.0.1:80", false},
        {"[::1]:80", "[::1]:80", true},
        {"[::]:80", "[::]:80", false},
        {"[fe80::1]:80", "[fe80::1]:80", false},
        {"[::ffff:127.0.0.1]:80", "[::ffff:127.0.0.1]:80", true},
        {"[::ffff:10.0.0.1]:80", "[::ffff:10.0.0.1]:80", false},
    };
    static const char *const bad[] = {
        "",
        ":",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1:65536",
        "::1:80",
        "[::1:80",
        "[]:80",
        "1.2.3:80",
        "host:80",
        "127.0.0.1:-1",
        "[::1]",
        "127.1:80",
        " 127.0.0.1:80",
        "127.0.0.1:80 ",
        "[::1%lo]:80",
        "127.0.0.1:000080",
        "[aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]:80"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ht_context ctx = {0};
        ht_http_address address;
        char text[HT_ADDRESS_TEXT];
        if (ht_http_address_read(&address, &ctx, good[i].text) != HT_OK) fail_msg("%s", ctx.message);
        ht_http_address_print(text, &address);
        assert_string_equal(text, good[i].prints);
        assert_int_equal(address.loopback, good[i].loopback);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ht_context ctx = {0};
        ht_http_address address;
        if (ht_http_address_read(&address, &ctx, bad[i]) != HT_EINVAL) fail_msg("'%s' was read", bad[i]);
        assert_non_null(strstr(ctx.message, bad[i]));
    }
}

static void host__is_this_machine_by_number_or_as_localhost(void **state)
{
    static const char *const local[] = {"localhost", "LOCALHOST:80", "127.0.0.1", "127.1.2.3:9", "[::1]", "[::1]:80"};
    static const char *const foreign[] = {"",
                                          ":80",
                                          "example.org",
                                          "127.0.0.1.example.org",
                                          "localhost.example.org",
                                          "10.0.0.1",
                                          "[::2]",
                                          "::1",
                                          "localhost:x",
                                          "localhost:80:80",
                                          "[::1",
                                          "127.0.0.1 x",
                                          "0x7f.1",
                                          "2130706433"};
    (void)state;
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
        if (!ht_http_host_is_local(local[i])) fail_msg("'%s' is foreign", local[i]);
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (ht_http_host_is_local(foreign[i])) fail_msg("'%s' is local", foreign[i]);
}

static void token__is_the_same_or_not(void **state)
{
    (void)state;
    assert_true(ht_http_token_is("abcdef", "abcdef"));
    assert_false(ht_http_token_is("abcdef", "abcdeg"));
    assert_false(ht_http_token_is("abcdef", "abcde"));
    assert_false(ht_http_token_is("abcdef", "abcdefabcdef"));
    assert_false(ht_http_token_is("abcdef", ""));
}

/* ---- the grammar of the text format: comments, samples, labels, numbers ---- */

enum { MOST_METRICS = 64 };

typedef struct grammar {
    const char *at;
    char names[MOST_METRICS][64], types[MOST_METRICS][16]; /* that have a TYPE, in their order */
    bool helped[MOST_METRICS], sampled[MOST_METRICS];
    int count;
} grammar;

static void read_name(grammar *g, char *out, size_t capacity)
{
    size_t length = 0;
    while (isalnum((unsigned char)*g->at) || *g->at == '_' || *g->at == ':') {
        assert_true(length + 1 < capacity && (length > 0 || !isdigit((unsigned char)*g->at)));
        out[length++] = *g->at++;
    }
    assert_true(length > 0);
    out[length] = '\0';
}

static void read_exactly(grammar *g, const char *text)
{
    if (strncmp(g->at, text, strlen(text)) != 0) fail_msg("'%s' should be here: %.60s", text, g->at);
    g->at += strlen(text);
}

static void read_comment(grammar *g)
{
    char name[64], type[16];
    bool help = strncmp(g->at, "# HELP ", 7) == 0;
    read_exactly(g, help ? "# HELP " : "# TYPE ");
    read_name(g, name, sizeof name);
    read_exactly(g, " ");
    if (help) {
        assert_true(g->count < MOST_METRICS);
        for (int i = 0; i < g->count; i++) assert_string_not_equal(g->names[i], name); /* each metric stands once */
        snprintf(g->names[g->count], sizeof g->names[0], "%s", name);
        g->helped[g->count++] = true;
        assert_true(*g->at != '\n');
        for (; *g->at && *g->at != '\n'; g->at++)
            if (*g->at == '\\') assert_true(*++g->at == '\\' || *g->at == 'n');
    } else {
        assert_true(g->count > 0);
        assert_string_equal(g->names[g->count - 1], name); /* behind its HELP, before its samples */
        assert_false(g->sampled[g->count - 1]);
        read_name(g, type, sizeof type);
        assert_true(strcmp(type, "gauge") == 0 || strcmp(type, "counter") == 0);
        snprintf(g->types[g->count - 1], sizeof g->types[0], "%s", type);
    }
    read_exactly(g, "\n");
}

static void read_labels(grammar *g)
{
    char name[64];
    for (read_exactly(g, "{"); *g->at != '}'; g->at += *g->at == ',') {
        read_name(g, name, sizeof name);
        assert_null(strchr(name, ':'));
        for (read_exactly(g, "=\""); *g->at != '"'; g->at++) {
            assert_true((unsigned char)*g->at >= ' ');
            if (*g->at == '\\') assert_non_null(strchr("\\\"n", *++g->at));
        }
        g->at++;
        assert_true(*g->at == ',' || *g->at == '}');
    }
    g->at++;
}

static double read_sample(grammar *g)
{
    char name[64], *end;
    read_name(g, name, sizeof name);
    assert_true(g->count > 0 && g->types[g->count - 1][0]);
    assert_string_equal(g->names[g->count - 1], name);
    size_t length = strlen(name);
    bool total = length > 6 && strcmp(name + length - 6, "_total") == 0;
    assert_int_equal(total, strcmp(g->types[g->count - 1], "counter") == 0);
    g->sampled[g->count - 1] = true;
    if (*g->at == '{') read_labels(g);
    read_exactly(g, " ");
    if (strncmp(g->at, "NaN\n", 4) == 0 || strncmp(g->at, "+Inf\n", 5) == 0 || strncmp(g->at, "-Inf\n", 5) == 0) {
        g->at = strchr(g->at, '\n') + 1;
        return NAN;
    }
    assert_true(isdigit((unsigned char)*g->at) || *g->at == '-');
    double value = strtod(g->at, &end);
    g->at = end;
    read_exactly(g, "\n");
    return value;
}

static int read_metrics(const char *text)
{
    grammar g = {.at = text};
    while (*g.at)
        if (*g.at == '#')
            read_comment(&g);
        else
            (void)read_sample(&g);
    for (int i = 0; i < g.count; i++) assert_true(g.helped[i] && g.types[i][0] && g.sampled[i]);
    return g.count;
}

/* ---- metrics ---- */

static ht_run_status a_status(void)
{
    return (ht_run_status){
        .state = HT_RUN_STATE_TRAINING,
        .model = "gpt2",
        .precision = "fp16",
        .step = {.step = 7,
                 .steps = 100,
                 .epoch = 0.5,
                 .loss = 2.5,
                 .lr = 3e-4,
                 .grad_norm = INFINITY,
                 .loss_scale = 65536,
                 .tokens_per_second = 1234.5,
                 .step_ms = 20,
                 .micro_ms = 15,
                 .update_ms = 5,
                 .plan_bytes = 1 << 20,
                 .process_peak_bytes = 2 << 20,
                 .skips = 2,
                 .exchange = {true, 1.5, 4096, 0.75}},
        .eval = {.step = 5, .count = 64, .loss = 2.25, .perplexity = 9.5, .accuracy = NAN},
        .seconds_left = 1.86,
        .record_age = 0.5,
    };
}

static void expect_line(const ht_text *text, const char *line)
{
    if (!strstr(text->data, line)) fail_msg("no '%s' in\n%s", line, text->data);
}

static void prometheus__has_what_a_run_recorded(void **state)
{
    static const char *const lines[] = {
        "\nhalftone_step{run=\"run\"} 7\n",
        "\nhalftone_steps{run=\"run\"} 100\n",
        "\nhalftone_loss{run=\"run\"} 2.5\n",
        "\nhalftone_step_seconds{run=\"run\"} 0.02\n",
        "\nhalftone_tokens_per_second{run=\"run\"} 1234.5\n",
        "\nhalftone_loss_scale{run=\"run\"} 65536\n",
        "\nhalftone_skipped_steps_total{run=\"run\"} 2\n",
        "\nhalftone_learning_rate{run=\"run\"} 0.0003\n",
        "\nhalftone_grad_norm{run=\"run\"} +Inf\n",
        "\nhalftone_eval_loss{run=\"run\"} 2.25\n",
        "\nhalftone_exchange_seconds{run=\"run\"} 0.0015\n",
        "\nhalftone_process_peak_bytes{run=\"run\"} 2097152\n",
        "\nhalftone_run_state{run=\"run\",state=\"training\"} 1\n",
        "\nhalftone_run_state{run=\"run\",state=\"died\"} 0\n",
        "# TYPE halftone_skipped_steps_total counter\n",
        "# TYPE halftone_loss gauge\n",
    };
    ht_run_status status = a_status();
    ht_text text = {0};
    (void)state;
    ht_prometheus_add(&text, &status, "run");
    assert_int_equal(read_metrics(text.data), 24);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) expect_line(&text, lines[i]);
    assert_null(strstr(text.data, "accuracy"));
    ht_text_free(&text);
}

static void prometheus__leaves_out_what_is_not_there_yet(void **state)
{
    ht_run_status status = {.state = HT_RUN_STATE_WAITING};
    ht_text text = {0};
    (void)state;
    ht_prometheus_add(&text, &status, "run");
    assert_int_equal(read_metrics(text.data), 3);
    expect_line(&text, "state=\"waiting\"} 1\n");
    ht_text_free(&text);
}

static void prometheus__escapes_labels(void **state)
{
    ht_run_status status = a_status();
    ht_text text = {0};
    (void)state;
    status.step.loss = NAN;
    snprintf(status.model, sizeof status.model, "\"}\\\n\x01 1\nevil");
    ht_prometheus_add(&text, &status, "a\\b\"c\nd");
    assert_int_equal(read_metrics(text.data), 24);
    expect_line(&text, "halftone_loss{run=\"a\\\\b\\\"c\\nd\"} NaN\n");
    ht_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(address__is_read_and_printed),
        cmocka_unit_test(host__is_this_machine_by_number_or_as_localhost),
        cmocka_unit_test(token__is_the_same_or_not),
        cmocka_unit_test(prometheus__has_what_a_run_recorded),
        cmocka_unit_test(prometheus__leaves_out_what_is_not_there_yet),
        cmocka_unit_test(prometheus__escapes_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
