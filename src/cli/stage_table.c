#include "cli/stage_table.h"

#include <inttypes.h>
#include <stdio.h>

#include "report/report.h"

static void plan_stage(cli_stage *out, ht_context *ctx, const ht_run_request *request, int stage)
{
    ht_run_request wanted = *request;
    ht_plan *plan = NULL;
    wanted.try_stage = 1 + stage;
    wanted.observer = NULL;
    wanted.on_note = NULL;
    if (ht_run_plan(&plan, ctx, &wanted) != HT_OK) {
        snprintf(out->refused, sizeof out->refused, "%s", ht_context_message(ctx));
    } else {
        out->bytes = ht_plan_byte_table(plan);
        out->padding = ht_plan_padding_bytes(plan);
        for (int space = 0; space < HT_SPACE_COUNT; space++)
            out->prepacked += ht_plan_space_bytes(plan, (ht_space)space, HT_AREA_PREPACKED);
        out->exchanges = ht_plan_exchange_table(plan);
    }
    ht_plan_free(plan);
}

void cli_stages_plan(cli_stages *stages, ht_context *ctx, const ht_run_request *request)
{
    const ht_train_config *config = ht_config_train(request->config);
    *stages = (cli_stages){
        .ranks = config->ranks, .data = config->data_ranks, .pipeline = config->pipeline, .tensor = config->tensor};
    for (int stage = 0; stage < CLI_STAGES; stage++) plan_stage(&stages->list[stage], ctx, request, stage);
    cli_pipeline_plan(&stages->layers, ctx, request);
}

/* ---- the terminal ---- */

static void add_number(ht_table *table, const cli_stage *stage, int64_t number)
{
    if (stage->refused[0])
        ht_table_cell(table, "-");
    else
        ht_table_cell(table, "%" PRId64, number);
}

static int64_t sum_of(const cli_stage *stage)
{
    int64_t sum = 0;
    for (int space = 0; space < HT_SPACE_COUNT; space++)
        for (int h = 0; h < HT_BYTES_COUNT; h++) sum += stage->bytes.bytes[space][h];
    return sum;
}

static bool has_line(const cli_stages *stages, int space, int heading)
{
    for (int stage = 0; stage < CLI_STAGES; stage++)
        if (stages->list[stage].bytes.bytes[space][heading]) return true;
    return false;
}

static void print_bytes(ht_text *text, const cli_stages *stages)
{
    static const char *const heads[] = {"bytes of each rank", "stage 0", "stage 1", "stage 2", "stage 3"};
    ht_table table = {.count = 0};
    for (int i = 0; i <= CLI_STAGES; i++) ht_table_head(&table, heads[i]);
    for (int i = 1; i <= CLI_STAGES; i++) table.right[i] = true;
    for (int space = 0; space < HT_SPACE_COUNT; space++)
        for (int h = 0; h < HT_BYTES_COUNT; h++) {
            if (!has_line(stages, space, h)) continue;
            ht_table_cell(&table, "%s", ht_byte_line_names[space][h]);
            for (int stage = 0; stage < CLI_STAGES; stage++)
                add_number(&table, &stages->list[stage], stages->list[stage].bytes.bytes[space][h]);
        }
    ht_table_cell(&table, "all");
    for (int stage = 0; stage < CLI_STAGES; stage++)
        add_number(&table, &stages->list[stage], sum_of(&stages->list[stage]));
    ht_table_cell(&table, "padding, of them");
    for (int stage = 0; stage < CLI_STAGES; stage++)
        add_number(&table, &stages->list[stage], stages->list[stage].padding);
    ht_table_cell(&table, "packed weights, of them");
    for (int stage = 0; stage < CLI_STAGES; stage++)
        add_number(&table, &stages->list[stage], stages->list[stage].prepacked);
    ht_text_add(text, "\n");
    ht_table_print(text, &table, cli_columns());
    ht_table_free(&table);
}

