/* Whole runs with recomputation: the same losses, snapshots and evaluations as without it, in less memory; dropout,
 * batchnorm, micro-batches and skipped steps included. */
#include "run_case.h"

static const char *const policies[] = {"cheap", "selective", "all", "sqrt"};
enum { POLICIES = sizeof policies / sizeof policies[0] };

#define CUT "--set train.batch=9 --set train.accumulate=3 "

/* plan_bytes of explain's JSON, in a shell. */
#define PLAN_BYTES "sed -n 's/.*\"plan_bytes\": \\([0-9]*\\).*/\\1/p'"

static void recompute__changes_no_bit_of_a_run(void **state)
{
    data_case *c = *state;
    char options[256];
    for (int j = 0; j < RUN_JOBS; j++) {
        run_case_write(c, &run_jobs[j]);
        for (int m = run_is_long() ? 0 : j; m < (run_is_long() ? RUN_MODES : j + 1); m++) {
            snprintf(options, sizeof options, CUT "%s", run_modes[m]);
            run_train(c, "kept", "", options);
            for (int p = 0; p < POLICIES; p++) {
                snprintf(options, sizeof options, CUT "%s --set halftone.recompute.policy=%s", run_modes[m],
                         policies[p]);
                run_train(c, "again", "", options);
                run_expect_same(c, "kept", "again");
            }
        }
    }
}

static void recompute__changes_no_bit_on_a_device_with_its_own_memory(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    run_train(c, "kept", "", "--set train.precision=bf16");
    run_train(c, "again", "HALFTONE_FAKE_SEED=7",
              "--set train.precision=bf16 --device fake --set halftone.recompute.policy=all");
    run_expect_same(c, "kept", "again");
}

#define DISK  "--set halftone.offload_activations=disk --set halftone.disk_folder=. "
#define SMALL "--set halftone.offload_activation_bytes=64 "

/* What is kept goes to a disk beside the processor, or to the host or a disk beside a device, with copies that take their time. */
static void activations__elsewhere_change_no_bit_of_a_run(void **state)
{
    static const char *const ways[][2] = {
        {"HALFTONE_DISK_SEED=3", DISK},
        {"HALFTONE_DISK_SEED=4", DISK "--set halftone.recompute.policy=all "},
        {"HALFTONE_FAKE_SEED=5", "--device fake --set halftone.offload_activations=host "},
        {"HALFTONE_FAKE_SEED=6 HALFTONE_DISK_SEED=7", "--device fake --set halftone.recompute.policy=cheap " DISK},
    };
    data_case *c = *state;
    char options[512];
    for (int j = 0; j < RUN_JOBS; j++) {
        run_case_write(c, &run_jobs[j]);
        for (int m = run_is_long() ? 0 : j; m < (run_is_long() ? RUN_MODES : j + 1); m++) {
            snprintf(options, sizeof options, CUT "%s", run_modes[m]);
            run_train(c, "kept", "", options);
            for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
                snprintf(options, sizeof options, CUT SMALL "%s %s", run_modes[m], ways[i][1]);
                run_train(c, "again", ways[i][0], options);
                run_expect_same(c, "kept", "again");
            }
        }
    }
}

/* Chunks of the head beside everything else that moves or repeats what is kept: the bits of the chunks alone. */
static void head__in_chunks_has_the_same_bits_in_every_plan(void **state)
{
    static const char *const ways[][2] = {
        {"", "--set halftone.recompute.policy=all "},
        {"HALFTONE_FAKE_SEED=8", "--device fake --set halftone.recompute.policy=cheap "},
        {"HALFTONE_FAKE_SEED=9", "--device fake --set halftone.offload_activations=host "},
        {"OMP_NUM_THREADS=1", ""},
    };
    data_case *c = *state;
    char options[512];
    for (int j = 0; j < RUN_JOBS; j++) {
        run_case_write(c, &run_jobs[j]);
        for (int m = run_is_long() ? 0 : j; m < (run_is_long() ? RUN_MODES : j + 1); m++) {
            snprintf(options, sizeof options, CUT "--set halftone.head_chunks=3 %s", run_modes[m]);
            run_train(c, "kept", "", options);
            for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
                snprintf(options, sizeof options, CUT SMALL "--set halftone.head_chunks=3 %s %s", run_modes[m],
                         ways[i][1]);
                run_train(c, "again", ways[i][0], options);
                run_expect_same(c, "kept", "again");
            }
        }
    }
}

