/* Every kernel row of the CUDA device on the samples of its op, against the op's f64 reference on the same rounded inputs:
 * values within a bound from the types and the length of the reduction, strided inputs where the row takes them, results
 * over inputs where the op allows it, inputs as they were, and the same bits when it runs again. It runs on whatever the
 * device "cuda" finds: a GPU, or the emulator (tests/emulator), which runs threads in another order each time and fails
 * for what they touch beyond their operands. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/cuda/cuda.h"
#include "op_layout.h"
#include "op_variants.h"

enum { JUNK = 0xA5, RESULTS = 8, SKIPPED = 77, GPU_BOUND = 2 }; /* arithmetic of a GPU: twice the absolute bound */

static ht_target target = {.name = "test", .device = HT_DEVICE_CUDA, .threads = 1};

static struct {
    size_t ops, launches;
} covered;

/* ---- the device ---- */

static ht_context *ctx;
static ht_device *device;
static ht_queue *queue;
static bool used; /* by a case that has not come to its end: a failure may have left the device useless */

static ht_status open_device(void)
{
    ctx = context_create(0, NULL);
    HT_TRY(ht_device_get(&device, ctx, "cuda"));
    ht_device_describe(ctx, &target); /* its libraries: their rows are tested, too */
    return device->class->queue_create(device, &queue);
}

static void close_device(void)
{
    ht_queue_free(queue);
    ht_context_free(ctx);
    ctx = NULL;
    queue = NULL;
}

static void renew_device(void)
{
    if (!used) return;
    close_device();
    context_must(ctx, open_device());
}

static void must(const op_case *c, const char *what, ht_status status)
{
    if (status != HT_OK) op_case_fail(c, "%s: %s", what, ht_context_message(ctx));
}

/* ---- one launch ---- */

/* A case, shared by the launches that check it. */
typedef struct subject {
    op_case c;
    op_arrays a;
} subject;

typedef struct operand {
    void *memory, *address; /* on the device; the operand may begin behind the start of its memory */
    unsigned char *bytes;   /* for an input: what it holds; for a result: what came back */
    size_t count;
} operand;

typedef struct run {
    struct run *next;
    const subject *of;
    op_arrays seen;            /* inputs as they lie in memory, and their results */
    const struct run *same_as; /* whose bits it must have; NULL: it is compared with the reference */
    bool shifted;              /* operands lie one element behind the start of their memory */
    const char *what;
    char text[96];
    ht_type in_type[HT_SAMPLE_MAX], out_type[RESULTS];
    const ht_type *in_types[HT_SAMPLE_MAX], *out_types[RESULTS];
    ht_call call;
    operand in[HT_SAMPLE_MAX], out[RESULTS], workspace;
    int over[RESULTS]; /* result i is written over this input; -1: memory of its own */
    const void *in_address[HT_SAMPLE_MAX];
    void *out_address[RESULTS];
    ht_fused fused;
    ht_fused_operand fused_operands[HT_FUSED_OPERANDS];
    ht_fused_step step;
    ht_chain_op chain[HT_CHAIN_OPS(1)];
    ht_launch launch;
} run;

static operand make_operand(const op_case *c, size_t bytes, size_t shift)
{
    operand o = {.bytes = malloc(bytes + 1), .count = bytes};
    assert_non_null(o.bytes);
    memset(o.bytes, JUNK, bytes);
    must(c, "memory", ht_device_alloc(device, bytes + shift ? bytes + shift : 1, &o.memory));
    o.address = (char *)o.memory + shift;
    return o;
}

static void put_operand(const op_case *c, const operand *o)
{
    must(c, "copying", ht_queue_copy(queue, o->address, o->bytes, o->count, HT_COPY_TO_DEVICE));
}

static void free_operand(operand *o)
{
    ht_device_free(device, o->memory);
    free(o->bytes);
}

static void set_types(run *r, const ht_call *call, op_layout in, op_layout out)
{
    r->call = *call;
    for (size_t i = 0; i < call->n_in; i++) {
        if (!call->in[i]) continue;
        r->in_type[i] = op_layout_type(call->in[i], in);
        r->in_types[i] = &r->in_type[i];
    }
    for (size_t i = 0; i < call->n_out; i++) {
        r->out_type[i] = op_layout_type(call->out[i], out);
        r->out_types[i] = &r->out_type[i];
    }
    r->call.in = r->in_types;
    r->call.out = r->out_types;
    for (int i = 0; i < RESULTS; i++) r->over[i] = -1;
}

