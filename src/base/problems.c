/* The list of errors and warnings that parsing a config collects. */
#include "base/key.h"

#include "base/arena.h"
#include "base/fail.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_PROBLEMS 200

void ht_origin_print(ht_text *text, const ht_origin *origin)
{
    switch (origin->source) {
    case HT_SOURCE_DEFAULT: ht_text_add(text, "default"); break;
    case HT_SOURCE_COMMAND: ht_text_add(text, "--set"); break;
    case HT_SOURCE_DERIVED: ht_text_add(text, "derived"); break;
    case HT_SOURCE_FILE:
        if (origin->file != NULL) ht_text_add(text, origin->line > 0 ? "%s:" : "%s", origin->file);
        if (origin->line > 0) ht_text_add(text, origin->file != NULL ? "%" PRIu32 : "line %" PRIu32, origin->line);
        break;
    }
    if (origin->why != NULL) ht_text_add(text, ": %s", origin->why);
}

bool ht_problems_full(const ht_problems *problems)
{
    return problems->count >= MOST_PROBLEMS;
}

static void add(ht_problems *problems, bool is_error, const ht_origin *where, const char *format, va_list args)
{
    problems->errors += is_error;
    if (ht_problems_full(problems) || problems->failed) return;
    ht_text text = {0};
    if (where != NULL && (where->source != HT_SOURCE_FILE || where->file != NULL || where->line > 0)) {
        ht_origin place = {where->source, where->file, where->line, NULL};
        ht_origin_print(&text, &place);
        ht_text_add(&text, ": ");
    }
    char what[800];
    vsnprintf(what, sizeof what, format, args);
    ht_text_add(&text, "%s", what);
    if (text.failed ||
        !ht_grow((void **)&problems->list, &problems->capacity, problems->count + 1, sizeof(ht_problem))) {
        problems->failed = true;
        ht_text_free(&text);
        return;
    }
    problems->list[problems->count++] = (ht_problem){is_error, text.data};
}

void ht_problems_error(ht_problems *problems, const ht_origin *where, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(problems, true, where, format, args);
    va_end(args);
}

void ht_problems_warn(ht_problems *problems, const ht_origin *where, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(problems, false, where, format, args);
    va_end(args);
}

void ht_problems_free(ht_problems *problems)
{
    for (size_t i = 0; i < problems->count; i++) free(problems->list[i].text);
    free(problems->list);
    *problems = (ht_problems){0};
}

ht_status ht_problems_status(const ht_problems *problems, ht_context *ctx)
{
    if (problems->failed) HT_FAIL(ctx, HT_ENOMEM, "out of memory while collecting errors");
    if (problems->errors == 0) return HT_OK;
    char message[sizeof ctx->message];
    size_t used = 0, shown = 0, keep = 40; /* for the last line */
    for (size_t i = 0; i < problems->count; i++) {
        if (!problems->list[i].is_error) continue;
        size_t left = sizeof message - keep - used;
        int wrote = snprintf(message + used, left, "%s%s", shown > 0 ? "\n" : "", problems->list[i].text);
        if (wrote < 0 || ((size_t)wrote >= left && shown > 0)) break;
        used += (size_t)wrote < left ? (size_t)wrote : left - 1;
        shown++;
    }
    message[used] = '\0';
    if (shown < problems->errors)
        snprintf(message + used, sizeof message - used, "\nand %zu more errors", problems->errors - shown);
    HT_FAIL(ctx, HT_EINVAL, "%s", message);
}
