/* Layers: parameters with names and initial values, linear, embedding, norms, convolution, attention, LSTM. */
#include "model/layers.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- names ---- */

void ht_enter(ht_build *b, const char *format, ...)
{
    char name[128];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(name, sizeof name, format, args);
    va_end(args);
    size_t at = strlen(b->path);
    if (b->depth == HT_PATH_DEPTH || length < 0 || (size_t)length >= sizeof name ||
        at + (size_t)length + 2 > sizeof b->path) {
        ht_model_fail(b, "layers are nested too deeply, or their names are too long");
        return;
    }
    b->marks[b->depth++] = at;
    if (length == 0) return;
    snprintf(b->path + at, sizeof b->path - at, "%s%s", at ? "." : "", name);
    ht_scope_push(b->g, name);
}

void ht_leave(ht_build *b)
{
    if (b->depth == 0) return;
    size_t at = b->marks[--b->depth];
    if (b->path[at] == 0) return;
    b->path[at] = 0;
    ht_scope_pop(b->g);
}

void ht_model_fail(ht_build *b, const char *format, ...)
{
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    ht_graph_fail(b->g, HT_EINVAL, "model %s: %s", b->r->model->name, message);
}

/* ---- state ---- */

static ht_val find_or_add(ht_build *b, const char *leaf, int rank, const int64_t *dims, ht_init init, bool trained)
{
    char name[sizeof b->path + 64];
    snprintf(name, sizeof name, "%s%s%s", b->path, b->path[0] ? "." : "", leaf);
    ht_val found = ht_find(b->g, name);
    if (!found.id && trained) return ht_param(b->g, name, HT_F32, rank, dims, init);
    if (!found.id) return ht_state_add(b->g, name, HT_F32, rank, dims, init);
    bool same = ht_val_rank(b->g, found) == rank;
    for (int i = 0; same && i < rank; i++) same = ht_val_dims(b->g, found)[i] == dims[i];
    if (same) return found;
    ht_model_fail(b, "%s is wanted in two shapes", name);
    return HT_NONE;
}

ht_val ht_layer_weight(ht_build *b, const char *leaf, int rank, const int64_t *dims, ht_init init)
{
    return find_or_add(b, leaf, rank, dims, init, true);
}

ht_val ht_layer_statistic(ht_build *b, const char *leaf, int rank, const int64_t *dims, ht_init init)
{
    return find_or_add(b, leaf, rank, dims, init, false);
}

int64_t ht_layer_width(ht_build *b, int64_t own)
{
    const ht_json *width = ht_json_get(b->r->widths, b->path);
    int64_t given;
    return width && ht_json_as_int(width, &given) ? given : own;
}

/* ---- linear, embedding, norms ---- */

static int64_t last_dim(const ht_build *b, ht_val x)
{
    int rank = ht_val_rank(b->g, x);
    return rank > 0 ? ht_val_dims(b->g, x)[rank - 1] : 1;
}

/* PyTorch's initialisation: uniform within 1/√(fan in). */
static ht_init by_fan_in(int64_t fan_in)
{
    double bound = fan_in > 0 ? 1 / sqrt((double)fan_in) : 0;
    return HT_UNIFORM(-bound, bound);
}

ht_val ht_layer_linear(ht_build *b, const char *name, ht_val x, int64_t out, const ht_linear_spec *spec)
{
    if (!x.id) return HT_NONE;
    ht_linear_spec s = spec ? *spec : (ht_linear_spec){0};
    int64_t in = last_dim(b, x);
    if (!s.given) s.weight = s.bias = by_fan_in(in);
    ht_enter(b, "%s", name);
    out = ht_layer_width(b, out);
    ht_matmul_opts opts = {.size = sizeof opts, .transpose_b = !s.in_first};
    ht_val w = ht_layer_weight(b, "weight", 2, s.in_first ? (int64_t[]){in, out} : (int64_t[]){out, in}, s.weight);
    ht_val y = ht_matmul(b->g, x, w, &opts);
    if (!s.no_bias) y = ht_add(b->g, y, ht_layer_weight(b, "bias", 1, &out, s.bias));
    ht_leave(b);
    return y;
}

