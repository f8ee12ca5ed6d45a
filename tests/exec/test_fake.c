/* Sessions on the fake device: every op's samples with the CPU's bits, programs that run while the caller goes on, inputs
 * in two slots, observers. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_tests.h"
#include "session_fixture.h"

static const char *const devices[] = {"cpu", "fake"};
enum { DEVICES = sizeof devices / sizeof devices[0] };

static bool is_long(void)
{
    return getenv("HALFTONE_LONG") != NULL;
}

/* ---- samples ---- */

static void write_samples(const op_case *c, const session_fixture *f, const op_arrays *a)
{
    for (size_t i = 0; i < c->call->n_in; i++) {
        char name[32];
        snprintf(name, sizeof name, "x%zu", i);
        const ht_slot *slot = ht_plan_slot(f->plan, name);
        if (a->in[i] && slot)
            must(f, ht_session_write_f64(f->s, name, a->in[i], (size_t)ht_type_elems(c->call->in[i])));
    }
}

/* All bytes that a session holds, one slot after the other, in heap memory. */
static char *all_slots(const session_fixture *f, size_t *length)
{
    char *bytes = malloc(1);
    *length = 0;
    for (size_t i = 0; i < f->plan->slot_count; i++) {
        const ht_slot *slot = &f->plan->slots[i];
        size_t size = (size_t)ht_type_bytes(&slot->type);
        bytes = realloc(bytes, *length + size + 1);
        assert_non_null(bytes);
        must(f, ht_session_read(f->s, slot->name, bytes + *length, size));
        *length += size;
    }
    return bytes;
}

/* False: the planner refuses. */
static bool run_sample(op_case *c, const char *device, bool care, char **bytes, size_t *length)
{
    session_fixture f = {.ctx = context_shared(), .g = c->graph};
    ht_plan_opts opts = HT_PLAN_OPTS;
    ht_session_opts session = HT_SESSION_OPTS;
    op_arrays a;
    opts.device = device;
    opts.canaries = care;
    opts.no_fusion = care;
    session.seed = 5;
    if (ht_plan_create(&f.plan, f.g, &opts) != HT_OK) return false;
    must(&f, ht_session_create(&f.s, f.plan, &session));
    op_arrays_make(&a, c);
    write_samples(c, &f, &a);
    must(&f, ht_session_run(f.s, "forward"));
    *bytes = all_slots(&f, length);
    ht_session_free(f.s);
    ht_plan_free(f.plan);
    return true;
}

static void compare_devices(op_case *c, bool as_written, bool care)
{
    char *cpu, *fake;
    size_t cpu_length, fake_length;
    if (!run_sample(c, "cpu", care, &cpu, &cpu_length)) {
        if (as_written) op_case_fail(c, "is not planned: %s", ht_context_message(context_shared()));
        return;
    }
    if (!run_sample(c, "fake", care, &fake, &fake_length))
        op_case_fail(c, "is not planned for the fake device: %s", ht_context_message(context_shared()));
    if (cpu_length != fake_length || memcmp(cpu, fake, cpu_length) != 0)
        op_case_fail(c, "has other bits on the fake device");
    free(cpu);
    free(fake);
}

static void fake__has_the_cpus_bits_of_every_sample(void **state)
{
    static const ht_dtype floats[] = {HT_F32, HT_BF16, HT_F16, HT_F64};
    const ht_op *op = *state;
    for (size_t s = 0; op->samples && op->samples[s]; s++)
        for (size_t v = 0; v <= (is_long() ? sizeof floats / sizeof floats[0] : s == 0); v++) {
            op_case c;
            op_case_parse(&c, op, op->samples[s]);
            if (v) op_case_floats(&c, floats[v - 1 + (is_long() ? 0 : 1)]);
            if (op_case_build(&c))
                compare_devices(&c, v == 0, s % 2);
            else if (v == 0)
                op_case_fail(&c, "the builder refuses it: %s", ht_context_message(context_shared()));
            op_case_free(&c);
        }
}

/* ---- programs ---- */

static session_fixture open_text(const char *text, const char *device, int threads)
{
    session_fixture f = {.ctx = context_create(threads, NULL)};
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.device = device;
    must(&f, ht_graph_parse(&f.g, f.ctx, "text", text, strlen(text)));
    session_plan(&f, &opts, 1);
    return f;
}

