/* Prepacked weights: which segments use them, the same bits as without, never those of old weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session_fixture.h"
#include "snapshot_fixture.h"

/* Large enough for the GEMM core, few enough rows to keep for. */
enum { ROWS = 16, WIDE = 160, UNITS = 48, STEPS = 2, LABELS = 10 };

static ht_val parameter(ht_graph *g, const char *name, int64_t rows, int64_t columns)
{
    ht_val found = ht_find(g, name);
    if (found.id) return found;
    return ht_param(g, name, HT_F32, 2, (int64_t[]){rows, columns}, HT_NORMAL(0, 0.1));
}

/* Two layers, the second by rows of its weights, on any number of rows. */
static ht_val layers(ht_graph *g, ht_val x)
{
    ht_matmul_opts turned = {.size = sizeof turned, .transpose_b = true};
    ht_val h = ht_gelu(g, ht_matmul(g, x, parameter(g, "first.w", WIDE, WIDE), NULL));
    return ht_matmul(g, h, parameter(g, "second.w", WIDE, WIDE), &turned);
}

static ht_val recurrent(ht_graph *g, ht_val x)
{
    ht_val steps = ht_reshape(g, x, 3, (int64_t[]){STEPS, ROWS / STEPS, WIDE});
    ht_val zero = ht_fill(g, HT_F32, 2, (int64_t[]){ROWS / STEPS, UNITS}, 0);
    ht_val w_input = parameter(g, "lstm.w_input", 4 * UNITS, WIDE);
    ht_val w_hidden = parameter(g, "lstm.w_hidden", 4 * UNITS, UNITS);
    return ht_lstm(g, steps, zero, zero, w_input, w_hidden, HT_NONE, HT_NONE).y;
}

/* A model in training, and segments that look at it: "predict", "double" with twice the rows, "recur". */
static void build(session_fixture *w, int accumulate)
{
    ht_graph *g = w->g;
    ht_val x = ht_input(g, "x", HT_F32, 2, (int64_t[]){ROWS, WIDE});
    ht_val label = ht_input(g, "label", HT_I32, 1, (int64_t[]){ROWS});
    ht_val loss = ht_cross_entropy(g, layers(g, x), label, NULL);
    ht_val y = recurrent(g, x);
    ht_output(g, "loss", ht_add(g, loss, ht_mean(g, ht_mul(g, y, y), 0, NULL, false)));
    ht_train_opts train = HT_TRAIN_OPTS;
    train.lr = 1e-2;
    train.accumulate = accumulate;
    must(w, ht_graph_train(g, &train));
    ht_segment_begin(g, "predict");
    ht_output(g, "y", layers(g, ht_input(g, "x", HT_F32, 2, (int64_t[]){ROWS, WIDE})));
    ht_segment_begin(g, "double");
    ht_output(g, "y2", layers(g, ht_input(g, "x2", HT_F32, 2, (int64_t[]){2 * ROWS, WIDE})));
    ht_segment_begin(g, "recur");
    ht_output(g, "steps", recurrent(g, ht_input(g, "x", HT_F32, 2, (int64_t[]){ROWS, WIDE})));
    must(w, ht_graph_status(g));
}

static void fill(const session_fixture *w, const char *name, int64_t count, int seed)
{
    double *data = malloc((size_t)count * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) data[i] = (double)((i * 7919 + seed * 104729) % 257 - 128) / 256;
    must(w, ht_session_write_f64(w->s, name, data, (size_t)count));
    free(data);
}

static session_fixture begin(int accumulate, bool no_prepack)
{
    session_fixture w = session_begin(2);
    build(&w, accumulate);
    ht_plan_opts plan = HT_PLAN_OPTS;
    plan.no_prepack = no_prepack;
    plan.canaries = true;
    session_plan(&w, &plan, 0);
    fill(&w, "x", ROWS * WIDE, 1);
    fill(&w, "x2", 2 * ROWS * WIDE, 2);
    return w;
}

static const ht_plan_segment *segment(const session_fixture *w, const char *name)
{
    int index = ht_plan_segment_find(w->plan, name);
    assert_true(index >= 0);
    return &w->plan->segments[index];
}

