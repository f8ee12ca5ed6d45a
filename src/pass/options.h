/* What passes are told, as typed values. Callers start from ht_pass_options_standard and change what they know; names and
 * texts (`--set`, the public structs) become values once, in ht_pass_options_read. */
#ifndef HT_PASS_OPTIONS_H
#define HT_PASS_OPTIONS_H

#include <halftone/session.h>

#include "optim/optim.h"
#include "pass/code_formats.h"

typedef enum ht_scaling { HT_SCALING_NONE, HT_SCALING_STATIC, HT_SCALING_DYNAMIC } ht_scaling;

/* The loss scale: docs/update.md. */
typedef struct ht_scaling_options {
    ht_scaling kind;
    double fixed;                      /* of STATIC: the scale */
    int64_t power, window, hysteresis; /* of DYNAMIC: it begins with two to this power */
    int64_t consecutive;               /* 0 or 1 */
    double min;
    int64_t most_skips;
} ht_scaling_options;

/* Of autodiff and optimizer. */
typedef struct ht_train_options {
    int64_t accumulate; /* micro-batches per update */
    const ht_optimizer *optimizer;
    ht_hyper hyper;
    double lr, clip;             /* clip: 0: off */
    bool decay_matrices;         /* weight decay is for tensors of rank 2 and more alone */
    const ht_schedule *schedule; /* NULL: the state "lr" is the rate */
    double schedule_params[HT_MAX_SCHEDULE_PARAMS];
    ht_scaling_options scaling;
    const char *freeze[HT_MOST_PARAM_PATTERNS]; /* regular expressions: parameters that match are not trained */
    size_t freeze_count;
    ht_param_group groups[HT_MOST_PARAM_PATTERNS]; /* of several that match a parameter the first one counts */
    size_t group_count;
    const char *pruned[HT_MOST_PARAM_PATTERNS]; /* regular expressions: zeros of parameters that match stay zero */
    size_t pruned_count;
} ht_train_options;

typedef enum ht_precision { HT_PRECISION_FP64, HT_PRECISION_FP32, HT_PRECISION_FP16, HT_PRECISION_BF16 } ht_precision;
/* "fp64", …; a name that is none of them is a bug of the caller. */
const char *ht_precision_name(ht_precision precision);
ht_precision ht_precision_find(const char *name);

/* How tensors in f8 are scaled: by the magnitudes of former steps, or by their own. */
typedef enum ht_fp8 { HT_FP8_OFF, HT_FP8_DELAYED, HT_FP8_CURRENT } ht_fp8;
enum { HT_MOST_FP8_HISTORY = 4096 }; /* as in config/job.def */

/* Of autocast and fp8: docs/precision.md. */
typedef struct ht_precision_options {
    ht_precision precision;
    bool masters;                      /* false: parameters are half themselves */
    bool half_gradients, half_moments; /* accumulators and the optimiser's state are half, too */
    bool residual_f32;
    bool stochastic;                 /* the update rounds half parameters by chance instead of to the nearest */
    const char *fp32_ops, *half_ops; /* names between commas; NULL: none */
    const char *fp32_params;         /* a regular expression; NULL or "": none */
    ht_fp8 fp8;
    int64_t fp8_history; /* steps, of DELAYED */
} ht_precision_options;

/* What the codes of weights are: made of parameters, or parameters themselves. */
typedef enum ht_quantize_weights { HT_QUANTIZE_DERIVED, HT_QUANTIZE_STORED } ht_quantize_weights;
/* Elements that share a scale: all of a weight, those of an output channel, or so many of a channel's inputs. */
typedef enum ht_granularity { HT_PER_TENSOR, HT_PER_CHANNEL, HT_PER_GROUP } ht_granularity;
/* Where the scales of activations come from: from each row while the model runs; from calibration, and what layers read while they
 * train; or from calibration and gradients. */
typedef enum ht_quantize_range { HT_RANGE_DYNAMIC, HT_RANGE_STATIC, HT_RANGE_LEARNED } ht_quantize_range;

/* How some of the layers compute with codes. */
typedef struct ht_quantize_group {
    const char *layers; /* a regular expression over names of weights; NULL or "": all */
    struct {
        ht_code_kind kind;
        int bits; /* 0: the layers compute with floats */
        ht_granularity granularity;
        int64_t group; /* of PER_GROUP: elements */
        bool symmetric;
    } weights;
    struct {
        int bits; /* 0: they stay floats; those of f8 weights are f8, too */
        ht_quantize_range range;
        bool symmetric;
    } activations;
} ht_quantize_group;

/* Of quantize, in graphs that compute a trained model: docs/compression.md. */
typedef struct ht_quantize_options {
    ht_quantize_group groups[HT_MOST_PARAM_PATTERNS]; /* of several that match a layer the first one counts */
    size_t group_count;                               /* 0: nothing is quantised */
    ht_quantize_weights weights;
} ht_quantize_options;

/* int8 with a scale for each channel, and activations by the range of each row. */
ht_quantize_group ht_quantize_group_standard(void);

/* Of sparse_weights, in graphs that compute a trained model: docs/compression.md. */
typedef struct ht_sparse_options {
    const char *weights[HT_MOST_PARAM_PATTERNS]; /* regular expressions */
    size_t count;
} ht_sparse_options;

/* Modules of a teacher and of its student, by the scopes of their nodes ("transformer.h.3"). */
typedef struct ht_module_pair {
    const char *teacher, *student;
} ht_module_pair;
enum { HT_MOST_MODULE_PAIRS = 64 };

/* States of a teacher in the graph of its student: this, and their own names. What is trained beside the student, and
 * given up with the teacher. */
