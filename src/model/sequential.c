/* The model `sequential`: a list of layers, each the name of a layer or an object with its "type" and keys:
 *      {"type": "sequential", "layers": [{"type": "linear", "out": 64}, "relu", {"type": "linear"}]}
 * A layer is one row below. Parameters are named by position, as in PyTorch's Sequential: 0.weight, 2.weight. Sequences
 * of tokens are [B, T] and become [B, T, width] by an embedding. */
#include <stdio.h>
#include <string.h>

#include "model/layers.h"

enum { MAX_LIST = 1000 };

static const ht_key sequential_keys[] = {
    {"layers", HT_KEY_JSON, NULL, 0, 0, NULL, "list of layers: names, or objects with a type and its keys"},
    {0},
};

/* One use of a layer: its resolved keys, and its type for rows that serve several. */
typedef struct use {
    const ht_fields *f;
    const char *type;
} use;

typedef struct layer {
    const char *name;
    const ht_key *keys;
    ht_val (*build)(ht_build *b, const use *u, ht_val x);
} layer;

static ht_val build_list(ht_build *b, const ht_json *list, const char *block, ht_val x);

#define TYPE                                                                                                           \
    {"type", HT_KEY_TEXT, "null", 0, 0, NULL, "which layer"},                                                          \
    {                                                                                                                  \
        "checkpoint", HT_KEY_BOOL, "false", 0, 0, NULL, "backward computes it again instead of keeping what is inside" \
    }
#define END                                                                                                            \
    {                                                                                                                  \
        0                                                                                                              \
    }

static const ht_key no_keys[] = {TYPE, END};

static int64_t dim_of(const ht_build *b, ht_val x, int axis)
{
    return ht_val_dims(b->g, x)[axis];
}

static bool need_rank(ht_build *b, const char *layer_name, ht_val x, int rank, const char *shape)
{
    if (x.id && ht_val_rank(b->g, x) == rank) return true;
    ht_type_text have;
    if (x.id)
        ht_model_fail(b, "%s at layer %s needs %s, not %s", layer_name, b->path, shape,
                      ht_type_str(ht_type_of(b->g, x), &have));
    return false;
}

/* ---- weights ---- */

static const ht_key linear_keys[] = {
    TYPE,
    {"out", HT_KEY_INT, "null", 1, 1 << 24, NULL, "features that come out; what the data wants unless given"},
    {"bias", HT_KEY_BOOL, "true", 0, 0, NULL, "add a bias"},
    END,
};

static int64_t out_of(const ht_build *b, const use *u)
{
    return ht_field_null(u->f, "out") ? ht_task_width(b->r) : ht_field_int(u->f, "out");
}

/* A layer's parameters are named by the layer's position alone. */
static ht_val linear(ht_build *b, const use *u, ht_val x)
{
    if (!x.id || ht_val_rank(b->g, x) < 2 || !ht_dtype_is_float(ht_val_dtype(b->g, x))) {
        if (x.id)
            ht_model_fail(b, "linear at layer %s needs numbers [items, features]; tokens need an embedding first",
                          b->path);
        return HT_NONE;
    }
    ht_linear_spec spec = {.no_bias = !ht_field_bool(u->f, "bias")};
    return ht_layer_linear(b, "", x, out_of(b, u), &spec);
}

static const ht_key embedding_keys[] = {
    TYPE,
    {"out", HT_KEY_INT, "null", 1, 1 << 20, NULL, "width of a row; what the data wants unless given"},
    {"std", HT_KEY_NUMBER, "1", 0, 100, NULL, "deviation of first values"},
    END,
};

static ht_val embedding(ht_build *b, const use *u, ht_val x)
{
    if (!x.id || ht_dtype_is_float(ht_val_dtype(b->g, x))) {
        if (x.id) ht_model_fail(b, "embedding at layer %s needs tokens", b->path);
        return HT_NONE;
    }
    return ht_layer_embedding(b, "", x, b->r->vocabulary, out_of(b, u), HT_NORMAL(0, ht_field_number(u->f, "std")));
}

static const ht_key positions_keys[] = {
    TYPE,
    {"std", HT_KEY_NUMBER, "0.02", 0, 100, NULL, "deviation of first values"},
    END,
};

