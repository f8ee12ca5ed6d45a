/* A search: a recipe in which values are lists of alternatives, {"try": [0.3, 0.5]}, is tried with each combination of them.
 * What fits the goals is compared by its bytes; the rest shows what they would cost. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compress/compression.h"

enum { MOST_ALTERNATIVES = 16 };

/* ---- combinations ---- */

/* The lists of a recipe in the order in which it is walked. */
typedef struct alternatives {
    size_t counts[MOST_ALTERNATIVES], count;
    size_t combination; /* that is written: its digits are the choices */
    ht_text *settings;  /* receives what was chosen; NULL: lists are counted */
} alternatives;

static const ht_json *list_of(const ht_json *value)
{
    const ht_json *list = value->kind == HT_JSON_OBJECT && value->count == 1 ? ht_json_get(value, "try") : NULL;
    return list && list->kind == HT_JSON_ARRAY && list->child ? list : NULL;
}

static const ht_json *choose(alternatives *a, const char *key, const ht_json *list)
{
    size_t stride = 1, at = a->count++;
    if (at < MOST_ALTERNATIVES && !a->settings) a->counts[at] = list->count;
    if (at >= MOST_ALTERNATIVES || !a->settings) return list->child;
    for (size_t i = 0; i < at; i++) stride *= a->counts[i];
    const ht_json *chosen = list->child;
    for (size_t i = a->combination / stride % a->counts[at]; i > 0; i--) chosen = chosen->next;
    ht_text_add(a->settings, "%s%s ", a->settings->length ? ", " : "", key ? key : "");
    if (chosen->kind == HT_JSON_STRING)
        ht_text_add(a->settings, "%s", chosen->text);
    else
        ht_json_print(a->settings, chosen);
    return chosen;
}

static void write_value(alternatives *a, ht_json_writer *json, const char *key, const ht_json *value)
{
    const ht_json *list = list_of(value);
    if (list) value = choose(a, key, list);
    if (value->kind != HT_JSON_OBJECT && value->kind != HT_JSON_ARRAY) {
        ht_json_put_value(json, key, value);
        return;
    }
    bool object = value->kind == HT_JSON_OBJECT;
    if (object)
        ht_json_begin_object(json, key);
    else
        ht_json_begin_array(json, key);
    for (const ht_json *child = value->child; child; child = child->next)
        write_value(a, json, object ? child->key : NULL, child);
    if (object)
        ht_json_end_object(json);
    else
        ht_json_end_array(json);
}

/* ---- goals ---- */

static bool is_better(double a, double b)
{
    return isnan(b) ? !isnan(a) : a < b;
}

/* Not worse in anything, and better in something. */
static bool dominates(const ht_compress_figures *a, const ht_compress_figures *b)
{
    bool worse = is_better(b->loss, a->loss) || b->disk_bytes < a->disk_bytes || b->p50_ms < a->p50_ms;
    bool better = is_better(a->loss, b->loss) || a->disk_bytes < b->disk_bytes || a->p50_ms < b->p50_ms;
    return better && !worse;
}

static bool fits(const ht_compress_goals *goals, const ht_compress_figures *was, const ht_compress_figures *is)
{
    if (goals->drop >= 0 && !(is->loss <= was->loss * (1 + goals->drop))) return false;
    if (goals->size >= 0 && (double)is->disk_bytes > goals->size * (double)was->disk_bytes) return false;
    return goals->latency < 0 || is->p50_ms <= goals->latency * was->p50_ms;
}

static void judge(ht_compress_trials *t, const ht_compress_goals *goals)
{
    t->chosen = -1;
    for (size_t i = 0; i < t->count; i++) {
        ht_compress_trial *trial = &t->trials[i];
        if (trial->failure[0]) continue;
        trial->fits = fits(goals, &t->before, &trial->after);
        trial->front = true;
        for (size_t k = 0; k < t->count; k++)
            if (!t->trials[k].failure[0] && dominates(&t->trials[k].after, &trial->after)) trial->front = false;
        if (!trial->fits) continue;
        const ht_compress_figures *best = t->chosen < 0 ? NULL : &t->trials[t->chosen].after;
        if (!best || trial->after.disk_bytes < best->disk_bytes ||
            (trial->after.disk_bytes == best->disk_bytes && is_better(trial->after.loss, best->loss)))
            t->chosen = (int)i;
    }
}

/* ---- trials ---- */

typedef struct search {
    ht_context *ctx;
    const ht_compress_request *request;
    const ht_json *recipe;
    char work[HT_COMPRESS_PATH]; /* a folder beside the output */
} search;

static ht_status write_recipe(const search *s, const char *path, const ht_text *text)
{
    FILE *file = text->failed ? NULL : fopen(path, "wbe");
    if (!file) HT_FAIL(s->ctx, HT_EIO, "%s: %s", path, text->failed ? "out of memory" : strerror(errno));
    bool wrote = fwrite(text->data, 1, text->length, file) == text->length;
    if (fclose(file) != 0 || !wrote) HT_FAIL(s->ctx, HT_EIO, "%s: %s", path, strerror(errno));
    return HT_OK;
}

