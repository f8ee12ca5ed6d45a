/* The sink metrics.jsonl: one JSON object per step and per evaluation, and one at the end. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/folder.h"
#include "train/metrics.h"

static const char file_name[] = "metrics.jsonl";

typedef struct jsonl {
    ht_context *ctx;
    FILE *file;
    char *path;
} jsonl;

/* Of a run that goes on; every step has a line. */
static ht_status cut(const jsonl *s, int64_t step)
{
    ht_sink_kept kept;
    HT_TRY(ht_sink_cut_jsonl(s->ctx, s->path, step, &kept));
    if (kept.last < step)
        ht_note(s->ctx, HT_LOG_WARN, "%s: the records of steps %" PRId64 " to %" PRId64 " are lost", s->path,
                kept.last + 1, step);
    return HT_OK;
}

static ht_status jsonl_open(void **state, const ht_sink_request *request)
{
    jsonl *s = *state = calloc(1, sizeof *s);
    if (!s) HT_FAIL(request->ctx, HT_ENOMEM, "out of memory for metrics");
    s->ctx = request->ctx;
    HT_TRY(ht_folder_path(s->ctx, &s->path, request->folder, file_name));
    if (request->step > 0) HT_TRY(cut(s, request->step));
    s->file = fopen(s->path, request->step > 0 ? "abe" : "wbe");
    if (!s->file) HT_FAIL(s->ctx, HT_EIO, "%s: %s", s->path, strerror(errno));
    return HT_OK;
}

/* Ends the object and frees the text. */
static ht_status put_line(jsonl *s, ht_json_writer *json)
{
    ht_text *text = json->text;
    ht_json_end_object(json);
    ht_text_add(text, "\n");
    bool wrote = !text->failed && fwrite(text->data, 1, text->length, s->file) == text->length;
    if (fflush(s->file) != 0) wrote = false;
    ht_text_free(text);
    if (!wrote) HT_FAIL(s->ctx, HT_EIO, "%s: %s", s->path, strerror(errno));
    return HT_OK;
}

static void start_line(ht_json_writer *json, const char *kind, int64_t step)
{
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "kind", kind);
    ht_json_put_int(json, "step", step);
}

/* Of a run on several ranks. */
static void put_exchange(ht_json_writer *json, const ht_exchange_report *r)
{
    if (!r->known) return;
    ht_json_put_number(json, "exchange_ms", r->ms);
    ht_json_put_int(json, "exchange_bytes", r->bytes);
    ht_json_put_number(json, "hidden_share", r->hidden_share);
}

static ht_status jsonl_step(void *state, const ht_step_report *r)
{
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    start_line(&json, "step", r->step);
    ht_json_put_number(&json, "epoch", r->epoch);
    ht_json_put_number(&json, "loss", r->loss);
    ht_json_put_number(&json, "lr", r->lr);
    ht_json_put_number(&json, "grad_norm", r->grad_norm);
    ht_json_put_number(&json, "loss_scale", r->loss_scale);
    ht_json_put_number(&json, "tokens_per_second", r->tokens_per_second);
    ht_json_put_number(&json, "step_ms", r->step_ms);
    ht_json_put_number(&json, "micro_ms", r->micro_ms);
    ht_json_put_number(&json, "update_ms", r->update_ms);
    ht_json_put_int(&json, "plan_bytes", r->plan_bytes);
    ht_json_put_int(&json, "process_peak_bytes", r->process_peak_bytes);
    ht_json_put_int(&json, "syncs", r->syncs);
    ht_json_put_int(&json, "steps", r->steps);
    ht_json_put_bool(&json, "skipped", r->skipped);
    ht_json_put_int(&json, "skips", r->skips);
    put_exchange(&json, &r->exchange);
    return put_line(state, &json);
}

static ht_status jsonl_eval(void *state, const ht_eval_report *r)
{
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    start_line(&json, "eval", r->step);
    ht_json_put_number(&json, "loss", r->loss);
    if (!isnan(r->perplexity)) ht_json_put_number(&json, "perplexity", r->perplexity);
    if (!isnan(r->accuracy)) ht_json_put_number(&json, "accuracy", r->accuracy);
    ht_json_put_int(&json, "count", r->count);
    ht_json_put_number(&json, "seconds", r->seconds);
    return put_line(state, &json);
}

static ht_status jsonl_end(void *state, const ht_end_report *r)
{
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    start_line(&json, "end", r->step);
    ht_json_put_number(&json, "seconds", r->seconds);
    ht_json_put_int(&json, "plan_bytes", r->plan_bytes);
    ht_json_put_int(&json, "process_peak_bytes", r->process_peak_bytes);
    ht_json_put_int(&json, "reserve_bytes", ht_reserve_sum(&r->reserve));
    ht_json_put_int(&json, "memory_bytes", r->plan_bytes - r->device_bytes - r->disk_bytes);
    ht_json_begin_object(&json, "reserve");
    for (int i = 0; i < HT_RESERVE_COUNT; i++) ht_json_put_int(&json, ht_reserve_line_names[i], r->reserve.bytes[i]);
    ht_json_end_object(&json);
    put_exchange(&json, &r->exchange);
    return put_line(state, &json);
}

static ht_status jsonl_close(void *state)
{
    jsonl *s = state;
    ht_status status = HT_OK;
    if (s->file && fclose(s->file) != 0) status = ht_fail(s->ctx, HT_EIO, "%s: %s", s->path, strerror(errno));
    free(s->path);
    free(s);
    return status;
}

static bool jsonl_owns(const char *name)
{
    return strcmp(name, file_name) == 0;
}

const ht_sink ht_sink_jsonl = {jsonl_open, jsonl_step, jsonl_eval, jsonl_end, NULL, jsonl_close, jsonl_owns};
