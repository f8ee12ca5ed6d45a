#include "random_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

random_graph random_graph_make(uint64_t seed)
{
    return (random_graph){.stream = {.seed = seed, .site = ht_hash_text("random_graph")}};
}

uint32_t random_graph_next(random_graph *d, uint32_t n)
{
    return ht_stream_word(&d->stream, d->next++) % n;
}

enum { ROOM = 512, COPIES = 4 };

/* A copy that has begun. */
typedef struct begun {
    ht_val copy, from;
} begun;

typedef struct bench {
    ht_graph *g;
    random_graph d;
    ht_val values[ROOM]; /* that the next node may read; all in main */
    size_t count;
    begun begun[COPIES];
    size_t begun_count;
    bool lookups;
    int further; /* inputs beside the first ones */
} bench;

static void keep_value(bench *b, ht_val v)
{
    if (v.id && b->count < ROOM) b->values[b->count++] = v;
}

/* Newer values more often, so that chains grow. */
static ht_val any_value(bench *b)
{
    uint32_t back =
        random_graph_next(&b->d, 3) ? random_graph_next(&b->d, 8) : random_graph_next(&b->d, (uint32_t)b->count);
    return b->values[b->count - 1 - back % b->count];
}

static ht_val any_float(bench *b)
{
    for (int i = 0; i < 20; i++) {
        ht_val v = any_value(b);
        if (ht_dtype_is_float(ht_val_dtype(b->g, v))) return v;
    }
    return b->values[0];
}

/* Of the same shape as `like`, itself if there is no other. */
static ht_val partner(bench *b, ht_val like)
{
    for (int i = 0; i < 12; i++) {
        ht_val v = any_float(b);
        if (ht_type_same_shape(ht_type_of(b->g, v), ht_type_of(b->g, like))) return v;
    }
    return like;
}

static const ht_type shapes[] = {
    {.dtype = HT_F32, .rank = 2, .dim = {4, 6}}, {.dtype = HT_F32, .rank = 2, .dim = {6, 4}},
    {.dtype = HT_F32, .rank = 2, .dim = {4, 4}}, {.dtype = HT_F32, .rank = 1, .dim = {6}},
    {.dtype = HT_F32, .rank = 1, .dim = {4}},    {.dtype = HT_F32, .rank = 0},
    {.dtype = HT_F32, .rank = 2, .dim = {4, 1}}, {.dtype = HT_BF16, .rank = 2, .dim = {4, 6}},
    {.dtype = HT_F32, .rank = 2, .dim = {0, 6}}, {.dtype = HT_F64, .rank = 1, .dim = {24}},
};

static const ht_type *any_shape(bench *b)
{
    return &shapes[random_graph_next(&b->d, sizeof shapes / sizeof shapes[0])];
}

/* ---- nodes ---- */

static ht_val point1(bench *b)
{
    static const char *const names[] = {"tanh", "neg", "abs", "relu", "sigmoid", "neg", "sin"};
    ht_val x = any_float(b);
    ht_type want = *ht_type_of(b->g, x);
    return ht_emit1(b->g, names[random_graph_next(&b->d, 7)], &want, HT_VALS(x), HT_NO_ATTRS);
}

static ht_val point2(bench *b)
{
    static const char *const names[] = {"add", "mul", "sub", "max", "add", "mul"};
    ht_val x = any_float(b);
    return ht_emit1(b->g, names[random_graph_next(&b->d, 6)], NULL, HT_VALS(x, partner(b, x)), HT_NO_ATTRS);
}

static ht_val number(bench *b)
{
    static const double numbers[] = {0, 1, -0.0, 0.3, -2, 1, 0};
    ht_val x = any_float(b);
    const ht_type *t = any_shape(b);
    double value = numbers[random_graph_next(&b->d, 7)];
    switch (random_graph_next(&b->d, 5)) {
    case 0: return ht_scale(b->g, x, value);
    case 1: return ht_add_scalar(b->g, x, value);
    case 2: return ht_sub(b->g, x, ht_fill_like(b->g, x, value));
    case 3: return ht_constant(b->g, HT_F32, 1, (int64_t[]){4}, (double[]){value, 1, 0.1, random_graph_next(&b->d, 2)});
    default: return ht_fill(b->g, t->dtype, t->rank, t->dim, value);
    }
}

