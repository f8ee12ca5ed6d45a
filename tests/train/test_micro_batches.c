/* What a step computes does not depend on how its batch is cut: every model family, with dropout and carried state, over
 * every kind of data, makes the same steps with 1, 2 and 4 micro-batches, up to the order of sums. */
#include <math.h>

#include "cli_case.h"

enum { STEPS = 5, LONG_STEPS = 50, MOST_STEPS = LONG_STEPS };

typedef struct cut_case {
    const char *name, *model, *data, *train;
} cut_case;

#define TEXT(order)                                                                                                    \
    "\"format\": \"text\", \"train\": \"text.txt\", \"tokenizer\": \"char\", \"length\": 8, \"order\": " order
#define DIGITS    "\"format\": \"idx\", \"train\": \"train-images-idx3-ubyte\", \"validation_share\": 0"
#define PAIRS     "\"format\": \"pairs\", \"train\": \"pairs.tsv\", \"minimum_count\": 2, \"buckets\": 3"
#define TABLE     "\"format\": \"table\", \"train\": \"t.csv\", \"validation_share\": 0"
#define SENTENCES "\"format\": \"sentences\", \"train\": \"sentences.tsv\", \"minimum_count\": 1, \"length\": 6"
#define BERT      "\"type\": \"bert\", \"hidden_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 2"