/* A learned vector for each place of a sequence, added. */
static ht_val positions(ht_build *b, const use *u, ht_val x)
{
    if (!need_rank(b, "positions", x, 3, "sequences [B, T, width]")) return HT_NONE;
    int64_t length = dim_of(b, x, 1), dims[] = {b->longest, dim_of(b, x, 2)};
    ht_val table = ht_layer_weight(b, "weight", 2, dims, HT_NORMAL(0, ht_field_number(u->f, "std")));
    if (b->positions.id) return ht_add(b->g, x, ht_embedding(b->g, table, b->positions));
    return ht_add(b->g, x, length == b->longest ? table : ht_slice_axis(b->g, table, 0, 0, length));
}

static const ht_key conv_keys[] = {
    TYPE,
    {"out", HT_KEY_INT, NULL, 1, 1 << 16, NULL, "channels that come out"},
    {"kernel", HT_KEY_INT, "3", 1, 1024, NULL, "side of the window"},
    {"stride", HT_KEY_INT, "1", 1, 1024, NULL, "step of the window"},
    {"padding", HT_KEY_INT, "0", 0, 1024, NULL, "zeros around the image"},
    {"groups", HT_KEY_INT, "1", 1, 1 << 16, NULL, "groups of channels that do not mix"},
    {"bias", HT_KEY_BOOL, "true", 0, 0, NULL, "add a bias"},
    END,
};

static ht_val conv2d(ht_build *b, const use *u, ht_val x)
{
    if (x.id && ht_val_rank(b->g, x) == 3)
        x = ht_reshape(b->g, x, 4, (int64_t[]){dim_of(b, x, 0), 1, dim_of(b, x, 1), dim_of(b, x, 2)});
    if (!need_rank(b, "conv2d", x, 4, "images [B, channels, height, width]")) return HT_NONE;
    ht_conv_spec spec = {
        .out = ht_field_int(u->f, "out"),
        .kernel = ht_field_int(u->f, "kernel"),
        .stride = ht_field_int(u->f, "stride"),
        .padding = ht_field_int(u->f, "padding"),
        .groups = ht_field_int(u->f, "groups"),
        .bias = ht_field_bool(u->f, "bias"),
    };
    return ht_layer_conv(b, "", x, spec);
}

static const ht_key lstm_keys[] = {
    TYPE,
    {"hidden", HT_KEY_INT, NULL, 1, 1 << 16, NULL, "units of a layer"},
    {"layers", HT_KEY_INT, "1", 1, 16, NULL, "layers"},
    {"dropout", HT_KEY_NUMBER, "0", 0, 0.99, NULL, "between layers, while training"},
    {"bidirectional", HT_KEY_BOOL, "false", 0, 0, NULL, "both directions, side by side: twice as many features"},
    END,
};

/* What reads a sequence from its end would read what a language model has to predict. */
static bool may_look_ahead(ht_build *b, const char *layer_name)
{
    if (b->r->task != HT_TASK_LM) return true;
    ht_model_fail(b, "%s at layer %s would show the next token to a model that has to predict it", layer_name, b->path);
    return false;
}

static ht_val lstm(ht_build *b, const use *u, ht_val x)
{
    ht_val h[16] = {HT_NONE}, c[16] = {HT_NONE};
    if (b->documents.id) ht_model_fail(b, "lstm at layer %s cannot keep packed documents apart", b->path);
    if (!need_rank(b, "lstm", x, 3, "sequences [B, T, width]")) return HT_NONE;
    if (ht_field_bool(u->f, "bidirectional")) {
        if (!may_look_ahead(b, "a bidirectional lstm")) return HT_NONE;
        x = ht_layer_lstm_both_ways(b, ht_transpose(b->g, x, 0, 1), ht_field_int(u->f, "hidden"),
                                    ht_field_int(u->f, "layers"), ht_field_number(u->f, "dropout"), b->lengths);
        return x.id ? ht_transpose(b->g, x, 0, 1) : HT_NONE;
    }
    x = ht_layer_lstm(b, "", ht_transpose(b->g, x, 0, 1), ht_field_int(u->f, "hidden"), ht_field_int(u->f, "layers"),
                      ht_field_number(u->f, "dropout"), b->lengths, h, c);
    return x.id ? ht_transpose(b->g, x, 0, 1) : HT_NONE;
}

