/* A 3×3 convolution of plain layouts and its two gradients, each a program of its own, against oneDNN (which chooses
 * its own layouts; reordering to and from them counts) and PyTorch. */
#include <string.h>

#include "contest.h"
#include "ours.h"
#include "peer.h"

enum { BATCH = 8, CHANNELS = 64, SIDE = 56, KERNEL = 3 };

typedef struct direction {
    const char *request, *name;
    bool forward, data, weights; /* what our graph outputs */
} direction;

static const direction directions[] = {
    {"conv_forward", "forward", true, false, false},
    {"conv_data", "grad_data", false, true, false},
    {"conv_weights", "grad_weights", false, false, true},
};

static void build(ours *o, ht_context *ctx, const direction *d)
{
    int64_t x_dims[4] = {BATCH, CHANNELS, SIDE, SIDE}, w_dims[4] = {CHANNELS, CHANNELS, KERNEL, KERNEL};
    ht_conv_opts opts = HT_CONV_OPTS;
    opts.padding[0] = opts.padding[1] = KERNEL / 2;
    ours_begin(o, ctx);
    ht_graph *g = o->graph;
    ht_val x = ht_input(g, "x", HT_F32, 4, x_dims), w = ht_param(g, "w", HT_F32, 4, w_dims, HT_ZERO);
    ht_val y = ht_conv2d(g, x, w, HT_NONE, &opts);
    if (d->forward) ht_output(g, "y", y);
    if (d->data) ours_backward(o, y, 1, &x);
    if (d->weights) ours_backward(o, y, 1, &w);
    ours_ready(o);
}

static void measure(ht_context *ctx, peer *onednn, peer *torch, const direction *d)
{
    char name[64];
    ours o;
    build(&o, ctx, d);
    peer_request r[2] = {{.peer = onednn}, {.peer = torch}};
    for (int i = 0; i < 2; i++)
        snprintf(r[i].text, sizeof r[i].text, "%s f32 %d %d %d %d %d %d", d->request, BATCH, CHANNELS, SIDE, SIDE,
                 CHANNELS, KERNEL);
    snprintf(name, sizeof name, "conv_%s_%dx%d_c%d_%dx%d_n%d", d->name, KERNEL, KERNEL, CHANNELS, SIDE, SIDE, BATCH);
    double flop = 2.0 * BATCH * CHANNELS * SIDE * SIDE * CHANNELS * KERNEL * KERNEL;
    contest c = {.name = name, .unit = "GFLOP/s", .seconds = 2.5};
    int mine = contest_add(&c, "halftone", ours_turn, &o, flop);
    int first = contest_add(&c, "onednn", peer_turn, &r[0], flop);
    int second = contest_add(&c, "torch", peer_turn, &r[1], flop);
    contest_run(&c);
    contest_row(&c, NULL, mine, first, NULL);
    contest_row(&c, NULL, mine, second, NULL);
    ours_end(&o);
}

int main(void)
{
    ht_context *ctx = ours_context();
    peer *onednn = peer_start("onednn"), *torch = peer_start("torch");
    for (size_t i = 0; i < sizeof directions / sizeof directions[0]; i++) measure(ctx, onednn, torch, &directions[i]);
    peer_stop(onednn);
    peer_stop(torch);
    ht_context_free(ctx);
    return 0;
}
