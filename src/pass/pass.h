/* pass: one file per pass, graph to graph, and the pipeline that verifies after each. A pass sees a graph and its
 * environment (target, options, the planner's measure); never a device, a kernel or a file. */
#ifndef HT_PASS_H
#define HT_PASS_H

#include "op/op.h"
#include "pass/norm_layers.h"
#include "pass/options.h"
#include "pass/pipeline_parallel.h"

/* Names for some of the options: a table of keys, and where the struct that they are fields of lies in ht_pass_options. */
typedef struct ht_pass_settings {
    const ht_setting_key *keys; /* NULL ends the list */
    size_t at;
} ht_pass_settings;

/* ---- what a pass is given ---- */

/* While one segment runs. Times are its instructions, counted from 0. */
typedef struct ht_segment_memory {
    size_t time_count;
    const int64_t *live_bytes[HT_SPACE_COUNT]; /* by time: transients that are alive, workspaces included */
    int64_t peak_bytes[HT_SPACE_COUNT];        /* the most of these */
    int64_t transient_bytes[HT_SPACE_COUNT];   /* laid out: at least the peak */
} ht_segment_memory;

/* When and where a result has transient bytes of its own: from the instruction that makes it to the last that reads it,
 * both included. A result that is made over an operand takes its bytes over: the operand's life ends one before. Values
 * that are assembled in one buffer are alive as one: their bytes are those of the concat. bytes is 0 where there are
 * none: views, what never leaves an instruction, what is made in state or in the slot of an output. */
typedef struct ht_value_life {
    int64_t bytes;
    uint32_t first, last;
    ht_space space;
} ht_value_life;

#define HT_NO_INSTRUCTION UINT32_MAX

/* The memory of a graph's fused plan over time. Indices are those of the graph that was measured. */
typedef struct ht_memory_profile {
    ht_arena *arena; /* of all that follows */
    const ht_segment_memory *segments;
    size_t segment_count;
    const ht_value_life *lives; /* by value id */
    const uint32_t *time;       /* by node id: the instruction that it is part of, or HT_NO_INSTRUCTION */
    int64_t state_bytes[HT_SPACE_COUNT], slot_bytes[HT_SPACE_COUNT];
    int64_t plan_bytes[HT_SPACE_COUNT]; /* all of it: what the plan allocates */
} ht_memory_profile;
void ht_memory_profile_free(ht_memory_profile *profile);
/* The most bytes in main that live no longer than a segment. */
int64_t ht_memory_transients(const ht_memory_profile *profile);

typedef struct ht_pass ht_pass;

typedef struct ht_pass_env {
    const ht_target *target;
    const ht_pass_options *options;
    /* What the plan of a graph would take, if it were made now, or once the passes behind `behind` have run, too (NULL:
     * now). The planner's; NULL where none is at hand (ht_graph_train). The caller frees *profile. */
    ht_status (*measure)(const void *arg, const ht_pass *behind, const ht_graph *g, ht_memory_profile *profile);
    const void *measure_arg;
} ht_pass_env;

struct ht_pass {
    const char *name;
    const char *help; /* one line */
    bool system;      /* leaves the model as it is: the pipeline asserts its hash */
    bool keeps_step;  /* and what every segment computes and stores: the pipeline asserts their hashes, too */
    ht_status (*run)(ht_graph *g, const ht_pass_env *env);
    /* Is there nothing for it to do? Then the pipeline passes over it. NULL: it runs. */
    bool (*idle)(const ht_graph *g, const ht_pass_options *options);
    const ht_pass_settings *settings; /* that it reads; NULL: none */
};

/* ---- the pipeline: from a model's graph to its plan ---- */

typedef enum ht_stage {
    HT_STAGE_TRAIN, /* a model's graph becomes a training step: ht_graph_train, and jobs */
    HT_STAGE_PLAN,  /* a graph becomes one that can be planned: ht_plan_create */
    HT_STAGE_ANY    /* of settings: whichever stage knows the name */
} ht_stage;

typedef struct ht_pass_condition {
    const char *words; /* "training"; NULL: always */
    bool (*holds)(const ht_pass_options *options);
} ht_pass_condition;

typedef struct ht_pipeline_row {
    const ht_pass *pass;
    ht_stage stage;
    const ht_pass_condition *when;
} ht_pipeline_row;

/* The rows of passes.def; ends with a row without a pass. */
extern const ht_pipeline_row ht_pipeline[];
/* NULL when there is none of that name. */
const ht_pass *ht_pass_find(const char *name);

/* `after` is called after every pass that was run, with the graph that it left. A failure of `after` ends the work. */
typedef struct ht_pass_observer {
    ht_status (*after)(void *arg, const ht_pass *pass, const ht_graph *g);
    void *arg;
} ht_pass_observer;

/* Runs one pass and checks what it left: the IR's rules, the model hash of a system pass, and the hash of each segment
 * where it keeps them. env: NULL: standard options and nothing else. */
ht_status ht_pass_run(ht_graph *g, const ht_pass *pass, const ht_pass_env *env);
/* Runs the rows of one stage whose condition holds, each as ht_pass_run, and tells `observer`, which may be NULL. */
ht_status ht_pipeline_run(ht_graph *g, ht_stage stage, const ht_pass_env *env, const ht_pass_observer *observer);
/* Those of its rows that stand behind the last one of a pass. */
ht_status ht_pipeline_run_behind(ht_graph *g, const ht_pass *pass, const ht_pass_env *env);

/* Settings by name become options; of a name that is given twice the last one counts. A name that no pass of the stage
 * knows is a failure; with HT_STAGE_ANY it is left out. Texts are borrowed. */
ht_status ht_pass_options_read(ht_context *ctx, ht_pass_options *options, ht_stage stage, size_t count,
                               const ht_train_setting *settings);

/* What is the model's own, and what training adds; what backward computes again belongs to it. */
static inline bool ht_node_is_backward(const ht_node *n)
{
    return n->role == HT_ROLE_BWD_ACT || n->role == HT_ROLE_BWD_WEIGHT;
}
static inline bool ht_node_is_forward(const ht_node *n)
{
    return n->role == HT_ROLE_FWD && !n->recomputed;
}

/* An op that the pass `quantize` knows as a layer: which operands are its input and its weight. */
typedef struct ht_layer_op {
    const char *name;
    size_t input, weight;
    size_t second; /* a second weight, which has codes when the first one has; 0: none */
    bool lookup;   /* the input are indices of rows: the weight alone has codes */
} ht_layer_op;
/* NULL: it is none. */
const ht_layer_op *ht_layer_op_find(const char *name);

/* A precision class in a word: "dot". */
const char *ht_prec_name(ht_prec prec);

/* Backward for `loss`, which starts from the gradient `loss_grad` (a scalar, or none for 1), appended to the loss's segment: gradients of n
 * values; none where the loss does not depend on a value. */
ht_status ht_backward(ht_graph *g, ht_val loss, ht_val loss_grad, size_t n, const ht_val *wrt, ht_val *grads);

#endif
