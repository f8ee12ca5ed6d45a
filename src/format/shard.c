/* The parser of token shards. */
#include "format/shard.h"

#include <inttypes.h>
#include <string.h>

#include "base/base.h"

enum { HEADER_BYTES = 1024 };

typedef struct shard_row {
    uint32_t magic, version;
    int width;
} shard_row;

static const shard_row shard_rows[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static uint32_t word_at(const uint8_t *data, size_t index)
{
    uint32_t word;
    memcpy(&word, data + 4 * index, sizeof word);
    return word;
}

static ht_status parse_headed(ht_shard *out, ht_context *ctx, const char *name, const uint8_t *data, size_t length,
                              const shard_row *row)
{
    if (word_at(data, 1) != row->version)
        HT_FAIL(ctx, HT_ENOTSUP, "%s: token shard of version %" PRIu32 ", not %" PRIu32, name, word_at(data, 1),
                row->version);
    uint64_t count = word_at(data, 2), payload = length - HEADER_BYTES;
    if (count * (uint64_t)row->width != payload)
        HT_FAIL(ctx, HT_EPARSE,
                "%s: the header promises %" PRIu64 " tokens of %d bytes, the file has %" PRIu64 " bytes of them", name,
                count, row->width, payload);
    *out = (ht_shard){data + HEADER_BYTES, row->width, count};
    return HT_OK;
}

ht_status ht_shard_parse(ht_shard *out, ht_context *ctx, const char *name, const uint8_t *data, size_t length,
                         int raw_width)
{
    *out = (ht_shard){0};
    for (size_t i = 0; length >= HEADER_BYTES && i < sizeof shard_rows / sizeof shard_rows[0]; i++)
        if (word_at(data, 0) == shard_rows[i].magic) return parse_headed(out, ctx, name, data, length, &shard_rows[i]);
    if (raw_width != 2 && raw_width != 4) HT_FAIL(ctx, HT_EINVAL, "%s: tokens of %d bytes", name, raw_width);
    if (length % (size_t)raw_width != 0)
        HT_FAIL(ctx, HT_EPARSE, "%s: %zu bytes are no whole number of tokens of %d bytes", name, length, raw_width);
    *out = (ht_shard){data, raw_width, length / (size_t)raw_width};
    return HT_OK;
}
