/* Families of kernels: ops that one measured op stands for in a prediction (plan/predict.h). A family is an index into
 * ht_families, in the order of graph/families.def. */
#ifndef HT_GRAPH_FAMILIES_H
#define HT_GRAPH_FAMILIES_H

#include "graph/opdef.h"
#include "graph/target.h"

typedef struct ht_family_row {
    const char *name, *op, *ops; /* op: that is measured; ops: that it stands for, with spaces between them */
    const char *sample[HT_FAMILY_SIZES];
} ht_family_row;
extern const ht_family_row ht_families[];
extern const int ht_family_count;
extern const char *const ht_family_size_names[HT_FAMILY_SIZES];

enum { HT_NO_FAMILY = -1 };
/* By its name. */
int ht_family_find(const char *name);
/* The family that stands for an op. */
int ht_family_of(const char *op, bool pointwise);
/* The same for a call: by number type, groups, and whether a product is one of many small ones. */
int ht_family_of_call(const ht_call *call, ht_device_kind device);
/* Of a convolution that few places make one product of all its images: their places; else 0. */
double ht_conv_columns(const ht_call *call);
/* The liberties (1 << ht_liberty) that a family's kernels take, in products of HT_FORMAT_TF32; 0: none. */
unsigned ht_family_liberties(const ht_family_row *family);
/* What is measured of a family on a kind of device; NULL: nothing. */
const char *ht_family_sample(const ht_family_row *family, ht_device_kind device, int size);

#endif
