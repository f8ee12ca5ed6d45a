#include "cli/option_table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/probe_view.h"
#include "cli/train_ranks.h"
#include "device/device.h"

typedef struct probe_job {
    const char *device, *disk, *output, *page, *svg;
    bool describe, all, no_disk, json;
    double seconds;
    int64_t ranks;
    ht_probe messages; /* between ranks; without rows where there are none */
} probe_job;

/* ---- without measuring ---- */

/* What computes here, if a device is named. */
static ht_status describe(ht_context *ctx, const probe_job *job, ht_target *target)
{
    ht_device *device;
    ht_target_here(ctx, target);
    if (!job->device || strcmp(job->device, "auto") == 0) return HT_OK;
    HT_TRY(ht_target_bind(ctx, target, job->device));
    HT_TRY(ht_device_get(&device, ctx, job->device));
    ht_device_describe(ctx, target);
    return HT_OK;
}

static int write_text(const char *path, ht_text *text)
{
    FILE *file = text->failed ? NULL : fopen(path, "wbe");
    int error = text->failed ? ENOMEM : errno;
    bool written = file && fwrite(text->data, 1, text->length, file) == text->length;
    if (file && !written) error = errno;
    if (file && fclose(file) != 0) written = false, error = errno;
    ht_text_free(text);
    return written ? CLI_DONE : cli_fail(CLI_FAILED, "probe: %s: %s", path, strerror(error));
}

static int print_target(ht_context *ctx, const probe_job *job)
{
    ht_target target;
    ht_text text = {0};
    if (describe(ctx, job, &target) != HT_OK) return cli_fail(CLI_WRONG, "probe: %s", ht_context_message(ctx));
    ht_target_print(&text, &target);
    return job->output ? write_text(job->output, &text) : cli_put(&text);
}

/* ---- measuring ---- */

static void say_progress(void *arg, const char *what)
{
    (void)arg;
    if (cli_terminal(2)) fprintf(stderr, "\r\033[Kmeasuring: %s", what);
}

static int write_files(ht_context *ctx, const probe_job *job, const ht_probe *probe)
{
    int end = CLI_DONE;
    if (job->output) {
        ht_text text = {0};
        ht_target_print(&text, probe->has_gpu ? &probe->gpu : &probe->target);
        end = write_text(job->output, &text);
    }
    if (job->svg && end == CLI_DONE) {
        ht_text text = {0};
        cli_probe_svg(&text, probe);
        end = write_text(job->svg, &text);
    }
    if (job->page && end == CLI_DONE && cli_probe_page(ctx, probe, job->page) != HT_OK)
        end = cli_fail(CLI_FAILED, "probe: %s", ht_context_message(ctx));
    return end;
}

static void measure_messages(void *arg, ht_context *ctx, ht_comm *world, int local, cli_rank_end *out)
{
    probe_job *job = arg;
    ht_probe other, *mine = ht_comm_rank(world) == 0 ? &job->messages : &other;
    (void)local;
    if (mine == &job->messages) say_progress(NULL, "messages between ranks");
    ht_status status = ht_probe_messages(ctx, world, job->seconds / 5, mine);
    if (mine == &other) ht_probe_free(&other);
    out->end = cli_end_of(status);
    out->by_others = status == HT_ERANK;
    if (status != HT_OK) snprintf(out->reason, sizeof out->reason, "%s", ht_context_message(ctx));
}

/* The GPU to measure; NULL: none. A name that is no GPU's is an error but for the processor. */
static int choose_gpu(ht_context *ctx, const probe_job *job, const char **out)
{
    ht_device *device;
    bool automatic = !job->device || strcmp(job->device, "auto") == 0;
    *out = NULL;
    if (automatic) {
        if (ht_cuda_device_count() > 0 && ht_device_get(&device, ctx, "cuda") == HT_OK) *out = "cuda";
        return CLI_DONE;
    }
    if (strcmp(job->device, "cpu") == 0) return CLI_DONE;
    if (strncmp(job->device, "cuda", 4) != 0)
        return cli_fail(CLI_WRONG, "probe: --device %s: only cpu, cuda and cuda:N can be measured", job->device);
    if (ht_device_get(&device, ctx, job->device) != HT_OK)
        return cli_fail(CLI_WRONG, "probe: %s", ht_context_message(ctx));
    *out = job->device;
    return CLI_DONE;
}

