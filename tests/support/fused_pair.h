/* One graph planned twice, with fusion and without: both must give the same bits. */
#ifndef HT_TESTS_FUSED_PAIR_H
#define HT_TESTS_FUSED_PAIR_H

#include "context_fixture.h"
#include "train/train.h"

typedef struct fused_pair {
    ht_context *ctx;
    ht_graph *g;
    const char *device; /* where it computes; NULL: on the CPU */
    ht_plan *plan[2];   /* fused, not fused */
    ht_session *s[2];
} fused_pair;

/* Plans and sessions of the graph. False where it cannot be planned even without fusion. */
bool fused_pair_plan(fused_pair *w, uint64_t seed);
/* Three runs of a program in both sessions, on the same inputs; fails where a slot differs. */
void fused_pair_run(fused_pair *w, const char *program, uint64_t seed);
/* Of all slots of the fused session. */
uint64_t fused_pair_digest(const fused_pair *w);
/* Frees sessions, plans and graph; the context stays. */
void fused_pair_close(fused_pair *w);
/* Fails with the graph's number and the context's message. */
void fused_pair_fail(const fused_pair *w, const char *what, uint64_t seed);

#endif
