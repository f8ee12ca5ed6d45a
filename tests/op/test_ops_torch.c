/* Every op against PyTorch: results and gradients in f32, planned and run for each ISA that this machine has, against
 * the values that tests/reference/make_torch.py wrote. The bound is |a-b| <= 1e-5 (|b| + max|b|), times √K for ops of
 * class dot, K the length of their products; and one rounding of a number near 1, for gradients that cancel to nothing.
 */
#include "op_tests.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* Ops without a file, and why. Every other op must have one that covers all its samples that are not empty. */
static const struct {
    const char *op, *reason;
} no_file[] = {
    {"random_uniform", "PyTorch draws other numbers"},
    {"random_normal", "PyTorch draws other numbers"},
    {"scale_step", "DeepSpeed's rule, which PyTorch has not; test_scaler has its worked table"},
    {"amax_step", "a rule of ours: test_op_quantize has worked tables"},
    {"fan_out", "a view of what it reads: test_session_ranks has its gradient, a sum over ranks"},
    {"quantize", "PyTorch's casts have no scale, and do not saturate"},
    {"quantize_both", "as quantize"},
    {"quantize_sum", "as quantize"},
    {"scaled_matmul", "PyTorch has it on GPUs alone"},
    {"quantize_linear", "PyTorch divides by the scale: test_op_quantize_linear has worked tables"},
    {"dequantize_linear", "as quantize_linear"},
    {"quantize_dynamic", "PyTorch finds one range for a tensor, in other steps"},
    {"fake_quantize", "as quantize_linear: test_op_fake_quantize has worked tables"},
    {"straight_through", "PyTorch has x + (q - x).detach(): test_op_fake_quantize has its gradient"},
    {"matmul_q", "PyTorch rounds to codes in other steps: test_matmul_q has an integer reference"},
    {"lstm_q", "as matmul_q: test_lstm_q has an integer reference"},
    {"embedding_q", "PyTorch packs codes in other ways: test_lstm_q has worked numbers"},
    {"conv_q", "as matmul_q: test_conv_q has an integer reference"},
    {"matmul_nbits", "PyTorch packs codes in another order"},
    {"dropout", "PyTorch draws other numbers"},
    {"round_stochastic", "PyTorch draws other numbers"},
    {"unslice", "the gradient of slice"},
    {"gelu_tanh_grad", "the gradient of gelu_tanh"},
    {"cross_entropy_both", "cross_entropy and its gradient"},
    {"batchnorm_stats", "a part of batchnorm"},
    {"dynamic_slice", "slice with a start that is read"},
    {"dynamic_update_slice", "an assignment to a slice"},
    {"conv2d_grad_input", "the gradient of conv2d"},
    {"conv2d_grad_weight", "the gradient of conv2d"},
    {"max_pool2d_grad", "the gradient of max_pool2d"},
    {"avg_pool2d_grad", "the gradient of avg_pool2d"},
    {"attention_grad", "the gradient of attention"},
    {"lstm_grad", "the gradient of lstm"},
    {"embedding_grad", "the gradient of embedding"},
    {"layernorm_grad", "the gradient of layernorm"},
    {"layernorm_grad_sum", "as layernorm_grad"},
    {"rmsnorm_grad", "the gradient of rmsnorm"},
    {"batchnorm_grad", "the gradient of batchnorm"},
    {"cross_entropy_grad", "the gradient of cross_entropy"},
};

static const char *reason_for_no_file(const ht_op *op)
{
    if (op->done || op->start) return "one part of a pair";
    for (size_t i = 0; i < sizeof no_file / sizeof no_file[0]; i++)
        if (strcmp(no_file[i].op, op->name) == 0) return no_file[i].reason;
    return NULL;
}

/* ---- the graph of a sample, planned and run ---- */

typedef struct torch_case {
    op_case c;
    size_t n_grad;
    size_t grad_input[HT_SAMPLE_MAX]; /* which input gradient i is of */
    ht_session *session;
} torch_case;