static void print_messages(ht_text *text, const cli_stages *stages)
{
    static const char *const heads[] = {"stage", "exchange",    "over",           "type",       "a step",
                                        "bytes", "the largest", "sent by a rank", "in messages"};
    enum { HEADS = sizeof heads / sizeof heads[0] };
    ht_table table = {.count = 0};
    for (int i = 0; i < HEADS; i++) ht_table_head(&table, heads[i]);
    for (int i = 4; i < HEADS; i++) table.right[i] = true;
    for (int stage = 0; stage < CLI_STAGES; stage++)
        for (size_t i = 0; i < stages->list[stage].exchanges.count; i++) {
            const ht_exchange_row *row = &stages->list[stage].exchanges.rows[i];
            ht_table_cell(&table, "%d", stage);
            ht_table_cell(&table, "%s", row->op);
            ht_table_cell(&table, "%s", row->group);
            ht_table_cell(&table, "%s", ht_dtype_name(row->dtype));
            ht_table_cell(&table, "%" PRId64, row->calls);
            ht_table_cell(&table, "%" PRId64, row->bytes);
            ht_table_cell(&table, "%" PRId64, row->largest);
            ht_table_cell(&table, "%" PRId64, row->sent);
            ht_table_cell(&table, "%" PRId64, row->messages);
        }
    ht_text_add(text, "\n");
    ht_table_print(text, &table, cli_columns());
    ht_table_free(&table);
}

void cli_stages_print(ht_text *text, const cli_stages *stages)
{
    if (stages->data != stages->ranks)
        ht_text_add(text, "\n%" PRId64 " ranks: data %" PRId64 " × pipeline %" PRId64 " × tensor %" PRId64 "\n",
                    stages->ranks, stages->data, stages->pipeline, stages->tensor);
    if (stages->pipeline > 1)
        ht_text_add(text, "Bytes and exchanges by ZeRO stage are those of the first pipeline stage.\n");
    print_bytes(text, stages);
    print_messages(text, stages);
    for (int stage = 0; stage < CLI_STAGES; stage++)
        if (stages->list[stage].refused[0]) ht_text_add(text, "stage %d: %s\n", stage, stages->list[stage].refused);
    cli_pipeline_print(text, &stages->layers);
}

/* ---- JSON ---- */

static void put_messages(ht_json_writer *json, const ht_exchange_table *exchanges)
{
    ht_json_begin_array(json, "messages");
    for (size_t i = 0; i < exchanges->count; i++) {
        const ht_exchange_row *row = &exchanges->rows[i];
        ht_json_begin_object(json, NULL);
        ht_json_put_text(json, "op", row->op);
        ht_json_put_text(json, "group", row->group);
        ht_json_put_text(json, "dtype", ht_dtype_name(row->dtype));
        ht_json_put_int(json, "calls", row->calls);
        ht_json_put_int(json, "bytes", row->bytes);
        ht_json_put_int(json, "largest", row->largest);
        ht_json_put_int(json, "sent", row->sent);
        ht_json_put_int(json, "sent_messages", row->messages);
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
}

void cli_stages_json(ht_json_writer *json, const cli_stages *stages)
{
    ht_json_put_int(json, "ranks", stages->ranks);
    ht_json_begin_object(json, "axes");
    ht_json_put_int(json, "data", stages->data);
    ht_json_put_int(json, "pipeline", stages->pipeline);
    ht_json_put_int(json, "tensor", stages->tensor);
    ht_json_end_object(json);
    cli_pipeline_json(json, &stages->layers);
    ht_json_begin_array(json, "stages");
    for (int stage = 0; stage < CLI_STAGES; stage++) {
        const cli_stage *s = &stages->list[stage];
        ht_json_line(json, 2);
        ht_json_begin_object(json, NULL);
        ht_json_put_int(json, "stage", stage);
        if (s->refused[0]) {
            ht_json_put_text(json, "refused", s->refused);
        } else {
            ht_byte_table_json(json, "bytes", &s->bytes);
            ht_json_put_int(json, "padding", s->padding);
            ht_json_put_int(json, "prepacked", s->prepacked);
            put_messages(json, &s->exchanges);
        }
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
}
