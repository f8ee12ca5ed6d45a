/* The default number of threads: OMP_NUM_THREADS, the CPU set of the process, the cgroup's CPU quota. */
#include "base/processor.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_THREADS 4096

/* The first number of OMP_NUM_THREADS ("4" or "4,2"), 0 when there is none. */
static int threads_asked(void)
{
    const char *text = getenv("OMP_NUM_THREADS");
    if (text == NULL) return 0;
    char *end;
    long threads = strtol(text, &end, 10);
    end += strspn(end, " \t");
    if (end == text || (*end != '\0' && *end != ',') || threads <= 0) return 0;
    return threads < MOST_THREADS ? (int)threads : MOST_THREADS;
}

static bool read_line(const char *path, char *line, size_t capacity)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    bool got = fgets(line, (int)capacity, file) != NULL;
    fclose(file);
    return got;
}

static double read_number(const char *folder, const char *name)
{
    char path[1200], line[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return read_line(path, line, sizeof line) ? strtod(line, NULL) : 0;
}

/* CPUs that one cgroup allows, INFINITY without a limit. v2 writes "quota period" or "max period" in one file; v1 has a
 * file for each, with a quota of -1 for none. */
static double folder_cpus(const char *folder, bool v2)
{
    double quota = 0, period = 0;
    if (v2) {
        char path[1200], line[64];
        snprintf(path, sizeof path, "%s/cpu.max", folder);
        if (!read_line(path, line, sizeof line) || sscanf(line, "%lf %lf", &quota, &period) != 2) return INFINITY;
    } else {
        quota = read_number(folder, "cpu.cfs_quota_us");
        period = read_number(folder, "cpu.cfs_period_us");
    }
    return quota > 0 && period > 0 ? quota / period : INFINITY;
}

/* The minimum over all cgroups from this one up to the mount, since every level limits. In a container the path may
 * name groups that are invisible from inside; those levels are missing. */
static double path_cpus(const char *mount, const char *group, bool v2)
{
    char folder[1100];
    int length = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (length < 0 || (size_t)length >= sizeof folder) return INFINITY;
    double least = INFINITY;
    for (;;) {
        least = fmin(least, folder_cpus(folder, v2));
        char *slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < strlen(mount)) return least;
        *slash = '\0';
    }
}

/* Is `cpu` one of the comma-separated controllers? */
static bool names_cpu(const char *controllers)
{
    for (const char *at = controllers; *at != '\0';) {
        size_t length = strcspn(at, ",");
        if (length == 3 && memcmp(at, "cpu", 3) == 0) return true;
        at += length + (at[length] == ',');
    }
    return false;
}

double ht_cgroup_cpus(const char *groups_file, const char *mount)
{
    FILE *file = fopen(groups_file, "re");
    if (file == NULL) return INFINITY;
    double least = INFINITY;
    char line[1024], sub[1024];
    while (fgets(line, sizeof line, file) != NULL) { /* id:controllers:path */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) continue;
        *group++ = '\0';
        controllers++;
        if (*controllers == '\0') { /* v2, alone or beside v1 */
            least = fmin(least, path_cpus(mount, group, true));
            snprintf(sub, sizeof sub, "%s/unified", mount);
            least = fmin(least, path_cpus(sub, group, true));
        } else if (names_cpu(controllers)) {
            snprintf(sub, sizeof sub, "%s/cpu", mount);
            least = fmin(least, path_cpus(sub, group, false));
            snprintf(sub, sizeof sub, "%s/%s", mount, controllers);
            least = fmin(least, path_cpus(sub, group, false));
        }
    }
    fclose(file);
    return least;
}

int ht_cpu_threads(const char **why)
{
    int asked = threads_asked();
    if (asked > 0) {
        *why = "OMP_NUM_THREADS";
        return asked;
    }
    int cores = ht_topology_cores();
    if (cores < 1) cores = 1;
    if (cores > MOST_THREADS) cores = MOST_THREADS;
    double quota = ceil(ht_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup"));
    *why = quota < cores ? "cgroup" : "binding";
    return quota < cores ? (int)quota : cores;
}
