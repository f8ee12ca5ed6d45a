/* matmul_q: a product of codes, y[..,m,n] = (sum over k of (a[..,m,k] - a_zero) w[k,n]) a_scale w_scale[n] + bias[n]. The sum is
 * exact. Inputs:
 *     a         u8 or i8; w: i8[k,n], or [n,k] with `tb`; its zero point is 0
 *     a_scale   f32[], or one for each row: the shape of a without its last axis
 *     w_scale   f32[], or f32[n]; also with the rank of w: f32[1,n], or [n,1] with `tb`
 *     a_zero    i32, as a_scale; left out: 0
 *     bias      f32[n]; left out: none
 *     y_scale, y_zero   f32[] and i32[], where y is codes itself: then it is quantize_linear of the above
 * What is done to a sum: it becomes f32, is multiplied by the product of its two scales, and the bias is added, each with one
 * rounding to nearest. */
#include "op/op.h"

#include <inttypes.h>

enum { A, W, A_SCALE, W_SCALE, A_ZERO, BIAS, Y_SCALE, Y_ZERO };
static const char *const names[] = {"a", "w", "a_scale", "w_scale", "a_zero", "bias", "y_scale", "y_zero"};

static const ht_type *given(const ht_call *call, size_t input)
{
    return input < call->n_in ? call->in[input] : NULL;
}

static int64_t inner_size(const ht_call *call)
{
    return call->in[A]->dim[call->in[A]->rank - 1];
}

static int64_t columns_of(const ht_call *call)
{
    return call->in[W]->dim[ht_call_int(call, "tb") ? 0 : 1];
}

/* ---- shapes ---- */

static ht_status need_operands(ht_context *ctx, const ht_call *call)
{
    ht_type_text text;
    const ht_type *a = call->in[A], *w = call->in[W];
    HT_TRY(ht_need_flag(ctx, call, "tb"));
    if (!ht_dtype_is_code(a->dtype) || a->rank < 2)
        HT_FAIL(ctx, HT_EDTYPE, "a is %s, not a matrix of u8 or i8", ht_type_str(a, &text));
    if (w->dtype != HT_I8 || w->rank != 2)
        HT_FAIL(ctx, HT_EDTYPE, "w is %s, not a matrix of i8", ht_type_str(w, &text));
    int64_t inner_w = w->dim[ht_call_int(call, "tb") ? 1 : 0];
    if (inner_size(call) != inner_w)
        HT_FAIL(ctx, HT_ESHAPE, "inner sizes differ: %" PRId64 " vs %" PRId64, inner_size(call), inner_w);
    if (inner_w > HT_MOST_CODE_PRODUCTS)
        HT_FAIL(ctx, HT_ESHAPE, "an inner size of %" PRId64 ": sums of i32 hold %d products", inner_w,
                HT_MOST_CODE_PRODUCTS);
    return HT_OK;
}

/* A single number, where that will do, or else of the shape. */
static ht_status need_numbers(ht_context *ctx, const ht_call *call, size_t input, bool single, const ht_type *shape)
{
    ht_type_text a, b;
    const ht_type *is = given(call, input);
    if (!is || (is->dtype == shape->dtype && ((single && is->rank == 0) || ht_type_same_shape(is, shape))))
        return HT_OK;
    HT_FAIL(ctx, is->dtype == shape->dtype ? HT_ESHAPE : HT_EDTYPE, "%s is %s, not %s%s", names[input],
            ht_type_str(is, &a), ht_type_str(shape, &b), single && shape->rank ? " or a single number" : "");
}

