#include "cli/explain_view.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- planning, with an ear on it ---- */

static const char *level_of(const ht_pass *pass)
{
    return pass->system ? "system" : "model";
}

static ht_status keep_text(cli_explained *e, const cli_pass_note *note, const ht_graph *g)
{
    char *text;
    HT_TRY(ht_graph_print(&text, g));
    ht_text_add(&e->graphs, "# after pass %zu, %s: %s; model %016" PRIx64 "\n%s\n", e->pass_count, note->pass->name,
                level_of(note->pass), note->model_hash, text);
    free(text);
    return HT_OK;
}

static ht_status after_pass(void *arg, const ht_pass *pass, const ht_graph *g)
{
    cli_explained *e = arg;
    if (e->pass_count == CLI_MOST_PASSES) HT_FAIL(e->ctx, HT_ENOTSUP, "more than %d passes", CLI_MOST_PASSES);
    cli_pass_note *note = &e->passes[e->pass_count++];
    *note = (cli_pass_note){.pass = pass};
    HT_TRY(ht_model_hash(&note->model_hash, g));
    for (size_t s = 0; s < g->segment_count; s++) {
        note->nodes += g->segments[s].node_count;
        for (size_t i = 0; i < g->segments[s].node_count; i++)
            note->casts += strcmp(g->nodes[g->segments[s].nodes[i]].op->name, "cast") == 0;
    }
    ht_graph_free(e->last);
    e->last = NULL;
    HT_TRY(ht_graph_clone(&e->last, g));
    if (!e->keep_text || (e->only_pass && strcmp(e->only_pass, pass->name) != 0)) return HT_OK;
    return keep_text(e, note, g);
}

ht_status cli_explain(cli_explained *e, ht_context *ctx, const ht_run_request *request)
{
    ht_run_request wanted = *request;
    ht_pass_observer observer = {after_pass, e};
    e->ctx = ctx;
    wanted.observer = &observer;
    HT_TRY(ht_run_plan(&e->plan, ctx, &wanted));
    if (ht_config_train(request->config)->ranks > 1) cli_stages_plan(&e->stages, ctx, request);
    return ht_plan_explain(&e->table, e->plan);
}

void cli_explained_free(cli_explained *e)
{
    ht_explanation_free(&e->table);
    ht_plan_free(e->plan);
    ht_graph_free(e->last);
    ht_text_free(&e->graphs);
}

/* ---- rows that are alike ---- */

char *cli_layer_pattern(const char *layer)
{
    char *pattern = malloc(strlen(layer) + 1), *to = pattern;
    for (const char *at = layer; pattern && *at;) {
        size_t length = strcspn(at, "."), digits = strspn(at, "0123456789");
        if (length > 0 && digits == length) {
            *to++ = '*';
        } else {
            memcpy(to, at, length);
            to += length;
        }
        at += length;
        if (*at) *to++ = *at++;
    }
    if (pattern) *to = '\0';
    return pattern;
}

/* A row as it is shown: one of the plan's, or several that say the same. */
typedef struct shown_row {
    const ht_explain_row *row; /* the first of them */
    char *layer;
    size_t layer_order, count;
    int64_t bytes;
    size_t note; /* of its refusals, from 1; 0: none */
} shown_row;

typedef struct shown_rows {
    shown_row *list;
    size_t count;
    char **notes; /* refusals, each once */
    size_t note_count;
    bool isa_left_out; /* a kernel of a better instruction set than the plan's was among them */
} shown_rows;

static void free_shown(shown_rows *s)
{
    for (size_t i = 0; i < s->count; i++) free(s->list[i].layer);
    for (size_t i = 0; i < s->note_count; i++) free(s->notes[i]);
    free(s->list);
    free(s->notes);
}

static bool says_the_same(const ht_explain_row *a, const ht_explain_row *b)
{
    return a->block == b->block && strcmp(a->op, b->op) == 0 && strcmp(a->in, b->in) == 0 &&
           strcmp(a->out, b->out) == 0 && strcmp(a->prec_class, b->prec_class) == 0 &&
           strcmp(a->kernel, b->kernel) == 0 && strcmp(a->refused, b->refused) == 0;
}

