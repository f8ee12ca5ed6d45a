/* The GEMM core by itself: every way its operands can lie, sizes around its blocks, what it promises to `finish`. */
#define HT_REAL      float
#define HT_REAL_NAME f32
#define HT_ISA_NAME  portable
#define HT_ISA_ID    HT_ISA_PORTABLE
#include "kernel/gemm/gemm.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The builds that this architecture has. */
#define HT_ISA(id, name, architecture, ...)                                                                            \
    HT_ON_##architecture(void ht_gemm_run_f32_##name(const gemm_job *, ht_pool *);                                     \
                         int64_t ht_gemm_workspace_f32_##name(int64_t, int64_t, int64_t, int64_t, bool);               \
                         void ht_gemm_prepack_f32_##name(const gemm_side *, int64_t, int64_t, void *, ht_pool *);      \
                         int64_t ht_gemm_prepacked_bytes_f32_##name(int64_t, int64_t);)
#include "base/isas.def"

typedef struct build {
    ht_isa isa;
    void (*run)(const gemm_job *job, ht_pool *pool);
    int64_t (*workspace)(int64_t m, int64_t n, int64_t k, int64_t threads, bool by_columns);
    void (*prepack)(const gemm_side *b, int64_t n, int64_t k, void *to, ht_pool *pool);
    int64_t (*prepacked_bytes)(int64_t n, int64_t k);
} build;

static const build builds[] = {
#define HT_ISA(id, name, architecture, ...)                                                                            \
    HT_ON_##architecture({HT_ISA_##id, ht_gemm_run_f32_##name, ht_gemm_workspace_f32_##name,                           \
                          ht_gemm_prepack_f32_##name, ht_gemm_prepacked_bytes_f32_##name}, )
#include "base/isas.def"
};
enum { BUILDS = sizeof builds / sizeof builds[0] };

/* A matrix somewhere in memory; with its f32 values apart, row-major. */
typedef enum layout { BY_ROWS, BY_COLUMNS, WIDE_ROWS, SPARSE, LOADED, LAYOUTS } layout;
enum { FAR = 1024 }; /* elements between rows that meet in one cache set */

typedef struct operand {
    gemm_side side;
    void *data;
    float *values;
    int64_t rows, columns;
} operand;

static void load_values(const gemm_side *side, float *to, int64_t pitch, int64_t row, int64_t rows, int64_t column,
                        int64_t columns)
{
    const operand *o = side->more;
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * pitch, o->values + (row + r) * o->columns + column, (size_t)columns * sizeof *to);
}

static float value_at(int64_t i, int64_t seed)
{
    return (float)((i * 7919 + seed * 104729) % 257 - 128) / 128; /* exact in f16; in bf16 rounded, and read back */
}

static void open_operand(operand *o, layout how, ht_dtype dtype, int64_t rows, int64_t columns, int64_t seed)
{
    int64_t far = ht_tiles(columns, FAR) * FAR;
    *o = (operand){.rows = rows, .columns = columns};
    o->side = (gemm_side){.dtype = dtype, .down = columns, .across = 1};
    if (how == BY_COLUMNS) o->side.down = 1, o->side.across = rows;
    if (how == WIDE_ROWS) o->side.down = far;
    if (how == SPARSE) o->side.down = 3 * columns, o->side.across = 3;
    if (how == LOADED) o->side.load = load_values, o->side.more = o;
    /* As long as its last element needs: what is read beyond is an error that AddressSanitizer reports. */
    int64_t elems = (rows - 1) * o->side.down + (columns - 1) * o->side.across + 1;
    o->side.data = o->data = calloc((size_t)elems, ht_dtype_bytes(dtype));
    o->values = malloc((size_t)(rows * columns) * sizeof(float));
    assert_true(o->data && o->values);
    for (int64_t i = 0; i < rows * columns; i++) {
        int64_t at = i / columns * o->side.down + i % columns * o->side.across;
        ht_store_f64(o->data, dtype, at, (double)value_at(i, seed));
        o->values[i] = (float)ht_load_f64(o->data, dtype, at);
    }
}

static void close_operand(operand *o)
{
    free(o->data);
    free(o->values);
}

/* y(r, c) += 3 r + c / 4, and every element is counted. */
typedef struct finisher {
    unsigned char *seen;
    int64_t m, n;
} finisher;

static void add_place(const void *arg, int64_t row, int64_t column, int64_t rows, int64_t columns, float *values,
                      int64_t pitch)
{
    const finisher *f = arg;
    for (int64_t r = row; r < row + rows; r++) {
        for (int64_t c = column; c < column + columns; c++) {
            values[(r - row) * pitch + c - column] += (float)(3 * r) + (float)c / 4;
            f->seen[r * f->n + c]++;
        }
    }
}

