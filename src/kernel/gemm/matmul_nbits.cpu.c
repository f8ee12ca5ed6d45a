/* y[..,m,n] = sum over k of a[..,m,k] a_scale[k] w[k,n], w = (code - zero) scale: codes of 4 or 8 bits (op/matmul_nbits.h).
 * matmul_nbits: the GEMM core; codes become numbers where it packs b, so memory never holds more of them than a thread's
 * block. matmul_nbits_line, for few rows, as in decoding: codes become numbers in registers.
 * Numerics: (code - zero) scale with one rounding, one more for a_scale, then the GEMM core's. Few rows: a · a_scale is
 * rounded, products with code - middle are summed by group, in order, less those of zero - middle, and times scale added to
 * those of the groups before. FMA.
 * Threads: the GEMM core's; tiles of columns.
 * Traffic: codes and scales once per row of tiles: with 4 bits an eighth of f32's, and what the scales take.
 * Bound: FLOPs; few rows: bandwidth, or the conversion where codes lie in a cache. */
/* HT_COMPILE: -ffp-contract=fast */
#include "kernel/gemm/gemm.h"
#include "kernel/simd.h"
#include "op/op.h"

enum { A, CODES, SCALE, ZERO, A_SCALE, INPUTS };
enum {
    FEW_ROWS = VEC_REGISTERS == 32 ? 8 : 4, /* which meet a code while it is in a register */
    ACROSS = 4, /* vectors of columns at a time, in a single row: sums that do not wait for each other */
    SUMS = FEW_ROWS * ACROSS / 2,
    BLOCK = ACROSS * VL, /* columns */
    NR = 2 * VL,         /* of a sliver, at most */
    TILE = 512,          /* columns that a thread takes, at most: it reads long runs of memory */
    TILES = 32,          /* with fewer than these, tiles get narrower */
};

typedef int32_t word_vec __attribute__((vector_size(VL * 4)));
typedef float step_vec __attribute__((vector_size(VL * 4)));

/* The product of a call. */
typedef struct product {
    const void *in[INPUTS]; /* NULL: left out */
    const ht_call *call;
    int bits;
    int64_t m, n, k, group;
    int64_t a_down;   /* from row to row of a */
    int rows;         /* m of the loops for few rows: the next that there is one for */
    const real *line; /* a · a_scale of few rows, each number by the place of its code in half a word: half_place */
    const real *sums; /* of a · a_scale, by row and group */
    int64_t columns;  /* of a tile of it */
    void *y;
} product;

static product product_of(const ht_call *call, const void *const *in, void *const *out)
{
    const ht_type *a = call->in[A];
    product p = {.call = call,
                 .bits = (int)ht_call_int(call, "bits"),
                 .m = 1,
                 .n = call->in[SCALE]->dim[1],
                 .k = a->dim[a->rank - 1],
                 .group = ht_call_int(call, "group"),
                 .a_down = a->stride[a->rank - 2],
                 .y = out ? out[0] : NULL};
    for (int axis = 0; axis < a->rank - 1; axis++) p.m *= a->dim[axis];
    p.rows = p.m <= 2 ? (int)p.m : p.m <= 4 ? 4 : FEW_ROWS;
    for (size_t i = 0; in && i < call->n_in; i++) p.in[i] = call->in[i] ? in[i] : NULL;
    return p;
}

static int64_t group_end(const product *p, int64_t k, int64_t end)
{
    return ht_min_i64(end, (k / p->group + 1) * p->group);
}

/* ---- codes to numbers ---- */

/* The words of some columns that hold row k; in `stage`, which has space for whole vectors, unless `whole` says that all
 * that will be read is there. */
static inline __attribute__((always_inline)) const int32_t *words_at(const product *p, int64_t k, int64_t column,
                                                                     int64_t columns, bool whole, int32_t *stage)
{
    const int32_t *words = (const int32_t *)p->in[CODES] + k / ht_nbits_per_word(p->bits) * p->n + column;
    if (whole) return words;
    memcpy(stage, words, (size_t)columns * sizeof *stage);
    return stage;
}

static inline __attribute__((always_inline)) word_vec load_words(const int32_t *words, int v)
{
    word_vec x;
    memcpy(&x, words + v * VL, sizeof x);
    return x;
}

