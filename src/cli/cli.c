#include "cli/cli.h"
#include "comm/comm.h"

#include <errno.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *cli_program = "halftone";

int cli_rank(void)
{
    ht_context aside = {0};
    ht_launcher launcher;
    return ht_launcher_find(&launcher, &aside) == HT_OK ? launcher.rank : 0;
}

int cli_fail(int end, const char *format, ...)
{
    enum { HEAD_START_S = 3 };
    char before[48] = "halftone: ";
    int rank = cli_rank();
    if (rank > 0) snprintf(before, sizeof before, "halftone: rank %d: ", rank);
    if (rank > 0 && sleep(HEAD_START_S) > 0) return end; /* the launcher ends the job already */
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *message = length < 0 ? NULL : malloc((size_t)length + 1);
    va_start(args, format);
    if (message) vsnprintf(message, (size_t)length + 1, format, args);
    va_end(args);
    cli_tell(before, message ? message : format);
    free(message);
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

/* The start of the first context: what makes it fail comes back as a message, a mere warning waits until it is there.
 * Later contexts do not say it again. */
typedef struct start_log {
    bool over;
    char warning[256];
} start_log;

/* Warnings go to stderr. */
static void on_log(void *arg, ht_log_level level, const char *line)
{
    start_log *start = arg;
    if (level != HT_LOG_WARN) return;
    if (!start->over)
        snprintf(start->warning, sizeof start->warning, "%s", line);
    else if (strcmp(start->warning, line) != 0)
        cli_tell("halftone: ", line);
}

static start_log start; /* as long as any context */

int cli_context(ht_context **out)
{
    char reason[1024];
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.log = on_log;
    opts.log_arg = &start;
    opts.message = reason;
    opts.message_size = sizeof reason;
    ht_status status = ht_context_create(out, &opts);
    bool first = !start.over;
    start.over = true;
    if (status == HT_OK && first && start.warning[0]) fprintf(stderr, "halftone: %s\n", start.warning);
    if (status == HT_OK) return CLI_DONE;
    return cli_fail(status == HT_EINVAL || status == HT_ENOTSUP ? CLI_WRONG : CLI_FAILED, "%s", reason);
}

int cli_context_of_rank(ht_context **out, int threads, bool quiet, char *reason, size_t capacity)
{
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.threads = threads;
    opts.log = quiet ? NULL : on_log;
    opts.log_arg = &start;
    opts.message = reason;
    opts.message_size = capacity;
    return ht_context_create(out, &opts) == HT_OK ? CLI_DONE : CLI_FAILED;
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

bool cli_is_there(const char *data)
{
    glob_t found;
    if (access(data, F_OK) == 0) return true;
    bool there = glob(data, GLOB_NOSORT, NULL, &found) == 0;
    globfree(&found);
    return there;
}

bool cli_write_file(const char *path, const ht_text *text)
{
    ht_text beside = {0};
    ht_text_add(&beside, "%s.part", path);
    FILE *file = text->failed || beside.failed ? NULL : fopen(beside.data, "wbe");
    if (text->failed || beside.failed) errno = ENOMEM;
    bool written = file && fwrite(text->data, 1, text->length, file) == text->length && fflush(file) == 0;
    int why = errno;
    if (file && fclose(file) != 0 && written) written = false, why = errno;
    if (written && rename(beside.data, path) != 0) written = false, why = errno;
    if (file && !written) remove(beside.data);
    ht_text_free(&beside);
    errno = why;
    return written;
}
