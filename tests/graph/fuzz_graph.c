/* libFuzzer target: any bytes as a graph. What parses must print, read back as the same graph, survive the passes that
 * leave a model as it is, and read back again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/pass.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_BYTES = 1 << 16 };

static ht_context *ctx;

static _Noreturn void stop(const char *what, const char *text)
{
    fprintf(stderr, "%s: %s\n%s\n", what, ht_context_message(ctx), text ? text : "");
    abort();
}

/* There and back; the graph is the one that was read. */
static void check_text(const ht_graph *g)
{
    char *text;
    ht_graph *back;
    if (ht_graph_print(&text, g) != HT_OK) stop("print", NULL);
    if (ht_graph_parse(&back, ctx, "again", text, strlen(text)) != HT_OK) stop("its own text does not parse", text);
    if (!ht_graph_equal(g, back)) stop("its text reads as another graph", text);
    uint64_t model, model_back;
    if (ht_model_hash(&model, g) != HT_OK || ht_model_hash(&model_back, back) != HT_OK) stop("no hash", text);
    if (model != model_back) stop("its text reads as another model", text);
    ht_graph_free(back);
    free(text);
}

static void check_passes(ht_graph *g)
{
    static const char *const names[] = {"dce", "cse", "fold", "regions", "cse", "fold", "dce"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (ht_pass_run(g, ht_pass_find(names[i]), NULL) != HT_OK) stop(names[i], NULL);
    check_text(g);
}

/* These may have their reasons to refuse. */
static void try_training(const ht_graph *g)
{
    static const char *const names[] = {"micro_batches", "autodiff", "optimizer", "init",
                                        "fold",          "cse",      "dce",       "regions"};
    ht_graph *training;
    ht_pass_options options = ht_pass_options_standard();
    options.train.accumulate = 2;
    ht_status status = ht_graph_clone(&training, g);
    for (size_t i = 0; i < sizeof names / sizeof names[0] && status == HT_OK; i++)
        status = ht_pass_run(training, ht_pass_find(names[i]), &(ht_pass_env){.options = &options});
    if (status == HT_OK) check_text(training);
    ht_graph_free(training);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.threads = 1;
    if (!ctx && ht_context_create(&ctx, &opts) != HT_OK) abort();
    ht_graph *g;
    if (size > MAX_BYTES) return 0;
    if (ht_graph_parse(&g, ctx, "fuzz", (const char *)data, size) != HT_OK) {
        if (g || !strstr(ht_context_message(ctx), "fuzz:")) stop("refused without a place", NULL);
        return 0;
    }
    check_text(g);
    try_training(g);
    check_passes(g);
    ht_graph_free(g);
    return 0;
}
