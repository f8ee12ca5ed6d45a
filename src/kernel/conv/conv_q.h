/* Convolutions of codes: what the rows of conv_q share. They compute channels-last; operands that lie row-major are copied in the
 * workspace. */
#ifndef HT_KERNEL_CONV_Q_H
#define HT_KERNEL_CONV_Q_H

#include "kernel/gemm/int8_gemm.h"

enum {
    CONV_Q_X,
    CONV_Q_W,
    CONV_Q_X_SCALE,
    CONV_Q_W_SCALE,
    CONV_Q_X_ZERO,
    CONV_Q_BIAS,
    CONV_Q_Y_SCALE,
    CONV_Q_Y_ZERO,
    CONV_Q_R,
    CONV_Q_R_SCALE,
    CONV_Q_R_ZERO,
    CONV_Q_INPUTS
};

/* A launch: all arrays channels-last, in[] by the numbers above, NULL for what is left out. */
typedef struct conv_q {
    const ht_call *call;
    const ht_launch *launch;
    ht_conv conv;
    const void *in[CONV_Q_INPUTS];
    bool copies_x, copies_r, copies_y; /* they lie row-major */
    void *y;
    int32_t x_zero;
    ht_dtype r_dtype;
    float r_scale, r_zero; /* of codes */
    ht_coding coding;      /* of results that are codes */
    char *packed;          /* w in the row's form, where it is made in the run */
} conv_q;

/* The sizes of a call. */
conv_q ht_conv_q_of(const ht_call *call);
/* The launch under way; the first packed_bytes of the workspace are the row's. */
conv_q ht_conv_q_begin(const ht_launch *launch, int64_t packed_bytes);
/* y to where it belongs. */
void ht_conv_q_end(const conv_q *c);
/* Bytes of a workspace with so many for w. */
int64_t ht_conv_q_workspace(const ht_call *call, int64_t packed_bytes);
const char *ht_conv_q_can(const ht_call *call);
/* Is every channel convolved by itself? */
bool ht_conv_q_is_depthwise(const ht_call *call);
/* The `takes` of rows that have an epilogue. */
const char *ht_conv_q_takes(const ht_call *call, const ht_fusion *fusion, const ht_target *target);

#endif
