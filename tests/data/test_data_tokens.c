/* Text, documents, shards and mixtures as rows of tokens. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/order.h"
#include "data_case.h"

static ht_loader *loader_of(data_case *c, ht_data_part part)
{
    ht_loader *loader;
    if (ht_loader_open(&loader, c->data, part, false) != HT_OK) fail_msg("loader: %s", c->ctx.message);
    return loader;
}

/* ---- orders ---- */

static void order__is_a_permutation_that_seed_epoch_and_site_change(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1, 2, 3, 4, 5, 16, 17, 1000, 4097};
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        uint64_t count = counts[k], moved = 0, other[3] = {0};
        bool *seen = calloc(count, sizeof *seen);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t at = ht_order_at(1, 0, "rows", count, i);
            assert_true(at < count && !seen[at]);
            seen[at] = true;
            moved += at != i;
            other[0] += at != ht_order_at(2, 0, "rows", count, i);
            other[1] += at != ht_order_at(1, 1, "rows", count, i);
            other[2] += at != ht_order_at(1, 0, "pairs", count, i);
        }
        free(seen);
        if (count < 1000) continue;
        assert_true(moved > count * 99 / 100);
        for (int i = 0; i < 3; i++) assert_true(other[i] > count * 98 / 100);
    }
}

/* Which of the 24 orders of 4 things comes up is as good as uniform. */
static void order__all_orders_of_a_few_things_occur(void **state)
{
    (void)state;
    int hits[256] = {0}, kinds = 0;
    for (uint64_t epoch = 0; epoch < 24000; epoch++) {
        unsigned code = 0;
        for (uint64_t i = 0; i < 4; i++) code = code << 2 | (unsigned)ht_order_at(3, epoch, "x", 4, i);
        hits[code]++;
    }
    for (int i = 0; i < 256; i++) {
        kinds += hits[i] > 0;
        if (hits[i] && (hits[i] < 800 || hits[i] > 1200)) fail_msg("order %d: %d of 24000", i, hits[i]);
    }
    assert_int_equal(kinds, 24);
}

static void order__draws_cover_their_range_evenly(void **state)
{
    (void)state;
    int hits[7] = {0};
    for (uint64_t i = 0; i < 70000; i++) hits[ht_order_draw(5, "window", i, 7)]++;
    for (int i = 0; i < 7; i++) assert_in_range(hits[i], 9600, 10400);
}

/* ---- text ---- */

static void text__characters_are_sorted_code_points_and_the_end_is_held_out(void **state)
{
    data_case *c = *state;
    data_case_text(c, "a.txt",
                   "b\xc3\xa9"
                   "a b\xc3\xa9"
                   "a b\xc3\xa9"); /* 10 characters: b é a space */
    data_case_open(c, HT_TASK_LM, 1,
                   "{\"format\": \"text\", \"train\": \"a.txt\", \"tokenizer\": \"char\", \"length\": 4, "
                   "\"order\": \"sequential\", \"validation_share\": 0.3}");
    const ht_data_info *info = ht_data_info_of(c->data);
    assert_int_equal(info->vocabulary, 4);
    assert_int_equal(info->parts[HT_DATA_TRAIN].tokens, 7);
    assert_int_equal(info->parts[HT_DATA_VALIDATION].tokens, 3);
    assert_int_equal(ht_vocabulary_find(ht_data_vocabulary(c->data), " ", 1), 0);
    assert_int_equal(ht_vocabulary_find(ht_data_vocabulary(c->data), "\xc3\xa9", 2), 3);
    ht_loader *loader = loader_of(c, HT_DATA_TRAIN);
    ht_batch batch = data_case_next(c, loader);
    static const int32_t tokens[] = {2, 3, 1, 0}, targets[] = {3, 1, 0, 2};
    assert_memory_equal(data_case_ints(&batch, "tokens"), tokens, sizeof tokens);
    assert_memory_equal(data_case_ints(&batch, "targets"), targets, sizeof targets);
    ht_text shown = {0};
    ht_data_show_row(c->data, &batch, 0, &shown);
    assert_string_equal(shown.data, "b\xc3\xa9"
                                    "a ");
    ht_text_free(&shown);
    data_case_drop(&batch);
    ht_loader_free(loader);
}

