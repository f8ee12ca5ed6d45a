/* What a batch costs the training thread: made in place, or taken from the thread that makes them ahead while the
 * trainer computes. The peer is copying a batch that lies ready, which a fixed batch would cost. Needs HALFTONE_DATA. */
#include <inttypes.h>

#include "bench_common.h"
#include "data/data.h"

typedef struct bench_case {
    const char *name, *file, *keys;
    ht_task task;
    int64_t batch;
} bench_case;

static const bench_case cases[] = {
    {"data_text_12x64", "lm/tinyshakespeare.txt", "\"format\": \"text\", \"tokenizer\": \"char\", \"length\": 64",
     HT_TASK_LM, 12},
    {"data_text_64x256", "lm/tinyshakespeare.txt", "\"format\": \"text\", \"tokenizer\": \"char\", \"length\": 256",
     HT_TASK_LM, 64},
    {"data_mnist_64", "mnist/train-images-idx3-ubyte.gz", "\"format\": \"idx\", \"mean\": 0.1307, \"std\": 0.3081",
     HT_TASK_CLASS, 64},
    {"data_pairs_32", "en-fr/tatoeba-2017.tsv.gz", "\"format\": \"pairs\"", HT_TASK_PAIRS, 32},
};

enum { ROUNDS = 400 };

typedef struct opened {
    ht_context *ctx;
    ht_arena *arena;
    ht_fields *fields;
    ht_data *data;
} opened;

static ht_status open_case(opened *o, const bench_case *b, const char *folder)
{
    char block[1024];
    const ht_json *object;
    ht_data_request request = {.task = b->task, .batch = b->batch, .seed = 1, .folder = folder};
    snprintf(block, sizeof block, "{%s, \"train\": \"%s\"}", b->keys, b->file);
    HT_TRY(ht_json_parse(o->ctx, o->arena, b->name, block, strlen(block), &object));
    HT_TRY(ht_data_read_block(&request.format, &o->fields, o->ctx, object));
    request.fields = o->fields;
    return ht_data_open(&o->data, o->ctx, &request);
}

/* Stands for the step: what happens between two batches. */
static void compute(double seconds)
{
    for (double end = bench_now() + seconds; bench_now() < end;) {
    }
}

/* The median time of one ht_loader_next, in microseconds, with `pause` seconds between them. */
static double time_loader(const opened *o, bool prefetch, double pause, double *copy)
{
    static double next[ROUNDS], copies[ROUNDS];
    ht_loader *loader;
    if (ht_loader_open(&loader, o->data, HT_DATA_TRAIN, prefetch) != HT_OK) return -1;
    ht_status status = HT_OK;
    for (int i = 0; i < ROUNDS && status == HT_OK; i++) {
        ht_batch batch;
        void *ready[HT_BATCH_MOST_ARRAYS];
        ht_data_layout(o->data, ht_loader_bucket(loader), &batch);
        for (int k = 0; k < batch.array_count; k++) {
            batch.arrays[k].data = calloc(1, batch.arrays[k].bytes);
            ready[k] = malloc(batch.arrays[k].bytes);
            memset(ready[k], 1, batch.arrays[k].bytes);
        }
        compute(pause);
        double start = bench_now();
        status = ht_loader_next(loader, &batch);
        double middle = bench_now();
        for (int k = 0; k < batch.array_count; k++) memcpy(batch.arrays[k].data, ready[k], batch.arrays[k].bytes);
        copies[i] = (bench_now() - middle) * 1e6;
        next[i] = (middle - start) * 1e6;
        for (int k = 0; k < batch.array_count; k++) {
            free(batch.arrays[k].data);
            free(ready[k]);
        }
    }
    ht_loader_free(loader);
    *copy = bench_median(copies, ROUNDS);
    return status == HT_OK ? bench_median(next, ROUNDS) : -1;
}

int main(void)
{
    const char *folder = getenv("HALFTONE_DATA");
    if (!folder) {
        printf("bench_data: HALFTONE_DATA is not set\n");
        return 0;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ht_context ctx = {0};
        opened o = {.ctx = &ctx, .arena = ht_arena_create()};
        double start = bench_now(), copy, copy_ahead;
        if (open_case(&o, &cases[i], folder) != HT_OK) {
            fprintf(stderr, "%s\n", ctx.message);
            return 1;
        }
        double opening = bench_now() - start;
        double plain = time_loader(&o, false, 0, &copy), ahead = time_loader(&o, true, 2e-3, &copy_ahead);
        char name[64];
        bench_line(cases[i].name, plain, copy, "copy", "us");
        snprintf(name, sizeof name, "%s_ahead", cases[i].name);
        bench_line(name, ahead, copy_ahead, "copy", "us");
        printf("  opened in %.0f ms\n", opening * 1e3);
        ht_data_free(o.data);
        ht_fields_free(o.fields);
        ht_arena_free(o.arena);
    }
    return 0;
}
