/* Sentence pairs: words, vocabularies, buckets, what is held out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/vocabulary.h"
#include "data_case.h"

/* ---- words ---- */

static void words__are_cut_at_space_punctuation_and_behind_apostrophes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"Go.", "Go|.|"},
        {"  J'ai   dit \"oui\"!", "J'|ai|dit|\"|oui|\"|!|"},
        {"l\xe2\x80\x99"
         "ami",
         "l\xe2\x80\x99|ami|"},
        {"\xc2\xab\xc2\xa0Quoi\xe2\x80\xaf?\xc2\xa0\xc2\xbb", "\xc2\xab|Quoi|?|\xc2\xbb|"},
        {"well-known...", "well|-|known|.|.|.|"},
        {"\xff\xfe x", "\xff\xfe|x|"},
        {" \t\n", ""},
        {"", ""},
        {"''", "'|'|"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[128] = "";
        const char *at = cases[i].text, *end = at + strlen(at), *word;
        size_t length;
        while (ht_word_next(&at, end, &word, &length)) {
            assert_true(length > 0);
            strncat(out, word, length);
            strcat(out, "|");
        }
        assert_string_equal(out, cases[i].words);
    }
}

static ht_vocabulary *vocabulary_of(ht_context *ctx, const char *text, bool lowercase, int64_t least, int64_t most)
{
    ht_vocabulary *v;
    assert_int_equal(ht_vocabulary_create(&v, ctx, HT_VOCABULARY_WORD, true), HT_OK);
    ht_vocabulary_fold(v, lowercase);
    assert_int_equal(ht_vocabulary_count(v, ctx, "text", text, strlen(text)), HT_OK);
    assert_int_equal(ht_vocabulary_finish(v, ctx, least, most), HT_OK);
    return v;
}

static void vocabularies__go_from_frequent_to_rare_behind_the_specials(void **state)
{
    (void)state;
    ht_context ctx = {0};
    ht_vocabulary *v = vocabulary_of(&ctx, "b a c a b a d", false, 1, 0);
    assert_int_equal(ht_vocabulary_size(v), 8);
    assert_int_equal(ht_vocabulary_find(v, "a", 1), 4);
    assert_int_equal(ht_vocabulary_find(v, "b", 1), 5);
    assert_int_equal(ht_vocabulary_find(v, "c", 1), 6);
    assert_int_equal(ht_vocabulary_find(v, "d", 1), 7);
    assert_int_equal(ht_vocabulary_find(v, "e", 1), -1);
    ht_vocabulary_free(v);
    v = vocabulary_of(&ctx, "The the THE cat cat dog", true, 2, 0);
    assert_int_equal(ht_vocabulary_size(v), 6);
    int32_t *ids;
    int64_t count;
    assert_int_equal(ht_vocabulary_encode(v, &ctx, "t", "the DOG Cat", 11, &ids, &count), HT_OK);
    static const int32_t wanted[] = {4, HT_TOKEN_UNK, 5};
    assert_int_equal(count, 3);
    assert_memory_equal(ids, wanted, sizeof wanted);
    free(ids);
    ht_vocabulary_free(v);
    v = vocabulary_of(&ctx, "a a a b b c", false, 1, 6);
    assert_int_equal(ht_vocabulary_size(v), 6);
    assert_int_equal(ht_vocabulary_find(v, "c", 1), -1);
    ht_vocabulary_free(v);
}

