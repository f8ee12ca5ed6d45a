/* Jobs in every precision: a run that was stopped goes on bit for bit, and masters matter. */
#include "cli_case.h"

#include <math.h>

/* Dropout, micro-batches, clipping; and a scale that f16 cannot bear, so that it falls and grows again. */
static void write_text_job(data_case *c)
{
    static char text[6000];
    size_t length = 0;
    for (int i = 0; length + 64 < sizeof text; i++)
        length += (size_t)snprintf(text + length, 64, "%d times %d makes %d.\n", i % 13, i % 7, (i % 13) * (i % 7));
    data_case_text(c, "sums.txt", text);
    data_case_text(c, "job.json",
                   "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16, \"dropout\": 0.1},\n"
                   " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"length\": 16},\n"
                   " \"train\": {\"steps\": 12, \"batch\": 4, \"accumulate\": 2, \"lr\": 3e-3, \"clip\": 1.0,\n"
                   "            \"schedule\": \"constant\", \"eval_every\": 5, \"log_every\": 1, \"snapshot_every\": 0}}\n");
    data_case_text(c, "dynamic.json",
                   "{\"fp16\": {\"enabled\": true, \"initial_scale_power\": 30, \"hysteresis\": 1,\n"
                   "           \"loss_scale_window\": 2}, \"gradient_clipping\": 1.0}\n");
    data_case_text(c, "half.json",
                   "{\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true,\n"
                   "           \"bf16_optimizer_states\": true}, \"gradient_clipping\": 1.0}\n");
}

static const char *const modes[] = {
    "--set train.precision=fp64",
    "--set train.precision=fp32",
    "--set train.precision=fp16 --set train.loss_scale=1",
    "--set train.precision=fp16 --set train.loss_scale=1024",
    "--deepspeed dynamic.json",
    "--set train.precision=bf16",
    "--set train.precision=bf16 --set halftone.residual=f32",
    "--set train.precision=fp16 --set train.masters=false",
    "--set train.precision=bf16 --set train.masters=false",
    "--deepspeed half.json",
};

static void resume__goes_on_bit_for_bit_in_every_mode(void **state)
{
    data_case *c = *state;
    char line[2048];
    write_text_job(c);
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
        snprintf(line, sizeof line, "rm -rf a; OMP_NUM_THREADS=2 \"$H\" train job.json --set train.output=a %s", modes[m]);
        expect(c, line, 0, "step 12 of 12");
        if (strstr(modes[m], "dynamic")) expect(c, "test $(grep -c '\"skipped\": true' a/metrics.jsonl) -ge 2", 0, "");
        for (int stop = 1; stop < 12; stop += 4) {
            snprintf(line, sizeof line,
                     "rm -rf b; \"$H\" train job.json --set train.output=b --set train.steps=%d %s && "
                     "OMP_NUM_THREADS=%d \"$H\" train job.json --set train.output=b --resume %s && "
                     "cd b/snapshots/step-00000012 && for f in *.safetensors; do "
                     "cmp $f ../../../a/snapshots/step-00000012/$f || exit 1; done; echo the same",
                     stop, modes[m], 1 + stop % 3, modes[m]);
            expect(c, line, 0, "the same\n");
        }
    }
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(resume__goes_on_bit_for_bit_in_every_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