static ht_status need_all_numbers(ht_context *ctx, const ht_call *call)
{
    const ht_type *a = call->in[A];
    int64_t n = columns_of(call);
    ht_type row = ht_type_make(HT_F32, a->rank - 1, a->dim), row_zero = ht_type_make(HT_I32, a->rank - 1, a->dim);
    int64_t one_row[2] = {1, n}, one_column[2] = {n, 1};
    ht_type column = ht_type_make(HT_F32, 1, &n);
    ht_type matrix = ht_type_make(HT_F32, 2, ht_call_int(call, "tb") ? one_column : one_row);
    ht_type scale = ht_type_make(HT_F32, 0, NULL), zero = ht_type_make(HT_I32, 0, NULL);
    HT_TRY(need_numbers(ctx, call, A_SCALE, true, &row));
    bool keeps_rank = call->in[W_SCALE]->rank == 2;
    HT_TRY(need_numbers(ctx, call, W_SCALE, true, keeps_rank ? &matrix : &column));
    HT_TRY(need_numbers(ctx, call, A_ZERO, true, &row_zero));
    HT_TRY(need_numbers(ctx, call, BIAS, false, &column));
    HT_TRY(need_numbers(ctx, call, Y_SCALE, true, &scale));
    return need_numbers(ctx, call, Y_ZERO, true, &zero);
}

static ht_status matmul_q_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    ht_type_text text;
    HT_TRY(need_operands(ctx, call));
    HT_TRY(need_all_numbers(ctx, call));
    const ht_type *a = call->in[A];
    bool codes = ht_dtype_is_code(out[0].dtype);
    if (!codes && out[0].dtype != HT_F32)
        HT_FAIL(ctx, HT_EDTYPE, "the result is %s, not f32, i8 or u8", ht_dtype_name(out[0].dtype));
    if (codes && !given(call, Y_SCALE)) HT_FAIL(ctx, HT_EINVAL, "the result is codes, and y_scale is missing");
    if (!codes && (given(call, Y_SCALE) || given(call, Y_ZERO)))
        HT_FAIL(ctx, HT_EINVAL, "y_scale and y_zero are for results of i8 or u8, not %s", ht_type_str(&out[0], &text));
    ht_type want = ht_type_make(out[0].dtype, a->rank, a->dim);
    want.dim[a->rank - 1] = columns_of(call);
    if (!ht_type_same_shape(&out[0], &want))
        HT_FAIL(ctx, HT_ESHAPE, "the result is %s, not [.., m, %" PRId64 "]", ht_type_str(&out[0], &text),
                columns_of(call));
    return HT_OK;
}

static void matmul_q_cost(const ht_call *call, ht_cost *cost)
{
    cost->dot_flops = 2.0 * (double)ht_type_elems(call->out[0]) * (double)inner_size(call);
}

/* ---- reference ---- */

/* Element `index` of an input that may be a single number or left out. */
static double number(const ht_call *call, const double *const *in, size_t input, int64_t index)
{
    const ht_type *type = given(call, input);
    if (!type) return 0;
    return in[input][type->rank ? index : 0];
}

static float value_of(const ht_call *call, const double *const *in, int64_t row, int64_t column)
{
    bool tb = ht_call_int(call, "tb");
    int64_t k = inner_size(call), n = columns_of(call), sum = 0;
    int64_t zero = (int64_t)number(call, in, A_ZERO, row);
    for (int64_t i = 0; i < k; i++)
        sum += ((int64_t)in[A][row * k + i] - zero) * (int64_t)in[W][tb ? column * k + i : i * n + column];
    float scale = (float)number(call, in, A_SCALE, row) * (float)number(call, in, W_SCALE, column);
    float y = (float)(int32_t)sum * scale;
    return given(call, BIAS) ? y + (float)in[BIAS][column] : y;
}

static void matmul_q_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *y = call->out[0];
    int64_t n = columns_of(call);
    ht_coding coding = {0};
    if (ht_dtype_is_code(y->dtype))
        coding = ht_coding_of(y->dtype, (float)in[Y_SCALE][0], (int32_t)number(call, in, Y_ZERO, 0));
    for (int64_t i = 0; i < ht_type_elems(y); i++) {
        float value = value_of(call, in, i / n, i % n);
        out[0][i] = ht_dtype_is_code(y->dtype) ? ht_code_of(&coding, value) : (double)value;
    }
}

static const ht_attr_def matmul_q_attrs[] = {HT_DEF_INT("tb", 0), HT_DEF_END};

