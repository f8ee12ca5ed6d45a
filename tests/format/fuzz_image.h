/* What the fuzz targets of pictures share. */
#ifndef HT_TESTS_FUZZ_IMAGE_H
#define HT_TESTS_FUZZ_IMAGE_H

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/format.h"

typedef ht_status (*image_decoder)(ht_image *image, ht_context *ctx, const char *name, const uint8_t *data, size_t size,
                                   int channels);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An accepted picture has all its pixels, in each form; a refusal names the file. */
static inline int fuzz_image(image_decoder decode, const uint8_t *data, size_t size)
{
    ht_context ctx = {0};
    for (int channels = 0; channels <= 3; channels += channels ? 2 : 1) {
        ht_image image = {0};
        if (decode(&image, &ctx, "fuzz", data, size, channels) != HT_OK) {
            if (!strstr(ctx.message, "fuzz")) abort();
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

#endif
