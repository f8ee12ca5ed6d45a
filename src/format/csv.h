/* The CSV parser, row by row: cells in quotes (with "" for a quote, and line ends inside), LF or CR LF, a delimiter
 * that is given or detected. All rows have the same number of cells; empty lines are skipped. */
#ifndef HT_FORMAT_CSV_H
#define HT_FORMAT_CSV_H

#include <halftone/context.h>

typedef struct ht_csv {
    ht_context *ctx;
    const char *name;
    const char *at, *end;
    char delimiter;
    int64_t line; /* where the row given last begins, from 1 */
    int64_t next_line;
    size_t columns;     /* 0 before the first row */
    const char **cells; /* of the row given last: zero-terminated, until the next call */
    char *text;
    size_t *starts;
    size_t cell_capacity, text_capacity, start_capacity;
} ht_csv;

/* `delimiter` 0: the most frequent of comma, semicolon and tab in the first line. Frees nothing of the caller's. */
void ht_csv_open(ht_csv *csv, ht_context *ctx, const char *name, const char *data, size_t length, char delimiter);
/* *more is false after the last row. */
ht_status ht_csv_next(ht_csv *csv, bool *more);
void ht_csv_close(ht_csv *csv);

/* Does the first row hold names? Yes when none of its cells is a number. */
ht_status ht_csv_has_header(bool *out, ht_context *ctx, const char *name, const char *data, size_t length,
                            char delimiter);

#endif
