/* The data sets of HALFTONE_DATA, against what is known about them; skipped where they are absent. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data_case.h"
#include "format/format.h"

static void open_real(data_case *c, ht_task task, int64_t batch, const char *format, const char *name, const char *keys)
{
    const char *path = data_case_real(name);
    if (!path) skip();
    char block[2048];
    snprintf(block, sizeof block, "{\"format\": \"%s\", \"train\": \"%s\"%s%s}", format, path, *keys ? ", " : "", keys);
    data_case_open(c, task, batch, block);
}

/* Counted pairs of neighbours are the best bigram model: its loss is known to be 2.454014. Validation gives every pair
 * of the file once; only the end of the last name has nothing behind it. */
static void names__bigram_counts_give_the_known_loss(void **state)
{
    data_case *c = *state;
    const char *path = data_case_real("lm/names.txt");
    if (!path) skip();
    char keys[1200];
    snprintf(keys, sizeof keys,
             "\"validation\": \"%s\", \"documents\": \"line\", \"tokenizer\": \"char\", \"length\": 37", path);
    open_real(c, HT_TASK_LM, 64, "text", "lm/names.txt", keys);
    assert_int_equal(ht_data_info_of(c->data)->vocabulary, 27);
    double counts[27][27] = {{0}}, total = 0, loss = 0;
    ht_loader *loader;
    assert_int_equal(ht_loader_open(&loader, c->data, HT_DATA_VALIDATION, true), HT_OK);
    for (bool last = false; !last;) {
        ht_batch batch = data_case_next(c, loader);
        const int32_t *tokens = data_case_ints(&batch, "tokens"), *targets = data_case_ints(&batch, "targets");
        for (int i = 0; i < 64 * 37; i++)
            if (targets[i] >= 0) counts[tokens[i]][targets[i]]++;
        last = batch.last;
        data_case_drop(&batch);
    }
    ht_loader_free(loader);
    for (int a = 0; a < 27; a++) {
        double row = 0;
        for (int b = 0; b < 27; b++) row += counts[a][b];
        for (int b = 0; b < 27; b++)
            if (counts[a][b] > 0) loss -= counts[a][b] * log(counts[a][b] / row);
        total += row;
    }
    assert_int_equal(total, 228145);
    if (fabs(loss / total - 2.454014) > 2e-5) fail_msg("bigram loss %.6f", loss / total);
}

static void shakespeare__is_split_and_numbered_as_others_do(void **state)
{
    data_case *c = *state;
    open_real(c, HT_TASK_LM, 12, "text", "lm/tinyshakespeare.txt", "\"tokenizer\": \"char\", \"length\": 64");
    const ht_data_info *info = ht_data_info_of(c->data);
    assert_int_equal(info->vocabulary, 65);
    assert_int_equal(info->parts[HT_DATA_TRAIN].tokens, 1003854);
    assert_int_equal(info->parts[HT_DATA_VALIDATION].tokens, 111540);
    static const char text[] = "hii there"; /* nanoGPT's worked example */
    static const int32_t wanted[] = {46, 47, 47, 1, 58, 46, 43, 56, 43};
    int32_t *ids;
    int64_t count;
    assert_int_equal(ht_vocabulary_encode(ht_data_vocabulary(c->data), &c->ctx, "t", text, strlen(text), &ids, &count),
                     HT_OK);
    assert_int_equal(count, 9);
    assert_memory_equal(ids, wanted, sizeof wanted);
    free(ids);
}

static void mnist__has_its_counts(void **state)
{
    data_case *c = *state;
    open_real(c, HT_TASK_CLASS, 100, "idx", "mnist/t10k-images-idx3-ubyte.gz", "\"validation_share\": 0");
    const ht_data_info *info = ht_data_info_of(c->data);
    assert_int_equal(info->parts[HT_DATA_TRAIN].items, 10000);
    assert_int_equal(info->classes, 10);
    static const int known[10] = {980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009};
    int counts[10] = {0};
    double sum = 0;
    ht_loader *loader;
    assert_int_equal(ht_loader_open(&loader, c->data, HT_DATA_TRAIN, true), HT_OK);
    for (int b = 0; b < 100; b++) {
        ht_batch batch = data_case_next(c, loader);
        for (int i = 0; i < 100; i++) counts[data_case_ints(&batch, "label")[i]]++;
        for (int i = 0; i < 78400; i++) sum += data_case_floats(&batch, "x")[i];
        data_case_drop(&batch);
    }
    ht_loader_free(loader);
    for (int i = 0; i < 10; i++) assert_int_equal(counts[i], known[i]);
    assert_true(fabs(sum / 7840000 - 0.1325) < 1e-3); /* the mean pixel of the test set */
}

static void digits__is_a_table_of_images(void **state)
{
    data_case *c = *state;
    open_real(c, HT_TASK_CLASS, 32, "table", "digits/digits.csv.gz", "\"shape\": [1, 8, 8]");
    const ht_data_info *info = ht_data_info_of(c->data);
    assert_int_equal(info->parts[0].items + info->parts[1].items, 1797);
    assert_int_equal(info->classes, 10);
    assert_int_equal(info->feature_rank, 3);
}

static void tatoeba__is_read_whole_and_padded_little(void **state)
{
    data_case *c = *state;
    open_real(c, HT_TASK_PAIRS, 32, "pairs", "en-fr/tatoeba-2017.tsv.gz", "\"buckets\": 1");
    const ht_data_info *info = ht_data_info_of(c->data);
    assert_int_equal(info->parts[0].items + info->parts[1].items + info->dropped, 142787);
    double one = info->parts[0].padding;
    open_real(c, HT_TASK_PAIRS, 32, "pairs", "en-fr/tatoeba-2017.tsv.gz", "\"buckets\": 8");
    info = ht_data_info_of(c->data);
    assert_true(info->parts[0].padding < 0.2 && one > 0.6);
}

static void weights__a_foreign_safetensors_file_is_read(void **state)
{
    data_case *c = *state;
    const char *path = data_case_real("weights/mnist_cnn/mnist.safetensors");
    if (!path) skip();
    ht_safetensors *file;
    if (ht_safetensors_open(&file, &c->ctx, path) != HT_OK) fail_msg("%s", c->ctx.message);
    assert_true(ht_safetensors_count(file) > 5);
    for (size_t i = 0; i < ht_safetensors_count(file); i++)
        assert_ptr_equal(ht_safetensors_find(file, ht_safetensors_at(file, i)->name), ht_safetensors_at(file, i));
    ht_safetensors_free(file);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(names__bigram_counts_give_the_known_loss),
        IN_FOLDER(shakespeare__is_split_and_numbered_as_others_do),
        IN_FOLDER(mnist__has_its_counts),
        IN_FOLDER(digits__is_a_table_of_images),
        IN_FOLDER(tatoeba__is_read_whole_and_padded_little),
        IN_FOLDER(weights__a_foreign_safetensors_file_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
