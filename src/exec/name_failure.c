/* Where a device failed: segment, instruction, layer. */
#include <stdarg.h>
#include <stdio.h>

#include "exec/executor_own.h"

ht_status ht_executor_name_place(const ht_executor *e, ht_status status, const char *format, ...)
{
    char place[320];
    va_list args;
    if (status != HT_EDEVICE) return status;
    va_start(args, format);
    vsnprintf(place, sizeof place, format, args);
    va_end(args);
    return ht_fail(e->plan->ctx, status, "%s: %s", place, ht_context_message(e->plan->ctx));
}

ht_status ht_executor_name_instr(const ht_executor *e, size_t segment, size_t index, ht_status status)
{
    const ht_plan_segment *s = &e->plan->segments[segment];
    const ht_instr *instr = &s->instrs[index];
    const char *where = instr->site ? ", at " : instr->origin_site ? ", a gradient of " : "";
    const char *site = instr->site ? instr->site : instr->origin_site ? instr->origin_site : "";
    return ht_executor_name_place(e, status, "segment %s, instruction %zu (%s%s%s)", s->name, index + 1,
                                  instr->kernel->name, where, site);
}

ht_status ht_executor_name_newest(const ht_executor *e, ht_status status)
{
    return ht_executor_name_place(e, status, "in segment %s or before it", e->plan->segments[e->newest].name);
}
