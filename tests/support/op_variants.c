#include "op_variants.h"

#include <math.h>

const op_variant op_variants[] = {
    {.name = "as written", .out = HT_DTYPE_COUNT, .as_written = true},
    {.name = "special values", .out = HT_DTYPE_COUNT, .as_written = true, .special = true},
    {.name = "f64", .in_even = HT_F64, .in_odd = HT_F64, .out = HT_DTYPE_COUNT},
    {.name = "f16", .in_even = HT_F16, .in_odd = HT_F16, .out = HT_DTYPE_COUNT},
    {.name = "bf16", .in_even = HT_BF16, .in_odd = HT_BF16, .out = HT_DTYPE_COUNT},
    {.name = "bf16 to f32", .in_even = HT_BF16, .in_odd = HT_BF16, .out = HT_F32},
    {.name = "f32 to bf16", .in_even = HT_F32, .in_odd = HT_F32, .out = HT_BF16},
    {.name = "f64 to f16", .in_even = HT_F64, .in_odd = HT_F64, .out = HT_F16},
    {.name = "bf16 and f32", .in_even = HT_BF16, .in_odd = HT_F32, .out = HT_DTYPE_COUNT},
    {.name = "f16 and bf16", .in_even = HT_F16, .in_odd = HT_BF16, .out = HT_F32},
    {.name = "f8e4m3 to f32", .in_even = HT_F8E4M3, .in_odd = HT_F8E4M3, .out = HT_F32},
};
const size_t op_variant_count = sizeof op_variants / sizeof op_variants[0];

bool op_variant_fits(const ht_op *op, const op_variant *v)
{
    return !v->special || op->prec != HT_PREC_DOT;
}

bool op_variant_build(op_case *c, const op_variant *v)
{
    c->variant = v->name;
    if (v->as_written) return op_case_build(c);
    ht_sample *s = &c->sample;
    bool changed = false;
    for (size_t i = 0; i < s->n_in; i++) {
        ht_dtype dtype = i % 2 ? v->in_odd : v->in_even;
        if (!s->given[i] || s->in[i].dtype != HT_F32) continue;
        changed |= dtype != HT_F32;
        s->in[i].dtype = dtype;
    }
    for (int i = 0; s->typed && i < c->op->n_out; i++)
        if (s->want[i].dtype == HT_F32) {
            s->want[i].dtype = v->out != HT_DTYPE_COUNT ? v->out : v->in_even;
            changed |= s->want[i].dtype != HT_F32;
        }
    if (s->typed || v->out == HT_DTYPE_COUNT) return changed && op_case_build(c);
    /* The inferred types first, to say them back with another float type. */
    if (!op_case_build(c)) return false;
    for (size_t i = 0; i < c->call->n_out; i++) {
        s->want[i] = *c->call->out[i];
        if (!ht_dtype_is_float(s->want[i].dtype) || s->want[i].dtype == v->out) continue;
        s->want[i].dtype = v->out;
        changed = true;
    }
    s->typed = true;
    ht_graph_free(c->graph);
    c->graph = NULL;
    return changed && op_case_build(c);
}

void op_arrays_special(op_arrays *a, const op_case *c)
{
    static const double specials[] = {0, -0.0, INFINITY, -INFINITY, NAN, 0x1p-140, -0x1p-140, 1};
    ht_stream stream = {.seed = 3, .site = ht_hash_text(c->line)};
    uint64_t next = 0;
    for (size_t i = 0; i < c->call->n_in; i++) {
        const ht_type *t = c->call->in[i];
        for (int64_t e = 0; t && ht_dtype_is_float(t->dtype) && e < ht_type_elems(t); e++, next++) {
            uint32_t word = ht_stream_word(&stream, next);
            if (word % 16 == 0) a->in[i][e] = ht_round_to(t->dtype, specials[word / 16 % 8]);
        }
    }
}

/* ---- how far off a result may be ---- */

/* The smallest step of the type. */
static double smallest_step(ht_dtype dtype)
{
    switch (dtype) {
    case HT_F32: return 0x1p-149;
    case HT_F16: return 0x1p-24;
    case HT_BF16: return 0x1p-133;
    case HT_F8E4M3: return 0x1p-9;
    case HT_F8E5M2: return 0x1p-16;
    default: return 0;
    }
}

op_bound op_bound_of(const op_case *c, const op_arrays *a, size_t result)
{
    const ht_call *call = c->call;
    ht_dtype dtype = call->out[result]->dtype;
    if (!ht_dtype_is_float(dtype) || c->op->prec == HT_PREC_MOVE) return (op_bound){.exact = true};
    bool wide = false;
    double scale = 0, outputs = 0;
    for (size_t i = 0; i < call->n_in; i++) {
        if (!call->in[i] || !ht_dtype_is_float(call->in[i]->dtype)) continue;
        wide |= call->in[i]->dtype == HT_F64;
        if (c->op->prec != HT_PREC_POINT) scale = fmax(scale, op_largest(a->in[i], ht_type_elems(call->in[i])));
    }
    for (size_t i = 0; i < call->n_out; i++) {
        wide |= call->out[i]->dtype == HT_F64;
        outputs = fmax(outputs, (double)ht_type_elems(call->out[i]));
    }
    scale = fmax(scale, op_largest(a->out[result], ht_type_elems(call->out[result])));
    double per_element = fmax(1, ht_cost_flops(ht_call_cost(call)) / fmax(1, outputs));
    double unit = op_unit_roundoff(wide ? HT_F64 : HT_F32), absolute = 4 * unit * sqrt(per_element) * scale;
    if (c->op->of_stored >> result & 1) {
        double first = (double)ht_type_elems(call->out[0]),
               terms = first / fmax(1, (double)ht_type_elems(call->out[result]));
        absolute += 2 * op_unit_roundoff(call->out[0]->dtype) * sqrt(terms) * op_largest(a->out[0], (int64_t)first);
    }
    return (op_bound){.relative = 1.001 * op_unit_roundoff(dtype), .absolute = absolute + smallest_step(dtype)};
}

bool op_close_enough(const op_bound *b, ht_dtype dtype, double got, double want)
{
    double rounded = ht_round_to(dtype, want);
    if (got == rounded || (isnan(got) && isnan(rounded))) return true;
    if (b->exact || !isfinite(got)) return false;
    return fabs(got - want) <= b->relative * fabs(want) + b->absolute;
}