static ht_status try_one(const search *s, const alternatives *lists, size_t index, ht_compress_trials *out)
{
    char path[HT_COMPRESS_PATH + 32], folder[HT_COMPRESS_PATH + 32];
    ht_text text = {0}, settings = {0};
    ht_json_writer json = {.text = &text};
    alternatives a = *lists;
    ht_compress_trial *trial = &out->trials[index];
    ht_compress_report report;
    a.count = 0;
    a.combination = index;
    a.settings = &settings;
    write_value(&a, &json, NULL, s->recipe);
    snprintf(trial->settings, sizeof trial->settings, "%s", settings.data ? settings.data : "");
    snprintf(path, sizeof path, "%s/%zu.json", s->work, index + 1);
    snprintf(folder, sizeof folder, "%s/%zu", s->work, index + 1);
    if (s->request->on_note) s->request->on_note(s->request->arg, trial->settings);
    ht_compress_request request = *s->request;
    request.recipe = path;
    request.output = folder;
    request.name = s->request->output;
    request.before = out->measured ? &out->before : NULL;
    request.trial = true;
    ht_status status = write_recipe(s, path, &text);
    if (status == HT_OK) status = ht_compress(&report, s->ctx, &request);
    ht_text_free(&text);
    ht_text_free(&settings);
    HT_TRY(status);
    if (!out->measured) out->before = report.before;
    out->measured = true;
    trial->after = report.after;
    /* Both were timed in turns: what else the machine did is in the ratio of neither. */
    trial->after.p50_ms *= out->before.p50_ms / report.before.p50_ms;
    trial->after.p99_ms *= out->before.p50_ms / report.before.p50_ms;
    ht_compress_report_free(&report);
    return HT_OK;
}

/* A combination that fails tells why in its row, and the others are tried; one that was stopped ends the search. */
static ht_status try_or_note(const search *s, const alternatives *lists, ht_compress_trials *out)
{
    ht_compress_trial *trial = &out->trials[out->count];
    ht_status status = try_one(s, lists, out->count, out);
    if (status == HT_OK || (s->request->stop && *s->request->stop)) return status;
    const char *why = ht_context_message(s->ctx);
    snprintf(trial->failure, sizeof trial->failure, "%s", why[0] ? why : "it failed");
    trial->after = (ht_compress_figures){
        .loss = NAN, .perplexity = NAN, .accuracy = NAN, .bleu = NAN, .p50_ms = NAN, .p99_ms = NAN, .items_per_s = NAN};
    if (s->request->on_note) s->request->on_note(s->request->arg, trial->failure);
    return HT_OK;
}

static ht_status try_all(const search *s, const ht_compress_goals *goals, ht_compress_trials *out)
{
    alternatives lists = {.count = 0};
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    write_value(&lists, &json, NULL, s->recipe);
    ht_text_free(&text);
    size_t combinations = 1;
    for (size_t i = 0; i < lists.count && i < MOST_ALTERNATIVES; i++) {
        combinations *= lists.counts[i];
        if (combinations > HT_COMPRESS_MOST_TRIALS) break;
    }
    if (lists.count == 0)
        HT_FAIL(s->ctx, HT_EINVAL, "%s: a search needs alternatives, such as \"ratio\": {\"try\": [0.3, 0.5]}",
                s->request->recipe);
    if (lists.count > MOST_ALTERNATIVES || combinations > HT_COMPRESS_MOST_TRIALS)
        HT_FAIL(s->ctx, HT_EINVAL, "%s: more than %d combinations of alternatives", s->request->recipe,
                HT_COMPRESS_MOST_TRIALS);
    for (out->count = 0; out->count < combinations; out->count++) HT_TRY(try_or_note(s, &lists, out));
    if (!out->measured) HT_FAIL(s->ctx, HT_EINVAL, "no combination could be compressed: %s", out->trials[0].failure);
    judge(out, goals);
    return HT_OK;
}

static ht_status publish(const search *s, const ht_compress_trials *t)
{
    char folder[HT_COMPRESS_PATH + 32];
    if (t->chosen < 0) return HT_OK;
    snprintf(folder, sizeof folder, "%s/%d", s->work, t->chosen + 1);
    if (rename(folder, s->request->output) != 0) HT_FAIL(s->ctx, HT_EIO, "%s: %s", s->request->output, strerror(errno));
    return HT_OK;
}

static ht_status read_recipe(search *s, ht_arena *arena)
{
    char *text;
    size_t length;
    HT_TRY(ht_read_file(s->ctx, &text, &length, s->request->recipe));
    ht_status status = ht_json_parse(s->ctx, arena, s->request->recipe, text, length, &s->recipe);
    free(text);
    return status;
}

ht_status ht_compress_search(ht_compress_trials *out, ht_context *ctx, const ht_compress_request *request,
                             const ht_compress_goals *goals)
{
    search s = {.ctx = ctx, .request = request};
    ht_arena *arena = ht_arena_create();
    *out = (ht_compress_trials){.chosen = -1};
    if (!arena) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a search");
    int length = snprintf(s.work, sizeof s.work, "%s.search", request->output);
    ht_status status = length < 0 || length >= HT_COMPRESS_PATH
                           ? ht_fail(ctx, HT_EINVAL, "%s: the path is too long", request->output)
                           : read_recipe(&s, arena);
    if (status == HT_OK && access(request->output, F_OK) == 0)
        status = ht_fail(ctx, HT_EINVAL, "%s is there already: a search needs a new output", request->output);
    bool made = status == HT_OK && (status = ht_compression_make_work(ctx, s.work)) == HT_OK;
    if (status == HT_OK) status = try_all(&s, goals, out);
    if (status == HT_OK) status = publish(&s, out);
    ht_context aside = {0}; /* the message is of what failed before */
    if (made) ht_folder_remove(&aside, s.work);
    ht_arena_free(arena);
    return status;
}
