/* One job in several settings, with the same data, and what came of each: the work behind halftone compare and
 * halftone demo. */
#ifndef HT_CLI_SWEEP_H
#define HT_CLI_SWEEP_H

#include "cli/job_options.h"
#include "report/report.h"

enum { CLI_SWEEP_SETS = 32, CLI_MOST_SWEEP_ENTRIES = 1000 };

typedef struct cli_sweep_entry {
    char *name;                 /* for tables and curves */
    char *folder;               /* of the run; one that is there is replaced */
    char *group;                /* runs of one group differ in their seed only */
    char *sets[CLI_SWEEP_SETS]; /* "train.precision=fp16", behind those of the job */
    size_t set_count;
    int64_t numerics;  /* as in ht_run_request */
    bool no_fusion;    /* likewise */
    int64_t ranks;     /* threads of this process that share each batch; 0: one */
    ht_line line;      /* of its curves */
    ht_config *config; /* after cli_sweep_read */
    const ht_train_config *train_config;

    /* What came out. */
    ht_task task;
    size_t made;            /* steps */
    double *loss, *scale;   /* by step */
    double *step_ms, *rate; /* of steps, smallest first once the run is over */
    size_t evals;
    double *eval_step, *eval_loss;
    ht_eval_report last_eval; /* count 0: nothing is held out */
    double mean_loss;         /* training, over all steps */
    double final_loss;        /* training, over the last tenth of the steps */
    double perplexity;        /* held out; of final_loss where nothing is; NAN without tokens */
    double median_ms, median_rate, seconds;
    int64_t skipped, parameters, plan_bytes;
    ht_byte_table bytes;
    char error[1024]; /* why it ended before its last step; "": it did not */
    /* while it runs */
    size_t capacity, eval_capacity[2];
} cli_sweep_entry;

typedef struct cli_sweep {
    ht_context *ctx;
    const char *command; /* for messages */
    const char *title;   /* of the training curves; NULL: by what they show */
    const cli_job *job;
    cli_sweep_entry *list;
    size_t count, capacity;
    void *arg; /* of the functions; each may be NULL */
    void (*on_start)(void *arg, const cli_sweep_entry *entry, ht_run *run);
    void (*on_step)(void *arg, const cli_sweep_entry *entry, const ht_step_report *report);
    /* After the last step, while the run is open. */
    ht_status (*on_end)(void *arg, cli_sweep_entry *entry, ht_run *run);
} cli_sweep;

/* A new run at the end of the list; NULL without memory. The pointer holds until the next one is added. */
cli_sweep_entry *cli_sweep_add(cli_sweep *sweep, const char *name, const char *folder, const char *group);
/* False without memory or with too many. */
bool cli_sweep_entry_set(cli_sweep_entry *entry, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* train.precision and, unless NULL, train.loss_scale, against whatever the engine config of `base` says. */
bool cli_sweep_entry_precision(cli_sweep_entry *entry, const ht_config *base, const char *precision,
                               const char *loss_scale);

/* Reads all configs before any run: CLI_DONE, or the problems are told. */
int cli_sweep_read(cli_sweep *sweep);
/* Runs all. A run whose gradients are not finite for good is a result; any other failure ends it. */
int cli_sweep_run(cli_sweep *sweep);
void cli_sweep_free(cli_sweep *sweep);

#endif
