/* infer: inference with a trained model and its evaluation: beam search over the segments encode and decode_step of a
 * translator, and BLEU. */
#ifndef HT_INFER_H
#define HT_INFER_H

#include <halftone/session.h>

#include "base/base.h"

typedef struct ht_search_opts {
    size_t size;
    int64_t batch, beam;   /* as the model was built; a beam of 1 is greedy search */
    int64_t length;        /* tokens of an output at most, without the end */
    int32_t start, end;    /* what target_in begins with; what ends an output */
    int64_t rows;          /* sentences that count, the first of the batch; 0: all. Others have no result */
    double length_penalty; /* hypotheses are compared by log probability / tokens^penalty, the end counted; 0: as is */
} ht_search_opts;

#define HT_SEARCH_OPTS                                                                                                 \
    {                                                                                                                  \
        .size = sizeof(ht_search_opts), .beam = 1                                                                      \
    }

/* Translates the contents of the slots source and source_length. `tokens` holds batch × length, `lengths` batch;
 * `scores` (may be NULL) receives the log probabilities. An output that does not end in time is truncated. */
ht_status ht_search(ht_session *session, ht_context *ctx, const ht_search_opts *opts, int32_t *tokens, int64_t *lengths,
                    double *scores);

/* ---- BLEU ---- */

enum { HT_BLEU_ORDERS = 4 };

typedef enum ht_bleu_tokenizer {
    HT_BLEU_13A,  /* as mteval-v13a does it, the standard of sacreBLEU */
    HT_BLEU_NONE, /* the texts are tokens already, with white space between them */
} ht_bleu_tokenizer;

/* Counts over a corpus; starts as zeros and a tokenizer. */
typedef struct ht_bleu {
    ht_bleu_tokenizer tokenizer;
    int64_t matches[HT_BLEU_ORDERS], totals[HT_BLEU_ORDERS]; /* of n-grams of 1 to 4 tokens */
    int64_t length, reference_length;                        /* in tokens */
} ht_bleu;

/* One sentence and its reference; UTF-8, zero-terminated. */
ht_status ht_bleu_add(ht_bleu *bleu, ht_context *ctx, const char *sentence, const char *reference);
/* 0 to 100: exponential smoothing where an order has no match, as sacreBLEU does it. */
double ht_bleu_score(const ht_bleu *bleu);
/* The factor for outputs that are too short. */
double ht_bleu_brevity(const ht_bleu *bleu);
/* "13a" or "none"; false for anything else. */
bool ht_bleu_tokenizer_find(const char *name, ht_bleu_tokenizer *out);

#endif