static void vocabularies__survive_a_file(void **state)
{
    data_case *c = *state;
    ht_vocabulary *v = vocabulary_of(&c->ctx, "J'ai \"dit\" \\ oui, \xc3\xa9t\xc3\xa9.", false, 1, 0), *back;
    ht_text file = {0};
    ht_vocabulary_print(v, &file);
    data_case_file(c, "v.json", file.data, file.length);
    ht_text_free(&file);
    if (ht_vocabulary_read(&back, &c->ctx, data_case_path(c, "v.json")) != HT_OK) fail_msg("%s", c->ctx.message);
    assert_int_equal(ht_vocabulary_size(back), ht_vocabulary_size(v));
    int32_t *ids;
    int64_t count;
    static const char text[] = "J'ai dit oui, \xc3\xa9t\xc3\xa9.";
    assert_int_equal(ht_vocabulary_encode(v, &c->ctx, "t", text, strlen(text), &ids, &count), HT_OK);
    ht_text out = {0};
    ht_vocabulary_decode(back, ids, count, &out);
    assert_string_equal(out.data, text);
    ht_text_free(&out);
    free(ids);
    ht_vocabulary_free(back);
    ht_vocabulary_free(v);
    static const char *const wrong[] = {
        "{\"kind\": \"word\", \"tokens\": [\"a\", \"a\"]}",
        "{\"kind\": \"word\", \"tokens\": [\"a\", 1]}",
        "{\"kind\": \"wood\", \"tokens\": []}",
        "{\"kind\": \"word\"}",
        "[]",
        "{\"kind\": \"word\", \"specials\": true, \"tokens\": [\"a\"]}",
        "{\"kind\": \"word\", \"tokens\": [\"\"]}",
        "{\"kind\":",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        data_case_text(c, "v.json", wrong[i]);
        assert_int_not_equal(ht_vocabulary_read(&back, &c->ctx, data_case_path(c, "v.json")), HT_OK);
        assert_null(back);
        assert_non_null(strstr(c->ctx.message, "v.json"));
    }
    assert_int_equal(ht_vocabulary_read(&back, &c->ctx, "/nowhere/v.json"), HT_EIO);
}

/* ---- batches ---- */

static void pairs__have_bos_eos_padding_and_lengths(void **state)
{
    data_case *c = *state;
    data_case_text(c, "p.tsv", "a b c\tx y\tignored\n");
    data_case_open(c, HT_TASK_PAIRS, 2,
                   "{\"format\": \"pairs\", \"train\": \"p.tsv\", \"minimum_count\": 1, \"buckets\": 1, "
                   "\"validation_share\": 0}");
    const ht_data_info *info = ht_data_info_of(c->data);
    assert_int_equal(info->source_vocabulary, 7);
    assert_int_equal(info->vocabulary, 6);
    assert_int_equal(info->buckets[0].source_length, 3);
    assert_int_equal(info->buckets[0].length, 3);
    ht_loader *loader;
    assert_int_equal(ht_loader_open(&loader, c->data, HT_DATA_TRAIN, false), HT_OK);
    ht_batch batch = data_case_next(c, loader);
    /* One pair, two rows: the second only fills up. */
    static const int32_t source[] = {4, 5, 6, 0, 0, 0}, lengths[] = {3, 1}, in[] = {1, 4, 5, 0, 0, 0};
    static const int32_t targets[] = {4, 5, 2, -1, -1, -1};
    assert_memory_equal(data_case_ints(&batch, "source"), source, sizeof source);
    assert_memory_equal(data_case_ints(&batch, "source_length"), lengths, sizeof lengths);
    assert_memory_equal(data_case_ints(&batch, "target_in"), in, sizeof in);
    assert_memory_equal(data_case_ints(&batch, "targets"), targets, sizeof targets);
    assert_int_equal(batch.rows, 1);
    assert_int_equal(batch.counted, 3);
    ht_text shown = {0};
    ht_data_show_row(c->data, &batch, 0, &shown);
    assert_string_equal(shown.data, "a b c -> x y");
    ht_text_free(&shown);
    data_case_drop(&batch);
    ht_loader_free(loader);
}

/* Pairs i: a source and a target of some length, each with a word of its own. */
static void write_pairs(data_case *c, int count)
{
    ht_text text = {0};
    for (int i = 0; i < count; i++) {
        ht_text_add(&text, "s%d", i);
        for (int k = 0; k < i * 7 % 13; k++) ht_text_add(&text, " w");
        ht_text_add(&text, "\tt%d", i);
        for (int k = 0; k < i * 5 % 11; k++) ht_text_add(&text, " w");
        ht_text_add(&text, "\n");
    }
    data_case_file(c, "p.tsv", text.data, text.length);
    ht_text_free(&text);
}

