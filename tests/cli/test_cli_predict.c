/* halftone predict: answers from a run's folder alone, the same as eval judges, whatever is asked beside them. */
#include <png.h>

#include "cli_case.h"

/* ---- data and runs ---- */

/* Points of three classes that overlap, by shell: x, y, label. */
static const char write_points[] =
    "set -e; mkdir -p train held far; "
    "points() { awk -v n=$1 -v s=$2 'BEGIN { srand(s); for (i = 0; i < n; i++) { c = i % 3; "
    "printf \"%.4f,%.4f,%s\\n\", 50 * c + 90 * rand(), 3 - c + 4 * rand(), substr(\"redtanice\", 3 * c + 1, 3) } }'; "
    "}; "
    "points 240 1 > train/points.csv; points 100 2 > held/points.csv";

static const char write_sentences[] =
    "set -e; mkdir -p train held far; "
    "lines() { awk -v n=$1 -v s=$2 'BEGIN { srand(s); split(\"good fine nice bad poor dull film plot cast\", w, \" "
    "\"); "
    "for (i = 0; i < n; i++) { c = i % 2; l = 2 + int(6 * rand()); t = \"\"; for (k = 0; k < l; k++) "
    "t = t (k ? \" \" : \"\") w[(rand() < 0.5 ? 3 * c : rand() < 0.3 ? 3 - 3 * c : 6) + 1 + int(3 * rand())]; "
    "print t \"\\t\" (c ? \"no\" : \"yes\") } }'; }; "
    "lines 200 1 > train/lines.tsv; lines 80 2 > held/lines.tsv";

static const char write_pairs[] =
    "set -e; mkdir -p train held far; "
    "pairs() { awk -v n=$1 -v s=$2 'BEGIN { srand(s); split(\"one two cat dog sees\", a, \" \"); "
    "split(\"un deux chat chien voit\", b, \" \"); for (i = 0; i < n; i++) { l = 1 + int(5 * rand()); x = y = \"\"; "
    "for (k = 0; k < l; k++) { w = 1 + int(5 * rand()); x = x (k ? \" \" : \"\") a[w]; y = y (k ? \" \" : \"\") b[w] } "
    "print x \"\\t\" y } }'; }; pairs 300 1 > train/pairs.tsv; pairs 40 2 > held/pairs.tsv";

/* Eight by eight pixels as IDX and, the first of them, in other formats. */
static void write_digits(data_case *c)
{
    enum { SIDE = 8, PIXELS = SIDE * SIDE, COUNT = 90 };
    static unsigned char images[16 + COUNT * PIXELS] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    unsigned char labels[8 + COUNT] = {0, 0, 8, 1, 0, 0, 0, COUNT}, npy[128 + PIXELS], pgm[14 + PIXELS];
    static const unsigned char magic[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0};
    char csv[PIXELS * 4 + 1];
    for (int i = 0; i < COUNT; i++) {
        labels[8 + i] = (unsigned char)(i % 4);
        for (int p = 0; p < PIXELS; p++)
            images[16 + i * PIXELS + p] = (unsigned char)(i % 4 * 30 + (i * 37 + p * 11) % 150);
    }
    data_case_file(c, "train/x-images-idx3-ubyte", images, sizeof images);
    data_case_file(c, "train/x-labels-idx1-ubyte", labels, sizeof labels);
    memset(npy, ' ', 128);
    memcpy(npy, magic, sizeof magic);
    int length = snprintf((char *)npy + 10, 118, "{'descr': '|u1', 'fortran_order': False, 'shape': (8, 8), }");
    npy[10 + length] = ' ';
    npy[127] = '\n';
    memcpy(pgm, "P5 8 8 # \n255\n", sizeof pgm - PIXELS);
    memcpy(npy + 128, images + 16, PIXELS);
    memcpy(pgm + 14, images + 16, PIXELS);
    size_t at = 0;
    for (int p = 0; p < PIXELS; p++)
        at += (size_t)snprintf(csv + at, 5, "%d%s", images[16 + p], p < PIXELS - 1 ? "," : "\n");
    data_case_file(c, "held/one.npy", npy, sizeof npy);
    data_case_file(c, "held/one.pgm", pgm, sizeof pgm);
    data_case_text(c, "held/one.csv", csv);
}

