#include "data_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

int data_case_begin(void **state)
{
    data_case *c = calloc(1, sizeof *c);
    if (!c) return 1;
    *state = c;
    return folder_make(c->folder);
}

static void forget_data(data_case *c)
{
    ht_data_free(c->data);
    ht_fields_free(c->fields);
    ht_arena_free(c->arena);
    c->data = NULL;
    c->fields = NULL;
    c->arena = NULL;
}

int data_case_end(void **state)
{
    data_case *c = *state;
    forget_data(c);
    folder_remove(c->folder);
    free(c);
    return 0;
}

const char *data_case_path(const data_case *c, const char *name)
{
    return folder_at(c->folder, name);
}

void data_case_file(data_case *c, const char *name, const void *bytes, size_t length)
{
    char path[1024];
    snprintf(path, sizeof path, "%s", data_case_path(c, name));
    char *slash = strrchr(path, '/');
    if (strchr(name, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

void data_case_text(data_case *c, const char *name, const char *text)
{
    data_case_file(c, name, text, strlen(text));
}

ht_status data_case_try(data_case *c, ht_task task, int64_t batch, const char *block)
{
    forget_data(c);
    c->arena = ht_arena_create();
    assert_non_null(c->arena);
    const ht_json *object;
    ht_data_request request = {.task = task, .batch = batch, .slices = c->slices, .seed = 7, .folder = c->folder};
    HT_TRY(ht_json_parse(&c->ctx, c->arena, "block", block, strlen(block), &object));
    HT_TRY(ht_data_read_block(&request.format, &c->fields, &c->ctx, object));
    request.fields = c->fields;
    return ht_data_open(&c->data, &c->ctx, &request);
}

void data_case_open(data_case *c, ht_task task, int64_t batch, const char *block)
{
    if (data_case_try(c, task, batch, block) != HT_OK) fail_msg("%s: %s", block, c->ctx.message);
}

void data_case_refused(data_case *c, ht_task task, int64_t batch, const char *block, const char *message)
{
    ht_status status = data_case_try(c, task, batch, block);
    if (status == HT_OK) fail_msg("%s: was not refused", block);
    assert_null(c->data);
    if (!strstr(c->ctx.message, message)) fail_msg("%s: '%s' is not in: %s", block, message, c->ctx.message);
}

ht_batch data_case_next(data_case *c, ht_loader *loader)
{
    ht_batch batch;
    ht_data_layout(c->data, ht_loader_bucket(loader), &batch);
    for (int i = 0; i < batch.array_count; i++) {
        batch.arrays[i].data = malloc(batch.arrays[i].bytes);
        assert_non_null(batch.arrays[i].data);
        memset(batch.arrays[i].data, 0xa5, batch.arrays[i].bytes);
    }
    if (ht_loader_next(loader, &batch) != HT_OK) fail_msg("next: %s", c->ctx.message);
    return batch;
}

void data_case_drop(ht_batch *batch)
{
    for (int i = 0; i < batch->array_count; i++) free(batch->arrays[i].data);
    *batch = (ht_batch){0};
}

const int32_t *data_case_ints(ht_batch *batch, const char *name)
{
    ht_batch_array *array = ht_batch_find(batch, name);
    if (!array || array->dtype != HT_I32) fail_msg("no integers '%s' in the batch", name);
    return array->data;
}

const float *data_case_floats(ht_batch *batch, const char *name)
{
    ht_batch_array *array = ht_batch_find(batch, name);
    if (!array || array->dtype != HT_F32) fail_msg("no floats '%s' in the batch", name);
    return array->data;
}

const char *data_case_real(const char *name)
{
    static char path[1024];
    const char *folder = getenv("HALFTONE_DATA");
    if (!folder || !*folder) return NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, R_OK) == 0 ? path : NULL;
}