/* Every token of validation is a target once; what fills up does not count. */
static void text__validation_counts_every_target_once(void **state)
{
    data_case *c = *state;
    data_case_text(c, "train.txt", "abcdefgh");
    data_case_text(c, "valid.txt", "abcdefghijklmnopqrstuvw"); /* 23 bytes, 22 targets */
    data_case_open(c, HT_TASK_LM, 2,
                   "{\"format\": \"text\", \"train\": \"train.txt\", \"validation\": \"valid.txt\", "
                   "\"length\": 5}");
    assert_int_equal(ht_data_info_of(c->data)->parts[HT_DATA_VALIDATION].items, 5);
    assert_int_equal(ht_data_info_of(c->data)->parts[HT_DATA_VALIDATION].batches, 3);
    ht_loader *loader = loader_of(c, HT_DATA_VALIDATION);
    int seen[256] = {0};
    int64_t counted = 0;
    assert_int_equal(ht_loader_counted(loader, 3), 22);
    for (bool last = false; !last;) {
        ht_batch batch = data_case_next(c, loader);
        const int32_t *tokens = data_case_ints(&batch, "tokens"), *targets = data_case_ints(&batch, "targets");
        for (int i = 0; i < 10; i++) {
            if (targets[i] >= 0) seen[targets[i]]++;
            if (targets[i] >= 0) assert_int_equal(targets[i], tokens[i] + 1);
        }
        counted += batch.counted;
        last = batch.last;
        data_case_drop(&batch);
    }
    assert_int_equal(counted, 22);
    for (int i = 'b'; i <= 'w'; i++) assert_int_equal(seen[i], 1);
    ht_loader_free(loader);
}

/* Windows follow each other without a gap from where the epoch's begin; the window that no longer fits at the end is the
 * one that begins with the text. */
static void text__shuffled_epochs_hold_every_window_once(void **state)
{
    data_case *c = *state;
    data_case_text(c, "a.txt", "abcdefghijklmnopqrstuvwxy"); /* 24 targets: 6 windows of 4 */
    data_case_open(c, HT_TASK_LM, 3,
                   "{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 4, \"order\": \"shuffled\", "
                   "\"validation_share\": 0}");
    ht_loader *loader = loader_of(c, HT_DATA_TRAIN);
    char orders[40][7] = {{0}};
    int phases = 0, differ = 0;
    for (int epoch = 0; epoch < 40; epoch++) {
        int hits[24] = {0}, phase = 0, missing = 0;
        for (int b = 0; b < 2; b++) {
            ht_batch batch = data_case_next(c, loader);
            assert_int_equal(batch.epoch, epoch);
            assert_int_equal(batch.last, b == 1);
            assert_int_equal(batch.counted, 12);
            for (int row = 0; row < 3; row++) {
                int first = data_case_ints(&batch, "tokens")[row * 4] - 'a';
                if (first % 4) phase = first % 4;
                for (int t = 0; t < 4; t++) hits[first + t]++;
                orders[epoch][b * 3 + row] = (char)('0' + first);
            }
            data_case_drop(&batch);
        }
        for (int at = 0; at < 24; at++) missing += hits[at] == 0;
        for (int at = 0; at < 24; at++) assert_in_range(hits[at], 0, at >= phase && at < 4 && phase ? 2 : 1);
        assert_int_equal(missing, phase ? 4 - phase : 0);
        phases |= 1 << phase;
        differ += epoch > 0 && strcmp(orders[epoch], orders[epoch - 1]) != 0;
    }
    assert_int_equal(phases, 15);
    assert_true(differ > 30);
    ht_loader_free(loader);
    ht_loader *none;
    assert_int_equal(ht_loader_open(&none, c->data, HT_DATA_VALIDATION, false), HT_EINVAL);
    assert_non_null(strstr(c->ctx.message, "no validation part"));
}

static void text__random_windows_begin_anywhere_but_too_late(void **state)
{
    data_case *c = *state;
    data_case_text(c, "a.txt", "abcdefghij");
    data_case_open(c, HT_TASK_LM, 50,
                   "{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 4, \"validation_share\": 0}");
    ht_loader *loader = loader_of(c, HT_DATA_TRAIN);
    int hits[10] = {0};
    for (int b = 0; b < 60; b++) {
        ht_batch batch = data_case_next(c, loader);
        assert_int_equal(batch.counted, 200);
        for (int row = 0; row < 50; row++) hits[data_case_ints(&batch, "tokens")[row * 4] - 'a']++;
        data_case_drop(&batch);
    }
    for (int i = 0; i < 6; i++) assert_in_range(hits[i], 400, 600);
    for (int i = 6; i < 10; i++) assert_int_equal(hits[i], 0);
    ht_loader_free(loader);
}