static void make_operands(run *r)
{
    const op_case *c = &r->of->c;
    for (size_t i = 0; i < r->call.n_in; i++) {
        const ht_type *t = r->in_types[i];
        if (!t) continue;
        r->in[i] = make_operand(c, op_layout_bytes(t), r->shifted ? ht_dtype_bytes(t->dtype) : 0);
        for (int64_t k = 0; k < ht_type_elems(t); k++)
            ht_store_f64(r->in[i].bytes, t->dtype, op_layout_offset(t, k), r->of->a.in[i][k]);
        put_operand(c, &r->in[i]);
        r->in_address[i] = r->in[i].address;
    }
    for (size_t i = 0; i < r->call.n_out; i++) {
        const ht_type *t = r->out_types[i];
        r->out[i] = make_operand(c, op_layout_bytes(t), r->shifted ? ht_dtype_bytes(t->dtype) : 0);
        put_operand(c, &r->out[i]);
        r->out_address[i] = r->over[i] < 0 ? r->out[i].address : r->in[r->over[i]].address;
    }
}

/* Where an axis repeats, elements share an address: what lies there in the end is the input. */
static void see_inputs(run *r, subject *s)
{
    op_arrays_make(&r->seen, &s->c);
    for (size_t i = 0; i < r->call.n_in; i++)
        for (int64_t e = 0; r->in_types[i] && e < ht_type_elems(r->in_types[i]); e++)
            r->seen.in[i][e] = ht_load_f64(r->in[i].bytes, r->in_type[i].dtype, op_layout_offset(&r->in_type[i], e));
    op_arrays_reference(&r->seen, &s->c);
}

static void prepare_run(run *r, const ht_kernel *k)
{
    const op_case *c = &r->of->c;
    int64_t bytes = k->workspace ? k->workspace(&r->call, &target) : 0;
    if (bytes < 0) op_case_fail(c, "%s asks for %" PRId64 " bytes of workspace", k->name, bytes);
    r->workspace = make_operand(c, (size_t)bytes, 0);
    put_operand(c, &r->workspace);
    r->launch = (ht_launch){.call = &r->call,
                            .in = r->in_address,
                            .out = r->out_address,
                            .workspace = r->workspace.address,
                            .threads = target.threads,
                            .row = k,
                            .queue = queue,
                            .kernel = k->name};
    if (k->elementwise) {
        ht_fused_alone(&r->fused, r->fused_operands, &r->step, r->chain, &r->call, k->elementwise);
        r->launch.fused = &r->fused;
    }
    must(c, k->name, device->class->prepare(device, &r->launch, 1));
    if (k->prepare) must(c, k->name, k->prepare(&r->launch));
}

static void free_run(run *r)
{
    if (r->launch.row->release) r->launch.row->release(&r->launch);
    device->class->release(device, &r->launch);
    for (size_t i = 0; i < r->call.n_in; i++) free_operand(&r->in[i]);
    for (size_t i = 0; i < r->call.n_out; i++) free_operand(&r->out[i]);
    free_operand(&r->workspace);
    free(r);
}

/* ---- the launches of one op ---- */

typedef struct runs {
    run *first, **end;
    subject **subjects;
    size_t subject_count, subject_capacity;
} runs;

static run *new_run(subject *s, op_layout in, op_layout out, const char *what)
{
    run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->of = s;
    r->what = what;
    set_types(r, s->c.call, in, out);
    return r;
}

static void add_run(runs *all, run *r, subject *s, const ht_kernel *k)
{
    make_operands(r);
    if (!r->same_as) see_inputs(r, s);
    prepare_run(r, k);
    *all->end = r;
    all->end = &r->next;
}

static void add_layouts(runs *all, subject *s, const ht_kernel *k)
{
    for (op_layout in = OP_ROW_MAJOR; in < OP_LAYOUT_COUNT; in++)
        for (op_layout out = OP_ROW_MAJOR; out <= OP_GAPPED; out++) {
            if (in == OP_ROW_MAJOR && out == OP_ROW_MAJOR) continue;
            run *r = new_run(s, in, out, "");
            if (k->can(&r->call, &target)) {
                free(r);
                continue;
            }
            snprintf(r->text, sizeof r->text, ", inputs: %s, results: %s", op_layout_names[in], op_layout_names[out]);
            r->what = r->text;
            add_run(all, r, s, k);
        }
}

static void add_over(runs *all, subject *s, const ht_kernel *k, const run *alone, const int over[RESULTS])
{
    run *r = new_run(s, OP_ROW_MAJOR, OP_ROW_MAJOR, ", written over an input");
    memcpy(r->over, over, sizeof r->over);
    r->same_as = alone;
    add_run(all, r, s, k);
}

