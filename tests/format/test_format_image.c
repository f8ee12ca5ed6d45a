/* PNG, JPEG, PGM and PPM: pixels come out as they went in, damage is refused, resizing keeps what it should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jpeglib.h>
#include <png.h>

#include "base/base.h"
#include "format/format.h"

enum { WIDTH = 9, HEIGHT = 5 };

typedef struct bytes {
    uint8_t *data;
    size_t length;
} bytes;

static void add_bytes(png_structp png, png_bytep data, size_t length)
{
    bytes *out = png_get_io_ptr(png);
    out->data = realloc(out->data, out->length + length);
    memcpy(out->data + out->length, data, length);
    out->length += length;
}

static void no_flush(png_structp png)
{
    (void)png;
}

static uint8_t pixel(int x, int y, int c)
{
    return (uint8_t)(x * 20 + y * 7 + c * 50);
}

/* Any kind of PNG; the samples are pixel(x, y, channel), of 16 bits with 0x5a below. */
static bytes make_png(int colour, int depth, int interlace)
{
    bytes out = {0};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_set_write_fn(png, &out, add_bytes, no_flush);
    png_set_IHDR(png, info, WIDTH, HEIGHT, depth, colour, interlace, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_color palette[256];
    for (int i = 0; i < 256; i++) palette[i] = (png_color){(png_byte)i, (png_byte)(255 - i), (png_byte)(i / 2)};
    if (colour == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette, 256);
    png_set_gAMA(png, info, 0.3); /* must not change anything */
    png_write_info(png, info);
    int channels = png_get_channels(png, info);
    static uint8_t samples[HEIGHT][WIDTH * 8];
    png_bytep rows[HEIGHT];
    for (int y = 0; y < HEIGHT; y++) {
        rows[y] = samples[y];
        for (int x = 0; x < WIDTH; x++)
            for (int c = 0; c < channels; c++) {
                if (depth == 16) samples[y][(x * channels + c) * 2 + 1] = 0x5a;
                samples[y][(x * channels + c) * (depth / 8)] = pixel(x, y, c);
            }
    }
    png_write_image(png, rows);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    return out;
}

static void png__every_kind_becomes_plain_pixels(void **state)
{
    (void)state;
    static const int colours[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_GRAY_ALPHA,
                                  PNG_COLOR_TYPE_RGB_ALPHA};
    ht_context ctx = {0};
    for (int i = 0; i < 4; i++)
        for (int depth = 8; depth <= 16; depth += 8)
            for (int interlace = 0; interlace < 2; interlace++) {
                bytes file = make_png(colours[i], depth, interlace ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE);
                ht_image image;
                if (ht_image_decode(&image, &ctx, "p", file.data, file.length, 0) != HT_OK) fail_msg("%s", ctx.message);
                assert_int_equal(image.channels, colours[i] & PNG_COLOR_MASK_COLOR ? 3 : 1);
                assert_int_equal(image.height * 100 + image.width, HEIGHT * 100 + WIDTH);
                for (int y = 0; y < HEIGHT; y++)
                    for (int x = 0; x < WIDTH; x++)
                        for (int c = 0; c < image.channels; c++)
                            assert_int_equal(image.pixels[(y * WIDTH + x) * image.channels + c], pixel(x, y, c));
                ht_image_free(&image);
                assert_int_equal(ht_image_decode(&image, &ctx, "p", file.data, file.length, 3), HT_OK);
                assert_int_equal(image.channels, 3);
                if (!(colours[i] & PNG_COLOR_MASK_COLOR)) assert_int_equal(image.pixels[1], pixel(0, 0, 0));
                ht_image_free(&image);
                assert_int_equal(ht_image_decode(&image, &ctx, "p", file.data, file.length, 1), HT_OK);
                assert_int_equal(image.channels, 1);
                ht_image_free(&image);
                free(file.data);
            }
}

static void png__palettes_become_colours(void **state)
{
    (void)state;
    ht_context ctx = {0};
    bytes file = make_png(PNG_COLOR_TYPE_PALETTE, 8, PNG_INTERLACE_NONE);
    ht_image image;
    assert_int_equal(ht_image_decode(&image, &ctx, "p", file.data, file.length, 0), HT_OK);
    assert_int_equal(image.channels, 3);
    assert_int_equal(image.pixels[3], pixel(1, 0, 0));
    assert_int_equal(image.pixels[4], 255 - pixel(1, 0, 0));
    ht_image_free(&image);
    free(file.data);
}

/* Every truncation is an error that names the file; a flipped byte is either an error or a picture, never a crash. */
static void refuse_all_cuts(const bytes *file)
{
    ht_context ctx = {0};
    for (size_t cut = 0; cut < file->length; cut++) {
        uint8_t *copy = malloc(cut + 1);
        memcpy(copy, file->data, cut);
        ht_image image;
        if (ht_image_decode(&image, &ctx, "cut.file", copy, cut, 3) == HT_OK)
            fail_msg("%zu of %zu bytes", cut, file->length);
        assert_non_null(strstr(ctx.message, "cut.file"));
        assert_null(image.pixels);
        free(copy);
    }
    for (size_t at = 0; at < file->length; at++) {
        ht_image image;
        file->data[at] ^= 0x41;
        ht_image_decode(&image, &ctx, "bent.file", file->data, file->length, 3);
        ht_image_free(&image);
        file->data[at] ^= 0x41;
    }
}

static void png__cuts_and_bombs_are_refused(void **state)
{
    (void)state;
    ht_context ctx = {0};
    ht_image image;
    bytes file = make_png(PNG_COLOR_TYPE_RGB, 8, PNG_INTERLACE_ADAM7);
    refuse_all_cuts(&file);
    /* A header that promises 60000 by 60000 pixels, with its checksum right, and the beginning of data. */
    uint8_t bomb[41] = {0x89, 'P',  'N',  'G', 13, 10, 26, 10, 0, 0, 0, 13, 'I', 'H', 'D', 'R', 0,   0,   0xea, 0x60, 0,
                        0,    0xea, 0x60, 8,   2,  0,  0,  0,  0, 0, 0, 0,  0,   0,   0,   16,  'I', 'D', 'A',  'T'};
    uint32_t crc = 0xffffffffu;
    for (int i = 12; i < 29; i++) {
        crc ^= bomb[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1u)));
    }
    for (int i = 0; i < 4; i++) bomb[29 + i] = (uint8_t)(~crc >> (24 - 8 * i));
    assert_int_equal(ht_image_decode(&image, &ctx, "bomb.png", bomb, sizeof bomb, 3), HT_EPARSE);
    assert_non_null(strstr(ctx.message, "bomb.png: PNG: more pixels than are read"));
    free(file.data);
}

