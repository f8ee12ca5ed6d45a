/* From calls to the steps of a chain: what goes through registers, what is loaded and stored in between. */
#include <string.h>

#include "kernel/kernel.h"

typedef struct chaining {
    const ht_fused *f;
    const ht_chain_build *build;
    bool read[HT_FUSED_OPERANDS]; /* from memory, by some step */
    int held;                     /* what the registers hold; -1: nothing of use */
    ht_chain_op *ops;             /* NULL while only looking */
    int count;
} chaining;

static ht_dtype dtype_of(const chaining *c, int operand)
{
    return c->f->operands[operand].type->dtype;
}

static void add_op(chaining *c, ht_chain_step run, int first, int second, const double *bound)
{
    if (c->ops) {
        ht_chain_op *op = &c->ops[c->count];
        *op = (ht_chain_op){.run = run, .operand = {(int16_t)first, (int16_t)second}};
        if (bound) memcpy(op->bound, bound, sizeof op->bound);
    }
    c->count++;
}

static void load(chaining *c, int operand)
{
    c->read[operand] = true;
    add_op(c, c->build->moves[dtype_of(c, operand)].load, operand, HT_CHAIN_NOTHING, NULL);
    c->held = operand;
}

/* An operand that a step reads as an array of the build's own numbers: where it lies, or staged. */
static int second_operand(chaining *c, int operand)
{
    c->read[operand] = true;
    if (dtype_of(c, operand) == c->build->native) return operand;
    add_op(c, c->build->moves[dtype_of(c, operand)].stage, operand, HT_CHAIN_STAGE, NULL);
    return HT_CHAIN_STAGE;
}

static void add_step(chaining *c, const ht_fused_step *step)
{
    const ht_chain_row *row = step->elementwise->chain;
    size_t n_in = step->call->n_in;
    double bound[2] = {0};
    if (row->bounds) row->bounds(step->call, bound);
    if (n_in == 1) {
        if (c->held != step->operand[0]) load(c, step->operand[0]);
        if (row->forward) add_op(c, row->forward, HT_CHAIN_NOTHING, HT_CHAIN_NOTHING, bound);
    } else {
        int left = step->operand[n_in - 2], right = step->operand[n_in - 1];
        int condition = n_in == 3 ? step->operand[0] : HT_CHAIN_NOTHING;
        if (n_in == 3) c->read[condition] = true;
        bool reverse = c->held == right && c->held != left;
        int other = second_operand(c, reverse ? left : right);
        if (!reverse && c->held != left) load(c, left);
        add_op(c, reverse ? row->reverse : row->forward, other, condition, bound);
    }
}

static void add_result(chaining *c, int result)
{
    bool outside = result < c->f->n_in + c->f->n_out, exact = dtype_of(c, result) == c->build->native;
    bool folded = c->f->fold && result == c->f->folded;
    if (c->read[result] || outside || folded)
        add_op(c, c->build->moves[dtype_of(c, result)].store, result, HT_CHAIN_NOTHING, NULL);
    /* Registers hold more digits than a narrower type: it is read back from memory. */
    c->held = exact || dtype_of(c, result) == HT_BOOL ? result : -1;
}

static void walk(chaining *c)
{
    c->held = -1;
    c->count = 0;
    for (int s = 0; s < c->f->step_count; s++) {
        const ht_fused_step *step = &c->f->steps[s];
        add_step(c, step);
        add_result(c, step->operand[step->call->n_in]);
    }
    add_op(c, c->build->end, HT_CHAIN_NOTHING, HT_CHAIN_NOTHING, NULL);
}

/* All steps of one build, all operands of types that it moves, none that must be seen whole. */
static const ht_chain_build *build_of(const ht_fused *f)
{
    const ht_chain_row *row = f->steps[0].elementwise->chain;
    const ht_chain_build *build = row ? row->build : NULL;
    for (int s = 0; build && s < f->step_count; s++) {
        const ht_chain_row *other = f->steps[s].elementwise->chain;
        if (!other || other->build != build) return NULL;
    }
    for (int i = 0; build && i < f->n_in + f->n_out + f->n_between; i++) {
        const ht_fused_operand *o = &f->operands[i];
        if (o->access == HT_ACCESS_WHOLE || !build->moves[o->type->dtype].load) return NULL;
    }
    return build;
}

int ht_chain_make(const ht_fused *f, ht_chain_op *ops)
{
    chaining c = {.f = f, .build = build_of(f)};
    if (!c.build) return 0;
    walk(&c); /* finds out what is read from memory; the second walk stores it */
    c.ops = ops;
    walk(&c);
    return c.count;
}
