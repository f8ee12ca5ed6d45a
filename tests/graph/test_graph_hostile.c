/* Emission under attack: samples of every op with inputs, types and attributes changed at random (a fixed stream). Each
 * try ends in a status with a message, or in a graph that verifies, reads back from its text and can be differentiated
 * or says why not; small ones also run, with indices from anywhere. Meant for ASan and UBSan. */
#include "op_tests.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 6000, LONG_TRIES = 100000, TEXT_EVERY = 16, RUN_ELEMS = 20000 };

/* ---- the stream ---- */

typedef struct rng {
    ht_stream stream;
    uint64_t next;
} rng;

static uint32_t roll(rng *d, uint32_t sides)
{
    return ht_stream_word(&d->stream, d->next++) % sides;
}

#define PICK(d, table) (table)[roll(d, (uint32_t)(sizeof(table) / sizeof((table)[0])))]

static int64_t any_int(rng *d)
{
    static const int64_t edges[] = {0,
                                    1,
                                    2,
                                    3,
                                    4,
                                    5,
                                    7,
                                    8,
                                    9,
                                    64,
                                    -1,
                                    -2,
                                    -3,
                                    -7,
                                    -8,
                                    -9,
                                    INT32_MAX,
                                    INT32_MIN,
                                    (1LL << 31),
                                    1LL << 32,
                                    1LL << 61,
                                    1LL << 62,
                                    INT64_MAX,
                                    INT64_MIN,
                                    1000003,
                                    -(1LL << 62),
                                    INT64_MAX - 1,
                                    -100};
    return PICK(d, edges);
}

static int64_t any_size(rng *d)
{
    static const int64_t sizes[] = {0, 1, 1, 2,  2,  3,       3,         4,         5,        6,
                                    7, 8, 9, 16, 33, 1 << 20, 1LL << 31, 1LL << 40, 1LL << 56};
    return PICK(d, sizes);
}

static double any_float(rng *d)
{
    static const double edges[] = {0, -0.0, 1, -1, 0.5, 2, 1e-300, 1e300, -1e300, INFINITY, -INFINITY, NAN, 1e-8, 3};
    return PICK(d, edges);
}

static ht_dtype any_dtype(rng *d)
{
    return (ht_dtype)roll(d, HT_DTYPE_COUNT);
}

static ht_type any_type(rng *d)
{
    int64_t dims[HT_MAX_RANK];
    int rank = (int)roll(d, HT_MAX_RANK + 1);
    if (roll(d, 2)) rank = (int)roll(d, 4);
    for (int i = 0; i < rank; i++) dims[i] = any_size(d);
    return ht_type_make(any_dtype(d), rank, dims);
}

/* ---- changes to a sample ---- */

static void change_type(rng *d, ht_type *t)
{
    switch (roll(d, 5)) {
    case 0: t->dtype = any_dtype(d); break;
    case 1:
        if (t->rank > 0) t->dim[roll(d, (uint32_t)t->rank)] = any_size(d);
        break;
    case 2:
        if (t->rank > 0) t->rank--;
        break;
    case 3:
        if (t->rank < HT_MAX_RANK) t->dim[t->rank++] = any_size(d);
        break;
    default: *t = any_type(d);
    }
    *t = ht_type_make(t->dtype, t->rank, t->dim);
}

static void change_inputs(rng *d, ht_sample *s)
{
    if (s->n_in && roll(d, 4)) {
        size_t i = roll(d, (uint32_t)s->n_in);
        switch (roll(d, 8)) {
        case 0: s->given[i] = false; return;
        case 1: s->n_in--; return;
        case 2:
            s->in[i] = s->in[roll(d, (uint32_t)s->n_in)];
            s->given[i] = true;
            return;
        default: change_type(d, &s->in[i]); return;
        }
    }
    if (s->n_in == HT_SAMPLE_MAX) return;
    s->in[s->n_in] = any_type(d);
    s->given[s->n_in++] = roll(d, 8) != 0;
}

static void any_list(rng *d, ht_arena *arena, ht_attr *a)
{
    a->count = roll(d, HT_MAX_RANK + 2);
    int64_t *ints = HT_NEW(arena, int64_t, a->count);
    double *floats = HT_NEW(arena, double, a->count);
    assert_non_null(ints);
    assert_non_null(floats);
    for (size_t i = 0; i < a->count; i++) {
        ints[i] = any_int(d);
        floats[i] = any_float(d);
    }
    a->ints = ints;
    a->floats = floats;
}

static void any_value(rng *d, ht_arena *arena, ht_attr *a)
{
    static const char *const texts[] = {"", "mean", "sum", "none", "nonsense", "f32", "\x01\xff", "x y \" z"};
    a->i = any_int(d);
    a->f = any_float(d);
    a->text = PICK(d, texts);
    any_list(d, arena, a);
}

