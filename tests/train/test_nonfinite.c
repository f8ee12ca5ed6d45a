/* The first value that is not finite, found in the run's own plan and memory: the one that a replay without fusion finds,
 * for models of several families, on the CPU and on the fake device. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "context_fixture.h"
#include "exec/exec.h"
#include "tiny_data.h"
#include "train/job.h"
#include "train/train.h"

#define TEXT                                                                                                           \
    "\"format\": \"text\", \"train\": \"%s\", \"tokenizer\": \"char\", \"length\": 8, \"validation_share\": 0, "       \
    "\"order\": \"stream\""
#define PAIRS  "\"format\": \"pairs\", \"train\": \"%s\", \"minimum_count\": 2, \"buckets\": 3"
#define DIGITS "\"format\": \"idx\", \"train\": \"%s\", \"validation_share\": 0"

typedef struct family {
    const char *name, *file, *model, *data;
} family;

static const family families[] = {
    {"gpt2", "text.txt", "\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, \"n_embd\": 32, \"dropout\": 0.1", TEXT},
    {"lstm_lm", "text.txt", "\"type\": \"lstm_lm\", \"hidden\": 16, \"layers\": 2, \"dropout\": 0.2", TEXT},
    {"seq2seq", "pairs.tsv", "\"type\": \"seq2seq\", \"hidden\": 16, \"layers\": 2, \"dropout\": 0.1", PAIRS},
    {"resnet", "train-images-idx3-ubyte", "\"type\": \"resnet\", \"width\": 4, \"stem\": \"cifar\"", DIGITS},
};
enum { FAMILIES = sizeof families / sizeof families[0] };

/* ---- runs ---- */

typedef struct fixture {
    ht_context *ctx;
    ht_config *config;
    ht_run *run;
} fixture;

static fixture open_run(data_case *c, const family *f, const char *device, const char *train)
{
    static ht_block_keys blocks[HT_MOST_JOB_BLOCKS];
    static char job[4096], data[1024];
    fixture w = {.ctx = context_create(0, NULL)};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(data, sizeof data, f->data, data_case_path(c, f->file));
#pragma GCC diagnostic pop
    snprintf(job, sizeof job,
             "{\"model\": {%s}, \"data\": {%s}, \"halftone\": {\"device\": \"%s\"},\n"
             " \"train\": {\"steps\": 200, \"batch\": 8, \"accumulate\": 2, %s}}",
             f->model, data, device, train);
    ht_config_request request = {.path = "job.json",
                                 .text = job,
                                 .length = strlen(job),
                                 .training = true,
                                 .blocks = blocks,
                                 .block_count = ht_job_blocks(blocks)};
    ht_status status = ht_config_read(&w.config, w.ctx, &request);
    if (status != HT_OK && w.config) print_error("%s\n", ht_config_problems(w.config)->list[0].text);
    context_must(w.ctx, status);
    ht_run_request wanted = {.config = w.config, .mode = HT_RUN_FORCE, .folder = data_case_path(c, "run")};
    context_must(w.ctx, ht_run_open(&w.run, w.ctx, &wanted));
    return w;
}

static void close_run(fixture *w)
{
    context_must(w->ctx, ht_run_close(w->run));
    ht_config_free(w->config);
    ht_context_free(w->ctx);
}

/* ---- memory ---- */

static int refused;

static ht_status refuse_alloc(ht_device *device, size_t bytes, void **out)
{
    refused++;
    *out = NULL;
    HT_FAIL(device->ctx, HT_ENOMEM, "%zu bytes beyond the plan were asked for", bytes);
}

/* Steps until the run fails, on a device that gives no more memory. */
static void fail_in_the_memory_of_the_plan(fixture *w)
{
    ht_device *device = ht_executor_device(ht_run_session(w->run)->executor);
    const ht_device_class *class = device->class;
    ht_device_class strict = *class;
    ht_status status = HT_OK;
    strict.alloc = refuse_alloc;
    device->class = &strict;
    refused = 0;
    for (int i = 0; i < 200 && status == HT_OK; i++) {
        ht_step_report report;
        bool dropped;
        status = ht_run_step(w->run, &report, &dropped);
    }
    device->class = class;
    assert_int_equal(status, HT_ENOTSUP);
    assert_int_equal(refused, 0);
}

/* ---- what a replay without fusion finds ---- */

typedef struct reference {
    const ht_replay *replay;
    ht_text text;
} reference;

static bool look(void *arg, const ht_instr *instr, size_t result, const ht_type *type, const void *data)
{
    reference *r = arg;
    int64_t inf = 0, nan = 0, elems = ht_type_elems(type);
    for (int64_t i = 0; i < elems && ht_dtype_is_float(type->dtype); i++) {
        double x;
        ht_trace_load(type, data, i, 1, &x);
        inf += isinf(x) != 0;
        nan += isnan(x) != 0;
    }
    if (inf + nan == 0) return true;
    ht_type_text shape;
    const char *name = ht_replay_name(r->replay, instr, result);
    ht_text_add(&r->text, "the first value that is not finite is %s%s%s, the result of ", name ? name : "",
                name ? " " : "", ht_type_str(type, &shape));
    ht_trace_describe(&r->text, instr);
    if (instr->role != HT_ROLE_UPDATE)
        ht_text_add(&r->text, " in micro-batch %d of 2", (int)ht_replay_micro(r->replay) + 1);
    ht_text_add(&r->text, ": %d inf and %d NaN of %d elements", (int)inf, (int)nan, (int)elems);
    return false;
}

