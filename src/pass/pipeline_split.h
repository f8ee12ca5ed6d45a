/* What the files of the pass pipeline_schedule share. */
#ifndef HT_PASS_PIPELINE_SPLIT_H
#define HT_PASS_PIPELINE_SPLIT_H

#include "pass/pass.h"

/* The segments of a micro-batch of one shape. */
typedef struct ht_pipeline_segments {
    uint32_t part[HT_PIPELINE_PARTS]; /* of BACKWARD: the one that stores gradients */
    uint32_t backward_more;           /* that adds to them; equal where there is one micro-batch */
} ht_pipeline_segments;

/* pipeline_split.c: "micro_first" and "micro", with an ending for the shape, become "fwd", "recv", "send", "bwd_first" and
 * "bwd". */
ht_status ht_pipeline_split(ht_graph *g, const ht_axis *axis, const char *ending, ht_pipeline_segments *out);

#endif
