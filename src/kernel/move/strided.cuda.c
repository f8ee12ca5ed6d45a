/* y[i,j,..] = x[i,j,..], any strides on both sides, as CUDA text. Axes that run on in both arrays are merged, words
 * are as wide as alignment and strides allow, transposed planes go by shared memory. Traffic: 1 read, 1 write. Bound:
 * bandwidth. */
#include "kernel/move/strided_text.h"

#include <stdio.h>
#include <string.h>

enum { WORD_BYTES = 16, SQUARE = 32, SHORTEST_SIDE = 8 }; /* a plane with a shorter side is not worth the squares */

typedef struct axis {
    int64_t dim, to, from;
    ht_text_part part; /* all of it where nothing is left out */
} axis;

typedef struct copying {
    int rank; /* at least 1; the last axis is contiguous in `to` if one is */
    axis axes[HT_MAX_RANK + 1];
    size_t bytes;
} copying;

ht_text_end ht_text_end_at(const char *name, const void *address, const ht_type *type, int64_t offset)
{
    uintptr_t place = (uintptr_t)address + (uintptr_t)offset * ht_dtype_bytes(type->dtype);
    ht_text_end end = {.alignment = place, .stride = type->stride};
    snprintf(end.first, sizeof end.first, "%s + %lld", name, (long long)offset);
    return end;
}

/* ---- axes ---- */

static bool is_whole(const axis *a)
{
    return a->part.start == 0 && a->part.step == 1 && a->part.count == a->dim;
}

/* Axes of one element go, neighbours that run on in both arrays become one. */
static void add_axis(copying *job, axis a)
{
    axis *last = job->rank ? &job->axes[job->rank - 1] : NULL;
    if (a.part.count <= 1) a.part.step = 1; /* it is unused, and may be of any size */
    if (a.dim == 1 && is_whole(&a)) return;
    bool runs_on =
        last && is_whole(&a) && last->part.step == 1 && last->to == a.dim * a.to && last->from == a.dim * a.from;
    if (!runs_on) {
        job->axes[job->rank++] = a;
        return;
    }
    last->dim *= a.dim;
    last->part.start *= a.dim;
    last->part.count *= a.dim;
    last->to = a.to;
    last->from = a.from;
}

static void move_to(copying *job, int from, int to)
{
    axis keep = job->axes[from];
    job->axes[from] = job->axes[to];
    job->axes[to] = keep;
}

static copying copying_of(size_t bytes, int rank, const int64_t *dims, const ht_text_part *parts, const int64_t *to,
                          const int64_t *from)
{
    copying job = {.bytes = bytes};
    for (int i = 0; i < rank; i++)
        add_axis(&job, (axis){dims[i], to[i], from[i], parts ? parts[i] : (ht_text_part){0, 1, dims[i]}});
    if (job.rank == 0) job.axes[job.rank++] = (axis){1, 1, 1, {0, 1, 1}};
    for (int i = job.rank - 1; i >= 0; i--)
        if (job.axes[i].to == 1) {
            move_to(&job, i, job.rank - 1);
            break;
        }
    return job;
}

static int64_t words(const copying *job)
{
    int64_t count = 1;
    for (int i = 0; i < job->rank; i++) count *= job->axes[i].dim;
    return count;
}

/* ---- words ---- */

size_t ht_text_word_bytes(size_t elem_bytes, int64_t count, uintptr_t alignment)
{
    size_t bytes = WORD_BYTES;
    while (bytes > elem_bytes && ((uintptr_t)count * elem_bytes | alignment) % bytes != 0) bytes /= 2;
    return bytes;
}

const char *ht_text_word(size_t bytes)
{
    return bytes == 1   ? "uint8_t"
           : bytes == 2 ? "uint16_t"
           : bytes == 4 ? "uint32_t"
           : bytes == 8 ? "uint64_t"
                        : "word128";
}

/* Several elements become one word, if the last axis is contiguous in both arrays and all else is a multiple of it.
 * */
static void widen(copying *job, uintptr_t alignment)
{
    axis *last = &job->axes[job->rank - 1];
    if (last->to != 1 || last->from != 1 || last->part.step != 1) return;
    int64_t multiple = last->dim | last->part.start | last->part.count;
    for (int i = 0; i < job->rank - 1; i++) multiple |= job->axes[i].to | job->axes[i].from;
    size_t bytes = ht_text_word_bytes(job->bytes, multiple, alignment);
    int64_t elems = (int64_t)(bytes / job->bytes);
    last->dim /= elems;
    last->part.start /= elems;
    last->part.count /= elems;
    for (int i = 0; i < job->rank - 1; i++) {
        job->axes[i].to /= elems;
        job->axes[i].from /= elems;
    }
    job->bytes = bytes;
}

/* ---- text ---- */

static const char *index_type(int64_t count)
{
    return count < INT32_MAX ? "uint32_t" : "uint64_t";
}

static void write_axes(ht_text *text, const copying *job, int count)
{
    for (int i = count - 1; i >= 0; i--)
        ht_text_add(text, ", axis<%lld, %lld, %lld>", (long long)job->axes[i].dim, (long long)job->axes[i].to,
                    (long long)job->axes[i].from);
}

