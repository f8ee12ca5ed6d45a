#include "op_tests.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int op_tests_run(const char *group, CMUnitTestFunction test, bool (*wanted)(const ht_op *op))
{
    ht_context *ctx = context_shared();
    struct CMUnitTest *tests = calloc(ctx->op_count, sizeof *tests);
    char(*names)[128] = calloc(ctx->op_count, sizeof *names);
    if (!tests || !names) abort();
    const char *only = getenv("HALFTONE_TEST_OP");
    size_t count = 0;
    for (size_t i = 0; i < ctx->op_count; i++) {
        if (only && strcmp(only, ctx->ops[i]->name) != 0) continue;
        if (wanted && !wanted(ctx->ops[i])) continue;
        snprintf(names[count], sizeof names[count], "%s: %s", group, ctx->ops[i]->name);
        tests[count].name = names[count];
        tests[count].test_func = test;
        tests[count].initial_state = (void *)ctx->ops[i];
        count++;
    }
    int failures = _cmocka_run_group_tests(group, tests, count, NULL, NULL);
    free(tests);
    free(names);
    return failures;
}

void op_case_fail(const op_case *c, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fail_msg("%s %s [%s]: %s", c->op->name, c->line, c->variant, text);
    abort();
}

void op_case_parse(op_case *c, const ht_op *op, const char *line)
{
    memset(c, 0, sizeof *c);
    c->op = op;
    c->line = line;
    c->variant = "as written";
    c->arena = ht_arena_create();
    assert_non_null(c->arena);
    ht_context *ctx = context_shared();
    if (ht_sample_parse(ctx, c->arena, op, line, &c->sample) != HT_OK)
        op_case_fail(c, "does not parse: %s", ht_context_message(ctx));
}

static void float_becomes(ht_type *type, ht_dtype dtype)
{
    if (ht_dtype_is_float(type->dtype)) type->dtype = dtype;
}

void op_case_floats(op_case *c, ht_dtype dtype)
{
    for (size_t i = 0; i < c->sample.n_in; i++) float_becomes(&c->sample.in[i], dtype);
    for (int i = 0; c->sample.typed && i < c->op->n_out; i++) float_becomes(&c->sample.want[i], dtype);
    c->variant = ht_dtype_name(dtype);
}

bool op_case_build(op_case *c)
{
    ht_context *ctx = context_shared();
    if (ht_sample_graph(ctx, &c->sample, &c->graph) != HT_OK) return false;
    if (!op_case_node(c)) op_case_fail(c, "its graph does not hold the op");
    ht_call_storage storage;
    const ht_call *call = ht_node_call(c->graph, op_case_node(c), c->arena, &storage);
    assert_non_null(call);
    c->made = *call;
    for (size_t i = 0; i < call->n_in; i++) {
        if (call->in[i]) c->in_type[i] = *call->in[i];
        c->in[i] = call->in[i] ? &c->in_type[i] : NULL;
    }
    for (size_t i = 0; i < call->n_out; i++) {
        c->out_type[i] = *call->out[i];
        c->out[i] = &c->out_type[i];
    }
    c->made.in = c->in;
    c->made.out = c->out;
    c->call = &c->made;
    return true;
}

const ht_node *op_case_node(const op_case *c)
{
    for (size_t i = 1; i < c->graph->node_count; i++)
        if (c->graph->nodes[i].op == c->op) return &c->graph->nodes[i];
    return NULL;
}

ht_val op_weighted_sum(ht_graph *g, size_t n, const ht_val *y, const char *prefix, ht_val *weights)
{
    ht_val loss = HT_NONE;
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%zu", prefix, i);
        ht_type type = *ht_type_of(g, y[i]);
        weights[i] = ht_input(g, name, type.dtype, type.rank, type.dim);
        ht_val part = ht_sum(g, ht_mul(g, ht_to_space(g, y[i], HT_SPACE_MAIN), weights[i]), 0, NULL, false);
        loss = i ? ht_add(g, loss, part) : part;
    }
    return loss;
}

