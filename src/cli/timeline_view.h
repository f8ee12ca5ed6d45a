/* Memory over one step, on the terminal and on pages: of a plan that is looked at, of one that does not fit, of a run. */
#ifndef HT_CLI_TIMELINE_VIEW_H
#define HT_CLI_TIMELINE_VIEW_H

#include "report/report.h"
#include "train/train.h"

/* A drawing by heading, the moment of the peak and the largest tensors that are alive then; nothing without moments. */
void cli_timeline_text(ht_text *text, const ht_memory_timeline *timeline);
/* The line that names the moment of the peak. */
void cli_timeline_peak(ht_text *text, const ht_memory_timeline *timeline);
/* Stacked bars by heading; nothing without moments. */
void cli_timeline_bars(ht_report *report, const ht_memory_timeline *timeline);
void cli_timeline_alive(ht_table *table, const ht_memory_timeline *timeline, size_t most);

#endif
