/* IDX: the arrays of the MNIST family. Two zero bytes, a type, the rank, sizes and elements in big-endian order. */
#ifndef HT_FORMAT_IDX_H
#define HT_FORMAT_IDX_H

#include "format/array.h"

/* The array points into `data`. */
ht_status ht_idx_parse(ht_array *out, ht_context *ctx, const char *name, const uint8_t *data, size_t length);

#endif
