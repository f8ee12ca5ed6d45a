#include "cli/cli.h"

#include "graph/graph.h"

static const char usage[] =
    "usage: halftone target > FILE\n"
    "\n"
    "Prints this machine as a target file: what passes and plans need to know of it, as JSON. Threads and kernels are\n"
    "those that a run here would use (OMP_NUM_THREADS, HALFTONE_ISA). `halftone opt --target FILE` reads it, here or\n"
    "elsewhere.\n";

int cmd_target(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (cli_flag(argv, i, "--help")) return cli_puts(usage);
        return cli_no_such_option("target", argv[i]);
    }
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
