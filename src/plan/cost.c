/* What instructions cost: FLOPs by kind, and bytes that they read and write. */
#include <string.h>

#include "plan/plan.h"

ht_cost ht_plan_node_cost(const ht_call *call, const ht_node *node)
{
    ht_cost cost = ht_call_cost(call);
    return node && node->recomputed ? ht_cost_recomputed(cost) : cost;
}

static bool same_elements(const ht_type *a, const ht_type *b)
{
    return ht_type_same(a, b) && memcmp(a->stride, b->stride, (size_t)a->rank * sizeof a->stride[0]) == 0;
}

void ht_plan_read_once(ht_instr *instr)
{
    const ht_call *call = instr->call;
    for (size_t i = 1; i < call->n_in; i++) {
        bool again = false;
        for (size_t j = 0; j < i && !again && instr->in[i].area != HT_AREA_NONE; j++)
            again = ht_place_same(instr->in[i], instr->in[j]) && same_elements(call->in[i], call->in[j]);
        if (again) instr->cost.bytes -= (double)ht_type_distinct_bytes(call->in[i]);
    }
}

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
