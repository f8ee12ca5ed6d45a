/* What instructions cost: FLOPs by kind, and bytes that they read and write. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

ht_cost ht_plan_node_cost(const ht_call *call, const ht_node *node)
{
    ht_cost cost = ht_call_cost(call);
    return node && node->recomputed ? ht_cost_recomputed(cost) : cost;
}

/* ---- elements that several operands have in common ---- */

static bool same_elements(const ht_type *a, const ht_type *b)
{
    return ht_type_same(a, b) && memcmp(a->stride, b->stride, (size_t)a->rank * sizeof a->stride[0]) == 0;
}

/* Bytes from the first element of an operand to behind its last. */
static int64_t span_of(const ht_type *type)
{
    int64_t last = 0;
    if (ht_type_elems(type) == 0) return 0;
    for (int i = 0; i < type->rank; i++) last += (type->dim[i] - 1) * type->stride[i];
    return (last + 1) * (int64_t)ht_dtype_bytes(type->dtype);
}

static bool in_one_area(ht_place a, ht_place b)
{
    return a.area != HT_AREA_NONE && a.space == b.space && a.area == b.area;
}

static bool overlap(const ht_instr *instr, size_t i, size_t j)
{
    ht_place a = instr->in[i], b = instr->in[j];
    return in_one_area(a, b) && a.offset < b.offset + span_of(instr->call->in[j]) &&
           b.offset < a.offset + span_of(instr->call->in[i]);
}

/* Are all elements of operand i among those of operand j? Where j has gaps this sees only that they are the same. */
static bool lies_in(const ht_instr *instr, size_t i, size_t j)
{
    const ht_type *small = instr->call->in[i], *large = instr->call->in[j];
    int64_t from = instr->in[i].offset - instr->in[j].offset;
    if (!in_one_area(instr->in[i], instr->in[j])) return false;
    if (from == 0 && same_elements(small, large)) return true;
    return span_of(large) == ht_type_distinct_bytes(large) && from >= 0 && from + span_of(small) <= span_of(large);
}

/* Larger ones are taken to be slices that have nothing in common. */
enum { MOST_MARKED_BYTES = 1 << 20 };

/* Marks the elements of an operand from `at` on; how many were not marked before, in bytes. */
static int64_t mark(unsigned char *marks, const ht_type *type, int64_t at)
{
    int64_t bytes = (int64_t)ht_dtype_bytes(type->dtype), fresh = 0;
    for (int64_t i = 0, elems = ht_type_elems(type); i < elems; i++) {
        int64_t rest = i, place = at;
        for (int axis = type->rank - 1; axis >= 0; rest /= type->dim[axis--])
            place += rest % type->dim[axis] * type->stride[axis] * bytes;
        if (!marks[place]) fresh += bytes;
        marks[place] = 1;
    }
    return fresh;
}

/* Bytes that operand i has in common with those before it that are not `again`. */
static int64_t shared_bytes(const ht_instr *instr, const bool *again, size_t i)
{
    const ht_call *call = instr->call;
    int64_t first = instr->in[i].offset, end = first + span_of(call->in[i]);
    bool any = false;
    for (size_t j = 0; j < i; j++) {
        if (again[j] || !call->in[j] || !overlap(instr, i, j)) continue;
        any = true;
        if (instr->in[j].offset < first) first = instr->in[j].offset;
        if (instr->in[j].offset + span_of(call->in[j]) > end) end = instr->in[j].offset + span_of(call->in[j]);
    }
    unsigned char *marks = any && end - first <= MOST_MARKED_BYTES ? calloc((size_t)(end - first), 1) : NULL;
    if (!marks) return 0;
    for (size_t j = 0; j < i; j++)
        if (!again[j] && call->in[j] && overlap(instr, i, j)) mark(marks, call->in[j], instr->in[j].offset - first);
    int64_t fresh = mark(marks, call->in[i], instr->in[i].offset - first);
    free(marks);
    return ht_type_distinct_bytes(call->in[i]) - fresh;
}