static int measure(ht_context *ctx, const probe_job *job)
{
    ht_probe probe;
    const char *gpu;
    int chosen = choose_gpu(ctx, job, &gpu);
    if (chosen != CLI_DONE) return chosen;
    const ht_probe_opts opts = {.parts = HT_PROBE_CEILINGS | (job->all ? HT_PROBE_CATALOGUE : 0),
                                .seconds = job->seconds,
                                .disk_folder = job->no_disk ? NULL : job->disk,
                                .messages = &job->messages,
                                .gpu = gpu,
                                .progress = say_progress};
    ht_status status = ht_probe_run(ctx, &opts, &probe);
    if (cli_terminal(2)) fprintf(stderr, "\r\033[K");
    int end = status == HT_OK
                  ? write_files(ctx, job, &probe)
                  : cli_fail(status == HT_EIO ? CLI_WRONG : cli_end_of(status), "probe: %s", ht_context_message(ctx));
    if (end == CLI_DONE) {
        ht_text text = {0};
        if (job->json)
            cli_probe_json(&text, &probe);
        else
            cli_probe_table(&text, &probe);
        end = job->json ? cli_put(&text) : cli_show(&text);
    }
    ht_probe_free(&probe);
    return end;
}

/* Ranks first; then rank 0 measures the machine, once the others have left it alone. */
static int measure_all(ht_context *ctx, probe_job *job)
{
    ht_launcher launcher;
    int64_t size;
    int end = cli_ranks_find(ctx, "probe", job->ranks, &launcher, &size);
    if (end == CLI_DONE && size > 1)
        end = cli_ranks_run(ctx, "probe", &launcher, size, CLI_DONE, measure_messages, job);
    if (end == CLI_DONE && (!launcher.name || launcher.rank == 0)) end = measure(ctx, job);
    ht_probe_free(&job->messages);
    return end;
}

static int run_probe(void *options)
{
    probe_job *job = options;
    ht_context *ctx;
    if (job->describe && (job->all || job->json || job->page || job->svg || job->ranks))
        return cli_fail(CLI_WRONG, "probe: --describe measures nothing: it goes with --device and --output alone");
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    end = job->describe ? print_target(ctx, job) : measure_all(ctx, job);
    ht_context_free(ctx);
    return end;
}

