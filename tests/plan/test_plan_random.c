/* Random graphs, planned and run, against the interpreter: views, in-place, stores into state, flat groups, copies.
 * What the planner may get wrong shows up here as a wrong number. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "context_fixture.h"
#include "train/train.h"

enum { GRAPHS = 300, MAX_VALUES = 200, STATES = 6, COPIES = 6 };

static uint32_t seed_word;

static uint32_t draw(uint32_t below)
{
    seed_word = seed_word * 1664525u + 1013904223u;
    return (seed_word >> 8) % below;
}

typedef struct pool {
    ht_graph *g;
    ht_val v[MAX_VALUES];
    size_t count;
    ht_val begun[COPIES], from[COPIES]; /* copies under way */
    size_t begun_count;
} pool;

static void put(pool *p, ht_val v)
{
    if (v.id && p->count < MAX_VALUES) p->v[p->count++] = v;
}

/* Old values are picked too, so that lifetimes are long and states are read late. */
static ht_val pick(const pool *p)
{
    return p->v[draw(2) ? p->count - 1 - draw((uint32_t)(p->count < 6 ? p->count : 6)) : draw((uint32_t)p->count)];
}

static const ht_type *type(const pool *p, ht_val v)
{
    return ht_type_of(p->g, v);
}

static ht_val pick_like(const pool *p, ht_val like)
{
    for (int tries = 0; tries < 12; tries++) {
        ht_val v = pick(p);
        if (ht_type_same(type(p, v), type(p, like))) return v;
    }
    return like;
}

static void grow_pointwise(pool *p)
{
    ht_graph *g = p->g;
    ht_val a = pick(p), b = pick_like(p, a);
    switch (draw(7)) {
    case 0: put(p, ht_add(g, a, b)); break;
    case 1: put(p, ht_mul(g, ht_tanh(g, a), b)); break;
    case 2: put(p, ht_sub(g, a, b)); break;
    case 3: put(p, ht_tanh(g, a)); break;
    case 4: put(p, ht_select(g, ht_lt(g, a, b), a, ht_sigmoid(g, b))); break;
    case 5: put(p, ht_neg(g, a)); break;
    case 6: put(p, ht_cast(g, ht_cast(g, a, draw(2) ? HT_BF16 : HT_F16), HT_F32)); break;
    }
}

static void grow_moved(pool *p)
{
    ht_graph *g = p->g;
    ht_val a = pick(p);
    ht_type t = *type(p, a);
    if (t.rank != 2) {
        put(p, ht_reshape(g, a, 2, (int64_t[]){1, -1}));
        return;
    }
    switch (draw(6)) {
    case 0: put(p, ht_transpose(g, a, 0, 1)); break;
    case 1: put(p, ht_reshape(g, a, 2, (int64_t[]){t.dim[1], t.dim[0]})); break;
    case 2: put(p, ht_slice_axis(g, a, (int)draw(2), 0, 1)); break;
    case 3: put(p, ht_add(g, ht_slice_axis(g, a, 1, t.dim[1] - 1, 1), a)); break;
    case 4: put(p, ht_concat(g, 2, (ht_val[]){a, pick_like(p, a)}, 0)); break;
    case 5: put(p, ht_reshape(g, ht_transpose(g, a, 0, 1), 1, (int64_t[]){-1})); break;
    }
}

static void grow_structured(pool *p)
{
    ht_graph *g = p->g;
    ht_val a = pick(p), b = pick_like(p, a);
    int64_t axis = 0;
    if (type(p, a)->rank != 2) return;
    switch (draw(4)) {
    case 0: put(p, ht_tanh(g, ht_matmul(g, a, b, &(ht_matmul_opts){sizeof(ht_matmul_opts), true, false}))); break;
    case 1: put(p, ht_tanh(g, ht_matmul(g, a, b, &(ht_matmul_opts){sizeof(ht_matmul_opts), false, true}))); break;
    case 2: put(p, ht_softmax(g, a, -1)); break;
    case 3: put(p, ht_tanh(g, ht_sum(g, a, 1, &axis, true))); break;
    }
}

