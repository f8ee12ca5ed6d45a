/* halftone compress, quantize with calibration.data: files of another task than the run's are refused by name, wherever one can see
 * that they are. */
#include "cli_case.h"

/* A picture file of so many pixels a side, and its labels. */
static void write_images(data_case *c, const char *name, int side)
{
    enum { IMAGES = 40, MOST_SIDE = 12 };
    unsigned char images[16 + IMAGES * MOST_SIDE * MOST_SIDE] = {0, 0, 8, 3, 0, 0, 0, IMAGES},
                                                   labels[8 + IMAGES] = {0, 0, 8, 1, 0, 0, 0, IMAGES};
    char file[64];
    images[11] = images[15] = (unsigned char)side;
    for (int i = 0; i < IMAGES; i++) labels[8 + i] = (unsigned char)(i % 4);
    for (int p = 0; p < IMAGES * side * side; p++) images[16 + p] = (unsigned char)(p * 13 % 251);
    snprintf(file, sizeof file, "%s-images-idx3-ubyte", name);
    data_case_file(c, file, images, (size_t)(16 + IMAGES * side * side));
    snprintf(file, sizeof file, "%s-labels-idx1-ubyte", name);
    data_case_file(c, file, labels, sizeof labels);
}

/* Lines that are made of the one before them, by a format with one number. */
static void write_lines(data_case *c, const char *name, const char *format, int lines)
{
    ht_text text = {0};
    for (int i = 0; i < lines; i++) {
        char line[256];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(line, sizeof line, format, i % 9);
#pragma GCC diagnostic pop
        ht_text_add(&text, "%s\n", line);
    }
    data_case_text(c, name, text.data);
    ht_text_free(&text);
}

typedef struct task {
    const char *model, *data;
    const char *other, *message; /* NULL: calibration takes it */
} task;

#define GPT2 "\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16"
#define MLP  "\"type\": \"mlp\", \"hidden\": [8]"
#define PAIRS                                                                                                          \
    "\"format\": \"pairs\", \"train\": \"own.tsv\", \"minimum_count\": 1, \"buckets\": 1, \"validation_share\": 0.2"
#define SENTENCES                                                                                                      \
    "\"format\": \"sentences\", \"train\": \"own.tsv\", \"validation\": \"own.tsv\", \"minimum_count\": 1, "           \
    "\"length\": 8"
#define BERT                                                                                                           \
    "\"type\": \"bert\", \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"hidden_size\": 16, "                  \
    "\"intermediate_size\": 16"

static const task tasks[] = {
    {GPT2, "\"format\": \"text\", \"train\": \"own.txt\", \"tokenizer\": \"char\", \"length\": 8", "greek.txt",
     "is not in the vocabulary"},
    {GPT2, "\"format\": \"text\", \"train\": \"own.txt\", \"tokenizer\": \"char\", \"length\": 8", "own.txt", NULL},
    {MLP, "\"format\": \"idx\", \"train\": \"own-images-idx3-ubyte\", \"validation_share\": 0.2",
     "small-images-idx3-ubyte", "layers.0.weight"},
    {MLP, "\"format\": \"table\", \"train\": \"own.csv\", \"validation_share\": 0.2", "wide.csv", "layers.0.weight"},
    {MLP, "\"format\": \"table\", \"train\": \"own.csv\", \"label\": \"kind\", \"validation_share\": 0.2", "named.csv",
     "has no column \"kind\""},
    {"\"type\": \"seq2seq\", \"hidden\": 8, \"layers\": 1", PAIRS, "pairs.tsv",
     "tokens are not in the run's vocabulary"},
    {BERT, SENTENCES, "foreign.tsv", "tokens are not in the run's vocabulary"},
};

static int begin(void **state)
{
    if (data_case_begin(state) != 0) return -1;
    data_case *c = *state;
    write_images(c, "own", 12);
    write_images(c, "small", 8);
    write_lines(c, "own.txt", "%d plus one is more", 60);
    write_lines(c, "greek.txt", "%d \xce\xba\xce\xb1\xce\xb9 \xce\xad\xce\xbd\xce\xb1", 60);
    write_lines(c, "own.tsv", "so many as %1$d we have\tgood%1$d", 60);
    write_lines(c, "foreign.tsv", "tant que cela n'y suffit point %1$d\tgood%1$d", 60);
    write_lines(c, "pairs.tsv", "so many as %1$d we have\tbien beaucoup de %1$d", 60);
    return 0;
}

static void write_tables(data_case *c)
{
    ht_text own = {0}, wide = {0}, named = {0};
    ht_text_add(&own, "a,b,kind\n");
    ht_text_add(&wide, "a,b,c,kind\n");
    ht_text_add(&named, "a,b,sort\n");
    for (int i = 0; i < 60; i++) {
        ht_text_add(&own, "%d,%d,k%d\n", i % 7, i % 5, i % 3);
        ht_text_add(&wide, "%d,%d,%d,k%d\n", i % 7, i % 5, i, i % 3);
        ht_text_add(&named, "%d,%d,k%d\n", i % 7, i % 5, i % 3);
    }
    data_case_text(c, "own.csv", own.data);
    data_case_text(c, "wide.csv", wide.data);
    data_case_text(c, "named.csv", named.data);
    ht_text_free(&own);
    ht_text_free(&wide);
    ht_text_free(&named);
}

static void files__of_another_task_are_refused_by_name(void **state)
{
    data_case *c = *state;
    write_tables(c);
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++) {
        const task *t = &tasks[i];
        char text[1024], named[128];
        snprintf(text, sizeof text,
                 "{\"model\": {%s}, \"data\": {%s}, \"train\": {\"steps\": 2, \"batch\": 4, \"eval_every\": 0, "
                 "\"output\": \"run\"}}",
                 t->model, t->data);
        data_case_text(c, "job.json", text);
        expect(c, "rm -rf run out && \"$H\" train job.json", 0, "");
        snprintf(text, sizeof text,
                 "{\"steps\": [{\"quantize\": {\"keep_slower\": true, \"calibration\": {\"batches\": 2, \"data\": "
                 "\"%s\"}}}]}",
                 t->other);
        data_case_text(c, "recipe.json", text);
        snprintf(named, sizeof named, "quantize.calibration.data \"%s\": ", t->other);
        if (t->message) expect(c, "\"$H\" compress run recipe.json -o out", 2, named);
        expect(c, "\"$H\" compress run recipe.json -o out", t->message ? 2 : 0, t->message ? t->message : "");
        if (t->message) expect(c, "! ls -d out out.partial 2>/dev/null", 0, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files__of_another_task_are_refused_by_name, begin, data_case_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
