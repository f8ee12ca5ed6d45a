/* halftone/ops.h: one builder function per op. They append to the current segment and return the result, or HT_NONE
 * after a failure (see graph.h). Point-wise inputs are broadcast as in NumPy, mixed number types promote to the wider
 * one. A negative axis counts from the end. `halftone ops` lists all ops with their classes and samples. */
#ifndef HALFTONE_OPS_H
#define HALFTONE_OPS_H

#include <halftone/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- point-wise ---- */
HT_API ht_val ht_add(ht_graph *g, ht_val a, ht_val b);
HT_API ht_val ht_sub(ht_graph *g, ht_val a, ht_val b);
HT_API ht_val ht_mul(ht_graph *g, ht_val a, ht_val b);
HT_API ht_val ht_div(ht_graph *g, ht_val a, ht_val b);
HT_API ht_val ht_pow(ht_graph *g, ht_val a, ht_val b);
HT_API ht_val ht_min(ht_graph *g, ht_val a, ht_val b); /* NaN propagates, as in max */
HT_API ht_val ht_max(ht_graph *g, ht_val a, ht_val b);
HT_API ht_val ht_neg(ht_graph *g, ht_val x);
HT_API ht_val ht_abs(ht_graph *g, ht_val x);
HT_API ht_val ht_sign(ht_graph *g, ht_val x);
HT_API ht_val ht_exp(ht_graph *g, ht_val x);
HT_API ht_val ht_log(ht_graph *g, ht_val x);
HT_API ht_val ht_sqrt(ht_graph *g, ht_val x);
HT_API ht_val ht_rsqrt(ht_graph *g, ht_val x);
HT_API ht_val ht_reciprocal(ht_graph *g, ht_val x);
HT_API ht_val ht_sin(ht_graph *g, ht_val x);
HT_API ht_val ht_cos(ht_graph *g, ht_val x);
HT_API ht_val ht_tanh(ht_graph *g, ht_val x);
HT_API ht_val ht_erf(ht_graph *g, ht_val x);
HT_API ht_val ht_sigmoid(ht_graph *g, ht_val x);
HT_API ht_val ht_relu(ht_graph *g, ht_val x);
HT_API ht_val ht_gelu(ht_graph *g, ht_val x);      /* x·Φ(x), by erf */
HT_API ht_val ht_gelu_tanh(ht_graph *g, ht_val x); /* GPT-2's */
HT_API ht_val ht_silu(ht_graph *g, ht_val x);
HT_API ht_val ht_softplus(ht_graph *g, ht_val x);
HT_API ht_val ht_clip(ht_graph *g, ht_val x, double low, double high);
/* Results are bool. */
HT_API ht_val ht_eq(ht_graph *g, ht_val a, ht_val b);
HT_API ht_val ht_ne(ht_graph *g, ht_val a, ht_val b);
HT_API ht_val ht_lt(ht_graph *g, ht_val a, ht_val b);
HT_API ht_val ht_le(ht_graph *g, ht_val a, ht_val b);
HT_API ht_val ht_gt(ht_graph *g, ht_val a, ht_val b);
HT_API ht_val ht_ge(ht_graph *g, ht_val a, ht_val b);
HT_API ht_val ht_and(ht_graph *g, ht_val a, ht_val b);
HT_API ht_val ht_or(ht_graph *g, ht_val a, ht_val b);
HT_API ht_val ht_xor(ht_graph *g, ht_val a, ht_val b);
HT_API ht_val ht_not(ht_graph *g, ht_val x);
HT_API ht_val ht_select(ht_graph *g, ht_val condition, ht_val a, ht_val b);
HT_API ht_val ht_cast(ht_graph *g, ht_val x, ht_dtype dtype); /* x itself when it has that type */
/* x·factor and x + term for a constant. */
HT_API ht_val ht_scale(ht_graph *g, ht_val x, double factor);
HT_API ht_val ht_add_scalar(ht_graph *g, ht_val x, double term);