/* Results are the outputs y0, y1 …; the gradient by input i is the output di. */
static void case_build(torch_case *k, const ht_op *op, const char *line)
{
    ht_context *ctx = context_shared();
    memset(k, 0, sizeof *k);
    op_case_parse(&k->c, op, line);
    op_case_floats(&k->c, HT_F32);
    if (!op_case_build(&k->c)) { /* an operand that is f64 whatever the others are */
        op_case_free(&k->c);
        op_case_parse(&k->c, op, line);
        if (!op_case_build(&k->c)) op_case_fail(&k->c, "the builder refuses f32: %s", ht_context_message(ctx));
    }
    ht_graph *g = k->c.graph;
    ht_val results[8], weights[8], x[HT_SAMPLE_MAX], grad[HT_SAMPLE_MAX];
    size_t n = op_case_results(&k->c, results);
    for (size_t i = 0; op->grad && n && i < k->c.call->n_in; i++) {
        if (!k->c.call->in[i] || !ht_dtype_is_float(k->c.call->in[i]->dtype)) continue;
        x[k->n_grad] = ht_node_in(g, op_case_node(&k->c), i);
        k->grad_input[k->n_grad++] = i;
    }
    if (!k->n_grad) return;
    if (ht_gradients(g, op_weighted_sum(g, n, results, "w", weights), k->n_grad, x, grad) != HT_OK)
        op_case_fail(&k->c, "no gradient: %s", ht_context_message(ctx));
    for (size_t i = 0; i < k->n_grad; i++) {
        char name[32];
        snprintf(name, sizeof name, "d%zu", k->grad_input[i]);
        ht_output(g, name, grad[i]);
    }
}

static void case_need(const torch_case *k, ht_status status)
{
    if (status != HT_OK) op_case_fail(&k->c, "%s", ht_context_message(context_shared()));
}

static void inputs_write(torch_case *k)
{
    const ht_graph *g = k->c.graph;
    const ht_node *node = op_case_node(&k->c);
    for (size_t s = 0; s < g->segments[0].input_count; s++) {
        ht_val v = g->segments[0].inputs[s];
        const char *name = ht_value_of(g, v)->name;
        int64_t elems = ht_type_elems(ht_type_of(g, v));
        double *values = HT_NEW(k->c.arena, double, elems);
        assert_non_null(values);
        size_t slot = 0;
        while (slot < node->n_in && ht_node_in(g, node, slot).id != v.id) slot++;
        for (int64_t e = 0; e < elems; e++)
            values[e] = slot < node->n_in ? ht_sample_value(&k->c.sample, slot, e) : op_weight(name, e);
        case_need(k, ht_session_write_f64(k->session, name, values, (size_t)elems));
    }
}

static ht_plan *plan_for(const torch_case *k, ht_isa isa)
{
    ht_target target;
    ht_text text = {0};
    ht_plan *plan;
    ht_target_here(context_shared(), &target);
    target.isa = isa;
    if (isa != HT_ISA_AVX512) target.features = 0;
    ht_target_print(&text, &target);
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.target = text.data;
    opts.canaries = true;
    case_need(k, ht_plan_create(&plan, k->c.graph, &opts));
    ht_text_free(&text);
    return plan;
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
    return 1e-5 * sqrt(fmax(1, ht_cost_flops(ht_call_cost(call)) / 2 / outputs));
}

static void check_array(const torch_case *k, const array *a)
{
    char name[32];
    const char *what = a->what == 'y' ? "result" : "gradient by input";
    double *values = HT_NEW(k->c.arena, double, a->elems);
    assert_non_null(values);
    snprintf(name, sizeof name, "%c%zu", a->what, a->index);
    case_need(k, ht_session_read_f64(k->session, name, values, (size_t)a->elems));
    double factor = bound_of(k, a), largest = op_largest(a->values, a->count);
    double floor = op_unit_roundoff(HT_F32) * (a->what == 'd');
    for (int64_t i = 0; i < a->count; i++) {
        double got = values[i * a->step], want = a->values[i];
        bool same = got == want || (isnan(got) && isnan(want));
        double allowed = factor * (fabs(want) + largest) + floor;
        if (!same && !(fabs(got - want) <= allowed))
            op_case_fail(&k->c, "%s %zu, element %" PRId64 " is %.9g, PyTorch has %.9g (allowed %.3g)", what, a->index,
                         i * a->step, got, want, allowed);
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
        k.c.variant = ht_isa_name(isa);
        ht_plan *plan = plan_for(&k, isa);
        case_need(&k, ht_session_create(&k.session, plan, NULL));
        inputs_write(&k);
        case_need(&k, ht_session_run(k.session, "forward"));
        for (size_t i = 0; i < n; i++) check_array(&k, &arrays[i]);
        ht_session_free(k.session);
        ht_plan_free(plan);
    }
    op_case_free(&k.c);
    for (size_t i = 0; i < n; i++) free(arrays[i].values);
}

static bool is_empty(const ht_op *op, const char *line)
{
    op_case c;
    op_case_parse(&c, op, line);
    if (!op_case_build(&c)) op_case_fail(&c, "%s", ht_context_message(context_shared()));
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

static void results_agree_with_pytorch(void **state)
{
    const ht_op *op = *state;
    ht_context *ctx = context_shared();
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
    return op_tests_run("results and gradients agree with PyTorch", results_agree_with_pytorch, NULL);
}
