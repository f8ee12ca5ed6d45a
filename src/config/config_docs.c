/* docs/config.md and parts of --help, from the tables. */
#include "config/internal.h"

#include <stdio.h>
#include <string.h>

static const char head[] =
    "# Config keys\n"
    "\n"
    "This page is written by `halftone check --keys` from the tables that the program reads: do not edit\n"
    "it.\n"
    "\n"
    "A **job file** is JSON with the blocks `model`, `data`, `train`, and, where wanted, `halftone` and\n"
    "`engine`. Comments (`//`, `#`, `/* */`, or members named `_comment…`) and a comma after the last\n"
    "element are fine; `5e8` is an integer; a key that is given twice is an error. `--set train.lr=3e-4`\n"
    "overrides a key.\n"
    "\n"
    "`engine` is DeepSpeed's config as it is, a path (seen from the job file's folder) or an object;\n"
    "`--deepspeed FILE` takes its place. The rules between the two:\n"
    "\n"
    "- What only one of them gives holds for both. What both give must agree, or it is an error; with\n"
    "  `--lenient` (`halftone.lenient`) the job's `train` value holds, and what is not there yet is left\n"
    "  out, all of it listed.\n"
    "- `\"auto\"` in the engine config, and an `optimizer` that it leaves out, are filled by the job's\n"
    "  `train` block.\n"
    "- `train_batch_size` = `train_micro_batch_size_per_gpu` × `gradient_accumulation_steps` × ranks: two\n"
    "  give the third.\n"
    "- An engine config without `gradient_clipping` clips at 1.0, as DeepSpeed's current release does; a\n"
    "  job without an engine config does not clip, also where `--set engine.KEY` gives single keys of one.\n"
    "- An engine config with an optimizer and without a scheduler has a constant rate, and its weight\n"
    "  decay takes in biases and norms.\n"
    "\n"
    "An unknown key is an error, with the nearest known one; at the top of DeepSpeed's config it is a\n"
    "warning, since DeepSpeed ignores it there. `halftone check FILE` prints every value and where it came\n"
    "from.\n";

static const char *support_words(ht_support support)
{
    static const char *const words[] = {
        [HT_SUPPORT_USED] = "used",
        [HT_SUPPORT_RANKS] = "used on several ranks",
        [HT_SUPPORT_ONE_RANK] = "nothing to do on one rank, without effect on several",
        [HT_SUPPORT_UNNEEDED] = "accepted, not needed",
        [HT_SUPPORT_COMPRESS] = "used by `compress`",
        [HT_SUPPORT_LATER] = "not there yet",
        [HT_SUPPORT_DETAIL] = "",
        [HT_SUPPORT_OTHER] = "",
    };
    return words[support];
}

/* Inside a table a bar would end the cell. */
static void add_cell(ht_text *text, const char *words)
{
    for (; *words != '\0'; words++) ht_text_add(text, *words == '|' ? "\\|" : "%c", *words);
}

static void add_row(ht_text *text, const ht_key *key, bool support)
{
    ht_text_add(text, "| `%s` | ", key->name);
    ht_key_describe(text, key);
    ht_text_add(text, " | ");
    if (key->standard != NULL) {
        ht_text_add(text, "`");
        add_cell(text, key->standard);
        ht_text_add(text, "`");
    } else {
        ht_text_add(text, "must be given");
    }
    ht_text_add(text, " | ");
    const char *other = ht_other_name_of(key);
    add_cell(text, key->help != NULL ? key->help : "");
    if (other != NULL) ht_text_add(text, " for `%s`", other);
    if (support) ht_text_add(text, " | %s", support_words(ht_support_of(key)));
    ht_text_add(text, " |\n");
}

static void start_table(ht_text *text, bool support)
{
    ht_text_add(text, "\n| key | takes | default | what it is |%s\n| --- | --- | --- | --- |%s\n",
                support ? " here |" : "", support ? " --- |" : "");
}

static void add_table(ht_text *text, const ht_key *keys, bool support)
{
    start_table(text, support);
    for (; keys->name != NULL; keys++) add_row(text, keys, support);
}

static void add_registered(ht_text *text, const char *block, const char *selector, const char *what,
                           const ht_block_keys *blocks, size_t count)
{
    ht_text_add(text, "\n## %s\n\n%s\n", block, what);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(blocks[i].block, block) != 0) continue;
        if (blocks[i].type != NULL)
            ht_text_add(text, "\n### `\"%s\": \"%s\"`\n\n%s\n", selector, blocks[i].type,
                        blocks[i].help != NULL ? blocks[i].help : "");
        if (blocks[i].keys->name != NULL) add_table(text, blocks[i].keys, false);
    }
}

