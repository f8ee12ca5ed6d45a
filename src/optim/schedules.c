/* Learning-rate schedules, by DeepSpeed's formulas. k counts updates made so far, i = k - 1. All in f64: the counter
 * is exact there, and so are the places where one branch hands over to the next. */
#include <math.h>
#include <string.h>

#include "optim/optim.h"

static const double PI = 3.14159265358979323846;

static ht_val number(ht_graph *g, double value)
{
    return ht_fill(g, HT_F64, 0, NULL, value);
}

/* from + (to - from)·s */
static ht_val between(ht_graph *g, double from, double to, ht_val s)
{
    return ht_add_scalar(g, ht_scale(g, s, to - from), from);
}

/* Of a number that is not negative. */
static ht_val whole_part(ht_graph *g, ht_val x)
{
    return ht_cast(g, ht_cast(g, x, HT_I64), HT_F64);
}

/* first at k = 0, else rest. */
static ht_val at_start(ht_graph *g, ht_val k, double first, ht_val rest)
{
    ht_val start = number(g, first);
    return ht_select(g, ht_eq(g, k, number(g, 0)), start, rest);
}

/* ---- warm-up ---- */

static double warmup_steps(double given)
{
    return fmax(2, given);
}

/* ln(i+1)/ln W or i/W. */
static ht_val warmup(ht_graph *g, ht_val i, double steps, double linear)
{
    if (linear != 0) return ht_scale(g, i, 1 / steps);
    return ht_scale(g, ht_log(g, ht_add_scalar(g, i, 1)), 1 / log(steps));
}

/* a while i < steps, then b. */
static ht_val then(ht_graph *g, ht_val i, double steps, ht_val a, ht_val b)
{
    return ht_select(g, ht_lt(g, i, number(g, steps)), a, b);
}

enum { W_MIN, W_MAX, W_STEPS, W_LINEAR, W_TOTAL };
static const ht_schedule_param warmup_params[] = {
    {"warmup_min_lr", 0, false, "where the rate starts"},
    {"warmup_max_lr", NAN, false, "where it ends; the optimiser's rate unless given"},
    {"warmup_num_steps", 1000, false, "updates of warm-up"},
    {"warmup_linear", 0, false, "1: linear, 0: logarithmic"},
    {NULL, 0, false, NULL},
};
static const ht_schedule_param decay_params[] = {
    {"warmup_min_lr", 0, false, "where the rate starts"},
    {"warmup_max_lr", 0.001, false, "where warm-up ends"},
    {"warmup_num_steps", 1000, false, "updates of warm-up"},
    {"warmup_linear", 0, false, "1: linear, 0: logarithmic"},
    {"total_num_steps", NAN, true, "updates after which the rate is the lowest"},
    {NULL, 0, false, NULL},
};

static ht_val warmup_rate(ht_graph *g, const double *p, double base, ht_val k)
{
    double steps = warmup_steps(p[W_STEPS]), max = isnan(p[W_MAX]) ? base : p[W_MAX];
    ht_val i = ht_add_scalar(g, k, -1);
    ht_val one = number(g, 1), s = then(g, i, steps, warmup(g, i, steps, p[W_LINEAR]), one);
    return at_start(g, k, p[W_MIN], between(g, p[W_MIN], max, s));
}

static ht_val decay_rate(ht_graph *g, const double *p, double base, ht_val k)
{
    (void)base;
    double steps = warmup_steps(p[W_STEPS]), total = p[W_TOTAL];
    ht_val i = ht_add_scalar(g, k, -1);
    ht_val left = ht_scale(g, ht_sub(g, number(g, total), i), 1 / fmax(1, total - steps));
    left = ht_max(g, left, number(g, 0));
    ht_val s = then(g, i, steps, warmup(g, i, steps, p[W_LINEAR]), left);
    return at_start(g, k, p[W_MIN], between(g, p[W_MIN], p[W_MAX], s));
}