typedef struct shape {
    int64_t m, n, k;
} shape;

/* prepacked: b as build->prepack left it, or NULL. */
static void *run_with(const build *b, const operand *a, const operand *other, shape s, ht_dtype dtype,
                      const finisher *f, int threads, const void *prepacked)
{
    size_t bytes = (size_t)(s.m * s.n) * ht_dtype_bytes(dtype);
    int64_t scratch_bytes = b->workspace(s.m, s.n, s.k, threads, a->side.down == 1 && a->side.across != 1);
    void *y = malloc(bytes), *workspace = aligned_alloc(64, (size_t)(scratch_bytes + 63) / 64 * 64);
    ht_pool *pool = ht_pool_create(threads);
    assert_true(y && workspace && pool);
    gemm_job job = {.a = a->side, .b = other->side, .m = s.m, .n = s.n, .k = s.k, .y = y, .dtype = dtype};
    job.y_down = s.n;
    job.workspace = workspace;
    job.threads = threads;
    job.prepacked = prepacked;
    if (prepacked) job.b.data = NULL, job.b.load = NULL; /* not looked at any more */
    if (f) job.finish = add_place, job.finish_arg = f;
    b->run(&job, pool);
    ht_pool_free(pool);
    free(workspace);
    return y;
}

static void *run(const build *b, const operand *a, const operand *other, shape s, ht_dtype dtype, const finisher *f,
                 int threads)
{
    return run_with(b, a, other, s, dtype, f, threads, NULL);
}

static void check(const build *b, const operand *a, const operand *other, shape s, ht_dtype dtype, const finisher *f)
{
    void *y = run(b, a, other, s, dtype, f, 1);
    double step = dtype == HT_BF16 ? 1.0 / 256 : dtype == HT_F16 ? 1.0 / 2048 : 1e-6;
    for (int64_t i = 0; i < s.m * s.n; i += 1 + i % 5) {
        int64_t r = i / s.n, c = i % s.n;
        double sum = f ? (double)(3 * r) + (double)c / 4 : 0, size = fabs(sum);
        for (int64_t k = 0; k < s.k; k++) {
            double product = (double)a->values[r * s.k + k] * (double)other->values[k * s.n + c];
            sum += product;
            size += fabs(product);
        }
        double got = ht_load_f64(y, dtype, i);
        if (fabs(got - sum) <= 1e-6 * size + step * fabs(sum) + 1e-7) continue;
        fail_msg("%s, %lldx%lldx%lld, row %lld column %lld: %g, not %g", ht_isa_name(b->isa), (long long)s.m,
                 (long long)s.n, (long long)s.k, (long long)r, (long long)c, got, sum);
    }
    free(y);
}

static bool runs_here(const build *b)
{
    return ht_isa_runs(ht_cpu_isa(), b->isa);
}

static void product__is_right_however_operands_lie(void **state)
{
    (void)state;
    const shape s = {61, 299,
                     530}; /* all but the narrowest vectors: more than one block of K, ends in every direction */
    for (int i = 0; i < LAYOUTS * LAYOUTS; i++) {
        operand a, b;
        ht_dtype half = i % 3 == 1 ? HT_F16 : i % 3 == 2 ? HT_BF16 : HT_F32;
        open_operand(&a, (layout)(i / LAYOUTS), half, s.m, s.k, 1);
        open_operand(&b, (layout)(i % LAYOUTS), i % 2 ? HT_F32 : half, s.k, s.n, 2);
        for (int isa = 0; isa < BUILDS; isa++)
            if (runs_here(&builds[isa])) check(&builds[isa], &a, &b, s, i % 2 ? half : HT_F32, NULL);
        close_operand(&a);
        close_operand(&b);
    }
}

static void product__is_right_at_the_ends_of_blocks(void **state)
{
    (void)state;
    static const shape shapes[] = {{1, 1, 1},     {2, 33, 512},  {13, 31, 513},  {14, 32, 511}, {15, 128, 64},
                                   {22, 257, 40}, {532, 64, 20}, {519, 300, 17}, {8, 8, 1025},  {75, 129, 256}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int turned = 0; turned < 4; turned++) {
            operand a, b;
            open_operand(&a, turned & 1 ? BY_COLUMNS : BY_ROWS, HT_F32, shapes[i].m, shapes[i].k, 3);
            open_operand(&b, turned & 2 ? BY_COLUMNS : BY_ROWS, HT_F32, shapes[i].k, shapes[i].n, 4);
            for (int isa = 0; isa < BUILDS; isa++)
                if (runs_here(&builds[isa])) check(&builds[isa], &a, &b, shapes[i], HT_F32, NULL);
            close_operand(&a);
            close_operand(&b);
        }
    }
}