/* Each result over each input of its type, then all results over different inputs at once. */
static void add_in_place(runs *all, subject *s, const ht_kernel *k, const run *alone)
{
    const ht_call *call = s->c.call;
    int none[RESULTS], together[RESULTS];
    unsigned taken = 0;
    for (int i = 0; i < RESULTS; i++) none[i] = together[i] = -1;
    for (size_t o = 0; o < call->n_out; o++)
        for (size_t i = 0; i < call->n_in; i++) {
            if (!call->in[i] || !ht_type_same(call->in[i], call->out[o])) continue;
            int one[RESULTS];
            memcpy(one, none, sizeof one);
            one[o] = (int)i;
            add_over(all, s, k, alone, one);
            if (together[o] >= 0 || taken >> i & 1) continue;
            together[o] = (int)i;
            taken |= 1u << i;
        }
    if (call->n_out > 1 && taken) add_over(all, s, k, alone, together);
}

/* Wide loads and stores are not for operands that lie so. */
static void add_shifted(runs *all, subject *s, const ht_kernel *k)
{
    run *r = new_run(s, OP_ROW_MAJOR, OP_ROW_MAJOR, ", not aligned");
    r->shifted = true;
    add_run(all, r, s, k);
}

static void add_row(runs *all, subject *s, const ht_kernel *k, bool layouts)
{
    run *alone = new_run(s, OP_ROW_MAJOR, OP_ROW_MAJOR, "");
    add_run(all, alone, s, k);
    run *again = new_run(s, OP_ROW_MAJOR, OP_ROW_MAJOR, ", run again");
    again->same_as = alone;
    add_run(all, again, s, k);
    if (s->c.op->flags & HT_OP_INPLACE) add_in_place(all, s, k, alone);
    if (layouts) add_shifted(all, s, k);
    if (layouts) add_layouts(all, s, k);
}

static bool is_row(const ht_kernel *k, const ht_op *op)
{
    return k->device == HT_DEVICE_CUDA && strcmp(k->op, op->name) == 0;
}

static bool has_f8(const ht_call *call)
{
    for (size_t i = 0; i < call->n_in + call->n_out; i++) {
        const ht_type *t = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        if (t && ht_dtype_is_f8(t->dtype)) return true;
    }
    return false;
}

static bool is_long(void)
{
    return getenv("HALFTONE_LONG") != NULL;
}

/* Each type once; how results are converted is the same in all rows. */
static bool is_tested(const op_variant *v)
{
    return is_long() || v->as_written || (v->out == HT_DTYPE_COUNT && v->in_even == v->in_odd);
}

/* Calls that reach more than one tile of a kernel, too large for gradients by differences and a reference by PyTorch:
 * tiles that nobody sees, tiles that are half empty, masks that end within one, heads that fill no line of banks, heads
 * too wide for large tiles, numbers beyond those of half. */
