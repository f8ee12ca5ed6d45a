/* Feeds: the same batches with and without a thread, after a seek, and again from the same seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data_case.h"

typedef struct loader_case {
    const char *block;
    ht_task task;
} loader_case;

static const loader_case cases[] = {
    {"{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 7}", HT_TASK_LM},
    {"{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 7, \"order\": \"shuffled\", \"tokenizer\": \"char\"}",
     HT_TASK_LM},
    {"{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 7, \"order\": \"stream\"}", HT_TASK_LM},
    {"{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 9, \"documents\": \"line\", \"document_ids\": true}",
     HT_TASK_LM},
    {"{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 9}", HT_TASK_MASKED_LM},
    {"{\"format\": \"mixture\", \"length\": 5, \"sources\": [{\"format\": \"text\", \"train\": \"a.txt\"}, "
     "{\"format\": "
     "\"text\", \"train\": \"p.tsv\", \"weight\": 2}]}",
     HT_TASK_LM},
    {"{\"format\": \"pairs\", \"train\": \"p.tsv\", \"minimum_count\": 1, \"validation_share\": 0.3}", HT_TASK_PAIRS},
    {"{\"format\": \"sentences\", \"train\": \"s.tsv\", \"length\": 6}", HT_TASK_CLASS},
    {"{\"format\": \"table\", \"train\": \"t.csv\"}", HT_TASK_CLASS},
    {"{\"format\": \"table\", \"train\": \"t.csv\"}", HT_TASK_REGRESSION},
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

static uint64_t next_hash(data_case *c, ht_loader *loader)
{
    ht_batch batch = data_case_next(c, loader);
    uint64_t hash = hash_of(&batch);
    data_case_drop(&batch);
    return hash;
}

static ht_loader *loader_of(data_case *c, ht_data_part part, bool prefetch)
{
    ht_loader *loader;
    if (ht_loader_open(&loader, c->data, part, prefetch) != HT_OK) fail_msg("loader: %s", c->ctx.message);
    return loader;
}

static void loader__a_thread_changes_nothing(void **state)
{
    data_case *c = *state;
    for (int i = 0; i < CASES; i++) {
        data_case_open(c, cases[i].task, 4, cases[i].block);
        for (int part = 0; part < HT_DATA_PARTS; part++) {
            ht_loader *plain = loader_of(c, (ht_data_part)part, false), *ahead = loader_of(c, (ht_data_part)part, true);
            for (int b = 0; b < BATCHES; b++) {
                assert_int_equal(ht_loader_bucket(plain), ht_loader_bucket(ahead));
                if (next_hash(c, plain) != next_hash(c, ahead)) fail_msg("%s: batch %d differs", cases[i].block, b);
            }
            ht_loader_free(plain);
            ht_loader_free(ahead);
        }
    }
}

static void loader__a_seek_is_exact_in_any_direction(void **state)
{
    data_case *c = *state;
    static const uint64_t places[] = {39, 0, 1, 38, 17, 17, 5, 20};
    for (int i = 0; i < CASES; i++) {
        data_case_open(c, cases[i].task, 4, cases[i].block);
        uint64_t hashes[BATCHES];
        ht_loader *loader = loader_of(c, HT_DATA_TRAIN, false);
        for (int b = 0; b < BATCHES; b++) hashes[b] = next_hash(c, loader);
        assert_int_equal(ht_loader_position(loader), BATCHES);
        ht_loader_free(loader);
        for (int prefetch = 0; prefetch < 2; prefetch++) {
            loader = loader_of(c, HT_DATA_TRAIN, prefetch);
            for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
                ht_loader_seek(loader, places[k]);
                assert_int_equal(ht_loader_position(loader), places[k]);
                for (uint64_t b = places[k]; b < places[k] + 3 && b < BATCHES; b++)
                    if (next_hash(c, loader) != hashes[b])
                        fail_msg("%s: batch %d after a seek", cases[i].block, (int)b);
            }
            ht_loader_free(loader);
        }
        /* Opened again, the data gives the same. */
        data_case_open(c, cases[i].task, 4, cases[i].block);
        loader = loader_of(c, HT_DATA_TRAIN, false);
        for (int b = 0; b < BATCHES; b++) assert_true(next_hash(c, loader) == hashes[b]);
        ht_loader_free(loader);
    }
}

static void loader__what_will_count_is_known_before(void **state)
{
    data_case *c = *state;
    for (int i = 0; i < CASES; i++) {
        data_case_open(c, cases[i].task, 4, cases[i].block);
        for (int part = 0; part < HT_DATA_PARTS; part++) {
            ht_loader *loader = loader_of(c, (ht_data_part)part, false);
            int64_t promised = ht_loader_counted(loader, BATCHES), counted = 0;
            for (int b = 0; b < BATCHES; b++) {
                ht_batch batch = data_case_next(c, loader);
                counted += batch.counted;
                data_case_drop(&batch);
            }
            assert_int_equal(promised, counted);
            ht_loader_free(loader);
        }
    }
}

