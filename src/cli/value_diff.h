/* Two replays value by value: what one made is kept, and compared with what the other makes. */
#ifndef HT_CLI_VALUE_DIFF_H
#define HT_CLI_VALUE_DIFF_H

#include "train/train.h"

/* A value that both made. */
typedef struct cli_pair {
    const char *name;      /* or NULL */
    const char *op, *site; /* of what made it in B; site: that of its origin where it has none; or NULL */
    const char *origin;    /* the op whose gradient rule made it, or NULL */
    ht_role role;
    size_t result;
    ht_type type[2]; /* in A, in B */
    bool identical;  /* number for number */
    /* Relative: the largest difference by the largest number of both, and root mean squares of differences by those of
     * numbers. INFINITY where only one is finite. Gradients are divided by the loss scale first. */
    double max, rms;
} cli_pair;

typedef struct cli_value_diff {
    ht_context *ctx;
    ht_arena *arena;
    cli_pair *pairs; /* in B's order */
    size_t count, capacity;
    size_t only[2]; /* values without a partner, in A, in B */
    struct cli_kept_list *kept;
} cli_value_diff;

ht_status cli_value_diff_start(cli_value_diff *diff, ht_context *ctx);
void cli_value_diff_free(cli_value_diff *diff);
/* The first micro-batch and the update of A's first step, kept; then the same of B, compared. */
ht_status cli_value_diff_keep(cli_value_diff *diff, ht_replay *a);
ht_status cli_value_diff_compare(cli_value_diff *diff, ht_replay *b);

#endif
