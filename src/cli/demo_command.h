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
} demo_claim;

enum { DEMO_CLAIMS = 3 };

typedef struct demo {
    /* what the command says */
    const char *data, *output; /* data: a file of pairs, NULL: the grammar's */
    int64_t steps;             /* 0: the standard */
    bool json, quick, single;
    /* the runs; the first one is shown at work */
    ht_context *ctx;
    cli_job job_options;
    cli_sweep sweep;
    bool terminal;
    double shown_ms, total_ms;
    int64_t train_pairs, held_out;
    /* what came out */
    cli_translations translations;
    bool *right; /* by translation */
    size_t right_count;
    double floor_loss; /* the lowest mean loss that the grammar allows on these sentences; 0: not known */
    double bleu;
    size_t traced_run; /* the run whose gradients were looked at; 0: none */
    ht_text figure, gradients;
    demo_claim claims[DEMO_CLAIMS];
    char page[4096];
} demo;

/* Of several runs: fills demo->claims. */
void demo_judge_claims(demo *d);
/* How they were judged, in a few sentences. */
void demo_explain_claims(ht_text *text, const demo *d);

/* Writes demo->page. */
ht_status demo_write_page(demo *d);
/* For people, or with --json as one object. */
int demo_print_result(demo *d);

#endif
