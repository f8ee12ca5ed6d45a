/* libFuzzer target: any bytes as a table. Rows have one number of cells, and line numbers grow. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_message(const ht_context *ctx)
{
    if (!strstr(ctx->message, "fuzz")) abort(); /* refused without a name */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ht_context ctx = {0};
    ht_csv csv;
    ht_csv_open(&csv, &ctx, "fuzz", (const char *)data, size, '\0');
    int64_t line = 0;
    size_t columns = 0, bytes = 0;
    for (bool more = true; more;) {
        if (ht_csv_next(&csv, &more) != HT_OK) {
            check_message(&ctx);
            break;
        }
        if (!more) break;
        if (csv.line <= line || (columns && csv.columns != columns)) abort();
        line = csv.line;
        columns = csv.columns;
        for (size_t i = 0; i < columns; i++) bytes += strlen(csv.cells[i]);
    }
    if (bytes > size) abort();
    ht_csv_close(&csv);
    return 0;
}
