/* Whole steps of a run (making the batch, counting what counts, arithmetic, records in the run's folder) against the
 * same arithmetic on the batch that lies there already: data must never be what a step waits for. Needs HALFTONE_DATA. */
#include <stdlib.h>
#include <unistd.h>

#include "contest.h"
#include "ours.h"

typedef struct loading {
    const char *name, *file, *job; /* the job has the file's path for %s */
    ht_config *config;
    ht_run *run;
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
    return ht_run_open(&l->run, ctx, &request) == HT_OK;
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

static double fixed_batch(void *arg, int calls)
{
    loading *l = arg;
    ht_session *session = ht_run_session(l->run);
    double start = bench_now();
    for (int i = 0; i < calls; i++)
        if (ht_session_run(session, "micro_first") != HT_OK || ht_session_run(session, "update") != HT_OK) return -1;
    return (bench_now() - start) / calls;
}

static bool measure(loading *l, ht_context *ctx, const char *data)
{
    char folder[] = "/tmp/bench_loading.XXXXXX", command[128];
    bool made = mkdtemp(folder) != NULL, ready = made && open_run(l, ctx, data, folder);
    if (ready) {
        contest c = {.name = l->name, .unit = "ms", .seconds = 8};
        int whole = contest_add(&c, "real_data", whole_step, l, 0);
        int fixed = contest_add(&c, "fixed_batch", fixed_batch, l, 0);
        contest_run(&c);
        contest_row(&c, NULL, whole, fixed, NULL);
    } else {
        fprintf(stderr, "%s: %s\n", l->name, ht_context_message(ctx));
    }
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
