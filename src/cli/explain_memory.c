/* What `halftone explain` says about activations: what is kept from forward to backward, what is moved elsewhere
 * meanwhile, and what is computed again. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/explain_view.h"

/* Values of one op in layers that are alike. */
typedef struct memory_row {
    char *layer;    /* heap memory */
    const char *op; /* or a space that values are moved to */
    size_t times;
    int64_t bytes;
    double ms; /* of what is computed again, at the machine's ceilings */
} memory_row;

typedef struct memory_rows {
    memory_row *list;
    size_t count;
    bool failed;
} memory_rows;

static void free_rows(memory_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) free(rows->list[i].layer);
    free(rows->list);
}

static void add_row(memory_rows *rows, const char *site, const char *op, int64_t bytes, double ms, bool all)
{
    char *layer = all ? strdup(site) : cli_layer_pattern(site);
    rows->failed |= !layer;
    for (size_t i = 0; layer && i < rows->count; i++) {
        memory_row *row = &rows->list[i];
        if (strcmp(row->layer, layer) != 0 || strcmp(row->op, op) != 0) continue;
        row->times++;
        row->bytes += bytes;
        row->ms += ms;
        free(layer);
        return;
    }
    if (layer) rows->list[rows->count++] = (memory_row){layer, op, 1, bytes, ms};
}

static const ht_plan_segment *first_segment(const ht_plan *plan)
{
    int found = ht_plan_segment_find(plan, "micro_first");
    return found < 0 ? NULL : &plan->segments[found];
}

static memory_rows kept_rows(const ht_plan *plan, bool all)
{
    const ht_plan_segment *s = first_segment(plan);
    memory_rows rows = {.list = calloc((s ? s->held_count : 0) + 1, sizeof *rows.list)};
    rows.failed = !rows.list;
    for (size_t i = 0; s && !rows.failed && i < s->held_count; i++)
        add_row(&rows, s->held[i].site, s->held[i].op, s->held[i].bytes, 0, all);
    return rows;
}

/* Copies in two parts that lead away from main; the space that they lead to is in place of an op. */
static memory_rows moved_rows(const ht_plan *plan, bool all)
{
    const ht_plan_segment *s = first_segment(plan);
    memory_rows rows = {.list = calloc((s ? s->instr_count : 0) + 1, sizeof *rows.list)};
    rows.failed = !rows.list;
    for (size_t i = 0; s && !rows.failed && i < s->instr_count; i++) {
        const ht_instr *instr = &s->instrs[i];
        const ht_type *to = instr->call->out[0];
        if (instr->queue == HT_QUEUE_COPY_OUT)
            add_row(&rows, instr->site ? instr->site : "", ht_space_name(to->space), ht_type_bytes(to), 0, all);
    }
    return rows;
}

static double milliseconds(const ht_plan *plan, const ht_instr *instr)
{
    ht_dtype reads = instr->call->n_in && instr->call->in[0] ? instr->call->in[0]->dtype : HT_F32;
    double compute = ht_cost_flops(instr->cost) / ht_target_flops(&plan->target, reads);
    double memory = instr->cost.bytes / ht_target_bandwidth(&plan->target, HT_SPACE_MAIN);
    return 1e3 * (compute > memory ? compute : memory);
}

static memory_rows recomputed_rows(const ht_plan *plan, bool all)
{
    const ht_plan_segment *s = first_segment(plan);
    memory_rows rows = {.list = calloc((s ? s->instr_count : 0) + 1, sizeof *rows.list)};
    rows.failed = !rows.list;
    for (size_t i = 0; s && !rows.failed && i < s->instr_count; i++) {
        const ht_instr *instr = &s->instrs[i];
        int64_t bytes = 0;
        if (!instr->recomputed) continue;
        for (size_t k = 0; k < instr->call->n_out; k++) bytes += ht_type_bytes(instr->call->out[k]);
        add_row(&rows, instr->site ? instr->site : "", ht_instr_op(instr), bytes, milliseconds(plan, instr), all);
    }
    return rows;
}

/* ---- the terminal ---- */

static void print_rows(ht_text *text, const memory_rows *rows, const char *title, const char *what, bool timed)
{
    if (!rows->count) return;
    ht_table table = {.count = 0};
    ht_table_head(&table, title);
    ht_table_head(&table, what);
    ht_table_head(&table, "times");
    ht_table_head(&table, "bytes");
    if (timed) ht_table_head(&table, "ms at the ceilings");
    for (size_t i = 2; i < (timed ? 5 : 4); i++) table.right[i] = true;
    for (size_t i = 0; i < rows->count; i++) {
        const memory_row *row = &rows->list[i];
        ht_table_cell(&table, "%s", row->layer[0] ? row->layer : "(none)");
        ht_table_cell(&table, "%s", row->op);
        ht_table_cell(&table, "%zu", row->times);
        ht_table_cell(&table, "%" PRId64, row->bytes);
        if (timed) ht_table_cell(&table, "%.3g", row->ms);
    }
    ht_text_add(text, "\n");
    ht_table_print(text, &table, cli_columns());
    ht_table_free(&table);
}

void cli_explain_memory(ht_text *text, const cli_explained *e, bool all)
{
    memory_rows kept = kept_rows(e->plan, all), moved = moved_rows(e->plan, all);
    memory_rows again = recomputed_rows(e->plan, all);
    print_rows(text, &kept, "kept for backward", "op", false);
    print_rows(text, &moved, "moved until backward", "to", false);
    print_rows(text, &again, "computed again", "op", true);
    text->failed |= kept.failed || moved.failed || again.failed;
    free_rows(&kept);
    free_rows(&moved);
    free_rows(&again);
}

/* ---- JSON ---- */

static void put_rows(ht_json_writer *json, const memory_rows *rows, const char *name, const char *what, bool timed)
{
    ht_json_line(json, 1);
    ht_json_begin_array(json, name);
    for (size_t i = 0; i < rows->count; i++) {
        const memory_row *row = &rows->list[i];
        ht_json_line(json, 2);
        ht_json_begin_object(json, NULL);
        ht_json_put_text(json, "layer", row->layer);
        ht_json_put_text(json, what, row->op);
        ht_json_put_uint(json, "times", row->times);
        ht_json_put_int(json, "bytes", row->bytes);
        if (timed) ht_json_put_number(json, "ms", row->ms);
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
}

void cli_explain_memory_json(ht_json_writer *json, const cli_explained *e)
{
    memory_rows kept = kept_rows(e->plan, true), moved = moved_rows(e->plan, true);
    memory_rows again = recomputed_rows(e->plan, true);
    put_rows(json, &kept, "kept", "op", false);
    put_rows(json, &moved, "moved", "to", false);
    put_rows(json, &again, "recomputed", "op", true);
    json->text->failed |= kept.failed || moved.failed || again.failed;
    free_rows(&kept);
    free_rows(&moved);
    free_rows(&again);
}
