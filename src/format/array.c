/* Arrays in files: element types, conversion to float and integer. */
#include "format/array.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

typedef struct element_row {
    const char *safetensors, *npy;
    size_t bytes;
    ht_dtype dtype;
} element_row;

static const element_row element_rows[HT_ELEMENT_COUNT] = {
#define HT_ELEMENT(id, safetensors, npy, bytes, dtype) {safetensors, npy, bytes, dtype},
#include "format/elements.def"
#undef HT_ELEMENT
};

const char *ht_element_name(ht_element element)
{
    return (unsigned)element < HT_ELEMENT_COUNT ? element_rows[element].safetensors : "?";
}

size_t ht_element_bytes(ht_element element)
{
    return (unsigned)element < HT_ELEMENT_COUNT ? element_rows[element].bytes : 0;
}

ht_dtype ht_element_dtype(ht_element element)
{
    return (unsigned)element < HT_ELEMENT_COUNT ? element_rows[element].dtype : HT_DTYPE_COUNT;
}

ht_element ht_element_of_dtype(ht_dtype dtype)
{
    for (int i = 0; i < HT_ELEMENT_COUNT; i++)
        if (element_rows[i].dtype == dtype && dtype != HT_DTYPE_COUNT) return (ht_element)i;
    return HT_ELEMENT_COUNT;
}

ht_element ht_element_of_safetensors(const char *name)
{
    for (int i = 0; i < HT_ELEMENT_COUNT; i++)
        if (strcmp(element_rows[i].safetensors, name) == 0) return (ht_element)i;
    return HT_ELEMENT_COUNT;
}

ht_element ht_element_of_npy(const char *letter_and_size)
{
    for (int i = 0; i < HT_ELEMENT_COUNT; i++)
        if (letter_and_size[0] && strcmp(element_rows[i].npy, letter_and_size) == 0) return (ht_element)i;
    return HT_ELEMENT_COUNT;
}

bool ht_array_measure(ht_array *array)
{
    int64_t count = 1, bytes;
    for (int i = 0; i < array->rank; i++)
        if (array->shape[i] < 0 || __builtin_mul_overflow(count, array->shape[i], &count)) return false;
    if (__builtin_mul_overflow(count, (int64_t)ht_element_bytes(array->element), &bytes)) return false;
    array->count = count;
    array->bytes = (size_t)bytes;
    return true;
}

ht_array_text ht_array_describe(const ht_array *array)
{
    ht_array_text t;
    int length = snprintf(t.text, sizeof t.text, "%s [", ht_element_name(array->element));
    for (int i = 0; i < array->rank; i++)
        length +=
            snprintf(t.text + length, sizeof t.text - (size_t)length, "%s%" PRId64, i ? ", " : "", array->shape[i]);
    snprintf(t.text + length, sizeof t.text - (size_t)length, "]");
    return t;
}

/* The bits of one element, in the machine's order. */
static uint64_t bits_at(const ht_array *array, int64_t index)
{
    size_t width = ht_element_bytes(array->element);
    const uint8_t *at = array->data + (size_t)index * width;
    uint64_t bits = 0;
    for (size_t i = 0; i < width; i++) bits |= (uint64_t)at[array->big_endian ? width - 1 - i : i] << 8 * i;
    return bits;
}

static double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

double ht_array_number(const ht_array *array, int64_t index)
{
    uint64_t bits = bits_at(array, index);
    switch (array->element) {
    case HT_ELEMENT_BOOL: return bits != 0;
    case HT_ELEMENT_I8: return (int8_t)bits;
    case HT_ELEMENT_I16: return (int16_t)bits;
    case HT_ELEMENT_I32: return (int32_t)bits;
    case HT_ELEMENT_I64: return (double)(int64_t)bits;
    case HT_ELEMENT_F8E5M2: return ht_f8e5m2_to_f32((ht_f8e5m2){(uint8_t)bits});
    case HT_ELEMENT_F8E4M3: return ht_f8e4m3_to_f32((ht_f8e4m3){(uint8_t)bits});
    case HT_ELEMENT_F16: return ht_f16_to_f32((ht_f16){(uint16_t)bits});
    case HT_ELEMENT_BF16: return ht_bf16_to_f32((ht_bf16){(uint16_t)bits});
    case HT_ELEMENT_F32: return ht_f32_from_bits((uint32_t)bits);
    case HT_ELEMENT_F64: return double_of(bits);
    default: return (double)bits;
    }
}

void ht_array_floats(const ht_array *array, int64_t first, int64_t count, float *out)
{
    if (array->element == HT_ELEMENT_U8) {
        for (int64_t i = 0; i < count; i++) out[i] = array->data[first + i];
    } else if (array->element == HT_ELEMENT_F32 && !array->big_endian) {
        memcpy(out, array->data + (size_t)first * sizeof(float), (size_t)count * sizeof(float));
    } else {
        for (int64_t i = 0; i < count; i++) out[i] = (float)ht_array_number(array, first + i);
    }
}

bool ht_array_integer(const ht_array *array, int64_t index, int64_t *out)
{
    ht_dtype dtype = ht_element_dtype(array->element);
    if (ht_dtype_is_float(dtype)) {
        double x = ht_array_number(array, index);
        if (!(x >= -0x1p53 && x <= 0x1p53) || x != floor(x)) return false;
        *out = (int64_t)x;
        return true;
    }
    if (ht_element_bytes(array->element) < 8) {
        *out = (int64_t)ht_array_number(array, index);
        return true;
    }
    uint64_t bits = bits_at(array, index);
    *out = (int64_t)bits;
    return array->element == HT_ELEMENT_I64 || bits <= INT64_MAX;
}
