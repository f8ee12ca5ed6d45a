/* Internal: a compression as its steps share it. */
#ifndef HT_COMPRESS_COMPRESSION_H
#define HT_COMPRESS_COMPRESSION_H

#include "compress/compress.h"
#include "compress/group_codes.h"
#include "compress/movement.h"
#include "compress/ranges.h"
#include "compress/weights.h"

enum { HT_COMPRESS_PATH = 4096, HT_COMPRESS_MOST_SETS = 256, HT_COMPRESS_MOST_STEPS = 64 };

typedef struct ht_step_kind ht_step_kind;

typedef struct ht_compress_recipe_step {
    const ht_step_kind *kind;
    ht_fields *fields;
} ht_compress_recipe_step;

typedef struct ht_compress_recipe {
    ht_compress_recipe_step steps[HT_COMPRESS_MOST_STEPS];
    size_t count;
} ht_compress_recipe;

/* Parameters whose zeros training has to leave. */
typedef struct ht_pruned_set {
    const char *expression;
    const char
        *units; /* "rows", "heads", "channels", "layers": whole ones, which shrink removes; NULL: single weights */
} ht_pruned_set;

/* How codes of weights alone are chosen, in layers whose name matches. */
typedef struct ht_weight_only {
    const char *layers; /* a regular expression */
    ht_code_method method;
    int64_t batches;  /* of calibration; 0: none */
    const char *data; /* as in ht_calibration */
} ht_weight_only;

typedef struct ht_compression {
    ht_context *ctx;
    const ht_compress_request *request; /* its run is a folder */
    const char *origin;                 /* the run as the caller named it */
    ht_arena *arena;
    char *job, *data_folder;                 /* as in ht_job_recorded_training */
    ht_config *config;                       /* of the run, before any step */
    const char *model;                       /* its type */
    int64_t steps;                           /* of the run; 0: it counts epochs */
    const char *sets[HT_COMPRESS_MOST_SETS]; /* what steps changed of the job */
    size_t set_count;
    ht_pruned_set pruned[HT_MOST_PARAM_PATTERNS];
    size_t pruned_count;
    const char *quantize[HT_MOST_PARAM_PATTERNS]; /* groups of train.quantize, as JSON */
    size_t quantize_count;
    ht_weight_only weight_only[HT_MOST_PARAM_PATTERNS]; /* the last one that matches counts */
    size_t weight_only_count;
    ht_compress_layer *layers; /* that steps made faster, or tried to; names in the arena */
    size_t layer_count, layer_capacity;
    ht_weights weights;             /* as the steps so far left them */
    char work[HT_COMPRESS_PATH];    /* a folder beside the output, for as long as this takes */
    char result[HT_COMPRESS_PATH];  /* in it: the new run */
    char initial[HT_COMPRESS_PATH]; /* in it: weights that a run starts from */
    ht_movement *movement;          /* scores that the training at hand adds to; NULL: none */
    const ht_distillation *teacher; /* of the training at hand; NULL: none */
    bool last;                      /* the step at hand is the last one */
    bool written;                   /* it left the new run */
} ht_compression;

struct ht_step_kind {
    const char *name;
    const ht_key *keys;
    /* What rows cannot say; may be NULL. */
    ht_status (*check)(ht_context *ctx, const ht_fields *fields);
    /* What can fail for reasons outside the recipe, such as a file that is not there: before the first step. May be NULL. */
    ht_status (*prepare)(ht_compression *c, const ht_fields *fields);
    /* Adds members to the step's object in compress.json. NULL: not there yet. */
    ht_status (*apply)(ht_compression *c, const ht_fields *fields, ht_json_writer *json);
};

/* steps.def; ends with NULL. */
extern const ht_step_kind *const ht_step_kinds[];

/* recipe_read.c. The JSON of the steps lives in the arena; ht_compress_recipe_free after a failure, too. */
ht_status ht_compress_recipe_read(ht_compress_recipe *out, ht_compression *c);
void ht_compress_recipe_free(ht_compress_recipe *recipe);
/* deepspeed_recipe.c: the text of a recipe that does what DeepSpeed's block compression_training does in the run's steps of
 * training. */
ht_status ht_deepspeed_recipe(ht_text *out, ht_compression *c, const char *path, const ht_json *block);

