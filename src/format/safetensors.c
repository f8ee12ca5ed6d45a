/* The safetensors parser. */
#include "format/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/content.h"
#include "format/sparse_tensors.h"

#define MOST_HEADER_BYTES 100000000u

struct ht_safetensors {
    ht_arena *arena;
    ht_content content; /* empty when the bytes are the caller's */
    ht_named_array *entries;
    ht_named_array **by_name; /* sorted */
    size_t count;
    const ht_json *metadata;
};

typedef struct parsing {
    ht_context *ctx;
    const char *name;
    const uint8_t *data; /* behind the header */
    size_t data_bytes;
} parsing;

/* Where an entry lies, for the check that they tile the data. */
typedef struct extent {
    size_t begin, end;
    const char *name;
} extent;

static bool size_of(const ht_json *value, int64_t *out)
{
    if (!value || value->kind != HT_JSON_INT || value->integer < 0) return false;
    *out = value->integer;
    return true;
}

static ht_status read_shape(const parsing *p, const ht_json *entry, ht_array *array)
{
    const ht_json *shape = ht_json_get(entry, "shape");
    if (!shape || shape->kind != HT_JSON_ARRAY) return ht_json_fail(p->ctx, p->name, entry, "%s: no shape", entry->key);
    if (shape->count > HT_MAX_RANK)
        return ht_json_fail(p->ctx, p->name, shape, "%s: rank %zu is more than %d", entry->key, shape->count,
                            HT_MAX_RANK);
    for (const ht_json *size = shape->child; size; size = size->next)
        if (!size_of(size, &array->shape[array->rank++]))
            return ht_json_fail(p->ctx, p->name, size, "%s: a size of the shape is no whole number", entry->key);
    if (!ht_array_measure(array))
        return ht_json_fail(p->ctx, p->name, shape, "%s: the sizes of the shape overflow", entry->key);
    return HT_OK;
}

static ht_status read_extent(const parsing *p, const ht_json *entry, const ht_array *array, extent *where)
{
    const ht_json *offsets = ht_json_get(entry, "data_offsets");
    int64_t begin, end;
    if (!offsets || offsets->kind != HT_JSON_ARRAY || offsets->count != 2 || !size_of(offsets->child, &begin) ||
        !size_of(offsets->child->next, &end))
        return ht_json_fail(p->ctx, p->name, entry, "%s: data_offsets are not two whole numbers", entry->key);
    if (begin > end || (size_t)end > p->data_bytes)
        return ht_json_fail(p->ctx, p->name, offsets,
                            "%s: data_offsets [%" PRId64 ", %" PRId64 "] do not lie within the %zu bytes of data",
                            entry->key, begin, end, p->data_bytes);
    if ((size_t)(end - begin) != array->bytes)
        return ht_json_fail(p->ctx, p->name, offsets, "%s: type and shape need %zu bytes, data_offsets give %" PRId64,
                            entry->key, array->bytes, end - begin);
    *where = (extent){(size_t)begin, (size_t)end, entry->key};
    return HT_OK;
}

static ht_status read_entry(const parsing *p, const ht_json *entry, ht_named_array *out, extent *where)
{
    if (entry->kind != HT_JSON_OBJECT)
        return ht_json_fail(p->ctx, p->name, entry, "%s: %s, not the description of a tensor", entry->key,
                            ht_json_kind_name(entry->kind));
    if (strlen(entry->key) != entry->key_length)
        return ht_json_fail(p->ctx, p->name, entry, "a tensor's name holds a zero byte");
    for (const ht_json *part = entry->child; part; part = part->next)
        if (strcmp(part->key, "dtype") != 0 && strcmp(part->key, "shape") != 0 &&
            strcmp(part->key, "data_offsets") != 0)
            return ht_json_fail(p->ctx, p->name, part, "%s: unknown key \"%s\"", entry->key, part->key);
    const ht_json *dtype = ht_json_get(entry, "dtype");
    if (!dtype || dtype->kind != HT_JSON_STRING)
        return ht_json_fail(p->ctx, p->name, entry, "%s: no dtype", entry->key);
    ht_array array = {.element = ht_element_of_safetensors(dtype->text)};
    if (array.element == HT_ELEMENT_COUNT)
        return ht_json_fail(p->ctx, p->name, dtype, "%s: dtype \"%s\" is not known", entry->key, dtype->text);
    HT_TRY(read_shape(p, entry, &array));
    HT_TRY(read_extent(p, entry, &array, where));
    array.data = p->data + where->begin;
    *out = (ht_named_array){entry->key, array};
    return HT_OK;
}

static int by_place(const void *left, const void *right)
{
    const extent *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return 0;
}

static ht_status check_tiling(const parsing *p, extent *extents, size_t count)
{
    if (count) qsort(extents, count, sizeof *extents, by_place);
    size_t end = 0;
    for (size_t i = 0; i < count; end = extents[i++].end)
        if (extents[i].begin != end)
            HT_FAIL(p->ctx, HT_EPARSE, "%s: %s begins at byte %zu of the data, where %s %zu", p->name, extents[i].name,
                    extents[i].begin, extents[i].begin < end ? "others reach to" : "bytes are free from", end);
    if (end != p->data_bytes)
        HT_FAIL(p->ctx, HT_EPARSE, "%s: the tensors end at byte %zu of the data, the file at %zu", p->name, end,
                p->data_bytes);
    return HT_OK;
}