static ht_val condition(bench *b)
{
    ht_val x = any_float(b), y = partner(b, x);
    ht_val c = random_graph_next(&b->d, 2)
                   ? ht_lt(b->g, x, y)
                   : ht_fill(b->g, HT_BOOL, ht_val_rank(b->g, x), ht_val_dims(b->g, x), random_graph_next(&b->d, 2));
    if (random_graph_next(&b->d, 2)) c = ht_not(b->g, c);
    return ht_select(b->g, c, x, partner(b, x));
}

static ht_val reduction(bench *b)
{
    ht_val x = any_float(b);
    int rank = ht_val_rank(b->g, x);
    int64_t axis = rank ? random_graph_next(&b->d, (uint32_t)rank) : 0;
    bool keep = random_graph_next(&b->d, 2);
    switch (random_graph_next(&b->d, 4)) {
    case 0: return ht_sum(b->g, x, rank ? 1 : 0, &axis, keep);
    case 1: return ht_norm(b->g, x, 0, NULL, false);
    case 2: return rank ? ht_softmax(b->g, x, (int)axis) : ht_tanh(b->g, x);
    default: {
        /* With the way back to the full shape. */
        ht_type like = *ht_type_of(b->g, x);
        ht_val row = ht_sum(b->g, x, rank ? 1 : 0, &axis, true);
        return ht_sub(b->g, x, ht_expand(b->g, row, like.rank, like.dim));
    }
    }
}

static ht_val move(bench *b)
{
    ht_val x = any_value(b);
    ht_type t = *ht_type_of(b->g, x);
    int64_t order[2] = {1, 0}, wide[HT_MAX_RANK + 1] = {2}, elems = ht_type_elems(&t);
    for (int i = 0; i < t.rank; i++) wide[1 + i] = t.dim[i];
    switch (random_graph_next(&b->d, 6)) {
    case 0: return t.rank == 2 ? ht_permute(b->g, x, 2, order) : x;
    case 1: return ht_reshape(b->g, x, 1, &elems);
    case 2: return elems == 24 ? ht_reshape(b->g, x, 2, (int64_t[]){4, 6}) : x;
    case 3: return t.rank < 3 && elems < 100 ? ht_expand(b->g, x, t.rank + 1, wide) : x;
    case 4: return t.rank == 2 && t.dim[0] == 4 ? ht_slice_axis(b->g, x, 0, 1, 2) : x;
    default: return t.rank == 2 && elems < 100 ? ht_concat(b->g, 2, (ht_val[]){x, x}, 1) : x;
    }
}

static ht_val dot(bench *b)
{
    ht_val x = any_float(b);
    if (ht_val_rank(b->g, x) != 2) return HT_NONE;
    ht_matmul_opts opts = {sizeof opts, false, true};
    ht_val y = ht_matmul(b->g, x, x, &opts);
    return random_graph_next(&b->d, 2) ? y : ht_tanh(b->g, y);
}

static ht_val narrow(bench *b)
{
    static const ht_dtype types[] = {HT_F32, HT_BF16, HT_F16, HT_F64};
    ht_val x = any_float(b);
    ht_type want = *ht_type_of(b->g, x);
    want.dtype = types[random_graph_next(&b->d, 4)];
    return ht_emit1(b->g, "cast", &want, HT_VALS(x), HT_NO_ATTRS);
}