static bytes make_jpeg(int channels)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    bytes out = {0};
    unsigned long length = 0;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &out.data, &length);
    jpeg.image_width = 32;
    jpeg.image_height = 24;
    jpeg.input_components = channels;
    jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 100, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    uint8_t row[32 * 4];
    while (jpeg.next_scanline < jpeg.image_height) {
        for (int i = 0; i < 32 * channels; i++) row[i] = (uint8_t)(100 + i % channels * 40);
        JSAMPROW rows[1] = {row};
        jpeg_write_scanlines(&jpeg, rows, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    out.length = length;
    return out;
}

static void jpeg__grey_and_colour_come_out_as_they_went_in(void **state)
{
    (void)state;
    ht_context ctx = {0};
    for (int channels = 1; channels <= 3; channels += 2) {
        bytes file = make_jpeg(channels);
        ht_image image;
        if (ht_image_decode(&image, &ctx, "j", file.data, file.length, 0) != HT_OK) fail_msg("%s", ctx.message);
        assert_int_equal(image.channels, channels);
        assert_int_equal(image.height * 100 + image.width, 2432);
        for (int64_t i = 0; i < 24 * 32 * channels; i++) {
            int wanted = 100 + (int)(i % channels) * 40;
            assert_in_range(image.pixels[i], wanted - 2, wanted + 2);
        }
        ht_image_free(&image);
        assert_int_equal(ht_image_decode(&image, &ctx, "j", file.data, file.length, 4 - channels), HT_OK);
        assert_int_equal(image.channels, 4 - channels);
        ht_image_free(&image);
        free(file.data);
    }
}

static void jpeg__cuts_and_printing_colours_are_refused(void **state)
{
    (void)state;
    ht_context ctx = {0};
    ht_image image;
    bytes file = make_jpeg(3);
    file.length -= 2; /* the last two bytes only say that it is over */
    refuse_all_cuts(&file);
    free(file.data);
    file = make_jpeg(4);
    assert_int_equal(ht_image_decode(&image, &ctx, "cmyk.jpg", file.data, file.length, 0), HT_EPARSE);
    assert_non_null(strstr(ctx.message, "cmyk.jpg: JPEG"));
    free(file.data);
    assert_int_equal(ht_image_decode(&image, &ctx, "x.gif", (const uint8_t *)"GIF89a", 6, 0), HT_EPARSE);
    assert_non_null(strstr(ctx.message, "neither a PNG, a JPEG, a PGM nor a PPM image"));
}

/* A 2 by 1 image: text or bytes, grey or colour, comments, other maxima. */
static void pnm__every_kind_becomes_plain_pixels(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        size_t length;
        int channels;
        uint8_t pixels[6];
    } cases[] = {
        {"P2 # grey\n2 1\n15\n0\n15\n", 0, 1, {0, 255}},
        {"P5\n# a\n# b\n2 1 255\n\x07\xfe", 0, 1, {7, 254}},
        {"P5\n2 1\n65535\n\xff\xff\x80\x00", 17, 1, {255, 128}},
        {"P3\n2 1\n255\n1 2 3\n4 5 6", 0, 3, {1, 2, 3, 4, 5, 6}},
        {"P6 2 1 255 abcdef", 0, 3, {'a', 'b', 'c', 'd', 'e', 'f'}},
    };
    ht_context ctx = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t length = cases[i].length ? cases[i].length : strlen(cases[i].file);
        const uint8_t *file = (const uint8_t *)cases[i].file;
        ht_image image;
        if (ht_image_decode(&image, &ctx, "n", file, length, 0) != HT_OK) fail_msg("%zu: %s", i, ctx.message);
        assert_int_equal(image.channels, cases[i].channels);
        assert_int_equal(image.height * 100 + image.width, 102);
        assert_memory_equal(image.pixels, cases[i].pixels, 2 * (size_t)image.channels);
        ht_image_free(&image);
        assert_int_equal(ht_image_decode(&image, &ctx, "n", file, length, 4 - cases[i].channels), HT_OK);
        assert_int_equal(image.channels, 4 - cases[i].channels);
        ht_image_free(&image);
    }
}

