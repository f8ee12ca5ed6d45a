/* From files and the command line to trees, and from trees to the fields of each block. Problems are collected; only the
 * lack of memory ends the reading at once. */
#include "config/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MOST_SET_DEPTH 64

const char *const ht_block_names[BLOCK_COUNT] = {"model", "data", "train", "halftone", "engine"};

static bool is_block_name(const char *name, size_t length)
{
    for (int i = 0; i < BLOCK_COUNT; i++)
        if (strlen(ht_block_names[i]) == length && memcmp(ht_block_names[i], name, length) == 0) return true;
    return false;
}

/* ---- trees ---- */

/* A file as a tree; *out stays NULL when it cannot be read, which is a problem and no failure. */
static ht_status load(ht_config *c, const char *path, const char *text, size_t length, const ht_json **out)
{
    ht_context quiet = {0};
    char *bytes = NULL;
    *out = NULL;
    ht_status status = HT_OK;
    if (text == NULL) status = ht_read_file(&quiet, &bytes, &length, path);
    if (status == HT_OK) status = ht_json_parse(&quiet, c->arena, path, text != NULL ? text : bytes, length, out);
    free(bytes);
    if (status == HT_ENOMEM) return status;
    if (status != HT_OK) ht_problems_error(&c->problems, NULL, "%s", quiet.message);
    return HT_OK;
}

static ht_status add_engine(ht_config *c, const ht_json *tree, const ht_origin *where)
{
    tree = ht_engine_modern(c, tree, where);
    if (tree == NULL) return HT_ENOMEM;
    c->engine[c->engine_count++] = (config_source){tree, *where};
    return HT_OK;
}

static ht_status load_engine(ht_config *c, const char *path)
{
    const ht_json *tree;
    path = ht_arena_text(c->arena, path, strlen(path)); /* origins keep it */
    if (path == NULL) return HT_ENOMEM;
    HT_TRY(load(c, path, NULL, 0, &tree));
    c->has_engine = true;
    ht_origin where = {.source = HT_SOURCE_FILE, .file = path};
    return tree != NULL ? add_engine(c, tree, &where) : HT_OK;
}

/* A path in a job file is seen from that file's folder. */
static const char *beside(ht_config *c, const char *path)
{
    const char *slash = strrchr(c->name, '/');
    if (path[0] == '/' || slash == NULL) return path;
    size_t folder = (size_t)(slash - c->name) + 1;
    char *whole = HT_NEW(c->arena, char, folder + strlen(path) + 1);
    if (whole == NULL) return NULL;
    memcpy(whole, c->name, folder);
    memcpy(whole + folder, path, strlen(path) + 1);
    return whole;
}

/* ---- the command line ---- */

/* The unknown words after --set, with the block that they could belong to. */
static void refuse_set(ht_config *c, const char *path)
{
    const ht_key *tables[] = {ht_train_keys, ht_engine_keys};
    for (int i = 0; i < 2; i++)
        for (const ht_key *key = tables[i]; key->name != NULL; key++)
            if (strcmp(key->name, path) == 0) {
                ht_problems_error(&c->problems, NULL, "--set %.200s: unknown key; did you mean \"%s.%s\"?", path,
                                  i == 0 ? "train" : "engine", path);
                return;
            }
    ht_problems_error(&c->problems, NULL,
                      "--set %.200s: unknown key; keys begin with model, data, train, halftone or engine", path);
}

static const ht_json *set_value(ht_config *c, const char *word)
{
    ht_context quiet = {0};
    const ht_json *value;
    ht_status status = ht_json_parse(&quiet, c->arena, "--set", word, strlen(word), &value);
    if (status == HT_OK || status == HT_ENOMEM) return value;
    ht_json *text = HT_NEW(c->arena, ht_json, 1); /* a word without quotes */
    if (text == NULL) return NULL;
    text->kind = HT_JSON_STRING;
    text->text = ht_arena_text(c->arena, word, strlen(word));
    text->length = strlen(word);
    return text->text != NULL ? text : NULL;
}

