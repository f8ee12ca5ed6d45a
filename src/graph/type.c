/* Tensor types: strides, checks, comparison, text. */
#include "graph/type.h"

#include <stdio.h>
#include <string.h>

static const char *const space_names[HT_SPACE_COUNT] = {"main", "host", "disk"};

const char *ht_space_name(ht_space space)
{
    return space_names[space];
}

int ht_space_from_name(const char *name, size_t length)
{
    for (int s = 0; s < HT_SPACE_COUNT; s++)
        if (strlen(space_names[s]) == length && memcmp(space_names[s], name, length) == 0) return s;
    return -1;
}

int ht_dtype_from_name(const char *name, size_t length)
{
    for (int d = 0; d < HT_DTYPE_COUNT; d++) {
        const char *text = ht_dtype_name((ht_dtype)d);
        if (strlen(text) == length && memcmp(text, name, length) == 0) return d;
    }
    return -1;
}

void ht_type_row_major(ht_type *type)
{
    int64_t stride = 1;
    for (int i = type->rank - 1; i >= 0; i--) {
        type->stride[i] = stride;
        /* A size that overflows is refused by ht_type_check; until then the stride only must not be undefined. */
        if (type->dim[i] > 0 && __builtin_mul_overflow(stride, type->dim[i], &stride)) stride = 0;
    }
}

ht_type ht_type_make(ht_dtype dtype, int rank, const int64_t *dims)
{
    ht_type type = {.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank && i < HT_MAX_RANK; i++) type.dim[i] = dims[i];
    if (rank >= 0 && rank <= HT_MAX_RANK) ht_type_row_major(&type);
    return type;
}

ht_status ht_type_check(ht_context *ctx, const ht_type *type, const char *what)
{
    if (type->dtype < 0 || type->dtype >= HT_DTYPE_COUNT) HT_FAIL(ctx, HT_EDTYPE, "%s: no such number type", what);
    if (type->rank < 0 || type->rank > HT_MAX_RANK)
        HT_FAIL(ctx, HT_ESHAPE, "%s: rank %d is not in 0..%d", what, type->rank, HT_MAX_RANK);
    /* The product without zero sizes bounds every stride, so it is checked even for an empty tensor. */
    int64_t bytes = (int64_t)ht_dtype_bytes(type->dtype);
    for (int i = 0; i < type->rank; i++) {
        if (type->dim[i] < 0)
            HT_FAIL(ctx, HT_ESHAPE, "%s: size %lld of axis %d is negative", what, (long long)type->dim[i], i);
        if (type->dim[i] > 0 && (__builtin_mul_overflow(bytes, type->dim[i], &bytes) || bytes > (int64_t)1 << 60)) {
            ht_type_text t;
            HT_FAIL(ctx, HT_ESHAPE, "%s: %s is larger than any memory", what, ht_type_str(type, &t));
        }
    }
    return HT_OK;
}

int64_t ht_type_elems(const ht_type *type)
{
    int64_t elems = 1;
    for (int i = 0; i < type->rank; i++) elems *= type->dim[i];
    return elems;
}

int64_t ht_type_bytes(const ht_type *type)
{
    return ht_type_elems(type) * (int64_t)ht_dtype_bytes(type->dtype);
}

int64_t ht_type_extent(const ht_type *type)
{
    if (ht_type_elems(type) == 0) return 0;
    int64_t last = 0;
    for (int i = 0; i < type->rank; i++) last += (type->dim[i] - 1) * type->stride[i];
    return last + 1;
}

int64_t ht_type_distinct_bytes(const ht_type *type)
{
    int64_t bytes = (int64_t)ht_dtype_bytes(type->dtype);
    for (int i = 0; i < type->rank; i++)
        if (type->stride[i] != 0 || type->dim[i] == 0) bytes *= type->dim[i];
    return bytes;
}

bool ht_type_same_shape(const ht_type *a, const ht_type *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

bool ht_type_same(const ht_type *a, const ht_type *b)
{
    return a->dtype == b->dtype && a->space == b->space && ht_type_same_shape(a, b);
}

bool ht_type_contiguous(const ht_type *type)
{
    int64_t stride = 1;
    for (int i = type->rank - 1; i >= 0; i--) {
        if (type->dim[i] == 0) return true;
        if (type->dim[i] != 1 && type->stride[i] != stride) return false;
        stride *= type->dim[i];
    }
    return true;
}

void ht_type_channels_last(ht_type *type)
{
    int64_t stride = type->dim[1];
    for (int i = type->rank - 1; i >= 0; i--) {
        type->stride[i] = i == 1 ? 1 : stride;
        if (i != 1) stride *= type->dim[i];
    }
}

bool ht_type_same_strides(const ht_type *a, const ht_type *b)
{
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != 1 && a->stride[i] != b->stride[i]) return false;
    return true;
}

