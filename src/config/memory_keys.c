/* Memory: its limit, what backward computes again, and where the rest is kept, by halftone.recompute or DeepSpeed's activation_checkpointing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/internal.h"

/* A size as people write it: "8GiB", "1.5 GB", "800000000". */
static bool read_size(const char *text, double *bytes)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},      {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
                 {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    char *end;
    double number = strtod(text, &end);
    if (end == text || !(number > 0) || !isfinite(number)) return false;
    while (*end == ' ') end++;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].name) != 0) continue;
        *bytes = floor(number * units[i].bytes);
        return *bytes >= 1 && *bytes <= 1e18;
    }
    return false;
}

static bool read_share(const char *text, double *share)
{
    char *end;
    double percent = strtod(text, &end);
    *share = percent / 100;
    return end != text && strcmp(end, "%") == 0 && percent > 0 && percent <= 100;
}

/* A size as text or as a number of bytes; 0: it is none. */
static int64_t size_of(const ht_json *value)
{
    double number = 0;
    bool text = value->kind == HT_JSON_STRING && strlen(value->text) == value->length;
    if (text ? !read_size(value->text, &number) : !ht_json_as_number(value, &number)) return 0;
    return number >= 1 && number <= 1e18 ? (int64_t)number : 0;
}

static ht_space find_space(const ht_json *member)
{
    int space = 0;
    while (space < HT_SPACE_COUNT && strcmp(ht_space_name((ht_space)space), member->key) != 0) space++;
    return (ht_space)space;
}

/* A size for main, or an object with sizes by the names of spaces; false: it is neither. */
static bool read_limits(const ht_json *value, int64_t limits[HT_SPACE_COUNT])
{
    for (int space = 0; space < HT_SPACE_COUNT; space++) limits[space] = 0;
    if (!value) return true;
    if (value->kind != HT_JSON_OBJECT) {
        limits[HT_SPACE_MAIN] = size_of(value);
        return limits[HT_SPACE_MAIN] > 0;
    }
    for (const ht_json *member = value->child; member; member = member->next) {
        ht_space space = find_space(member);
        if (space == HT_SPACE_COUNT || !size_of(member)) return false;
        limits[space] = size_of(member);
    }
    return value->count > 0;
}

/* Fills in what a budget says; false: it is none. */
static bool read_budget(const ht_json *value, ht_recompute_options *to)
{
    double share;
    bool text = value->kind == HT_JSON_STRING && strlen(value->text) == value->length;
    to->budget_bytes = 0;
    to->share = 0;
    if (text && strcmp(value->text, "auto") == 0) return true;
    if (text && read_share(value->text, &share)) {
        to->share = share;
        return true;
    }
    to->budget_bytes = size_of(value);
    return to->budget_bytes > 0;
}

/* 0: as many as are needed; -1: it is neither a number nor "auto". */
static int64_t read_chunks(const ht_json *value)
{
    enum { MOST_CHUNKS = 64 }; /* as pass/head_cut.h */
    int64_t chunks;
    if (value->kind == HT_JSON_STRING && value->length == 4 && memcmp(value->text, "auto", 4) == 0) return 0;
    return ht_json_as_int(value, &chunks) && chunks >= 1 && chunks <= MOST_CHUNKS ? chunks : -1;
}

static void need_folder(ht_config *c, const char *key)
{
    const ht_fields *halftone = c->blocks[BLOCK_HALFTONE];
    const char *space = ht_field_text(halftone, key);
    if (space && strcmp(space, "disk") == 0 && !ht_disk_folder(c))
        ht_problems_error(&c->problems, &ht_fields_find(halftone, key)->origin,
                          "halftone.%s: \"disk\" needs a folder: give halftone.disk_folder", key);
}

