/* Identities that hold bit for bit, also for -0, subnormal numbers, infinities and NaN. x + 0 is none: it turns -0 into
 * 0. Types must agree, since the type of a result is its rounding; f8 is left alone, because a result of that type
 * saturates and an infinity that was loaded would not stay one. */
#include <string.h>

#include "pass/fold.h"

/* op(x, number) is x. */
typedef struct neutral_row {
    const char *op;
    double number;
} neutral_row;

static const neutral_row neutral_rows[] = {{"mul", 1}, {"div", 1}, {"sub", 0}, {"add", -0.0}};

/* op(op(x)) is x. */
static const char *const involutions[] = {"neg", "not"};

/* An input as it is now. */
static ht_val input(const ht_folder *f, const ht_node *n, size_t i)
{
    return ht_rewrite_map(&f->rw, ht_node_in(f->g, n, i));
}

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* The integers have one zero. */
static bool is_number(const ht_folder *f, ht_val v, double number)
{
    const ht_known *known = ht_fold_known(f, v);
    if (!known || !known->uniform) return false;
    if (!ht_dtype_is_float(ht_type_of(f->g, v)->dtype)) return known->data[0] == number;
    return same_bits(known->data[0], number);
}

static ht_val without_neutral(const ht_folder *f, const ht_node *n)
{
    if (n->n_in != 2 || n->n_out != 1) return HT_NONE;
    for (size_t i = 0; i < sizeof neutral_rows / sizeof neutral_rows[0]; i++) {
        if (strcmp(n->op->name, neutral_rows[i].op) != 0) continue;
        if (is_number(f, input(f, n, 1), neutral_rows[i].number)) return input(f, n, 0);
        if ((n->op->flags & HT_OP_COMMUTATIVE) && is_number(f, input(f, n, 0), neutral_rows[i].number))
            return input(f, n, 1);
    }
    return HT_NONE;
}

static ht_val chosen_side(const ht_folder *f, const ht_node *n)
{
    if (strcmp(n->op->name, "select") != 0) return HT_NONE;
    const ht_known *condition = ht_fold_known(f, input(f, n, 0));
    if (!condition || !condition->uniform) return HT_NONE;
    return input(f, n, condition->data[0] != 0 ? 1 : 2);
}

static ht_val without_cast(const ht_folder *f, const ht_node *n)
{
    return strcmp(n->op->name, "cast") == 0 ? input(f, n, 0) : HT_NONE;
}

static ht_val undone(const ht_folder *f, const ht_node *n)
{
    for (size_t i = 0; i < sizeof involutions / sizeof involutions[0]; i++) {
        if (strcmp(n->op->name, involutions[i]) != 0) continue;
        const ht_node *inner = ht_producer(f->g, input(f, n, 0));
        /* The value in between must not have rounded either. */
        if (inner && inner->op == n->op &&
            ht_type_same(ht_type_of(f->g, input(f, n, 0)), ht_type_of(f->g, ht_node_out(n, 0))))
            return input(f, inner, 0);
    }
    return HT_NONE;
}

/* Where the elements of n's result lie in its input, when they lie in `layout`; false when only a copy will do. */
static bool step_view(const ht_folder *f, const ht_node *n, const ht_type *layout, ht_type *out, int64_t *offset)
{
    ht_call_storage storage;
    ht_call call = *ht_node_call(f->g, n, NULL, &storage);
    const ht_type *in[1] = {layout};
    call.in = in;
    *out = *call.out[0];
    return n->op->view(&call, out, offset) && *offset == 0;
}

static bool is_view_op(const ht_node *n)
{
    return n && n->op->view && n->n_in == 1 && n->n_out == 1;
}

/* A reshape, permute, slice or expand that shows its input as it was, alone or after another one: the elements of the
 * result lie in the first input row by row without gaps. */
static ht_val same_view(const ht_folder *f, const ht_node *n)
{
    if (!is_view_op(n)) return HT_NONE;
    ht_val x = input(f, n, 0);
    const ht_type *want = ht_type_of(f->g, ht_node_out(n, 0));
    ht_type first, second;
    int64_t offset;
    if (ht_type_same(ht_type_of(f->g, x), want) && step_view(f, n, ht_type_of(f->g, x), &first, &offset) &&
        ht_type_contiguous(&first))
        return x;
    const ht_node *inner = ht_producer(f->g, x);
    if (!is_view_op(inner)) return HT_NONE;
    ht_val origin = input(f, inner, 0);
    if (ht_type_same(ht_type_of(f->g, origin), want) &&
        step_view(f, inner, ht_type_of(f->g, origin), &first, &offset) && step_view(f, n, &first, &second, &offset) &&
        ht_type_contiguous(&second))
        return origin;
    return HT_NONE;
}

/* A state that is stored in this segment cannot be read behind the store; what was made of it can. */
static bool is_stored(const ht_folder *f, ht_val v)
{
    ht_val root = ht_root(f->g, v);
    return ht_value_of(f->g, root)->kind == HT_VALUE_STATE && f->stored[root.id];
}

/* A reshape of a reshape reads the first one's input. The node stays, so this is no matter of types. */
static void skip_reshape(ht_folder *f, ht_node *n)
{
    if (strcmp(n->op->name, "reshape") != 0) return;
    const ht_node *inner = ht_producer(f->g, input(f, n, 0));
    if (inner && inner->op == n->op && !ht_fold_in_model(f, n) && !is_stored(f, input(f, inner, 0)))
        f->g->operands[n->in] = input(f, inner, 0);
}

/* Values that this pass made are not in the table; they carry what they stand for. */
static uint64_t model_hash(const ht_folder *f, ht_val v)
{
    return v.id < f->hash_count ? f->hashes[v.id] : ht_producer(f->g, v)->was;
}

/* May every use of n's result read `to` instead? */
static bool may_stand_for(const ht_folder *f, const ht_node *n, ht_val to)
{
    const ht_graph *g = f->g;
    ht_val from = ht_node_out(n, 0);
    if (!to.id || !ht_type_same(ht_type_of(g, from), ht_type_of(g, to))) return false;
    ht_dtype dtype = ht_type_of(g, from)->dtype;
    if (!n->op->view && ht_dtype_is_float(dtype) && ht_dtype_bytes(dtype) == 1) return false;
    /* A view's base is no view, and strides are the planner's business. */
    if (ht_value_of(g, from)->base.id || ht_value_of(g, to)->base.id || is_stored(f, to)) return false;
    return !ht_fold_in_model(f, n) || model_hash(f, from) == model_hash(f, to);
}

bool ht_fold_identity(ht_folder *f, uint32_t id)
{
    static ht_val (*const rules[])(const ht_folder *, const ht_node *) = {
        without_neutral, chosen_side, without_cast, undone, same_view,
    };
    ht_node *n = &f->g->nodes[id];
    if (n->no_merge || (n->op->flags & HT_OP_EFFECT)) return false;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        ht_val to = rules[i](f, n);
        if (!may_stand_for(f, n, to)) continue;
        ht_rewrite_replace(&f->rw, ht_node_out(n, 0), to);
        return true;
    }
    skip_reshape(f, n);
    return false;
}
