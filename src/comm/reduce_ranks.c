/* y[i] = x_0[i] ∘ x_1[i] ∘ … ∘ x_(N-1)[i], from left to right, where x_r is what rank r has.
 * Numerics: f16, bf16 and f32 are summed in f32 and rounded once; f64 in f64; integers wrap.  Threads: the caller's.
 * Traffic: N reads, one write.  Bound: bandwidth. */
#include "comm/comm_own.h"

enum { TILE = 512 };

const char *const ht_comm_reduction_names[HT_COMM_REDUCTION_COUNT] = {
    [HT_COMM_SUM] = "sum",
    [HT_COMM_MAX] = "max",
    [HT_COMM_MIN] = "min",
};

const char *ht_comm_reduction_refusal(ht_comm_reduction reduction, ht_dtype dtype)
{
    if ((unsigned)reduction >= HT_COMM_REDUCTION_COUNT) return "no such reduction";
    switch (dtype) {
    case HT_F64:
    case HT_F32:
    case HT_F16:
    case HT_BF16:
    case HT_I32:
    case HT_I64: return NULL;
    case HT_U8:
    case HT_BOOL: return reduction == HT_COMM_SUM ? "bytes have no sum over ranks" : NULL;
    default: return "this type is not reduced over ranks";
    }
}

/* Written as one function per type, so that the loops vectorise. A NaN is neither more nor less, and stays. */
#define FOLD(name, type, wide)                                                                                         \
    static void fold_##name(ht_comm_reduction reduction, wide *restrict sum, const type *restrict x, int64_t n)        \
    {                                                                                                                  \
        if (reduction == HT_COMM_SUM)                                                                                  \
            for (int64_t i = 0; i < n; i++) sum[i] = (wide)(sum[i] + (wide)x[i]);                                      \
        else if (reduction == HT_COMM_MAX)                                                                             \
            for (int64_t i = 0; i < n; i++) sum[i] = x[i] > sum[i] || x[i] != x[i] ? (wide)x[i] : sum[i];              \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) sum[i] = x[i] < sum[i] || x[i] != x[i] ? (wide)x[i] : sum[i];              \
    }
FOLD(f64, double, double)
FOLD(f32, float, float)
FOLD(u8, uint8_t, uint8_t)

/* Sums of signed numbers wrap as those of unsigned ones; the order is that of signed ones. */
#define FOLD_SIGNED(name, type, unsigned_type)                                                                         \
    static void fold_##name(ht_comm_reduction reduction, type *restrict sum, const type *restrict x, int64_t n)        \
    {                                                                                                                  \
        if (reduction == HT_COMM_SUM)                                                                                  \
            for (int64_t i = 0; i < n; i++) sum[i] = (type)((unsigned_type)sum[i] + (unsigned_type)x[i]);              \
        else if (reduction == HT_COMM_MAX)                                                                             \
            for (int64_t i = 0; i < n; i++) sum[i] = x[i] > sum[i] ? x[i] : sum[i];                                    \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) sum[i] = x[i] < sum[i] ? x[i] : sum[i];                                    \
    }
FOLD_SIGNED(i32, int32_t, uint32_t)
FOLD_SIGNED(i64, int64_t, uint64_t)

/* Halves come and go as f32. */
static const float *widen(ht_dtype dtype, float *wide, const void *x, int64_t first, int64_t n)
{
    if (dtype == HT_F16)
        ht_f16_line_to_f32(wide, (const ht_f16 *)x + first, n);
    else
        ht_bf16_line_to_f32(wide, (const ht_bf16 *)x + first, n);
    return wide;
}

static void reduce_halves(ht_dtype dtype, ht_comm_reduction reduction, void *out, const void *const *in, int count,
                          int64_t first, int64_t n)
{
    float sum[TILE], wide[TILE];
    widen(dtype, sum, in[0], first, n);
    for (int r = 1; r < count; r++) fold_f32(reduction, sum, widen(dtype, wide, in[r], first, n), n);
    if (dtype == HT_F16)
        ht_f16_line_from_f32((ht_f16 *)out + first, sum, n);
    else
        ht_bf16_line_from_f32((ht_bf16 *)out + first, sum, n);
}

static void fold(ht_dtype dtype, ht_comm_reduction reduction, void *sum, const void *x, int64_t n)
{
    switch (dtype) {
    case HT_F64: fold_f64(reduction, sum, x, n); break;
    case HT_F32: fold_f32(reduction, sum, x, n); break;
    case HT_I32: fold_i32(reduction, sum, x, n); break;
    case HT_I64: fold_i64(reduction, sum, x, n); break;
    default: fold_u8(reduction, sum, x, n); break;
    }
}

void ht_reduce_ranks(ht_dtype dtype, ht_comm_reduction reduction, void *out, const void *const *in, int count,
                     int64_t n)
{
    bool half = dtype == HT_F16 || dtype == HT_BF16;
    size_t bytes = ht_dtype_bytes(dtype);
    for (int64_t first = 0; first < n; first += TILE) {
        int64_t tile = n - first < TILE ? n - first : TILE;
        if (half) {
            reduce_halves(dtype, reduction, out, in, count, first, tile);
            continue;
        }
        double sum[TILE]; /* space for any type */
        memcpy(sum, (const char *)in[0] + (size_t)first * bytes, (size_t)tile * bytes);
        for (int r = 1; r < count; r++) fold(dtype, reduction, sum, (const char *)in[r] + (size_t)first * bytes, tile);
        memcpy((char *)out + (size_t)first * bytes, sum, (size_t)tile * bytes);
    }
}
