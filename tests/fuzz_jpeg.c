/* libFuzzer target: any bytes as a JPEG image. What is accepted has all its pixels, in each form. */
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
    for (int channels = 0; channels <= 3; channels += channels ? 2 : 1) {
        ht_image image = {0};
        if (ht_jpeg_decode(&image, &ctx, "fuzz", data, size, channels) != HT_OK) {
            check_message(&ctx);
        } else {
            int64_t sum = 0;
            if (channels && image.channels != channels) abort();
            for (int64_t i = 0; i < image.height * image.width * image.channels; i++) sum += image.pixels[i];
            if (sum < 0) abort();
        }
        ht_image_free(&image);
    }
    return 0;
}
