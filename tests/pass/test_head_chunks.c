/* The head in chunks of rows: every row has the bits of the head that is whole, sums over rows are those of the chunks in
 * their order, and the logits never exist whole. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "session_fixture.h"

enum { ROWS = 192, CHUNK = 64, WIDTH = 24, CLASSES = 500, IGNORED = -1, EIGHT = 8 };

typedef struct options {
    int rows;
    bool sentences; /* logits have an axis for sentences of EIGHT */
    const char *reduction, *precision, *chunks, *device;
    const ht_train_setting *settings; /* of the plan, besides */
    size_t setting_count;
} options;

/* Two layers, and a head with a bias. */
static void build(session_fixture *f, const options *o)
{
    ht_cross_entropy_opts loss = HT_CROSS_ENTROPY_OPTS;
    ht_train_opts train = HT_TRAIN_OPTS;
    ht_graph *g = f->g;
    int64_t rows = o->rows, shape[] = {rows / EIGHT, EIGHT, WIDTH}, wide[] = {rows / EIGHT, EIGHT, CLASSES};
    int first = o->sentences ? 0 : 1, rank = o->sentences ? 3 : 2;
    if (!o->sentences) shape[1] = wide[1] = rows;
    train.optimizer = "sgd";
    loss.ignore_index = IGNORED;
    loss.reduction = strcmp(o->reduction, "mean") == 0 ? HT_REDUCE_MEAN : HT_REDUCE_SUM;
    ht_segment_begin(g, "forward");
    ht_val x = ht_input(g, "x", HT_F32, rank, shape + first);
    ht_val labels = ht_input(g, "labels", HT_I32, rank - 1, shape + first);
    ht_val body = ht_param(g, "body", HT_F32, 2, (int64_t[]){WIDTH, WIDTH}, HT_NORMAL(0, 0.3));
    ht_val head = ht_param(g, "head", HT_F32, 2, (int64_t[]){WIDTH, CLASSES}, HT_NORMAL(0, 0.3));
    ht_val bias = ht_param(g, "bias", HT_F32, 1, (int64_t[]){CLASSES}, HT_NORMAL(0, 0.3));
    ht_val h = ht_tanh(g, ht_matmul(g, x, body, NULL));
    ht_val logits = ht_matmul(g, h, head, NULL);
    logits = ht_add(g, logits, ht_expand(g, bias, rank, wide + first));
    ht_output(g, "loss", ht_cross_entropy(g, logits, labels, &loss));
    must(f, ht_graph_train(g, &train));
}

static ht_status make_plan(session_fixture *f, const options *o)
{
    ht_train_setting settings[4] = {{"head_chunks", o->chunks}};
    ht_plan_opts opts = HT_PLAN_OPTS;
    for (size_t i = 0; i < o->setting_count; i++) settings[1 + i] = o->settings[i];
    opts.settings = settings;
    opts.setting_count = 1 + o->setting_count;
    opts.precision = o->precision;
    opts.device = o->device;
    return ht_plan_create(&f->plan, f->g, &opts);
}

typedef struct gradients {
    double loss;
    float body[WIDTH * WIDTH], head[WIDTH * CLASSES], bias[CLASSES];
} gradients;

/* The gradients of rows `first` and up of the batch. */
static void run(const options *o, int first, gradients *out)
{
    session_fixture f = session_begin(2);
    static float x[ROWS * WIDTH];
    static int32_t labels[ROWS];
    for (int i = 0; i < o->rows * WIDTH; i++) x[i] = (float)sin(0.7 * (first * WIDTH + i));
    for (int i = 0; i < o->rows; i++) labels[i] = (first + i) % 11 == 3 ? IGNORED : (first + i) * 37 % CLASSES;
    build(&f, o);
    must(&f, make_plan(&f, o));
    must(&f, ht_session_create(&f.s, f.plan, NULL));
    must(&f, ht_session_write(f.s, "x", x, (size_t)o->rows * WIDTH * sizeof *x));
    must(&f, ht_session_write(f.s, "labels", labels, (size_t)o->rows * sizeof *labels));
    must(&f, ht_session_run(f.s, "micro_first"));
    must(&f, ht_session_read_f64(f.s, "loss", &out->loss, 1));
    must(&f, ht_session_read(f.s, "body.grad", out->body, sizeof out->body));
    must(&f, ht_session_read(f.s, "head.grad", out->head, sizeof out->head));
    must(&f, ht_session_read(f.s, "bias.grad", out->bias, sizeof out->bias));
    session_end(&f);
}

