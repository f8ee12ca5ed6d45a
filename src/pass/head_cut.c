/* Cuts the head of a classifier into chunks of rows: the product that makes the logits, what is done to them, the loss,
 * its gradient, and the products of that gradient run for some rows, then for the next. So logits of a large vocabulary
 * never exist whole.
 *
 *     x, labels ─ slice ─ product ─ loss, lse ─ gradient of the logits ─┬─ dx of these rows     all of them: a concat
 *                                                                       └─ their part of dw     the parts are added
 *
 * Every row is computed as before, with the same operands. What is summed over rows (the loss, the gradients of weight and
 * bias) is summed within a chunk as before, and then over the chunks in their order, in f32 where it was half. A mean
 * becomes a sum that is divided by the number of rows that count. */
#include <stdlib.h>
#include <string.h>

#include "pass/head_cut.h"

enum { ROUND_ROWS = 64, MOST_IN = 8 /* also results and attributes */ };

/* What a node of the head does with rows. */
typedef enum part_kind {
    OUTSIDE,
    BY_ROWS,   /* rows in, rows out: inputs with rows are cut */
    PRODUCT,   /* the first input has rows, the second is a matrix for all of them */
    OVER_ROWS, /* sums over the rows of its inputs */
    LOSS,
    LOSS_GRAD
} part_kind;

typedef struct cutter {
    ht_arena *arena;
    ht_graph *g;
    const ht_segment *s; /* as it was */
    size_t value_count, node_count;
    int64_t rows, width; /* of the logits */
    int64_t unit;        /* rows that stay together */
    uint8_t *kind;       /* by node id: a part_kind */
    bool *late;          /* by node id, of nodes outside and before `last`: it reads what the head makes */
    bool *wide;          /* by value id: logits, or made of them row by row */
    bool *read_outside;  /* by value id */
    uint64_t *hashes;    /* by value id */
    uint32_t last;       /* the place of the head's last node */
    uint32_t loss;       /* its node */
    ht_val counted;      /* of a mean: how many rows count, at least 1 */
    /* of the chunk at hand, by the id of what was there before; none: not there */
    int64_t first, count;
    ht_val *map, *slice;
    uint32_t *node; /* by node id: its edition in this chunk */
    /* of results that are read outside: by value id, HT_MOST_HEAD_CHUNKS parts, or the sum so far */
    ht_val **parts;
    ht_val *sum;
} cutter;

static bool is_op(const ht_node *n, const char *name)
{
    return n && strcmp(n->op->name, name) == 0;
}

static const ht_type *type_in(const cutter *c, const ht_node *n, size_t i)
{
    return ht_type_of(c->g, ht_node_in(c->g, n, i));
}

/* Rows, perhaps by more than one axis: [rows, n], [batch, length, n]. */
static bool is_rows_type(const cutter *c, const ht_type *type)
{
    int64_t rows = 1;
    for (int axis = 0; axis < type->rank - 1; axis++) rows *= type->dim[axis];
    return type->rank >= 2 && rows == c->rows;
}

static bool is_wide_type(const cutter *c, const ht_type *type)
{
    return is_rows_type(c, type) && type->dim[type->rank - 1] == c->width;
}

static bool is_wide(const cutter *c, const ht_node *n, size_t i)
{
    return c->wide[ht_node_in(c->g, n, i).id];
}

static bool flag(const cutter *c, const ht_node *n, const char *key)
{
    ht_call_storage storage;
    const ht_call *call = ht_node_call(c->g, n, NULL, &storage);
    return call && ht_call_int(call, key) != 0;
}

/* ---- what belongs to the head ---- */

/* Point-wise or of another shape, all operands as wide as the logits. */
static bool is_pointwise(const cutter *c, const ht_node *n)
{
    bool reshapes = is_op(n, "reshape");
    const ht_type *out = n->n_out == 1 ? ht_type_of(c->g, ht_node_out(n, 0)) : NULL;
    if (!out || !is_wide_type(c, out) || n->n_in == 0 || n->n_in > MOST_IN) return false;
    if (n->op->fuse != HT_FUSE_POINT && !reshapes) return false;
    for (size_t i = 0; i < n->n_in; i++) {
        if (!ht_node_in(c->g, n, i).id || !is_wide_type(c, type_in(c, n, i))) return false;
        if (!reshapes && !ht_type_same_shape(type_in(c, n, i), out)) return false;
    }
    return true;
}