static const cli_option options[] = {
    {"--describe", NULL, CLI_FLAG, offsetof(probe_job, describe),
     .help = "print this machine as a target file, at once: nothing is measured"},
    {"--device", "NAME", CLI_TEXT, offsetof(probe_job, device),
     .help =
         "auto: a GPU if there is one, beside the processor; cpu: the processor alone; cuda or cuda:N: that GPU, which "
         "must be there. The target file is the GPU's where one is measured. With --describe: what computes, whose "
         "memory and libraries are then listed",
     .takes = "auto, cpu, cuda or cuda:N"},
    {"--all", NULL, CLI_FLAG, offsetof(probe_job, all),
     .help = "the catalogue, too: logic, branching, memory access, scalar and vector arithmetic, matrix work, special "
             "functions, thread scaling"},
    {"--seconds", "S", CLI_NUMBER, offsetof(probe_job, seconds),
     .help = "about how long to measure; 0: 20 s, with --all 100 s. With less than 5 s, 12 s with --all, memory and "
             "disk are measured with so little data that caches hold some of it",
     .least = 0, .most = 3600, .standard = "0"},
    {"--disk", "FOLDER", CLI_TEXT, offsetof(probe_job, disk),
     .help = "measure the disk of this folder, by a file of 256 MiB that has no name", .flags = CLI_FILLED,
     .takes = "a folder", .standard = ".", .choice = 1},
    {"--no-disk", NULL, CLI_FLAG, offsetof(probe_job, no_disk), .help = "leave the disk out", .choice = 1},
    {"--ranks", "N", CLI_WHOLE, offsetof(probe_job, ranks),
     .help = "messages between N ranks, too, which are threads of this process. Under a launcher (mpirun, srun) the "
             "messages of its ranks are measured without being asked for, and the option is refused",
     .least = 1, .most = 1024},
    {"--output", "FILE", CLI_TEXT, offsetof(probe_job, output),
     .help = "write the target file, with every figure that was measured (docs/target.md)", .letter = 'o',
     .flags = CLI_FILLED, .takes = "a file"},
    {"--page", "FILE", CLI_TEXT, offsetof(probe_job, page), .help = "write a page with the roofline and all tables",
     .flags = CLI_FILLED, .takes = "a file"},
    {"--svg", "FILE", CLI_TEXT, offsetof(probe_job, svg), .help = "write the roofline alone", .flags = CLI_FILLED,
     .takes = "a file"},
    {"--json", NULL, CLI_FLAG, offsetof(probe_job, json),
     .help =
         "one object: {\"seconds\", \"topology\": {\"processor\", \"packages\", \"cores\", \"hardware_threads\", "
         "\"numa_nodes\", \"caches\": [{\"level\", \"bytes\", \"count\"}]}, \"disk_note\", \"energy_note\", "
         "\"gpu_note\", \"gpu_energy_note\": why there is no such figure, or null, \"target\": as --output writes it, "
         "with a GPU also \"cpu_target\": that of the processor beside it, \"rows\": [{\"group\", \"name\", \"what\", "
         "\"device\", \"value\", \"unit\", \"threads\"; of families of kernels also \"size\", \"share\" of the "
         "roofline, and "
         "\"flops\", \"bytes\", \"seconds\" of a call}]}"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone probe --output machine.json --page machine.html", "this machine, measured, as a file and as a page"},
    {"halftone probe --all --disk /scratch", "everything, and the disk of another folder"},
    {"mpirun -n 8 halftone probe --output cluster.json", "the same, and messages between ranks"},
    {"halftone probe --describe > machine.json", "this machine as a file, without figures"},
    {"halftone probe --device cuda --all --output gpu.json", "a GPU beside the processor, and a target file of it"},
    {"halftone probe --describe --device cuda:1 > gpu.json", "its second GPU, without figures"},
    {0},
};

static const cli_entry environment[] = {
    {"OMP_NUM_THREADS", "how many threads measure, and the target has"},
    {"HALFTONE_ISA", "the instruction set of kernels and loops"},
    {"CUDA_VISIBLE_DEVICES", "which GPUs there are, and in which order they are counted"},
    {0},
};

const cli_command cmd_probe = {
    .name = "probe",
    .summary = "what this machine can do: FLOP/s, memory, disk, kernels; as a target file",
    .description =
        "Measures this machine: FLOP/s by number type for one thread and for all, in registers and by our own matrix "
        "products; bandwidth and latency of each level of memory; the disk; energy, where the processor's counters can "
        "be read; and each family of kernels at three sizes against the ceilings. Rates are the best of several "
        "repetitions, those of the disk means. A GPU is measured beside the processor: FLOP/s, its cache and memory, "
        "links, energy by NVML, and its kernels. Under a launcher messages between ranks come first; then rank 0 "
        "measures "
        "its machine alone.\n\n"
        "--output writes a target file with these figures, each marked as measured. --target FILE of halftone plan, "
        "profile, explain and opt reads it, here or elsewhere. Other machines are shipped as targets, from their data "
        "sheets, and are known by name: a100, h200, 8xh200, cluster, edge, desktop, tpu, fpga, asic (docs/target.md). "
        "Threads and kernels are those that a run here would use.",
    .options = options,
    .size = sizeof(probe_job),
    .run = run_probe,
    .examples = examples,
    .environment = environment,
    .see_also = "plan profile explain opt",
};
