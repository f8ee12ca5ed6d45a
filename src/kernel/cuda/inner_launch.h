/* A launch of another row as a part of a launch: rows are made of rows. */
#ifndef HT_KERNEL_INNER_LAUNCH_H
#define HT_KERNEL_INNER_LAUNCH_H

#include "kernel/cuda/cuda.h"

enum { HT_INNER_OPERANDS = 4, HT_INNER_ATTRS = 4 };

/* Filled in before ht_inner_prepare: the row, types and addresses of the operands, inputs first, and all attributes that
 * the row reads. It stays where it is until it is released. */
typedef struct ht_inner_launch {
    const ht_kernel *row;
    ht_type types[HT_INNER_OPERANDS];
    void *addresses[HT_INNER_OPERANDS];
    size_t n_in; /* one result comes behind them */
    ht_attr attrs[HT_INNER_ATTRS];
    size_t n_attr;
    void *workspace;
    /* Its own: */
    ht_call call;
    const ht_type *list[HT_INNER_OPERANDS];
    const void *in[HT_INNER_OPERANDS];
    void *out[1];
    ht_launch launch;
} ht_inner_launch;

/* The call as `can` and `workspace` of the row want it: types and attributes, no op. */
const ht_call *ht_inner_call(ht_inner_launch *inner);
ht_status ht_inner_prepare(ht_inner_launch *inner, const ht_launch *outer);
ht_status ht_inner_run(const ht_inner_launch *inner);
void ht_inner_release(ht_inner_launch *inner);

#endif
