/* The fingerprint of a data set: what changes it, and what does not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data_case.h"

enum { LARGE = 3 << 20 };

static ht_data_fingerprint print_of(data_case *c, const char *block)
{
    data_case_open(c, HT_TASK_LM, 4, block);
    return *ht_data_fingerprint_of(c->data);
}

static bool same(ht_data_fingerprint a, ht_data_fingerprint b)
{
    return memcmp(a.hashes, b.hashes, sizeof a.hashes) == 0 && memcmp(a.files, b.files, sizeof a.files) == 0;
}

static void fingerprint__follows_name_size_and_content(void **state)
{
    data_case *c = *state;
    static const char block[] = "{\"format\": \"text\", \"train\": \"*.txt\", \"length\": 8}";
    data_case_text(c, "a.txt", "one two three four five six seven");
    data_case_text(c, "b.txt", "eight nine ten eleven twelve");
    ht_data_fingerprint first = print_of(c, block);
    assert_int_equal(first.files[HT_DATA_TRAIN], 2);
    assert_int_equal(first.files[HT_DATA_VALIDATION], 0);
    assert_true(same(first, print_of(c, block)));
    data_case_text(c, "b.txt", "eight nine ten eleven twelvE");
    assert_false(same(first, print_of(c, block)));
    data_case_text(c, "b.txt", "eight nine ten eleven twelve.");
    assert_false(same(first, print_of(c, block)));
    data_case_text(c, "b.txt", "eight nine ten eleven twelve");
    assert_true(same(first, print_of(c, block)));
    /* The order of files is that of the data. */
    assert_false(same(first, print_of(c, "{\"format\": \"text\", \"train\": [\"b.txt\", \"a.txt\"], \"length\": 8}")));
    /* Another folder, the same files. */
    data_case_text(c, "d/a.txt", "one two three four five six seven");
    data_case_text(c, "d/b.txt", "eight nine ten eleven twelve");
    assert_true(same(first, print_of(c, "{\"format\": \"text\", \"train\": \"d/*.txt\", \"length\": 8}")));
}

static void fingerprint__of_each_part_is_its_own(void **state)
{
    data_case *c = *state;
    static const char block[] =
        "{\"format\": \"text\", \"train\": \"a.txt\", \"validation\": \"v.txt\", \"length\": 8}";
    data_case_text(c, "a.txt", "one two three four five six seven");
    data_case_text(c, "v.txt", "eight nine ten eleven twelve");
    ht_data_fingerprint first = print_of(c, block);
    data_case_text(c, "v.txt", "eight nine ten eleven thirteen");
    ht_data_fingerprint second = print_of(c, block);
    assert_true(first.hashes[HT_DATA_TRAIN] == second.hashes[HT_DATA_TRAIN]);
    assert_true(first.hashes[HT_DATA_VALIDATION] != second.hashes[HT_DATA_VALIDATION]);
}

/* Of a large file only samples are read, its end among them. */
static void fingerprint__of_a_large_file_has_its_ends(void **state)
{
    data_case *c = *state;
    static const char block[] = "{\"format\": \"text\", \"train\": \"a.txt\", \"length\": 8}";
    char *text = malloc(LARGE);
    assert_non_null(text);
    memset(text, 'x', LARGE);
    data_case_file(c, "a.txt", text, LARGE);
    ht_data_fingerprint first = print_of(c, block);
    static const size_t places[] = {0, LARGE - 1};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        text[places[i]] = 'y';
        data_case_file(c, "a.txt", text, LARGE);
        assert_false(same(first, print_of(c, block)));
        text[places[i]] = 'x';
    }
    data_case_file(c, "a.txt", text, LARGE);
    assert_true(same(first, print_of(c, block)));
    free(text);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(fingerprint__follows_name_size_and_content),
        CASE(fingerprint__of_each_part_is_its_own),
        CASE(fingerprint__of_a_large_file_has_its_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
