#include "config/internal.h"

#include <inttypes.h>
#include <string.h>

/* ---- which fields are worth a line ---- */

static bool is_shown(const ht_config *c, block_id block, const ht_field *field, bool all)
{
    ht_support support = ht_support_of(field->key);
    bool given = field->origin.source != HT_SOURCE_DEFAULT || field->is_auto;
    if (support == HT_SUPPORT_OTHER || field->key->help == NULL) return given;
    if (block != BLOCK_ENGINE) return true;
    return c->has_engine && (all || given || support == HT_SUPPORT_USED);
}

static bool has_lines(const ht_config *c, block_id block, bool all)
{
    for (size_t i = 0; i < ht_fields_count(c->blocks[block]); i++)
        if (is_shown(c, block, ht_fields_at(c->blocks[block], i), all)) return true;
    return false;
}

/* ---- text ---- */

static void pad(ht_text *text, size_t from, int width)
{
    int used = 0; /* characters, not bytes */
    for (size_t i = from; i < text->length; i++) used += ((unsigned char)text->data[i] & 0xc0) != 0x80;
    ht_text_add(text, "%*s", used < width ? width - used : 1, "");
}

static void print_field(ht_text *text, const ht_config *c, block_id block, const ht_field *field, int width)
{
    const char *remark = ht_field_remark(c, block, field);
    size_t start = text->length;
    ht_text_add(text, "  %s", field->name);
    pad(text, start, width + 4);
    start = text->length;
    ht_json_print(text, field->value);
    pad(text, start, 16);
    ht_origin_print(text, &field->origin);
    ht_text_add(text, "%s%s\n", remark != NULL ? "; " : "", remark != NULL ? remark : "");
}

static void print_block(ht_text *text, const ht_config *c, block_id block, bool all)
{
    const ht_fields *fields = c->blocks[block];
    if (!has_lines(c, block, all)) return;
    int width = 0;
    size_t hidden = 0;
    for (size_t i = 0; i < ht_fields_count(fields); i++) {
        const ht_field *field = ht_fields_at(fields, i);
        bool shown = is_shown(c, block, field, all);
        int length = (int)strlen(field->name);
        hidden += !shown && field->key->help != NULL && ht_support_of(field->key) != HT_SUPPORT_OTHER;
        if (shown && length > width && length <= 48) width = length;
    }
    ht_text_add(text, "%s\n", ht_block_names[block]);
    for (size_t i = 0; i < ht_fields_count(fields) && !text->failed; i++)
        if (is_shown(c, block, ht_fields_at(fields, i), all))
            print_field(text, c, block, ht_fields_at(fields, i), width);
    if (hidden > 0)
        ht_text_add(text, "  %zu more keys have their defaults, which nothing here uses; --all prints them\n", hidden);
}

void ht_config_print(ht_text *text, const ht_config *config, bool all)
{
    ht_text_add(text, "%s: %s, %" PRId64 " %s\n", config->name, config->is_job ? "a job" : "DeepSpeed's config",
                config->ranks, config->ranks == 1 ? "rank" : "ranks");
    for (block_id id = 0; id < BLOCK_COUNT; id++) print_block(text, config, id, all);
}

/* ---- JSON ---- */

static const char *source_name(ht_source source)
{
    static const char *const names[] = {[HT_SOURCE_DEFAULT] = "default",
                                        [HT_SOURCE_FILE] = "file",
                                        [HT_SOURCE_COMMAND] = "command",
                                        [HT_SOURCE_DERIVED] = "derived"};
    return names[source];
}

static const char *support_name(ht_support support)
{
    static const char *const names[] = {
        [HT_SUPPORT_USED] = "used",           [HT_SUPPORT_RANKS] = "several ranks", [HT_SUPPORT_ONE_RANK] = "one rank",
        [HT_SUPPORT_UNNEEDED] = "not needed", [HT_SUPPORT_LATER] = "not yet",       [HT_SUPPORT_DETAIL] = "detail",
        [HT_SUPPORT_OTHER] = "other name",    [HT_SUPPORT_COMPRESS] = "compress",
    };
    return names[support];
}

static void put_field(ht_json_writer *json, block_id block, const ht_field *field)
{
    ht_text name = {0};
    ht_text_add(&name, "%s.%s", ht_block_names[block], field->name);
    json->text->failed |= name.failed;
    ht_json_line(json, 4);
    ht_json_begin_object(json, name.data ? name.data : "");
    ht_text_free(&name);
    ht_json_put_value(json, "value", field->value);
    ht_json_put_text(json, "origin", source_name(field->origin.source));
    if (field->origin.file != NULL) ht_json_put_text(json, "file", field->origin.file);
    if (field->origin.line > 0) ht_json_put_int(json, "line", field->origin.line);
    if (field->origin.why != NULL) ht_json_put_text(json, "why", field->origin.why);
    ht_json_put_text(json, "standing", support_name(ht_support_of(field->key)));
    ht_json_end_object(json);
}

static void put_values(ht_json_writer *json, const ht_config *config)
{
    bool any = false;
    ht_json_begin_object(json, "values");
    for (block_id id = 0; id < BLOCK_COUNT && config->complete; id++) {
        if (id == BLOCK_ENGINE && !config->has_engine) continue;
        for (size_t i = 0; i < ht_fields_count(config->blocks[id]) && !json->text->failed; i++) {
            const ht_field *field = ht_fields_at(config->blocks[id], i);
            if (!is_shown(config, id, field, true)) continue;
            put_field(json, id, field);
            any = true;
        }
    }
    if (any) ht_json_line(json, 2);
    ht_json_end_object(json);
}

static void put_problems(ht_json_writer *json, const char *name, const ht_problems *problems, bool errors)
{
    bool any = false;
    ht_json_line(json, 2);
    ht_json_begin_array(json, name);
    for (size_t i = 0; i < problems->count; i++) {
        if (problems->list[i].is_error != errors) continue;
        ht_json_line(json, 4);
        ht_json_put_text(json, NULL, problems->list[i].text);
        any = true;
    }
    if (any) ht_json_line(json, 2);
    ht_json_end_array(json);
}

void ht_config_print_json(ht_text *text, const ht_config *config)
{
    ht_json_writer json = {.text = text};
    ht_json_begin_object(&json, NULL);
    ht_json_line(&json, 2);
    ht_json_put_text(&json, "file", config->name);
    ht_json_line(&json, 2);
    ht_json_put_text(&json, "kind", config->is_job ? "job" : "engine");
    ht_json_line(&json, 2);
    ht_json_put_int(&json, "ranks", config->ranks);
    ht_json_line(&json, 2);
    put_values(&json, config);
    put_problems(&json, "warnings", &config->problems, false);
    put_problems(&json, "errors", &config->problems, true);
    ht_json_line(&json, 0);
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
}