/* ---- constants and random numbers ---- */
HT_API ht_val ht_fill(ht_graph *g, ht_dtype dtype, int rank, const int64_t *dims, double value);
/* Small arrays, row-major. */
HT_API ht_val ht_constant(ht_graph *g, ht_dtype dtype, int rank, const int64_t *dims, const double *data);
/* 0, 1, 2 … along the axis. */
HT_API ht_val ht_iota(ht_graph *g, ht_dtype dtype, int rank, const int64_t *dims, int axis);
/* The random stream of a random op: i64 scalars, usually state. `sample` is the index in the global batch of the first
 * row of this segment's batch, counted along the op's batch axis. Where gradients accumulate over micro-batches
 * (ht_graph_train), the index of the micro-batch is added to it by itself. */
typedef struct ht_rng {
    ht_val seed, step, sample;
} ht_rng;
/* The states "rng.seed", "rng.step" and "rng.sample", created at the first call. */
HT_API ht_rng ht_rng_state(ht_graph *g);
/* `site` names the stream: different sites draw different numbers. */
HT_API ht_val ht_random_uniform(ht_graph *g, ht_dtype dtype, int rank, const int64_t *dims, double low, double high,
                                ht_rng rng, const char *site);
HT_API ht_val ht_random_normal(ht_graph *g, ht_dtype dtype, int rank, const int64_t *dims, double mean,
                               double deviation, ht_rng rng, const char *site);
/* Zero with probability p, else x/(1-p). */
HT_API ht_val ht_dropout(ht_graph *g, ht_val x, double p, ht_rng rng, const char *site);
/* Names the axis of a random op's result that counts the rows of the batch, and returns the result; the first axis
 * unless told, -1 for a result that does not depend on the batch. An element draws the number of its place in the
 * global batch, so a step is the same however its batch is cut. Other values are returned as they are. */
HT_API ht_val ht_batch_axis(ht_graph *g, ht_val random, int axis);

/* ---- matmul ---- */
typedef struct ht_matmul_opts {
    size_t size;
    bool transpose_a, transpose_b; /* of the last two axes */
} ht_matmul_opts;
#define HT_MATMUL_OPTS                                                                                                 \
    {                                                                                                                  \
        .size = sizeof(ht_matmul_opts)                                                                                 \
    }
/* [.., M, K] × [.., K, N] → [.., M, N]; leading axes broadcast. opts may be NULL. */
HT_API ht_val ht_matmul(ht_graph *g, ht_val a, ht_val b, const ht_matmul_opts *opts);

/* ---- reductions: n_axes 0 means all axes; `keep` leaves reduced axes as size 1 ---- */
HT_API ht_val ht_sum(ht_graph *g, ht_val x, int n_axes, const int64_t *axes, bool keep);
HT_API ht_val ht_mean(ht_graph *g, ht_val x, int n_axes, const int64_t *axes, bool keep);
HT_API ht_val ht_reduce_max(ht_graph *g, ht_val x, int n_axes, const int64_t *axes, bool keep);
HT_API ht_val ht_norm(ht_graph *g, ht_val x, int n_axes, const int64_t *axes, bool keep); /* √Σx² */
HT_API ht_val ht_argmax(ht_graph *g, ht_val x, int axis, bool keep);                      /* i64; first of equals */
HT_API ht_val ht_all_finite(ht_graph *g, ht_val x);                                       /* bool[] */
/* √(sum of squares) of all of x as f64[], and in *finite (bool[]) the result of all_finite, in one pass over x. */
HT_API ht_val ht_norm_finite(ht_graph *g, ht_val x, ht_val *finite);
HT_API ht_val ht_cumsum(ht_graph *g, ht_val x, int axis);
/* The k largest along the last axis, descending; equal values by lower index first. */
HT_API void ht_topk(ht_graph *g, ht_val x, int64_t k, ht_val *values, ht_val *indices);

