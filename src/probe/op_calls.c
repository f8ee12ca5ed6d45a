/* Ops by our own kernels: a sample becomes a graph, a plan and a session, which runs over and over. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "probe/probe_own.h"

enum { PATTERN = 1 << 16 }; /* longer than what a branch predictor learns */

/* A pattern of values within the sample's range, repeated: drawing as many as a large operand has takes too long. */
ht_status ht_probe_fill(ht_context *ctx, const ht_probe_session *s, const ht_sample *sample, size_t input)
{
    const ht_type *type = &sample->in[input];
    size_t elems = (size_t)ht_type_elems(type), size = ht_dtype_bytes(type->dtype);
    size_t drawn = elems < PATTERN ? elems : PATTERN;
    char name[32], *data = malloc(elems * size + 1);
    if (!data) HT_FAIL(ctx, HT_ENOMEM, "probe: out of memory for an operand");
    for (size_t i = 0; i < drawn; i++)
        ht_store_f64(data, type->dtype, (int64_t)i, ht_sample_value(sample, input, (int64_t)i));
    for (size_t i = drawn; i < elems; i += drawn)
        memcpy(data + i * size, data, (elems - i < drawn ? elems - i : drawn) * size);
    snprintf(name, sizeof name, "x%zu", input);
    ht_status status = ht_session_write(s->session, name, data, elems * size);
    free(data);
    return status;
}

/* The same for an input of a graph, of which nothing is known but its type: within -1..1, whole numbers 0 and 1. */
static ht_status fill_input(ht_context *ctx, const ht_probe_session *s, const ht_slot *slot)
{
    size_t elems = (size_t)ht_type_elems(&slot->type), size = ht_dtype_bytes(slot->type.dtype);
    char *data = malloc(elems * size + 1);
    if (!data) HT_FAIL(ctx, HT_ENOMEM, "probe: out of memory for an operand");
    uint32_t drawn = 1;
    for (size_t i = 0; i < elems; i++) {
        drawn = drawn * 1664525u + 1013904223u;
        double value = ht_dtype_is_float(slot->type.dtype) ? (double)drawn / 2147483648.0 - 1 : (double)(drawn >> 31);
        ht_store_f64(data, slot->type.dtype, (int64_t)i, value);
    }
    ht_status status = ht_session_write(s->session, slot->name, data, elems * size);
    free(data);
    return status;
}

static ht_status open_graph(ht_context *ctx, ht_probe_session *s)
{
    HT_TRY(ht_plan_create(&s->plan, s->graph, NULL));
    HT_TRY(ht_session_create(&s->session, s->plan, NULL));
    for (size_t i = 0; i < s->plan->slot_count; i++)
        if (s->plan->slots[i].kind == HT_SLOT_INPUT) HT_TRY(fill_input(ctx, s, &s->plan->slots[i]));
    s->dtype = HT_F32;
    s->cost = ht_plan_segment_cost(&s->plan->segments[ht_plan_segment_find(s->plan, "forward")]);
    return HT_OK;
}

static ht_status open_sample(ht_context *ctx, const ht_op *op, const char *text, ht_probe_session *s)
{
    ht_sample sample;
    HT_TRY(ht_sample_parse(ctx, s->arena, op, text, &sample));
    HT_TRY(ht_sample_graph(ctx, &sample, &s->graph));
    HT_TRY(ht_plan_create(&s->plan, s->graph, NULL));
    HT_TRY(ht_session_create(&s->session, s->plan, NULL));
    for (size_t i = 0; i < sample.n_in; i++)
        if (sample.given[i]) HT_TRY(ht_probe_fill(ctx, s, &sample, i));
    for (size_t i = 0; i < s->plan->segment_count; i++)
        if (strcmp(s->plan->segments[i].name, "forward") == 0) s->cost = ht_plan_segment_cost(&s->plan->segments[i]);
    const ht_slot *result = ht_plan_slot(s->plan, "y0");
    s->elems = result ? (double)ht_type_elems(&result->type) : 0;
    s->dtype = ht_product_dtype(sample.in[0].dtype);
    return HT_OK;
}

ht_status ht_probe_open(ht_context *ctx, const char *op_name, const char *sample, ht_probe_session *out)
{
    const ht_op *op = ht_op_find(ctx, op_name, strlen(op_name));
    *out = (ht_probe_session){.arena = ht_arena_create()};
    if (!out->arena) HT_FAIL(ctx, HT_ENOMEM, "probe: out of memory");
    if (!op) HT_FAIL(ctx, HT_EINVAL, "probe: there is no op %s", op_name);
    return open_sample(ctx, op, sample, out);
}

void ht_probe_close(ht_probe_session *s)
{
    ht_session_free(s->session);
    ht_plan_free(s->plan);
    ht_graph_free(s->graph);
    ht_arena_free(s->arena);
    *s = (ht_probe_session){0};
}

static double run_calls(void *arg, int64_t rounds)
{
    const ht_probe_session *s = arg;
    for (int64_t i = 0; i < rounds; i++)
        if (ht_session_run(s->session, "forward") != HT_OK) return -1;
    return (double)rounds;
}

double ht_probe_calls(const ht_probe_session *s, double seconds)
{
    return ht_probe_best(seconds, run_calls, (void *)s);
}

/* ---- families ---- */

/* One of its samples, or the graph that it is. */
static ht_status open_family(ht_context *ctx, const ht_family_row *f, int size, ht_probe_session *s)
{
    if (f->sample[size][0] == '(') return ht_probe_open(ctx, f->op, f->sample[size], s);
    *s = (ht_probe_session){.arena = ht_arena_create()};
    if (!s->arena) HT_FAIL(ctx, HT_ENOMEM, "probe: out of memory");
    HT_TRY(ht_family_graph(ctx, s->arena, f, HT_DEVICE_CPU, size, &s->graph));
    return open_graph(ctx, s);
}

static ht_status measure_family(prober *p, int family, int size)
{
    const ht_family_row *f = &ht_families[family];
    ht_probe_session s;
    ht_status status = open_family(p->ctx, f, size, &s);
    double calls = status == HT_OK ? ht_probe_calls(&s, p->slice) : 0;
    if (status == HT_OK && calls > 0) {
        double flops = ht_cost_flops(s.cost);
        bool product = s.cost.dot_flops > 0;
        ht_probe_row *row = ht_probe_add(p, "family", f->name, product ? "FLOP/s" : "B/s",
                                         calls * (product ? flops : s.cost.bytes), p->threads);
        if (row) {
            row->size = ht_family_size_names[size];
            row->what = f->op;
            row->flops = flops, row->bytes = s.cost.bytes, row->seconds = 1 / calls;
            row->share = ht_sample_limit(&p->out->target, s.dtype, s.cost) * calls;
            p->out->target.efficiency[family][size] = row->share;
        }
        status = row ? HT_OK : HT_ENOMEM;
    } else if (status == HT_OK) {
        status = p->ctx->status;
    }
    ht_probe_close(&s);
    return status;
}

ht_status ht_probe_families(prober *p)
{
    ht_probe_tell(p, "kernels");
    for (int family = 0; family < ht_family_count; family++)
        for (int size = 0; size < HT_FAMILY_SIZES; size++)
            if (ht_family_sample(&ht_families[family], HT_DEVICE_CPU, size)) HT_TRY(measure_family(p, family, size));
    return HT_OK;
}