static const char counting[] = "state %sum f32[4] heading=statistics init=constant(0)\n"
                               "segment forward (%x f32[4]) -> (y=%y) {\n"
                               "  %y = add f32[4] (%sum, %x)\n"
                               "  store %sum = %y\n"
                               "}\n"
                               "program both { forward forward slot=1 }\n";

static void session__started_runs_in_order_and_is_waited_for_by_a_read(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        session_fixture f = open_text(counting, devices[d], 1);
        ht_handle forward, both, x, y;
        float one[4] = {1, 2, 3, 4}, got[4];
        must(&f, ht_session_program(f.s, "forward", &forward));
        must(&f, ht_session_program(f.s, "both", &both));
        must(&f, ht_session_slot(f.s, "x", &x));
        must(&f, ht_session_slot(f.s, "y", &y));
        must(&f, ht_session_write_slot(f.s, x, one, sizeof one));
        for (int i = 0; i < 5; i++) must(&f, ht_session_start(f.s, forward));
        must(&f, ht_session_read_slot(f.s, y, got, sizeof got));
        for (int i = 0; i < 4; i++) assert_true(got[i] == 5 * one[i]);
        /* What is written is there for all slots, and after what was started. */
        must(&f, ht_session_start(f.s, both));
        one[0] = 100;
        must(&f, ht_session_write_slot(f.s, x, one, sizeof one));
        must(&f, ht_session_read_slot(f.s, y, got, sizeof got));
        assert_true(got[0] == 7);
        must(&f, ht_session_start(f.s, both));
        must(&f, ht_session_wait(f.s));
        must(&f, ht_session_read(f.s, "sum", got, sizeof got));
        assert_true(got[0] == 207 && got[3] == 36);
        session_end(&f);
    }
}

static void session__refuses_handles_and_sizes_that_are_wrong(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        session_fixture f = open_text(counting, devices[d], 1);
        ht_handle none, x;
        float data[5] = {0};
        assert_int_equal(ht_session_program(f.s, "backward", &none), HT_EINVAL);
        assert_int_equal(none.id, 0);
        assert_int_equal(ht_session_start(f.s, none), HT_EINVAL);
        message_has(&f, "the handle 0 stands for no program");
        assert_int_equal(ht_session_start(f.s, (ht_handle){1000}), HT_EINVAL);
        message_has(&f, "the handle 1000 stands for no program");
        assert_int_equal(ht_session_slot(f.s, "z", &none), HT_EINVAL);
        assert_int_equal(none.id, 0);
        assert_int_equal(ht_session_read_slot(f.s, none, data, 16), HT_EINVAL);
        assert_int_equal(ht_session_write_slot(f.s, (ht_handle){1000}, data, 16), HT_EINVAL);
        message_has(&f, "the handle 1000 stands for nothing");
        must(&f, ht_session_slot(f.s, "x", &x));
        assert_int_equal(ht_session_write_slot(f.s, x, data, 20), HT_ESHAPE);
        message_has(&f, "16 bytes, not 20");
        assert_int_equal(ht_session_read_slot(f.s, x, data, 0), HT_ESHAPE);
        must(&f, ht_session_run(f.s, "forward"));
        session_end(&f);
    }
}

/* Every failure is told by a call, at the latest by the wait, and everything can be freed then. */
static void session__tells_of_a_device_that_fails(void **state)
{
    (void)state;
    static const char *const kinds[] = {"alloc", "launch", "copy"};
    for (int kind = 0; kind < 3; kind++) {
        bool failed = true;
        int number = 0;
        while (failed) {
            char text[32];
            float x[4] = {1};
            session_fixture f = {.ctx = context_create(1, NULL)};
            ht_plan_opts opts = HT_PLAN_OPTS;
            opts.device = "fake";
            snprintf(text, sizeof text, "%s:%d", kinds[kind], ++number);
            setenv("HALFTONE_FAKE_FAIL", text, 1);
            must(&f, ht_graph_parse(&f.g, f.ctx, "text", counting, strlen(counting)));
            must(&f, ht_plan_create(&f.plan, f.g, &opts));
            ht_status status = ht_session_create(&f.s, f.plan, NULL);
            if (status == HT_OK) status = ht_session_write(f.s, "x", x, sizeof x);
            if (status == HT_OK) status = ht_session_run(f.s, "both");
            if (status == HT_OK) status = ht_session_read(f.s, "y", x, sizeof x);
            failed = status != HT_OK;
            if (failed) assert_int_equal(status, HT_EDEVICE);
            if (failed) message_has(&f, "device fake: ");
            if (!failed) assert_true(x[0] == 2);
            session_end(&f);
        }
        unsetenv("HALFTONE_FAKE_FAIL");
        if (number < 3) fail_msg("a session has %d times %s", number - 1, kinds[kind]);
    }
}

