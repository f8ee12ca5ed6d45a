/* compress: takes a trained run and makes a smaller one of it, by the steps of a recipe: pruning, shrinking, tuning. The
 * result is a run like any other, written whole or not at all; what it cost is measured before and after. Nothing here
 * prints: progress goes to the caller's functions. docs/compression.md describes recipes and results. */
#ifndef HT_COMPRESS_H
#define HT_COMPRESS_H

#include "train/train.h"

typedef struct ht_compress_request {
    const char *run;                          /* the folder of a run; with `job`, a .safetensors file */
    const char *job;                          /* a job file, whose model the weights are; NULL: run is a folder */
    const char *recipe;                       /* a file */
    const char *output;                       /* the folder of the new run */
    const char *name;                         /* what its job calls this folder; NULL: output */
    const struct ht_compress_figures *before; /* of the run, as measured before; NULL: not yet */
    bool trial;                               /* of a search: throughput is not measured */
    bool force;                               /* an output that compress wrote before is replaced */
    const char *const *sets; /* as in ht_config_request: for all that is read, trained and measured here */
    size_t set_count;
    const atomic_int *stop; /* not 0: give up; may be NULL */
    void *arg;              /* of the functions; each may be NULL */
    void (*on_step)(void *arg, const ht_step_report *report);
    void (*on_note)(void *arg, const char *line);
    /* The BLEU of a translator that was opened with this beam. NULL: none is asked for. */
    ht_status (*judge)(void *arg, ht_context *ctx, ht_run *run, double *bleu);
    int64_t beam;
} ht_compress_request;

/* What a run is worth and what it costs. NAN: the task has no such thing. */
typedef struct ht_compress_figures {
    double loss, perplexity, accuracy; /* on the validation part */
    double bleu;                       /* NAN: the request has no judge */
    int64_t parameters, nonzero;       /* elements of its weights, and those that are not zero */
    int64_t disk_bytes;                /* of weights.safetensors */
    int64_t memory_bytes;              /* of the plan of one evaluation */
    int64_t batch;                     /* of that evaluation: 1, or the only one that a model's own graph has */
    double flops, p50_ms, p99_ms;      /* of it */
    double items_per_s;                /* of evaluations at the batch with the most; NAN: not measured */
    int64_t best_batch;                /* that batch */
} ht_compress_figures;

/* A layer that codes were tried for, or a product without runs of zeros: what is said of codes holds for it, too. */
typedef struct ht_compress_layer {
    const char *name; /* of its weight */
    const char *kernel, *float_kernel;
    double ms, float_ms; /* with codes, with floats: in one evaluation of a batch as in the figures */
    double margin_ms;    /* what codes have to save, at least: how far measured times scatter */
    bool sparse;         /* a product without zeros: not codes */
    bool slower;         /* with codes than with floats, or not faster by the margin: it keeps its floats, */
    bool stays;          /* unless the recipe says otherwise */
    double loss;         /* what its codes alone add to the loss; NAN: not asked for */
} ht_compress_layer;

/* What a step of the recipe left: quality without BLEU, parameters and bytes on disk. */
typedef struct ht_compress_step {
    const char *name;
    ht_compress_figures after;
} ht_compress_step;

typedef struct ht_compress_report {
    ht_compress_figures before, after;
    bool pruned;               /* the result has zeros that were pruned, and not removed */
    ht_compress_layer *layers; /* of steps that quantise */
    size_t layer_count;
    ht_compress_step *steps; /* in the arena; none of a trial */
    size_t step_count;
    ht_arena *arena; /* of names */
} ht_compress_report;

/* ---- a search: settings of a recipe, tried one after the other ---- */

enum { HT_COMPRESS_MOST_TRIALS = 64 };

/* As shares of what the run has; a loss may rise by `drop`. Negative: no such goal. */
typedef struct ht_compress_goals {
    double drop, size, latency;
} ht_compress_goals;

typedef struct ht_compress_trial {
    char settings[256]; /* "ratio 0.5, weights int8" */
    ht_compress_figures after;
    char failure[512]; /* why there are no figures; "": there are */
    bool fits;         /* the goals */
    bool front;        /* of the Pareto front: no other has as little loss, bytes and latency, and less of one */
} ht_compress_trial;

typedef struct ht_compress_trials {
    ht_compress_figures before;
    bool measured; /* `before`: by the first trial that did not fail */
    ht_compress_trial trials[HT_COMPRESS_MOST_TRIALS];
    size_t count;
    int chosen; /* the smallest that fits, which is the output; -1: none does, and there is no output */
} ht_compress_trials;

/* Every combination of the recipe's alternatives, {"try": [0.3, 0.5]}. */
ht_status ht_compress_search(ht_compress_trials *out, ht_context *ctx, const ht_compress_request *request,
                             const ht_compress_goals *goals);

/* After a failure there is no output, or the one that was there before. */
ht_status ht_compress(ht_compress_report *report, ht_context *ctx, const ht_compress_request *request);
void ht_compress_report_free(ht_compress_report *report);

/* The object that compress.json has for a run. */
void ht_compress_put_figures(ht_json_writer *json, const char *key, const ht_compress_figures *figures);
/* Of these, members of an object: quality, parameters and bytes on disk. */
void ht_compress_put_worth(ht_json_writer *json, const ht_compress_figures *figures);
void ht_compress_put_layers(ht_json_writer *json, const char *key, const ht_compress_layer *layers, size_t count);

#endif
