#include <string.h>

#include "kernel/kernel.h"

enum {
    SPAN_MOST = 1024,         /* elements: with a handful of f32 operands the first cache holds them */
    CHAIN_MOST = 8192,        /* the same for a chain, which keeps what lies between in registers */
    SPAN_STEP = 64,           /* spans are multiples of it, so that they start at whole lines */
    GRAIN = 16384,            /* elements of a tile for the thread pool, at least */
    PREFETCH_BYTES = 1 << 20, /* operands from here on are fetched a span ahead */
};

typedef ht_epilogue work; /* without a product, too */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t bytes_of(const ht_fused_operand *o)
{
    return o->bytes;
}

/* ---- compile: axes, operand access, scratch ---- */

/* Can axis d of every input be walked as part of the merged axis `last`, which lies outside it? */
static bool merges(const ht_fused *f, int last, int d, int64_t size)
{
    for (int i = 0; i < f->n_in; i++) {
        const ht_fused_operand *o = &f->operands[i];
        if (o->access != HT_ACCESS_WHOLE && o->stride[last] != o->type->stride[d] * size) return false;
    }
    return true;
}

/* The axes from the outermost to the innermost, as the results lie: the elements are counted so. */
static void sort_axes(const ht_type *shape, int *axes)
{
    for (int d = 0; d < shape->rank; d++) {
        int at = d;
        for (; at > 0 && shape->stride[axes[at - 1]] < shape->stride[d]; at--) axes[at] = axes[at - 1];
        axes[at] = d;
    }
}