/* Colour pictures of several sizes, in folders of two classes. */
static void write_pictures(data_case *c)
{
    uint8_t pixels[12 * 9 * 3];
    char name[64], path[512];
    for (int i = 0; i < 24; i++) {
        png_image image = {.version = PNG_IMAGE_VERSION, .format = PNG_FORMAT_RGB};
        image.width = 6 + (png_uint_32)i % 7;
        image.height = 5 + (png_uint_32)i % 5;
        for (size_t p = 0; p < sizeof pixels; p++) pixels[p] = (uint8_t)((p * 29 + (size_t)i * 53) % 180 + i % 2 * 8);
        snprintf(name, sizeof name, "pictures_%c/%d.png", 'a' + i % 2, i);
        data_case_text(c, name, "");
        snprintf(path, sizeof path, "%s", data_case_path(c, name));
        assert_int_not_equal(png_image_write_to_file(&image, path, 0, pixels, 0, NULL), 0);
    }
    expect(c, "set -e; mkdir pictures; mv pictures_a pictures/a; mv pictures_b pictures/b", 0, "");
}

static void train(data_case *c, const char *model, const char *data, const char *more)
{
    char job[1024];
    snprintf(job, sizeof job,
             "{\"model\": {%s}, \"data\": {%s}, \"train\": {\"batch\": 40, \"lr\": 0.01, \"eval_every\": 0, "
             "\"output\": \"run\"%s}}\n",
             model, data, more);
    data_case_text(c, "job.json", job);
    expect(c, "set -e; rm -rf run; \"$H\" train job.json", 0, "");
}

#define MLP    "\"type\": \"mlp\", \"hidden\": [8]"
#define POINTS "\"format\": \"table\", \"train\": \"train/points.csv\", \"validation\": \"held/points.csv\""
#define LINES                                                                                                          \
    "\"format\": \"sentences\", \"minimum_count\": 1, \"length\": 8, \"train\": \"train/lines.tsv\", "                 \
    "\"validation\": \"held/lines.tsv\""
#define BERT                                                                                                           \
    "\"type\": \"bert\", \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"hidden_size\": 16, "                  \
    "\"intermediate_size\": 16"
#define PAIRS                                                                                                          \
    "\"format\": \"pairs\", \"minimum_count\": 1, \"buckets\": 3, \"train\": \"train/pairs.tsv\", "                    \
    "\"validation\": \"held/pairs.tsv\""

static void train_points(data_case *c)
{
    expect(c, write_points, 0, "");
    train(c, MLP, POINTS, ", \"steps\": 60");
}

static void train_lines(data_case *c)
{
    expect(c, write_sentences, 0, "");
    train(c, BERT, LINES, ", \"steps\": 60");
}

static void train_pairs(data_case *c)
{
    expect(c, write_pairs, 0, "");
    train(c, "\"type\": \"seq2seq\", \"hidden\": 16, \"layers\": 1", PAIRS, ", \"steps\": 120");
}

/* ---- as eval judges ---- */

/* The share of answers that are the wanted ones, in the file "want", is the accuracy that eval finds; it is told. */
#define COMPARE_WITH_EVAL                                                                                              \
    "; paste got want | awk -F'\\t' '$1 == $2 { n++ } END { printf \"%.5f\\n\", n / NR }' > share; "                   \
    "\"$H\" eval run --json | sed 's/.*\"accuracy\": \\([0-9.]*\\),.*/\\1/' | awk '{ printf \"%.5f\\n\", $1 }' > "     \
    "found; "                                                                                                          \
    "cat share; cmp share found; awk '$1 > 0.5 && $1 < 1 { print \"some right, some wrong\" }' share"

