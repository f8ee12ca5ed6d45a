/* The memory report: a plan's bytes by space and heading. */
#include <string.h>

#include "model_fixture.h"
#include "session_fixture.h"
#include "small_models.h"

static int64_t sum_of(const ht_byte_table *table)
{
    int64_t sum = 0;
    for (int space = 0; space < HT_SPACE_COUNT; space++)
        for (int h = 0; h < HT_BYTES_COUNT; h++) {
            assert_true(table->bytes[space][h] >= 0);
            sum += table->bytes[space][h];
        }
    return sum;
}

static const int64_t *main_bytes(const ht_byte_table *table)
{
    assert_true(ht_byte_table_has(table, HT_SPACE_MAIN));
    assert_false(ht_byte_table_has(table, HT_SPACE_HOST) || ht_byte_table_has(table, HT_SPACE_DISK));
    return table->bytes[HT_SPACE_MAIN];
}

static void check_model(const small_model *m, const char *precision, bool canaries, bool fusion)
{
    model_fixture w;
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.precision = precision;
    opts.canaries = canaries;
    opts.no_fusion = !fusion;
    model_start_planned(&w, m->type, m->json, m->request, NULL, &opts, 2);
    ht_byte_table table = ht_plan_byte_table(w.plan);
    const int64_t *bytes = main_bytes(&table);
    assert_int_equal(sum_of(&table), ht_plan_bytes(w.plan));
    assert_int_equal(bytes[HT_BYTES_GRADIENTS], w.plan->heading_bytes[HT_HEADING_GRADIENTS]);
    assert_int_equal(bytes[HT_BYTES_OPTIMIZER], w.plan->heading_bytes[HT_HEADING_OPTIMIZER]);
    assert_int_equal(bytes[HT_BYTES_SLOTS],
                     ht_plan_area_bytes(w.plan, HT_AREA_INPUT) + ht_plan_area_bytes(w.plan, HT_AREA_OUTPUT));
    assert_true(bytes[HT_BYTES_ACTIVATIONS] > 0);
    assert_true(bytes[HT_BYTES_ACTIVATIONS] + bytes[HT_BYTES_WORKSPACE] <=
                ht_plan_area_bytes(w.plan, HT_AREA_TRANSIENT));
    assert_true((bytes[HT_BYTES_MASTERS] > 0) == (strcmp(precision, "fp32") != 0));
    assert_int_equal(bytes[HT_BYTES_REPLAY], ht_plan_area_bytes(w.plan, HT_AREA_REPLAY));
    model_stop(&w);
}

static void bytes__of_all_headings_are_the_bytes_of_the_plan(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL; i++) {
        check_model(&small[i], "fp32", false, true);
        check_model(&small[i], "bf16", i % 2 == 0, i % 3 != 0);
    }
}

/* ---- transients ---- */

static ht_byte_table table_of(session_fixture *f, const char *text)
{
    *f = session_begin(1);
    ht_graph_free(f->g);
    f->g = NULL;
    must(f, ht_graph_parse(&f->g, f->ctx, "test", text, strlen(text)));
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.no_fusion = true;
    must(f, ht_plan_create(&f->plan, f->g, &opts));
    return ht_plan_byte_table(f->plan);
}

static int64_t workspace_of(const session_fixture *f, size_t instr)
{
    const ht_instr *i = &f->plan->segments[0].instrs[instr];
    int64_t bytes = i->kernel->workspace ? i->kernel->workspace(i->call, &f->plan->target) : 0;
    if (f->plan->canary && bytes) bytes += HT_CANARY_BYTES;
    return (bytes + HT_PLAN_ALIGN - 1) / HT_PLAN_ALIGN * HT_PLAN_ALIGN;
}

