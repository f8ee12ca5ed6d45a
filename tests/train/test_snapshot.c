/* Snapshots: what goes in comes out, and old ones go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "format/format.h"
#include "snapshot_fixture.h"
#include "tiny_model.h"
#include "train/manifest.h"

static void snapshot__a_resumed_run_has_the_bits_of_one_that_never_stopped(void **state)
{
    (void)state;
    session_fixture straight = snapshot_tiny(42);
    for (int i = 0; i < 9; i++) snapshot_step(&straight);
    for (int stop = 0; stop < 9; stop += 4) {
        session_fixture first = snapshot_tiny(42), second = snapshot_tiny(7);
        while (first.step < stop) snapshot_step(&first);
        must(&first, snapshot_save(&first, test_folder, 9));
        snapshot_step(&second);
        assert_true(snapshot_hash(&first) != snapshot_hash(&second));
        char name[64];
        snprintf(name, sizeof name, "step-%08d", stop);
        must(&second, snapshot_load(&second, snapshot_at(name)));
        assert_int_equal(second.step, stop);
        assert_true(snapshot_hash(&first) == snapshot_hash(&second));
        while (second.step < 9) snapshot_step(&second);
        assert_true(snapshot_hash(&straight) == snapshot_hash(&second));
        session_end(&first);
        session_end(&second);
    }
    session_end(&straight);
}

static void snapshot__every_optimizer_goes_on_where_it_was(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"sgd", "adam", "adamw_hf", "adagrad", "lion", "lamb", "muon"};
    const ht_train_setting settings[] = {
        {"decay", "matrices"}, {"schedule", "cosine"}, {"schedule.decay_steps", "9"}, {"initial_accumulator", "0.1"}};
    for (size_t i = 0; i < sizeof optimizers / sizeof optimizers[0]; i++) {
        ht_train_opts opts = HT_TRAIN_OPTS;
        opts.optimizer = optimizers[i];
        opts.momentum = strcmp(optimizers[i], "sgd") == 0 ? 0.9 : 0;
        opts.weight_decay = 0.01;
        opts.settings = settings;
        opts.setting_count = strcmp(optimizers[i], "adagrad") == 0 ? 4 : 3;
        session_fixture first = snapshot_trained(&opts, 42), second = snapshot_trained(&opts, 7);
        while (first.step < 4) snapshot_step(&first);
        must(&first, snapshot_save(&first, test_folder, 1));
        must(&second, snapshot_load(&second, snapshot_at("step-00000004")));
        while (first.step < 8) snapshot_step(&first);
        while (second.step < 8) snapshot_step(&second);
        if (snapshot_hash(&first) != snapshot_hash(&second)) fail_msg("%s goes on otherwise", optimizers[i]);
        session_end(&first);
        session_end(&second);
    }
}

/* One flat array or two: a snapshot of either goes into the other. */
static void snapshot__does_not_depend_on_how_the_optimiser_groups(void **state)
{
    (void)state;
    ht_train_opts opts = HT_TRAIN_OPTS, grouped = HT_TRAIN_OPTS;
    grouped.settings = &(const ht_train_setting){"decay", "matrices"};
    grouped.setting_count = 1;
    session_fixture one = snapshot_trained(&opts, 42), two = snapshot_trained(&grouped, 7);
    float a[TINY_VOCAB * TINY_WIDTH], b[TINY_VOCAB * TINY_WIDTH];
    while (one.step < 3) snapshot_step(&one);
    must(&one, snapshot_save(&one, test_folder, 1));
    must(&two, snapshot_load(&two, snapshot_at("step-00000003")));
    static const char *const names[] = {"table", "table.m", "table.v"};
    for (int i = 0; i < 3; i++) {
        must(&one, ht_session_read(one.s, names[i], a, sizeof a));
        must(&two, ht_session_read(two.s, names[i], b, sizeof b));
        assert_memory_equal(a, b, sizeof a);
    }
    snapshot_step(&two);
    must(&two, snapshot_save(&two, test_folder, 1));
    must(&one, snapshot_load(&one, snapshot_at("step-00000004")));
    session_end(&one);
    session_end(&two);
}

static void snapshot__saving_changes_nothing_in_the_session(void **state)
{
    (void)state;
    session_fixture w = snapshot_tiny(42);
    snapshot_step(&w);
    uint64_t before = snapshot_hash(&w);
    must(&w, snapshot_save(&w, test_folder, 1));
    assert_true(snapshot_hash(&w) == before);
    session_end(&w);
}

