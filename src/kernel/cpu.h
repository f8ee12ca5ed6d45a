/* For *.cpu.c files. Each is compiled once per ISA and once per `real` (float, double): the build says which with
 * HT_REAL, HT_REAL_NAME, HT_ISA_NAME and HT_ISA_ID. The float build serves calls without f64 (f16 and bf16 operands are
 * converted where they are loaded and stored), the double build those with f64. */
#ifndef HT_KERNEL_CPU_H
#define HT_KERNEL_CPU_H

#include "kernel/kernel.h"

typedef HT_REAL real;
#define HT_REAL_DTYPE (sizeof(real) == sizeof(float) ? HT_F32 : HT_F64)

#define HT_CAT_(a, b, c) a##_##b##_##c
#define HT_CAT(a, b, c)  HT_CAT_(a, b, c)
#define HT_STR_(a)       #a
#define HT_STR(a)        HT_STR_(a)
/* The name of something in this build: HT_K(softmax) is softmax_f32_avx512. */
#define HT_K(name) HT_CAT(name, HT_REAL_NAME, HT_ISA_NAME)

/* A column of the build's row in base/isas.def: VECTOR_BYTES, VECTOR_REGISTERS, FMA. */
#define HT_ISA_COLUMN_(isa, column)   isa##_##column
#define HT_ISA_COLUMN_OF(isa, column) HT_ISA_COLUMN_(isa, column)
#define HT_ISA_COLUMN(column)         HT_ISA_COLUMN_OF(HT_ISA_ID, column)

/* A row: HT_CPU_KERNEL(softmax, can, workspace or NULL, run) defines softmax_row_f32_avx512, which kernels.def lists.
 * An op with several rows names them. */