/* A product of rows with a matrix for all of them. */
static bool keeps_rows(const cutter *c, const ht_node *n)
{
    return is_op(n, "matmul") && !flag(c, n, "ta") && is_rows_type(c, type_in(c, n, 0)) && type_in(c, n, 1)->rank == 2;
}

/* A sum over all rows: of a column, or of the product of two columns. */
static bool sums_rows(const cutter *c, const ht_node *n)
{
    const ht_type *in = n->n_in ? type_in(c, n, 0) : NULL, *out = ht_type_of(c->g, ht_node_out(n, 0));
    if (is_op(n, "sum")) {
        bool keeps_last = out->rank == 1 && out->dim[0] == in->dim[in->rank - 1];
        return is_rows_type(c, in) && keeps_last && in->dim[0] != in->dim[in->rank - 1];
    }
    return is_op(n, "matmul") && flag(c, n, "ta") && !flag(c, n, "tb") && in->rank == 2 && in->dim[0] == c->rows &&
           type_in(c, n, 1)->rank == 2;
}

/* One answer for each row. */
static bool answers_rows(const cutter *c, const ht_node *n)
{
    const ht_type *out = n->n_out == 1 ? ht_type_of(c->g, ht_node_out(n, 0)) : NULL;
    ht_call_storage storage;
    const ht_call *call = is_op(n, "argmax") ? ht_node_call(c->g, n, NULL, &storage) : NULL;
    int rank = call ? type_in(c, n, 0)->rank : 0;
    return call && out && ht_call_axis(call, "axis", rank) == rank - 1;
}

/* From the loss up to the product that makes the logits. */
static const char *find_forward(cutter *c, const ht_node *loss)
{
    bool product = false;
    c->kind[loss - c->g->nodes] = LOSS;
    c->wide[ht_node_in(c->g, loss, 0).id] = true;
    for (size_t at = c->s->node_count; at-- > 0;) {
        uint32_t id = c->s->nodes[at];
        const ht_node *n = &c->g->nodes[id];
        if (n->n_out != 1 || !c->wide[n->out]) continue;
        if (keeps_rows(c, n)) {
            product = true;
            c->kind[id] = PRODUCT;
        } else if (is_pointwise(c, n)) {
            c->kind[id] = BY_ROWS;
            for (size_t i = 0; i < n->n_in; i++) {
                const ht_node *producer = ht_producer(c->g, ht_node_in(c->g, n, i));
                if (producer && (keeps_rows(c, producer) || is_pointwise(c, producer)))
                    c->wide[ht_node_in(c->g, n, i).id] = true;
            }
        } else {
            return "the logits are made by something else than a product";
        }
    }
    return product ? NULL : "no product makes the logits";
}

/* What reads the logits, and what is made of them row by row. */
static const char *take_reader(cutter *c, uint32_t id)
{
    const ht_node *n = &c->g->nodes[id];
    bool reads = false, first = n->n_in > 0 && is_wide(c, n, 0);
    for (size_t i = 0; i < n->n_in; i++) reads |= is_wide(c, n, i);
    if (!reads || c->kind[id] != OUTSIDE) return NULL;
    if (is_pointwise(c, n)) {
        c->kind[id] = BY_ROWS;
        c->wide[n->out] = true;
    } else if (is_op(n, "cross_entropy_grad") && first && type_in(c, n, 3)->rank == 0) {
        c->kind[id] = LOSS_GRAD;
        c->wide[n->out] = true;
    } else if (answers_rows(c, n)) {
        c->kind[id] = BY_ROWS;
    } else if (first && keeps_rows(c, n) && !is_wide(c, n, 1)) {
        c->kind[id] = PRODUCT;
    } else if (sums_rows(c, n)) {
        c->kind[id] = OVER_ROWS;
    } else {
        return n->op->name;
    }
    return NULL;
}

