#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* What predicting needs of a target, looked up once. */
typedef struct predictor {
    const ht_plan *plan;
    const ht_target *target;
    ht_prediction *to;
    ht_family_curve curves[HT_MOST_FAMILIES];
    const ht_family_curve *pointwise, *move;
    bool measured; /* the target has efficiencies, which are those of its caches */
    bool cuda;     /* it is a GPU */
    double launch; /* seconds that every instruction takes */
    ht_cache_model *cache;
} predictor;

/* ---- seconds of one instruction ---- */

/* STREAM's triad, by which bandwidth is measured, reads three arrays, one of them only because it is written, and writes
 * one; three are counted. */
static const double bus_of_triad = 4.0 / 3;

static double traffic_seconds(const predictor *p, const ht_traffic *traffic)
{
    double bus = (p->cuda ? 1 : bus_of_triad) * ht_target_bandwidth(p->target, HT_SPACE_MAIN);
    double seconds = traffic->bytes[HT_CACHE_COUNT] / bus;
    for (int level = 0; level < HT_CACHE_COUNT; level++)
        if (p->target->cache_bandwidth[level] > 0) seconds += traffic->bytes[level] / p->target->cache_bandwidth[level];
    return seconds;
}

/* A call of a family by itself, whose curve is known. */
static double family_seconds(const ht_family_curve *curve, const ht_call *call)
{
    double work = curve->product ? ht_call_cost(call).dot_flops : ht_call_elements(call);
    return work > 0 ? work / ht_family_rate(curve, ht_call_size(call)) : 0;
}

/* An element-wise call in caches: by FLOPs where the family has many ops of different weight, else by elements. */
static double step_seconds(const predictor *p, const ht_call *call, bool *known)
{
    int family = ht_family_of_call(call, p->target->device);
    const ht_family_curve *curve = family == HT_NO_FAMILY ? NULL : &p->curves[family];
    if (!curve || !curve->known) {
        *known = false;
        return 0;
    }
    if (curve == p->pointwise) return ht_cost_flops(ht_call_cost(call)) / curve->flop_rate;
    return ht_call_elements(call) / curve->rate[HT_FAMILY_SMALL];
}

/* Arithmetic of all that it runs; *known: every part has a measured family. */
static double compute_seconds(const predictor *p, const ht_instr *instr, bool *known)
{
    const ht_fused *f = instr->fused;
    const ht_call *lead = f ? (f->gemm ? f->gemm : f->fold) : instr->call;
    double seconds = 0;
    *known = p->measured;
    if (!p->measured) return 0;
    if (lead) {
        int family = ht_family_of_call(lead, p->target->device);
        if (family == HT_NO_FAMILY || !p->curves[family].known)
            *known = false;
        else if (!f && lead->op->fuse == HT_FUSE_POINT)
            seconds = step_seconds(p, lead, known);
        else
            seconds = family_seconds(&p->curves[family], lead);
    }
    for (int i = 0; f && i < f->step_count; i++) seconds += step_seconds(p, f->steps[i].call, known);
    return seconds;
}

/* ---- of a GPU ---- */

/* A call by itself as a kernel of its own: what was measured includes its launch. */
static double cuda_family_seconds(const ht_family_curve *curve, const ht_call *call, double bytes)
{
    ht_cost cost = ht_call_cost(call);
    if (curve->product) return cost.dot_flops > 0 ? cost.dot_flops / ht_family_rate(curve, ht_cuda_call_size(call)) : 0;
    double size = bytes > 0 ? bytes : ht_cuda_call_size(call);
    return size > 0 ? size / ht_family_rate(curve, size) : 0;
}

int ht_instr_family(const ht_target *target, const ht_instr *instr, const ht_call *call)
{
    int family = ht_family_of_call(call, target->device);
    if (instr->kernel->parts.format != HT_FORMAT_TF32 || family != ht_family_find("matmul")) return family;
    return ht_family_find(instr->kernel->parts.count > 1 ? "matmul_tf32_parts" : "matmul_tf32");
}

