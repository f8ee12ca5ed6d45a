#include "train/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "train/seal.h"

enum { VERSION = 1, HEX_DIGITS = 16 };
static const char what_it_is[] = "halftone snapshot";
static const char seal_key[] = "manifest_xxh3";

const char *const ht_snapshot_file_names[HT_SNAPSHOT_FILES] = {"weights.safetensors", "optimizer.safetensors"};

/* ---- printing ---- */

static ht_status put_object(ht_json_writer *json, ht_context *ctx, const char *key, const char *text)
{
    if (!text) return HT_OK;
    ht_arena *arena = ht_arena_create();
    if (!arena) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a manifest");
    const ht_json *value;
    ht_status status = ht_json_parse(ctx, arena, key, text, strlen(text), &value);
    if (status == HT_OK && value->kind != HT_JSON_OBJECT)
        status = ht_fail(ctx, HT_EINVAL, "manifest: %s is %s, not an object", key, ht_json_kind_name(value->kind));
    if (status == HT_OK) {
        ht_json_line(json, 2);
        ht_json_put_value(json, key, value);
    }
    ht_arena_free(arena);
    return status;
}

static void put_files(ht_json_writer *json, const ht_manifest *m)
{
    ht_json_line(json, 2);
    ht_json_begin_object(json, "files");
    for (int i = 0; i < HT_SNAPSHOT_FILES; i++) {
        ht_json_line(json, 4);
        ht_json_begin_object(json, ht_snapshot_file_names[i]);
        ht_json_put_int(json, "bytes", m->files[i].bytes);
        ht_json_put_hash(json, "xxh3", m->files[i].checksum);
        ht_json_end_object(json);
    }
    ht_json_line(json, 2);
    ht_json_end_object(json);
}

/* All but the seal. */
static ht_status put_body(ht_json_writer *json, ht_context *ctx, const ht_manifest *m)
{
    char seed[24]; /* text, for a JSON number keeps only 53 bits in many programs */
    snprintf(seed, sizeof seed, "%" PRIu64, m->meta.seed);
    ht_json_begin_object(json, NULL);
    ht_json_line(json, 2);
    ht_json_put_text(json, "format", what_it_is);
    ht_json_line(json, 2);
    ht_json_put_int(json, "version", VERSION);
    ht_json_line(json, 2);
    ht_json_put_int(json, "step", m->meta.step);
    ht_json_line(json, 2);
    ht_json_put_uint(json, "position", m->meta.position);
    ht_json_line(json, 2);
    ht_json_put_text(json, "seed", seed);
    ht_json_line(json, 2);
    ht_json_put_hash(json, "model_hash", m->meta.model_hash);
    put_files(json, m);
    HT_TRY(put_object(json, ctx, "config", m->meta.config_json));
    HT_TRY(put_object(json, ctx, "extra", m->meta.extra));
    ht_json_end_object(json);
    return HT_OK;
}

ht_status ht_manifest_print(ht_text *out, ht_context *ctx, const ht_manifest *m)
{
    if (m->meta.step < 0) HT_FAIL(ctx, HT_EINVAL, "snapshot: step %" PRId64 " is negative", m->meta.step);
    if (m->meta.position > INT64_MAX)
        HT_FAIL(ctx, HT_EINVAL, "snapshot: position %" PRIu64 " is more than 2^63 - 1", m->meta.position);
    HT_TRY(put_body(&(ht_json_writer){.text = out}, ctx, m));
    ht_seal_add(out, seal_key);
    if (out->failed) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a manifest");
    return HT_OK;
}

/* ---- parsing ---- */

typedef struct reader {
    ht_context *ctx;
    ht_arena *arena;
    const char *name;
} reader;

static ht_status member(const reader *r, const ht_json *object, const char *key, ht_json_kind kind, const ht_json **out)
{
    *out = ht_json_get(object, key);
    if (!*out) return ht_json_fail(r->ctx, r->name, object, "there is no \"%s\"", key);
    if ((*out)->kind != kind)
        return ht_json_fail(r->ctx, r->name, *out, "\"%s\" is %s", key, ht_json_kind_name((*out)->kind));
    return HT_OK;
}

static ht_status read_count(const reader *r, const ht_json *object, const char *key, int64_t *out)
{
    const ht_json *value;
    HT_TRY(member(r, object, key, HT_JSON_INT, &value));
    if (value->integer < 0)
        return ht_json_fail(r->ctx, r->name, value, "\"%s\" is %" PRId64 ": negative", key, value->integer);
    *out = value->integer;
    return HT_OK;
}

static bool hex_of(const char *text, size_t length, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < length; i++) {
        const char *digits = "0123456789abcdef", *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit) return false;
        *out = *out << 4 | (uint64_t)(digit - digits);
    }
    return length == HEX_DIGITS;
}

static ht_status read_hash(const reader *r, const ht_json *object, const char *key, uint64_t *out)
{
    const ht_json *value;
    HT_TRY(member(r, object, key, HT_JSON_STRING, &value));
    if (!hex_of(value->text, value->length, out))
        return ht_json_fail(r->ctx, r->name, value, "\"%s\" is not %d hexadecimal digits", key, HEX_DIGITS);
    return HT_OK;
}

