/* What a trained model answers: classes, values, or translations of the inputs of a run that predicts. */
#ifndef HT_CLI_ANSWERS_H
#define HT_CLI_ANSWERS_H

#include "train/train.h"

typedef struct cli_answer {
    const char *input;     /* as ht_inputs_name */
    bool asked;            /* false: an empty line, and nothing below is set */
    const double *outputs; /* logits, or the values of a regression; NULL of a translation */
    int64_t count;
    int64_t class;      /* the largest logit, the first of equal ones */
    double probability; /* of the class, or of the whole translation; NAN of a regression */
    const char *text;   /* the translation; NULL elsewhere */
} cli_answer;

/* Receives the answers in the order of the inputs; a status other than HT_OK ends the run. */
typedef ht_status (*cli_answer_fn)(void *arg, const cli_answer *answer);

/* The run was opened with this beam (of a translator; others ignore it), and with inputs. */
ht_status cli_answer_all(ht_context *ctx, ht_run *run, int64_t beam, cli_answer_fn on_answer, void *arg);

#endif
