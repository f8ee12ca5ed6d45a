/* config: the job file and DeepSpeed's config, as one frozen set of values, each with its origin. Keys are rows of tables
 * (the .def files here, and what models and data declare); reading, checks, docs and messages come from them. Nothing here
 * knows what a key does: it decides what each key's value is. */
#ifndef HT_CONFIG_H
#define HT_CONFIG_H

#include <halftone/session.h>

#include "optim/optim.h"
#include "pass/pass.h"

/* Keys of a block of the job file that another room declares. A block's rows are those of type NULL and those of the type
 * that the job chooses: "model" by its key "type", "data" by "format". Rows for that key itself are not needed. */
typedef struct ht_block_keys {
    const char *block; /* "model" or "data" */
    const char *type;  /* "gpt2"; NULL: rows for all types */
    const char *help;  /* of the type, one line */
    const ht_key *keys;
} ht_block_keys;

typedef struct ht_config_request {
    const char *path; /* a job file, or DeepSpeed's config alone */
    const char *text; /* instead of reading the file: its bytes */
    size_t length;
    const char *engine_path; /* DeepSpeed's config, instead of the job's "engine"; NULL: none */
    const char *const *sets; /* "train.lr=3e-4", later ones win */
    size_t set_count;
    const ht_block_keys *blocks; /* a block of which no type is registered is taken as it stands */
    size_t block_count;
    int64_t ranks; /* of the job; 0 is 1 */
    bool training; /* what is not there yet is an error, not a warning */
} ht_config_request;

typedef struct ht_config ht_config;

/* *out is there even when the input is wrong (HT_EINVAL): it holds all problems then, and nothing else may be asked of it.
 * NULL only without memory. Everything that the functions below return belongs to it. */
ht_status ht_config_read(ht_config **out, ht_context *ctx, const ht_config_request *request);
void ht_config_free(ht_config *config);

const ht_problems *ht_config_problems(const ht_config *config);

/* One more error, which others found in what the config names; its values stay. */
void ht_config_add_error(ht_config *config, const char *message);

/* The values of "model", "data", "train", "halftone" or "engine". Without an engine config its keys have their defaults. */
const ht_fields *ht_config_block(const ht_config *config, const char *block);
/* The chosen type of "model" or "data"; NULL when the file is DeepSpeed's config alone. */
const char *ht_config_type(const ht_config *config, const char *block);
bool ht_config_has_job(const ht_config *config);
bool ht_config_has_engine(const ht_config *config);

/* ---- what training needs, as plain values: train block and engine config agree on them ---- */

