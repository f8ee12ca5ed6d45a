/* Plans for other machines. With HALFTONE_PLANS=FILE the plans of every target are written there, too, so that
 * tools/compare-plans can hold those of two builds against each other. */
#include "model_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "optim/optim.h"
#include "small_models.h"

/* Large enough that products are packed, prepacked and fused. */
static const struct {
    const char *type, *json;
    ht_model_request request;
} models[] = {
    {"gpt2",
     "{\"n_layer\": 2, \"n_head\": 4, \"n_embd\": 128}",
     {.task = HT_TASK_LM, .batch = 3, .length = 64, .vocabulary = 200}},
    {"seq2seq",
     "{\"hidden\": 96, \"layers\": 2}",
     {.task = HT_TASK_PAIRS, .batch = 5, .length = 12, .source_length = 9, .vocabulary = 90, .source_vocabulary = 80}},
    {"resnet",
     "{\"width\": 32, \"stem\": \"cifar\"}",
     {.task = HT_TASK_CLASS, .batch = 4, .classes = 10, .feature_rank = 3, .feature = {3, 32, 32}}},
    {"mobilenet_v2",
     "{\"stem\": \"cifar\"}",
     {.task = HT_TASK_CLASS, .batch = 2, .classes = 10, .feature_rank = 3, .feature = {3, 32, 32}}},
    {"llama",
     "{\"num_hidden_layers\": 3, \"hidden_size\": 64, \"intermediate_size\": 176, \"num_attention_heads\": 4}",
     {.task = HT_TASK_LM, .batch = 2, .length = 48, .vocabulary = 150}},
};
enum { MODELS = sizeof models / sizeof models[0] };

static const char *const targets[] = {
    "{\"arch\": \"aarch64\", \"isa\": \"portable\", \"threads\": 4}",
    "{\"arch\": \"x86_64\", \"isa\": \"portable\", \"threads\": 4}",
    "{\"arch\": \"x86_64\", \"isa\": \"avx2\", \"threads\": 4}",
    "{\"arch\": \"x86_64\", \"isa\": \"avx512\", \"threads\": 4}",
    "{\"arch\": \"x86_64\", \"isa\": \"avx512\", \"features\": [\"avx512_bf16\"], \"threads\": 1}",
    "{\"arch\": \"x86_64\", \"isa\": \"avx512\", \"features\": [\"amx_bf16\"], \"threads\": 16}",
    "{\"arch\": \"x86_64\", \"isa\": \"avx512\", \"features\": [\"avx512_bf16\", \"amx_bf16\"], \"threads\": 64}",
    "{\"device\": \"fake\", \"arch\": \"x86_64\", \"isa\": \"avx2\", \"threads\": 2}",
    "{\"device\": \"cuda\", \"arch\": \"x86_64\", \"isa\": \"avx512\", \"threads\": 16}",
};
enum { TARGETS = sizeof targets / sizeof targets[0], AARCH64 = 0, X86_64 = 1, AVX512 = 3, AMX = 6, CUDA = 8 };

static const char *const precisions[] = {"fp32", "bf16", "fp16", "fp64"};
enum { PRECISIONS = sizeof precisions / sizeof precisions[0] };

static void open_graph(model_fixture *w, const char *type, const char *json, ht_model_request request,
                       const ht_train_opts *train)
{
    request.training = true;
    model_must(w, model_graph(w, type, json, request, 1));
    model_must(w, ht_graph_train(w->g, train));
}

static void open_model(model_fixture *w, int model)
{
    ht_train_opts train = HT_TRAIN_OPTS;
    open_graph(w, models[model].type, models[model].json, models[model].request, &train);
}

static ht_plan *plan_for(const model_fixture *w, const char *target, const char *precision)
{
    ht_plan *plan;
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.target = target;
    opts.precision = precision;
    model_must(w, ht_plan_create(&plan, w->g, &opts));
    return plan;
}