static const ht_node *find_loss(const ht_graph *g, const ht_segment *s)
{
    const ht_node *found = NULL;
    for (size_t i = 0; i < s->node_count; i++) {
        const ht_node *n = &g->nodes[s->nodes[i]];
        if (!is_op(n, "cross_entropy")) continue;
        int64_t elems = ht_type_elems(ht_type_of(g, ht_node_in(g, n, 0)));
        if (!found || elems > ht_type_elems(ht_type_of(g, ht_node_in(g, found, 0)))) found = n;
    }
    return found;
}

static const char *reduction_of(const ht_graph *g, const ht_node *loss)
{
    ht_call_storage storage;
    const ht_call *call = ht_node_call(g, loss, NULL, &storage);
    return call ? ht_call_text(call, "reduction") : "none";
}

/* Finds what reads results of the head before the head is at its end. The head may not wait for any of that, and nothing
 * may be stored meanwhile: what moves behind the head would read something else. */
static const char *check_order(cutter *c)
{
    bool any = false;
    for (size_t at = 0; at <= c->last; at++) {
        uint32_t id = c->s->nodes[at];
        const ht_node *n = &c->g->nodes[id];
        bool inside = c->kind[id] != OUTSIDE;
        for (size_t i = 0; i < n->n_in; i++) {
            ht_val v = ht_node_in(c->g, n, i);
            const ht_node *producer = v.id ? ht_producer(c->g, v) : NULL;
            size_t from = producer ? (size_t)(producer - c->g->nodes) : 0;
            if (inside && producer && c->late[from]) return "a part of it waits for what is made of another";
            if (!inside && producer && (c->late[from] || c->kind[from] != OUTSIDE)) c->late[id] = true;
        }
        any |= c->late[id];
        if (any && n->op->flags & HT_OP_EFFECT) return "something is stored before its end";
    }
    return NULL;
}

/* Chunks hold whole entries of every first axis, such as sentences. */
static const char *find_unit(cutter *c)
{
    c->unit = 1;
    for (size_t at = 0; at < c->s->node_count; at++) {
        const ht_node *n = &c->g->nodes[c->s->nodes[at]];
        for (size_t i = 0; c->kind[c->s->nodes[at]] != OUTSIDE && i < n->n_in; i++) {
            const ht_type *type = type_in(c, n, i);
            int64_t rows = is_wide_type(c, type) ? c->rows / type->dim[0] : 1;
            if (rows % c->unit && c->unit % rows) return "its rows have several first axes";
            if (rows > c->unit) c->unit = rows;
        }
    }
    return NULL;
}

/* NULL: found; else the reason why the head stays whole. */
static const char *find_head(cutter *c, const ht_node *loss)
{
    const ht_type *logits = type_in(c, loss, 0);
    if (logits->rank < 2) return "the logits have no rows";
    c->rows = ht_type_elems(type_in(c, loss, 1));
    c->width = logits->dim[logits->rank - 1];
    if (c->rows < 2) return "it has fewer than two rows";
    if (strcmp(reduction_of(c->g, loss), "none") == 0) return "the loss has a value for each row";
    c->loss = (uint32_t)(loss - c->g->nodes);
    const char *reason = find_forward(c, loss);
    for (uint32_t at = 0; at < c->s->node_count && !reason; at++) {
        reason = take_reader(c, c->s->nodes[at]);
        if (c->kind[c->s->nodes[at]] != OUTSIDE) c->last = at;
    }
    for (size_t i = 0; i < c->s->output_count && !reason; i++)
        if (c->wide[c->s->outputs[i].value.id]) reason = "the logits are an output";
    if (!reason) reason = find_unit(c);
    return reason ? reason : check_order(c);
}

/* ---- emission ---- */

/* Nodes from `first` on stand for a part of `old`. */
static void adopt(cutter *c, size_t first, const ht_node *old)
{
    for (size_t i = first; i < c->g->node_count && c->g->status == HT_OK; i++) {
        ht_node *n = &c->g->nodes[i];
        n->role = old->role;
        n->site = old->site;
        n->full = old->full;
        n->origin = c->node[old->origin] ? c->node[old->origin] : old->origin;
    }
}

static ht_val slice_of(cutter *c, ht_val v)
{
    int64_t each = c->rows / ht_type_of(c->g, v)->dim[0]; /* rows of an entry of its first axis */
    if (!c->slice[v.id].id) c->slice[v.id] = ht_slice_axis(c->g, v, 0, c->first / each, c->count / each);
    return c->slice[v.id];
}