#define SCALES     "f32[] 0.003..0.02, f32[] 0.003..0.02"
#define U8         "0..255"
#define I8         "-128..127"
#define COLUMNS(n) "f32[" #n "] 0.001..0.02"
static const char *const matmul_q_samples[] = {
    "(u8[3,4] " U8 ", i8[4,5] " I8 ", " SCALES ") -> f32[3,5]",
    "(i8[3,4] " I8 ", i8[5,4] " I8 ", " SCALES ") -> f32[3,5] tb=1",
    "(u8[2,3,4] " U8 ", i8[4,5] " I8 ", f32[2,3] 0.01..0.02, " COLUMNS(5) ", i32[2,3] 0..255) -> f32[2,3,5]",
    "(u8[9,37] " U8 ", i8[37,9] " I8 ", f32[] 0.01..0.02, " COLUMNS(9) ", i32[] 128..128, f32[9]) -> f32[9,9]",
    "(u8[4,37] " U8 ", i8[37,9] " I8 ", f32[] 0.01..0.02, f32[1,9] 0.001..0.02) -> f32[4,9]",
    "(u8[4,37] " U8 ", i8[9,37] " I8 ", f32[] 0.01..0.02, f32[9,1] 0.001..0.02) -> f32[4,9] tb=1",
    "(u8[1,70] " U8 ", i8[70,40] " I8 ", f32[1] 0.01..0.02, " COLUMNS(40) ", i32[1] 0..255) -> f32[1,40]",
    "(u8[9,37] " U8 ", i8[37,9] " I8 ", " SCALES ", _, _, f32[] 0.5..1, i32[] 0..255) -> u8[9,9]",
    "(i8[9,37] " I8 ", i8[9,37] " I8 ", f32[9] 0.01..0.02, " COLUMNS(9) ", _, f32[9], f32[] 0.5..1) -> i8[9,9] tb=1",
    /* The largest sums, and codes beyond both ends. */
    "(u8[5,2050] 255..255, i8[2050,33] 127..127, " SCALES ") -> f32[5,33]",
    "(u8[5,2050] 255..255, i8[2050,33] -128..-128, f32[] 1..1, f32[] 1..1, _, _, f32[] 1..1) -> i8[5,33]",
    "(i8[5,130] -128..-128, i8[33,130] -128..-128, f32[] 1..1, f32[] 1..1, _, _, f32[] 1..1) -> u8[5,33] tb=1",
    "(u8[2,8] 0..1, i8[8,300] -1..1, f32[] 0.5..0.5, f32[] 1..1, _, _, f32[] 1..1, i32[] 7..7) -> u8[2,300]",
    "(i8[3,4] " I8 ", i8[4,5] " I8 ", " SCALES ", i32[3] -1000..1000) -> f32[3,5]",
    "(u8[3,0], i8[0,2], " SCALES ", i32[] 3..3, f32[2]) -> f32[3,2]",
    "(u8[0,3], i8[3,2], " SCALES ") -> f32[0,2]",
    "(u8[3,3], i8[3,0], " SCALES ") -> f32[3,0]",
    "(u8[75,300] " U8 ", i8[300,290] " I8 ", f32[75] 0.01..0.02, " COLUMNS(290) ", i32[75] 0..255) -> f32[75,290]",
    "(u8[40,1100] " U8 ", i8[45,1100] " I8
    ", f32[] 0.01..0.02, " COLUMNS(45) ", i32[] 9..9, f32[45], f32[] 1..2, i32[] "
                                       "99..99) -> u8[40,45] tb=1",
    NULL,
};

const ht_op ht_op_matmul_q = {
    .size = sizeof(ht_op),
    .name = "matmul_q",
    .prec = HT_PREC_DOT,
    .fuse = HT_FUSE_DOT,
    .flags = HT_OP_TYPED | HT_OP_NO_FOLD,
    .min_in = 4,
    .max_in = 8,
    .n_out = 1,
    .attrs = matmul_q_attrs,
    .infer = matmul_q_infer,
    .cost = matmul_q_cost,
    .no_grad = "rounding has none: it is put into models that were trained before",
    .ref = matmul_q_ref,
    .samples = matmul_q_samples,
};
