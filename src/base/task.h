/* Tasks: the rows of tasks.def. Models say which ones they serve, formats of data too; a job has one. */
#ifndef HT_BASE_TASK_H
#define HT_BASE_TASK_H

typedef enum ht_task {
#define HT_TASK(id, name) HT_TASK_##id,
#include "base/tasks.def"
#undef HT_TASK
    HT_TASK_COUNT
} ht_task;

extern const char *const ht_task_names[HT_TASK_COUNT];

#endif