static int64_t workspace_of(const ht_plan *plan, const ht_instr *instr)
{
    const ht_fused *f = instr->fused;
    const ht_call *call = f && f->gemm ? f->gemm : f && f->fold ? f->fold : instr->call;
    return instr->kernel->workspace ? instr->kernel->workspace(call, &plan->target) : 0;
}

static int64_t all_workspaces(const ht_plan *plan)
{
    int64_t bytes = 0;
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++)
            bytes += workspace_of(plan, &plan->segments[s].instrs[i]);
    return bytes;
}

/* The plan's text, and what it leaves out. */
static void describe(ht_text *to, const ht_plan *plan)
{
    char *text;
    context_must(plan->ctx, ht_plan_print(&text, plan));
    ht_text_add(to, "%s", text);
    free(text);
    for (size_t s = 0; s < plan->segment_count; s++) {
        for (size_t i = 0; i < plan->segments[s].instr_count; i++) {
            const ht_instr *instr = &plan->segments[s].instrs[i];
            const ht_fused *f = instr->fused;
            ht_text_add(to, "%zu.%zu rows %lld workspace %d+%lld, %lld bytes, cost %.17g %.17g %.17g", s, i,
                        (long long)instr->rows, (int)instr->workspace.area, (long long)instr->workspace.offset,
                        (long long)workspace_of(plan, instr), instr->cost.dot_flops, instr->cost.other_flops,
                        instr->cost.bytes);
            if (f)
                ht_text_add(to, " span %lld grain %lld chain %d", (long long)f->span, (long long)f->grain,
                            f->chain_count);
            for (int o = 0; f && o < f->n_in + f->n_out + f->n_between; o++)
                ht_text_add(to, " %d:%d", (int)f->operands[o].access, (int)f->operands[o].scratch);
            ht_text_add(to, "\n");
        }
    }
}

static char *text_for(const model_fixture *w, const char *target, const char *precision)
{
    ht_text text = {0};
    ht_plan *plan = plan_for(w, target, precision);
    describe(&text, plan);
    ht_plan_free(plan);
    assert_false(text.failed);
    return text.data;
}

static size_t count_kernel(const ht_plan *plan, const char *name)
{
    size_t count = 0;
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++)
            count += strncmp(plan->segments[s].instrs[i].kernel->name, name, strlen(name)) == 0;
    return count;
}

/* A plan has only rows that its target runs; its text goes to the file of HALFTONE_PLANS. */
static void check_plan(const model_fixture *w, const char *what, const char *target, const char *precision)
{
    static FILE *file;
    const char *path = getenv("HALFTONE_PLANS");
    if (path && !file) file = fopen(path, "we");
    assert_true(!path || file);
    ht_text text = {0};
    ht_plan *plan = plan_for(w, target, precision);
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++)
            assert_true(ht_isa_runs(plan->target.isa, plan->segments[s].instrs[i].kernel->isa));
    describe(&text, plan);
    assert_false(text.failed);
    if (file) fprintf(file, "== %s %s %s\n%s\n", what, target, precision, text.data);
    if (file) assert_int_equal(fflush(file), 0);
    ht_text_free(&text);
    ht_plan_free(plan);
}

static void plan__has_rows_that_its_target_runs(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        model_fixture w;
        open_model(&w, m);
        for (int t = 0; t < TARGETS; t++)
            for (int p = 0; p < PRECISIONS; p++) check_plan(&w, models[m].type, targets[t], precisions[p]);
        model_stop(&w);
    }
}

/* Their graphs, too, must not depend on who builds them. */
static void plan__of_every_model_can_be_made_for_another_machine(void **state)
{
    (void)state;
    for (int m = 0; m < SMALL; m++) {
        model_fixture w;
        ht_train_opts train = HT_TRAIN_OPTS;
        train.clip = 1;
        train.accumulate = 2;
        open_graph(&w, small[m].type, small[m].json, small[m].request, &train);
        check_plan(&w, small[m].type, targets[AARCH64], "bf16");
        check_plan(&w, small[m].type, targets[AMX], "fp16");
        model_stop(&w);
    }
}

