#include "report/report.h"

#include <assert.h>
#include <inttypes.h>

ht_cell ht_cell_text(const char *text)
{
    return (ht_cell){.kind = HT_CELL_TEXT, .text = text};
}

ht_cell ht_cell_int(int64_t integer)
{
    return (ht_cell){.kind = HT_CELL_INT, .integer = integer};
}

ht_cell ht_cell_number(double number)
{
    return (ht_cell){.kind = HT_CELL_NUMBER, .number = number};
}

ht_cell ht_cell_written(void (*write)(ht_json_writer *json, const char *key, const void *row), const void *row)
{
    return (ht_cell){.kind = HT_CELL_WRITTEN, .write = write, .row = row};
}

static void add_heads(ht_table *table, const ht_column *columns, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!columns[i].heading) continue;
        ht_table_head(table, columns[i].heading);
        table->width[table->columns - 1] = columns[i].width;
        table->right[table->columns - 1] = columns[i].right;
        table->rank[table->columns - 1] = columns[i].rank;
    }
}

void ht_table_row(ht_table *table, const ht_column *columns, size_t count)
{
    if (table->columns == 0) add_heads(table, columns, count);
    for (const ht_column *c = columns; c < columns + count; c++) {
        if (!c->heading) continue;
        switch (c->cell.kind) {
        case HT_CELL_TEXT: ht_table_cell(table, "%s", c->cell.text ? c->cell.text : "-"); break;
        case HT_CELL_INT: ht_table_cell(table, "%" PRId64, c->cell.integer); break;
        case HT_CELL_NUMBER: ht_table_number(table, c->format, c->cell.number); break;
        case HT_CELL_WRITTEN: assert(!"only in JSON");
        }
    }
}

void ht_json_put_row(ht_json_writer *json, const ht_column *columns, size_t count)
{
    ht_json_begin_object(json, NULL);
    for (const ht_column *c = columns; c < columns + count; c++) {
        if (!c->key) continue;
        switch (c->cell.kind) {
        case HT_CELL_TEXT: ht_json_put_text(json, c->key, c->cell.text); break;
        case HT_CELL_INT: ht_json_put_int(json, c->key, c->cell.integer); break;
        case HT_CELL_NUMBER: ht_json_put_number(json, c->key, c->cell.number); break;
        case HT_CELL_WRITTEN: c->cell.write(json, c->key, c->cell.row); break;
        }
    }
    ht_json_end_object(json);
}
