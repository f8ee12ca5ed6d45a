#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

/* Of N ranks: pieces of the value go to the others, and sums of pieces come back. A message goes to one. */
static int64_t sent_bytes(const char *op, int64_t bytes, int64_t ranks)
{
    if (strcmp(op, "send") == 0) return bytes;
    if (strcmp(op, "recv") == 0) return 0;
    int64_t others = bytes - bytes / ranks;
    return strcmp(op, "all_reduce") == 0 ? 2 * others : others;
}

static ht_exchange_row *find_row(ht_exchange_table *table, const char *op, const char *group, ht_dtype dtype)
{
    for (size_t i = 0; i < table->count; i++) {
        ht_exchange_row *row = &table->rows[i];
        if (strcmp(row->op, op) == 0 && strcmp(row->group, group) == 0 && row->dtype == dtype) return row;
    }
    if (table->count == HT_MOST_EXCHANGE_ROWS) return NULL;
    ht_exchange_row *row = &table->rows[table->count++];
    *row = (ht_exchange_row){.op = op, .dtype = dtype};
    snprintf(row->group, sizeof row->group, "%s", group);
    return row;
}

/* The op without "_start". */
static const char *name_of(const ht_op *op)
{
    static const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
                                        "send",       "recv"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(op->name, names[i], strlen(names[i])) == 0) return names[i];
    return op->name;
}

/* Of what is exchanged: a gather's is what all ranks have together. */
static int64_t bytes_of(const ht_call *call)
{
    const ht_type *in = call->n_in ? call->in[0] : call->out[0], *out = call->out[0];
    return ht_type_bytes(in) > ht_type_bytes(out) ? ht_type_bytes(in) : ht_type_bytes(out);
}

int64_t ht_exchange_sent(const ht_call *call)
{
    return sent_bytes(name_of(call->op), bytes_of(call), ht_call_int(call, "ranks"));
}

static void add_call(ht_exchange_table *table, const ht_call *call, int64_t times)
{
    const ht_type *in = call->n_in ? call->in[0] : call->out[0];
    int64_t bytes = bytes_of(call);
    ht_exchange_row *row = find_row(table, name_of(call->op), ht_call_text(call, "group"), in->dtype);
    if (!row) return;
    row->calls += times;
    row->bytes += times * bytes;
    row->sent += times * ht_exchange_sent(call);
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
