/* An array in a file: element type, shape, and its bytes, which may be unaligned. */
#ifndef HT_FORMAT_ARRAY_H
#define HT_FORMAT_ARRAY_H

#include <halftone/context.h>

/* The number types that files hold: those of the engine and a few more. */
typedef enum ht_element {
#define HT_ELEMENT(id, safetensors, npy, bytes, dtype) HT_ELEMENT_##id,
#include "format/elements.def"
#undef HT_ELEMENT
    HT_ELEMENT_COUNT
} ht_element;

/* "F32": the name in safetensors files. */
const char *ht_element_name(ht_element element);
size_t ht_element_bytes(ht_element element);
/* The engine's number type; HT_DTYPE_COUNT when it has none. */
ht_dtype ht_element_dtype(ht_element element);
/* HT_ELEMENT_COUNT when there is none of that name. */
ht_element ht_element_of_dtype(ht_dtype dtype);
ht_element ht_element_of_safetensors(const char *name);
ht_element ht_element_of_npy(const char *letter_and_size);

typedef struct ht_array {
    ht_element element;
    bool big_endian;
    int rank;
    int64_t shape[HT_MAX_RANK];
    int64_t count; /* of elements */
    const uint8_t *data;
    size_t bytes;
} ht_array;

/* Sets count and bytes from element, rank and shape; false when they overflow or a size is negative. */
bool ht_array_measure(ht_array *array);

/* "F32 [8, 4]", for messages. */
typedef struct ht_array_text {
    char text[256];
} ht_array_text;
ht_array_text ht_array_describe(const ht_array *array);

/* One element as a number: exact, but for whole numbers beyond 2^53. */
double ht_array_number(const ht_array *array, int64_t index);
/* Elements first .. first + count - 1, rounded to the nearest float. */
void ht_array_floats(const ht_array *array, int64_t first, int64_t count, float *out);
/* One element as an integer; false when it is none or does not fit. */
bool ht_array_integer(const ht_array *array, int64_t index, int64_t *out);

#endif
