/* The table of ops, and attributes of calls. */
#include "graph/opdef.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const ht_attr *ht_call_attr(const ht_call *call, const char *key)
{
    for (size_t i = 0; i < call->n_attr; i++)
        if (strcmp(call->attr[i].key, key) == 0) return &call->attr[i];
    assert(!"the op has no such attribute");
    return NULL;
}

int64_t ht_call_int(const ht_call *call, const char *key)
{
    return ht_call_attr(call, key)->i;
}

double ht_call_float(const ht_call *call, const char *key)
{
    return ht_call_attr(call, key)->f;
}

const char *ht_call_text(const ht_call *call, const char *key)
{
    return ht_call_attr(call, key)->text;
}

size_t ht_op_attr_count(const ht_op *op)
{
    size_t n = 0;
    while (op->attrs && op->attrs[n].key) n++;
    return n;
}

bool ht_op_has_attr(const ht_op *op, const char *key)
{
    const ht_attr_def *def = op->attrs;
    while (def && def->key && strcmp(def->key, key) != 0) def++;
    return def && def->key;
}

bool ht_attr_copy(ht_arena *arena, ht_attr *to, const ht_attr *from)
{
    *to = *from;
    if (from->kind == HT_ATTR_TEXT && from->text) {
        to->text = ht_arena_text(arena, from->text, strlen(from->text));
        return to->text != NULL;
    }
    if (from->kind == HT_ATTR_INTS && from->count) {
        int64_t *ints = HT_NEW(arena, int64_t, from->count);
        if (ints) memcpy(ints, from->ints, from->count * sizeof *ints);
        to->ints = ints;
        return ints != NULL;
    }
    if (from->kind == HT_ATTR_FLOATS && from->count) {
        double *floats = HT_NEW(arena, double, from->count);
        if (floats) memcpy(floats, from->floats, from->count * sizeof *floats);
        to->floats = floats;
        return floats != NULL;
    }
    return true;
}

bool ht_attr_equal(const ht_attr *a, const ht_attr *b)
{
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case HT_ATTR_INT: return a->i == b->i;
    case HT_ATTR_FLOAT: return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case HT_ATTR_TEXT: return a->text == b->text || (a->text && b->text && strcmp(a->text, b->text) == 0);
    case HT_ATTR_INTS:
        return a->count == b->count && (!a->count || !memcmp(a->ints, b->ints, a->count * sizeof *a->ints));
    case HT_ATTR_FLOATS:
        return a->count == b->count && (!a->count || !memcmp(a->floats, b->floats, a->count * sizeof *a->floats));
    }
    return false;
}

uint64_t ht_attr_hash(uint64_t hash, const ht_attr *a)
{
    uint64_t key = ht_hash_text(a->key), text;
    hash = ht_hash_bytes(hash, &key, sizeof key);
    switch (a->kind) {
    case HT_ATTR_INT: return ht_hash_bytes(hash, &a->i, sizeof a->i);
    case HT_ATTR_FLOAT: return ht_hash_bytes(hash, &a->f, sizeof a->f);
    case HT_ATTR_TEXT: text = ht_hash_text(a->text); return ht_hash_bytes(hash, &text, sizeof text);
    case HT_ATTR_INTS: return ht_hash_bytes(hash, a->ints, a->count * sizeof *a->ints);
    case HT_ATTR_FLOATS: return ht_hash_bytes(hash, a->floats, a->count * sizeof *a->floats);
    }
    return hash;
}

static uint64_t hash_name(const char *name, size_t length)
{
    return ht_hash_bytes(0, name, length);
}

/* Positions are stored plus one, so that zeroed slots are empty. */
static void index_put(ht_context *ctx, size_t position)
{
    const char *name = ctx->ops[position]->name;
    size_t slot = hash_name(name, strlen(name)) & (ctx->op_index_capacity - 1);
    while (ctx->op_index[slot]) slot = (slot + 1) & (ctx->op_index_capacity - 1);
    ctx->op_index[slot] = (uint32_t)position + 1;
}

