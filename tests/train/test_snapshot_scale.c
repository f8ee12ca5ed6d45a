/* Snapshots of a training step with a loss scale, and those of programs that knew none. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "format/format.h"
#include "snapshot_fixture.h"
#include "tiny_model.h"
#include "train/manifest.h"

/* An overflow before the stop and one behind it, and a scale that grows in between. */
static void scaled_step(session_fixture *w)
{
    double seed = w->step == 2 || w->step == 6 ? INFINITY : 1;
    must(w, ht_session_write_f64(w->s, "loss_grad", &seed, 1));
    snapshot_step(w);
}

static double scalar(const session_fixture *w, const char *name)
{
    double value;
    must(w, ht_session_read_f64(w->s, name, &value, 1));
    return value;
}

static void snapshot__the_loss_scale_goes_on_where_it_was(void **state)
{
    (void)state;
    ht_train_opts opts = HT_TRAIN_OPTS;
    const ht_train_setting settings[] = {{"loss_scale", "dynamic"}, {"scale_window", "2"}};
    opts.settings = settings;
    opts.setting_count = 2;
    session_fixture straight = snapshot_trained(&opts, 42);
    while (straight.step < 9) scaled_step(&straight);
    assert_int_equal(scalar(&straight, "applied"), 7);
    for (int stop = 0; stop < 9; stop++) {
        session_fixture first = snapshot_trained(&opts, 42), second = snapshot_trained(&opts, 7);
        char name[64];
        while (first.step < stop) scaled_step(&first);
        must(&first, snapshot_save(&first, test_folder, 9));
        snprintf(name, sizeof name, "step-%08d", stop);
        must(&second, snapshot_load(&second, snapshot_at(name)));
        while (second.step < 9) scaled_step(&second);
        assert_true(snapshot_hash(&straight) == snapshot_hash(&second));
        session_end(&first);
        session_end(&second);
    }
    session_end(&straight);
}

/* The optimiser's file as a program wrote it that knew no loss scale. */
static void forget_loss_scale(session_fixture *w, const char *snapshot)
{
    char path[256];
    ht_safetensors *file;
    ht_safetensors_writer *writer;
    ht_named_array arrays[64];
    size_t count = 0, length;
    snprintf(path, sizeof path, "%s/optimizer.safetensors", snapshot_at(snapshot));
    char *old = file_read(path, &length);
    must(w, ht_safetensors_parse(&file, w->ctx, path, (const uint8_t *)old, length));
    for (size_t i = 0; i < ht_safetensors_count(file); i++) {
        const ht_named_array *array = ht_safetensors_at(file, i);
        bool newer = strstr(array->name, "loss_scale") || strcmp(array->name, "skips_in_a_row") == 0 ||
                     strcmp(array->name, "fatal") == 0;
        assert_true(count < 64);
        if (!newer) arrays[count++] = *array;
    }
    assert_int_equal(ht_safetensors_count(file), count + 6);
    must(w, ht_safetensors_create(&writer, w->ctx, path, arrays, count, NULL));
    for (size_t i = 0; i < count; i++)
        must(w, ht_safetensors_append(writer, arrays[i].array.data, arrays[i].array.bytes));
    ht_manifest manifest;
    ht_arena *arena = ht_arena_create();
    snprintf(path, sizeof path, "%s/manifest.json", snapshot_at(snapshot));
    char *text = file_read(path, &length);
    must(w, ht_manifest_parse(&manifest, w->ctx, arena, "old", text, length));
    must(w, ht_safetensors_finish(writer, &manifest.files[1].checksum, &manifest.files[1].bytes));
    ht_text now = {0};
    must(w, ht_manifest_print(&now, w->ctx, &manifest));
    file_write(path, now.data, now.length);
    ht_text_free(&now);
    ht_arena_free(arena);
    ht_safetensors_free(file);
    free(text);
    free(old);
}

/* Without a scale it is the same training; with one, the scale begins as in a new run. */
static void snapshot__of_a_program_without_a_loss_scale_still_reads(void **state)
{
    (void)state;
    session_fixture first = snapshot_tiny(42), second = snapshot_tiny(7);
    while (first.step < 3) snapshot_step(&first);
    must(&first, snapshot_save(&first, test_folder, 1));
    forget_loss_scale(&first, "step-00000003");
    must(&second, snapshot_load(&second, snapshot_at("step-00000003")));
    assert_int_equal(scalar(&second, "applied"), 3);
    for (int i = 0; i < 3; i++) snapshot_step(&first), snapshot_step(&second);
    float a[TINY_VOCAB * TINY_WIDTH], b[TINY_VOCAB * TINY_WIDTH];
    must(&first, ht_session_read(first.s, "table", a, sizeof a));
    must(&second, ht_session_read(second.s, "table", b, sizeof b));
    assert_memory_equal(a, b, sizeof a);
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.settings = &(const ht_train_setting){"loss_scale", "dynamic"};
    opts.setting_count = 1;
    session_fixture scaled = snapshot_trained(&opts, 7);
    must(&scaled, snapshot_load(&scaled, snapshot_at("step-00000003")));
    assert_float_equal(scalar(&scaled, "loss_scale"), 65536, 0);
    assert_int_equal(scalar(&scaled, "loss_scale.last"), -1);
    session_end(&first);
    session_end(&second);
    session_end(&scaled);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, test_folder_setup, test_folder_teardown)
    const struct CMUnitTest tests[] = {
        ROW(snapshot__the_loss_scale_goes_on_where_it_was),
        ROW(snapshot__of_a_program_without_a_loss_scale_still_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
