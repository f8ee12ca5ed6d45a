#include "config_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ht_key gpt_rows[] = {
    {"n_layer", HT_KEY_INT, "6", 1, 1000, NULL, "blocks"},
    {"n_embd", HT_KEY_INT, NULL, 1, INFINITY, NULL, "width"},
    {0},
};
static const ht_key mlp_rows[] = {{"sizes", HT_KEY_INTS, "[100]", 1, INFINITY, NULL, "of hidden layers"}, {0}};
static const ht_key data_rows[] = {{"train", HT_KEY_TEXT, NULL, 0, 0, NULL, "files"}, {0}};
static const ht_key text_rows[] = {{"tokenizer", HT_KEY_CHOICE, "\"byte\"", 0, 0, "byte|char", "how"}, {0}};
static const ht_block_keys blocks[] = {
    {"model", "gpt2", "a decoder", gpt_rows},
    {"model", "mlp", "layers", mlp_rows},
    {"data", NULL, NULL, data_rows},
    {"data", "text", "plain text", text_rows},
};

ht_context ctx;
ht_config *config;
const char *sets[8];
ht_config_request request;

int set_up(void **state)
{
    (void)state;
    ctx = (ht_context){0};
    config = NULL;
    request = (ht_config_request){.path = "job.json", .sets = sets, .blocks = blocks};
    request.block_count = sizeof blocks / sizeof blocks[0];
    return 0;
}

int tear_down(void **state)
{
    (void)state;
    ht_config_free(config);
    return 0;
}

ht_status read_text(const char *text)
{
    ht_config_free(config);
    request.length = strlen(text);
    char *exact = malloc(request.length + 1);
    memcpy(exact, text, request.length + 1);
    request.text = exact;
    ht_status status = ht_config_read(&config, &ctx, &request);
    free(exact);
    return status;
}

void reads(const char *text)
{
    if (read_text(text) != HT_OK) fail_msg("%s: %s", text, ctx.message);
}

void refused(const char *text, const char *message)
{
    if (read_text(text) != HT_EINVAL) fail_msg("%s is read", text);
    assert_non_null(config);
    if (strcmp(ctx.message, message) != 0) fail_msg("%s\n   says %s\n    not %s", text, ctx.message, message);
}

void warned(const char *part)
{
    const ht_problems *problems = ht_config_problems(config);
    for (size_t i = 0; i < problems->count; i++)
        if (!problems->list[i].is_error && strstr(problems->list[i].text, part) != NULL) return;
    fail_msg("no warning says '%s'", part);
}

void not_warned(const char *part)
{
    const ht_problems *problems = ht_config_problems(config);
    for (size_t i = 0; i < problems->count; i++)
        if (strstr(problems->list[i].text, part) != NULL) fail_msg("%s", problems->list[i].text);
}

/* The value as JSON and its origin, with a bar between. */
void is(const char *block, const char *name, const char *wanted)
{
    const ht_field *field = ht_fields_find(ht_config_block(config, block), name);
    if (field == NULL) fail_msg("%s.%s is not there", block, name);
    ht_text text = {0};
    ht_json_print(&text, field->value);
    ht_text_add(&text, " | ");
    ht_origin_print(&text, &field->origin);
    if (strcmp(text.data, wanted) != 0) fail_msg("%s.%s: %s, not %s", block, name, text.data, wanted);
    ht_text_free(&text);
}
