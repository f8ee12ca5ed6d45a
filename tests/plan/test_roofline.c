/* What bounds instructions, what kind of work they are, and the tree of modules. */
#include "model_fixture.h"
#include "session_fixture.h"

#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const ht_target machine = {.name = "test",
                                  .arch = "x86_64",
                                  .threads = 1,
                                  .flops = {[HT_F32] = 1e11, [HT_BF16] = 4e11},
                                  .bandwidth = {[HT_SPACE_MAIN] = 1e10}};

/* The only instruction of a text graph; the caller ends the fixture. */
static const ht_instr *only_instr(session_fixture *f, const char *text)
{
    *f = session_begin(1);
    ht_graph_free(f->g);
    f->g = NULL;
    must(f, ht_graph_parse(&f->g, f->ctx, "test", text, strlen(text)));
    must(f, ht_plan_create(&f->plan, f->g, NULL));
    const ht_plan_segment *forward = &f->plan->segments[ht_plan_segment_find(f->plan, "forward")];
    assert_int_equal(forward->instr_count, 1);
    return &forward->instrs[0];
}

static void roofline__is_the_longer_of_arithmetic_and_memory(void **state)
{
    (void)state;
    session_fixture f;
    /* 2·512³ FLOPs at 1e11 FLOP/s; 3·512² numbers at 1e10 bytes/s */
    const ht_instr *i = only_instr(&f, "segment forward (%x f32[512,512], %w f32[512,512]) -> (y=%y) {\n"
                                       "  %y = matmul f32[512,512] (%x, %w)\n}\n");
    ht_roofline r = ht_instr_roofline(&machine, i);
    assert_true(r.compute_s == 2.0 * 512 * 512 * 512 / 1e11 && r.memory_s == 4.0 * 3 * 512 * 512 / 1e10);
    assert_true(r.limit_s == r.compute_s && r.bound == HT_BOUND_COMPUTE && r.format == HT_F32);
    session_end(&f);
    i = only_instr(&f, "segment forward (%x f32[512,512]) -> (y=%y) {\n  %y = relu f32[512,512] (%x)\n}\n");
    r = ht_instr_roofline(&machine, i);
    assert_true(r.limit_s == 4.0 * 2 * 512 * 512 / 1e10 && r.bound == HT_BOUND_MEMORY);
    session_end(&f);
    i = only_instr(&f, "segment forward (%x f32[8]) -> (y=%y) {\n  %y = relu f32[8] (%x)\n}\n");
    assert_int_equal(ht_instr_roofline(&machine, i).bound, HT_BOUND_LATENCY);
    session_end(&f);
    i = only_instr(&f, "segment forward (%x bf16[512,512], %w bf16[512,512]) -> (y=%y) {\n"
                       "  %y = matmul bf16[512,512] (%x, %w)\n}\n");
    r = ht_instr_roofline(&machine, i);
    assert_true(r.format == HT_BF16 && r.compute_s == 2.0 * 512 * 512 * 512 / 4e11);
    session_end(&f);
}

/* The row says in which format tensor cores multiply f32, and how often. */
static void roofline__of_f32_by_tensor_cores_is_theirs(void **state)
{
    (void)state;
    static const struct {
        const char *liberties, *graph;
        int format;
        double flops;
    } cases[] = {
#define PRODUCT "(%x f32[1024,1024], %w f32[1024,1024]) -> (y=%y) {\n  %y = matmul f32[1024,1024] (%x, %w)\n}\n"
        {"", PRODUCT, HT_F32, 6e13},
        {"\"tf32\"", PRODUCT, HT_FORMAT_TF32, 3e14},
        {"\"tf32_parts\"", PRODUCT, HT_FORMAT_TF32, 1e14},
        {"",
         "(%q f32[2,4,64,32], %k f32[2,4,64,32], %v f32[2,4,64,32]) -> (y=%y) {\n"
         "  %y, %l = attention f32[2,4,64,32], f32[2,4,64] (%q, %k, %v)\n}\n",
         HT_F16, 2e14},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        session_fixture f = session_begin(1);
        char text[320], target[256];
        ht_plan_opts opts = HT_PLAN_OPTS;
        snprintf(text, sizeof text, "segment forward %s", cases[c].graph);
        snprintf(
            target, sizeof target,
            "{\"device\": \"cuda\", \"arch\": \"x86_64\", \"isa\": \"avx2\", \"threads\": 1, \"liberties\": [%s],\n"
            "\"flops\": {\"f32\": 6e13, \"tf32\": 3e14, \"f16\": 6e14}}",
            cases[c].liberties);
        opts.target = target;
        ht_graph_free(f.g);
        f.g = NULL;
        must(&f, ht_graph_parse(&f.g, f.ctx, "test", text, strlen(text)));
        must(&f, ht_plan_create(&f.plan, f.g, &opts));
        const ht_plan_segment *forward = &f.plan->segments[ht_plan_segment_find(f.plan, "forward")];
        const ht_instr *instr = &forward->instrs[forward->instr_count - 1];
        ht_roofline r = ht_instr_roofline(&f.plan->target, instr);
        if (r.format != cases[c].format || fabs(r.product_flops / cases[c].flops - 1) > 1e-9)
            fail_msg("%s: %s, %g FLOP/s", instr->kernel->name, ht_format_name(r.format), r.product_flops);
        assert_true(r.compute_s >= instr->cost.dot_flops / cases[c].flops);
        session_end(&f);
    }
}

