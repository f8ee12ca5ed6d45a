/* The moving ops where samples do not reach: views of views, the copy kernel on any strides, indices far outside, and
 * attributes that nobody should write. */
#include "op_tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/move/strided.h"

extern const ht_op ht_op_reshape, ht_op_permute, ht_op_slice, ht_op_unslice, ht_op_dynamic_slice,
    ht_op_dynamic_update_slice, ht_op_expand, ht_op_concat, ht_op_pad, ht_op_gather, ht_op_scatter_add, ht_op_one_hot,
    ht_op_embedding, ht_op_embedding_grad;
extern const ht_kernel ht_kernel_copy, ht_kernel_gather, ht_kernel_embedding, ht_kernel_one_hot;

/* ---- views ---- */

static bool reshape_is_view(ht_type in, ht_type *out)
{
    int64_t offset = -1;
    const ht_type *types[] = {&in};
    ht_call call = {.op = &ht_op_reshape, .n_in = 1, .in = types};
    bool view = ht_op_reshape.view(&call, out, &offset);
    if (view) assert_int_equal(offset, 0);
    return view;
}

static ht_type type_with(int rank, const int64_t *dims, const int64_t *strides)
{
    ht_type type = ht_type_make(HT_F32, rank, dims);
    memcpy(type.stride, strides, (size_t)rank * sizeof *strides);
    return type;
}

static void reshape__of_a_transposed_value_is_no_view(void **state)
{
    (void)state;
    ht_type transposed = type_with(2, (int64_t[]){3, 4}, (int64_t[]){1, 3});
    ht_type flat = ht_type_make(HT_F32, HT_DIMS(12)), other = ht_type_make(HT_F32, HT_DIMS(4, 3));
    assert_false(reshape_is_view(transposed, &flat));
    assert_false(reshape_is_view(transposed, &other));
}

static void reshape__splits_and_merges_axes_that_run_on(void **state)
{
    (void)state;
    /* [2,3,4] with the first axis apart: the other two merge. */
    ht_type gapped = type_with(3, (int64_t[]){2, 3, 4}, (int64_t[]){100, 4, 1});
    ht_type rows = ht_type_make(HT_F32, HT_DIMS(2, 12)), flat = ht_type_make(HT_F32, HT_DIMS(24));
    assert_true(reshape_is_view(gapped, &rows));
    assert_int_equal(rows.stride[0], 100);
    assert_int_equal(rows.stride[1], 1);
    assert_false(reshape_is_view(gapped, &flat));
    /* A strided axis splits, also around sizes of 1. */
    ht_type strided = type_with(2, (int64_t[]){6, 1}, (int64_t[]){5, 77});
    ht_type split = ht_type_make(HT_F32, HT_DIMS(1, 2, 1, 3, 1));
    assert_true(reshape_is_view(strided, &split));
    assert_int_equal(split.stride[1], 15);
    assert_int_equal(split.stride[3], 5);
    /* Axes that repeat one element run on. */
    ht_type repeated = type_with(2, (int64_t[]){3, 4}, (int64_t[]){0, 0});
    ht_type both = ht_type_make(HT_F32, HT_DIMS(2, 6));
    assert_true(reshape_is_view(repeated, &both));
    assert_int_equal(both.stride[0], 0);
    assert_int_equal(both.stride[1], 0);
}

static void reshape__of_scalars_and_empty_values_is_a_view(void **state)
{
    (void)state;
    ht_type ones = type_with(2, (int64_t[]){1, 1}, (int64_t[]){9, 9}), scalar = ht_type_make(HT_F32, 0, NULL);
    assert_true(reshape_is_view(ones, &scalar));
    ht_type empty = type_with(2, (int64_t[]){0, 3}, (int64_t[]){1, 7}), other = ht_type_make(HT_F32, HT_DIMS(5, 0));
    assert_true(reshape_is_view(empty, &other));
}

static int64_t element(const ht_type *type, int64_t flat)
{
    int64_t at = 0;
    for (int i = type->rank - 1; i >= 0; i--) {
        at += flat % type->dim[i] * type->stride[i];
        flat /= type->dim[i];
    }
    return at;
}

/* Row-major, axes reversed in memory, gaps. */
static void lay_out(ht_type *type, int how)
{
    int64_t stride = how == 2 ? 3 : 1;
    for (int i = 0; i < type->rank; i++) {
        int axis = how == 1 ? i : type->rank - 1 - i;
        type->stride[axis] = stride;
        stride *= type->dim[axis];
    }
}