/* Parameters under their own names, moments and counters apart, no gradients. */
static void snapshot__weights_and_the_rest_are_files_of_their_own(void **state)
{
    (void)state;
    session_fixture w = snapshot_tiny(42);
    snapshot_step(&w);
    must(&w, snapshot_save(&w, test_folder, 1));
    ht_safetensors *weights, *rest;
    must(&w, ht_safetensors_open(&weights, w.ctx, snapshot_at("step-00000001/weights.safetensors")));
    must(&w, ht_safetensors_open(&rest, w.ctx, snapshot_at("step-00000001/optimizer.safetensors")));
    const ht_named_array *table = ht_safetensors_find(weights, "table");
    assert_non_null(table);
    assert_int_equal(table->array.rank, 2);
    float has[TINY_VOCAB * TINY_WIDTH];
    assert_true(table->array.bytes <= sizeof has);
    must(&w, ht_session_read(w.s, "table", has, table->array.bytes));
    assert_memory_equal(has, table->array.data, table->array.bytes);
    assert_int_equal(ht_safetensors_count(weights), 13);
    assert_null(ht_safetensors_find(weights, "flat.param.f32"));
    assert_non_null(ht_safetensors_find(rest, "applied"));
    assert_non_null(ht_safetensors_find(rest, "rng.step"));
    /* Moments have their tensors' shapes: how the optimiser groups them is nobody's concern. */
    assert_non_null(ht_safetensors_find(rest, "table.m"));
    assert_int_equal(ht_safetensors_find(rest, "table.v")->array.rank, 2);
    assert_null(ht_safetensors_find(rest, "flat.m.f32"));
    assert_null(ht_safetensors_find(rest, "table.grad"));
    for (size_t i = 0; i < ht_safetensors_count(rest); i++)
        assert_null(strstr(ht_safetensors_at(rest, i)->name, "grad"));
    ht_safetensors_free(weights);
    ht_safetensors_free(rest);
    session_end(&w);
}

static void snapshot__what_the_caller_adds_comes_back(void **state)
{
    (void)state;
    session_fixture w = snapshot_tiny(42);
    ht_snapshot_meta in = {.step = 123456789,
                           .position = INT64_MAX,
                           .seed = UINT64_MAX,
                           .config_json = "{\"a\": [1, 2.5, \"x\\ny\"], // why\n \"b\": {}}",
                           .extra = "{}"},
                     *out;
    must(&w, ht_snapshot_write(w.s, test_folder, &in, 1));
    assert_string_equal(snapshot_newest(&w), "step-123456789");
    must(&w, ht_snapshot_look(w.ctx, snapshot_at("step-123456789"), &out));
    assert_int_equal(out->step, 123456789);
    assert_true(out->position == INT64_MAX && out->seed == UINT64_MAX && out->model_hash == w.plan->model_hash);
    assert_string_equal(out->config_json, "{\"a\": [1, 2.5, \"x\\ny\"], \"b\": {}}");
    assert_string_equal(out->extra, "{}");
    ht_snapshot_meta_free(out);
    in = (ht_snapshot_meta){.step = 1};
    must(&w, ht_snapshot_write(w.s, test_folder, &in, 1));
    must(&w, ht_snapshot_read(w.s, snapshot_at("step-00000001"), &out));
    assert_null(out->config_json);
    assert_null(out->extra);
    ht_snapshot_meta_free(out);
    session_end(&w);
}

static void snapshot__arguments_that_cannot_be_are_refused(void **state)
{
    (void)state;
    session_fixture w = snapshot_tiny(42);
    ht_snapshot_meta meta = {.step = -1};
    assert_int_equal(ht_snapshot_write(w.s, test_folder, &meta, 1), HT_EINVAL);
    message_has(&w, "step -1 is negative");
    meta.step = 0;
    assert_int_equal(ht_snapshot_write(w.s, test_folder, &meta, 0), HT_EINVAL);
    message_has(&w, "at least 1 is kept");
    meta.position = UINT64_MAX;
    assert_int_equal(ht_snapshot_write(w.s, test_folder, &meta, 1), HT_EINVAL);
    message_has(&w, "position 18446744073709551615");
    meta.position = 0;
    meta.extra = "[1]";
    assert_int_equal(ht_snapshot_write(w.s, test_folder, &meta, 1), HT_EINVAL);
    message_has(&w, "extra is an array");
    meta.extra = "{\"a\": }";
    assert_int_equal(ht_snapshot_write(w.s, test_folder, &meta, 1), HT_EPARSE);
    message_has(&w, "extra:1:7");
    assert_int_equal(folder_count(test_folder), 0);
    assert_int_equal(snapshot_save(&w, snapshot_at("no/such"), 1), HT_EIO);
    message_has(&w, "no/such: No such file or directory");
    session_end(&w);
}