static void pairs__an_epoch_holds_each_pair_once_in_buckets_that_fit(void **state)
{
    data_case *c = *state;
    write_pairs(c, 203);
    data_case_open(c, HT_TASK_PAIRS, 8,
                   "{\"format\": \"pairs\", \"train\": \"p.tsv\", \"minimum_count\": 1, \"buckets\": 3, "
                   "\"validation_share\": 0}");
    const ht_data_info *info = ht_data_info_of(c->data);
    assert_int_equal(info->bucket_count, 3);
    assert_int_equal(info->parts[0].items, 203);
    assert_int_equal(info->parts[0].batches, 25);
    ht_loader *loader;
    assert_int_equal(ht_loader_open(&loader, c->data, HT_DATA_TRAIN, false), HT_OK);
    int used[3] = {0}, first_order[2][25];
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen = 0;
        bool *pair_seen = calloc((size_t)info->source_vocabulary, sizeof *pair_seen);
        for (int b = 0; b < 25; b++) {
            int64_t promised = ht_loader_counted(loader, 1);
            ht_batch batch = data_case_next(c, loader);
            assert_int_equal(promised, batch.counted);
            used[batch.bucket]++;
            const int32_t *source = data_case_ints(&batch, "source");
            int64_t width = ht_batch_find(&batch, "source")->shape[1];
            assert_int_equal(width, info->buckets[batch.bucket].source_length);
            first_order[epoch][b] = source[0];
            for (int row = 0; row < 8; row++) {
                int32_t name = source[row * width];
                assert_false(pair_seen[name]);
                pair_seen[name] = true;
                seen++;
            }
            data_case_drop(&batch);
        }
        assert_int_equal(seen, 200); /* three are left over, others in each epoch */
        free(pair_seen);
    }
    assert_true(used[0] > 0 && used[1] > 0 && used[2] > 0);
    assert_memory_not_equal(first_order[0], first_order[1], sizeof first_order[0]);
    ht_loader_free(loader);
}

static void pairs__more_buckets_mean_less_padding(void **state)
{
    data_case *c = *state;
    write_pairs(c, 400);
    double before = 1;
    for (int buckets = 1; buckets <= 8; buckets *= 2) {
        char block[256];
        snprintf(block, sizeof block,
                 "{\"format\": \"pairs\", \"train\": \"p.tsv\", \"minimum_count\": 1, \"buckets\": %d}", buckets);
        data_case_open(c, HT_TASK_PAIRS, 4, block);
        double padding = ht_data_info_of(c->data)->parts[0].padding;
        assert_true(padding < before && padding >= 0);
        before = padding;
    }
}

static void pairs__a_source_sentence_is_on_one_side_of_the_split(void **state)
{
    data_case *c = *state;
    ht_text text = {0};
    for (int i = 0; i < 3000; i++) ht_text_add(&text, "s%d\tt%d\n", i / 3, i); /* each source three times */
    data_case_file(c, "p.tsv", text.data, text.length);
    ht_text_free(&text);
    data_case_open(c, HT_TASK_PAIRS, 10,
                   "{\"format\": \"pairs\", \"train\": \"p.tsv\", \"minimum_count\": 1, \"tokenizer\": "
                   "\"char\", \"validation_share\": 0.2}");
    const ht_data_info *info = ht_data_info_of(c->data);
    int64_t held = info->parts[HT_DATA_VALIDATION].items;
    assert_int_equal(info->parts[HT_DATA_TRAIN].items + held, 3000);
    assert_int_equal(held % 3, 0);
    assert_in_range(held, 480, 720);
    data_case_open(c, HT_TASK_PAIRS, 10,
                   "{\"format\": \"pairs\", \"train\": \"p.tsv\", \"validation_share\": 0.2, "
                   "\"minimum_count\": 1}");
    /* Words that only held-out sentences have are unknown: the vocabulary comes from what is trained on. */
    assert_int_equal(ht_data_info_of(c->data)->source_vocabulary,
                     ht_data_info_of(c->data)->parts[HT_DATA_TRAIN].items / 3 + HT_TOKEN_SPECIALS);
}

