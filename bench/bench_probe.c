/* What halftone probe measures against loops and programs of others, in turns: the multiply-add peak against a loop in
 * assembly, the triad against STREAM's, the disk against fio with the same blocks and depth. A turn is the best that it saw,
 * a line the median of turns: one lucky moment of either side is not a ceiling. HALFTONE_BENCH_DISK is the folder (else TMPDIR,
 * /tmp), HALFTONE_BENCH_ROUNDS how often (7). */
#include "probe/probe.h"

#include <halftone/session.h>

#include "bench_common.h"
#include "ceilings.h"
#include "fio.h"
#include "ours.h"
#include "stream_triad.h"

enum { MOST_ROUNDS = 99, ROUNDS = 7, TRIAD_REPEATS = 8, PEAK_TURNS = 60, DISK_BYTES = 256 << 20 };
static const size_t triad_bytes = (size_t)1 << 30;
static const double part_seconds = 12, disk_seconds = 6, fio_seconds = 1.5;

static ht_probe probe_part(ht_context *ctx, unsigned part, double seconds, const char *folder)
{
    ht_probe probe;
    if (ht_probe_run(ctx, &(ht_probe_opts){.parts = part, .seconds = seconds, .disk_folder = folder}, &probe) == HT_OK)
        return probe;
    fprintf(stderr, "bench_probe: %s\n", ht_context_message(ctx));
    exit(1);
}

static void compare_peak(ht_context *ctx, int threads, int rounds)
{
    double mine[MOST_ROUNDS], theirs[MOST_ROUNDS];
    ceiling peak = {.kind = ceiling_best_fma(), .threads = threads};
    for (int i = 0; i < rounds; i++) {
        double best = 0;
        for (int k = 0; k < PEAK_TURNS; k++) {
            double rate = ceiling_work(&peak) / ceiling_turn(&peak, 1);
            if (rate > best) best = rate;
        }
        ht_probe probe = probe_part(ctx, HT_PROBE_ARITHMETIC, part_seconds / 2, NULL);
        mine[i] = ht_probe_find(&probe, "flops", "f32", NULL, threads)->value / 1e9;
        theirs[i] = best / 1e9;
        ht_probe_free(&probe);
    }
    char name[64];
    snprintf(name, sizeof name, "probe_f32_peak_%d_threads", threads);
    bench_line(name, bench_median(mine, rounds), bench_median(theirs, rounds), ceiling_name(&peak), "GFLOP/s");
}

static double triad_of(const ht_probe *probe, int threads)
{
    for (size_t i = 0; i < probe->count; i++) {
        const ht_probe_row *row = &probe->rows[i];
        if (strcmp(row->group, "memory") == 0 && strncmp(row->what, "triad", 5) == 0 && row->threads == threads)
            return row->value;
    }
    return 0;
}

static void compare_triad(ht_context *ctx, int threads, int rounds)
{
    double mine[MOST_ROUNDS], theirs[MOST_ROUNDS];
    for (int i = 0; i < rounds; i++) {
        ht_probe probe = probe_part(ctx, HT_PROBE_MEMORY, part_seconds / 2, NULL);
        mine[i] = triad_of(&probe, threads) / 1e9;
        theirs[i] = stream_triad(triad_bytes, threads, TRIAD_REPEATS) / 1e9;
        ht_probe_free(&probe);
    }
    char name[64];
    snprintf(name, sizeof name, "probe_triad_%d_threads", threads);
    bench_line(name, bench_median(mine, rounds), bench_median(theirs, rounds), "stream_triad", "GB/s");
}

typedef struct disk_rates {
    double reads[MOST_ROUNDS], writes[MOST_ROUNDS], random[MOST_ROUNDS];
} disk_rates;

static void compare_disk(ht_context *ctx, const char *folder, int rounds)
{
    static disk_rates mine, theirs;
    ht_disk_opts opts = HT_DISK_OPTS, one = HT_DISK_OPTS;
    one.block_size = 4096;
    one.queue_depth = 1;
    (void)fio_timed_rate(folder, "write", &opts, DISK_BYTES, fio_seconds); /* its file */
    for (int i = 0; i < rounds; i++) {
        ht_probe probe = probe_part(ctx, HT_PROBE_DISK, disk_seconds, folder);
        mine.reads[i] = probe.target.link[HT_SPACE_DISK][HT_SPACE_MAIN] / 1e9;
        mine.writes[i] = probe.target.link[HT_SPACE_MAIN][HT_SPACE_DISK] / 1e9;
        mine.random[i] = probe.target.random_bandwidth[HT_SPACE_DISK] / 1e6;
        theirs.reads[i] = fio_timed_rate(folder, "read", &opts, DISK_BYTES, fio_seconds) / 1e9;
        theirs.writes[i] = fio_timed_rate(folder, "write", &opts, DISK_BYTES, fio_seconds) / 1e9;
        theirs.random[i] = fio_timed_rate(folder, "randread", &one, DISK_BYTES, fio_seconds) / 1e6;
        ht_probe_free(&probe);
    }
    bench_line("probe_disk_read", bench_median(mine.reads, rounds), bench_median(theirs.reads, rounds), "fio", "GB/s");
    bench_line("probe_disk_write", bench_median(mine.writes, rounds), bench_median(theirs.writes, rounds), "fio",
               "GB/s");
    bench_line("probe_disk_random_read", bench_median(mine.random, rounds), bench_median(theirs.random, rounds), "fio",
               "MB/s");
}

int main(void)
{
    const char *base = getenv("HALFTONE_BENCH_DISK"), *count = getenv("HALFTONE_BENCH_ROUNDS");
    char folder[512], command[600];
    int rounds = count ? atoi(count) : ROUNDS, threads = bench_threads();
    if (!base) base = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    if (rounds < 1 || rounds > MOST_ROUNDS) rounds = ROUNDS;
    snprintf(folder, sizeof folder, "%s/bench_probe.XXXXXX", base);
    if (!mkdtemp(folder)) {
        fprintf(stderr, "bench_probe: no folder in %s\n", base);
        return 1;
    }
    ht_context *ctx = ours_context();
    compare_peak(ctx, 1, rounds);
    if (threads > 1) compare_peak(ctx, threads, rounds);
    compare_triad(ctx, 1, rounds);
    if (threads > 1) compare_triad(ctx, threads, rounds);
    compare_disk(ctx, folder, rounds);
    ht_context_free(ctx);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : 1;
}