static void activations__are_told_where_they_lie(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    data_case_text(c, "ds.json",
                   "{\"gradient_clipping\": 1.0, \"activation_checkpointing\": {\"cpu_checkpointing\": true}}");
    expect(c, "\"$H\" train job.json --deepspeed ds.json --device cpu", 0,
           "the processor computes, so values kept for backward lie in host memory already");
    expect(c,
           "\"$H\" explain job.json --json --deepspeed ds.json --device fake " SMALL
           "| tr -d '\\n' | sed -n 's/.*\"moved\": *.[^]]*\"to\": \"host\".*/moved/p'",
           0, "moved");
    expect(c, "\"$H\" explain job.json " SMALL DISK, 0, "moved until backward");
    expect(c, "\"$H\" check job.json --set halftone.offload_activations=disk", 2,
           "halftone.offload_activations: \"disk\" needs a folder");
}

/* The smallest plan is named when a budget is refused, can be had, and computes the same. */
static void budget__is_met_to_the_byte_or_refused_with_the_smallest(void **state)
{
    data_case *c = *state;
    for (int j = 0; j < RUN_JOBS; j++) {
        run_case_write(c, &run_jobs[j]);
        expect(c, "\"$H\" explain job.json --set halftone.recompute.budget=1000", 2, "smallest_bytes=");
        expect(c,
               "least=$(\"$H\" explain job.json --set halftone.recompute.budget=1000 2>&1 | "
               "sed -n 's/.*smallest_bytes=\\([0-9]*\\).*/\\1/p'); echo $least > least; "
               "\"$H\" explain job.json --json --set halftone.recompute.budget=$least > plan.json && "
               "now=$(" PLAN_BYTES " plan.json) && test $now -le $least && echo met",
               0, "met\n");
        run_train(c, "kept", "", "");
        run_train(c, "again", "", "--set halftone.recompute.budget=$(cat least)");
        run_expect_same(c, "kept", "again");
    }
}

static void budget__of_every_size_between_is_met(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]); /* for its data */
    data_case_text(c, "job.json",
                   "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 4, \"n_head\": 2, \"n_embd\": 64}, \"data\": "
                   "{\"format\": \"text\", \"train\": \"text.txt\", \"tokenizer\": \"char\", \"length\": 64}, "
                   "\"train\": {\"batch\": 16, \"precision\": \"bf16\"}}");
    expect(c,
           "set -e; most=$(\"$H\" explain job.json --json | " PLAN_BYTES "); last=$most; "
           "least=$(\"$H\" explain job.json --set halftone.recompute.budget=1000 2>&1 | "
           "sed -n 's/.*smallest_bytes=\\([0-9]*\\).*/\\1/p') || true; test $least -lt $most; "
           "for i in 1 2 3 4 5 6 7 8 9; do want=$((most - (most - least) * i / 10)); "
           "now=$(\"$H\" explain job.json --json --set halftone.recompute.budget=$want | " PLAN_BYTES "); "
           "test $now -le $want; done; echo met",
           0, "met\n");
    expect(c,
           "set -e; \"$H\" explain job.json --json --set halftone.recompute.budget=75% > a; "
           "\"$H\" explain job.json --json --set halftone.recompute.budget=auto > b; "
           "\"$H\" explain job.json --json > c; for f in b c; do " PLAN_BYTES
           " $f > $f.bytes; done; cmp b.bytes c.bytes; grep -c '\"recomputed_flops\": 0,' b; "
           "! grep -q '\"recomputed\": \\[\\]' a; echo fine",
           0, "fine\n");
}

/* State that moves away makes room: the budget is of the plan that comes of all passes. What runs again has its
 * parameters fetched again. */
