/* The page of one or several runs, made from what their folders hold. Nothing here prints, so that a program which serves
 * the page can make it again and again. */
#ifndef HT_CLI_RUN_PAGE_H
#define HT_CLI_RUN_PAGE_H

#include "cli/report/run_metrics.h"
#include "report/report.h"

enum { CLI_MOST_RUNS = 24 };

/* A run as its folder tells it. */
typedef struct cli_run {
    const char *folder; /* borrowed */
    char name[128];     /* the last part of its path, or all of it where that is not enough */
    cli_run_metrics metrics;
    ht_arena *arena;
    /* What config.resolved.json, memory.json and profile.json say; NULL: there is no such file. */
    const ht_json *config, *memory, *profile;
    ht_text notes; /* what a reader should know: a line each, of what is missing or damaged */
} cli_run;

typedef struct cli_runs {
    cli_run list[CLI_MOST_RUNS];
    size_t count;
} cli_runs;

/* Reads the folders, up to CLI_MOST_RUNS of them. A folder without a run is refused (HT_EINVAL); a file that is missing or
 * damaged there is a note. Call cli_runs_close after a failure, too. */
ht_status cli_runs_open(cli_runs *runs, ht_context *ctx, const char *const *folders, size_t count);
void cli_runs_close(cli_runs *runs);

/* The value of a key of the resolved config; NULL: not known, or not set. */
const ht_json *cli_run_value(const cli_run *run, const char *key);

/* A row for each run, for the terminal and for the page; the same as JSON, an array. */
void cli_runs_table(ht_table *table, const cli_runs *runs);
void cli_runs_json(ht_text *text, const cli_runs *runs);

/* The page, for ht_report_page or ht_report_write, then ht_report_free. */
ht_status cli_runs_page(ht_report **out, ht_context *ctx, const cli_runs *runs);
/* Both in one: reads the folders and makes their page. refresh_seconds > 0: it asks its server for a newer one that
 * often; 0: it does not. */
ht_status cli_run_page(ht_report **out, ht_context *ctx, const char *const *folders, size_t count,
                       double refresh_seconds);

#endif
