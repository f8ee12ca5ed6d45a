#define _GNU_SOURCE
#include "exec/perf_counters.h"

#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"

const char *const ht_counter_names[HT_COUNTER_COUNT] = {"instructions", "cycles", "cache_misses"};

struct ht_perf_counters {
    int *files; /* HT_COUNTER_COUNT of each thread */
    size_t count, capacity;
};

static int open_counter(ht_counter counter, pid_t thread)
{
    static const uint64_t events[HT_COUNTER_COUNT] = {PERF_COUNT_HW_INSTRUCTIONS, PERF_COUNT_HW_CPU_CYCLES,
                                                      PERF_COUNT_HW_CACHE_MISSES};
    struct perf_event_attr wanted = {.type = PERF_TYPE_HARDWARE,
                                     .size = sizeof wanted,
                                     .config = events[counter],
                                     .exclude_kernel = 1,
                                     .exclude_hv = 1};
    return (int)syscall(SYS_perf_event_open, &wanted, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static void explain(char *reason, size_t capacity, int error)
{
    if (error == EACCES || error == EPERM)
        snprintf(reason, capacity, "the kernel does not allow it (kernel.perf_event_paranoid)");
    else if (error == ENOENT || error == EOPNOTSUPP || error == ENODEV)
        snprintf(reason, capacity, "this machine, perhaps a virtual one, shows no such counters");
    else
        snprintf(reason, capacity, "%s", strerror(error));
}

/* 0, or the error. */
static int add_thread(ht_perf_counters *c, pid_t thread)
{
    for (int counter = 0; counter < HT_COUNTER_COUNT; counter++) {
        if (!ht_grow((void **)&c->files, &c->capacity, c->count + 1, sizeof *c->files)) return ENOMEM;
        int file = open_counter((ht_counter)counter, thread);
        if (file < 0) return errno;
        c->files[c->count++] = file;
    }
    return 0;
}

static int add_threads(ht_perf_counters *c)
{
    DIR *threads = opendir("/proc/self/task");
    int error = threads ? 0 : errno;
    for (struct dirent *entry; !error && (entry = readdir(threads)) != NULL;)
        if (entry->d_name[0] != '.') error = add_thread(c, (pid_t)strtol(entry->d_name, NULL, 10));
    if (threads) closedir(threads);
    return error;
}

ht_perf_counters *ht_perf_counters_open(char *reason, size_t capacity)
{
    ht_perf_counters *c = calloc(1, sizeof *c);
    int error = c ? add_threads(c) : ENOMEM;
    reason[0] = '\0';
    if (!error) return c;
    explain(reason, capacity, error);
    ht_perf_counters_close(c);
    return NULL;
}

void ht_perf_counters_read(const ht_perf_counters *c, int64_t values[HT_COUNTER_COUNT])
{
    memset(values, 0, HT_COUNTER_COUNT * sizeof *values);
    for (size_t i = 0; i < c->count; i++) {
        int64_t value;
        if (read(c->files[i], &value, sizeof value) == sizeof value) values[i % HT_COUNTER_COUNT] += value;
    }
}

void ht_perf_counters_close(ht_perf_counters *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->count; i++) close(c->files[i]);
    free(c->files);
    free(c);
}
