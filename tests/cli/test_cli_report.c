/* halftone report: pages of runs, whole and damaged, short and long, alone and compared. */
#include <math.h>

#include "run_case.h"

/* A number of the only run of r.json. */
static double value_of(const data_case *c, const char *key)
{
    char line[256];
    int status;
    snprintf(line, sizeof line, "sed -n 's/.*\"%s\": \\([^,}]*\\).*/\\1/p' r.json | head -n 1", key);
    const char *got = run(c, line, &status);
    if (status != 0 || !*got) fail_msg("no %s", key);
    return strncmp(got, "null", 4) == 0 ? NAN : atof(got);
}

static void expect_on_page(const data_case *c, const char *page, const char *text)
{
    char line[1024];
    snprintf(line, sizeof line, "grep -qF -- '%s' %s || { echo 'not on the page: %s'; exit 1; }", text, page, text);
    expect(c, line, 0, "");
}

static void expect_not_on_page(const data_case *c, const char *page, const char *text)
{
    char line[1024];
    snprintf(line, sizeof line, "! grep -F -- '%s' %s", text, page);
    expect(c, line, 0, "");
}

/* ---- what a run tells ---- */

static void report__shows_what_a_run_left(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    run_train(c, "a", "", "--deepspeed dynamic.json");
    expect(c, "\"$H\" report a/", 0, "The page: a/run.html\n");
    static const char *const parts[] = {">Loss<",
                                        ">Learning rate<",
                                        ">Throughput<",
                                        ">Norm of the gradients<",
                                        ">Loss scale<",
                                        ">Steps skipped so far<",
                                        ">Memory over a step<",
                                        ">What the plan holds<",
                                        "a has not been profiled. halftone profile JOB.json --json &gt; a/profile.json",
                                        "The resolved config",
                                        "<td>model.n_embd</td><td>16</td>",
                                        "<td>engine.fp16.enabled</td>"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) expect_on_page(c, "a/run.html", parts[i]);
    expect_not_on_page(c, "a/run.html", "engine.zero_optimization.stage<");
    expect_not_on_page(c, "a/run.html", "data-refresh=\"");
    /* The last line of steps and of evaluations. */
    expect(c, "\"$H\" report a --json > r.json && ls a/*.part 2>/dev/null | wc -l", 0, "0\n");
    expect(c,
           "for k in loss skips; do grep '\"kind\": \"step\"' a/metrics.jsonl | tail -n 1 | grep -o "
           "\"\\\"$k\\\": [^,}]*\" | tail -n 1 > want; grep -qFf want r.json || exit 1; done; echo same",
           0, "same\n");
    expect(
        c,
        "grep '\"kind\": \"eval\"' a/metrics.jsonl | tail -n 1 | grep -o '\"loss\": [^,]*' | sed 's/loss/eval_loss/' "
        "> want; grep -cFf want r.json",
        0, "1\n");
    assert_true(value_of(c, "step") == 5 && value_of(c, "steps") == 5 && value_of(c, "tokens_per_second") > 0);
}

static void report__has_layers_and_roofline_of_runs_with_a_profile(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    run_train(c, "a", "", "");
    expect(c, "\"$H\" profile job.json --steps 2 --json > a/profile.json && \"$H\" report a -o p.html", 0, "p.html");
    static const char *const parts[] = {">Time per layer<", ">Instructions under the roofline<", "transformer.h.0",
                                        "FLOPs per byte"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) expect_on_page(c, "p.html", parts[i]);
    expect_not_on_page(c, "p.html", "has not been profiled");
    /* So does the profiler of DeepSpeed's config; --force takes it away with the run. */
    data_case_text(c, "ds.json", "{\"flops_profiler\": {\"enabled\": true, \"profile_step\": 2}}");
    run_train(c, "b", "", "--deepspeed ds.json");
    expect(c, "\"$H\" report b a -o p.html", 0, "p.html");
    expect_on_page(c, "p.html", ">Time per layer: b<");
    expect_on_page(c, "p.html", ">Time per layer: a<");
    expect(c, "\"$H\" train job.json --set train.output=b --force > /dev/null && ls b | grep -c profile.json", 1,
           "0\n");
}