static int by_layer(const void *left, const void *right)
{
    const shown_row *a = left, *b = right;
    bool a_last = a->layer[0] == '(', b_last = b->layer[0] == '(';
    if (a_last != b_last) return a_last ? 1 : -1;
    if (a->layer_order != b->layer_order) return a->layer_order < b->layer_order ? -1 : 1;
    if (a->row->block != b->row->block) return a->row->block < b->row->block ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

/* Kernels of instruction sets that the plan is not for refuse every call: that is said once, and not in each note. */
static bool lacks_isa(const char *refusal, size_t length)
{
    const char *reason = strstr(refusal, ": needs ");
    if (!reason || reason >= refusal + length) return false;
    reason += strlen(": needs ");
    for (int isa = 0; isa < HT_ISA_COUNT; isa++) {
        const char *name = ht_isa_name((ht_isa)isa);
        if (strlen(name) == length - (size_t)(reason - refusal) && strncmp(reason, name, strlen(name)) == 0)
            return true;
    }
    return false;
}

/* Nor do rows belong there that take liberties which nobody wants. */
static bool is_not_asked(const char *refusal, size_t length)
{
    size_t reason = strlen(ht_not_asked);
    return length > reason && strncmp(refusal + length - reason, ht_not_asked, reason) == 0;
}

/* "name: reason; name: reason" without those; heap memory, NULL when memory is out. */
static char *make_note(shown_rows *s, const char *refused)
{
    ht_text text = {0};
    for (const char *at = refused, *end; *at; at = end) {
        end = strstr(at, "; ");
        size_t length = end ? (size_t)(end - at) : strlen(at);
        if (lacks_isa(at, length))
            s->isa_left_out = true;
        else if (!is_not_asked(at, length))
            ht_text_add(&text, "%s%.*s", text.length ? "; " : "", (int)length, at);
        end = end ? end + 2 : at + length;
    }
    ht_text_add(&text, "%s", "");
    if (!text.failed) return text.data;
    ht_text_free(&text);
    return NULL;
}

static bool set_note(shown_rows *s, shown_row *shown)
{
    char *note = make_note(s, shown->row->refused);
    size_t i = 0;
    if (!note) return false;
    while (i < s->note_count && strcmp(s->notes[i], note) != 0) i++;
    shown->note = note[0] ? i + 1 : 0;
    if (i == s->note_count && note[0])
        s->notes[s->note_count++] = note;
    else
        free(note);
    return true;
}

/* Where the rows of a layer stand: beside others of its name. */
static size_t order_of(const shown_rows *s, const char *layer, size_t otherwise)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->list[i].layer, layer) == 0) return s->list[i].layer_order;
    return otherwise;
}

static void add_shown(shown_rows *s, const ht_explain_row *row, char *layer)
{
    for (size_t i = 0; i < s->count; i++) {
        shown_row *known = &s->list[i];
        if (strcmp(known->layer, layer) != 0 || !says_the_same(known->row, row)) continue;
        known->count++;
        known->bytes += (int64_t)row->cost.bytes;
        free(layer);
        return;
    }
    size_t order = order_of(s, layer, row->layer_order);
    s->list[s->count++] = (shown_row){row, layer, order, 1, (int64_t)row->cost.bytes, 0};
}

static bool show(shown_rows *s, const ht_explanation *table, bool all)
{
    *s = (shown_rows){.list = calloc(table->count + 1, sizeof *s->list),
                      .notes = calloc(table->count + 1, sizeof *s->notes)};
    bool ok = s->list && s->notes;
    for (size_t i = 0; i < table->count && ok; i++) {
        char *layer = all ? strdup(table->rows[i].layer) : cli_layer_pattern(table->rows[i].layer);
        ok = layer != NULL;
        if (ok) add_shown(s, &table->rows[i], layer);
    }
    if (ok && s->count) qsort(s->list, s->count, sizeof *s->list, by_layer);
    for (size_t i = 0; i < s->count && ok; i++) ok = set_note(s, &s->list[i]);
    return ok;
}

/* ---- cells ---- */

enum { LAYER, BLOCK, OP, TIMES, IN, OUT, CLASS, BYTES, KERNEL, COLUMNS };

static const char *const heads[COLUMNS] = {"layer", "block", "op", "times", "in", "out", "class", "bytes", "kernel"};

