/* train: sessions and runs. The one place that wires the rooms together: context, training step, plan, memory, running;
 * and above it a run: a job from its config to the last step, with evaluation, metrics and snapshots. Nothing here prints:
 * progress goes to the caller's functions. */
#ifndef HT_TRAIN_H
#define HT_TRAIN_H

#include <stdatomic.h>

#include <halftone/halftone.h>

#include "comm/comm.h"
#include "config/config.h"
#include "data/data.h"
#include "exec/exec.h"
#include "format/format.h"
#include "model/model.h"
#include "train/calibrate.h"
#include "train/infer_times.h"
#include "train/layer_times.h"
#include "train/planned.h"
#include "train/process_memory.h"
#include "train/profile.h"
#include "train/replay.h"

/* ---- jobs: what config has to know of models and data ---- */

enum { HT_MOST_JOB_BLOCKS = 64 };

/* The keys of all models and data formats, for ht_config_request.blocks; `list` has space for HT_MOST_JOB_BLOCKS. */
size_t ht_job_blocks(ht_block_keys *list);

/* A job file's text from what a run recorded (config.resolved.json): model, data, and of the train block what evaluation
 * needs. *folder: where the run was started, NULL where an older version did not say. Heap memory for free(). */
ht_status ht_job_recorded(ht_context *ctx, const char *path, char **out, char **folder);
/* The same with all that was chosen for its training, to train on with one rank. */
ht_status ht_job_recorded_training(ht_context *ctx, const char *path, char **out, char **folder);

/* ---- folders of runs ---- */

enum { HT_RUN_PATH_BYTES = 4096 };

/* The weights of the newest snapshot that can be read; `path` receives their file. */
ht_status ht_run_open_weights(ht_safetensors **out, ht_context *ctx, const char *run, char path[HT_RUN_PATH_BYTES]);
/* Tensors of such a file that stand for another one, `w`: codes "w.int8" (by its format), and their scales "w.int8_scale"; or
 * words of codes "w.q4", and what else belongs to them. */
typedef enum ht_tensor_form { HT_TENSOR_PLAIN, HT_TENSOR_CODES, HT_TENSOR_SCALES } ht_tensor_form;
enum { HT_TENSOR_NAME_BYTES = 1024 };
/* *base receives the name of w, or the tensor's own. */
ht_tensor_form ht_tensor_form_of(const char *name, char base[HT_TENSOR_NAME_BYTES]);
/* Is it a part of the range of static activations (train/range_tensors.h)? Training can begin without one. */
bool ht_is_range(const char *name);
/* The name of a tensor that belongs to words of codes. */
typedef struct ht_nbits_name {
    char base[HT_TENSOR_NAME_BYTES];  /* w */
    char codes[HT_TENSOR_NAME_BYTES]; /* w.q4, or w.q4t where w is [n, k]; by its bits */
    int bits;                         /* 0: it is no such name */
    bool transposed;                  /* w is [n, k] */
    enum { HT_NBITS_CODES, HT_NBITS_SCALE, HT_NBITS_ZERO, HT_NBITS_A_SCALE } part;
} ht_nbits_name;
ht_nbits_name ht_nbits_name_of(const char *tensor);
/* The shape of w in place of that of its codes, as the file has them. */
ht_status ht_tensor_decoded_shape(ht_context *ctx, ht_safetensors *file, const char *path, ht_named_array *codes);
/* The floats that codes of this name stand for, as F32: `data` has space for them. */
ht_status ht_tensor_decode(ht_context *ctx, ht_safetensors *file, const char *path, const char *name, float *data);

/* A folder with those above it; one that is there is fine. */
ht_status ht_folder_make(ht_context *ctx, const char *folder);
/* A file, or a folder with all that it holds. */
ht_status ht_folder_remove(ht_context *ctx, const char *path);

/* ---- runs ---- */

typedef struct ht_run ht_run;

/* What this rank exchanged with others inside of steps. */
typedef struct ht_exchange_report {
    bool known;          /* false: it is alone, or its device does not count */
    double ms;           /* that exchanges took, from their start on this rank */
    int64_t bytes;       /* that it sent */
    double hidden_share; /* of ms: while it did not wait for them */
} ht_exchange_report;