static void pairs__the_too_long_and_the_empty_are_left_out_and_counted(void **state)
{
    data_case *c = *state;
    data_case_text(c, "p.tsv", "a\tb\n\n\tb\na\t\na a a a a\tb\na\tb b b b\na\tb b b\n");
    data_case_open(c, HT_TASK_PAIRS, 1,
                   "{\"format\": \"pairs\", \"train\": \"p.tsv\", \"minimum_count\": 1, \"max_length\": 4, "
                   "\"validation_share\": 0}");
    assert_int_equal(ht_data_info_of(c->data)->dropped, 4);
    assert_int_equal(ht_data_info_of(c->data)->parts[0].items, 2);
    data_case_open(c, HT_TASK_PAIRS, 1,
                   "{\"format\": \"pairs\", \"train\": \"p.tsv\", \"minimum_count\": 1, \"reverse\": true, "
                   "\"validation_share\": 0}");
    assert_int_equal(ht_vocabulary_find(ht_data_source_vocabulary(c->data), "b", 1), 4);
    data_case_text(c, "bad.tsv", "a\tb\nno tab here\n");
    data_case_refused(c, HT_TASK_PAIRS, 1, "{\"format\": \"pairs\", \"train\": \"bad.tsv\", \"validation_share\": 0}",
                      "bad.tsv:2: no tab");
    data_case_text(c, "bad.tsv", "a\t\xff\n");
    data_case_refused(c, HT_TASK_PAIRS, 1, "{\"format\": \"pairs\", \"train\": \"bad.tsv\", \"validation_share\": 0}",
                      "bad.tsv:1: byte 0: not UTF-8");
    data_case_text(c, "bad.tsv", "");
    data_case_refused(c, HT_TASK_PAIRS, 1, "{\"format\": \"pairs\", \"train\": \"bad.tsv\"}", "no pairs to train on");
    data_case_refused(c, HT_TASK_PAIRS, 1, "{\"format\": \"pairs\", \"train\": \"p.tsv\", \"buckets\": 17}", "buckets");
}

/* Held-out sentences are no part of the vocabulary, but of the data. */
static void pairs__every_part_is_utf8_without_nul(void **state)
{
    data_case *c = *state;
    static const char nul[] = "a\tb\nc\td\0e\n";
    data_case_text(c, "p.tsv", "a\tb\n");
    data_case_file(c, "nul.tsv", nul, sizeof nul - 1);
    data_case_text(c, "bad.tsv", "a\tb\nc\td\xff\n");
    for (int character = 0; character < 2; character++) {
        static const char *const files[][2] = {{"bad.tsv", "bad.tsv:2: byte 1: not UTF-8"},
                                               {"nul.tsv", "nul.tsv:2: byte 1: a NUL character"}};
        for (int i = 0; i < 4; i++) {
            char block[256];
            snprintf(block, sizeof block,
                     "{\"format\": \"pairs\", \"train\": \"%s\", \"validation\": \"%s\", \"tokenizer\": \"%s\"}",
                     i < 2 ? files[i % 2][0] : "p.tsv", i < 2 ? "p.tsv" : files[i % 2][0], character ? "char" : "word");
            data_case_refused(c, HT_TASK_PAIRS, 1, block, files[i % 2][1]);
        }
    }
}

static void pairs__memory_may_stand_in_for_files(void **state)
{
    data_case *c = *state;
    static const char text[] = "a\tb\nc\td\n",
                      block[] =
                          "{\"format\": \"pairs\", \"train\": \"none\", \"minimum_count\": 1, \"validation_share\": 0}";
    const ht_json *object;
    ht_data_request request = {.task = HT_TASK_PAIRS, .batch = 2, .memory = text, .memory_length = sizeof text - 1};
    c->arena = ht_arena_create();
    assert_int_equal(ht_json_parse(&c->ctx, c->arena, "block", block, strlen(block), &object), HT_OK);
    assert_int_equal(ht_data_read_block(&request.format, &c->fields, &c->ctx, object), HT_OK);
    request.fields = c->fields;
    if (ht_data_open(&c->data, &c->ctx, &request) != HT_OK) fail_msg("%s", c->ctx.message);
    assert_int_equal(ht_data_info_of(c->data)->parts[HT_DATA_TRAIN].items, 2);
    assert_int_equal(ht_vocabulary_find(ht_data_vocabulary(c->data), "d", 1), 5);
}

