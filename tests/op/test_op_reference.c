/* The interpreter that everything else is measured against: state and its views, stores, first values, rounding. */
#include "op_tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sanitizers ask for these: an allocation that is too large shall fail, not stop the program. */
HT_API const char *__asan_default_options(void);
HT_API const char *__tsan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

/* A graph with its interpreter. */
typedef struct fixture {
    ht_graph *g;
    ht_reference *ref;
} fixture;

static fixture fixture_of_graph(ht_graph *g, bool round, uint64_t seed)
{
    fixture w = {.g = g};
    assert_int_equal(ht_graph_status(g), HT_OK);
    assert_int_equal(ht_graph_verify(g), HT_OK);
    assert_int_equal(ht_reference_create(&w.ref, g, round, seed), HT_OK);
    return w;
}

static void fixture_free(fixture *w)
{
    ht_reference_free(w->ref);
    ht_graph_free(w->g);
}

static ht_graph *new_graph(void)
{
    ht_graph *g;
    assert_int_equal(ht_graph_create(&g, context_shared()), HT_OK);
    return g;
}

static double *value(fixture *w, const char *name)
{
    double *data = ht_reference_value(w->ref, ht_find(w->g, name));
    assert_non_null(data);
    return data;
}

static void values_are_rounded_to_their_type_when_asked(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        ht_graph *g = new_graph();
        ht_val x = ht_input(g, "x", HT_F64, HT_DIMS(2));
        ht_output(g, "half", ht_cast(g, x, HT_F16));
        ht_output(g, "whole", ht_cast(g, x, HT_I32));
        fixture w = fixture_of_graph(g, round != 0, 0);
        memcpy(value(&w, "x"), (double[]){1.0001, -2.7}, 2 * sizeof(double));
        assert_int_equal(ht_reference_run(w.ref, 0), HT_OK);
        const double *half = ht_reference_output(w.ref, "half"), *whole = ht_reference_output(w.ref, "whole");
        assert_true(half[0] == (round ? 1.0 : 1.0001));
        assert_true(half[1] == (round ? ht_round_to(HT_F16, -2.7) : -2.7));
        assert_true(whole[0] == 1 && whole[1] == -2);
        assert_null(ht_reference_output(w.ref, "nothing"));
        fixture_free(&w);
    }
}

static void a_store_is_seen_by_the_next_run_only(void **state)
{
    (void)state;
    ht_graph *g = new_graph();
    ht_val count = ht_state_add(g, "count", HT_I64, 0, NULL, HT_CONSTANT(5));
    ht_val twice = ht_add(g, count, count);
    ht_output(g, "twice", twice);
    ht_store(g, count, twice);
    fixture w = fixture_of_graph(g, true, 0);
    for (double expected = 10; expected <= 40; expected *= 2) {
        assert_int_equal(ht_reference_run(w.ref, 0), HT_OK);
        assert_true(*ht_reference_output(w.ref, "twice") == expected);
        assert_true(*value(&w, "count") == expected);
    }
    fixture_free(&w);
}

static void a_program_runs_its_segments_in_order(void **state)
{
    (void)state;
    ht_graph *g = new_graph();
    ht_val x = ht_state_add(g, "x", HT_F32, 0, NULL, HT_CONSTANT(1));
    ht_segment_begin(g, "grow");
    ht_store(g, x, ht_scale(g, x, 3));
    uint32_t grow = g->segment;
    ht_segment_begin(g, "step");
    ht_store(g, x, ht_add_scalar(g, x, 1));
    ht_graph_add_program_call(g, "both", (ht_program_call){.segment = grow, .times = 2});
    ht_graph_add_program_call(g, "both", (ht_program_call){.segment = g->segment, .times = 1});
    fixture w = fixture_of_graph(g, true, 0);
    assert_int_equal(ht_reference_run_program(w.ref, "both"), HT_OK);
    assert_true(*value(&w, "x") == 10);
    assert_int_equal(ht_reference_run_program(w.ref, "neither"), HT_EINVAL);
    fixture_free(&w);
}