ht_val ht_layer_embedding(ht_build *b, const char *name, ht_val index, int64_t rows, int64_t width, ht_init init)
{
    ht_enter(b, "%s", name);
    ht_val y = ht_embedding(b->g, ht_layer_weight(b, "weight", 2, (int64_t[]){rows, width}, init), index);
    ht_leave(b);
    return y;
}

ht_val ht_layer_norm(ht_build *b, const char *name, ht_val x, double eps, bool bias)
{
    if (!x.id) return HT_NONE;
    int64_t width = last_dim(b, x);
    ht_enter(b, "%s", name);
    ht_val scale = ht_layer_weight(b, "weight", 1, &width, HT_CONSTANT(1));
    ht_val shift = bias ? ht_layer_weight(b, "bias", 1, &width, HT_ZERO) : HT_NONE;
    ht_val y = ht_layernorm(b->g, x, scale, shift, eps);
    ht_leave(b);
    return y;
}

ht_val ht_layer_rms(ht_build *b, const char *name, ht_val x, double eps)
{
    if (!x.id) return HT_NONE;
    int64_t width = last_dim(b, x);
    ht_enter(b, "%s", name);
    ht_val y = ht_rmsnorm(b->g, x, ht_layer_weight(b, "weight", 1, &width, HT_CONSTANT(1)), eps);
    ht_leave(b);
    return y;
}

/* ---- point-wise ---- */

ht_val ht_layer_dropout(ht_build *b, const char *name, ht_val x, double p)
{
    if (!b->training || p == 0 || !x.id) return x;
    char site[sizeof b->path + 64];
    snprintf(site, sizeof site, "%s%s%s", b->path, b->path[0] ? "." : "", name);
    return ht_dropout(b->g, x, p, ht_rng_state(b->g), site);
}

ht_val ht_layer_dropout_time_major(ht_build *b, const char *name, ht_val x, double p)
{
    ht_val y = ht_layer_dropout(b, name, x, p);
    return y.id == x.id ? x : ht_batch_axis(b->g, y, 1);
}

ht_val ht_layer_activation(ht_build *b, const char *which, ht_val x)
{
    static const struct {
        const char *name;
        ht_val (*op)(ht_graph *g, ht_val x);
    } activations[] = {
        {"relu", ht_relu}, {"gelu", ht_gelu}, {"gelu_tanh", ht_gelu_tanh},
        {"silu", ht_silu}, {"tanh", ht_tanh}, {"sigmoid", ht_sigmoid},
    };
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++)
        if (strcmp(activations[i].name, which) == 0) return activations[i].op(b->g, x);
    ht_model_fail(b, "there is no activation '%s'", which);
    return HT_NONE;
}

/* ---- images ---- */

ht_val ht_layer_conv(ht_build *b, const char *name, ht_val x, ht_conv_spec s)
{
    if (!x.id) return HT_NONE;
    if (ht_val_rank(b->g, x) != 4) {
        ht_model_fail(b, "%s: a convolution needs images [channels, height, width]", name);
        return HT_NONE;
    }
    ht_enter(b, "%s", name);
    int64_t groups = s.groups ? s.groups : 1, stride = s.stride ? s.stride : 1, in = ht_val_dims(b->g, x)[1];
    int64_t out_of_group = s.out / groups;
    /* A width of its own: fewer groups as large as before. */
    s.out = ht_layer_width(b, s.out);
    if (groups > 1 && out_of_group > 0) groups = s.out / out_of_group;
    if (groups == 0 || in % groups != 0 || s.out % groups != 0) {
        ht_model_fail(b, "conv2d at layer %s: %lld groups divide neither %lld channels nor %lld", b->path,
                      (long long)groups, (long long)in, (long long)s.out);
        return HT_NONE;
    }
    int64_t per_group = in / groups, area = s.kernel * s.kernel;
    ht_conv_opts opts = HT_CONV_OPTS;
    opts.stride[0] = opts.stride[1] = stride;
    opts.padding[0] = opts.padding[1] = s.padding;
    opts.groups = groups;
    /* He initialisation by the fan out, as ResNet and MobileNetV2 use it: without a bias, a norm and ReLU follow. */
    ht_init init = s.bias ? by_fan_in(per_group * area) : HT_NORMAL(0, sqrt(2.0 / (double)(s.out * area)));
    ht_val w = ht_layer_weight(b, "weight", 4, (int64_t[]){s.out, per_group, s.kernel, s.kernel}, init);
    ht_val bias = s.bias ? ht_layer_weight(b, "bias", 1, &s.out, by_fan_in(per_group * area)) : HT_NONE;
    ht_val y = ht_conv2d(b->g, x, w, bias, &opts);
    ht_leave(b);
    return y;
}

