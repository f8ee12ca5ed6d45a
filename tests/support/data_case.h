/* Support for tests of data: files in a temporary folder, data sets opened from a block in JSON, batches with memory. */
#ifndef HT_TESTS_DATA_CASE_H
#define HT_TESTS_DATA_CASE_H

#include "data/data.h"
#include "folder_fixture.h"

typedef struct data_case {
    ht_context ctx;
    char folder[TEST_FOLDER_BYTES]; /* removed with what it holds by data_case_end */
    ht_arena *arena;
    ht_fields *fields;
    ht_data *data;
    int64_t slices; /* of the batch of a step, of what is opened next; 0: 1 */
} data_case;

/* cmocka's set-up and tear-down; *state is the case. */
int data_case_begin(void **state);
int data_case_end(void **state);

/* Writes a file of the folder; `name` may hold one folder ("cat/1.png"). */
void data_case_file(data_case *c, const char *name, const void *bytes, size_t length);
void data_case_text(data_case *c, const char *name, const char *text);
/* The path of a name in the folder, in static memory. */
const char *data_case_path(const data_case *c, const char *name);
/* Opens the block (paths relative to the folder, or absolute), closing the one before. */
ht_status data_case_try(data_case *c, ht_task task, int64_t batch, const char *block);
void data_case_open(data_case *c, ht_task task, int64_t batch, const char *block);
/* Fails unless opening is refused with a message that contains `message`. */
void data_case_refused(data_case *c, ht_task task, int64_t batch, const char *block, const char *message);

/* A batch of the next bucket with memory of its own, filled; free with data_case_drop. */
ht_batch data_case_next(data_case *c, ht_loader *loader);
void data_case_drop(ht_batch *batch);
/* An array of the batch as numbers. */
const int32_t *data_case_ints(ht_batch *batch, const char *name);
const float *data_case_floats(ht_batch *batch, const char *name);

/* The path of a file of HALFTONE_DATA in static memory, NULL when there is none. */
const char *data_case_real(const char *name);

#endif
