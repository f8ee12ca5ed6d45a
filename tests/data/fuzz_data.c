/* libFuzzer target: the first byte chooses a format, the rest is its file. What opens gives batches; their numbers are
 * within the vocabulary. */
#define _GNU_SOURCE /* memfd_create */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
    const char *keys;
    ht_task task;
} formats[] = {
    {"\"format\": \"text\", \"tokenizer\": \"char\", \"length\": 5", HT_TASK_LM},
    {"\"format\": \"text\", \"documents\": \"paragraph\", \"length\": 5, \"document_ids\": true", HT_TASK_LM},
    {"\"format\": \"jsonl\", \"length\": 5, \"order\": \"shuffled\"", HT_TASK_LM},
    {"\"format\": \"pairs\", \"minimum_count\": 1, \"validation_share\": 0.5", HT_TASK_PAIRS},
    {"\"format\": \"pairs\", \"tokenizer\": \"char\", \"buckets\": 2", HT_TASK_PAIRS},
    {"\"format\": \"table\"", HT_TASK_CLASS},
    {"\"format\": \"table\", \"normalize\": false, \"label\": 0", HT_TASK_REGRESSION},
    {"\"format\": \"shards\", \"length\": 5, \"vocabulary_size\": 1000", HT_TASK_LM},
    {"\"format\": \"text\", \"length\": 9", HT_TASK_MASKED_LM},
    {"\"format\": \"sentences\", \"minimum_count\": 1, \"length\": 4, \"validation_share\": 0.3", HT_TASK_CLASS},
};

static void check_batch(const ht_data *data, const ht_batch *batch)
{
    const ht_data_info *info = ht_data_info_of(data);
    int64_t most = info->vocabulary > info->source_vocabulary ? info->vocabulary : info->source_vocabulary;
    for (int i = 0; i < batch->array_count; i++) {
        const ht_batch_array *array = &batch->arrays[i];
        if (array->dtype != HT_I32 || (strcmp(array->name, "tokens") != 0 && strcmp(array->name, "targets") != 0))
            continue;
        const int32_t *ids = array->data;
        for (size_t k = 0; k < array->bytes / sizeof *ids; k++)
            if (ids[k] < -1 || ids[k] >= most) abort();
    }
    ht_text text = {0};
    for (int64_t row = 0; row < batch->rows; row++) ht_data_show_row(data, batch, row, &text);
    ht_text_free(&text);
}

static void take_batches(ht_data *data, ht_data_part part)
{
    ht_loader *loader;
    if (ht_loader_open(&loader, data, part, false) != HT_OK) return;
    for (int i = 0; i < 5; i++) {
        ht_batch batch;
        int64_t counted = ht_loader_counted(loader, 1);
        ht_data_layout(data, ht_loader_bucket(loader), &batch);
        for (int k = 0; k < batch.array_count; k++) batch.arrays[k].data = malloc(batch.arrays[k].bytes + 1);
        ht_status status = ht_loader_next(loader, &batch);
        if (status == HT_OK && batch.counted != counted) abort();
        if (status == HT_OK) check_batch(data, &batch);
        for (int k = 0; k < batch.array_count; k++) free(batch.arrays[k].data);
    }
    ht_loader_free(loader);
}

static void try_data(ht_context *ctx, ht_arena *arena, size_t format, const char *path)
{
    char block[512];
    const ht_json *object;
    ht_fields *fields = NULL;
    ht_data *data = NULL;
    ht_data_request request = {.task = formats[format].task, .batch = 3};
    snprintf(block, sizeof block, "{%s, \"train\": \"%s\"}", formats[format].keys, path);
    if (ht_json_parse(ctx, arena, "block", block, strlen(block), &object) != HT_OK) abort();
    if (ht_data_read_block(&request.format, &fields, ctx, object) != HT_OK) abort();
    request.fields = fields;
    if (ht_data_open(&data, ctx, &request) == HT_OK)
        for (int part = 0; part < HT_DATA_PARTS; part++) take_batches(data, (ht_data_part)part);
    else if (data || !ctx->message[0])
        abort();
    ht_data_free(data);
    ht_fields_free(fields);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { FORMATS = sizeof formats / sizeof formats[0] };
    if (size < 1) return 0;
    ht_context ctx = {0};
    char path[64];
    int file = memfd_create("fuzz", MFD_CLOEXEC);
    if (file < 0 || write(file, data + 1, size - 1) != (ssize_t)(size - 1)) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    ht_arena *arena = ht_arena_create();
    size_t format = data[0] % (FORMATS + 1);
    if (format < FORMATS) {
        try_data(&ctx, arena, format, path);
    } else {
        ht_vocabulary *vocabulary;
        if (ht_vocabulary_read(&vocabulary, &ctx, path) == HT_OK && ht_vocabulary_size(vocabulary) < 0) abort();
        ht_vocabulary_free(vocabulary);
    }
    ht_arena_free(arena);
    close(file);
    return 0;
}
