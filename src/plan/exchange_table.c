#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

static ht_exchange_row *find_row(ht_exchange_table *table, const char *op, const char *group, ht_dtype dtype)
{
    for (size_t i = 0; i < table->count; i++) {
        ht_exchange_row *row = &table->rows[i];
        if (strcmp(row->op, op) == 0 && strcmp(row->group, group) == 0 && row->dtype == dtype) return row;
    }
    assert(table->count < HT_MOST_EXCHANGE_ROWS);
    ht_exchange_row *row = &table->rows[table->count++];
    *row = (ht_exchange_row){.op = op, .dtype = dtype};
    snprintf(row->group, sizeof row->group, "%s", group);
    return row;
}

/* "all_reduce_start" is an all_reduce. */
static ht_comm_kind kind_of(const ht_op *op)
{
    int kind = HT_COMM_BARRIER + 1;
    while (kind < HT_COMM_KIND_COUNT - 1 &&
           strncmp(op->name, ht_comm_kind_names[kind], strlen(ht_comm_kind_names[kind])) != 0)
        kind++;
    return (ht_comm_kind)kind;
}

/* Of what is exchanged: a gather's is what all ranks have together. */
static int64_t bytes_of(const ht_call *call)
{
    const ht_type *in = call->n_in ? call->in[0] : call->out[0], *out = call->out[0];
    return ht_type_bytes(in) > ht_type_bytes(out) ? ht_type_bytes(in) : ht_type_bytes(out);
}

ht_comm_sent ht_exchange_sent(const ht_call *call)
{
    const ht_type *type = call->n_in ? call->in[0] : call->out[0];
    ht_comm_kind kind = kind_of(call->op);
    int64_t ranks = ht_call_int(call, "ranks"), elems = ht_type_elems(type);
    bool pieces = kind == HT_COMM_ALL_TO_ALL || kind == HT_COMM_REDUCE_SCATTER;
    return ht_comm_call_sent(kind, type->dtype, pieces ? elems / ranks : elems, (int)ranks);
}

static void add_call(ht_exchange_table *table, const ht_call *call, int64_t times)
{
    const ht_type *in = call->n_in ? call->in[0] : call->out[0];
    int64_t bytes = bytes_of(call);
    ht_comm_sent sent = ht_exchange_sent(call);
    ht_exchange_row *row =
        find_row(table, ht_comm_kind_names[kind_of(call->op)], ht_call_text(call, "group"), in->dtype);
    row->calls += times;
    row->bytes += times * bytes;
    row->sent += times * sent.bytes;
    row->messages += times * sent.messages;
    if (bytes > row->largest) row->largest = bytes;
}

ht_exchange_table ht_plan_exchange_table(const ht_plan *plan)
{
    ht_exchange_table table = {.count = 0};
    int program = ht_plan_program_find(plan, "train");
    const ht_plan_program *train = program < 0 ? NULL : &plan->programs[program];
    for (size_t c = 0; train && c < train->call_count; c++) {
        const ht_plan_segment *s = &plan->segments[train->calls[c].segment];
        for (size_t i = 0; i < s->instr_count; i++)
            if (s->instrs[i].call->op->flags & HT_OP_COLLECTIVE)
                add_call(&table, s->instrs[i].call, train->calls[c].times);
    }
    return table;
}

static bool is_of_tensors(ht_heading heading)
{
    return heading == HT_HEADING_PARAMETERS || heading == HT_HEADING_MASTERS || heading == HT_HEADING_WEIGHTS ||
           heading == HT_HEADING_GRADIENTS || heading == HT_HEADING_OPTIMIZER;
}

/* Is it a tensor of the model, its gradient, moment or copy? Others view buckets and pieces of flat groups. */
static bool is_tensor(const ht_plan *plan, const ht_slot *slot)
{
    bool copy = plan->slots[slot->owner].derived;
    return slot->derived == copy && strncmp(slot->name, "flat.", 5) != 0;
}

int64_t ht_plan_padding_bytes(const ht_plan *plan)
{
    int64_t padding = 0;
    for (size_t i = 0; i < plan->slot_count; i++) {
        const ht_slot *slot = &plan->slots[i];
        if (slot->kind != HT_SLOT_STATE || !is_of_tensors(slot->heading)) continue;
        if (slot->owner == i && strncmp(slot->name, "flat.", 5) == 0) padding += ht_type_bytes(&slot->type);
        if (slot->owner != i && is_tensor(plan, slot)) padding -= ht_type_bytes(&slot->type);
    }
    return padding;
}