#define HT_TEACHER_PREFIX "teacher."
#define HT_DISTILL_PREFIX "distill."

/* Of distill: docs/compression.md. */
typedef struct ht_distill_options {
    const ht_graph *teacher; /* has segments `eval` for those that train; NULL: there is none */
    double temperature;      /* by which the logits of both are divided */
    double alpha;            /* the share of the teacher's answers in the loss; the others are the data's */
    double hidden_weight, attention_weight;
    ht_module_pair hidden[HT_MOST_MODULE_PAIRS];    /* whose results shall be alike */
    ht_module_pair attention[HT_MOST_MODULE_PAIRS]; /* whose attention weights shall be */
    size_t hidden_count, attention_count;
} ht_distill_options;

/* Of offload_activations, tile_update and offload: docs/offload.md. */
typedef struct ht_offload_options {
    ht_space optimizer; /* where moments and masters lie; MAIN: where the model computes */
    ht_space params; /* where what the model reads of its parameters lies: half copies, or the parameters themselves */
    ht_space gradients;       /* where gradients lie between micro-batches and the update */
    ht_space activations;     /* where what forward keeps for backward lies */
    int64_t activation_bytes; /* values of fewer stay in main */
    int64_t persistent;       /* parameters of fewer elements stay in main, as copies where need be */
    int64_t tile;             /* the most elements of a tile of the update; 0: by the size of its group */
    int64_t ahead;            /* tiles, parameters and activations that are fetched before they are needed */
    double ratio;             /* the share of each group's moments and masters that moves, at least: whole tensors do */
} ht_offload_options;

/* How to choose what backward computes again. */
typedef enum ht_recompute_policy {
    HT_RECOMPUTE_NONE,
    HT_RECOMPUTE_MARKED,    /* what the model's author marked: ht_checkpoint */
    HT_RECOMPUTE_CHEAP,     /* norms, activations, casts: what costs bandwidth only */
    HT_RECOMPUTE_SELECTIVE, /* these and attention */
    HT_RECOMPUTE_ALL,       /* whole layers */
    HT_RECOMPUTE_SQRT,      /* as many groups of layers as each has layers */
    HT_RECOMPUTE_BUDGET     /* as little time as possible for a plan of so many bytes */
} ht_recompute_policy;

/* "cheap", …; a name that is none of them is a bug of the caller. */
ht_recompute_policy ht_recompute_policy_find(const char *name);

/* Of recompute: docs/memory.md. */
typedef struct ht_recompute_options {
    ht_recompute_policy policy;
    int64_t checkpoints;  /* of ALL: groups of layers; 0: one for each layer */
    int64_t budget_bytes; /* of BUDGET: of the plan in main; 0: `share` counts */
    double share;         /* of BUDGET: of the transients without recomputation; 0: what the target's memory leaves */
} ht_recompute_options;

/* Of head_chunks: docs/memory.md. */
typedef struct ht_head_options {
    int64_t chunks; /* of rows, for logits and loss; 1: they are whole; 0: as many as the plan needs to fit */
} ht_head_options;

/* One axis of ranks: how many there are, and which of them this one is. */
typedef struct ht_axis {
    int64_t ranks, rank;
} ht_axis;

/* Ranks that share a model: docs/parallel.md. The graph is that of one rank. The world is data × pipeline × tensor, tensor
 * innermost; the data axis, of ranks that share a batch, is in ht_zero_options. */
typedef struct ht_parallel_options {
    ht_axis pipeline; /* each has some of the layers */
    ht_axis tensor;   /* each has a piece of every layer */
    bool sequence;    /* and of the sequence between layers */
} ht_parallel_options;

/* In which type gradients cross from rank to rank. */
typedef enum ht_zero_exchange_type {
    HT_ZERO_AS_ACCUMULATED,
    HT_ZERO_AS_F32,
    HT_ZERO_AS_F16,
    HT_ZERO_AS_BF16
} ht_zero_exchange_type;

/* Of micro_batches, optimizer and zero: docs/parallel.md. The graph is that of one rank. */
typedef struct ht_zero_options {
    int64_t ranks; /* of the data axis: they share a batch; 1: nothing is exchanged */
    int64_t rank;  /* this one */
    int64_t stage; /* 0: gradients are summed; 1: moments and masters are partitioned, 2: gradients, 3: parameters */
    int64_t reduce_bucket; /* the most elements of an exchange of gradients */
    int64_t gather_bucket; /* and of one of parameters */
    int64_t persistent;    /* stage 3: parameters of fewer elements stay whole */
    int64_t prefetch;      /* stage 3: the most elements that are gathered before they are needed */
    int exchange_type;     /* ht_zero_exchange_type */
    bool overlap;          /* exchanges go on beside what does not need them */
    bool sync_batchnorm;   /* batchnorm takes its statistics over all ranks */
} ht_zero_options;

typedef struct ht_pass_options {
    bool training; /* the graph becomes a training step */
    ht_train_options train;
    ht_precision_options precision;
    ht_quantize_options quantize;
    ht_sparse_options sparse;
    ht_distill_options distill;
    ht_offload_options offload;
    ht_recompute_options recompute;
    ht_head_options head;
    ht_zero_options zero;
    ht_parallel_options parallel;
} ht_pass_options;

/* All options at their defaults. */
ht_pass_options ht_pass_options_standard(void);

/* Another optimiser, with its own hyper-parameters; an unknown name is a failure that lists the known ones. */
ht_status ht_train_options_choose(ht_context *ctx, ht_train_options *options, const char *optimizer);
ht_status ht_train_options_schedule(ht_context *ctx, ht_train_options *options, const char *schedule);

#endif