static void pnm__cuts_and_sizes_that_are_none_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"P5\n2 1 255",         "P5\n2 1 255\na",
                                      "P5\n0 1 255\n",       "P5\n2 1 0\nab",
                                      "P2\n2 1 9\n1",        "P2\n2 1 9\n1 10",
                                      "P2\n2 1 9\n1 -1",     "P6\n99999 99999 255\na",
                                      "P5\n2 1 70000\nabcd", "P5\n99999999999999999999 1 255\na"};
    ht_context ctx = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ht_image image;
        if (ht_image_decode(&image, &ctx, "bad.pgm", (const uint8_t *)bad[i], strlen(bad[i]), 0) == HT_OK)
            fail_msg("accepted: %s", bad[i]);
        assert_non_null(strstr(ctx.message, "bad.pgm: "));
        assert_null(image.pixels);
    }
}

static void resize__keeps_flat_areas_means_and_edges(void **state)
{
    (void)state;
    ht_context ctx = {0};
    uint8_t pixels[16] = {0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 255, 255};
    ht_image image = {4, 4, 1, pixels}, out;
    assert_int_equal(ht_image_resize(&out, &ctx, &image, 2, 2), HT_OK);
    /* A triangle of width 4 around the left half's centre: weights 1/8 3/8 3/8 1/8 without the one outside. */
    assert_in_range(out.pixels[0], 35, 38);
    assert_int_equal(out.pixels[0] + out.pixels[1], 255);
    ht_image_free(&out);
    assert_int_equal(ht_image_resize(&out, &ctx, &image, 9, 1), HT_OK);
    assert_in_range(out.pixels[4], 127, 128);
    ht_image_free(&out);
    memset(pixels, 77, sizeof pixels);
    assert_int_equal(ht_image_resize(&out, &ctx, &image, 7, 3), HT_OK);
    for (int i = 0; i < 21; i++) assert_int_equal(out.pixels[i], 77);
    ht_image_free(&out);
    assert_int_equal(ht_image_resize(&out, &ctx, &image, 1 << 20, 1 << 20), HT_ESHAPE);
    assert_true(ht_image_is_named("a/b.JPeG") && ht_image_is_named("x.png") && !ht_image_is_named("x.pngx"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(png__every_kind_becomes_plain_pixels),
        cmocka_unit_test(png__palettes_become_colours),
        cmocka_unit_test(png__cuts_and_bombs_are_refused),
        cmocka_unit_test(jpeg__grey_and_colour_come_out_as_they_went_in),
        cmocka_unit_test(jpeg__cuts_and_printing_colours_are_refused),
        cmocka_unit_test(pnm__every_kind_becomes_plain_pixels),
        cmocka_unit_test(pnm__cuts_and_sizes_that_are_none_are_refused),
        cmocka_unit_test(resize__keeps_flat_areas_means_and_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