static bool is_path(const char *path)
{
    size_t parts = 1;
    if (*path == '\0') return false;
    for (const char *at = path; *at != '\0'; at++) {
        if (*at != '.') continue;
        if (at == path || at[-1] == '.' || at[1] == '\0') return false;
        parts++;
    }
    return parts <= MOST_SET_DEPTH;
}

static ht_status add_set(ht_config *c, const char *set)
{
    ht_origin where = {.source = HT_SOURCE_COMMAND};
    const char *equals = strchr(set, '=');
    char *path = ht_arena_text(c->arena, set, equals != NULL ? (size_t)(equals - set) : strlen(set));
    if (path == NULL) return HT_ENOMEM;
    if (equals == NULL || !is_path(path)) {
        ht_problems_error(&c->problems, NULL, "--set %.200s: takes KEY=VALUE, as in train.lr=3e-4", set);
        return HT_OK;
    }
    const ht_json *value = set_value(c, equals + 1);
    const ht_json *tree = value != NULL ? ht_nested(c->arena, path, value) : NULL;
    if (tree == NULL) return HT_ENOMEM;
    if (is_block_name(path, strcspn(path, "."))) {
        c->job[c->job_count++] = (config_source){tree, where};
    } else if (!c->is_job) {
        return add_engine(c, tree, &where);
    } else {
        refuse_set(c, path);
    }
    return HT_OK;
}

/* ---- which file is what ---- */

/* DeepSpeed's config alone: one of its names stands at the top, and none of ours. */
static bool looks_like_engine(const ht_json *root)
{
    bool engine = false;
    if (root->kind != HT_JSON_OBJECT) return false;
    for (const ht_json *member = root->child; member != NULL; member = member->next) {
        if (is_block_name(member->key, strlen(member->key))) return false;
        engine |= ht_is_engine_name(member->key);
    }
    return engine;
}

/* The job's own "engine", a path or an object. Only the last path counts. */
static ht_status find_engine(ht_config *c, const ht_config_request *r)
{
    const config_source *chosen = NULL;
    const ht_json *engine = NULL;
    for (size_t i = 0; i < c->job_count; i++) {
        const ht_json *member = ht_member(c->job[i].tree, "engine");
        bool whole = member != NULL && (member->kind != HT_JSON_OBJECT || c->job[i].where.source == HT_SOURCE_FILE);
        if (!whole) continue;
        chosen = &c->job[i];
        engine = member;
    }
    if (r->engine_path != NULL) return load_engine(c, r->engine_path);
    if (engine == NULL || engine->kind == HT_JSON_NULL) return HT_OK;
    ht_origin where = chosen->where;
    if (where.source == HT_SOURCE_FILE) where.line = engine->line;
    if (engine->kind == HT_JSON_OBJECT) {
        c->engine_block = "engine";
        c->has_engine = true;
        return add_engine(c, engine, &where);
    }
    if (engine->kind != HT_JSON_STRING || strlen(engine->text) != engine->length) {
        ht_problems_error(&c->problems, &where, "engine: expected DeepSpeed's config, as a path or an object, found %s",
                          ht_json_kind_name(engine->kind));
        return HT_OK;
    }
    const char *path = where.source == HT_SOURCE_FILE ? beside(c, engine->text) : engine->text;
    return path != NULL ? load_engine(c, path) : HT_ENOMEM;
}

