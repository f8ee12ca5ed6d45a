/* What train --numerics shows at the end, from the records in the run's folder: a table for the terminal, a page. */
#ifndef HT_CLI_NUMERICS_PAGE_H
#define HT_CLI_NUMERICS_PAGE_H

#include "base/base.h"

/* Reads FOLDER/numerics.jsonl, writes FOLDER/numerics.html and adds the table. */
ht_status cli_numerics_page(ht_text *text, ht_context *ctx, const char *folder);

#endif