/* Stacked by heading, with the moment of the peak and what is alive then, which is what the plan says of it. */
static void report__has_the_peak_of_the_plan_and_its_tensors(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    run_train(c, "a", "", "");
    expect(c, "\"$H\" report a -o p.html", 0, "p.html");
    expect_on_page(c, "p.html", ">Memory over a step, by heading<");
    expect_on_page(c, "p.html", ">The largest tensors that are alive at the peak<");
    expect(
        c,
        "sentence() { grep -o 'The peak is at instruction [0-9]* of [a-z_]* ([^)]*)'; }; "
        "\"$H\" plan job.json --quick | sentence > plan.txt; sentence < p.html | diff plan.txt - && wc -l < plan.txt",
        0, "1\n");
    expect(
        c,
        "\"$H\" plan job.json --quick --json | tr -d ' \\n' | grep -o '\"alive\":.*' | grep -o '\"bytes\":[0-9]*' | "
        "head "
        "-n 5 > plan.txt; tr -d ' \\n' < a/memory.json | grep -o '\"alive\":.*' | grep -o '\"bytes\":[0-9]*' | head -n "
        "5 | diff plan.txt - && wc -l < plan.txt",
        0, "5\n");
    /* A run of an older version knows neither workspace nor peak. */
    expect(c,
           "sed -i -e 's/\"workspace_bytes\"/\"was\"/' -e 's/\"alive\"/\"lived\"/' -e 's/\"peak\"/\"top\"/' "
           "a/memory.json && "
           "\"$H\" report a -o p.html",
           0, "p.html");
    expect_on_page(c, "p.html", ">Memory over a step, by heading<");
    expect_not_on_page(c, "p.html", "alive at the peak");
}

static void report__lays_runs_over_each_other(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    run_train(c, "a", "", "");
    run_train(c, "b", "", "--set train.steps=9 --set train.lr=1e-3");
    expect(c, "mkdir -p x/a && cp a/* x/a 2>/dev/null; rm -f runs.html; \"$H\" report a b > said && cat said", 0,
           "The page: runs.html\n");
    expect(c, "awk '$1 == \"a\" || $1 == \"b\" {print $1, $4}' said", 0, "a 5\nb 9\n");
    expect_on_page(c, "runs.html", ">What differs in their configs<");
    expect(c, "grep -cE '>train.lr</td><td[^>]*>0.003</td><td[^>]*>0.001</td>' runs.html", 0, "2\n");
    expect(c, "sed -n '/What differs/,/<\\/table>/p' runs.html | grep -c 'model.type'", 1, "0\n");
    /* By step, each as far as it came. */
    expect(c, "grep -o '\"name\":\"[ab]\",\"class\":\"c[01]\",\"x\":\\[1,2,3,4,5[],]' runs.html | sort -u", 0,
           "\"name\":\"a\",\"class\":\"c0\",\"x\":[1,2,3,4,5]\n\"name\":\"b\",\"class\":\"c1\",\"x\":[1,2,3,4,5,\n");
    /* Of the same name: their paths. */
    expect(c, "\"$H\" report a x/a -o p.html", 0, "x/a ");
    expect_on_page(c, "p.html", "Their configs do not differ.");
}

/* ---- what is damaged, cut or missing ---- */

#define STEP(n, loss) "{\"kind\": \"step\", \"step\": " #n ", \"loss\": " #loss ", \"lr\": 0.1, \"skips\": 0}\n"
#define EVAL(n, loss) "{\"kind\": \"eval\", \"step\": " #n ", \"loss\": " #loss "}\n"

