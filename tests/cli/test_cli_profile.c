/* halftone profile: what it measures, what it leaves, and the trace; DeepSpeed's profiler keys in train. */
#include "run_case.h"

#include "base/json.h"
#include "rank_runs.h"

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

static const ht_json *item(const ht_json *list, size_t at)
{
    const ht_json *found = list->child;
    for (; found && at > 0; at--) found = found->next;
    assert_non_null(found);
    return found;
}

static double number(const ht_json *object, const char *key)
{
    double value;
    if (!ht_json_as_number(member(object, key), &value)) fail_msg("'%s' is no number", key);
    return value;
}

static const char *word(const ht_json *object, const char *key)
{
    const ht_json *found = member(object, key);
    assert_int_equal(found->kind, HT_JSON_STRING);
    return found->text;
}

/* ---- what it tells ---- */

static double sum_of(const ht_json *list, const char *key)
{
    double sum = 0;
    for (const ht_json *at = list->child; at; at = at->next) sum += number(at, key);
    return sum;
}

static void profile__tells_where_the_time_of_a_step_goes(void **state)
{
    data_case *c = *state;
    for (int job = 0; job < RUN_JOBS; job++) {
        run_case_write(c, &run_jobs[job]);
        expect(c, "\"$H\" profile job.json --steps 3 --json > p.json && \"$H\" explain job.json --json > e.json", 0,
               "");
        const ht_json *p = read_json(c, "p.json"), *phases = member(p, "phases"), *flops = member(p, "flops");
        const ht_json *instrs = member(p, "instructions");
        double step = number(member(p, "step_ms"), "mean"), all = sum_of(phases, "ms"), times = sum_of(instrs, "ms");
        /* All phases but communication, of which one rank has none, are the step. */
        assert_true(fabs(all - step) < 1e-6 * step);
        assert_true(times > 0 && times <= step);
        assert_true(number(p, "steps") == 3 && number(p, "samples_per_second") > 0);
        /* Buckets of sentences have steps of different sizes, and a plan is explained for one of them. */
        const ht_json *explained = read_json(c, "e.json");
        double products = number(flops, "forward") + number(flops, "backward") + number(flops, "update");
        if (strcmp(run_jobs[job].name, "seq2seq") != 0) assert_true(products == number(explained, "dot_flops"));
        const ht_json *modules = member(p, "modules");
        assert_string_equal(word(item(modules, 0), "name"), "");
        assert_true(number(item(modules, 0), "params") == number(p, "params"));
        assert_true(number(item(modules, 0), "forward_flops") == number(flops, "forward"));
        assert_true(number(item(modules, 0), "macs") * 2 == number(flops, "forward"));
    }
}

/* What is copied beside the computation is no part of its phases: these are the step, copies or none. */
static void profile__of_offload_has_its_copies_apart(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c,
           "\"$H\" profile job.json --steps 3 --set halftone.device=fake --set halftone.offload_activations=host "
           "--set halftone.offload_activation_bytes=1 --json > p.json",
           0, "");
    const ht_json *p = read_json(c, "p.json"), *phases = member(p, "phases"), *instrs = member(p, "instructions");
    double step = number(member(p, "step_ms"), "mean"), beside = 0, copies = 0;
    for (const ht_json *at = phases->child; at; at = at->next)
        if (strcmp(word(at, "name"), "copies") == 0 || strcmp(word(at, "name"), "communication") == 0)
            beside += number(at, "ms");
    for (const ht_json *at = instrs->child; at; at = at->next)
        if (strcmp(word(at, "phase"), "copies") == 0) copies += number(at, "ms");
    assert_true(copies > 0 && fabs(copies - beside) < 1e-6 * step);
    assert_true(fabs(sum_of(phases, "ms") - beside - step) < 1e-6 * step);
    expect(c,
           "\"$H\" profile job.json --steps 1 --set halftone.device=fake --set halftone.offload_activations=host "
           "--set halftone.offload_activation_bytes=1 | grep -c '^copies, beside them'",
           0, "1\n");
}

