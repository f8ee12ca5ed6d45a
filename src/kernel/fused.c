#include <string.h>

#include "kernel/kernel.h"

enum {
    SCRATCH_BYTES = 64 << 10,
    STRETCH_MOST = 1024,    /* elements: with a handful of f32 operands the first cache holds them */
    STRETCH_STEP = 64,      /* stretches are multiples of it, so that they start at whole lines */
    LONG_ROW = 128,         /* rows at least this long are taken one by one, so that they need not be copied */
    GRAIN = 16384,          /* elements of a tile for the thread pool, at least */
    AHEAD_BYTES = 1 << 20,  /* operands from here on are fetched a stretch ahead */
    STREAM_BYTES = 16 << 20 /* about half of a large L3: below it the next kernel finds the result there */
};

typedef struct work {
    const ht_fused *f;
    const ht_launch *launch;
    ht_way way[HT_FUSED_OPERANDS]; /* of this launch: a result that lies over an input is not streamed */
    char *constants;               /* by step */
} work;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t bytes_of(const ht_fused_operand *o)
{
    return (int64_t)ht_dtype_bytes(o->type->dtype);
}

/* ---- settling: axes, ways, scratch ---- */

/* Can axis d of every input be walked as part of the merged axis `last`, which lies outside it? */
static bool merges(const ht_fused *f, int last, int d, int64_t size)
{
    for (int i = 0; i < f->n_in; i++) {
        const ht_fused_operand *o = &f->operands[i];
        if (o->way != HT_WAY_WHOLE && o->stride[last] != o->type->stride[d] * size) return false;
    }
    return true;
}

static void merge_axes(ht_fused *f, const ht_type *shape)
{
    f->rank = 0;
    for (int d = 0; d < shape->rank; d++) {
        if (shape->dim[d] == 1) continue;
        int at = f->rank - 1;
        if (f->rank > 0 && merges(f, at, d, shape->dim[d])) {
            f->dim[at] *= shape->dim[d];
        } else {
            at = f->rank++;
            f->dim[at] = shape->dim[d];
        }
        for (int i = 0; i < f->n_in; i++)
            if (f->operands[i].way != HT_WAY_WHOLE) f->operands[i].stride[at] = f->operands[i].type->stride[d];
    }
    if (f->rank > 0) return;
    f->rank = 1; /* a single element: any stride will do */
    f->dim[0] = 1;
    for (int i = 0; i < f->n_in; i++) f->operands[i].stride[0] = 1;
}

static bool is_flat(const ht_fused *f, const ht_fused_operand *o)
{
    int64_t step = 1;
    for (int d = f->rank - 1; d >= 0; step *= f->dim[d--])
        if (o->stride[d] != step) return false;
    return true;
}

/* Every stretch sees the same elements: nothing moves but, where a stretch is whole rows, along the row. */
static bool is_repeated(const ht_fused *f, const ht_fused_operand *o)
{
    for (int d = 0; d < f->rank; d++)
        if (o->stride[d] != 0 && (f->by_rows || f->rank == 1 || d < f->rank - 1)) return false;
    return true;
}

static ht_way way_of(const ht_fused *f, const ht_fused_operand *o)
{
    if (is_flat(f, o)) return HT_WAY_FLAT;
    if (is_repeated(f, o)) return HT_WAY_REPEATED;
    return f->by_rows && o->stride[f->rank - 1] == 1 ? HT_WAY_LINE : HT_WAY_GATHERED;
}

/* What lies between gets a place from the step that makes it to the last that reads it; returns bytes per element. */
static int64_t place_between(ht_fused *f, int64_t first)
{
    int last[HT_FUSED_OPERANDS] = {0}, holder[HT_FUSED_OPERANDS];
    int64_t wide = 1;
    int slots = 0, between = f->n_in + f->n_out;
    for (int s = 0; s < f->step_count; s++) {
        const ht_call *call = f->steps[s].call;
        for (size_t i = 0; i < call->n_in + call->n_out; i++) last[f->steps[s].operand[i]] = s;
    }
    for (int i = between; i < between + f->n_between; i++)
        if (bytes_of(&f->operands[i]) > wide) wide = bytes_of(&f->operands[i]);
    for (int s = 0; s < f->step_count; s++) {
        const ht_fused_step *step = &f->steps[s];
        for (size_t i = step->call->n_in; i < step->call->n_in + step->call->n_out; i++) {
            int value = step->operand[i], slot = 0;
            if (value < between) continue;
            while (slot < slots && last[holder[slot]] >= s) slot++;
            if (slot == slots) slots++;
            holder[slot] = value;
            f->operands[value].way = HT_WAY_BETWEEN;
            f->operands[value].scratch = (int32_t)(first + slot * wide);
        }
    }
    return first + slots * wide;
}

static bool needs_scratch(ht_way way)
{
    return way >= HT_WAY_REPEATED;
}