/* Every view rule on every sample and three layouts: the element that the view says is the one that the reference
 * takes. */
static void views__address_what_the_reference_takes(void **state)
{
    (void)state;
    static const ht_op *const ops[] = {&ht_op_reshape, &ht_op_permute, &ht_op_slice, &ht_op_expand};
    for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++)
        for (size_t s = 0; ops[o]->samples[s]; s++)
            for (int how = 0; how < 3; how++) {
                op_case c;
                op_arrays a;
                op_case_parse(&c, ops[o], ops[o]->samples[s]);
                assert_true(op_case_build(&c));
                op_arrays_make(&a, &c);
                lay_out(&c.in_type[0], how);
                for (int64_t k = 0; k < ht_type_elems(&c.in_type[0]); k++)
                    a.in[0][k] = (double)element(&c.in_type[0], k);
                op_arrays_reference(&a, &c);
                ht_type view = c.out_type[0];
                int64_t offset;
                bool is_view = ops[o]->view(c.call, &view, &offset);
                if (!is_view && ops[o] != &ht_op_reshape) op_case_fail(&c, "is always a view");
                for (int64_t k = 0; is_view && k < ht_type_elems(&view); k++)
                    if (offset + element(&view, k) != (int64_t)a.out[0][k])
                        op_case_fail(&c, "layout %d: element %lld is at %lld, not %.0f", how, (long long)k,
                                     (long long)(offset + element(&view, k)), a.out[0][k]);
                op_case_free(&c);
            }
}

/* ---- the copy kernel ---- */

static uint32_t draw(uint64_t *at)
{
    ht_stream stream = {.seed = 11, .site = ht_hash_text("test_op_move")};
    return ht_stream_word(&stream, (*at)++);
}

