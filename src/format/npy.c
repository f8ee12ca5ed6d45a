/* The npy parser. The header is a Python dictionary as text: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4),
 * }. It has three keys with three kinds of value; any other Python syntax is refused. */
#include "format/npy.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

typedef struct header {
    ht_context *ctx;
    const char *name;
    const char *at, *end;
    ht_array array;
    bool have_type, have_order, have_shape;
    bool fortran;
} header;

static ht_status refuse(const header *h, const char *what)
{
    HT_FAIL(h->ctx, HT_EPARSE, "%s: npy header: %s", h->name, what);
}

static void skip_space(header *h)
{
    while (h->at < h->end && isspace((unsigned char)*h->at)) h->at++;
}

static bool take(header *h, char c)
{
    skip_space(h);
    if (h->at == h->end || *h->at != c) return false;
    h->at++;
    return true;
}

static bool take_word(header *h, const char *word)
{
    size_t length = strlen(word);
    skip_space(h);
    if ((size_t)(h->end - h->at) < length || memcmp(h->at, word, length) != 0) return false;
    h->at += length;
    return true;
}

/* A quoted string without escapes, shorter than `capacity`. */
static bool take_string(header *h, char *out, size_t capacity)
{
    skip_space(h);
    if (h->at == h->end || (*h->at != '\'' && *h->at != '"')) return false;
    char quote = *h->at;
    const char *close = memchr(h->at + 1, quote, (size_t)(h->end - h->at - 1));
    if (!close || (size_t)(close - h->at) > capacity) return false;
    size_t length = (size_t)(close - h->at - 1);
    memcpy(out, h->at + 1, length);
    out[length] = '\0';
    h->at = close + 1;
    return strlen(out) == length;
}

static ht_status read_type(header *h)
{
    char text[32];
    if (!take_string(h, text, sizeof text)) return refuse(h, "descr is not a plain number type (records are not read)");
    h->array.element = strchr("<>|=", text[0]) && text[0] ? ht_element_of_npy(text + 1) : HT_ELEMENT_COUNT;
    h->array.big_endian = text[0] == '>';
    h->have_type = true;
    if (h->array.element == HT_ELEMENT_COUNT)
        HT_FAIL(h->ctx, HT_EDTYPE, "%s: npy type '%s' is not known; use a bool, integer or float type", h->name, text);
    return HT_OK;
}

static ht_status read_size(header *h)
{
    int64_t size = 0;
    const char *first = h->at;
    for (; h->at < h->end && isdigit((unsigned char)*h->at); h->at++)
        if (__builtin_mul_overflow(size, 10, &size) || __builtin_add_overflow(size, *h->at - '0', &size))
            return refuse(h, "a size of the shape overflows");
    if (h->at == first) return refuse(h, "the shape is not a tuple of sizes");
    take_word(h, "L"); /* Python 2 wrote 3L */
    if (h->array.rank == HT_MAX_RANK)
        HT_FAIL(h->ctx, HT_ESHAPE, "%s: npy shape has more than %d sizes", h->name, HT_MAX_RANK);
    h->array.shape[h->array.rank++] = size;
    return HT_OK;
}

static ht_status read_shape(header *h)
{
    if (!take(h, '(')) return refuse(h, "the shape is not a tuple");
    while (!take(h, ')')) {
        HT_TRY(read_size(h));
        if (take(h, ',')) continue;
        if (!take(h, ')')) return refuse(h, "the shape is not a tuple of sizes");
        break;
    }
    h->have_shape = true;
    return HT_OK;
}

static ht_status read_member(header *h)
{
    char key[32];
    if (!take_string(h, key, sizeof key) || !take(h, ':')) return refuse(h, "expected a key and a colon");
    if (strcmp(key, "descr") == 0 && !h->have_type) return read_type(h);
    if (strcmp(key, "shape") == 0 && !h->have_shape) return read_shape(h);
    if (strcmp(key, "fortran_order") == 0 && !h->have_order) {
        h->have_order = true;
        h->fortran = take_word(h, "True");
        return h->fortran || take_word(h, "False") ? HT_OK : refuse(h, "fortran_order is neither True nor False");
    }
    HT_FAIL(h->ctx, HT_EPARSE, "%s: npy header: unexpected or repeated key '%s'", h->name, key);
}

static ht_status read_header(header *h)
{
    if (!take(h, '{')) return refuse(h, "not a dictionary");
    while (!take(h, '}')) {
        HT_TRY(read_member(h));
        if (take(h, ',')) continue;
        if (!take(h, '}')) return refuse(h, "expected a comma or the end of the dictionary");
        break;
    }
    skip_space(h);
    if (h->at != h->end) return refuse(h, "text after the dictionary");
    if (!h->have_type || !h->have_order || !h->have_shape)
        return refuse(h, "descr, fortran_order and shape are not all there");
    if (h->fortran && h->array.rank > 1)
        HT_FAIL(h->ctx, HT_ENOTSUP, "%s: the npy array is in Fortran order; save it with numpy.ascontiguousarray",
                h->name);
    return HT_OK;
}

ht_status ht_npy_parse(ht_array *out, ht_context *ctx, const char *name, const uint8_t *data, size_t length)
{
    *out = (ht_array){0};
    if (length < 10 || memcmp(data, "\x93NUMPY", 6) != 0) HT_FAIL(ctx, HT_EPARSE, "%s: not an npy file", name);
    if (data[6] < 1 || data[6] > 3) HT_FAIL(ctx, HT_EPARSE, "%s: npy version %d is not 1, 2 or 3", name, data[6]);
    size_t start = data[6] == 1 ? 10 : 12, header_bytes = (size_t)data[8] | (size_t)data[9] << 8;
    if (length < start) HT_FAIL(ctx, HT_EPARSE, "%s: the npy file ends within its header", name);
    if (data[6] > 1) header_bytes |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    if (header_bytes > length - start)
        HT_FAIL(ctx, HT_EPARSE, "%s: the npy header has %zu bytes, the file only %zu more", name, header_bytes,
                length - start);
    header h = {.ctx = ctx, .name = name, .at = (const char *)data + start};
    h.end = h.at + header_bytes;
    HT_TRY(read_header(&h));
    if (!ht_array_measure(&h.array)) HT_FAIL(ctx, HT_ESHAPE, "%s: the shape of the npy array overflows", name);
    size_t rest = length - start - header_bytes;
    if (h.array.bytes != rest)
        HT_FAIL(ctx, HT_EPARSE, "%s: the npy header promises %zu bytes of data, the file has %zu", name, h.array.bytes,
                rest);
    h.array.data = data + start + header_bytes;
    *out = h.array;
    return HT_OK;
}
