#include "cli/grid.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cli_grid_head(cli_grid *grid, const char *head)
{
    assert(grid->columns < CLI_MOST_COLUMNS && grid->count == 0);
    grid->heads[grid->columns++] = head;
}

void cli_grid_cell(cli_grid *grid, const char *format, ...)
{
    va_list args;
    char text[512];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *cell = NULL;
    if (grid->failed || !ht_grow((void **)&grid->cells, &grid->capacity, grid->count + 1, sizeof *grid->cells) ||
        !(cell = strdup(text)))
        grid->failed = true;
    else
        grid->cells[grid->count++] = cell;
}

void cli_grid_number(cli_grid *grid, const char *format, double value)
{
    char text[64];
    snprintf(text, sizeof text, format, value);
    cli_grid_cell(grid, "%s", isfinite(value) ? text : "-");
}

/* Characters, not bytes. */
static int width_of(const char *text)
{
    int width = 0;
    for (; *text; text++) width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static bool is_number(const char *cell)
{
    double number;
    return strcmp(cell, "-") == 0 || ht_number_read(cell, &number);
}

/* The rows that are whole. */
static size_t rows_of(const cli_grid *grid)
{
    return grid->columns ? grid->count / grid->columns : 0;
}

static void add_padded(ht_text *text, const char *cell, int width, bool right, bool last)
{
    int gap = width - width_of(cell);
    if (right) ht_text_add(text, "%*s%s", gap, "", cell);
    if (!right) ht_text_add(text, "%s%*s", cell, last ? 0 : gap, "");
    ht_text_add(text, last ? "\n" : "  ");
}

void cli_grid_print(ht_text *text, const cli_grid *grid)
{
    int width[CLI_MOST_COLUMNS];
    bool right[CLI_MOST_COLUMNS];
    size_t rows = rows_of(grid);
    text->failed = text->failed || grid->failed;
    for (size_t c = 0; c < grid->columns; c++) {
        width[c] = width_of(grid->heads[c]);
        right[c] = rows > 0;
        for (size_t r = 0; r < rows; r++) {
            const char *cell = grid->cells[r * grid->columns + c];
            if (width_of(cell) > width[c]) width[c] = width_of(cell);
            right[c] = right[c] && is_number(cell);
        }
    }
    for (size_t c = 0; c < grid->columns; c++)
        add_padded(text, grid->heads[c], width[c], right[c], c + 1 == grid->columns);
    for (size_t i = 0; i < rows * grid->columns; i++) {
        size_t c = i % grid->columns;
        add_padded(text, grid->cells[i], width[c], right[c], c + 1 == grid->columns);
    }
}

void cli_grid_report(ht_report *report, const cli_grid *grid, const char *title)
{
    ht_table table = {.title = title,
                      .columns = grid->columns,
                      .rows = rows_of(grid),
                      .heads = grid->heads,
                      .cells = (const char *const *)grid->cells};
    ht_report_table(report, &table);
}

void cli_grid_free(cli_grid *grid)
{
    for (size_t i = 0; i < grid->count; i++) free(grid->cells[i]);
    free(grid->cells);
    *grid = (cli_grid){0};
}
