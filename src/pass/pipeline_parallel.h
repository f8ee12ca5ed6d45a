/* Pipeline parallel training: ranks share the layers, each has a stage. The order of a rank's calls in a step is 1F1B, one
 * forward, one backward: docs/parallel.md. */
#ifndef HT_PASS_PIPELINE_PARALLEL_H
#define HT_PASS_PIPELINE_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

typedef enum ht_pipeline_part {
    HT_PIPELINE_FORWARD,  /* receives what the stage before sends, and computes */
    HT_PIPELINE_RECEIVE,  /* gradients, from the stage behind */
    HT_PIPELINE_SEND,     /* what forward made, to the stage behind */
    HT_PIPELINE_BACKWARD, /* computes, and sends gradients to the stage before */
    HT_PIPELINE_PARTS
} ht_pipeline_part;
/* Of the segments: "fwd", "recv", "send", "bwd". */
extern const char *const ht_pipeline_part_names[HT_PIPELINE_PARTS];

typedef struct ht_pipeline_call {
    ht_pipeline_part part;
    int64_t micro; /* which micro-batch of the step */
    uint32_t slot; /* of its inputs, and of what forward keeps for backward */
} ht_pipeline_call;

/* Micro-batches of a stage that are in flight at once, at most. */
int64_t ht_pipeline_slots(int64_t stages, int64_t stage, int64_t micros);
/* The calls of a stage in a step, in their order: at most HT_PIPELINE_PARTS × micros. Returns how many. Neighbours have
 * their messages in the same order, and nobody waits for one that waits for him, though all of them block. */
size_t ht_pipeline_calls(int64_t stages, int64_t stage, int64_t micros, ht_pipeline_call *calls);
/* The share of a step in which a stage waits for others, if all take as long: (P - 1) / (M + P - 1). */
double ht_pipeline_bubble(int64_t stages, int64_t micros);

#endif