/* Each sequence from its end to its start; its padding stays where it is. */
static ht_val reverse(ht_build *b, const use *u, ht_val x)
{
    (void)u;
    if (!need_rank(b, "reverse", x, 3, "sequences [B, T, width]") || !may_look_ahead(b, "reverse")) return HT_NONE;
    x = ht_layer_reverse(b, ht_transpose(b->g, x, 0, 1), b->lengths);
    return x.id ? ht_transpose(b->g, x, 0, 1) : HT_NONE;
}

static const ht_key attention_keys[] = {
    TYPE,
    {"heads", HT_KEY_INT, "1", 1, 1024, NULL, "attention heads; divide the width"},
    {"causal", HT_KEY_BOOL, "true", 0, 0, NULL, "a place sees itself and what is before it"},
    END,
};

static ht_val attention(ht_build *b, const use *u, ht_val x)
{
    if (!need_rank(b, "attention", x, 3, "sequences [B, T, width]")) return HT_NONE;
    int64_t heads = ht_field_int(u->f, "heads"), width = dim_of(b, x, 2), length = dim_of(b, x, 1);
    if (width % heads != 0 || length != b->r->length) {
        ht_model_fail(b, "attention at layer %s: a width of %lld is no multiple of %lld heads", b->path,
                      (long long)width, (long long)heads);
        return HT_NONE;
    }
    ht_val q = ht_layer_heads(b, ht_layer_linear(b, "query", x, width, NULL), width / heads);
    ht_val k = ht_layer_heads(b, ht_layer_linear(b, "key", x, width, NULL), width / heads);
    ht_val v = ht_layer_heads(b, ht_layer_linear(b, "value", x, width, NULL), width / heads);
    ht_attention_opts opts = {
        .size = sizeof opts, .causal = ht_field_bool(u->f, "causal"), .lengths = b->lengths, .document = b->documents};
    ht_val y = ht_layer_unheads(b, ht_attention(b->g, q, k, v, &opts));
    y = ht_reshape(b->g, y, 3, (int64_t[]){b->r->batch, length, -1});
    return ht_layer_linear(b, "out", y, width, NULL);
}

/* ---- norms, dropout, activations ---- */

static const ht_key norm_keys[] = {
    TYPE,
    {"eps", HT_KEY_NUMBER, "1e-5", 0, 1, NULL, "added to the variance"},
    END,
};

static ht_val layernorm(ht_build *b, const use *u, ht_val x)
{
    return ht_layer_norm(b, "", x, ht_field_number(u->f, "eps"), true);
}

static ht_val rmsnorm(ht_build *b, const use *u, ht_val x)
{
    return ht_layer_rms(b, "", x, ht_field_number(u->f, "eps"));
}

static ht_val batchnorm(ht_build *b, const use *u, ht_val x)
{
    (void)u;
    return ht_layer_batchnorm(b, "", x, 1);
}

static const ht_key dropout_keys[] = {
    TYPE,
    {"p", HT_KEY_NUMBER, "0.5", 0, 0.99, NULL, "part that is dropped, while training"},
    END,
};

static ht_val dropout(ht_build *b, const use *u, ht_val x)
{
    return ht_layer_dropout(b, "dropout", x, ht_field_number(u->f, "p"));
}

static ht_val activation(ht_build *b, const use *u, ht_val x)
{
    return x.id ? ht_layer_activation(b, u->type, x) : HT_NONE;
}

/* ---- shapes ---- */

static const ht_key pool_keys[] = {
    TYPE,
    {"window", HT_KEY_INT, "2", 1, 1024, NULL, "side of the window"},
    {"stride", HT_KEY_INT, "null", 1, 1024, NULL, "step of the window; its side unless given"},
    {"padding", HT_KEY_INT, "0", 0, 512, NULL, "around the image"},
    END,
};