static void predict__agrees_with_the_accuracy_of_eval(void **state)
{
    data_case *c = *state;
    train_points(c);
    expect(c,
           "set -e; \"$H\" predict run held/points.csv | cut -f2 > got; cut -d, -f3 held/points.csv > "
           "want" COMPARE_WITH_EVAL,
           0, "some right, some wrong");
    train_lines(c);
    expect(c,
           "set -e; \"$H\" predict run held/lines.tsv | cut -f2 > got; cut -f2 held/lines.tsv > want" COMPARE_WITH_EVAL,
           0, "some right, some wrong");
}

/* Files are resized and normalized as those that were trained on. */
static void predict__agrees_with_the_accuracy_of_eval_on_images(void **state)
{
    data_case *c = *state;
    write_pictures(c);
    train(c, MLP,
          "\"format\": \"images\", \"size\": [4, 5], \"mean\": [0.3, 0.4, 0.5], \"std\": 0.2, \"train\": \"pictures\", "
          "\"validation\": \"pictures\"",
          ", \"steps\": 2");
    expect(c,
           "set -e; \"$H\" predict run pictures/*/*.png > all; cut -f2 all > got; cut -d/ -f2 all > "
           "want" COMPARE_WITH_EVAL,
           0, "some right, some wrong");
}

static void predict__translates_as_eval_does_for_its_bleu(void **state)
{
    data_case *c = *state;
    train_pairs(c);
    for (int beam = 1; beam <= 3; beam += 2) {
        char line[512];
        snprintf(line, sizeof line,
                 "set -e; \"$H\" predict run held/pairs.tsv --beam %d | cut -f2 > got; cut -f2 held/pairs.tsv > want; "
                 "\"$H\" eval --hypotheses got --references want | grep bleu > share; "
                 "\"$H\" eval run --bleu 13a --beam %d | grep bleu > found; cat share found; cmp share found",
                 beam, beam);
        expect(c, line, 0, "bleu ");
    }
}

/* ---- batches ---- */

static void predict__answers_do_not_depend_on_what_else_is_asked(void **state)
{
    data_case *c = *state;
    train_points(c);
    expect(c,
           "set -e; \"$H\" predict run held/points.csv --json --logits | sed 's/.*\"class\"//' > all; "
           "for i in 1 7 60 100; do sed -n ${i}p held/points.csv | \"$H\" predict run - --json --logits | "
           "sed 's/.*\"class\"//' > one; sed -n ${i}p all | cmp - one; done; wc -l < all",
           0, "100");
    train_pairs(c);
    expect(c,
           "set -e; \"$H\" predict run held/pairs.tsv --json > all; "
           "for i in 1 7 40; do sed -n ${i}p held/pairs.tsv | \"$H\" predict run - --json > one; "
           "sed -n ${i}p all | cmp - one; done; wc -l < all",
           0, "40");
}

/* Kernels for a few rows may round the last digits differently. */
static void predict__batch_size_does_not_change_the_result(void **state)
{
    data_case *c = *state;
    static const char compare[] =
        "for b in 1 2 7 32 100 1000; do \"$H\" predict run $F --batch $b > other; cut -f1,2 other | cmp - named; "
        "paste all other | awk -F'\\t' '($3 - $6)^2 > 2e-8 { exit 1 }'; done; echo all the same";
    char line[1024];
    train_points(c);
    snprintf(line, sizeof line, "set -e; F=held/points.csv; \"$H\" predict run $F > all; cut -f1,2 all > named; %s",
             compare);
    expect(c, line, 0, "all the same");
    train_pairs(c);
    snprintf(line, sizeof line, "set -e; F=held/pairs.tsv; \"$H\" predict run $F > all; cut -f1,2 all > named; %s",
             compare);
    expect(c, line, 0, "all the same");
}

