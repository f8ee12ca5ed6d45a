/* What static codes of 8 bits cost: the jobs of examples/compress/ on real data (HALFTONE_DATA), compressed by quantize.json with
 * codes in every layer, whatever is faster. Jobs that train for minutes run in make test-long. */
#include <math.h>

#include "cli_case.h"

#define EXAMPLES HT_TEST_DIR "/../examples/compress/"
#define ALL_LAYERS                                                                                                     \
    "{\"steps\": [{\"quantize\": {\"weights\": \"int8\", \"activations\": \"int8\", \"keep_slower\": true, "           \
    "\"calibration\": {\"batches\": 32}}}]}"

static void link_real(data_case *c, const char *name)
{
    char line[2048];
    const char *path = data_case_real(name);
    if (!path) skip();
    snprintf(line, sizeof line, "ln -sf '%s' .", path);
    expect(c, line, 0, "");
}

static void link_digits(data_case *c)
{
    static const char *const parts[] = {"train-images-idx3", "train-labels-idx1", "t10k-images-idx3",
                                        "t10k-labels-idx1"};
    for (size_t i = 0; i < 4; i++) {
        char name[128];
        snprintf(name, sizeof name, "mnist/%s-ubyte.gz", parts[i]);
        link_real(c, name);
    }
}

/* A number of a run's evaluation. */
static double worth(data_case *c, const char *folder, const char *options, const char *key)
{
    char line[512], wanted[64];
    int status;
    snprintf(line, sizeof line, "\"$H\" eval %s --json %s", folder, options);
    snprintf(wanted, sizeof wanted, "\"%s\": ", key);
    const char *text = run(c, line, &status), *at = strstr(text, wanted);
    if (status != 0 || !at) fail_msg("%s: %s", line, text);
    return strtod(at + strlen(wanted), NULL);
}

static void train(data_case *c, const char *job)
{
    char line[1024];
    snprintf(line, sizeof line, "\"$H\" train " EXAMPLES "%s > log 2>&1 || tail -n 3 log", job);
    expect(c, line, 0, "");
}

/* Compresses "run" into "small"; all layers of it have codes. */
static void compress(data_case *c, const char *from, const char *options)
{
    char line[1024];
    data_case_text(c, "all.json", ALL_LAYERS);
    snprintf(line, sizeof line, "\"$H\" compress %s all.json --output small %s", from, options);
    expect(c, line, 0, "layers read codes");
    expect(c, "! grep -q refused_ms small/compress.json", 0, "");
}

/* ---- the tests ---- */

static void lenet__loses_a_fifth_of_a_point_at_most(void **state)
{
    data_case *c = *state;
    if (!getenv("HALFTONE_LONG")) skip();
    link_digits(c);
    train(c, "lenet.json");
    compress(c, "lenet", "");
    double before = worth(c, "lenet", "", "accuracy"), after = worth(c, "small", "", "accuracy");
    print_message("lenet: accuracy %.4f, with codes %.4f\n", before, after);
    assert_true(before > 0.98 && after >= before - 0.002);
}

static void foreign_cnn__loses_a_fifth_of_a_point_at_most(void **state)
{
    data_case *c = *state;
    link_digits(c);
    link_real(c, "weights/mnist_cnn/mnist.safetensors");
    compress(c, "mnist.safetensors", "--job " EXAMPLES "cnn.json");
    double after = worth(c, "small", "", "accuracy");
    double before = worth(c, "small", "--set train.quantize=null", "accuracy");
    print_message("cnn: 0.9917 in f32, of decoded codes %.4f, with codes %.4f\n", before, after);
    assert_true(after >= 0.9917 - 0.002);
}

static void gpt2__loses_a_third_of_a_per_cent_at_most(void **state)
{
    data_case *c = *state;
    if (!getenv("HALFTONE_LONG")) skip();
    link_real(c, "lm/tinyshakespeare.txt");
    train(c, "job.json");
    compress(c, "base", "");
    double before = worth(c, "base", "", "loss"), after = worth(c, "small", "", "loss");
    print_message("gpt2: loss %.5f, with codes %.5f\n", before, after);
    assert_true(before < 2 && after <= 1.003 * before);
}

static void translator__loses_a_third_of_a_point_at_most(void **state)
{
    data_case *c = *state;
    if (!getenv("HALFTONE_LONG")) skip();
    link_real(c, "en-fr/tatoeba-2017.tsv.gz");
    train(c, "translator.json");
    compress(c, "translator", "");
    double before = worth(c, "translator", "--bleu 13a", "bleu"), after = worth(c, "small", "--bleu 13a", "bleu");
    print_message("translator: BLEU %.2f, with codes %.2f\n", before, after);
    assert_true(before > 15 && after >= before - 0.3);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(lenet__loses_a_fifth_of_a_point_at_most),
        CASE(foreign_cnn__loses_a_fifth_of_a_point_at_most),
        CASE(gpt2__loses_a_third_of_a_per_cent_at_most),
        CASE(translator__loses_a_third_of_a_point_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
