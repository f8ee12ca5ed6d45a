/* Any bytes as a job file: read or refused with errors, never more; what is read prints as JSON that reads back. The first
 * line may hold settings for the command line, after "set:", separated by spaces. */
#define _GNU_SOURCE /* memmem */
#include "config/config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ht_key model_rows[] = {
    {"n_layer", HT_KEY_INT, "6", 1, 1000, NULL, "blocks"},
    {"sizes", HT_KEY_INTS, "[1]", 1, 10, NULL, "of layers"},
    {"act", HT_KEY_CHOICE, "\"gelu\"", 0, 0, "gelu|relu", "between layers"},
    {"deep.*.x", HT_KEY_NUMBER, "0", 0, 1, NULL, "by name"},
    {"list.[].y", HT_KEY_TEXTS, "null", 0, 0, NULL, "by place"},
    {0},
};
static const ht_block_keys blocks[] = {{"model", "gpt2", "a model", model_rows}};

enum { MAX_BYTES = 1 << 16, MAX_SETS = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void stop(const char *what, const char *detail)
{
    fprintf(stderr, "%s: %s\n", what, detail ? detail : "");
    abort();
}

static void check_printing(const ht_config *config)
{
    ht_context ctx = {0};
    ht_text text = {0}, lines = {0};
    const ht_json *root;
    ht_arena *arena = ht_arena_create();
    ht_config_print_json(&text, config);
    if (arena == NULL || text.failed) abort();
    /* Names that were cut for printing may meet: only then is a key there twice. */
    if (ht_json_parse(&ctx, arena, "out", text.data, text.length, &root) != HT_OK &&
        strstr(ctx.message, "was given before") == NULL)
        stop("what was printed is no JSON", ctx.message);
    ht_config_print(&lines, config, true);
    ht_text_free(&lines);
    ht_text_free(&text);
    ht_arena_free(arena);
}

/* Cuts the settings off the text; returns how many. */
static size_t take_sets(char *text, const char **sets, char **rest)
{
    size_t count = 0;
    *rest = text;
    if (strncmp(text, "set:", 4) != 0) return 0;
    char *end = text + strcspn(text, "\n");
    *rest = *end != '\0' ? end + 1 : end;
    *end = '\0';
    for (char *word = strtok(text + 4, " "); word != NULL && count < MAX_SETS; word = strtok(NULL, " "))
        sets[count++] = word;
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > MAX_BYTES) return 0;
    char *copy = malloc(size + 1), *rest;
    const char *sets[MAX_SETS];
    if (copy == NULL) abort();
    memcpy(copy, data, size);
    copy[size] = '\0';
    if (memmem(data, size, "/", 1) != NULL) { /* "engine" may name a file: none of the machine's own */
        free(copy);
        return 0;
    }
    size_t set_count = take_sets(copy, sets, &rest);
    ht_context ctx = {0};
    ht_config *config;
    ht_config_request request = {.path = "fuzz.json", .text = rest, .length = (size_t)(copy + size - rest)};
    request.sets = sets;
    request.set_count = set_count;
    request.blocks = blocks;
    request.block_count = 1;
    ht_status status = ht_config_read(&config, &ctx, &request);
    if (config == NULL) abort();
    const ht_problems *problems = ht_config_problems(config);
    if ((status == HT_OK) != (problems->errors == 0)) stop("status and errors differ", ctx.message);
    if (status == HT_OK) {
        const ht_train_config *r = ht_config_train(config);
        if (r->batch != r->micro_batch * r->accumulate * r->data_ranks) stop("the batch identity does not hold", NULL);
        check_printing(config);
    }
    ht_config_free(config);
    free(copy);
    return 0;
}