static void profile__is_tables_for_people_and_leaves_nothing(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c,
           "mkdir tmp; ls > before; TMPDIR=$PWD/tmp \"$H\" profile job.json --steps 2 --save > p.txt; ls > after; "
           "grep -v 'p.txt\\|after' after | diff before -",
           0, "");
    expect(c, "ls tmp | wc -l", 0, "0\n");
    expect(c, "cat p.txt", 0, "Phases of a step");
    expect(c, "grep -c '^save, once' p.txt", 0, "1\n");
    expect(c, "grep -c 'Counted whole, as PyTorch does' p.txt", 0, "1\n");
    expect(c, "grep -A4 '^Kinds of work' p.txt | grep -c arithmetic", 0, "1\n");
    /* Levels of the tree. */
    expect(c, "\"$H\" profile job.json --steps 1 --depth 0 | grep -A3 '^Modules' | tail -n 2", 0, "model");
    expect(c, "\"$H\" profile job.json --steps 1 --depth 0 | grep -c 'c_fc$\\|^ *c_fc '", 1, "0\n");
    expect(c, "\"$H\" profile job.json --steps 1 --depth -1 | grep -c '^ *c_fc '", 0, "1\n");
    expect(c,
           "\"$H\" profile job.json --steps 1 --page p.html > /dev/null && grep -c 'Instructions under the roofline' "
           "p.html",
           0, "");
}

static void profile__of_monitors_writes_nothing_elsewhere(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    data_case_text(c, "ds.json",
                   "{\"csv_monitor\": {\"enabled\": true, \"output_path\": \"csv\"},\n"
                   " \"tensorboard\": {\"enabled\": true, \"output_path\": \"board\"}}\n");
    expect(c, "\"$H\" profile job.json --deepspeed ds.json --steps 1 > /dev/null && ls -d csv board run; true", 0,
           "cannot access 'csv'");
    expect(c, "ls -d board run 2>/dev/null | wc -l", 0, "0\n");
}

static void profile__measures_against_the_ceilings_of_a_target(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c, "\"$H\" probe --describe > t.json && \"$H\" profile job.json --steps 1 --json > a.json", 0, "");
    expect(c,
           "sed 's/\"threads\":/\"flops\": {\"f32\": 1e6}, \"threads\":/' t.json > slow.json && "
           "\"$H\" profile job.json --steps 1 --target slow.json --json > b.json",
           0, "");
    assert_int_equal(member(member(read_json(c, "a.json"), "mfu"), "target")->kind, HT_JSON_NULL);
    expect(c, "\"$H\" profile job.json --steps 1", 0, "% of the assumed ceiling (the target has none of its own");
    expect(c, "\"$H\" profile job.json --steps 1 --target slow.json", 0, "% of the assumed ceiling, ");
    /* A machine of a million FLOP/s would take far longer. */
    assert_true(number(member(read_json(c, "b.json"), "mfu"), "target") > 1);
}

static void profile__refuses_what_it_cannot_do(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c, "\"$H\" profile missing.json", 2, "missing.json");
    expect(c, "\"$H\" profile job.json --steps 0", 2, "--steps");
    expect(c, "\"$H\" profile job.json --batch 1,2", 2, "--batch comes with --infer");
    expect(c, "\"$H\" profile job.json --infer --batch 1,,2", 2, "--batch");
    expect(c, "\"$H\" profile job.json --infer --batch 0", 2, "--batch");
    expect(c, "\"$H\" profile job.json --infer --ranks 2", 2, "one rank");
    expect(c, "\"$H\" profile job.json --steps 1 --trace no/where.json", 1, "no/where.json");
    expect(c, "\"$H\" profile job.json --steps 1 --page no/where.html", 1, "no/where.html");
    expect(c, "\"$H\" profile job.json --target missing.json", 2, "missing.json");
}

/* ---- inference ---- */

static void profile__of_inference_has_a_row_for_each_batch(void **state)
{
    data_case *c = *state;
    for (int job = 0; job < RUN_JOBS; job++) {
        run_case_write(c, &run_jobs[job]);
        expect(c, "\"$H\" profile job.json --steps 1 --infer --batch 1,3,8 --json > p.json", 0, "");
        const ht_json *p = read_json(c, "p.json"), *rows = member(p, "infer");
        assert_int_equal(rows->count, 3);
        assert_true(number(item(rows, 1), "batch") == 3);
        assert_true(number(item(rows, 1), "dot_flops") == 3 * number(item(rows, 0), "dot_flops"));
        assert_true(number(item(rows, 0), "p50_ms") > 0 &&
                    number(item(rows, 0), "p99_ms") >= number(item(rows, 0), "p50_ms"));
        /* Parameters, whatever the batch; batchnorm also reads its statistics. */
        assert_true(number(item(rows, 0), "weight_bytes") == number(item(rows, 2), "weight_bytes"));
        assert_true(number(item(rows, 0), "weight_bytes") >= 4 * number(p, "params"));
        /* No gradients, no moments, fewer activations. */
        assert_true(number(item(rows, 0), "plan_bytes") < number(p, "plan_bytes"));
    }
    expect(c, "\"$H\" profile job.json --steps 1 --infer --batch 2,4", 0, "Training against inference");
    /* Caches are the target's where it tells them, else those of the system's own description. */
    expect(
        c,
        "\"$H\" probe --describe | sed 's/\"threads\":/\"cache_bytes\": {\"L2\": 4e6, \"L3\": 8e6}, \"threads\":/' > "
        "t.json && \"$H\" profile job.json --steps 1 --infer --batch 1 --target t.json",
        0, "; L2 4.00 MB, which holds them; L3 8.00 MB, which holds them.");
}

