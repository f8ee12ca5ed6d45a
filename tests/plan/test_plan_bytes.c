/* Bytes of instructions: an interpreter that touches the elements of every operand one by one, and counts them, finds the
 * same number in random graphs, with fusion and without. */
#include "context_fixture.h"
#include "random_graph.h"

#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TOUCHED = 1 << 16, NODES = 40 };

/* Where an element lies, and how large it is. */
typedef struct touched {
    int space, area;
    int64_t at, bytes;
} touched;

typedef struct tally {
    touched list[MOST_TOUCHED];
    size_t count;
} tally;

static void touch_all(tally *t, const ht_type *type, ht_place place)
{
    int64_t bytes = (int64_t)ht_dtype_bytes(type->dtype), index[HT_MAX_RANK] = {0};
    if (place.area == HT_AREA_NONE || ht_type_elems(type) == 0) return;
    for (int axis = 0; axis >= 0;) {
        int64_t at = place.offset;
        for (int i = 0; i < type->rank; i++) at += index[i] * type->stride[i] * bytes;
        assert_true(t->count < MOST_TOUCHED);
        t->list[t->count++] = (touched){place.space, place.area, at, bytes};
        for (axis = type->rank - 1; axis >= 0 && ++index[axis] == type->dim[axis]; axis--) index[axis] = 0;
    }
}

static int by_place(const void *a, const void *b)
{
    const touched *x = a, *y = b;
    if (x->space != y->space) return x->space - y->space;
    if (x->area != y->area) return x->area - y->area;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int64_t count_distinct(tally *t)
{
    int64_t bytes = 0;
    qsort(t->list, t->count, sizeof t->list[0], by_place);
    for (size_t i = 0; i < t->count; i++)
        if (i == 0 || by_place(&t->list[i - 1], &t->list[i]) != 0) bytes += t->list[i].bytes;
    return bytes;
}

/* What it reads, and what it writes; the second half of a copy in two parts only waits. */
static int64_t interpret(const ht_instr *instr)
{
    static tally in, out;
    const ht_call *call = instr->call;
    in.count = out.count = 0;
    if (call->op->start) return 0;
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i]) touch_all(&in, call->in[i], instr->in[i]);
    for (size_t i = 0; i < call->n_out; i++) touch_all(&out, call->out[i], instr->out[i]);
    return count_distinct(&in) + count_distinct(&out);
}

static size_t check_plan(const ht_plan *plan, int seed)
{
    size_t checked = 0;
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++, checked++) {
            const ht_instr *instr = &plan->segments[s].instrs[i];
            int64_t counted = interpret(instr);
            if (instr->cost.bytes != (double)counted)
                fail_msg("seed %d: %s, instruction %zu of %s: %.0f bytes, %lld counted", seed, instr->call->op->name, i,
                         plan->segments[s].name, instr->cost.bytes, (long long)counted);
        }
    return checked;
}

static void bytes__of_random_graphs_are_those_that_an_interpreter_counts(void **state)
{
    ht_context *ctx = test_ctx;
    (void)state;
    const char *wanted = getenv("HALFTONE_LONG");
    int graphs = wanted && strcmp(wanted, "1") == 0 ? 3000 : 300;
    size_t checked = 0;
    for (int seed = 0, planned = 0; planned < graphs; seed++) {
        ht_graph *g = random_graph_build(ctx, (uint64_t)seed, NODES);
        assert_non_null(g);
        /* Inputs of two segments may have one name and several types, which no plan takes. */
        for (int fusion = 0; fusion < 2 && g->segment_count == 1; fusion++, planned += fusion == 2) {
            ht_plan_opts opts = HT_PLAN_OPTS;
            ht_plan *plan;
            opts.no_fusion = !fusion;
            if (ht_plan_create(&plan, g, &opts) != HT_OK) fail_msg("seed %d: %s", seed, ht_context_message(ctx));
            checked += check_plan(plan, seed);
            ht_plan_free(plan);
        }
        ht_graph_free(g);
    }
    assert_true(checked > (size_t)graphs * 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes__of_random_graphs_are_those_that_an_interpreter_counts, context_setup,
                                        context_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
