/* The parts of the page of runs. */
#ifndef HT_CLI_RUN_SECTIONS_H
#define HT_CLI_RUN_SECTIONS_H

#include "cli/report/run_page.h"

/* Each sets *failed where memory runs out. */
void cli_runs_add_memory(ht_report *report, const cli_runs *runs, bool *failed);
void cli_runs_add_profiles(ht_report *report, const cli_runs *runs, bool *failed);
void cli_runs_add_configs(ht_report *report, const cli_runs *runs, bool *failed);

/* Adds a table to the page and frees it. */
void cli_runs_put_table(ht_report *report, ht_table *table, const char *title, bool *failed);

#endif
