/* embedding_q: rows of a table of codes, by index, as numbers: table i8[V,D], scale f32[], f32[V] or f32[V,1], index [..] → f32[..,D].
 * A number is its code times the scale of its row. An index out of range gives zeros. */
#include "op/op.h"
#include "op/view.h"

enum { TABLE, SCALE, INDEX };

static ht_status need_scale(ht_context *ctx, const ht_call *call)
{
    ht_type_text text;
    const ht_type *scale = call->in[SCALE];
    int64_t rows = call->in[TABLE]->dim[0];
    bool one = scale->rank == 0, column = scale->rank == 2 && scale->dim[0] == rows && scale->dim[1] == 1;
    bool list = scale->rank == 1 && scale->dim[0] == rows;
    if (scale->dtype == HT_F32 && (one || list || column)) return HT_OK;
    HT_FAIL(ctx, scale->dtype == HT_F32 ? HT_ESHAPE : HT_EDTYPE,
            "scale is %s, not a single f32 or one for each row of the table", ht_type_str(scale, &text));
}

static ht_status embedding_q_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    ht_type_text text;
    const ht_type *table = call->in[TABLE], *index = call->in[INDEX];
    if (table->dtype != HT_I8 || table->rank != 2)
        HT_FAIL(ctx, HT_EDTYPE, "the table is %s, not a matrix of i8", ht_type_str(table, &text));
    HT_TRY(need_scale(ctx, call));
    HT_TRY(ht_need_int(ctx, call, INDEX));
    if (index->rank == HT_MAX_RANK)
        HT_FAIL(ctx, HT_ESHAPE, "an index of rank %d leaves no axis for the rows", HT_MAX_RANK);
    out[0] = *index;
    out[0].dtype = HT_F32;
    out[0].dim[out[0].rank++] = table->dim[1];
    return HT_OK;
}

/* As embedding: only the rows that the index names, and their scales. */
static void embedding_q_cost(const ht_call *call, ht_cost *cost)
{
    const ht_type *table = call->in[TABLE], *scale = call->in[SCALE], *index = call->in[INDEX];
    int64_t rows = ht_type_distinct_bytes(index) / (int64_t)ht_dtype_bytes(index->dtype);
    double all = (double)ht_type_distinct_bytes(table), read = ht_cost_rows(table, rows);
    if (scale->rank) all += (double)ht_type_distinct_bytes(scale), read += ht_cost_rows(scale, rows);
    cost->bytes -= all - read; /* at once: a huge table leaves nothing of the scales' bytes in the sum */
    cost->other_flops = 2 * (double)ht_type_elems(call->out[0]);
}

static void embedding_q_ref(const ht_call *call, const double *const *in, double *const *out)
{
    int64_t n = ht_type_elems(call->in[INDEX]), rows = call->in[TABLE]->dim[0], columns = call->in[TABLE]->dim[1];
    for (int64_t i = 0; i < n; i++) {
        int64_t row = ht_place_of(in[INDEX][i], rows);
        float scale = row >= 0 ? (float)in[SCALE][call->in[SCALE]->rank ? row : 0] : 0;
        for (int64_t c = 0; c < columns; c++)
            out[0][i * columns + c] = row >= 0 ? (double)((float)in[TABLE][row * columns + c] * scale) : 0;
    }
}

static const char *const embedding_q_samples[] = {
    "(i8[7,4] -128..127, f32[7] 0.01..0.1, i32[5] 0..6)",
    "(i8[5,3] -128..127, f32[5,1] 0.01..0.1, i64[2,4] 0..4)",
    "(i8[4,3] -128..127, f32[], i32[] 0..3)",
    "(i8[4,3] -128..127, f32[4], i32[6] -2..6)",
    "(i8[5,3] -128..127, f32[5], i32[0])",
    "(i8[0,3], f32[0], i32[2])",
    "(i8[3,0], f32[3], i32[4] 0..2)",
    "(i8[50,70] -128..127, f32[50,1] 0.01..0.1, i32[40] 0..49)",
    NULL,
};

const ht_op ht_op_embedding_q = {
    .size = sizeof(ht_op),
    .name = "embedding_q",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_NONE,
    .flags = HT_OP_NO_FOLD,
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .infer = embedding_q_infer,
    .cost = embedding_q_cost,
    .no_grad = "rounding has none: it is put into models that were trained before",
    .ref = embedding_q_ref,
    .samples = embedding_q_samples,
};