static bool has_rows(const cutter *c, const ht_node *n, size_t input)
{
    switch ((part_kind)c->kind[n - c->g->nodes]) {
    case PRODUCT: return input == 0;
    case LOSS_GRAD: return input < 3;
    default: return true;
    }
}

/* A sum over rows keeps its type; what has rows has those of the chunk. */
static ht_type part_type(const cutter *c, const ht_node *n, size_t result)
{
    ht_type type = *ht_type_of(c->g, ht_node_out(n, result));
    part_kind kind = (part_kind)c->kind[n - c->g->nodes];
    bool sum = kind == OVER_ROWS || (kind == LOSS && result == 0);
    if (!sum) type.dim[0] = c->count / (c->rows / type.dim[0]);
    if (sum && (type.dtype == HT_F16 || type.dtype == HT_BF16)) type.dtype = HT_F32;
    ht_type_row_major(&type);
    return type;
}

/* The rows that a mean is over; chunks have sums. */
static void count_rows(cutter *c)
{
    ht_graph *g = c->g;
    const ht_node loss = g->nodes[c->loss];
    ht_call_storage storage;
    if (strcmp(reduction_of(g, &loss), "mean") != 0) return;
    size_t first = g->node_count;
    const ht_call *call = ht_node_call(g, &loss, NULL, &storage);
    ht_val labels = ht_node_in(g, &loss, 1);
    ht_val counts = ht_ne(g, labels, ht_fill_like(g, labels, (double)ht_call_int(call, "ignore_index")));
    ht_val sum = ht_sum(g, ht_cast(g, counts, ht_type_of(g, ht_node_out(&loss, 0))->dtype), 0, NULL, false);
    c->counted = ht_max(g, sum, ht_fill_like(g, sum, 1));
    adopt(c, first, &loss);
}

/* A loss and its gradient are those of a sum. */
static const ht_attr *part_attrs(const cutter *c, const ht_node *n, ht_attr *own)
{
    size_t count = ht_op_attr_count(n->op);
    part_kind kind = (part_kind)c->kind[n - c->g->nodes];
    if (!c->counted.id || (kind != LOSS && kind != LOSS_GRAD)) return n->attr;
    memcpy(own, n->attr, count * sizeof *own);
    for (size_t i = 0; i < count; i++)
        if (strcmp(own[i].key, "reduction") == 0) own[i] = (ht_attr)HT_TEXT("reduction", "sum");
    return own;
}

/* The gradient of the loss, for each row that counts. */
static ht_val weight_of(cutter *c, ht_val v)
{
    if (!c->counted.id) return v;
    if (!c->slice[v.id].id) c->slice[v.id] = ht_div(c->g, v, c->counted);
    return c->slice[v.id];
}

static ht_val part_of(cutter *c, const ht_node *n, size_t input)
{
    ht_val v = ht_node_in(c->g, n, input);
    if (c->map[v.id].id) return c->map[v.id];
    if (has_rows(c, n, input)) return slice_of(c, v);
    return c->kind[n - c->g->nodes] == LOSS_GRAD ? weight_of(c, v) : v;
}

static void emit_part(cutter *c, uint32_t id)
{
    ht_graph *g = c->g;
    const ht_node n = g->nodes[id];
    size_t first = g->node_count;
    ht_val in[MOST_IN], out[MOST_IN];
    ht_type want[MOST_IN];
    ht_attr own[MOST_IN];
    for (size_t i = 0; i < n.n_in && g->status == HT_OK; i++) in[i] = part_of(c, &g->nodes[id], i);
    for (size_t i = 0; i < n.n_out; i++) want[i] = part_type(c, &g->nodes[id], i);
    ht_emit(g, n.op, n.n_in, in, ht_op_attr_count(n.op), part_attrs(c, &g->nodes[id], own), want, out);
    if (g->status != HT_OK) return;
    adopt(c, first, &n);
    c->node[id] = (uint32_t)g->node_count - 1;
    for (size_t i = 0; i < n.n_out; i++) c->map[n.out + i] = out[i];
}

/* The view between two sums keeps them out of one region: computed as one, they would wait for the last part, and all parts
 * with them. */