/* [rows, COLUMNS] in an arena; NULL when memory is out. A layer is named in its first row. */
static const char **make_cells(ht_arena *arena, const shown_rows *s)
{
    const char **cells = HT_NEW(arena, const char *, s->count *COLUMNS + 1);
    for (size_t i = 0; i < s->count && cells; i++) {
        const shown_row *shown = &s->list[i];
        char times[24], bytes[24], kernel[256];
        bool again = i > 0 && strcmp(s->list[i - 1].layer, shown->layer) == 0;
        snprintf(times, sizeof times, "%zu", shown->count);
        snprintf(bytes, sizeof bytes, "%" PRId64, shown->bytes);
        snprintf(kernel, sizeof kernel, shown->note ? "%s [%zu]" : "%s", shown->row->kernel, shown->note);
        const char **row = &cells[i * COLUMNS];
        row[LAYER] = again ? "" : shown->layer;
        row[BLOCK] = ht_figure_names[shown->row->block];
        row[OP] = shown->row->op;
        row[TIMES] = ht_arena_text(arena, times, strlen(times));
        row[IN] = shown->row->in[0] ? shown->row->in : "-";
        row[OUT] = shown->row->out;
        row[CLASS] = shown->row->prec_class;
        row[BYTES] = ht_arena_text(arena, bytes, strlen(bytes));
        row[KERNEL] = ht_arena_text(arena, kernel, strlen(kernel));
        if (!row[TIMES] || !row[BYTES] || !row[KERNEL]) cells = NULL;
    }
    return cells;
}

/* ---- the terminal ---- */

/* On a narrow terminal a layer stands above its blocks, not beside them. */
static void add_cells(ht_text *text, const char *const *cells, size_t rows)
{
    static const int ranks[COLUMNS] = {[CLASS] = 4, [TIMES] = 3, [BYTES] = 2, [KERNEL] = 1};
    enum { NARROW = 120 };
    ht_table table = {.count = 0};
    int first = cli_columns() > 0 && cli_columns() < NARROW ? BLOCK : LAYER;
    for (int c = first; c < COLUMNS; c++) {
        ht_table_head(&table, first == BLOCK && c == BLOCK ? "layer, block" : heads[c]);
        table.rank[c - first] = ranks[c];
        table.right[c - first] = c == TIMES || c == BYTES;
    }
    for (size_t r = 0; r < rows; r++) {
        const char *const *row = cells + r * COLUMNS;
        for (int c = BLOCK; first == BLOCK && row[LAYER][0] && c < COLUMNS; c++)
            ht_table_cell(&table, "%s", c == BLOCK ? row[LAYER] : "");
        for (int c = first; c < COLUMNS; c++)
            ht_table_cell(&table, first == BLOCK && c == BLOCK ? "  %s" : "%s", row[c]);
    }
    ht_table_print(text, &table, cli_columns());
    ht_table_free(&table);
}

static void add_passes(ht_text *text, const cli_explained *e)
{
    ht_text_add(text, "%-10s  %-6s  %-16s  %5s  %5s\n", "pass", "level", "model", "nodes", "casts");
    for (size_t i = 0; i < e->pass_count; i++) {
        const cli_pass_note *note = &e->passes[i];
        ht_text_add(text, "%-10s  %-6s  %016" PRIx64 "  %5zu  %5zu\n", note->pass->name, level_of(note->pass),
                    note->model_hash, note->nodes, note->casts);
    }
    ht_text_add(text, "A pass of the system leaves the model as it is: the hash is compared before and after.\n");
}

static void add_bytes(ht_text *text, const ht_plan *plan)
{
    ht_byte_table table = ht_plan_byte_table(plan);
    ht_byte_table_print(text, &table, "");
    ht_text_add(text, "%-18s %16" PRId64 "\n", "plan_bytes", ht_plan_bytes(plan));
}

/* Of a step with all its micro-batches, or of forward where nothing is trained. */
static ht_cost step_cost(const ht_plan *plan)
{
    int train = ht_plan_program_find(plan, "train"), forward = ht_plan_segment_find(plan, "forward");
    if (train >= 0) return ht_plan_program_cost(plan, &plan->programs[train]);
    return forward >= 0 ? ht_plan_segment_cost(&plan->segments[forward]) : (ht_cost){0};
}

static void add_flops(ht_text *text, const ht_plan *plan)
{
    ht_cost cost = step_cost(plan);
    ht_text_add(text, "%-18s %16.0f\n%-18s %16.0f\n", "dot_flops", cost.dot_flops, "other_flops", cost.other_flops);
    if (cost.recomputed_flops > 0) ht_text_add(text, "%-18s %16.0f\n", "recomputed_flops", cost.recomputed_flops);
}

