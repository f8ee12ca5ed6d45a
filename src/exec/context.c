/* The context of the public API: thread pool, instruction set, tables of ops and kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

const char *ht_version(void)
{
    return HT_VERSION;
}

static ht_status no_such_isa(ht_context *ctx, const char *name)
{
    ht_text known = {0};
    ht_isa_list(&known, " or ");
    ht_status status = ht_fail(ctx, HT_EINVAL, "ISA '%s': %s", name, known.data ? known.data : "no such ISA");
    ht_text_free(&known);
    return status;
}

/* The ISA that the caller, the environment or the machine says; never more than the machine has. */
static ht_status choose_isa(ht_context *ctx, const char *asked)
{
    ht_isa best = ht_cpu_isa();
    const char *name = asked ? asked : getenv("HALFTONE_ISA");
    ctx->isa = best;
    if (!name || !name[0]) return HT_OK;
    int isa = ht_isa_from_name(name);
    if (isa < 0) return no_such_isa(ctx, name);
    if (!ht_isa_runs(best, (ht_isa)isa))
        HT_FAIL(ctx, HT_ENOTSUP, "ISA '%s': this machine has %s", name, ht_isa_name(best));
    ctx->isa = isa;
    return HT_OK;
}

static ht_status start_threads(ht_context *ctx, int asked)
{
    const char *why = "the caller";
    if (asked < 0 || asked > 4096) HT_FAIL(ctx, HT_EINVAL, "%d threads", asked);
    int threads = asked ? asked : ht_cpu_threads(&why);
    ctx->pool = ht_pool_create(threads);
    if (!ctx->pool) HT_FAIL(ctx, HT_ENOMEM, "%d threads could not be started", threads);
    const char *wanted = getenv("OMP_NUM_THREADS");
    if (!asked && wanted && wanted[0] && strcmp(why, "OMP_NUM_THREADS") != 0)
        ht_note(ctx, HT_LOG_WARN, "OMP_NUM_THREADS is '%.40s', which is no number above 0: %d threads by %s", wanted,
                threads, why);
    ht_note(ctx, HT_LOG_INFO, "%d threads by %s; kernels up to %s", threads, why, ht_isa_name((ht_isa)ctx->isa));
    return HT_OK;
}

static ht_status set_up(ht_context *ctx, const ht_context_opts *opts)
{
    ctx->arena = ht_arena_create();
    if (!ctx->arena) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a context");
    HT_TRY(choose_isa(ctx, opts->isa));
    HT_TRY(start_threads(ctx, opts->threads));
    HT_TRY(ht_ops_add_all(ctx));
    return ht_kernels_add_all(ctx);
}

static void tell(const ht_context_opts *opts, const char *message)
{
    if (opts->message && opts->message_size) snprintf(opts->message, opts->message_size, "%s", message);
}

ht_status ht_context_create(ht_context **out, const ht_context_opts *opts)
{
    ht_context_opts standard = HT_CONTEXT_OPTS;
    /* A caller built against an older, smaller struct leaves the newer fields at their defaults. */
    if (opts) memcpy(&standard, opts, opts->size < sizeof standard ? opts->size : sizeof standard);
    tell(&standard, out ? "" : "ht_context_create: out is NULL");
    HT_NEED(NULL, out, "out");
    ht_context *ctx = calloc(1, sizeof *ctx);
    *out = NULL;
    if (!ctx) {
        tell(&standard, "out of memory for a context");
        return HT_ENOMEM;
    }
    ctx->log = standard.log;
    ctx->log_arg = standard.log_arg;
    ht_status status = set_up(ctx, &standard);
    if (status != HT_OK) {
        tell(&standard, ctx->message);
        ht_note(ctx, HT_LOG_WARN, "%s", ctx->message);
        ht_context_free(ctx);
        return status;
    }
    *out = ctx;
    return HT_OK;
}

void ht_context_free(ht_context *ctx)
{
    if (!ctx) return;
    ht_devices_close(ctx);
    ht_pool_free(ctx->pool);
    ht_arena_free(ctx->arena);
    free(ctx->ops);
    free(ctx->op_index);
    free(ctx->kernels);
    free(ctx);
}

const char *ht_context_message(const ht_context *ctx)
{
    return ctx ? ctx->message : "";
}

int ht_context_threads(const ht_context *ctx)
{
    return ctx ? ht_pool_threads(ctx->pool) : 0;
}

const char *ht_context_isa(const ht_context *ctx)
{
    return ctx ? ht_isa_name((ht_isa)ctx->isa) : "";
}