/* ---- softmax and losses ---- */
HT_API ht_val ht_softmax(ht_graph *g, ht_val x, int axis);
HT_API ht_val ht_log_softmax(ht_graph *g, ht_val x, int axis);
typedef enum ht_reduction { HT_REDUCE_MEAN, HT_REDUCE_SUM, HT_REDUCE_NONE } ht_reduction;
typedef struct ht_cross_entropy_opts {
    size_t size;
    int64_t ignore_index;   /* labels equal to it are ignored */
    double label_smoothing; /* 0 to 1 */
    ht_reduction reduction;
} ht_cross_entropy_opts;
#define HT_CROSS_ENTROPY_OPTS                                                                                          \
    {                                                                                                                  \
        .size = sizeof(ht_cross_entropy_opts), .ignore_index = -100                                                    \
    }
/* Logits [.., C] and integer labels [..]: -log softmax at the label. The mean is over the labels that are not ignored
 * (0 if there are none). */
HT_API ht_val ht_cross_entropy(ht_graph *g, ht_val logits, ht_val labels, const ht_cross_entropy_opts *opts);

/* ---- norms: scale and shift may be none ---- */
HT_API ht_val ht_layernorm(ht_graph *g, ht_val x, ht_val scale, ht_val shift, double eps); /* over the last axis */
HT_API ht_val ht_rmsnorm(ht_graph *g, ht_val x, ht_val scale, double eps);
/* x [N, C, ..]; running statistics are states [C] and get stores: running·(1−momentum) + batch·momentum, the batch's
 * variance unbiased, as PyTorch does. */
HT_API ht_val ht_batchnorm_train(ht_graph *g, ht_val x, ht_val scale, ht_val shift, ht_val running_mean,
                                 ht_val running_var, double momentum, double eps);
HT_API ht_val ht_batchnorm_eval(ht_graph *g, ht_val x, ht_val scale, ht_val shift, ht_val running_mean,
                                ht_val running_var, double eps);

/* ---- moving data ---- */
HT_API ht_val ht_reshape(ht_graph *g, ht_val x, int rank, const int64_t *dims); /* one size may be -1 */
HT_API ht_val ht_transpose(ht_graph *g, ht_val x, int axis_a, int axis_b);
HT_API ht_val ht_permute(ht_graph *g, ht_val x, int rank, const int64_t *order);
/* Elements start, start+step, … of each axis; dims of the result are given. */
HT_API ht_val ht_slice(ht_graph *g, ht_val x, const int64_t *start, const int64_t *dims, const int64_t *step);
HT_API ht_val ht_slice_axis(ht_graph *g, ht_val x, int axis, int64_t start, int64_t length);
/* `rows` neighbours of x [N, ..] from row `first` (i64[]) on; and x with the rows of `update` in their place. A first
 * row is moved into the range where all of them fit. */
HT_API ht_val ht_dynamic_slice(ht_graph *g, ht_val x, ht_val first, int64_t rows);
HT_API ht_val ht_dynamic_update_slice(ht_graph *g, ht_val x, ht_val update, ht_val first);
HT_API ht_val ht_concat(ht_graph *g, size_t n, const ht_val *x, int axis);
HT_API ht_val ht_pad(ht_graph *g, ht_val x, const int64_t *before, const int64_t *after, double value);
HT_API ht_val ht_expand(ht_graph *g, ht_val x, int rank, const int64_t *dims); /* broadcast to a shape */
/* x[.., index[..], ..] along the axis: index has x's rank, as torch.gather. An index out of range gives 0 and no
 * gradient. */
HT_API ht_val ht_gather(ht_graph *g, ht_val x, ht_val index, int axis);
/* The transpose of gather: zeros of `size` along the axis, to which updates[.., k, ..] are added at index[.., k, ..], k
 * ascending; an index out of range is skipped. */
