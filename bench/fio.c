#include "fio.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Field `number` of a terse line, from 1 on. */
static double field(const char *line, int number)
{
    for (int i = 1; i < number && line; i++) {
        line = strchr(line, ';');
        if (line) line++;
    }
    return line ? strtod(line, NULL) : 0;
}

/* The first line that fio says; false: it failed. */
static bool first_line(const char *command, char *line, size_t capacity)
{
    FILE *fio = popen(command, "r");
    line[0] = 0;
    if (!fio) return false;
    if (!fgets(line, (int)capacity, fio)) line[0] = 0;
    return pclose(fio) == 0;
}

double fio_timed_rate(const char *folder, const char *pattern, const ht_disk_opts *opts, int64_t bytes, double seconds)
{
    enum { READ_KIB_PER_S = 7, WRITE_KIB_PER_S = 48 };
    char command[1024], line[8192];
    snprintf(command, sizeof command,
             "fio --minimal --ioengine=%s --direct=1 --bs=%zu --iodepth=%d --size=%lld --runtime=%g --time_based"
             " --fallocate=none --overwrite=1 --name=timed --rw=%s --filename='%s/fio.timed' 2>/dev/null",
             opts->queue_depth > 1 ? "io_uring" : "psync", opts->block_size, opts->queue_depth, (long long)bytes,
             seconds, pattern, folder);
    if (!first_line(command, line, sizeof line)) return 0;
    return 1024 * (field(line, READ_KIB_PER_S) + field(line, WRITE_KIB_PER_S));
}

double fio_rate(const char *folder, fio_direction way, const ht_disk_opts *opts, int64_t bytes)
{
    enum { READ_MS = 9, WRITE_MS = 50 };
    char command[1024], line[8192];
    char jobs[256] = "";
    if (way != FIO_OUT) strcat(jobs, " --name=in --rw=read --filename=$F/fio.in");
    if (way != FIO_IN) strcat(jobs, " --name=out --rw=write --filename=$F/fio.out");
    snprintf(command, sizeof command,
             "F='%s'; fio --minimal --group_reporting --ioengine=io_uring --direct=1 --bs=%zu --iodepth=%d --size=%lld"
             " --fallocate=none --overwrite=1%s 2>/dev/null",
             folder, opts->block_size, opts->queue_depth, (long long)bytes, jobs);
    if (!first_line(command, line, sizeof line)) return 0;
    double in = field(line, READ_MS), out = field(line, WRITE_MS), longer = in > out ? in : out;
    return longer > 0 ? 1e3 * (double)bytes * (way == FIO_BOTH ? 2 : 1) / longer : 0;
}
