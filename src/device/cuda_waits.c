/* Waits of the host for a GPU. Where a queue's commands may wait for GPUs of other ranks, the host does not sleep until they
 * are done: it looks again and again, and asks between whether the others still come. */
#include "device/cuda_own.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

static const double SPIN_S = 1e-3; /* looks follow each other */
static const double ASK_S = 1e-2;  /* between two questions */
static const long NAP_NS = 50000;  /* between two looks, afterwards */

void ht_cuda_check_waits(ht_queue *queue, ht_cuda_wait_check check, void *arg)
{
    cuda_device *d = (cuda_device *)queue->device;
    cuda_queue *q = (cuda_queue *)queue;
    if (!q->check) {
        q->next_checked = d->checked;
        d->checked = q;
    }
    q->check = check;
    q->check_arg = arg;
}

void cuda_forget_waits(cuda_queue *queue)
{
    cuda_queue **at = &((cuda_device *)queue->base.device)->checked;
    while (*at && *at != queue) at = &(*at)->next_checked;
    if (*at) *at = queue->next_checked;
}

ht_status cuda_failure(const cuda_device *d)
{
    return d->failure == HT_OK ? HT_OK : ht_fail(d->base.ctx, d->failure, "%s", d->failure_reason);
}

static ht_status ask(cuda_device *d, double waited_s)
{
    for (cuda_queue *q = d->checked; q && d->failure == HT_OK; q = q->next_checked) {
        d->failure = q->check(q->check_arg, waited_s);
        if (d->failure != HT_OK)
            snprintf(d->failure_reason, sizeof d->failure_reason, "%s", ht_context_message(d->base.ctx));
    }
    return d->failure;
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* After a failure the commands end by themselves. */
static void look(cuda_device *d, int (*query)(void *), void *handle)
{
    double begin = now(), asked = begin;
    while (query(handle) == CUDA_NOT_READY) {
        double at = now();
        if (at - begin < SPIN_S)
            sched_yield();
        else
            nanosleep(&(struct timespec){0, NAP_NS}, NULL);
        if (at - asked < ASK_S) continue;
        if (ask(d, at - begin) != HT_OK) return;
        asked = at;
    }
}

ht_status cuda_wait_for(cuda_device *d, int (*query)(void *), int (*wait)(void *), void *handle)
{
    if (d->checked && d->failure == HT_OK) look(d, query, handle);
    int result = wait(handle);
    HT_TRY(cuda_failure(d));
    return cuda_check(d, result, "a command");
}
