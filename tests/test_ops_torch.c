/* Every op against PyTorch: results and gradients in f32, by the kernels of each ISA that this machine has, against the
 * values that tests/reference/make_torch.py wrote. The bound is |a-b| <= 1e-5 (|b| + max|b|), times √K for ops of class
 * dot, K the length of their products. */
#include "op_tests.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ops without a file, and why. Every other op must have one that covers all its samples that are not empty. */
static const struct {
    const char *op, *reason;
} no_file[] = {
    {"random_uniform", "PyTorch draws other numbers"},
    {"random_normal", "PyTorch draws other numbers"},
    {"dropout", "PyTorch draws other numbers"},
    {"unslice", "the gradient of slice"},
    {"conv2d_grad_input", "the gradient of conv2d"},
    {"conv2d_grad_weight", "the gradient of conv2d"},
    {"max_pool2d_grad", "the gradient of max_pool2d"},
    {"avg_pool2d_grad", "the gradient of avg_pool2d"},
    {"attention_grad", "the gradient of attention"},
    {"lstm_grad", "the gradient of lstm"},
    {"embedding_grad", "the gradient of embedding"},
    {"layernorm_grad", "the gradient of layernorm"},
    {"rmsnorm_grad", "the gradient of rmsnorm"},
    {"batchnorm_grad", "the gradient of batchnorm"},
    {"cross_entropy_grad", "the gradient of cross_entropy"},
};

static const char *reason_for_no_file(const ht_op *op)
{
    for (size_t i = 0; i < sizeof no_file / sizeof no_file[0]; i++)
        if (strcmp(no_file[i].op, op->name) == 0) return no_file[i].reason;
    return NULL;
}

/* ---- the graph of a sample on kernels ---- */

typedef struct torch_case {
    op_case c;
    size_t n_grad;
    size_t grad_input[HT_SAMPLE_MAX]; /* which input gradient i is of */
    ht_val x[HT_SAMPLE_MAX], grad[HT_SAMPLE_MAX];
    void **bytes; /* by value id */
} torch_case;

static void case_build(torch_case *k, const ht_op *op, const char *line)
{
    ht_context *ctx = op_tests_context();
    memset(k, 0, sizeof *k);
    op_case_parse(&k->c, op, line);
    op_case_floats(&k->c, HT_F32);
    if (!op_case_build(&k->c)) op_case_fail(&k->c, "the builder refuses f32: %s", ht_context_message(ctx));
    const ht_node *node = op_case_node(&k->c);
    for (size_t i = 0; op->grad && i < node->n_in; i++) {
        if (!k->c.call->in[i] || !ht_dtype_is_float(k->c.call->in[i]->dtype)) continue;
        k->x[k->n_grad] = ht_node_in(k->c.graph, node, i);
        k->grad_input[k->n_grad++] = i;
    }
    ht_val results[8], weights[8];
    size_t n = op_case_results(&k->c, results);
    if (!n) k->n_grad = 0;
    if (!k->n_grad) return;
    ht_val loss = op_weighted_sum(k->c.graph, n, results, "w", weights);
    if (ht_gradients(k->c.graph, loss, k->n_grad, k->x, k->grad) != HT_OK)
        op_case_fail(&k->c, "no gradient: %s", ht_context_message(ctx));
}

static void value_room(torch_case *k, ht_val v)
{
    size_t bytes = (size_t)ht_type_bytes(ht_type_of(k->c.graph, v));
    k->bytes[v.id] = malloc(bytes ? bytes : 1);
    assert_non_null(k->bytes[v.id]);
}

static void inputs_fill(torch_case *k)
{
    const ht_graph *g = k->c.graph;
    const ht_node *node = op_case_node(&k->c);
    for (size_t s = 0; s < g->segments[0].input_count; s++) {
        ht_val v = g->segments[0].inputs[s];
        const ht_type *type = ht_type_of(g, v);
        size_t slot = 0;
        while (slot < node->n_in && ht_node_in(g, node, slot).id != v.id) slot++;
        value_room(k, v);
        for (int64_t e = 0; e < ht_type_elems(type); e++)
            ht_store_f64(k->bytes[v.id], type->dtype, e,
                         slot < node->n_in ? ht_sample_value(&k->c.sample, slot, e)
                                           : op_weight(ht_value_of(g, v)->name, e));
    }
}