static void budget__counts_what_offload_leaves(void **state)
{
    static const char elsewhere[] = "{\"gradient_clipping\": 1.0, \"zero_optimization\": {\"stage\": 3, "
                                    "\"stage3_param_persistence_threshold\": 64, "
                                    "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \".\"}, "
                                    "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \".\"}}}";
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    data_case_text(c, "disk.json", elsewhere);
    run_train(c, "kept", "", "--set train.precision=bf16");
    run_train(c, "again", "", "--set train.precision=bf16 --deepspeed disk.json --set halftone.recompute.policy=all");
    run_expect_same(c, "kept", "again");
    expect(c,
           "\"$H\" explain job.json --deepspeed disk.json --json --set halftone.recompute.policy=all | "
           "grep -A30 '\"recomputed\"' | grep -c '\"op\": \"matmul\"'",
           0, "");
    /* More than the plan with offload takes, and less than that without. */
    expect(c,
           "with=$(($(\"$H\" explain job.json --json --deepspeed disk.json | tr '\\n' ' ' | "
           "sed -n 's/.*\"bytes\": {\"main\": {\\([^}]*\\)}.*/\\1/p' | tr ',' '\\n' | sed 's/.*: //' | paste -sd+))); "
           "\"$H\" explain job.json --json --deepspeed disk.json --set halftone.recompute.budget=$with | "
           "grep -c '\"recomputed_flops\": 0,'",
           0, "");
}

static void deepspeeds_block__asks_for_layers(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    data_case_text(c, "ds.json",
                   "{\"gradient_clipping\": 1.0, \"activation_checkpointing\": {\"number_checkpoints\": 1}}");
    data_case_text(c, "off.json", "{\"gradient_clipping\": 1.0, \"activation_checkpointing\": {\"profile\": true}}");
    expect(c,
           "set -e; \"$H\" explain job.json --json --deepspeed ds.json > a; \"$H\" explain job.json --json --set "
           "halftone.recompute.policy=all > b; cmp a b; \"$H\" explain job.json --json --deepspeed off.json > a; "
           "\"$H\" explain job.json --json > b; cmp a b; echo alike",
           0, "alike\n");
}

static void recompute__refuses_what_it_cannot_read(void **state)
{
    static const char *const wrong[][2] = {
        {"halftone.recompute.budget=8Gib", "halftone.recompute.budget: expected a size above 0"},
        {"halftone.recompute.budget=0%", "halftone.recompute.budget: expected"},
        {"halftone.recompute.budget=-5", "halftone.recompute.budget: expected"},
        {"halftone.recompute.policy=some", "halftone.recompute.policy"},
        {"halftone.recompute.policy=budget", "needs halftone.recompute.budget"},
        {"halftone.recompute.policy=all --set halftone.recompute.budget=1GiB", "exclude each other"},
    };
    data_case *c = *state;
    char line[256];
    run_case_write(c, &run_jobs[0]);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(line, sizeof line, "\"$H\" check job.json --set %s", wrong[i][0]);
        expect(c, line, 2, wrong[i][1]);
    }
}

