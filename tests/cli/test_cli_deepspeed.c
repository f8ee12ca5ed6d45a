/* Configs of public projects train a small job with --lenient: all of them with HALFTONE_LONG, else a tenth. */
#include "cli_case.h"

static void write_job(data_case *c)
{
    char table[64 * 16];
    size_t length = 0;
    for (int i = 0; i < 64; i++)
        length += (size_t)snprintf(table + length, sizeof table - length, "%d,%d,%d\n", i % 7, i * i % 11, i % 3);
    data_case_text(c, "t.csv", table);
    data_case_text(c, "job.json",
                   "{\"model\": {\"type\": \"mlp\", \"hidden\": [8]},\n"
                   " \"data\": {\"format\": \"table\", \"train\": \"t.csv\", \"validation_share\": 0},\n"
                   " \"train\": {\"steps\": 10, \"eval_every\": 0, \"snapshot_every\": 0}}\n");
}

static void lenient__trains_the_configs_of_public_projects(void **state)
{
    data_case *c = *state;
    if (!data_case_real("deepspeed-configs")) skip();
    const char *data = getenv("HALFTONE_DATA");
    int every = getenv("HALFTONE_LONG") ? 1 : 10, number = 0, trained = 0;
    char row[4096], line[8192];
    FILE *table = fopen(HT_TEST_DIR "/reference/deepspeed_outcomes.tsv", "r");
    assert_non_null(table);
    write_job(c);
    while (fgets(row, sizeof row, table) != NULL) {
        bool trains = strstr(row, "\ttrains\n") != NULL;
        row[strcspn(row, "\t")] = '\0';
        if (number++ % every != 0 || !trains) continue;
        snprintf(line, sizeof line, "\"$H\" train job.json --force --lenient --deepspeed '%s/deepspeed-configs/%s'",
                 data, row);
        expect(c, line, 0, "step 10 of 10 ");
        trained++;
    }
    fclose(table);
    assert_true(trained >= 120 / every);
}

static void lenient__is_recorded_and_resumes(void **state)
{
    data_case *c = *state;
    write_job(c);
    data_case_text(
        c, "ds.json",
        "{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 2,\n"
        " \"optimizer\": {\"type\": \"OneBitAdam\", \"params\": {\"lr\": 0.01}},\n"
        " \"zero_optimization\": {\"stage\": 3}, \"compile\": {\"offload_activation\": true}}\n");
    expect(c, "\"$H\" train job.json --deepspeed ds.json", 2, "optimizer.type is OneBitAdam: not there yet");
    expect(c, "\"$H\" train job.json --deepspeed ds.json", 2, "compile.offload_activation is true: not there yet");
    expect(
        c, "\"$H\" train job.json --deepspeed ds.json --lenient --set train.steps=4", 0,
        "warning: ds.json:2: left out, which changes the mathematics: optimizer.type is OneBitAdam: adamw stands in");
    expect(c, "grep -c '\"halftone.lenient\": {\"value\": true' run/config.resolved.json", 0, "1\n");
    expect(c, "\"$H\" train job.json --deepspeed ds.json --lenient --resume", 0, "step 10 of 10 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lenient__is_recorded_and_resumes, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(lenient__trains_the_configs_of_public_projects, data_case_begin, data_case_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
