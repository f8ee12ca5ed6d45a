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

/* ---- what an op reads of its first operand ---- */

static bool is_named(int64_t place, int64_t names, int64_t size)
{
    for (int64_t k = 0; k < names; k++)
        if (random_graph_named(k, size) == place) return true;
    return false;
}

static bool row_is_looked_up(const ht_call *call, const int64_t *at)
{
    return is_named(at[0], ht_type_elems(call->in[1]), call->in[0]->dim[0]);
}

static bool place_is_gathered(const ht_call *call, const int64_t *at)
{
    const ht_type *index = call->in[1];
    int axis = ht_call_axis(call, "axis", index->rank);
    if (ht_type_elems(index) == 0) return false;
    for (int i = 0; i < index->rank; i++)
        if (i != axis && at[i] >= index->dim[i]) return false;
    return is_named(at[axis], index->dim[axis], call->in[0]->dim[axis]);
}

static bool row_is_sliced(const ht_call *call, const int64_t *at)
{
    int64_t first = ht_dynamic_first_row(call, random_graph_named(0, call->in[0]->dim[0]));
    return at[0] >= first && at[0] < first + call->out[0]->dim[0];
}

static bool place_is_in_a_window(const ht_call *call, const int64_t *at)
{
    const ht_type *w = strcmp(call->op->name, "conv2d") == 0 ? call->in[1] : call->out[0];
    const ht_type *y = strcmp(call->op->name, "conv2d") == 0 ? call->out[0] : call->in[1];
    int64_t stride[2], padding[2], dilation[2];
    bool read[2] = {false};
    ht_call_pair(call, "stride", stride);
    ht_call_pair(call, "padding", padding);
    ht_call_pair(call, "dilation", dilation);
    for (int axis = 0; axis < 2; axis++)
        for (int64_t step = 0; step < y->dim[2 + axis]; step++)
            for (int64_t tap = 0; tap < w->dim[2 + axis]; tap++)
                read[axis] |= step * stride[axis] + tap * dilation[axis] - padding[axis] == at[2 + axis];
    return read[0] && read[1];
}

static const struct {
    const char *op;
    bool (*reads)(const ht_call *call, const int64_t *at);
} readers[] = {{"embedding", row_is_looked_up},
               {"gather", place_is_gathered},
               {"dynamic_slice", row_is_sliced},
               {"conv2d", place_is_in_a_window},
               {"conv2d_grad_weight", place_is_in_a_window}};
enum { READERS = sizeof readers / sizeof readers[0] };

/* Its number in the list; READERS: it reads all of its operands. */
static size_t reader_of(const ht_call *call)
{
    size_t i = 0;
    while (i < READERS && strcmp(readers[i].op, call->op->name) != 0) i++;
    return i;
}

/* ---- the interpreter ---- */

/* Those elements of an operand that a call reads; NULL: all of them. */
static void touch(tally *t, const ht_type *type, ht_place place, const ht_call *reader)
{
    size_t way = reader ? reader_of(reader) : READERS;
    int64_t bytes = (int64_t)ht_dtype_bytes(type->dtype), index[HT_MAX_RANK] = {0};
    if (place.area == HT_AREA_NONE || ht_type_elems(type) == 0) return;
    for (int axis = 0; axis >= 0;) {
        int64_t at = place.offset;
        for (int i = 0; i < type->rank; i++) at += index[i] * type->stride[i] * bytes;
        assert_true(t->count < MOST_TOUCHED);
        if (way == READERS || readers[way].reads(reader, index))
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
        if (call->in[i]) touch(&in, call->in[i], instr->in[i], i == 0 ? call : NULL);
    for (size_t i = 0; i < call->n_out; i++) touch(&out, call->out[i], instr->out[i], NULL);
    return count_distinct(&in) + count_distinct(&out);
}

typedef struct checked {
    size_t instrs, by_reader[READERS];
} checked;

static void check_plan(const ht_plan *plan, int seed, checked *sum)
{
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++, sum->instrs++) {
            const ht_instr *instr = &plan->segments[s].instrs[i];
            int64_t counted = interpret(instr);
            if (instr->cost.bytes != (double)counted)
                fail_msg("seed %d: %s, instruction %zu of %s: %.0f bytes, %lld counted", seed, instr->call->op->name, i,
                         plan->segments[s].name, instr->cost.bytes, (long long)counted);
            size_t reader = reader_of(instr->call);
            if (reader < READERS) sum->by_reader[reader]++;
        }
}

static checked check_graphs(ht_graph *(*build)(ht_context *ctx, uint64_t seed, size_t nodes), int graphs)
{
    ht_context *ctx = test_ctx;
    checked sum = {.instrs = 0};
    for (int seed = 0, planned = 0; planned < graphs; seed++) {
        ht_graph *g = build(ctx, (uint64_t)seed, NODES);
        if (!g) fail_msg("seed %d: %s", seed, ht_context_message(ctx));
        /* Inputs of two segments may have one name and several types, which no plan takes. */
        for (int fusion = 0; fusion < 2 && g->segment_count == 1; fusion++, planned += fusion == 2) {
            ht_plan_opts opts = HT_PLAN_OPTS;
            ht_plan *plan;
            opts.no_fusion = !fusion;
            if (ht_plan_create(&plan, g, &opts) != HT_OK) fail_msg("seed %d: %s", seed, ht_context_message(ctx));
            check_plan(plan, seed, &sum);
            ht_plan_free(plan);
        }
        ht_graph_free(g);
    }
    assert_true(sum.instrs > (size_t)graphs * 20);
    return sum;
}

static int graphs_wanted(void)
{
    const char *wanted = getenv("HALFTONE_LONG");
    return wanted && strcmp(wanted, "1") == 0 ? 3000 : 300;
}

static void bytes__of_random_graphs_are_those_that_an_interpreter_counts(void **state)
{
    (void)state;
    check_graphs(random_graph_build, graphs_wanted());
}

/* Costs that are less than the sum of the operands. */
static void bytes__of_lookups_and_windows_are_those_that_are_read(void **state)
{
    (void)state;
    int graphs = graphs_wanted();
    checked sum = check_graphs(random_graph_with_lookups, graphs);
    for (size_t i = 0; i < READERS; i++)
        if (sum.by_reader[i] < (size_t)graphs / 10) fail_msg("%s: %zu", readers[i].op, sum.by_reader[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes__of_random_graphs_are_those_that_an_interpreter_counts, context_setup,
                                        context_teardown),
        cmocka_unit_test_setup_teardown(bytes__of_lookups_and_windows_are_those_that_are_read, context_setup,
                                        context_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