static void predict__has_the_same_bits_on_the_fake_device_and_with_other_threads(void **state)
{
    data_case *c = *state;
    train_lines(c);
    expect(c,
           "set -e; \"$H\" predict run held/lines.tsv --json --logits > all; "
           "\"$H\" predict run held/lines.tsv --json --logits --device fake | cmp - all; "
           "OMP_NUM_THREADS=1 \"$H\" predict run held/lines.tsv --json --logits | cmp - all; echo same",
           0, "same");
}

/* ---- inputs ---- */

static void predict__needs_the_folder_of_the_run_alone(void **state)
{
    data_case *c = *state;
    train_points(c);
    expect(c, "set -e; rm -rf train job.json; mv held far; cd far; \"$H\" predict ../run held/points.csv | head -n 1",
           0, "held/points.csv:1\t");
    train_lines(c);
    expect(c, "set -e; rm -rf train job.json; cd far; echo 'good film' | \"$H\" predict ../run -", 0, "good film\t");
}

static void predict__answers_while_the_run_trains(void **state)
{
    data_case *c = *state;
    train_points(c);
    expect(
        c,
        "rm -rf run; \"$H\" train job.json --set train.steps=1000000 --set train.snapshot_every=20 > log 2>&1 & p=$!; "
        "until ls run/snapshots/step-* > /dev/null 2>&1 || ! kill -0 $p; do sleep 0.05; done; good=0; "
        "for i in 1 2 3 4 5; do \"$H\" predict run held/points.csv > out && good=$((good + $(wc -l < out))); done; "
        "kill -TERM $p; wait $p; echo \"$good answers, train ended with $?\"",
        0, "500 answers, train ended with 3");
}

static void predict__reads_an_image_in_any_format_alike(void **state)
{
    data_case *c = *state;
    expect(c, "set -e; mkdir -p train held", 0, "");
    write_digits(c);
    train(c, MLP, "\"format\": \"idx\", \"mean\": 0.3, \"std\": 0.2, \"train\": \"train/x-images-idx3-ubyte\"",
          ", \"steps\": 40");
    expect(
        c,
        "set -e; \"$H\" predict run train/x-images-idx3-ubyte held/one.npy held/one.pgm held/one.csv --json --logits > "
        "all; "
        "sed -n '1p;91,93p' all | sed 's/.*\"class\"//' | sort -u | wc -l; sed 's/, .*//' all | sed -n '1p;2p;91,93p'",
        0,
        "1\n{\"input\": \"train/x-images-idx3-ubyte[0]\"\n{\"input\": \"train/x-images-idx3-ubyte[1]\"\n"
        "{\"input\": \"held/one.npy\"\n{\"input\": \"held/one.pgm\"\n{\"input\": \"held/one.csv:1\"\n");
    expect(c, "set -e; gzip -k held/one.pgm; \"$H\" predict run held/one.pgm.gz", 0, "held/one.pgm.gz\t0\t");
    expect(c, "printf 'P5 4 4 255\\n0123456789abcdef' > held/small.pgm; \"$H\" predict run held/small.pgm", 2,
           "held/small.pgm: 4 by 4 pixels, the run was trained on images of 8 by 8");
}

/* Features by position, a label or none beside them, names of columns or none. */
static void predict__takes_rows_with_and_without_labels(void **state)
{
    data_case *c = *state;
    train_points(c);
    expect(c,
           "set -e; \"$H\" predict run held/points.csv | cut -f2,3 > all; cut -d, -f1,2 held/points.csv > bare.csv; "
           "\"$H\" predict run bare.csv | cut -f2,3 | cmp - all; "
           "(echo first,second; cat bare.csv) | \"$H\" predict run - | cut -f2,3 | cmp - all; echo same",
           0, "same");
}