static const ht_family_curve *curve_of(const predictor *p, const ht_instr *instr, const ht_call *call, bool *known)
{
    int family = ht_instr_family(p->target, instr, call);
    if (family != HT_NO_FAMILY && p->curves[family].known) return &p->curves[family];
    *known = false;
    return NULL;
}

/* One kernel reads and writes the bytes of the instruction, and computes beside that. Of element-wise calls alone the
 * slowest counts. */
static double cuda_compute_seconds(const predictor *p, const ht_instr *instr, bool *known)
{
    const ht_fused *f = instr->fused;
    const ht_call *lead = f ? (f->gemm ? f->gemm : f->fold) : instr->call;
    double seconds = 0;
    *known = p->measured;
    if (!p->measured) return 0;
    if (lead) {
        const ht_family_curve *curve = curve_of(p, instr, lead, known);
        return curve ? cuda_family_seconds(curve, lead, instr->cost.bytes) : 0;
    }
    for (int i = 0; i < f->step_count; i++) {
        const ht_family_curve *curve = curve_of(p, instr, f->steps[i].call, known);
        double one = curve ? cuda_family_seconds(curve, f->steps[i].call, 0) : 0;
        if (curve && curve != p->pointwise && one > seconds) seconds = one;
    }
    double moved = cuda_family_seconds(p->pointwise, instr->call, instr->cost.bytes);
    return moved > seconds ? moved : seconds;
}

static double longest(double a, double b, double c)
{
    double most = a > b ? a : b;
    return most > c ? most : c;
}

/* ---- of all devices ---- */

static double crossing_seconds(const predictor *p, const ht_instr *instr)
{
    const ht_call *call = instr->call;
    bool done = call->op->start != NULL; /* the part that only waits */
    if (done || !call->n_in || !call->n_out || !call->in[0] || call->in[0]->space == call->out[0]->space) return 0;
    return (double)ht_type_bytes(call->out[0]) / ht_target_link(p->target, call->in[0]->space, call->out[0]->space);
}

/* By the network between its ranks: within a node as long as one has enough devices. */
static double exchange_seconds(predictor *p, const ht_instr *instr)
{
    int64_t ranks = ht_call_int(instr->call, "ranks"), sent = ht_exchange_sent(instr->call).bytes;
    int64_t here = p->target->devices > 1 ? p->target->devices : 1;
    double node = p->target->network[HT_NETWORK_NODE], cluster = p->target->network[HT_NETWORK_CLUSTER];
    double bytes_per_second = ranks <= here && node > 0 ? node : cluster > 0 ? cluster : node;
    if (sent > 0 && !(bytes_per_second > 0)) p->to->no_network = true;
    return sent > 0 && bytes_per_second > 0 ? (double)sent / bytes_per_second : 0;
}

static ht_instr_prediction predict_instr(predictor *p, const ht_instr *instr)
{
    bool known;
    ht_traffic traffic = ht_cache_model_run(p->cache, instr);
    if (instr->call->op->flags & HT_OP_COLLECTIVE)
        return (ht_instr_prediction){.seconds = exchange_seconds(p, instr), .measured = p->measured};
    double crossing = crossing_seconds(p, instr);
    if (crossing > 0) return (ht_instr_prediction){crossing, crossing, p->measured};
    double compute = p->cuda ? cuda_compute_seconds(p, instr, &known) : compute_seconds(p, instr, &known);
    if (!known) {
        ht_roofline limit = ht_instr_roofline(p->target, instr);
        return (ht_instr_prediction){limit.limit_s + p->launch, limit.memory_s, false};
    }
    double memory = traffic_seconds(p, &traffic), longer = compute > memory ? compute : memory;
    if (p->cuda) return (ht_instr_prediction){longest(compute, memory, p->launch), memory, true};
    /* Products pack their operands before they compute with them; everything else computes while it reads. */
    bool packs = ht_instr_call(instr)->op->prec == HT_PREC_DOT;
    return (ht_instr_prediction){(packs ? compute + memory : longer) + p->launch, memory, true};
}