/* A few bits of each word, less a number, without a conversion: as the fraction of a float whose last bit counts 1 they are
 * 2^23 too much, which `less` contains. */
static inline __attribute__((always_inline)) vec steps_of(word_vec words, int32_t mask, step_vec less)
{
    enum { EXPONENT_23 = 0x4b000000 };
    return __builtin_convertvector((step_vec)((words & mask) | EXPONENT_23) - less, vec);
}

/* Scales of some columns in one group, and their zero points less `middle`. Columns beyond the matrix have 0. */
static inline __attribute__((always_inline)) void load_group(const product *p, int64_t group, int64_t column,
                                                             int64_t columns, int most, real *scales, float *zeros)
{
    int64_t at = group * p->n + column;
    const uint8_t *zero = p->in[ZERO];
    if (p->call->in[SCALE]->dtype == HT_REAL_DTYPE && columns == most) {
        memcpy(scales, (const real *)p->in[SCALE] + at, (size_t)most * sizeof *scales);
    } else {
        memset(scales, 0, (size_t)most * sizeof *scales);
        ht_load(scales, p->in[SCALE], p->call->in[SCALE]->dtype, at, columns);
    }
    if (!zero)
        memset(zeros, 0, (size_t)most * sizeof *zeros);
    else if (columns == most)
        for (int j = 0; j < most; j++) zeros[j] = (float)zero[at + j] - (float)ht_nbits_middle(p->bits);
    else
        for (int64_t j = 0; j < columns; j++) zeros[j] = (float)zero[at + j] - (float)ht_nbits_middle(p->bits);
}

/* ---- the GEMM core's b ---- */

/* Rows [k, end) of one group. Whole vectors are written, which a sliver has space for; beyond the matrix they hold 0. */
static inline __attribute__((always_inline)) void load_rows(const product *p, real *to, int64_t pitch, int64_t k,
                                                            int64_t end, int64_t column, int64_t columns, bool scaled)
{
    real scales[NR];
    float zeros[NR] = {0};
    int32_t stage[NR] = {0};
    int64_t per = ht_nbits_per_word(p->bits);
    vec scale[2];
    step_vec less[2];
    load_group(p, k / p->group, column, columns, NR, scales, zeros);
    for (int v = 0; v < 2; v++) {
        scale[v] = vec_load(scales, v);
        memcpy(&less[v], zeros + v * VL, sizeof less[v]);
        less[v] += 0x1p23f + (float)ht_nbits_middle(p->bits);
    }
    for (; k < end; k++, to += pitch) {
        const int32_t *words = words_at(p, k, column, columns, columns == NR, stage);
        real factor = scaled ? ht_load1(p->in[A_SCALE], p->call->in[A_SCALE]->dtype, k) : 1;
        int shift = (int)(k % per) * p->bits;
        for (int v = 0; v < 2; v++) {
            vec w = steps_of(load_words(words, v) >> shift, (1 << p->bits) - 1, less[v]) * scale[v];
            if (scaled) w *= factor;
            memcpy(to + v * VL, &w, sizeof w);
        }
    }
}

/* A sliver, NR columns or the last ones. */
static void load_weights(const gemm_side *side, real *to, int64_t pitch, int64_t row, int64_t rows, int64_t column,
                         int64_t columns)
{
    const product *p = side->more;
    for (int64_t k = row, next; k < row + rows; to += (next - k) * pitch, k = next) {
        next = group_end(p, k, row + rows);
        if (p->in[A_SCALE])
            load_rows(p, to, pitch, k, next, column, columns, true);
        else
            load_rows(p, to, pitch, k, next, column, columns, false);
    }
}

/* The element-wise calls that follow, on blocks of the product. */
typedef struct following {
    ht_epilogue epilogue;
    int64_t columns;
} following;

static void finish(const void *arg, int64_t row, int64_t column, int64_t rows, int64_t columns, real *values,
                   int64_t pitch)
{
    const following *f = arg;
    ht_epilogue_block(&f->epilogue, row * f->columns + column, f->columns, rows, columns, (char *)values,
                      pitch * (int64_t)sizeof(real));
}

