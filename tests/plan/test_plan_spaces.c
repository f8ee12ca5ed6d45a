/* Spaces, queues and the order of effects in plans: who runs an instruction, what it waits for, and that no bytes are
 * written while a copy that is under way reads or writes them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context_fixture.h"
#include "plan/plan.h"
#include "random_graph.h"

enum { RANDOM_GRAPHS = 120 };

static ht_plan *plan_of(const char *text, bool fused)
{
    ht_graph *g;
    ht_plan *plan;
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.no_fusion = !fused;
    context_must(test_ctx, ht_graph_parse(&g, test_ctx, "text", text, strlen(text)));
    context_must(test_ctx, ht_plan_create(&plan, g, &opts));
    ht_graph_free(g);
    return plan;
}

static const ht_plan_segment *forward_of(const ht_plan *plan)
{
    return &plan->segments[ht_plan_segment_find(plan, "forward")];
}

/* Index of the first instruction whose op, or one of whose fused steps, is called so; -1: none. */
static int find_from(const ht_plan_segment *s, const char *op, size_t from)
{
    for (size_t i = from; i < s->instr_count; i++) {
        const ht_fused *f = s->instrs[i].fused;
        if (strcmp(s->instrs[i].call->op->name, op) == 0) return (int)i;
        for (int k = 0; f && k < f->step_count; k++)
            if (strcmp(f->steps[k].call->op->name, op) == 0) return (int)i;
        if (f && f->gemm && strcmp(f->gemm->op->name, op) == 0) return (int)i;
    }
    return -1;
}

static int find(const ht_plan_segment *s, const char *op)
{
    int found = find_from(s, op, 0);
    if (found < 0) fail_msg("segment %s has no %s", s->name, op);
    return found;
}

/* ---- what holds for every plan ---- */

static bool overlap(ht_place a, const ht_type *a_type, ht_place b, const ht_type *b_type)
{
    return a.area != HT_AREA_NONE && a.area == b.area && a.space == b.space &&
           a.offset < b.offset + ht_type_bytes(b_type) && b.offset < a.offset + ht_type_bytes(a_type);
}

/* Between a start and its done nothing writes what the copy reads, and nothing touches what it writes. */
static void check_under_way(const ht_plan_segment *s, size_t start, size_t done)
{
    const ht_instr *copy = &s->instrs[start];
    for (size_t k = start + 1; k < done; k++) {
        const ht_instr *instr = &s->instrs[k];
        for (size_t o = 0; o < instr->call->n_out; o++) {
            assert_false(overlap(instr->out[o], instr->call->out[o], copy->in[0], copy->call->in[0]));
            assert_false(overlap(instr->out[o], instr->call->out[o], copy->out[0], copy->call->out[0]));
        }
        for (size_t i = 0; i < instr->call->n_in; i++)
            if (instr->call->in[i])
                assert_false(overlap(instr->in[i], instr->call->in[i], copy->out[0], copy->call->out[0]));
    }
}

static void check_instr(const ht_plan_segment *s, size_t at)
{
    const ht_instr *instr = &s->instrs[at];
    const ht_call *call = instr->call;
    bool crosses = call->op->flags & HT_OP_CROSSES;
    ht_space nearest = HT_SPACE_DISK, farthest = HT_SPACE_MAIN;
    for (size_t i = 0; i < call->n_in + call->n_out; i++) {
        const ht_type *type = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        ht_place place = i < call->n_in ? instr->in[i] : instr->out[i - call->n_in];
        if (!type) continue;
        if (type->space < nearest) nearest = type->space;
        if (type->space > farthest) farthest = type->space;
        if (place.area != HT_AREA_NONE) assert_int_equal(place.space, type->space);
        if (!crosses) assert_int_equal(type->space, instr->space);
    }
    bool on_disk = farthest == HT_SPACE_DISK && !call->op->start;
    if (crosses) assert_int_equal(instr->space, on_disk ? HT_SPACE_DISK : nearest);
    ht_queue_kind copies = crosses && call->out[0]->space > call->in[0]->space ? HT_QUEUE_COPY_OUT : HT_QUEUE_COPY_IN;
    assert_int_equal(instr->queue, call->op->done ? copies : HT_QUEUE_COMPUTE);
    if (on_disk) assert_null(instr->guarded);
    assert_int_equal(instr->wait != 0, call->op->start != NULL);
    if (call->op->done || call->op->start) assert_int_equal(instr->row_block, 0);
    if (!instr->wait) return;
    size_t start = instr->wait - 1;
    assert_true(start < at);
    assert_ptr_equal(s->instrs[start].call->op, call->op->start);
    assert_true(ht_place_same(instr->in[0], s->instrs[start].out[0]));
    assert_true(ht_place_same(instr->in[1], s->instrs[start].in[0]));
    assert_true(ht_place_same(instr->out[0], instr->in[0]));
    check_under_way(s, start, at);
}

