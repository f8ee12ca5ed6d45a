/* What the files of halftone demo share. */
#ifndef HT_CLI_DEMO_COMMAND_H
#define HT_CLI_DEMO_COMMAND_H

#include "cli/sweep_result.h"
#include "cli/translate.h"

/* A claim of the paper on mixed precision, and what this experiment says to it. */
typedef struct demo_claim {
    const char *text;
    ht_verdict verdict;
    ht_text numbers;
    bool shown; /* this demo can decide it */
} demo_claim;

enum { DEMO_CLAIMS = 5, DEMO_MOST_RUNS = 16 };

/* What a run stands for. */
typedef enum demo_role { DEMO_FULL, DEMO_MIXED, DEMO_UNSCALED, DEMO_VANISHING, DEMO_NO_MASTERS } demo_role;

/* The translator and its training. */
typedef struct demo_size {
    int hidden, layers;
    double dropout;
    int least_count, vocabulary, max_length, buckets; /* of words and sentences; 0: no limit */
    double held_out;                                  /* the share of the pairs */
    int batch, warmup_share;                          /* the warmup takes one of so many parts of the steps */
    double lr, lr_min;
    const char *optimizer;
    double weight_decay;
} demo_size;

typedef struct demo {
    /* what the command says */
    const char *data, *output; /* data: a file of pairs, NULL: the grammar's */
    int64_t steps;             /* 0: the standard */
    bool json, quick, single;
    const demo_size *size; /* by data and device */
    /* the runs; the first one is shown at work */
    ht_context *ctx;
    cli_job job_options;
    cli_sweep sweep;
    demo_role roles[DEMO_MOST_RUNS]; /* of its runs */
    bool terminal;
    double shown_ms, total_ms;
    int64_t train_pairs, held_out;
    /* what came out */
    cli_translations translations;
    bool *right; /* by translation */
    size_t right_count;
    double floor_loss; /* the lowest mean loss that the grammar allows on these sentences; 0: not known */
    double bleu;
    size_t traced_run, vanishing_run; /* the runs whose gradients were looked at; 0: none */
    ht_text figure, gradients;
    demo_claim claims[DEMO_CLAIMS];
    char page[4096];
} demo;

/* Of several runs: fills demo->claims. */
ht_status demo_judge_claims(demo *d);
/* How those that are shown were judged, in a few sentences. */
void demo_explain_claims(ht_text *text, const demo *d);

/* Writes demo->page. */
ht_status demo_write_page(demo *d);
/* For people, or with --json as one object. */
int demo_print_result(demo *d);

#endif