static ht_status read_seed(const reader *r, const ht_json *object, uint64_t *out)
{
    const ht_json *value;
    HT_TRY(member(r, object, "seed", HT_JSON_STRING, &value));
    bool ok = value->length > 0;
    *out = 0;
    for (size_t i = 0; i < value->length && ok; i++) {
        unsigned digit = (unsigned)(unsigned char)value->text[i] - '0';
        ok = digit <= 9 && *out <= (UINT64_MAX - digit) / 10;
        if (ok) *out = *out * 10 + digit;
    }
    if (!ok) return ht_json_fail(r->ctx, r->name, value, "\"seed\" is not a number from 0 to 2^64 - 1, as a string");
    return HT_OK;
}

static ht_status read_text(const reader *r, const ht_json *root, const char *key, const char **out)
{
    *out = NULL;
    if (!ht_json_get(root, key)) return HT_OK;
    const ht_json *value;
    HT_TRY(member(r, root, key, HT_JSON_OBJECT, &value));
    ht_text text = {0};
    ht_json_print(&text, value);
    if (!text.failed) *out = ht_arena_text(r->arena, text.data, text.length);
    ht_text_free(&text);
    if (!*out) HT_FAIL(r->ctx, HT_ENOMEM, "%s: out of memory", r->name);
    return HT_OK;
}

static ht_status only_known(const reader *r, const ht_json *object, const char *const *known, size_t count)
{
    for (const ht_json *part = object->child; part; part = part->next) {
        size_t i = 0;
        while (i < count && strcmp(part->key, known[i]) != 0) i++;
        if (i == count) return ht_json_fail(r->ctx, r->name, part, "unknown key \"%s\"", part->key);
    }
    return HT_OK;
}

static ht_status read_files(const reader *r, const ht_json *root, ht_manifest *out)
{
    static const char *const known[] = {"bytes", "xxh3"};
    const ht_json *files, *file;
    HT_TRY(member(r, root, "files", HT_JSON_OBJECT, &files));
    HT_TRY(only_known(r, files, ht_snapshot_file_names, HT_SNAPSHOT_FILES));
    for (int i = 0; i < HT_SNAPSHOT_FILES; i++) {
        HT_TRY(member(r, files, ht_snapshot_file_names[i], HT_JSON_OBJECT, &file));
        HT_TRY(only_known(r, file, known, sizeof known / sizeof known[0]));
        HT_TRY(read_count(r, file, "bytes", &out->files[i].bytes));
        HT_TRY(read_hash(r, file, "xxh3", &out->files[i].checksum));
    }
    return HT_OK;
}

ht_status ht_manifest_parse(ht_manifest *out, ht_context *ctx, ht_arena *arena, const char *name, const char *text,
                            size_t length)
{
    static const char *const known[] = {"format",     "version", "step",   "position", "seed",
                                        "model_hash", "files",   "config", "extra",    seal_key};
    reader r = {ctx, arena, name};
    const ht_json *root, *format;
    int64_t version, position;
    uint64_t seal;
    *out = (ht_manifest){0};
    HT_TRY(ht_json_parse(ctx, arena, name, text, length, &root));
    if (root->kind != HT_JSON_OBJECT)
        return ht_json_fail(ctx, name, root, "%s, not the manifest of a snapshot", ht_json_kind_name(root->kind));
    HT_TRY(member(&r, root, "format", HT_JSON_STRING, &format));
    if (format->length != sizeof what_it_is - 1 || memcmp(format->text, what_it_is, format->length) != 0)
        return ht_json_fail(ctx, name, format, "the format is not \"%s\"", what_it_is);
    HT_TRY(read_count(&r, root, "version", &version));
    if (version != VERSION)
        return ht_json_fail(ctx, name, root, "format version %" PRId64 "; this program reads version %d", version,
                            VERSION);
    HT_TRY(only_known(&r, root, known, sizeof known / sizeof known[0]));
    HT_TRY(read_count(&r, root, "step", &out->meta.step));
    HT_TRY(read_count(&r, root, "position", &position));
    out->meta.position = (uint64_t)position;
    HT_TRY(read_seed(&r, root, &out->meta.seed));
    HT_TRY(read_hash(&r, root, "model_hash", &out->meta.model_hash));
    HT_TRY(read_files(&r, root, out));
    HT_TRY(read_text(&r, root, "config", &out->meta.config_json));
    HT_TRY(read_text(&r, root, "extra", &out->meta.extra));
    return read_hash(&r, root, seal_key, &seal);
}

ht_status ht_manifest_check(ht_context *ctx, const char *name, const char *text, size_t length)
{
    bool sealed;
    HT_TRY(ht_seal_check(ctx, name, seal_key, text, length, &sealed));
    if (!sealed) HT_FAIL(ctx, HT_EPARSE, "%s: it does not end with its checksum: damaged or edited", name);
    return HT_OK;
}
