/* batchnorm over all ranks that share a batch: its statistics are those of the micro-batches that ranks have at the same time,
 * so that N ranks compute what one process does whose micro-batches are N times as large. Before gradients, which follow
 * from the sums over ranks. The model hash stays: what is put in place of a result has its hash (`was`). */
#include <stdlib.h>
#include <string.h>

#include "pass/pass.h"

static void sync_node(ht_rewrite *rw, uint32_t id, ht_group ranks, const uint64_t *hashes)
{
    ht_graph *g = rw->g;
    const ht_node n = g->nodes[id]; /* the builder may move the graph's */
    ht_call_storage storage;
    const ht_call *call = ht_node_call(g, &n, g->arena, &storage);
    ht_val in[3] = {HT_NONE, HT_NONE, HT_NONE}, out[3] = {HT_NONE, HT_NONE, HT_NONE};
    if (!call) {
        ht_graph_fail(g, HT_ENOMEM, "sync_batchnorm: out of memory");
        return;
    }
    double eps = ht_call_float(call, "eps");
    for (size_t i = 0; i < n.n_in; i++) in[i] = ht_rewrite_map(rw, ht_node_in(g, &n, i));
    ht_batchnorm_over(g, in[0], in[1], in[2], eps, ranks, out);
    for (size_t i = 0; i < n.n_out && g->status == HT_OK; i++) {
        ht_val old = ht_node_out(&n, i);
        const ht_node *made = ht_producer(g, out[i]);
        g->nodes[made - g->nodes].was = hashes[old.id];
        ht_rewrite_replace(rw, old, out[i]);
    }
}

static ht_status sync_segment(ht_graph *g, uint32_t segment, ht_group ranks, const uint64_t *hashes)
{
    ht_rewrite rw;
    if (ht_rewrite_begin(&rw, g, segment))
        for (size_t i = 0; i < rw.count && g->status == HT_OK; i++) {
            if (strcmp(g->nodes[rw.old[i]].op->name, "batchnorm") == 0)
                sync_node(&rw, rw.old[i], ranks, hashes);
            else
                ht_rewrite_keep(&rw, rw.old[i]);
        }
    return ht_rewrite_end(&rw);
}

static ht_status sync_batchnorm_run(ht_graph *g, const ht_pass_env *env)
{
    const ht_group ranks = {"data", env->options->zero.ranks};
    uint64_t *hashes = ht_value_hashes(g, 0);
    ht_status status = hashes ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "sync_batchnorm: out of memory");
    for (uint32_t i = 0; i < g->segment_count && status == HT_OK; i++)
        if (strncmp(g->segments[i].name, "forward", 7) == 0) status = sync_segment(g, i, ranks, hashes);
    free(hashes);
    return status;
}

const ht_pass ht_pass_sync_batchnorm = {
    .name = "sync_batchnorm",
    .help = "take the statistics of batchnorm over all ranks",
    .run = sync_batchnorm_run,
};
