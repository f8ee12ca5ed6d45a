/* What CUDA rows write is right for NVRTC, in every number type, without a GPU, for sm_80, sm_90 and sm_100: one sample of
 * each op, and another one channels-last where the row follows (with HALFTONE_LONG=1 all samples); and what training steps
 * of a few models make of them, fused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda_library.h"
#include "kernel/cuda/cuda.h"
#include "model_fixture.h"
#include "op_variants.h"
#include "plan/plan.h"

enum { SKIPPED = 77, OLDEST = 80, USUAL = 90, NEWEST = 100, KNOWS_NEWEST = 1208, RESULTS = 8 };

static const ht_target target = {.name = "test", .device = HT_DEVICE_CUDA, .threads = 1};

typedef struct compilation {
    const ht_op *op; /* NULL: of a model */
    const char *line, *variant;
    char *text;
    uint64_t hash;
    int architecture;
    ht_status status;
    ht_context messages; /* of the thread that compiles */
} compilation;

static compilation **all;
static size_t count, capacity;

static bool is_long(void)
{
    return getenv("HALFTONE_LONG") != NULL;
}

/* Of NVRTC, 1300 for 13.0; 0: it is not there. The emulator's, which knows nothing of architectures, is below 1. */
static int nvrtc_version(void)
{
    const char *reason;
    int major = 0, minor = 0;
    const cuda_compiler *nvrtc = cuda_compiler_open(&reason);
    if (nvrtc) nvrtc->nvrtcVersion(&major, &minor);
    return major > 0 ? 100 * major + minor : 0;
}

/* ---- the texts ---- */

static bool is_new(uint64_t hash)
{
    for (size_t i = 0; i < count; i++)
        if (all[i]->hash == hash) return false;
    return true;
}

static void add_for(const compilation *like, const char *text, int architecture)
{
    compilation *one = calloc(1, sizeof *one);
    if (!one || !ht_grow((void **)&all, &capacity, count + 1, sizeof(compilation *))) abort();
    *one = *like;
    one->architecture = architecture;
    one->text = strdup(text);
    all[count++] = one;
}

/* Once for each architecture. */
static void add_text(const compilation *like, const char *text)
{
    compilation one = *like;
    one.hash = ht_hash_text(text);
    if (!is_new(one.hash)) return;
    add_for(&one, text, USUAL);
    add_for(&one, text, OLDEST);
    if (nvrtc_version() >= KNOWS_NEWEST) add_for(&one, text, NEWEST);
}

/* false where no thread would run. */
static bool emit(const compilation *like, const ht_launch *launch)
{
    ht_cuda_emission e;
    if (ht_cuda_emit(&e, context_shared(), launch) != HT_OK) abort();
    bool has_grids = e.grid_count > 0;
    if (has_grids) add_text(like, e.text.data);
    ht_cuda_emission_free(&e);
    return has_grids;
}

/* The text of a call; false where no thread would run. Operands lie at NULL: as well aligned as can be. */
static bool add_texts(const op_case *c, const ht_call *call, const ht_kernel *k)
{
    const void *in[HT_SAMPLE_MAX] = {NULL};
    void *out[RESULTS] = {NULL};
    ht_fused fused;
    ht_fused_operand operands[HT_FUSED_OPERANDS];
    ht_fused_step step;
    ht_chain_op chain[HT_CHAIN_OPS(1)];
    ht_launch launch = {.call = call, .in = in, .out = out, .row = k, .kernel = k->name, .threads = 1};
    if (k->elementwise) {
        ht_fused_alone(&fused, operands, &step, chain, call, k->elementwise);
        launch.fused = &fused;
    }
    return emit(&(compilation){.op = c->op, .line = c->line, .variant = c->variant}, &launch);
}

static bool add_channels_last(const op_case *c, const ht_kernel *k)
{
    ht_type types[HT_SAMPLE_MAX + RESULTS];
    const ht_type *list[HT_SAMPLE_MAX + RESULTS] = {NULL};
    ht_call call = *c->call;
    for (size_t i = 0; i < call.n_in + call.n_out; i++) {
        const ht_type *type = i < call.n_in ? call.in[i] : call.out[i - call.n_in];
        if (!type) continue;
        types[i] = *type;
        list[i] = &types[i];
        if (type->rank >= 3) ht_type_channels_last(&types[i]);
    }
    call.in = list;
    call.out = list + call.n_in;
    return ht_cuda_channels_last(&call) && !k->can(&call, &target) && add_texts(c, &call, k);
}

static bool add_sample(const ht_op *op, const ht_kernel *k, const char *line, const op_variant *v, bool channels_last)
{
    op_case c;
    op_case_parse(&c, op, line);
    bool added = op_variant_build(&c, v);
    if (channels_last)
        added = added && add_channels_last(&c, k);
    else
        added = added && !k->can(c.call, &target) && add_texts(&c, c.call, k);
    op_case_free(&c);
    return added;
}

static size_t count_samples(const ht_op *op)
{
    size_t n = 0;
    while (op->samples && op->samples[n]) n++;
    return n;
}

static void add_row(const ht_op *op, const ht_kernel *k)
{
    for (size_t v = 0; v < op_variant_count; v++) {
        if (op_variants[v].special) continue;
        for (size_t s = 0; s < count_samples(op); s++)
            if (add_sample(op, k, op->samples[s], &op_variants[v], false) && !is_long()) break;
        for (size_t s = count_samples(op); s-- > 0 && k->channels != HT_CHANNELS_AS_THEY_COME;)
            if (add_sample(op, k, op->samples[s], &op_variants[v], true) && !is_long()) break;
    }
}

