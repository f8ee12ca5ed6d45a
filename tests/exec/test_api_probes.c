/* Every function of include/halftone with each of its pointers NULL in turn: a status, or a failure that the graph
 * latches, and a message that names the argument. Optional pointers are those that the headers say may be NULL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <halftone/halftone.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_context *ctx;
static ht_graph *g; /* a new one for each probe that builds */
static ht_val x;    /* its input, f32[2,3] */
static const int64_t dims[] = {2, 3};
static const ht_rng rng;
static char probed[1 << 16]; /* the text of all probes so far */

static void fresh_graph(void)
{
    ht_graph_free(g);
    assert_int_equal(ht_graph_create(&g, ctx), HT_OK);
    x = ht_input(g, "x", HT_F32, 2, dims);
    assert_int_equal(ht_graph_status(g), HT_OK);
}

static void note(const char *text)
{
    assert_true(strlen(probed) + strlen(text) + 2 < sizeof probed);
    strcat(strcat(probed, " "), text);
}

static void expect_message(const char *call, const char *message)
{
    if (!strstr(ht_context_message(ctx), message))
        fail_msg("%s: \"%s\", not \"%s\"", call, ht_context_message(ctx), message);
}

/* The call returns HT_EINVAL; with a message where there is a context to hold it. */
#define REFUSES(message, call)                                                                                         \
    do {                                                                                                               \
        const char *wanted_ = (message);                                                                               \
        note(#call);                                                                                                   \
        assert_int_equal((call), HT_EINVAL);                                                                           \
        if (wanted_) expect_message(#call, wanted_);                                                                   \
    } while (0)

/* The call makes a new graph fail. */
#define LATCHES(message, call)                                                                                         \
    do {                                                                                                               \
        note(#call);                                                                                                   \
        fresh_graph();                                                                                                 \
        call;                                                                                                          \
        assert_int_equal(ht_graph_status(g), HT_EINVAL);                                                               \
        expect_message(#call, (message));                                                                              \
    } while (0)

/* The call returns no value, and nothing else happens. */
#define GIVES_NONE(call)                                                                                               \
    do {                                                                                                               \
        note(#call);                                                                                                   \
        assert_int_equal((call).id, 0);                                                                                \
    } while (0)

/* The call does nothing. */
#define DOES_NOTHING(call)                                                                                             \
    do {                                                                                                               \
        note(#call);                                                                                                   \
        call;                                                                                                          \
    } while (0)

/* The call returns this. */
#define GIVES(value, call)                                                                                             \
    do {                                                                                                               \
        note(#call);                                                                                                   \
        assert_true((call) == (value));                                                                                \
    } while (0)

static void context_calls__take_null(void **state)
{
    (void)state;
    char message[128] = "?";
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.message = message;
    opts.message_size = sizeof message;
    REFUSES(NULL, ht_context_create(NULL, NULL));
    REFUSES(NULL, ht_context_create(NULL, &opts));
    assert_string_equal(message, "ht_context_create: out is NULL");
    DOES_NOTHING(ht_context_free(NULL));
    GIVES('\0', *ht_context_message(NULL));
    GIVES(0, ht_context_threads(NULL));
    GIVES('\0', *ht_context_isa(NULL));
}

static void graph_calls__take_null(void **state)
{
    (void)state;
    ht_graph *out;
    char *text;
    REFUSES("ht_graph_create: out is NULL", ht_graph_create(NULL, ctx));
    REFUSES(NULL, ht_graph_create(&out, NULL));
    DOES_NOTHING(ht_graph_free(NULL));
    REFUSES(NULL, ht_graph_status(NULL));
    REFUSES("ht_graph_parse: out is NULL", ht_graph_parse(NULL, ctx, "a", "", 0));
    REFUSES(NULL, ht_graph_parse(&out, NULL, "a", "", 0));
    REFUSES("ht_graph_parse: name is NULL", ht_graph_parse(&out, ctx, NULL, "", 0));
    REFUSES("ht_graph_parse: text is NULL", ht_graph_parse(&out, ctx, "a", NULL, 4));
    fresh_graph();
    REFUSES("ht_graph_print: out is NULL", ht_graph_print(NULL, g));
    REFUSES(NULL, ht_graph_print(&text, NULL));
    REFUSES(NULL, ht_graph_verify(NULL));
    REFUSES(NULL, ht_gradients(NULL, x, 1, &x, &x));
    REFUSES("ht_gradients: wrt is NULL", ht_gradients(g, x, 1, NULL, &x));
    REFUSES("ht_gradients: grads is NULL", ht_gradients(g, x, 1, &x, NULL));
}

static void the_builder__latches_names_and_sizes_that_are_null(void **state)
{
    (void)state;
    LATCHES("segment_begin: name is NULL", ht_segment_begin(g, NULL));
    LATCHES("input name ''", ht_input(g, NULL, HT_F32, 2, dims));
    LATCHES("input: dims is NULL", ht_input(g, "a", HT_F32, 2, NULL));
    LATCHES("state name ''", ht_param(g, NULL, HT_F32, 2, dims, HT_ZERO));
    LATCHES("param: dims is NULL", ht_param(g, "a", HT_F32, 2, NULL, HT_ZERO));
    LATCHES("state name ''", ht_state_add(g, NULL, HT_F32, 2, dims, HT_ZERO));
    LATCHES("state_add: dims is NULL", ht_state_add(g, "a", HT_F32, 2, NULL, HT_ZERO));
    LATCHES("output name ''", ht_output(g, NULL, x));
    LATCHES("scope_push: name is NULL", ht_scope_push(g, NULL));
    GIVES_NONE(ht_find(g, NULL));
    fresh_graph();
    GIVES_NONE(ht_input(NULL, "a", HT_F32, 2, dims));
    GIVES_NONE(ht_param(NULL, "a", HT_F32, 2, dims, HT_ZERO));
    GIVES_NONE(ht_state_add(NULL, "a", HT_F32, 2, dims, HT_ZERO));
    GIVES_NONE(ht_find(NULL, "a"));
    DOES_NOTHING(ht_segment_begin(NULL, "a"));
    DOES_NOTHING(ht_store(NULL, x, x));
    DOES_NOTHING(ht_output(NULL, "a", x));
    DOES_NOTHING(ht_scope_push(NULL, "a"));
    DOES_NOTHING(ht_scope_pop(NULL));
    DOES_NOTHING(ht_full_precision(NULL, x));
    DOES_NOTHING(ht_checkpoint(NULL, x, x));
    GIVES(0, ht_val_rank(NULL, x));
    GIVES(ht_val_dtype(g, HT_NONE), ht_val_dtype(NULL, x));
    note("ht_val_dims(NULL, x)");
    assert_non_null(ht_val_dims(NULL, x));
    assert_int_equal(ht_graph_status(g), HT_OK);
}

static void ops__latch_arguments_that_are_null(void **state)
{
    (void)state;
    ht_val other;
    LATCHES("fill: dims is NULL", ht_fill(g, HT_F32, 2, NULL, 1));
    LATCHES("constant: dims is NULL", ht_constant(g, HT_F32, 2, NULL, (double[6]){0}));
    LATCHES("constant: data is NULL", ht_constant(g, HT_F32, 2, dims, NULL));
    LATCHES("iota: dims is NULL", ht_iota(g, HT_F32, 2, NULL, 0));
    LATCHES("random_uniform: dims is NULL", ht_random_uniform(g, HT_F32, 2, NULL, 0, 1, ht_rng_state(g), "a"));
    LATCHES("random_uniform: site is NULL", ht_random_uniform(g, HT_F32, 2, dims, 0, 1, ht_rng_state(g), NULL));
    LATCHES("random_normal: dims is NULL", ht_random_normal(g, HT_F32, 2, NULL, 0, 1, ht_rng_state(g), "a"));
    LATCHES("random_normal: site is NULL", ht_random_normal(g, HT_F32, 2, dims, 0, 1, ht_rng_state(g), NULL));
    LATCHES("dropout: site is NULL", ht_dropout(g, x, 0.5, ht_rng_state(g), NULL));
    LATCHES("sum: axes is NULL", ht_sum(g, x, 1, NULL, false));
    LATCHES("mean: axes is NULL", ht_mean(g, x, 1, NULL, false));
    LATCHES("reduce_max: axes is NULL", ht_reduce_max(g, x, 1, NULL, false));
    LATCHES("norm: axes is NULL", ht_norm(g, x, 1, NULL, false));
    LATCHES("norm_finite: finite is NULL", ht_norm_finite(g, x, NULL));
    LATCHES("topk: values is NULL", ht_topk(g, x, 1, NULL, &other));
    LATCHES("topk: indices is NULL", ht_topk(g, x, 1, &other, NULL));
    LATCHES("reshape: dims is NULL", ht_reshape(g, x, 1, NULL));
    LATCHES("permute: order is NULL", ht_permute(g, x, 2, NULL));
    LATCHES("slice: dims is NULL", ht_slice(g, x, dims, NULL, NULL));
    LATCHES("concat: x is NULL", ht_concat(g, 2, NULL, 0));
    LATCHES("expand: dims is NULL", ht_expand(g, x, 2, NULL));
    LATCHES("max_pool2d: opts is NULL", ht_max_pool2d(g, x, NULL));
    LATCHES("avg_pool2d: opts is NULL", ht_avg_pool2d(g, x, NULL));
}

static void pointwise_ops__of_no_graph_give_none(void **state)
{
    (void)state;
    fresh_graph();
    GIVES_NONE(ht_add(NULL, x, x));
    GIVES_NONE(ht_sub(NULL, x, x));
    GIVES_NONE(ht_mul(NULL, x, x));
    GIVES_NONE(ht_div(NULL, x, x));
    GIVES_NONE(ht_pow(NULL, x, x));
    GIVES_NONE(ht_min(NULL, x, x));
    GIVES_NONE(ht_max(NULL, x, x));
    GIVES_NONE(ht_neg(NULL, x));
    GIVES_NONE(ht_abs(NULL, x));
    GIVES_NONE(ht_sign(NULL, x));
    GIVES_NONE(ht_exp(NULL, x));
    GIVES_NONE(ht_log(NULL, x));
    GIVES_NONE(ht_sqrt(NULL, x));
    GIVES_NONE(ht_rsqrt(NULL, x));
    GIVES_NONE(ht_reciprocal(NULL, x));
    GIVES_NONE(ht_sin(NULL, x));
    GIVES_NONE(ht_cos(NULL, x));
    GIVES_NONE(ht_tanh(NULL, x));
    GIVES_NONE(ht_erf(NULL, x));
    GIVES_NONE(ht_sigmoid(NULL, x));
    GIVES_NONE(ht_relu(NULL, x));
    GIVES_NONE(ht_gelu(NULL, x));
    GIVES_NONE(ht_gelu_tanh(NULL, x));
    GIVES_NONE(ht_silu(NULL, x));
    GIVES_NONE(ht_softplus(NULL, x));
    GIVES_NONE(ht_eq(NULL, x, x));
    GIVES_NONE(ht_ne(NULL, x, x));
    GIVES_NONE(ht_lt(NULL, x, x));
    GIVES_NONE(ht_le(NULL, x, x));
    GIVES_NONE(ht_gt(NULL, x, x));
    GIVES_NONE(ht_ge(NULL, x, x));
    GIVES_NONE(ht_and(NULL, x, x));
    GIVES_NONE(ht_or(NULL, x, x));
    GIVES_NONE(ht_xor(NULL, x, x));
    GIVES_NONE(ht_not(NULL, x));
    assert_int_equal(ht_graph_status(g), HT_OK);
}

static void ops__that_make_or_reduce_without_a_graph_give_none(void **state)
{
    (void)state;
    ht_val more;
    fresh_graph();
    GIVES_NONE(ht_clip(NULL, x, 0, 1));
    GIVES_NONE(ht_select(NULL, x, x, x));
    GIVES_NONE(ht_cast(NULL, x, HT_F16));
    GIVES_NONE(ht_scale(NULL, x, 2));
    GIVES_NONE(ht_add_scalar(NULL, x, 2));
    GIVES_NONE(ht_fill(NULL, HT_F32, 2, dims, 1));
    GIVES_NONE(ht_constant(NULL, HT_F32, 0, NULL, (double[1]){0}));
    GIVES_NONE(ht_iota(NULL, HT_F32, 2, dims, 0));
    GIVES_NONE(ht_rng_state(NULL).seed);
    GIVES_NONE(ht_random_uniform(NULL, HT_F32, 2, dims, 0, 1, rng, "a"));
    GIVES_NONE(ht_random_normal(NULL, HT_F32, 2, dims, 0, 1, rng, "a"));
    GIVES_NONE(ht_dropout(NULL, x, 0.5, rng, "a"));
    GIVES_NONE(ht_batch_axis(NULL, x, 1));
    GIVES_NONE(ht_matmul(NULL, x, x, NULL));
    GIVES_NONE(ht_sum(NULL, x, 0, NULL, false));
    GIVES_NONE(ht_mean(NULL, x, 0, NULL, false));
    GIVES_NONE(ht_reduce_max(NULL, x, 0, NULL, false));
    GIVES_NONE(ht_norm(NULL, x, 0, NULL, false));
    GIVES_NONE(ht_argmax(NULL, x, 0, false));
    GIVES_NONE(ht_all_finite(NULL, x));
    GIVES_NONE(ht_norm_finite(NULL, x, &more));
    GIVES_NONE(ht_cumsum(NULL, x, 0));
    DOES_NOTHING(ht_topk(NULL, x, 1, &more, &more));
    GIVES_NONE(ht_softmax(NULL, x, 0));
    GIVES_NONE(ht_log_softmax(NULL, x, 0));
    GIVES_NONE(ht_cross_entropy(NULL, x, x, NULL));
    GIVES_NONE(ht_layernorm(NULL, x, x, x, 0));
    GIVES_NONE(ht_rmsnorm(NULL, x, x, 0));
    GIVES_NONE(ht_batchnorm_train(NULL, x, x, x, x, x, 0, 0));
    GIVES_NONE(ht_batchnorm_eval(NULL, x, x, x, x, x, 0));
    assert_int_equal(ht_graph_status(g), HT_OK);
}

static void ops__that_move_or_mix_without_a_graph_give_none(void **state)
{
    (void)state;
    const ht_pool_opts pool = HT_POOL_OPTS;
    fresh_graph();
    GIVES_NONE(ht_reshape(NULL, x, 2, dims));
    GIVES_NONE(ht_transpose(NULL, x, 0, 1));
    GIVES_NONE(ht_permute(NULL, x, 2, dims));
    GIVES_NONE(ht_slice(NULL, x, dims, dims, dims));
    GIVES_NONE(ht_slice_axis(NULL, x, 0, 0, 1));
    GIVES_NONE(ht_dynamic_slice(NULL, x, x, 1));
    GIVES_NONE(ht_dynamic_update_slice(NULL, x, x, x));
    GIVES_NONE(ht_concat(NULL, 1, &x, 0));
    GIVES_NONE(ht_pad(NULL, x, dims, dims, 0));
    GIVES_NONE(ht_expand(NULL, x, 2, dims));
    GIVES_NONE(ht_gather(NULL, x, x, 0));
    GIVES_NONE(ht_scatter_add(NULL, x, x, 1, 0));
    GIVES_NONE(ht_one_hot(NULL, x, 2, HT_F32));
    GIVES_NONE(ht_embedding(NULL, x, x));
    GIVES_NONE(ht_attention(NULL, x, x, x, NULL));
    GIVES_NONE(ht_rotary(NULL, x, x, 1, false));
    GIVES_NONE(ht_lstm(NULL, x, x, x, x, x, x, x).y);
    GIVES_NONE(ht_conv2d(NULL, x, x, x, NULL));
    GIVES_NONE(ht_max_pool2d(NULL, x, &pool));
    GIVES_NONE(ht_avg_pool2d(NULL, x, &pool));
    GIVES_NONE(ht_global_avg_pool2d(NULL, x));
    assert_int_equal(ht_graph_status(g), HT_OK);
}

static void a_value_of_another_graph__is_latched(void **state)
{
    (void)state;
    const ht_val stranger = {1000};
    LATCHES("none of this graph", ht_reshape(g, stranger, 2, dims));
    LATCHES("none of this graph", ht_permute(g, stranger, 2, dims));
    LATCHES("none of this graph", ht_slice(g, stranger, dims, dims, NULL));
    LATCHES("none of this graph", ht_pad(g, stranger, NULL, NULL, 0));
    LATCHES("none of this graph", ht_expand(g, stranger, 2, dims));
    LATCHES("none of this graph", ht_one_hot(g, stranger, 2, HT_F32));
}

static void comm_calls__take_null(void **state)
{
    (void)state;
    ht_comm *out;
    REFUSES("ht_comm_open_mpi: out is NULL", ht_comm_open_mpi(NULL, ctx, NULL));
    REFUSES(NULL, ht_comm_open_mpi(&out, NULL, NULL));
    DOES_NOTHING(ht_comm_free(NULL));
    GIVES(0, ht_comm_rank(NULL));
    GIVES(1, ht_comm_size(NULL));
}

static void plans_and_sessions__take_null(void **state)
{
    (void)state;
    const ht_train_setting no_key = {NULL, "1"}, no_value = {"most_skips", NULL};
    ht_train_opts train = HT_TRAIN_OPTS;
    ht_plan_opts opts = HT_PLAN_OPTS;
    ht_plan *plan;
    ht_session *s;
    char *text;
    double number = 0;
    fresh_graph();
    ht_output(g, "y", ht_neg(g, x));
    REFUSES(NULL, ht_graph_train(NULL, &train));
    train.setting_count = opts.setting_count = 1;
    REFUSES("ht_graph_train: opts->settings is NULL", ht_graph_train(g, &train));
    train.settings = &no_key;
    REFUSES("setting 0 has no key or no value", ht_graph_train(g, &train));
    train.settings = &no_value;
    REFUSES("setting 0 has no key or no value", ht_graph_train(g, &train));
    REFUSES("opts->settings is NULL", ht_plan_create(&plan, g, &opts));
    opts.settings = &no_key;
    REFUSES("setting 0 has no key or no value", ht_plan_create(&plan, g, &opts));
    REFUSES("out is NULL", ht_plan_create(NULL, g, NULL));
    REFUSES(NULL, ht_plan_create(&plan, NULL, NULL));
    DOES_NOTHING(ht_plan_free(NULL));
    GIVES(0, ht_plan_bytes(NULL));
    assert_int_equal(ht_plan_create(&plan, g, NULL), HT_OK);
    REFUSES("ht_plan_print: out is NULL", ht_plan_print(NULL, plan));
    REFUSES(NULL, ht_plan_print(&text, NULL));
    REFUSES("ht_session_create: out is NULL", ht_session_create(NULL, plan, NULL));
    REFUSES(NULL, ht_session_create(&s, NULL, NULL));
    DOES_NOTHING(ht_session_free(NULL));
    assert_int_equal(ht_session_create(&s, plan, NULL), HT_OK);
    REFUSES(NULL, ht_session_run(NULL, "forward"));
    REFUSES("ht_session_run: name is NULL", ht_session_run(s, NULL));
    ht_handle handle = {1};
    REFUSES(NULL, ht_session_run_batches(NULL, "train", NULL, NULL));
    REFUSES("ht_session_run_batches: name is NULL", ht_session_run_batches(s, NULL, NULL, NULL));
    REFUSES(NULL, ht_session_program(NULL, "forward", &handle));
    REFUSES("ht_session_program: name is NULL", ht_session_program(s, NULL, &handle));
    REFUSES("ht_session_program: out is NULL", ht_session_program(s, "forward", NULL));
    REFUSES(NULL, ht_session_slot(NULL, "x", &handle));
    REFUSES("ht_session_slot: name is NULL", ht_session_slot(s, NULL, &handle));
    REFUSES("ht_session_slot: out is NULL", ht_session_slot(s, "x", NULL));
    REFUSES(NULL, ht_session_start(NULL, handle));
    REFUSES(NULL, ht_session_wait(NULL));
    REFUSES(NULL, ht_session_write_slot(NULL, handle, &number, sizeof number));
    REFUSES("ht_session_write_slot: data is NULL", ht_session_write_slot(s, handle, NULL, sizeof number));
    REFUSES(NULL, ht_session_read_slot(NULL, handle, &number, sizeof number));
    REFUSES("ht_session_read_slot: data is NULL", ht_session_read_slot(s, handle, NULL, sizeof number));
    REFUSES(NULL, ht_session_set_stream(NULL, &number));
    REFUSES(NULL, ht_session_write_device(NULL, handle, &number, sizeof number));
    REFUSES("ht_session_write_device: data is NULL", ht_session_write_device(s, handle, NULL, sizeof number));
    REFUSES(NULL, ht_session_read_device(NULL, handle, &number, sizeof number));
    REFUSES("ht_session_read_device: data is NULL", ht_session_read_device(s, handle, NULL, sizeof number));
    REFUSES(NULL, ht_session_write(NULL, "x", &number, sizeof number));
    REFUSES("name is NULL", ht_session_write(s, NULL, &number, sizeof number));
    REFUSES("ht_session_write: data is NULL", ht_session_write(s, "x", NULL, sizeof number));
    REFUSES(NULL, ht_session_read(NULL, "x", &number, sizeof number));
    REFUSES("name is NULL", ht_session_read(s, NULL, &number, sizeof number));
    REFUSES("ht_session_read: data is NULL", ht_session_read(s, "x", NULL, sizeof number));
    REFUSES(NULL, ht_session_write_f64(NULL, "x", &number, 1));
    REFUSES("name is NULL", ht_session_write_f64(s, NULL, &number, 1));
    REFUSES("ht_session_write_f64: data is NULL", ht_session_write_f64(s, "x", NULL, 6));
    REFUSES(NULL, ht_session_read_f64(NULL, "x", &number, 1));
    REFUSES("name is NULL", ht_session_read_f64(s, NULL, &number, 1));
    REFUSES("ht_session_read_f64: data is NULL", ht_session_read_f64(s, "x", NULL, 6));
    ht_session_free(s);
    ht_plan_free(plan);
}

/* ---- nothing is left out ---- */

static bool was_probed(const char *name)
{
    char call[160];
    snprintf(call, sizeof call, "%s(", name);
    return strstr(probed, call) != NULL;
}

/* Functions without a pointer, and the one that a plugin defines. */
static bool needs_no_probe(const char *name)
{
    static const char *const names[] = {"ht_version",        "ht_dtype_name",  "ht_dtype_bytes",
                                        "ht_dtype_is_float", "ht_status_name", "halftone_plugin"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* The name before the first parenthesis behind HT_API. */
static const char *name_of(const char *declaration, char *name, size_t size)
{
    const char *end = strchr(declaration, '('), *start = end;
    while (start > declaration && (isalnum((unsigned char)start[-1]) || start[-1] == '_')) start--;
    snprintf(name, size, "%.*s", (int)(end - start), start);
    return end;
}

static size_t check_header(const char *file)
{
    static char text[1 << 16];
    char path[512], name[128];
    size_t count = 0;
    snprintf(path, sizeof path, "%s/../include/halftone/%s", HT_TEST_DIR, file);
    FILE *header = fopen(path, "rb");
    assert_non_null(header);
    text[fread(text, 1, sizeof text - 1, header)] = '\0';
    fclose(header);
    for (const char *at = strstr(text, "\nHT_API "); at; at = strstr(at, "\nHT_API "), count++) {
        at = name_of(at + 1, name, sizeof name);
        if (!needs_no_probe(name) && !was_probed(name)) fail_msg("%s: %s is not probed", file, name);
    }
    return count;
}

static void predictors__take_null(void **state)
{
    (void)state;
    ht_predictor *p = (ht_predictor *)&p;
    REFUSES("ht_predictor_open: out is NULL", ht_predictor_open(NULL, ctx, "run", NULL));
    REFUSES(NULL, ht_predictor_open(&p, NULL, "run", NULL));
    assert_null(p);
    REFUSES("ht_predictor_open: run is NULL", ht_predictor_open(&p, ctx, NULL, NULL));
    DOES_NOTHING(ht_predictor_free(NULL));
    GIVES(NULL, ht_predictor_session(NULL));
    GIVES(0, ht_predictor_batch(NULL));
    GIVES(0, ht_predictor_width(NULL));
    GIVES(NULL, ht_predictor_class_name(NULL, 0));
}

static void every_function_of_the_headers__is_probed(void **state)
{
    (void)state;
    static const char *const files[] = {"comm.h",   "context.h",   "graph.h",   "ops.h",
                                        "plugin.h", "predictor.h", "session.h", "types.h"};
    size_t count = 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) count += check_header(files[i]);
    assert_true(count > 120);
}

/* ---- more than NULL ---- */

static void a_context_that_cannot_be_made__gives_its_reason(void **state)
{
    (void)state;
    char message[128] = "?", little[8];
    ht_context *out = ctx;
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.isa = "mmx";
    opts.message = message;
    opts.message_size = sizeof message;
    assert_int_equal(ht_context_create(&out, &opts), HT_EINVAL);
    assert_null(out);
    assert_non_null(strstr(message, "ISA 'mmx': "));
    opts.message = little;
    opts.message_size = sizeof little;
    assert_int_equal(ht_context_create(&out, &opts), HT_EINVAL);
    assert_string_equal(little, "ISA 'mm");
    opts.isa = NULL;
    opts.threads = -1;
    opts.message = message;
    opts.message_size = sizeof message;
    assert_int_equal(ht_context_create(&out, &opts), HT_EINVAL);
    assert_string_equal(message, "-1 threads");
    opts.threads = 1;
    assert_int_equal(ht_context_create(&out, &opts), HT_OK);
    assert_string_equal(message, "");
    ht_context_free(out);
}

/* An older program knows a smaller struct: what lies behind it is not touched. */
static void options_of_an_older_program__have_no_message(void **state)
{
    (void)state;
    char message[8] = "?";
    ht_context *out;
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.size = offsetof(ht_context_opts, message);
    opts.isa = "mmx";
    opts.message = message;
    opts.message_size = sizeof message;
    assert_int_equal(ht_context_create(&out, &opts), HT_EINVAL);
    assert_string_equal(message, "?");
}

static void options__begin_with_their_initialisers(void **state)
{
    (void)state;
    ht_matmul_opts matmul = HT_MATMUL_OPTS;
    ht_pool_opts pool = HT_POOL_OPTS;
    ht_attention_opts attention = HT_ATTENTION_OPTS;
    assert_int_equal(attention.size, sizeof attention);
    fresh_graph();
    matmul.transpose_b = true;
    assert_int_equal(ht_val_dims(g, ht_matmul(g, x, x, &matmul))[1], 2);
    ht_val image = ht_fill(g, HT_F32, 4, (int64_t[]){1, 1, 4, 6}, 1);
    pool.window[0] = pool.window[1] = 2;
    assert_int_equal(ht_val_dims(g, ht_max_pool2d(g, image, &pool))[3], 3);
    assert_int_equal(ht_graph_status(g), HT_OK);
    ht_pool_opts bare = {.window = {2, 2}};
    LATCHES("must start from HT_POOL_OPTS", ht_max_pool2d(g, x, &bare));
}

static ht_session *start_training(ht_plan **plan)
{
    static const ht_train_setting most = {"most_skips", "2"};
    ht_train_opts train = HT_TRAIN_OPTS;
    ht_session *s;
    train.setting_count = 1;
    train.settings = &most;
    fresh_graph();
    ht_val w = ht_param(g, "w", HT_F32, 2, dims, HT_CONSTANT(1));
    ht_output(g, "loss", ht_mean(g, ht_mul(g, x, w), 0, NULL, false));
    assert_int_equal(ht_graph_train(g, &train), HT_OK);
    assert_int_equal(ht_plan_create(plan, g, NULL), HT_OK);
    assert_int_equal(ht_session_create(&s, *plan, NULL), HT_OK);
    return s;
}

static void an_update_that_gave_up__is_a_status_until_it_is_allowed_again(void **state)
{
    (void)state;
    ht_plan *plan;
    ht_session *s = start_training(&plan);
    const double good[6] = {1, 2, 3, 4, 5, 6}, bad[6] = {0.0 / 0.0}, no = 0;
    double before[6], after[6];
    assert_int_equal(ht_session_write_f64(s, "x", good, 6), HT_OK);
    assert_int_equal(ht_session_run(s, "train"), HT_OK);
    assert_int_equal(ht_session_read_f64(s, "w", before, 6), HT_OK);
    assert_int_equal(ht_session_write_f64(s, "x", bad, 6), HT_OK);
    assert_int_equal(ht_session_run(s, "train"), HT_OK); /* skipped */
    assert_int_equal(ht_session_run(s, "train"), HT_ENONFINITE);
    assert_non_null(strstr(ht_context_message(ctx), "gradients stay inf or NaN"));
    assert_string_equal(ht_status_name(HT_ENONFINITE), "HT_ENONFINITE");
    assert_int_equal(ht_session_write_f64(s, "x", good, 6), HT_OK);
    assert_int_equal(ht_session_run(s, "micro_first"), HT_OK); /* which updates nothing */
    assert_int_equal(ht_session_run(s, "update"), HT_ENONFINITE);
    assert_int_equal(ht_session_run(s, "train"), HT_ENONFINITE);
    assert_int_equal(ht_session_read_f64(s, "w", after, 6), HT_OK);
    assert_memory_equal(before, after, sizeof before);
    assert_int_equal(ht_session_write_f64(s, "fatal", &no, 1), HT_OK);
    assert_int_equal(ht_session_run(s, "train"), HT_OK);
    assert_int_equal(ht_session_read_f64(s, "w", after, 6), HT_OK);
    assert_memory_not_equal(before, after, sizeof before);
    ht_session_free(s);
    ht_plan_free(plan);
}

static int begin(void **state)
{
    (void)state;
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.threads = 1;
    return ht_context_create(&ctx, &opts) != HT_OK;
}

static int end(void **state)
{
    (void)state;
    ht_graph_free(g);
    ht_context_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_calls__take_null),
        cmocka_unit_test(graph_calls__take_null),
        cmocka_unit_test(the_builder__latches_names_and_sizes_that_are_null),
        cmocka_unit_test(ops__latch_arguments_that_are_null),
        cmocka_unit_test(pointwise_ops__of_no_graph_give_none),
        cmocka_unit_test(ops__that_make_or_reduce_without_a_graph_give_none),
        cmocka_unit_test(ops__that_move_or_mix_without_a_graph_give_none),
        cmocka_unit_test(a_value_of_another_graph__is_latched),
        cmocka_unit_test(comm_calls__take_null),
        cmocka_unit_test(plans_and_sessions__take_null),
        cmocka_unit_test(predictors__take_null),
        cmocka_unit_test(every_function_of_the_headers__is_probed),
        cmocka_unit_test(a_context_that_cannot_be_made__gives_its_reason),
        cmocka_unit_test(options_of_an_older_program__have_no_message),
        cmocka_unit_test(options__begin_with_their_initialisers),
        cmocka_unit_test(an_update_that_gave_up__is_a_status_until_it_is_allowed_again),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
