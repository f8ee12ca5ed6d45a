/* What the files of halftone demo share. */
#ifndef HT_CLI_DEMO_H
#define HT_CLI_DEMO_H

#include "cli/job_words.h"
#include "cli/translate.h"

enum { DEMO_MOST_EVALS = 64 };

typedef struct demo {
    /* what the command says */
    const char *data, *output; /* data: a file of pairs, NULL: the grammar's */
    int64_t steps, pairs;      /* 0: the standard */
    bool json, help;
    /* the run */
    ht_context *ctx;
    ht_config *config;
    ht_run *run;
    bool terminal;
    double *losses, *step_ms; /* by step */
    size_t made, room;
    double eval_x[DEMO_MOST_EVALS], eval_y[DEMO_MOST_EVALS];
    size_t evals;
    ht_eval_report last_eval;
    double seconds; /* of training */
    /* what came out */
    cli_translations translations;
    bool *right; /* by translation */
    size_t right_count;
    double floor_loss; /* the lowest mean loss that the grammar allows on these sentences; 0: not known */
    double bleu;
    char page[4096];
} demo;

/* Writes demo->page. */
ht_status demo_write_page(demo *d);
/* For people, or with --json as one object. */
int demo_print_result(demo *d);

#endif
