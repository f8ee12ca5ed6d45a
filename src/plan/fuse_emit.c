/* Instructions of element-wise nodes: a group's call, as if it were one op, and its steps, perhaps behind a product or
 * before a reduction; the one step of a node alone. */
#include <string.h>

#include "plan/planning.h"

/* Stands in the calls of such instructions; not in the table of ops. */
static const ht_op op_fused = {.size = sizeof(ht_op), .name = "fused", .prec = HT_PREC_POINT, .flags = HT_OP_INPLACE};

typedef struct program {
    ht_plan *plan;
    const ht_graph *g;
    const ht_groups *groups;
    const uint32_t *nodes; /* the element-wise ones */
    size_t count;
    const ht_node *gemm;                /* the product before them, or NULL */
    const ht_node *fold;                /* the reduction behind them, or NULL */
    ht_val operands[HT_FUSED_OPERANDS]; /* inputs, results, what lies between */
    size_t n_in, n_out, n_between;
} program;

static int find(const program *p, ht_val v)
{
    for (size_t i = 0; i < p->n_in + p->n_out + p->n_between; i++)
        if (p->operands[i].id == v.id) return (int)i;
    return -1;
}

static bool made_here(const program *p, ht_val v)
{
    if (p->gemm && v.id == p->gemm->out) return true;
    for (size_t k = 0; k < p->count; k++) {
        const ht_node *n = &p->g->nodes[p->nodes[k]];
        if (v.id >= n->out && v.id < n->out + n->n_out) return true;
    }
    return false;
}

static void list_operands(program *p)
{
    for (size_t k = 0; k < p->count; k++) {
        const ht_node *n = &p->g->nodes[p->nodes[k]];
        for (size_t i = 0; i < n->n_in; i++) {
            ht_val v = ht_node_in(p->g, n, i);
            if (!made_here(p, v) && find(p, v) < 0) p->operands[p->n_in++] = v;
        }
    }
    for (int inside = 0; inside < 2; inside++) {
        if (inside && p->gemm) p->operands[p->n_in + p->n_out + p->n_between++] = ht_node_out(p->gemm, 0);
        for (size_t k = 0; k < p->count; k++) {
            const ht_node *n = &p->g->nodes[p->nodes[k]];
            for (uint32_t v = n->out; v < n->out + n->n_out; v++) {
                if (p->groups->inside[v] != inside) continue;
                p->operands[p->n_in + p->n_out + p->n_between] = (ht_val){v};
                *(inside ? &p->n_between : &p->n_out) += 1;
            }
        }
    }
}

static bool fill_step(const program *p, ht_fused_step *step, const ht_kernel *const *kernels, size_t k)
{
    ht_call_storage storage;
    const ht_node *n = &p->g->nodes[p->nodes[k]];
    const ht_call *call = ht_node_call(p->g, n, p->plan->arena, &storage);
    *step = (ht_fused_step){.elementwise = kernels[p->nodes[k]]->elementwise};
    step->call = call ? ht_plan_own_call(p->plan, call) : NULL;
    for (size_t i = 0; i < n->n_in; i++) step->operand[i] = (uint8_t)find(p, ht_node_in(p->g, n, i));
    for (size_t i = 0; i < n->n_out; i++) step->operand[n->n_in + i] = (uint8_t)find(p, ht_node_out(n, i));
    return step->call != NULL;
}

/* Operand i of the call as the machine sees it: n_in inputs, those of the product or what the reduction reads besides,
 * n_out results, those of the reduction. `more` is the number of the second kind. */
static ht_val operand_of_call(const program *p, size_t i, size_t more)
{
    if (i < p->n_in) return p->operands[i];
    i -= p->n_in;
    if (i < more) return p->gemm ? ht_node_in(p->g, p->gemm, i) : ht_node_in(p->g, p->fold, 1 + i);
    i -= more;
    return i < p->n_out ? p->operands[p->n_in + i] : ht_node_out(p->fold, i - p->n_out);
}

static bool fill_call(const program *p, const ht_buffer_assignment *r, ht_instr *instr)
{
    size_t more = p->gemm ? p->gemm->n_in : p->fold ? p->fold->n_in - 1 : 0;
    size_t n_in = p->n_in + more, n_out = p->n_out + (p->fold ? p->fold->n_out : 0), all = n_in + n_out;
    ht_call *call = HT_NEW(p->plan->arena, ht_call, 1);
    const ht_type **types = HT_NEW(p->plan->arena, const ht_type *, all);
    ht_place *places = HT_NEW(p->plan->arena, ht_place, all);
    bool *guarded = HT_NEW(p->plan->arena, bool, n_out);
    if (!call || !types || !places || !guarded) return false;
    for (size_t i = 0; i < all; i++) {
        ht_val v = operand_of_call(p, i, more);
        types[i] = v.id ? ht_plan_own_type(p->plan, ht_type_of(p->g, v)) : NULL;
        if (v.id && !types[i]) return false;
        places[i] = v.id ? r->value[v.id] : (ht_place){0};
        if (i >= n_in) guarded[i - n_in] = r->guarded[v.id];
    }
    *call = (ht_call){.op = &op_fused, .n_in = n_in, .n_out = n_out, .in = types, .out = types + n_in};
    instr->call = call;
    instr->in = places;
    instr->out = places + n_in;
    if (p->plan->canary) instr->guarded = guarded;
    return true;
}

