/* What halftone train --resume says of a job or data that changed since the snapshot, and what it refuses. */
#include "run_process.h"

static void write_run(data_case *c)
{
    run_write_job(c);
    expect(c, "rm -rf run; \"$H\" train job.json --set train.steps=8", 0, "step 8 of 8");
    expect(c, "rm -rf before; cp -r run before", 0, "");
}

/* Resumes for one more step from the run's end, or its copy. */
#define AGAIN "rm -rf run; cp -r before run; \"$H\" train job.json --resume --set train.steps=9 "

static void changes__every_key_with_its_old_and_its_new_value(void **state)
{
    data_case *c = *state;
    write_run(c);
    expect(c, AGAIN "--set train.lr=1e-3 --set train.precision=bf16 2>&1 | grep -c 'changed: '", 0, "4\n");
    expect(c, AGAIN "--set train.lr=1e-3 --set train.precision=bf16", 0, "changed: train.lr: 0.003 -> 0.001\n");
    expect(c, AGAIN "--set train.lr=1e-3 --set train.precision=bf16", 0,
           "changed: train.precision: \"fp32\" -> \"bf16\"\n");
    expect(c, AGAIN "--set data.order=shuffled", 0, "changed: data.order: \"random\" -> \"shuffled\"\n");
    expect(c, AGAIN "| cat", 0, "changed: train.steps: 8 -> 9\n");
    expect(c, "rm -rf run; cp -r before run; \"$H\" train job.json --resume --set train.steps=8 2>&1 | grep changed", 1,
           "");
}

static void changes__a_key_that_is_refused_is_named(void **state)
{
    data_case *c = *state;
    write_run(c);
    expect(c, AGAIN "--set model.n_embd=32", 2, "changed: model.n_embd: 16 -> 32: the run cannot go on with it: ");
    /* The same tensors, another model. */
    expect(c, AGAIN "--set model.n_head=4", 2, "changed: model.n_head: 2 -> 4: the run cannot go on with it: ");
    expect(c, AGAIN "--set model.n_head=4 2>&1 | grep -c '[0-9a-f]\\{16\\}'", 1, "0\n");
    expect(c, AGAIN "--set train.optimizer=sgd", 2, "changed: train.optimizer: \"adamw\" -> \"sgd\"");
    expect(c, AGAIN "--set train.seed=5", 2, "train.seed 1, not 5");
    /* What was refused left everything as it was. */
    expect(c, "diff -r before run && echo same", 0, "same\n");
}

static void changes__a_held_out_share_that_moves_is_refused(void **state)
{
    data_case *c = *state;
    write_run(c);
    expect(c, AGAIN "--set data.validation_share=0.2", 2,
           "the validation part is not that of the run so far (data.validation_share)");
    expect(c, AGAIN "--set data.validation_share=0.2 --allow-data-change", 0, "changed: the validation part (");
    expect(c, "echo '1 times 1 makes 1.' >> sums.txt", 0, "");
    expect(c, AGAIN, 2, "(data.train: the files that it is a share of are others)");
    expect(c, "diff -r before run && echo same", 0, "same\n");
    expect(c, AGAIN "--allow-data-change", 0, "changed: the files of data.train differ");
    /* No part is held out: nothing can leak into it. */
    expect(c, AGAIN "--set data.validation_share=0", 0, "changed: the files of data.train differ");
}

static void changes__files_to_validate_on_are_known_by_their_content(void **state)
{
    data_case *c = *state;
    run_write_job(c);
    expect(c,
           "mkdir other; head -n 40 sums.txt > held.txt; sed 's/\"train\": \"sums/\"validation\": \"held.txt\", &/' "
           "job.json > j; mv j job.json; \"$H\" train job.json --set train.steps=8; cp -r run before",
           0, "step 8 of 8");
    expect(c, "cp held.txt other", 0, "");
    expect(c, AGAIN "--set data.validation=other/held.txt", 0,
           "changed: data.validation: \"held.txt\" -> \"other/held.txt\"");
    expect(c, AGAIN "--set data.validation=other/held.txt 2>&1 | grep -c 'changed: the '", 1, "0\n");
    /* More to train on is said, and allowed. */
    expect(c, "cp sums.txt kept; echo '1 times 1 makes 1.' >> sums.txt", 0, "");
    expect(c, AGAIN, 0, "changed: the files of data.train differ");
    expect(c, "mv kept sums.txt; sed -i 's/5 times/6 times/' held.txt", 0, "");
    expect(c, AGAIN, 2, "(data.validation: its files are others)");
    expect(c, AGAIN "--set data.validation=null", 2, "(data.validation: its files are others)");
    expect(c, AGAIN "--allow-data-change", 0, "changed: the validation part (data.validation");
}

static void changes__a_rate_that_jumps_and_a_schedule_that_is_over_are_said(void **state)
{
    data_case *c = *state;
    write_run(c);
    expect(c, "rm -rf run; cp -r before run; \"$H\" train job.json --resume --set train.steps=80", 0,
           "the learning rate jumps from 0.00");
    expect(c, AGAIN "--set train.lr=1e-4", 0, "the learning rate jumps from ");
    /* The same job, resumed while its rate rises, jumps nowhere. */
    expect(c,
           "rm -rf run; \"$H\" train job.json --set train.snapshot_every=1 | head -n 2 > /dev/null; "
           "\"$H\" train job.json --resume 2>&1 | grep -c 'learning rate'",
           1, "0\n");
    expect(
        c,
        "rm -rf run; sed 's/ \"schedule\": \"cosine\",//; s/ \"clip\": 1.0,//' job.json | sed '$ s/}$/, \"engine\": "
        "{\"gradient_clipping\": 0, \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 6, "
        "\"warmup_num_steps\": 2}}}}/' > over.json; \"$H\" train over.json --set train.steps=8; "
        "\"$H\" train over.json --resume --set train.steps=9",
        0, "step 9 has a learning rate of 0: the schedule is over");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(changes__every_key_with_its_old_and_its_new_value),
        CASE(changes__a_key_that_is_refused_is_named),
        CASE(changes__a_held_out_share_that_moves_is_refused),
        CASE(changes__files_to_validate_on_are_known_by_their_content),
        CASE(changes__a_rate_that_jumps_and_a_schedule_that_is_over_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