/* Computed in host memory. */
static ht_val away(bench *b)
{
    ht_val x = ht_to_space(b->g, any_float(b), HT_SPACE_HOST);
    ht_val y = random_graph_next(&b->d, 2) ? ht_scale(b->g, ht_tanh(b->g, x), 0.5) : ht_add(b->g, x, ht_neg(b->g, x));
    return ht_to_space(b->g, y, HT_SPACE_MAIN);
}

static ht_val begin_copy(bench *b)
{
    if (b->begun_count == COPIES) return HT_NONE;
    ht_val x = any_value(b);
    ht_type want = *ht_type_of(b->g, x);
    if (random_graph_next(&b->d, 3)) want.space = HT_SPACE_HOST;
    ht_val copy = ht_emit1(b->g, "copy_start", &want, HT_VALS(x), HT_NO_ATTRS);
    b->begun[b->begun_count++] = (begun){copy, x};
    return HT_NONE;
}

static ht_val end_copy(bench *b)
{
    if (!b->begun_count) return HT_NONE;
    begun *ends = &b->begun[random_graph_next(&b->d, (uint32_t)b->begun_count)];
    ht_val y = ht_emit1(b->g, "copy_done", NULL, HT_VALS(ends->copy, ends->from), HT_NO_ATTRS);
    *ends = b->begun[--b->begun_count];
    return ht_to_space(b->g, y, HT_SPACE_MAIN);
}

/* ---- products of two values, and what reads only a part of an operand ---- */

static ht_val further_input(bench *b, ht_dtype dtype, int rank, const int64_t *dim)
{
    char name[24];
    ht_type type = ht_type_make(dtype, rank, dim);
    snprintf(name, sizeof name, "further%d", b->further++);
    return ht_graph_add_input(b->g, name, &type, ht_dtype_is_float(dtype) ? HT_NORMAL(0, 1) : HT_ZERO);
}

static ht_val index_input(bench *b, int rank, const int64_t *dim)
{
    return further_input(b, random_graph_next(&b->d, 2) ? HT_I32 : HT_I64, rank, dim);
}

/* With one axis at least, and that not empty; none: it was not found. */
static ht_val any_rows(bench *b, int rank)
{
    for (int i = 0; i < 12; i++) {
        ht_val v = any_float(b);
        int has = ht_val_rank(b->g, v);
        if (has >= 1 && (rank == 0 || has == rank) && ht_val_dims(b->g, v)[0] > 0) return v;
    }
    return HT_NONE;
}

static ht_val product(bench *b)
{
    ht_val x = any_rows(b, 2);
    if (!x.id) return HT_NONE;
    int64_t dim[2] = {ht_val_dims(b->g, x)[1], 1 + random_graph_next(&b->d, 6)};
    return ht_matmul(b->g, x, further_input(b, ht_val_dtype(b->g, x), 2, dim), NULL);
}

/* Fewer rows than the table has, or more. */
static ht_val rows_of_table(bench *b)
{
    ht_val table = any_rows(b, 2);
    if (!table.id) return HT_NONE;
    int64_t rows = ht_val_dims(b->g, table)[0], dim[2] = {1 + random_graph_next(&b->d, (uint32_t)rows + 3), 2};
    ht_val index = index_input(b, 1 + (int)random_graph_next(&b->d, 2), dim);
    ht_val y = ht_embedding(b->g, table, index);
    if (random_graph_next(&b->d, 2)) return y;
    return ht_emit1(b->g, "embedding_grad", NULL, HT_VALS(index, y), HT_ATTRS(HT_INT("rows", rows)));
}

static ht_val gathered(bench *b)
{
    ht_val x = any_rows(b, 0);
    if (!x.id) return HT_NONE;
    int64_t dim[HT_MAX_RANK];
    int rank = ht_val_rank(b->g, x), axis = (int)random_graph_next(&b->d, (uint32_t)rank);
    for (int i = 0; i < rank; i++) {
        uint32_t size = (uint32_t)ht_val_dims(b->g, x)[i];
        dim[i] = i == axis ? 1 + random_graph_next(&b->d, size + 2) : random_graph_next(&b->d, size + 1);
    }
    ht_val index = index_input(b, rank, dim), y = ht_gather(b->g, x, index, axis);
    if (random_graph_next(&b->d, 2)) return y;
    return ht_scatter_add(b->g, index, y, ht_val_dims(b->g, x)[axis], axis);
}

