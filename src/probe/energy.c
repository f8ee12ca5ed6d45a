/* Energy by RAPL, the counters that Linux shows under /sys/class/powercap: joules of the packages while all threads
 * multiply, and while all stream through memory. Idle power is part of both, so that together they can be more than the
 * packages take at most: those watts are kept, too. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe/probe_own.h"

/* Joules of one counter; below 0: it cannot be read, errno says why. */
static double read_counter(const char *folder, const char *zone, const char *file)
{
    char path[1024], line[64] = "";
    if (snprintf(path, sizeof path, "%s/%s/%s", folder, zone, file) >= (int)sizeof path) return -1;
    FILE *counter = fopen(path, "re");
    if (!counter) return -1;
    bool got = fgets(line, sizeof line, counter) != NULL;
    fclose(counter);
    return got ? 1e-6 * strtod(line, NULL) : -1;
}

/* "intel-rapl:0" is a package; what has another colon is a part of one. */
static bool is_package(const char *zone)
{
    const char *colon = strchr(zone, ':');
    return colon && strstr(zone, "rapl") && !strchr(colon + 1, ':');
}

/* Of all packages; below 0 with the reason. Counters that wrapped in between make a difference negative: the caller drops
 * it. */
static double read_packages(const char *folder, char *reason, size_t capacity)
{
    DIR *zones = opendir(folder);
    double sum = 0;
    int packages = 0;
    if (!zones) {
        snprintf(reason, capacity, "%.80s: %s; this machine, or its guest system, shows no RAPL counters", folder,
                 strerror(errno));
        return -1;
    }
    for (const struct dirent *entry; (entry = readdir(zones));) {
        if (!is_package(entry->d_name)) continue;
        double joules = read_counter(folder, entry->d_name, "energy_uj");
        if (joules < 0) {
            snprintf(reason, capacity, "%.80s/%.60s/energy_uj: %s", folder, entry->d_name, strerror(errno));
            sum = -1;
            break;
        }
        sum += joules;
        packages++;
    }
    closedir(zones);
    if (packages == 0 && sum >= 0) snprintf(reason, capacity, "%.80s has no RAPL counters of packages", folder);
    return packages ? sum : -1;
}

static ht_status measure_loop(prober *p, const char *folder, const char *name, ht_loop loop, ht_dtype real, double *to)
{
    char *note = p->out->energy_note;
    double before = read_packages(folder, note, sizeof p->out->energy_note), start = ht_probe_now();
    if (before < 0) return HT_OK;
    double operations = ht_probe_operations(p, real, loop, p->threads);
    double joules = read_packages(folder, note, sizeof p->out->energy_note) - before;
    if (!(joules > 0) || !(operations > 0)) {
        snprintf(note, sizeof p->out->energy_note, "%.80s: the counters did not move, or wrapped", folder);
        return HT_OK;
    }
    double each = joules / operations, watts = joules / (ht_probe_now() - start);
    double *most = &p->out->target.power[HT_POWER_BOARD];
    if (watts > *most) *most = watts;
    ht_probe_row *row = ht_probe_add(p, "energy", name, "J", each, p->threads);
    if (!row) return HT_ENOMEM;
    row->what = "of the packages, idle power included";
    *to = each;
    return HT_OK;
}

ht_status ht_probe_energy(prober *p)
{
    const char *folder = p->opts.energy_folder ? p->opts.energy_folder : "/sys/class/powercap";
    ht_target *target = &p->out->target;
    ht_probe_tell(p, "energy");
    ht_probe_share_memory(p, p->threads, p->memory_bytes);
    HT_TRY(measure_loop(p, folder, "flop", HT_LOOP_peak, HT_F32, &target->flop_energy[HT_F32]));
    if (p->out->energy_note[0]) return HT_OK;
    return measure_loop(p, folder, "byte", HT_LOOP_triad, HT_F64, &target->byte_energy[HT_SPACE_MAIN]);
}