static void expect_the_value_of_the_unfused_plan(fixture *w, const char *what)
{
    char message[2048];
    snprintf(message, sizeof message, "%s", ht_context_message(w->ctx));
    ht_replay *replay;
    int64_t step = ht_run_look(w->run).step;
    context_must(w->ctx, ht_replay_of_run(&replay, w->run));
    reference r = {.replay = replay};
    context_must(w->ctx, ht_replay_take(replay, step));
    context_must(w->ctx, ht_replay_step(replay, step, -1, true, look, &r));
    assert_non_null(r.text.data);
    if (!strstr(message, r.text.data))
        fail_msg("%s: the plan without fusion says: %s\nthe run: %s", what, r.text.data, message);
    ht_text_free(&r.text);
    ht_replay_free(replay);
}

static void fail_everywhere(data_case *c, const char *device)
{
    static const char *const trains[] = {
        "\"lr\": 1e-3, \"precision\": \"fp16\", \"loss_scale\": 1e9",
        "\"lr\": 1e30, \"clip\": 0",
        "\"lr\": 1e30, \"clip\": 0, \"precision\": \"bf16\"",
    };
    tiny_text(c);
    tiny_pairs(c);
    tiny_images(c);
    for (int i = 0; i < FAMILIES; i++) {
        for (size_t k = 0; k < sizeof trains / sizeof trains[0]; k++) {
            char what[256];
            fixture w = open_run(c, &families[i], device, trains[k]);
            snprintf(what, sizeof what, "%s on %s with %s", families[i].name, device, trains[k]);
            fail_in_the_memory_of_the_plan(&w);
            expect_the_value_of_the_unfused_plan(&w, what);
            close_run(&w);
        }
    }
}

static void nonfinite__is_found_in_the_memory_of_the_plan(void **state)
{
    fail_everywhere(*state, "cpu");
}

static void nonfinite__is_found_on_the_fake_device(void **state)
{
    fail_everywhere(*state, "fake");
}

/* ---- what is left ---- */

/* All state but gradients, one after the other; for free(). */
static char *copy_state(fixture *w, size_t *bytes)
{
    const ht_session *session = ht_run_session(w->run);
    char *all = NULL;
    *bytes = 0;
    for (size_t i = 0; i < session->plan->slot_count; i++) {
        const ht_slot *slot = &session->plan->slots[i];
        size_t size = (size_t)ht_type_bytes(&slot->type);
        if (slot->kind != HT_SLOT_STATE || slot->owner != i || slot->heading == HT_HEADING_GRADIENTS) continue;
        all = realloc(all, *bytes + size + 1);
        assert_non_null(all);
        context_must(w->ctx, ht_executor_read(session->executor, slot->place, all + *bytes, size));
        *bytes += size;
    }
    return all;
}

static void nonfinite__a_search_leaves_the_run_as_it_was(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    tiny_pairs(c);
    tiny_images(c);
    for (int i = 0; i < FAMILIES; i++) {
        double loss[2];
        for (int searching = 0; searching < 2; searching++) {
            fixture w = open_run(c, &families[i], i % 2 ? "fake" : "cpu", "\"lr\": 1e-2");
            ht_step_report report;
            bool dropped;
            for (int k = 0; k < 2; k++) context_must(w.ctx, ht_run_step(w.run, &report, &dropped));
            if (searching) {
                ht_text line = {0};
                size_t bytes, bytes_after;
                char *before = copy_state(&w, &bytes);
                context_must(w.ctx, ht_first_nonfinite(w.run, 2, &line, NULL));
                assert_string_equal(line.data, "step 2 was replayed, and every value in it was finite");
                char *after = copy_state(&w, &bytes_after);
                assert_int_equal(bytes, bytes_after);
                assert_memory_equal(before, after, bytes);
                free(before);
                free(after);
                ht_text_free(&line);
            }
            context_must(w.ctx, ht_run_step(w.run, &report, &dropped));
            loss[searching] = report.loss;
            close_run(&w);
        }
        assert_true(loss[0] == loss[1]);
    }
}

static void nonfinite__the_replay_is_in_the_ledger(void **state)
{
    data_case *c = *state;
    tiny_images(c);
    fixture w = open_run(c, &families[3], "cpu", "\"lr\": 1e-2");
    const ht_plan *plan = ht_run_session(w.run)->plan;
    ht_run_info info = ht_run_info_of(w.run);
    char *text;
    assert_true(info.bytes.bytes[HT_SPACE_MAIN][HT_BYTES_REPLAY] > 0); /* running statistics */
    assert_true(info.bytes.bytes[HT_SPACE_MAIN][HT_BYTES_REPLAY] < info.plan_bytes / 20);
    assert_int_equal(info.bytes.bytes[HT_SPACE_MAIN][HT_BYTES_REPLAY], ht_plan_area_bytes(plan, HT_AREA_REPLAY));
    context_must(w.ctx, ht_plan_print(&text, plan));
    assert_non_null(strstr(text, "\n  replay "));
    free(text);
    close_run(&w);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(nonfinite__is_found_in_the_memory_of_the_plan),
        CASE(nonfinite__is_found_on_the_fake_device),
        CASE(nonfinite__a_search_leaves_the_run_as_it_was),
        CASE(nonfinite__the_replay_is_in_the_ledger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