static void assert_near(const float *a, const float *b, int count, double tolerance)
{
    for (int i = 0; i < count; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= tolerance)) fail_msg("%d: %g and %g", i, (double)a[i], (double)b[i]);
}

static const char *const precisions[] = {"fp32", "bf16", "fp16"};
enum { PRECISIONS = 3 };

static void chunks__leave_every_row_its_bits(void **state)
{
    static gradients whole, cut;
    (void)state;
    for (int i = 0; i < 2 * PRECISIONS; i++) {
        options o = {.rows = ROWS, .reduction = "sum", .precision = precisions[i / 2], .chunks = "1"};
        o.sentences = i % 2;
        run(&o, 0, &whole);
        o.chunks = "3";
        run(&o, 0, &cut);
        /* What is before the head sees the gradient of each row. */
        assert_memory_equal(whole.body, cut.body, sizeof whole.body);
        assert_true(fabs(whole.loss - cut.loss) < 1e-6 * whole.loss);
        assert_near(whole.head, cut.head, WIDTH * CLASSES, 1e-4);
        assert_near(whole.bias, cut.bias, CLASSES, 1e-4);
    }
}

static void chunks__are_added_in_their_order(void **state)
{
    static gradients cut, part[ROWS / CHUNK];
    (void)state;
    for (int i = 0; i < 2 * PRECISIONS; i++) {
        options o = {.rows = ROWS, .reduction = "sum", .precision = precisions[i / 2], .chunks = "3"};
        o.sentences = i % 2;
        run(&o, 0, &cut);
        o.rows = CHUNK;
        o.chunks = "1";
        for (int k = 0; k < ROWS / CHUNK; k++) run(&o, k * CHUNK, &part[k]);
        for (int k = 1; k < ROWS / CHUNK; k++) {
            part[0].loss = (double)((float)part[0].loss + (float)part[k].loss);
            for (int at = 0; at < WIDTH * CLASSES; at++) part[0].head[at] += part[k].head[at];
            for (int at = 0; at < CLASSES; at++) part[0].bias[at] += part[k].bias[at];
        }
        assert_true(cut.loss == part[0].loss);
        assert_memory_equal(cut.head, part[0].head, sizeof cut.head);
        assert_memory_equal(cut.bias, part[0].bias, sizeof cut.bias);
    }
}

static void chunks__of_a_mean_are_over_the_rows_that_count(void **state)
{
    static gradients whole, cut;
    options o = {.rows = ROWS, .reduction = "mean", .precision = "fp32", .chunks = "1"};
    (void)state;
    run(&o, 0, &whole);
    o.chunks = "2";
    run(&o, 0, &cut);
    assert_true(fabs(whole.loss - cut.loss) < 1e-6 * whole.loss);
    assert_near(whole.body, cut.body, WIDTH * WIDTH, 1e-6);
    assert_near(whole.head, cut.head, WIDTH * CLASSES, 1e-6);
}

/* The most rows of a value with a column for each class. */
static int64_t most_rows(const ht_plan *plan)
{
    int64_t most = 0;
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++) {
            const ht_call *call = plan->segments[s].instrs[i].call;
            for (size_t k = 0; k < call->n_out; k++)
                if (call->out[k]->rank == 2 && call->out[k]->dim[1] == CLASSES && call->out[k]->dim[0] != WIDTH &&
                    call->out[k]->dim[0] > most)
                    most = call->out[k]->dim[0];
        }
    return most;
}

static int64_t rows_at_once(const options *o, int64_t *bytes)
{
    session_fixture f = session_begin(1);
    build(&f, o);
    must(&f, make_plan(&f, o));
    int64_t rows = most_rows(f.plan);
    *bytes = ht_plan_bytes(f.plan);
    session_end(&f);
    return rows;
}

static void chunks__keep_logits_from_being_whole(void **state)
{
    static const struct {
        const char *chunks;
        int64_t rows;
    } table[] = {{"1", 192}, {"2", 128}, {"3", 64}, {"4", 48}, {"64", 3}};
    int64_t bytes, before = INT64_MAX;
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        options o = {.rows = ROWS, .reduction = "sum", .precision = "fp32", .chunks = table[i].chunks};
        assert_int_equal(rows_at_once(&o, &bytes), table[i].rows);
        assert_true(bytes < before);
        before = bytes;
    }
}