/* ---- segments ---- */

/* Instructions on COMPUTE one after the other; those of other queues beside them, until somebody waits. */
static void add_up(const ht_plan_segment *s, ht_segment_prediction *to, double *ends)
{
    double now = 0, waits = 0, free_at[HT_QUEUE_COUNT] = {0};
    for (size_t i = 0; i < s->instr_count; i++) {
        const ht_instr *instr = &s->instrs[i];
        double seconds = to->instrs[i].seconds;
        if (instr->wait && ends[instr->wait - 1] > now) {
            waits += ends[instr->wait - 1] - now;
            now = ends[instr->wait - 1];
        }
        if (instr->queue == HT_QUEUE_COMPUTE) {
            ends[i] = now += seconds;
        } else {
            double begin = free_at[instr->queue] > now ? free_at[instr->queue] : now;
            ends[i] = free_at[instr->queue] = begin + seconds;
        }
    }
    for (int queue = 0; queue < HT_QUEUE_COUNT; queue++)
        if (free_at[queue] > now && s->tail >= s->instr_count) waits += free_at[queue] - now, now = free_at[queue];
    to->seconds = now;
    to->waits = waits;
}

static ht_status predict_segment(predictor *p, size_t index)
{
    const ht_plan_segment *s = &p->plan->segments[index];
    ht_segment_prediction *to = &p->to->segments[index];
    if (!to->instrs) to->instrs = HT_NEW(p->to->arena, ht_instr_prediction, s->instr_count + 1);
    double *ends = calloc(s->instr_count + 1, sizeof *ends);
    if (!to->instrs || !ends) {
        free(ends);
        HT_FAIL(p->plan->ctx, HT_ENOMEM, "out of memory for a prediction");
    }
    size_t block = 0; /* instructions that are left of a row block */
    for (size_t i = 0; i < s->instr_count; i++) {
        if (s->instrs[i].row_block) block = s->instrs[i].row_block, ht_cache_model_block(p->cache, true);
        to->instrs[i] = predict_instr(p, &s->instrs[i]);
        if (block && --block == 0) ht_cache_model_block(p->cache, false);
    }
    add_up(s, to, ends);
    free(ends);
    return HT_OK;
}

/* ---- programs ---- */

/* The segment that a call runs with batches of a shape. */
static size_t segment_of(const ht_plan *plan, const ht_program_call *call, int shape)
{
    char name[96];
    const char *own = plan->segments[call->segment].name;
    snprintf(name, sizeof name, "%s:%d", own, shape);
    int found = shape > 0 ? ht_plan_segment_find(plan, name) : -1;
    return found < 0 ? call->segment : (size_t)found;
}

/* Twice: the second time caches are as a step leaves them. */
static ht_status predict_shape(predictor *p, const ht_plan_program *program, int shape)
{
    p->cache = ht_cache_model_create(p->plan);
    ht_status status = p->cache ? HT_OK : ht_fail(p->plan->ctx, HT_ENOMEM, "out of memory for a prediction");
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < program->call_count && status == HT_OK; i++)
            status = predict_segment(p, segment_of(p->plan, &program->calls[i], shape));
    ht_cache_model_free(p->cache);
    return status;
}

static bool has_shape(const ht_plan *plan, const ht_plan_program *program, int shape)
{
    for (size_t i = 0; i < program->call_count; i++)
        if (segment_of(plan, &program->calls[i], shape) != program->calls[i].segment) return true;
    return false;
}

static ht_status prepare(predictor *p)
{
    if (!ht_family_curves(p->plan->ctx, p->target, p->curves)) return p->plan->ctx->status;
    p->pointwise = &p->curves[ht_family_find("pointwise")];
    p->move = &p->curves[ht_family_find("move")];
    p->cuda = p->target->device == HT_DEVICE_CUDA;
    p->measured = p->pointwise->known && p->move->known && !p->target->no_kernels;
    /* The smallest copy has nothing to do but to be started. */
    if (p->measured) p->launch = p->move->x[0] / p->move->rate[0];
    return HT_OK;
}