static bool is_row(const ht_kernel *k, const ht_op *op)
{
    return k->device == HT_DEVICE_CUDA && k->emit && strcmp(k->op, op->name) == 0;
}

static bool has_text(const ht_op *op)
{
    for (size_t i = 0; i < count; i++)
        if (all[i]->op == op) return true;
    return false;
}

static void add_all(void)
{
    const ht_context *ctx = context_shared();
    const char *only = getenv("HALFTONE_TEST_OP");
    for (size_t i = 0; i < ctx->op_count; i++)
        for (size_t r = 0; r < ctx->kernel_count; r++)
            if (is_row(ctx->kernels[r], ctx->ops[i]) && (!only || strcmp(only, ctx->ops[i]->name) == 0))
                add_row(ctx->ops[i], ctx->kernels[r]);
}

/* ---- of models ---- */

static const struct {
    const char *type, *json;
    ht_model_request request;
} models[] = {
    {"gpt2",
     "{\"n_layer\": 1, \"n_head\": 4, \"n_embd\": 128}",
     {.task = HT_TASK_LM, .batch = 2, .length = 64, .vocabulary = 200}},
    {"llama",
     "{\"num_hidden_layers\": 1, \"hidden_size\": 64, \"intermediate_size\": 176, \"num_attention_heads\": 4}",
     {.task = HT_TASK_LM, .batch = 2, .length = 48, .vocabulary = 150}},
    {"resnet",
     "{\"width\": 8, \"stem\": \"cifar\"}",
     {.task = HT_TASK_CLASS, .batch = 4, .classes = 10, .feature_rank = 3, .feature = {3, 32, 32}}},
    {"seq2seq",
     "{\"hidden\": 96, \"layers\": 1, \"attention\": \"dot\"}",
     {.task = HT_TASK_PAIRS, .batch = 5, .length = 12, .source_length = 9, .vocabulary = 90, .source_vocabulary = 80}},
};
static const char cuda_target[] = "{\"device\": \"cuda\", \"arch\": \"x86_64\", \"isa\": \"portable\", \"threads\": 1}";
static const char *const precisions[] = {"bf16", "fp16"};

static void add_instr(const ht_instr *instr, const char *model, const char *precision)
{
    const void *in[HT_FUSED_OPERANDS] = {NULL};
    void *out[HT_FUSED_OPERANDS] = {NULL};
    ht_launch launch = {.call = instr->call,
                        .in = in,
                        .out = out,
                        .fused = instr->fused,
                        .row = instr->kernel,
                        .kernel = instr->kernel->name,
                        .threads = 1};
    if (instr->kernel->emit && instr->call->n_in <= HT_FUSED_OPERANDS && instr->call->n_out <= HT_FUSED_OPERANDS)
        emit(&(compilation){.line = model, .variant = precision}, &launch);
}

static void add_models(void)
{
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t p = 0; p < sizeof precisions / sizeof *precisions; p++) {
            model_fixture w;
            ht_train_opts train = HT_TRAIN_OPTS;
            ht_plan_opts opts = HT_PLAN_OPTS;
            ht_model_request request = models[m].request;
            request.training = true;
            opts.target = cuda_target;
            opts.precision = precisions[p];
            model_must(&w, model_graph(&w, models[m].type, models[m].json, request, 1));
            model_must(&w, ht_graph_train(w.g, &train));
            model_must(&w, ht_plan_create(&w.plan, w.g, &opts));
            for (size_t s = 0; s < w.plan->segment_count; s++)
                for (size_t i = 0; i < w.plan->segments[s].instr_count; i++)
                    add_instr(&w.plan->segments[s].instrs[i], models[m].type, precisions[p]);
            model_stop(&w);
        }
}

static bool models_compile(void)
{
    bool ok = true;
    for (size_t i = 0; i < count; i++) {
        if (all[i]->op || all[i]->status == HT_OK) continue;
        printf("%s in %s, sm_%d: %s\n", all[i]->line, all[i]->variant, all[i]->architecture, all[i]->messages.message);
        ok = false;
    }
    return ok;
}

/* ---- compile ---- */

static void compile_one(void *arg, int64_t i)
{
    compilation *one = ((compilation **)arg)[i];
    char *cubin;
    size_t bytes;
    one->status = ht_cuda_compile(&one->messages, one->op ? one->op->name : one->line, one->text, one->architecture,
                                  &cubin, &bytes);
    free(cubin);
}

static void texts_compile(void **state)
{
    for (size_t i = 0; i < count; i++)
        if (all[i]->op == *state && all[i]->status != HT_OK)
            fail_msg("%s %s [%s], sm_%d: %s", all[i]->op->name, all[i]->line, all[i]->variant, all[i]->architecture,
                     all[i]->messages.message);
}

int main(void)
{
    bool can = nvrtc_version() > 0;
    int failures = 0;
    add_all();
    if (!getenv("HALFTONE_TEST_OP")) add_models();
    if (can) {
        ht_parallel(context_shared()->pool, (int64_t)count, compile_one, all);
        failures = op_tests_run("NVRTC compiles", texts_compile, has_text) + !models_compile();
    }
    printf("# %zu texts%s\n", count, can ? "" : ", and no NVRTC");
    for (size_t i = 0; i < count; i++) {
        free(all[i]->text);
        free(all[i]);
    }
    free(all);
    return !can ? SKIPPED : failures != 0;
}
