/* Cutting the head of a classifier, for the pass head_chunks. */
#ifndef HT_PASS_HEAD_CUT_H
#define HT_PASS_HEAD_CUT_H

#include "pass/pass.h"

enum { HT_MOST_HEAD_CHUNKS = 64 }; /* as in config/memory_keys.c */

/* Cuts the head of every segment that has one into that many chunks of rows, or fewer. *reason: why one stays whole; NULL:
 * none does. */
ht_status ht_head_cut(ht_graph *g, int64_t chunks, const char **reason);

#endif
