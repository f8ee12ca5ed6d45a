/* The loss scale in whole runs: what they report, how they go on, and what ends them. */
#include "cli_case.h"

static void write_job(data_case *c)
{
    static char text[6000];
    size_t length = (size_t)sprintf(text, "a,b,y\n");
    for (int i = 0; i < 90; i++)
        length += (size_t)sprintf(text + length, "%d,%d,%d\n", i % 13 - 6, i % 7 - 3, (i % 13 - 6) * (i % 7) * 8 - 40);
    data_case_text(c, "t.csv", text);
    data_case_text(c, "job.json",
                   "{\"model\": {\"type\": \"mlp\"},\n"
                   " \"data\": {\"format\": \"table\", \"train\": \"t.csv\", \"normalize\": false},\n"
                   " \"train\": {\"task\": \"regression\", \"steps\": 24, \"batch\": 8, \"accumulate\": 2,\n"
                   "            \"log_every\": 1, \"snapshot_every\": 0, \"eval_every\": 0, \"clip\": 1.0}}\n");
    /* A scale that f32 gradients cannot bear: it falls until they do, and grows into them again. */
    data_case_text(c, "high.json",
                   "{\"fp16\": {\"initial_scale_power\": 126, \"hysteresis\": 1, \"loss_scale_window\": 2},\n"
                   " \"gradient_clipping\": 1.0,\n"
                   " \"csv_monitor\": {\"enabled\": true, \"output_path\": \"csv\", \"job_name\": \"mine\"}}\n");
}

/* A table whose squares no f32 holds. */
static void write_overflow(data_case *c)
{
    data_case_text(c, "t.csv", "a,y\n1e30,1e30\n2e30,3e30\n");
    data_case_text(c, "job.json",
                   "{\"model\": {\"type\": \"mlp\"},\n"
                   " \"data\": {\"format\": \"table\", \"train\": \"t.csv\", \"normalize\": false,\n"
                   "           \"validation_share\": 0},\n"
                   " \"train\": {\"task\": \"regression\", \"batch\": 2, \"steps\": 100}}\n");
}

#define HIGH "\"$H\" train job.json --deepspeed high.json --set train.loss_scale=dynamic "

static void scale__is_reported_with_every_step(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, HIGH "> lines.txt; head -n 1 lines.txt", 0, " skipped 1 loss_scale 8.50705917e+37 lr ");
    expect(c, "head -n 1 run/metrics.jsonl", 0, "\"loss_scale\": 8.507059173023462e+37");
    expect(c, "head -n 2 run/metrics.jsonl | tail -n 1", 0, "\"loss_scale\": 4.253529586511731e+37");
    expect(c, "head -n 2 csv/mine/Train_Samples_loss_scale.csv", 0, "step,loss_scale\n8,8.507059173023");
    /* Every line tells how many there were so far. */
    expect(c,
           "skipped=$(grep -c '\"skipped\": true' run/metrics.jsonl); test $skipped -ge 4 && "
           "grep '\"step\": 24,' run/metrics.jsonl | grep \"skips\\\": $skipped}\"",
           0, "\"kind\": \"step\"");
    expect(c, "grep -ac train/loss_scale run/events.out.tfevents.*", 0, "");
    expect(c, "rm -r csv run; " HIGH "--set train.steps=3", 0, "is skipped: its gradients are not finite (loss ");
    expect(c, "rm -r run; " HIGH "--set train.steps=3", 0, "; the loss scale is now 4.25353e+37");
    expect(c, "rm -r run; \"$H\" train job.json --set train.steps=3 | grep -c loss_scale", 1, "0\n");
    expect(c, "grep -ac train/loss_scale run/events.out.tfevents.*", 1, "0\n");
}

static void scale__that_is_a_power_of_two_changes_no_number(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c,
           "\"$H\" train job.json --set train.output=a && \"$H\" train job.json --set train.output=b --set "
           "train.loss_scale=1024 && \"$H\" train job.json --set train.output=c --set train.loss_scale=dynamic",
           0, " loss_scale 65536 lr ");
    expect(c,
           "for r in b c; do cmp a/snapshots/*/weights.safetensors $r/snapshots/*/weights.safetensors || exit 1; done",
           0, "");
}

/* Skips, halvings and growth on both sides of every stop. */
static void resume__goes_on_with_the_scale_bit_for_bit(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, HIGH "--set train.schedule=constant --set train.output=a", 0, "step 24 of 24");
    expect(c, "test $(grep -c '\"skipped\": true' a/metrics.jsonl) -ge 4", 0, "");
    for (int stop = 1; stop < 24; stop += 5) {
        char line[1024];
        snprintf(
            line, sizeof line,
            "rm -rf b; " HIGH "--set train.output=b --set train.schedule=constant --set train.steps=%d && " HIGH
            "--set train.output=b --set train.schedule=constant --resume && cd b/snapshots/step-00000024 && "
            "for f in *.safetensors; do cmp $f ../../../a/snapshots/step-00000024/$f || exit 1; done; echo the same",
            stop);
        expect(c, line, 0, "the same\n");
    }
}

/* A scale that does not move is the config's; one that begins to move does not begin with what it was. */
static void resume__with_another_scale_takes_the_configs(void **state)
{
    data_case *c = *state;
    write_job(c);
#define GO "\"$H\" train job.json --set train.schedule=constant "
    expect(c, GO "--set train.steps=2 | grep -c loss_scale", 1, "0\n");
    expect(c, GO "--set train.steps=3 --set train.loss_scale=512 --resume", 0, " loss_scale 512 lr ");
    expect(c, GO "--set train.steps=4 --set train.loss_scale=256 --resume", 0, " loss_scale 256 lr ");
    expect(c, GO "--set train.steps=5 --set train.loss_scale=dynamic --resume", 0, " loss_scale 65536 lr ");
    expect(c, GO "--set train.steps=6 --set train.loss_scale=none --resume | grep -c ' loss_scale '", 1, "0\n");
}

static void fatal__names_the_first_value_that_is_not_finite(void **state)
{
    data_case *c = *state;
    write_overflow(c);
    expect(c, "\"$H\" train job.json", 1, "the gradients of 20 steps in a row, up to step 20, were not finite");
    expect(c, "\"$H\" train job.json --force", 1,
           "the first value that is not finite is f32[2,1], the result of mul (fwd) in micro-batch 1 of 1: 2 inf and 0 "
           "NaN of 2 elements");
    expect(c, "\"$H\" train job.json --force --set train.loss_scale=8", 1, "20 steps in a row, up to step 20");
    expect(
        c, "\"$H\" train job.json --force --set train.loss_scale=dynamic", 1,
        "the gradients of step 18 were not finite (loss inf) with the smallest loss scale, 1: training cannot go on: "
        "the first value that is not finite is f32[2,1], the result of mul");
    expect(c, "grep -c '\"skipped\": true' run/metrics.jsonl", 0, "18\n");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(scale__is_reported_with_every_step),
        CASE(scale__that_is_a_power_of_two_changes_no_number),
        CASE(resume__goes_on_with_the_scale_bit_for_bit),
        CASE(resume__with_another_scale_takes_the_configs),
        CASE(fatal__names_the_first_value_that_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