static void node_run(torch_case *k, const ht_node *n, const ht_target *target)
{
    ht_call_room room;
    ht_text why = {0};
    const void *in[HT_SAMPLE_MAX];
    void *out[8];
    const ht_graph *g = k->c.graph;
    const ht_call *call = ht_node_call(g, n, k->c.arena, &room);
    assert_non_null(call);
    const ht_kernel *kernel = ht_kernel_choose(op_tests_context(), call, target, &why);
    if (!kernel) op_case_fail(&k->c, "%s: %s", n->op->name, why.data ? why.data : "there is no kernel");
    assert_true(n->n_in <= HT_SAMPLE_MAX);
    for (size_t i = 0; i < n->n_in; i++) in[i] = k->bytes[ht_node_in(g, n, i).id];
    for (size_t i = 0; i < n->n_out; i++) {
        value_room(k, ht_node_out(n, i));
        out[i] = k->bytes[ht_node_out(n, i).id];
    }
    int64_t bytes = kernel->workspace ? kernel->workspace(call, target) : 0;
    void *workspace = malloc((size_t)bytes + 1);
    assert_non_null(workspace);
    kernel->run(&(ht_launch){.call = call, .in = in, .out = out, .workspace = workspace});
    free(workspace);
    ht_text_free(&why);
}

static void case_run(torch_case *k, ht_isa isa)
{
    ht_target target = {.name = "test", .isa = isa, .threads = 1};
    const ht_graph *g = k->c.graph;
    k->c.variant = ht_isa_name(isa);
    k->bytes = calloc(g->value_count, sizeof *k->bytes);
    assert_non_null(k->bytes);
    inputs_fill(k);
    const ht_segment *s = &g->segments[0];
    for (size_t i = 0; i < s->node_count; i++) node_run(k, &g->nodes[s->nodes[i]], &target);
}

static void case_release(torch_case *k)
{
    for (size_t i = 0; i < k->c.graph->value_count; i++) free(k->bytes[i]);
    free(k->bytes);
}

/* ---- the file ---- */

/* An array of the file: elements 0, step, 2 step … of `elems`. */
typedef struct array {
    char what; /* 'y' a result, 'd' the gradient by an input */
    size_t index;
    int64_t elems, step, count;
    double *values;
} array;

typedef struct reader {
    const char *path;
    char *at;
    size_t line;
} reader;

/* The next line, or NULL; it is cut off where it ends. */
static char *reader_line(reader *r)
{
    if (!*r->at) return NULL;
    char *line = r->at;
    size_t length = strcspn(line, "\n");
    r->at += length + (line[length] == '\n');
    line[length] = 0;
    r->line++;
    return line;
}

static bool reader_is_at_array(const reader *r)
{
    return r->at[0] == 'y' || r->at[0] == 'd';
}

static void reader_array(reader *r, array *a)
{
    char *line = reader_line(r);
    a->what = line[0];
    const char *numbers = line + (a->what == 'd' ? 2 : 1);
    if (sscanf(numbers, "%zu %" SCNd64 " %" SCNd64, &a->index, &a->elems, &a->step) != 3 || a->step < 1)
        fail_msg("%s:%zu: not an array: %s", r->path, r->line, line);
    a->count = (a->elems + a->step - 1) / a->step;
    a->values = calloc((size_t)a->count + 1, sizeof *a->values);
    assert_non_null(a->values);
    for (int64_t i = 0; i < a->count;) {
        char *text = reader_line(r);
        if (!text) fail_msg("%s ends too early", r->path);
        for (char *end; i < a->count; text = end) {
            double value = strtod(text, &end);
            if (end == text) break;
            a->values[i++] = value;
        }
    }
}

/* ---- comparing ---- */

static double bound_of(const torch_case *k, const array *a)
{
    const ht_call *call = k->c.call;
    double outputs = 1;
    for (size_t i = 0; i < call->n_out; i++) outputs = fmax(outputs, (double)ht_type_elems(call->out[i]));
    if (k->c.op->prec != HT_PREC_DOT) return 1e-5;
    /* A gradient by an input of few elements sums over more products than a result does. */
    if (a->what == 'd') outputs = fmin(outputs, fmax(1, (double)a->elems));
    return 1e-5 * sqrt(fmax(1, ht_call_cost(call).flops / 2 / outputs));
}

static void check_array(const torch_case *k, const array *a)
{
    const ht_node *node = op_case_node(&k->c);
    ht_val v = HT_NONE;
    if (a->what == 'y' && a->index < node->n_out) v = ht_node_out(node, a->index);
    for (size_t i = 0; a->what == 'd' && i < k->n_grad; i++)
        if (k->grad_input[i] == a->index) v = k->grad[i];
    const char *what = a->what == 'y' ? "result" : "gradient by input";
    if (!v.id) op_case_fail(&k->c, "there is no %s %zu", what, a->index);
    const ht_type *type = ht_type_of(k->c.graph, v);
    if (ht_type_elems(type) != a->elems)
        op_case_fail(&k->c, "%s %zu has %" PRId64 " elements, not %" PRId64, what, a->index, ht_type_elems(type),
                     a->elems);
    double factor = bound_of(k, a), largest = op_largest(a->values, a->count);
    for (int64_t i = 0; i < a->count; i++) {
        double got = ht_load_f64(k->bytes[v.id], type->dtype, i * a->step), want = a->values[i];
        bool same = got == want || (isnan(got) && isnan(want));
        if (!same && !(fabs(got - want) <= factor * (fabs(want) + largest)))
            op_case_fail(&k->c, "%s %zu, element %" PRId64 " is %.9g, PyTorch has %.9g (allowed %.3g)", what, a->index,
                         i * a->step, got, want, factor * (fabs(want) + largest));
    }
}