static void chunks__by_a_budget_are_the_fewest_that_fit(void **state)
{
    int64_t whole, cut, bytes;
    char budget[32];
    (void)state;
    options o = {.rows = ROWS, .reduction = "sum", .precision = "fp32", .chunks = "1"};
    assert_int_equal(rows_at_once(&o, &whole), ROWS);
    o.chunks = "2";
    assert_int_equal(rows_at_once(&o, &cut), 128);
    o.chunks = "0";
    assert_int_equal(rows_at_once(&o, &bytes), ROWS); /* the machine has more */
    ht_train_setting settings[] = {{"recompute", "budget"}, {"recompute_bytes", budget}};
    o.settings = settings;
    o.setting_count = 2;
    snprintf(budget, sizeof budget, "%lld", (long long)whole);
    assert_int_equal(rows_at_once(&o, &bytes), ROWS);
    snprintf(budget, sizeof budget, "%lld", (long long)whole - 1);
    assert_int_equal(rows_at_once(&o, &bytes), 128);
    assert_true(bytes <= whole - 1);
    snprintf(budget, sizeof budget, "%lld", (long long)cut - 1);
    assert_true(rows_at_once(&o, &bytes) < 128);
    assert_true(bytes <= cut - 1);
}

/* ---- what stays whole, and why ---- */

static char told[1024];

static void listen(void *arg, ht_log_level level, const char *line)
{
    (void)arg;
    if (level == HT_LOG_WARN) snprintf(told, sizeof told, "%s", line);
}

static void assert_stays_whole(const char *text, const char *reason)
{
    ht_context_opts opts = HT_CONTEXT_OPTS;
    session_fixture f = {0};
    opts.threads = 1;
    opts.log = listen;
    told[0] = 0;
    assert_int_equal(ht_context_create(&f.ctx, &opts), HT_OK);
    must(&f, ht_graph_parse(&f.g, f.ctx, "head", text, strlen(text)));
    must(&f, make_plan(&f, &(options){.chunks = "2"}));
    if (!strstr(told, reason)) fail_msg("not '%s' but: %s", reason, told);
    session_end(&f);
}

static void head__that_cannot_be_cut_says_why(void **state)
{
    (void)state;
#define HEAD "state %w f32[4,10]\nsegment forward (%x f32[6,4], %labels i32[6]) -> "
    assert_stays_whole(HEAD "(loss=%loss, y=%y) {\n"
                            "  %y = matmul f32[6,10] (%x, %w)\n"
                            "  %loss, %lse = cross_entropy f32[], f32[6] (%y, %labels)\n}\n",
                       "head_chunks: the head stays whole: the logits are an output");
    assert_stays_whole(HEAD "(loss=%loss) {\n"
                            "  %y = matmul f32[6,10] (%x, %w)\n"
                            "  %loss, %lse = cross_entropy f32[6], f32[6] (%y, %labels) reduction=\"none\"\n}\n",
                       "the loss has a value for each row");
    assert_stays_whole(HEAD "(loss=%loss, s=%s) {\n"
                            "  %y = matmul f32[6,10] (%x, %w)\n"
                            "  %s = softmax f32[6,10] (%y) axis=1\n"
                            "  %loss, %lse = cross_entropy f32[], f32[6] (%y, %labels)\n}\n",
                       "softmax");
    assert_stays_whole("segment forward (%y f32[6,10], %labels i32[6]) -> (loss=%loss) {\n"
                       "  %loss, %lse = cross_entropy f32[], f32[6] (%y, %labels)\n}\n",
                       "no product makes the logits");
    assert_stays_whole("state %w f32[4,10]\nsegment forward (%x f32[1,4], %labels i32[1]) -> (loss=%loss) {\n"
                       "  %y = matmul f32[1,10] (%x, %w)\n"
                       "  %loss, %lse = cross_entropy f32[], f32[1] (%y, %labels)\n}\n",
                       "it has fewer than two rows");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks__leave_every_row_its_bits),
        cmocka_unit_test(chunks__are_added_in_their_order),
        cmocka_unit_test(chunks__of_a_mean_are_over_the_rows_that_count),
        cmocka_unit_test(chunks__keep_logits_from_being_whole),
        cmocka_unit_test(chunks__by_a_budget_are_the_fewest_that_fit),
        cmocka_unit_test(head__that_cannot_be_cut_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