static ht_status gather_sources(ht_config *c, const ht_config_request *r, const ht_json *root)
{
    ht_origin where = {.source = HT_SOURCE_FILE, .file = c->name};
    c->is_job = !looks_like_engine(root);
    if (c->is_job) c->job[c->job_count++] = (config_source){root, where};
    if (!c->is_job) {
        c->has_engine = true;
        HT_TRY(add_engine(c, root, &where));
        if (r->engine_path != NULL)
            ht_problems_error(&c->problems, NULL, "%s: DeepSpeed's config, so --deepspeed %s has no place", c->name,
                              r->engine_path);
    }
    size_t first_set = c->job_count;
    for (size_t i = 0; i < r->set_count; i++) HT_TRY(add_set(c, r->sets[i]));
    if (c->is_job) HT_TRY(find_engine(c, r));
    for (size_t i = first_set; i < c->job_count; i++) {
        const ht_json *engine = ht_member(c->job[i].tree, "engine");
        if (engine == NULL || engine->kind != HT_JSON_OBJECT) continue;
        c->bare |= !c->has_engine;
        c->has_engine = true;
        HT_TRY(add_engine(c, engine, &c->job[i].where));
    }
    return HT_OK;
}

/* ---- blocks ---- */

static const ht_key any_keys[] = {{.name = "*", .kind = HT_KEY_JSON, .standard = "null"}, {0}};

/* The text of the last source that has it, NULL: none. */
static const char *last_text(const config_source *sources, size_t count, const char *block, const char *key)
{
    const char *text = NULL;
    for (size_t i = 0; i < count; i++) {
        const ht_json *value = ht_member(ht_member(sources[i].tree, block), key);
        if (value != NULL && value->kind == HT_JSON_STRING && strcmp(value->text, "auto") != 0) text = value->text;
    }
    return text;
}

/* "a|b|c" of all registered types; NULL without memory, "" without types. */
static const char *type_choices(ht_config *c, const ht_config_request *r, const char *block)
{
    ht_text text = {0};
    for (size_t i = 0; i < r->block_count; i++)
        if (r->blocks[i].type != NULL && strcmp(r->blocks[i].block, block) == 0)
            ht_text_add(&text, "%s%s", text.length > 0 ? "|" : "", r->blocks[i].type);
    const char *choices = text.failed ? NULL : ht_arena_text(c->arena, text.data, text.length);
    ht_text_free(&text);
    return choices;
}

/* Rows of a block whose types other rooms register. */
static ht_status declare_typed(ht_config *c, const ht_config_request *r, block_id id, const char *selector)
{
    const char *block = ht_block_names[id], *choices = type_choices(c, r, block);
    ht_key *choose = HT_NEW(c->arena, ht_key, 2);
    if (choices == NULL || choose == NULL) return HT_ENOMEM;
    if (*choices == '\0') return ht_fields_declare(c->blocks[id], any_keys);
    *choose = (ht_key){selector, HT_KEY_CHOICE, NULL, 0, 0, choices, "which one"};
    HT_TRY(ht_fields_declare(c->blocks[id], choose));
    const char *type = last_text(c->job, c->job_count, block, selector);
    for (size_t i = 0; i < r->block_count; i++) {
        const ht_block_keys *b = &r->blocks[i];
        if (strcmp(b->block, block) != 0) continue;
        bool chosen = type != NULL && b->type != NULL && strcasecmp(b->type, type) == 0;
        if (chosen) c->types[id] = b->type;
        if (b->type == NULL || chosen) HT_TRY(ht_fields_declare(c->blocks[id], b->keys));
    }
    /* Without a type nothing can be said about the other keys. */
    return c->types[id] == NULL ? ht_fields_declare(c->blocks[id], any_keys) : HT_OK;
}

static ht_status declare_engine_type(ht_config *c, const char *block, const ht_key *params)
{
    ht_engine_type type;
    const char *name = last_text(c->engine, c->engine_count, block, "type");
    if (name != NULL && ht_engine_type_find(block, name, &type))
        return ht_fields_declare(c->blocks[BLOCK_ENGINE], type.keys);
    for (size_t i = 0; i < c->engine_count && name == NULL; i++) {
        const ht_json *value = ht_member(ht_member(c->engine[i].tree, block), "params");
        if (value == NULL || value->kind == HT_JSON_NULL) continue;
        ht_origin where = c->engine[i].where;
        if (where.source == HT_SOURCE_FILE) where.line = value->line;
        ht_problems_error(&c->problems, &where, "%s.params: there is no %s.type that they could belong to", block,
                          block);
    }
    return ht_fields_declare(c->blocks[BLOCK_ENGINE], params);
}

