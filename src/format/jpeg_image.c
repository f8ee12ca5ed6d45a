/* The JPEG decoder, by libjpeg. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "base/base.h"
#include "format/image.h"

enum { MOST_MEMORY = 1 << 30, MOST_SCANS = 500 };

typedef struct decoding {
    struct jpeg_error_mgr errors; /* first: libjpeg hands out its address */
    struct jpeg_progress_mgr progress;
    struct jpeg_decompress_struct jpeg;
    jmp_buf out_of_here;
    ht_context *ctx;
    const char *name;
    ht_image *image;
    ht_status status;
} decoding;

static _Noreturn void on_error(j_common_ptr jpeg)
{
    decoding *d = (decoding *)jpeg->err;
    char message[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, message);
    d->status = ht_fail(d->ctx, HT_EPARSE, "%s: JPEG: %s", d->name, message);
    longjmp(d->out_of_here, 1);
}

/* libjpeg fills missing data with grey and warns; a truncated file is an error here. Other warnings are ignored. */
static void on_message(j_common_ptr jpeg, int level)
{
    if (level >= 0) return;
    int code = jpeg->err->msg_code;
    if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER) on_error(jpeg);
}

/* A small file can ask for thousands of passes over a large image. */
static void on_progress(j_common_ptr jpeg)
{
    decoding *d = (decoding *)jpeg->err;
    if (d->jpeg.input_scan_number <= MOST_SCANS) return;
    d->status = ht_fail(d->ctx, HT_EPARSE, "%s: JPEG: more than %d scans", d->name, MOST_SCANS);
    longjmp(d->out_of_here, 1);
}

static void decode(decoding *d, const uint8_t *data, size_t length, int channels)
{
    if (setjmp(d->out_of_here)) return;
    jpeg_create_decompress(&d->jpeg);
    d->jpeg.mem->max_memory_to_use = MOST_MEMORY;
    d->jpeg.progress = &d->progress;
    jpeg_mem_src(&d->jpeg, data, (unsigned long)length);
    jpeg_read_header(&d->jpeg, TRUE);
    bool grey = channels == 1 || (channels == 0 && d->jpeg.num_components == 1);
    d->jpeg.out_color_space = grey ? JCS_GRAYSCALE : JCS_RGB;
    d->jpeg.dct_method = JDCT_ISLOW;
    d->status = ht_image_allocate(d->image, d->ctx, d->name, d->jpeg.image_height, d->jpeg.image_width, grey ? 1 : 3);
    if (d->status != HT_OK) return;
    jpeg_start_decompress(&d->jpeg);
    while (d->jpeg.output_scanline < d->jpeg.output_height) {
        JSAMPROW row =
            d->image->pixels + (size_t)d->jpeg.output_scanline * d->jpeg.output_width * (size_t)d->image->channels;
        jpeg_read_scanlines(&d->jpeg, &row, 1);
    }
    jpeg_finish_decompress(&d->jpeg);
}

ht_status ht_jpeg_decode(ht_image *out, ht_context *ctx, const char *name, const uint8_t *data, size_t length,
                         int channels)
{
    decoding *d = calloc(1, sizeof *d);
    if (!d) HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory for JPEG", name);
    d->ctx = ctx;
    d->name = name;
    d->image = out;
    d->jpeg.err = jpeg_std_error(&d->errors);
    d->errors.error_exit = on_error;
    d->errors.emit_message = on_message;
    d->progress.progress_monitor = on_progress;
    decode(d, data, length, channels);
    jpeg_destroy_decompress(&d->jpeg);
    ht_status status = d->status;
    free(d);
    return status;
}