#define HT_CPU_ROW_DEFINE(name_, op_, ...)                                                                             \
    extern const ht_kernel HT_CAT(name_##_row, HT_REAL_NAME, HT_ISA_NAME);                                             \
    const ht_kernel HT_CAT(name_##_row, HT_REAL_NAME, HT_ISA_NAME) = {                                                 \
        .size = sizeof(ht_kernel),                                                                                     \
        .op = #op_,                                                                                                    \
        .name = #name_ "." HT_STR(HT_REAL_NAME) "." HT_STR(HT_ISA_NAME),                                               \
        .isa = HT_ISA_ID,                                                                                              \
        __VA_ARGS__,                                                                                                   \
    };
#define HT_CPU_KERNEL(op_, can_, workspace_, run_) HT_CPU_KERNEL_NAMED(op_, op_, can_, workspace_, run_)
#define HT_CPU_KERNEL_NAMED(name_, op_, can_, workspace_, run_)                                                        \
    HT_CPU_ROW_DEFINE(name_, op_, .can = can_, .workspace = workspace_, .run = HT_RUN(run_))
/* A row that packs inputs, which may be done ahead. */
#define HT_CPU_PREPACK_KERNEL(name_, op_, can_, workspace_, run_, prepack_)                                            \
    HT_CPU_ROW_DEFINE(name_, op_, .can = can_, .workspace = workspace_, .run = HT_RUN(run_), .prepack = prepack_)
/* Such a product that takes an epilogue. */
#define HT_CPU_DOT_KERNEL(name_, op_, can_, workspace_, run_, prepack_)                                                \
    HT_CPU_ROW_DEFINE(name_, op_, .can = can_, .workspace = workspace_, .run = HT_RUN(run_),                           \
                      .takes = ht_epilogue_takes, .prepack = prepack_)
/* A reduction that takes the element-wise calls before it. */
#define HT_CPU_FOLD_KERNEL(op_, can_, workspace_, takes_, reduce_rows_, run_)                                          \
    HT_CPU_ROW_DEFINE(op_, op_, .can = can_, .workspace = workspace_, .run = HT_RUN(run_), .takes = takes_,            \
                      .reduce_rows = reduce_rows_)
/* An element-wise op: `run` comes from kernel/elementwise/fused.h. */
#define HT_CPU_ELEMENTWISE_KERNEL(op_, can_, begin_, span_)                                                            \
    static const ht_elementwise op_##_elementwise = {.begin = HT_RUN(begin_), .span = HT_RUN(span_)};                  \
    static ht_status op_##_run(const ht_launch *launch)                                                                \
    {                                                                                                                  \
        ht_elementwise_launch(launch, &op_##_elementwise);                                                             \
        return HT_OK;                                                                                                  \
    }                                                                                                                  \
    HT_CPU_ROW_DEFINE(op_, op_, .can = can_, .run = HT_RUN(op_##_run), .elementwise = &op_##_elementwise)

/* Does this build's `real` serve the call's float types? NULL: yes. */
static inline const char *ht_refuse_real(const ht_call *call)
{
    bool wide = false;
    for (size_t i = 0; i < call->n_in; i++) wide |= call->in[i] && call->in[i]->dtype == HT_F64;
    for (size_t i = 0; i < call->n_out; i++) wide |= call->out[i]->dtype == HT_F64;
    if (wide == (sizeof(real) == sizeof(double))) return NULL;
    return wide ? "an operand is f64" : "no operand is f64";
}

/* n elements of a float array from element `start`, as real. Integers and bool convert too. */
static inline void ht_load(real *restrict to, const void *from, ht_dtype dtype, int64_t start, int64_t n)
{
    if (dtype == HT_F32) {
        const float *x = (const float *)from + start;
        for (int64_t i = 0; i < n; i++) to[i] = (real)x[i];
    } else if (dtype == HT_F64) {
        const double *x = (const double *)from + start;
        for (int64_t i = 0; i < n; i++) to[i] = (real)x[i];
    } else if (dtype == HT_BF16) {
        const ht_bf16 *x = (const ht_bf16 *)from + start;
        for (int64_t i = 0; i < n; i++) to[i] = (real)ht_bf16_to_f32(x[i]);
    } else if (dtype == HT_F16) {
        const ht_f16 *x = (const ht_f16 *)from + start;
        if (sizeof(real) == sizeof(float))
            ht_f16_line_to_f32((float *)to, x, n);
        else
            for (int64_t i = 0; i < n; i++) to[i] = (real)ht_f16_to_f32(x[i]);
    } else {
        for (int64_t i = 0; i < n; i++) to[i] = (real)ht_load_f64(from, dtype, start + i);
    }
}

/* n elements to read as real: where they lie if they are of that type, else converted into `stage`. */
static inline const real *ht_view(real *restrict stage, const void *from, ht_dtype dtype, int64_t start, int64_t n)
{
    if (dtype == HT_REAL_DTYPE) return (const real *)from + start;
    ht_load(stage, from, dtype, start, n);
    return stage;
}

/* The same with a stride between elements. */
static inline void ht_load_strided(real *restrict to, const void *from, ht_dtype dtype, int64_t start, int64_t stride,
                                   int64_t n)
{
    if (stride == 1) {
        ht_load(to, from, dtype, start, n);
    } else if (dtype == HT_F32) {
        const float *x = (const float *)from + start;
        for (int64_t i = 0; i < n; i++) to[i] = (real)x[i * stride];
    } else if (dtype == HT_F64) {
        const double *x = (const double *)from + start;
        for (int64_t i = 0; i < n; i++) to[i] = (real)x[i * stride];
    } else if (dtype == HT_BF16) {
        const ht_bf16 *x = (const ht_bf16 *)from + start;
        for (int64_t i = 0; i < n; i++) to[i] = (real)ht_bf16_to_f32(x[i * stride]);
    } else if (dtype == HT_F16) {
        const ht_f16 *x = (const ht_f16 *)from + start;
        for (int64_t i = 0; i < n; i++) to[i] = (real)ht_f16_to_f32(x[i * stride]);
    } else {
        for (int64_t i = 0; i < n; i++) to[i] = (real)ht_load_f64(from, dtype, start + i * stride);
    }
}

/* n elements into an array of dtype from element `start`, rounded once. */
static inline void ht_save(void *to, ht_dtype dtype, int64_t start, const real *restrict from, int64_t n)
{
    if (dtype == HT_F32) {
        float *y = (float *)to + start;
        for (int64_t i = 0; i < n; i++) y[i] = (float)from[i];
    } else if (dtype == HT_F64) {
        double *y = (double *)to + start;
        for (int64_t i = 0; i < n; i++) y[i] = (double)from[i];
    } else if (dtype == HT_BF16 && sizeof(real) == sizeof(float)) {
        ht_bf16_line_from_f32((ht_bf16 *)to + start, (const float *)from, n);
    } else if (dtype == HT_F16 && sizeof(real) == sizeof(float)) {
        ht_f16_line_from_f32((ht_f16 *)to + start, (const float *)from, n);
    } else {
        for (int64_t i = 0; i < n; i++) ht_store_f64(to, dtype, start + i, (double)from[i]);
    }
}

static inline real ht_load1(const void *from, ht_dtype dtype, int64_t index)
{
    real x;
    ht_load(&x, from, dtype, index, 1);
    return x;
}

static inline void ht_save1(void *to, ht_dtype dtype, int64_t index, real x)
{
    ht_save(to, dtype, index, &x, 1);
}

/* An integer operand (labels, lengths, positions). */
static inline int64_t ht_load_int(const void *from, ht_dtype dtype, int64_t index)
{
    if (dtype == HT_I64) return ((const int64_t *)from)[index];
    if (dtype == HT_I32) return ((const int32_t *)from)[index];
    return (int64_t)ht_load_f64(from, dtype, index);
}

static inline int64_t ht_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Tiles of `grain` rows cover `rows`; a function of sizes alone, never of the number of threads. */
static inline int64_t ht_tiles(int64_t rows, int64_t grain)
{
    return (rows + grain - 1) / grain;
}

#endif