void ht_memory_rules(ht_config *c)
{
    const ht_fields *halftone = c->blocks[BLOCK_HALFTONE];
    if (read_chunks(ht_field_json(halftone, "head_chunks")) < 0)
        ht_problems_error(&c->problems, &ht_fields_find(halftone, "head_chunks")->origin,
                          "halftone.head_chunks: expected an integer from 1 to 64, or \"auto\"");
    const char *policy = ht_field_text(halftone, "recompute.policy");
    const ht_json *budget = ht_field_json(halftone, "recompute.budget");
    const ht_json *limit = ht_field_json(halftone, "memory_limit");
    ht_recompute_options ignored;
    int64_t limits[HT_SPACE_COUNT];
    need_folder(c, "offload_gradients");
    need_folder(c, "offload_activations");
    if (!read_limits(limit, limits))
        ht_problems_error(&c->problems, &ht_fields_find(halftone, "memory_limit")->origin,
                          "halftone.memory_limit: expected a size above 0 (\"8GiB\", 8000000000), or sizes by space: "
                          "{\"main\": \"8GiB\", \"host\": \"64GiB\", \"disk\": \"1TB\"}");
    if (budget && !read_budget(budget, &ignored))
        ht_problems_error(
            &c->problems, &ht_fields_find(halftone, "recompute.budget")->origin,
            "halftone.recompute.budget: expected a size above 0 (\"8GiB\", 8000000000), a share (\"50%%\") "
            "or \"auto\"");
    if (budget && policy && strcmp(policy, "budget") != 0)
        ht_problems_error(&c->problems, &ht_fields_find(halftone, "recompute.policy")->origin,
                          "halftone.recompute.policy: \"%s\" and a budget exclude each other", policy);
    if (!budget && policy && strcmp(policy, "budget") == 0)
        ht_problems_error(&c->problems, &ht_fields_find(halftone, "recompute.policy")->origin,
                          "halftone.recompute.policy: \"budget\" needs halftone.recompute.budget");
}

/* DeepSpeed's users mark layers in their model's code; here whole layers are what the block asks for. */
static void take_engine(const ht_fields *engine, ht_recompute_options *r)
{
    int64_t count = ht_field_json(engine, "activation_checkpointing.number_checkpoints")
                        ? ht_field_int(engine, "activation_checkpointing.number_checkpoints")
                        : 0;
    bool asked = ht_field_bool(engine, "activation_checkpointing.partition_activations") ||
                 ht_field_bool(engine, "activation_checkpointing.cpu_checkpointing");
    if (!count && !asked) return;
    r->policy = HT_RECOMPUTE_ALL;
    r->checkpoints = count;
}

void ht_memory_fill(ht_config *c)
{
    const ht_fields *halftone = c->blocks[BLOCK_HALFTONE];
    const char *activations = ht_field_text(halftone, "offload_activations");
    c->train_config.offload_gradients = ht_field_text(halftone, "offload_gradients");
    c->train_config.offload_activation_bytes = ht_field_int(halftone, "offload_activation_bytes");
    bool host = ht_field_bool(c->blocks[BLOCK_ENGINE], "activation_checkpointing.cpu_checkpointing");
    c->train_config.offload_activations = activations ? activations : host ? "host" : "none";
    const char *policy = ht_field_text(halftone, "recompute.policy");
    const ht_json *budget = ht_field_json(halftone, "recompute.budget");
    int64_t chunks = read_chunks(ht_field_json(halftone, "head_chunks"));
    c->train_config.head_chunks = chunks < 0 ? 1 : chunks; /* the rules told what is wrong */
    ht_recompute_options *r = &c->train_config.recompute;
    *r = (ht_recompute_options){.policy = HT_RECOMPUTE_MARKED};
    if (policy) r->policy = ht_recompute_policy_find(policy);
    if (!policy && !budget) take_engine(c->blocks[BLOCK_ENGINE], r);
    if (budget && read_budget(budget, r)) r->policy = HT_RECOMPUTE_BUDGET;
    (void)read_limits(ht_field_json(halftone, "memory_limit"), c->train_config.memory_limit); /* checked by the rules */
    if (ht_is_given(halftone, "recompute.checkpoints"))
        r->checkpoints = ht_field_int(halftone, "recompute.checkpoints");
}
