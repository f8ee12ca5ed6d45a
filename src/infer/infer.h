/* infer: running a trained model. Here: search over the segments encode and decode_step of a translator. */
#ifndef HT_INFER_H
#define HT_INFER_H

#include <halftone/session.h>

#include "base/base.h"

typedef struct ht_search_opts {
    size_t size;
    int64_t batch, beam;   /* as the model was built; a beam of 1 is greedy search */
    int64_t length;        /* tokens of an output at most, without the end */
    int32_t start, end;    /* what target_in begins with; what ends an output */
    double length_penalty; /* hypotheses are compared by log probability / tokens^penalty, the end counted; 0: as is */
} ht_search_opts;

#define HT_SEARCH_OPTS                                                                                                 \
    {                                                                                                                  \
        .size = sizeof(ht_search_opts), .beam = 1                                                                      \
    }

/* Translates what the slots source and source_length hold. `tokens` has room for batch × length, `lengths` for batch;
 * `scores` (may be NULL) receives the log probabilities. An output that did not end in time is cut there. */
ht_status ht_search(ht_session *session, ht_context *ctx, const ht_search_opts *opts, int32_t *tokens, int64_t *lengths,
                    double *scores);

#endif