/* ---- inputs in slots ---- */

enum { BATCHES = 40, WIDTH = 4 };

/* Batches of their own, one after the other, while the runs before them are under way. */
static void feed_batches(session_fixture *f, float in[BATCHES][WIDTH], float out[BATCHES][WIDTH])
{
    ht_executor *e = f->s->executor;
    const ht_slot *x = ht_plan_slot(f->plan, "x"), *y = ht_plan_slot(f->plan, "y");
    size_t forward = (size_t)ht_plan_segment_find(f->plan, "forward"), bytes = WIDTH * sizeof(float);
    ht_event *sent;
    must(f, ht_executor_event(e, &sent));
    assert_int_equal(f->plan->input_slots, 2);
    for (unsigned i = 0; i < BATCHES; i++) {
        must(f, ht_executor_feed_begin(e, i % 2));
        must(f, ht_executor_feed(e, i % 2, x->place, in[i], bytes));
        must(f, ht_executor_feed_end(e, i % 2, sent));
        must(f, ht_executor_run(e, forward, i % 2));
        must(f, ht_executor_fetch(e, y->place, out[i], bytes));
    }
    must(f, ht_executor_sync(e));
    assert_true(ht_event_done(sent));
    ht_event_free(sent);
}

static void executor__reads_each_batch_from_its_slot(void **state)
{
    (void)state;
    for (int seed = 0; seed < (is_long() ? 20 : 2); seed++)
        for (int d = 0; d < DEVICES; d++) {
            char text[16];
            snprintf(text, sizeof text, "%d", seed);
            setenv("HALFTONE_FAKE_SEED", text, 1);
            session_fixture f = open_text(counting, devices[d], 1);
            float in[BATCHES][WIDTH], out[BATCHES][WIDTH] = {0}, sum[WIDTH] = {0};
            for (int i = 0; i < BATCHES; i++)
                for (int k = 0; k < WIDTH; k++) in[i][k] = (float)(i * i + k);
            feed_batches(&f, in, out);
            for (int i = 0; i < BATCHES; i++)
                for (int k = 0; k < WIDTH; k++) assert_true(out[i][k] == (sum[k] += in[i][k]));
            session_end(&f);
        }
}

/* A failure of a feed is not lost behind runs that succeed. */
static void executor__tells_of_a_feed_that_failed(void **state)
{
    (void)state;
    float in[BATCHES][WIDTH] = {{1}};
    ht_event *sent;
    /* The session itself starts with no copy but that of the state, so the first fed batch is found by trying. */
    for (int number = 1;; number++) {
        char text[32];
        snprintf(text, sizeof text, "copy:%d", number);
        setenv("HALFTONE_FAKE_FAIL", text, 1);
        session_fixture g = {.ctx = context_create(1, NULL)};
        ht_plan_opts opts = HT_PLAN_OPTS;
        opts.device = "fake";
        must(&g, ht_graph_parse(&g.g, g.ctx, "text", counting, strlen(counting)));
        must(&g, ht_plan_create(&g.plan, g.g, &opts));
        bool opened = ht_session_create(&g.s, g.plan, NULL) == HT_OK;
        if (opened) {
            ht_executor *e = g.s->executor;
            const ht_slot *x = ht_plan_slot(g.plan, "x");
            must(&g, ht_executor_event(e, &sent));
            must(&g, ht_executor_feed_begin(e, 0));
            must(&g, ht_executor_feed(e, 0, x->place, in[0], sizeof in[0]));
            (void)ht_executor_feed_end(e, 0, sent);
            (void)ht_executor_run(e, 0, 0);
            assert_int_equal(ht_executor_sync(e), HT_EDEVICE);
            assert_int_equal(ht_executor_status(e), HT_EDEVICE);
            message_has(&g, "device fake: copy");
            ht_event_free(sent);
        }
        session_end(&g);
        if (opened) break;
    }
    unsetenv("HALFTONE_FAKE_FAIL");
}

/* ---- observers ---- */

enum { ROWS = 500, MOST_INSTRUCTIONS = 64 };