static ht_status check_metadata(const parsing *p, const ht_json *metadata)
{
    if (metadata->kind != HT_JSON_OBJECT)
        return ht_json_fail(p->ctx, p->name, metadata, "__metadata__ is %s, not an object",
                            ht_json_kind_name(metadata->kind));
    for (const ht_json *value = metadata->child; value; value = value->next)
        if (value->kind != HT_JSON_STRING)
            return ht_json_fail(p->ctx, p->name, value, "__metadata__ %s is %s, not a string", value->key,
                                ht_json_kind_name(value->kind));
    return HT_OK;
}

static int by_name(const void *left, const void *right)
{
    return strcmp((*(ht_named_array *const *)left)->name, (*(ht_named_array *const *)right)->name);
}

static ht_status read_entries(ht_safetensors *file, const parsing *p, const ht_json *root)
{
    extent *extents = calloc(root->count + 1, sizeof *extents);
    file->entries = HT_NEW(file->arena, ht_named_array, root->count + 1);
    file->by_name = HT_NEW(file->arena, ht_named_array *, root->count + 1);
    ht_status status = HT_OK;
    if (!extents || !file->entries || !file->by_name)
        status = ht_fail(p->ctx, HT_ENOMEM, "%s: out of memory for %zu entries", p->name, root->count);
    for (const ht_json *entry = root->child; entry && status == HT_OK; entry = entry->next) {
        if (strcmp(entry->key, "__metadata__") == 0) {
            file->metadata = entry;
            status = check_metadata(p, entry);
            continue;
        }
        status = read_entry(p, entry, &file->entries[file->count], &extents[file->count]);
        file->count++;
    }
    if (status == HT_OK) status = check_tiling(p, extents, file->count);
    if (status == HT_OK) status = ht_sparse_expand(p->ctx, file->arena, p->name, file->entries, &file->count);
    for (size_t i = 0; i < file->count && status == HT_OK; i++) file->by_name[i] = &file->entries[i];
    if (status == HT_OK && file->count) qsort(file->by_name, file->count, sizeof *file->by_name, by_name);
    free(extents);
    return status;
}

static ht_status parse(ht_safetensors *file, ht_context *ctx, const char *name, const uint8_t *data, size_t length)
{
    if (length < 8) HT_FAIL(ctx, HT_EPARSE, "%s: %zu bytes are too few for a safetensors file", name, length);
    uint64_t header_bytes = 0;
    for (int i = 0; i < 8; i++) header_bytes |= (uint64_t)data[i] << 8 * i;
    if (header_bytes > MOST_HEADER_BYTES)
        HT_FAIL(ctx, HT_EPARSE, "%s: not a safetensors file: a header of %" PRIu64 " bytes is more than %u", name,
                header_bytes, MOST_HEADER_BYTES);
    if (header_bytes > length - 8)
        HT_FAIL(ctx, HT_EPARSE, "%s: the header has %" PRIu64 " bytes, the file only %zu more", name, header_bytes,
                length - 8);
    const ht_json *root;
    HT_TRY(ht_json_parse(ctx, file->arena, name, (const char *)data + 8, (size_t)header_bytes, &root));
    if (root->kind != HT_JSON_OBJECT)
        HT_FAIL(ctx, HT_EPARSE, "%s: the header is %s, not an object", name, ht_json_kind_name(root->kind));
    parsing p = {ctx, name, data + 8 + header_bytes, length - 8 - (size_t)header_bytes};
    return read_entries(file, &p, root);
}

static ht_status create(ht_safetensors **out, ht_context *ctx, const char *name)
{
    *out = calloc(1, sizeof **out);
    if (*out) (*out)->arena = ht_arena_create();
    if (*out && (*out)->arena) return HT_OK;
    free(*out);
    *out = NULL;
    HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory", name);
}

static ht_status end_of_open(ht_safetensors **out, ht_status status)
{
    if (status == HT_OK) return HT_OK;
    ht_safetensors_free(*out);
    *out = NULL;
    return status;
}

ht_status ht_safetensors_parse(ht_safetensors **out, ht_context *ctx, const char *name, const uint8_t *data,
                               size_t length)
{
    HT_TRY(create(out, ctx, name));
    return end_of_open(out, parse(*out, ctx, name, data, length));
}

ht_status ht_safetensors_open(ht_safetensors **out, ht_context *ctx, const char *path)
{
    HT_TRY(create(out, ctx, path));
    ht_content *content = &(*out)->content;
    ht_status status = ht_content_map(content, ctx, path);
    if (status == HT_OK) status = parse(*out, ctx, path, content->data, content->length);
    return end_of_open(out, status);
}

void ht_safetensors_free(ht_safetensors *file)
{
    if (!file) return;
    ht_content_close(&file->content);
    ht_arena_free(file->arena);
    free(file);
}

void ht_safetensors_forget(const ht_safetensors *file, const ht_array *array)
{
    ht_content_forget(&file->content, array->data, array->bytes);
}

size_t ht_safetensors_count(const ht_safetensors *file)
{
    return file->count;
}

const ht_named_array *ht_safetensors_at(const ht_safetensors *file, size_t index)
{
    return index < file->count ? &file->entries[index] : NULL;
}

const ht_named_array *ht_safetensors_find(const ht_safetensors *file, const char *name)
{
    size_t low = 0, high = file->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(file->by_name[middle]->name, name);
        if (order == 0) return file->by_name[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const char *ht_safetensors_metadata(const ht_safetensors *file, const char *key)
{
    const ht_json *value = ht_json_get(file->metadata, key);
    return value ? value->text : NULL;
}