static ht_val add_part(cutter *c, ht_val sum, ht_val part)
{
    ht_type type = *ht_type_of(c->g, sum);
    ht_val before = ht_emit1(c->g, "reshape", &type, HT_VALS(sum), HT_NO_ATTRS);
    return ht_add(c->g, part, before);
}

/* What is read outside is gathered: rows in a list, sums in a total. */
static void gather(cutter *c, uint32_t id, size_t chunk)
{
    const ht_node n = c->g->nodes[id];
    bool over = c->kind[id] == OVER_ROWS;
    for (uint32_t v = n.out; v < n.out + n.n_out && c->g->status == HT_OK; v++) {
        size_t first = c->g->node_count;
        if (over || (c->kind[id] == LOSS && v == n.out)) {
            c->sum[v] = chunk == 0 ? c->map[v] : add_part(c, c->sum[v], c->map[v]);
            adopt(c, first, &n);
        } else if (c->parts[v]) {
            c->parts[v][chunk] = c->map[v];
        }
    }
}

static void emit_chunks(cutter *c, const ht_rewrite *rw, size_t chunks, int64_t step)
{
    size_t values = c->value_count, nodes = c->node_count;
    for (size_t k = 0; k < chunks && c->g->status == HT_OK; k++) {
        c->first = (int64_t)k * step;
        c->count = c->rows - c->first < step ? c->rows - c->first : step;
        memset(c->map, 0, values * sizeof *c->map);
        memset(c->slice, 0, values * sizeof *c->slice);
        memset(c->node, 0, nodes * sizeof *c->node);
        for (uint32_t at = 0; at <= c->last && c->g->status == HT_OK; at++) {
            if (c->kind[rw->old[at]] == OUTSIDE) continue;
            emit_part(c, rw->old[at]);
            if (c->g->status == HT_OK) gather(c, rw->old[at], k);
        }
    }
}

/* What stands for a result from now on; it has the result's hash. */
static ht_val gathered(cutter *c, uint32_t v, size_t chunks)
{
    ht_graph *g = c->g;
    ht_dtype dtype = g->values[v].type.dtype;
    ht_val whole = c->sum[v];
    if (!whole.id)
        whole = ht_concat(g, chunks, c->parts[v], 0);
    else if (ht_type_of(g, whole)->dtype != dtype)
        whole = ht_cast(g, whole, dtype);
    if (c->counted.id && v == g->nodes[c->loss].out) whole = ht_div(g, whole, c->counted);
    if (g->status == HT_OK) g->nodes[ht_value_of(g, whole)->owner].was = c->hashes[v];
    return whole;
}

static void replace_results(cutter *c, ht_rewrite *rw, size_t chunks)
{
    for (uint32_t at = 0; at <= c->last && c->g->status == HT_OK; at++) {
        const ht_node n = c->g->nodes[rw->old[at]];
        for (uint32_t v = n.out; c->kind[rw->old[at]] != OUTSIDE && v < n.out + n.n_out; v++) {
            size_t first = c->g->node_count;
            if (!c->read_outside[v]) continue;
            ht_val whole = gathered(c, v, chunks);
            adopt(c, first, &n);
            ht_rewrite_replace(rw, (ht_val){v}, whole);
        }
    }
}

static void keep(cutter *c, ht_rewrite *rw, uint32_t id)
{
    uint32_t origin = c->g->nodes[id].origin;
    if (c->node[origin]) c->g->nodes[id].origin = c->node[origin];
    ht_rewrite_keep(rw, id);
}

/* The head is emitted where its last node was; what reads its results before that follows it. */
static ht_status rewrite_segment(cutter *c, uint32_t segment, size_t chunks, int64_t step)
{
    ht_graph *g = c->g;
    ht_rewrite rw;
    if (ht_rewrite_begin(&rw, g, segment)) {
        for (uint32_t at = 0; at < c->last; at++)
            if (c->kind[rw.old[at]] == OUTSIDE && !c->late[rw.old[at]]) keep(c, &rw, rw.old[at]);
        count_rows(c);
        emit_chunks(c, &rw, chunks, step);
        replace_results(c, &rw, chunks);
        for (uint32_t at = 0; at < rw.count && g->status == HT_OK; at++)
            if (c->kind[rw.old[at]] == OUTSIDE && (at > c->last || c->late[rw.old[at]])) keep(c, &rw, rw.old[at]);
    }
    return ht_rewrite_end(&rw);
}