void ht_fused_settle(ht_fused *f)
{
    const ht_type *shape = f->operands[f->n_in].type;
    int64_t bytes = 0;
    for (int i = 0; i < f->n_in; i++)
        f->operands[i].way = ht_type_same_shape(f->operands[i].type, shape) ? HT_WAY_FLAT : HT_WAY_WHOLE;
    f->elems = ht_type_elems(shape);
    merge_axes(f, shape);
    int64_t row = f->dim[f->rank - 1];
    f->by_rows = f->rank > 1 && row >= LONG_ROW;
    for (int i = 0; i < f->n_in + f->n_out; i++) {
        ht_fused_operand *o = &f->operands[i];
        if (i >= f->n_in)
            o->way = ht_type_bytes(o->type) >= STREAM_BYTES ? HT_WAY_STREAMED : HT_WAY_FLAT;
        else if (o->way != HT_WAY_WHOLE)
            o->way = way_of(f, o);
        if (!needs_scratch(o->way)) continue;
        o->scratch = (int32_t)bytes; /* per element, for now */
        bytes += bytes_of(o);
    }
    bytes = place_between(f, bytes);
    f->stretch = bytes ? smaller(STRETCH_MOST, SCRATCH_BYTES / bytes) / STRETCH_STEP * STRETCH_STEP : STRETCH_MOST;
    for (int i = 0; i < f->n_in + f->n_out + f->n_between; i++)
        if (needs_scratch(f->operands[i].way)) f->operands[i].scratch *= (int32_t)f->stretch;
    if (f->rank > 1 && !f->by_rows) f->stretch = f->stretch / row * row;
    f->grain = (GRAIN + f->stretch - 1) / f->stretch * f->stretch;
}

/* ---- copying elements together ---- */

#define COPY_RUN(type)                                                                                                 \
    {                                                                                                                  \
        type *y = to, one = *(const type *)from;                                                                       \
        const type *x = from;                                                                                          \
        if (stride == 0)                                                                                               \
            for (int64_t i = 0; i < n; i++) y[i] = one;                                                                \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) y[i] = x[i * stride];                                                      \
    }

static void copy_run(void *to, const void *from, int64_t bytes, int64_t stride, int64_t n)
{
    if (stride == 1)
        memcpy(to, from, (size_t)(n * bytes));
    else if (bytes == 4)
        COPY_RUN(uint32_t)
    else if (bytes == 2)
        COPY_RUN(uint16_t)
    else if (bytes == 8)
        COPY_RUN(uint64_t)
    else
        COPY_RUN(uint8_t)
}

static int64_t element_at(const ht_fused *f, const ht_fused_operand *o, int64_t index)
{
    int64_t element = 0;
    for (int d = f->rank - 1; d >= 0; index /= f->dim[d--]) element += index % f->dim[d] * o->stride[d];
    return element;
}

static void gather(const ht_fused *f, const ht_fused_operand *o, char *to, const char *from, int64_t first, int64_t n)
{
    int64_t bytes = bytes_of(o), row = f->dim[f->rank - 1], stride = o->stride[f->rank - 1];
    for (int64_t done = 0, run; done < n; done += run) {
        run = smaller(n - done, row - (first + done) % row);
        copy_run(to + done * bytes, from + element_at(f, o, first + done) * bytes, bytes, stride, run);
    }
}

/* ---- running ---- */

static char *operand_data(const work *w, int i)
{
    return (char *)(i < w->f->n_in ? w->launch->in[i] : w->launch->out[i - w->f->n_in]);
}

/* What stays where it is for a whole tile. */
static void aim_tile(const work *w, char *scratch, void **at)
{
    const ht_fused *f = w->f;
    for (int i = 0; i < f->n_in + f->n_out + f->n_between; i++) {
        const ht_fused_operand *o = &f->operands[i];
        if (needs_scratch(w->way[i])) at[i] = scratch + o->scratch;
        if (w->way[i] == HT_WAY_WHOLE) at[i] = operand_data(w, i);
        if (w->way[i] == HT_WAY_REPEATED) gather(f, o, at[i], operand_data(w, i), 0, smaller(f->stretch, f->elems));
    }
}

static void aim_stretch(const work *w, int64_t first, int64_t n, void **at)
{
    const ht_fused *f = w->f;
    for (int i = 0; i < f->n_in + f->n_out; i++) {
        const ht_fused_operand *o = &f->operands[i];
        if (w->way[i] == HT_WAY_FLAT) at[i] = operand_data(w, i) + first * bytes_of(o);
        if (w->way[i] == HT_WAY_LINE) at[i] = operand_data(w, i) + element_at(f, o, first) * bytes_of(o);
        if (w->way[i] == HT_WAY_GATHERED) gather(f, o, at[i], operand_data(w, i), first, n);
    }
}