ht_val ht_layer_batchnorm(ht_build *b, const char *name, ht_val x, double start)
{
    if (!x.id) return HT_NONE;
    if (ht_val_rank(b->g, x) < 2) {
        ht_model_fail(b, "%s: batch norm needs [items, channels, ..]", name);
        return HT_NONE;
    }
    int64_t channels = ht_val_dims(b->g, x)[1], values = 1;
    for (int i = 0; i < ht_val_rank(b->g, x); i++) values *= i == 1 ? 1 : ht_val_dims(b->g, x)[i];
    if (b->training && values == 1) {
        ht_model_fail(b, "%s: batch norm trains on more than one value per channel; take a larger batch", name);
        return HT_NONE;
    }
    ht_enter(b, "%s", name);
    ht_val scale = ht_layer_weight(b, "weight", 1, &channels, HT_CONSTANT(start));
    ht_val shift = ht_layer_weight(b, "bias", 1, &channels, HT_ZERO);
    ht_val mean = ht_layer_statistic(b, "running_mean", 1, &channels, HT_ZERO);
    ht_val variance = ht_layer_statistic(b, "running_var", 1, &channels, HT_CONSTANT(1));
    ht_val y = b->training ? ht_batchnorm_train(b->g, x, scale, shift, mean, variance, 0.1, 1e-5)
                           : ht_batchnorm_eval(b->g, x, scale, shift, mean, variance, 1e-5);
    ht_leave(b);
    return y;
}

ht_val ht_layer_image(ht_build *b)
{
    const ht_model_request *r = b->r;
    if (r->feature_rank == 3) return b->x;
    if (r->feature_rank == 2) return ht_reshape(b->g, b->x, 4, (int64_t[]){r->batch, 1, r->feature[0], r->feature[1]});
    ht_model_fail(b, "needs images [channels, height, width] or [height, width], not items of rank %d",
                  r->feature_rank);
    return HT_NONE;
}

ht_val ht_layer_flatten(ht_build *b, ht_val x)
{
    if (!x.id) return HT_NONE;
    return ht_reshape(b->g, x, 2, (int64_t[]){ht_val_dims(b->g, x)[0], -1});
}

/* ---- sequences ---- */

ht_val ht_layer_heads(ht_build *b, ht_val x, int64_t head_width)
{
    if (!x.id) return HT_NONE;
    ht_val split = ht_reshape(b->g, x, 4, (int64_t[]){b->r->batch, b->r->length, -1, head_width});
    return ht_permute(b->g, split, 4, (int64_t[]){0, 2, 1, 3});
}

ht_val ht_layer_unheads(ht_build *b, ht_val x)
{
    if (!x.id) return HT_NONE;
    ht_val y = ht_permute(b->g, x, 4, (int64_t[]){0, 2, 1, 3});
    return ht_reshape(b->g, y, 2, (int64_t[]){b->r->batch * b->r->length, -1});
}

ht_val ht_layer_time_major(ht_build *b, ht_val tokens)
{
    return tokens.id ? ht_transpose(b->g, tokens, 0, 1) : HT_NONE;
}

ht_val ht_layer_rows(ht_build *b, ht_val tokens)
{
    return tokens.id ? ht_reshape(b->g, tokens, 1, (int64_t[]){-1}) : HT_NONE;
}

