/* npy: NumPy's array files, versions 1 to 3; C order, plain number types of either byte order. */
#ifndef HT_FORMAT_NPY_H
#define HT_FORMAT_NPY_H

#include "format/array.h"

/* The array points into `data`. */
ht_status ht_npy_parse(ht_array *out, ht_context *ctx, const char *name, const uint8_t *data, size_t length);

#endif