static ht_status matmul_nbits_run(const ht_launch *launch)
{
    const ht_fused *fused = launch->fused;
    following after;
    product p = product_of(fused ? fused->gemm : launch->call, launch->in + (fused ? fused->n_in : 0), launch->out);
    after.columns = p.n;
    if (fused) ht_epilogue_begin(&after.epilogue, fused, launch);
    gemm_job job = {
        .a = {.data = p.in[A], .dtype = p.call->in[A]->dtype, .down = p.a_down, .across = 1},
        .b = {.data = p.in[CODES], .dtype = HT_I32, .load = load_weights, .more = &p},
        .m = p.m,
        .n = p.n,
        .k = p.k,
        .y = fused ? NULL : p.y,
        .dtype = p.call->out[0]->dtype,
        .y_down = p.n,
        .finish = fused ? finish : NULL,
        .finish_arg = &after,
        .workspace = launch->workspace,
        .threads = launch->threads,
    };
    gemm_run(&job, launch->pool);
    return HT_OK;
}

static int64_t matmul_nbits_workspace(const ht_call *call, const ht_target *target)
{
    product p = product_of(call, NULL, NULL);
    return gemm_workspace(p.m, p.n, p.k, target->threads, false);
}

/* Do the rows of a lie evenly, each without gaps? */
static bool has_even_rows(const ht_type *a)
{
    if (a->dim[a->rank - 1] > 1 && a->stride[a->rank - 1] != 1) return false;
    for (int axis = a->rank - 3; axis >= 0; axis--)
        if (a->dim[axis] > 1 && a->stride[axis] != a->stride[axis + 1] * a->dim[axis + 1]) return false;
    return true;
}

static const char *matmul_nbits_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    if (reason) return reason;
    if (!has_even_rows(call->in[A])) return "rows of a are strided";
    for (size_t i = CODES; i < call->n_in; i++)
        if (call->in[i] && !ht_type_contiguous(call->in[i])) return "codes, scales or zero points are strided";
    return ht_type_contiguous(call->out[0]) ? NULL : "the result is strided";
}

HT_CPU_DOT_KERNEL(matmul_nbits, matmul_nbits, matmul_nbits_can, matmul_nbits_workspace, matmul_nbits_run, NULL)

/* ---- a few rows ---- */

/* The place of row k in the half of a word that holds it. There its code counts 2^(bits · place), which its factor a makes
 * up for. */
static inline int half_place(int64_t k, int bits)
{
    return (int)(k % (16 / bits));
}

/* sums[r][v] += a[r][i] · steps of the inputs [from, to) of a word, whose first is a[0][0]'s. All numbers but those two are
 * constants wherever this is inlined. */
static inline __attribute__((always_inline)) void add_word(vec *sums, const real *a, int64_t pitch,
                                                           const int32_t *words, int from, int to, int bits, int rows,
                                                           int across)
{
    word_vec word[ACROSS];
    const int middle = ht_nbits_middle(bits), mask = (1 << bits) - 1, per = 16 / bits;
#pragma GCC unroll 4
    for (int v = 0; v < across; v++) word[v] = load_words(words, v);
#pragma GCC unroll 8
    for (int i = from; i < to; i++) {
        int place = i % per * bits;
        step_vec less = (step_vec){0} + (0x1p23f + (float)(middle << place));
#pragma GCC unroll 4
        for (int v = 0; v < across; v++) {
            vec steps = steps_of(i < per ? word[v] : word[v] >> 16, mask << place, less);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) sums[r * across + v] += a[r * pitch + i - from] * steps;
        }
    }
}

/* Inputs [k, end) of one group; whole words by a loop of their own. */
static inline __attribute__((always_inline)) void add_group(const product *p, vec *total, int64_t k, int64_t end,
                                                            int64_t column, int64_t columns, int bits, int rows,
                                                            int across)
{
    const int per = (int)ht_nbits_per_word(bits), most = across * VL;
    int64_t group = k / p->group, groups = ht_nbits_groups(p->k, p->group);
    vec sums[SUMS];
    real scales[BLOCK];
    float zeros[BLOCK] = {0};
    int32_t stage[BLOCK] = {0};
    load_group(p, group, column, columns, most, scales, zeros);
#pragma GCC unroll 16
    for (int i = 0; i < rows * across; i++) sums[i] = (vec){0};
    while (k < end) {
        const int32_t *words = words_at(p, k, column, columns, columns == most, stage);
        int from = (int)(k % per), to = (int)ht_min_i64(per, from + end - k);
        if (to - from == per)
            add_word(sums, p->line + k, p->k, words, 0, per, bits, rows, across);
        else
            add_word(sums, p->line + k, p->k, words, from, to, bits, rows, across);
        k += to - from;
    }
#pragma GCC unroll 4
    for (int v = 0; v < across; v++) {
        step_vec zero;
        memcpy(&zero, zeros + v * VL, sizeof zero);
        for (int r = 0; r < rows; r++)
            total[r * across + v] +=
                (sums[r * across + v] - p->sums[r * groups + group] * __builtin_convertvector(zero, vec)) *
                vec_load(scales, v);
    }
}

