#include "kernel/cuda/inner_launch.h"

#include <stdlib.h>

const ht_call *ht_inner_call(ht_inner_launch *inner)
{
    for (size_t i = 0; i <= inner->n_in; i++) inner->list[i] = &inner->types[i];
    inner->call = (ht_call){.n_in = inner->n_in,
                            .n_out = 1,
                            .n_attr = inner->n_attr,
                            .in = inner->list,
                            .out = inner->list + inner->n_in,
                            .attr = inner->attrs};
    return &inner->call;
}

ht_status ht_inner_prepare(ht_inner_launch *inner, const ht_launch *outer)
{
    ht_inner_call(inner);
    for (size_t i = 0; i < inner->n_in; i++) inner->in[i] = inner->addresses[i];
    inner->out[0] = inner->addresses[inner->n_in];
    inner->launch = *outer;
    inner->launch.call = &inner->call;
    inner->launch.in = inner->in;
    inner->launch.out = inner->out;
    inner->launch.workspace = inner->workspace;
    inner->launch.row = inner->row;
    inner->launch.prepared = NULL;
    return inner->row->prepare ? inner->row->prepare(&inner->launch) : HT_OK;
}

ht_status ht_inner_run(const ht_inner_launch *inner)
{
    return inner->row->run(&inner->launch);
}

void ht_inner_release(ht_inner_launch *inner)
{
    if (!inner->row || !inner->launch.call) return;
    if (inner->row->release) inner->row->release(&inner->launch);
    free(inner->launch.prepared);
    inner->launch.prepared = NULL;
}