typedef struct ht_train_config {
    int64_t steps;                          /* 0: by epochs */
    int64_t epochs;                         /* 0: by steps */
    int64_t batch, micro_batch, accumulate; /* batch = micro_batch × accumulate × data_ranks */
    int64_t ranks;                          /* data_ranks × pipeline × tensor */
    int64_t data_ranks, pipeline, tensor;   /* that share a batch; the layers; each layer */
    bool sequence;                          /* ranks of the tensor axis share the sequence between layers, too */
    uint64_t seed;
    int64_t eval_every, snapshot_every; /* 0: only at the end */
    int64_t eval_batches;               /* 0: all */
    int64_t keep, log_every;
    const char *output;
    double clip; /* 0: off */

    const char *precision;  /* "fp32", "bf16", "fp16", "fp64" */
    const char *loss_scale; /* "none", "dynamic", or a number */
    double fixed_scale;     /* that number; 1 where it is a word */
    int64_t scale_power, scale_window, scale_hysteresis;
    bool scale_consecutive;
    double scale_min;
    bool masters;                      /* false: parameters are half themselves */
    bool half_gradients, half_moments; /* accumulators and the optimiser's state are half, too */
    const char *device;                /* "auto", "cpu", "fake", "cuda", "cuda:1" */
    bool cuda_graphs;                  /* a GPU gets a step as one command */
    bool deterministic;                /* false: sums on a GPU may have any order */
    int64_t check_replicas;            /* compare what ranks hold alike every so many steps; 0: never */
    bool tf32, tf32_parts;             /* products of f32 on a GPU as tf32, in two parts each */
    const char *disk_folder;           /* for what lies in @disk; NULL: none is given */
    ht_disk_opts disk;                 /* DeepSpeed's block "aio", and keys of our own */
    const char *residual;              /* "half", "f32" */
    const char *fp32_ops, *half_ops;   /* names between commas; NULL: none */
    const char *fp32_params;           /* a regular expression; NULL: none */
    const char *fp8_recipe;            /* "delayed", "current"; NULL: no products in f8 */
    int64_t fp8_history;               /* steps, of "delayed" */
    const char *rounding;              /* of half parameters in the update: "nearest", "stochastic" */

    const char *offload_optimizer;    /* moments and masters: "none", "cpu", "nvme" */
    const char *offload_param;        /* what the model reads of its parameters: likewise */
    const char *offload_gradients;    /* gradients: "none", "host", "disk" */
    const char *offload_activations;  /* what forward keeps for backward: "none", "host", "disk" */
    int64_t offload_activation_bytes; /* values of fewer stay */
    int64_t offload_persistent;       /* parameters of fewer elements stay */
    int64_t offload_tile;             /* the most elements of a tile of the update */
    int64_t offload_buffers;          /* tiles on their way or at work */
    double offload_ratio;             /* the share that is offloaded */

    ht_zero_options zero; /* its stage and buckets; the ranks are above */
    ht_recompute_options recompute;
    int64_t head_chunks;                  /* 0: as few as the plan needs to fit */
    int64_t memory_limit[HT_SPACE_COUNT]; /* bytes; 0: none but, in main, what the machine has */

    const char *init_path;   /* a run, a snapshot or a safetensors file to start from; NULL: none */
    const ht_json *init_map; /* an object of names, or a list of {"match", "replace"}; NULL: names stay */
    bool init_strict;        /* all tensors of both sides must fit */
    const char *freeze[HT_MOST_PARAM_PATTERNS]; /* regular expressions */
    size_t freeze_count;
    ht_param_group groups[HT_MOST_PARAM_PATTERNS];
    size_t group_count;
    const char *pruned[HT_MOST_PARAM_PATTERNS]; /* regular expressions */
    size_t pruned_count;
    ht_quantize_options quantize;
    ht_sparse_options sparse;

    const char *task; /* "lm", "class", "regression", "pairs", "masked_lm"; NULL: what the data's format is for */
    double label_smoothing;

    const ht_optimizer *optimizer;
    ht_hyper hyper;
    double lr;
    bool decay_all; /* biases and norms too */

    /* "constant", or a row of optim/schedules.def: one of the job's own ("cosine", "linear", "warmup", which is constant
     * after a warm-up), or DeepSpeed's by its name. Its numbers: ht_config_schedule_number. */
    const char *schedule;
} ht_train_config;

const ht_train_config *ht_config_train(const ht_config *config);
/* A number of the schedule by its name in DeepSpeed's config ("warmup_num_steps"); true and false as 1 and 0,
 * "warmup_linear" for warmup_type; of the job's own: "warmup_steps", "decay_steps", "min_lr". `steps` is how many updates the
 * whole run makes. NAN when nothing is said. */
double ht_config_schedule_number(const ht_config *config, const char *name, int64_t steps);

/* ---- for people and programs ---- */

/* A line per value: name, value, where it comes from, and a remark where Halftone does not simply use it. Without `all`,
 * keys of the engine config that are neither set nor used now are left out and counted. */
void ht_config_print(ht_text *text, const ht_config *config, bool all);
/* One object: {"job", "engine", "ranks", "values": {"train.lr": {"value", "origin", "file", "line", "why", "support"}},
 * "warnings", "errors"}; also what a run records. */
void ht_config_print_json(ht_text *text, const ht_config *config);
/* The train block, a line per key with its default and what it is: for --help. */
void ht_config_print_help(ht_text *text);
/* docs/config.md. */
void ht_config_print_docs(ht_text *text, const ht_block_keys *blocks, size_t block_count);

#endif