static void check_update(const char *optimizer, const ht_schedule *schedule)
{
    model_fixture w;
    char keys[4][64];
    ht_train_setting settings[4] = {{"schedule", schedule->name}};
    ht_train_opts train = HT_TRAIN_OPTS;
    train.optimizer = optimizer;
    train.weight_decay = 0.1;
    train.settings = settings;
    train.setting_count = 1;
    for (size_t k = 0; schedule->params[k].name; k++) {
        if (!schedule->params[k].required) continue;
        assert_true(train.setting_count < 4);
        snprintf(keys[train.setting_count], sizeof keys[0], "schedule.%s", schedule->params[k].name);
        settings[train.setting_count] = (ht_train_setting){keys[train.setting_count], "50"};
        train.setting_count++;
    }
    open_graph(&w, small[0].type, small[0].json, small[0].request, &train);
    check_plan(&w, optimizer, targets[AARCH64], "fp32");
    model_stop(&w);
}

static void plan__of_every_optimiser_and_schedule_can_be_made_for_another_machine(void **state)
{
    (void)state;
    static const char *const schedules[] = {
#define HT_SCHEDULE(name, ...) #name,
#include "optim/schedules.def"
    };
    for (size_t i = 0; ht_optimizers[i]; i++)
        check_update(ht_optimizers[i]->name, ht_schedule_find(schedules[0], NULL));
    for (size_t i = 1; i < sizeof schedules / sizeof schedules[0]; i++)
        check_update("adamw_hf", ht_schedule_find(schedules[i], NULL));
}

static void plan__follows_instruction_set_and_features(void **state)
{
    (void)state;
    model_fixture w;
    open_model(&w, 0);
    ht_plan *portable = plan_for(&w, targets[X86_64], "bf16"), *avx512 = plan_for(&w, targets[AVX512], "bf16");
    ht_plan *amx = plan_for(&w, targets[AMX], "bf16"), *plain = plan_for(&w, targets[AMX], "fp32");
    assert_int_equal(count_kernel(portable, "matmul_bf16_dot"), 0);
    assert_int_equal(count_kernel(avx512, "matmul_bf16_dot"), 0);
    assert_true(count_kernel(avx512, "matmul_gemm.f32.avx512") > 0);
    assert_true(count_kernel(portable, "matmul_gemm.f32.portable") > 0);
    assert_true(count_kernel(amx, "matmul_bf16_dot.bf16.amx") > 0);
    assert_int_equal(count_kernel(plain, "matmul_bf16_dot"), 0);
    assert_true(all_workspaces(portable) != all_workspaces(avx512));
    assert_true(all_workspaces(amx) != all_workspaces(avx512));
    ht_plan_free(portable);
    ht_plan_free(avx512);
    ht_plan_free(amx);
    ht_plan_free(plain);
    model_stop(&w);
}

static void portable_plan__is_the_same_on_every_architecture(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        model_fixture w;
        open_model(&w, m);
        char *a = text_for(&w, targets[AARCH64], "bf16"), *b = text_for(&w, targets[X86_64], "bf16");
        assert_string_equal(a, b);
        free(a);
        free(b);
        model_stop(&w);
    }
}

static void plan_here__is_that_of_this_machine_as_a_file(void **state)
{
    (void)state;
    model_fixture w;
    open_model(&w, 0);
    ht_target here;
    ht_text file = {0};
    ht_target_here(w.ctx, &here);
    ht_target_print(&file, &here);
    char *a = text_for(&w, NULL, "bf16"), *b = text_for(&w, file.data, "bf16");
    assert_string_equal(a, b);
    free(a);
    free(b);
    ht_text_free(&file);
    model_stop(&w);
}

