/* What `halftone plan` finds out about a job, and how it is shown. */
#ifndef HT_CLI_PLAN_VIEW_H
#define HT_CLI_PLAN_VIEW_H

#include "cli/job_options.h"
#include "report/report.h"

/* One plan in numbers: the job's own, or that of a changed job. */
typedef struct cli_plan_row {
    char kind[16], name[64]; /* "precision", "bf16" */
    char refused[512];       /* why there is no such plan; "": there is */
    int64_t ranks, parameters;
    int64_t plan_bytes, main_bytes; /* of each rank */
    ht_byte_table bytes;
    ht_step_flops flops;     /* of a step, of each rank */
    double samples, tokens;  /* of a step, of all ranks; tokens: 0 where there are none */
    double seconds;          /* of a step */
    double exchange_seconds; /* of it: waiting for other ranks */
    double measured_share;   /* of the seconds: by measured kernels; the others are at the ceilings */
    double mfu;              /* of the target's ceilings */
    ht_ceilings ceilings;    /* whose these are */
    double energy;           /* joules of a step, of all ranks; 0: the target does not tell */
    bool kernels;            /* false: rows stand in for a target that has none, and workspace is unknown */
    bool exchange_unknown;   /* it exchanges, and the target has no network */
    bool bandwidth_unknown;  /* the target does not tell how fast its memory is: bytes take no time */
    bool fits, fits_unknown; /* unknown: there is no limit */
} cli_plan_row;

enum { CLI_MOST_PLAN_ROWS = 32, CLI_MOST_TARGETS = 16 };

typedef struct cli_plan_rows {
    cli_plan_row list[CLI_MOST_PLAN_ROWS];
    size_t count;
} cli_plan_rows;

/* The most of something that fits. */
typedef struct cli_most {
    const char *key;           /* "train.batch"; NULL: the model has no such key */
    int64_t value;             /* 0: not even the least fits */
    int64_t bytes, next_bytes; /* in main: of that plan, and of the next larger one; 0: it has none */
    bool next_refused;         /* the next larger one is no plan at all; else 0 means that it was not tried */
} cli_most;

typedef struct cli_plan_view {
    ht_context *ctx;
    const ht_config_request *request;
    const ht_config *config;
    const ht_target *target; /* NULL: this machine */
    const char *target_name;
    bool elsewhere; /* without a target: for a GPU, where there is none */
    int64_t limit;  /* bytes in main; 0: not known */
    const char *limit_name;
    ht_planned planned; /* the job itself; its data serves all others */
    ht_prediction prediction;
    ht_memory_timeline timeline;
    cli_plan_row row;
    cli_plan_rows what_if, budgets, targets;
    cli_most batch, layers;
} cli_plan_view;

/* ---- plan_variants.c: real plans of changed jobs ---- */

/* Plans the job itself. After a failure, too, free. */
ht_status cli_plan_job(cli_plan_view *view);
void cli_plan_view_free(cli_plan_view *view);
void cli_plan_what_if(cli_plan_view *view);
void cli_plan_budgets(cli_plan_view *view);
void cli_plan_compare(cli_plan_view *view, const ht_target *targets, const char *const *names, size_t count);
void cli_plan_most(cli_plan_view *view);

/* "yes", "no", "unknown". */
const char *cli_plan_fits(const cli_plan_row *row);
/* "~ " before what assumed ceilings make, `bound` (">= ") before a bound, "" before a prediction. */
const char *cli_plan_mark(const cli_plan_row *row, const char *bound);
/* Is its time a bound? Then kernels were not measured, or ranks exchange and nobody knows how fast. By assumed ceilings it
 * is none: a machine can be faster. */
bool cli_plan_is_bound(const cli_plan_row *row);

/* ---- tables, for the terminal and the page ---- */

void cli_plan_byte_table(ht_table *table, const cli_plan_view *view);
void cli_plan_op_table(ht_table *table, const cli_plan_view *view, size_t most);
void cli_plan_what_if_table(ht_table *table, const cli_plan_view *view, const cli_plan_rows *rows);
void cli_plan_target_table(ht_table *table, const cli_plan_view *view);
/* Sentences, a line each. */
void cli_plan_summary(ht_text *text, const cli_plan_view *view);
void cli_plan_fit(ht_text *text, const cli_plan_view *view);
/* The largest batch and the most layers; nothing where they were not asked for. */
void cli_plan_most_text(ht_text *text, const cli_plan_view *view);
/* Why rows have no plan. */
void cli_plan_refusals(ht_text *text, const cli_plan_rows *rows);

void cli_plan_text(ht_text *text, const cli_plan_view *view);
void cli_plan_json(ht_text *text, const cli_plan_view *view);
ht_status cli_plan_page(const cli_plan_view *view, const char *path);

#endif
