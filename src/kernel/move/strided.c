/* y[i,j,..] = x[i,j,..], any strides on both sides, elements of 1, 2, 4 or 8 bytes.
 * Axes that run on are merged, two are chosen as a plane: the one along which the result is contiguous, and the one
 * along which the source is (or the next longer). A plane is copied by memcpy where both are the same axis, else in
 * square blocks, so that every cache line that is read is used whole. Threads: blocks of planes.  Traffic: 1 read, 1
 * write.  Bound: bandwidth. */
#include "kernel/move/strided.h"

#include <string.h>

enum {
    ROWS = 32,      /* of a plane in one unit of work */
    COLUMNS = 2048, /* likewise */
    SQUARE = 16,    /* side of a block of a transposed plane */
    GRAIN = 16384,  /* elements in one tile */
};

typedef struct copying {
    char *to;
    const char *from;
    size_t bytes;
    int rank; /* at least 2; the last two axes are the plane */
    int64_t dim[HT_MAX_RANK + 2], to_stride[HT_MAX_RANK + 2], from_stride[HT_MAX_RANK + 2];
    int64_t row_blocks, column_blocks, units, units_per_tile;
} copying;

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Axes of one element go, neighbours that run on in both arrays become one. */
static void merge_axes(copying *job, int rank, const int64_t *dims, const int64_t *to, const int64_t *from)
{
    for (int i = 0; i < rank; i++) {
        if (dims[i] == 1) continue;
        int last = job->rank - 1;
        if (last >= 0 && job->to_stride[last] == dims[i] * to[i] && job->from_stride[last] == dims[i] * from[i]) {
            job->dim[last] *= dims[i];
        } else {
            last = job->rank++;
            job->dim[last] = dims[i];
        }
        job->to_stride[last] = to[i];
        job->from_stride[last] = from[i];
    }
}

static void swap_axes(copying *job, int a, int b)
{
    int64_t *arrays[] = {job->dim, job->to_stride, job->from_stride};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        int64_t keep = arrays[i][a];
        arrays[i][a] = arrays[i][b];
        arrays[i][b] = keep;
    }
}

static int axis_of_stride_1(const int64_t *strides, int rank)
{
    for (int i = rank - 1; i >= 0; i--)
        if (strides[i] == 1) return i;
    return -1;
}

/* The order of axes is free: the plane's columns are contiguous in the result, its rows in the source, if there are
 * such axes. */
static void choose_plane(copying *job)
{
    while (job->rank < 2) {
        job->dim[job->rank] = 1;
        job->to_stride[job->rank] = job->from_stride[job->rank] = 0;
        job->rank++;
        swap_axes(job, 0, job->rank - 1);
    }
    int column = axis_of_stride_1(job->to_stride, job->rank);
    if (column >= 0) swap_axes(job, column, job->rank - 1);
    int row = axis_of_stride_1(job->from_stride, job->rank - 1);
    if (row >= 0) swap_axes(job, row, job->rank - 2);
}

/* `n` copies of one element. */
static void repeat(char *to, const char *element, size_t bytes, int64_t n)
{
    memcpy(to, element, bytes);
    for (int64_t done = 1; done < n; done += min_of(done, n - done))
        memcpy(to + done * (int64_t)bytes, to, (size_t)min_of(done, n - done) * bytes);
}

static inline void copy_elements(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n,
                                 size_t bytes)
{
    for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, bytes);
}

/* Where a block of a plane lies; steps are in bytes. */
typedef struct block {
    char *to;
    const char *from;
    int64_t rows, columns, to_row, to_column, from_row, from_column;
} block;

static inline void copy_squares(const block *b, size_t bytes)
{
    for (int64_t c = 0; c < b->columns; c += SQUARE)
        for (int64_t r = 0; r < b->rows; r += SQUARE)
            for (int64_t i = r; i < min_of(b->rows, r + SQUARE); i++)
                copy_elements(b->to + i * b->to_row + c * b->to_column, b->to_column,
                              b->from + i * b->from_row + c * b->from_column, b->from_column,
                              min_of(SQUARE, b->columns - c), bytes);
}

static void copy_block(const block *b, size_t bytes)
{
    int64_t size = (int64_t)bytes;
    bool packed = b->to_column == size;
    if (packed && b->from_column == size)
        for (int64_t r = 0; r < b->rows; r++)
            memcpy(b->to + r * b->to_row, b->from + r * b->from_row, (size_t)b->columns * bytes);
    else if (packed && b->from_column == 0)
        for (int64_t r = 0; r < b->rows; r++)
            repeat(b->to + r * b->to_row, b->from + r * b->from_row, bytes, b->columns);
    else if (bytes == 1) /* constant sizes, for memcpy to become one instruction */
        copy_squares(b, 1);
    else if (bytes == 2)
        copy_squares(b, 2);
    else if (bytes == 4)
        copy_squares(b, 4);
    else
        copy_squares(b, 8);
}

static void copy_unit(const copying *job, int64_t unit)
{
    int row = job->rank - 2, column = job->rank - 1;
    int64_t size = (int64_t)job->bytes, first_column = unit % job->column_blocks * COLUMNS;
    unit /= job->column_blocks;
    int64_t first_row = unit % job->row_blocks * ROWS;
    unit /= job->row_blocks;
    int64_t to = first_row * job->to_stride[row] + first_column * job->to_stride[column];
    int64_t from = first_row * job->from_stride[row] + first_column * job->from_stride[column];
    for (int i = row - 1; i >= 0; i--) {
        to += unit % job->dim[i] * job->to_stride[i];
        from += unit % job->dim[i] * job->from_stride[i];
        unit /= job->dim[i];
    }
    block b = {
        .to = job->to + to * size,
        .from = job->from + from * size,
        .rows = min_of(ROWS, job->dim[row] - first_row),
        .columns = min_of(COLUMNS, job->dim[column] - first_column),
        .to_row = job->to_stride[row] * size,
        .to_column = job->to_stride[column] * size,
        .from_row = job->from_stride[row] * size,
        .from_column = job->from_stride[column] * size,
    };
    copy_block(&b, job->bytes);
}

static void copy_tile(void *arg, int64_t tile)
{
    const copying *job = arg;
    int64_t first = tile * job->units_per_tile;
    for (int64_t u = first; u < min_of(job->units, first + job->units_per_tile); u++) copy_unit(job, u);
}

void ht_strided_copy(ht_pool *pool, size_t elem_bytes, int rank, const int64_t *dims, const ht_strided *to,
                     const ht_strided *from)
{
    for (int i = 0; i < rank; i++)
        if (dims[i] == 0) return;
    copying job = {.to = to->first, .from = from->first, .bytes = elem_bytes};
    merge_axes(&job, rank, dims, to->stride, from->stride);
    choose_plane(&job);
    int64_t rows = job.dim[job.rank - 2], columns = job.dim[job.rank - 1], planes = 1;
    for (int i = 0; i < job.rank - 2; i++) planes *= job.dim[i];
    job.row_blocks = (rows + ROWS - 1) / ROWS;
    job.column_blocks = (columns + COLUMNS - 1) / COLUMNS;
    job.units = planes * job.row_blocks * job.column_blocks;
    int64_t elems = min_of(rows, ROWS) * min_of(columns, COLUMNS);
    job.units_per_tile = elems < GRAIN ? GRAIN / elems : 1;
    ht_parallel(pool, (job.units + job.units_per_tile - 1) / job.units_per_tile, copy_tile, &job);
}