/* What the copy reads must stay as it is until the copy is done, whatever runs in between. */
static void end_copy(pool *p)
{
    size_t i = draw((uint32_t)p->begun_count);
    ht_val y = ht_emit1(p->g, "copy_done", NULL, HT_VALS(p->begun[i], p->from[i]), HT_NO_ATTRS);
    p->begun[i] = p->begun[--p->begun_count];
    p->from[i] = p->from[p->begun_count];
    if (draw(2)) y = ht_tanh(p->g, y);
    put(p, ht_to_space(p->g, y, HT_SPACE_MAIN));
}

static void grow_copied(pool *p)
{
    ht_val x = pick(p);
    ht_type want = *type(p, x);
    if (draw(3)) want.space = HT_SPACE_HOST;
    if (p->begun_count && (p->begun_count == COPIES || draw(2))) {
        end_copy(p);
    } else if (draw(4)) {
        p->from[p->begun_count] = x;
        p->begun[p->begun_count++] = ht_emit1(p->g, "copy_start", &want, HT_VALS(x), HT_NO_ATTRS);
    } else {
        ht_val there = ht_to_space(p->g, x, HT_SPACE_HOST);
        put(p, ht_to_space(p->g, ht_mul(p->g, ht_tanh(p->g, there), there), HT_SPACE_MAIN));
    }
}

static ht_val states[STATES];
static int state_count;

/* Some states on their own, some as views of one flat state. */
static void make_states(pool *p)
{
    ht_graph *g = p->g;
    char name[16];
    int64_t flat_elems = 64;
    ht_type flat_type = ht_type_make(HT_F32, 1, &flat_elems);
    ht_val flat = ht_graph_add_state(g, "flat", &flat_type, &(ht_state){.heading = HT_HEADING_PARAMETERS});
    state_count = STATES;
    for (int i = 0; i < STATES; i++) {
        int64_t dims[2] = {1 + draw(3), 1 + draw(4)};
        snprintf(name, sizeof name, "s%d", i);
        states[i] = ht_state_add(g, name, HT_F32, 2, dims, HT_UNIFORM(-1, 1));
        if (i % 2 && states[i].id) ht_value_view(g, states[i], flat, 20 * (i / 2));
        put(p, states[i]);
    }
    if (draw(3) == 0) put(p, flat);
}

/* A store at the end, of a value that may have been made long before; reads in between must see the old state. */
static void store_some(pool *p)
{
    for (int i = 0; i < state_count; i++) {
        ht_val v = pick_like(p, states[i]);
        if (draw(4) == 0) v = ht_tanh(p->g, states[i]);
        const ht_state *as_state = ht_state_of(p->g, v);
        /* A state that is stored already, or overlaps one, must not be read any more. */
        if (!as_state && draw(3)) ht_store(p->g, states[i], v);
    }
}

static ht_graph *make_graph(ht_context *ctx)
{
    pool p = {0};
    assert_int_equal(ht_graph_create(&p.g, ctx), HT_OK);
    int64_t dims[2] = {1 + draw(4), 1 + draw(5)};
    put(&p, ht_input(p.g, "x", HT_F32, 2, dims));
    put(&p, ht_input(p.g, "z", HT_F32, 2, (int64_t[]){dims[1], dims[0]}));
    make_states(&p);
    uint32_t length = 3 + draw(40);
    for (uint32_t i = 0; i < length; i++) {
        uint32_t kind = draw(13);
        if (kind < 5)
            grow_pointwise(&p);
        else if (kind < 8)
            grow_moved(&p);
        else if (kind < 10)
            grow_structured(&p);
        else
            grow_copied(&p);
    }
    while (p.begun_count) end_copy(&p);
    for (uint32_t i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%u", i);
        ht_val v = pick(&p);
        if (!ht_state_of(p.g, v)) ht_output(p.g, name, v);
    }
    store_some(&p);
    return p.g;
}

