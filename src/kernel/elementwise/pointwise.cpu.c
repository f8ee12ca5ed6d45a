/* y[i] = expression(x[i] …), one kernel for each row of pointwise.def.  Any types.  Numerics: real inside, one
 * rounding; integers in int64_t, the result wraps (a cast saturates).  Threads, strides and neighbours: kernel/elementwise/fused.h.
 * Arrays of `real` (and int64_t, bool) are worked on where they lie; others pass through small arrays on the stack.
 * Bound: bandwidth, for the functions compute. */
/* The steps of chains work on four registers one after the other, each through a long row of dependent instructions; gcc
 * interleaves them only when it is told to schedule before it hands out registers. clang does that anyway. */
/* HT_COMPILE GNU: -fschedule-insns -fsched-pressure */
#include "kernel/elementwise/chain.h"
#include "op/op.h"

enum {
    CHUNK = 256, /* elements that are converted at once */
    INPUTS = 3
};

/* What the elements of an operand are inside a loop: real, int64_t, or a byte that is zero or not. */
typedef enum lane { REAL, INT, BYTE } lane;

typedef struct loop {
    void (*run)(void *to, const void *const *from, const real *bound, int64_t n);
    lane in[INPUTS], out;
    bool saturate; /* integers that leave the type: to its end, or around it */
    bool same;     /* the result is the input: no loop is needed to convert it */
} loop;

/* What `begin` leaves. */
typedef struct chosen {
    const loop *loop;
    real bound[2];
    bool native; /* all operands are arrays of their lanes */
} chosen;

/* ---- one loop per row and lane ---- */

#define LOOP1(name, FROM, TO, expression)                                                                              \
    static void name(void *to, const void *const *from, const real *bound, int64_t n)                                  \
    {                                                                                                                  \
        (void)bound;                                                                                                   \
        const FROM *in = from[0];                                                                                      \
        TO *y = to;                                                                                                    \
        HT_ELEMENTWISE_ALONE                                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            FROM x = in[i];                                                                                            \
            y[i] = (TO)(expression);                                                                                   \
        }                                                                                                              \
    }
#define LOOP2(name, FROM, TO, expression)                                                                              \
    static void name(void *to, const void *const *from, const real *bound, int64_t n)                                  \
    {                                                                                                                  \
        (void)bound;                                                                                                   \
        const FROM *left = from[0], *right = from[1];                                                                  \
        TO *y = to;                                                                                                    \
        HT_ELEMENTWISE_ALONE                                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            FROM a = left[i], b = right[i];                                                                            \
            y[i] = (TO)(expression);                                                                                   \
        }                                                                                                              \
    }
#define LOOP_SELECT(name, TYPE, expression)                                                                            \
    static void name(void *to, const void *const *from, const real *bound, int64_t n)                                  \
    {                                                                                                                  \
        (void)bound;                                                                                                   \
        const uint8_t *condition = from[0];                                                                            \
        const TYPE *left = from[1], *right = from[2];                                                                  \
        TYPE *y = to;                                                                                                  \
        HT_ELEMENTWISE_ALONE                                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            uint8_t c = condition[i];                                                                                  \
            TYPE a = left[i], b = right[i];                                                                            \
            y[i] = (expression);                                                                                       \
        }                                                                                                              \
    }
#define LOOP_CLIP(name, expression)                                                                                    \
    static void name(void *to, const void *const *from, const real *bound, int64_t n)                                  \
    {                                                                                                                  \
        const real *in = from[0], low = bound[0], high = bound[1];                                                     \
        real *y = to;                                                                                                  \
        HT_ELEMENTWISE_ALONE                                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            real x = in[i];                                                                                            \
            y[i] = (expression);                                                                                       \
        }                                                                                                              \
    }