static ht_val pool(ht_build *b, const use *u, ht_val x)
{
    if (!need_rank(b, "pooling", x, 4, "images [B, channels, height, width]")) return HT_NONE;
    int64_t window = ht_field_int(u->f, "window"), padding = ht_field_int(u->f, "padding");
    int64_t stride = ht_field_null(u->f, "stride") ? window : ht_field_int(u->f, "stride");
    ht_pool_opts opts = {.size = sizeof opts, {window, window}, {stride, stride}, {padding, padding}, false};
    bool max = strcmp(u->type, "max_pool") == 0;
    return max ? ht_max_pool2d(b->g, x, &opts) : ht_avg_pool2d(b->g, x, &opts);
}

static ht_val global_avg_pool(ht_build *b, const use *u, ht_val x)
{
    (void)u;
    return need_rank(b, "global_avg_pool", x, 4, "images") ? ht_global_avg_pool2d(b->g, x) : HT_NONE;
}

static ht_val flatten(ht_build *b, const use *u, ht_val x)
{
    (void)u;
    return ht_layer_flatten(b, x);
}

/* The last place of each sequence before its padding, [B, width]. */
static ht_val last(ht_build *b, const use *u, ht_val x)
{
    (void)u;
    if (!need_rank(b, "last", x, 3, "sequences [B, T, width]")) return HT_NONE;
    if (b->lengths.id) {
        int64_t batch = dim_of(b, x, 0), place[] = {batch, 1, dim_of(b, x, 2)};
        ht_val end = ht_reshape(b->g, ht_add_scalar(b->g, b->lengths, -1), 3, (int64_t[]){batch, 1, 1});
        return ht_layer_flatten(b, ht_gather(b->g, x, ht_expand(b->g, end, 3, place), 1));
    }
    return ht_layer_flatten(b, ht_slice_axis(b->g, x, 1, dim_of(b, x, 1) - 1, 1));
}

/* Over the places of each sequence before its padding: [B, width]. */
static ht_val mean(ht_build *b, const use *u, ht_val x)
{
    (void)u;
    if (!need_rank(b, "mean", x, 3, "sequences [B, T, width]")) return HT_NONE;
    if (b->lengths.id) {
        int64_t batch = dim_of(b, x, 0), steps = dim_of(b, x, 1);
        ht_val place = ht_iota(b->g, HT_I32, 3, (int64_t[]){1, steps, 1}, 1);
        ht_val within = ht_lt(b->g, place, ht_reshape(b->g, b->lengths, 3, (int64_t[]){batch, 1, 1}));
        ht_val known = ht_select(b->g, within, x, ht_fill_like(b->g, x, 0));
        ht_val count = ht_cast(b->g, ht_reshape(b->g, b->lengths, 2, (int64_t[]){batch, 1}), ht_val_dtype(b->g, x));
        return ht_div(b->g, ht_sum(b->g, known, 1, (int64_t[]){1}, false), count);
    }
    return ht_mean(b->g, x, 1, (int64_t[]){1}, false);
}

static const ht_key residual_keys[] = {
    TYPE,
    {"layers", HT_KEY_JSON, NULL, 0, 0, NULL, "list of layers whose result is added to what went in"},
    END,
};

static ht_val residual(ht_build *b, const use *u, ht_val x)
{
    ht_val y = build_list(b, ht_field_json(u->f, "layers"), b->path, x);
    if (!x.id || !y.id) return HT_NONE;
    if (ht_type_same_shape(ht_type_of(b->g, x), ht_type_of(b->g, y))) return ht_add(b->g, x, y);
    ht_type_text in, out;
    ht_model_fail(b, "residual at layer %s: %s goes in and %s comes out", b->path,
                  ht_type_str(ht_type_of(b->g, x), &in), ht_type_str(ht_type_of(b->g, y), &out));
    return HT_NONE;
}

/* ---- the table ---- */

static const layer layers[] = {
    {"linear", linear_keys, linear},
    {"embedding", embedding_keys, embedding},
    {"positions", positions_keys, positions},
    {"conv2d", conv_keys, conv2d},
    {"lstm", lstm_keys, lstm},
    {"reverse", no_keys, reverse},
    {"attention", attention_keys, attention},
    {"layernorm", norm_keys, layernorm},
    {"rmsnorm", norm_keys, rmsnorm},
    {"batchnorm", no_keys, batchnorm},
    {"dropout", dropout_keys, dropout},
    {"relu", no_keys, activation},
    {"gelu", no_keys, activation},
    {"gelu_tanh", no_keys, activation},
    {"silu", no_keys, activation},
    {"tanh", no_keys, activation},
    {"sigmoid", no_keys, activation},
    {"max_pool", pool_keys, pool},
    {"avg_pool", pool_keys, pool},
    {"global_avg_pool", no_keys, global_avg_pool},
    {"flatten", no_keys, flatten},
    {"last", no_keys, last},
    {"mean", no_keys, mean},
    {"residual", residual_keys, residual},
};
enum { LAYERS = sizeof layers / sizeof layers[0] };