static void predict__gives_values_without_a_probability(void **state)
{
    data_case *c = *state;
    expect(c, write_points, 0, "");
    train(c, MLP, POINTS ", \"label\": 1, \"features\": [0]", ", \"task\": \"regression\", \"steps\": 5");
    expect(c, "\"$H\" predict run held/points.csv | grep -c '^held/points.csv:[0-9]*\t[-0-9.e]*$'", 0, "100");
    expect(c, "\"$H\" predict run held/points.csv --json | grep -c '\"value\": [-0-9.e]*, \"probability\": null}$'", 0,
           "100");
}

static void predict__keeps_empty_lines_in_their_place(void **state)
{
    data_case *c = *state;
    train_pairs(c);
    expect(c, "printf 'one cat\\n\\ntwo dog\\n' | \"$H\" predict run - --json | sed -n 2p", 0,
           "{\"input\": \"\", \"text\": \"\", \"probability\": null}\n");
    expect(c, "printf 'one cat\\n\\ntwo dog\\n' | \"$H\" predict run - | cut -f1", 0, "one cat\n\ntwo dog\n");
    expect(c, "set -e; \"$H\" predict run - < /dev/null; echo nothing asked", 0, "nothing asked");
    train_lines(c);
    expect(c, "printf '\\n' | \"$H\" predict run - --json", 0,
           "{\"input\": \"\", \"class\": null, \"probability\": null}\n");
}

/* ---- outputs ---- */

static void predict__logits_are_the_models_outputs(void **state)
{
    data_case *c = *state;
    train_points(c);
    /* The class has the largest; its probability is their softmax. */
    expect(c,
           "set -e; \"$H\" predict run held/points.csv --json --logits | tr -d '\"{}[]:,' | awk '"
           "{ m = $8; k = 0; for (i = 1; i < 3; i++) if ($(8 + i) > m) { m = $(8 + i); k = i } s = 0; "
           "for (i = 0; i < 3; i++) s += exp($(8 + i) - m); split(\"ice red tan\", name, \" \"); "
           "if ($4 == name[k + 1] && ($6 - 1 / s)^2 < 1e-12) n++ } END { print n \" agree\" }'",
           0, "100 agree");
    expect(c, "\"$H\" predict run held/points.csv --logits", 2, "--logits comes with --json");
    train_pairs(c);
    expect(c, "\"$H\" predict run held/pairs.tsv --json --logits", 2, "a translation has no logits");
}

static const char own_graph[] = "state %%w f32[2,3] init=normal(0,0.3) trained\n"
                                "segment forward (%%x f32[40,2], %%label i32[40]) -> (loss=%%loss%s) {\n"
                                "  %%y = matmul f32[40,3] (%%x, %%w)\n"
                                "  %%loss, %%lse = cross_entropy f32[], f32[40] (%%y, %%label)\n"
                                "}\n";

static void predict__needs_the_output_logits_of_a_graph_of_ones_own(void **state)
{
    data_case *c = *state;
    char text[512];
    expect(c, write_points, 0, "");
    snprintf(text, sizeof text, own_graph, "");
    data_case_text(c, "model.ht", text);
    train(c, "\"type\": \"graph\", \"file\": \"model.ht\"", POINTS, ", \"steps\": 5");
    expect(c, "\"$H\" predict run held/points.csv", 2, "its segment 'eval' has no output 'logits'");
    snprintf(text, sizeof text, own_graph, ", logits=%y");
    data_case_text(c, "model.ht", text);
    train(c, "\"type\": \"graph\", \"file\": \"model.ht\"", POINTS, ", \"steps\": 5");
    expect(c, "set -e; \"$H\" predict run held/points.csv | wc -l", 0, "100\n");
}

/* ---- refusals ---- */

