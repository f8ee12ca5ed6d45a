/* matmul_nbits: a product of numbers by weights that are stored as codes of 4 or 8 bits,
 *     y[..,m,n] = sum over k of a[..,m,k] a_scale[k] w[k,n],   w[k,n] = (code[k,n] - zero[k / group, n]) scale[k / group, n].
 * Inputs:
 *     a         any float
 *     codes     words of i32, [⌈k / 8⌉, n] with `bits` 4, [⌈k / 4⌉, n] with 8: op/matmul_nbits.h
 *     scale     any float, [groups, n]: one for each column and `group` of neighbours along k; the last group may be shorter
 *     zero      u8[groups, n]; left out: the middle of the codes, 8 or 128
 *     a_scale   any float, [k]; left out: 1
 * Only weights are quantised: nothing is rounded to codes here. The result has the type of a, or any other float. */
#include "op/op.h"

#include <inttypes.h>

enum { A, CODES, SCALE, ZERO, A_SCALE };

static const ht_type *given(const ht_call *call, size_t input)
{
    return input < call->n_in ? call->in[input] : NULL;
}

static int64_t inner_size(const ht_call *call)
{
    return call->in[A]->dim[call->in[A]->rank - 1];
}

/* ---- shapes ---- */

static ht_status need_shape(ht_context *ctx, const ht_call *call, size_t input, const char *name, int rank,
                            const int64_t *dim)
{
    ht_type_text a, b;
    const ht_type *is = given(call, input);
    if (!is) return HT_OK;
    ht_type want = ht_type_make(is->dtype, rank, dim);
    if (!ht_type_same_shape(is, &want))
        HT_FAIL(ctx, HT_ESHAPE, "%s is %s, not %s", name, ht_type_str(is, &a), ht_type_str(&want, &b));
    return HT_OK;
}

static ht_status matmul_nbits_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    ht_type_text text;
    const ht_type *a = call->in[A], *codes = call->in[CODES], *scale = call->in[SCALE], *zero = given(call, ZERO);
    int64_t group = ht_call_int(call, "group"), bits = ht_call_int(call, "bits");
    HT_TRY(ht_need_float(ctx, call, A));
    HT_TRY(ht_need_float(ctx, call, SCALE));
    if (given(call, A_SCALE)) HT_TRY(ht_need_float(ctx, call, A_SCALE));
    if (a->rank < 2) HT_FAIL(ctx, HT_ESHAPE, "a is %s, not a matrix", ht_type_str(a, &text));
    if (scale->rank != 2) HT_FAIL(ctx, HT_ESHAPE, "scale is %s, not [groups, n]", ht_type_str(scale, &text));
    if (bits != 4 && bits != 8) HT_FAIL(ctx, HT_EINVAL, "codes of %" PRId64 " bits, not 4 or 8", bits);
    if (group < 1) HT_FAIL(ctx, HT_EINVAL, "a group of %" PRId64 " inputs", group);
    if (codes->dtype != HT_I32) HT_FAIL(ctx, HT_EDTYPE, "codes is %s, not i32", ht_type_str(codes, &text));
    if (zero && zero->dtype != HT_U8) HT_FAIL(ctx, HT_EDTYPE, "zero is %s, not u8", ht_type_str(zero, &text));
    int64_t k = inner_size(call), n = scale->dim[1], grid[2] = {ht_nbits_groups(k, group), n};
    ht_type words = ht_nbits_type((int)bits, k, n);
    HT_TRY(need_shape(ctx, call, CODES, "codes", 2, words.dim));
    HT_TRY(need_shape(ctx, call, SCALE, "scale", 2, grid));
    HT_TRY(need_shape(ctx, call, ZERO, "zero", 2, grid));
    HT_TRY(need_shape(ctx, call, A_SCALE, "a_scale", 1, &k));
    out[0] = ht_type_make(a->dtype, a->rank, a->dim);
    out[0].dim[a->rank - 1] = n;
    ht_type_row_major(&out[0]);
    return HT_OK;
}

static void matmul_nbits_cost(const ht_call *call, ht_cost *cost)
{
    cost->dot_flops = 2.0 * (double)ht_type_elems(call->out[0]) * (double)inner_size(call);
}

/* ---- reference ---- */

