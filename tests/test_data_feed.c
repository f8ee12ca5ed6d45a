/* Feeds: the same batches with and without a thread, after a seek, and again from the same seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data_case.h"

typedef struct feed_case {
    const char *block;
    ht_data_task task;
} feed_case;

static const feed_case cases[] = {
    {"{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 7}", HT_DATA_LM},
    {"{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 7, \"order\": \"shuffled\", \"tokenizer\": \"char\"}",
     HT_DATA_LM},
    {"{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 7, \"order\": \"stream\"}", HT_DATA_LM},
    {"{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 9, \"documents\": \"line\", \"document_ids\": true}",
     HT_DATA_LM},
    {"{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 9}", HT_DATA_MASKED_LM},
    {"{\"format\": \"mixture\", \"length\": 5, \"sources\": [{\"format\": \"text\", \"train\": \"a.txt\"}, "
     "{\"format\": "
     "\"text\", \"train\": \"p.tsv\", \"weight\": 2}]}",
     HT_DATA_LM},
    {"{\"format\": \"pairs\", \"train\": \"p.tsv\", \"minimum_count\": 1, \"validation_share\": 0.3}", HT_DATA_PAIRS},
    {"{\"format\": \"sentences\", \"train\": \"s.tsv\", \"length\": 6}", HT_DATA_CLASS},
    {"{\"format\": \"table\", \"train\": \"t.csv\"}", HT_DATA_CLASS},
    {"{\"format\": \"table\", \"train\": \"t.csv\"}", HT_DATA_REGRESSION},
};
enum { CASES = sizeof cases / sizeof cases[0], BATCHES = 40 };

static int begin(void **state)
{
    if (data_case_begin(state) != 0) return 1;
    data_case *c = *state;
    ht_text text = {0}, pairs = {0}, table = {0}, sentences = {0};
    for (int i = 0; i < 120; i++) {
        ht_text_add(&text, "line %d of some\n", i * 37 % 100);
        ht_text_add(&pairs, "a%d", i % 50);
        for (int k = 0; k < i % 7; k++) ht_text_add(&pairs, " b");
        ht_text_add(&pairs, "\tc d%d\n", i);
        ht_text_add(&sentences, "word %d and %d more\tclass %d\n", i, i % 9, i % 2);
        ht_text_add(&table, "%d,%d,%d\n", i, i * i % 17, i % 3);
    }
    data_case_file(c, "a.txt", text.data, text.length);
    data_case_file(c, "p.tsv", pairs.data, pairs.length);
    data_case_file(c, "t.csv", table.data, table.length);
    data_case_file(c, "s.tsv", sentences.data, sentences.length);
    ht_text_free(&sentences);
    ht_text_free(&text);
    ht_text_free(&pairs);
    ht_text_free(&table);
    return 0;
}

/* What a batch holds, as one number. */
static uint64_t hash_of(const ht_batch *batch)
{
    uint64_t hash = ht_hash_bytes(0, &batch->rows, sizeof batch->rows);
    hash = ht_hash_bytes(hash, &batch->counted, sizeof batch->counted);
    hash = ht_hash_bytes(hash, &batch->epoch, sizeof batch->epoch);
    hash = ht_hash_bytes(hash, &batch->last, sizeof batch->last);
    for (int i = 0; i < batch->array_count; i++)
        hash = ht_hash_bytes(hash, batch->arrays[i].data, batch->arrays[i].bytes);
    return hash;
}

static uint64_t next_hash(data_case *c, ht_feed *feed)
{
    ht_batch batch = data_case_next(c, feed);
    uint64_t hash = hash_of(&batch);
    data_case_drop(&batch);
    return hash;
}

static ht_feed *feed_of(data_case *c, ht_data_part part, bool prefetch)
{
    ht_feed *feed;
    if (ht_feed_open(&feed, c->data, part, prefetch) != HT_OK) fail_msg("feed: %s", c->ctx.message);
    return feed;
}