/* ---- cosine ---- */

enum { C_MIN_RATIO, C_STEPS, C_COS_RATIO, C_LINEAR, C_TOTAL };
static const ht_schedule_param warmup_cosine_params[] = {
    {"warmup_min_ratio", 0, false, "where warm-up starts, as a part of the optimiser's rate"},
    {"warmup_num_steps", 1000, false, "updates of warm-up"},
    {"cos_min_ratio", 1e-4, false, "where the rate ends, as a part of the optimiser's"},
    {"warmup_linear", 0, false, "1: linear, 0: logarithmic"},
    {"total_num_steps", NAN, true, "updates after which the rate is the lowest"},
    {NULL, 0, false, NULL},
};

/* (1 + cos πq)/2 for q up to 1. */
static ht_val cosine(ht_graph *g, ht_val q)
{
    ht_val angle = ht_scale(g, ht_min(g, q, number(g, 1)), PI);
    return ht_scale(g, ht_add_scalar(g, ht_cos(g, angle), 1), 0.5);
}

static ht_val warmup_cosine_rate(ht_graph *g, const double *p, double base, ht_val k)
{
    double steps = warmup_steps(p[C_STEPS]);
    ht_val i = ht_add_scalar(g, k, -1);
    ht_val up = between(g, p[C_MIN_RATIO], 1, warmup(g, i, steps, p[C_LINEAR]));
    ht_val q = ht_scale(g, ht_add_scalar(g, i, 1 - steps), 1 / fmax(1, p[C_TOTAL] - steps));
    ht_val ratio = then(g, i, steps, up, between(g, p[C_COS_RATIO], 1, cosine(g, q)));
    return at_start(g, k, 0, ht_scale(g, ratio, base));
}

/* ---- a job's own: base·(k+1)/(warm-up + 1), as nanoGPT has it, then one of three shapes ---- */

enum { N_WARMUP, N_DECAY, N_MIN };
static const ht_schedule_param cosine_params[] = {
    {"warmup_steps", 0, false, "updates of linear warm-up"},
    {"decay_steps", NAN, true, "updates after which the rate is the lowest"},
    {"min_lr", NAN, false, "the lowest rate; a tenth of the optimiser's unless given"},
    {NULL, 0, false, NULL},
};

static const ht_schedule_param linear_params[] = {
    {"warmup_steps", 0, false, "updates of linear warm-up"},
    {"decay_steps", NAN, true, "updates of the run; the last of them has the lowest rate"},
    {"min_lr", NAN, false, "the lowest rate; a tenth of the optimiser's unless given"},
    {NULL, 0, false, NULL},
};
static const ht_schedule_param rise_params[] = {
    {"warmup_steps", 0, false, "updates of linear warm-up"},
    {NULL, 0, false, NULL},
};

static ht_val rise(ht_graph *g, double warm, double base, ht_val k)
{
    return ht_scale(g, ht_add_scalar(g, k, 1), base / (warm + 1));
}

static double lowest(const double *p, double base)
{
    return isnan(p[N_MIN]) ? base / 10 : p[N_MIN];
}

static ht_val cosine_rate(ht_graph *g, const double *p, double base, ht_val k)
{
    double low = lowest(p, base), warm = p[N_WARMUP];
    ht_val up = rise(g, warm, base, k);
    ht_val q = ht_scale(g, ht_add_scalar(g, k, -warm), 1 / fmax(1, p[N_DECAY] - warm));
    return then(g, k, warm, up, between(g, low, base, cosine(g, q)));
}

static ht_val linear_rate(ht_graph *g, const double *p, double base, ht_val k)
{
    double low = lowest(p, base), warm = p[N_WARMUP];
    ht_val up = rise(g, warm, base, k);
    ht_val q = ht_scale(g, ht_add_scalar(g, k, -warm), 1 / fmax(1, p[N_DECAY] - 1 - warm));
    ht_val down = ht_min(g, q, number(g, 1));
    return then(g, k, warm, up, between(g, base, low, down));
}