#define LOOPS_FLOAT1(name, expression, integers) LOOP1(name##_reals, real, real, expression) HT_CHAIN1(name, expression)
#define LOOPS_FLOAT2(name, expression, integers) LOOP2(name##_reals, real, real, expression) HT_CHAIN2(name, expression)
#define LOOPS_NUMBER1(name, expression, integers)                                                                      \
    LOOPS_FLOAT1(name, expression, ) LOOP1(name##_ints, int64_t, int64_t, integers)
#define LOOPS_NUMBER2(name, expression, integers)                                                                      \
    LOOPS_FLOAT2(name, expression, ) LOOP2(name##_ints, int64_t, int64_t, integers)
#define LOOPS_COMPARE(name, expression, integers)                                                                      \
    LOOP2(name##_reals, real, uint8_t, expression)                                                                     \
    LOOP2(name##_ints, int64_t, uint8_t, expression)                                                                   \
    HT_CHAIN2(name, expression)
#define LOOPS_LOGIC1(name, expression, integers)                                                                       \
    LOOP1(name##_bytes, uint8_t, uint8_t, expression) HT_CHAIN1(name, expression)
#define LOOPS_LOGIC2(name, expression, integers)                                                                       \
    LOOP2(name##_bytes, uint8_t, uint8_t, expression) HT_CHAIN2(name, expression)
#define LOOPS_SELECT(name, expression, integers)                                                                       \
    LOOP_SELECT(name##_reals, real, expression)                                                                        \
    LOOP_SELECT(name##_ints, int64_t, integers)                                                                        \
    HT_CHAIN_SELECT(name, expression)
#define LOOPS_CLIP(name, expression, integers) LOOP_CLIP(name##_reals, expression) HT_CHAIN1(name, expression)
#define LOOPS_CAST(name, expression, integers)                                                                         \
    LOOP1(name##_reals, real, real, expression) LOOP1(name##_ints, int64_t, int64_t, integers)

/* ---- from and to the lanes ---- */

typedef union chunk {
    real reals[CHUNK];
    int64_t ints[CHUNK];
    uint8_t bytes[CHUNK];
} chunk;

static bool is_native(ht_dtype dtype, lane kind)
{
    if (kind == REAL) return dtype == HT_REAL_DTYPE;
    return dtype == (kind == INT ? HT_I64 : HT_BOOL);
}

/* Elements of one type into an array of another; v stands for an element. */
#define COPY(TO, to, FROM, from, value)                                                                                \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        FROM v = ((const FROM *)(from))[i];                                                                            \
        ((TO *)(to))[i] = (TO)(value);                                                                                 \
    }

static void load_ints(int64_t *to, const char *from, ht_dtype dtype, int64_t n)
{
    switch (dtype) {
    case HT_I64: COPY(int64_t, to, int64_t, from, v) break;
    case HT_I32: COPY(int64_t, to, int32_t, from, v) break;
    case HT_I8: COPY(int64_t, to, int8_t, from, v) break;
    case HT_U8: COPY(int64_t, to, uint8_t, from, v) break;
    default: COPY(int64_t, to, uint8_t, from, v != 0) break; /* bool */
    }
}

/* n elements of an array as those of a lane. */
static void load(void *to, lane kind, const void *from, ht_dtype dtype, int64_t n)
{
    if (kind == INT)
        load_ints(to, from, dtype, n);
    else if (kind == BYTE)
        COPY(uint8_t, to, uint8_t, from, v)
    else if (dtype == HT_BOOL)
        COPY(real, to, uint8_t, from, v != 0)
    else
        ht_load(to, from, dtype, 0, n);
}

/* Brings integers to the ends of the type. */
static void saturate(ht_dtype dtype, int64_t *x, int64_t n)
{
    int64_t low = dtype == HT_I8 ? INT8_MIN : dtype == HT_U8 ? 0 : INT32_MIN;
    int64_t high = dtype == HT_I8 ? INT8_MAX : dtype == HT_U8 ? UINT8_MAX : INT32_MAX;
    if (dtype != HT_I8 && dtype != HT_U8 && dtype != HT_I32) return;
    for (int64_t i = 0; i < n; i++) x[i] = x[i] < low ? low : x[i] > high ? high : x[i];
}

static void save_ints(void *to, ht_dtype dtype, const int64_t *from, int64_t n)
{
    switch (dtype) {
    case HT_I64: COPY(int64_t, to, int64_t, from, v) break;
    case HT_I32: COPY(int32_t, to, int64_t, from, (uint64_t)v) break;
    case HT_I8: COPY(int8_t, to, int64_t, from, (uint64_t)v) break;
    case HT_U8: COPY(uint8_t, to, int64_t, from, (uint64_t)v) break;
    case HT_BOOL: COPY(uint8_t, to, int64_t, from, v != 0) break;
    case HT_F32: COPY(float, to, int64_t, from, v) break;
    case HT_F64: COPY(double, to, int64_t, from, v) break;
    default:
        for (int64_t i = 0; i < n; i++) ht_store_f64(to, dtype, i, (double)from[i]);
    }
}

/* n elements of a lane into an array. */
static void save(void *to, ht_dtype dtype, lane kind, const void *from, int64_t n)
{
    if (kind == INT)
        save_ints(to, dtype, from, n);
    else if (kind == BYTE)
        COPY(uint8_t, to, uint8_t, from, v)
    else
        ht_save(to, dtype, 0, from, n);
}

/* ---- a span ---- */

static const void *lane_view(const ht_span_args *s, size_t input, lane kind, int64_t at, int64_t n, chunk *staged)
{
    ht_dtype dtype = s->call->in[input]->dtype;
    const char *from = (const char *)s->in[input] + at * (int64_t)ht_dtype_bytes(dtype);
    if (is_native(dtype, kind)) return from;
    load(staged, kind, from, dtype, n);
    return staged;
}

/* A chunk is read whole before it is written. */
static void run_chunk(const ht_span_args *s, const chosen *c, int64_t at, int64_t n)
{
    const loop *l = c->loop;
    chunk staged[INPUTS], result;
    const void *from[INPUTS];
    ht_dtype dtype = s->call->out[0]->dtype;
    char *to = (char *)s->out[0] + at * (int64_t)ht_dtype_bytes(dtype);
    for (size_t i = 0; i < s->call->n_in; i++) from[i] = lane_view(s, i, l->in[i], at, n, &staged[i]);
    bool saturates = l->saturate && l->out == INT;
    if (is_native(dtype, l->out) && !saturates) {
        l->run(to, from, c->bound, n);
        return;
    }
    if (!l->same || saturates) {
        l->run(&result, from, c->bound, n);
        from[0] = &result;
    }
    if (saturates) saturate(dtype, result.ints, n);
    save(to, dtype, l->out, from[0], n);
}

static void span(const ht_span_args *s)
{
    const chosen *c = s->constants;
    if (c->native) {
        c->loop->run(s->out[0], s->in, c->bound, s->n);
        return;
    }
    for (int64_t at = 0; at < s->n; at += CHUNK) run_chunk(s, c, at, ht_min_i64(CHUNK, s->n - at));
}

/* ---- the rows ---- */

static void begin(const ht_span_args *whole, const loop *l, void *constants)
{
    const ht_call *call = whole->call;
    chosen c = {.loop = l, .native = is_native(call->out[0]->dtype, l->out) && !l->saturate};
    for (size_t i = 0; i < call->n_in; i++) c.native &= is_native(call->in[i]->dtype, l->in[i]);
    memcpy(constants, &c, sizeof c);
}

/* Of two loops, by the last input: the first of a select is its condition. */
static void begin_number(const ht_span_args *whole, const loop *reals, const loop *ints, void *constants)
{
    ht_dtype dtype = whole->call->in[whole->call->n_in - 1]->dtype;
    begin(whole, ht_dtype_is_float(dtype) ? reals : ints, constants);
}

/* Integers go through int64_t, since a float would round them before the result's own rounding does; those of eight
 * bits fit. */
static void begin_cast(const ht_span_args *whole, const loop *reals, const loop *ints, void *constants)
{
    ht_dtype from = whole->call->in[0]->dtype, to = whole->call->out[0]->dtype;
    bool exact = ht_dtype_is_float(from) || (ht_dtype_bytes(from) == 1 && ht_dtype_is_float(to));
    begin(whole, exact ? reals : ints, constants);
}

static void clip_bounds(const ht_call *call, double *bound)
{
    bound[0] = ht_call_float(call, "low");
    bound[1] = ht_call_float(call, "high");
}

static void begin_clip(const ht_span_args *whole, const loop *reals, void *constants)
{
    begin(whole, reals, constants);
    chosen *c = constants;
    double bound[2];
    clip_bounds(whole->call, bound);
    c->bound[0] = (real)bound[0];
    c->bound[1] = (real)bound[1];
}

#define BEGIN(name, ...)                                                                                               \
    static void name##_begin(const ht_span_args *whole, void *constants)                                               \
    {                                                                                                                  \
        __VA_ARGS__;                                                                                                   \
    }
#define ONE_LOOP(name, loop_, kind)                                                                                    \
    static const loop name##_loop = {.run = loop_, .in = {kind, kind}, .out = kind};                                   \
    BEGIN(name, begin(whole, &name##_loop, constants))
#define TWO_LOOPS(name, chooser, first, real_out, int_out, is_cast)                                                    \
    static const loop name##_real_loop = {                                                                             \
        .run = name##_reals, .in = {first(REAL), REAL, REAL}, .out = real_out, .same = is_cast};                       \
    static const loop name##_int_loop = {                                                                              \
        .run = name##_ints, .in = {first(INT), INT, INT}, .out = int_out, .saturate = is_cast};                        \
    BEGIN(name, chooser(whole, &name##_real_loop, &name##_int_loop, constants))
#define SAME(kind)      kind
#define CONDITION(kind) BYTE

#define CHAIN(name, forward_, reverse_, bounds_)                                                                       \
    static const ht_chain_row name##_chain_row = {&HT_K(ht_chain), forward_, reverse_, bounds_};
#define CHAIN_ONE(name) CHAIN(name, (ht_chain_step)HT_RUN(name##_chain), NULL, NULL)
#define CHAIN_TWO(name)                                                                                                \
    CHAIN(name, (ht_chain_step)HT_RUN(name##_chain), (ht_chain_step)HT_RUN(name##_chain_reverse), NULL)

#define BEGIN_FLOAT1(name)  ONE_LOOP(name, name##_reals, REAL) CHAIN_ONE(name)
#define BEGIN_FLOAT2(name)  ONE_LOOP(name, name##_reals, REAL) CHAIN_TWO(name)
#define BEGIN_LOGIC1(name)  ONE_LOOP(name, name##_bytes, BYTE) CHAIN_ONE(name)
#define BEGIN_LOGIC2(name)  ONE_LOOP(name, name##_bytes, BYTE) CHAIN_TWO(name)
#define BEGIN_NUMBER1(name) TWO_LOOPS(name, begin_number, SAME, REAL, INT, false) CHAIN_ONE(name)
#define BEGIN_NUMBER2(name) TWO_LOOPS(name, begin_number, SAME, REAL, INT, false) CHAIN_TWO(name)
#define BEGIN_COMPARE(name) TWO_LOOPS(name, begin_number, SAME, BYTE, BYTE, false) CHAIN_TWO(name)
#define BEGIN_SELECT(name)  TWO_LOOPS(name, begin_number, CONDITION, REAL, INT, false) CHAIN_TWO(name)
#define BEGIN_CAST(name)    TWO_LOOPS(name, begin_cast, SAME, REAL, INT, true) CHAIN(name, NULL, NULL, NULL)
#define BEGIN_CLIP(name)                                                                                               \
    static const loop name##_loop = {.run = name##_reals, .in = {REAL}, .out = REAL};                                  \
    BEGIN(name, begin_clip(whole, &name##_loop, constants))                                                            \
    CHAIN(name, (ht_chain_step)HT_RUN(name##_chain), NULL, clip_bounds)

#define EACH(name)                                                                                                     \
    static const ht_elementwise name##_elementwise = {                                                                 \
        .begin = HT_RUN(name##_begin), .span = HT_RUN(span), .chain = &name##_chain_row};                              \
    static ht_status name##_run(const ht_launch *launch)                                                               \
    {                                                                                                                  \
        ht_elementwise_launch(launch, &name##_elementwise);                                                            \
        return HT_OK;                                                                                                  \
    }

#define HT_POINT(name, kind, expression, integers, ...)                                                                \
    LOOPS_##kind(name, expression, integers) BEGIN_##kind(name) EACH(name)
#define HT_POINT_BOOL(name, kind, expression, ...) LOOPS_##kind(name, expression, ) BEGIN_##kind(name) EACH(name)
#include "op/pointwise.def"
#undef HT_POINT
#undef HT_POINT_BOOL

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason || ht_type_dense(call->out[0]) ? reason : "the result has gaps"; /* any order will do */
}

#define HT_POINT(id, ...)                                                                                              \
    {.size = sizeof(ht_kernel),                                                                                        \
     .op = #id,                                                                                                        \
     .name = #id "." HT_STR(HT_REAL_NAME) "." HT_STR(HT_ISA_NAME),                                                     \
     .isa = HT_ISA_ID,                                                                                                 \
     .can = can,                                                                                                       \
     .run = HT_RUN(id##_run),                                                                                          \
     .elementwise = &id##_elementwise},
#define HT_POINT_BOOL(id, ...) HT_POINT(id)
const ht_kernel HT_K(ht_pointwise)[] = {
#include "op/pointwise.def"
};
const size_t HT_K(ht_pointwise_count) = sizeof HT_K(ht_pointwise) / sizeof HT_K(ht_pointwise)[0];