static void merge_axes(ht_fused *f, const ht_type *shape)
{
    int axes[HT_MAX_RANK];
    sort_axes(shape, axes);
    f->rank = 0;
    for (int i = 0; i < shape->rank; i++) {
        int d = axes[i];
        if (shape->dim[d] == 1) continue;
        int at = f->rank - 1;
        if (f->rank > 0 && merges(f, at, d, shape->dim[d])) {
            f->dim[at] *= shape->dim[d];
        } else {
            at = f->rank++;
            f->dim[at] = shape->dim[d];
        }
        for (int k = 0; k < f->n_in; k++)
            if (f->operands[k].access != HT_ACCESS_WHOLE) f->operands[k].stride[at] = f->operands[k].type->stride[d];
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

/* Does nothing move along axes [0, end)? */
static bool is_still(const ht_fused_operand *o, int end)
{
    for (int d = 0; d < end; d++)
        if (o->stride[d] != 0) return false;
    return true;
}

static ht_operand_access access_of(const ht_fused *f, const ht_fused_operand *o)
{
    if (is_flat(f, o)) return HT_ACCESS_FLAT;
    if (is_still(o, f->rank)) return HT_ACCESS_CONSTANT;
    if (f->by_rows && o->stride[f->rank - 1] == 1) return HT_ACCESS_LINE;
    if (f->by_rows && o->stride[f->rank - 1] == 0) return HT_ACCESS_ROW;
    /* A span of whole rows sees the same row again and again. */
    return f->rank > 1 && !f->by_rows && is_still(o, f->rank - 1) ? HT_ACCESS_REPEATED : HT_ACCESS_GATHERED;
}

/* What lies between gets a slot from the step that makes it to the last that reads it; returns how many there are. */
static int share_slots(const ht_fused *f, uint8_t *slot_of)
{
    int last[HT_FUSED_OPERANDS] = {0}, holder[HT_FUSED_OPERANDS], slots = 0;
    for (int s = 0; s < f->step_count; s++) {
        const ht_call *call = f->steps[s].call;
        for (size_t i = 0; i < call->n_in + call->n_out; i++) last[f->steps[s].operand[i]] = s;
    }
    for (int s = 0; s < f->step_count; s++) {
        const ht_fused_step *step = &f->steps[s];
        for (size_t i = step->call->n_in; i < step->call->n_in + step->call->n_out; i++) {
            int value = step->operand[i], slot = 0;
            if (f->operands[value].access != HT_ACCESS_BETWEEN) continue;
            while (slot < slots && last[holder[slot]] >= s) slot++;
            if (slot == slots) slots++;
            holder[slot] = value;
            slot_of[value] = (uint8_t)slot;
        }
    }
    return slots;
}

/* Is this operand's scratch as long as a span? Else it is a block of a chain, or nothing. */
static bool is_long(const ht_fused *f, ht_operand_access access)
{
    if (access == HT_ACCESS_REPEATED || access == HT_ACCESS_GATHERED) return true;
    return !f->chain && access >= HT_ACCESS_STREAMED && access < HT_ACCESS_BLOCK;
}

static bool is_block(const ht_fused *f, ht_operand_access access)
{
    return f->chain && (access == HT_ACCESS_CONSTANT || access == HT_ACCESS_ROW || access == HT_ACCESS_BETWEEN);
}

/* Blocks first (the one for conversions before all others), then what is as long as a span, which becomes as long as the scratch allows. */
static void lay_out_scratch(ht_fused *f)
{
    enum { WIDEST = 8 };
    uint8_t slot_of[HT_FUSED_OPERANDS] = {0};
    int between = f->n_in + f->n_out, slots = share_slots(f, slot_of);
    int64_t block = f->chain ? f->steps[0].elementwise->chain->build->block * WIDEST : 0, fixed = block, long_bytes = 0;
    if (f->chain) fixed += slots * block;
    if (f->fold) fixed += HT_FOLD_MOST * WIDEST;
    for (int i = 0; i < between; i++) {
        if (is_block(f, f->operands[i].access)) fixed += block;
        if (is_long(f, f->operands[i].access)) long_bytes += bytes_of(&f->operands[i]);
    }
    if (!f->chain) long_bytes += slots * WIDEST;
    f->span = f->chain ? CHAIN_MOST : SPAN_MOST;
    if (long_bytes) f->span = smaller(f->span, (HT_FUSED_SCRATCH - fixed) / long_bytes) / SPAN_STEP * SPAN_STEP;
    int64_t at = block;
    for (int i = between; i < between + f->n_between; i++)
        f->operands[i].scratch = (int32_t)(at + slot_of[i] * (f->chain ? block : f->span * WIDEST));
    at += slots * (f->chain ? block : f->span * WIDEST);
    for (int i = 0; i < between; i++) {
        f->operands[i].scratch = (int32_t)at;
        if (is_block(f, f->operands[i].access)) at += block;
        if (is_long(f, f->operands[i].access)) at += f->span * bytes_of(&f->operands[i]);
    }
    if (f->fold && f->folded >= between) f->operands[f->folded].scratch = (int32_t)at;
}

static ht_operand_access access_of_value(const ht_fused *f, int i)
{
    const ht_fused_operand *o = &f->operands[i];
    bool folded = f->fold && i == f->folded;
    if (i >= f->n_in + f->n_out && f->gemm && i == f->product) return HT_ACCESS_BLOCK;
    if (i >= f->n_in + f->n_out) return folded ? HT_ACCESS_FOLDED : HT_ACCESS_BETWEEN;
    /* What a reduction reads at once must not go past the caches. */
    return ht_type_bytes(o->type) >= HT_NT_STORE_BYTES && !folded ? HT_ACCESS_STREAMED : HT_ACCESS_FLAT;
}

void ht_fused_compile(ht_fused *f, ht_chain_op *chain)
{
    const ht_type *shape = f->operands[f->n_in].type;
    for (int i = 0; i < f->n_in + f->n_out + f->n_between; i++)
        f->operands[i].bytes = (int32_t)ht_dtype_bytes(f->operands[i].type->dtype);
    for (int i = 0; i < f->n_in; i++)
        f->operands[i].access = ht_type_same_shape(f->operands[i].type, shape) ? HT_ACCESS_FLAT : HT_ACCESS_WHOLE;
    f->elems = ht_type_elems(shape);
    if (f->elems == 0) return; /* nothing will run */
    merge_axes(f, shape);
    int64_t row = f->dim[f->rank - 1];
    f->by_rows = f->rank > 1 && row >= HT_LONG_ROW;
    for (int i = 0; i < f->n_in + f->n_out + f->n_between; i++) {
        ht_fused_operand *o = &f->operands[i];
        if (i >= f->n_in)
            o->access = access_of_value(f, i);
        else if (o->access != HT_ACCESS_WHOLE)
            o->access = access_of(f, o);
    }
    f->chain_count = ht_chain_make(f, chain);
    f->chain = f->chain_count ? chain : NULL;
    lay_out_scratch(f);
    if (f->rank > 1 && !f->by_rows) f->span = f->span / row * row;
    f->grain = (GRAIN + f->span - 1) / f->span * f->span;
}

void ht_fused_keep_cached(ht_fused *f, int result)
{
    ht_operand_access *access = &f->operands[f->n_in + result].access;
    if (*access == HT_ACCESS_STREAMED) *access = HT_ACCESS_FLAT;
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
    for (int d = f->rank - 1; d > 0; d--) {
        int64_t outer = index / f->dim[d]; /* a division takes its time: one per axis, none for the first */
        element += (index - outer * f->dim[d]) * o->stride[d];
        index = outer;
    }
    return element + index * o->stride[0];
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
    int64_t block = f->chain ? f->steps[0].elementwise->chain->build->block : f->span;
    for (int i = 0; i < f->n_in + f->n_out + f->n_between; i++) {
        const ht_fused_operand *o = &f->operands[i];
        ht_operand_access access = w->access[i];
        if (is_long(f, access) || is_block(f, access)) at[i] = scratch + o->scratch;
        if (access == HT_ACCESS_WHOLE) at[i] = operand_data(w, i);
        if (access == HT_ACCESS_CONSTANT) copy_run(at[i], operand_data(w, i), bytes_of(o), 0, block);
        if (access == HT_ACCESS_REPEATED) gather(f, o, at[i], operand_data(w, i), 0, smaller(f->span, f->elems));
    }
}

static void aim_span(const work *w, ht_fused_tile *tile, int64_t first, int64_t n)
{
    const ht_fused *f = w->f;
    void **at = tile->at;
    int64_t row = f->dim[f->rank - 1];
    int64_t block = f->chain ? f->steps[0].elementwise->chain->build->block : n;
    for (int i = 0; i < f->n_in + f->n_out; i++) {
        const ht_fused_operand *o = &f->operands[i];
        bool in_memory = w->access[i] == HT_ACCESS_FLAT || (w->access[i] == HT_ACCESS_STREAMED && f->chain);
        if (in_memory) at[i] = operand_data(w, i) + first * bytes_of(o);
        if (w->access[i] == HT_ACCESS_LINE) at[i] = operand_data(w, i) + element_at(f, o, first) * bytes_of(o);
        if (w->access[i] == HT_ACCESS_REPEATED) at[i] = tile->scratch + o->scratch + first % row * bytes_of(o);
        if (w->access[i] == HT_ACCESS_ROW)
            copy_run(at[i], operand_data(w, i) + element_at(f, o, first) * bytes_of(o), bytes_of(o), 0, block);
        if (w->access[i] == HT_ACCESS_GATHERED) gather(f, o, at[i], operand_data(w, i), first, n);
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
    step->elementwise->span(&(ht_span_args){call, first, n, in, out, w->constants[index]});
}

/* n elements of an operand, as they lie before the calls. */
static void count_nonfinite(const work *w, int operand, const void *data, int64_t n)
{
    struct ht_nonfinite *to = w->launch->nonfinite;
    if (to) ht_nonfinite_add(&to->operand[operand], w->f->operands[operand].type->dtype, data, n);
}

static void count_step(const work *w, int index, int64_t n, void *const *at)
{
    const ht_fused_step *step = &w->f->steps[index];
    for (size_t i = step->call->n_in; i < step->call->n_in + step->call->n_out; i++)
        count_nonfinite(w, step->operand[i], at[step->operand[i]], n);
}

/* The next span's share of large inputs, asked for while this one is worked on. */
static void look_ahead(const work *w, int64_t next, int64_t n, int step)
{
    const ht_fused *f = w->f;
    for (int i = 0; i < f->n_in; i++) {
        int64_t bytes = bytes_of(&f->operands[i]);
        if (w->access[i] != HT_ACCESS_FLAT || f->elems * bytes < PREFETCH_BYTES) continue;
        const char *from = operand_data(w, i) + next * bytes;
        for (int64_t line = n * bytes * step / f->step_count / HT_CACHE_LINE_BYTES;
             line < n * bytes * (step + 1) / f->step_count / HT_CACHE_LINE_BYTES; line++)
            __builtin_prefetch(from + line * HT_CACHE_LINE_BYTES);
    }
}

static void run_span(const work *w, int64_t first, int64_t n, void *const *at)
{
    const ht_fused *f = w->f;
    for (int s = 0; s < f->step_count; s++) {
        look_ahead(w, first + n, smaller(f->span, f->elems - first - n), s);
        run_step(w, s, first, n, at);
        if (w->launch->nonfinite) count_step(w, s, n, at);
    }
    for (int i = f->n_in; i < f->n_in + f->n_out; i++) {
        int64_t bytes = bytes_of(&f->operands[i]);
        if (w->access[i] == HT_ACCESS_STREAMED) ht_nt_copy(operand_data(w, i) + first * bytes, at[i], n * bytes);
    }
}

/* Points the steps of a chain to the span at hand. */
static void aim_chain(const work *w, ht_chain_op *ops, char *scratch, void *const *at)
{
    const ht_fused *f = w->f;
    const ht_chain_build *build = f->steps[0].elementwise->chain->build;
    for (int i = 0; i < f->chain_count; i++) {
        for (int k = 0; k < 2; k++) {
            int operand = ops[i].operand[k];
            if (operand == HT_CHAIN_STAGE) ops[i].memory[k] = scratch;
            if (operand < 0) continue;
            ops[i].memory[k] = at[operand];
            ops[i].bytes[k] = is_block(f, w->access[operand]) ? 0 : bytes_of(&f->operands[operand]);
        }
        int result = ops[i].operand[0];
        if (result < f->n_in || w->access[result] != HT_ACCESS_STREAMED) continue;
        ht_dtype dtype = f->operands[result].type->dtype;
        bool lines = (uintptr_t)at[result] % HT_CACHE_LINE_BYTES == 0;
        ops[i].run = lines ? build->moves[dtype].stream : build->moves[dtype].store;
    }
}

/* Whole blocks as a chain, the elements behind them step by step. */
static void run_chain(const work *w, ht_chain_op *ops, char *scratch, int64_t first, int64_t n, void *const *at)
{
    const ht_fused *f = w->f;
    const ht_chain_build *build = f->steps[0].elementwise->chain->build;
    void *rest[HT_FUSED_OPERANDS];
    int64_t done = n / build->block * build->block;
    if (done) {
        aim_chain(w, ops, scratch, at);
        build->run(ops, done);
    }
    if (done == n) return;
    for (int i = 0; i < f->n_in + f->n_out + f->n_between; i++)
        rest[i] = is_block(f, w->access[i]) ? at[i] : (char *)at[i] + done * bytes_of(&f->operands[i]);
    for (int s = 0; s < f->step_count; s++) run_step(w, s, first + done, n - done, rest);
}

/* Elements [first, first + n), a span at a time: inside a row where rows are long, else no further than repeated rows
 * reach. `folded`: where those that a reduction will read go, or NULL. */
static void run_elements(const work *w, ht_fused_tile *tile, int64_t first, int64_t n, char *folded)
{
    const ht_fused *f = w->f;
    int64_t row = f->dim[f->rank - 1], end = first + n;
    for (int64_t part; first < end; first += part) {
        part = smaller(f->span, end - first);
        if (f->rank > 1) part = smaller(part, (f->by_rows ? row : f->span) - first % row);
        aim_span(w, tile, first, part);
        if (folded) tile->at[f->folded] = folded;
        if (f->chain)
            run_chain(w, tile->ops, tile->scratch, first, part, tile->at);
        else
            run_span(w, first, part, tile->at);
        if (folded) folded += part * bytes_of(&f->operands[f->folded]);
    }
}

void ht_fused_open(const ht_epilogue *w, ht_fused_tile *tile)
{
    const ht_fused *f = w->f;
    if (f->elems == 0) return;
    aim_tile(w, tile->scratch, tile->at);
    if (f->chain && f->elems >= f->steps[0].elementwise->chain->build->block)
        memcpy(tile->ops, f->chain, (size_t)f->chain_count * sizeof *tile->ops);
}

static void run_tile(void *arg, int64_t index)
{
    const work *w = arg;
    ht_fused_tile tile;
    int64_t first = index * w->f->grain;
    ht_fused_open(w, &tile);
    run_elements(w, &tile, first, smaller(w->f->elems - first, w->f->grain), NULL);
    ht_nt_fence();
}

void ht_fused_rows(const ht_fused *f, const ht_launch *launch, int64_t from, int64_t to, int64_t rows)
{
    work w;
    ht_fused_tile tile;
    int64_t row = f->elems / rows;
    ht_epilogue_begin(&w, f, launch);
    ht_fused_open(&w, &tile);
    run_elements(&w, &tile, from * row, (to - from) * row, NULL);
    ht_nt_fence();
}

const void *ht_fused_piece(const ht_epilogue *w, ht_fused_tile *tile, int64_t first, int64_t n)
{
    const ht_fused *f = w->f;
    const ht_fused_operand *folded = &f->operands[f->folded];
    bool inside = folded->access == HT_ACCESS_FOLDED;
    char *values = inside ? tile->scratch + folded->scratch : operand_data(w, f->folded) + first * bytes_of(folded);
    run_elements(w, tile, first, n, inside ? values : NULL);
    return values;
}

/* ---- launches ---- */

static void choose_access(work *w)
{
    const ht_fused *f = w->f;
    for (int i = 0; i < f->n_in + f->n_out + f->n_between; i++) {
        w->access[i] = f->operands[i].access;
        if (w->access[i] != HT_ACCESS_STREAMED) continue;
        for (int k = 0; k < f->n_in; k++)
            if (operand_data(w, k) == operand_data(w, i)) w->access[i] = HT_ACCESS_FLAT;
    }
}

const char *ht_epilogue_takes(const ht_call *call, const ht_fusion *fusion, const ht_target *target)
{
    const ht_type *y = call->out[0];
    (void)target;
    if (fusion->before) return "a product takes no calls before it";
    if (y->dtype != HT_F32) return "the product is not f32";
    return y->rank == 0 || y->dim[y->rank - 1] < HT_LONG_ROW ? "rows are too short for an epilogue" : NULL;
}

void ht_epilogue_begin(ht_epilogue *w, const ht_fused *f, const ht_launch *launch)
{
    w->f = f;
    w->launch = launch;
    choose_access(w);
    for (int s = 0; s < f->step_count; s++) {
        const ht_fused_step *step = &f->steps[s];
        const void *in[HT_STEP_OPERANDS] = {NULL};
        if (!step->elementwise->begin) continue;
        for (size_t i = 0; i < step->call->n_in; i++)
            if (step->operand[i] < f->n_in) in[i] = launch->in[step->operand[i]];
        step->elementwise->begin(&(ht_span_args){.call = step->call, .in = in}, w->constants[s]);
    }
}

void ht_epilogue_block(const ht_epilogue *w, int64_t first, int64_t step, int64_t rows, int64_t n, char *block,
                       int64_t pitch)
{
    const ht_fused *f = w->f;
    ht_fused_tile tile;
    ht_fused_open(w, &tile);
    for (int64_t row = 0; row < rows; row++, first += step) {
        for (int64_t done = 0, part; done < n; done += part) {
            part = smaller(f->span, n - done);
            aim_span(w, &tile, first + done, part);
            tile.at[f->product] = block + row * pitch + done * bytes_of(&f->operands[f->product]);
            count_nonfinite(w, f->product, tile.at[f->product], part);
            if (f->chain)
                run_chain(w, tile.ops, tile.scratch, first + done, part, tile.at);
            else
                run_span(w, first + done, part, tile.at);
        }
    }
    ht_nt_fence();
}

void ht_fused_run(const ht_fused *f, const ht_launch *launch)
{
    work w;
    if (f->elems == 0) return;
    ht_epilogue_begin(&w, f, launch);
    ht_parallel(launch->pool, (f->elems + f->grain - 1) / f->grain, run_tile, &w);
}

void ht_fused_alone(ht_fused *f, ht_fused_operand *operands, ht_fused_step *step, ht_chain_op *chain,
                    const ht_call *call, const ht_elementwise *elementwise)
{
    *step = (ht_fused_step){.call = call, .elementwise = elementwise};
    *f = (ht_fused){.n_in = (int)call->n_in, .n_out = (int)call->n_out, .step_count = 1, .steps = step};
    f->operands = operands;
    for (size_t i = 0; i < call->n_in + call->n_out; i++) {
        operands[i] = (ht_fused_operand){.type = i < call->n_in ? call->in[i] : call->out[i - call->n_in]};
        step->operand[i] = (uint8_t)i;
    }
    ht_fused_compile(f, chain);
}

void ht_elementwise_launch(const ht_launch *launch, const ht_elementwise *elementwise)
{
    if (launch->fused) {
        ht_fused_run(launch->fused, launch);
        return;
    }
    ht_fused f;
    ht_fused_operand operands[HT_STEP_OPERANDS];
    ht_fused_step step;
    ht_chain_op chain[HT_CHAIN_OPS(1)];
    ht_fused_alone(&f, operands, &step, chain, launch->call, elementwise);
    ht_fused_run(&f, launch);
}