static void report__takes_the_last_of_steps_that_were_made_twice(void **state)
{
    data_case *c = *state;
    data_case_text(c, "r/metrics.jsonl",
                   STEP(1, 5) STEP(2, 4) EVAL(2, 4.5) STEP(3, 30) EVAL(3, 1.5) STEP(4, 40) STEP(3, 3) EVAL(3, 3.5));
    expect(c, "\"$H\" report r --json > r.json", 0, "r: config.resolved.json is missing\n");
    assert_true(value_of(c, "step") == 3 && value_of(c, "loss") == 3);
    assert_true(value_of(c, "best_eval_loss") == 3.5 && value_of(c, "best_eval_step") == 3);
    expect(c, "\"$H\" report r", 0, "The page: r/run.html");
    expect_on_page(c, "r/run.html", "\"x\":[1,2,3],\"y\":[5,4,3]");
}

static void report__leaves_out_lines_that_cannot_be_read_and_names_them(void **state)
{
    data_case *c = *state;
    data_case_text(c, "r/metrics.jsonl",
                   STEP(1, 5) "{\"kind\": \"step\", \"st\n" STEP(3, null) "[1]\n" STEP(
                       4, 2) "{\"kind\": \"later\", \"step\": 4}\n{\"kind\": \"step\", \"step\": 5, \"lo");
    expect(c, "\"$H\" report r 2> notes > said; cat notes", 0,
           "r/metrics.jsonl:2: the line is damaged, and left out; so are 1 more\n"
           "r/metrics.jsonl: the last line is not whole, and left out\n");
    expect_on_page(c, "r/run.html", "r/metrics.jsonl:2: the line is damaged");
    expect_on_page(c, "r/run.html", "\"x\":[1,3,4],\"y\":[5,null,2]");
    expect_not_on_page(c, "r/run.html", "nan");
}

static void report__says_what_is_missing(void **state)
{
    data_case *c = *state;
    data_case_text(c, "empty/metrics.jsonl", "");
    expect(c, "\"$H\" report empty", 0, "empty/metrics.jsonl: there is no step yet\n");
    expect_on_page(c, "empty/run.html", "there is no step yet");
    expect_on_page(c, "empty/run.html", "there is no memory.json");
    data_case_text(c, "bare/config.resolved.json", "{\"values\": {}}");
    expect(c, "\"$H\" report bare", 0, "bare: metrics.jsonl is missing\n");
    data_case_text(c, "torn/config.resolved.json", "{\"values\": {\n");
    expect(c, "\"$H\" report torn", 0, "torn/config.resolved.json:");
    data_case_text(c, "odd/config.resolved.json", "{\"values\": [1, {\"x\": 2}], \"xxh3\": 3}");
    data_case_text(c, "odd/memory.json", "{\"bytes\": 3, \"segments\": [{\"live_bytes\": [1, \"a\"]}, 5, null]}");
    data_case_text(c, "odd/profile.json",
                   "{\"modules\": [1, {\"depth\": -3}], \"instructions\": [{\"ms\": {}}, []], "
                   "\"ceilings\": {\"flops\": {\"f32\": 0}}}");
    data_case_text(c, "odd/metrics.jsonl", STEP(1, 1e308) STEP(2, -1e308) "{\"kind\": \"step\", \"step\": \"x\"}\n");
    expect(c, "\"$H\" report odd", 0, "odd/metrics.jsonl:3: the line is damaged");
    expect(c, "\"$H\" report odd 2>&1 | grep -c profile.json", 1, "0\n");
    static const char *const others[] = {"{\"loss\": 3}", "[]", "7", "{\"modules\": [], \"instructions\": {}}"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        data_case_text(c, "odd/profile.json", others[i]);
        expect(c, "\"$H\" report odd", 0, "odd/profile.json: it is not what halftone profile --json writes");
    }
    expect_on_page(c, "odd/run.html", "odd has not been profiled");
}