static const char by_rows[] = "state %n f32[] heading=statistics init=constant(0)\n"
                              "segment forward (%x f32[500,300]) -> (y=%y) {\n"
                              "  %s = sum f32[500,1] (%x) axes=[1] keep=1\n"
                              "  %e = expand f32[500,300] (%s)\n"
                              "  %y = div f32[500,300] (%x, %e)\n"
                              "  %m = mean f32[] (%y) axes=[0,1]\n"
                              "  store %n = %m\n"
                              "}\n";

typedef struct tally {
    const ht_plan_segment *segment;
    _Atomic int before[MOST_INSTRUCTIONS], after[MOST_INSTRUCTIONS];
    _Atomic int blocks[MOST_INSTRUCTIONS];     /* row blocks as a whole that begin here, told before and after */
    _Atomic int rows[MOST_INSTRUCTIONS][ROWS]; /* pieces that cover the row, told before and after */
} tally;

static size_t place_of(const tally *t, const ht_observation *at)
{
    assert_ptr_equal(at->segment, t->segment);
    return (size_t)(at->instr - t->segment->instrs);
}

static void count_before(void *arg, const ht_observation *at)
{
    tally *t = arg;
    size_t i = place_of(t, at);
    atomic_fetch_add(at->row_block ? &t->blocks[i] : &t->before[i], 1);
    for (int64_t row = at->first_row; row < at->end_row; row++) atomic_fetch_add(&t->rows[i][row], 1);
}

static void count_after(void *arg, const ht_observation *at)
{
    tally *t = arg;
    size_t i = place_of(t, at);
    atomic_fetch_add(at->row_block ? &t->blocks[i] : &t->after[i], 1);
    for (int64_t row = at->first_row; row < at->end_row; row++) atomic_fetch_add(&t->rows[i][row], 1);
}

static void check_tally(const tally *t)
{
    size_t block_end = 0, in_blocks = 0;
    for (size_t i = 0; i < t->segment->instr_count; i++) {
        const ht_instr *instr = &t->segment->instrs[i];
        if (instr->row_block) block_end = i + instr->row_block;
        assert_int_equal(t->blocks[i], instr->row_block ? 2 : 0);
        assert_int_equal(t->before[i], t->after[i]);
        if (i >= block_end) {
            assert_int_equal(t->before[i], 1);
            continue;
        }
        in_blocks++;
        assert_true(t->before[i] >= 1);
        for (int row = 0; row < ROWS; row++) assert_int_equal(t->rows[i][row], 2);
    }
    assert_true(in_blocks >= 2 && in_blocks < t->segment->instr_count);
}

static void observer__sees_every_instruction_once_and_every_row(void **state)
{
    (void)state;
    static float x[ROWS * 300];
    static tally t;
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++) x[i] = 1 + (float)(i % 7);
    for (int turn = 0; turn < 2 * DEVICES; turn++) {
        session_fixture f = open_text(by_rows, devices[turn % DEVICES], turn < DEVICES ? 1 : 4);
        ht_observer observer = {&t, count_before, count_after, NULL};
        int forward = ht_plan_segment_find(f.plan, "forward");
        memset(&t, 0, sizeof t);
        t.segment = &f.plan->segments[forward];
        assert_in_range(t.segment->instr_count, 3, MOST_INSTRUCTIONS);
        must(&f, ht_session_write(f.s, "x", x, sizeof x));
        must(&f, ht_executor_observe(f.s->executor, &observer));
        must(&f, ht_session_run(f.s, "forward"));
        check_tally(&t);
        /* Each function may be left out, and nobody looks any more when there is no observer. */
        observer.before = NULL;
        memset(&t.after, 0, sizeof t.after);
        must(&f, ht_session_run(f.s, "forward"));
        assert_true(t.after[0] >= 1);
        memset(&t.after, 0, sizeof t.after);
        must(&f, ht_executor_observe(f.s->executor, NULL));
        must(&f, ht_session_run(f.s, "forward"));
        assert_int_equal(t.after[0], 0);
        session_end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(session__started_runs_in_order_and_is_waited_for_by_a_read),
        cmocka_unit_test(session__refuses_handles_and_sizes_that_are_wrong),
        cmocka_unit_test(session__tells_of_a_device_that_fails),
        cmocka_unit_test(executor__reads_each_batch_from_its_slot),
        cmocka_unit_test(executor__tells_of_a_feed_that_failed),
        cmocka_unit_test(observer__sees_every_instruction_once_and_every_row),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    return failures + op_tests_run("the fake device has the CPU's bits", fake__has_the_cpus_bits_of_every_sample, NULL);
}
