/* The safetensors writer. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/base.h"
#include "format/safetensors.h"

struct ht_safetensors_writer {
    ht_context *ctx;
    char *path;
    FILE *file;
    XXH3_state_t *hash;
    uint64_t promised, written; /* bytes of data */
    uint64_t total;             /* of the file */
    ht_status status;           /* of the first failure */
};

static void put_entry(ht_json_writer *json, const ht_named_array *entry, uint64_t begin)
{
    ht_json_begin_object(json, entry->name);
    ht_json_put_text(json, "dtype", ht_element_name(entry->array.element));
    ht_json_begin_array(json, "shape");
    for (int i = 0; i < entry->array.rank; i++) ht_json_put_int(json, NULL, entry->array.shape[i]);
    ht_json_end_array(json);
    ht_json_begin_array(json, "data_offsets");
    ht_json_put_uint(json, NULL, begin);
    ht_json_put_uint(json, NULL, begin + entry->array.bytes);
    ht_json_end_array(json);
    ht_json_end_object(json);
}

/* Padded with spaces to a multiple of 8, so that the data is aligned. */
static ht_status make_header(ht_text *text, ht_safetensors_writer *writer, const ht_named_array *arrays, size_t count,
                             const char *const *metadata)
{
    ht_json_writer json = {.text = text, .compact = true};
    ht_json_begin_object(&json, NULL);
    if (metadata && metadata[0]) {
        ht_json_begin_object(&json, "__metadata__");
        for (const char *const *pair = metadata; pair[0]; pair += 2) ht_json_put_text(&json, pair[0], pair[1]);
        ht_json_end_object(&json);
    }
    for (size_t i = 0; i < count; i++) {
        ht_named_array entry = arrays[i];
        if (!ht_array_measure(&entry.array))
            HT_FAIL(writer->ctx, HT_ESHAPE, "%s: %s: the sizes of the shape overflow", writer->path, entry.name);
        put_entry(&json, &entry, writer->promised);
        writer->promised += entry.array.bytes;
    }
    ht_json_end_object(&json);
    while (!text->failed && text->length % 8 != 0) ht_text_add(text, " ");
    if (text->failed) HT_FAIL(writer->ctx, HT_ENOMEM, "%s: out of memory for the header", writer->path);
    return HT_OK;
}

static ht_status put(ht_safetensors_writer *writer, const void *data, size_t bytes)
{
    if (bytes == 0) return HT_OK;
    XXH3_64bits_update(writer->hash, data, bytes);
    writer->total += bytes;
    if (fwrite(data, 1, bytes, writer->file) != bytes)
        return writer->status = ht_fail(writer->ctx, HT_EIO, "%s: %s", writer->path, strerror(errno));
    return HT_OK;
}

static ht_status put_header(ht_safetensors_writer *writer, const ht_named_array *arrays, size_t count,
                            const char *const *metadata)
{
    ht_text text = {0};
    ht_status status = make_header(&text, writer, arrays, count, metadata);
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)text.length >> 8 * i);
    if (status == HT_OK) status = put(writer, length, sizeof length);
    if (status == HT_OK) status = put(writer, text.data, text.length);
    ht_text_free(&text);
    return status;
}

ht_status ht_safetensors_create(ht_safetensors_writer **out, ht_context *ctx, const char *path,
                                const ht_named_array *arrays, size_t count, const char *const *metadata)
{
    *out = NULL;
    ht_safetensors_writer *writer = calloc(1, sizeof *writer);
    if (!writer) HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory", path);
    writer->ctx = ctx;
    writer->path = strdup(path);
    writer->hash = XXH3_createState();
    ht_status status = HT_OK;
    if (!writer->path || !writer->hash || XXH3_64bits_reset(writer->hash) == XXH_ERROR)
        status = ht_fail(ctx, HT_ENOMEM, "%s: out of memory", path);
    if (status == HT_OK && !(writer->file = fopen(path, "wbe")))
        status = ht_fail(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    if (status == HT_OK) status = put_header(writer, arrays, count, metadata);
    if (status != HT_OK) {
        ht_safetensors_abandon(writer);
        return status;
    }
    *out = writer;
    return HT_OK;
}

ht_status ht_safetensors_append(ht_safetensors_writer *writer, const void *data, size_t bytes)
{
    if (writer->status != HT_OK) return writer->status;
    if (bytes > writer->promised - writer->written)
        return writer->status =
                   ht_fail(writer->ctx, HT_EINVAL, "%s: more data than the header promised (%" PRIu64 " bytes)",
                           writer->path, writer->promised);
    writer->written += bytes;
    return put(writer, data, bytes);
}

ht_status ht_safetensors_finish(ht_safetensors_writer *writer, uint64_t *checksum, int64_t *bytes)
{
    ht_status status = writer->status;
    if (status == HT_OK && writer->written != writer->promised)
        status = ht_fail(writer->ctx, HT_EINVAL, "%s: %" PRIu64 " bytes of data, the header promised %" PRIu64,
                         writer->path, writer->written, writer->promised);
    if (status == HT_OK && (fflush(writer->file) != 0 || fsync(fileno(writer->file)) != 0))
        status = ht_fail(writer->ctx, HT_EIO, "%s: %s", writer->path, strerror(errno));
    FILE *file = writer->file;
    writer->file = NULL;
    if (fclose(file) != 0 && status == HT_OK)
        status = ht_fail(writer->ctx, HT_EIO, "%s: %s", writer->path, strerror(errno));
    if (checksum) *checksum = XXH3_64bits_digest(writer->hash);
    if (bytes) *bytes = (int64_t)writer->total;
    ht_safetensors_abandon(writer);
    return status;
}

void ht_safetensors_abandon(ht_safetensors_writer *writer)
{
    if (!writer) return;
    if (writer->file) fclose(writer->file);
    XXH3_freeState(writer->hash);
    free(writer->path);
    free(writer);
}
