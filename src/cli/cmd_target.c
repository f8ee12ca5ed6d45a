#include "cli/option_table.h"

#include "graph/graph.h"

static int run_target(void *options)
{
    (void)options;
    ht_context *ctx;
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    ht_target target;
    ht_text text = {0};
    ht_target_here(ctx, &target);
    ht_target_print(&text, &target);
    ht_context_free(ctx);
    return cli_put(&text);
}

static const cli_entry examples[] = {
    {"halftone target > machine.json", "this machine as a file"},
    {0},
};

static const cli_entry environment[] = {
    {"OMP_NUM_THREADS", "how many threads the target has"},
    {"HALFTONE_ISA", "the instruction set of its kernels"},
    {0},
};

const cli_command cmd_target = {
    .name = "target",
    .summary = "print this machine as a target file",
    .description =
        "Prints this machine as a target file: what passes and plans need to know of it, as JSON. Threads and kernels "
        "are those that a run here would use (OMP_NUM_THREADS, HALFTONE_ISA). halftone explain --target FILE and "
        "halftone opt --target FILE read it, here or elsewhere.",
    .run = run_target,
    .examples = examples,
    .environment = environment,
    .see_also = "opt explain",
};
