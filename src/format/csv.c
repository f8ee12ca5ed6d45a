/* The CSV parser. */
#include "format/csv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { MOST_COLUMNS = 1 << 20 };

static char find_delimiter(const char *at, const char *end)
{
    static const char candidates[] = {',', ';', '\t'};
    size_t counts[sizeof candidates] = {0}, best = 0;
    bool quoted = false;
    for (; at < end && (quoted || (*at != '\n' && *at != '\r')); at++) {
        if (*at == '"') quoted = !quoted;
        for (size_t i = 0; i < sizeof candidates && !quoted; i++) counts[i] += *at == candidates[i];
    }
    for (size_t i = 1; i < sizeof candidates; i++)
        if (counts[i] > counts[best]) best = i;
    return candidates[best];
}

void ht_csv_open(ht_csv *csv, ht_context *ctx, const char *name, const char *data, size_t length, char delimiter)
{
    *csv = (ht_csv){.ctx = ctx, .name = name, .at = data, .end = data + length, .next_line = 1};
    if (length >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) csv->at += 3;
    csv->delimiter = delimiter ? delimiter : find_delimiter(csv->at, csv->end);
}

void ht_csv_close(ht_csv *csv)
{
    free(csv->cells);
    free(csv->text);
    free(csv->starts);
    *csv = (ht_csv){0};
}

static ht_status add_char(ht_csv *csv, size_t *length, char c)
{
    if (!ht_grow((void **)&csv->text, &csv->text_capacity, *length + 1, 1))
        HT_FAIL(csv->ctx, HT_ENOMEM, "%s:%" PRId64 ": out of memory for the row", csv->name, csv->line);
    csv->text[(*length)++] = c;
    return HT_OK;
}

/* Behind the opening quote; ends behind the closing one. */
static ht_status read_quoted(ht_csv *csv, size_t *length)
{
    int64_t opened = csv->next_line;
    for (; csv->at < csv->end; csv->at++) {
        if (*csv->at == '"') {
            csv->at++;
            if (csv->at == csv->end || *csv->at != '"') return HT_OK;
        }
        if (*csv->at == '\n') csv->next_line++;
        if (*csv->at == '\0') HT_FAIL(csv->ctx, HT_EPARSE, "%s:%" PRId64 ": a zero byte", csv->name, csv->next_line);
        HT_TRY(add_char(csv, length, *csv->at));
    }
    HT_FAIL(csv->ctx, HT_EPARSE, "%s:%" PRId64 ": the quote is never closed", csv->name, opened);
}

static bool at_line_end(const ht_csv *csv)
{
    if (csv->at == csv->end || *csv->at == '\n') return true;
    return *csv->at == '\r' && (csv->at + 1 == csv->end || csv->at[1] == '\n');
}

static ht_status read_cell(ht_csv *csv, size_t *length)
{
    if (csv->at < csv->end && *csv->at == '"') {
        csv->at++;
        HT_TRY(read_quoted(csv, length));
        if (!at_line_end(csv) && *csv->at != csv->delimiter)
            HT_FAIL(csv->ctx, HT_EPARSE, "%s:%" PRId64 ": text after a closing quote", csv->name, csv->next_line);
    }
    for (; !at_line_end(csv) && *csv->at != csv->delimiter; csv->at++) {
        if (*csv->at == '\0') HT_FAIL(csv->ctx, HT_EPARSE, "%s:%" PRId64 ": a zero byte", csv->name, csv->next_line);
        HT_TRY(add_char(csv, length, *csv->at));
    }
    return add_char(csv, length, '\0');
}

static void skip_line_end(ht_csv *csv)
{
    if (csv->at < csv->end && *csv->at == '\r') csv->at++;
    if (csv->at < csv->end && *csv->at == '\n') {
        csv->at++;
        csv->next_line++;
    }
}

/* Cells are kept by offset until the row is whole, for its text may move as it grows. */
static ht_status read_row(ht_csv *csv, size_t *count)
{
    size_t length = 0;
    *count = 0;
    for (;;) {
        if (*count == MOST_COLUMNS)
            HT_FAIL(csv->ctx, HT_ESHAPE, "%s:%" PRId64 ": more than %d cells", csv->name, csv->line, MOST_COLUMNS);
        if (!ht_grow((void **)&csv->starts, &csv->start_capacity, *count + 1, sizeof *csv->starts))
            HT_FAIL(csv->ctx, HT_ENOMEM, "%s:%" PRId64 ": out of memory for the row", csv->name, csv->line);
        csv->starts[(*count)++] = length;
        HT_TRY(read_cell(csv, &length));
        if (at_line_end(csv)) return HT_OK;
        csv->at++;
    }
}

ht_status ht_csv_next(ht_csv *csv, bool *more)
{
    *more = false;
    while (csv->at < csv->end && at_line_end(csv)) skip_line_end(csv);
    if (csv->at == csv->end) return HT_OK;
    csv->line = csv->next_line;
    size_t count;
    HT_TRY(read_row(csv, &count));
    skip_line_end(csv);
    if (csv->columns && count != csv->columns)
        HT_FAIL(csv->ctx, HT_EPARSE, "%s:%" PRId64 ": %zu cells, the rows before have %zu", csv->name, csv->line, count,
                csv->columns);
    csv->columns = count;
    if (!ht_grow((void **)&csv->cells, &csv->cell_capacity, count, sizeof *csv->cells))
        HT_FAIL(csv->ctx, HT_ENOMEM, "%s:%" PRId64 ": out of memory for the row", csv->name, csv->line);
    for (size_t i = 0; i < count; i++) csv->cells[i] = csv->text + csv->starts[i];
    *more = true;
    return HT_OK;
}

ht_status ht_csv_has_header(bool *out, ht_context *ctx, const char *name, const char *data, size_t length,
                            char delimiter)
{
    ht_csv csv;
    ht_csv_open(&csv, ctx, name, data, length, delimiter);
    bool more;
    ht_status status = ht_csv_next(&csv, &more);
    *out = status == HT_OK && more;
    double number;
    for (size_t i = 0; *out && i < csv.columns; i++) *out = !ht_number_read(csv.cells[i], &number);
    ht_csv_close(&csv);
    return status;
}
