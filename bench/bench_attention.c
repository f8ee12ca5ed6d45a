/* Attention, forward and backward, against PyTorch's scaled_dot_product_attention; and its memory: linear in the
 * sequence, so far below one matrix of scores. */
#include <string.h>

#include "contest.h"
#include "ours.h"
#include "peer.h"

enum { BATCH = 4, HEADS = 6, LENGTH = 1024, DEPTH = 64 };

static void build(ours *o, ht_context *ctx, bool causal)
{
    int64_t dims[4] = {BATCH, HEADS, LENGTH, DEPTH};
    ht_attention_opts opts = {.size = sizeof opts, .causal = causal};
    ours_begin(o, ctx);
    ht_graph *g = o->graph;
    ht_val in[3] = {ht_input(g, "q", HT_F32, 4, dims), ht_input(g, "k", HT_F32, 4, dims),
                    ht_input(g, "v", HT_F32, 4, dims)};
    ht_val y = ht_attention(g, in[0], in[1], in[2], &opts);
    ht_output(g, "y", y);
    ours_backward(o, y, 3, in);
    ours_ready(o);
}

static void measure(ht_context *ctx, peer *torch, bool causal)
{
    char name[64];
    ours o;
    build(&o, ctx, causal);
    peer_request r = {.peer = torch};
    snprintf(r.text, sizeof r.text, "attention f32 %d %d %d %d %d", BATCH, HEADS, LENGTH, DEPTH, causal);
    snprintf(name, sizeof name, "attention_%s_b%dh%dt%dd%d", causal ? "causal" : "full", BATCH, HEADS, LENGTH, DEPTH);
    contest c = {.name = name, .unit = "ms", .seconds = 4};
    int mine = contest_add(&c, "halftone", ours_turn, &o, 0), peer_side = contest_add(&c, "torch", peer_turn, &r, 0);
    contest_run(&c);
    contest_row(&c, NULL, mine, peer_side, NULL);
    if (o.plan) {
        double scores = (double)BATCH * HEADS * LENGTH * LENGTH * sizeof(float);
        snprintf(name, sizeof name, "attention_%s_transients", causal ? "causal" : "full");
        bench_line(name, (double)ht_plan_area_bytes(o.plan, HT_AREA_TRANSIENT) / 1e6, scores / 1e6, "score_matrix",
                   "MB");
    }
    ours_end(&o);
}

int main(void)
{
    ht_context *ctx = ours_context();
    peer *torch = peer_start("torch");
    measure(ctx, torch, false);
    measure(ctx, torch, true);
    peer_stop(torch);
    ht_context_free(ctx);
    return 0;
}
