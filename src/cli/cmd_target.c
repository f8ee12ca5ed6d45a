#include "cli/option_table.h"

#include "device/device.h"

typedef struct target_job {
    const char *device;
} target_job;

/* What computes here, if a device is named. */
static ht_status describe(ht_context *ctx, const target_job *job, ht_target *target)
{
    ht_device *device;
    ht_target_here(ctx, target);
    if (!job->device) return HT_OK;
    HT_TRY(ht_target_bind(ctx, target, job->device));
    HT_TRY(ht_device_get(&device, ctx, job->device));
    ht_device_describe(ctx, target);
    return HT_OK;
}

static int run_target(void *options)
{
    ht_context *ctx;
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    ht_target target;
    ht_text text = {0};
    if (describe(ctx, options, &target) == HT_OK)
        ht_target_print(&text, &target);
    else
        end = cli_fail(CLI_WRONG, "target: %s", ht_context_message(ctx));
    ht_context_free(ctx);
    return end == CLI_DONE ? cli_put(&text) : end;
}

static const cli_option options[] = {
    {"--device", "NAME", CLI_TEXT, offsetof(target_job, device),
     .help = "what computes on it: cpu, cuda or cuda:N, whose memory and libraries are then listed; it must be there",
     .takes = "the name of a device"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone target > machine.json", "this machine as a file"},
    {"halftone target --device cuda:1 > gpu.json", "its second GPU"},
    {0},
};

static const cli_entry environment[] = {
    {"OMP_NUM_THREADS", "how many threads the target has"},
    {"HALFTONE_ISA", "the instruction set of its kernels"},
    {"CUDA_VISIBLE_DEVICES", "which GPUs there are, and in which order they are counted"},
    {0},
};

const cli_command cmd_target = {
    .name = "target",
    .summary = "print this machine as a target file",
    .description =
        "Prints this machine as a target file: what passes and plans need to know of it, as JSON. Threads and kernels "
        "are those that a run here would use (OMP_NUM_THREADS, HALFTONE_ISA). halftone explain --target FILE and "
        "halftone opt --target FILE read it, here or elsewhere.",
    .options = options,
    .size = sizeof(target_job),
    .run = run_target,
    .examples = examples,
    .environment = environment,
    .see_also = "opt explain",
};