/* A setting that all later runs have: "model.n_inner=512". */
ht_status ht_compression_set(ht_compression *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ht_compression_note(const ht_compression *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A name as part of a regular expression that matches it. */
void ht_compression_add_name(ht_text *text, const char *name);
/* Zeros of these tensors stay. ht_compression_drop_units: not of those that were held as units, which are gone. */
ht_status ht_compression_hold_zeros(ht_compression *c, const bool *tensors, const char *units);
void ht_compression_drop_units(ht_compression *c);

/* tune.c: the job with what steps changed, and `more` settings. */
ht_status ht_compression_config(ht_compression *c, const char *const *more, size_t count, ht_config **out);
/* Trained in `folder` with the weights as they are, and those that it ends with taken over. ht_compression_snapshot: a folder that
 * stands before its first step. */
ht_status ht_compression_train(ht_compression *c, const ht_config *config, const char *folder, ht_json_writer *json);
ht_status ht_compression_snapshot(ht_compression *c, const ht_config *config, const char *folder);
/* The job's steps, in the folder of the result where this is the last step, unless there is a teacher. */
ht_status ht_compression_tune(ht_compression *c, int64_t steps, double lr, const ht_json *train, ht_json_writer *json);

/* How static activations are calibrated. */
typedef struct ht_calibration {
    const char *layers; /* a regular expression over names of weights */
    int64_t batches;
    ht_range_method method;
    double percentile;
    const char *data; /* files to train on instead of the run's; NULL: its own */
    bool symmetric;
} ht_calibration;
/* smooth.c: outliers of activations move from norms into the weights behind them. */
ht_status ht_compression_smooth(ht_compression *c, double strength, const ht_calibration *how, ht_json_writer *json);
/* calibration.c: ranges of the inputs of weights that `plan` has states for, added to the weights. */
ht_status ht_compression_calibrate(ht_compression *c, const ht_plan *plan, const ht_calibration *how,
                                   ht_json_writer *json);

/* The same file: what layers read in some batches of the run's data, or of other files, with the weights as they are. A failure
 * names these files. ht_compression_check_files: can they be read as the run's data? */
ht_status ht_compression_check_files(ht_compression *c, const char *files);
ht_status ht_compression_run_batches(ht_compression *c, int64_t batches, const char *files, ht_layer_input_fn on_input,
                                     void *arg);

/* layer_figures.c: layers of the job with codes whose weights match, timed in turns with those of the job without. */
ht_status ht_compression_time_layers(ht_compression *c, const char *expression);
/* The same of layers that leave zeros out, with the weights as they are. */
ht_status ht_compression_time_sparse(ht_compression *c);
/* The loss on the validation part, with the weights as they are and the job with this setting; NULL: as it is. */
ht_status ht_compression_evaluate(ht_compression *c, const char *set, double *loss);
/* The loss that the codes of each of them add by themselves. */
ht_status ht_compression_scan_layers(ht_compression *c, const char *expression);

/* quantize_step.c: does a regular expression match? The pass has compiled it before. */
bool ht_compression_matches(const char *expression, const char *name);
/* A list of groups as train.quantize has it, for the layer of one weight alone. */
ht_status ht_compression_put_only(const ht_compression *c, const char *weight, ht_text *text);
/* The snapshot of a run of the job holds codes where the job has some. */
ht_status ht_compression_store_codes(ht_compression *c, const char *folder, ht_json_writer *json);
/* weight_only.c: writes codes of weights alone into the states of the session; and a member of compress.json. */
ht_status ht_compression_choose_codes(ht_compression *c, ht_session *session, ht_json_writer *json);
/* A model's graph, as the job computes it. */
ht_status ht_compression_quantize_graph(const ht_config *config, ht_graph *graph);

/* sparse_layers.c: the key train.sparse, for the weights as they are. */
ht_status ht_compression_choose_sparse(ht_compression *c);

/* student.c: the model that a teacher's layers begin, as the recipe's object describes it; NULL: the model as it is.
 * *fits: every tensor of the student comes from one of the teacher. ht_student_module: a module by its number among the
 * layers, or by its name. ht_student_prefix: what stands before the number of a layer, "transformer.h."; NULL: the model has none. */
const char *ht_student_prefix(const ht_compression *c);
ht_status ht_student_make(ht_compression *c, const ht_json *wanted, ht_json_writer *json, bool *fits);
ht_status ht_student_module(ht_compression *c, const char *key, const ht_json *wanted, const char **name);

/* The time of an evaluation after by that before, in rounds: half of them lie between these. */
typedef struct ht_compress_ratio {
    double low, high;
    int rounds;
} ht_compress_ratio;

/* run_figures.c: of the newest snapshot of a run. Its quality and size; then, of the run before and the one after, the time of an
 * evaluation in short turns: the median of rounds. */
ht_status ht_compress_measure_worth(ht_compress_figures *out, ht_context *ctx, const ht_compress_request *request,
                                    const char *folder);
ht_status ht_compress_compare_cost(ht_context *ctx, const ht_compress_request *request, const char *const folders[2],
                                   ht_compress_figures *const out[2], ht_compress_ratio *ratio);

/* Items in a second, behind its cost. */
ht_status ht_compress_measure_throughput(ht_compress_figures *out, ht_context *ctx, const ht_compress_request *request,
                                         const char *folder);

/* output.c: folders, and what a result has beside a run's own files. */
ht_status ht_compression_open_folders(ht_compression *c);
/* A folder beside an output, for as long as a compression takes. One that was killed may have left it; what something else has
 * made is refused. */
ht_status ht_compression_make_work(ht_context *ctx, const char *path);
ht_status ht_compression_write_model(ht_compression *c);
ht_status ht_compression_write_text(ht_compression *c, const char *name, const ht_text *text);
ht_status ht_compression_publish(ht_compression *c);
void ht_compression_remove_folders(ht_compression *c);

#endif
