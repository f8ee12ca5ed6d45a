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

/* Warnings go to stderr. Those of a start that fails are kept: the last one says why. */
typedef struct warnings {
    bool started;
    char last[1024];
} warnings;

static void on_log(void *arg, ht_log_level level, const char *line)
{
    warnings *w = arg;
    if (level != HT_LOG_WARN) return;
    if (w->started)
        fprintf(stderr, "halftone: %s\n", line);
    else
        snprintf(w->last, sizeof w->last, "%s", line);
}

int cli_context(ht_context **out)
{
    static warnings startup_warnings; /* as long as any context */
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.log = on_log;
    opts.log_arg = &startup_warnings;
    ht_status status = ht_context_create(out, &opts);
    startup_warnings.started = true;
    if (status == HT_OK) return CLI_DONE;
    bool environment = status == HT_EINVAL || status == HT_ENOTSUP;
    return cli_fail(environment ? CLI_WRONG : CLI_FAILED, "%s",
                    startup_warnings.last[0] ? startup_warnings.last : ht_status_name(status));
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