/* A refusal a line. */
static void add_note(ht_text *text, size_t number, const char *note)
{
    for (const char *at = note, *end; *at; at = end) {
        end = strstr(at, "; ");
        size_t length = end ? (size_t)(end - at) : strlen(at);
        if (at == note)
            ht_text_add(text, "[%zu] %.*s\n", number, (int)length, at);
        else
            ht_text_add(text, "    %.*s\n", (int)length, at);
        end = end ? end + 2 : at + length;
    }
}

static void add_header(ht_text *text, const ht_plan *plan)
{
    const ht_target *target = &plan->target;
    if (target->device == HT_DEVICE_CUDA)
        ht_text_add(text, "%s; kernels for device %s\n\n", plan->precision, plan->device);
    else
        ht_text_add(text, "%s; kernels for %s, %d thread%s\n\n", plan->precision, ht_isa_name(target->isa),
                    target->threads, target->threads == 1 ? "" : "s");
    if (target->no_kernels)
        ht_text_add(text,
                    "There are no kernels for %s: those of %s stand in. State and activations are exact, workspace is "
                    "unknown.\n\n",
                    target->name, ht_isa_name(target->isa));
}

static void add_rows(ht_text *text, const cli_explained *e, bool all)
{
    shown_rows shown;
    ht_arena *arena = ht_arena_create();
    bool ok = show(&shown, &e->table, all);
    const char **cells = ok && arena ? make_cells(arena, &shown) : NULL;
    ht_text_add(text, "\n");
    cli_explain_figure(text, e);
    ht_text_add(text, "\n");
    if (cells)
        add_cells(text, cells, shown.count);
    else
        text->failed = true;
    if (shown.isa_left_out)
        ht_text_add(text, "\nThe plan is for %s: kernels of better instruction sets refuse every call.\n",
                    ht_isa_name(e->plan->target.isa));
    if (shown.note_count) ht_text_add(text, "\nKernels that stand before the chosen one, and why they refused:\n");
    for (size_t i = 0; i < shown.note_count; i++) add_note(text, i + 1, shown.notes[i]);
    free_shown(&shown);
    ht_arena_free(arena);
}

void cli_explain_table(ht_text *text, const cli_explained *e, bool all)
{
    add_header(text, e->plan);
    add_passes(text, e);
    ht_text_add(text, "\n");
    add_bytes(text, e->plan);
    add_flops(text, e->plan);
    if (e->stages.ranks > 1) cli_stages_print(text, &e->stages);
    cli_explain_memory(text, e, all);
    add_rows(text, e, all);
}

/* ---- JSON ---- */

static void put_flops(ht_json_writer *json, ht_cost cost)
{
    ht_json_put_number(json, "dot_flops", cost.dot_flops);
    ht_json_put_number(json, "other_flops", cost.other_flops);
    ht_json_put_number(json, "recomputed_flops", cost.recomputed_flops);
}

static void put_row(ht_json_writer *json, const ht_explain_row *row)
{
    ht_json_line(json, 2);
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "layer", row->layer);
    ht_json_put_text(json, "block", ht_figure_names[row->block]);
    ht_json_put_text(json, "op", row->op);
    ht_json_put_text(json, "in", row->in);
    ht_json_put_text(json, "out", row->out);
    ht_json_put_text(json, "in_types", row->in_types);
    ht_json_put_text(json, "out_types", row->out_types);
    put_flops(json, row->cost);
    ht_json_put_text(json, "class", row->prec_class);
    ht_json_put_int(json, "bytes", (int64_t)row->cost.bytes);
    ht_json_put_text(json, "kernel", row->kernel);
    ht_json_put_text(json, "refused", row->refused);
    ht_json_end_object(json);
}

static void put_pass(ht_json_writer *json, const cli_pass_note *note)
{
    ht_json_line(json, 2);
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "name", note->pass->name);
    ht_json_put_text(json, "level", level_of(note->pass));
    ht_json_put_hash(json, "model_hash", note->model_hash);
    ht_json_put_uint(json, "nodes", note->nodes);
    ht_json_put_uint(json, "casts", note->casts);
    ht_json_end_object(json);
}

