/* Collectives in a graph: what ranks exchange, each in two parts, so that it can go on beside other nodes. */
#ifndef HT_OP_COLLECTIVE_H
#define HT_OP_COLLECTIVE_H

#include "graph/graph.h"

/* An axis of ranks: its name, and how many ranks it has. */
typedef struct ht_group {
    const char *name; /* "world", or as the session's ranks call it */
    int64_t ranks;
} ht_group;

/* The start and right behind it the done; none after a failure. The result lies in x's space. `reduction`: "sum",
 * "max", "min". Axis 0 is what is gathered, scattered and exchanged in pieces, one for each rank. */
ht_val ht_all_reduce(ht_graph *g, ht_val x, ht_group group, const char *reduction);
/* `gradient`: "sum" where ranks have losses of their own, which are added; "identity" where they go on alike and have one
 * loss; "none" where the result counts as a constant. */
ht_val ht_all_reduce_with(ht_graph *g, ht_val x, ht_group group, const char *reduction, const char *gradient);
/* x, which all ranks have, for nodes that differ between ranks: its gradients are summed over them. */
ht_val ht_fan_out(ht_graph *g, ht_val x, ht_group group);
ht_val ht_all_gather(ht_graph *g, ht_val x, ht_group group);
ht_val ht_all_gather_with(ht_graph *g, ht_val x, ht_group group, const char *gradient);
ht_val ht_reduce_scatter(ht_graph *g, ht_val x, ht_group group, const char *reduction);
ht_val ht_all_to_all(ht_graph *g, ht_val x, ht_group group);
ht_val ht_broadcast(ht_graph *g, ht_val x, ht_group group, int64_t root);
/* To and from one rank of the group. `gradient`: "peer" where the gradient of x comes back from whom it was sent to, and
 * that of what was received goes back, which autodiff sees to; "none" where there is none. */
void ht_send(ht_graph *g, ht_val x, ht_group group, int64_t peer, const char *gradient);
ht_val ht_recv(ht_graph *g, const ht_type *type, ht_group group, int64_t peer, const char *gradient);
/* Is it the start of a send or a recv whose gradient goes the other way? With whom it is exchanged. */
bool ht_message_has_gradient(const ht_node *n, ht_group *group, int64_t *peer);
/* The start alone, and its done, for what may go on beside other nodes; x is what the start reads. */
ht_val ht_all_gather_begin(ht_graph *g, ht_val x, ht_group group);
ht_val ht_all_reduce_begin(ht_graph *g, ht_val x, ht_group group, const char *reduction);
ht_val ht_reduce_scatter_begin(ht_graph *g, ht_val x, ht_group group, const char *reduction);
/* x with the sum of all ranks in place of this rank's piece. */
ht_val ht_reduce_scatter_within_begin(ht_graph *g, ht_val x, ht_group group);
ht_val ht_collective_end(ht_graph *g, ht_val start, ht_val x);

/* batchnorm in training, with mean and variance over all ranks: its three results. The variance is such that what makes an
 * unbiased one of a rank's own makes that of all. */
void ht_batchnorm_over(ht_graph *g, ht_val x, ht_val scale, ht_val shift, double eps, ht_group ranks, ht_val out[3]);

#endif