static inline __attribute__((always_inline)) void line_blocks(const product *p, int64_t first, int64_t end, int bits,
                                                              int rows, int across)
{
    for (int64_t column = first; column < end; column += across * VL) {
        int64_t columns = ht_min_i64(across * VL, end - column);
        vec total[SUMS] = {{0}};
        real sums[SUMS * VL];
        for (int64_t k = 0, next; k < p->k; k = next) {
            next = group_end(p, k, p->k);
            add_group(p, total, k, next, column, columns, bits, rows, across);
        }
        memcpy(sums, total, sizeof sums);
        for (int64_t r = 0; r < p->m; r++)
            ht_save(p->y, p->call->out[0]->dtype, r * p->n + column, sums + r * across * VL, columns);
    }
}

static inline __attribute__((always_inline)) void line_rows(const product *p, int64_t first, int64_t end, int bits)
{
    switch (p->rows) {
    case 1: line_blocks(p, first, end, bits, 1, ACROSS); break;
    case 2: line_blocks(p, first, end, bits, 2, ACROSS / 2); break;
    case 4: line_blocks(p, first, end, bits, 4, ACROSS / 2); break;
    default: line_blocks(p, first, end, bits, FEW_ROWS, ACROSS / 2); break;
    }
}

static void line_tile(void *arg, int64_t tile)
{
    const product *p = arg;
    int64_t first = tile * p->columns, end = ht_min_i64(p->n, first + p->columns);
    if (p->bits == 4)
        line_rows(p, first, end, 4);
    else
        line_rows(p, first, end, 8);
}

static ht_status matmul_nbits_line_run(const ht_launch *launch)
{
    product p = product_of(launch->call, launch->in, launch->out);
    real *line = launch->workspace, *sums = line + p.rows * p.k;
    int64_t groups = ht_nbits_groups(p.k, p.group);
    p.line = line;
    p.sums = sums;
    memset(line, 0, (size_t)(p.rows * (p.k + groups)) * sizeof *line);
    for (int64_t r = 0; r < p.m; r++, line += p.k, sums += groups) {
        ht_load(line, p.in[A], p.call->in[A]->dtype, r * p.a_down, p.k);
        for (int64_t k = 0; k < p.k; k++) {
            if (p.in[A_SCALE]) line[k] *= ht_load1(p.in[A_SCALE], p.call->in[A_SCALE]->dtype, k);
            sums[k / p.group] += line[k];
            line[k] /= (real)(1 << half_place(k, p.bits) * p.bits);
        }
    }
    p.columns = ht_min_i64(TILE, ht_tiles(ht_tiles(p.n, TILES), BLOCK) * BLOCK);
    ht_parallel(launch->pool, ht_tiles(p.n, p.columns), line_tile, &p);
    return HT_OK;
}

static int64_t matmul_nbits_line_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    product p = product_of(call, NULL, NULL);
    return p.rows * (p.k + ht_nbits_groups(p.k, p.group)) * (int64_t)sizeof(real);
}

static const char *matmul_nbits_line_can(const ht_call *call, const ht_target *target)
{
    const char *reason = matmul_nbits_can(call, target);
    if (reason) return reason;
    product p = product_of(call, NULL, NULL);
    if (p.m > FEW_ROWS) return "too many rows";
    return p.m == 0 || p.n == 0 || p.k == 0 ? "nothing to multiply" : NULL;
}

HT_CPU_KERNEL_NAMED(matmul_nbits_line, matmul_nbits, matmul_nbits_line_can, matmul_nbits_line_workspace,
                    matmul_nbits_line_run)
