/* libFuzzer target: any bytes as a model block. The first byte chooses what the data is like; the rest is JSON:
 * {"type": NAME, "model": {its keys}}. A model that is built must verify and either become a training step or say why
 * not; one that is not has a message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "pass/pass.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_BYTES = 1 << 14, MAX_NODES = 4000 };

static const ht_model_request requests[] = {
    {.task = HT_TASK_LM, .batch = 3, .length = 8, .vocabulary = 13},
    {.task = HT_TASK_LM, .batch = 3, .length = 8, .vocabulary = 13, .documents = true},
    {.task = HT_TASK_CLASS, .batch = 4, .classes = 5, .feature_rank = 3, .feature = {3, 32, 32}},
    {.task = HT_TASK_CLASS, .batch = 4, .length = 8, .vocabulary = 13, .classes = 5},
    {.task = HT_TASK_REGRESSION, .batch = 4, .classes = 5, .feature_rank = 1, .feature = {6}},
    {.task = HT_TASK_PAIRS,
     .batch = 3,
     .length = 6,
     .source_length = 7,
     .vocabulary = 11,
     .source_vocabulary = 9,
     .beam = 2},
    {.task = HT_TASK_MASKED_LM, .batch = 3, .length = 8, .vocabulary = 13},
};

static ht_context *ctx;

static _Noreturn void stop(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, ht_context_message(ctx));
    abort();
}

static void try_model(ht_model_request r, const ht_json *root)
{
    const ht_json *type = ht_json_get(root, "type"), *keys = ht_json_get(root, "model");
    r.model = type && type->kind == HT_JSON_STRING ? ht_model_find(type->text, NULL) : NULL;
    /* Those that read files are for other targets. */
    if (!r.model || r.model->make || (keys && keys->kind != HT_JSON_OBJECT)) return;
    ht_fields *fields;
    if (ht_fields_read(&fields, ctx, r.model->keys, "model", keys) != HT_OK) return;
    ht_graph *g;
    r.fields = fields;
    r.training = r.logits = true;
    if (ht_model_create(&g, ctx, &r) == HT_OK) {
        if (g->node_count < MAX_NODES && ht_pass_run(g, ht_pass_find("autodiff"), NULL) != HT_OK &&
            !ht_context_message(ctx)[0])
            stop("refused without a word");
        ht_graph_free(g);
    } else if (g || !ht_context_message(ctx)[0]) {
        stop("refused without a word");
    }
    ht_fields_free(fields);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.threads = 1;
    if (!ctx && ht_context_create(&ctx, &opts) != HT_OK) abort();
    if (size < 1 || size > MAX_BYTES) return 0;
    ht_arena *arena = ht_arena_create();
    if (!arena) abort();
    const ht_json *root;
    if (ht_json_parse(ctx, arena, "fuzz", (const char *)data + 1, size - 1, &root) == HT_OK)
        try_model(requests[data[0] % (sizeof requests / sizeof requests[0])], root);
    ht_arena_free(arena);
    return 0;
}