void cli_explain_json(ht_text *text, const cli_explained *e)
{
    ht_json_writer json = {.text = text};
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "precision", e->plan->precision);
    ht_json_put_text(&json, "device", e->plan->device);
    ht_json_put_text(&json, "isa", ht_isa_name(e->plan->target.isa));
    if (e->plan->target.no_kernels) ht_json_put_bool(&json, "kernels", false);
    ht_json_put_hash(&json, "model_hash", e->plan->model_hash);
    ht_json_line(&json, 1);
    ht_byte_table table = ht_plan_byte_table(e->plan);
    ht_json_put_int(&json, "plan_bytes", ht_plan_bytes(e->plan));
    ht_byte_table_json(&json, "bytes", &table);
    ht_json_line(&json, 1);
    put_flops(&json, step_cost(e->plan));
    cli_explain_memory_json(&json, e);
    ht_json_line(&json, 1);
    if (e->stages.ranks > 1) cli_stages_json(&json, &e->stages);
    ht_json_begin_array(&json, "passes");
    for (size_t i = 0; i < e->pass_count; i++) put_pass(&json, &e->passes[i]);
    ht_json_end_array(&json);
    ht_json_line(&json, 1);
    ht_json_begin_array(&json, "rows");
    for (size_t i = 0; i < e->table.count; i++) put_row(&json, &e->table.rows[i]);
    ht_json_end_array(&json);
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
}

/* ---- a page ---- */

static bool add_notes(ht_report *report, ht_arena *arena, const shown_rows *shown)
{
    static const char *const note_heads[] = {"note", "kernels that stand before the chosen one, and why they refused"};
    const char **cells = HT_NEW(arena, const char *, 2 * shown->note_count + 1);
    for (size_t i = 0; i < shown->note_count && cells; i++) {
        char number[24];
        snprintf(number, sizeof number, "[%zu]", i + 1);
        cells[2 * i] = ht_arena_text(arena, number, strlen(number));
        cells[2 * i + 1] = shown->notes[i];
        if (!cells[2 * i]) return false;
    }
    if (!cells) return false;
    ht_page_table notes = {.title = NULL, .columns = 2, .rows = shown->note_count, .heads = note_heads, .cells = cells};
    if (shown->note_count) ht_report_table(report, &notes);
    return true;
}

static void add_introduction(ht_report *report, const cli_explained *e)
{
    ht_text text = {0};
    size_t of_system = 0;
    for (size_t i = 0; i < e->pass_count; i++) of_system += e->passes[i].pass->system;
    ht_text_add(
        &text,
        "Each layer in the blocks of Figure 1 of \"Mixed Precision Training\". A row is an instruction: its ops, "
        "how often it occurs, the number types that it reads and makes, the precision class that chose them, the "
        "bytes that it moves, and its kernel. Products add up in f32. A * stands for the numbers of layers that "
        "are alike. The plan holds %" PRId64 " bytes. %zu of %zu passes on the way are the system's: they left "
        "the model, whose hash is %016" PRIx64 ", as it was.",
        ht_plan_bytes(e->plan), of_system, e->pass_count, e->plan->model_hash);
    if (!text.failed) ht_report_paragraph(report, text.data);
    ht_text_free(&text);
}

ht_status cli_explain_report(ht_report *report, const cli_explained *e)
{
    shown_rows shown;
    char title[128];
    ht_arena *arena = ht_arena_create();
    bool ok = show(&shown, &e->table, false) && arena;
    const char **cells = ok ? make_cells(arena, &shown) : NULL;
    snprintf(title, sizeof title, "What a training step does to each layer, in %s", e->plan->precision);
    ht_page_table table = {.title = title, .columns = COLUMNS, .rows = shown.count, .heads = heads, .cells = cells};
    add_introduction(report, e);
    if (cells) ht_report_table(report, &table);
    ok = cells && add_notes(report, arena, &shown);
    free_shown(&shown);
    ht_arena_free(arena);
    if (!ok) HT_FAIL(e->ctx, HT_ENOMEM, "out of memory for a table");
    return HT_OK;
}

/* A plan without layers that are trained has no figure. */
static bool has_figure(const cli_explained *e)
{
    for (size_t i = 0; i < e->table.count; i++)
        if (e->table.rows[i].block == HT_FIGURE_UPDATE && e->table.rows[i].layer[0] != '(') return true;
    return false;
}

ht_status cli_explain_on_page(ht_report *report, ht_text *figure, ht_context *ctx, const ht_run_request *request)
{
    cli_explained e = {0};
    ht_status status = cli_explain(&e, ctx, request);
    if (status == HT_OK && has_figure(&e)) status = cli_figure1_report(report, &e, NULL);
    if (status == HT_OK) status = cli_explain_report(report, &e);
    if (status == HT_OK && figure) cli_explain_figure(figure, &e);
    cli_explained_free(&e);
    return status;
}