static const cut_case cases[] = {
    {"gpt2", "\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, \"n_embd\": 16, \"dropout\": 0.1", TEXT("\"random\""),
     ""},
    {"llama",
     "\"type\": \"llama\", \"hidden_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"dropout\": 0.1",
     TEXT("\"shuffled\""), ""},
    {"masked", BERT ", \"hidden_dropout_prob\": 0.1", TEXT("\"sequential\""), ", \"task\": \"masked_lm\""},
    {"sentences", BERT ", \"hidden_dropout_prob\": 0.1", SENTENCES, ""},
    {"lstm_lm", "\"type\": \"lstm_lm\", \"hidden\": 12, \"layers\": 2, \"dropout\": 0.2", TEXT("\"stream\""), ""},
    {"seq2seq", "\"type\": \"seq2seq\", \"hidden\": 12, \"layers\": 2, \"dropout\": 0.1", PAIRS, ""},
    {"mlp", "\"type\": \"mlp\", \"hidden\": [16], \"dropout\": 0.2", DIGITS, ""},
    {"lenet", "\"type\": \"lenet\", \"dropout\": 0.2", DIGITS, ""},
    {"regression", "\"type\": \"mlp\", \"hidden\": [8], \"dropout\": 0.1", TABLE, ", \"task\": \"regression\""},
    {"sequential",
     "\"type\": \"sequential\", \"layers\": [{\"type\": \"embedding\", \"out\": 8}, {\"type\": \"dropout\", \"p\": "
     "0.1}, "
     "{\"type\": \"lstm\", \"hidden\": 12, \"layers\": 2, \"dropout\": 0.2}, {\"type\": \"linear\"}]",
     TEXT("\"random\""), ""},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* ---- data ---- */

static void write_text(data_case *c)
{
    static char text[6000];
    size_t length = 0;
    for (int i = 0; length < sizeof text - 40; i++)
        length += (size_t)sprintf(text + length, "%d plus %d is %d.\n", i, i * 7 % 23, i + i * 7 % 23);
    data_case_text(c, "text.txt", text);
}

static void write_pairs(data_case *c)
{
    static const char *const words[][2] = {{"one", "un"}, {"two", "deux"}, {"cat", "chat"}, {"dog", "chien"}};
    static char pairs[20000], sentences[20000];
    size_t length = 0, at = 0;
    for (int i = 0; i < 200; i++) {
        for (int side = 0; side < 2; side++) {
            for (int k = 0; k <= i % 5; k++)
                length += (size_t)sprintf(pairs + length, "%s%s", k ? " " : "", words[(i / 5 + k * 3) % 4][side]);
            length += (size_t)sprintf(pairs + length, "%c", side ? '\n' : '\t');
        }
        for (int k = 0; k <= i % 5; k++) at += (size_t)sprintf(sentences + at, "%s ", words[(i / 5 + k * 3) % 4][0]);
        at += (size_t)sprintf(sentences + at, "%d\t%s\n", i, i % 3 ? "yes" : "no");
    }
    data_case_text(c, "pairs.tsv", pairs);
    data_case_text(c, "sentences.tsv", sentences);
}

static void write_images(data_case *c)
{
    enum { COUNT = 120, SIDE = 16 };
    static unsigned char images[16 + COUNT * SIDE * SIDE] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    static unsigned char labels[8 + COUNT] = {0, 0, 8, 1, 0, 0, 0, COUNT};
    for (int i = 0; i < COUNT; i++) {
        labels[8 + i] = (unsigned char)(i % 2);
        for (int p = 0; p < SIDE * SIDE; p++) {
            bool bright = (p % SIDE < SIDE / 2) == (i % 2 == 0);
            images[16 + i * SIDE * SIDE + p] = (unsigned char)((bright ? 180 : 20) + (i * 7 + p * 13) % 60);
        }
    }
    data_case_file(c, "train-images-idx3-ubyte", images, sizeof images);
    data_case_file(c, "train-labels-idx1-ubyte", labels, sizeof labels);
}

static void write_table(data_case *c)
{
    static char text[8000];
    size_t length = (size_t)sprintf(text, "a,b,y\n");
    for (int i = 0; i < 100; i++)
        length += (size_t)sprintf(text + length, "%g,%g,%g\n", sin(i), cos(i * i), sin(i) + 0.5 * cos(i * i));
    data_case_text(c, "t.csv", text);
}

/* ---- steps ---- */

static int wanted_steps(void)
{
    return getenv("HALFTONE_LONG") ? LONG_STEPS : STEPS;
}

/* The losses of a run's steps. */
static void train(data_case *c, const cut_case *t, int accumulate, int steps, double *loss)
{
    char job[2048], line[512], key[64];
    snprintf(job, sizeof job,
             "{\"model\": {%s}, \"data\": {%s}, \"train\": {\"batch\": 8, \"steps\": %d, \"lr\": 1e-3, \"clip\": 1.0, "
             "\"log_every\": 1%s}}",
             t->model, t->data, steps, t->train);
    data_case_text(c, "job.json", job);
    snprintf(line, sizeof line,
             "rm -rf run; \"$H\" train job.json --set train.accumulate=%d > log 2>&1 || cat log; cat run/metrics.jsonl",
             accumulate);
    int status;
    const char *at = run(c, line, &status);
    for (int i = 0; i < steps; i++) {
        snprintf(key, sizeof key, "\"step\": %d,", i + 1);
        const char *found = strstr(at, key), *value = found ? strstr(found, "\"loss\": ") : NULL;
        if (!value) fail_msg("%s with %d micro-batches: no step %d in: %.2000s", t->name, accumulate, i + 1, at);
        loss[i] = strtod(value + strlen("\"loss\": "), NULL);
    }
}

static void expect_near(const cut_case *t, int accumulate, int step, double got, double want, double bound)
{
    double apart = fabs(got - want) / fmax(1, fabs(want));
    if (!(apart <= bound))
        fail_msg("%s: the loss of step %d is %.9g with %d micro-batches and %.9g with one: %.2g apart, not %.2g",
                 t->name, step, got, accumulate, want, apart, bound);
}

static void compare_cuts(data_case *c, const cut_case *t)
{
    double whole[MOST_STEPS], cut[MOST_STEPS];
    int steps = wanted_steps();
    train(c, t, 1, steps, whole);
    assert_true(isfinite(whole[steps - 1]) && whole[0] > 0);
    for (int accumulate = 2; accumulate <= 4; accumulate += 2) {
        train(c, t, accumulate, steps, cut);
        expect_near(t, accumulate, 1, cut[0], whole[0], 1e-6);
        expect_near(t, accumulate, steps, cut[steps - 1], whole[steps - 1], 1e-4);
    }
}

static void micro_batches__make_the_step_of_the_whole_batch(void **state)
{
    data_case *c = *state;
    write_text(c);
    write_pairs(c);
    write_images(c);
    write_table(c);
    for (int i = 0; i < CASES; i++) compare_cuts(c, &cases[i]);
}

/* The stated exception: a micro-batch is normalised by itself. */
static void micro_batches__have_statistics_of_their_own_in_batch_norm(void **state)
{
    static const cut_case resnet = {"resnet", "\"type\": \"resnet\", \"width\": 4, \"stem\": \"cifar\"", DIGITS, ""};
    data_case *c = *state;
    double whole, cut;
    write_images(c);
    train(c, &resnet, 1, 1, &whole);
    train(c, &resnet, 4, 1, &cut);
    assert_true(isfinite(cut) && fabs(whole - cut) > 1e-4);
}

/* The place in the data goes on with the next whole step, and what was carried for other rows begins anew. */
static void micro_batches__may_become_more_on_a_resume(void **state)
{
    data_case *c = *state;
    const cut_case *lstm = &cases[4];
    double loss[3];
    write_text(c);
    train(c, lstm, 2, 3, loss);
    expect(c, "\"$H\" train job.json --resume --set train.accumulate=4 --set train.batch=16 --set train.steps=5", 0,
           "2 micro-batches are left out");
    expect(c, "grep -c '\"kind\": \"step\"' run/metrics.jsonl", 0, "5\n");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(micro_batches__make_the_step_of_the_whole_batch),
        CASE(micro_batches__may_become_more_on_a_resume),
        CASE(micro_batches__have_statistics_of_their_own_in_batch_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
