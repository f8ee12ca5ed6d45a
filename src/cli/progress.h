/* The lines in which a training run tells how far it is. */
#ifndef HT_CLI_PROGRESS_H
#define HT_CLI_PROGRESS_H

#include "cli/cli.h"
#include "train/train.h"

/* For a terminal: a bar, the step and its loss, at the end the time that is left; between them as much as the columns
 * allow, the most important first. */
void cli_progress_bar(ht_text *line, const ht_step_report *report, double eval_loss, double seconds_left, int columns);
/* For a file or a program: names and values, at most 120 characters; metrics.jsonl has the rest. */
void cli_progress_line(ht_text *line, const ht_step_report *report, bool breakdown);
/* The same of an evaluation: "eval 50 loss 2.301000 ...". */
void cli_progress_eval(ht_text *line, const ht_eval_report *report);

#endif
