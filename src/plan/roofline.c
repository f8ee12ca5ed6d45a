#include "plan/plan.h"

const char *const ht_bound_names[HT_BOUND_COUNT] = {"compute", "memory", "latency", "communication"};
const char *const ht_work_names[HT_WORK_COUNT] = {"arithmetic", "memory", "logic", "special"};

/* ---- the kind of work ---- */

/* FLOPs of an element from here on: exp and its kind, rows that are normalised. */
enum { SPECIAL_FLOPS = 4 };

static bool has_bool(const ht_call *call)
{
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i] && call->in[i]->dtype == HT_BOOL) return true;
    return false;
}

static bool makes_float(const ht_call *call)
{
    for (size_t i = 0; i < call->n_out; i++)
        if (ht_dtype_is_float(call->out[i]->dtype)) return true;
    return false;
}

static double largest_elems(const ht_call *call)
{
    int64_t most = 1;
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i] && ht_type_elems(call->in[i]) > most) most = ht_type_elems(call->in[i]);
    for (size_t i = 0; i < call->n_out; i++)
        if (ht_type_elems(call->out[i]) > most) most = ht_type_elems(call->out[i]);
    return (double)most;
}

ht_work ht_instr_work(const ht_instr *instr)
{
    const ht_call *call = ht_instr_call(instr);
    double flops = ht_cost_flops(ht_call_cost(call));
    if (call->op->prec == HT_PREC_DOT) return HT_WORK_ARITHMETIC;
    if (call->op->prec == HT_PREC_MOVE || (call->op->flags & HT_OP_ERASED)) return HT_WORK_MEMORY;
    if (!makes_float(call) || (call->op->prec == HT_PREC_POINT && has_bool(call))) return HT_WORK_LOGIC;
    if (flops == 0) return HT_WORK_MEMORY;
    if (call->op->prec != HT_PREC_EXACT && flops >= SPECIAL_FLOPS * largest_elems(call)) return HT_WORK_SPECIAL;
    return HT_WORK_ARITHMETIC;
}

/* ---- the roofline ---- */

ht_dtype ht_product_dtype(ht_dtype operand)
{
    if (ht_dtype_is_code(operand)) return HT_I8;
    return ht_dtype_is_float(operand) ? operand : HT_F32;
}

/* The narrowest floating-point type that its product reads; i8 for codes of 8 bits. */
static ht_dtype dtype_of(const ht_call *call)
{
    ht_dtype found = HT_F32;
    bool any = false;
    if (call->n_in && call->in[0] && ht_dtype_is_code(call->in[0]->dtype)) return HT_I8;
    for (size_t i = 0; i < call->n_in; i++) {
        if (!call->in[i] || !ht_dtype_is_float(call->in[i]->dtype) || ht_type_elems(call->in[i]) < 2) continue;
        if (!any || ht_dtype_bytes(call->in[i]->dtype) < ht_dtype_bytes(found)) found = call->in[i]->dtype;
        any = true;
    }
    return found;
}

static double bytes_per_second(const ht_target *target, const ht_instr *instr)
{
    const ht_call *call = instr->call;
    if (call->n_in && call->n_out && call->in[0] && call->in[0]->space != call->out[0]->space)
        return ht_target_link(target, call->in[0]->space, call->out[0]->space);
    return ht_target_bandwidth(target, instr->space);
}

ht_bound ht_bound_of_most(const double seconds[HT_BOUND_COUNT])
{
    int most = 0;
    for (int bound = 1; bound < HT_BOUND_COUNT; bound++)
        if (seconds[bound] > seconds[most]) most = bound;
    return (ht_bound)most;
}

ht_roofline ht_instr_roofline(const ht_target *target, const ht_instr *instr)
{
    const ht_call *call = ht_instr_call(instr);
    bool dot = call->op->prec == HT_PREC_DOT;
    int parts = dot ? instr->kernel->parts.count : 0, own = dot ? (int)dtype_of(call) : (int)HT_F32;
    ht_roofline r = {.format = parts ? instr->kernel->parts.format : own};
    double products = instr->cost.dot_flops, other = instr->cost.other_flops;
    *(dot ? &products : &other) += instr->cost.recomputed_flops;
    r.product_flops = ht_target_flops(target, r.format) / (parts ? parts : 1);
    r.compute_s = products / r.product_flops + other / ht_target_flops(target, HT_F32);
    r.memory_s = instr->cost.bytes / bytes_per_second(target, instr);
    r.limit_s = r.compute_s > r.memory_s ? r.compute_s : r.memory_s;
    if (instr->call->op->flags & HT_OP_COLLECTIVE)
        r.bound = HT_BOUND_COMMUNICATION;
    else if (r.limit_s < HT_LAUNCH_SECONDS)
        r.bound = HT_BOUND_LATENCY;
    else
        r.bound = r.compute_s >= r.memory_s ? HT_BOUND_COMPUTE : HT_BOUND_MEMORY;
    return r;
}