typedef struct ht_step_report {
    int64_t step, steps;        /* steps made, this one included, of all */
    double epoch;               /* passes over the training data */
    double loss;                /* mean over what counts, without label smoothing */
    double lr, grad_norm;       /* the norm without the loss scale */
    double loss_scale;          /* what this step's loss was multiplied by; 1: losses are not scaled */
    double tokens_per_second;   /* rows per second where there are no tokens */
    double step_ms;             /* everything: batches, arithmetic, records of the step before */
    double micro_ms, update_ms; /* of it: forward and backward; the update */
    int64_t plan_bytes;         /* that the plan holds */
    int64_t process_peak_bytes; /* that the process held at most */
    int64_t syncs;              /* how often the host waited for the device while it started the step */
    bool skipped;               /* gradients were not finite: nothing was updated */
    int64_t skips;              /* steps skipped so far, this one included */
    ht_exchange_report exchange;
} ht_step_report;

typedef struct ht_eval_report {
    int64_t step;
    int64_t count;     /* tokens or rows; 0: there is nothing to validate on */
    double loss;       /* mean */
    double perplexity; /* NAN where there are no tokens */
    double accuracy;   /* share of right answers; NAN where there is no such thing */
    double seconds;
} ht_eval_report;

/* What a run leaves at its end. */
typedef struct ht_end_report {
    int64_t step;                /* the last that was made */
    double seconds;              /* that ht_run_train took */
    int64_t plan_bytes;          /* that the plan holds */
    int64_t device_bytes;        /* of it: in memory of a device, which is not the process's */
    int64_t disk_bytes;          /* of it: on a disk */
    int64_t process_peak_bytes;  /* that the process held at most */
    ht_reserve reserve;          /* what it was said to need beyond the plan */
    int64_t steps;               /* that were made since it was opened */
    ht_exchange_report exchange; /* of all of them */
    /* Of all ranks together: what their plans hold in memory of their processes, and what they need beyond it. */
    int64_t ranks_memory_bytes, ranks_reserve_bytes;
} ht_end_report;

/* All but the last three lock the folder, and are refused (HT_EINVAL) while another process holds it. */
typedef enum ht_run_mode {
    HT_RUN_NEW,       /* refused when the folder holds a run */
    HT_RUN_FORCE,     /* a run that is there is removed */
    HT_RUN_RESUME,    /* goes on from the newest complete snapshot, or from the beginning when there is none */
    HT_RUN_EVALUATE,  /* reads the newest snapshot, writes nothing */
    HT_RUN_PREDICT,   /* the same, without data: its session has the segment "logits", and the decoder of `beam` */
    HT_RUN_CALIBRATE, /* as EVALUATE, with the data to train on, for ht_run_calibrate */
} ht_run_mode;

/* A model that a run learns from, beside its data. Its weights are tensors of `init_weights`, "teacher." before their names,
 * and of the run's snapshots. */
typedef struct ht_distillation {
    const ht_config *teacher;   /* a job: its model block counts */
    ht_distill_options options; /* but for the graph, which is made of it */
} ht_distillation;

typedef struct ht_run_request {
    const ht_config *config; /* a job; lives as long as the run */
    ht_run_mode mode;
    const ht_pass_observer *observer; /* is called after every pass on the way to a plan; may be NULL */
    const char *folder;               /* of the run; NULL: as the config says */
    const char *data_folder; /* where relative paths of data begin, but for those of the command line; NULL: here */
    /* A .safetensors file, all of it, to start from instead of train.init_from, or to evaluate instead of a snapshot; NULL:
     * none. */
    const char *init_weights;
    const ht_distillation *distillation; /* NULL: it learns from its data alone */
    const ht_target *target;             /* to plan for; NULL: that of a run that goes on, or this machine */
    ht_data *data;      /* the job's data, open already, perhaps with another batch; to plan only. NULL: opened */
    const char *memory; /* as in ht_data_request */
    size_t memory_length;
    bool allow_data_change; /* go on although the validation part is another one */
    bool no_fusion;         /* every value of a step is made, to be traced; the same bits, slower */
    int64_t numerics;       /* look into the first, the last and every so many steps; 0: never */
    ht_comm *comm;          /* the world of the config's ranks, this one among them; NULL: it is of one */
    int try_pipeline;       /* 1 + a stage of the pipeline to plan for, instead of this rank's; 0: this rank's */
    int try_stage;          /* 1 + a ZeRO stage to plan for, instead of the config's; 0: that of the config */
    int local_ranks;        /* of them on this machine; 0: 1 */
    bool *output_failed; /* set where ht_run_open fails at the run's folder, not at what the job names; may be NULL */
    int64_t beam;        /* a translator's decoder for so many hypotheses; 0: none */
    /* HT_RUN_PREDICT: files to predict on, as in ht_inputs_read; rows of a batch, 0: those of a micro-batch, but no more
     * than 32. */
    const char *const *inputs;
    size_t input_count;
    int64_t batch;
    const atomic_int *stop; /* not 0: drop a step that is half made, snapshot, stop; may be NULL */
    void *arg;              /* of the functions; each may be NULL */
    void (*on_step)(void *arg, const ht_step_report *report);
    void (*on_eval)(void *arg, const ht_eval_report *report);
    void (*on_note)(void *arg, const char *line); /* what a person should know: resumed, skipped, saved */
    /* Is measured, and told to on_profile, which may be NULL; the profile is valid during the call. The same for all
     * ranks: a session that is observed begins no exchange early. */
    int64_t profile_step;
    void (*on_profile)(void *arg, const ht_profile *profile);
    void (*on_too_large)(void *arg, const ht_plan *plan); /* before a plan is refused that does not fit into memory */
} ht_run_request;

