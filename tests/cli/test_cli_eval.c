/* halftone eval needs the folder of the run and the data to evaluate on, and nothing else: not the files that were
 * trained on, not the folder that the run was started from. */
#include <png.h>

#include "cli_case.h"

/* ---- data: files to train on in "train/", others in "held/" ---- */

static const char *const parts[] = {"train", "held"};

static void write_text(data_case *c)
{
    static char text[4000], lines[8000];
    char name[64];
    for (int part = 0; part < 2; part++) {
        size_t length = 0, bytes = 0;
        for (int i = part * 500; length + 64 < sizeof text / (1 + (size_t)part); i++) {
            int one = snprintf(text + length, 64, "%d times %d makes %d.\n", i % 13, i % 7, (i % 13) * (i % 7));
            bytes += (size_t)snprintf(lines + bytes, 100, "{\"text\": \"%.*s\"}\n", one - 1, text + length);
            length += (size_t)one;
        }
        snprintf(name, sizeof name, "%s/sums.txt", parts[part]);
        data_case_text(c, name, text);
        snprintf(name, sizeof name, "%s/sums.jsonl", parts[part]);
        data_case_text(c, name, lines);
    }
}

/* Tokens of the held-out part stay below the largest of those to train on. */
static void write_shards(data_case *c)
{
    static uint16_t tokens[1200];
    for (int part = 0; part < 2; part++) {
        for (int i = 0; i < 1200; i++) tokens[i] = (uint16_t)(i * 7 % (part ? 20 : 31));
        data_case_file(c, part ? "held/tokens.bin" : "train/tokens.bin", tokens, sizeof tokens);
    }
}

/* Longer sentences, more classes and other values among those to train on. */
static void write_lines(data_case *c)
{
    static const char *const words[][2] = {{"one", "un"}, {"two", "deux"}, {"cat", "chat"}, {"dog", "chien"}};
    static char pairs[16000], sentences[16000], table[16000], name[64];
    for (int part = 0; part < 2; part++) {
        size_t at = 0, length = 0, cells = 0;
        for (int i = 0; i < (part ? 30 : 120); i++) {
            for (int side = 0; side < 2; side++) {
                for (int k = 0; k <= i % (part ? 3 : 7); k++)
                    at += (size_t)snprintf(pairs + at, 16, "%s%s", k ? " " : "", words[(i / 5 + k * 3) % 4][side]);
                at += (size_t)snprintf(pairs + at, 4, "%c", side ? '\n' : '\t');
            }
            length +=
                (size_t)snprintf(sentences + length, 64, "%s %s %d\t%s\n", words[i % 4][0], words[i / 3 % 4][0], i % 9,
                                 part         ? "b"
                                 : i % 3 == 0 ? "a"
                                 : i % 3 == 1 ? "b"
                                              : "c");
            cells += (size_t)snprintf(table + cells, 64, "%d,%d,%s\n", i * 3 % 50 + part * 9, i % 11,
                                      part    ? "no"
                                      : i % 3 ? "no"
                                              : "yes");
        }
        snprintf(name, sizeof name, "%s/pairs.tsv", parts[part]);
        data_case_text(c, name, pairs);
        snprintf(name, sizeof name, "%s/sentences.tsv", parts[part]);
        data_case_text(c, name, sentences);
        snprintf(name, sizeof name, "%s/table.csv", parts[part]);
        data_case_text(c, name, table);
    }
}