static void loader__ending_at_any_moment_leaves_nothing_behind(void **state)
{
    data_case *c = *state;
    data_case_open(c, HT_TASK_LM, 4, cases[0].block);
    for (int i = 0; i < 200; i++) {
        ht_loader *loader = loader_of(c, HT_DATA_TRAIN, true);
        if (i % 3 == 1) next_hash(c, loader);
        if (i % 3 == 2) ht_loader_seek(loader, (uint64_t)i);
        ht_loader_free(loader);
    }
    ht_loader_free(NULL);
    ht_data_free(NULL);
}

static void loader__a_batch_of_another_shape_is_refused(void **state)
{
    data_case *c = *state;
    data_case_open(c, HT_TASK_PAIRS, 4, cases[6].block);
    ht_loader *loader = loader_of(c, HT_DATA_TRAIN, false);
    int bucket = ht_loader_bucket(loader);
    ht_batch batch;
    ht_data_layout(c->data, bucket == 0 ? 1 : 0, &batch);
    assert_int_equal(ht_loader_next(loader, &batch), HT_EINVAL);
    assert_non_null(strstr(c->ctx.message, "the next batch is of bucket"));
    ht_loader_free(loader);
}

/* FNV-1a that goes on where it ended: the hash of parts is that of the whole. */
static uint64_t hash_on(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* The training batches of one step: a hash of each array's rows, in order, and of what is known about them. */
static void step_hashes(data_case *c, ht_loader *loader, int64_t slices, uint64_t *hashes)
{
    int64_t rows = 0, counted = 0, promised = ht_loader_counted(loader, slices);
    int bucket = ht_loader_bucket(loader);
    for (int i = 0; i < HT_BATCH_MOST_ARRAYS; i++) hashes[i] = 7;
    for (int64_t k = 0; k < slices; k++) {
        assert_int_equal(ht_loader_bucket(loader), bucket);
        ht_batch batch = data_case_next(c, loader);
        rows += batch.rows;
        counted += batch.counted;
        for (int i = 0; i < batch.array_count; i++)
            hashes[i] = hash_on(hashes[i], batch.arrays[i].data, batch.arrays[i].bytes);
        if (k + 1 == slices) hashes[0] = hash_on(hashes[0], &batch.last, sizeof batch.last);
        data_case_drop(&batch);
    }
    assert_int_equal(promised, counted);
    hashes[0] = hash_on(hashes[0], &rows, sizeof rows);
    hashes[0] = hash_on(hashes[0], &counted, sizeof counted);
}

static void loader__a_step_has_the_same_rows_however_it_is_cut(void **state)
{
    data_case *c = *state;
    enum { STEPS = 30, ROWS = 8 };
    static uint64_t whole[STEPS][HT_BATCH_MOST_ARRAYS], cut[HT_BATCH_MOST_ARRAYS];
    for (int i = 0; i < CASES; i++) {
        for (int64_t slices = 1; slices <= 4; slices *= 2) {
            c->slices = slices;
            data_case_open(c, cases[i].task, ROWS / slices, cases[i].block);
            assert_int_equal(ht_data_info_of(c->data)->parts[HT_DATA_TRAIN].batches % slices, 0);
            ht_loader *loader = loader_of(c, HT_DATA_TRAIN, slices == 4);
            for (int step = 0; step < STEPS; step++) {
                step_hashes(c, loader, slices, slices == 1 ? whole[step] : cut);
                if (slices > 1 && memcmp(cut, whole[step], sizeof cut) != 0)
                    fail_msg("%s: step %d of %d slices differs", cases[i].block, step, (int)slices);
            }
            ht_loader_free(loader);
        }
        c->slices = 0;
    }
}

/* More rows than there are: the rest of a step is padding, or begins again. */
static void loader__a_step_larger_than_the_data_is_cut_as_well(void **state)
{
    data_case *c = *state;
    for (int i = 6; i < CASES; i++) {
        for (int slices = 1; slices <= 4; slices *= 4) {
            c->slices = slices;
            data_case_open(c, cases[i].task, 256 / slices, cases[i].block);
            assert_int_equal(ht_data_info_of(c->data)->parts[HT_DATA_TRAIN].batches, slices);
            ht_loader *loader = loader_of(c, HT_DATA_TRAIN, false);
            static uint64_t whole[HT_BATCH_MOST_ARRAYS], cut[HT_BATCH_MOST_ARRAYS];
            step_hashes(c, loader, slices, slices == 1 ? whole : cut);
            if (slices > 1) assert_memory_equal(whole, cut, sizeof cut);
            ht_loader_free(loader);
        }
        c->slices = 0;
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(loader__a_thread_changes_nothing),
        IN_FOLDER(loader__a_seek_is_exact_in_any_direction),
        IN_FOLDER(loader__what_will_count_is_known_before),
        IN_FOLDER(loader__a_step_has_the_same_rows_however_it_is_cut),
        IN_FOLDER(loader__a_step_larger_than_the_data_is_cut_as_well),
        IN_FOLDER(loader__ending_at_any_moment_leaves_nothing_behind),
        IN_FOLDER(loader__a_batch_of_another_shape_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
