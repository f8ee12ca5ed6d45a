/* What train --numerics shows at the end, from the records in the run's folder: a table for the terminal, a page. */
#ifndef HT_CLI_NUMERICS_PAGE_H
#define HT_CLI_NUMERICS_PAGE_H

#include "report/report.h"

/* Reads FOLDER/numerics.jsonl, adds charts and a table to the page, and a table to the text. */
ht_status cli_numerics_add(ht_text *text, ht_report *report, ht_context *ctx, const char *folder);
/* The share of the gradients of activations that are zero in f16, over all steps that were looked at. */
ht_status cli_numerics_zero_share(double *share, ht_context *ctx, const char *folder);
/* The same on a page of its own, FOLDER/numerics.html. */
ht_status cli_numerics_page(ht_text *text, ht_context *ctx, const char *folder);

#endif