static ht_val rows_from(bench *b)
{
    ht_val x = any_rows(b, 0);
    if (!x.id) return HT_NONE;
    int64_t rows = random_graph_next(&b->d, (uint32_t)ht_val_dims(b->g, x)[0] + 1);
    return ht_dynamic_slice(b->g, x, further_input(b, HT_I64, 0, NULL), rows);
}

/* Of 24 elements; none: it was not found. */
static ht_val any_image(bench *b, int64_t channels)
{
    for (int i = 0; i < 12; i++) {
        ht_val v = any_float(b);
        if (ht_type_elems(ht_type_of(b->g, v)) != 24) continue;
        return ht_reshape(b->g, v, 4, (int64_t[]){1, channels, 3, 8 / channels});
    }
    return HT_NONE;
}

/* Windows that overlap, leave out rows between them, or lie in the padding. */
static ht_val convolution(bench *b)
{
    ht_val x = any_image(b, 1 + random_graph_next(&b->d, 2));
    if (!x.id) return HT_NONE;
    int64_t size[2], pairs[3][2];
    for (int axis = 0; axis < 2; axis++) {
        size[axis] = 1 + random_graph_next(&b->d, 2);
        pairs[0][axis] = 1 + random_graph_next(&b->d, 3);
        pairs[1][axis] = random_graph_next(&b->d, 2);
        pairs[2][axis] = 1 + random_graph_next(&b->d, 2);
    }
    int64_t dim[4] = {2, ht_val_dims(b->g, x)[1], size[0], size[1]};
    ht_conv_opts opts = HT_CONV_OPTS;
    memcpy(opts.stride, pairs[0], sizeof opts.stride);
    memcpy(opts.padding, pairs[1], sizeof opts.padding);
    memcpy(opts.dilation, pairs[2], sizeof opts.dilation);
    ht_val y = ht_conv2d(b->g, x, further_input(b, ht_val_dtype(b->g, x), 4, dim), HT_NONE, &opts);
    if (random_graph_next(&b->d, 2)) return y;
    return ht_emit1(b->g, "conv2d_grad_weight", NULL, HT_VALS(x, y),
                    HT_ATTRS(HT_INTS("stride", 2, pairs[0]), HT_INTS("padding", 2, pairs[1]),
                             HT_INTS("dilation", 2, pairs[2]), HT_INTS("window", 2, size)));
}

static ht_val attended(bench *b)
{
    ht_val q = any_image(b, 2);
    if (!q.id) return HT_NONE;
    ht_attention_opts opts = HT_ATTENTION_OPTS;
    opts.causal = random_graph_next(&b->d, 2);
    return ht_attention(b->g, q, q, further_input(b, ht_val_dtype(b->g, q), 4, (int64_t[]){1, 2, 3, 5}), &opts);
}

static ht_val lookup(bench *b)
{
    static ht_val (*const makers[])(bench *) = {product, rows_of_table, gathered, rows_from, convolution, attended};
    return makers[random_graph_next(&b->d, sizeof makers / sizeof makers[0])](b);
}

static void any_node(bench *b)
{
    static ht_val (*const makers[])(bench *) = {point1, point1,    point2,    point2,     number,
                                                number, condition, reduction, reduction,  move,
                                                dot,    narrow,    away,      begin_copy, end_copy};
    ht_graph *g = b->g;
    size_t before = g->node_count;
    bool looks = b->lookups && !random_graph_next(&b->d, 3);
    keep_value(b, looks ? lookup(b) : makers[random_graph_next(&b->d, sizeof makers / sizeof makers[0])](b));
    if (g->node_count > before && !random_graph_next(&b->d, 20)) g->nodes[g->node_count - 1].no_merge = true;
    if (g->node_count > before && !random_graph_next(&b->d, 20)) g->nodes[g->node_count - 1].recomputed = true;
}