static void limit__refuses_what_does_not_fit_and_names_what_would(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c, "\"$H\" train job.json --set halftone.memory_limit=1MB", 2, "more than halftone.memory_limit allows");
    /* What takes it: the drawing, the peak and its tensors, before the line that says what fits. */
    expect(c,
           "\"$H\" train job.json --set halftone.memory_limit=1MB 2>&1 | grep -c -e '^Memory in main over one step, "
           "[0-9]* instructions$' -e ' MB |[a-zA-Z ]*$' -e '^The peak is at instruction [0-9]* of micro' -e "
           "'^alive at the peak  *made by  *type  *bytes  *from  *to$' -e '^halftone: train: the plan takes [0-9]*'",
           0, "16\n");
    expect(c, "test ! -e run && echo nothing written", 0, "nothing written\n");
    expect(c,
           "whole=$(\"$H\" explain job.json --json | " PLAN_BYTES "); "
           "\"$H\" train job.json --set halftone.memory_limit=$((whole - 1))",
           2, "1 more than halftone.memory_limit allows; this fits: ");
    data_case_text(
        c, "head.json",
        "{\"model\": {\"type\": \"sequential\", \"layers\": [{\"type\": \"embedding\", \"out\": 4}, \"linear\"]}, "
        "\"data\": {\"format\": \"text\", \"train\": \"text.txt\", \"tokenizer\": \"byte\", \"length\": 16}, "
        "\"train\": {\"steps\": 1, \"batch\": 64}}");
    expect(c,
           "whole=$(\"$H\" explain head.json --json | " PLAN_BYTES "); "
           "\"$H\" train head.json --set halftone.memory_limit=$((whole - 1))",
           2, "; this fits: halftone.head_chunks=8 (");
    /* Fewer rows at a time are named where they fit, and where nothing does, who shows what takes the memory. */
    expect(c,
           "whole=$(\"$H\" explain head.json --set train.micro_batch=1 --json | " PLAN_BYTES "); "
           "\"$H\" train head.json --set halftone.memory_limit=$whole",
           2, "; this fits: train.micro_batch=1 (");
    expect(c, "\"$H\" train head.json --set halftone.memory_limit=1000 > out.txt 2>&1; tail -n 1 out.txt", 0,
           "; halftone plan shows what takes the memory");
    expect(c, "grep -c micro_batch out.txt", 1, "0\n");
    expect(c,
           "whole=$(\"$H\" explain job.json --json | " PLAN_BYTES "); "
           "\"$H\" train job.json --set halftone.memory_limit=$whole",
           0, "step ");
    expect(c, "\"$H\" check job.json --set halftone.memory_limit=0", 2, "halftone.memory_limit: expected a size");
    expect(c, "\"$H\" check job.json --set 'halftone.memory_limit={\"mian\": 1}'", 2, "expected a size above 0");
    expect(
        c,
        "\"$H\" train job.json --force --set 'halftone.memory_limit={\"main\": \"1GB\", \"disk\": 1000}' " DISK SMALL,
        2, "more than halftone.memory_limit.disk allows");
    expect(c,
           "\"$H\" train job.json --force --set 'halftone.memory_limit={\"main\": \"1MB\", \"disk\": \"1GB\"}' " DISK,
           2, "more than halftone.memory_limit allows");
    expect(c,
           "\"$H\" train job.json --force --device fake --set 'halftone.memory_limit={\"host\": 10}' --set "
           "engine.zero_optimization.offload_optimizer.device=cpu --set train.clip=1",
           2, "in host memory, ");
}

/* "checkpoint" on a layer of a list. */
static void marks__of_a_sequential_model_drop_what_is_inside(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(
        c,
        "set -e; for m in false true; do cat > $m.json <<EOF\n"
        "{\"model\": {\"type\": \"sequential\", \"layers\": [{\"type\": \"embedding\", \"out\": 16}, "
        "{\"type\": \"residual\", \"checkpoint\": $m, \"layers\": [\"layernorm\", {\"type\": \"linear\", \"out\": 64}, "
        "\"gelu\", {\"type\": \"linear\", \"out\": 16}]}, {\"type\": \"linear\"}]}, \"data\": {\"format\": \"text\", "
        "\"train\": \"text.txt\", \"tokenizer\": \"char\", \"length\": 16}, \"train\": {\"steps\": 3, \"batch\": 8, "
        "\"output\": \"$m\", \"precision\": \"bf16\", \"log_every\": 1}}\nEOF\n"
        "\"$H\" train $m.json > $m.log; done; cmp false/snapshots/*/weights.safetensors "
        "true/snapshots/*/weights.safetensors; "
        "\"$H\" explain true.json --json | grep -c '\"recomputed\": \\[\\]' || true; "
        "\"$H\" explain false.json --json | grep '\"recomputed\": \\[\\]' > /dev/null; echo marked",
        0, "0\nmarked\n");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(recompute__changes_no_bit_of_a_run),
        CASE(recompute__changes_no_bit_on_a_device_with_its_own_memory),
        CASE(activations__elsewhere_change_no_bit_of_a_run),
        CASE(head__in_chunks_has_the_same_bits_in_every_plan),
        CASE(activations__are_told_where_they_lie),
        CASE(budget__is_met_to_the_byte_or_refused_with_the_smallest),
        CASE(budget__of_every_size_between_is_met),
        CASE(budget__counts_what_offload_leaves),
        CASE(deepspeeds_block__asks_for_layers),
        CASE(recompute__refuses_what_it_cannot_read),
        CASE(limit__refuses_what_does_not_fit_and_names_what_would),
        CASE(marks__of_a_sequential_model_drop_what_is_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
