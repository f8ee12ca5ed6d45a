#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *cli_program = "halftone";

int cli_fail(int end, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("halftone: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return end;
}

int cli_end_of(ht_status status)
{
    switch (status) {
    case HT_OK: return CLI_DONE;
    case HT_EINVAL:
    case HT_ESHAPE:
    case HT_EDTYPE:
    case HT_EPARSE: return CLI_WRONG;
    default: return CLI_FAILED;
    }
}

/* Warnings go to stderr. */
static void on_log(void *arg, ht_log_level level, const char *line)
{
    const bool *started = arg; /* what the start itself has to say comes back as a message */
    if (level == HT_LOG_WARN && *started) fprintf(stderr, "halftone: %s\n", line);
}

int cli_context(ht_context **out)
{
    static bool started; /* as long as any context */
    char reason[1024];
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.log = on_log;
    opts.log_arg = &started;
    opts.message = reason;
    opts.message_size = sizeof reason;
    ht_status status = ht_context_create(out, &opts);
    started = true;
    if (status == HT_OK) return CLI_DONE;
    return cli_fail(status == HT_EINVAL || status == HT_ENOTSUP ? CLI_WRONG : CLI_FAILED, "%s", reason);
}

int cli_puts(const char *text)
{
    if (fputs(text, stdout) < 0 || fflush(stdout) != 0)
        return cli_fail(CLI_FAILED, "standard output: %s", strerror(errno));
    return CLI_DONE;
}

int cli_put(ht_text *text)
{
    int end =
        text->failed ? cli_fail(CLI_FAILED, "out of memory for the output") : cli_puts(text->data ? text->data : "");
    ht_text_free(text);
    return end;
}
