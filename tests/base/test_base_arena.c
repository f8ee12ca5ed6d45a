#include "base/arena.h"
#include "base/fail.h"
#include "base/text.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static bool is_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != 0) return false;
    return true;
}

static void arena__pieces_are_zeroed_aligned_and_do_not_overlap(void **state)
{
    (void)state;
    enum { PIECES = 2000 };
    static unsigned char *piece[PIECES];
    static size_t size[PIECES];
    ht_arena *arena = ht_arena_create();
    size_t asked = 0;
    for (size_t i = 0; i < PIECES; i++) {
        size[i] = i % 97 == 0 ? i * 100 : i % 61; /* small ones, none at all, and some larger than a chunk */
        piece[i] = ht_arena_alloc(arena, size[i], 1);
        assert_non_null(piece[i]);
        assert_int_equal((uintptr_t)piece[i] % 16, 0);
        assert_true(is_zero(piece[i], size[i]));
        memset(piece[i], (int)(i % 255 + 1), size[i]);
        asked += size[i];
    }
    for (size_t i = 0; i < PIECES; i++)
        for (size_t j = 0; j < size[i]; j++) assert_int_equal(piece[i][j], i % 255 + 1);
    assert_true(ht_arena_used(arena) >= asked && ht_arena_used(arena) <= asked + 16 * PIECES);
    ht_arena_free(arena);
}

