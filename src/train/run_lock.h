/* The lock of a run's folder: one process writes there at a time.
 * docs/decisions/0022-one-writer-per-run-folder.md. */
#ifndef HT_TRAIN_RUN_LOCK_H
#define HT_TRAIN_RUN_LOCK_H

#include <halftone/context.h>

#include <stdbool.h>

/* The lock's name in the folder of a run. */
#define HT_LOCK_NAME "lock"

typedef struct ht_run_lock ht_run_lock;

/* Makes the folder where it is not there, and locks it until
 * ht_run_lock_release. HT_EINVAL while another process holds the lock: the
 * message has its number, host and start time. *taken_over (may be NULL) is
 * heap memory: whose lock it was, where a process ended without releasing it;
 * NULL otherwise. */
ht_status ht_run_lock_take(ht_run_lock **out, ht_context *ctx, const char *folder, char **taken_over);
/* Takes NULL. A folder that was made for the lock and is still empty goes, too.
 */
void ht_run_lock_release(ht_run_lock *lock);
/* Does a process hold it? Changes nothing, and asks no more than to read the folder. `who`: as in that message; "" where
 * nobody does. */
bool ht_run_lock_is_held(ht_context *ctx, const char *folder, char *who, size_t capacity);

#endif
