/* Snapshots that are damaged or foreign are refused with a message, and the session stays as it was. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/format.h"
#include "snapshot_fixture.h"
#include "train/manifest.h"

/* Reading fails with that status and part of a message, and changes nothing. */
static void refused(session_fixture *w, ht_status status, const char *part)
{
    uint64_t before = snapshot_hash(w);
    assert_int_equal(snapshot_load(w, snapshot_at("step-00000000")), status);
    message_has(w, part);
    assert_true(snapshot_hash(w) == before);
}

static void read__finds_every_flipped_bit_of_a_file(void **state)
{
    (void)state;
    static const char *const files[] = {"weights.safetensors", "optimizer.safetensors", "manifest.json"};
    session_fixture w = snapshot_tiny(42), v = snapshot_tiny(1);
    must(&w, snapshot_save(&w, test_folder, 1));
    for (int f = 0; f < 3; f++) {
        char path[1024];
        size_t length;
        snprintf(path, sizeof path, "%s/step-00000000/%s", test_folder, files[f]);
        char *data = file_read(path, &length);
        for (size_t i = 0; i < length; i += 1 + length / 40) {
            data[i] ^= 1;
            file_write(path, data, length);
            uint64_t before = snapshot_hash(&v);
            assert_int_not_equal(snapshot_load(&v, snapshot_at("step-00000000")), HT_OK);
            message_has(&v, files[f]);
            assert_true(snapshot_hash(&v) == before);
            data[i] ^= 1;
        }
        for (size_t cut = 0; cut < length; cut += 1 + length / 20) {
            file_write(path, data, cut);
            refused(&v, HT_EPARSE, files[f]);
            assert_string_equal(snapshot_newest(&v), "");
        }
        file_write(path, data, length);
        free(data);
    }
    must(&v, snapshot_load(&v, snapshot_at("step-00000000")));
    session_end(&w);
    session_end(&v);
}

/* A session of `now` reads what one of `then` wrote. */
static void foreign(const char *then, const char *now, ht_status status, const char *part)
{
    session_fixture a = snapshot_text(then), b = snapshot_text(now);
    must(&a, snapshot_save(&a, test_folder, 1));
    refused(&b, status, part);
    session_end(&a);
    session_end(&b);
}

static void read__names_the_tensor_that_does_not_fit(void **state)
{
    (void)state;
    const char base[] = "state %w f32[2,3]\nstate %n i64[] heading=scalars\nsegment forward () {\n}\n";
    foreign(base, "state %w f32[3,2]\nstate %n i64[] heading=scalars\nsegment forward () {\n}\n", HT_ESHAPE,
            "weights.safetensors: tensor 'w' is F32 [2, 3], the model's is F32 [3, 2]");
    foreign(base, "state %w f32[2]\nstate %n i64[] heading=scalars\nsegment forward () {\n}\n", HT_ESHAPE, "'w'");
    foreign(base, "state %w bf16[2,3]\nstate %n i64[] heading=scalars\nsegment forward () {\n}\n", HT_ESHAPE,
            "is F32 [2, 3], the model's is BF16 [2, 3]");
    foreign(base, "state %w f32[2,3]\nsegment forward () {\n}\n", HT_EINVAL,
            "optimizer.safetensors: the model has no state 'n'");
    foreign(
        base,
        "state %w f32[2,3]\nstate %n i64[] heading=scalars\nstate %m i64[] heading=scalars\nsegment forward () {\n}\n",
        HT_EINVAL, "optimizer.safetensors: there is no tensor 'm'");
    foreign("state %w f32[2]\nsegment forward (%x f32[2]) -> (y=%y) {\n  %y = add f32[2] (%w, %x)\n}\n",
            "state %w f32[2]\nsegment forward (%x f32[2]) -> (y=%y) {\n  %y = mul f32[2] (%w, %x)\n}\n", HT_EINVAL,
            "of another model");
}

