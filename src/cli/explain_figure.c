/* Figure 1 of the paper in a line per layer: of each block what its product reads and makes. */
#include "cli/explain_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct layer_line {
    const char *layer;
    char *pattern;
    const ht_explain_row *block[HT_FIGURE_COUNT]; /* NULL: none */
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

/* "f16 -> f32"; returns its length. */
static int make_cell(char *cell, const ht_explain_row *row)
{
    if (!row) return snprintf(cell, CELL, "-");
    size_t at = add_floats(cell, 0, row->in);
    at += (size_t)snprintf(cell + at, CELL - at, "%s-> ", at ? " " : "");
    if (at < CELL) add_floats(cell, at, row->out);
    return (int)strlen(cell);
}

static bool same_block(const ht_explain_row *a, const ht_explain_row *b)
{
    if (!a || !b) return a == b;
    return strcmp(a->in, b->in) == 0 && strcmp(a->out, b->out) == 0;
}

static bool alike(const layer_line *a, const layer_line *b)
{
    for (int i = 0; i < HT_FIGURE_COUNT; i++)
        if (!same_block(a->block[i], b->block[i])) return false;
    return strcmp(a->pattern, b->pattern) == 0;
}

/* The rows come layer by layer. Lines of layers with parameters; heap memory, NULL when memory is out. */
static layer_line *make_lines(const ht_explanation *table, size_t *count)
{
    layer_line *lines = calloc(table->count + 1, sizeof *lines);
    *count = 0;
    for (size_t i = 0; lines && i < table->count; i++) {
        const ht_explain_row *row = &table->rows[i];
        bool first = *count == 0 || strcmp(lines[*count - 1].layer, row->layer) != 0;
        if (first && *count > 0 && !lines[*count - 1].block[HT_FIGURE_UPDATE]) --*count;
        if (row->layer[0] == '(') break;
        if (first) lines[(*count)++] = (layer_line){.layer = row->layer, .count = 1};
        const ht_explain_row **best = &lines[*count - 1].block[row->block];
        if (weight_of(row) > weight_of(*best)) *best = row;
    }
    return lines;
}

static bool join_lines(layer_line *lines, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        lines[i].pattern = cli_layer_pattern(lines[i].layer);
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
    return line->count > 1 ? line->pattern : line->layer;
}

static void print_lines(ht_text *text, const layer_line *lines, size_t count)
{
    int width = (int)strlen("layer"), widths[HT_FIGURE_COUNT];
    char cell[CELL];
    for (int b = 0; b < HT_FIGURE_COUNT; b++) widths[b] = (int)strlen(ht_figure_names[b]);
    for (size_t i = 0; i < count; i++) {
        if (lines[i].count == 0) continue;
        if ((int)strlen(name_of(&lines[i])) > width) width = (int)strlen(name_of(&lines[i]));
        for (int b = 0; b < HT_FIGURE_COUNT; b++) {
            int length = make_cell(cell, lines[i].block[b]);
            if (length > widths[b]) widths[b] = length;
        }
    }
    ht_text_add(text, "%-*s", width, "layer");
    for (int b = 0; b < HT_FIGURE_COUNT; b++)
        ht_text_add(text, "  %-*s", b + 1 < HT_FIGURE_COUNT ? widths[b] : 0, ht_figure_names[b]);
    ht_text_add(text, "\n");
    for (size_t i = 0; i < count; i++) {
        if (lines[i].count == 0) continue;
        ht_text_add(text, "%-*s", width, name_of(&lines[i]));
        for (int b = 0; b < HT_FIGURE_COUNT; b++) {
            make_cell(cell, lines[i].block[b]);
            ht_text_add(text, "  %-*s", b + 1 < HT_FIGURE_COUNT ? widths[b] : 0, cell);
        }
        ht_text_add(text, "\n");
    }
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