/* ---- whole graphs ---- */

static void add_states(bench *b)
{
    ht_graph *g = b->g;
    ht_type flat = ht_type_make(HT_F32, 1, (int64_t[]){48}), part = ht_type_make(HT_F32, 2, (int64_t[]){4, 6});
    ht_val base = ht_graph_add_state(g, "flat", &flat, &(ht_state){.heading = HT_HEADING_PARAMETERS});
    ht_val first = ht_graph_add_state(g, "first", &part, &(ht_state){.init = HT_NORMAL(0, 0.5), .trained = true});
    ht_val second = ht_graph_add_state(g, "second", &part, &(ht_state){.init = HT_CONSTANT(0.25)});
    ht_val lone = ht_state_add(g, "lone", HT_F32, 2, (int64_t[]){4, 6}, HT_UNIFORM(-1, 1));
    ht_value_view(g, first, base, 0);
    ht_value_view(g, second, base, 24);
    keep_value(b, first);
    keep_value(b, second);
    keep_value(b, lone);
}

static void add_inputs(bench *b)
{
    char name[16];
    for (int i = 0; i < 4; i++) {
        ht_type type = *any_shape(b);
        snprintf(name, sizeof name, "x%d", i);
        keep_value(b, ht_graph_add_input(b->g, name, &type, HT_NORMAL(0, 1)));
    }
}

static void add_stores(bench *b)
{
    static const char *const names[] = {"first", "second", "lone"};
    for (int i = 0; i < 3; i++) {
        ht_val state = ht_find(b->g, names[i]), v = HT_NONE;
        for (int k = 0; k < 30 && !v.id; k++) {
            ht_val some = any_float(b);
            if (!ht_state_of(b->g, some) && ht_type_same(ht_type_of(b->g, some), ht_type_of(b->g, state))) v = some;
        }
        if (v.id) ht_store(b->g, state, v);
    }
}

static void fill_segment(bench *b, size_t nodes)
{
    ht_graph *g = b->g;
    char name[16];
    add_inputs(b);
    for (size_t i = 0; i < nodes && g->status == HT_OK; i++) {
        g->role = i < nodes / 2 ? HT_ROLE_FWD : i < nodes * 3 / 4 ? HT_ROLE_BWD_ACT : HT_ROLE_UPDATE;
        any_node(b);
    }
    while (b->begun_count && g->status == HT_OK) keep_value(b, end_copy(b));
    g->role = HT_ROLE_UPDATE;
    for (uint32_t i = 0; i <= random_graph_next(&b->d, 3); i++) {
        /* A result: an output that is a state could be one that is stored. */
        ht_val v = any_value(b);
        snprintf(name, sizeof name, "y%u", i);
        if (ht_producer(g, v)) ht_output(g, name, v);
    }
    add_stores(b);
    g->role = HT_ROLE_FWD;
}

static ht_graph *build(ht_context *ctx, uint64_t seed, size_t nodes, bool lookups)
{
    bench b = {.d = random_graph_make(seed), .lookups = lookups};
    if (ht_graph_create(&b.g, ctx) != HT_OK) return NULL;
    add_states(&b);
    size_t states = b.count;
    ht_segment_begin(b.g, "forward");
    fill_segment(&b, nodes);
    if (!random_graph_next(&b.d, 3)) {
        b.count = states;
        ht_segment_begin(b.g, "other");
        fill_segment(&b, nodes / 2);
    }
    for (uint32_t i = 0; i < b.g->segment_count; i++)
        ht_graph_add_program_call(b.g, "train", (ht_program_call){i, 1 + random_graph_next(&b.d, 2), i % 2});
    if (b.g->status == HT_OK && ht_graph_verify(b.g) == HT_OK) return b.g;
    ht_graph_free(b.g);
    return NULL;
}

