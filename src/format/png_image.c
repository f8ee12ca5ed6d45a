/* The PNG decoder, by libpng. */
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/image.h"

/* Variables that must survive libpng's longjmp are here and not in locals. */
typedef struct decoding {
    ht_context *ctx;
    const char *name;
    const uint8_t *at, *end;
    ht_image *image;
    png_structp png;
    png_infop info;
    png_bytep *rows;
    ht_status status;
} decoding;

static void read_bytes(png_structp png, png_bytep out, png_size_t count)
{
    decoding *d = png_get_io_ptr(png);
    if ((size_t)(d->end - d->at) < count) png_error(png, "the file ends too early");
    memcpy(out, d->at, count);
    d->at += count;
}

static _Noreturn void on_error(png_structp png, png_const_charp message)
{
    decoding *d = png_get_error_ptr(png);
    d->status = ht_fail(d->ctx, HT_EPARSE, "%s: PNG: %s", d->name, message);
    longjmp(png_jmpbuf(png), 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

/* Palettes, small and large depths, transparency and colour to plain 8-bit grey or colour. */
static void ask_for_plain_pixels(decoding *d, int channels)
{
    int colour = png_get_color_type(d->png, d->info);
    png_set_expand(d->png);
    png_set_strip_16(d->png);
    png_set_strip_alpha(d->png);
    bool grey = !(colour & PNG_COLOR_MASK_COLOR);
    if (channels == 3 && grey) png_set_gray_to_rgb(d->png);
    if (channels == 1 && !grey) png_set_rgb_to_gray(d->png, PNG_ERROR_ACTION_NONE, -1, -1);
    png_set_interlace_handling(d->png);
    png_read_update_info(d->png, d->info);
}

static void decode(decoding *d, int channels)
{
    if (setjmp(png_jmpbuf(d->png))) return;
    png_set_read_fn(d->png, d, read_bytes);
    png_set_user_limits(d->png, 1 << 20, 1 << 20);
    png_set_chunk_malloc_max(d->png, 16u << 20);
    png_read_info(d->png, d->info);
    int64_t height = png_get_image_height(d->png, d->info), width = png_get_image_width(d->png, d->info);
    if (height > HT_IMAGE_MOST_PIXELS / (width > 0 ? width : 1)) png_error(d->png, "more pixels than are read");
    ask_for_plain_pixels(d, channels);
    int stored = png_get_channels(d->png, d->info);
    if (png_get_bit_depth(d->png, d->info) != 8 || (stored != 1 && stored != 3))
        png_error(d->png, "unknown kind of pixels");
    d->status = ht_image_allocate(d->image, d->ctx, d->name, height, width, stored);
    if (d->status != HT_OK) return;
    d->rows = calloc((size_t)height, sizeof *d->rows);
    if (!d->rows) png_error(d->png, "out of memory");
    for (int64_t i = 0; i < height; i++) d->rows[i] = d->image->pixels + i * width * stored;
    png_read_image(d->png, d->rows);
    png_read_end(d->png, NULL);
}

ht_status ht_png_decode(ht_image *out, ht_context *ctx, const char *name, const uint8_t *data, size_t length,
                        int channels)
{
    decoding d = {.ctx = ctx, .name = name, .at = data, .end = data + length, .image = out};
    d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d, on_error, on_warning);
    if (d.png) d.info = png_create_info_struct(d.png);
    if (d.info)
        decode(&d, channels);
    else
        d.status = ht_fail(ctx, HT_ENOMEM, "%s: out of memory for PNG", name);
    png_destroy_read_struct(&d.png, &d.info, NULL);
    free(d.rows);
    return d.status;
}
