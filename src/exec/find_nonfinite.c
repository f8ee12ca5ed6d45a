/* The first value of a segment that is not finite, in the executor's own memory. Every instruction runs by itself, also
 * those of a row block. One that does several ops at once counts what each of them makes while it runs
 * (kernel/count_nonfinite.h); of others the results are counted where they lie. */
#include <string.h>

#include "exec/exec.h"

typedef struct finding {
    ht_executor *executor;
    const ht_plan *plan;
    ht_until_fn until;
    ht_bad_value *out;
} finding;

/* Several ops, whose values need not reach memory. */
static bool is_fused(const ht_instr *instr)
{
    const ht_fused *f = instr->fused;
    return f && (f->step_count > 1 || f->gemm || f->fold);
}

/* Kernels of the host count the values inside an instruction; of others the results are looked at. */
static bool counts_inside(const ht_launch *launch)
{
    return launch->queue->device->class->runs_host_code;
}

/* As the executor runs it, but alone, and with counts where there are several ops. */
static ht_status run_alone(const ht_instr *instr, const ht_launch *launch, ht_nonfinite *counts)
{
    ht_launch alone = *launch;
    ht_fused counted;
    ht_fused_operand operands[HT_FUSED_OPERANDS];
    alone.block = NULL;
    alone.comm = NULL; /* other ranks may look elsewhere already, so nobody would answer */
    if (!counts_inside(launch)) {
        HT_TRY(ht_queue_launch(launch->queue, instr->kernel->run, &alone));
        return ht_queue_sync(launch->queue);
    }
    if (is_fused(instr)) {
        counted = *instr->fused;
        memcpy(operands, counted.operands,
               (size_t)(counted.n_in + counted.n_out + counted.n_between) * sizeof *operands);
        counted.operands = operands;
        ht_fused_compile(&counted, NULL);
        alone.fused = &counted;
        alone.nonfinite = counts;
    }
    return ht_queue_launch_now(alone.queue, instr->kernel->run, &alone);
}

/* Op number `part` of a fused instruction, as if it were an instruction of its own. */
static void describe_part(const ht_instr *instr, size_t part, const ht_call *call, ht_bad_value *out)
{
    const ht_provenance *from = &instr->parts[part];
    out->instr = instr;
    out->op = *instr;
    out->op.call = call;
    out->op.in = out->in;
    out->op.out = out->out;
    out->op.value = from->value;
    out->op.site = from->site;
    out->op.origin = from->origin;
    out->op.origin_site = from->origin_site;
    out->op.role = from->role;
}

/* The place of an operand of the fused calls; those between have none. */
static ht_place place_of(const ht_instr *instr, int operand)
{
    const ht_fused *f = instr->fused;
    if (operand < f->n_in) return instr->in[operand];
    return operand < f->n_in + f->n_out ? instr->out[operand - f->n_in] : (ht_place){0};
}

static bool take_count(ht_bad_value *out, size_t result, int64_t inf, int64_t nan)
{
    out->result = result;
    out->inf = inf;
    out->nan = nan;
    return inf + nan > 0;
}

static bool product_is_bad(const ht_instr *instr, const ht_nonfinite *counts, ht_bad_value *out)
{
    const ht_fused *f = instr->fused;
    const ht_nonfinite_count *count = &counts->operand[f->product];
    if (!f->gemm || !take_count(out, 0, count->inf, count->nan)) return false;
    describe_part(instr, 0, f->gemm, out);
    for (size_t i = 0; i < f->gemm->n_in && i < HT_STEP_OPERANDS; i++) out->in[i] = instr->in[f->n_in + (int)i];
    return true;
}

static bool step_is_bad(const ht_instr *instr, int index, const ht_nonfinite *counts, ht_bad_value *out)
{
    const ht_fused *f = instr->fused;
    const ht_fused_step *step = &f->steps[index];
    const ht_call *call = step->call;
    bool bad = false;
    for (size_t i = 0; i < call->n_out && !bad; i++) {
        const ht_nonfinite_count *count = &counts->operand[step->operand[call->n_in + i]];
        bad = take_count(out, i, count->inf, count->nan);
    }
    if (!bad) return false;
    describe_part(instr, (size_t)index + (f->gemm != NULL), call, out);
    for (size_t i = 0; i < call->n_in; i++) out->in[i] = place_of(instr, step->operand[i]);
    for (size_t i = 0; i < call->n_out; i++) out->out[i] = place_of(instr, step->operand[call->n_in + i]);
    return true;
}

/* Result k of the launch, in memory. */
static ht_status count_result(const finding *f, const ht_instr *instr, size_t k, bool *bad)
{
    int64_t inf = 0, nan = 0;
    HT_TRY(ht_executor_count_nonfinite(f->executor, instr->out[k], instr->call->out[k], &inf, &nan));
    *bad = take_count(f->out, k, inf, nan);
    return HT_OK;
}

static ht_status look_into_fused(const finding *f, const ht_instr *instr, const ht_nonfinite *counts, bool *bad)
{
    const ht_fused *fused = instr->fused;
    *bad = product_is_bad(instr, counts, f->out);
    for (int i = 0; i < fused->step_count && !*bad; i++) *bad = step_is_bad(instr, i, counts, f->out);
    size_t results = fused->fold ? fused->fold->n_out : 0, first = (size_t)fused->n_out;
    for (size_t i = 0; i < results && !*bad; i++) {
        HT_TRY(count_result(f, instr, first + i, bad));
        if (!*bad) continue;
        describe_part(instr, (size_t)fused->step_count + (fused->gemm != NULL), fused->fold, f->out);
        f->out->result = i;
        f->out->in[0] = place_of(instr, fused->folded);
        for (size_t k = 1; k < fused->fold->n_in; k++) f->out->in[k] = instr->in[(size_t)fused->n_in + k - 1];
        for (size_t k = 0; k < results; k++) f->out->out[k] = instr->out[first + k];
    }
    return HT_OK;
}

static ht_status look_at_results(const finding *f, const ht_instr *instr, bool *bad)
{
    for (size_t k = 0; k < instr->call->n_out && !*bad; k++) HT_TRY(count_result(f, instr, k, bad));
    if (!*bad) return HT_OK;
    f->out->instr = instr;
    f->out->op = *instr;
    return HT_OK;
}

static ht_status look(void *arg, const ht_instr *instr, const ht_launch *launch, bool *enough)
{
    const finding *f = arg;
    ht_nonfinite counts = {0};
    *enough = f->until && f->until(f->plan, instr);
    if (*enough) return HT_OK;
    HT_TRY(run_alone(instr, launch, &counts));
    return is_fused(instr) && instr->parts && counts_inside(launch) ? look_into_fused(f, instr, &counts, enough)
                                                                    : look_at_results(f, instr, enough);
}

ht_status ht_executor_find_nonfinite(ht_executor *e, const ht_plan *plan, size_t segment, unsigned slot,
                                     ht_until_fn until, ht_bad_value *out)
{
    finding f = {e, plan, until, out};
    memset(out, 0, sizeof *out);
    return ht_executor_walk(e, segment, slot, look, &f);
}