static void work__follows_from_the_op(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        ht_work work;
    } cases[] = {
        {"  %y = matmul f32[64,64] (%x, %z)\n", HT_WORK_ARITHMETIC},
        {"  %y = add f32[64,64] (%x, %z)\n", HT_WORK_ARITHMETIC},
        {"  %y = sum f32[64] (%x) axes=[1]\n", HT_WORK_ARITHMETIC},
        {"  %y = concat f32[64,128] (%x, %z) axis=1\n", HT_WORK_MEMORY},
        {"  %y = cast bf16[64,64] (%x)\n", HT_WORK_MEMORY},
        {"  %y = lt bool[64,64] (%x, %z)\n", HT_WORK_LOGIC},
        {"  %y = argmax i64[64] (%x) axis=1\n", HT_WORK_LOGIC},
        {"  %y = exp f32[64,64] (%x)\n", HT_WORK_SPECIAL},
        {"  %y = softmax f32[64,64] (%x) axis=1\n", HT_WORK_SPECIAL},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        session_fixture f;
        char text[256];
        snprintf(text, sizeof text, "segment forward (%%x f32[64,64], %%z f32[64,64]) -> (y=%%y) {\n%s}\n",
                 cases[c].line);
        ht_work found = ht_instr_work(only_instr(&f, text));
        if (found != cases[c].work) fail_msg("%s: %s", cases[c].line, ht_work_names[found]);
        session_end(&f);
    }
}

static const ht_module *find_module(const ht_module_tree *t, const char *name)
{
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->list[i].name, name) == 0) return &t->list[i];
    fail_msg("no module '%s'", name);
    return t->list;
}

/* Parents come first, and names begin with theirs. */
static void check_order(const ht_module_tree *t)
{
    assert_string_equal(t->list[0].name, "");
    for (size_t i = 1; i < t->count; i++) {
        const ht_module *parent = &t->list[t->list[i].parent];
        size_t length = strlen(parent->name);
        assert_true(t->list[i].parent < i);
        assert_int_equal(t->list[i].depth, parent->depth + 1);
        assert_int_equal(strncmp(t->list[i].name, parent->name, length), 0);
        assert_true(length == 0 || t->list[i].name[length] == '.');
    }
}

static void modules__hold_what_is_below_them(void **state)
{
    (void)state;
    enum { LAYERS = 2, WIDTH = 16, VOCABULARY = 13, ROWS = 3 * 8 };
    model_fixture w;
    ht_module_tree tree;
    ht_model_request request = {.task = HT_TASK_LM, .batch = 3, .length = 8, .vocabulary = VOCABULARY};
    ht_train_opts train = HT_TRAIN_OPTS;
    model_start_threads(&w, "gpt2", "{\"n_layer\": 2, \"n_head\": 2, \"n_embd\": 16}", request, &train, 1);
    const ht_plan_segment *micro = &w.plan->segments[ht_plan_segment_find(w.plan, "micro_first")];
    model_must(&w, ht_module_tree_create(&tree, w.plan));
    for (size_t i = 0; i < micro->instr_count; i++)
        model_must(&w, ht_module_tree_add(&tree, w.plan, micro, i, 1, 1e-3));
    model_must(&w, ht_module_tree_sort(&tree, w.plan));
    check_order(&tree);
    const ht_module *model = find_module(&tree, ""), *fc = find_module(&tree, "transformer.h.1.mlp.c_fc");
    ht_cost cost = ht_plan_segment_cost(micro);
    assert_true(model->forward_flops + model->backward_flops == cost.dot_flops);
    assert_true(model->bytes == cost.bytes);
    assert_true(ht_bound_of_most(fc->bound_seconds) == HT_BOUND_LATENCY); /* it is tiny */
    assert_true(fc->forward_flops == 2.0 * ROWS * WIDTH * 4 * WIDTH);
    assert_int_equal(fc->params, WIDTH * 4 * WIDTH + 4 * WIDTH);
    assert_int_equal(model->params, LAYERS * (12 * WIDTH * WIDTH + 13 * WIDTH) + (VOCABULARY + 8) * WIDTH + 2 * WIDTH);
    const ht_module *mlp = find_module(&tree, "transformer.h.1.mlp"),
                    *back = find_module(&tree, "transformer.h.1.mlp.c_proj");
    assert_int_equal(mlp->params, fc->params + back->params);
    assert_true(model->forward_seconds > mlp->forward_seconds && mlp->backward_seconds > 0);
    ht_module_tree_free(&tree);
    model_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roofline__is_the_longer_of_arithmetic_and_memory),
        cmocka_unit_test(roofline__of_f32_by_tensor_cores_is_theirs),
        cmocka_unit_test(work__follows_from_the_op),
        cmocka_unit_test(modules__hold_what_is_below_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
