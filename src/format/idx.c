/* The IDX parser. */
#include "format/idx.h"

#include <inttypes.h>

#include "base/base.h"

static ht_element element_of(uint8_t type)
{
    switch (type) {
    case 0x08: return HT_ELEMENT_U8;
    case 0x09: return HT_ELEMENT_I8;
    case 0x0b: return HT_ELEMENT_I16;
    case 0x0c: return HT_ELEMENT_I32;
    case 0x0d: return HT_ELEMENT_F32;
    case 0x0e: return HT_ELEMENT_F64;
    default: return HT_ELEMENT_COUNT;
    }
}

ht_status ht_idx_parse(ht_array *out, ht_context *ctx, const char *name, const uint8_t *data, size_t length)
{
    *out = (ht_array){0};
    if (length < 4) HT_FAIL(ctx, HT_EPARSE, "%s: %zu bytes are too few for an IDX file", name, length);
    if (data[0] != 0 || data[1] != 0)
        HT_FAIL(ctx, HT_EPARSE, "%s: not an IDX file: it begins with %02x %02x, not 00 00", name, data[0], data[1]);
    ht_array array = {.element = element_of(data[2]), .big_endian = true, .rank = data[3]};
    if (array.element == HT_ELEMENT_COUNT)
        HT_FAIL(ctx, HT_EPARSE, "%s: IDX type 0x%02x is none of 08, 09, 0b, 0c, 0d, 0e", name, data[2]);
    if (array.rank < 1 || array.rank > HT_MAX_RANK)
        HT_FAIL(ctx, HT_ESHAPE, "%s: IDX rank %d is not between 1 and %d", name, array.rank, HT_MAX_RANK);
    size_t header = 4 + 4 * (size_t)array.rank;
    if (length < header) HT_FAIL(ctx, HT_EPARSE, "%s: ends within its %zu bytes of header", name, header);
    for (int i = 0; i < array.rank; i++) {
        const uint8_t *at = data + 4 + 4 * (size_t)i;
        array.shape[i] = (int64_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
    }
    if (!ht_array_measure(&array)) HT_FAIL(ctx, HT_ESHAPE, "%s: the sizes of the IDX header overflow", name);
    if (array.bytes != length - header)
        HT_FAIL(ctx, HT_EPARSE, "%s: the IDX header promises %zu bytes of data, the file has %zu", name, array.bytes,
                length - header);
    array.data = data + header;
    *out = array;
    return HT_OK;
}
