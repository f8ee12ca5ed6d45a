/* Images: PNG, JPEG, PGM and PPM decoded to rows of 8-bit pixels, and resized. */
#ifndef HT_FORMAT_IMAGE_H
#define HT_FORMAT_IMAGE_H

#include <halftone/context.h>

typedef struct ht_image {
    int64_t height, width;
    int channels;    /* 1 grey, 3 red green blue */
    uint8_t *pixels; /* [height][width][channels], heap memory */
} ht_image;

/* Larger images are refused before memory is allocated. */
#define HT_IMAGE_MOST_PIXELS ((int64_t)1 << 26)

/* By the first bytes. channels 0: as stored (a palette and alpha count as colour); 1 or 3: converted. Transparency is
 * left out, 16 bits become 8, a colour profile is not applied. On failure *out is empty. */
ht_status ht_image_decode(ht_image *out, ht_context *ctx, const char *name, const uint8_t *data, size_t length,
                          int channels);
void ht_image_free(ht_image *image);
/* Does the name end in .png, .jpg or .jpeg, in any case? */
bool ht_image_is_named(const char *path);
/* Do the first bytes say that it is an image, of any kind that is decoded, or a PGM or PPM? */
bool ht_image_is_known(const uint8_t *data, size_t length);
bool ht_image_is_pnm(const uint8_t *data, size_t length);

/* Channels first: [channels][height][width]. */
void ht_image_planes(const ht_image *image, uint8_t *out);

/* Resizes with a triangle filter that widens when the image shrinks. */
ht_status ht_image_resize(ht_image *out, ht_context *ctx, const ht_image *image, int64_t height, int64_t width);

/* Internal: the decoders. */
ht_status ht_png_decode(ht_image *out, ht_context *ctx, const char *name, const uint8_t *data, size_t length,
                        int channels);
ht_status ht_jpeg_decode(ht_image *out, ht_context *ctx, const char *name, const uint8_t *data, size_t length,
                         int channels);
ht_status ht_pnm_decode(ht_image *out, ht_context *ctx, const char *name, const uint8_t *data, size_t length,
                        int channels);
/* Takes the size from the header of an image and allocates its pixels. */
ht_status ht_image_allocate(ht_image *out, ht_context *ctx, const char *name, int64_t height, int64_t width,
                            int channels);

#endif