static void finish__sees_every_element_once(void **state)
{
    (void)state;
    static const shape shapes[] = {{61, 299, 530}, {523, 70, 9}, {3, 600, 300}, {40, 70, 0}};
    static const ht_dtype dtypes[] = {HT_F32, HT_BF16, HT_F16};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        shape s = shapes[i], at_least = {s.m, s.n, s.k ? s.k : 1};
        operand a, b;
        open_operand(&a, BY_ROWS, HT_F32, s.m, at_least.k, 5);
        open_operand(&b, BY_ROWS, HT_F32, at_least.k, s.n, 6);
        finisher f = {.seen = malloc((size_t)(s.m * s.n)), .m = s.m, .n = s.n};
        assert_non_null(f.seen);
        for (int isa = 0; isa < BUILDS; isa++) {
            if (!runs_here(&builds[isa])) continue;
            memset(f.seen, 0, (size_t)(s.m * s.n));
            check(&builds[isa], &a, &b, s, dtypes[i % 3], &f);
            for (int64_t e = 0; e < s.m * s.n; e++) assert_int_equal(f.seen[e], 1);
        }
        free(f.seen);
        close_operand(&a);
        close_operand(&b);
    }
}

static void threads__do_not_change_a_bit(void **state)
{
    (void)state;
    const shape s = {300, 531, 700};
    operand a, b;
    open_operand(&a, BY_COLUMNS, HT_F32, s.m, s.k, 7);
    open_operand(&b, BY_ROWS, HT_F32, s.k, s.n, 8);
    for (int isa = 0; isa < BUILDS; isa++) {
        if (!runs_here(&builds[isa])) continue;
        void *one = run(&builds[isa], &a, &b, s, HT_F32, NULL, 1);
        static const int counts[] = {2, 3, 4, 5, 16, 40}; /* tiles are cut for them */
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            void *more = run(&builds[isa], &a, &b, s, HT_F32, NULL, counts[i]);
            assert_memory_equal(one, more, (size_t)(s.m * s.n) * sizeof(float));
            free(more);
        }
        free(one);
    }
    close_operand(&a);
    close_operand(&b);
}

static void *prepack(const build *b, const operand *other, shape s, int threads)
{
    /* No byte more than asked for, beyond the alignment: what is read or written behind is AddressSanitizer's. */
    size_t bytes = (size_t)b->prepacked_bytes(s.n, s.k);
    ht_pool *pool = ht_pool_create(threads);
    void *prepacked = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_true(pool && prepacked);
    memset(prepacked, 0x7f, bytes); /* large numbers where nothing was packed */
    b->prepack(&other->side, s.n, s.k, prepacked, pool);
    ht_pool_free(pool);
    return prepacked;
}

static void prepack__gives_the_bits_of_packing_along_the_way(void **state)
{
    (void)state;
    static const shape shapes[] = {{8, 299, 530}, {61, 299, 530}, {31, 33, 512}, {300, 520, 1100}, {14, 32, 1}};
    for (int i = 0; i < (int)(sizeof shapes / sizeof shapes[0]) * LAYOUTS; i++) {
        shape s = shapes[i / LAYOUTS];
        ht_dtype dtype = i % 3 == 0 ? HT_F32 : i % 3 == 1 ? HT_F16 : HT_BF16;
        operand a, b;
        open_operand(&a, i % 2 ? BY_ROWS : BY_COLUMNS, HT_F32, s.m, s.k, 9);
        open_operand(&b, (layout)(i % LAYOUTS), dtype, s.k, s.n, 10);
        for (int isa = 0; isa < BUILDS; isa++) {
            if (!runs_here(&builds[isa])) continue;
            void *prepacked = prepack(&builds[isa], &b, s, 1 + i % 3),
                 *plain = run(&builds[isa], &a, &b, s, HT_F32, NULL, 1);
            for (int threads = 1; threads <= 2; threads++) {
                void *y = run_with(&builds[isa], &a, &b, s, HT_F32, NULL, threads, prepacked);
                assert_memory_equal(y, plain, (size_t)(s.m * s.n) * sizeof(float));
                free(y);
            }
            free(plain);
            free(prepacked);
        }
        close_operand(&a);
        close_operand(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(product__is_right_however_operands_lie),
        cmocka_unit_test(product__is_right_at_the_ends_of_blocks),
        cmocka_unit_test(finish__sees_every_element_once),
        cmocka_unit_test(threads__do_not_change_a_bit),
        cmocka_unit_test(prepack__gives_the_bits_of_packing_along_the_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
