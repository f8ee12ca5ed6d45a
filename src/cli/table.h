/* A table whose cells are written one after the other, for the terminal and for a page. */
#ifndef HT_CLI_TABLE_H
#define HT_CLI_TABLE_H

#include "cli/cli.h"
#include "report/report.h"

enum { CLI_MOST_COLUMNS = 24 };

typedef struct cli_table {
    const char *heads[CLI_MOST_COLUMNS]; /* borrowed */
    size_t columns;
    char **cells; /* row by row */
    size_t count, capacity;
    bool failed; /* memory ran out: what follows is left out */
} cli_table;

/* Before the first cell. */
void cli_table_head(cli_table *table, const char *head);
/* The next cell; numbers stand to the right. */
void cli_table_cell(cli_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A number, or "-" where there is none. */
void cli_table_number(cli_table *table, const char *format, double value) __attribute__((format(printf, 2, 0)));
void cli_table_print(ht_text *text, const cli_table *table);
void cli_table_report(ht_report *report, const cli_table *table, const char *title);
void cli_table_free(cli_table *table);

#endif
