/* A table whose cells are written one after the other, for the terminal and for a page. */
#ifndef HT_CLI_GRID_H
#define HT_CLI_GRID_H

#include "cli/cli.h"
#include "report/report.h"

enum { CLI_MOST_COLUMNS = 24 };

typedef struct cli_grid {
    const char *heads[CLI_MOST_COLUMNS]; /* borrowed */
    size_t columns;
    char **cells; /* row by row */
    size_t count, capacity;
    bool failed; /* memory ran out: what follows is left out */
} cli_grid;

/* Before the first cell. */
void cli_grid_head(cli_grid *grid, const char *head);
/* The next cell; numbers stand to the right. */
void cli_grid_cell(cli_grid *grid, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A number, or "-" where there is none. */
void cli_grid_number(cli_grid *grid, const char *format, double value) __attribute__((format(printf, 2, 0)));
void cli_grid_print(ht_text *text, const cli_grid *grid);
void cli_grid_report(ht_report *report, const cli_grid *grid, const char *title);
void cli_grid_free(cli_grid *grid);

#endif
