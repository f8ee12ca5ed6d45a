/* What the stages of a pipeline have: layers, bytes, messages; and how long they wait for each other. */
#ifndef HT_CLI_PIPELINE_TABLE_H
#define HT_CLI_PIPELINE_TABLE_H

#include "cli/cli.h"
#include "train/train.h"

typedef struct cli_pipeline_stage {
    char refused[256];                    /* why it cannot be planned; "": it can */
    char first[96], last[96];             /* sites of its first and last node */
    int64_t parameters;                   /* elements that it trains */
    int64_t plan_bytes, activation_bytes; /* activations: of them, what forward keeps for backward, in all slots */
    int64_t slots;                        /* micro-batches in flight */
    double forward, backward;             /* of a micro-batch: FLOPs, and bytes as so many */
    int64_t sent_bytes, sends;            /* in a step, to its neighbours */
} cli_pipeline_stage;

typedef struct cli_pipeline {
    int64_t stages; /* 1: there is no pipeline */
    int64_t micros;
    cli_pipeline_stage list[HT_MOST_STAGES];
} cli_pipeline;

/* Plans the request's job once for each stage. */
void cli_pipeline_plan(cli_pipeline *pipeline, ht_context *ctx, const ht_run_request *request);
/* Both say nothing where there is no pipeline. */
void cli_pipeline_print(ht_text *text, const cli_pipeline *pipeline);
/* "pipeline": {"micro_batches", "bubble", "bubble_by_cost", "stages": [{"stage", "refused" or "first", "last", "parameters",
 * "plan_bytes", "activation_bytes", "in_flight", "cost", "sends", "sent_bytes"}]} */
void cli_pipeline_json(ht_json_writer *json, const cli_pipeline *pipeline);

#endif