static void check_plan(const ht_plan *plan)
{
    for (size_t i = 0; i < plan->segment_count; i++)
        for (size_t k = 0; k < plan->segments[i].instr_count; k++) check_instr(&plan->segments[i], k);
}

/* ---- queues ---- */

static const char overlapping[] = "state %w f32[64]@host heading=masters\n"
                                  "segment forward (%x f32[64]) -> (y=%y) {\n"
                                  "  %t = copy_start f32[64] (%w)\n"
                                  "  %a = exp f32[64] (%x)\n"
                                  "  %s = softmax f32[64] (%a)\n"
                                  "  %m = copy_done f32[64] (%t, %w)\n"
                                  "  %c = cumsum f32[64] (%s)\n"
                                  "  %y = mul f32[64] (%c, %m)\n"
                                  "}\n";

static void a_copy_in_two_parts__runs_beside_what_stands_between(void **state)
{
    (void)state;
    for (int fused = 0; fused < 2; fused++) {
        ht_plan *plan = plan_of(overlapping, fused);
        const ht_plan_segment *s = forward_of(plan);
        check_plan(plan);
        /* The start stays first, the done waits for the reader. */
        assert_int_equal(find(s, "copy_start"), 0);
        assert_true(find(s, "copy_done") > find(s, "cumsum"));
        assert_int_equal(find(s, "copy_done") + 1, find(s, "mul"));
        char *text;
        context_must(test_ctx, ht_plan_print(&text, plan));
        assert_non_null(strstr(text, "queue copy in"));
        assert_non_null(strstr(text, "waits for 0"));
        free(text);
        ht_plan_free(plan);
    }
}

static void a_done__does_not_wait_where_the_source_would_live_longer(void **state)
{
    (void)state;
    ht_plan *plan = plan_of("segment forward (%x f32[64]) -> (y=%y, z=%z) {\n"
                            "  %a = exp f32[64] (%x)\n"
                            "  %t = copy_start f32[64]@host (%a)\n"
                            "  %s = softmax f32[64] (%x)\n"
                            "  %m = copy_done f32[64]@host (%t, %a)\n"
                            "  %y = cumsum f32[64] (%s)\n"
                            "  %z = neg f32[64]@host (%m)\n"
                            "}\n",
                            false);
    const ht_plan_segment *s = forward_of(plan);
    check_plan(plan);
    assert_true(find(s, "copy_done") < find(s, "cumsum"));
    ht_plan_free(plan);
}

static void a_start_out_of_main__moves_up_to_what_it_copies(void **state)
{
    (void)state;
    ht_plan *plan = plan_of("segment forward (%x f32[64]) -> (y=%y, z=%z) {\n"
                            "  %a = exp f32[64] (%x)\n"
                            "  %s = softmax f32[64] (%x)\n"
                            "  %y = cumsum f32[64] (%s)\n"
                            "  %t = copy_start f32[64]@host (%a)\n"
                            "  %z = copy_done f32[64]@host (%t, %a)\n"
                            "}\n",
                            true);
    const ht_plan_segment *s = forward_of(plan);
    check_plan(plan);
    assert_int_equal(find(s, "copy_start"), find(s, "exp") + 1);
    ht_plan_free(plan);
}

static void a_copy_into_state__is_written_there(void **state)
{
    (void)state;
    ht_plan *plan = plan_of("state %w f32[64]@host heading=masters\n"
                            "segment forward (%x f32[64]) -> (y=%y) {\n"
                            "  %a = exp f32[64] (%x)\n"
                            "  %t = copy_start f32[64]@host (%a)\n"
                            "  %y = softmax f32[64] (%a)\n"
                            "  %m = copy_done f32[64]@host (%t, %a)\n"
                            "  store %w = %m\n"
                            "}\n",
                            true);
    const ht_plan_segment *s = forward_of(plan);
    check_plan(plan);
    assert_int_equal(s->instr_count, 4); /* no copy for the store */
    const ht_instr *start = &s->instrs[find(s, "copy_start")];
    assert_true(ht_place_same(start->out[0], ht_plan_slot(plan, "w")->place));
    ht_plan_free(plan);
}

