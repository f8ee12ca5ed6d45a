#include "config/tables.h"

#include <math.h>
#include <string.h>
#include <strings.h>

/* Each table twice: as ht_key rows for base/, and what is particular to us beside it. */
typedef struct particular {
    ht_support support;
    const char *other; /* of an old name: the name that it stands for */
} particular;

#define ROW(name, kind, standard, low, high, choices, help) {name, HT_KEY_##kind, standard, low, high, choices, help},

const ht_key ht_engine_keys[] = {
#define HT_ENGINE(support, name, kind, standard, low, high, choices, help)                                             \
    ROW(name, kind, standard, low, high, choices, help)
#define HT_OTHER_NAME(name, kind, other, help) ROW(name, kind, "null", 0, 0, NULL, help)
#include "config/engine.def"
#include "config/engine_compress.def"
#include "config/engine_data.def"
#undef HT_ENGINE
#undef HT_OTHER_NAME
    {0}};

static const particular engine_particulars[] = {
#define HT_ENGINE(support, name, kind, standard, low, high, choices, help) {HT_SUPPORT_##support, NULL},
#define HT_OTHER_NAME(name, kind, other, help)                             {HT_SUPPORT_OTHER, other},
#include "config/engine.def"
#include "config/engine_compress.def"
#include "config/engine_data.def"
#undef HT_ENGINE
#undef HT_OTHER_NAME
};

static const ht_key param_keys[] = {
#define HT_PARAM(type, support, name, kind, standard, low, high, choices, help)                                        \
    ROW(name, kind, standard, low, high, choices, help)
#define HT_PARAMS_END(type) {0},
#include "config/params.def"
#undef HT_PARAM
#undef HT_PARAMS_END
};

typedef struct param_particular {
    const char *type;
    ht_support support;
} param_particular;

static const param_particular param_particulars[] = {
#define HT_PARAM(type, support, name, kind, standard, low, high, choices, help) {#type, HT_SUPPORT_##support},
#define HT_PARAMS_END(type)                                                     {#type, HT_SUPPORT_DETAIL},
#include "config/params.def"
#undef HT_PARAM
#undef HT_PARAMS_END
};

#define ENGINE_ROWS (sizeof engine_particulars / sizeof engine_particulars[0])
#define PARAM_ROWS  (sizeof param_particulars / sizeof param_particulars[0])

/* "|sgd|adam…": choices from the rows of other rooms. */
static const char optimizer_choices[] =
#define HT_OPTIMIZER(id) "|" #id
#include "optim/optimizers.def"
#undef HT_OPTIMIZER
    ;
static const char device_choices[] = "|auto"
#define HT_DEVICE(name) "|" #name
#include "device/devices.def"
#undef HT_DEVICE
                                     "|cuda:N";
static const char task_choices[] =
#define HT_TASK(id, name) "|" name
#include "base/tasks.def"
#undef HT_TASK
    ;

const ht_key ht_train_keys[] = {
#define HT_TRAIN(support, name, kind, standard, low, high, choices, help)                                              \
    ROW(name, kind, standard, low, high, choices, help)
#define HT_HALFTONE(...)
#include "config/job.def"
#undef HT_TRAIN
#undef HT_HALFTONE
    {0}};

const ht_key ht_halftone_keys[] = {
#define HT_TRAIN(...)
#define HT_HALFTONE(support, name, kind, standard, low, high, choices, help)                                           \
    ROW(name, kind, standard, low, high, choices, help)
#include "config/job.def"
#undef HT_TRAIN
#undef HT_HALFTONE
    {0}};

static const ht_support train_support[] = {
#define HT_TRAIN(support, ...) HT_SUPPORT_##support,
#define HT_HALFTONE(...)
#include "config/job.def"
#undef HT_TRAIN
#undef HT_HALFTONE
};

static const ht_support halftone_support[] = {
#define HT_TRAIN(...)
#define HT_HALFTONE(support, ...) HT_SUPPORT_##support,
#include "config/job.def"
#undef HT_TRAIN
#undef HT_HALFTONE
};