static bool index_grow(ht_context *ctx)
{
    size_t capacity = ctx->op_index_capacity ? ctx->op_index_capacity * 2 : 256;
    uint32_t *index = calloc(capacity, sizeof *index);
    if (!index) return false;
    free(ctx->op_index);
    ctx->op_index = index;
    ctx->op_index_capacity = capacity;
    for (size_t i = 0; i < ctx->op_count; i++) index_put(ctx, i);
    return true;
}

const ht_op *ht_op_find(const ht_context *ctx, const char *name, size_t length)
{
    if (!ctx->op_index_capacity) return NULL;
    size_t slot = hash_name(name, length) & (ctx->op_index_capacity - 1);
    for (; ctx->op_index[slot]; slot = (slot + 1) & (ctx->op_index_capacity - 1)) {
        const ht_op *op = ctx->ops[ctx->op_index[slot] - 1];
        if (strlen(op->name) == length && memcmp(op->name, name, length) == 0) return op;
    }
    return NULL;
}

const char *ht_op_nearest(const ht_context *ctx, const char *name, size_t length)
{
    enum { LONGEST = 64 };
    char given[LONGEST];
    const char *best = NULL;
    int best_distance = 4;
    snprintf(given, sizeof given, "%.*s", (int)(length < LONGEST ? length : LONGEST - 1), name);
    for (size_t i = 0; i < ctx->op_count; i++) {
        int distance = ht_edit_distance(ctx->ops[i]->name, given);
        if (distance < best_distance) best = ctx->ops[i]->name, best_distance = distance;
    }
    return best;
}

ht_status ht_op_add(ht_context *ctx, const ht_op *op)
{
    if (op->size != sizeof(ht_op)) HT_FAIL(ctx, HT_EINVAL, "op table row was built for another version");
    if (!op->name || !op->name[0] || !op->infer || op->n_out < 0 || op->n_out > 8)
        HT_FAIL(ctx, HT_EINVAL, "op %s: a row needs a name, a shape rule and at most 8 results",
                op->name ? op->name : "?");
    if (ht_op_find(ctx, op->name, strlen(op->name))) HT_FAIL(ctx, HT_EINVAL, "op %s exists already", op->name);
    if (!ht_grow((void **)&ctx->ops, &ctx->op_capacity, ctx->op_count + 1, sizeof *ctx->ops))
        HT_FAIL(ctx, HT_ENOMEM, "out of memory for the op table");
    if (ctx->op_index_capacity < 2 * (ctx->op_count + 1) && !index_grow(ctx))
        HT_FAIL(ctx, HT_ENOMEM, "out of memory for the op table");
    ctx->ops[ctx->op_count++] = op;
    index_put(ctx, ctx->op_count - 1);
    return HT_OK;
}

ht_cost ht_call_cost(const ht_call *call)
{
    ht_cost cost = {0};
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i]) cost.bytes += (double)ht_type_distinct_bytes(call->in[i]);
    for (size_t i = 0; i < call->n_out; i++) cost.bytes += (double)ht_type_distinct_bytes(call->out[i]);
    if (call->op->cost) call->op->cost(call, &cost);
    return cost;
}

double ht_cost_flops(ht_cost cost)
{
    return cost.dot_flops + cost.other_flops + cost.recomputed_flops;
}

void ht_cost_add(ht_cost *sum, ht_cost cost, double times)
{
    sum->dot_flops += times * cost.dot_flops;
    sum->other_flops += times * cost.other_flops;
    sum->recomputed_flops += times * cost.recomputed_flops;
    sum->bytes += times * cost.bytes;
}

ht_cost ht_cost_recomputed(ht_cost cost)
{
    return (ht_cost){.recomputed_flops = ht_cost_flops(cost), .bytes = cost.bytes};
}