static void a_row_block__lets_a_start_wait_behind_it(void **state)
{
    (void)state;
    ht_plan *plan = plan_of("segment forward (%x f32[8,64]) -> (y=%y, z=%z) {\n"
                            "  %s = sum f32[8,1] (%x) axes=[1] keep=1\n"
                            "  %t = copy_start f32[8,1]@host (%s)\n"
                            "  %e = expand f32[8,64] (%s)\n"
                            "  %y = div f32[8,64] (%x, %e)\n"
                            "  %z = copy_done f32[8,1]@host (%t, %s)\n"
                            "}\n",
                            true);
    const ht_plan_segment *s = forward_of(plan);
    check_plan(plan);
    assert_int_equal(s->instrs[find(s, "sum")].row_block, 2);
    assert_true(find(s, "copy_start") > find(s, "div"));
    ht_plan_free(plan);
}

static void random_graphs__keep_what_a_copy_reads_until_it_is_done(void **state)
{
    (void)state;
    size_t pairs = 0, host = 0;
    for (uint64_t seed = 0; seed < RANDOM_GRAPHS; seed++) {
        ht_graph *g = random_graph_build(test_ctx, seed, 60);
        if (!g) fail_msg("graph %d: %s", (int)seed, ht_context_message(test_ctx));
        /* Two segments may give different types to inputs of one name, which cannot be planned. */
        for (int fused = 0; fused < 2 && g->segment_count == 1; fused++) {
            ht_plan *plan;
            ht_plan_opts opts = HT_PLAN_OPTS;
            opts.no_fusion = !fused;
            context_must(test_ctx, ht_plan_create(&plan, g, &opts));
            check_plan(plan);
            for (size_t i = 0; i < plan->segments[0].instr_count; i++) {
                pairs += plan->segments[0].instrs[i].wait != 0;
                host += plan->segments[0].instrs[i].space == HT_SPACE_HOST;
            }
            ht_plan_free(plan);
        }
        ht_graph_free(g);
    }
    assert_true(pairs > RANDOM_GRAPHS && host > RANDOM_GRAPHS);
}

/* ---- spaces ---- */

static void nodes_of_two_spaces__are_never_one_instruction(void **state)
{
    (void)state;
    /* Regions as no pass would give them. */
    ht_plan *plan = plan_of("segment forward (%x f32[4,64], %h f32[4,64]@host) -> (y=%y, z=%z) {\n"
                            "  %a = exp f32[4,64] (%x)\n"
                            "  %b = exp f32[4,64]@host (%h)\n"
                            "  %y = neg f32[4,64] (%a)\n"
                            "  %z = neg f32[4,64]@host (%b)\n"
                            "}\n",
                            true);
    const ht_plan_segment *s = forward_of(plan);
    check_plan(plan);
    assert_int_equal(s->instr_count, 2);
    assert_int_not_equal(s->instrs[0].space, s->instrs[1].space);
    ht_plan_free(plan);
}

/* ---- the disk ---- */

