/* What a run writes down while it goes: every record goes to every sink of sinks.def that the config switches on. */
#ifndef HT_TRAIN_METRICS_H
#define HT_TRAIN_METRICS_H

#include "train/train.h"

typedef struct ht_metrics ht_metrics;

/* With `step` above 0 the run goes on from there: records of later steps are cut off, they will come again. */
ht_status ht_metrics_open(ht_metrics **out, ht_context *ctx, const ht_config *config, const char *folder, int64_t step);
ht_status ht_metrics_step(ht_metrics *metrics, const ht_step_report *report);
ht_status ht_metrics_eval(ht_metrics *metrics, const ht_eval_report *report);
/* The last record, which a run that goes on takes back. */
ht_status ht_metrics_end(ht_metrics *metrics, const ht_end_report *report);
/* Everything so far reaches the files. */
ht_status ht_metrics_flush(ht_metrics *metrics);
/* Takes NULL. */
ht_status ht_metrics_close(ht_metrics *metrics);
/* Is this the name of a file that some sink writes into the folder of a run? */
bool ht_metrics_own(const char *name);

/* ---- sinks ---- */

/* What a sink is opened with. */
typedef struct ht_sink_request {
    ht_context *ctx;
    const ht_config *config;
    const char *folder; /* of the run */
    int64_t step;       /* the last that stays: 0 in a new run */
} ht_sink_request;

/* A place that metrics go to. `state` is the sink's own, made by `open` and freed by `close`. */
typedef struct ht_sink {
    /* *state stays NULL where the config switches the sink off. After a failure `close` gets what was made so far. */
    ht_status (*open)(void **state, const ht_sink_request *request);
    ht_status (*step)(void *state, const ht_step_report *report);
    ht_status (*eval)(void *state, const ht_eval_report *report); /* NULL: it has no record of evaluations */
    ht_status (*end)(void *state, const ht_end_report *report);   /* NULL: it has no record of the end */
    ht_status (*flush)(void *state);                              /* NULL: each record reaches its file at once */
    ht_status (*close)(void *state);
    bool (*owns)(const char *name); /* as in ht_metrics_own; NULL: it writes elsewhere */
} ht_sink;

/* output_path/job_name of one of the engine config's monitors, made; *out is heap memory. An empty path is the run's
 * own folder. */
ht_status ht_sink_monitor_folder(const ht_sink_request *request, const char *monitor, char **out);
/* What a file has after it was cut. */
typedef struct ht_sink_kept {
    int64_t last;    /* the number of its last line; 0 where nothing is left */
    int64_t damaged; /* lines before that one which cannot be read: they stay, and are warned of */
} ht_sink_kept;
/* Cuts a file behind the last whole line whose number is at most `last`. One that is not there stays away. */
ht_status ht_sink_cut(ht_context *ctx, const char *path, int64_t last, int64_t (*number_of)(const char *line),
                      ht_sink_kept *kept);
/* The same for JSON lines with the member "step"; a record of the end goes, too. */
ht_status ht_sink_cut_jsonl(ht_context *ctx, const char *path, int64_t step, ht_sink_kept *kept);

#endif