static void change_attr(rng *d, ht_arena *arena, ht_sample *s)
{
    size_t n_def = ht_op_attr_count(s->op);
    uint32_t what = roll(d, 16);
    if (what == 0 && s->n_attr) {
        s->attr[roll(d, (uint32_t)s->n_attr)] = s->attr[s->n_attr - 1];
        s->n_attr--;
        return;
    }
    if (s->n_attr && what < 8) {
        /* One element of a list, or the value. */
        ht_attr *a = &s->attr[roll(d, (uint32_t)s->n_attr)];
        if (a->kind == HT_ATTR_INTS && a->count && roll(d, 2)) {
            int64_t *ints = HT_NEW(arena, int64_t, a->count);
            assert_non_null(ints);
            memcpy(ints, a->ints, a->count * sizeof *ints);
            ints[roll(d, (uint32_t)a->count)] = any_int(d);
            a->ints = ints;
        } else {
            any_value(d, arena, a);
        }
        if (what == 1) a->kind = (ht_attr_kind)roll(d, 5);
        return;
    }
    if (s->n_attr == HT_SAMPLE_MAX) return;
    ht_attr *a = &s->attr[s->n_attr++];
    *a = (ht_attr){.key = "no_such_key", .kind = (ht_attr_kind)roll(d, 5)};
    if (n_def && what != 15) {
        const ht_attr_def *def = &s->op->attrs[roll(d, (uint32_t)n_def)];
        a->key = def->key;
        a->kind = def->kind;
    }
    any_value(d, arena, a);
}

static void change_results(rng *d, ht_sample *s)
{
    if (!s->typed || !roll(d, 8)) {
        s->typed = !s->typed;
        for (int i = 0; i < s->op->n_out; i++)
            s->want[i] = s->n_in && s->given[0] && roll(d, 2) ? s->in[0] : any_type(d);
        return;
    }
    change_type(d, &s->want[roll(d, (uint32_t)s->op->n_out)]);
}

static void change(rng *d, ht_arena *arena, ht_sample *s)
{
    for (uint32_t n = 1 + roll(d, 3); n > 0; n--) {
        uint32_t what = roll(d, 8);
        if (what < 4)
            change_inputs(d, s);
        else if (what < 7)
            change_attr(d, arena, s);
        else
            change_results(d, s);
    }
}

/* ---- what must hold after ---- */

static void check_refusal(const ht_op *op, ht_status status)
{
    const char *message = ht_context_message(context_shared());
    if (status == HT_OK || !message[0]) fail_msg("%s: refused without a message", op->name);
    if (status == HT_ENOMEM) fail_msg("%s: it ran out of memory: %s", op->name, message);
}

/* Does the text of the graph give the graph back? */
static void check_text(const ht_op *op, ht_graph *g)
{
    ht_context *ctx = context_shared();
    char *text;
    ht_graph *back;
    assert_int_equal(ht_graph_print(&text, g), HT_OK);
    if (ht_graph_parse(&back, ctx, "hostile", text, strlen(text)) != HT_OK)
        fail_msg("%s: its text does not parse: %s\n%s", op->name, ht_context_message(ctx), text);
    if (!ht_graph_equal(g, back)) fail_msg("%s: its text reads as another graph\n%s", op->name, text);
    ht_graph_free(back);
    free(text);
}

/* Elements, with empty axes counted as 1: what loops may walk. */
static double extent_of(const ht_type *t)
{
    double extent = 1;
    for (int axis = 0; t && axis < t->rank; axis++) extent *= fmax(1, (double)t->dim[axis]);
    return extent;
}

static bool is_small(const ht_call *call)
{
    double extent = 0;
    for (size_t i = 0; i < call->n_in; i++) extent += extent_of(call->in[i]);
    for (size_t i = 0; i < call->n_out; i++) extent += extent_of(call->out[i]);
    return extent <= RUN_ELEMS && ht_cost_flops(ht_call_cost(call)) <= 1e6;
}

static void run_it(rng *d, op_case *c)
{
    op_arrays a;
    op_arrays_make(&a, c);
    for (size_t i = 0; i < c->call->n_in; i++) {
        const ht_type *t = c->call->in[i];
        for (int64_t e = 0; t && e < ht_type_elems(t); e++)
            if (!ht_dtype_is_float(t->dtype) && !roll(d, 4))
                a.in[i][e] = ht_round_to(t->dtype, (double)any_int(d));
            else if (!roll(d, 32))
                a.in[i][e] = ht_round_to(t->dtype, any_float(d));
    }
    op_arrays_reference(&a, c);
    for (ht_isa isa = HT_ISA_PORTABLE; isa <= ht_cpu_isa(); isa++) {
        ht_target target = {.name = "test", .isa = isa, .threads = 1};
        const ht_kernel *k = ht_kernel_choose(context_shared(), c->call, &target, NULL);
        if (k) op_kernel_run(k, &target, c->call, &a);
    }
}

