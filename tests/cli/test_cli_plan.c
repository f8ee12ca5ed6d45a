/* halftone plan: its figures against those of explain, real plans of changed jobs, what fits, and bad input. */
#include "run_case.h"

#include "base/json.h"

#include <math.h>

/* A file of the case as JSON. */
static const ht_json *read_json(data_case *c, const char *name)
{
    char *text;
    size_t length;
    const ht_json *object;
    ht_status status = ht_read_file(&c->ctx, &text, &length, data_case_path(c, name));
    assert_int_equal(status, HT_OK);
    c->arena = c->arena ? c->arena : ht_arena_create();
    if (ht_json_parse(&c->ctx, c->arena, name, text, length, &object) != HT_OK)
        fail_msg("%s: %s", name, c->ctx.message);
    free(text);
    return object;
}

static const ht_json *member(const ht_json *object, const char *key)
{
    const ht_json *found = ht_json_get(object, key);
    if (!found) fail_msg("no key '%s'", key);
    return found;
}

static double number(const ht_json *object, const char *key)
{
    double value;
    if (!ht_json_as_number(member(object, key), &value)) fail_msg("'%s' is no number", key);
    return value;
}

/* The row of a list with this change; NULL: there is none. */
static const ht_json *row_of(const ht_json *list, const char *change, const char *to)
{
    for (const ht_json *at = list->child; at; at = at->next)
        if (strcmp(member(at, "change")->text, change) == 0 && strcmp(member(at, "to")->text, to) == 0) return at;
    return NULL;
}

static void plan__has_the_bytes_and_flops_of_explain(void **state)
{
    data_case *c = *state;
    for (int job = 0; job < RUN_JOBS; job++) {
        run_case_write(c, &run_jobs[job]);
        expect(c, "\"$H\" plan job.json --quick --json > p.json && \"$H\" explain job.json --json > e.json", 0, "");
        const ht_json *p = read_json(c, "p.json"), *e = read_json(c, "e.json"), *flops = member(p, "flops");
        double products = number(flops, "forward") + number(flops, "backward") + number(flops, "update");
        assert_true(products == number(e, "dot_flops") && number(flops, "other") == number(e, "other_flops"));
        assert_true(number(p, "plan_bytes") == number(e, "plan_bytes"));
        double sum = 0;
        for (const ht_json *space = member(p, "bytes")->child; space; space = space->next)
            for (const ht_json *heading = space->child; heading; heading = heading->next) {
                double bytes;
                assert_true(ht_json_as_number(heading, &bytes));
                sum += bytes;
            }
        assert_true(sum == number(p, "plan_bytes"));
        assert_true(number(p, "step_ms") > 0 && number(p, "measured_share") == 0);
        assert_true(member(p, "what_if")->child == NULL && member(member(p, "timeline"), "alive")->child != NULL);
    }
    /* Nothing was trained, nothing is left. */
    expect(c, "ls -d run 2>/dev/null | wc -l", 0, "0\n");
}

static void what_if__rows_are_plans_of_the_changed_job(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c, "\"$H\" plan job.json --json > p.json", 0, "");
    const ht_json *rows = member(read_json(c, "p.json"), "what_if");
    static const char *const changes[][3] = {{"precision", "bf16", "train.precision=bf16"},
                                             {"recompute", "all", "halftone.recompute.policy=all"}};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        char command[256];
        snprintf(command, sizeof command, "\"$H\" explain job.json --set %s --json > e.json", changes[i][2]);
        expect(c, command, 0, "");
        const ht_json *row = row_of(rows, changes[i][0], changes[i][1]);
        assert_non_null(row);
        assert_true(number(row, "plan_bytes") == number(read_json(c, "e.json"), "plan_bytes"));
        assert_true(number(row, "step_ms") > 0);
    }
    assert_true(number(member(row_of(rows, "recompute", "all"), "flops"), "recomputed") > 0);
    assert_non_null(row_of(rows, "ranks", "2, ZeRO 3"));
    assert_true(member(read_json(c, "p.json"), "budgets")->child != NULL);
}

static void most__that_fits_is_the_last_that_does(void **state)
{
    data_case *c = *state;
    char command[256];
    run_case_write(c, &run_jobs[0]);
    expect(c, "\"$H\" plan job.json --quick --json > p.json", 0, "");
    double limit = 1.5 * number(read_json(c, "p.json"), "main_bytes");
    snprintf(command, sizeof command, "\"$H\" plan job.json --budget %.0f --json > q.json", limit);
    expect(c, command, 0, "");
    const ht_json *most = member(read_json(c, "q.json"), "largest_batch");
    assert_true(number(most, "main_bytes") <= limit && number(most, "next_main_bytes") > limit);
    snprintf(command, sizeof command, "\"$H\" plan job.json --quick --set train.batch=%.0f --json > r.json",
             number(most, "value"));
    expect(c, command, 0, "");
    assert_true(number(read_json(c, "r.json"), "main_bytes") == number(most, "main_bytes"));
}

