/* y[i] = expression(x[i] …), one kernel for each row of pointwise.def.  Any types, any strides (0 for an expanded
 * axis). Numerics: real inside, one rounding; integers in int64_t, the result wraps (a cast saturates).  Threads: tiles
 * of elements.  Traffic: each operand once.  Operands that are row-major arrays of `real` are worked on where they lie;
 * the others pass through small arrays on the stack.  Bound: bandwidth, for the functions compute. */
#include "kernel/cpu.h"
#include "op/op.h"

enum {
    GRAIN = 16384,  /* elements of a tile for the thread pool */
    CHUNK = 1024,   /* elements that are staged at once */
    LONG_ROW = 128, /* rows at least this long are taken one by one, so that they need not be staged */
    INPUTS = 3
};

/* What the elements of an operand are inside a loop: real, int64_t, or a byte that is zero or not. */
typedef enum lane { REAL, INT, BYTE } lane;

typedef struct loop {
    void (*run)(void *to, const void *const *from, const real *bound, int64_t n);
    lane in[INPUTS], out;
    bool saturate; /* integers that leave the type: to its end, or around it */
} loop;

/* ---- one loop per row and lane ---- */

#define LOOP1(name, FROM, TO, expression)                                                                              \
    static void name(void *to, const void *const *from, const real *bound, int64_t n)                                  \
    {                                                                                                                  \
        (void)bound;                                                                                                   \
        const FROM *in = from[0];                                                                                      \
        TO *y = to;                                                                                                    \
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
        for (int64_t i = 0; i < n; i++) {                                                                              \
            real x = in[i];                                                                                            \
            y[i] = (expression);                                                                                       \
        }                                                                                                              \
    }