/* flat [6] with two views: rows [2,3] transposed as columns [3,2], and its last two elements. */
static void views_of_state_read_and_write_their_base(void **state)
{
    (void)state;
    ht_graph *g = new_graph();
    ht_val flat = ht_state_add(g, "flat", HT_F32, HT_DIMS(6), HT_ZERO);
    ht_val columns = ht_state_add(g, "columns", HT_F32, HT_DIMS(3, 2), HT_CONSTANT(7));
    g->values[columns.id].type.stride[0] = 1;
    g->values[columns.id].type.stride[1] = 3;
    ht_value_view(g, columns, flat, 0);
    ht_val tail = ht_state_add(g, "tail", HT_F32, HT_DIMS(2), HT_CONSTANT(9));
    ht_value_view(g, tail, flat, 4);
    ht_segment_begin(g, "read");
    ht_output(g, "seen", ht_neg(g, columns));
    ht_segment_begin(g, "write");
    ht_val rows = ht_input(g, "rows", HT_F32, HT_DIMS(3, 2));
    ht_store(g, columns, rows);
    fixture w = fixture_of_graph(g, true, 0);

    const double first[] = {7, 7, 7, 7, 9, 9};
    assert_memory_equal(value(&w, "flat"), first, sizeof first);
    memcpy(value(&w, "flat"), (double[]){0, 1, 2, 3, 4, 5}, 6 * sizeof(double));
    assert_true(value(&w, "tail")[0] == 4 && value(&w, "tail")[1] == 5);

    assert_int_equal(ht_reference_run(w.ref, (uint32_t)ht_segment_find(g, "read")), HT_OK);
    const double seen[] = {0, -3, -1, -4, -2, -5};
    for (size_t i = 0; i < 6; i++) assert_true(ht_reference_output(w.ref, "seen")[i] == seen[i]);

    memcpy(value(&w, "rows"), (double[]){10, 20, 11, 21, 12, 22}, 6 * sizeof(double));
    assert_int_equal(ht_reference_run(w.ref, (uint32_t)ht_segment_find(g, "write")), HT_OK);
    const double written[] = {10, 11, 12, 20, 21, 22};
    assert_memory_equal(value(&w, "flat"), written, sizeof written);
    value(&w, "tail")[1] = 99;
    assert_true(value(&w, "flat")[5] == 99);
    fixture_free(&w);
}

/* First values are those that the random ops draw at a site of the state's name. */
static void first_values_are_drawn_as_the_random_ops_draw(void **state)
{
    (void)state;
    ht_graph *g = new_graph();
    const int64_t dims[] = {5, 3};
    ht_state_add(g, "uniform", HT_F32, 2, dims, HT_UNIFORM(-2, 3));
    ht_state_add(g, "normal", HT_F32, 2, dims, HT_NORMAL(1, 0.5));
    ht_rng rng = ht_rng_state(g);
    ht_output(g, "u", ht_random_uniform(g, HT_F32, 2, dims, -2, 3, rng, "uniform"));
    ht_output(g, "n", ht_random_normal(g, HT_F32, 2, dims, 1, 0.5, rng, "normal"));
    fixture w = fixture_of_graph(g, true, 42);
    assert_true(*value(&w, "rng.seed") == 42);
    assert_int_equal(ht_reference_run(w.ref, g->segment), HT_OK);
    assert_memory_equal(ht_reference_output(w.ref, "u"), value(&w, "uniform"), 15 * sizeof(double));
    assert_memory_equal(ht_reference_output(w.ref, "n"), value(&w, "normal"), 15 * sizeof(double));
    assert_true(value(&w, "normal")[0] != value(&w, "normal")[1]);
    fixture_free(&w);
}

/* The numbers of one part of a batch that is cut in two along an axis, or of all of it. */
static void draw_part(int axis, bool whole, int64_t part, double *to, size_t count)
{
    ht_graph *g = new_graph();
    int64_t dims[] = {2, 4, 6}, extent = axis >= 0 ? dims[axis] : 0;
    if (!whole && axis >= 0) dims[axis] /= 2;
    ht_rng rng = ht_rng_state(g);
    ht_type want = ht_type_make(HT_F32, 3, dims);
    ht_output(g, "u",
              ht_emit1(g, "random_uniform", &want, HT_VALS(rng.seed, rng.step, rng.sample),
                       HT_ATTRS(HT_TEXT("site", "s"), HT_INT("batch_axis", axis), HT_INT("batch_extent", extent))));
    fixture w = fixture_of_graph(g, true, 7);
    *value(&w, "rng.sample") = axis >= 0 ? (double)(part * dims[axis]) : (double)part;
    assert_int_equal(ht_reference_run(w.ref, g->segment), HT_OK);
    memcpy(to, ht_reference_output(w.ref, "u"), count * sizeof *to);
    fixture_free(&w);
}

static void random_numbers_are_those_of_the_place_in_the_global_batch(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 4, 6};
    double whole[48], part[48];
    for (int axis = 0; axis < 3; axis++) {
        int64_t inner = 1, half = dims[axis] / 2;
        for (int i = axis + 1; i < 3; i++) inner *= dims[i];
        draw_part(axis, true, 0, whole, 48);
        for (int64_t k = 0; k < 2; k++) {
            draw_part(axis, false, k, part, 24);
            for (int64_t i = 0; i < 24; i++) {
                int64_t outer = i / (half * inner), row = i / inner % half + k * half;
                assert_true(part[i] == whole[(outer * 2 * half + row) * inner + i % inner]);
            }
        }
    }
    draw_part(-1, true, 0, whole, 48);
    draw_part(-1, false, 1, part, 48);
    assert_memory_equal(whole, part, sizeof whole);
}

