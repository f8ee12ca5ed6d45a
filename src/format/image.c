/* Images: format detection, limits, resampling. */
#include "format/image.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"

static bool is_png(const uint8_t *data, size_t length)
{
    return length >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0;
}

static bool is_jpeg(const uint8_t *data, size_t length)
{
    return length >= 3 && memcmp(data, "\xff\xd8\xff", 3) == 0;
}

bool ht_image_is_pnm(const uint8_t *data, size_t length)
{
    return length >= 3 && data[0] == 'P' && strchr("2356", data[1]) && data[1] && strchr(" \t\r\n#", data[2]) &&
           data[2];
}

bool ht_image_is_known(const uint8_t *data, size_t length)
{
    return is_png(data, length) || is_jpeg(data, length) || ht_image_is_pnm(data, length);
}

ht_status ht_image_decode(ht_image *out, ht_context *ctx, const char *name, const uint8_t *data, size_t length,
                          int channels)
{
    *out = (ht_image){0};
    ht_status status;
    if (is_png(data, length))
        status = ht_png_decode(out, ctx, name, data, length, channels);
    else if (is_jpeg(data, length))
        status = ht_jpeg_decode(out, ctx, name, data, length, channels);
    else if (ht_image_is_pnm(data, length))
        status = ht_pnm_decode(out, ctx, name, data, length, channels);
    else
        status = ht_fail(ctx, HT_EPARSE, "%s: neither a PNG, a JPEG, a PGM nor a PPM image", name);
    if (status != HT_OK) ht_image_free(out);
    return status;
}

void ht_image_free(ht_image *image)
{
    free(image->pixels);
    *image = (ht_image){0};
}

bool ht_image_is_named(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (strcasecmp(dot, ".png") == 0 || strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0);
}

ht_status ht_image_allocate(ht_image *out, ht_context *ctx, const char *name, int64_t height, int64_t width,
                            int channels)
{
    if (height < 1 || width < 1 || height > HT_IMAGE_MOST_PIXELS / width)
        HT_FAIL(ctx, HT_ESHAPE,
                "%s: an image of %" PRId64 " by %" PRId64 " pixels is not read (at most %" PRId64 " pixels)", name,
                width, height, HT_IMAGE_MOST_PIXELS);
    *out = (ht_image){height, width, channels, calloc((size_t)(height * width), (size_t)channels)};
    if (!out->pixels)
        HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory for %" PRId64 " by %" PRId64 " pixels", name, width, height);
    return HT_OK;
}

void ht_image_planes(const ht_image *image, uint8_t *out)
{
    size_t plane = (size_t)(image->height * image->width), channels = (size_t)image->channels;
    for (size_t c = 0; c < channels; c++)
        for (size_t i = 0; i < plane; i++) *out++ = image->pixels[i * channels + c];
}

/* ---- scaling: each output pixel is a weighted mean of the inputs under a triangle, first along rows, then columns --- */

typedef struct triangle {
    int64_t first, count;
    double centre, support;
} triangle;

static triangle triangle_at(int64_t index, int64_t from, int64_t to)
{
    double scale = (double)from / (double)to;
    triangle t = {.centre = ((double)index + 0.5) * scale, .support = scale > 1 ? scale : 1};
    int64_t last = (int64_t)ceil(t.centre + t.support);
    t.first = (int64_t)floor(t.centre - t.support);
    if (t.first < 0) t.first = 0;
    if (last > from) last = from;
    t.count = last - t.first;
    return t;
}

static double weight_of(const triangle *t, int64_t index)
{
    double distance = fabs((double)index + 0.5 - t->centre) / t->support;
    return distance < 1 ? 1 - distance : 0;
}

/* Resampling along one axis: out[o][i][r] = weighted mean over a of in[o][a][r]. */
static void scale_axis(const float *in, float *out, int64_t outer, int64_t from, int64_t to, int64_t inner)
{
    for (int64_t i = 0; i < to; i++) {
        triangle t = triangle_at(i, from, to);
        double sum = 0;
        for (int64_t k = 0; k < t.count; k++) sum += weight_of(&t, t.first + k);
        for (int64_t o = 0; o < outer; o++)
            for (int64_t r = 0; r < inner; r++) {
                double mean = 0;
                for (int64_t k = 0; k < t.count; k++)
                    mean += weight_of(&t, t.first + k) * in[(o * from + t.first + k) * inner + r];
                out[(o * to + i) * inner + r] = (float)(mean / sum);
            }
    }
}

ht_status ht_image_resize(ht_image *out, ht_context *ctx, const ht_image *image, int64_t height, int64_t width)
{
    HT_TRY(ht_image_allocate(out, ctx, "resized image", height, width, image->channels));
    int64_t channels = image->channels, count = image->height * image->width * channels;
    int64_t wide = image->height * width * channels, end = height * width * channels;
    float *plain = malloc((size_t)count * sizeof *plain), *rows = malloc((size_t)wide * sizeof *rows);
    float *scaled = malloc((size_t)end * sizeof *scaled);
    if (plain && rows && scaled) {
        for (int64_t i = 0; i < count; i++) plain[i] = image->pixels[i];
        scale_axis(plain, rows, image->height, image->width, width, channels);
        scale_axis(rows, scaled, 1, image->height, height, width * channels);
        for (int64_t i = 0; i < end; i++) out->pixels[i] = (uint8_t)lrintf(fminf(fmaxf(scaled[i], 0), 255));
    }
    bool done = plain && rows && scaled;
    free(plain);
    free(rows);
    free(scaled);
    if (done) return HT_OK;
    ht_image_free(out);
    HT_FAIL(ctx, HT_ENOMEM, "out of memory for an image of %" PRId64 " by %" PRId64, width, height);
}