/* A hash of what a segment says. */
static uint64_t look(const session_fixture *w, ht_session *s, const char *name, const char *output, int64_t count)
{
    float *y = malloc((size_t)count * sizeof *y);
    assert_non_null(y);
    must(w, ht_session_run(s, name));
    must(w, ht_session_read(s, output, y, (size_t)count * sizeof *y));
    uint64_t hash = ht_hash_bytes(0, y, (size_t)count * sizeof *y);
    free(y);
    return hash;
}

static uint64_t look_at_all(const session_fixture *w, ht_session *s)
{
    uint64_t all[3] = {look(w, s, "predict", "y", ROWS * WIDE), look(w, s, "double", "y2", 2 * ROWS * WIDE),
                       look(w, s, "recur", "steps", ROWS * UNITS)};
    return ht_hash_bytes(0, all, sizeof all);
}

/* As often as it takes until everything is packed, and twice more. */
static void must_agree(const session_fixture *keeps, const session_fixture *packs)
{
    for (int i = 0; i < 4; i++) assert_int_equal(look_at_all(keeps, keeps->s), look_at_all(packs, packs->s));
}

/* ---- who keeps ---- */

static void prepack__is_for_segments_that_only_read(void **state)
{
    (void)state;
    session_fixture w = begin(1, false);
    assert_int_equal(segment(&w, "predict")->prepack_count, 2);
    assert_int_equal(segment(&w, "double")->prepack_count, 2);
    assert_int_equal(segment(&w, "recur")->prepack_count, 1);
    assert_int_equal(segment(&w, "predict")->invalidate_count, 0);
    /* One step, one update: packing apart would be for nothing. */
    assert_int_equal(segment(&w, "micro_first")->prepack_count, 0);
    /* Both products and the lstm, once each: "double" has the forms of "predict". */
    assert_int_equal(w.plan->prepacked_count, 3);
    assert_int_equal(segment(&w, "update")->invalidate_count, 3);
    assert_int_equal(segment(&w, "init")->invalidate_count, 3);
    session_end(&w);
}

static void prepack__serves_the_micro_batches_of_one_step(void **state)
{
    (void)state;
    session_fixture many = begin(8, false), few = begin(2, false);
    assert_true(segment(&many, "micro")->prepack_count > 0);
    assert_true(segment(&many, "micro_first")->prepack_count > 0);
    assert_int_equal(segment(&few, "micro")->prepack_count, 0);
    session_end(&many);
    session_end(&few);
}

static void prepack__is_counted_and_can_be_declined(void **state)
{
    (void)state;
    session_fixture w = begin(1, false), lean = begin(1, true);
    ht_byte_table table = ht_plan_byte_table(w.plan), without = ht_plan_byte_table(lean.plan);
    assert_int_equal(table.bytes[HT_SPACE_MAIN][HT_BYTES_WEIGHTS] - without.bytes[HT_SPACE_MAIN][HT_BYTES_WEIGHTS],
                     ht_plan_area_bytes(w.plan, HT_AREA_PREPACKED));
    assert_true(ht_plan_area_bytes(w.plan, HT_AREA_PREPACKED) >= (int64_t)sizeof(float) * 2 * WIDE * WIDE);
    assert_int_equal(ht_plan_area_bytes(lean.plan, HT_AREA_PREPACKED), 0);
    assert_int_equal(ht_plan_bytes(w.plan) - ht_plan_area_bytes(w.plan, HT_AREA_PREPACKED), ht_plan_bytes(lean.plan));
    assert_int_equal(lean.plan->prepacked_count, 0);
    session_end(&w);
    session_end(&lean);
}

static void prepack__needs_state_and_few_rows(void **state)
{
    (void)state;
    session_fixture w = session_begin(0);
    ht_graph *g = w.g;
    ht_val kept = parameter(g, "w", WIDE, WIDE);
    ht_val x = ht_input(g, "x", HT_F32, 2, (int64_t[]){ROWS, WIDE});
    ht_output(g, "of_input", ht_matmul(g, x, ht_input(g, "given", HT_F32, 2, (int64_t[]){WIDE, WIDE}), NULL));
    ht_segment_begin(g, "many");
    x = ht_input(g, "many_rows", HT_F32, 2, (int64_t[]){1024, WIDE});
    ht_output(g, "of_many", ht_matmul(g, x, kept, NULL));
    ht_segment_begin(g, "one");
    x = ht_input(g, "one_row", HT_F32, 2, (int64_t[]){1, WIDE});
    ht_output(g, "of_one", ht_matmul(g, x, kept, NULL));
    ht_segment_begin(g, "writes");
    x = ht_input(g, "square", HT_F32, 2, (int64_t[]){WIDE / 2, WIDE});
    ht_val y = ht_matmul(g, x, kept, NULL);
    ht_store(g, kept, ht_concat(g, 2, (const ht_val[]){y, y}, 0));
    must(&w, ht_graph_status(g));
    must(&w, ht_plan_create(&w.plan, g, NULL));
    assert_int_equal(w.plan->prepacked_count, 0);
    session_end(&w);
}