/* Row r of batch k+1 goes on where row r of batch k ended. */
static void text__streams_go_on_from_batch_to_batch(void **state)
{
    data_case *c = *state;
    char text[102];
    for (int i = 0; i < 101; i++) text[i] = (char)(i + 20);
    data_case_file(c, "a.txt", text, 101);
    data_case_open(c, HT_TASK_LM, 4,
                   "{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 6, \"order\": \"stream\", "
                   "\"validation_share\": 0}");
    assert_int_equal(ht_data_info_of(c->data)->parts[HT_DATA_TRAIN].batches, 4); /* strips of 25 */
    ht_loader *loader = loader_of(c, HT_DATA_TRAIN);
    int32_t expected[4] = {20, 45, 70, 95};
    for (int b = 0; b < 4; b++) {
        ht_batch batch = data_case_next(c, loader);
        for (int row = 0; row < 4; row++) {
            assert_int_equal(data_case_ints(&batch, "tokens")[row * 6], expected[row]);
            expected[row] = data_case_ints(&batch, "targets")[row * 6 + 5];
        }
        data_case_drop(&batch);
    }
    ht_loader_free(loader);
    data_case_refused(c, HT_TASK_LM, 60,
                      "{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 6, \"order\": \"stream\", "
                      "\"validation_share\": 0}",
                      "60 streams of 1, shorter than one row of 6");
}

static void text__documents_carry_numbers_and_positions(void **state)
{
    data_case *c = *state;
    data_case_text(c, "a.txt", "ab\n\ncde\nf\n");
    data_case_open(c, HT_TASK_LM, 1,
                   "{\"format\": \"text\", \"train\": \"a.txt\", \"documents\": \"line\", \"length\": 8, "
                   "\"order\": \"sequential\", \"document_ids\": true, \"validation_share\": 0, "
                   "\"tokenizer\": \"char\"}");
    assert_int_equal(ht_data_info_of(c->data)->vocabulary, 7);
    assert_true(ht_data_info_of(c->data)->documents);
    ht_loader *loader = loader_of(c, HT_DATA_TRAIN);
    ht_batch batch = data_case_next(c, loader); /* | a b | c d e | f  ->  6 0 1 6 2 3 4 6 5 */
    static const int32_t tokens[] = {6, 0, 1, 6, 2, 3, 4, 6}, targets[] = {0, 1, 6, 2, 3, 4, 6, 5};
    static const int32_t positions[] = {0, 1, 2, 0, 1, 2, 3, 0}, documents[] = {0, 0, 0, 1, 1, 1, 1, 2};
    assert_memory_equal(data_case_ints(&batch, "tokens"), tokens, sizeof tokens);
    assert_memory_equal(data_case_ints(&batch, "targets"), targets, sizeof targets);
    assert_memory_equal(data_case_ints(&batch, "positions"), positions, sizeof positions);
    assert_memory_equal(data_case_ints(&batch, "documents"), documents, sizeof documents);
    data_case_drop(&batch);
    ht_loader_free(loader);
    data_case_text(c, "p.txt", "one\nmore\n\n\ntwo\n");
    data_case_open(c, HT_TASK_LM, 1,
                   "{\"format\": \"text\", \"train\": \"p.txt\", \"documents\": \"paragraph\", \"length\": 4, "
                   "\"validation_share\": 0}");
    assert_int_equal(ht_data_info_of(c->data)->parts[0].tokens, 1 + 8 + 1 + 3);
    data_case_open(c, HT_TASK_LM, 1,
                   "{\"format\": \"text\", \"train\": [\"a.txt\", \"p.txt\"], \"documents\": \"file\", "
                   "\"length\": 4, \"validation_share\": 0.5}");
    assert_int_equal(ht_data_info_of(c->data)->parts[0].tokens, 1 + 10);
    assert_int_equal(ht_data_info_of(c->data)->parts[1].tokens, 1 + 15);
}