static void bytes__tell_workspace_from_activations(void **state)
{
    (void)state;
    session_fixture f;
    /* The values a and b are alive while the product runs, which has a workspace; its result is an output. */
    ht_byte_table table = table_of(&f, "segment forward (%x f32[64,64]) -> (y=%y) {\n  %a = exp f32[64,64] (%x)\n"
                                       "  %b = neg f32[64,64] (%x)\n  %y = matmul f32[64,64] (%a, %b)\n}\n");
    const int64_t *bytes = main_bytes(&table);
    int64_t value = 64 * 64 * 4 + (f.plan->canary ? HT_PLAN_ALIGN : 0);
    assert_int_equal(sum_of(&table), ht_plan_bytes(f.plan));
    assert_true(workspace_of(&f, 2) > 0);
    assert_int_equal(bytes[HT_BYTES_WORKSPACE], workspace_of(&f, 2));
    assert_int_equal(bytes[HT_BYTES_ACTIVATIONS], 2 * value);
    session_end(&f);
    /* Of the fullest time: no product runs there. */
    table = table_of(&f, "segment forward (%x f32[64,64], %i i32[]) -> (y=%y) {\n"
                         "  %p = matmul f32[64,64] (%x, %x)\n  %s = sum f32[] (%p)\n"
                         "  %a = fill f32[4096,1024] () value=1\n  %t = cumsum f32[4096,1024] (%a) axis=0\n"
                         "  %u = sum f32[] (%t)\n  %y = add f32[] (%s, %u)\n}\n");
    assert_int_equal(sum_of(&table), ht_plan_bytes(f.plan));
    assert_int_equal(main_bytes(&table)[HT_BYTES_WORKSPACE], 0);
    session_end(&f);
}

static void bytes__are_counted_in_the_space_where_they_lie(void **state)
{
    (void)state;
    session_fixture f;
    ht_byte_table table = table_of(&f, "state %w f32[16]\nstate %m f32[100]@host heading=optimizer\n"
                                       "segment forward (%x f32[16]) -> (y=%y) {\n  %y = add f32[16] (%x, %w)\n}\n");
    assert_int_equal(table.bytes[HT_SPACE_MAIN][HT_BYTES_PARAMETERS], 64);
    assert_int_equal(table.bytes[HT_SPACE_MAIN][HT_BYTES_OPTIMIZER], 0);
    assert_int_equal(table.bytes[HT_SPACE_HOST][HT_BYTES_OPTIMIZER], 400);
    assert_true(ht_byte_table_has(&table, HT_SPACE_HOST) && !ht_byte_table_has(&table, HT_SPACE_DISK));
    assert_int_equal(sum_of(&table), ht_plan_bytes(f.plan));
    session_end(&f);
}

/* ---- texts ---- */

static void bytes__are_told_under_every_heading(void **state)
{
    (void)state;
    ht_byte_table table = {0};
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    table.bytes[HT_SPACE_MAIN][HT_BYTES_GRADIENTS] = 12;
    ht_byte_table_json(&json, NULL, &table);
    assert_string_equal(text.data, "{\"main\": {\"parameters\": 0, \"masters\": 0, \"weights\": 0, \"gradients\": 12, "
                                   "\"optimizer\": 0, \"activations\": 0, \"workspace\": 0, \"slots\": 0, "
                                   "\"replay\": 0, \"other\": 0}}");
    ht_text_free(&text);
    text = (ht_text){0};
    table.workspace_unknown = true;
    ht_byte_table_json(&json, NULL, &table);
    assert_non_null(strstr(text.data, "\"workspace\": null"));
    ht_text_free(&text);
    table.bytes[HT_SPACE_HOST][HT_BYTES_OPTIMIZER] = 7;
    text = (ht_text){0};
    ht_byte_table_print(&text, &table, "");
    assert_non_null(strstr(text.data, "gradients "));
    assert_non_null(strstr(text.data, "optimizer@host "));
    ht_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes__of_all_headings_are_the_bytes_of_the_plan),
        cmocka_unit_test(bytes__tell_workspace_from_activations),
        cmocka_unit_test(bytes__are_counted_in_the_space_where_they_lie),
        cmocka_unit_test(bytes__are_told_under_every_heading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