/* ---- every row that keeps ---- */

/* One product, its result by bytes, after each of a few runs and of two weights. */
static void run_product(ht_dtype dtype, bool turned, bool no_prepack, uint64_t hashes[8])
{
    enum { COLUMNS = 75, DEPTH = 1100 }; /* more than one block of K, an end in both directions */
    session_fixture w = session_begin(0);
    ht_matmul_opts opts = {.size = sizeof opts, .transpose_b = turned};
    ht_val x = ht_input(w.g, "x", dtype, 2, (int64_t[]){ROWS, DEPTH});
    int64_t dims[2] = {turned ? COLUMNS : DEPTH, turned ? DEPTH : COLUMNS};
    ht_output(w.g, "y", ht_matmul(w.g, x, ht_param(w.g, "w", dtype, 2, dims, HT_NORMAL(0, 1)), &opts));
    ht_plan_opts plan = HT_PLAN_OPTS;
    plan.no_prepack = no_prepack;
    session_plan(&w, &plan, 0);
    assert_int_equal(w.plan->prepacked_count, no_prepack ? 0 : 1);
    fill(&w, "x", ROWS * DEPTH, 1);
    for (int i = 0; i < 8; i++) {
        double y[ROWS * COLUMNS];
        if (i == 4) fill(&w, "w", COLUMNS * DEPTH, 2);
        must(&w, ht_session_run(w.s, "forward"));
        must(&w, ht_session_read_f64(w.s, "y", y, ROWS * COLUMNS));
        hashes[i] = ht_hash_bytes(0, y, sizeof y);
    }
    session_end(&w);
}

static void prepack__has_the_same_bits_in_every_type(void **state)
{
    (void)state;
    static const ht_dtype dtypes[] = {HT_F64, HT_F32, HT_F16, HT_BF16};
    for (int i = 0; i < 8; i++) {
        uint64_t kept[8], packed[8];
        run_product(dtypes[i / 2], i % 2, false, kept);
        run_product(dtypes[i / 2], i % 2, true, packed);
        assert_memory_equal(kept, packed, sizeof kept);
        assert_int_equal(kept[3], kept[0]);
        assert_int_not_equal(kept[4], kept[3]);
    }
}

/* ---- never old weights ---- */

/* All micro-batches are the same one, which lies in the inputs already. */
static ht_status leave_batch(void *arg, ht_session *session, int64_t index)
{
    (void)arg;
    (void)session;
    (void)index;
    return HT_OK;
}

static void train(const session_fixture *w, int steps)
{
    int32_t label[ROWS];
    for (int i = 0; i < ROWS; i++) label[i] = i % LABELS;
    must(w, ht_session_write(w->s, "label", label, sizeof label));
    for (int i = 0; i < steps; i++) must(w, ht_session_run_batches(w->s, "train", leave_batch, NULL));
}

static void prepack__follows_training(void **state)
{
    (void)state;
    for (int accumulate = 1; accumulate <= 8; accumulate += 7) {
        session_fixture keeps = begin(accumulate, false), packs = begin(accumulate, true);
        uint64_t before = look_at_all(&keeps, keeps.s);
        for (int round = 0; round < 3; round++) {
            must_agree(&keeps, &packs);
            train(&keeps, 1 + round);
            train(&packs, 1 + round);
        }
        must_agree(&keeps, &packs);
        assert_int_not_equal(look_at_all(&keeps, keeps.s), before);
        session_end(&keeps);
        session_end(&packs);
    }
}