static void text__a_masked_model_finds_some_tokens(void **state)
{
    data_case *c = *state;
    char text[4001];
    for (int i = 0; i < 4000; i++) text[i] = (char)('a' + i % 26);
    data_case_file(c, "a.txt", text, 4000);
    data_case_open(c, HT_TASK_MASKED_LM, 10,
                   "{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 100, \"tokenizer\": "
                   "\"char\", \"mask_share\": 0.2}");
    assert_int_equal(ht_data_info_of(c->data)->vocabulary, 27);
    ht_loader *loader = loader_of(c, HT_DATA_TRAIN);
    int64_t found = 0, masked = 0, kept = 0, promised = ht_loader_counted(loader, 20);
    for (int b = 0; b < 20; b++) {
        ht_batch batch = data_case_next(c, loader);
        const int32_t *tokens = data_case_ints(&batch, "tokens"), *targets = data_case_ints(&batch, "targets");
        for (int i = 0; i < 1000; i++) {
            found += targets[i] >= 0;
            masked += targets[i] >= 0 && tokens[i] == 26;
            kept += targets[i] >= 0 && tokens[i] == targets[i];
            if (targets[i] < 0) assert_true(tokens[i] < 26);
        }
        promised -= batch.counted;
        assert_int_equal(data_case_ints(&batch, "length")[3], 100);
        data_case_drop(&batch);
    }
    assert_int_equal(promised, 0);
    assert_in_range(found, 3700, 4300);
    assert_in_range(masked * 100 / found, 76, 84);
    assert_in_range(kept * 100 / found, 7, 14);
    ht_loader_free(loader);
}

static void text__a_file_of_that_name_goes_before_a_pattern(void **state)
{
    data_case *c = *state;
    data_case_text(c, "part[1].txt", "abcabcabc");
    data_case_text(c, "part1.txt", "x");
    data_case_open(c, HT_TASK_LM, 1,
                   "{\"format\": \"text\", \"train\": \"part[1].txt\", \"length\": 4, \"validation_share\": 0}");
    assert_int_equal(ht_data_info_of(c->data)->parts[HT_DATA_TRAIN].tokens, 9);
}

static void text__wrong_input_is_refused_with_its_place(void **state)
{
    data_case *c = *state;
    data_case_text(c, "bad.txt",
                   "abc\xff"
                   "def");
    data_case_text(c, "one.txt", "a");
    data_case_text(c, "abc.txt", "abcabcabc");
    data_case_text(c, "xyz.txt", "xyz");
    data_case_refused(c, HT_TASK_LM, 1, "{\"format\": \"text\", \"train\": \"bad.txt\", \"tokenizer\": \"char\"}",
                      "bad.txt: byte 3: not UTF-8");
    data_case_refused(c, HT_TASK_LM, 1, "{\"format\": \"text\", \"train\": \"one.txt\"}", "fewer than two tokens");
    data_case_refused(c, HT_TASK_LM, 1, "{\"format\": \"text\", \"train\": \"no*.txt\"}", "there is no file");
    data_case_refused(c, HT_TASK_LM, 1, "{\"format\": \"text\", \"train\": \"abc.txt\", \"length\": 0}", "length");
    data_case_refused(c, HT_TASK_LM, 1, "{\"format\": \"text\", \"train\": \"abc.txt\", \"tokeniser\": \"byte\"}",
                      "tokenizer");
    data_case_refused(c, HT_TASK_LM, 1, "{\"format\": \"text\"}", "train");
    data_case_refused(c, HT_TASK_LM, 1, "{\"format\": \"txt\", \"train\": \"abc.txt\"}",
                      "no format \"txt\"; known are text");
    data_case_refused(c, HT_TASK_LM, 1, "{\"train\": \"abc.txt\"}", "data.format: must be given");
    data_case_refused(c, HT_TASK_CLASS, 1, "{\"format\": \"text\", \"train\": \"abc.txt\"}",
                      "does not serve the task \"class\"");
    data_case_refused(c, HT_TASK_LM, 0, "{\"format\": \"text\", \"train\": \"abc.txt\"}", "a batch of 0 rows");
    data_case_refused(c, HT_TASK_LM, 1, "{\"format\": \"text\", \"train\": \"abc.txt\", \"document_ids\": true}",
                      "nothing tells documents apart");
}