static void predict__bad_input_is_named_by_file_and_line(void **state)
{
    data_case *c = *state;
    train_points(c);
    expect(c, "printf '1,2\\n3,x\\n' > bad.csv; \"$H\" predict run held/points.csv bad.csv", 2,
           "halftone: predict: bad.csv:2: column 1 holds 'x', not a number\n");
    expect(c, "printf '1,2,3,4\\n' > bad.csv; \"$H\" predict run bad.csv", 2,
           "bad.csv: 4 columns; the run was trained on 2 numbers");
    expect(c, "\"$H\" predict run none.csv", 2, "none.csv: No such file");
    expect(c, "\"$H\" predict run held", 2, "held: a folder, not a file");
    expect(c, "\"$H\" predict run", 2, "predict: which input? - reads standard input;");
    expect(c, "\"$H\" predict held held/points.csv", 2, "held holds no run");
    train_pairs(c);
    expect(c, "printf 'one\\n\\377\\n' | \"$H\" predict run -", 2, "stdin:2: ");
    expect(c, "yes one | head -n 40 | tr '\\n' ' ' | \"$H\" predict run -", 2,
           "stdin:1: 40 tokens, more than data.max_length, 32");
    expect(c, "yes one | head -n 20 | tr '\\n' ' ' | \"$H\" predict run - | wc -l", 0, "1\n");
}

/* Every file of the run, damaged in every way: the right answers, or a refusal that names the file or its folder. */
static void predict__a_damaged_run_gives_the_same_answers_or_is_refused(void **state)
{
    data_case *c = *state;
    train_points(c);
    expect(
        c,
        "set -e; \"$H\" predict run held/points.csv --json --logits > all; mv run whole; right=0; refused=0; "
        "for f in $(cd whole; find . -type f | sed 's,^./,,'); do for d in 'truncate -s -7' 'truncate -s 0' rm flip; "
        "do "
        "rm -rf run; cp -r whole run; "
        "if [ \"$d\" = flip ]; then n=$(stat -c %s run/$f); printf '\\001' | dd of=run/$f bs=1 seek=$((n / 2)) "
        "conv=notrunc "
        "2> /dev/null; else $d run/$f; fi; "
        "if \"$H\" predict run held/points.csv --json --logits > now 2> said; then cmp all now; right=$((right + 1)); "
        "else grep -q -F -e $f -e ${f%/*} said || { cat said; echo $d $f; exit 1; }; refused=$((refused + 1)); "
        "fi; "
        "done; done; test $right -gt 8; test $refused -gt 8; echo right and refused",
        0, "right and refused");
}

static void predict__language_models_are_told_that_they_do_not_generate(void **state)
{
    data_case *c = *state;
    expect(c, "set -e; mkdir -p train held; yes 'three times four' | head -n 200 > train/t.txt", 0, "");
    train(c, "\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16",
          "\"format\": \"text\", \"length\": 8, \"train\": \"train/t.txt\"", ", \"steps\": 2");
    expect(c, "\"$H\" predict run train/t.txt", 2, "text generation is not there yet");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(predict__agrees_with_the_accuracy_of_eval),
        CASE(predict__agrees_with_the_accuracy_of_eval_on_images),
        CASE(predict__translates_as_eval_does_for_its_bleu),
        CASE(predict__answers_do_not_depend_on_what_else_is_asked),
        CASE(predict__batch_size_does_not_change_the_result),
        CASE(predict__has_the_same_bits_on_the_fake_device_and_with_other_threads),
        CASE(predict__needs_the_folder_of_the_run_alone),
        CASE(predict__answers_while_the_run_trains),
        CASE(predict__reads_an_image_in_any_format_alike),
        CASE(predict__takes_rows_with_and_without_labels),
        CASE(predict__gives_values_without_a_probability),
        CASE(predict__keeps_empty_lines_in_their_place),
        CASE(predict__logits_are_the_models_outputs),
        CASE(predict__needs_the_output_logits_of_a_graph_of_ones_own),
        CASE(predict__bad_input_is_named_by_file_and_line),
        CASE(predict__a_damaged_run_gives_the_same_answers_or_is_refused),
        CASE(predict__language_models_are_told_that_they_do_not_generate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
