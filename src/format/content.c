/* File contents: memory mapping, gzip inflation, lines, UTF-8. */
#define ZLIB_CONST
#include "format/content.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/base.h"

/* Limit of the inflated size, against decompression bombs. */
#define MOST_INFLATED ((size_t)1 << 36)

static _Atomic int64_t mapped_bytes;

int64_t ht_content_mapped_bytes(void)
{
    return mapped_bytes;
}

static ht_status map_open_file(ht_content *out, ht_context *ctx, const char *path, int file)
{
    struct stat about;
    if (fstat(file, &about) != 0) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        HT_FAIL(ctx, HT_EIO, "%s: %s, not a file", path, S_ISDIR(about.st_mode) ? "a folder" : "a pipe or a device");
    out->data = (const uint8_t *)"";
    if (about.st_size == 0) return HT_OK;
    void *mapped = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    out->data = out->mapped = mapped;
    out->length = out->mapped_length = (size_t)about.st_size;
    mapped_bytes += about.st_size;
    return HT_OK;
}

ht_status ht_content_map(ht_content *out, ht_context *ctx, const char *path)
{
    *out = (ht_content){0};
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    ht_status status = map_open_file(out, ctx, path, file);
    close(file);
    return status;
}

ht_status ht_content_open(ht_content *out, ht_context *ctx, const char *path)
{
    HT_TRY(ht_content_map(out, ctx, path));
    if (out->length < 2 || out->data[0] != 0x1f || out->data[1] != 0x8b) return HT_OK;
    uint8_t *inflated;
    size_t length;
    ht_status status = ht_gz_inflate(ctx, path, out->data, out->length, MOST_INFLATED, &inflated, &length);
    ht_content_close(out);
    if (status == HT_OK) *out = (ht_content){.data = inflated, .length = length, .inflated = inflated};
    return status;
}

void ht_content_close(ht_content *content)
{
    if (content->mapped) {
        munmap(content->mapped, content->mapped_length);
        mapped_bytes -= (int64_t)content->mapped_length;
    }
    free(content->inflated);
    *content = (ht_content){0};
}

void ht_content_forget(const ht_content *content, const uint8_t *data, size_t bytes)
{
    const uint8_t *start = content->mapped;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!start || data < start || data + bytes > start + content->mapped_length) return;
    size_t first = ((size_t)(data - start) + page - 1) / page * page,
           end = (size_t)(data - start + bytes) / page * page;
    if (first < end) madvise((uint8_t *)content->mapped + first, end - first, MADV_DONTNEED);
}

/* ---- gzip ---- */

/* One member, from where the input stands; the output grows as needed. */
static ht_status inflate_member(ht_context *ctx, const char *name, z_stream *z, const uint8_t *end, size_t most,
                                void **out, size_t *capacity, size_t *length)
{
    for (int result = Z_OK; result != Z_STREAM_END;) {
        size_t left = (size_t)(end - z->next_in);
        z->avail_in = left < (1u << 30) ? (uInt)left : 1u << 30;
        if (!ht_grow(out, capacity, *length + (64u << 10), 1))
            HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory after inflating %zu bytes", name, *length);
        size_t space = *capacity - *length;
        uInt given = space < (1u << 30) ? (uInt)space : 1u << 30;
        z->next_out = (uint8_t *)*out + *length;
        z->avail_out = given;
        result = inflate(z, Z_NO_FLUSH);
        *length += given - z->avail_out;
        if (*length > most) HT_FAIL(ctx, HT_ESHAPE, "%s: inflates to more than %zu bytes", name, most);
        if (result == Z_STREAM_END) return HT_OK;
        if (result == Z_BUF_ERROR || (result == Z_OK && z->next_in == end && z->avail_out > 0))
            HT_FAIL(ctx, HT_EPARSE, "%s: the gzip data ends too early, after %zu bytes of content", name, *length);
        if (result == Z_MEM_ERROR) HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory for inflating", name);
        if (result != Z_OK)
            HT_FAIL(ctx, HT_EPARSE, "%s: damaged gzip data (%s) after %zu bytes of content", name,
                    z->msg ? z->msg : "not gzip", *length);
    }
    return HT_OK;
}

ht_status ht_gz_inflate(ht_context *ctx, const char *name, const uint8_t *data, size_t length, size_t most,
                        uint8_t **out, size_t *out_length)
{
    *out = NULL;
    *out_length = 0;
    z_stream z = {.next_in = data};
    if (inflateInit2(&z, 15 + 16) != Z_OK) HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory for inflating", name);
    const uint8_t *end = data + length;
    void *buffer = NULL;
    size_t capacity = 0;
    ht_status status = HT_OK;
    do {
        status = inflate_member(ctx, name, &z, end, most, &buffer, &capacity, out_length);
        /* Zeros after the last member are padding of tapes and blocks. */
        while (status == HT_OK && z.next_in < end && *z.next_in == 0) z.next_in++;
    } while (status == HT_OK && z.next_in < end && inflateReset(&z) == Z_OK);
    inflateEnd(&z);
    if (status != HT_OK) {
        free(buffer);
        *out_length = 0;
        return status;
    }
    *out = buffer;
    return HT_OK;
}

/* ---- text ---- */

bool ht_line_next(ht_lines *lines, const char **line, size_t *length)
{
    if (lines->at >= lines->end) return false;
    size_t left = (size_t)(lines->end - lines->at);
    const char *newline = memchr(lines->at, '\n', left);
    *line = lines->at;
    *length = newline ? (size_t)(newline - lines->at) : left;
    lines->at = newline ? newline + 1 : lines->end;
    lines->number++;
    if (newline && *length > 0 && (*line)[*length - 1] == '\r') (*length)--;
    return true;
}

int ht_utf8_next(const char *at, const char *end, uint32_t *code)
{
    if (at >= end) return 0;
    const unsigned char *c = (const unsigned char *)at;
    if (c[0] < 0x80) {
        *code = c[0];
        return 1;
    }
    int length = c[0] >= 0xf0 ? 4 : c[0] >= 0xe0 ? 3 : 2;
    if (c[0] < 0xc2 || c[0] > 0xf4 || end - at < length) return 0;
    uint32_t value = c[0] & (0x7fu >> length);
    for (int i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80) return 0;
        value = value << 6 | (c[i] & 0x3fu);
    }
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (value < least[length] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return 0;
    *code = value;
    return length;
}

int ht_utf8_put(char *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (char)(0xf00u >> length | code);
    return length;
}