/* Only that biases have half copies, too, where products add them in half. */
static void plan_for_cuda__has_the_state_of_a_cpu_and_kernels_of_its_own(void **state)
{
    (void)state;
    for (int p = 0; p < PRECISIONS; p++) {
        model_fixture w;
        open_model(&w, 0);
        ht_plan *cpu = plan_for(&w, targets[AVX512], precisions[p]), *cuda = plan_for(&w, targets[CUDA], precisions[p]);
        assert_int_equal(cpu->heading_bytes[HT_HEADING_GRADIENTS], cuda->heading_bytes[HT_HEADING_GRADIENTS]);
        assert_int_equal(cpu->heading_bytes[HT_HEADING_OPTIMIZER], cuda->heading_bytes[HT_HEADING_OPTIMIZER]);
        bool half = strcmp(cpu->precision, "fp16") == 0 || strcmp(cpu->precision, "bf16") == 0;
        assert_int_equal(cuda->slot_count > cpu->slot_count, half);
        if (!cpu->canary && !half) /* which only memory of the host has */
            assert_int_equal(ht_plan_area_bytes(cpu, HT_AREA_STATE), ht_plan_area_bytes(cuda, HT_AREA_STATE));
        assert_int_equal(cpu->model_hash, cuda->model_hash);
        assert_true(ht_plan_area_bytes(cuda, HT_AREA_TRANSIENT) > 0);
        for (size_t s = 0; s < cuda->segment_count; s++)
            for (size_t i = 0; i < cuda->segments[s].instr_count; i++)
                assert_int_equal(cuda->segments[s].instrs[i].kernel->device, HT_DEVICE_CUDA);
        ht_plan_free(cpu);
        ht_plan_free(cuda);
        model_stop(&w);
    }
}

static int model_named(const char *type)
{
    int model = 0;
    while (strcmp(models[model].type, type) != 0) model++;
    return model;
}

static bool is_convolution(const ht_instr *instr)
{
    return strncmp(instr->kernel->op, "conv2d", 6) == 0;
}

/* Bytes of the activations and gradients that a training step copies, and its convolutions by a library. */
static int64_t copied_bytes(const ht_plan *plan, size_t *convolutions)
{
    int64_t bytes = 0;
    for (size_t s = 0; s < plan->segment_count; s++) {
        if (strcmp(plan->segments[s].name, "micro_first") != 0) continue;
        for (size_t i = 0; i < plan->segments[s].instr_count; i++) {
            const ht_instr *instr = &plan->segments[s].instrs[i];
            if (is_convolution(instr)) {
                assert_true(strstr(instr->kernel->name, "_cudnn") || strstr(instr->kernel->name, "_matmul") ||
                            strstr(instr->kernel->name, "_im2col"));
                ++*convolutions;
            }
            /* Weights have the windows' sizes behind their channels. */
            const ht_type *type = instr->call->out[0];
            if (strcmp(instr->kernel->op, "copy") == 0 && type->rank == 4 && type->dim[3] > 3)
                bytes += ht_type_bytes(type);
        }
    }
    return bytes;
}

/* No copies but those of weights: pictures become half and channels-last at once. */
static void plan_for_cuda__keeps_a_network_of_convolutions_channels_last(void **state)
{
    (void)state;
    static const char *const half[] = {"bf16", "fp16"};
    for (int p = 0; p < 2; p++) {
        model_fixture w;
        size_t convolutions = 0;
        open_model(&w, model_named("resnet"));
        ht_plan *plan = plan_for(&w, targets[CUDA], half[p]);
        assert_int_equal(copied_bytes(plan, &convolutions), 0);
        assert_true(convolutions > 20);
        ht_plan_free(plan);
        model_stop(&w);
    }
}

/* Instructions of the training step that are nothing but this op. */
static size_t count_alone(const ht_plan *plan, const char *op)
{
    size_t found = 0;
    for (size_t s = 0; s < plan->segment_count; s++) {
        if (strcmp(plan->segments[s].name, "micro_first") != 0) continue;
        for (size_t i = 0; i < plan->segments[s].instr_count; i++) {
            const ht_instr *instr = &plan->segments[s].instrs[i];
            bool alone = !instr->fused || instr->fused->step_count == 1;
            found += alone && strcmp(instr->kernel->op, op) == 0;
        }
    }
    return found;
}