/* Every number type, a scalar, nothing at all, and state that others view: with gaps, overlaps and strides. */
static const char zoo[] = "state %f64 f64[3]\nstate %f32 f32[2,3] heading=optimizer\nstate %f16 f16[5]\n"
                          "state %bf16 bf16[1,1,7]\nstate %e4 f8e4m3[9]\nstate %e5 f8e5m2[2]\nstate %i8 i8[3]\n"
                          "state %u8 u8[3]\nstate %i32 i32[3]\nstate %i64 i64[] heading=scalars\n"
                          "state %bool bool[11]\nstate %nothing f32[4,0,2]\nstate %half f32[3] derived\n"
                          "state %flat f32[40]\nstate %slope f32[30] heading=gradients\n"
                          "state %a f32[3,2]{%flat, 2, [2,1]}\nstate %b f32[4]{%flat, 16, [1]}\n"
                          "state %again f32[2]{%flat, 4, [1]}\nstate %across f32[6]{%flat, 18, [1]}\n"
                          "state %comb f32[4]{%flat, 24, [3]}\nstate %empty f32[0]{%flat, 40, [1]}\n"
                          "segment forward () {\n}\n";

static void fill_state(const session_fixture *w, unsigned char first)
{
    for (size_t i = 0; i < w->plan->slot_count; i++) {
        const ht_slot *slot = &w->plan->slots[i];
        size_t bytes = (size_t)ht_type_bytes(&slot->type);
        unsigned char data[256];
        if (slot->kind != HT_SLOT_STATE || slot->owner != i || slot->derived) continue;
        assert_true(bytes <= sizeof data);
        for (size_t k = 0; k < bytes; k++) {
            data[k] = (unsigned char)(first + 37 * i + 11 * k);
            if (slot->type.dtype == HT_BOOL) data[k] &= 1;
        }
        must(w, ht_session_write(w->s, slot->name, data, bytes));
    }
}

static void snapshot__holds_every_type_and_every_byte(void **state)
{
    (void)state;
    session_fixture a = snapshot_text(zoo), b = snapshot_text(zoo);
    fill_state(&a, 3);
    fill_state(&b, 150);
    must(&a, snapshot_save(&a, test_folder, 1));
    must(&b, snapshot_load(&b, snapshot_at("step-00000000")));
    assert_true(snapshot_hash(&a) == snapshot_hash(&b));
    ht_safetensors *weights, *rest;
    must(&a, ht_safetensors_open(&weights, a.ctx, snapshot_at("step-00000000/weights.safetensors")));
    must(&a, ht_safetensors_open(&rest, a.ctx, snapshot_at("step-00000000/optimizer.safetensors")));
    assert_null(ht_safetensors_find(weights, "half"));
    assert_null(ht_safetensors_find(weights, "flat"));
    assert_null(ht_safetensors_find(weights, "again"));
    assert_null(ht_safetensors_find(weights, "comb"));
    assert_non_null(ht_safetensors_find(weights, "nothing"));
    assert_non_null(ht_safetensors_find(weights, "empty"));
    assert_int_equal(ht_safetensors_find(weights, "a")->array.rank, 2);
    assert_int_equal(ht_safetensors_find(rest, "i64")->array.rank, 0);
    assert_non_null(ht_safetensors_find(rest, "flat[0:2]"));
    assert_non_null(ht_safetensors_find(rest, "flat[20:40]"));
    ht_safetensors_free(weights);
    ht_safetensors_free(rest);
    session_end(&a);
    session_end(&b);
}

/* Padding that is zero is not stored, and is zero again after reading. */
static void snapshot__gaps_of_zeros_are_left_out_and_restored(void **state)
{
    (void)state;
    const char text[] = "state %flat f32[8]\nstate %a f32[3]{%flat, 0, [1]}\nsegment forward () {\n}\n";
    session_fixture a = snapshot_text(text), b = snapshot_text(text);
    float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1}, now[8];
    must(&a, ht_session_write(a.s, "a", ones, 12));
    must(&b, ht_session_write(b.s, "flat", ones, 32));
    must(&a, snapshot_save(&a, test_folder, 1));
    must(&b, snapshot_load(&b, snapshot_at("step-00000000")));
    must(&b, ht_session_read(b.s, "flat", now, sizeof now));
    for (int i = 0; i < 8; i++) assert_float_equal(now[i], i < 3 ? 1 : 0, 0);
    ht_safetensors *rest;
    must(&a, ht_safetensors_open(&rest, a.ctx, snapshot_at("step-00000000/optimizer.safetensors")));
    assert_int_equal(ht_safetensors_count(rest), 0);
    ht_safetensors_free(rest);
    session_end(&a);
    session_end(&b);
}

