#include "format/sparse_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEWEST_SAVED_BYTES = 512 }; /* more than the names of three tensors take instead of one */

static const char values_end[] = ".sparse", mask_end[] = ".sparse_mask", shape_end[] = ".sparse_shape";

/* ---- from a file ---- */

static bool is_of(const char *name, const char *base, size_t length, const char *end)
{
    return strncmp(name, base, length) == 0 && strcmp(name + length, end) == 0;
}

/* The part of a tensor with this end; NULL: there is none. */
static ht_named_array *find_part(ht_named_array *entries, size_t count, const char *base, size_t length,
                                 const char *end)
{
    for (size_t i = 0; i < count; i++)
        if (is_of(entries[i].name, base, length, end)) return &entries[i];
    return NULL;
}

static bool bit_of(const uint8_t *mask, int64_t i)
{
    return mask[i / 8] >> i % 8 & 1;
}

/* The dense array, without its elements; false: the parts do not fit each other. */
static bool measure(const ht_array *values, const ht_array *mask, const ht_array *shape, ht_array *dense)
{
    int64_t some = 0;
    *dense = (ht_array){.element = values->element, .rank = (int)shape->count};
    if (shape->element != HT_ELEMENT_I64 || shape->rank != 1 || shape->count > HT_MAX_RANK || values->rank != 1 ||
        mask->element != HT_ELEMENT_U8 || mask->rank != 1)
        return false;
    memcpy(dense->shape, shape->data, (size_t)shape->count * sizeof dense->shape[0]);
    for (int i = 0; i < dense->rank; i++)
        if (dense->shape[i] < 0) return false;
    if (!ht_array_measure(dense) || mask->count != (dense->count + 7) / 8) return false;
    for (int64_t i = 0; i < dense->count; i++) some += bit_of(mask->data, i);
    return some == values->count;
}

static void fill(const ht_array *dense, const uint8_t *values, const uint8_t *mask, uint8_t *to)
{
    size_t bytes = ht_element_bytes(dense->element);
    for (int64_t i = 0; i < dense->count; i++, to += bytes) {
        if (!bit_of(mask, i)) continue;
        memcpy(to, values, bytes);
        values += bytes;
    }
}

static ht_status expand_one(ht_context *ctx, ht_arena *arena, const char *name, size_t length, ht_named_array *values,
                            const ht_array *mask, const ht_array *shape)
{
    ht_array dense;
    if (!measure(&values->array, mask, shape, &dense))
        HT_FAIL(ctx, HT_EPARSE, "%s: %s: its mask and its shape do not fit it", name, values->name);
    const char *own = ht_arena_text(arena, values->name, length);
    uint8_t *data = HT_NEW(arena, uint8_t, dense.bytes + 1);
    if (!own || !data) HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory for '%s'", name, values->name);
    memset(data, 0, dense.bytes);
    fill(&dense, values->array.data, mask->data, data);
    dense.data = data;
    *values = (ht_named_array){own, dense};
    return HT_OK;
}

ht_status ht_sparse_expand(ht_context *ctx, ht_arena *arena, const char *name, ht_named_array *entries, size_t *count)
{
    size_t kept = 0, end = sizeof values_end - 1;
    bool some = false;
    for (size_t i = 0; i < *count; i++) {
        const char *own = entries[i].name;
        size_t length = strlen(own) > end ? strlen(own) - end : 0;
        if (length == 0 || strcmp(own + length, values_end) != 0) continue;
        ht_named_array *mask = find_part(entries, *count, own, length, mask_end),
                       *shape = find_part(entries, *count, own, length, shape_end);
        if (!mask || !shape) continue;
        if (find_part(entries, *count, own, length, ""))
            HT_FAIL(ctx, HT_EPARSE, "%s: %s: the tensor is there dense, too", name, own);
        HT_TRY(expand_one(ctx, arena, name, length, &entries[i], &mask->array, &shape->array));
        mask->name = shape->name = "";
        mask->array.data = NULL;
        shape->array.data = NULL;
        some = true;
    }
    for (size_t i = 0; i < *count && some; i++)
        if (entries[i].name[0] || entries[i].array.data) entries[kept++] = entries[i];
    if (some) *count = kept;
    return HT_OK;
}

/* ---- to a file ---- */

/* A tensor of the file that is copied, and its parts where these take fewer bytes. */
typedef struct stored {
    const ht_named_array *from;
    bool sparse;
    char *names[3]; /* shape, values, mask */
    uint8_t *values, *mask;
    int64_t shape[HT_MAX_RANK], value_count, mask_bytes;
} stored;

static bool is_zero(const uint8_t *element, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (element[i]) return false;
    return true;
}

static bool is_float(const ht_array *array)
{
    ht_dtype dtype = ht_element_dtype(array->element);
    return dtype != HT_DTYPE_COUNT && ht_dtype_is_float(dtype);
}