static void report__refuses_what_is_no_run_and_leaves_no_half_page(void **state)
{
    data_case *c = *state;
    data_case_text(c, "r/metrics.jsonl", STEP(1, 5));
    data_case_text(c, "other/x.txt", "x");
    expect(c, "\"$H\" report", 2, "which run?");
    expect(c, "\"$H\" report other", 2, "other holds no run: it has neither config.resolved.json nor metrics.jsonl");
    expect(c, "\"$H\" report r missing", 2, "missing holds no run");
    expect(c, "\"$H\" report r -o no/such/page.html", 1, "no/such/page.html");
    expect(c, "\"$H\" report $(yes r | head -n 25)", 2, "more than 24 runs");
    expect(c, "find . -name '*.html*' | wc -l", 0, "0\n");
}

/* ---- long runs ---- */

#define LONG_RUN                                                                                                       \
    "mkdir -p r0; awk 'BEGIN {srand(7); for (s = 1; s <= 100000; s++) {printf \"{\\\"kind\\\": \\\"step\\\", "         \
    "\\\"step\\\": %d, \\\"epoch\\\": %.6f, \\\"loss\\\": %s, \\\"lr\\\": %.12g, \\\"grad_norm\\\": %.12g, "           \
    "\\\"loss_scale\\\": %d, \\\"tokens_per_second\\\": %.9g, \\\"step_ms\\\": %.9g, \\\"process_peak_bytes\\\": %d, " \
    "\\\"skipped\\\": false, \\\"skips\\\": %d}\\n\", s, s / 1000, s == 54321 ? 77.125 : s == 70000 ? \"null\" : 2 + " \
    "rand(), 0.001 * rand(), rand(), 2 ^ (s / 5000), 1000 * rand(), 100 * rand(), 1e6 + s, s / 1000; "                 \
    "if (s % 1000 == 0) printf \"{\\\"kind\\\": \\\"eval\\\", \\\"step\\\": %d, \\\"loss\\\": %.9g, "                  \
    "\\\"accuracy\\\": "                                                                                               \
    "%.9g}\\n\", s, 2 + rand(), rand()}}' > r0/metrics.jsonl; "                                                        \
    "for i in 1 2 3 4 5 6 7; do mkdir -p r$i; ln -f r0/metrics.jsonl r$i; done"

static void report__of_long_runs_is_below_a_megabyte_and_keeps_extremes(void **state)
{
    data_case *c = *state;
    expect(c, LONG_RUN "; tail -n 2 r7/metrics.jsonl | cut -c 1-32", 0, "\"step\": 100000");
    expect(c, "\"$H\" report r0 -o one.html 2> /dev/null", 0, "one.html");
    expect(c, "\"$H\" report r0 r1 r2 r3 r4 r5 r6 r7 -o eight.html 2> /dev/null", 0, "eight.html");
    expect(c, "for p in one eight; do test $(stat -c %s $p.html) -lt 1000000 || exit 1; done; echo small", 0, "small");
    /* The peak of one step in a hundred thousand, and the gap of another. */
    expect(c, "grep -o '\"high\":\\[[^]]*77.125' one.html | wc -l", 0, "1\n");
    expect(c, "grep -o '\"high\":\\[[^]]*77.125' eight.html | wc -l", 0, "8\n");
    expect(c, "grep -o '\"name\":\"training\"[^]]*\\],\"y\":\\[[^]]*null' one.html | wc -l", 0, "1\n");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(report__shows_what_a_run_left),
        CASE(report__has_layers_and_roofline_of_runs_with_a_profile),
        CASE(report__has_the_peak_of_the_plan_and_its_tensors),
        CASE(report__lays_runs_over_each_other),
        CASE(report__takes_the_last_of_steps_that_were_made_twice),
        CASE(report__leaves_out_lines_that_cannot_be_read_and_names_them),
        CASE(report__says_what_is_missing),
        CASE(report__refuses_what_is_no_run_and_leaves_no_half_page),
        CASE(report__of_long_runs_is_below_a_megabyte_and_keeps_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
