/* What halftone compress shows: before and after, and what a search tried, as tables, as JSON and as pages. */
#ifndef HT_CLI_COMPRESS_VIEW_H
#define HT_CLI_COMPRESS_VIEW_H

#include "compress/compress.h"
#include "report/report.h"

/* "drop=0.5%,size=70%"; false: it is not that, and `wrong` receives the part. */
bool cli_compress_goals(const char *text, ht_compress_goals *out, char wrong[64]);

void cli_compress_trials_print(ht_text *text, const ht_compress_trials *trials);
void cli_compress_trials_json(ht_json_writer *json, const ht_compress_trials *trials);
ht_status cli_compress_trials_page(ht_context *ctx, const char *path, const char *run,
                                   const ht_compress_trials *trials);

/* Before and after, as rows of a table. */
void cli_compress_rows(ht_table *table, const ht_compress_figures *before, const ht_compress_figures *after);
/* A table of what each step left. */
void cli_compress_steps_print(ht_text *text, const ht_compress_report *report);
/* A table of the layers that were timed. */
void cli_compress_layers_print(ht_text *text, const ht_compress_report *report);
ht_status cli_compress_page(ht_context *ctx, const char *path, const char *run, const char *output,
                            const ht_compress_report *report);

#endif
