/* A training step with its state on a disk beside the same step with state in memory: GPT-2 8×768 in bf16, steps of 1024 and
 * 4096 tokens. What the disk allows is the larger of the step in memory and of the bytes that the update moves at fio's
 * rate, which is measured in between.
 *
 * BENCH lines: offload_*_step in ms; the peer "bound" is that larger one, "memory" the step in memory.
 * HALFTONE_BENCH_DISK is the folder (else TMPDIR, /tmp), HALFTONE_BENCH_ROUNDS how often (5). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_common.h"
#include "fio.h"
#include "trainee.h"

enum { MOST_ROUNDS = 99, ROUNDS = 5, STEPS = 3, MOST_SETTINGS = 3 };

typedef struct variant {
    const char *name;
    const char *peer; /* "bound", "memory" */
    bool threads;
    ht_train_setting settings[MOST_SETTINGS];
    size_t setting_count;
    ht_session_opts opts;
    ht_disk_opts disk;
    trainee trainee;
    double seconds[MOST_ROUNDS];
} variant;

static variant variants[] = {
    {.name = "memory"},
    {.name = "optimizer", .peer = "bound", .settings = {{"offload_optimizer", "disk"}}, .setting_count = 1},
    {.name = "optimizer_threads",
     .peer = "bound",
     .threads = true,
     .settings = {{"offload_optimizer", "disk"}},
     .setting_count = 1},
    {.name = "all",
     .peer = "memory",
     .settings = {{"offload_optimizer", "disk"}, {"offload_param", "disk"}, {"offload_gradients", "disk"}},
     .setting_count = 3},
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

/* Steps one after the other, as a run makes them: the end of an update may lie in the step behind it. */
static double run_steps(const variant *v)
{
    ht_session *s = v->trainee.ours.session;
    ht_handle program;
    double start = bench_now();
    ht_status status = ht_session_program(s, "train", &program);
    for (int i = 0; status == HT_OK && i < STEPS; i++) status = ht_session_start(s, program);
    if (status == HT_OK) status = ht_session_wait(s);
    if (status != HT_OK) {
        fprintf(stderr, "bench_offload: %s: %s\n", v->name, ht_context_message(v->trainee.ours.plan->ctx));
        exit(1);
    }
    return (bench_now() - start) / STEPS;
}

static void open_variants(ht_context *ctx, const char *folder, int64_t batch)
{
    for (int i = 0; i < VARIANTS; i++) {
        variant *v = &variants[i];
        v->opts = (ht_session_opts)HT_SESSION_OPTS;
        v->opts.disk_folder = folder;
        v->opts.disk = &v->disk;
        v->disk = (ht_disk_opts)HT_DISK_OPTS;
        v->disk.threads = v->threads;
        v->trainee = (trainee){.type = "gpt2",
                               .json = "{\"n_layer\": 8, \"n_head\": 12, \"n_embd\": 768}",
                               .optimizer = "adamw",
                               .precision = "bf16",
                               .settings = v->settings,
                               .setting_count = v->setting_count,
                               .session = &v->opts,
                               .request = {.task = HT_TASK_LM, .batch = batch, .length = 1024, .vocabulary = 8192}};
        trainee_start(&v->trainee, ctx);
        (void)run_steps(v);
    }
}

static void measure(ht_context *ctx, const char *folder, int64_t batch, int rounds)
{
    double rate[MOST_ROUNDS];
    open_variants(ctx, folder, batch);
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < VARIANTS; i++) variants[i].seconds[r] = run_steps(&variants[i]);
        rate[r] = fio_rate(folder, FIO_BOTH, &variants[0].disk, 256 << 20);
    }
    const ht_plan *moved = variants[1].trainee.ours.plan;
    double bytes = 2 * (double)ht_plan_space_bytes(moved, HT_SPACE_DISK, HT_AREA_STATE);
    double memory = bench_median(variants[0].seconds, rounds), fastest = bench_median(rate, rounds);
    double disk = fastest > 0 ? bytes / fastest : 0;
    printf("  %lld tokens: %.0f ms in memory; %.0f MB at %.2f GB/s of fio are %.0f ms\n", (long long)batch * 1024,
           memory * 1e3, bytes / 1e6, fastest / 1e9, disk * 1e3);
    for (int i = 1; i < VARIANTS; i++) {
        const variant *v = &variants[i];
        double peer = strcmp(v->peer, "bound") == 0 && disk > memory ? disk : memory;
        char name[64];
        snprintf(name, sizeof name, "offload_%s_step_%lldk_tokens", v->name, (long long)batch);
        bench_line(name, bench_median(variants[i].seconds, rounds) * 1e3, peer * 1e3, v->peer, "ms");
    }
    for (int i = 0; i < VARIANTS; i++) trainee_stop(&variants[i].trainee);
}

int main(void)
{
    const char *base = getenv("HALFTONE_BENCH_DISK"), *count = getenv("HALFTONE_BENCH_ROUNDS");
    char folder[512], command[600];
    int rounds = count ? atoi(count) : ROUNDS;
    if (!base) base = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    if (rounds < 1 || rounds > MOST_ROUNDS) rounds = ROUNDS;
    snprintf(folder, sizeof folder, "%s/bench_offload.XXXXXX", base);
    if (!mkdtemp(folder)) {
        fprintf(stderr, "bench_offload: no folder in %s\n", base);
        return 1;
    }
    ht_context *ctx = ours_context();
    measure(ctx, folder, 1, rounds);
    measure(ctx, folder, 4, rounds);
    ht_context_free(ctx);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : 1;
}