/* The call of the product or the reduction, where there is one. */
static bool own_node_call(const program *p, const ht_node *n, const ht_call **own)
{
    if (!n) return true;
    ht_call_storage storage;
    const ht_call *call = ht_node_call(p->g, n, p->plan->arena, &storage);
    *own = call ? ht_plan_own_call(p->plan, call) : NULL;
    return *own != NULL;
}

static bool fill_steps(const program *p, const ht_kernel *const *kernels, ht_instr *instr)
{
    size_t all = p->n_in + p->n_out + p->n_between;
    ht_fused *f = HT_NEW(p->plan->arena, ht_fused, 1);
    ht_fused_operand *operands = HT_NEW(p->plan->arena, ht_fused_operand, all);
    ht_fused_step *steps = HT_NEW(p->plan->arena, ht_fused_step, p->count);
    ht_chain_op *chain = HT_NEW(p->plan->arena, ht_chain_op, HT_CHAIN_OPS(p->count));
    if (!f || !operands || !steps || !chain) return false;
    for (size_t i = 0; i < all; i++) {
        operands[i].type = ht_plan_own_type(p->plan, ht_type_of(p->g, p->operands[i]));
        if (!operands[i].type) return false;
    }
    for (size_t k = 0; k < p->count; k++)
        if (!fill_step(p, &steps[k], kernels, k)) return false;
    *f = (ht_fused){.n_in = (int)p->n_in, .n_out = (int)p->n_out, .n_between = (int)p->n_between};
    f->step_count = (int)p->count;
    f->operands = operands;
    f->steps = steps;
    f->product = (int)(p->n_in + p->n_out);
    if (p->fold) f->folded = find(p, ht_node_in(p->g, p->fold, 0));
    if (!own_node_call(p, p->gemm, &f->gemm) || !own_node_call(p, p->fold, &f->fold)) return false;
    ht_fused_compile(f, chain);
    for (size_t i = 0; i < p->n_out; i++)
        if (p->groups->reread[p->operands[p->n_in + i].id]) ht_fused_keep_cached(f, (int)i);
    instr->fused = f;
    return true;
}

/* FLOPs of every node, and bytes of what the instruction reads and writes: what lies between its nodes is not in
 * memory. */
static ht_cost cost_of(const program *p, const ht_fused *f)
{
    ht_cost cost = {0};
    if (f->gemm) {
        ht_cost_add(&cost, ht_plan_node_cost(f->gemm, p->gemm), 1);
        cost.bytes -= (double)ht_type_distinct_bytes(f->gemm->out[0]);
    }
    double bytes = cost.bytes;
    for (int s = 0; s < f->step_count; s++)
        ht_cost_add(&cost, ht_plan_node_cost(f->steps[s].call, &p->g->nodes[p->nodes[s]]), 1);
    if (f->fold) {
        ht_cost_add(&cost, ht_plan_node_cost(f->fold, p->fold), 1);
        for (size_t i = 0; i < f->fold->n_out; i++) bytes += (double)ht_type_distinct_bytes(f->fold->out[i]);
    }
    for (size_t i = 0; i < p->n_in + p->n_out; i++)
        bytes += (double)ht_type_distinct_bytes(ht_type_of(p->g, p->operands[i]));
    cost.bytes = bytes;
    return cost;
}

bool ht_plan_group(ht_plan *plan, const ht_graph *g, const ht_groups *groups, const uint32_t *nodes, size_t count,
                   const ht_kernel *const *kernels, const ht_buffer_assignment *r, ht_instr *instr)
{
    program p = {.plan = plan, .g = g, .groups = groups, .nodes = nodes, .count = count};
    *instr = (ht_instr){.kernel = kernels[nodes[0]]};
    if (!kernels[nodes[0]]->elementwise) {
        p.gemm = &g->nodes[nodes[0]];
        p.nodes++;
        p.count--;
    }
    if (!kernels[nodes[count - 1]]->elementwise) {
        p.fold = &g->nodes[nodes[count - 1]];
        instr->kernel = kernels[nodes[count - 1]];
        p.count--;
    }
    list_operands(&p);
    if (!fill_call(&p, r, instr) || !fill_steps(&p, kernels, instr)) return false;
    instr->cost = cost_of(&p, instr->fused);
    ht_plan_read_once(instr);
    return true;
}

const ht_fused *ht_plan_step(ht_plan *plan, const ht_call *call, const ht_kernel *kernel, const bool *reread)
{
    ht_fused *f = HT_NEW(plan->arena, ht_fused, 1);
    ht_fused_operand *operands = HT_NEW(plan->arena, ht_fused_operand, call->n_in + call->n_out);
    ht_fused_step *step = HT_NEW(plan->arena, ht_fused_step, 1);
    ht_chain_op *chain = HT_NEW(plan->arena, ht_chain_op, HT_CHAIN_OPS(1));
    if (!f || !operands || !step || !chain) return NULL;
    ht_fused_alone(f, operands, step, chain, call, kernel->elementwise);
    for (size_t i = 0; reread && i < call->n_out; i++)
        if (reread[i]) ht_fused_keep_cached(f, (int)i);
    return f;
}
