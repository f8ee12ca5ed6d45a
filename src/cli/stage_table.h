/* What each of several ranks would hold and exchange, in every ZeRO stage; planned, without the ranks. */
#ifndef HT_CLI_STAGE_TABLE_H
#define HT_CLI_STAGE_TABLE_H

#include "cli/cli.h"
#include "cli/pipeline_table.h"
#include "train/train.h"

enum { CLI_STAGES = 4 };

typedef struct cli_stage {
    char refused[256]; /* why it cannot be planned; "": it can */
    ht_byte_table bytes;
    int64_t padding, prepacked; /* of them */
    ht_exchange_table exchanges;
} cli_stage;

typedef struct cli_stages {
    int64_t ranks, data, pipeline, tensor; /* the first is the product of its axes */
    cli_stage list[CLI_STAGES];
    cli_pipeline layers; /* how ranks of a pipeline share them */
} cli_stages;

/* Plans the request's job once for each stage. A failure of one stage is told in its place. */
void cli_stages_plan(cli_stages *stages, ht_context *ctx, const ht_run_request *request);
void cli_stages_print(ht_text *text, const cli_stages *stages);
/* "axes": {"data", "pipeline", "tensor"}, "stages": [{"stage", "refused" or "bytes", "padding", "prepacked", "messages": [{"op", "group",
 * "dtype", "calls", "bytes", "sent"}]}] */
void cli_stages_json(ht_json_writer *json, const cli_stages *stages);

#endif