/* ---- a segment ---- */

static bool open_cutter(cutter *c, ht_graph *g, uint32_t segment)
{
    *c = (cutter){.g = g, .s = &g->segments[segment], .value_count = g->value_count, .node_count = g->node_count};
    c->arena = ht_arena_create();
    if (!c->arena) return false;
    c->kind = HT_NEW(c->arena, uint8_t, c->node_count);
    c->late = HT_NEW(c->arena, bool, c->node_count);
    c->node = HT_NEW(c->arena, uint32_t, c->node_count);
    c->wide = HT_NEW(c->arena, bool, c->value_count);
    c->read_outside = HT_NEW(c->arena, bool, c->value_count);
    c->map = HT_NEW(c->arena, ht_val, c->value_count);
    c->slice = HT_NEW(c->arena, ht_val, c->value_count);
    c->sum = HT_NEW(c->arena, ht_val, c->value_count);
    c->parts = HT_NEW(c->arena, ht_val *, c->value_count);
    c->hashes = ht_value_hashes(g, segment);
    return c->kind && c->late && c->node && c->wide && c->read_outside && c->map && c->slice && c->sum && c->parts &&
           c->hashes;
}

static void close_cutter(cutter *c)
{
    ht_arena_free(c->arena);
    free(c->hashes);
}

/* Which results of the head are read outside, and a list for the parts of each. */
static bool find_results(cutter *c)
{
    const ht_graph *g = c->g;
    for (size_t at = 0; at < c->s->node_count; at++) {
        const ht_node *n = &g->nodes[c->s->nodes[at]];
        for (size_t i = 0; c->kind[c->s->nodes[at]] == OUTSIDE && i < n->n_in; i++)
            c->read_outside[ht_node_in(g, n, i).id] = true;
    }
    for (size_t i = 0; i < c->s->output_count; i++) c->read_outside[c->s->outputs[i].value.id] = true;
    for (size_t at = 0; at <= c->last; at++) {
        const ht_node *n = &g->nodes[c->s->nodes[at]];
        for (uint32_t v = n->out; c->kind[c->s->nodes[at]] != OUTSIDE && v < n->out + n->n_out; v++) {
            if (!c->read_outside[v]) continue;
            c->parts[v] = HT_NEW(c->arena, ht_val, HT_MOST_HEAD_CHUNKS);
            if (!c->parts[v]) return false;
        }
    }
    return true;
}

/* Rows of a chunk: as near to equal as whole tiles of kernels allow. */
static int64_t chunk_rows(const cutter *c, int64_t chunks)
{
    int64_t step = (c->rows + chunks - 1) / chunks, round = c->unit;
    if (round == 1 && step > ROUND_ROWS) round = ROUND_ROWS;
    return (step + round - 1) / round * round;
}

static ht_status cut(cutter *c, uint32_t segment, const ht_node *loss, int64_t chunks, const char **reason)
{
    *reason = find_head(c, loss);
    if (*reason) return HT_OK;
    int64_t step = chunk_rows(c, chunks);
    size_t count = (size_t)((c->rows + step - 1) / step);
    if (count < 2) return HT_OK;
    if (!find_results(c)) HT_FAIL(c->g->ctx, HT_ENOMEM, "head_chunks: out of memory");
    return rewrite_segment(c, segment, count, step);
}

ht_status ht_head_cut(ht_graph *g, int64_t chunks, const char **reason)
{
    *reason = NULL;
    for (uint32_t s = 0; s < g->segment_count; s++) {
        const ht_node *loss = find_loss(g, &g->segments[s]);
        const char *why = NULL;
        cutter c;
        if (!loss) continue;
        ht_status status = open_cutter(&c, g, s) ? cut(&c, s, loss, chunks, &why)
                                                 : ht_fail(g->ctx, HT_ENOMEM, "head_chunks: out of memory");
        close_cutter(&c);
        HT_TRY(status);
        if (why) *reason = why;
    }
    return HT_OK;
}