static void a_batch_axis_is_named_and_checked(void **state)
{
    (void)state;
    ht_graph *g = new_graph();
    ht_val x = ht_fill(g, HT_F32, HT_DIMS(2, 3), 1);
    ht_val y = ht_dropout(g, x, 0.5, ht_rng_state(g), "s");
    assert_int_equal(ht_batch_axis(g, y, 1).id, y.id);
    assert_int_equal(ht_batch_axis(g, x, 1).id, x.id);
    char *text;
    assert_int_equal(ht_graph_print(&text, g), HT_OK);
    assert_non_null(strstr(text, "site=\"s\" batch_axis=1"));
    free(text);
    assert_int_equal(ht_batch_axis(g, y, 2).id, 0);
    assert_int_equal(ht_graph_status(g), HT_EINVAL);
    ht_graph_free(g);
}

static void values_of_another_segment_are_not_known(void **state)
{
    (void)state;
    ht_graph *g = new_graph();
    ht_segment_begin(g, "a");
    ht_val x = ht_fill(g, HT_F32, HT_DIMS(2), 3);
    ht_segment_begin(g, "b");
    ht_val y = ht_fill(g, HT_F32, HT_DIMS(0), 4);
    fixture w = fixture_of_graph(g, true, 0);
    assert_null(ht_reference_value(w.ref, x));
    assert_int_equal(ht_reference_run(w.ref, 0), HT_OK);
    assert_true(ht_reference_value(w.ref, x)[1] == 3);
    assert_int_equal(ht_reference_run(w.ref, 1), HT_OK);
    assert_null(ht_reference_value(w.ref, x));
    assert_non_null(ht_reference_value(w.ref, y));
    assert_null(ht_reference_value(w.ref, HT_NONE));
    fixture_free(&w);
}

static void what_was_built_later_is_there_in_the_next_run(void **state)
{
    (void)state;
    ht_graph *g = new_graph();
    ht_val x = ht_input(g, "x", HT_F32, 0, NULL);
    fixture w = fixture_of_graph(g, true, 0);
    ht_val y = ht_add(g, x, ht_state_add(g, "late", HT_F32, 0, NULL, HT_CONSTANT(2)));
    *value(&w, "x") = 1;
    assert_int_equal(ht_reference_run(w.ref, 0), HT_OK);
    assert_true(*ht_reference_value(w.ref, y) == 3);
    fixture_free(&w);
}

static void an_empty_tensor_with_a_long_axis_takes_no_time(void **state)
{
    (void)state;
    ht_graph *g = new_graph();
    ht_val y = ht_softmax(g, ht_fill(g, HT_F32, HT_DIMS(1LL << 50, 0), 1), 1);
    ht_output(g, "y", y);
    fixture w = fixture_of_graph(g, true, 0);
    assert_int_equal(ht_reference_run(w.ref, 0), HT_OK);
    assert_non_null(ht_reference_output(w.ref, "y"));
    fixture_free(&w);
}

static void too_large_a_state_is_a_status(void **state)
{
    (void)state;
    ht_graph *g = new_graph();
    ht_reference *ref;
    ht_state_add(g, "huge", HT_F32, HT_DIMS(1LL << 57), HT_ZERO);
    assert_int_equal(ht_graph_status(g), HT_OK);
    assert_int_equal(ht_reference_create(&ref, g, true, 0), HT_ENOMEM);
    assert_null(ref);
    ht_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_rounded_to_their_type_when_asked),
        cmocka_unit_test(a_store_is_seen_by_the_next_run_only),
        cmocka_unit_test(a_program_runs_its_segments_in_order),
        cmocka_unit_test(views_of_state_read_and_write_their_base),
        cmocka_unit_test(first_values_are_drawn_as_the_random_ops_draw),
        cmocka_unit_test(random_numbers_are_those_of_the_place_in_the_global_batch),
        cmocka_unit_test(a_batch_axis_is_named_and_checked),
        cmocka_unit_test(values_of_another_segment_are_not_known),
        cmocka_unit_test(what_was_built_later_is_there_in_the_next_run),
        cmocka_unit_test(an_empty_tensor_with_a_long_axis_takes_no_time),
        cmocka_unit_test(too_large_a_state_is_a_status),
    };
    return cmocka_run_group_tests_name("reference", tests, NULL, NULL);
}