static ht_val rise_rate(ht_graph *g, const double *p, double base, ht_val k)
{
    ht_val up = rise(g, p[N_WARMUP], base, k);
    return then(g, k, p[N_WARMUP], up, number(g, base));
}

/* ---- range test ---- */

enum { R_MIN, R_SIZE, R_RATE, R_STAIRS };
static const ht_schedule_param range_params[] = {
    {"lr_range_test_min_lr", 1e-3, false, "where the rate starts"},
    {"lr_range_test_step_size", 2000, false, "updates of one step"},
    {"lr_range_test_step_rate", 1, false, "growth by step, as a part of the start"},
    {"lr_range_test_staircase", 0, false, "1: whole steps only"},
    {NULL, 0, false, NULL},
};

static ht_val range_rate(ht_graph *g, const double *p, double base, ht_val k)
{
    (void)base;
    ht_val x = ht_div(g, k, number(g, fmax(1, p[R_SIZE])));
    if (p[R_STAIRS] != 0) x = whole_part(g, x);
    return ht_scale(g, ht_add_scalar(g, ht_scale(g, x, p[R_RATE]), 1), p[R_MIN]);
}

/* ---- one cycle ---- */

enum {
    O_LOW,
    O_HIGH,
    O_RATE,
    O_FIRST,
    O_SECOND,
    O_STAIRS,
    O_STAIRS2,
    O_STEP,
    O_CYCLE,
    O_MIN_MOM,
    O_MAX_MOM,
    O_MOM_RATE
};
static const ht_schedule_param one_cycle_params[] = {
    {"cycle_min_lr", NAN, true, "the rate at both ends of the cycle"},
    {"cycle_max_lr", NAN, true, "the rate at its top"},
    {"decay_lr_rate", 0, false, "decay after the cycle"},
    {"cycle_first_step_size", 2000, false, "updates on the way up"},
    {"cycle_second_step_size", NAN, false, "updates on the way down; as many as up unless given"},
    {"cycle_first_stair_count", 0, false, "whole stairs on the way up; 0: a ramp"},
    {"cycle_second_stair_count", NAN, false, "on the way down; as many as up unless given"},
    {"decay_step_size", 0, false, "updates of one decay step; 0: no decay"},
    {"cycle_momentum", 1, false, "1: momentum cycles the other way"},
    {"cycle_min_mom", 0.8, false, "momentum at the top of the cycle"},
    {"cycle_max_mom", 0.9, false, "momentum at its ends"},
    {"decay_mom_rate", 0, false, "growth of momentum after the cycle"},
    {NULL, 0, false, NULL},
};

typedef struct cycle {
    double first, second;
    ht_val running; /* is this step within the cycle? */
    ht_val scale;   /* 0 at the ends, 1 at the top */
    ht_val beyond;  /* steps after the cycle, from 1 */
} cycle;

static ht_val stairs(ht_graph *g, ht_val part, double count)
{
    return count > 0 ? ht_scale(g, whole_part(g, ht_scale(g, part, count)), 1 / count) : part;
}

static cycle cycle_of(ht_graph *g, const double *p, ht_val k)
{
    cycle c = {.first = fmax(1, p[O_FIRST])};
    c.second = fmax(1, isnan(p[O_SECOND]) ? c.first : p[O_SECOND]);
    double whole = c.first + c.second, second_stairs = isnan(p[O_STAIRS2]) ? p[O_STAIRS] : p[O_STAIRS2];
    c.running = ht_le(g, k, number(g, whole));
    c.beyond = ht_add_scalar(g, k, -whole);
    /* The cycle's last step stands at its end, where the next cycle would begin: the way down reaches 0 there, too. */
    ht_val up = stairs(g, ht_div(g, k, number(g, c.first)), p[O_STAIRS]);
    ht_val second = number(g, c.second);
    ht_val down = stairs(g, ht_div(g, ht_sub(g, number(g, whole), k), second), second_stairs);
    c.scale = ht_select(g, ht_le(g, k, number(g, c.first)), up, down);
    return c;
}

