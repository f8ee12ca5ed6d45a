/* One LSTM layer over a batch of sequences, forward and backward to its input and weights, against PyTorch's. */
#include <string.h>

#include "contest.h"
#include "ours.h"
#include "peer.h"

enum { INPUTS = 256, HIDDEN = 256, BATCH = 32, STEPS = 32 };

static void build(ours *o, ht_context *ctx)
{
    ours_begin(o, ctx);
    ht_graph *g = o->graph;
    ht_val x = ht_input(g, "x", HT_F32, 3, (int64_t[]){STEPS, BATCH, INPUTS});
    ht_val start = ht_fill(g, HT_F32, 2, (int64_t[]){BATCH, HIDDEN}, 0);
    ht_val wrt[4] = {
        x,
        ht_param(g, "w_input", HT_F32, 2, (int64_t[]){4 * HIDDEN, INPUTS}, HT_ZERO),
        ht_param(g, "w_hidden", HT_F32, 2, (int64_t[]){4 * HIDDEN, HIDDEN}, HT_ZERO),
        ht_param(g, "bias", HT_F32, 1, (int64_t[]){4 * HIDDEN}, HT_ZERO),
    };
    ht_lstm_out out = ht_lstm(g, x, start, start, wrt[1], wrt[2], wrt[3], HT_NONE);
    ht_output(g, "y", out.y);
    ours_backward(o, out.y, 4, wrt);
    /* The scale at which an LSTM starts; larger weights would saturate its gates. */
    if (ours_ready(o)) {
        ours_fill(o, "w_input", -0.0625, 0.0625);
        ours_fill(o, "w_hidden", -0.0625, 0.0625);
        ours_fill(o, "bias", -0.0625, 0.0625);
    }
}

int main(void)
{
    ht_context *ctx = ours_context();
    peer *torch = peer_start("torch");
    char name[64];
    ours o;
    build(&o, ctx);
    peer_request r = {.peer = torch};
    snprintf(r.text, sizeof r.text, "lstm f32 %d %d %d %d", INPUTS, HIDDEN, BATCH, STEPS);
    snprintf(name, sizeof name, "lstm_%dto%d_b%d_t%d", INPUTS, HIDDEN, BATCH, STEPS);
    contest c = {.name = name, .unit = "ms", .seconds = 4};
    int mine = contest_add(&c, "halftone", ours_turn, &o, 0), peer_side = contest_add(&c, "torch", peer_turn, &r, 0);
    contest_run(&c);
    contest_row(&c, NULL, mine, peer_side, NULL);
    ours_end(&o);
    peer_stop(torch);
    ht_context_free(ctx);
    return 0;
}
