/* libFuzzer target: any bytes as a token shard. Its tokens lie within the file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_message(const ht_context *ctx)
{
    if (!strstr(ctx->message, "fuzz")) abort(); /* refused without a name */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ht_context ctx = {0};
    for (int width = 2; width <= 4; width += 2) {
        ht_shard shard;
        if (ht_shard_parse(&shard, &ctx, "fuzz", data, size, width) != HT_OK) {
            check_message(&ctx);
            continue;
        }
        size_t bytes = (size_t)shard.count * (size_t)shard.width;
        if (bytes > size || (bytes && (shard.tokens < data || shard.tokens + bytes > data + size))) abort();
    }
    return 0;
}