static void write_digits(data_case *c)
{
    enum { SIDE = 8, MOST = 60 };
    for (int part = 0; part < 2; part++) {
        int count = part ? 20 : MOST;
        unsigned char images[16 + MOST * SIDE * SIDE] = {0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
        unsigned char labels[8 + MOST] = {0, 0, 8, 1, 0, 0, 0, 0};
        images[7] = labels[7] = (unsigned char)count;
        for (int i = 0; i < count; i++) {
            labels[8 + i] = (unsigned char)(i % (part ? 2 : 4));
            for (int p = 0; p < SIDE * SIDE; p++)
                images[16 + i * SIDE * SIDE + p] = (unsigned char)(i % 4 * 50 + i * p % 40);
        }
        data_case_file(c, part ? "held/x-images-idx3-ubyte" : "train/x-images-idx3-ubyte", images,
                       16 + (size_t)count * SIDE * SIDE);
        data_case_file(c, part ? "held/x-labels-idx1-ubyte" : "train/x-labels-idx1-ubyte", labels, 8 + (size_t)count);
    }
}

/* Arrays as NumPy writes them: f32[count, 3] and i32[count]. */
static void write_arrays(data_case *c)
{
    enum { HEADER = 128, MOST = 40 };
    for (int part = 0; part < 2; part++) {
        int count = part ? 12 : MOST;
        unsigned char x[HEADER + MOST * 3 * sizeof(float)], y[HEADER + MOST * sizeof(int32_t)];
        for (int i = 0; i < count; i++) {
            float row[3] = {(float)(i % 5), (float)(i % 7), (float)part};
            int32_t label = i % (part ? 2 : 5);
            memcpy(x + HEADER + (size_t)i * sizeof row, row, sizeof row);
            memcpy(y + HEADER + (size_t)i * sizeof label, &label, sizeof label);
        }
        memset(x, ' ', HEADER);
        memset(y, ' ', HEADER);
        memcpy(x, "\x93NUMPY\x01\x00\x76\x00", 10);
        memcpy(y, "\x93NUMPY\x01\x00\x76\x00", 10);
        int length = snprintf((char *)x + 10, HEADER - 10,
                              "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 3), }", count);
        x[10 + length] = ' ';
        length =
            snprintf((char *)y + 10, HEADER - 10, "{'descr': '<i4', 'fortran_order': False, 'shape': (%d,), }", count);
        y[10 + length] = ' ';
        x[HEADER - 1] = y[HEADER - 1] = '\n';
        data_case_file(c, part ? "held/x.npy" : "train/x.npy", x, HEADER + (size_t)count * 3 * sizeof(float));
        data_case_file(c, part ? "held/y.npy" : "train/y.npy", y, HEADER + (size_t)count * sizeof(int32_t));
    }
}

static void write_picture(data_case *c, const char *name, int value)
{
    uint8_t pixels[36];
    char path[512];
    png_image image = {.version = PNG_IMAGE_VERSION, .width = 6, .height = 6, .format = PNG_FORMAT_GRAY};
    for (int i = 0; i < 36; i++) pixels[i] = (uint8_t)(value + i % 5);
    data_case_text(c, name, "");
    snprintf(path, sizeof path, "%s", data_case_path(c, name));
    assert_int_not_equal(png_image_write_to_file(&image, path, 0, pixels, 0, NULL), 0);
}

/* Three classes to train on, one of them held out. */
static void write_pictures(data_case *c)
{
    char name[64];
    expect(c, "mkdir -p pictures held_pictures", 0, "");
    for (int i = 0; i < 18; i++) {
        snprintf(name, sizeof name, "pictures_%c/%d.png", 'a' + i % 3, i);
        write_picture(c, name, i % 3 * 80);
    }
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "held_b/%d.png", i);
        write_picture(c, name, 80 + i);
    }
    expect(c, "for k in a b c; do mv pictures_$k train/pictures/$k; done; mv held_b held/pictures/b", 0, "");
}

/* ---- jobs ---- */

typedef struct eval_case {
    const char *name, *model, *data; /* blocks without their brackets */
} eval_case;

#define GPT2        "\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16"
#define MLP         "\"type\": \"mlp\", \"hidden\": [8]"
#define FILES(name) "\"train\": \"train/" name "\", \"validation\": \"held/" name "\""

static const eval_case cases[] = {
    {"text", GPT2, "\"format\": \"text\", \"tokenizer\": \"char\", \"length\": 16, " FILES("sums.txt")},
    {"stream", "\"type\": \"lstm_lm\", \"hidden\": 8, \"layers\": 1",
     "\"format\": \"text\", \"length\": 8, \"order\": \"stream\", " FILES("sums.txt")},
    {"jsonl", GPT2, "\"format\": \"jsonl\", \"tokenizer\": \"char\", \"length\": 16, " FILES("sums.jsonl")},
    {"shards", GPT2, "\"format\": \"shards\", \"length\": 16, " FILES("tokens.bin")},
    {"mixture", GPT2,
     "\"format\": \"mixture\", \"tokenizer\": \"char\", \"length\": 16, \"sources\": [{\"format\": \"text\", " FILES(
         "sums.txt") "}, {\"format\": \"jsonl\", " FILES("sums.jsonl") "}]"},
    {"pairs", "\"type\": \"seq2seq\", \"hidden\": 8, \"layers\": 1",
     "\"format\": \"pairs\", \"minimum_count\": 1, \"buckets\": 3, " FILES("pairs.tsv")},
    {"sentences",
     "\"type\": \"bert\", \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"hidden_size\": 16, "
     "\"intermediate_size\": 16",
     "\"format\": \"sentences\", \"minimum_count\": 1, \"length\": 8, " FILES("sentences.tsv")},
    {"table", MLP, "\"format\": \"table\", " FILES("table.csv")},
    {"idx", MLP, "\"format\": \"idx\", " FILES("x-images-idx3-ubyte")},
    {"arrays", MLP,
     "\"format\": \"arrays\", \"train_labels\": \"train/y.npy\", \"validation_labels\": \"held/y.npy\", " FILES(
         "x.npy")},
    {"images", MLP, "\"format\": \"images\", \"channels\": 1, " FILES("pictures")},
};