/* The part of a name before its first dot. */
static size_t first_part(const char *name)
{
    return name[strcspn(name, ".")] == '\0' ? 0 : strcspn(name, ".");
}

static void start_engine_block(ht_text *text, const char *name, size_t length)
{
    if (length == 0) {
        ht_text_add(text, "\n### At the top\n");
    } else {
        char inside[80];
        snprintf(inside, sizeof inside, "%.*s.", (int)length, name);
        const char *title = ht_engine_block_title(inside), *reason = ht_engine_block_reason(inside);
        ht_text_add(text, "\n### `%.*s`: %s\n\nHere: %s.\n", (int)length, name, title != NULL ? title : "",
                    reason != NULL ? reason : "");
    }
    start_table(text, true);
}

/* Of the blocks optimizer and scheduler; others have no types. */
static void add_types(ht_text *text, const char *block, size_t length)
{
    for (size_t i = 0; i < ht_engine_type_count(); i++) {
        ht_engine_type type = ht_engine_type_at(i);
        if (strlen(type.block) != length || memcmp(type.block, block, length) != 0) continue;
        ht_text_add(text, "\n#### `\"%s\": {\"type\": \"%s\"}`%s\n", type.block, type.type,
                    type.support == HT_SUPPORT_LATER ? ", not there yet" : "");
        add_table(text, type.keys, true);
    }
}

static void add_engine(ht_text *text)
{
    const char *open = NULL; /* name of the block that is being written */
    size_t open_length = 0;
    ht_text_add(text,
                "\n## engine\n\nDeepSpeed's keys, all of them. *Not there yet*: a value other than the default is a\n"
                "warning of `check` and an error of `train`, unless `--lenient` leaves it out.\n");
    for (const ht_key *key = ht_engine_keys; key->name != NULL; key++) {
        size_t length = first_part(key->name);
        if (open == NULL || length != open_length || memcmp(open, key->name, length) != 0) {
            if (open != NULL) add_types(text, open, open_length);
            start_engine_block(text, key->name, length);
            open = key->name;
            open_length = length;
        }
        add_row(text, key, true);
    }
}

/* A line per optimiser, then the keys that only some of them have. */
static void add_optimizers(ht_text *text)
{
    ht_text_add(text, "\n### `optimizer`\n\n| name | what it is | reads |\n| --- | --- | --- |\n");
    for (size_t i = 0; ht_optimizers[i] != NULL; i++) {
        const ht_optimizer *o = ht_optimizers[i];
        ht_text_add(text, "| `%s` | %s | ", o->name, o->help);
        if (o->lr != 0) ht_text_add(text, "`lr` (%g), ", o->lr);
        for (const ht_hyper_param *param = o->params; param->name != NULL; param++) {
            ht_text_add(text, "%s`%s`", param == o->params ? "" : ", ", param->name);
            if (o->lr != 0) ht_text_add(text, " (%g)", param->standard);
        }
        ht_text_add(text, " |\n");
    }
    ht_text_add(text, "\n`beta1` and `beta2` are the two numbers of `betas`. A number in parentheses is what a job\n"
                      "has that leaves it out; without one, the default above holds.\n");
    const ht_key *key;
    for (size_t i = 0; ht_optimizers[i] != NULL; i++) {
        for (size_t k = 0; (key = ht_hyper_train_key(ht_optimizers[i], k)) != NULL; k++) {
            if (k == 0) ht_text_add(text, "\nOnly with `\"optimizer\": \"%s\"`:\n", ht_optimizers[i]->name);
            if (k == 0) start_table(text, false);
            add_row(text, key, false);
        }
    }
}

void ht_config_print_help(ht_text *text)
{
    for (const ht_key *key = ht_train_keys; key->name != NULL; key++)
        ht_text_add(text, "    train.%-16s %-12s  %s\n", key->name, key->standard, key->help);
}

void ht_config_print_docs(ht_text *text, const ht_block_keys *blocks, size_t block_count)
{
    ht_text_add(text, "%s", head);
    add_registered(text, "model", "type", "`type` chooses the architecture; the other keys depend on it.", blocks,
                   block_count);
    add_registered(text, "data", "format", "`format` chooses the reader; the other keys depend on it.", blocks,
                   block_count);
    ht_text_add(text, "\n## train\n");
    add_table(text, ht_train_keys, true);
    add_optimizers(text);
    ht_text_add(text, "\n## halftone\n\nWhat DeepSpeed's config has no key for.\n");
    add_table(text, ht_halftone_keys, true);
    add_engine(text);
}