static ht_val one_cycle_rate(ht_graph *g, const double *p, double base, ht_val k)
{
    (void)base;
    cycle c = cycle_of(g, p, k);
    ht_val after = number(g, p[O_LOW]);
    if (p[O_STEP] > 0 && p[O_RATE] > 0)
        after = ht_div(g, after, ht_add_scalar(g, ht_scale(g, c.beyond, p[O_RATE] / p[O_STEP]), 1));
    return ht_select(g, c.running, between(g, p[O_LOW], p[O_HIGH], c.scale), after);
}

static ht_val one_cycle_momentum(ht_graph *g, const double *p, ht_val k)
{
    if (p[O_CYCLE] == 0) return HT_NONE;
    cycle c = cycle_of(g, p, k);
    ht_val after = number(g, p[O_MAX_MOM]);
    if (p[O_STEP] > 0 && p[O_MOM_RATE] > 0)
        after = ht_mul(g, after, ht_add_scalar(g, ht_scale(g, c.beyond, p[O_MOM_RATE] / p[O_STEP]), 1));
    return at_start(g, k, p[O_MIN_MOM],
                    ht_select(g, c.running, between(g, p[O_MAX_MOM], p[O_MIN_MOM], c.scale), after));
}

/* ---- the table ---- */

static const ht_schedule schedules[] = {
#define HT_SCHEDULE(id, text, rows, rate, momentum) {#id, text, rows, rate, momentum},
#include "optim/schedules.def"
#undef HT_SCHEDULE
};

static const char listed[] =
#define HT_SCHEDULE(id, text, rows, rate, momentum) ", " #id
#include "optim/schedules.def"
#undef HT_SCHEDULE
    ;

const ht_schedule *ht_schedule_find(const char *name, const char **names)
{
    if (names) *names = listed + strlen(", ");
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++)
        if (strcmp(schedules[i].name, name) == 0) return &schedules[i];
    return NULL;
}

void ht_schedule_standards(const ht_schedule *schedule, double *p)
{
    for (size_t i = 0; schedule->params[i].name; i++) p[i] = schedule->params[i].standard;
}

ht_status ht_schedule_check(ht_context *ctx, const ht_schedule *schedule, const double *p)
{
    for (size_t i = 0; schedule->params[i].name; i++) {
        const ht_schedule_param *param = &schedule->params[i];
        if (isnan(p[i]) && param->required)
            HT_FAIL(ctx, HT_EINVAL, "schedule %s: %s must be given: %s", schedule->name, param->name, param->help);
        if (!isnan(p[i]) && !(p[i] >= 0 && p[i] < INFINITY))
            HT_FAIL(ctx, HT_EINVAL, "schedule %s: %s is %g", schedule->name, param->name, p[i]);
    }
    return HT_OK;
}

ht_val ht_schedule_rate(ht_graph *g, const ht_schedule *schedule, const double *p, double base, ht_val applied)
{
    if (ht_graph_status(g) != HT_OK) return HT_NONE;
    if (ht_schedule_check(g->ctx, schedule, p) != HT_OK) {
        g->status = g->ctx->status;
        return HT_NONE;
    }
    return ht_cast(g, schedule->rate(g, p, base, ht_cast(g, applied, HT_F64)), HT_F32);
}

ht_val ht_schedule_momentum(ht_graph *g, const ht_schedule *schedule, const double *p, ht_val applied)
{
    if (!schedule->momentum || ht_graph_status(g) != HT_OK) return HT_NONE;
    ht_val momentum = schedule->momentum(g, p, ht_cast(g, applied, HT_F64));
    return momentum.id ? ht_cast(g, momentum, HT_F32) : HT_NONE;
}
