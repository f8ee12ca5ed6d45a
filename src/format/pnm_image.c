/* The decoder of PGM and PPM: "P2" and "P5" are grey, "P3" and "P6" colour; the first of each has its samples as decimal
 * numbers, the second as bytes (two, big end first, above a maximum of 255). */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/image.h"

typedef struct decoding {
    ht_context *ctx;
    const char *name;
    const uint8_t *at, *end;
    int channels;
    bool text;
    int64_t maximum; /* of a sample */
} decoding;

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The next decimal number, behind white space and comments. */
static ht_status read_number(decoding *d, const char *what, int64_t most, int64_t *out)
{
    while (d->at < d->end && (is_space(*d->at) || *d->at == '#')) {
        const uint8_t *line = *d->at == '#' ? memchr(d->at, '\n', (size_t)(d->end - d->at)) : d->at;
        d->at = line ? line + 1 : d->end;
    }
    const uint8_t *first = d->at;
    for (*out = 0; d->at < d->end && *d->at >= '0' && *d->at <= '9' && *out <= most; d->at++)
        *out = *out * 10 + (*d->at - '0');
    if (d->at == first) HT_FAIL(d->ctx, HT_EPARSE, "%s: PNM: no number for its %s", d->name, what);
    if (*out > most) HT_FAIL(d->ctx, HT_EPARSE, "%s: PNM: its %s is too large", d->name, what);
    return HT_OK;
}

static ht_status read_header(decoding *d, int64_t *height, int64_t *width)
{
    d->text = d->at[1] < '4';
    d->channels = d->at[1] == '3' || d->at[1] == '6' ? 3 : 1;
    d->at += 2;
    HT_TRY(read_number(d, "width", HT_IMAGE_MOST_PIXELS, width));
    HT_TRY(read_number(d, "height", HT_IMAGE_MOST_PIXELS, height));
    HT_TRY(read_number(d, "maximum", 65535, &d->maximum));
    if (d->maximum < 1) HT_FAIL(d->ctx, HT_EPARSE, "%s: PNM: a maximum of 0", d->name);
    if (!d->text && (d->at >= d->end || !is_space(*d->at++)))
        HT_FAIL(d->ctx, HT_EPARSE, "%s: PNM: the file ends in its header", d->name);
    return HT_OK;
}

/* Before memory is allocated: a sample has a byte at least. */
static ht_status check_length(const decoding *d, int64_t height, int64_t width)
{
    int64_t bytes = d->text || d->maximum < 256 ? 1 : 2, left = d->end - d->at;
    if (height > 0 && width > 0 && height <= HT_IMAGE_MOST_PIXELS / width &&
        left < height * width * d->channels * bytes)
        HT_FAIL(d->ctx, HT_EPARSE, "%s: PNM: the file ends too early", d->name);
    return HT_OK;
}

/* As 8 bits, white being 255. */
static ht_status read_sample(decoding *d, uint8_t *out)
{
    int64_t sample = 0;
    if (d->text)
        HT_TRY(read_number(d, "sample", d->maximum, &sample));
    else
        for (int i = 0; i < (d->maximum < 256 ? 1 : 2); i++) sample = sample * 256 + *d->at++;
    if (sample > d->maximum) HT_FAIL(d->ctx, HT_EPARSE, "%s: PNM: a sample above the maximum", d->name);
    *out = (uint8_t)((sample * 255 + d->maximum / 2) / d->maximum);
    return HT_OK;
}

/* A pixel as stored to one of `channels`; grey of colour by the weights that JPEG has. */
static void put_pixel(uint8_t *out, int channels, const uint8_t *from, int stored)
{
    if (channels == stored)
        memcpy(out, from, (size_t)stored);
    else if (channels == 3)
        memset(out, from[0], 3);
    else
        *out = (uint8_t)((299 * from[0] + 587 * from[1] + 114 * from[2] + 500) / 1000);
}

ht_status ht_pnm_decode(ht_image *out, ht_context *ctx, const char *name, const uint8_t *data, size_t length,
                        int channels)
{
    decoding d = {.ctx = ctx, .name = name, .at = data, .end = data + length};
    int64_t height, width;
    uint8_t pixel[3];
    if (!ht_image_is_pnm(data, length)) HT_FAIL(ctx, HT_EPARSE, "%s: PNM: not a PGM or PPM image", name);
    HT_TRY(read_header(&d, &height, &width));
    HT_TRY(check_length(&d, height, width));
    HT_TRY(ht_image_allocate(out, ctx, name, height, width, channels ? channels : d.channels));
    for (int64_t i = 0; i < height * width; i++) {
        for (int c = 0; c < d.channels; c++) HT_TRY(read_sample(&d, &pixel[c]));
        put_pixel(out->pixels + i * out->channels, out->channels, pixel, d.channels);
    }
    return HT_OK;
}
