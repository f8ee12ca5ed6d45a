/* The pages that commands write, as readers see them: in Chromium, where there is one. */
#include "cli_case.h"

static void pages__have_no_overlapping_or_cut_text_and_their_charts_answer(void **state)
{
    data_case *c = *state;
    int status;
    const char *said = run(c, HT_TEST_DIR "/../tools/check-pages none.html", &status);
    if (status == 77 || status == 126 || status == 127) skip(); /* no browser, no Python */
    /* The demo's page has every kind of picture; long names, a run that fails and few steps are hard cases. */
    expect(c, "\"$H\" demo --quick --steps 3 --output demo > /dev/null 2>&1", 0, "");
    expect(c,
           "\"$H\" compare demo/job.json --axis train.lr=0.001,0.002 --axis model.attention=dot,general --set "
           "train.steps=12 > /dev/null 2>&1",
           0, "");
    expect(c, "\"$H\" explain demo/job.json --set train.precision=bf16 --html explain.html", 0, "");
    expect(c, "\"$H\" profile demo/job.json --steps 3 --depth -1 --infer --page profile.html > /dev/null 2>&1", 0, "");
    expect(c, "\"$H\" probe --all --seconds 0.05 --no-disk --page probe.html > /dev/null", 0, "");
    expect(c, "\"$H\" plan demo/job.json --page plan.html > /dev/null 2>&1", 0, "");
    expect(c, "\"$H\" plan demo/job.json --compare edge,h200,tpu --page targets.html > /dev/null 2>&1", 0, "");
    /* Runs of the demo, one of them with a profile, and one of a hundred thousand steps. */
    expect(c, "\"$H\" profile demo/job.json --steps 2 --json > demo/profile.json 2> /dev/null", 0, "");
    expect(c, "\"$H\" report demo -o run.html && \"$H\" report demo demo/bf16 demo/fp32-seed-2 -o runs.html", 0,
           "runs.html");
    expect(c,
           "mkdir long; awk 'BEGIN {srand(3); for (s = 1; s <= 100000; s++) printf \"{\\\"kind\\\": \\\"step\\\", "
           "\\\"step\\\": %d, \\\"loss\\\": %.9g, \\\"lr\\\": %.9g, \\\"loss_scale\\\": %d, \\\"skips\\\": 0}\\n\", s, "
           "2 + rand() + (s % 9999 == 0 ? 20 : 0), 1e-9 * s, 2 ^ (s / 5000)}' > long/metrics.jsonl; "
           "\"$H\" report long -o long.html",
           0, "long.html");
    expect(c, "\"$H\" ladder demo/job.json --set halftone.memory_limit=1GB > /dev/null 2>&1", 0, "");
    data_case_text(
        c, "job.json",
        "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 4, \"n_embd\": 64}, \"data\": {\"format\": "
        "\"text\", \"train\": \"text\", \"tokenizer\": \"byte\", \"length\": 32, \"validation_share\": 0.1}, "
        "\"train\": {\"steps\": 10, \"batch\": 8, \"eval_batches\": 2, \"output\": \"base\"}}");
    data_case_text(c, "search.json",
                   "{\"steps\": [{\"prune\": {\"method\": \"rows\", \"ratio\": {\"try\": [0.1, 0.5]}, \"layers\": "
                   "\"\\\\.mlp\\\\.\"}}, {\"shrink\": {}}]}");
    expect(c, "seq 9000 > text; \"$H\" train job.json --set train.precision=fp16 --numerics=5 > said 2>&1 || cat said",
           0, "");
    expect(c,
           "sed 's/{\"try\": .*5]}/0.3/' search.json > shrink.json; \"$H\" compress base shrink.json --output small "
           "--page "
           "compress.html > said 2>&1 || { cat said; exit 1; }",
           0, "");
    expect(
        c,
        "\"$H\" compress base search.json --output best --search drop=90%,size=99% --page search.html > said 2>&1 || { "
        "cat said; exit 1; }",
        0, "");
    said = run(c,
               HT_TEST_DIR "/../tools/check-pages demo/report.html compare/compare.html explain.html profile.html "
                           "probe.html plan.html targets.html run.html runs.html long.html ladder/ladder.html "
                           "base/numerics.html compress.html search.html",
               &status);
    if (status != 0) fail_msg("%.3000s", said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pages__have_no_overlapping_or_cut_text_and_their_charts_answer, data_case_begin,
                                        data_case_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
