/* The type of a tensor: number type, memory space, shape and strides. */
#ifndef HT_GRAPH_TYPE_H
#define HT_GRAPH_TYPE_H

#include "base/base.h"

/* Memories. "main" is where the target computes; it is the default and is not printed. */
typedef enum ht_space { HT_SPACE_MAIN, HT_SPACE_HOST, HT_SPACE_DISK, HT_SPACE_COUNT } ht_space;

typedef struct ht_type {
    ht_dtype dtype;
    ht_space space;
    int32_t rank;
    int64_t dim[HT_MAX_RANK];
    int64_t stride[HT_MAX_RANK]; /* in elements; row-major unless the value is a view */
} ht_type;

#define HT_DIMS(...)                                                                                                   \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[])                                       \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* Row-major strides. rank 0 is a scalar; dims may be NULL then. */
ht_type ht_type_make(ht_dtype dtype, int rank, const int64_t *dims);
/* Negative sizes, ranks above 8 and tensors of more than 2^60 bytes are refused; `what` appears in the message. */
ht_status ht_type_check(ht_context *ctx, const ht_type *type, const char *what);
int64_t ht_type_elems(const ht_type *type);
int64_t ht_type_bytes(const ht_type *type);
/* Elements from the first to the last, gaps counted; strides are at least 0. */
int64_t ht_type_extent(const ht_type *type);
/* Of the elements that it really has: along an axis of stride 0 (an expanded one) all are the same. */
int64_t ht_type_distinct_bytes(const ht_type *type);
bool ht_type_same_shape(const ht_type *a, const ht_type *b);
/* dtype, space and shape; strides may differ. */
bool ht_type_same(const ht_type *a, const ht_type *b);
/* Row-major without gaps; sizes of 1 may have any stride. */
bool ht_type_contiguous(const ht_type *type);
void ht_type_row_major(ht_type *type);
/* Channels last: axis 1 lies innermost, the others as in a row-major value. Of types with three axes and more. */
void ht_type_channels_last(ht_type *type);
/* So, without gaps, and not row-major as well; sizes of 1 may have any stride. */
bool ht_type_is_channels_last(const ht_type *type);
/* Without gaps, in whatever order of its axes. */
bool ht_type_dense(const ht_type *type);
/* Of two types of one shape: does each element lie as far from the first? */
bool ht_type_same_strides(const ht_type *a, const ht_type *b);
/* "f32[8,64]@host" into text. */
void ht_type_print(ht_text *text, const ht_type *type);
/* The same, for messages; the buffer is returned. */
typedef struct ht_type_text {
    char text[256];
} ht_type_text;
const char *ht_type_str(const ht_type *type, ht_type_text *buffer);

/* How ranks share a tensor along one of its axes: it is seen as `blocks` equal blocks, one behind the other, and each rank
 * has the piece of its number of each of them, one behind the other. ranks 0: nobody shares it. */
typedef struct ht_cut {
    int axis;
    int64_t blocks, ranks, rank;
} ht_cut;
/* Does the axis divide so? */
bool ht_cut_fits(const ht_cut *cut, const ht_type *whole);
/* Of what one rank has, row-major; `whole` itself where nobody shares it. */
ht_type ht_cut_type(const ht_cut *cut, const ht_type *whole);
/* The bytes of a rank's piece, row-major, out of those of the whole, and back into their places there. */
void ht_cut_take(const ht_cut *cut, const ht_type *whole, const void *from, void *piece);
void ht_cut_put(const ht_cut *cut, const ht_type *whole, const void *piece, void *to);

const char *ht_space_name(ht_space space);
int ht_space_from_name(const char *name, size_t length);
int ht_dtype_from_name(const char *name, size_t length);

#endif
