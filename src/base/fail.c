/* Error messages and the log: formatting into the context, and the log callback. */
#include "base/fail.h"

#include <stdarg.h>
#include <stdio.h>

ht_status ht_fail(ht_context *ctx, ht_status status, const char *format, ...)
{
    /* A message may quote the previous one ("while reading x: ..."), so it is formatted into a second buffer. */
    char message[sizeof ctx->message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    ctx->status = status;
    snprintf(ctx->message, sizeof ctx->message, "%s", message);
    return status;
}

ht_status ht_fail_null(ht_context *ctx, const char *function, const char *argument)
{
    return ctx ? ht_fail(ctx, HT_EINVAL, "%s: %s is NULL", function, argument) : HT_EINVAL;
}

void ht_note(ht_context *ctx, ht_log_level level, const char *format, ...)
{
    if (ctx->log == NULL) return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ctx->log(ctx->log_arg, level, line);
}

bool ht_debug_build(void)
{
#ifdef HT_DEBUG
    return true;
#else
    return false;
#endif
}