static void arena__size_zero_gives_unique_pointers(void **state)
{
    (void)state;
    ht_arena *arena = ht_arena_create();
    void *a = ht_arena_alloc(arena, 0, 8), *b = ht_arena_alloc(arena, 8, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    ht_arena_free(arena);
    ht_arena_free(NULL);
}

static void arena__sizes_that_overflow_give_null(void **state)
{
    (void)state;
    ht_arena *arena = ht_arena_create();
    assert_null(ht_arena_alloc(arena, SIZE_MAX, 2));
    assert_null(ht_arena_alloc(arena, SIZE_MAX / 16 + 2, 16));
    assert_null(ht_arena_alloc(arena, SIZE_MAX, 1));
    assert_null(ht_arena_alloc(arena, SIZE_MAX - 15, 1));
    assert_null(ht_arena_text(arena, "x", SIZE_MAX));
    assert_non_null(HT_NEW(arena, double, 3)); /* and it still works */
    ht_arena_free(arena);
}

static void arena__text_is_copied_and_terminated(void **state)
{
    (void)state;
    ht_arena *arena = ht_arena_create();
    char source[] = "weights";
    char *copy = ht_arena_text(arena, source, 6);
    source[0] = 'X';
    assert_string_equal(copy, "weight");
    assert_string_equal(ht_arena_text(arena, NULL, 0), "");
    ht_arena_free(arena);
}

static void grow__keeps_what_was_there(void **state)
{
    (void)state;
    int *array = NULL;
    size_t capacity = 0, moves = 0;
    for (size_t i = 0; i < 10000; i++) {
        size_t before = capacity;
        assert_true(ht_grow((void **)&array, &capacity, i + 1, sizeof *array));
        moves += capacity != before;
        array[i] = (int)i;
    }
    for (size_t i = 0; i < 10000; i++) assert_int_equal(array[i], i);
    assert_true(moves < 16); /* doubling, not creeping */
    int *kept = array;
    size_t prepacked_capacity = capacity;
    assert_false(ht_grow((void **)&array, &capacity, SIZE_MAX, sizeof *array));
    assert_false(ht_grow((void **)&array, &capacity, SIZE_MAX / 2, sizeof *array));
    assert_ptr_equal(array, kept);
    assert_int_equal(capacity, prepacked_capacity);
    free(array);
}

static void text__grows_as_it_is_written(void **state)
{
    (void)state;
    ht_text text = {0};
    size_t length = 0;
    for (int i = 0; i < 3000; i++) {
        ht_text_add(&text, "%d,", i);
        length += (size_t)snprintf(NULL, 0, "%d,", i);
        assert_int_equal(text.length, length);
    }
    assert_int_equal(strlen(text.data), length);
    assert_memory_equal(text.data, "0,1,2,3,", 8);
    assert_string_equal(text.data + length - 10, "2998,2999,");
    assert_false(text.failed);
    ht_text_free(&text);
    assert_null(text.data);
    ht_text_add(&text, "%s", ""); /* an empty write terminates too */
    assert_string_equal(text.data, "");
    ht_text_free(&text);
}

static const char *as_text(ht_text *text, double x)
{
    ht_text_free(text);
    ht_text_number(text, x);
    return text->data;
}

static void text__numbers_are_short_and_read_back(void **state)
{
    (void)state;
    ht_text text = {0};
    assert_string_equal(as_text(&text, 0.1), "0.1");
    assert_string_equal(as_text(&text, 1), "1");
    assert_string_equal(as_text(&text, -0.0), "-0");
    assert_string_equal(as_text(&text, 1e-5), "1e-05");
    assert_string_equal(as_text(&text, INFINITY), "inf");
    assert_string_equal(as_text(&text, -INFINITY), "-inf");
    assert_string_equal(as_text(&text, NAN), "nan");
    assert_string_equal(as_text(&text, -NAN), "nan");
    const double hard[] = {1.0 / 3, DBL_MAX, DBL_MIN, 0x1p-1074, 5e-324, 0.1 + 0.2, 123456789012345678.0, -2.5e-310};
    for (size_t i = 0; i < sizeof hard / sizeof hard[0]; i++)
        assert_true(strtod(as_text(&text, hard[i]), NULL) == hard[i]);
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") != NULL) assert_string_equal(as_text(&text, 0.5), "0.5");
    setlocale(LC_NUMERIC, "C");
    ht_text_free(&text);
}

static void read_file__gives_every_byte(void **state)
{
    (void)state;
    ht_context ctx = {0};
    char path[] = "halftone-test-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    enum { BYTES = 300001 };
    static char bytes[BYTES];
    for (int i = 0; i < BYTES; i++) bytes[i] = (char)(i * 7);
    FILE *file = fopen(path, "wb");
    fwrite(bytes, 1, BYTES, file);
    fclose(file);
    char *data;
    size_t length;
    assert_int_equal(ht_read_file(&ctx, &data, &length, path), HT_OK);
    assert_int_equal(length, BYTES);
    assert_memory_equal(data, bytes, BYTES);
    assert_int_equal(data[BYTES], 0);
    free(data);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(ht_read_file(&ctx, &data, &length, path), HT_OK);
    assert_int_equal(length, 0);
    assert_string_equal(data, "");
    free(data);
    remove(path);
}

static void read_file__failure_names_the_path(void **state)
{
    (void)state;
    ht_context ctx = {0};
    char *data;
    size_t length;
    assert_int_equal(ht_read_file(&ctx, &data, &length, "no/such/file"), HT_EIO);
    assert_non_null(strstr(ctx.message, "no/such/file"));
    assert_null(data);
    assert_int_equal(ht_read_file(&ctx, &data, &length, "."), HT_EIO); /* a folder opens, but cannot be read */
    assert_null(data);
    assert_int_equal(ctx.status, HT_EIO);
}

static void edit_distance__counts_edits(void **state)
{
    (void)state;
    assert_int_equal(ht_edit_distance("", ""), 0);
    assert_int_equal(ht_edit_distance("softmax", "softmax"), 0);
    assert_int_equal(ht_edit_distance("", "abc"), 3);
    assert_int_equal(ht_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(ht_edit_distance("sotfmax", "softmax"), 1);
    assert_int_equal(ht_edit_distance("matmull", "matmul"), 1);
    assert_int_equal(ht_edit_distance("relu", "gelu"), 1);
    char a[200], b[200];
    memset(a, 'a', sizeof a);
    memset(b, 'b', sizeof b);
    a[199] = b[199] = '\0';
    assert_int_equal(ht_edit_distance(a, b), 63);
}

static void remember(void *arg, ht_log_level level, const char *line)
{
    snprintf(arg, 64, "%d %s", level, line);
}

static void fail__records_status_and_message(void **state)
{
    (void)state;
    ht_context ctx = {0};
    assert_int_equal(ht_fail(&ctx, HT_ESHAPE, "sizes differ: %d vs %d", 3, 4), HT_ESHAPE);
    assert_int_equal(ctx.status, HT_ESHAPE);
    assert_string_equal(ctx.message, "sizes differ: 3 vs 4");
    ht_fail(&ctx, HT_EINVAL, "in fc: %s", ctx.message); /* a message may quote the one before */
    assert_string_equal(ctx.message, "in fc: sizes differ: 3 vs 4");
    char flood[4000];
    memset(flood, 'x', sizeof flood - 1);
    flood[sizeof flood - 1] = '\0';
    ht_fail(&ctx, HT_EINVAL, "%s", flood);
    assert_int_equal(strlen(ctx.message), sizeof ctx.message - 1);
}

static void note__reaches_who_listens(void **state)
{
    (void)state;
    char line[64] = "";
    ht_context ctx = {0};
    ht_note(&ctx, HT_LOG_WARN, "nobody hears %d", 1);
    ctx.log = remember;
    ctx.log_arg = line;
    ht_note(&ctx, HT_LOG_WARN, "threads: %d", 2);
    assert_string_equal(line, "1 threads: 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena__pieces_are_zeroed_aligned_and_do_not_overlap),
        cmocka_unit_test(arena__size_zero_gives_unique_pointers),
        cmocka_unit_test(arena__sizes_that_overflow_give_null),
        cmocka_unit_test(arena__text_is_copied_and_terminated),
        cmocka_unit_test(grow__keeps_what_was_there),
        cmocka_unit_test(text__grows_as_it_is_written),
        cmocka_unit_test(text__numbers_are_short_and_read_back),
        cmocka_unit_test(read_file__gives_every_byte),
        cmocka_unit_test(read_file__failure_names_the_path),
        cmocka_unit_test(edit_distance__counts_edits),
        cmocka_unit_test(fail__records_status_and_message),
        cmocka_unit_test(note__reaches_who_listens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