static char *name_of(const char *base, const char *end)
{
    size_t bytes = strlen(base) + strlen(end) + 1;
    char *name = malloc(bytes);
    if (name) snprintf(name, bytes, "%s%s", base, end);
    return name;
}

static ht_status take_parts(stored *s, ht_context *ctx)
{
    const ht_array *array = &s->from->array;
    size_t bytes = ht_element_bytes(array->element);
    const char *const ends[] = {shape_end, values_end, mask_end};
    s->values = malloc((size_t)s->value_count * bytes + 1);
    s->mask = calloc((size_t)s->mask_bytes + 1, 1);
    for (int i = 0; i < 3; i++) s->names[i] = name_of(s->from->name, ends[i]);
    if (!s->values || !s->mask || !s->names[0] || !s->names[1] || !s->names[2])
        HT_FAIL(ctx, HT_ENOMEM, "out of memory for '%s'", s->from->name);
    memcpy(s->shape, array->shape, sizeof s->shape);
    uint8_t *to = s->values;
    for (int64_t i = 0; i < array->count; i++) {
        const uint8_t *element = array->data + (size_t)i * bytes;
        if (is_zero(element, bytes)) continue;
        s->mask[i / 8] |= (uint8_t)(1u << i % 8);
        memcpy(to, element, bytes);
        to += bytes;
    }
    return HT_OK;
}

/* Matrices of floats, where it saves bytes. */
static ht_status choose(stored *s, ht_context *ctx, const ht_named_array *from)
{
    const ht_array *array = &from->array;
    size_t bytes = ht_element_bytes(array->element);
    *s = (stored){.from = from, .mask_bytes = (array->count + 7) / 8};
    if (!is_float(array) || array->rank < 2) return HT_OK;
    for (int64_t i = 0; i < array->count; i++) s->value_count += !is_zero(array->data + (size_t)i * bytes, bytes);
    s->sparse = (size_t)s->value_count * bytes + (size_t)s->mask_bytes + FEWEST_SAVED_BYTES <= array->bytes;
    return s->sparse ? take_parts(s, ctx) : HT_OK;
}

/* All shapes, then tensors and values in the order of the file, then all masks: wide types first, as before. */
static void list_arrays(const stored *all, size_t count, ht_named_array *arrays, size_t *listed)
{
    for (int part = 0; part < 3; part++)
        for (size_t i = 0; i < count; i++) {
            const stored *s = &all[i];
            const ht_array parts[] = {
                {.element = HT_ELEMENT_I64,
                 .rank = 1,
                 .shape = {s->from->array.rank},
                 .data = (const uint8_t *)s->shape},
                {.element = s->from->array.element, .rank = 1, .shape = {s->value_count}, .data = s->values},
                {.element = HT_ELEMENT_U8, .rank = 1, .shape = {s->mask_bytes}, .data = s->mask},
            };
            if (s->sparse) arrays[(*listed)++] = (ht_named_array){s->names[part], parts[part]};
            if (!s->sparse && part == 1) arrays[(*listed)++] = *s->from;
        }
    for (size_t i = 0; i < *listed; i++) ht_array_measure(&arrays[i].array);
}

static ht_status write_arrays(ht_context *ctx, const char *path, const ht_named_array *arrays, size_t count,
                              uint64_t *checksum, int64_t *bytes)
{
    ht_safetensors_writer *writer;
    HT_TRY(ht_safetensors_create(&writer, ctx, path, arrays, count, NULL));
    for (size_t i = 0; i < count; i++) {
        ht_status status = ht_safetensors_append(writer, arrays[i].array.data, arrays[i].array.bytes);
        if (status == HT_OK) continue;
        ht_safetensors_abandon(writer);
        return status;
    }
    return ht_safetensors_finish(writer, checksum, bytes);
}

static void free_stored(stored *all, size_t count)
{
    for (size_t i = 0; all && i < count; i++) {
        for (int k = 0; k < 3; k++) free(all[i].names[k]);
        free(all[i].values);
        free(all[i].mask);
    }
    free(all);
}

ht_status ht_safetensors_write_sparse(ht_context *ctx, const ht_safetensors *from, const char *path, bool *some,
                                      uint64_t *checksum, int64_t *bytes)
{
    size_t count = ht_safetensors_count(from), listed = 0;
    stored *all = calloc(count + 1, sizeof *all);
    ht_named_array *arrays = calloc(3 * count + 1, sizeof *arrays);
    ht_status status = all && arrays ? HT_OK : ht_fail(ctx, HT_ENOMEM, "%s: out of memory", path);
    *some = false;
    for (size_t i = 0; i < count && status == HT_OK; i++) {
        status = choose(&all[i], ctx, ht_safetensors_at(from, i));
        *some |= all[i].sparse;
    }
    if (status == HT_OK && *some) {
        list_arrays(all, count, arrays, &listed);
        status = write_arrays(ctx, path, arrays, listed, checksum, bytes);
    }
    free_stored(all, count);
    free(arrays);
    return status;
}