ht_graph *random_graph_build(ht_context *ctx, uint64_t seed, size_t nodes)
{
    return build(ctx, seed, nodes, false);
}

ht_graph *random_graph_with_lookups(ht_context *ctx, uint64_t seed, size_t nodes)
{
    return build(ctx, seed, nodes, true);
}

ht_val random_graph_step(ht_graph *g, random_graph *d, ht_val a, ht_val b)
{
    static const ht_dtype types[] = {HT_F32, HT_BF16, HT_F16, HT_F32, HT_F8E4M3, HT_F64};
    switch (random_graph_next(d, 16)) {
    case 0: return ht_add(g, a, b);
    case 1: return ht_mul(g, a, b);
    case 2: return ht_sub(g, a, b);
    case 3: return ht_max(g, a, b);
    case 4: return ht_tanh(g, a);
    case 5: return ht_gelu(g, a);
    case 6: return ht_clip(g, a, -0.5, 0.75);
    case 7: return ht_scale(g, a, 1.25);
    case 8: return ht_add_scalar(g, a, -0.5);
    case 9: return ht_select(g, ht_lt(g, a, b), a, ht_neg(g, b));
    case 10: return ht_cast(g, a, types[random_graph_next(d, 6)]);
    case 11: return ht_cast(g, ht_cast(g, ht_scale(g, a, 9), random_graph_next(d, 2) ? HT_I32 : HT_I8), HT_F32);
    case 12: return ht_cast(g, ht_not(g, ht_gt(g, a, b)), HT_F32);
    case 13: return ht_relu(g, a);
    case 14: return ht_div(g, a, ht_add_scalar(g, ht_abs(g, b), 1));
    default: return ht_sqrt(g, ht_abs(g, a));
    }
}

ht_graph *random_graph_chain(ht_context *ctx, uint64_t seed)
{
    static const int64_t rows[] = {3, 1, 70, 5, 33}, columns[] = {7, 300, 1, 2500, 128};
    random_graph d = random_graph_make(seed);
    ht_graph *g;
    if (ht_graph_create(&g, ctx) != HT_OK) return NULL;
    int64_t shape[2] = {rows[random_graph_next(&d, 5)], columns[random_graph_next(&d, 5)]}, one[2] = {shape[0], 1};
    ht_val v[64] = {ht_input(g, "x", HT_F32, 2, shape), ht_input(g, "half", HT_BF16, 2, shape),
                    ht_input(g, "row", HT_F32, 1, shape + 1), ht_input(g, "column", HT_F32, 2, one),
                    ht_input(g, "number", HT_F32, 0, NULL)};
    int count = 5, length = 3 + (int)random_graph_next(&d, 50);
    ht_val kept = ht_state_add(g, "kept", HT_F32, 2, shape, HT_UNIFORM(-1, 1));
    v[count++] = kept;
    for (int i = 0; i < length && count < 60; i++) {
        int back = 1 + (int)random_graph_next(&d, random_graph_next(&d, 2) ? 3 : (uint32_t)count);
        ht_val a = v[count - 1 - (int)random_graph_next(&d, 2)], b = v[count - back];
        v[count++] = random_graph_step(g, &d, a, b);
    }
    char name[16];
    for (int i = 6; i < count; i++) {
        snprintf(name, sizeof name, "y%d", i);
        if (!ht_state_of(g, v[i]) && (i == count - 1 || !random_graph_next(&d, 8))) ht_output(g, name, v[i]);
    }
    for (int i = count - 1; i >= 6; i--)
        if (!ht_state_of(g, v[i]) && ht_type_same(ht_type_of(g, v[i]), ht_type_of(g, kept))) {
            ht_store(g, kept, v[i]);
            break;
        }
    if (ht_graph_status(g) == HT_OK) return g;
    ht_graph_free(g);
    return NULL;
}