/* A budget of recomputation that larger batches cannot meet: they have no plan, and so no bytes to guess by. */
static void most__that_fits_is_found_beside_plans_that_are_refused(void **state)
{
    data_case *c = *state;
    char command[256];
    run_case_write(c, &run_jobs[0]);
    expect(c, "\"$H\" plan job.json --quick --json > p.json", 0, "");
    double budget = 1.5 * number(read_json(c, "p.json"), "main_bytes");
    snprintf(command, sizeof command,
             "\"$H\" plan job.json --budget 1GB --set halftone.recompute.budget=%.0f --json > q.json", budget);
    expect(c, command, 0, "");
    const ht_json *most = member(read_json(c, "q.json"), "largest_batch");
    assert_int_equal(member(most, "next_main_bytes")->kind, HT_JSON_NULL);
    for (int more = 0; more < 2; more++) {
        snprintf(command, sizeof command,
                 "\"$H\" plan job.json --quick --set halftone.recompute.budget=%.0f --set train.batch=%.0f > r.txt",
                 budget, number(most, "value") + 2 * more);
        expect(c, command, more ? 2 : 0, more ? "no plan takes at most" : "");
    }
}

static void budget__that_is_too_small_shows_the_timeline_and_fails(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c, "\"$H\" plan job.json --budget 100000 > p.txt", 1, "");
    expect(c, "cat p.txt", 0, "it does not fit");
    expect(c, "grep -c 'Memory in main over one step' p.txt", 0, "1\n");
    expect(c, "\"$H\" plan job.json --quick --budget soon", 2, "halftone.memory_limit");
}

static void compare__shows_targets_side_by_side(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c, "\"$H\" plan job.json --compare edge,h200,cluster,tpu,fpga --json > p.json", 0, "");
    const ht_json *rows = member(read_json(c, "p.json"), "targets");
    const ht_json *edge = row_of(rows, "target", "edge"), *h200 = row_of(rows, "target", "h200");
    assert_true(edge && h200 && number(edge, "step_ms") > number(h200, "step_ms"));
    assert_true(number(row_of(rows, "target", "cluster"), "ranks") == 256);
    assert_int_equal(member(row_of(rows, "target", "tpu"), "kernels")->boolean, false);
    /* State is the same everywhere; who knows how much workspace its kernels would take? */
    const ht_json *edge_bytes = member(member(edge, "bytes"), "main"),
                  *fpga_bytes = member(member(row_of(rows, "target", "fpga"), "bytes"), "main");
    static const char *const state_headings[] = {"parameters", "gradients", "optimizer", "slots"};
    for (size_t i = 0; i < sizeof state_headings / sizeof state_headings[0]; i++)
        assert_true(number(fpga_bytes, state_headings[i]) == number(edge_bytes, state_headings[i]));
    assert_int_equal(member(fpga_bytes, "workspace")->kind, HT_JSON_NULL);
    assert_int_equal(member(edge_bytes, "workspace")->kind, HT_JSON_INT);
    /* Its data sheet has no f32: the bound is that of what it has, not of a processor. */
    assert_true(number(row_of(rows, "target", "tpu"), "step_ms") < number(edge, "step_ms"));
    expect(c, "\"$H\" plan job.json --compare edge,h200", 0, "hours to the end");
    expect(c, "\"$H\" plan job.json --quick --target tpu", 0, "workspace is unknown");
    expect(c, "\"$H\" plan job.json --compare h200 | grep -c '>=.*>=.*>='", 0, "1\n"); /* of kWh, too */
}

static void compare__leaves_open_what_a_target_does_not_tell(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    data_case_text(c, "bare.json", "{\"arch\": \"x86_64\", \"isa\": \"avx2\", \"threads\": 2}\n");
    expect(c, "\"$H\" plan job.json --compare bare.json,asic | grep -c unknown", 0, "2\n");
    expect(c, "\"$H\" plan job.json --compare bare.json --json > p.json", 0, "");
    assert_int_equal(member(row_of(member(read_json(c, "p.json"), "targets"), "target", "bare.json"), "fits")->kind,
                     HT_JSON_NULL);
    expect(c, "\"$H\" plan job.json --quick --target asic", 0, "no figure \"bandwidth\"");
}