/* The optimiser of the job: what the train block names, else DeepSpeed's config. NULL: neither does, or the name is
 * unknown. */
static const ht_optimizer *named_optimizer(const ht_config *c)
{
    ht_engine_type type;
    const char *name = last_text(c->job, c->job_count, "train", "optimizer");
    const char *theirs = last_text(c->engine, c->engine_count, "optimizer", "type");
    if (name == NULL && theirs != NULL && ht_engine_type_find("optimizer", theirs, &type)) name = type.ours;
    for (size_t i = 0; name != NULL && ht_optimizers[i] != NULL; i++)
        if (strcasecmp(ht_optimizers[i]->name, name) == 0) return ht_optimizers[i];
    return NULL;
}

static ht_status declare_train(ht_config *c)
{
    const ht_optimizer *optimizer = named_optimizer(c);
    const ht_key *key;
    HT_TRY(ht_fields_declare(c->blocks[BLOCK_TRAIN], ht_train_keys));
    for (size_t i = 0; optimizer != NULL && (key = ht_hyper_train_key(optimizer, i)) != NULL; i++) {
        ht_key *rows = HT_NEW(c->arena, ht_key, 2);
        if (rows == NULL) return HT_ENOMEM;
        rows[0] = *key;
        HT_TRY(ht_fields_declare(c->blocks[BLOCK_TRAIN], rows));
    }
    return HT_OK;
}

static ht_status declare(ht_config *c, const ht_config_request *r, block_id id)
{
    static const ht_key optimizer_params[] = {{.name = "optimizer.params", .kind = HT_KEY_JSON, .standard = "null"},
                                              {0}};
    static const ht_key scheduler_params[] = {{.name = "scheduler.params", .kind = HT_KEY_JSON, .standard = "null"},
                                              {0}};
    switch (id) {
    case BLOCK_MODEL: return c->is_job ? declare_typed(c, r, id, "type") : HT_OK;
    case BLOCK_DATA: return c->is_job ? declare_typed(c, r, id, "format") : HT_OK;
    case BLOCK_TRAIN: return declare_train(c);
    case BLOCK_HALFTONE: return ht_fields_declare(c->blocks[id], ht_halftone_keys);
    default: break;
    }
    HT_TRY(ht_fields_declare(c->blocks[id], ht_engine_keys));
    HT_TRY(declare_engine_type(c, "optimizer", optimizer_params));
    return declare_engine_type(c, "scheduler", scheduler_params);
}

static ht_status read_block(ht_config *c, const ht_config_request *r, block_id id)
{
    bool engine = id == BLOCK_ENGINE;
    HT_TRY(ht_fields_create(&c->blocks[id], engine ? c->engine_block : ht_block_names[id]));
    HT_TRY(declare(c, r, id));
    const config_source *sources = engine ? c->engine : c->job;
    for (size_t i = 0; i < (engine ? c->engine_count : c->job_count); i++) {
        const ht_json *tree = engine ? sources[i].tree : ht_member(sources[i].tree, ht_block_names[id]);
        if (engine && c->lenient && (tree = ht_engine_known(c, tree, &sources[i].where)) == NULL) return HT_ENOMEM;
        HT_TRY(ht_fields_take(c->blocks[id], tree, &sources[i].where, &c->problems));
    }
    if (engine) HT_TRY(ht_engine_other_names(c));
    HT_TRY(ht_fields_finish(c->blocks[id], &c->problems));
    if (id == BLOCK_HALFTONE) c->lenient = ht_field_bool(c->blocks[id], "lenient"); /* read before the engine's */
    return HT_OK;
}

