/* The writer of TensorBoard event files. A record is: length (u64), masked crc of the length, data, masked crc of the
 * data. The data is an Event in protobuf: 1 wall_time (double), 2 step (varint), 3 file_version (text), 5 Summary { 1
 * Value { 1 tag, 2 simple_value } }, 7 SessionLog { 1 status (1: start) }. */
#include "format/events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { MOST_TAG_BYTES = 1000 };

struct ht_events {
    ht_context *ctx;
    FILE *file;
    char *path;
};

uint32_t ht_crc32c(const void *data, size_t length)
{
    const uint8_t *at = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < length; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1u)));
    }
    return ~crc;
}

uint32_t ht_crc32c_masked(const void *data, size_t length)
{
    uint32_t crc = ht_crc32c(data, length);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* A protobuf message that is known to be short. */
typedef struct message {
    uint8_t bytes[MOST_TAG_BYTES + 64];
    size_t length;
} message;

static void add(message *m, const void *bytes, size_t length)
{
    memcpy(m->bytes + m->length, bytes, length);
    m->length += length;
}

static void add_varint(message *m, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) m->bytes[m->length++] = (uint8_t)(value | 0x80);
    m->bytes[m->length++] = (uint8_t)value;
}

/* A field's key: its number and how it is written (0 varint, 1 eight bytes, 2 bytes with a length, 5 four bytes). */
static void add_key(message *m, unsigned field, unsigned wire)
{
    add_varint(m, field << 3 | wire);
}

static void add_bytes(message *m, unsigned field, const void *bytes, size_t length)
{
    add_key(m, field, 2);
    add_varint(m, length);
    add(m, bytes, length);
}

static void add_wall_time(message *m, double wall_time)
{
    add_key(m, 1, 1);
    add(m, &wall_time, sizeof wall_time);
}

static ht_status put_record(ht_events *events, const message *m)
{
    uint64_t length = m->length;
    uint32_t crc_length = ht_crc32c_masked(&length, sizeof length), crc_data = ht_crc32c_masked(m->bytes, m->length);
    if (fwrite(&length, sizeof length, 1, events->file) != 1 ||
        fwrite(&crc_length, sizeof crc_length, 1, events->file) != 1 ||
        fwrite(m->bytes, 1, m->length, events->file) != m->length ||
        fwrite(&crc_data, sizeof crc_data, 1, events->file) != 1)
        HT_FAIL(events->ctx, HT_EIO, "%s: %s", events->path, strerror(errno));
    return HT_OK;
}

static void discard(ht_events *events)
{
    if (events->file) fclose(events->file);
    free(events->path);
    free(events);
}

ht_status ht_events_open(ht_events **out, ht_context *ctx, const char *path, double wall_time)
{
    static const char version[] = "brain.Event:2";
    *out = NULL;
    ht_events *events = calloc(1, sizeof *events);
    if (!events || !(events->path = strdup(path))) {
        free(events);
        HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory", path);
    }
    events->ctx = ctx;
    events->file = fopen(path, "abe");
    ht_status status = events->file ? HT_OK : ht_fail(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    /* A file that is appended to has its version already. */
    if (status == HT_OK && fseek(events->file, 0, SEEK_END) == 0 && ftell(events->file) == 0) {
        message m = {.length = 0};
        add_wall_time(&m, wall_time);
        add_bytes(&m, 3, version, sizeof version - 1);
        status = put_record(events, &m);
    }
    if (status != HT_OK) {
        discard(events);
        return status;
    }
    *out = events;
    return HT_OK;
}

ht_status ht_events_scalar(ht_events *events, double wall_time, int64_t step, const char *tag, float value)
{
    size_t tag_bytes = strlen(tag);
    if (tag_bytes > MOST_TAG_BYTES)
        HT_FAIL(events->ctx, HT_EINVAL, "%s: a tag of %zu bytes is longer than %d", events->path, tag_bytes,
                MOST_TAG_BYTES);
    message one = {.length = 0}, summary = {.length = 0}, event = {.length = 0};
    add_bytes(&one, 1, tag, tag_bytes);
    add_key(&one, 2, 5);
    add(&one, &value, sizeof value);
    add_bytes(&summary, 1, one.bytes, one.length);
    add_wall_time(&event, wall_time);
    add_key(&event, 2, 0);
    add_varint(&event, (uint64_t)step);
    add_bytes(&event, 5, summary.bytes, summary.length);
    return put_record(events, &event);
}

ht_status ht_events_start(ht_events *events, double wall_time, int64_t step)
{
    static const uint8_t start[] = {1 << 3 | 0, 1};
    message event = {.length = 0};
    add_wall_time(&event, wall_time);
    add_key(&event, 2, 0);
    add_varint(&event, (uint64_t)step);
    add_bytes(&event, 7, start, sizeof start);
    return put_record(events, &event);
}

ht_status ht_events_flush(ht_events *events)
{
    if (fflush(events->file) != 0) HT_FAIL(events->ctx, HT_EIO, "%s: %s", events->path, strerror(errno));
    return HT_OK;
}

ht_status ht_events_close(ht_events *events)
{
    if (!events) return HT_OK;
    ht_status status = ht_events_flush(events);
    discard(events);
    return status;
}
