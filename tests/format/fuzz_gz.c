/* libFuzzer target: any bytes as a gzip file. No more comes out than was allowed. */
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
    enum { MOST = 1 << 20 };
    uint8_t *out;
    size_t length;
    if (ht_gz_inflate(&ctx, "fuzz", data, size, MOST, &out, &length) != HT_OK) {
        if (out || length) abort();
        check_message(&ctx);
        return 0;
    }
    if (length > MOST) abort();
    free(out);
    return 0;
}