static void snapshot__derived_state_is_made_anew(void **state)
{
    (void)state;
    const char text[] = "state %w f32[2]\nstate %w.half bf16[2] derived\n"
                        "segment forward () {\n}\nsegment derive () {\n  %h = cast bf16[2] (%w)\n"
                        "  store %w.half = %h\n}\n";
    session_fixture a = snapshot_text(text), b = snapshot_text(text);
    double values[2] = {1.5, -3}, now[2];
    must(&a, ht_session_write_f64(a.s, "w", values, 2));
    must(&a, snapshot_save(&a, test_folder, 1));
    must(&b, snapshot_load(&b, snapshot_at("step-00000000")));
    must(&b, ht_session_read_f64(b.s, "w.half", now, 2));
    assert_float_equal(now[0], 1.5, 0);
    assert_float_equal(now[1], -3, 0);
    session_end(&a);
    session_end(&b);
}

/* ---- which one, and how many ---- */

static void find__nothing_there_is_no_failure(void **state)
{
    (void)state;
    session_fixture w = snapshot_tiny(42);
    char *path = (char *)"";
    must(&w, ht_snapshot_find(w.ctx, snapshot_at("nowhere"), &path));
    assert_null(path);
    assert_string_equal(snapshot_newest(&w), "");
    file_write(snapshot_at("file"), "", 0);
    assert_int_equal(ht_snapshot_find(w.ctx, snapshot_at("file"), &path), HT_EIO);
    message_has(&w, "file: Not a directory");
    session_end(&w);
}

static void keep__the_newest_stay(void **state)
{
    (void)state;
    session_fixture w = snapshot_tiny(42);
    for (int i = 0; i < 5; i++) {
        must(&w, snapshot_save(&w, test_folder, 2));
        snapshot_step(&w);
    }
    assert_int_equal(folder_count(test_folder), 2);
    assert_string_equal(snapshot_newest(&w), "step-00000004");
    assert_int_equal(access(snapshot_at("step-00000003"), F_OK), 0);
    /* A run that goes back in time loses neither the new one nor those ahead of it. */
    w.step = 2;
    must(&w, snapshot_save(&w, test_folder, 1));
    assert_int_equal(access(snapshot_at("step-00000002/manifest.json"), F_OK), 0);
    assert_int_equal(folder_count(test_folder), 3);
    session_end(&w);
}

/* One without its files does not count as kept, and what is not ours stays. */
static void keep__only_complete_ones_count(void **state)
{
    (void)state;
    session_fixture w = snapshot_tiny(42);
    for (int i = 0; i < 3; i++) {
        must(&w, snapshot_save(&w, test_folder, 9));
        snapshot_step(&w);
    }
    assert_int_equal(unlink(snapshot_at("step-00000002/weights.safetensors")), 0);
    assert_string_equal(snapshot_newest(&w), "step-00000001");
    assert_int_equal(mkdir(snapshot_at("step-7"), 0777), 0);
    assert_int_equal(mkdir(snapshot_at("step-00000001.mine"), 0777), 0);
    file_write(snapshot_at("step-00000000/notes"), "x", 1);
    must(&w, snapshot_save(&w, test_folder, 2));
    assert_string_equal(snapshot_newest(&w), "step-00000003");
    assert_int_equal(access(snapshot_at("step-00000001/manifest.json"), F_OK), 0);
    assert_int_not_equal(access(snapshot_at("step-00000000"), F_OK), 0);
    assert_int_equal(access(snapshot_at("step-00000000.partial/notes"), F_OK), 0);
    assert_int_equal(access(snapshot_at("step-7"), F_OK), 0);
    assert_int_equal(access(snapshot_at("step-00000001.mine"), F_OK), 0);
    session_end(&w);
}