static void text__patterns_are_sorted_by_bytes(void **state)
{
    data_case *c = *state;
    data_case_text(c, "b.txt", "22");
    data_case_text(c, "B.txt", "11");
    data_case_text(c, "a.txt", "33");
    data_case_open(c, HT_TASK_LM, 1,
                   "{\"format\": \"text\", \"train\": \"*.txt\", \"length\": 5, \"order\": \"sequential\", "
                   "\"validation_share\": 0}");
    ht_loader *loader = loader_of(c, HT_DATA_TRAIN);
    ht_batch batch = data_case_next(c, loader);
    static const int32_t tokens[] = {'1', '1', '3', '3', '2'};
    assert_memory_equal(data_case_ints(&batch, "tokens"), tokens, sizeof tokens);
    data_case_drop(&batch);
    ht_loader_free(loader);
}

/* ---- JSONL ---- */

static void jsonl__a_line_is_a_document(void **state)
{
    data_case *c = *state;
    data_case_text(c, "a.jsonl", "{\"id\": 1, \"body\": \"h\\u00e9\"}\r\n  \n{\"body\": \"\"}\n{\"body\": \"x\"}\n");
    data_case_open(c, HT_TASK_LM, 1,
                   "{\"format\": \"jsonl\", \"train\": \"a.jsonl\", \"field\": \"body\", \"length\": 4, "
                   "\"order\": \"sequential\", \"validation_share\": 0}");
    ht_loader *loader = loader_of(c, HT_DATA_TRAIN);
    ht_batch batch = data_case_next(c, loader);
    static const int32_t tokens[] = {256, 'h', 0xc3, 0xa9}, targets[] = {'h', 0xc3, 0xa9, 256};
    assert_memory_equal(data_case_ints(&batch, "tokens"), tokens, sizeof tokens);
    assert_memory_equal(data_case_ints(&batch, "targets"), targets, sizeof targets);
    data_case_drop(&batch);
    ht_loader_free(loader);
    data_case_text(c, "bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 7}\n");
    data_case_refused(c, HT_TASK_LM, 1, "{\"format\": \"jsonl\", \"train\": \"bad.jsonl\"}",
                      "bad.jsonl:2: no text in the field \"text\"");
    data_case_text(c, "bad.jsonl", "{\"text\": \"a\"}\n{\"other\": 7}\n");
    data_case_refused(c, HT_TASK_LM, 1, "{\"format\": \"jsonl\", \"train\": \"bad.jsonl\"}",
                      "2: there is no field \"text\"");
    data_case_text(c, "bad.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"a\n");
    data_case_refused(c, HT_TASK_LM, 1, "{\"format\": \"jsonl\", \"train\": \"bad.jsonl\"}", "line 3 of ");
}

/* ---- shards and mixtures ---- */

static void shards__tokens_beyond_the_vocabulary_are_found_when_they_come(void **state)
{
    data_case *c = *state;
    uint16_t tokens[40];
    for (int i = 0; i < 40; i++) tokens[i] = (uint16_t)(i * 3);
    data_case_file(c, "s.bin", tokens, sizeof tokens);
    data_case_open(c, HT_TASK_LM, 2,
                   "{\"format\": \"shards\", \"train\": \"s.bin\", \"length\": 8, \"validation_share\": 0}");
    assert_int_equal(ht_data_info_of(c->data)->vocabulary, 118);
    assert_int_equal(ht_data_info_of(c->data)->parts[0].items, 4);
    data_case_open(c, HT_TASK_LM, 2,
                   "{\"format\": \"shards\", \"train\": \"s.bin\", \"length\": 8, \"validation_share\": 0, "
                   "\"vocabulary_size\": 60, \"order\": \"sequential\"}");
    for (int prefetch = 0; prefetch < 2; prefetch++) {
        ht_loader *loader;
        assert_int_equal(ht_loader_open(&loader, c->data, HT_DATA_TRAIN, prefetch), HT_OK);
        ht_batch batch = data_case_next(c, loader); /* tokens up to 48 */
        assert_int_equal(ht_loader_next(loader, &batch), HT_EINVAL);
        assert_non_null(strstr(c->ctx.message, "s.bin: byte 40: token 60 does not exist in a vocabulary of 60"));
        assert_int_equal(ht_loader_next(loader, &batch), HT_EINVAL);
        assert_int_equal(ht_loader_position(loader), 1);
        data_case_drop(&batch);
        ht_loader_free(loader);
    }
    data_case_refused(c, HT_TASK_LM, 2,
                      "{\"format\": \"shards\", \"train\": \"s.bin\", \"order\": \"stream\", \"length\": 30}",
                      "shorter than one row");
    uint32_t wide[4] = {1, 2, 0xfffffff0u, 3};
    data_case_file(c, "w.bin", wide, sizeof wide);
    data_case_refused(c, HT_TASK_LM, 1, "{\"format\": \"shards\", \"train\": \"w.bin\", \"dtype\": \"uint32\"}",
                      "w.bin: byte 8: token 4294967280 is beyond");
}

static void mixtures__draw_rows_by_weight(void **state)
{
    data_case *c = *state;
    char a[200], b[100];
    memset(a, 'a', sizeof a);
    memset(b, 'b', sizeof b);
    data_case_file(c, "a.txt", a, sizeof a);
    data_case_file(c, "b.txt", b, sizeof b);
    data_case_open(c, HT_TASK_LM, 100,
                   "{\"format\": \"mixture\", \"length\": 8, \"tokenizer\": \"char\", \"sources\": ["
                   "{\"format\": \"text\", \"train\": \"a.txt\", \"weight\": 3},"
                   "{\"format\": \"text\", \"train\": \"b.txt\", \"weight\": 1}]}");
    assert_int_equal(ht_data_info_of(c->data)->vocabulary, 2);
    ht_loader *loader = loader_of(c, HT_DATA_TRAIN);
    int from_b = 0;
    for (int i = 0; i < 40; i++) {
        ht_batch batch = data_case_next(c, loader);
        for (int row = 0; row < 100; row++) {
            const int32_t *tokens = data_case_ints(&batch, "tokens") + (ptrdiff_t)row * 8;
            for (int t = 1; t < 8; t++) assert_int_equal(tokens[t], tokens[0]);
            from_b += tokens[0];
        }
        data_case_drop(&batch);
    }
    assert_in_range(from_b, 900, 1100); /* of 4000 */
    ht_loader_free(loader);
    assert_int_equal(ht_data_info_of(c->data)->parts[HT_DATA_VALIDATION].tokens, 30);
    data_case_refused(c, HT_TASK_LM, 1,
                      "{\"format\": \"mixture\", \"sources\": [{\"format\": \"text\", \"train\": \"a.txt\", "
                      "\"length\": 3}]}",
                      "data.sources[0].length: belongs to the mixture");
    data_case_refused(c, HT_TASK_LM, 1,
                      "{\"format\": \"mixture\", \"sources\": [{\"format\": \"table\", \"train\": \"a.txt\"}]}",
                      "\"table\" does not mix");
    data_case_refused(c, HT_TASK_LM, 1, "{\"format\": \"mixture\", \"sources\": []}", "a list of 1 to 64");
    data_case_refused(c, HT_TASK_LM, 1,
                      "{\"format\": \"mixture\", \"sources\": [{\"format\": \"mixture\", \"sources\": []}]}",
                      "\"mixture\" does not mix");
    data_case_refused(c, HT_TASK_LM, 1, "{\"format\": \"mixture\", \"sources\": [{\"format\": \"text\"}]}",
                      "data.sources[0]");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order__is_a_permutation_that_seed_epoch_and_site_change),
        cmocka_unit_test(order__all_orders_of_a_few_things_occur),
        cmocka_unit_test(order__draws_cover_their_range_evenly),
        IN_FOLDER(text__characters_are_sorted_code_points_and_the_end_is_held_out),
        IN_FOLDER(text__validation_counts_every_target_once),
        IN_FOLDER(text__shuffled_epochs_hold_every_window_once),
        IN_FOLDER(text__random_windows_begin_anywhere_but_too_late),
        IN_FOLDER(text__streams_go_on_from_batch_to_batch),
        IN_FOLDER(text__documents_carry_numbers_and_positions),
        IN_FOLDER(text__a_masked_model_finds_some_tokens),
        IN_FOLDER(text__a_file_of_that_name_goes_before_a_pattern),
        IN_FOLDER(text__wrong_input_is_refused_with_its_place),
        IN_FOLDER(text__patterns_are_sorted_by_bytes),
        IN_FOLDER(jsonl__a_line_is_a_document),
        IN_FOLDER(shards__tokens_beyond_the_vocabulary_are_found_when_they_come),
        IN_FOLDER(mixtures__draw_rows_by_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