/* The next stretch's share of large inputs, asked for while this one is worked on. */
static void look_ahead(const work *w, int64_t next, int64_t n, int step)
{
    const ht_fused *f = w->f;
    for (int i = 0; i < f->n_in; i++) {
        int64_t bytes = bytes_of(&f->operands[i]);
        if (w->way[i] != HT_WAY_FLAT || f->elems * bytes < AHEAD_BYTES) continue;
        const char *from = operand_data(w, i) + next * bytes;
        for (int64_t line = n * bytes * step / f->step_count / HT_STREAM_LINE;
             line < n * bytes * (step + 1) / f->step_count / HT_STREAM_LINE; line++)
            __builtin_prefetch(from + line * HT_STREAM_LINE);
    }
}

static void run_step(const work *w, int index, int64_t first, int64_t n, void *const *at)
{
    const ht_fused_step *step = &w->f->steps[index];
    const ht_call *call = step->call;
    const void *in[HT_STEP_OPERANDS];
    void *out[HT_STEP_OPERANDS];
    for (size_t i = 0; i < call->n_in; i++) in[i] = at[step->operand[i]];
    for (size_t i = 0; i < call->n_out; i++) out[i] = at[step->operand[call->n_in + i]];
    step->stretch(&(ht_stretch){call, first, n, in, out, w->constants + index * HT_STRETCH_CONSTANTS});
}

static void write_streamed(const work *w, int64_t first, int64_t n, void *const *at)
{
    for (int i = w->f->n_in; i < w->f->n_in + w->f->n_out; i++) {
        int64_t bytes = bytes_of(&w->f->operands[i]);
        if (w->way[i] == HT_WAY_STREAMED) ht_stream_copy(operand_data(w, i) + first * bytes, at[i], n * bytes);
    }
}

static void run_tile(void *arg, int64_t tile)
{
    const work *w = arg;
    const ht_fused *f = w->f;
    _Alignas(64) char scratch[SCRATCH_BYTES];
    void *at[HT_FUSED_OPERANDS];
    int64_t row = f->dim[f->rank - 1], end = smaller(f->elems, (tile + 1) * f->grain);
    aim_tile(w, scratch, at);
    for (int64_t first = tile * f->grain, n; first < end; first += n) {
        n = smaller(f->stretch, end - first);
        if (f->by_rows) n = smaller(n, row - first % row);
        aim_stretch(w, first, n, at);
        for (int s = 0; s < f->step_count; s++) {
            look_ahead(w, first + n, smaller(f->stretch, f->elems - first - n), s);
            run_step(w, s, first, n, at);
        }
        write_streamed(w, first, n, at);
    }
    ht_stream_end();
}

static void choose_ways(work *w)
{
    const ht_fused *f = w->f;
    for (int i = 0; i < f->n_in + f->n_out + f->n_between; i++) {
        w->way[i] = f->operands[i].way;
        if (w->way[i] != HT_WAY_STREAMED) continue;
        for (int k = 0; k < f->n_in; k++)
            if (operand_data(w, k) == operand_data(w, i)) w->way[i] = HT_WAY_FLAT;
    }
}

void ht_fused_run(const ht_fused *f, const ht_launch *launch)
{
    _Alignas(64) char constants[HT_FUSED_STEPS * HT_STRETCH_CONSTANTS];
    work w = {.f = f, .launch = launch, .constants = constants};
    if (f->elems == 0) return;
    choose_ways(&w);
    for (int s = 0; s < f->step_count; s++) {
        const ht_fused_step *step = &f->steps[s];
        const void *in[HT_STEP_OPERANDS] = {NULL};
        if (!step->begin) continue;
        for (size_t i = 0; i < step->call->n_in; i++)
            if (step->operand[i] < f->n_in) in[i] = launch->in[step->operand[i]];
        step->begin(&(ht_stretch){.call = step->call, .in = in}, constants + s * HT_STRETCH_CONSTANTS);
    }
    ht_parallel(launch->pool, (f->elems + f->grain - 1) / f->grain, run_tile, &w);
}

void ht_stretch_launch(const ht_launch *launch, void (*begin)(const ht_stretch *whole, void *constants),
                       void (*stretch)(const ht_stretch *stretch))
{
    if (launch->fused) {
        ht_fused_run(launch->fused, launch);
        return;
    }
    const ht_call *call = launch->call;
    ht_fused_operand operands[HT_STEP_OPERANDS] = {0};
    ht_fused_step step = {.call = call, .begin = begin, .stretch = stretch};
    ht_fused f = {.n_in = (int)call->n_in, .n_out = (int)call->n_out, .step_count = 1, .steps = &step};
    f.operands = operands;
    for (size_t i = 0; i < call->n_in + call->n_out; i++) {
        operands[i].type = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        step.operand[i] = (uint8_t)i;
    }
    ht_fused_settle(&f);
    ht_fused_run(&f, launch);
}
