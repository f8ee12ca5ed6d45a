/* Jobs in every precision: a run that was stopped goes on bit for bit, masters matter, and half is what is kept for
 * backward. */
#include "cli_case.h"
#include "tiny_data.h"

#include <math.h>

/* Dropout, micro-batches, clipping; and a scale that f16 cannot bear, so that it falls and grows again. */
static void write_text_job(data_case *c)
{
    tiny_sums(c, 6000);
    data_case_text(
        c, "job.json",
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
    "--set train.precision=bf16 --set train.masters=false --set halftone.rounding=stochastic",
    "--deepspeed half.json",
    "--set train.precision=bf16 --set halftone.fp8.recipe=delayed --set halftone.fp8.history=3",
    "--set train.precision=bf16 --set halftone.fp8.recipe=current",
    "--set train.precision=bf16 --set train.masters=false --set halftone.fp8.recipe=delayed",
    "--deepspeed dynamic.json --set halftone.fp8.recipe=delayed --set halftone.fp8.history=5",
};

static void resume__goes_on_bit_for_bit_in_every_mode(void **state)
{
    data_case *c = *state;
    char line[2048];
    write_text_job(c);
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
        snprintf(line, sizeof line, "rm -rf a; OMP_NUM_THREADS=2 \"$H\" train job.json --set train.output=a %s",
                 modes[m]);
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

/* Beams read the model's outputs, whatever they were computed in. */
static void eval__translates_in_every_precision(void **state)
{
    data_case *c = *state;
    static const char *const words[][2] = {{"one", "un"}, {"two", "deux"}, {"cat", "chat"}, {"dog", "chien"}};
    static const char *const precisions[] = {"fp32", "fp64", "fp16", "bf16"};
    static char pairs[12000];
    size_t length = 0;
    for (int i = 0; i < 120; i++)
        for (int side = 0; side < 2; side++)
            for (int k = 0; k <= i % 3 + 3; k++)
                length += (size_t)snprintf(pairs + length, 16, "%s%c", words[(i / 3 + k * 3) % 4][side],
                                           k < i % 3 + 3 ? ' '
                                           : side        ? '\n'
                                                         : '\t');
    data_case_text(c, "pairs.tsv", pairs);
    data_case_text(
        c, "s2s.json",
        "{\"model\": {\"type\": \"seq2seq\", \"hidden\": 24, \"layers\": 1},\n"
        " \"data\": {\"format\": \"pairs\", \"train\": \"pairs.tsv\", \"validation\": \"pairs.tsv\", "
        "\"minimum_count\": 1, \"buckets\": 2},\n"
        " \"train\": {\"epochs\": 20, \"batch\": 12, \"lr\": 0.02, \"eval_every\": 0, \"log_every\": 100}}\n");
    for (size_t p = 0; p < 4; p++) {
        char line[512];
        snprintf(line, sizeof line,
                 "rm -rf run; \"$H\" train s2s.json --set train.precision=%s > said 2>&1 || cat said; \"$H\" eval run "
                 "--bleu none",
                 precisions[p]);
        expect(c, line, 0, "bleu        100.0000");
    }
}

/* ---- masters ---- */

/* Weights of a normal size and a rate that is small beside them: each update is less than half a step of what a half
 * holds there. The paper's ablation in small; the numbers are the same on every machine. */
static void write_slow_job(data_case *c)
{
    static char text[40000];
    size_t length = (size_t)sprintf(text, "a,b,c,y\n");
    for (int i = 0; i < 600; i++) {
        double a = sin(1.7 * i), b = cos(2.3 * i + 1), d = sin(0.9 * i + 2);
        length += (size_t)sprintf(text + length, "%.4f,%.4f,%.4f,%.4f\n", a, b, d, a * b + 0.5 * sin(3 * d) + 0.2 * a);
    }
    data_case_text(c, "t.csv", text);
    data_case_text(c, "slow.json",
                   "{\"model\": {\"type\": \"mlp\", \"hidden\": [32, 32], \"activation\": \"tanh\"},\n"
                   " \"data\": {\"format\": \"table\", \"train\": \"t.csv\", \"validation_share\": 0.2},\n"
                   " \"train\": {\"task\": \"regression\", \"steps\": 1500, \"batch\": 32, \"lr\": 1e-4,\n"
                   "            \"schedule\": \"constant\", \"weight_decay\": 0, \"log_every\": 500,\n"
                   "            \"eval_every\": 500, \"snapshot_every\": 0}}\n");
}

/* The validation loss at the end. */
static double final_loss(const data_case *c, const char *options)
{
    char line[1024];
    int status;
    double loss = NAN;
    snprintf(line, sizeof line,
             "rm -rf run; \"$H\" train slow.json %s > said 2>&1 || cat said; grep '\"kind\": \"eval\"' "
             "run/metrics.jsonl | tail -n 1",
             options);
    const char *got = run(c, line, &status), *at = strstr(got, "\"loss\": ");
    if (status != 0 || !at || sscanf(at + 8, "%lf", &loss) != 1) fail_msg("%s: %d: %s", options, status, got);
    print_message("%s: %.4f\n", *options ? options : "fp32", loss);
    return loss;
}

static void masters__matter(void **state)
{
    data_case *c = *state;
    write_slow_job(c);
    double fp32 = final_loss(c, ""), fp16 = final_loss(c, "--set train.precision=fp16"),
           bf16 = final_loss(c, "--set train.precision=bf16"),
           pure_fp16 = final_loss(c, "--set train.precision=fp16 --set train.masters=false"),
           pure_bf16 = final_loss(c, "--set train.precision=bf16 --set train.masters=false"),
           chance =
               final_loss(c, "--set train.precision=bf16 --set train.masters=false --set halftone.rounding=stochastic");
    assert_true(fabs(fp16 - fp32) < 0.02 * fp32);
    assert_true(fabs(bf16 - fp32) < 0.05 * fp32);
    assert_true(pure_fp16 > 1.2 * fp16);
    assert_true(pure_bf16 > 1.5 * bf16);
    assert_true(chance < 0.7 * pure_bf16);
}

/* ---- what is kept for backward ---- */

/* Digits as large as MNIST's. */
static void write_lenet_job(data_case *c)
{
    enum { COUNT = 80, SIDE = 28 };
    static unsigned char images[16 + COUNT * SIDE * SIDE] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    static unsigned char labels[8 + COUNT] = {0, 0, 8, 1, 0, 0, 0, COUNT};
    for (int i = 0; i < COUNT; i++) labels[8 + i] = (unsigned char)(i % 10);
    for (int p = 0; p < COUNT * SIDE * SIDE; p++) images[16 + p] = (unsigned char)(p * 13 % 251);
    data_case_file(c, "train-images-idx3-ubyte", images, sizeof images);
    data_case_file(c, "train-labels-idx1-ubyte", labels, sizeof labels);
    data_case_text(c, "lenet.json",
                   "{\"model\": {\"type\": \"lenet\"},\n"
                   " \"data\": {\"format\": \"idx\", \"train\": \"train-images-idx3-ubyte\"},\n"
                   " \"train\": {\"steps\": 1, \"batch\": 64}}\n");
}

/* A number of the JSON that a command prints. */
static double number_of(const data_case *c, const char *key, const char *line)
{
    int status;
    char word[64];
    double number = NAN;
    snprintf(word, sizeof word, "\"%s\": ", key);
    const char *got = run(c, line, &status), *at = strstr(got, word);
    if (status != 0 || !at || sscanf(at + strlen(word), "%lf", &number) != 1)
        fail_msg("%s: %d: %.2000s", line, status, got);
    return number;
}

static double activations(const data_case *c, const char *job, const char *precision)
{
    char line[512];
    snprintf(line, sizeof line, "\"$H\" explain %s --json --set train.precision=%s", job, precision);
    return number_of(c, "activations", line);
}

static void activations__in_half_are_at_most_three_fifths_of_fp32s(void **state)
{
    data_case *c = *state;
    static const char *const jobs[] = {"demo/job.json", "lenet.json"};
    expect(c, "\"$H\" demo --single --steps 1 --output demo", 0, "");
    write_lenet_job(c);
    for (int j = 0; j < 2; j++) {
        double fp32 = activations(c, jobs[j], "fp32"), fp16 = activations(c, jobs[j], "fp16"),
               bf16 = activations(c, jobs[j], "bf16");
        print_message("%s: fp32 %.0f bytes, fp16 %.3f of them, bf16 %.3f\n", jobs[j], fp32, fp16 / fp32, bf16 / fp32);
        assert_true(fp16 <= 0.6 * fp32);
        assert_true(bf16 <= 0.6 * fp32);
    }
}

/* The worst root mean square of a layer's backward values against f64's, relative to those. */
static double backward_error(const data_case *c, const char *job, const char *precision)
{
    char line[512];
    snprintf(line, sizeof line,
             "\"$H\" diff %s --precision fp64,%s --json > diff.json && tr '{' '\\n' < diff.json | "
             "sed -n 's/.*\"layer\": .*\"backward_rms\": \\([0-9.e-]*\\).*/{\"worst\": \\1}/p' | "
             "sort -t ' ' -k 2 -g -r | head -n 1",
             job, precision);
    return number_of(c, "worst", line);
}

/* Some ten roundings lie between the loss and a gradient; a step of f16 is 2^-10, one of bf16 2^-7. */
static void gradients__of_a_translator_in_half_are_right_to_a_few_of_its_steps(void **state)
{
    data_case *c = *state;
    expect(c, "\"$H\" demo --single --steps 1 --output demo", 0, "");
    double fp32 = backward_error(c, "demo/job.json", "fp32"), fp16 = backward_error(c, "demo/job.json", "fp16"),
           bf16 = backward_error(c, "demo/job.json", "bf16");
    print_message("backward errors: fp32 %.2g, fp16 %.2g, bf16 %.2g\n", fp32, fp16, bf16);
    assert_true(fp32 < 1e-5);
    assert_true(fp16 < 5 * 0x1p-10);
    assert_true(bf16 < 5 * 0x1p-7);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(resume__goes_on_bit_for_bit_in_every_mode),
        CASE(eval__translates_in_every_precision),
        CASE(masters__matter),
        CASE(activations__in_half_are_at_most_three_fifths_of_fp32s),
        CASE(gradients__of_a_translator_in_half_are_right_to_a_few_of_its_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