bool ht_type_is_channels_last(const ht_type *type)
{
    ht_type last = *type;
    if (type->rank < 3 || ht_type_elems(type) == 0 || ht_type_contiguous(type)) return false;
    ht_type_channels_last(&last);
    return ht_type_same_strides(type, &last);
}

bool ht_type_dense(const ht_type *type)
{
    int64_t elems = ht_type_elems(type), reached = 1;
    /* From the smallest stride on: each axis begins where the ones inside it end. */
    for (int found = 1; found && reached < elems;) {
        found = 0;
        for (int i = 0; i < type->rank && !found; i++) {
            if (type->dim[i] == 1 || type->stride[i] != reached) continue;
            reached *= type->dim[i];
            found = 1;
        }
    }
    return reached == elems || elems == 0;
}

void ht_type_print(ht_text *text, const ht_type *type)
{
    ht_text_add(text, "%s[", ht_dtype_name(type->dtype));
    for (int i = 0; i < type->rank; i++) ht_text_add(text, "%s%lld", i ? "," : "", (long long)type->dim[i]);
    ht_text_add(text, "]");
    if (type->space != HT_SPACE_MAIN) ht_text_add(text, "@%s", ht_space_name(type->space));
}

const char *ht_type_str(const ht_type *type, ht_type_text *buffer)
{
    size_t n = 0, capacity = sizeof buffer->text;
    n += (size_t)snprintf(buffer->text, capacity, "%s[", ht_dtype_name(type->dtype));
    for (int i = 0; i < type->rank && i < HT_MAX_RANK; i++)
        n += (size_t)snprintf(buffer->text + n, capacity - n, "%s%lld", i ? "," : "", (long long)type->dim[i]);
    bool main = type->space == HT_SPACE_MAIN;
    snprintf(buffer->text + n, capacity - n, "]%s%s", main ? "" : "@", main ? "" : ht_space_name(type->space));
    return buffer->text;
}

/* ---- pieces of a tensor that ranks share ---- */

bool ht_cut_fits(const ht_cut *cut, const ht_type *whole)
{
    if (cut->ranks < 1 || cut->blocks < 1 || cut->rank < 0 || cut->rank >= cut->ranks) return false;
    if (cut->axis < 0 || cut->axis >= whole->rank) return false;
    int64_t size = whole->dim[cut->axis];
    return size % cut->blocks == 0 && size / cut->blocks % cut->ranks == 0;
}

ht_type ht_cut_type(const ht_cut *cut, const ht_type *whole)
{
    ht_type type = *whole;
    if (cut->ranks) type.dim[cut->axis] /= cut->ranks;
    ht_type_row_major(&type);
    return type;
}

/* Runs of bytes that lie together in both. */
typedef struct cut_runs {
    int64_t count, bytes, step, first; /* of the whole: from run to run, and where the first begins */
} cut_runs;

static cut_runs runs_of(const ht_cut *cut, const ht_type *whole)
{
    int64_t inner = (int64_t)ht_dtype_bytes(whole->dtype), outer = cut->blocks;
    for (int i = cut->axis + 1; i < whole->rank; i++) inner *= whole->dim[i];
    for (int i = 0; i < cut->axis; i++) outer *= whole->dim[i];
    int64_t step = whole->dim[cut->axis] / cut->blocks * inner;
    return (cut_runs){outer, step / cut->ranks, step, step / cut->ranks * cut->rank};
}

void ht_cut_take(const ht_cut *cut, const ht_type *whole, const void *from, void *piece)
{
    cut_runs r = runs_of(cut, whole);
    for (int64_t i = 0; i < r.count && r.bytes; i++)
        memcpy((char *)piece + i * r.bytes, (const char *)from + r.first + i * r.step, (size_t)r.bytes);
}

void ht_cut_put(const ht_cut *cut, const ht_type *whole, const void *piece, void *to)
{
    cut_runs r = runs_of(cut, whole);
    for (int64_t i = 0; i < r.count && r.bytes; i++)
        memcpy((char *)to + r.first + i * r.step, (const char *)piece + i * r.bytes, (size_t)r.bytes);
}