/* ---- sentences with a class ---- */

static void sentences__begin_with_bos_and_are_cut(void **state)
{
    data_case *c = *state;
    data_case_text(c, "s.tsv", "good film\tyes\n\tno\nbad bad bad bad film\tno\n");
    data_case_open(c, HT_TASK_CLASS, 2,
                   "{\"format\": \"sentences\", \"train\": \"s.tsv\", \"length\": 4, \"minimum_count\": 1, "
                   "\"validation_share\": 0}");
    const ht_data_info *info = ht_data_info_of(c->data);
    assert_int_equal(info->classes, 2);
    assert_int_equal(info->feature_rank, 0);
    assert_int_equal(info->vocabulary, 7); /* bad film good */
    assert_int_equal(info->dropped, 1);
    assert_string_equal(ht_data_class_name(c->data, 0), "no");
    ht_loader *loader;
    assert_int_equal(ht_loader_open(&loader, c->data, HT_DATA_TRAIN, false), HT_OK);
    ht_batch batch = data_case_next(c, loader);
    static const int32_t rows[2][4] = {{HT_TOKEN_BOS, 4, 4, 4}, {HT_TOKEN_BOS, 6, 5, HT_TOKEN_PAD}};
    for (int row = 0; row < 2; row++) {
        int label = data_case_ints(&batch, "label")[row];
        assert_memory_equal(data_case_ints(&batch, "tokens") + row * 4, rows[label], sizeof rows[0]);
        assert_int_equal(data_case_ints(&batch, "length")[row], label ? 3 : 4);
    }
    data_case_drop(&batch);
    ht_loader_free(loader);
    data_case_text(c, "v.tsv", "maybe\tgood\n");
    data_case_refused(c, HT_TASK_CLASS, 2,
                      "{\"format\": \"sentences\", \"train\": \"s.tsv\", \"validation\": \"v.tsv\"}",
                      "class 'good' does not occur");
    data_case_open(c, HT_TASK_CLASS, 2,
                   "{\"format\": \"sentences\", \"train\": \"s.tsv\", \"label_first\": true, \"validation_share\": 0}");
    assert_string_equal(ht_data_class_name(c->data, 1), "good film");
    data_case_text(c, "bad.tsv", "no tab\n");
    data_case_refused(c, HT_TASK_CLASS, 2, "{\"format\": \"sentences\", \"train\": \"bad.tsv\"}", "bad.tsv:1: no tab");
    data_case_text(c, "bad.tsv", "\xff\tx\n");
    data_case_refused(c, HT_TASK_CLASS, 2,
                      "{\"format\": \"sentences\", \"train\": \"bad.tsv\", \"validation_share\": 0}",
                      "bad.tsv:1: byte 0: not UTF-8");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words__are_cut_at_space_punctuation_and_behind_apostrophes),
        cmocka_unit_test(vocabularies__go_from_frequent_to_rare_behind_the_specials),
        IN_FOLDER(vocabularies__survive_a_file),
        IN_FOLDER(pairs__have_bos_eos_padding_and_lengths),
        IN_FOLDER(pairs__an_epoch_holds_each_pair_once_in_buckets_that_fit),
        IN_FOLDER(pairs__more_buckets_mean_less_padding),
        IN_FOLDER(pairs__a_source_sentence_is_on_one_side_of_the_split),
        IN_FOLDER(pairs__the_too_long_and_the_empty_are_left_out_and_counted),
        IN_FOLDER(pairs__every_part_is_utf8_without_nul),
        IN_FOLDER(pairs__memory_may_stand_in_for_files),
        IN_FOLDER(sentences__begin_with_bos_and_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