static double weight_of(const ht_call *call, const double *const *in, int64_t row, int64_t column)
{
    int bits = (int)ht_call_int(call, "bits"), shift;
    int64_t n = call->in[SCALE]->dim[1], at = row / ht_call_int(call, "group") * n + column;
    uint32_t word = (uint32_t)(int32_t)in[CODES][ht_nbits_at(bits, n, row, column, &shift)];
    double code = (double)(word >> shift & ((1u << bits) - 1));
    double zero = given(call, ZERO) ? in[ZERO][at] : ht_nbits_middle(bits);
    return (code - zero) * in[SCALE][at];
}

static void matmul_nbits_ref(const ht_call *call, const double *const *in, double *const *out)
{
    int64_t k = inner_size(call), n = call->in[SCALE]->dim[1];
    for (int64_t i = 0; i < ht_type_elems(call->out[0]); i++) {
        double sum = 0;
        for (int64_t row = 0; row < k; row++) {
            double x = in[A][i / n * k + row] * (given(call, A_SCALE) ? in[A_SCALE][row] : 1);
            sum += x * weight_of(call, in, row, i % n);
        }
        out[0][i] = sum;
    }
}

static const ht_attr_def matmul_nbits_attrs[] = {HT_DEF_INT("bits", 4), HT_DEF_INT("group", 64), HT_DEF_END};

#define WORDS(rows, n)    "i32[" #rows "," #n "] -2147483648..2147483647"
#define SCALES(groups, n) "f32[" #groups "," #n "] 0.01..0.05"
#define ZEROS(groups, n)  "u8[" #groups "," #n "] "
static const char *const matmul_nbits_samples[] = {
    "(f32[3,64], " WORDS(8, 32) ", " SCALES(1, 32) ")",
    "(f32[3,64], " WORDS(16, 32) ", " SCALES(1, 32) ") bits=8",
    /* single rows */
    "(f32[1,130], " WORDS(17, 70) ", " SCALES(3, 70) ", " ZEROS(3, 70) "0..15)",
    "(f32[1,130], " WORDS(33, 70) ", " SCALES(3, 70) ", " ZEROS(3, 70) "0..255, f32[130]) bits=8",
    "(f32[1,1,33], " WORDS(5, 33) ", " SCALES(9, 33) ", _, f32[33]) group=4",
    "(f32[1,5], " WORDS(1, 1) ", " SCALES(5, 1) ", " ZEROS(5, 1) "0..15) group=1",
    /* odd sizes, groups that do not divide k, a group larger than k */
    "(f32[2,3,37], " WORDS(5, 41) ", " SCALES(4, 41) ", _, f32[37]) group=10",
    "(f32[5,37], " WORDS(10, 41) ", " SCALES(4, 41) ", " ZEROS(4, 41) "0..255) group=10 bits=8",
    "(f32[2,7], " WORDS(1, 2) ", " SCALES(1, 2) ", " ZEROS(1, 2) "0..15) group=1000",
    /* several blocks of k and tiles of columns */
    "(f32[9,1100], " WORDS(138, 300) ", " SCALES(18, 300) ", " ZEROS(18, 300) "0..15, f32[1100] 0.5..2)",
    "(f32[1,1100], " WORDS(138, 290) ", " SCALES(35, 290) ") group=32",
    /* nothing */
    "(f32[3,0], i32[0,2], f32[0,2])",
    "(f32[1,0], i32[0,2], f32[0,2])",
    "(f32[0,3], i32[1,2], f32[1,2])",
    "(f32[3,3], i32[1,0], f32[1,0]) bits=8",
    NULL,
};

const ht_op ht_op_matmul_nbits = {
    .size = sizeof(ht_op),
    .name = "matmul_nbits",
    .prec = HT_PREC_DOT,
    .fuse = HT_FUSE_DOT,
    .flags = HT_OP_NO_FOLD,
    .min_in = 3,
    .max_in = 5,
    .n_out = 1,
    .half_in = 1u << A,
    .attrs = matmul_nbits_attrs,
    .infer = matmul_nbits_infer,
    .cost = matmul_nbits_cost,
    .no_grad = "codes have none: it is put into models that were trained before",
    .ref = matmul_nbits_ref,
    .samples = matmul_nbits_samples,
};