/* Ceilings that nobody gave are those of no machine: what they make is no bound. */
static void times__by_assumed_ceilings_are_no_bounds(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c, "\"$H\" plan job.json > p.txt; cat p.txt", 0, "ms by assumed ceilings (docs/target.md): ");
    expect(c, "grep -c 'A step takes about ' p.txt", 0, "1\n");
    expect(c, "grep -c '[<>]= \\|at least\\|(bound)' p.txt", 1, "0\n");
    expect(c, "grep -c 'halftone probe -o machine.json' p.txt", 0, "1\n");
    expect(c, "\"$H\" plan job.json --quick --json | grep -c '\"ceilings\": \"assumed\"'", 0, "1\n");
    /* Beside one that gives its own. */
    data_case_text(c, "bare.json", "{\"arch\": \"x86_64\", \"isa\": \"avx2\", \"threads\": 2}\n");
    expect(c, "\"$H\" plan job.json --compare bare.json,edge > p.txt; grep 'bare.json.*~ .*~ ' p.txt | grep -c '[<>]='",
           1, "0\n");
    expect(c, "grep -c '^edge.*>= .*<= ' p.txt", 0, "1\n");
    expect(c, "\"$H\" plan job.json --quick --target edge > p.txt; grep -c 'A step takes at least' p.txt", 0, "1\n");
    expect(c, "\"$H\" plan job.json --quick --target edge --json | grep -c '\"ceilings\": \"given\"'", 0, "1\n");
}

static void plan__for_a_gpu_that_is_not_here_says_so(void **state)
{
    data_case *c = *state;
    int status;
    run_case_write(c, &run_jobs[0]);
    const char *said = run(c, "\"$H\" plan job.json --quick --device cuda", &status);
    assert_int_equal(status, 0);
    if (strstr(said, "Planned for this machine (cuda")) skip(); /* there is one */
    assert_non_null(strstr(said, "Planned for a GPU that is not here, by the data sheet of the H200 (cuda, "));
    assert_non_null(strstr(said, "ms by the data sheet of the H200: "));
    expect(c, "\"$H\" plan job.json --quick --device cuda --json > p.json", 0, "");
    assert_string_equal(member(read_json(c, "p.json"), "target")->text, "elsewhere");
    assert_string_equal(member(read_json(c, "p.json"), "ceilings")->text, "data sheet");
}

static void times__come_from_measured_kernels(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c, "\"$H\" probe --seconds 0.5 --no-disk -o t.json > /dev/null", 0, "");
    expect(c, "\"$H\" plan job.json --target t.json --quick --json > p.json", 0, "");
    const ht_json *p = read_json(c, "p.json");
    assert_true(number(p, "measured_share") > 0.98 && number(p, "step_ms") > 0);
    assert_string_equal(member(p, "ceilings")->text, "given");
    expect(c, "\"$H\" plan job.json --target t.json --quick --page p.html | head -n 2", 0, "A step takes ");
    expect(c, "grep -c 'Memory over a step, by heading' p.html", 0, "");
}

/* Products of f32 as tf32 have a bound of their own; the row of the kernel tells. */
static void times__of_tf32_are_bounds_of_tf32(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c, "\"$H\" plan job.json --quick --target h200 --json > p.json", 0, "");
    expect(c, "\"$H\" plan job.json --quick --target h200 --set halftone.tf32=true --json > q.json", 0, "");
    double f32 = number(read_json(c, "p.json"), "mfu"), tf32 = number(read_json(c, "q.json"), "mfu");
    assert_true(tf32 > 0 && tf32 < f32);
}

static void page__has_the_most_that_fits(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c,
           "\"$H\" plan job.json --budget 1MB --page p.html > /dev/null; grep -c 'The largest batch that fits' p.html",
           0, "1\n");
}

static void plan__refuses_what_it_cannot_do(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c, "\"$H\" plan missing.json", 2, "missing.json");
    expect(c, "\"$H\" plan job.json --target nowhere.json", 2, "nowhere.json");
    expect(c, "\"$H\" plan job.json --compare edge,nothere", 2, "nothere");
    expect(c, "\"$H\" plan job.json --compare edge,,h200", 2, "--compare");
    expect(c, "\"$H\" plan job.json --ranks 0", 2, "--ranks");
    expect(c, "\"$H\" plan job.json --quick --page no/such/folder/p.html", 1, "no/such/folder");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plan__has_the_bytes_and_flops_of_explain, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(what_if__rows_are_plans_of_the_changed_job, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(compare__leaves_open_what_a_target_does_not_tell, data_case_begin,
                                        data_case_end),
        cmocka_unit_test_setup_teardown(times__by_assumed_ceilings_are_no_bounds, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(plan__for_a_gpu_that_is_not_here_says_so, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(times__of_tf32_are_bounds_of_tf32, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(page__has_the_most_that_fits, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(most__that_fits_is_the_last_that_does, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(most__that_fits_is_found_beside_plans_that_are_refused, data_case_begin,
                                        data_case_end),
        cmocka_unit_test_setup_teardown(budget__that_is_too_small_shows_the_timeline_and_fails, data_case_begin,
                                        data_case_end),
        cmocka_unit_test_setup_teardown(compare__shows_targets_side_by_side, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(times__come_from_measured_kernels, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(plan__refuses_what_it_cannot_do, data_case_begin, data_case_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
