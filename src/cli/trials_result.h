/* What came of trials: for a terminal, a page and a program. */
#ifndef HT_CLI_TRIALS_RESULT_H
#define HT_CLI_TRIALS_RESULT_H

#include "cli/grid.h"
#include "cli/trials.h"

/* A row per trial: bits, loss, perplexity or accuracy, skips, time. */
void cli_trials_grid(cli_grid *grid, const cli_trials *trials);
/* A row per setting: bytes by heading; seeds do not change them. Returns the unit's name. */
const char *cli_trials_memory(cli_grid *grid, const cli_trials *trials);
/* A row per group of trials that differ in their seed only, against the first group. False: there is no such group. */
bool cli_trials_groups(cli_grid *grid, const cli_trials *trials);
/* One sentence on what half arithmetic is on this machine; nothing when no trial is in half precision. */
void cli_trials_half(ht_text *text, const cli_trials *trials);
/* A line for every trial that ended early. */
void cli_trials_errors(ht_text *text, const cli_trials *trials);

/* Curves of training and of what is held out, with the end enlarged, loss scales that moved, bytes as bars. */
void cli_trials_charts(ht_report *report, const cli_trials *trials);

/* "runs": [...], "groups": [...] */
void cli_trials_json(ht_text *text, const cli_trials *trials);

/* What a trial is judged by: perplexity, or without tokens the held-out loss, or where nothing is held out the loss. */
double cli_trial_measure(const cli_trial *trial);

#endif