/* A layout without overlap: axes in any order, gaps between them. Returns the elements that it spans. */
static int64_t random_layout(ht_type *type, uint64_t *at)
{
    int order[HT_MAX_RANK];
    int64_t stride = 1 + (draw(at) % 4 == 0);
    for (int i = 0; i < type->rank; i++) {
        int j = (int)(draw(at) % (uint32_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    if (draw(at) % 3 == 0)
        for (int i = 0; i < type->rank; i++) order[i] = type->rank - 1 - i;
    for (int i = 0; i < type->rank; i++) {
        type->stride[order[i]] = stride;
        stride *= type->dim[order[i]];
        if (draw(at) % 3 == 0) stride += draw(at) % 3;
    }
    return stride + 2;
}

static void check_copy(ht_type from, ht_type to, int64_t from_elems, int64_t to_elems, ht_pool *pool)
{
    size_t bytes = ht_dtype_bytes(from.dtype);
    size_t capacity = (size_t)to_elems * bytes;
    unsigned char *x = malloc((size_t)from_elems * bytes), *y = malloc(capacity), *right = malloc(capacity);
    assert_true(x && y && right);
    for (size_t i = 0; i < (size_t)from_elems * bytes; i++) x[i] = (unsigned char)(i * 37 + i / 251);
    memset(y, 0xA5, capacity);
    memset(right, 0xA5, capacity);
    for (int64_t k = 0; k < ht_type_elems(&from); k++)
        memcpy(right + (size_t)element(&to, k) * bytes, x + (size_t)element(&from, k) * bytes, bytes);
    const ht_type *in_types[] = {&from}, *out_types[] = {&to};
    ht_call call = {.n_in = 1, .n_out = 1, .in = in_types, .out = out_types};
    const void *in[] = {x};
    void *out[] = {y};
    assert_null(ht_kernel_copy.can(&call, NULL));
    ht_kernel_copy.run(&(ht_launch){.call = &call, .in = in, .out = out, .pool = pool});
    assert_memory_equal(y, right, capacity);
    free(x);
    free(y);
    free(right);
}

static void copy__agrees_with_a_plain_loop_for_any_strides(void **state)
{
    (void)state;
    static const ht_dtype dtypes[] = {HT_BOOL, HT_BF16, HT_F32, HT_F64};
    ht_pool *pool = ht_pool_create(3);
    assert_non_null(pool);
    uint64_t at = 0;
    for (int round = 0; round < 400; round++) {
        ht_type from = {.dtype = dtypes[round % 4], .rank = (int32_t)(draw(&at) % (HT_MAX_RANK + 1))};
        for (int i = 0; i < from.rank; i++) from.dim[i] = from.rank > 4 ? 1 + draw(&at) % 3 : 1 + draw(&at) % 9;
        if (from.rank && draw(&at) % 20 == 0) from.dim[draw(&at) % (uint32_t)from.rank] = 0;
        ht_type to = from;
        int64_t from_elems = random_layout(&from, &at), to_elems = random_layout(&to, &at);
        if (from.rank && round % 5 == 0) from.stride[draw(&at) % (uint32_t)from.rank] = 0;
        check_copy(from, to, from_elems, to_elems, round % 2 ? pool : NULL);
    }
    ht_pool_free(pool);
}

/* Shapes that cross the bounds of blocks and tiles: long runs, transposed planes, planes of planes. */
static void copy__agrees_with_a_plain_loop_for_large_arrays(void **state)
{
    (void)state;
    static const struct {
        int rank;
        int64_t dims[3], from[3];
    } shapes[] = {
        {1, {70000}, {1}},
        {1, {70000}, {2}},
        {1, {70000}, {0}},
        {2, {2100, 67}, {1, 2100}},
        {2, {67, 2100}, {1, 70}},
        {2, {300, 300}, {301, 1}},
        {2, {5000, 3}, {7, 2}},
        {3, {5, 90, 110}, {9900, 1, 90}},
        {3, {90, 5, 110}, {1, 90, 450}},
        {3, {7, 90, 33}, {33, 231, 1}},
    };
    static const ht_dtype dtypes[] = {HT_U8, HT_F16, HT_I32, HT_I64};
    ht_pool *pool = ht_pool_create(2);
    assert_non_null(pool);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (size_t d = 0; d < 4; d++) {
            ht_type from = ht_type_make(dtypes[d], shapes[s].rank, shapes[s].dims), to = from;
            int64_t last = 0;
            for (int i = 0; i < from.rank; i++) {
                from.stride[i] = shapes[s].from[i];
                last += (from.dim[i] - 1) * from.stride[i];
            }
            check_copy(from, to, last + 1, ht_type_elems(&to), pool);
            check_copy(to, to, ht_type_elems(&to), ht_type_elems(&to), pool);
            if (shapes[s].from[0]) check_copy(to, from, ht_type_elems(&to), last + 1, pool);
        }
    ht_pool_free(pool);
}

/* ---- indices outside ---- */

static void lookups__give_zeros_for_indices_outside(void **state)
{
    (void)state;
    const int64_t index[] = {0, -1, 2, 3, INT64_MIN, INT64_MAX, INT64_C(1) << 32, 1};
    const float table[] = {10, 11, 20, 21, 30, 31}, column[] = {10, 20, 30};
    const float rows[] = {10, 11, 0, 0, 30, 31, 0, 0, 0, 0, 0, 0, 0, 0, 20, 21};
    const float elements[] = {10, 0, 30, 0, 0, 0, 0, 20};
    float y[24];
    ht_type table_type = ht_type_make(HT_F32, HT_DIMS(3, 2)), column_type = ht_type_make(HT_F32, HT_DIMS(3));
    ht_type index_type = ht_type_make(HT_I64, HT_DIMS(8)), out_type = ht_type_make(HT_F32, HT_DIMS(8, 2));
    ht_type line_type = ht_type_make(HT_F32, HT_DIMS(8)), hot_type = ht_type_make(HT_F32, HT_DIMS(8, 3));
    ht_attr axis = HT_INT("axis", 0);
    axis.key = ht_op_gather.attrs[0].key;
    ht_call call = {.op = &ht_op_embedding, .n_in = 2, .n_out = 1};
    call.in = (const ht_type *[]){&table_type, &index_type};
    call.out = (const ht_type *[]){&out_type};
    ht_launch launch = {.call = &call, .in = (const void *[]){table, index}, .out = (void *[]){y}};
    ht_kernel_embedding.run(&launch);
    assert_memory_equal(y, rows, sizeof rows);

    call = (ht_call){.op = &ht_op_gather, .n_in = 2, .n_out = 1, .n_attr = 1, .attr = &axis};
    call.in = (const ht_type *[]){&column_type, &index_type};
    call.out = (const ht_type *[]){&line_type};
    launch.in = (const void *[]){column, index};
    ht_kernel_gather.run(&launch);
    assert_memory_equal(y, elements, sizeof elements);

    call = (ht_call){.op = &ht_op_one_hot, .n_in = 1, .n_out = 1};
    call.in = (const ht_type *[]){&index_type};
    call.out = (const ht_type *[]){&hot_type};
    launch.in = (const void *[]){index};
    ht_kernel_one_hot.run(&launch);
    for (int i = 0; i < 8; i++)
        for (int d = 0; d < 3; d++) assert_true(y[i * 3 + d] == (index[i] == d));
}

/* ---- refusals ---- */

static void shape_rules__refuse_hostile_calls(void **state)
{
    (void)state;
    static const struct {
        const ht_op *op;
        const char *line;
    } bad[] = {
        {&ht_op_reshape, "(f32[4,5]) -> f32[4,6]"},
        {&ht_op_reshape, "(f32[4]) -> i32[4]"},
        {&ht_op_permute, "(f32[4,5]) order=[0]"},
        {&ht_op_permute, "(f32[4,5]) order=[1,1]"},
        {&ht_op_permute, "(f32[4,5]) order=[0,2]"},
        {&ht_op_permute, "(f32[4,5]) order=[-1,9223372036854775807]"},
        {&ht_op_slice, "(f32[4,5]) -> f32[4,5] start=[1,0]"},
        {&ht_op_slice, "(f32[4]) -> f32[2] start=[-1]"},
        {&ht_op_slice, "(f32[4]) -> f32[2] step=[0]"},
        {&ht_op_slice, "(f32[4]) -> f32[2] step=[-2]"},
        {&ht_op_slice, "(f32[4]) -> f32[2] start=[1] step=[9223372036854775807]"},
        {&ht_op_slice, "(f32[4]) -> f32[0] start=[5]"},
        {&ht_op_slice, "(f32[4]) -> f32[2] start=[0,0]"},
        {&ht_op_slice, "(f32[4]) -> f32[2,1]"},
        {&ht_op_dynamic_slice, "(f32[4,5], i64[]) rows=5"},
        {&ht_op_dynamic_slice, "(f32[4,5], i64[]) rows=-1"},
        {&ht_op_dynamic_slice, "(f32[4,5], i32[]) rows=2"},
        {&ht_op_dynamic_slice, "(f32[], i64[]) rows=0"},
        {&ht_op_dynamic_update_slice, "(f32[4,5], f32[5,5], i64[])"},
        {&ht_op_dynamic_update_slice, "(f32[4,5], f32[2,4], i64[])"},
        {&ht_op_dynamic_update_slice, "(f32[4,5], f64[2,5], i64[])"},
        {&ht_op_dynamic_update_slice, "(f32[4,5], f32[2,5], i64[1])"},
        {&ht_op_unslice, "(f32[4]) -> f32[3]"},
        {&ht_op_unslice, "(f32[4]) -> f32[6] step=[2]"},
        {&ht_op_expand, "(f32[4]) -> f32[3]"},
        {&ht_op_expand, "(f32[1,4]) -> f32[4]"},
        {&ht_op_expand, "(f32[0]) -> f32[3]"},
        {&ht_op_concat, "(f32[2,3], f32[2,4])"},
        {&ht_op_concat, "(f32[2], i32[2])"},
        {&ht_op_concat, "(f32[])"},
        {&ht_op_concat, "(f32[2], _, f32[2])"},
        {&ht_op_concat, "(f32[2]) axis=1"},
        {&ht_op_pad, "(f32[2]) before=[-1]"},
        {&ht_op_pad, "(f32[2]) after=[1,1]"},
        {&ht_op_pad, "(f32[2]) before=[9223372036854775807] after=[9223372036854775807]"},
        {&ht_op_pad, "(f32[2]) before=[9000000000000000000]"},
        {&ht_op_gather, "(f32[3,4], i32[2,5])"},
        {&ht_op_gather, "(f32[3,4], i32[2])"},
        {&ht_op_gather, "(f32[3], f32[2])"},
        {&ht_op_gather, "(f32[], i32[])"},
        {&ht_op_scatter_add, "(i32[3], f32[3]) size=-1"},
        {&ht_op_scatter_add, "(i32[3], f32[3]) size=9223372036854775807"},
        {&ht_op_scatter_add, "(i32[3], f32[4]) size=2"},
        {&ht_op_one_hot, "(i32[3]) -> f32[4,2]"},
        {&ht_op_one_hot, "(f32[3]) -> f32[3,2]"},
        {&ht_op_embedding, "(f32[3], i32[2])"},
        {&ht_op_embedding, "(f32[3,2], i32[1,1,1,1,1,1,1,1])"},
        {&ht_op_embedding_grad, "(i32[3], f32[3,2]) rows=-1"},
        {&ht_op_embedding_grad, "(i32[3], f32[3,2]) rows=9223372036854775807"},
        {&ht_op_embedding_grad, "(i32[3], f32[2,2]) rows=4"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        op_case c;
        op_case_parse(&c, bad[i].op, bad[i].line);
        if (op_case_build(&c)) op_case_fail(&c, "is accepted");
        if (!ht_context_message(context_shared())[0]) op_case_fail(&c, "is refused without a word");
        op_case_free(&c);
    }
}

static void builders__refuse_and_pass_on(void **state)
{
    (void)state;
    ht_graph *g;
    assert_int_equal(ht_graph_create(&g, context_shared()), HT_OK);
    ht_val x = ht_input(g, "x", HT_F32, HT_DIMS(2, 3, 4));
    assert_int_equal(ht_reshape(g, x, 3, (int64_t[]){2, 3, 4}).id, x.id);
    assert_int_equal(ht_permute(g, x, 3, (int64_t[]){0, -2, -1}).id, x.id);
    assert_int_equal(ht_expand(g, x, 3, (int64_t[]){2, 3, 4}).id, x.id);
    ht_val flat = ht_reshape(g, x, 2, (int64_t[]){-1, 6});
    assert_int_equal(ht_val_dims(g, flat)[0], 4);
    assert_int_equal(ht_val_dims(g, ht_transpose(g, x, 0, -1))[0], 4);
    assert_int_equal(ht_val_dims(g, ht_slice_axis(g, x, -1, 1, 2))[2], 2);
    assert_int_equal(ht_graph_status(g), HT_OK);
    assert_int_equal(ht_reshape(g, x, 2, (int64_t[]){-1, 5}).id, 0);
    assert_int_equal(ht_graph_status(g), HT_ESHAPE);
    ht_graph_free(g);
}

/* By hand: the pair, its gradient and the gradient of that, in the space of what they belong to. */
static void a_copy_in_two_parts__has_the_gradient_of_a_copy(void **state)
{
    (void)state;
    ht_graph *g;
    ht_context *ctx = context_shared();
    assert_int_equal(ht_graph_create(&g, ctx), HT_OK);
    ht_val x = ht_input(g, "x", HT_F64, HT_DIMS(3)), grad, second;
    ht_type there = *ht_type_of(g, x);
    there.space = HT_SPACE_HOST;
    ht_val t = ht_emit1(g, "copy_start", &there, HT_VALS(x), HT_NO_ATTRS);
    ht_val y = ht_emit1(g, "copy_done", NULL, HT_VALS(t, x), HT_NO_ATTRS);
    ht_val loss = ht_sum(g, ht_mul(g, ht_mul(g, y, y), y), 0, NULL, false);
    assert_int_equal(ht_gradients(g, loss, 1, &x, &grad), HT_OK);
    assert_int_equal(ht_type_of(g, grad)->space, HT_SPACE_MAIN);
    assert_int_equal(ht_gradients(g, ht_sum(g, grad, 0, NULL, false), 1, &x, &second), HT_OK);
    context_must(ctx, ht_graph_verify(g));
    ht_reference *ref;
    assert_int_equal(ht_reference_create(&ref, g, false, 1), HT_OK);
    for (int i = 0; i < 3; i++) ht_reference_value(ref, x)[i] = i + 1;
    assert_int_equal(ht_reference_run(ref, 0), HT_OK);
    for (int i = 0; i < 3; i++) {
        assert_true(ht_reference_value(ref, grad)[i] == 3 * (i + 1) * (i + 1));
        assert_true(ht_reference_value(ref, second)[i] == 6 * (i + 1));
    }
    ht_reference_free(ref);
    ht_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reshape__of_a_transposed_value_is_no_view),
        cmocka_unit_test(reshape__splits_and_merges_axes_that_run_on),
        cmocka_unit_test(reshape__of_scalars_and_empty_values_is_a_view),
        cmocka_unit_test(views__address_what_the_reference_takes),
        cmocka_unit_test(copy__agrees_with_a_plain_loop_for_any_strides),
        cmocka_unit_test(copy__agrees_with_a_plain_loop_for_large_arrays),
        cmocka_unit_test(lookups__give_zeros_for_indices_outside),
        cmocka_unit_test(shape_rules__refuse_hostile_calls),
        cmocka_unit_test(builders__refuse_and_pass_on),
        cmocka_unit_test(a_copy_in_two_parts__has_the_gradient_of_a_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