/* One layer in one direction; PyTorch adds "_reverse" to the names of the other one. */
static ht_val one_lstm(ht_build *b, int64_t layer, const char *direction, ht_val x, int64_t hidden, ht_val lengths,
                       ht_val *h, ht_val *c)
{
    char leaf[48];
    int64_t gates = 4 * hidden, batch = ht_val_dims(b->g, x)[1];
    ht_init init = by_fan_in(hidden);
    snprintf(leaf, sizeof leaf, "weight_ih_l%d%s", (int)layer, direction);
    ht_val w_input = ht_layer_weight(b, leaf, 2, (int64_t[]){gates, last_dim(b, x)}, init);
    snprintf(leaf, sizeof leaf, "weight_hh_l%d%s", (int)layer, direction);
    ht_val w_hidden = ht_layer_weight(b, leaf, 2, (int64_t[]){gates, hidden}, init);
    /* Two biases, as PyTorch's files have: the sum learns twice as fast as one would. */
    snprintf(leaf, sizeof leaf, "bias_ih_l%d%s", (int)layer, direction);
    ht_val bias_input = ht_layer_weight(b, leaf, 1, &gates, init);
    snprintf(leaf, sizeof leaf, "bias_hh_l%d%s", (int)layer, direction);
    ht_val bias = ht_add(b->g, bias_input, ht_layer_weight(b, leaf, 1, &gates, init));
    ht_val zero = ht_fill(b->g, HT_F32, 2, (int64_t[]){batch, hidden}, 0);
    ht_lstm_out out = ht_lstm(b->g, x, h->id ? *h : zero, c->id ? *c : zero, w_input, w_hidden, bias, lengths);
    *h = out.h;
    *c = out.c;
    return out.y;
}

static ht_val dropout_between(ht_build *b, int64_t layer, ht_val x, double dropout)
{
    char site[32];
    snprintf(site, sizeof site, "dropout_l%d", (int)layer);
    return layer > 0 ? ht_layer_dropout_time_major(b, site, x, dropout) : x;
}

ht_val ht_layer_lstm(ht_build *b, const char *name, ht_val x, int64_t hidden, int64_t layers, double dropout,
                     ht_val lengths, ht_val *h, ht_val *c)
{
    ht_enter(b, "%s", name);
    for (int64_t i = 0; i < layers && x.id; i++) {
        x = dropout_between(b, i, x, dropout);
        x = one_lstm(b, i, "", x, hidden, lengths, &h[i], &c[i]);
    }
    ht_leave(b);
    return x;
}

ht_val ht_layer_lstm_both_ways(ht_build *b, ht_val x, int64_t hidden, int64_t layers, double dropout, ht_val lengths)
{
    for (int64_t i = 0; i < layers && x.id; i++) {
        ht_val h[2] = {HT_NONE, HT_NONE}, c[2] = {HT_NONE, HT_NONE};
        x = dropout_between(b, i, x, dropout);
        if (!x.id) return HT_NONE;
        ht_val forward = one_lstm(b, i, "", x, hidden, lengths, &h[0], &c[0]);
        ht_val other = ht_layer_reverse(b, x, lengths);
        if (!other.id) return HT_NONE;
        other = ht_layer_reverse(b, one_lstm(b, i, "_reverse", other, hidden, lengths, &h[1], &c[1]), lengths);
        x = ht_concat(b->g, 2, (ht_val[]){forward, other}, 2);
    }
    return x;
}

ht_val ht_layer_reverse(ht_build *b, ht_val x, ht_val lengths)
{
    ht_graph *g = b->g;
    if (!x.id) return HT_NONE;
    int64_t steps = ht_val_dims(g, x)[0], batch = ht_val_dims(g, x)[1], width = last_dim(b, x);
    ht_val place = ht_iota(g, HT_I32, 2, (int64_t[]){steps, batch}, 0),
           row = ht_iota(g, HT_I32, 2, (int64_t[]){steps, batch}, 1);
    ht_val from = ht_add_scalar(g, ht_neg(g, place), (double)(steps - 1));
    if (lengths.id) {
        ht_val length = ht_expand(g, ht_reshape(g, lengths, 2, (int64_t[]){1, batch}), 2, (int64_t[]){steps, batch});
        ht_val within = ht_lt(g, place, length);
        from = ht_select(g, within, ht_add_scalar(g, ht_sub(g, length, place), -1), place);
    }
    ht_val index = ht_add(g, ht_scale(g, from, (double)batch), row);
    return ht_embedding(g, ht_reshape(g, x, 2, (int64_t[]){steps * batch, width}), index);
}