typedef struct ht_run_info {
    const char *folder, *model;
    const char *device, *device_model; /* "cuda:1", and as its driver calls it */
    ht_task task;
    int64_t parameters, frozen;        /* elements that are trained; that train.freeze leaves out */
    int64_t plan_bytes, reserve_bytes; /* reserve: as in ht_end_report */
    ht_byte_table bytes;               /* plan_bytes by space and heading */
    int64_t steps, first_step;         /* of the whole run; made before this process */
    uint64_t model_hash;
    bool validates; /* the data have a validation part */
} ht_run_info;

/* A job's plan, and nothing else: no folder, no memory for it, no step. */
ht_status ht_run_plan(ht_plan **out, ht_context *ctx, const ht_run_request *request);

/* A job's model before any pass, with all of its segments; `folder` names a run whose vocabularies it has. For ht_graph_free(). */
ht_status ht_run_model(ht_graph **out, ht_context *ctx, const ht_run_request *request);

/* Opens a job's data and builds its model with the training step, and opens the weights that it starts from, and nothing
 * else: what would not train is told. on_note is told of every tensor to start from. */
ht_status ht_run_check(ht_context *ctx, const ht_run_request *request);

ht_status ht_run_open(ht_run **out, ht_context *ctx, const ht_run_request *request);
/* The run from where it stands: steps, evaluations and snapshots as the config says. *stopped: the caller's flag ended
 * it before its last step. */
ht_status ht_run_train(ht_run *run, bool *stopped);
/* Where it stands now; ht_run_train has it written down. */
ht_end_report ht_run_end(const ht_run *run);
/* Takes NULL. A failure to write the last records is told. */
ht_status ht_run_close(ht_run *run);

/* The pieces of it. A step: K micro-batches and an update; `report` may be NULL. *dropped: the caller's flag came between
 * two micro-batches, and the run stands where it stood before. */
ht_status ht_run_step(ht_run *run, ht_step_report *report, bool *dropped);
/* On the validation part, as much of it as the config says. */
ht_status ht_run_evaluate(ht_run *run, ht_eval_report *report);
ht_status ht_run_snapshot(ht_run *run);

ht_run_info ht_run_info_of(const ht_run *run);
ht_session *ht_run_session(ht_run *run);
ht_data *ht_run_data(ht_run *run);
/* HT_RUN_EVALUATE: the weights of the newest snapshot become those that this run computes with: codes, where it has some.
 * For a folder that nobody else reads yet. */
ht_status ht_run_store_weights(ht_run *run);
/* The weights of a folder's newest snapshot, those with many zeros stored sparse (format/safetensors.h). The same condition. */
ht_status ht_run_store_sparse(ht_context *ctx, const char *run);
/* HT_RUN_PREDICT: the items of the request's files, NULL where it named none; and the rows of its session's batch. */
const ht_inputs *ht_run_inputs(const ht_run *run);
int64_t ht_run_batch(const ht_run *run);

#include "train/follow.h" /* behind the reports that it gives */

#endif
