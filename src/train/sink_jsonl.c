/* The sink metrics.jsonl: one JSON object per step and per evaluation. */
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

static ht_status jsonl_open(void **state, const ht_sink_request *request)
{
    jsonl *s = *state = calloc(1, sizeof *s);
    if (!s) HT_FAIL(request->ctx, HT_ENOMEM, "out of memory for metrics");
    s->ctx = request->ctx;
    HT_TRY(ht_folder_path(s->ctx, &s->path, request->folder, file_name));
    if (request->step > 0) HT_TRY(ht_sink_cut_jsonl(s->ctx, s->path, request->step));
    s->file = fopen(s->path, request->step > 0 ? "abe" : "wbe");
    if (!s->file) HT_FAIL(s->ctx, HT_EIO, "%s: %s", s->path, strerror(errno));
    return HT_OK;
}

static void member(ht_text *text, const char *name, double value)
{
    ht_text_add(text, ", \"%s\": ", name);
    if (isfinite(value))
        ht_text_number(text, value);
    else
        ht_text_add(text, "null"); /* JSON has no word for it */
}

static ht_status put_line(jsonl *s, ht_text *text)
{
    ht_text_add(text, "}\n");
    bool wrote = !text->failed && fwrite(text->data, 1, text->length, s->file) == text->length;
    if (fflush(s->file) != 0) wrote = false;
    ht_text_free(text);
    if (!wrote) HT_FAIL(s->ctx, HT_EIO, "%s: %s", s->path, strerror(errno));
    return HT_OK;
}

static ht_status jsonl_step(void *state, const ht_step_report *r)
{
    ht_text text = {0};
    ht_text_add(&text, "{\"kind\": \"step\", \"step\": %" PRId64, r->step);
    member(&text, "epoch", r->epoch);
    member(&text, "loss", r->loss);
    member(&text, "lr", r->lr);
    member(&text, "grad_norm", r->grad_norm);
    member(&text, "loss_scale", r->loss_scale);
    member(&text, "tokens_per_second", r->tokens_per_second);
    member(&text, "step_ms", r->step_ms);
    member(&text, "micro_ms", r->micro_ms);
    member(&text, "update_ms", r->update_ms);
    ht_text_add(&text, ", \"bytes\": %" PRId64 ", \"peak_bytes\": %" PRId64 ", \"skipped\": %s, \"skips\": %" PRId64,
                r->bytes, r->peak_bytes, r->skipped ? "true" : "false", r->skips);
    return put_line(state, &text);
}

static ht_status jsonl_eval(void *state, const ht_eval_report *r)
{
    ht_text text = {0};
    ht_text_add(&text, "{\"kind\": \"eval\", \"step\": %" PRId64, r->step);
    member(&text, "loss", r->loss);
    if (!isnan(r->perplexity)) member(&text, "perplexity", r->perplexity);
    if (!isnan(r->accuracy)) member(&text, "accuracy", r->accuracy);
    ht_text_add(&text, ", \"count\": %" PRId64, r->count);
    member(&text, "seconds", r->seconds);
    return put_line(state, &text);
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

const ht_sink ht_sink_jsonl = {jsonl_open, jsonl_step, jsonl_eval, NULL, jsonl_close, jsonl_owns};
