/* What the files of config/ share. */
#ifndef HT_CONFIG_INTERNAL_H
#define HT_CONFIG_INTERNAL_H

#include "config/config.h"
#include "config/tables.h"

typedef enum block_id { BLOCK_MODEL, BLOCK_DATA, BLOCK_TRAIN, BLOCK_HALFTONE, BLOCK_ENGINE, BLOCK_COUNT } block_id;

extern const char *const ht_block_names[BLOCK_COUNT];

/* A tree of values, and where they come from. */
typedef struct config_source {
    const ht_json *tree;
    ht_origin where;
} config_source;

struct ht_config {
    ht_context *ctx; /* while it is read: for the names of ops */
    ht_arena *arena;
    ht_problems problems;
    const char *name; /* of the file */
    bool is_job, has_engine, training;
    bool complete; /* every value is there and right */
    bool lenient;  /* what is not there yet is left out, and where both sides disagree the job wins */
    bool bare;     /* keys of the engine config come by --set alone: DeepSpeed's defaults are not asked for */
    int64_t ranks; /* of the world: the product of its axes */
    int64_t data_ranks, pipeline, tensor; /* axes: reconcile_ranks.c */
    config_source *job, *engine;          /* later ones win; job trees hold blocks, engine trees DeepSpeed's keys */
    size_t job_count, engine_count;
    const char *engine_block; /* what stands before the engine's keys in messages: "" or "engine" */
    ht_fields *blocks[BLOCK_COUNT];
    const char *types[BLOCK_COUNT];
    ht_train_config train_config;
};

/* A member of an object, also of one that was built by hand. */
const ht_json *ht_member(const ht_json *object, const char *key);

/* engine_names.c: is this a name that stands at the top of DeepSpeed's config? */
bool ht_is_engine_name(const char *name);
/* A bare boolean for zero_optimization and "bfloat16" become what they stand for, and what a file has at its top beyond
 * DeepSpeed's names is left out with a warning; NULL without memory. */
const ht_json *ht_engine_modern(ht_config *c, const ht_json *tree, const ht_origin *where);
/* Without what DeepSpeed does not know inside its blocks, for lenient reading; NULL without memory. */
const ht_json *ht_engine_known(ht_config *c, const ht_json *tree, const ht_origin *where);
/* Values under an old or alternative name go to the name that they stand for. */
ht_status ht_engine_other_names(ht_config *c);
/* {"a": {"b": value}} for "a.b"; NULL without memory. */
const ht_json *ht_nested(ht_arena *arena, const char *path, const ht_json *value);

/* reconcile.c: train block and engine config fill each other; what does not fit together is an error. */
ht_status ht_config_rules(ht_config *c);
void ht_rank_rules(ht_config *c);
ht_status ht_batch_rules(ht_config *c);
ht_status ht_optimizer_rules(ht_config *c);
ht_status ht_schedule_rules(ht_config *c);
ht_status ht_precision_rules(ht_config *c);
/* fine_tuning.c: init_from, freeze and groups of the train block. */
void ht_fine_tuning_rules(ht_config *c);
void ht_fine_tuning_fill(ht_config *c);
/* quantize_keys.c: train.quantize, as plain values at once. */
void ht_quantize_rules(ht_config *c);
/* memory_keys.c: the limit of memory, what backward computes again, and where the rest is kept. */
void ht_memory_rules(ht_config *c);
void ht_memory_fill(ht_config *c);
/* Else an error of the field, which `key` names. *groups: how many pairs of parentheses it has; may be NULL. */
bool ht_check_expression(ht_config *c, const ht_field *field, const char *key, const char *expression, size_t *groups);
/* train_config.c */
void ht_train_config_fill(ht_config *c);
const char *ht_disk_folder(const ht_config *c); /* NULL: none is given */
/* support.c: what is not there yet; what stays as it is by default although people should know. */
void ht_config_check_support(ht_config *c);
/* The remark beside a value that is not simply used, NULL: none. */
const char *ht_field_remark(const ht_config *c, block_id block, const ht_field *field);
bool ht_field_is_default_value(const ht_field *field);

/* "name (job.json:3)", "name": for sentences about a value. */
void ht_name_field(ht_text *text, const ht_config *c, block_id block, const ht_field *field);
/* ht_fields_set with a value that was found by rule: `why` as printf. */
ht_status ht_derive(ht_config *c, block_id block, const char *name, const char *json, const char *why, ...)
    __attribute__((format(printf, 5, 6)));
/* Gives a field the value of a field of the other side. */
ht_status ht_derive_from(ht_config *c, block_id to, const char *name, block_id from, const ht_field *field);
/* A key of the train block and one of the engine config that mean the same. JOB: two different values may stand, and the
 * job's holds. FILL: they may stand, and only the engine's is ever filled. */
typedef enum pair_rule { PAIR_AGREE, PAIR_JOB, PAIR_FILL } pair_rule;
ht_status ht_reconcile_pair(ht_config *c, const char *train_name, const char *engine_name, pair_rule rule);
/* An error about two fields that should say the same; in lenient reading a warning that the job's holds. */
void ht_clash(ht_config *c, const ht_field *train, const ht_field *engine);
bool ht_is_given(const ht_fields *fields, const char *name);

#endif
