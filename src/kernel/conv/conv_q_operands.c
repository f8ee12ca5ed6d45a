/* Operands of conv_q: channels-last where they lie, or copied to the workspace and back. */
#include <string.h>

#include "kernel/conv/conv_q.h"

enum { ALIGN = 64, PLANE_TILE = 256 };

static const ht_type *given(const ht_call *call, size_t input)
{
    return input < call->n_in ? call->in[input] : NULL;
}

static bool lies_channels_last(const ht_type *type)
{
    ht_type last = *type;
    ht_type_channels_last(&last);
    return ht_type_same_strides(type, &last);
}

static int64_t aligned_bytes(const ht_type *type)
{
    return (ht_type_elems(type) * (int64_t)ht_dtype_bytes(type->dtype) + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- between the two orders ---- */

typedef struct turn {
    const char *from;
    char *to;
    int64_t channels, plane, bytes; /* plane: positions */
    bool to_last;
} turn;

static void turn_element(const turn *t, int64_t last, int64_t first)
{
    if (t->to_last)
        memcpy(t->to + last, t->from + first, (size_t)t->bytes);
    else
        memcpy(t->to + first, t->from + last, (size_t)t->bytes);
}

static void turn_tile(void *arg, int64_t tile)
{
    const turn *t = arg;
    int64_t tiles = (t->plane + PLANE_TILE - 1) / PLANE_TILE, image = tile / tiles, first = tile % tiles * PLANE_TILE;
    int64_t end = first + PLANE_TILE < t->plane ? first + PLANE_TILE : t->plane;
    int64_t base = image * t->channels * t->plane;
    for (int64_t c = 0; c < t->channels; c++)
        for (int64_t p = first; p < end; p++)
            if (t->bytes == 1 && t->to_last)
                t->to[base + p * t->channels + c] = t->from[base + c * t->plane + p];
            else
                turn_element(t, (base + p * t->channels + c) * t->bytes, (base + c * t->plane + p) * t->bytes);
}

static void turn_order(const ht_type *type, const void *from, void *to, bool to_last, ht_pool *pool)
{
    turn t = {.from = from,
              .to = to,
              .channels = type->dim[1],
              .plane = type->dim[2] * type->dim[3],
              .bytes = (int64_t)ht_dtype_bytes(type->dtype),
              .to_last = to_last};
    ht_parallel(pool, type->dim[0] * ((t.plane + PLANE_TILE - 1) / PLANE_TILE), turn_tile, &t);
}

/* ---- launches ---- */

conv_q ht_conv_q_of(const ht_call *call)
{
    const ht_type *r = given(call, CONV_Q_R);
    return (conv_q){
        .call = call,
        .conv = ht_conv_of(call, call->in[CONV_Q_X], call->in[CONV_Q_W]),
        .copies_x = !lies_channels_last(call->in[CONV_Q_X]),
        .copies_r = r && !lies_channels_last(r),
        .copies_y = !lies_channels_last(call->out[0]),
    };
}

int64_t ht_conv_q_workspace(const ht_call *call, int64_t packed_bytes)
{
    conv_q c = ht_conv_q_of(call);
    int64_t bytes = aligned(packed_bytes);
    if (c.copies_x) bytes += aligned_bytes(call->in[CONV_Q_X]);
    if (c.copies_r) bytes += aligned_bytes(call->in[CONV_Q_R]);
    if (c.copies_y) bytes += aligned_bytes(call->out[0]);
    return bytes;
}

conv_q ht_conv_q_begin(const ht_launch *launch, int64_t packed_bytes)
{
    const ht_fused *fused = launch->fused;
    const ht_call *call = fused ? fused->gemm : launch->call;
    conv_q c = ht_conv_q_of(call);
    char *at = (char *)launch->workspace;
    c.launch = launch;
    c.packed = launch->prepacked ? launch->prepacked : at;
    at += aligned(packed_bytes);
    for (size_t i = 0; i < CONV_Q_INPUTS; i++)
        c.in[i] = given(call, i) ? launch->in[(fused ? (size_t)fused->n_in : 0) + i] : NULL;
    c.y = launch->out[0];
    c.x_zero =
        ht_zero_within(call->in[CONV_Q_X]->dtype, c.in[CONV_Q_X_ZERO] ? *(const int32_t *)c.in[CONV_Q_X_ZERO] : 0);
    c.r_dtype = c.in[CONV_Q_R] ? call->in[CONV_Q_R]->dtype : HT_F32;
    c.r_scale = c.in[CONV_Q_R_SCALE] ? *(const float *)c.in[CONV_Q_R_SCALE] : 0;
    c.r_zero = c.in[CONV_Q_R_ZERO] ? (float)*(const int32_t *)c.in[CONV_Q_R_ZERO] : 0;
    if (ht_dtype_is_code(call->out[0]->dtype)) {
        int32_t zero = c.in[CONV_Q_Y_ZERO] ? *(const int32_t *)c.in[CONV_Q_Y_ZERO] : 0;
        c.coding = ht_coding_clip(ht_coding_of(call->out[0]->dtype, *(const float *)c.in[CONV_Q_Y_SCALE], zero),
                                  (float)ht_call_float(call, "low"), (float)ht_call_float(call, "high"));
    }
    if (c.copies_x) {
        turn_order(call->in[CONV_Q_X], c.in[CONV_Q_X], at, true, launch->pool);
        c.in[CONV_Q_X] = at;
        at += aligned_bytes(call->in[CONV_Q_X]);
    }
    if (c.copies_r) {
        turn_order(call->in[CONV_Q_R], c.in[CONV_Q_R], at, true, launch->pool);
        c.in[CONV_Q_R] = at;
        at += aligned_bytes(call->in[CONV_Q_R]);
    }
    if (c.copies_y) c.y = at;
    return c;
}

void ht_conv_q_end(const conv_q *c)
{
    if (c->copies_y) turn_order(c->call->out[0], c->y, c->launch->out[0], false, c->launch->pool);
}

/* ---- refusals ---- */

static bool is_dense_layout(const ht_type *type)
{
    return ht_type_contiguous(type) || lies_channels_last(type);
}

const char *ht_conv_q_can(const ht_call *call)
{
    const ht_type *r = given(call, CONV_Q_R);
    if (!is_dense_layout(call->out[0])) return "the result is neither row-major nor channels-last";
    if (!is_dense_layout(call->in[CONV_Q_X]) || (r && !is_dense_layout(r)))
        return "an input is neither row-major nor channels-last";
    for (size_t i = CONV_Q_X_SCALE; i < call->n_in; i++)
        if (i != CONV_Q_R && call->in[i] && !ht_type_contiguous(call->in[i]))
            return "a scale, a zero point or the bias is strided";
    return NULL;
}

bool ht_conv_q_is_depthwise(const ht_call *call)
{
    const ht_type *w = call->in[CONV_Q_W];
    return w->dim[1] == 1 && w->dim[0] == call->in[CONV_Q_X]->dim[1] && ht_call_int(call, "groups") == w->dim[0];
}

/* Rows of the product are channels. */
const char *ht_conv_q_takes(const ht_call *call, const ht_fusion *fusion, const ht_target *target)
{
    const ht_type *y = call->out[0];
    (void)target;
    if (fusion->before) return "a product takes no calls before it";
    if (y->dtype != HT_F32) return "the product is not f32";
    if (!lies_channels_last(y)) return "the result is not channels-last";
    return y->dim[1] / ht_call_int(call, "groups") < HT_LONG_ROW ? "there are too few channels for an epilogue" : NULL;
}