void ht_plan_read_once(ht_instr *instr)
{
    enum { MOST = 64 };
    const ht_call *call = instr->call;
    bool again[MOST] = {false};
    if (instr->cost.bytes == 0) return; /* it waits for another one */
    for (size_t i = 0; i < call->n_in && i < MOST; i++) {
        if (!call->in[i] || ht_type_elems(call->in[i]) == 0) continue;
        for (size_t j = 0; j < call->n_in && j < MOST && !again[i]; j++) {
            if (j == i || again[j] || !call->in[j]) continue;
            again[i] = lies_in(instr, i, j);
        }
        int64_t shared = again[i] ? ht_type_distinct_bytes(call->in[i]) : shared_bytes(instr, again, i);
        instr->cost.bytes -= (double)shared;
    }
}

/* ---- sums ---- */

ht_cost ht_plan_segment_cost(const ht_plan_segment *segment)
{
    ht_cost sum = {0};
    for (size_t i = 0; i < segment->instr_count; i++) ht_cost_add(&sum, segment->instrs[i].cost, 1);
    return sum;
}

ht_cost ht_plan_program_cost(const ht_plan *plan, const ht_plan_program *program)
{
    ht_cost sum = {0};
    for (size_t i = 0; i < program->call_count; i++) {
        const ht_program_call *call = &program->calls[i];
        ht_cost_add(&sum, ht_plan_segment_cost(&plan->segments[call->segment]), call->times);
    }
    return sum;
}

/* What a call's products would be without its causal mask, less what they are. */
static double masked_flops(const ht_call *call)
{
    ht_attr attr[8];
    bool causal = false;
    if (call->n_attr > sizeof attr / sizeof attr[0] || !ht_op_has_attr(call->op, "causal")) return 0;
    for (size_t i = 0; i < call->n_attr; i++) {
        attr[i] = call->attr[i];
        if (strcmp(attr[i].key, "causal") != 0) continue;
        causal = attr[i].i != 0;
        attr[i].i = 0;
    }
    ht_call whole = *call;
    whole.attr = attr;
    return causal ? ht_call_cost(&whole).dot_flops - ht_call_cost(call).dot_flops : 0;
}

void ht_step_flops_add(ht_step_flops *sum, const ht_instr *instr, double times)
{
    double *const by_role[HT_ROLE_COUNT] = {
        [HT_ROLE_FWD] = &sum->forward,
        [HT_ROLE_BWD_ACT] = &sum->backward,
        [HT_ROLE_BWD_WEIGHT] = &sum->backward,
        [HT_ROLE_UPDATE] = &sum->update,
    };
    *by_role[instr->role] += times * instr->cost.dot_flops;
    sum->recomputed += times * instr->cost.recomputed_flops;
    sum->other += times * instr->cost.other_flops;
    if (!instr->recomputed) sum->masked += times * masked_flops(ht_instr_call(instr));
}

ht_step_flops ht_plan_program_flops(const ht_plan *plan, const ht_plan_program *program)
{
    ht_step_flops sum = {0};
    for (size_t c = 0; c < program->call_count; c++) {
        const ht_plan_segment *s = &plan->segments[program->calls[c].segment];
        for (size_t i = 0; i < s->instr_count; i++)
            ht_step_flops_add(&sum, &s->instrs[i], (double)program->calls[c].times);
    }
    return sum;
}

static int64_t moved_bytes(const ht_instr *instr)
{
    const ht_call *call = instr->call;
    bool crosses = (call->op->flags & HT_OP_CROSSES) && !call->op->start && call->in[0]->space != call->out[0]->space;
    return crosses ? ht_type_bytes(call->out[0]) : 0;
}

int64_t ht_plan_program_moved(const ht_plan *plan, const ht_plan_program *program)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < program->call_count; i++) {
        const ht_plan_segment *segment = &plan->segments[program->calls[i].segment];
        for (size_t k = 0; k < segment->instr_count; k++)
            bytes += moved_bytes(&segment->instrs[k]) * program->calls[i].times;
    }
    return bytes;
}
