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
    if (!last) ht_text_add(text, "  ");
}

/* How a table is printed: the columns that are there. */
typedef struct table_view {
    int width[HT_MOST_COLUMNS];
    bool right[HT_MOST_COLUMNS], left_out[HT_MOST_COLUMNS];
} table_view;

static void measure(table_view *view, const ht_table *table)
{
    size_t rows = rows_of(table);
    for (size_t c = 0; c < table->columns; c++) {
        view->width[c] = width_of(table->heads[c]);
        if (table->width[c] > view->width[c]) view->width[c] = table->width[c];
        view->right[c] = rows > 0;
        for (size_t r = 0; r < rows; r++) {
            const char *cell = table->cells[r * table->columns + c];
            if (width_of(cell) > view->width[c]) view->width[c] = width_of(cell);
            view->right[c] = view->right[c] && ht_cell_is_number(cell);
        }
        view->right[c] = (view->right[c] && !table->left[c]) || table->right[c];
    }
}

static int total_width(const table_view *view, const ht_table *table)
{
    int total = -2;
    for (size_t c = 0; c < table->columns; c++)
        if (!view->left_out[c]) total += view->width[c] + 2;
    return total;
}

static void leave_out(table_view *view, const ht_table *table, int width)
{
    while (total_width(view, table) > width) {
        size_t least = table->columns;
        for (size_t c = 0; c < table->columns; c++)
            if (!view->left_out[c] && table->rank[c] > 0 &&
                (least == table->columns || table->rank[c] >= table->rank[least]))
                least = c;
        if (least == table->columns) return;
        view->left_out[least] = true;
    }
}

static void add_line(ht_text *text, const table_view *view, size_t columns, const char *const *cells)
{
    size_t last = columns;
    while (last > 0 && view->left_out[last - 1]) last--;
    for (size_t c = 0; c < last; c++)
        if (!view->left_out[c]) add_padded(text, cells[c], view->width[c], view->right[c], c + 1 == last);
    while (text->length > 0 && text->data[text->length - 1] == ' ') text->data[--text->length] = '\0';
    ht_text_add(text, "\n");
}

void ht_table_print(ht_text *text, const ht_table *table, int width)
{
    table_view view = {.width = {0}};
    text->failed = text->failed || table->failed;
    measure(&view, table);
    if (width > 0) leave_out(&view, table, width);
    add_line(text, &view, table->columns, table->heads);
    for (size_t r = 0; r < rows_of(table); r++)
        add_line(text, &view, table->columns, (const char *const *)table->cells + r * table->columns);
    bool any = false;
    for (size_t c = 0; c < table->columns; c++)
        if (view.left_out[c]) ht_text_add(text, "%s%s", any ? ", " : "(no space for: ", table->heads[c]), any = true;
    if (any) ht_text_add(text, ")\n");
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