static void prepack__follows_what_is_written(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t count;
    } weights[] = {{"first.w", WIDE * WIDE},
                   {"second.w", WIDE * WIDE},
                   {"lstm.w_input", 4 * UNITS * WIDE},
                   {"lstm.w_hidden", 4 * UNITS * UNITS}};
    session_fixture keeps = begin(1, false), packs = begin(1, true);
    for (int i = 0; i < 4; i++) {
        must_agree(&keeps, &packs);
        uint64_t before = look_at_all(&keeps, keeps.s);
        fill(&keeps, weights[i].name, weights[i].count, 10 + i);
        fill(&packs, weights[i].name, weights[i].count, 10 + i);
        must_agree(&keeps, &packs);
        assert_int_not_equal(look_at_all(&keeps, keeps.s), before);
    }
    /* By bytes as well; and writing something else leaves it alone. */
    float *zero = calloc(WIDE * WIDE, sizeof *zero);
    assert_non_null(zero);
    must(&keeps, ht_session_write(keeps.s, "first.w", zero, WIDE * WIDE * sizeof *zero));
    must(&packs, ht_session_write(packs.s, "first.w", zero, WIDE * WIDE * sizeof *zero));
    free(zero);
    fill(&keeps, "x", ROWS * WIDE, 20);
    fill(&packs, "x", ROWS * WIDE, 20);
    must_agree(&keeps, &packs);
    /* The flat group that all parameters are views of. */
    const ht_slot *view = ht_plan_slot(keeps.plan, "second.w"), *flat = &keeps.plan->slots[view->owner];
    fill(&keeps, flat->name, ht_type_elems(&flat->type), 21);
    fill(&packs, flat->name, ht_type_elems(&flat->type), 21);
    must_agree(&keeps, &packs);
    session_end(&keeps);
    session_end(&packs);
}

static void prepack__follows_a_snapshot(void **state)
{
    (void)state;
    char folder[64], *path;
    session_fixture keeps = begin(1, false), packs = begin(1, true);
    ht_snapshot_meta meta = {.step = 1};
    folder_make(folder);
    must(&packs, ht_snapshot_write(packs.s, folder, &meta, 1));
    must(&packs, ht_snapshot_find(packs.ctx, folder, &path));
    assert_non_null(path);
    for (int weights_only = 0; weights_only < 2; weights_only++) {
        train(&keeps, 2);
        uint64_t trained = 0;
        for (int i = 0; i < 3; i++) trained = look_at_all(&keeps, keeps.s);
        if (weights_only)
            must(&keeps, ht_snapshot_read_weights(keeps.s, path, NULL));
        else
            must(&keeps, ht_snapshot_read(keeps.s, path, NULL));
        must_agree(&keeps, &packs);
        assert_int_not_equal(look_at_all(&keeps, keeps.s), trained);
    }
    free(path);
    folder_remove(folder);
    session_end(&keeps);
    session_end(&packs);
}

static void prepack__belongs_to_its_session(void **state)
{
    (void)state;
    session_fixture keeps = begin(1, false), packs = begin(1, true);
    ht_session *other;
    must(&keeps, ht_session_create(&other, keeps.plan, NULL));
    float *x = calloc(2 * ROWS * WIDE, sizeof *x);
    assert_non_null(x);
    must(&keeps, ht_session_read(keeps.s, "x", x, ROWS * WIDE * sizeof *x));
    must(&keeps, ht_session_write(other, "x", x, ROWS * WIDE * sizeof *x));
    must(&keeps, ht_session_read(keeps.s, "x2", x, 2 * ROWS * WIDE * sizeof *x));
    must(&keeps, ht_session_write(other, "x2", x, 2 * ROWS * WIDE * sizeof *x));
    free(x);
    uint64_t untrained = look_at_all(&packs, packs.s);
    for (int i = 0; i < 3; i++) {
        train(&keeps, 1);
        train(&packs, 1);
        must_agree(&keeps, &packs);
        assert_int_equal(look_at_all(&keeps, other), untrained);
    }
    ht_session_free(other);
    session_end(&keeps);
    session_end(&packs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prepack__is_for_segments_that_only_read),
        cmocka_unit_test(prepack__serves_the_micro_batches_of_one_step),
        cmocka_unit_test(prepack__is_counted_and_can_be_declined),
        cmocka_unit_test(prepack__needs_state_and_few_rows),
        cmocka_unit_test(prepack__has_the_same_bits_in_every_type),
        cmocka_unit_test(prepack__follows_training),
        cmocka_unit_test(prepack__follows_what_is_written),
        cmocka_unit_test(prepack__follows_a_snapshot),
        cmocka_unit_test(prepack__belongs_to_its_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