static const struct {
    const char *op, *line;
} tile_samples[] = {
    {"rotary", "(f32[2,6,7,32], i32[7] 0..900)"},
    {"rotary", "(bf16[2,6,7,32], i32[7] 0..900)"},
    {"rotary", "(f32[2,4,3,32], i32[2,3] 0..900) interleaved=1"},
    {"layernorm", "(bf16[9,1600], f32[1600], f32[1600])"},
    {"layernorm", "(f32[2,2100] -3..5, f32[2100], f32[2100])"},
    {"rmsnorm", "(f32[2,2100] -3..5, f32[2100])"},
    /* 48 KiB of rows on their way, beside what the kernel declares. */
    {"layernorm_grad", "(bf16[9,4096], bf16[9,4096], f32[9], f32[9] 0.5..2, f32[4096], bf16[9,4096])"},
    {"rmsnorm_grad", "(bf16[9,4096], bf16[9,4096], f32[9] 0.5..2, f32[4096], bf16[9,4096])"},
    {"rmsnorm_grad", "(f32[9,3072], f32[9,3072], f32[9] 0.5..2, f32[3072])"},
    {"attention", "(f32[1,4,150,16] -2..2, f32[1,2,150,16] -2..2, f32[1,2,150,40]) causal=1"},
    {"attention", "(f32[3,2,70,36], f32[3,1,100,36], f32[3,1,100,8], i32[3] 0..100)"},
    {"attention", "(f32[1,2,130,64], f32[1,2,130,64], f32[1,2,130,64], i32[1] 50..60, i64[1,130] 0..1) causal=1"},
    {"attention", "(f32[1,1,20,128], f32[1,1,90,128], f32[1,1,90,100]) causal=1 scale=-0.2"},
    {"attention", "(f32[1,1,40,8] -3e-9..3e-9, f32[1,1,40,8] -3e8..3e8, f32[1,1,40,8] -3e8..3e8)"},
    {"attention", "(bf16[2,2,64,64], bf16[2,2,64,64], bf16[2,2,64,64]) causal=1"}, /* cuDNN takes these */
    {"attention", "(f16[1,4,128,64], f16[1,2,128,64], f16[1,2,128,64])"},
    {"attention_grad", "(bf16[2,2,64,64], bf16[2,2,64,64], bf16[2,2,64,64], bf16[2,2,64,64], f32[2,2,64] 4..5,"
                       " bf16[2,2,64,64]) causal=1"},
    {"attention_grad", "(f16[1,4,128,64], f16[1,2,128,64], f16[1,2,128,64], f16[1,4,128,64], f32[1,4,128] 4..5,"
                       " f16[1,4,128,64])"},
    {"attention_grad", "(f32[1,4,150,16], f32[1,2,150,16], f32[1,2,150,40], f32[1,4,150,40], f32[1,4,150] 4..5,"
                       " f32[1,4,150,40]) causal=1"},
    {"attention_grad", "(f32[3,2,70,36], f32[3,1,100,36], f32[3,1,100,8], f32[3,2,70,8], f32[3,2,70] 4..5,"
                       " f32[3,2,70,8], i32[3] 0..100)"},
    {"attention_grad", "(f32[1,2,130,64], f32[1,2,130,64], f32[1,2,130,64], f32[1,2,130,64], f32[1,2,130] 4..5,"
                       " f32[1,2,130,64], i32[1] 50..60, i64[1,130] 0..1) causal=1"},
    {"attention_grad", "(f32[1,1,20,128], f32[1,1,90,128], f32[1,1,90,100], f32[1,1,20,100], f32[1,1,20] 4..5,"
                       " f32[1,1,20,100]) causal=1 scale=-0.2"},
    {"attention_grad", "(f32[1,1,40,8] -3e-9..3e-9, f32[1,1,40,8] -3e8..3e8, f32[1,1,40,8] -3e8..3e8, f32[1,1,40,8],"
                       " f32[1,1,40] 4..5, f32[1,1,40,8] -3e-9..3e-9)"},
};

/* Also with strided and unaligned operands? */
static bool in_layouts(const op_variant *v)
{
    return !v->special && (v->as_written || (is_long() && v->in_even == HT_BF16));
}

static void add_case(runs *all, subject *s, const op_variant *v)
{
    const ht_context *rows = context_shared();
    bool taken = has_f8(s->c.call);
    op_arrays_make(&s->a, &s->c);
    if (v->special) op_arrays_special(&s->a, &s->c);
    for (size_t i = 0; i < rows->kernel_count; i++) {
        const ht_kernel *k = rows->kernels[i];
        if (!is_row(k, s->c.op) || k->can(s->c.call, &target)) continue;
        add_row(all, s, k, in_layouts(v));
        taken = true;
    }
    ht_text why = {0};
    if (!taken) ht_kernel_choose(context_shared(), s->c.call, &target, &why);
    if (!taken) op_case_fail(&s->c, "no CUDA row takes it: %s", why.data);
}

static void add_sample(runs *all, const ht_op *op, const char *line, const op_variant *v)
{
    subject *s = calloc(1, sizeof *s);
    if (!s || !ht_grow((void **)&all->subjects, &all->subject_capacity, all->subject_count + 1, sizeof(subject *)))
        abort();
    all->subjects[all->subject_count++] = s;
    op_case_parse(&s->c, op, line);
    if (op_variant_build(&s->c, v))
        add_case(all, s, v);
    else if (v->as_written)
        op_case_fail(&s->c, "the builder refuses it: %s", ht_context_message(context_shared()));
}

static void free_runs(runs *all)
{
    while (all->first) {
        run *r = all->first;
        all->first = r->next;
        free_run(r);
    }
    for (size_t i = 0; i < all->subject_count; i++) {
        op_case_free(&all->subjects[i]->c);
        free(all->subjects[i]);
    }
    free(all->subjects);
}

/* ---- checks ---- */

static const unsigned char *result_bytes(const run *r, size_t i)
{
    return r->over[i] < 0 ? r->out[i].bytes : r->in[r->over[i]].bytes;
}

static bool is_written(const run *r, size_t input)
{
    for (size_t o = 0; o < r->call.n_out; o++)
        if (r->over[o] == (int)input) return true;
    return false;
}