static void feeds__a_thread_changes_nothing(void **state)
{
    data_case *c = *state;
    for (int i = 0; i < CASES; i++) {
        data_case_open(c, cases[i].task, 4, cases[i].block);
        for (int part = 0; part < HT_DATA_PARTS; part++) {
            ht_feed *plain = feed_of(c, (ht_data_part)part, false), *ahead = feed_of(c, (ht_data_part)part, true);
            for (int b = 0; b < BATCHES; b++) {
                assert_int_equal(ht_feed_bucket(plain), ht_feed_bucket(ahead));
                if (next_hash(c, plain) != next_hash(c, ahead)) fail_msg("%s: batch %d differs", cases[i].block, b);
            }
            ht_feed_free(plain);
            ht_feed_free(ahead);
        }
    }
}

static void feeds__a_seek_is_exact_in_any_direction(void **state)
{
    data_case *c = *state;
    static const uint64_t places[] = {39, 0, 1, 38, 17, 17, 5, 20};
    for (int i = 0; i < CASES; i++) {
        data_case_open(c, cases[i].task, 4, cases[i].block);
        uint64_t hashes[BATCHES];
        ht_feed *feed = feed_of(c, HT_DATA_TRAIN, false);
        for (int b = 0; b < BATCHES; b++) hashes[b] = next_hash(c, feed);
        assert_int_equal(ht_feed_position(feed), BATCHES);
        ht_feed_free(feed);
        for (int prefetch = 0; prefetch < 2; prefetch++) {
            feed = feed_of(c, HT_DATA_TRAIN, prefetch);
            for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
                ht_feed_seek(feed, places[k]);
                assert_int_equal(ht_feed_position(feed), places[k]);
                for (uint64_t b = places[k]; b < places[k] + 3 && b < BATCHES; b++)
                    if (next_hash(c, feed) != hashes[b]) fail_msg("%s: batch %d after a seek", cases[i].block, (int)b);
            }
            ht_feed_free(feed);
        }
        /* Opened again, the data gives the same. */
        data_case_open(c, cases[i].task, 4, cases[i].block);
        feed = feed_of(c, HT_DATA_TRAIN, false);
        for (int b = 0; b < BATCHES; b++) assert_true(next_hash(c, feed) == hashes[b]);
        ht_feed_free(feed);
    }
}

static void feeds__what_will_count_is_known_before(void **state)
{
    data_case *c = *state;
    for (int i = 0; i < CASES; i++) {
        data_case_open(c, cases[i].task, 4, cases[i].block);
        for (int part = 0; part < HT_DATA_PARTS; part++) {
            ht_feed *feed = feed_of(c, (ht_data_part)part, false);
            int64_t promised = ht_feed_counted(feed, BATCHES), counted = 0;
            for (int b = 0; b < BATCHES; b++) {
                ht_batch batch = data_case_next(c, feed);
                counted += batch.counted;
                data_case_drop(&batch);
            }
            assert_int_equal(promised, counted);
            ht_feed_free(feed);
        }
    }
}

static void feeds__ending_at_any_moment_leaves_nothing_behind(void **state)
{
    data_case *c = *state;
    data_case_open(c, HT_DATA_LM, 4, cases[0].block);
    for (int i = 0; i < 200; i++) {
        ht_feed *feed = feed_of(c, HT_DATA_TRAIN, true);
        if (i % 3 == 1) next_hash(c, feed);
        if (i % 3 == 2) ht_feed_seek(feed, (uint64_t)i);
        ht_feed_free(feed);
    }
    ht_feed_free(NULL);
    ht_data_free(NULL);
}

static void feeds__a_batch_of_another_shape_is_refused(void **state)
{
    data_case *c = *state;
    data_case_open(c, HT_DATA_PAIRS, 4, cases[6].block);
    ht_feed *feed = feed_of(c, HT_DATA_TRAIN, false);
    int bucket = ht_feed_bucket(feed);
    ht_batch batch;
    ht_data_layout(c->data, bucket == 0 ? 1 : 0, &batch);
    assert_int_equal(ht_feed_next(feed, &batch), HT_EINVAL);
    assert_non_null(strstr(c->ctx.message, "the next batch is of bucket"));
    ht_feed_free(feed);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(feeds__a_thread_changes_nothing),
        IN_FOLDER(feeds__a_seek_is_exact_in_any_direction),
        IN_FOLDER(feeds__what_will_count_is_known_before),
        IN_FOLDER(feeds__ending_at_any_moment_leaves_nothing_behind),
        IN_FOLDER(feeds__a_batch_of_another_shape_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