/* A forger's file with right checksums is still no way to undefined behaviour. */
static void read__a_bool_that_is_neither_is_refused(void **state)
{
    (void)state;
    const char text[] = "state %b bool[4]\nsegment forward () {\n}\n";
    session_fixture w = snapshot_text(text);
    must(&w, snapshot_save(&w, test_folder, 1));
    ht_named_array array = {"b", {.element = ht_element_of_dtype(HT_BOOL), .rank = 1, .shape = {4}}};
    ht_safetensors_writer *writer;
    assert_true(ht_array_measure(&array.array));
    must(&w, ht_safetensors_create(&writer, w.ctx, snapshot_at("step-00000000/weights.safetensors"), &array, 1, NULL));
    must(&w, ht_safetensors_append(writer, "\1\0\2\0", 4));
    ht_manifest manifest;
    ht_arena *arena = ht_arena_create();
    size_t length;
    char *old = file_read(snapshot_at("step-00000000/manifest.json"), &length);
    must(&w, ht_manifest_parse(&manifest, w.ctx, arena, "old", old, length));
    must(&w, ht_safetensors_finish(writer, &manifest.files[0].checksum, &manifest.files[0].bytes));
    ht_text now = {0};
    must(&w, ht_manifest_print(&now, w.ctx, &manifest));
    file_write(snapshot_at("step-00000000/manifest.json"), now.data, now.length);
    assert_string_equal(snapshot_newest(&w), "step-00000000");
    refused(&w, HT_EPARSE, "tensor 'b' is BOOL and holds a byte above 1");
    ht_text_free(&now);
    ht_arena_free(arena);
    free(old);
    session_end(&w);
}

/* ---- manifests that nobody of us wrote ---- */

static void manifest_refused(const char *text, const char *part)
{
    ht_context ctx = {0};
    ht_manifest manifest;
    ht_arena *arena = ht_arena_create();
    assert_int_equal(ht_manifest_parse(&manifest, &ctx, arena, "m", text, strlen(text)), HT_EPARSE);
    if (!strstr(ctx.message, part)) fail_msg("'%s' is not in: %s", part, ctx.message);
    ht_arena_free(arena);
}

static void manifest__says_what_is_wrong_with_it(void **state)
{
    (void)state;
#define START "{\"format\": \"halftone snapshot\", \"version\": 1, "
#define FILES                                                                                                          \
    "\"files\": {\"weights.safetensors\": {\"bytes\": 8, \"xxh3\": \"0123456789abcdef\"}, "                            \
    "\"optimizer.safetensors\": {\"bytes\": 8, \"xxh3\": \"0123456789abcdef\"}}, "
#define NUMBERS "\"step\": 1, \"position\": 2, \"seed\": \"3\", \"model_hash\": \"0123456789abcdef\", "
    manifest_refused("", "m:1:1");
    manifest_refused("[]", "not the manifest of a snapshot");
    manifest_refused("{}", "there is no \"format\"");
    manifest_refused("{\"format\": \"zip\"}", "the format is not \"halftone snapshot\"");
    manifest_refused("{\"format\": \"halftone snapshot\", \"version\": 2}", "version 2; this program reads version 1");
    manifest_refused(START "\"stop\": 1}", "unknown key \"stop\"");
    manifest_refused(START "\"step\": -1}", "\"step\" is -1: negative");
    manifest_refused(START "\"step\": 1.5}", "\"step\" is a number");
    manifest_refused(START "\"step\": 1, \"step\": 2}", "step");
    manifest_refused(START "\"step\": 1, \"position\": 2, \"seed\": \"18446744073709551616\"}", "\"seed\" is not");
    manifest_refused(START "\"step\": 1, \"position\": 2, \"seed\": \"\"}", "\"seed\" is not");
    manifest_refused(START "\"step\": 1, \"position\": 2, \"seed\": \"3\", \"model_hash\": \"12\"}", "16 hexadecimal");
    manifest_refused(START NUMBERS "\"files\": {\"../../etc/passwd\": {}}}", "unknown key \"../../etc/passwd\"");
    manifest_refused(START NUMBERS "\"files\": {\"weights.safetensors\": 3}}", "is an integer");
    manifest_refused(START NUMBERS FILES "\"extra\": 3}", "\"extra\" is an integer");
    manifest_refused(START NUMBERS FILES "\"extra\": {}}", "there is no \"manifest_xxh3\"");
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, test_folder_setup, test_folder_teardown)
    const struct CMUnitTest tests[] = {
        ROW(read__finds_every_flipped_bit_of_a_file),
        ROW(read__names_the_tensor_that_does_not_fit),
        ROW(read__a_bool_that_is_neither_is_refused),
        ROW(manifest__says_what_is_wrong_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