static void tiles_of_the_disk__have_a_queue_for_each_direction(void **state)
{
    (void)state;
    ht_plan *plan = plan_of("state %w f32[4096]@disk heading=optimizer\n"
                            "state %a f32[2048]@disk {%w, 0, [1]} heading=optimizer\n"
                            "state %b f32[2048]@disk {%w, 2048, [1]} heading=optimizer\n"
                            "segment forward () -> () {\n"
                            "  %a.s = copy_start f32[2048] (%a)\n"
                            "  %b.s = copy_start f32[2048] (%b)\n"
                            "  %a.m = copy_done f32[2048] (%a.s, %a)\n"
                            "  %c = exp f32[2048] (%a.m)\n"
                            "  %c.s = copy_start f32[2048]@disk (%c)\n"
                            "  %b.m = copy_done f32[2048] (%b.s, %b)\n"
                            "  %d = exp f32[2048] (%b.m)\n"
                            "  %e = copy f32[2048]@disk (%d)\n"
                            "  %c.d = copy_done f32[2048]@disk (%c.s, %c)\n"
                            "  store %a = %c.d\n"
                            "  store %b = %e\n"
                            "}\n",
                            true);
    const ht_plan_segment *s = forward_of(plan);
    check_plan(plan);
    const ht_instr *in = &s->instrs[find(s, "copy_start")], *plain = &s->instrs[find(s, "copy")];
    const ht_instr *out = &s->instrs[find_from(s, "copy_start", 2)], *done = &s->instrs[find(s, "copy_done")];
    assert_int_equal(in->queue, HT_QUEUE_COPY_IN);
    assert_int_equal(out->queue, HT_QUEUE_COPY_OUT);
    assert_int_equal(plain->queue, HT_QUEUE_COMPUTE);
    assert_true(in->space == HT_SPACE_DISK && out->space == HT_SPACE_DISK && plain->space == HT_SPACE_DISK);
    assert_int_equal(done->space, HT_SPACE_MAIN);
    /* Tiles are written where they lie; what is copied is aligned for requests past the page cache. */
    assert_true(ht_place_same(out->out[0], ht_plan_slot(plan, "a")->place));
    assert_true(ht_place_same(plain->out[0], ht_plan_slot(plan, "b")->place));
    assert_int_equal(in->out[0].offset % HT_PLAN_DISK_ALIGN, 0);
    assert_int_equal(out->in[0].offset % HT_PLAN_DISK_ALIGN, 0);
    ht_plan_free(plan);
}

static void the_disk__only_copies_what_has_no_gaps(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"segment forward (%x f32[4]@disk) -> (y=%y) {\n  %y = exp f32[4]@disk (%x)\n}\n",
         "%y: exp in @disk: nothing is computed there; copy crosses spaces"},
        {"state %w f32[4,4]@disk\nsegment forward () -> (y=%y) {\n  %s = slice f32[4,2]@disk (%w) start=[0,1]\n"
         "  %y = copy f32[4,2] (%s)\n}\n",
         "copy: no kernel for it: the disk copies values without gaps: an input is strided"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ht_graph *g;
        ht_plan *plan;
        context_must(test_ctx, ht_graph_parse(&g, test_ctx, "text", rows[i].text, strlen(rows[i].text)));
        assert_int_equal(ht_plan_create(&plan, g, NULL), HT_ENOTSUP);
        assert_string_equal(ht_context_message(test_ctx), rows[i].message);
        ht_graph_free(g);
    }
}

static void a_strided_value_of_main__is_copied_before_it_goes_to_the_disk(void **state)
{
    (void)state;
    ht_plan *plan = plan_of("state %w f32[4,2]@disk\nsegment forward (%x f32[2,4]) -> () {\n"
                            "  %t = permute f32[4,2] (%x) order=[1,0]\n"
                            "  %d = copy f32[4,2]@disk (%t)\n  store %w = %d\n}\n",
                            true);
    check_plan(plan);
    assert_int_equal(forward_of(plan)->instr_count, 2);
    ht_plan_free(plan);
}

static void a_program__keeps_its_slots(void **state)
{
    (void)state;
    ht_plan *plan = plan_of("segment forward (%x f32[4]) -> (y=%y) {\n  %y = exp f32[4] (%x)\n}\n"
                            "program train { forward forward*2 slot=1 }\n",
                            true);
    const ht_plan_program *program = &plan->programs[ht_plan_program_find(plan, "train")];
    assert_int_equal(program->calls[0].slot, 0);
    assert_int_equal(program->calls[1].slot, 1);
    assert_int_equal(program->calls[1].times, 2);
    ht_plan_free(plan);
}

/* ---- effects ---- */

static ht_status send_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    (void)ctx;
    out[0] = *call->in[0];
    return HT_OK;
}

static void send_cost(const ht_call *call, ht_cost *cost)
{
    (void)call;
    (void)cost;
}

static const char *send_can(const ht_call *call, const ht_target *target)
{
    (void)call;
    (void)target;
    return NULL;
}

static ht_status send_run(const ht_launch *launch)
{
    memcpy(launch->out[0], launch->in[0], (size_t)ht_type_bytes(launch->call->in[0]));
    return HT_OK;
}