static int64_t write_plain(ht_text *text, const copying *job)
{
    int64_t count = words(job);
    ht_text_add(text, "copy_strided<%s, %s, %lld", ht_text_word(job->bytes), index_type(count), (long long)count);
    write_axes(text, job, job->rank);
    return ht_cuda_blocks(count, HT_CUDA_THREADS);
}

/* The axis along which the source is contiguous, if the result is not: the rows of a transposed plane; -1: none. */
static int row_axis(const copying *job)
{
    const axis *last = &job->axes[job->rank - 1];
    if (last->to != 1 || last->from <= 1 || last->dim < SHORTEST_SIDE) return -1;
    for (int i = job->rank - 2; i >= 0; i--)
        if (job->axes[i].from == 1 && job->axes[i].dim >= SHORTEST_SIDE) return i;
    return -1;
}

static int64_t write_transposed(ht_text *text, copying *job, int row)
{
    move_to(job, row, job->rank - 2);
    const axis *rows = &job->axes[job->rank - 2], *columns = &job->axes[job->rank - 1];
    ht_text_add(text, "copy_transposed<%s, %lld, %lld, %lld, %lld", ht_text_word(job->bytes), (long long)rows->dim,
                (long long)columns->dim, (long long)rows->to, (long long)columns->from);
    if (job->rank == 2) ht_text_add(text, ", axis<1, 0, 0>");
    write_axes(text, job, job->rank - 2);
    int64_t outer = words(job) / rows->dim / columns->dim;
    return outer * ht_cuda_blocks(rows->dim, SQUARE) * ht_cuda_blocks(columns->dim, SQUARE);
}

void ht_text_copies_add(ht_text_copies *copies, size_t elem_bytes, int rank, const int64_t *dims, const ht_text_end *to,
                        const ht_text_end *from)
{
    copying job = copying_of(elem_bytes, rank, dims, NULL, to->stride, from->stride);
    ht_text call = {0};
    if (words(&job) == 0) return;
    widen(&job, to->alignment | from->alignment);
    int row = row_axis(&job);
    int64_t first = copies->blocks;
    copies->blocks += row < 0 ? write_plain(&call, &job) : write_transposed(&call, &job, row);
    ht_text_add(&copies->body,
                "if (blockIdx.x < %lldu) {\n        %s>((int64_t)blockIdx.x - %lld, %s, %s);\n"
                "        return;\n    }\n    ",
                (long long)copies->blocks, call.data ? call.data : "", (long long)first, to->first, from->first);
    copies->body.failed |= call.failed;
    ht_text_free(&call);
}

void ht_text_copies_finish(ht_text_copies *copies)
{
    if (copies->body.data) {
        ht_cuda_include(copies->emission, "strided");
        ht_cuda_add_grid(copies->emission, copies->blocks, HT_CUDA_THREADS, 0, "%s", copies->body.data);
    }
    copies->emission->text.failed |= copies->body.failed;
    ht_text_free(&copies->body);
}

void ht_text_copy(ht_cuda_emission *e, size_t elem_bytes, int rank, const int64_t *dims, const ht_text_end *to,
                  const ht_text_end *from)
{
    ht_text_copies one = {.emission = e};
    ht_text_copies_add(&one, elem_bytes, rank, dims, to, from);
    ht_text_copies_finish(&one);
}

uint64_t ht_text_bits(ht_dtype dtype, double value)
{
    uint64_t bits = 0;
    size_t bytes = ht_dtype_bytes(dtype);
    ht_store_f64(&bits, dtype, 0, value);
    for (; bytes < 8; bytes *= 2) bits |= bits << 8 * bytes;
    return bits;
}

void ht_text_copy_part(ht_cuda_emission *e, ht_dtype dtype, int rank, const int64_t *dims, const ht_text_part *parts,
                       double rest, const ht_text_end *to, const ht_text_end *from)
{
    copying job = copying_of(ht_dtype_bytes(dtype), rank, dims, parts, to->stride, from->stride);
    ht_text call = {0};
    if (words(&job) == 0) return;
    widen(&job, to->alignment | from->alignment);
    int64_t count = words(&job);
    ht_text_add(&call, "copy_part<%s, %s, %lld", ht_text_word(job.bytes), index_type(count), (long long)count);
    for (int i = job.rank - 1; i >= 0; i--) {
        const axis *a = &job.axes[i];
        ht_text_add(&call, ", part_axis<%lld, %lld, %lld, %lld, %lld, %lld>", (long long)a->dim, (long long)a->to,
                    (long long)a->from, (long long)a->part.start, (long long)a->part.step, (long long)a->part.count);
    }
    ht_cuda_include(e, "strided");
    ht_cuda_add_grid(e, ht_cuda_blocks(count, HT_CUDA_THREADS), HT_CUDA_THREADS, 0, "%s>(0x%llxull, %s, %s);",
                     call.data ? call.data : "", (unsigned long long)ht_text_bits(dtype, rest), to->first, from->first);
    e->text.failed |= call.failed;
    ht_text_free(&call);
}