/* Names at the top of a job file. */
static void check_top(ht_config *c)
{
    static const ht_key tops[] = {{.name = "model"},    {.name = "data"},   {.name = "train"},
                                  {.name = "halftone"}, {.name = "engine"}, {0}};
    const ht_json *root = c->job[0].tree;
    ht_origin where = c->job[0].where;
    if (root->kind != HT_JSON_OBJECT) {
        where.line = root->line;
        ht_problems_error(&c->problems, &where, "expected a job, which is an object, found %s",
                          ht_json_kind_name(root->kind));
        return;
    }
    for (const ht_json *member = root->child; member != NULL; member = member->next) {
        if (ht_key_is_comment(member->key) || is_block_name(member->key, strlen(member->key))) continue;
        const char *near = ht_problems_full(&c->problems) ? NULL : ht_key_nearest(tops, member->key);
        where.line = member->line;
        if (ht_is_engine_name(member->key))
            ht_problems_error(&c->problems, &where, "%.100s: unknown key; it belongs to engine.%.100s", member->key,
                              member->key);
        else
            ht_problems_error(&c->problems, &where, "%.100s: unknown key%s%s%s", member->key,
                              near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
                              near != NULL ? "\"?" : "");
    }
}

/* ---- the whole ---- */

static ht_status read_all(ht_config *c, const ht_config_request *r)
{
    const ht_json *root;
    c->job = HT_NEW(c->arena, config_source, r->set_count + 1);
    c->engine = HT_NEW(c->arena, config_source, 2 * r->set_count + 2);
    c->name = ht_arena_text(c->arena, r->path, strlen(r->path));
    if (c->job == NULL || c->engine == NULL || c->name == NULL) return HT_ENOMEM;
    HT_TRY(load(c, c->name, r->text, r->length, &root));
    if (root == NULL) return HT_OK;
    HT_TRY(gather_sources(c, r, root));
    if (c->is_job) check_top(c);
    for (block_id id = 0; id < BLOCK_COUNT; id++) HT_TRY(read_block(c, r, id));
    HT_TRY(ht_config_rules(c));
    ht_config_check_support(c);
    c->complete = c->problems.errors == 0;
    if (c->complete) ht_train_config_fill(c);
    return HT_OK;
}

ht_status ht_config_read(ht_config **out, ht_context *ctx, const ht_config_request *request)
{
    *out = NULL;
    ht_config *c = calloc(1, sizeof *c);
    ht_status status = HT_ENOMEM;
    if (c != NULL) c->arena = ht_arena_create();
    if (c != NULL && c->arena != NULL) {
        c->ctx = ctx;
        c->training = request->training;
        c->ranks = request->ranks > 0 ? request->ranks : 1;
        c->engine_block = "";
        status = read_all(c, request);
    }
    if (status != HT_OK || c->problems.failed) {
        ht_config_free(c);
        HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory", request->path);
    }
    *out = c;
    return ht_problems_status(&c->problems, ctx);
}

void ht_config_free(ht_config *config)
{
    if (config == NULL) return;
    for (int i = 0; i < BLOCK_COUNT; i++) ht_fields_free(config->blocks[i]);
    ht_problems_free(&config->problems);
    ht_arena_free(config->arena);
    free(config);
}

const ht_problems *ht_config_problems(const ht_config *config)
{
    return &config->problems;
}

void ht_config_add_error(ht_config *config, const char *message)
{
    ht_problems_error(&config->problems, NULL, "%s", message);
}

static int block_number(const char *block)
{
    for (int i = 0; i < BLOCK_COUNT; i++)
        if (strcmp(ht_block_names[i], block) == 0) return i;
    return BLOCK_COUNT;
}

const ht_fields *ht_config_block(const ht_config *config, const char *block)
{
    int number = block_number(block);
    return number < BLOCK_COUNT ? config->blocks[number] : NULL;
}

const char *ht_config_type(const ht_config *config, const char *block)
{
    int number = block_number(block);
    return number < BLOCK_COUNT ? config->types[number] : NULL;
}

bool ht_config_has_job(const ht_config *config)
{
    return config->is_job;
}

bool ht_config_has_engine(const ht_config *config)
{
    return config->has_engine;
}

const ht_train_config *ht_config_train(const ht_config *config)
{
    return &config->train_config;
}