/* Layers with control flow, refused with a message, since a graph is static. */
static bool is_control(const char *type)
{
    static const char *const words[] = {"while", "for", "loop", "if", "cond", "switch", "scan", "repeat", "goto"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i], type) == 0) return true;
    return false;
}

static const layer *find_layer(ht_build *b, const char *type, const char *block)
{
    const char *nearest = NULL;
    int distance = 4;
    for (size_t i = 0; i < LAYERS; i++) {
        if (strcmp(layers[i].name, type) == 0) return &layers[i];
        int d = ht_edit_distance(layers[i].name, type);
        if (d < distance) nearest = layers[i].name, distance = d;
    }
    if (is_control(type))
        ht_model_fail(b,
                      "%s: '%s': the graph is static and computes the same for every batch; what depends on the data "
                      "cannot choose or repeat layers",
                      block, type);
    else
        ht_model_fail(b, "%s: there is no layer '%s'%s%s%s", block, type, nearest ? "; did you mean '" : "",
                      nearest ? nearest : "", nearest ? "'?" : "");
    return NULL;
}

static ht_val build_layer(ht_build *b, const ht_json *entry, const char *block, ht_val x)
{
    const ht_json *type = entry->kind == HT_JSON_OBJECT ? ht_json_get(entry, "type") : entry;
    if (!type || type->kind != HT_JSON_STRING) {
        ht_model_fail(b, "%s: a layer is a name, or an object with a \"type\"", block);
        return HT_NONE;
    }
    const layer *row = find_layer(b, type->text, block);
    if (!row) return HT_NONE;
    ht_fields *f = NULL;
    ht_status status = ht_fields_read(&f, b->g->ctx, row->keys, block, entry->kind == HT_JSON_OBJECT ? entry : NULL);
    if (status != HT_OK) {
        b->g->status = status;
        return HT_NONE;
    }
    ht_val y = row->build(b, &(use){f, type->text}, x);
    if (y.id && y.id != x.id && ht_field_bool(f, "checkpoint")) ht_checkpoint(b->g, x, y);
    ht_fields_free(f);
    return y;
}

static ht_val build_list(ht_build *b, const ht_json *list, const char *block, ht_val x)
{
    if (!list || list->kind != HT_JSON_ARRAY || list->count > MAX_LIST) {
        ht_model_fail(b, "%s: layers are a list, of %d at most", block, MAX_LIST);
        return HT_NONE;
    }
    size_t i = 0;
    for (const ht_json *entry = list->child; entry && x.id; entry = entry->next, i++) {
        char name[sizeof b->path + 16];
        ht_enter(b, "%zu", i);
        snprintf(name, sizeof name, "layers.%s", b->path);
        x = build_layer(b, entry, name, x);
        ht_leave(b);
    }
    return x;
}

static ht_val sequential_logits(ht_build *b)
{
    ht_val x = build_list(b, ht_field_json(b->f, "layers"), "model", b->tokens.id ? b->tokens : b->x);
    if (x.id && b->tokens.id && ht_val_rank(b->g, x) == 3 && b->r->task != HT_TASK_CLASS)
        x = ht_reshape(b->g, x, 2, (int64_t[]){b->r->batch * b->r->length, -1});
    return x;
}

const ht_model ht_model_sequential = {
    .name = "sequential",
    .help = "a model of one's own as a list of layers",
    .keys = sequential_keys,
    .tasks = 1u << HT_TASK_LM | 1u << HT_TASK_MASKED_LM | 1u << HT_TASK_CLASS | 1u << HT_TASK_REGRESSION,
    .packs = true,
    .logits = sequential_logits,
};