/* Keys that only some optimisers have: rows of optim/hyper.def. */
#define KIND_NUMBER                              HT_KEY_NUMBER
#define KIND_SWITCH                              HT_KEY_BOOL
#define KEY_OWN_KEY(name, kind, low, high, help) {name, kind, "null", low, high, NULL, help},
#define KEY_ELSEWHERE(name, kind, low, high, help)
static const ht_key hyper_keys[] = {
#define HT_HYPER(id, kind, type, low, high, place, help) KEY_##place(#id, KIND_##kind, low, high, help)
#include "optim/hyper.def"
#undef HT_HYPER
    {0}};

const ht_key *ht_hyper_train_key(const ht_optimizer *optimizer, size_t index)
{
    for (const ht_key *key = hyper_keys; key->name != NULL; key++)
        if (ht_optimizer_param(optimizer, key->name) != NULL && index-- == 0) return key;
    return NULL;
}

/* ---- support ---- */

/* The row's place in a table of count rows; count when it is not of that table. */
static size_t place_in(const ht_key *key, const ht_key *table, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (key == &table[i]) return i;
    return count;
}

ht_support ht_support_of(const ht_key *key)
{
    size_t train_count = sizeof train_support / sizeof train_support[0];
    size_t halftone_count = sizeof halftone_support / sizeof halftone_support[0];
    size_t at = place_in(key, ht_engine_keys, ENGINE_ROWS);
    if (at < ENGINE_ROWS) return engine_particulars[at].support;
    at = place_in(key, param_keys, PARAM_ROWS);
    if (at < PARAM_ROWS) return param_particulars[at].support;
    at = place_in(key, ht_train_keys, train_count);
    if (at < train_count) return train_support[at];
    at = place_in(key, ht_halftone_keys, halftone_count);
    return at < halftone_count ? halftone_support[at] : HT_SUPPORT_USED;
}

const char *ht_other_name_of(const ht_key *key)
{
    size_t at = place_in(key, ht_engine_keys, ENGINE_ROWS);
    return at < ENGINE_ROWS ? engine_particulars[at].other : NULL;
}

/* ---- optimisers and schedules ---- */

typedef struct type_row {
    const char *block, *type, *rows, *ours;
    ht_support support;
} type_row;

static const type_row types[] = {
#define HT_ENGINE_TYPE(block, type, rows, ours, support) {#block, #type, #rows, ours, HT_SUPPORT_##support},
#include "config/types.def"
#undef HT_ENGINE_TYPE
};

size_t ht_engine_type_count(void)
{
    return sizeof types / sizeof types[0];
}

ht_engine_type ht_engine_type_at(size_t index)
{
    const type_row *row = &types[index];
    size_t first = 0;
    while (strcmp(param_particulars[first].type, row->rows) != 0) first++;
    return (ht_engine_type){row->block, row->type, row->ours, row->support, &param_keys[first]};
}

bool ht_engine_type_find(const char *block, const char *type, ht_engine_type *out)
{
    for (size_t i = 0; i < ht_engine_type_count(); i++) {
        if (strcmp(types[i].block, block) != 0 || strcasecmp(types[i].type, type) != 0) continue;
        *out = ht_engine_type_at(i);
        return true;
    }
    return false;
}

/* ---- blocks ---- */

typedef struct block_row {
    const char *name, *title, *reason;
    bool changes;
} block_row;

static const block_row blocks[] = {
#define KEEPS                                         false
#define CHANGES                                       true
#define HT_ENGINE_BLOCK(name, title, reason, changes) {name, title, reason, changes},
#include "config/blocks.def"
#undef HT_ENGINE_BLOCK
#undef KEEPS
#undef CHANGES
};

static const block_row *block_of(const char *name)
{
    static const block_row none = {0};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        size_t length = strlen(blocks[i].name);
        if (strncmp(name, blocks[i].name, length) == 0 && name[length] == '.') return &blocks[i];
    }
    return &none;
}

const char *ht_engine_block_title(const char *name)
{
    return block_of(name)->title;
}

const char *ht_engine_block_reason(const char *name)
{
    return block_of(name)->reason;
}

bool ht_engine_block_changes(const char *name)
{
    return block_of(name)->changes;
}
