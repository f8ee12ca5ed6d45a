/* conv2d, conv2d_grad_input, conv2d_grad_weight for the CUDA device: products whose sides are windows (conv.cu).
 * x, w, y: any float but f8, row-major or channels-last. Numerics: real inside, FMA, k ascending, one rounding; the long sums of
 * conv2d_grad_weight are cut into parts by the sizes alone, and the parts added in order.
 * Blocks: tiles of 64 × 64 of the result of each group. Traffic: x or dy once per tap and 64 channels, mostly from
 * the caches. Bound: compute. */
#include "kernel/conv/window_text.h"

enum { TILE = 64, STEP = 16, THREADS = 256 }; /* as in tile_product.cu */
enum { ENOUGH_BLOCKS = 512, LEAST_PART = 512 };

typedef struct conv_text {
    char text[1024];
} conv_text;

typedef struct places_text {
    char text[120];
} places_text;

static places_text places_of(const ht_type *type)
{
    places_text to;
    snprintf(to.text, sizeof to.text, "places<%lld, %lld, %lld, %lld>", (long long)type->stride[0],
             (long long)type->stride[1], (long long)type->stride[2], (long long)type->stride[3]);
    return to;
}

static conv_text text_of(const ht_conv *c, const ht_type *x, const ht_type *w, const ht_type *y)
{
    conv_text to;
    ht_window_text window;
    snprintf(to.text, sizeof to.text, "conv<%lld, %lld, %lld, %lld, %s, %s, %s, %s>", (long long)c->batch,
             (long long)c->groups, (long long)c->in_channels, (long long)c->out_channels,
             ht_window_write(&c->window, &window), places_of(x).text, places_of(w).text, places_of(y).text);
    return to;
}

static int64_t tiles(int64_t rows, int64_t columns)
{
    return ht_cuda_blocks(rows, TILE) * ht_cuda_blocks(columns, TILE);
}

static void include(ht_cuda_emission *e)
{
    ht_cuda_include(e, "tile_product");
    ht_cuda_include(e, "window");
    ht_cuda_include(e, "conv");
}

static void conv2d(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    ht_conv c = ht_conv_of(call, call->in[0], call->in[1]);
    if (ht_type_elems(call->out[0]) == 0) return;
    include(e);
    ht_cuda_add_grid(e, c.groups * tiles(c.out_channels, c.batch * c.window.steps[0] * c.window.steps[1]), THREADS, 0,
                     "convolve<%s>(in0, in1, out0);", text_of(&c, call->in[0], call->in[1], call->out[0]).text);
}

static void conv2d_grad_input(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    ht_conv c = ht_conv_of(call, call->out[0], call->in[1]);
    if (ht_type_elems(call->out[0]) == 0) return;
    include(e);
    ht_cuda_add_grid(e, c.groups * tiles(c.in_channels, c.batch * c.window.plane[0] * c.window.plane[1]), THREADS, 0,
                     "convolve_grad_input<%s>(in0, in1, out0);",
                     text_of(&c, call->out[0], call->in[1], call->in[0]).text);
}

/* ---- conv2d_grad_weight ---- */

typedef struct parts {
    int64_t blocks; /* of one part */
    int64_t count, length;
} parts;

/* So many that there is work for all multiprocessors, and each is worth it. */
static parts parts_of(const ht_conv *c)
{
    const ht_window *v = &c->window;
    int64_t depth = c->batch * v->steps[0] * v->steps[1];
    parts p = {.blocks = c->groups * tiles(c->out_channels, c->in_channels * v->size[0] * v->size[1])};
    int64_t wanted =
        p.blocks ? ht_cuda_blocks(ENOUGH_BLOCKS, (int)(p.blocks < ENOUGH_BLOCKS ? p.blocks : ENOUGH_BLOCKS)) : 1;
    int64_t most = depth / LEAST_PART;
    p.count = wanted < most ? wanted : most;
    if (p.count < 1) p.count = 1;
    p.length = ((depth + p.count - 1) / p.count + STEP - 1) / STEP * STEP;
    return p;
}

static void conv2d_grad_weight(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    ht_conv c = ht_conv_of(call, call->in[0], call->out[0]);
    int64_t elems = ht_type_elems(call->out[0]);
    if (elems == 0) return;
    parts p = parts_of(&c);
    conv_text text = text_of(&c, call->in[0], call->out[0], call->in[1]);
    include(e);
    if (p.count == 1) {
        ht_cuda_add_grid(e, p.blocks, THREADS, 0, "convolve_grad_weight<%s>(in0, in1, out0);", text.text);
        return;
    }
    ht_cuda_add_grid(e, p.blocks * p.count, THREADS, 0,
                     "convolve_grad_weight_parts<%s, %lld, %lld>(in0, in1, (real *)workspace);", text.text,
                     (long long)p.count, (long long)p.length);
    ht_cuda_add_grid(e, ht_cuda_blocks(elems, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "add_parts<%s, %lld, %lld>((const real *)workspace, out0);", text.text, (long long)elems,
                     (long long)p.count);
}

static int64_t conv2d_grad_weight_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    ht_conv c = ht_conv_of(call, call->in[0], call->out[0]);
    int64_t elems = ht_type_elems(call->out[0]);
    int64_t count = elems ? parts_of(&c).count : 1;
    return count > 1 ? count * elems * (ht_cuda_has_f64(call) ? 8 : 4) : 0;
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse_channels(call);
}

HT_CUDA_CHANNELS_KERNEL(conv2d, can, NULL, conv2d)
HT_CUDA_CHANNELS_KERNEL(conv2d_grad_input, can, NULL, conv2d_grad_input)
HT_CUDA_CHANNELS_KERNEL(conv2d_grad_weight, can, conv2d_grad_weight_workspace, conv2d_grad_weight)
