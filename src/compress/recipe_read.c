/* A recipe: {"steps": [{"prune": {...}}, {"tune": {...}}]}. Every step is read by the rows of its kind. DeepSpeed's
 * config becomes one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compression.h"

#define HT_STEP(id)       extern const ht_step_kind ht_step_##id;
#define HT_STEP_LATER(id) static const ht_step_kind ht_step_##id = {.name = #id};
#include "compress/steps.def"
#undef HT_STEP
#undef HT_STEP_LATER

const ht_step_kind *const ht_step_kinds[] = {
#define HT_STEP(id)   &ht_step_##id,
#define HT_STEP_LATER HT_STEP
#include "compress/steps.def"
#undef HT_STEP
#undef HT_STEP_LATER
    NULL,
};

static const ht_step_kind *find_kind(const char *name)
{
    for (size_t i = 0; ht_step_kinds[i]; i++)
        if (strcmp(ht_step_kinds[i]->name, name) == 0) return ht_step_kinds[i];
    return NULL;
}

static ht_status fail_unknown(ht_context *ctx, const char *path, const ht_json *step)
{
    ht_text known = {0};
    for (size_t i = 0; ht_step_kinds[i]; i++)
        if (ht_step_kinds[i]->apply) ht_text_add(&known, "%s%s", known.length ? ", " : "", ht_step_kinds[i]->name);
    ht_status status = ht_json_fail(ctx, path, step, "there is no step \"%.100s\"; there are %s", step->key,
                                    known.data ? known.data : "none");
    ht_text_free(&known);
    return status;
}

/* The name that messages give the step's keys: "steps[1].prune". */
static const char *name_block(ht_arena *arena, size_t index, const char *kind)
{
    enum { MOST = 64 };
    char *block = HT_NEW(arena, char, MOST);
    if (block) snprintf(block, MOST, "steps[%zu].%s", index, kind);
    return block;
}

static ht_status read_step(ht_compress_recipe *out, ht_context *ctx, ht_arena *arena, const char *path,
                           const ht_json *entry)
{
    const ht_json *step = entry->kind == HT_JSON_OBJECT && entry->count == 1 ? entry->child : NULL;
    if (!step) return ht_json_fail(ctx, path, entry, "a step is an object with one member, such as {\"prune\": {...}}");
    const ht_step_kind *kind = find_kind(step->key);
    if (!kind) return fail_unknown(ctx, path, step);
    if (!kind->apply) {
        ht_json_fail(ctx, path, step, "the step \"%s\" is not there yet", kind->name);
        return HT_ENOTSUP;
    }
    if (step->kind != HT_JSON_OBJECT)
        return ht_json_fail(ctx, path, step, "%s: expected an object, found %s", kind->name,
                            ht_json_kind_name(step->kind));
    if (out->count == HT_COMPRESS_MOST_STEPS)
        return ht_json_fail(ctx, path, step, "more than %d steps", HT_COMPRESS_MOST_STEPS);
    const char *block = name_block(arena, out->count, kind->name);
    if (!block) HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory", path);
    ht_compress_recipe_step *to = &out->steps[out->count];
    ht_status status = ht_fields_read(&to->fields, ctx, kind->keys, block, step);
    if (status == HT_OK) {
        to->kind = kind;
        out->count++;
        if (kind->check) status = kind->check(ctx, to->fields);
    }
    if (status == HT_OK) return HT_OK;
    char why[1024];
    snprintf(why, sizeof why, "%s", ht_context_message(ctx));
    return ht_fail(ctx, status, "%s:%u: %s", path, step->line, why);
}

static ht_status read_steps(ht_compress_recipe *out, ht_context *ctx, ht_arena *arena, const char *path,
                            const ht_json *root)
{
    const ht_json *steps = ht_json_get(root, "steps");
    for (const ht_json *member = root->kind == HT_JSON_OBJECT ? root->child : NULL; member; member = member->next)
        if (member != steps && !ht_key_is_comment(member->key))
            return ht_json_fail(ctx, path, member, "there is no key \"%.100s\"; a recipe has \"steps\"", member->key);
    if (!steps || steps->kind != HT_JSON_ARRAY || !steps->child)
        return ht_json_fail(ctx, path, steps ? steps : root, "a recipe is an object with a list \"steps\"");
    for (const ht_json *entry = steps->child; entry; entry = entry->next)
        HT_TRY(read_step(out, ctx, arena, path, entry));
    return HT_OK;
}

/* ---- DeepSpeed's config as a recipe ---- */

/* In its own file, or in a job's engine block. */
static const ht_json *find_block(const ht_json *root)
{
    const ht_json *block = ht_json_get(root, "compression_training");
    return block ? block : ht_json_get(ht_json_get(root, "engine"), "compression_training");
}

/* All of the file, by the rows that DeepSpeed's keys have. */
static ht_status check_config(ht_context *ctx, const char *path)
{
    ht_block_keys blocks[HT_MOST_JOB_BLOCKS];
    ht_config *config = NULL;
    ht_config_request request = {.path = path, .blocks = blocks, .block_count = ht_job_blocks(blocks)};
    ht_status status = ht_config_read(&config, ctx, &request);
    if (status != HT_OK && config) status = ht_problems_status(ht_config_problems(config), ctx);
    ht_config_free(config);
    return status;
}

static ht_status translate(ht_compress_recipe *out, ht_compression *c, const char *path, const ht_json *block)
{
    ht_text text = {0};
    const ht_json *recipe;
    if (c->steps == 0)
        return ht_json_fail(c->ctx, path, block, "the run counts epochs: --set train.steps=N says how long to tune");
    HT_TRY(check_config(c->ctx, path));
    ht_status status = ht_deepspeed_recipe(&text, c, path, block);
    if (status == HT_OK && text.failed) status = ht_fail(c->ctx, HT_ENOMEM, "%s: out of memory", path);
    if (status == HT_OK) ht_compression_note(c, "compression_training as a recipe: %s", text.data);
    if (status == HT_OK) status = ht_json_parse(c->ctx, c->arena, path, text.data, text.length, &recipe);
    ht_text_free(&text);
    return status == HT_OK ? read_steps(out, c->ctx, c->arena, path, recipe) : status;
}

ht_status ht_compress_recipe_read(ht_compress_recipe *out, ht_compression *c)
{
    const char *path = c->request->recipe;
    char *text;
    size_t length;
    const ht_json *root;
    *out = (ht_compress_recipe){0};
    HT_TRY(ht_read_file(c->ctx, &text, &length, path));
    ht_status status = ht_json_parse(c->ctx, c->arena, path, text, length, &root);
    free(text);
    HT_TRY(status);
    const ht_json *block = find_block(root);
    return block ? translate(out, c, path, block) : read_steps(out, c->ctx, c->arena, path, root);
}

void ht_compress_recipe_free(ht_compress_recipe *recipe)
{
    for (size_t i = 0; i < recipe->count; i++) ht_fields_free(recipe->steps[i].fields);
}