#define LOOPS_FLOAT1(name, expression, integers) LOOP1(name##_reals, real, real, expression)
#define LOOPS_FLOAT2(name, expression, integers) LOOP2(name##_reals, real, real, expression)
#define LOOPS_NUMBER1(name, expression, integers)                                                                      \
    LOOPS_FLOAT1(name, expression, ) LOOP1(name##_ints, int64_t, int64_t, integers)
#define LOOPS_NUMBER2(name, expression, integers)                                                                      \
    LOOPS_FLOAT2(name, expression, ) LOOP2(name##_ints, int64_t, int64_t, integers)
#define LOOPS_COMPARE(name, expression, integers)                                                                      \
    LOOP2(name##_reals, real, uint8_t, expression) LOOP2(name##_ints, int64_t, uint8_t, expression)
#define LOOPS_LOGIC1(name, expression, integers) LOOP1(name##_bytes, uint8_t, uint8_t, expression)
#define LOOPS_LOGIC2(name, expression, integers) LOOP2(name##_bytes, uint8_t, uint8_t, expression)
#define LOOPS_SELECT(name, expression, integers)                                                                       \
    LOOP_SELECT(name##_reals, real, expression) LOOP_SELECT(name##_ints, int64_t, integers)
#define LOOPS_CLIP(name, expression, integers) LOOP_CLIP(name##_reals, expression)
#define LOOPS_CAST(name, expression, integers) LOOPS_NUMBER1(name, expression, integers)

/* ---- a launch, with its axes merged where the strides of all operands allow ---- */

typedef struct operand {
    char *first;
    ht_dtype dtype;
    lane lane;
    bool native; /* its elements are those of the lane */
    bool even;   /* one step leads from any element to the next: a row-major array, or one number everywhere */
    int64_t stride[HT_MAX_RANK];
} operand;

typedef struct job {
    const loop *loop;
    int n_in, rank;
    int64_t dim[HT_MAX_RANK];
    operand in[INPUTS], out;
    real bound[2];
    int64_t elems;
} job;

typedef union chunk {
    real reals[CHUNK];
    int64_t ints[CHUNK];
    uint8_t bytes[CHUNK];
} chunk;

static const size_t lane_bytes[] = {sizeof(real), sizeof(int64_t), 1};

static bool is_native(ht_dtype dtype, lane kind)
{
    if (kind == REAL) return dtype == (sizeof(real) == sizeof(double) ? HT_F64 : HT_F32);
    return dtype == (kind == INT ? HT_I64 : HT_BOOL);
}

static operand operand_of(const ht_type *type, const void *first, lane kind)
{
    operand o = {.first = (char *)first, .dtype = type->dtype, .lane = kind, .native = is_native(type->dtype, kind)};
    return o;
}

/* Can axis d of every operand be walked as part of the merged axis `last`, which lies outside it? */
static bool merges(const job *j, const ht_launch *launch, int last, int d)
{
    const ht_call *call = launch->call;
    int64_t size = call->out[0]->dim[d];
    for (int i = 0; i < j->n_in; i++)
        if (j->in[i].stride[last] != call->in[i]->stride[d] * size) return false;
    return j->out.stride[last] == call->out[0]->stride[d] * size;
}

static bool is_even(const job *j, const operand *o)
{
    for (int d = 0; d + 1 < j->rank; d++)
        if (o->stride[d] != o->stride[d + 1] * j->dim[d + 1]) return false;
    return true;
}

static void set_axes(job *j, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    const ht_type *out = call->out[0];
    for (int d = 0; d < out->rank; d++) {
        if (out->dim[d] == 1) continue;
        int at = j->rank - 1;
        if (j->rank > 0 && merges(j, launch, at, d)) {
            j->dim[at] *= out->dim[d];
        } else {
            at = j->rank++;
            j->dim[at] = out->dim[d];
        }
        for (int i = 0; i < j->n_in; i++) j->in[i].stride[at] = call->in[i]->stride[d];
        j->out.stride[at] = out->stride[d];
    }
    if (j->rank == 0) { /* a single element; its strides are 0 */
        j->rank = 1;
        j->dim[0] = 1;
    }
    for (int i = 0; i < j->n_in; i++) j->in[i].even = is_even(j, &j->in[i]);
    j->out.even = is_even(j, &j->out);
}

/* ---- from and to the lanes ---- */

/* Elements of one type into an array of another, with strides; v stands for an element. */
#define COPY(TO, to, to_stride, FROM, from, from_stride, value)                                                        \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        FROM v = ((const FROM *)(from))[i * (from_stride)];                                                            \
        ((TO *)(to))[i * (to_stride)] = (TO)(value);                                                                   \
    }

static void load_ints(int64_t *to, const operand *o, int64_t start, int64_t stride, int64_t n)
{
    const char *from = o->first + start * (int64_t)ht_dtype_bytes(o->dtype);
    switch (o->dtype) {
    case HT_I64: COPY(int64_t, to, 1, int64_t, from, stride, v) break;
    case HT_I32: COPY(int64_t, to, 1, int32_t, from, stride, v) break;
    case HT_I8: COPY(int64_t, to, 1, int8_t, from, stride, v) break;
    case HT_U8: COPY(int64_t, to, 1, uint8_t, from, stride, v) break;
    default: COPY(int64_t, to, 1, uint8_t, from, stride, v != 0) break; /* bool */
    }
}

/* Numbers of this build and masks are common and come in short runs: no detour for them. */
static void load_reals(real *to, const operand *o, int64_t start, int64_t stride, int64_t n)
{
    if (o->native)
        COPY(real, to, 1, real, (const real *)o->first + start, stride, v)
    else if (o->dtype == HT_BOOL)
        COPY(real, to, 1, uint8_t, o->first + start, stride, v != 0)
    else
        ht_load_strided(to, o->first, o->dtype, start, stride, n);
}

/* n elements of an operand from element `start`, into the chunk from place `at`. */
static void load(chunk *to, int64_t at, const operand *o, int64_t start, int64_t stride, int64_t n)
{
    int64_t distinct = stride == 0 ? 1 : n;
    if (o->lane == REAL) {
        load_reals(to->reals + at, o, start, stride, distinct);
        for (int64_t i = distinct; i < n; i++) to->reals[at + i] = to->reals[at];
    } else if (o->lane == INT) {
        load_ints(to->ints + at, o, start, stride, distinct);
        for (int64_t i = distinct; i < n; i++) to->ints[at + i] = to->ints[at];
    } else {
        COPY(uint8_t, to->bytes + at, 1, uint8_t, o->first + start, stride, v)
    }
}

/* Brings integers to the ends of the type. */
static void saturate(ht_dtype dtype, int64_t *x, int64_t n)
{
    int64_t low = dtype == HT_I8 ? INT8_MIN : dtype == HT_U8 ? 0 : INT32_MIN;
    int64_t high = dtype == HT_I8 ? INT8_MAX : dtype == HT_U8 ? UINT8_MAX : INT32_MAX;
    if (dtype != HT_I8 && dtype != HT_U8 && dtype != HT_I32) return;
    for (int64_t i = 0; i < n; i++) x[i] = x[i] < low ? low : x[i] > high ? high : x[i];
}

static void save_ints(const operand *o, int64_t start, int64_t stride, const int64_t *from, int64_t n)
{
    char *to = o->first + start * (int64_t)ht_dtype_bytes(o->dtype);
    switch (o->dtype) {
    case HT_I64: COPY(int64_t, to, stride, int64_t, from, 1, v) break;
    case HT_I32: COPY(int32_t, to, stride, int64_t, from, 1, (uint64_t)v) break;
    case HT_I8: COPY(int8_t, to, stride, int64_t, from, 1, (uint64_t)v) break;
    case HT_U8: COPY(uint8_t, to, stride, int64_t, from, 1, (uint64_t)v) break;
    case HT_BOOL: COPY(uint8_t, to, stride, int64_t, from, 1, v != 0) break;
    case HT_F32: COPY(float, to, stride, int64_t, from, 1, v) break;
    case HT_F64: COPY(double, to, stride, int64_t, from, 1, v) break;
    default:
        for (int64_t i = 0; i < n; i++) ht_store_f64(to, o->dtype, i * stride, (double)from[i]);
    }
}

/* n elements of the chunk from place `at`, into the result from element `start`. */
static void save(const operand *o, const chunk *from, int64_t at, int64_t start, int64_t stride, int64_t n)
{
    if (o->lane == INT) {
        save_ints(o, start, stride, from->ints + at, n);
    } else if (o->lane == BYTE) {
        COPY(uint8_t, o->first + start, stride, uint8_t, from->bytes + at, 1, v)
    } else if (stride == 1) {
        ht_save(o->first, o->dtype, start, from->reals + at, n);
    } else {
        for (int64_t i = 0; i < n; i++) ht_save1(o->first, o->dtype, start + i * stride, from->reals[at + i]);
    }
}

/* ---- walking ---- */

/* Where a row of the merged shape starts in an operand. */
typedef struct cursor {
    int64_t index[HT_MAX_RANK];
    int64_t offset;
} cursor;

static cursor cursor_at(const job *j, const operand *o, int64_t row)
{
    cursor c;
    c.offset = 0;
    for (int d = j->rank - 2; d >= 0; d--) {
        c.index[d] = row % j->dim[d];
        c.offset += c.index[d] * o->stride[d];
        row /= j->dim[d];
    }
    return c;
}

static void cursor_next(const job *j, const operand *o, cursor *c)
{
    for (int d = j->rank - 2; d >= 0; d--) {
        c->offset += o->stride[d];
        if (++c->index[d] < j->dim[d]) return;
        c->offset -= j->dim[d] * o->stride[d];
        c->index[d] = 0;
    }
}

/* The next n elements where the loop can read or write them: in place if they lie together, else NULL. */
static void *in_place(const job *j, const operand *o, int64_t at, int64_t n, int64_t left)
{
    int64_t row = j->dim[j->rank - 1], stride = o->stride[j->rank - 1];
    if (!o->native || (stride != 1 && n > 1) || !(o->even || n <= left)) return NULL;
    int64_t element = o->even ? at * stride : cursor_at(j, o, at / row).offset + (row - left) * stride;
    return o->first + element * (int64_t)lane_bytes[o->lane];
}

/* Between an operand and a chunk: to the result, from the others. */
static void stage(const job *j, const operand *o, int64_t at, int64_t n, int64_t left, chunk *staged)
{
    int64_t row = j->dim[j->rank - 1], stride = o->stride[j->rank - 1];
    int64_t column = o->even ? at : row - left, run = o->even ? n : ht_min_i64(n, left);
    cursor c = {.offset = 0};
    if (!o->even) c = cursor_at(j, o, at / row);
    for (int64_t done = 0; done < n; done += run, run = ht_min_i64(n - done, row), column = 0) {
        if (done > 0) cursor_next(j, o, &c);
        if (o == &j->out)
            save(o, staged, done, c.offset + column * stride, stride, run);
        else
            load(staged, done, o, c.offset + column * stride, stride, run);
    }
}

static void run_range(const job *j, int64_t start, int64_t end)
{
    chunk staged[INPUTS + 1];
    const void *from[INPUTS];
    int64_t row = j->dim[j->rank - 1];
    for (int64_t at = start, n; at < end; at += n) {
        int64_t left = row - at % row;
        n = ht_min_i64(CHUNK, end - at);
        if (row >= LONG_ROW) n = ht_min_i64(n, left);
        for (int i = 0; i < j->n_in; i++) {
            from[i] = in_place(j, &j->in[i], at, n, left);
            if (from[i]) continue;
            stage(j, &j->in[i], at, n, left, &staged[i]);
            from[i] = &staged[i];
        }
        void *to = in_place(j, &j->out, at, n, left);
        j->loop->run(to ? to : &staged[INPUTS], from, j->bound, n);
        if (to) continue;
        if (j->loop->saturate && j->out.lane == INT) saturate(j->out.dtype, staged[INPUTS].ints, n);
        stage(j, &j->out, at, n, left, &staged[INPUTS]);
    }
}

static void run_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    run_range(j, tile * GRAIN, ht_min_i64(j->elems, (tile + 1) * GRAIN));
}

/* ---- operands that are all row-major arrays of their lanes: no chunks ---- */

static bool is_plain(const ht_call *call, const loop *l)
{
    if (!is_native(call->out[0]->dtype, l->out) || !ht_type_contiguous(call->out[0])) return false;
    for (size_t i = 0; i < call->n_in; i++)
        if (!is_native(call->in[i]->dtype, l->in[i]) || !ht_type_contiguous(call->in[i])) return false;
    return true;
}

static void run_plain_tile(void *arg, int64_t tile)
{
    const job *j = arg;
    int64_t start = tile * GRAIN, n = ht_min_i64(j->elems - start, GRAIN);
    const void *from[INPUTS];
    for (int i = 0; i < j->n_in; i++) from[i] = j->in[i].first + start * (int64_t)lane_bytes[j->in[i].lane];
    j->loop->run(j->out.first + start * (int64_t)lane_bytes[j->out.lane], from, j->bound, n);
}

static void run(const ht_launch *launch, const loop *l, const real *bound)
{
    const ht_call *call = launch->call;
    int64_t elems = ht_type_elems(call->out[0]);
    bool plain = is_plain(call, l);
    if (elems == 0) return;
    if (plain && elems <= GRAIN) {
        l->run(launch->out[0], launch->in, bound, elems);
        return;
    }
    job j = {.loop = l, .n_in = (int)call->n_in, .bound = {bound[0], bound[1]}, .elems = elems};
    for (int i = 0; i < j.n_in; i++) j.in[i] = operand_of(call->in[i], launch->in[i], l->in[i]);
    j.out = operand_of(call->out[0], launch->out[0], l->out);
    if (!plain) set_axes(&j, launch);
    ht_parallel(launch->pool, ht_tiles(elems, GRAIN), plain ? run_plain_tile : run_tile, &j);
}

/* ---- the rows ---- */

static const real no_bound[2];

/* Of two loops, by the last input: the first of a select is its condition. */
static void run_number(const ht_launch *launch, const loop *reals, const loop *ints)
{
    ht_dtype dtype = launch->call->in[launch->call->n_in - 1]->dtype;
    run(launch, ht_dtype_is_float(dtype) ? reals : ints, no_bound);
}

/* Integers go through int64_t, since a float would round them before the result's own rounding does; those of eight
 * bits fit. */
static void run_cast(const ht_launch *launch, const loop *reals, const loop *ints)
{
    ht_dtype from = launch->call->in[0]->dtype, to = launch->call->out[0]->dtype;
    bool exact = ht_dtype_is_float(from) || (ht_dtype_bytes(from) == 1 && ht_dtype_is_float(to));
    run(launch, exact ? reals : ints, no_bound);
}

static void run_clip(const ht_launch *launch, const loop *reals)
{
    real bound[2] = {(real)ht_call_float(launch->call, "low"), (real)ht_call_float(launch->call, "high")};
    run(launch, reals, bound);
}

#define RUN(name, ...)                                                                                                 \
    static void name##_run(const ht_launch *launch)                                                                    \
    {                                                                                                                  \
        __VA_ARGS__;                                                                                                   \
    }
#define ONE_LOOP(name, loop_, kind)                                                                                    \
    static const loop name##_loop = {.run = loop_, .in = {kind, kind}, .out = kind};                                   \
    RUN(name, run(launch, &name##_loop, no_bound))
#define TWO_LOOPS(name, chooser, first, real_out, int_out, ends)                                                       \
    static const loop name##_real_loop = {.run = name##_reals, .in = {first(REAL), REAL, REAL}, .out = real_out};      \
    static const loop name##_int_loop = {                                                                              \
        .run = name##_ints, .in = {first(INT), INT, INT}, .out = int_out, .saturate = ends};                           \
    RUN(name, chooser(launch, &name##_real_loop, &name##_int_loop))
#define SAME(kind)        kind
#define CONDITION(kind)   BYTE
#define RUN_FLOAT1(name)  ONE_LOOP(name, name##_reals, REAL)
#define RUN_FLOAT2(name)  ONE_LOOP(name, name##_reals, REAL)
#define RUN_LOGIC1(name)  ONE_LOOP(name, name##_bytes, BYTE)
#define RUN_LOGIC2(name)  ONE_LOOP(name, name##_bytes, BYTE)
#define RUN_NUMBER1(name) TWO_LOOPS(name, run_number, SAME, REAL, INT, false)
#define RUN_NUMBER2(name) TWO_LOOPS(name, run_number, SAME, REAL, INT, false)
#define RUN_COMPARE(name) TWO_LOOPS(name, run_number, SAME, BYTE, BYTE, false)
#define RUN_SELECT(name)  TWO_LOOPS(name, run_number, CONDITION, REAL, INT, false)
#define RUN_CAST(name)    TWO_LOOPS(name, run_cast, SAME, REAL, INT, true)
#define RUN_CLIP(name)                                                                                                 \
    static const loop name##_loop = {.run = name##_reals, .in = {REAL}, .out = REAL};                                  \
    RUN(name, run_clip(launch, &name##_loop))

#define HT_POINT(name, kind, expression, integers, ...) LOOPS_##kind(name, expression, integers) RUN_##kind(name)
#define HT_POINT_BOOL(name, kind, expression, ...)      LOOPS_##kind(name, expression, ) RUN_##kind(name)
#include "op/pointwise.def"
#undef HT_POINT
#undef HT_POINT_BOOL

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_refuse_real(call);
}

#define HT_POINT(id, ...)                                                                                              \
    {.size = sizeof(ht_kernel),                                                                                        \
     .op = #id,                                                                                                        \
     .name = #id "." HT_STR(HT_REAL_NAME) "." HT_STR(HT_ISA_NAME),                                                     \
     .isa = HT_ISA_ID,                                                                                                 \
     .can = can,                                                                                                       \
     .run = id##_run},
#define HT_POINT_BOOL(id, ...) HT_POINT(id)
const ht_kernel HT_K(ht_pointwise)[] = {
#include "op/pointwise.def"
};
const size_t HT_K(ht_pointwise_count) = sizeof HT_K(ht_pointwise) / sizeof HT_K(ht_pointwise)[0];
