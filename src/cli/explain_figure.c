/* Figure 1 of the paper in a line per layer: of each block what its product reads and makes. */
#include "cli/explain_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct layer_line {
    cli_layer_blocks blocks;
    char *pattern;
    size_t count; /* layers like this one, itself included; 0: it is like an earlier one */
} layer_line;

/* Which row stands for its block: a product before others, and what only moves or casts last. */
static int weight_of(const ht_explain_row *row)
{
    if (!row) return -1;
    if (strncmp(row->prec_class, "dot", 3) == 0) return 2;
    return strcmp(row->op, "copy") != 0 && strcmp(row->op, "fill") != 0 && strcmp(row->op, "cast") != 0;
}

enum { CELL = 64 };

/* Floating-point types of a list. */
static size_t add_floats(char *cell, size_t at, const char *types)
{
    size_t start = at;
    for (const char *word = types; *word; word += strcspn(word, " ") + (strchr(word, ' ') != NULL)) {
        bool is_float = word[0] == 'f' || (word[0] == 'b' && word[1] == 'f');
        if (is_float && at < CELL)
            at +=
                (size_t)snprintf(cell + at, CELL - at, "%s%.*s", at > start ? " " : "", (int)strcspn(word, " "), word);
    }
    return at < CELL ? at : CELL - 1;
}

/* "f16 -> f32" */
static void make_cell(char *cell, const ht_explain_row *row)
{
    if (!row) {
        snprintf(cell, CELL, "-");
        return;
    }
    size_t at = add_floats(cell, 0, row->in);
    at += (size_t)snprintf(cell + at, CELL - at, "%s-> ", at ? " " : "");
    if (at < CELL) add_floats(cell, at, row->out);
}

static bool same_block(const ht_explain_row *a, const ht_explain_row *b)
{
    if (!a || !b) return a == b;
    return strcmp(a->in, b->in) == 0 && strcmp(a->out, b->out) == 0;
}

static bool alike(const layer_line *a, const layer_line *b)
{
    for (int i = 0; i < HT_FIGURE_COUNT; i++)
        if (!same_block(a->blocks.block[i], b->blocks.block[i])) return false;
    return strcmp(a->pattern, b->pattern) == 0;
}

/* The rows come layer by layer. Lines of layers with parameters; heap memory, NULL when memory is out. */
static layer_line *make_lines(const ht_explanation *table, size_t *count)
{
    layer_line *lines = calloc(table->count + 1, sizeof *lines);
    *count = 0;
    for (size_t i = 0; lines && i < table->count; i++) {
        const ht_explain_row *row = &table->rows[i];
        bool first = *count == 0 || strcmp(lines[*count - 1].blocks.layer, row->layer) != 0;
        if (first && *count > 0 && !lines[*count - 1].blocks.block[HT_FIGURE_UPDATE]) --*count;
        if (row->layer[0] == '(') break;
        if (first) lines[(*count)++] = (layer_line){.blocks.layer = row->layer, .count = 1};
        const ht_explain_row **best = &lines[*count - 1].blocks.block[row->block];
        if (weight_of(row) > weight_of(*best)) *best = row;
    }
    return lines;
}

static bool join_lines(layer_line *lines, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        lines[i].pattern = cli_layer_pattern(lines[i].blocks.layer);
        if (!lines[i].pattern) return false;
        size_t k = 0;
        while (k < i && (lines[k].count == 0 || !alike(&lines[k], &lines[i]))) k++;
        if (k == i) continue;
        lines[k].count++;
        lines[i].count = 0;
    }
    return true;
}

static const char *name_of(const layer_line *line)
{
    return line->count > 1 ? line->pattern : line->blocks.layer;
}

static void print_lines(ht_text *text, const layer_line *lines, size_t count)
{
    /* The update is the same everywhere, and so is what the copy is made from. */
    static const int ranks[HT_FIGURE_COUNT] = {[HT_FIGURE_UPDATE] = 2, [HT_FIGURE_FLOAT2HALF] = 1};
    ht_table table = {0};
    ht_table_head(&table, "layer");
    for (int b = 0; b < HT_FIGURE_COUNT; b++) {
        ht_table_head(&table, ht_figure_names[b]);
        table.rank[b + 1] = ranks[b];
        table.left[b + 1] = true;
    }
    for (size_t i = 0; i < count; i++) {
        if (lines[i].count == 0) continue;
        ht_table_cell(&table, "%s", name_of(&lines[i]));
        for (int b = 0; b < HT_FIGURE_COUNT; b++) {
            char cell[CELL];
            make_cell(cell, lines[i].blocks.block[b]);
            ht_table_cell(&table, "%s", cell);
        }
    }
    ht_table_print(text, &table, cli_columns());
    ht_table_free(&table);
}

void cli_explain_figure(ht_text *text, const cli_explained *e)
{
    size_t count;
    layer_line *lines = make_lines(&e->table, &count);
    if (lines && join_lines(lines, count))
        print_lines(text, lines, count);
    else
        text->failed = true;
    for (size_t i = 0; lines && i < count; i++) free(lines[i].pattern);
    free(lines);
}

/* How well a layer shows the figure: by the products among its blocks, then by their FLOPs. */
static double figure_weight(const cli_layer_blocks *blocks)
{
    double weight = 0;
    for (int b = 0; b < HT_FIGURE_COUNT; b++) {
        const ht_explain_row *row = blocks->block[b];
        if (weight_of(row) == 2) weight += 1e30 + row->cost.dot_flops;
    }
    return weight;
}

ht_status cli_explain_layer(cli_layer_blocks *out, const cli_explained *e, const char *layer)
{
    size_t count, best = 0;
    layer_line *lines = make_lines(&e->table, &count);
    ht_text names = {0};
    if (!lines) HT_FAIL(e->ctx, HT_ENOMEM, "out of memory for a figure");
    if (count > 0 && !lines[count - 1].blocks.block[HT_FIGURE_UPDATE]) count--;
    for (size_t i = 0; i < count; i++) {
        ht_text_add(&names, "%s%s", i ? ", " : "", lines[i].blocks.layer);
        if (layer ? strcmp(lines[i].blocks.layer, layer) == 0
                  : figure_weight(&lines[i].blocks) > figure_weight(&lines[best].blocks))
            best = i;
    }
    bool found = count > 0 && (!layer || strcmp(lines[best].blocks.layer, layer) == 0);
    ht_status status = HT_OK;
    if (found)
        *out = lines[best].blocks;
    else
        status = ht_fail(e->ctx, HT_EINVAL, "there is no layer %s with parameters; these are: %s", layer ? layer : "",
                         names.data ? names.data : "none");
    ht_text_free(&names);
    free(lines);
    return status;
}

void cli_block_types(char *text, size_t size, const ht_explain_row *row, bool out)
{
    char cell[CELL] = "";
    if (row) add_floats(cell, 0, out ? row->out : row->in);
    snprintf(text, size, "%s", cell);
    for (char *c = text; *c; c++)
        if (*c == ' ') *c = '/';
}