HT_API ht_val ht_scatter_add(ht_graph *g, ht_val index, ht_val updates, int64_t size, int axis);
/* [.., depth] with a one at the label; a label out of range gives zeros. */
HT_API ht_val ht_one_hot(ht_graph *g, ht_val labels, int64_t depth, ht_dtype dtype);
/* Rows of table [V, D] by index [..] → [.., D]. An index out of range gives zeros and no gradient. */
HT_API ht_val ht_embedding(ht_graph *g, ht_val table, ht_val index);

/* ---- attention ---- */
typedef struct ht_attention_opts {
    size_t size;
    bool causal;
    double scale;    /* 0: 1/√D */
    ht_val lengths;  /* i32 or i64 [B]: keys from this index on are masked; or none */
    ht_val document; /* i32 or i64 [B, T]: a position attends to its own document only; needs Tq = Tk; or none */
} ht_attention_opts;
#define HT_ATTENTION_OPTS                                                                                              \
    {                                                                                                                  \
        .size = sizeof(ht_attention_opts)                                                                              \
    }
/* q [B, H, Tq, D], k and v [B, G, Tk, D] with H a multiple of G (grouped-query attention). A fully masked row is zero.
 * With causal, query i attends to keys up to i + Tk − Tq. The Tq×Tk score matrix is never stored. */
HT_API ht_val ht_attention(ht_graph *g, ht_val q, ht_val k, ht_val v, const ht_attention_opts *opts);
/* Rotates pairs of the last axis of x [.., T, D] by position [T] or [B, T] (i32 or i64, B the first axis of x):
 * halves (j, j + D/2), or neighbours (2j, 2j+1) when interleaved. */
HT_API ht_val ht_rotary(ht_graph *g, ht_val x, ht_val position, double base, bool interleaved);

/* ---- lstm ---- */
typedef struct ht_lstm_out {
    ht_val y;    /* [T, B, H], zero beyond a sequence's length */
    ht_val h, c; /* [B, H] after the last valid step */
} ht_lstm_out;
/* One layer over x [T, B, I]; w_input [4H, I], w_hidden [4H, H], bias [4H] or none, gates in the order i, f, g, o; h0
 * and c0 [B, H]; lengths i32 or i64 [B] or none. */
HT_API ht_lstm_out ht_lstm(ht_graph *g, ht_val x, ht_val h0, ht_val c0, ht_val w_input, ht_val w_hidden, ht_val bias,
                           ht_val lengths);

/* ---- convolution and pooling: x [N, C, H, W] ---- */
typedef struct ht_conv_opts {
    size_t size;
    int64_t stride[2], padding[2], dilation[2];
    int64_t groups;
} ht_conv_opts;
#define HT_CONV_OPTS                                                                                                   \
    {                                                                                                                  \
        .size = sizeof(ht_conv_opts), .stride = {1, 1}, .dilation = {1, 1}, .groups = 1                                \
    }
/* w [O, C/groups, kh, kw]; bias [O] or none. */
HT_API ht_val ht_conv2d(ht_graph *g, ht_val x, ht_val w, ht_val bias, const ht_conv_opts *opts);
typedef struct ht_pool_opts {
    size_t size;
    int64_t window[2], stride[2], padding[2]; /* a stride of 0 means the window */
    bool exclude_padding;                     /* average: divide by the elements inside only */
} ht_pool_opts;
/* The window has no default: set it. */
#define HT_POOL_OPTS                                                                                                   \
    {                                                                                                                  \
        .size = sizeof(ht_pool_opts)                                                                                   \
    }
HT_API ht_val ht_max_pool2d(ht_graph *g, ht_val x, const ht_pool_opts *opts);
HT_API ht_val ht_avg_pool2d(ht_graph *g, ht_val x, const ht_pool_opts *opts);
HT_API ht_val ht_global_avg_pool2d(ht_graph *g, ht_val x); /* [N, C] */

#ifdef __cplusplus
}
#endif

#endif
