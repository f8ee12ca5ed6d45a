/* halftone probe from outside, and the shipped targets. */
#include "cli_case.h"

#include "graph/target.h"
#include "rank_runs.h"

static void probe__describes_at_once(void **state)
{
    data_case *c = *state;
    expect(
        c,
        "\"$H\" probe --describe > a.json && \"$H\" probe --describe --output b.json && cmp a.json b.json && echo same",
        0, "same\n");
    expect(c, "grep -c '\"flops\"\\|\"source\"' a.json", 1, "0\n");
    expect(c, "\"$H\" target", 2, "target");
}

static void probe__writes_what_it_measured(void **state)
{
    data_case *c = *state;
    expect(c,
           "mkdir -p d && \"$H\" probe --seconds 0.05 --disk d --output t.json --page p.html --svg r.svg --json > "
           "j.json && "
           "ls d | wc -l",
           0, "0\n");
    static const char *const keys[] = {"seconds",     "topology", "processor", "packages", "cores", "hardware_threads",
                                       "numa_nodes",  "caches",   "disk_note", "target",   "rows",  "group",
                                       "energy_note", "name",     "what",      "size",     "value", "unit",
                                       "gpu_note",    "threads",  "share",     "flops",    "bytes"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char line[96];
        snprintf(line, sizeof line, "grep -q '\"%s\":' j.json || echo missing", keys[i]);
        expect(c, line, 0, "");
        int status;
        if (strstr(run(c, line, &status), "missing")) fail_msg("--json has no \"%s\"", keys[i]);
    }
    expect(c, "grep -c '\"flops\": \"measured\"' t.json", 0, "1\n");
    expect(c, "grep -c '<circle class=\"mark' r.svg | awk '{print ($1 > 30)}'", 0, "1\n");
    expect(c, "grep -c '<h2>Roofline</h2>' p.html", 0, "1\n");
    expect(c, "echo 'segment a (%x f32[2]) -> (%x) {\n}' | \"$H\" opt --target t.json -", 0, "segment a");
}

static void probe__prints_tables(void **state)
{
    data_case *c = *state;
    expect(c, "\"$H\" probe --all --seconds 0.05 --no-disk > t.txt && grep -c 'Branching\\|Thread scaling' t.txt", 0,
           "2\n");
    expect(c, "grep 'matmul .*small' t.txt | wc -l", 0, "1\n");
    expect(c, "tr '\\n' ' ' < t.txt", 0, "Disk: no folder was given.");
}

static void probe__measures_messages_of_ranks(void **state)
{
    data_case *c = *state;
    expect(c,
           "\"$H\" probe --ranks 2 --seconds 0.05 --no-disk --output r.json > t.txt && grep -c '\"network\": .*node' "
           "r.json "
           "&& grep -c 'all_reduce' t.txt",
           0, "1\n2\n");
}

static void probe__measures_ranks_of_mpirun(void **state)
{
    data_case *c = *state;
    bool any = false;
    static const char *const flavours[] = {"openmpi", "mpich"};
    for (int i = 0; i < 2; i++) {
        char line[512];
        if (!rank_has_mpi(c, flavours[i])) continue;
        snprintf(line, sizeof line,
                 "%s \"$H\" probe --seconds 0.05 --no-disk > t.txt && grep -c 'Messages between ranks' t.txt",
                 rank_mpirun(flavours[i], 2));
        expect(c, line, 0, "1\n");
        any = true;
    }
    if (!any) skip();
}

static void probe__refuses_what_does_not_go_together(void **state)
{
    data_case *c = *state;
    expect(c, "\"$H\" probe --device fake", 2, "only cpu, cuda and cuda:N can be measured");
    expect(c, "\"$H\" probe --device cuda:99", 2, "probe: ");
    expect(c, "\"$H\" probe --describe --ranks 2", 2, "--describe measures nothing");
    expect(c, "\"$H\" probe --describe --all", 2, "--describe measures nothing");
    expect(c, "\"$H\" probe --disk nowhere --seconds 0.05", 2, "nowhere");
    expect(c, "\"$H\" probe --seconds -1", 2, "--seconds takes a number");
    expect(c, "\"$H\" probe --disk d --no-disk", 2, "--no-disk");
    expect(c, "\"$H\" probe --describe --output /nowhere/t.json", 1, "/nowhere/t.json");
}

static void write_job(data_case *c)
{
    data_case_text(c, "words.txt",
                   "one two three four five six seven eight nine ten one two three four five six seven\n");
    data_case_text(
        c, "job.json",
        "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16},\n"
        " \"data\": {\"format\": \"text\", \"train\": \"words.txt\", \"tokenizer\": \"char\", \"length\": 8},\n"
        " \"train\": {\"steps\": 1, \"batch\": 2, \"lr\": 1e-3}}\n");
}

static void shipped__targets_plan_by_name(void **state)
{
    data_case *c = *state;
    write_job(c);
    assert_true(ht_shipped_target_count >= 9);
    for (size_t i = 0; i < ht_shipped_target_count; i++) {
        char line[160];
        bool none = strstr(ht_shipped_targets[i].text, "\"kernels\": false") != NULL;
        snprintf(line, sizeof line,
                 "\"$H\" explain job.json --target %s > e.txt && grep -c 'There are no kernels for' e.txt",
                 ht_shipped_targets[i].name);
        expect(c, line, none ? 0 : 1, none ? "1\n" : "0\n");
    }
    expect(c, "\"$H\" explain job.json --target tpu --json | head -c 80", 0,
           "\"isa\": \"portable\", \"kernels\": false");
    expect(c, "\"$H\" explain job.json --target h300", 2,
           "there is no target file 'h300', and no shipped target of that name; there are 8xh200, a100");
    expect(c,
           "cp " HT_TEST_DIR
           "/../targets/edge.json h200; \"$H\" explain job.json --target h200 > e.txt; head -n 1 e.txt",
           0, "kernels for portable, 4 threads"); /* a file goes first */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probe__describes_at_once),
        cmocka_unit_test(probe__writes_what_it_measured),
        cmocka_unit_test(probe__prints_tables),
        cmocka_unit_test(probe__refuses_what_does_not_go_together),
        cmocka_unit_test(probe__measures_messages_of_ranks),
        cmocka_unit_test(probe__measures_ranks_of_mpirun),
        cmocka_unit_test(shipped__targets_plan_by_name),
    };
    return cmocka_run_group_tests(tests, data_case_begin, data_case_end);
}