/* Each float result that gradients flow into, and each gradient, must be in the file. */
static void check_complete(const torch_case *k, const array *arrays, size_t n)
{
    size_t results = 0, grads = 0;
    ht_val unused[8];
    for (size_t i = 0; i < n; i++) {
        grads += arrays[i].what == 'd';
        if (arrays[i].what != 'y' || arrays[i].index >= k->c.call->n_out) continue;
        results += ht_dtype_is_float(k->c.call->out[arrays[i].index]->dtype);
    }
    if (results < op_case_results(&k->c, unused)) op_case_fail(&k->c, "the file lacks results");
    if (grads < k->n_grad) op_case_fail(&k->c, "the file has %zu gradients of %zu", grads, k->n_grad);
}

static void check_sample(const ht_op *op, const char *line, reader *r)
{
    array arrays[HT_SAMPLE_MAX + 8];
    size_t n = 0;
    for (; reader_is_at_array(r); n++) {
        assert_true(n < HT_SAMPLE_MAX + 8);
        reader_array(r, &arrays[n]);
    }
    torch_case k;
    case_build(&k, op, line);
    check_complete(&k, arrays, n);
    for (ht_isa isa = HT_ISA_PORTABLE; isa <= ht_cpu_isa(); isa++) {
        case_run(&k, isa);
        for (size_t i = 0; i < n; i++) check_array(&k, &arrays[i]);
        case_release(&k);
    }
    op_case_free(&k.c);
    for (size_t i = 0; i < n; i++) free(arrays[i].values);
}

static bool is_empty(const ht_op *op, const char *line)
{
    op_case c;
    op_case_parse(&c, op, line);
    if (!op_case_build(&c)) op_case_fail(&c, "%s", ht_context_message(op_tests_context()));
    bool empty = false;
    for (size_t i = 0; i < c.call->n_in; i++) empty |= c.call->in[i] && !ht_type_elems(c.call->in[i]);
    for (size_t i = 0; i < c.call->n_out; i++) empty |= !ht_type_elems(c.call->out[i]);
    op_case_free(&c);
    return empty;
}

static bool has_sample(const ht_op *op, const char *line)
{
    for (size_t s = 0; op->samples[s]; s++)
        if (strcmp(op->samples[s], line) == 0) return true;
    return false;
}

static void kernels_agree_with_pytorch(void **state)
{
    const ht_op *op = *state;
    ht_context *ctx = op_tests_context();
    char path[1024], *text;
    size_t length;
    snprintf(path, sizeof path, "%s/reference/%s.txt", HT_TEST_DIR, op->name);
    bool found = ht_read_file(ctx, &text, &length, path) == HT_OK;
    const char *reason = reason_for_no_file(op);
    if (reason && found) fail_msg("%s has a file, but is listed as having none", op->name);
    if (reason) skip();
    if (!found) fail_msg("%s: run make_torch.py, or say in no_file why there is nothing to compare", path);
    reader r = {.path = path, .at = text};
    const char *seen[256];
    size_t n_seen = 0;
    for (char *line; (line = reader_line(&r));) {
        if (line[0] == '#') continue;
        if (strncmp(line, "sample ", 7) != 0) fail_msg("%s:%zu: not a sample: %s", path, r.line, line);
        if (!has_sample(op, line + 7)) fail_msg("%s:%zu: the op has no such sample: run make_torch.py", path, r.line);
        assert_true(n_seen < 256);
        seen[n_seen++] = line + 7;
        check_sample(op, line + 7, &r);
    }
    for (size_t s = 0; op->samples[s]; s++) {
        size_t i = 0;
        while (i < n_seen && strcmp(seen[i], op->samples[s]) != 0) i++;
        if (i == n_seen && !is_empty(op, op->samples[s]))
            fail_msg("%s lacks %s: run make_torch.py", path, op->samples[s]);
    }
    free(text);
}

int main(void)
{
    return op_tests_run("kernels agree with PyTorch", kernels_agree_with_pytorch, NULL);
}