size_t op_case_results(const op_case *c, ht_val results[8])
{
    const ht_segment *s = &c->graph->segments[0];
    size_t n = 0;
    for (size_t i = 0; i < c->call->n_out; i++)
        if (ht_dtype_is_float(c->call->out[i]->dtype) && !(c->op->aux_out >> i & 1)) results[n++] = s->outputs[i].value;
    return n;
}

void op_case_free(op_case *c)
{
    ht_graph_free(c->graph);
    ht_arena_free(c->arena);
    c->graph = NULL;
    c->arena = NULL;
}

void op_arrays_make(op_arrays *a, op_case *c)
{
    memset(a, 0, sizeof *a);
    for (size_t i = 0; i < c->call->n_in; i++) {
        const ht_type *type = c->call->in[i];
        if (!type) continue;
        int64_t elems = ht_type_elems(type);
        a->in[i] = HT_NEW(c->arena, double, elems);
        assert_non_null(a->in[i]);
        for (int64_t k = 0; k < elems; k++) a->in[i][k] = ht_round_to(type->dtype, ht_sample_value(&c->sample, i, k));
    }
    for (size_t i = 0; i < c->call->n_out; i++) {
        a->out[i] = HT_NEW(c->arena, double, ht_type_elems(c->call->out[i]));
        assert_non_null(a->out[i]);
    }
}

void op_arrays_reference(op_arrays *a, const op_case *c)
{
    c->op->ref(c->call, (const double *const *)a->in, a->out);
}

static void *exact_bytes(size_t bytes)
{
    /* Not 0 bytes: those may have no address. */
    void *block = malloc(bytes ? bytes : 1);
    assert_non_null(block);
    return block;
}

void op_kernel_run(const ht_kernel *kernel, const ht_target *target, const ht_call *call, op_arrays *a)
{
    void *in[HT_SAMPLE_MAX] = {NULL}, *out[8];
    for (size_t i = 0; i < call->n_in; i++) {
        if (!call->in[i]) continue;
        in[i] = exact_bytes((size_t)ht_type_bytes(call->in[i]));
        for (int64_t e = 0; e < ht_type_elems(call->in[i]); e++)
            ht_store_f64(in[i], call->in[i]->dtype, e, a->in[i][e]);
    }
    for (size_t i = 0; i < call->n_out; i++) out[i] = exact_bytes((size_t)ht_type_bytes(call->out[i]));
    /* As in a plan: workspaces start at a multiple of 64. posix_memalign keeps the size exact, for the sanitizer. */
    void *workspace = NULL;
    size_t bytes = kernel->workspace ? (size_t)kernel->workspace(call, target) : 0;
    assert_int_equal(posix_memalign(&workspace, 64, bytes ? bytes : 1), 0);
    kernel->run(&(ht_launch){
        .call = call, .in = (const void *const *)in, .out = out, .workspace = workspace, .threads = target->threads});
    for (size_t i = 0; i < call->n_out; i++) {
        for (int64_t e = 0; e < ht_type_elems(call->out[i]); e++)
            a->out[i][e] = ht_load_f64(out[i], call->out[i]->dtype, e);
        free(out[i]);
    }
    for (size_t i = 0; i < call->n_in; i++) free(in[i]);
    free(workspace);
}

double op_weight(const char *site, int64_t index)
{
    ht_stream stream = {.seed = 7, .site = ht_hash_text(site)};
    double u = 2 * ht_stream_uniform(&stream, (uint64_t)index) - 1;
    return u < 0 ? 0.9 * u - 0.1 : 0.9 * u + 0.1;
}

double op_largest(const double *values, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(values[i])) largest = fmax(largest, fabs(values[i]));
    return largest;
}

double op_unit_roundoff(ht_dtype dtype)
{
    switch (dtype) {
    case HT_F64: return DBL_EPSILON / 2;
    case HT_F32: return FLT_EPSILON / 2;
    case HT_F16: return 0x1p-11;
    case HT_BF16: return 0x1p-8;
    case HT_F8E4M3: return 0x1p-4;
    case HT_F8E5M2: return 0x1p-3;
    default: return 0;
    }
}