static double input_value(uint32_t graph, int64_t i)
{
    return sin(1.7 * (double)i + graph);
}

static void fill_inputs(ht_graph *g, ht_reference *ref, ht_session *s, uint32_t graph)
{
    const ht_segment *segment = &g->segments[0];
    for (size_t k = 0; k < segment->input_count; k++) {
        ht_val v = segment->inputs[k];
        int64_t n = ht_type_elems(ht_type_of(g, v));
        double data[64], *to = ht_reference_value(ref, v);
        for (int64_t i = 0; i < n; i++) to[i] = data[i] = (float)input_value(graph, i + (int64_t)k);
        assert_int_equal(ht_session_write_f64(s, ht_value_of(g, v)->name, data, (size_t)n), HT_OK);
    }
}

static void assert_close(const double *want, const char *name, const ht_session *s, int64_t n, uint32_t graph)
{
    double *got = malloc((size_t)(n + 1) * sizeof *got);
    assert_int_equal(ht_session_read_f64(s, name, got, (size_t)n), HT_OK);
    for (int64_t i = 0; i < n; i++) {
        /* Half roundings may fall either way when f32 and f64 differ in the last bit. */
        if (!(fabs(got[i] - want[i]) <= 2e-2 * (1 + fabs(want[i])))) {
            print_error("graph %u: %s[%lld] is %g, should be %g\n", graph, name, (long long)i, got[i], want[i]);
            fail();
        }
    }
    free(got);
}

static void compare(ht_graph *g, ht_reference *ref, const ht_session *s, uint32_t graph)
{
    const ht_segment *segment = &g->segments[0];
    for (size_t i = 0; i < segment->output_count; i++) {
        const char *name = segment->outputs[i].name;
        int64_t n = ht_type_elems(ht_type_of(g, segment->outputs[i].value));
        assert_close(ht_reference_output(ref, name), name, s, n, graph);
    }
    for (int i = 0; i < state_count; i++) {
        int64_t n = ht_type_elems(ht_type_of(g, states[i]));
        assert_close(ht_reference_value(ref, states[i]), ht_value_of(g, states[i])->name, s, n, graph);
    }
}

static void run_one(ht_context *ctx, uint32_t graph, bool canaries)
{
    seed_word = graph * 7919 + 1;
    ht_graph *g = make_graph(ctx);
    if (ht_graph_verify(g) != HT_OK) {
        print_error("graph %u: %s\n", graph, ht_context_message(ctx));
        fail();
    }
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.canaries = canaries;
    ht_plan *plan;
    ht_session *s;
    ht_reference *ref;
    ht_session_opts session_opts = HT_SESSION_OPTS;
    session_opts.seed = graph;
    if (ht_plan_create(&plan, g, &opts) != HT_OK) {
        print_error("graph %u: %s\n", graph, ht_context_message(ctx));
        fail();
    }
    assert_int_equal(ht_session_create(&s, plan, &session_opts), HT_OK);
    assert_int_equal(ht_reference_create(&ref, g, true, graph), HT_OK);
    fill_inputs(g, ref, s, graph);
    for (int step = 0; step < 3; step++) {
        assert_int_equal(ht_reference_run(ref, 0), HT_OK);
        assert_int_equal(ht_session_run(s, "forward"), HT_OK);
        compare(g, ref, s, graph);
    }
    ht_reference_free(ref);
    ht_session_free(s);
    ht_plan_free(plan);
    ht_graph_free(g);
}

static void plan__random_graphs_agree_with_the_interpreter(void **state)
{
    (void)state;
    ht_context *ctx = context_create(2, NULL);
    for (uint32_t graph = 0; graph < GRAPHS; graph++) run_one(ctx, graph, graph % 2);
    ht_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plan__random_graphs_agree_with_the_interpreter)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
