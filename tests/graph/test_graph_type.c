/* How the elements of a type lie: orders of axes, gaps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/type.h"

static ht_type make(int64_t n, int64_t c, int64_t h, int64_t w)
{
    return ht_type_make(HT_F32, HT_DIMS(n, c, h, w));
}

static void channels_last__puts_channels_innermost(void **state)
{
    (void)state;
    ht_type type = make(2, 3, 4, 5);
    assert_false(ht_type_is_channels_last(&type));
    ht_type_channels_last(&type);
    assert_true(type.stride[0] == 60 && type.stride[1] == 1 && type.stride[2] == 15 && type.stride[3] == 3);
    assert_true(ht_type_is_channels_last(&type));
    assert_false(ht_type_contiguous(&type));
    type.stride[2] = 16; /* a gap */
    assert_false(ht_type_is_channels_last(&type));
}

/* One channel, one position, nothing at all: row-major is as good. */
static void channels_last__is_not_what_is_row_major_as_well(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{2, 1, 4, 5}, {2, 7, 1, 1}, {2, 3, 0, 5}, {0, 3, 4, 5}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ht_type type = make(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]), last = type;
        ht_type_channels_last(&last);
        assert_false(ht_type_is_channels_last(&last));
        assert_int_equal(ht_type_same_strides(&type, &last), i < 2);
        assert_true(ht_type_dense(&last));
    }
}

static void dense__knows_any_order_but_no_gaps_and_no_repetition(void **state)
{
    (void)state;
    ht_type type = make(2, 3, 4, 5);
    assert_true(ht_type_dense(&type));
    type.stride[0] = 1, type.stride[1] = 2, type.stride[2] = 6, type.stride[3] = 24; /* reversed */
    assert_true(ht_type_dense(&type));
    type.stride[3] = 48;
    assert_false(ht_type_dense(&type));
    type = make(2, 3, 4, 5);
    type.stride[0] = 0; /* expanded */
    assert_false(ht_type_dense(&type));
    type = make(1, 1, 1, 1);
    type.stride[2] = 17; /* of a size of 1: any */
    assert_true(ht_type_dense(&type));
}

/* Of [2, 6, 2] with three blocks of two along axis 1: each rank has one of each. */
static void cut__pieces_make_the_whole(void **state)
{
    (void)state;
    float whole[24], piece[12], again[24] = {0};
    ht_type type = ht_type_make(HT_F32, HT_DIMS(2, 6, 2));
    for (int i = 0; i < 24; i++) whole[i] = (float)i;
    for (int64_t rank = 0; rank < 2; rank++) {
        ht_cut cut = {.axis = 1, .blocks = 3, .ranks = 2, .rank = rank};
        assert_true(ht_cut_fits(&cut, &type));
        ht_type own = ht_cut_type(&cut, &type);
        assert_true(own.dim[0] == 2 && own.dim[1] == 3 && own.dim[2] == 2 && own.stride[0] == 6);
        ht_cut_take(&cut, &type, whole, piece);
        assert_true(piece[0] == 2 * (float)rank && piece[2] == 4 + 2 * (float)rank && piece[6] == 12 + 2 * (float)rank);
        ht_cut_put(&cut, &type, piece, again);
    }
    assert_memory_equal(whole, again, sizeof whole);
}

static void cut__fits_where_blocks_divide(void **state)
{
    (void)state;
    ht_type type = ht_type_make(HT_F32, HT_DIMS(2, 6, 2));
    assert_false(ht_cut_fits(&(ht_cut){.axis = 1, .blocks = 1, .ranks = 4, .rank = 0}, &type));
    assert_false(ht_cut_fits(&(ht_cut){.axis = 1, .blocks = 3, .ranks = 6, .rank = 0}, &type));
    assert_false(ht_cut_fits(&(ht_cut){.axis = 1, .blocks = 4, .ranks = 1, .rank = 0}, &type));
    assert_false(ht_cut_fits(&(ht_cut){.axis = 3, .blocks = 1, .ranks = 2, .rank = 0}, &type));
    assert_false(ht_cut_fits(&(ht_cut){.axis = 0, .blocks = 1, .ranks = 2, .rank = 2}, &type));
    assert_true(ht_cut_fits(&(ht_cut){.axis = 1, .blocks = 2, .ranks = 3, .rank = 2}, &type));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(channels_last__puts_channels_innermost),
        cmocka_unit_test(channels_last__is_not_what_is_row_major_as_well),
        cmocka_unit_test(dense__knows_any_order_but_no_gaps_and_no_repetition),
        cmocka_unit_test(cut__pieces_make_the_whole),
        cmocka_unit_test(cut__fits_where_blocks_divide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