/* ---- traces ---- */

/* Events of a track are disjoint, or one holds the other. */
static void check_track(const ht_json *events, double rank, double track)
{
    double end = -INFINITY;
    for (const ht_json *e = events->child; e; e = e->next) {
        if (strcmp(word(e, "ph"), "X") != 0 || number(e, "pid") != rank || number(e, "tid") != track) continue;
        assert_true(number(e, "dur") >= 0);
        /* Instructions of a queue come in their order; clocks are rounded to a thousandth of a microsecond. */
        assert_true(number(e, "ts") >= end - 1e-2);
        end = number(e, "ts") + number(e, "dur");
    }
}

/* On the track of phases; communication is there only where the computation waits for it. */
static int phase_number(const char *name)
{
    static const char *const names[] = {"data", "forward", "backward", "update", "records", "save", "communication"};
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++)
        if (strcmp(names[i], name) == 0) return i;
    fail_msg("a phase '%s'", name);
    return 0;
}

static void trace__has_the_steps_instructions_and_memory_of_every_rank(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c, "\"$H\" profile job.json --steps 2 --ranks 2 --save --trace t.json > /dev/null", 0, "");
    const ht_json *events = member(read_json(c, "t.json"), "traceEvents");
    size_t steps = 0, spans = 0, counters = 0, names = 0, exchanges = 0, phases = 0;
    for (const ht_json *e = events->child; e; e = e->next) {
        const char *kind = word(e, "ph");
        assert_in_range(number(e, "pid"), 0, 1);
        steps += strcmp(word(e, "name"), "step") == 0;
        spans += strcmp(kind, "X") == 0;
        if (strcmp(kind, "X") == 0 && number(e, "tid") == 1) phases |= 1u << phase_number(word(e, "name"));
        counters += strcmp(kind, "C") == 0 && number(member(e, "args"), "bytes") >= 0;
        names += strcmp(kind, "M") == 0;
        exchanges += ht_json_get(e, "cat") && strcmp(word(e, "cat"), "communication") == 0;
    }
    assert_int_equal(steps, 2 * 2);
    assert_true(spans > 100 && counters > 50 && names >= 2 * 3 && exchanges >= 2 * 2);
    assert_int_equal(phases & 0x3f, 0x3f);
    for (int rank = 0; rank < 2; rank++)
        for (int track = 0; track < 10; track++) check_track(events, rank, track);
}

/* The first one prints, and has the traces of all. */
static void profile__of_processes_is_one_profile_and_one_trace(void **state)
{
    data_case *c = *state;
    bool any = false;
    static const char *const flavours[] = {"openmpi", "mpich"};
    run_case_write(c, &run_jobs[0]);
    for (int i = 0; i < 2; i++) {
        char line[512];
        if (!rank_has_mpi(c, flavours[i])) continue;
        snprintf(line, sizeof line,
                 "mkdir -p tmp; TMPDIR=$PWD/tmp %s \"$H\" profile job.json --steps 2 --trace t.json > p.txt && "
                 "grep -c 'Phases of a step' p.txt && ls tmp | grep -c halftone-profile",
                 rank_mpirun(flavours[i], 2));
        expect(c, line, 1, "1\n0\n");
        expect(c, "grep -c ' 2 ranks: 2 steps' p.txt", 0, "1\n");
        const ht_json *events = member(read_json(c, "t.json"), "traceEvents");
        size_t steps[2] = {0};
        for (const ht_json *e = events->child; e; e = e->next)
            if (strcmp(word(e, "name"), "step") == 0) steps[(int)number(e, "pid")]++;
        assert_true(steps[0] == 2 && steps[1] == 2);
        snprintf(line, sizeof line, "%s \"$H\" profile job.json --steps 1 --infer", rank_mpirun(flavours[i], 2));
        expect(c, line, 2, "one rank");
        any = true;
    }
    if (!any) skip();
}

/* What tools/check-trace says of a trace of two ranks; skipped without Python. */
static const char *checked_trace(data_case *c)
{
    int status;
    run(c, "python3 -c 'import json'", &status);
    if (status != 0) skip();
    run_case_write(c, &run_jobs[0]);
    expect(c, "\"$H\" profile job.json --steps 2 --ranks 2 --trace t.json > /dev/null", 0, "");
    const char *said = run(c, HT_TEST_DIR "/../tools/check-trace t.json", &status);
    if (status != 0 || !strstr(said, ", 0 problems so far")) fail_msg("%s", said);
    return said;
}

