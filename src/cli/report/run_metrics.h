/* What a run wrote into its metrics.jsonl, read back. */
#ifndef HT_CLI_RUN_METRICS_H
#define HT_CLI_RUN_METRICS_H

#include "base/base.h"

/* What is read of a step, by the key in its line. */
#define CLI_METRICS(X)                                                                                                 \
    X(LOSS, "loss")                                                                                                    \
    X(LR, "lr")                                                                                                        \
    X(GRAD_NORM, "grad_norm")                                                                                          \
    X(LOSS_SCALE, "loss_scale")                                                                                        \
    X(RATE, "tokens_per_second")                                                                                       \
    X(STEP_MS, "step_ms")                                                                                              \
    X(SKIPS, "skips")                                                                                                  \
    X(EXCHANGE_MS, "exchange_ms")                                                                                      \
    X(PROCESS_BYTES, "process_peak_bytes")

typedef enum cli_metric {
#define CLI_METRIC(id, key) CLI_METRIC_##id,
    CLI_METRICS(CLI_METRIC)
#undef CLI_METRIC
        CLI_METRIC_COUNT
} cli_metric;

/* And of an evaluation. */
typedef enum cli_eval_metric {
    CLI_EVAL_LOSS,
    CLI_EVAL_PERPLEXITY,
    CLI_EVAL_ACCURACY,
    CLI_EVAL_METRIC_COUNT
} cli_eval_metric;

/* Records in the order of their steps: what was not a number, or is not there, is NAN. */
typedef struct cli_records {
    size_t count, capacity;
    double *step;
    double *values[CLI_METRIC_COUNT]; /* of evaluations the first CLI_EVAL_METRIC_COUNT */
} cli_records;

typedef struct cli_run_metrics {
    cli_records steps, evals;
    double seconds;  /* of the training that came to its end last; NAN: none did */
    size_t damaged;  /* lines that cannot be read, and were left out... */
    size_t bad_line; /* ...the first of them, from 1 */
    bool cut;        /* the last line has no end: it is being written, or its writer was killed */
} cli_run_metrics;

/* Reads the file line by line. A step that comes again replaces the first one and all that came after it, as in a run that
 * went on from a snapshot. Call cli_run_metrics_free after a failure, too. */
ht_status cli_run_metrics_read(cli_run_metrics *metrics, ht_context *ctx, const char *path);
void cli_run_metrics_free(cli_run_metrics *metrics);

#endif