static void write_all(data_case *c)
{
    expect(c, "mkdir -p train/pictures held/pictures", 0, "");
    write_text(c);
    write_shards(c);
    write_lines(c);
    write_digits(c);
    write_arrays(c);
    write_pictures(c);
}

static void train(data_case *c, const eval_case *one)
{
    char job[2048];
    snprintf(job, sizeof job,
             "{\"model\": {%s}, \"data\": {%s}, \"train\": {\"steps\": 3, \"batch\": 4, \"output\": \"run\"}}\n",
             one->model, one->data);
    data_case_text(c, "job.json", job);
    expect(c, "rm -rf run; \"$H\" train job.json", 0, "step 3 of 3");
}

/* Step and loss, to the last digit, of a JSON object that the line prints. */
static void evaluate(const data_case *c, const char *line, char *out, size_t capacity)
{
    int status;
    const char *said = run(c, line, &status), *at = strstr(said, "\"step\": ");
    if (status != 0 || !at) fail_msg("%s: exit status %d:\n%s", line, status, said);
    snprintf(out, capacity, "%s", at);
    char *loss = strstr(out, "\"loss\": ");
    assert_non_null(loss);
    loss[strcspn(loss, ",")] = '\0';
}

/* ---- the tests ---- */

static void eval__needs_neither_the_training_files_nor_the_folder_of_the_start(void **state)
{
    data_case *c = *state;
    char with[512], without[512];
    write_all(c);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        train(c, &cases[i]);
        /* What the run itself found, when it had read its training files. */
        evaluate(c, "grep eval run/metrics.jsonl | tail -n 1", with, sizeof with);
        evaluate(c, "mv train away; mkdir -p far; cd far; \"$H\" eval ../run --json", without, sizeof without);
        expect(c, "mv away train", 0, "");
        if (strcmp(with, without) != 0)
            fail_msg("%s: %s\nwithout its training files: %s", cases[i].name, with, without);
    }
}

/* Files of the command line lie where the process is, and a share that is held out is in the training file. */
static void eval__finds_what_the_command_line_names(void **state)
{
    data_case *c = *state;
    char with[512], without[512];
    static const eval_case shared = {
        "share", GPT2, "\"format\": \"text\", \"tokenizer\": \"char\", \"length\": 16, \"train\": \"train/sums.txt\""};
    write_all(c);
    train(c, &shared);
    evaluate(c, "\"$H\" eval run --json --set data.validation=held/sums.txt", with, sizeof with);
    evaluate(c, "mv train away; cd held; \"$H\" eval ../run --json --set data.validation=sums.txt", without,
             sizeof without);
    assert_string_equal(with, without);
    expect(c, "\"$H\" eval run", 1, "train/sums.txt");
    expect(c, "mv away train; mkdir -p far; cd far; \"$H\" eval ../run", 0, "loss ");
}

/* A model of the user's own is a file, too: the run keeps a copy. */
static void eval__needs_no_file_of_the_model(void **state)
{
    data_case *c = *state;
    char with[512], without[512];
    static const eval_case own = {"graph", "\"type\": \"graph\", \"file\": \"model.ht\"",
                                  "\"format\": \"table\", " FILES("table.csv")};
    write_all(c);
    data_case_text(c, "model.ht",
                   "state %w f32[2,2] init=normal(0,0.3) trained\n"
                   "segment forward (%x f32[4,2], %label i32[4]) -> (loss=%loss) {\n"
                   "  %y = matmul f32[4,2] (%x, %w)\n"
                   "  %loss, %lse = cross_entropy f32[], f32[4] (%y, %label)\n"
                   "}\n");
    train(c, &own);
    evaluate(c, "grep eval run/metrics.jsonl | tail -n 1", with, sizeof with);
    evaluate(c,
             "rm -rf train model.ht job.json; mkdir -p far; cd far; "
             "\"$H\" eval ../run --json",
             without, sizeof without);
    assert_string_equal(with, without);
    expect(c, "sed -i 's/matmul/matmuL/' run/model.file; \"$H\" eval run", 2, "run/model.file: checksum ");
    expect(c, "rm run/model.file; \"$H\" eval run", 2, "run/model.file: No such file");
}

/* The run and its data, carried to another place. */
static void eval__works_where_run_and_data_were_moved_to(void **state)
{
    data_case *c = *state;
    char with[512], without[512];
    write_all(c);
    train(c, &cases[0]);
    evaluate(c, "\"$H\" eval run --json", with, sizeof with);
    evaluate(c, "mkdir moved; mv run held moved; rm -r train; cd moved; \"$H\" eval run --json", without,
             sizeof without);
    assert_string_equal(with, without);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(eval__needs_neither_the_training_files_nor_the_folder_of_the_start),
        CASE(eval__finds_what_the_command_line_names),
        CASE(eval__needs_no_file_of_the_model),
        CASE(eval__works_where_run_and_data_were_moved_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