static void check_gradient(op_case *c)
{
    ht_graph *g = c->graph;
    ht_context *ctx = context_shared();
    const ht_segment *s = &g->segments[0];
    ht_val wrt[HT_SAMPLE_MAX], grads[HT_SAMPLE_MAX], loss = HT_NONE;
    size_t n = 0;
    for (size_t i = 0; i < s->input_count; i++)
        if (ht_dtype_is_float(ht_type_of(g, s->inputs[i])->dtype)) wrt[n++] = s->inputs[i];
    for (size_t i = 0; i < s->output_count && !loss.id; i++)
        if (ht_dtype_is_float(ht_type_of(g, s->outputs[i].value)->dtype) && !(c->op->aux_out >> i & 1))
            loss = ht_sum(g, s->outputs[i].value, 0, NULL, false);
    if (!n || !loss.id) return;
    ht_status status = ht_gradients(g, loss, n, wrt, grads);
    if (status != HT_OK)
        check_refusal(c->op, status);
    else if (ht_graph_verify(g) != HT_OK)
        fail_msg("%s: its gradient does not verify: %s", c->op->name, ht_context_message(ctx));
}

static void check_try(rng *d, op_case *c, bool text)
{
    ht_context *ctx = context_shared();
    ctx->message[0] = 0;
    if (!op_case_build(c)) {
        check_refusal(c->op, ctx->status);
        return;
    }
    if (ht_graph_verify(c->graph) != HT_OK)
        fail_msg("%s: accepted, but does not verify: %s", c->op->name, ht_context_message(ctx));
    ht_cost cost = ht_call_cost(c->call);
    if (!(ht_cost_flops(cost) >= 0) || !(cost.bytes >= 0))
        fail_msg("%s: costs %g, %g", c->op->name, ht_cost_flops(cost), cost.bytes);
    if (text) check_text(c->op, c->graph);
    if (is_small(c->call)) run_it(d, c);
    check_gradient(c);
}

static void hostile_calls_are_refused_or_right(void **state)
{
    const ht_op *op = *state;
    size_t n_samples = 0;
    while (op->samples[n_samples]) n_samples++;
    rng d = {.stream = {.seed = 11, .site = ht_hash_text(op->name)}};
    int64_t tries = getenv("HALFTONE_LONG") ? LONG_TRIES : TRIES;
    for (int64_t i = 0; i < tries; i++) {
        op_case c;
        op_case_parse(&c, op, op->samples[roll(&d, (uint32_t)n_samples)]);
        c.variant = "hostile";
        change(&d, c.arena, &c.sample);
        check_try(&d, &c, i % TEXT_EVERY == 0);
        op_case_free(&c);
    }
}

/* ---- what no sample can say ---- */

static void wrong_arity_is_refused(void **state)
{
    (void)state;
    ht_context *ctx = context_shared();
    for (size_t o = 0; o < ctx->op_count; o++)
        for (size_t n_in = 0; n_in <= HT_SAMPLE_MAX; n_in++) {
            const ht_op *op = ctx->ops[o];
            ht_graph *g;
            ht_val in[HT_SAMPLE_MAX], out[8];
            assert_int_equal(ht_graph_create(&g, ctx), HT_OK);
            for (size_t i = 0; i < n_in; i++) {
                char name[16];
                snprintf(name, sizeof name, "x%zu", i);
                in[i] = ht_input(g, name, HT_F32, 0, NULL);
            }
            ctx->message[0] = 0;
            ht_emit(g, op, n_in, in, 0, NULL, NULL, out);
            if (n_in < (size_t)op->min_in || n_in > (size_t)op->max_in) {
                if (ht_graph_status(g) == HT_OK) fail_msg("%s takes %zu inputs", op->name, n_in);
                if (!strstr(ctx->message, op->name)) fail_msg("%s is not named: %s", op->name, ctx->message);
            }
            ht_graph_free(g);
        }
}

static void values_of_no_graph_are_refused(void **state)
{
    (void)state;
    ht_context *ctx = context_shared();
    for (size_t o = 0; o < ctx->op_count; o++) {
        const ht_op *op = ctx->ops[o];
        ht_graph *g;
        ht_val in[HT_SAMPLE_MAX], out[8];
        if (op->min_in == 0 || op->min_in > HT_SAMPLE_MAX) continue;
        assert_int_equal(ht_graph_create(&g, ctx), HT_OK);
        for (int i = 0; i < op->min_in; i++) in[i] = (ht_val){1000 + (uint32_t)i};
        ht_emit(g, op, (size_t)op->min_in, in, 0, NULL, NULL, out);
        if (ht_graph_status(g) == HT_OK) fail_msg("%s takes values that do not exist", op->name);
        for (int i = 0; i < op->n_out; i++) assert_int_equal(out[i].id, 0);
        ht_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest whole[] = {
        cmocka_unit_test(wrong_arity_is_refused),
        cmocka_unit_test(values_of_no_graph_are_refused),
    };
    int failures = cmocka_run_group_tests_name("emission", whole, NULL, NULL);
    return failures + op_tests_run("hostile calls are refused or right", hostile_calls_are_refused_or_right, NULL);
}
