#include "report/page.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ht_table_head(ht_table *table, const char *head)
{
    assert(table->columns < HT_MOST_COLUMNS && table->count == 0);
    table->heads[table->columns++] = head;
}

void ht_table_cell(ht_table *table, const char *format, ...)
{
    va_list args;
    char text[512];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *cell = NULL;
    if (table->failed || !ht_grow((void **)&table->cells, &table->capacity, table->count + 1, sizeof *table->cells) ||
        !(cell = strdup(text)))
        table->failed = true;
    else
        table->cells[table->count++] = cell;
}

void ht_table_number(ht_table *table, const char *format, double value)
{
    char text[64];
    snprintf(text, sizeof text, format, value);
    ht_table_cell(table, "%s", isfinite(value) ? text : "-");
}

/* Characters, not bytes. */
static int width_of(const char *text)
{
    int width = 0;
    for (; *text; text++) width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

/* The rows that are whole. */
static size_t rows_of(const ht_table *table)
{
    return table->columns ? table->count / table->columns : 0;
}

static void add_padded(ht_text *text, const char *cell, int width, bool right, bool last)
{
    int gap = width - width_of(cell);
    if (right) ht_text_add(text, "%*s%s", gap, "", cell);
    if (!right) ht_text_add(text, "%s%*s", cell, last ? 0 : gap, "");
    ht_text_add(text, last ? "\n" : "  ");
}

void ht_table_print(ht_text *text, const ht_table *table)
{
    int width[HT_MOST_COLUMNS];
    bool right[HT_MOST_COLUMNS];
    size_t rows = rows_of(table);
    text->failed = text->failed || table->failed;
    for (size_t c = 0; c < table->columns; c++) {
        width[c] = width_of(table->heads[c]);
        if (table->width[c] > width[c]) width[c] = table->width[c];
        right[c] = rows > 0;
        for (size_t r = 0; r < rows; r++) {
            const char *cell = table->cells[r * table->columns + c];
            if (width_of(cell) > width[c]) width[c] = width_of(cell);
            right[c] = right[c] && ht_cell_is_number(cell);
        }
        right[c] = right[c] || table->right[c];
    }
    for (size_t c = 0; c < table->columns; c++)
        add_padded(text, table->heads[c], width[c], right[c], c + 1 == table->columns);
    for (size_t i = 0; i < rows * table->columns; i++) {
        size_t c = i % table->columns;
        add_padded(text, table->cells[i], width[c], right[c], c + 1 == table->columns);
    }
}

void ht_table_report(ht_report *report, const ht_table *table, const char *title)
{
    ht_page_table page = {.title = title,
                          .columns = table->columns,
                          .rows = rows_of(table),
                          .heads = table->heads,
                          .cells = (const char *const *)table->cells,
                          .right = table->right,
                          .verdict_column = table->verdict_column};
    ht_report_table(report, &page);
}

void ht_table_free(ht_table *table)
{
    for (size_t i = 0; i < table->count; i++) free(table->cells[i]);
    free(table->cells);
    *table = (ht_table){0};
}