static void snapshot__of_the_same_step_replaces(void **state)
{
    (void)state;
    session_fixture w = snapshot_tiny(42), v = snapshot_tiny(1);
    must(&w, snapshot_save(&w, test_folder, 1));
    must(&v, snapshot_save(&v, test_folder, 1));
    assert_int_equal(folder_count(test_folder), 1);
    must(&w, snapshot_load(&w, snapshot_at("step-00000000")));
    assert_true(snapshot_hash(&w) == snapshot_hash(&v));
    session_end(&w);
    session_end(&v);
}

/* Where a process may have died: in mid-write, in mid-removal, between the two renames of a replacement. */
static void leftovers__are_passed_over_and_cleaned_up(void **state)
{
    (void)state;
    session_fixture w = snapshot_tiny(42);
    must(&w, snapshot_save(&w, test_folder, 9));
    assert_int_equal(mkdir(snapshot_at("step-00000009.partial"), 0777), 0);
    file_write(snapshot_at("step-00000009.partial/weights.safetensors"), "half", 4);
    assert_string_equal(snapshot_newest(&w), "step-00000000");
    char from[1024];
    snprintf(from, sizeof from, "%s", snapshot_at("step-00000000"));
    assert_int_equal(rename(from, snapshot_at("step-00000000.replaced")), 0);
    assert_string_equal(snapshot_newest(&w), "step-00000000.replaced");
    snapshot_step(&w);
    must(&w, snapshot_save(&w, test_folder, 9));
    assert_int_equal(folder_count(test_folder), 2);
    assert_int_equal(access(snapshot_at("step-00000000/manifest.json"), F_OK), 0);
    /* With its successor in place it goes. */
    assert_int_equal(mkdir(snapshot_at("step-00000001.replaced"), 0777), 0);
    snapshot_step(&w);
    must(&w, snapshot_save(&w, test_folder, 9));
    assert_int_equal(folder_count(test_folder), 3);
    assert_int_not_equal(access(snapshot_at("step-00000001.replaced"), F_OK), 0);
    session_end(&w);
}

/* ---- weights alone ---- */

static void weights__go_into_a_session_without_an_optimiser(void **state)
{
    (void)state;
    session_fixture w = snapshot_tiny(42);
    for (int i = 0; i < 3; i++) snapshot_step(&w);
    must(&w, snapshot_save(&w, test_folder, 1));
    session_fixture v = snapshot_text("state %table f32[11,8]\nstate %count i64[] heading=scalars\n"
                                      "segment forward () {\n}\n");
    float a[88], b[88];
    int64_t count = 5;
    must(&v, ht_session_write(v.s, "count", &count, sizeof count));
    ht_snapshot_meta *meta;
    must(&v, ht_snapshot_read_weights(v.s, snapshot_at("step-00000003"), &meta));
    assert_int_equal(meta->step, 3);
    ht_snapshot_meta_free(meta);
    must(&w, ht_session_read(w.s, "table", a, sizeof a));
    must(&v, ht_session_read(v.s, "table", b, sizeof b));
    must(&v, ht_session_read(v.s, "count", &count, sizeof count));
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(count, 5);
    session_end(&v);
    v = snapshot_text("state %other f32[11,8]\nsegment forward () {\n}\n");
    assert_int_equal(ht_snapshot_read_weights(v.s, snapshot_at("step-00000003"), NULL), HT_EINVAL);
    message_has(&v, "weights.safetensors: there is no tensor 'other'");
    session_end(&v);
    session_end(&w);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, test_folder_setup, test_folder_teardown)
    const struct CMUnitTest tests[] = {
        ROW(snapshot__a_resumed_run_has_the_bits_of_one_that_never_stopped),
        ROW(snapshot__every_optimizer_goes_on_where_it_was),
        ROW(snapshot__does_not_depend_on_how_the_optimiser_groups),
        ROW(snapshot__saving_changes_nothing_in_the_session),
        ROW(snapshot__weights_and_the_rest_are_files_of_their_own),
        ROW(snapshot__what_the_caller_adds_comes_back),
        ROW(snapshot__arguments_that_cannot_be_are_refused),
        ROW(snapshot__holds_every_type_and_every_byte),
        ROW(snapshot__gaps_of_zeros_are_left_out_and_restored),
        ROW(snapshot__derived_state_is_made_anew),
        ROW(find__nothing_there_is_no_failure),
        ROW(keep__the_newest_stay),
        ROW(keep__only_complete_ones_count),
        ROW(snapshot__of_the_same_step_replaces),
        ROW(leftovers__are_passed_over_and_cleaned_up),
        ROW(weights__go_into_a_session_without_an_optimiser),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
