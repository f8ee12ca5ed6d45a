/* What came of runs: for a terminal, a page and a program. */
#ifndef HT_CLI_SWEEP_RESULT_H
#define HT_CLI_SWEEP_RESULT_H

#include "cli/sweep.h"
#include "report/report.h"

/* A row per run: bits, loss, perplexity or accuracy, skips, time. */
void cli_sweep_table(ht_table *table, const cli_sweep *sweep);
/* A row per setting: bytes by heading; seeds do not change them. Returns the unit's name. */
const char *cli_sweep_memory(ht_table *table, const cli_sweep *sweep);
/* A row per group of runs that differ in their seed only, against the first group. False: there is no such group. */
bool cli_sweep_groups(ht_table *table, const cli_sweep *sweep);
/* One sentence on what half arithmetic is on this machine; nothing when no run is in half precision. */
void cli_sweep_half(ht_text *text, const cli_sweep *sweep);
/* A line for every run that ended early. */
void cli_sweep_errors(ht_text *text, const cli_sweep *sweep);

/* Curves of training and of what is held out, with the end enlarged, loss scales other than 1, bytes as bars. */
void cli_sweep_charts(ht_report *report, const cli_sweep *sweep);

/* Members of an open object: "runs": [...], "groups": [...] */
void cli_sweep_json(ht_json_writer *json, const cli_sweep *sweep);

/* The keys of both, for the help. */
void cli_sweep_describe(ht_text *text);

/* What a run is judged by: perplexity, or without tokens the held-out loss, or where nothing is held out the loss. */
double cli_sweep_entry_measure(const cli_sweep_entry *entry);

#endif
