/* Steps on real data against the same arithmetic on the batch that lies there already: data must never be what a step
 * waits for. A second row has the whole step of a run, with its records in the run's folder. Needs HALFTONE_DATA. */
#include <stdlib.h>
#include <unistd.h>

#include "contest.h"
#include "ours.h"

typedef struct loading {
    const char *name, *file, *job; /* the job has the file's path for %s */
    ht_config *config;
    ht_run *run;
    ht_loader *loader;
    ht_batch batch;
} loading;

static loading loadings[] = {
    {.name = "loading_text_gpt2_4x128_b12",
     .file = "lm/tinyshakespeare.txt",
     .job = "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 4, \"n_head\": 4, \"n_embd\": 128, \"bias\": false},\n"
            " \"data\": {\"format\": \"text\", \"train\": \"%s\", \"tokenizer\": \"char\", \"length\": 64},\n"
            " \"train\": {\"steps\": 1000000, \"batch\": 12}}\n"},
    {.name = "loading_mnist_lenet_b64",
     .file = "mnist/train-images-idx3-ubyte.gz",
     .job = "{\"model\": {\"type\": \"lenet\"},\n"
            " \"data\": {\"format\": \"idx\", \"train\": \"%s\", \"mean\": [0.1307], \"std\": [0.3081]},\n"
            " \"train\": {\"steps\": 1000000, \"batch\": 64}}\n"},
};

static bool open_run(loading *l, ht_context *ctx, const char *data, const char *folder)
{
    char path[4096], text[8192];
    ht_block_keys blocks[HT_MOST_JOB_BLOCKS];
    snprintf(path, sizeof path, "%s/%s", data, l->file);
    int length = snprintf(text, sizeof text, l->job, path);
    ht_config_request read = {.path = l->name,
                              .text = text,
                              .length = (size_t)length,
                              .blocks = blocks,
                              .block_count = ht_job_blocks(blocks),
                              .training = true};
    if (ht_config_read(&l->config, ctx, &read) != HT_OK) return false;
    ht_run_request request = {.config = l->config, .mode = HT_RUN_FORCE, .folder = folder};
    if (ht_run_open(&l->run, ctx, &request) != HT_OK) return false;
    if (ht_loader_open(&l->loader, ht_run_data(l->run), HT_DATA_TRAIN, false) != HT_OK) return false;
    ht_data_layout(ht_run_data(l->run), 0, &l->batch);
    bool allocated = true;
    for (int i = 0; i < l->batch.array_count; i++)
        allocated &= (l->batch.arrays[i].data = calloc(1, l->batch.arrays[i].bytes)) != NULL;
    return allocated;
}

static double whole_step(void *arg, int calls)
{
    loading *l = arg;
    bool dropped;
    double start = bench_now();
    for (int i = 0; i < calls; i++)
        if (ht_run_step(l->run, NULL, &dropped) != HT_OK) return -1;
    return (bench_now() - start) / calls;
}

static bool step_of(ht_session *session)
{
    return ht_session_run(session, "micro_first") == HT_OK && ht_session_run(session, "update") == HT_OK;
}

/* As a caller of the library does it, who hands over every batch. */
static double real_data(void *arg, int calls)
{
    loading *l = arg;
    ht_session *session = ht_run_session(l->run);
    double start = bench_now();
    for (int i = 0; i < calls; i++) {
        double loss_grad = 1 / (double)ht_loader_counted(l->loader, 1);
        bool ready = ht_session_write_f64(session, "loss_grad", &loss_grad, 1) == HT_OK;
        ready = ready && ht_loader_next(l->loader, &l->batch) == HT_OK;
        for (int k = 0; k < l->batch.array_count && ready; k++)
            ready = ht_session_write(session, l->batch.arrays[k].name, l->batch.arrays[k].data,
                                     l->batch.arrays[k].bytes) == HT_OK;
        if (!ready || !step_of(session)) return -1;
    }
    return (bench_now() - start) / calls;
}

static double fixed_batch(void *arg, int calls)
{
    loading *l = arg;
    ht_session *session = ht_run_session(l->run);
    double start = bench_now();
    for (int i = 0; i < calls; i++)
        if (!step_of(session)) return -1;
    return (bench_now() - start) / calls;
}

static bool measure(loading *l, ht_context *ctx, const char *data)
{
    char folder[] = "/tmp/bench_loading.XXXXXX", command[128];
    bool made = mkdtemp(folder) != NULL, ready = made && open_run(l, ctx, data, folder);
    if (ready) {
        char name[96];
        contest c = {.name = l->name, .unit = "ms", .seconds = 8};
        int real = contest_add(&c, "real_data", real_data, l, 0), whole = contest_add(&c, "whole", whole_step, l, 0);
        int fixed = contest_add(&c, "fixed_batch", fixed_batch, l, 0);
        contest_run(&c);
        contest_row(&c, NULL, real, fixed, NULL);
        snprintf(name, sizeof name, "%s_with_records", l->name);
        contest_row(&c, name, whole, fixed, NULL);
    } else {
        fprintf(stderr, "%s: %s\n", l->name, ht_context_message(ctx));
    }
    for (int i = 0; i < l->batch.array_count; i++) free(l->batch.arrays[i].data);
    ht_loader_free(l->loader);
    ht_run_close(l->run);
    ht_config_free(l->config);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return (!made || system(command) == 0) && ready;
}

int main(void)
{
    const char *data = getenv("HALFTONE_DATA");
    bool done = true;
    if (!data) {
        printf("bench_loading: HALFTONE_DATA is not set\n");
        return 0;
    }
    ht_context *ctx = ours_context();
    for (size_t i = 0; i < sizeof loadings / sizeof loadings[0]; i++) done &= measure(&loadings[i], ctx, data);
    ht_context_free(ctx);
    return done ? 0 : 1;
}
