#include "ours.h"

#include <string.h>

#include "bench_common.h"

ht_context *ours_context(void)
{
    ht_context_opts opts = HT_CONTEXT_OPTS;
    ht_context *ctx;
    opts.threads = bench_threads();
    if (ht_context_create(&ctx, &opts) != HT_OK) {
        fprintf(stderr, "no context\n");
        exit(1);
    }
    return ctx;
}

void ours_begin(ours *o, ht_context *ctx)
{
    *o = (ours){.run = "forward"};
    if (ht_graph_create(&o->graph, ctx) != HT_OK) {
        fprintf(stderr, "%s\n", ht_context_message(ctx));
        exit(1);
    }
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void fill_array(void *array, ht_dtype dtype, int64_t elems, double low, double high)
{
    uint32_t state = (uint32_t)elems;
    float base = (float)low, step = (float)((high - low) / (1 << 24));
    for (int64_t i = 0; i < elems; i++) {
        float x = base + step * (float)next_random(&state);
        if (dtype == HT_F32)
            ((float *)array)[i] = x;
        else if (dtype == HT_BF16)
            ((ht_bf16 *)array)[i] = ht_bf16_from_f32(x);
        else
            ht_store_f64(array, dtype, i, x);
    }
}

static void fill_slot(ours *o, const ht_slot *slot, double low, double high)
{
    size_t bytes = (size_t)ht_type_bytes(&slot->type);
    void *data = malloc(bytes + 1);
    if (!data) return;
    fill_array(data, slot->type.dtype, ht_type_elems(&slot->type), low, high);
    ht_session_write(o->session, slot->name, data, bytes);
    free(data);
}

void ours_fill(ours *o, const char *name, double low, double high)
{
    const ht_slot *slot = o->session ? ht_plan_slot(o->plan, name) : NULL;
    if (slot) fill_slot(o, slot, low, high);
}

bool ours_ready(ours *o)
{
    ht_status status = ht_graph_status(o->graph);
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.no_prepack = o->no_prepack;
    opts.target = o->target;
    ht_train_setting sparse = {"sparse", o->sparse};
    opts.settings = &sparse;
    opts.setting_count = o->sparse != NULL;
    if (status == HT_OK) status = ht_plan_create(&o->plan, o->graph, &opts);
    if (status == HT_OK) status = ht_session_create(&o->session, o->plan, NULL);
    if (status != HT_OK) {
        fprintf(stderr, "%s\n", ht_context_message(o->graph->ctx));
        return false;
    }
    for (size_t i = 0; i < o->plan->slot_count; i++) {
        const ht_slot *slot = &o->plan->slots[i];
        if (slot->kind != HT_SLOT_OUTPUT && ht_dtype_is_float(slot->type.dtype) && slot->type.rank > 0)
            fill_slot(o, slot, -0.5, 0.5);
    }
    return true;
}

double ours_turn(void *arg, int calls)
{
    const ours *o = arg;
    if (!o->session) return -1;
    double start = bench_now();
    for (int i = 0; i < calls; i++)
        if (ht_session_run(o->session, o->run) != HT_OK) return -1;
    return (bench_now() - start) / calls;
}

void ours_end(ours *o)
{
    ht_session_free(o->session);
    ht_plan_free(o->plan);
    ht_graph_free(o->graph);
    *o = (ours){0};
}

void ours_backward(ours *o, ht_val y, size_t n, const ht_val *wrt)
{
    enum { MOST = 8 };
    ht_graph *g = o->graph;
    ht_val grads[MOST] = {HT_NONE};
    char name[16];
    ht_val dy = ht_input(g, "dy", ht_val_dtype(g, y), ht_val_rank(g, y), ht_val_dims(g, y));
    if (n > MOST || ht_gradients(g, ht_sum(g, ht_mul(g, y, dy), 0, NULL, false), n, wrt, grads) != HT_OK) return;
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "grad%zu", i);
        ht_val v = grads[i];
        ht_val kept = ht_state_add(g, name, ht_val_dtype(g, v), ht_val_rank(g, v), ht_val_dims(g, v), HT_ZERO);
        ht_store(g, kept, v);
    }
}
