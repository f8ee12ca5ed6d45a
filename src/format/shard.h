/* Token shards: raw u16 or u32 tokens, or the same after a header of 256 32-bit words (magic, version, count). */
#ifndef HT_FORMAT_SHARD_H
#define HT_FORMAT_SHARD_H

#include <halftone/context.h>

typedef struct ht_shard {
    const uint8_t *tokens; /* inside the caller's bytes, may be unaligned */
    int width;             /* 2 or 4 bytes each */
    uint64_t count;
} ht_shard;

/* The header determines the width; without one it is raw_width (2 or 4). */
ht_status ht_shard_parse(ht_shard *out, ht_context *ctx, const char *name, const uint8_t *data, size_t length,
                         int raw_width);

#endif