/* A norm's result is made with what reads it, and what a relu hides is hidden where it is read. */
static void plan_for_cuda__passes_over_activations_once(void **state)
{
    (void)state;
    model_fixture w;
    open_model(&w, model_named("resnet"));
    ht_plan *cuda = plan_for(&w, targets[CUDA], "bf16"), *cpu = plan_for(&w, targets[AVX512], "bf16");
    static const char *const joined[] = {"batchnorm", "relu", "le", "select"};
    for (size_t i = 0; i < sizeof joined / sizeof joined[0]; i++) assert_int_equal(count_alone(cuda, joined[i]), 0);
    assert_int_equal(count_alone(cuda, "batchnorm_stats"), count_alone(cpu, "batchnorm"));
    assert_int_equal(count_alone(cuda, "batchnorm_grad"), count_alone(cpu, "batchnorm_grad"));
    assert_true(count_alone(cpu, "batchnorm") > 15);
    ht_plan_free(cuda);
    ht_plan_free(cpu);
    model_stop(&w);
}

/* Both read the gradient of their product. */
static void plan_for_cuda__makes_gradients_of_both_sides_of_a_gate_at_once(void **state)
{
    (void)state;
    model_fixture w;
    open_model(&w, model_named("llama"));
    ht_plan *cuda = plan_for(&w, targets[CUDA], "bf16"), *cpu = plan_for(&w, targets[AVX512], "bf16");
    assert_int_equal(count_alone(cpu, "mul"), 3);
    assert_int_equal(count_alone(cuda, "mul"), 0);
    ht_plan_free(cuda);
    ht_plan_free(cpu);
    model_stop(&w);
}

static void refused(const model_fixture *w, const char *target, const char *word)
{
    ht_session *session;
    ht_plan *plan = plan_for(w, target, "fp32");
    assert_int_equal(ht_session_create(&session, plan, NULL), HT_ENOTSUP);
    assert_null(session);
    if (!strstr(ht_context_message(w->ctx), word)) fail_msg("no '%s' in: %s", word, ht_context_message(w->ctx));
    ht_plan_free(plan);
}

static void session__refuses_a_target_that_this_machine_does_not_run(void **state)
{
    (void)state;
    model_fixture w;
    open_model(&w, 0);
    ht_device *gpu;
    if (ht_device_get(&gpu, w.ctx, "cuda") != HT_OK) refused(&w, targets[CUDA], "device cuda: libcuda.so.1");
    if (!ht_isa_runs(ht_cpu_isa(), HT_ISA_AVX2))
        refused(&w, targets[2], "it needs avx2, and this machine has portable");
    if (ht_isa_runs(ht_cpu_isa(), HT_ISA_AVX512) && !(ht_cpu_features() >> HT_FEATURE_AMX_BF16 & 1))
        refused(&w, targets[5], "it needs amx_bf16, which this machine lacks");
    ht_session *session;
    ht_plan *plan = plan_for(&w, targets[ht_isa_on(ht_cpu_isa(), "x86_64") ? AARCH64 : X86_64], "fp32");
    model_must(&w, ht_session_create(&session, plan, NULL)); /* portable rows run everywhere */
    ht_session_free(session);
    ht_plan_free(plan);
    model_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan__has_rows_that_its_target_runs),
        cmocka_unit_test(plan__of_every_model_can_be_made_for_another_machine),
        cmocka_unit_test(plan__of_every_optimiser_and_schedule_can_be_made_for_another_machine),
        cmocka_unit_test(plan__follows_instruction_set_and_features),
        cmocka_unit_test(portable_plan__is_the_same_on_every_architecture),
        cmocka_unit_test(plan_here__is_that_of_this_machine_as_a_file),
        cmocka_unit_test(plan_for_cuda__has_the_state_of_a_cpu_and_kernels_of_its_own),
        cmocka_unit_test(plan_for_cuda__keeps_a_network_of_convolutions_channels_last),
        cmocka_unit_test(plan_for_cuda__passes_over_activations_once),
        cmocka_unit_test(plan_for_cuda__makes_gradients_of_both_sides_of_a_gate_at_once),
        cmocka_unit_test(session__refuses_a_target_that_this_machine_does_not_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
