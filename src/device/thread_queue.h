/* Queues that are threads, and events between them: for devices whose commands the processor itself runs, later and
 * beside its caller. */
#ifndef HT_DEVICE_THREAD_QUEUE_H
#define HT_DEVICE_THREAD_QUEUE_H

#include "device/device.h"

typedef enum ht_command_kind { HT_COMMAND_LAUNCH, HT_COMMAND_COPY, HT_COMMAND_OTHER } ht_command_kind;

/* Is called in the queue's thread before each command. A failure is the command's. */
typedef ht_status (*ht_command_hook)(ht_device *device, ht_context *messages, ht_command_kind kind);

/* Moves the bytes of a copy, in the queue's thread. */
typedef ht_status (*ht_copy_fn)(void *arg, ht_context *messages, void *to, const void *from, size_t bytes);

/* Each may be NULL: then nothing is called before a command, and copies are memcpy's. */
typedef struct ht_thread_queue_hooks {
    ht_command_hook before;
    ht_copy_fn copy;
    void *copy_arg;
} ht_thread_queue_hooks;

ht_status ht_thread_queue_create(ht_device *device, const ht_thread_queue_hooks *hooks, ht_queue **out);
void ht_thread_queue_free(ht_queue *queue);
void *ht_thread_queue_copy_arg(const ht_queue *queue);
/* For a hook that copies, in the queue's thread: the copy behind its own, if that may begin before its own is done. Between
 * them are only records, and waits for what has come to pass. */
typedef struct ht_next_copy {
    void *to;
    const void *from;
    size_t bytes;
} ht_next_copy;
bool ht_thread_queue_next_copy(ht_queue *queue, ht_next_copy *next);
/* The threads that its launches share, and where their messages go. */
ht_pool *ht_thread_queue_pool(ht_queue *queue);
ht_context *ht_thread_queue_messages(ht_queue *queue);

/* A launch by value, so that the caller's may change; its successors in a row block are read when it runs. */
ht_status ht_thread_queue_launch(ht_queue *queue, ht_run_fn run, const ht_launch *launch);
ht_status ht_thread_queue_copy(ht_queue *queue, void *to, const void *from, size_t bytes);
ht_status ht_thread_queue_record(ht_queue *queue, ht_event *event);
ht_status ht_thread_queue_wait(ht_queue *queue, ht_event *event); /* of any class of device */
ht_status ht_thread_queue_call(ht_queue *queue, void (*fn)(void *arg), void *arg);
ht_status ht_thread_queue_status(ht_queue *queue);
ht_status ht_thread_queue_sync(ht_queue *queue);

ht_status ht_thread_event_create(ht_device *device, ht_event **out);
void ht_thread_event_free(ht_event *event);
/* For queues that run their commands at once. */
void ht_thread_event_set(ht_event *event);
ht_status ht_thread_event_sync(ht_event *event);
bool ht_thread_event_done(ht_event *event);

#endif