ht_status ht_plan_predict(ht_prediction *out, const ht_plan *plan, const char *name)
{
    int found = ht_plan_program_find(plan, name);
    predictor p = {.plan = plan, .target = &plan->target, .to = out};
    *out = (ht_prediction){.arena = ht_arena_create(), .plan = plan};
    out->segments = out->arena ? HT_NEW(out->arena, ht_segment_prediction, plan->segment_count + 1) : NULL;
    if (!out->segments) HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for a prediction");
    HT_TRY(prepare(&p));
    if (found < 0) return HT_OK;
    for (int shape = 0; shape == 0 || has_shape(plan, &plan->programs[found], shape); shape++)
        HT_TRY(predict_shape(&p, &plan->programs[found], shape));
    return HT_OK;
}

void ht_prediction_free(ht_prediction *prediction)
{
    ht_arena_free(prediction->arena);
    *prediction = (ht_prediction){0};
}

/* A format that has no figure is taken for f32. 0: the target does not tell. */
static double flop_joules(const ht_target *target, int format)
{
    return target->flop_energy[format] > 0 ? target->flop_energy[format] : target->flop_energy[HT_F32];
}

static void add_joules(ht_step_prediction *sum, const ht_target *target, const ht_instr *instr, int format,
                       double times)
{
    int parts = instr->kernel->parts.count > 1 ? instr->kernel->parts.count : 1;
    double product = flop_joules(target, format), other = flop_joules(target, HT_F32);
    double byte = target->byte_energy[HT_SPACE_MAIN], again = instr->cost.recomputed_flops;
    bool dot = ht_instr_call(instr)->op->prec == HT_PREC_DOT;
    double products = instr->cost.dot_flops + (dot ? again : 0), others = instr->cost.other_flops + (dot ? 0 : again);
    sum->joules += times * (parts * products * product + others * other + instr->cost.bytes * byte);
    if ((products > 0 && !(product > 0)) || (others > 0 && !(other > 0)) || !(byte > 0)) sum->unknown_joules = true;
}

static void add_instr(ht_step_prediction *sum, const ht_target *target, const ht_instr *instr,
                      const ht_instr_prediction *predicted, double times)
{
    ht_roofline limit = ht_instr_roofline(target, instr);
    bool beside = instr->queue != HT_QUEUE_COMPUTE || (instr->call->op->flags & HT_OP_COLLECTIVE);
    double seconds = beside ? 0 : times * predicted->seconds;
    if (instr->role == HT_ROLE_UPDATE)
        sum->update += seconds;
    else if (instr->role == HT_ROLE_FWD && !instr->recomputed)
        sum->forward += seconds;
    else
        sum->backward += seconds;
    if (predicted->measured) sum->measured_s += seconds;
    if (instr->role != HT_ROLE_UPDATE) sum->product_s += times * instr->cost.dot_flops / limit.product_flops;
    add_joules(sum, target, instr, limit.format, times);
    sum->flops += times * ht_cost_flops(instr->cost);
    sum->bytes += times * instr->cost.bytes;
}

ht_step_prediction ht_prediction_step(const ht_prediction *prediction, const char *name, int shape)
{
    const ht_plan *plan = prediction->plan;
    int found = ht_plan_program_find(plan, name);
    ht_step_prediction sum = {0};
    for (size_t c = 0; found >= 0 && c < plan->programs[found].call_count; c++) {
        const ht_program_call *call = &plan->programs[found].calls[c];
        size_t index = segment_of(plan, call, shape);
        const ht_segment_prediction *s = &prediction->segments[index];
        double times = (double)call->times;
        sum.seconds += times * s->seconds;
        sum.waits += times * s->waits;
        for (size_t i = 0; i < plan->segments[index].instr_count; i++)
            add_instr(&sum, &plan->target, &plan->segments[index].instrs[i], &s->instrs[i], times);
    }
    return sum;
}