static void trace__keeps_the_rules_of_its_format(void **state)
{
    data_case *c = *state;
    checked_trace(c);
    expect(c, "sed '0,/\"dur\"/s//\"took\"/' t.json > bad.json; " HT_TEST_DIR "/../tools/check-trace bad.json", 1,
           "an event X without dur");
}

static void trace__is_read_by_perfetto_as_it_was_written(void **state)
{
    if (!strstr(checked_trace(*state), "Perfetto reads ")) skip(); /* its trace processor is not here */
}

/* ---- docs/profiling.md ---- */

/* Its job reads all pages, character by character: a new character there makes more parameters than it tells. */
static void page__on_profiling_has_the_parameters_of_its_job(void **state)
{
    data_case *c = *state;
    expect(c,
           "cp -r " HT_TEST_DIR
           "/../docs . && awk '/^    cat docs/ {on = 1} on {print substr($0, 5)} /^    END/ {exit}' "
           "docs/profiling.md | sh && params=$(\"$H\" plan job.json --quick --json | grep -o '\"params\": [0-9]*' | "
           "head -n 1 | tr -dc 0-9); tr -d , < docs/profiling.md | grep -c \"each of $params parameters\"",
           0, "1\n");
}

/* ---- DeepSpeed's keys ---- */

static void train__profiles_the_step_that_flops_profiler_names(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    data_case_text(
        c, "ds.json",
        "{\"flops_profiler\": {\"enabled\": true, \"profile_step\": 2, \"module_depth\": 3, \"top_modules\": 2,\n"
        " \"detailed\": true}, \"memory_breakdown\": true, \"gradient_clipping\": 1.0}\n");
    expect(c, "\"$H\" train job.json --deepspeed ds.json --set train.output=a > out.txt 2>&1; cat out.txt", 0,
           "profile of the step after 2: ");
    expect(c, "grep -c '^memory of the plan' out.txt", 0, "1\n");
    expect(c, "grep -A12 '^memory of the plan' out.txt", 0, "gradients");
    /* Behind the line of step 3. */
    expect(c, "grep -n '^step 2 \\|^step 3 \\|^profile of\\|^Modules' out.txt | cut -d: -f2 | cut -c1-9 | tr '\\n' ','",
           0, "step 2 of,step 3 of,profile o,Modules,");
    expect(c, "grep -A2 '^depth 1:' out.txt", 0, "transformer");
    /* The same run as without it, and the table in a file. */
    expect(c, "\"$H\" train job.json --set engine.gradient_clipping=1.0 --set train.output=b > /dev/null 2>&1", 0, "");
    run_expect_same(c, "a", "b");
    expect(
        c,
        "\"$H\" train job.json --deepspeed ds.json --set train.output=d --set engine.flops_profiler.output_file=f.txt "
        "--set engine.flops_profiler.detailed=false > out.txt 2>&1; grep -c '^Modules' f.txt; cat f.txt",
        0, "Phases of a step");
    expect(c, "grep -c 'Modules$\\|^profile of' out.txt", 1, "0\n");
    expect(c, "grep -c 'profile_step' out.txt", 1, "0\n");
    /* A step that never comes is told before the first one. */
    expect(
        c,
        "\"$H\" train job.json --deepspeed ds.json --set train.output=e --set engine.flops_profiler.profile_step=5 > "
        "out.txt 2>&1; grep -n 'profile_step is 5, and there are 5 steps\\|^step 1 ' out.txt | cut -d: -f2- | cut "
        "-c1-6",
        0, "halfto\nstep 1\n");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(profile__tells_where_the_time_of_a_step_goes),
        CASE(profile__of_offload_has_its_copies_apart),
        CASE(profile__is_tables_for_people_and_leaves_nothing),
        CASE(profile__of_monitors_writes_nothing_elsewhere),
        CASE(profile__measures_against_the_ceilings_of_a_target),
        CASE(profile__refuses_what_it_cannot_do),
        CASE(profile__of_inference_has_a_row_for_each_batch),
        CASE(trace__has_the_steps_instructions_and_memory_of_every_rank),
        CASE(profile__of_processes_is_one_profile_and_one_trace),
        CASE(trace__keeps_the_rules_of_its_format),
        CASE(trace__is_read_by_perfetto_as_it_was_written),
        CASE(page__on_profiling_has_the_parameters_of_its_job),
        CASE(train__profiles_the_step_that_flops_profiler_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