static void fetch(const op_case *c, const run *r)
{
    for (size_t i = 0; i < r->call.n_in; i++) {
        const operand *o = &r->in[i];
        if (!r->in_types[i]) continue;
        unsigned char *back = malloc(o->count + 1);
        assert_non_null(back);
        must(c, "copying", ht_queue_copy(queue, back, o->address, o->count, HT_COPY_FROM_DEVICE));
        must(c, r->launch.kernel, ht_queue_sync(queue));
        if (is_written(r, i))
            memcpy(o->bytes, back, o->count);
        else if (memcmp(o->bytes, back, o->count) != 0)
            op_case_fail(c, "%s%s changes input %zu", r->launch.kernel, r->what, i);
        free(back);
    }
    for (size_t i = 0; i < r->call.n_out; i++)
        must(c, "copying",
             ht_queue_copy(queue, r->out[i].bytes, r->out[i].address, r->out[i].count, HT_COPY_FROM_DEVICE));
    must(c, r->launch.kernel, ht_queue_sync(queue));
}

static void check_values(const op_case *c, const run *r)
{
    for (size_t i = 0; i < r->call.n_out; i++) {
        const ht_type *t = r->out_types[i];
        op_bound b = op_bound_of(c, &r->seen, i);
        b.absolute *= GPU_BOUND;
        if (r->launch.row->rounds_inside)
            b.absolute *= op_unit_roundoff(r->in_types[0]->dtype) / op_unit_roundoff(HT_F32);
        for (int64_t e = 0; e < ht_type_elems(t); e++) {
            double got = ht_load_f64(result_bytes(r, i), t->dtype, op_layout_offset(t, e)), want = r->seen.out[i][e];
            if (!op_close_enough(&b, t->dtype, got, want))
                op_case_fail(c, "%s%s: result %zu, element %" PRId64 " is %.17g, not %.17g (off by %.3g, allowed %.3g)",
                             r->launch.kernel, r->what, i, e, got, want, fabs(got - want),
                             b.relative * fabs(want) + b.absolute);
        }
    }
}

static void check_same_bits(const op_case *c, const run *r)
{
    for (size_t i = 0; i < r->call.n_out; i++)
        if (memcmp(result_bytes(r, i), result_bytes(r->same_as, i), r->out[i].count) != 0)
            op_case_fail(c, "%s%s: result %zu has other bits", r->launch.kernel, r->what, i);
}

static void check_run(const run *r)
{
    const op_case *c = &r->of->c;
    must(c, r->launch.kernel, ht_queue_launch(queue, r->launch.row->run, &r->launch));
    fetch(c, r);
    if (r->same_as)
        check_same_bits(c, r);
    else
        check_values(c, r);
    covered.launches++;
}

static void rows_match_the_reference(void **state)
{
    const ht_op *op = *state;
    runs all = {0};
    all.end = &all.first;
    renew_device();
    used = true;
    for (size_t s = 0; op->samples && op->samples[s]; s++)
        for (size_t v = 0; v < op_variant_count; v++)
            if (op_variant_fits(op, &op_variants[v]) && is_tested(&op_variants[v]))
                add_sample(&all, op, op->samples[s], &op_variants[v]);
    for (size_t s = 0; s < sizeof tile_samples / sizeof *tile_samples; s++)
        for (size_t v = 0; v < op_variant_count && strcmp(tile_samples[s].op, op->name) == 0; v++)
            if (op_variants[v].as_written && op_variant_fits(op, &op_variants[v]))
                add_sample(&all, op, tile_samples[s].line, &op_variants[v]);
    context_must(ctx, device->class->load(device));
    for (const run *r = all.first; r; r = r->next) check_run(r);
    free_runs(&all);
    used = false;
    covered.ops++;
}

static bool has_row(const ht_op *op)
{
    const ht_context *rows = context_shared();
    for (size_t i = 0; i < rows->kernel_count; i++)
        if (is_row(rows->kernels[i], op)) return true;
    return false;
}

int main(void)
{
    if (open_device() != HT_OK) {
        printf("%s: %s\n", getenv("HALFTONE_EMULATED") ? "no emulator" : "skipped", ht_context_message(ctx));
        close_device();
        return getenv("HALFTONE_EMULATED") ? 1 : SKIPPED;
    }
    int failures = op_tests_run("CUDA rows match the reference", rows_match_the_reference, has_row);
    printf("# %zu ops of %zu, %zu launches\n", covered.ops, context_shared()->op_count, covered.launches);
    close_device();
    return failures != 0;
}