/* What a collective will be: an effect that has a result. */
static const ht_attr_def send_attrs[] = {HT_DEF_INT("to", 0), HT_DEF_END};
static const ht_op send_op = {
    .size = sizeof(ht_op),
    .name = "send",
    .prec = HT_PREC_MOVE,
    .flags = HT_OP_EFFECT,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = send_attrs,
    .infer = send_infer,
    .cost = send_cost,
    .no_grad = "a test's op",
};
static const ht_kernel send_kernel = {
    .size = sizeof(ht_kernel), .op = "send", .name = "send", .can = send_can, .run = send_run};

/* %a, %d and %e could be one instruction, if it were not for the order of the first two sends. */
static const char sends[] = "state %w f32[64] heading=parameters\n"
                            "state %v f32[64] heading=parameters\n"
                            "segment forward (%x f32[64], %z f32[64]) -> (y=%y) {\n"
                            "  %p = cumsum f32[64] (%x)\n"
                            "  %a = exp f32[64] (%p)\n"
                            "  %b = send f32[64] (%a) to=1\n"
                            "  %c = send f32[64] (%z) to=2\n"
                            "  %d = neg f32[64] (%c)\n"
                            "  %e = add f32[64] (%d, %a)\n"
                            "  %f = send f32[64] (%x) to=3\n"
                            "  %y = mul f32[64] (%e, %b)\n"
                            "  store %w = %e\n"
                            "  store %v = %f\n"
                            "}\n";

static void effects__keep_their_order_fused_or_not(void **state)
{
    (void)state;
    uint64_t hash[2];
    for (int fused = 0; fused < 2; fused++) {
        ht_plan *plan = plan_of(sends, fused);
        const ht_plan_segment *s = forward_of(plan);
        int at = -1;
        for (int64_t to = 1; to <= 3; to++) {
            at = find_from(s, "send", (size_t)(at + 1));
            assert_true(at >= 0);
            assert_int_equal(ht_call_int(s->instrs[at].call, "to"), to);
        }
        hash[fused] = ht_plan_effects_hash(plan);
        ht_plan_free(plan);
    }
    assert_true(hash[0] == hash[1]);
}

static uint64_t hash_of(const char *text)
{
    ht_plan *plan = plan_of(text, true);
    uint64_t hash = ht_plan_effects_hash(plan);
    ht_plan_free(plan);
    return hash;
}

static void the_hash_of_effects__sees_order_and_not_what_is_computed(void **state)
{
    (void)state;
    static const char form[] = "state %%w f32[4]\nstate %%v f32[4]\n"
                               "segment forward (%%x f32[4]) -> () {\n"
                               "  %%a = %s f32[4] (%%x)\n"
                               "  store %%%s = %%a\n"
                               "  store %%%s = %%x\n"
                               "}\n";
    char texts[3][256];
    snprintf(texts[0], sizeof texts[0], form, "exp", "w", "v");
    snprintf(texts[1], sizeof texts[1], form, "exp", "v", "w");
    snprintf(texts[2], sizeof texts[2], form, "neg", "w", "v");
    assert_true(hash_of(texts[0]) != hash_of(texts[1]));
    assert_true(hash_of(texts[0]) == hash_of(texts[2]));
    assert_true(hash_of(texts[0]) == hash_of(texts[0]));
}

static int setup(void **state)
{
    if (context_setup(state) != 0) return -1;
    return ht_op_add(test_ctx, &send_op) == HT_OK && ht_kernel_add(test_ctx, &send_kernel) == HT_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_in_two_parts__runs_beside_what_stands_between),
        cmocka_unit_test(a_done__does_not_wait_where_the_source_would_live_longer),
        cmocka_unit_test(a_start_out_of_main__moves_up_to_what_it_copies),
        cmocka_unit_test(a_copy_into_state__is_written_there),
        cmocka_unit_test(a_row_block__lets_a_start_wait_behind_it),
        cmocka_unit_test(random_graphs__keep_what_a_copy_reads_until_it_is_done),
        cmocka_unit_test(nodes_of_two_spaces__are_never_one_instruction),
        cmocka_unit_test(tiles_of_the_disk__have_a_queue_for_each_direction),
        cmocka_unit_test(the_disk__only_copies_what_has_no_gaps),
        cmocka_unit_test(a_strided_value_of_main__is_copied_before_it_goes_to_the_disk),
        cmocka_unit_test(a_program__keeps_its_slots),
        cmocka_unit_test(effects__keep_their_order_fused_or_not),
        cmocka_unit_test(the_hash_of_effects__sees_order_and_not_what_is_computed),
    };
    return cmocka_run_group_tests(tests, setup, context_teardown);
}
