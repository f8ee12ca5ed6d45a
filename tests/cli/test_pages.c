/* The pages that commands write, as readers see them: in Chromium, where there is one. */
#include "cli_case.h"

static void pages__have_no_overlapping_or_cut_text_in_four_settings(void **state)
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
    said = run(c,
               HT_TEST_DIR
               "/../tools/check-pages demo/report.html compare/compare.html explain.html profile.html probe.html",
               &status);
    if (status != 0) fail_msg("%.3000s", said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pages__have_no_overlapping_or_cut_text_in_four_settings, data_case_begin,
                                        data_case_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
