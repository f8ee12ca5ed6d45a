/* Every kernel row that this machine can run, on every sample of its op and several number types, against the op's f64
 * reference on the same rounded inputs: values within a bound from the types and the length of the reduction, the same
 * bits for any number of threads, strided operands where the row takes them, results over inputs where the op allows
 * it, and nothing touched but the results. */
#include "op_layout.h"
#include "op_variants.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 64, JUNK = 0xA5 };

/* ---- memory ---- */

typedef struct buffer {
    unsigned char *block; /* guard, data, guard; all junk at first */
    unsigned char *data;
    size_t bytes;
} buffer;

static buffer buffer_make(size_t bytes)
{
    size_t all = (bytes + 2 * GUARD_BYTES + 63) / 64 * 64;
    buffer b = {.block = aligned_alloc(64, all), .bytes = bytes};
    assert_non_null(b.block);
    memset(b.block, JUNK, all);
    b.data = b.block + GUARD_BYTES;
    return b;
}

static bool all_junk(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != JUNK) return false;
    return true;
}

static bool guards_hold(const buffer *b)
{
    return all_junk(b->block, GUARD_BYTES) && all_junk(b->data + b->bytes, GUARD_BYTES);
}

/* Bytes between the elements of a strided result. */
static bool gaps_hold(const buffer *b, const ht_type *t)
{
    unsigned char *copy = malloc(b->bytes + 1);
    assert_non_null(copy);
    memcpy(copy, b->data, b->bytes);
    size_t width = ht_dtype_bytes(t->dtype);
    for (int64_t k = 0; k < ht_type_elems(t); k++) memset(copy + (size_t)op_layout_offset(t, k) * width, JUNK, width);
    bool held = all_junk(copy, b->bytes);
    free(copy);
    return held;
}

/* ---- one launch ---- */

/* A call of its own, so that strides can be changed, and buffers for it. */
typedef struct launch_buffers {
    ht_type in_type[HT_SAMPLE_MAX], out_type[8];
    const ht_type *in_types[HT_SAMPLE_MAX], *out_types[8];
    ht_call call;
    buffer in[HT_SAMPLE_MAX], out[8], before[HT_SAMPLE_MAX];
    int over[8]; /* result i is written over this input; -1: memory of its own */
} launch_buffers;

static void launch_buffers_types(launch_buffers *r, const ht_call *call, op_layout in_layout, op_layout out_layout)
{
    memset(r, 0, sizeof *r);
    r->call = *call;
    for (size_t i = 0; i < call->n_in; i++) {
        if (!call->in[i]) continue;
        r->in_type[i] = op_layout_type(call->in[i], in_layout);
        r->in_types[i] = &r->in_type[i];
    }
    for (size_t i = 0; i < call->n_out; i++) {
        r->out_type[i] = op_layout_type(call->out[i], out_layout);
        r->out_types[i] = &r->out_type[i];
        r->over[i] = -1;
    }
    r->call.in = r->in_types;
    r->call.out = r->out_types;
}

static void launch_buffers_fill(launch_buffers *r, const op_arrays *a)
{
    for (size_t i = 0; i < r->call.n_in; i++) {
        const ht_type *t = r->in_types[i];
        if (!t) continue;
        r->in[i] = buffer_make(op_layout_bytes(t));
        for (int64_t k = 0; k < ht_type_elems(t); k++)
            ht_store_f64(r->in[i].data, t->dtype, op_layout_offset(t, k), a->in[i][k]);
        r->before[i] = buffer_make(op_layout_bytes(t));
        memcpy(r->before[i].data, r->in[i].data, r->in[i].bytes);
    }
    for (size_t i = 0; i < r->call.n_out; i++) r->out[i] = buffer_make(op_layout_bytes(r->out_types[i]));
}

static void launch_buffers_free(launch_buffers *r)
{
    for (size_t i = 0; i < r->call.n_in; i++) {
        free(r->in[i].block);
        free(r->before[i].block);
    }
    for (size_t i = 0; i < r->call.n_out; i++) free(r->out[i].block);
}

static const buffer *result_buffer(const launch_buffers *r, size_t i)
{
    return r->over[i] < 0 ? &r->out[i] : &r->in[r->over[i]];
}

static void check_untouched(const op_case *c, const ht_kernel *k, const launch_buffers *r, const buffer *workspace)
{
    if (!guards_hold(workspace)) op_case_fail(c, "%s writes outside its workspace", k->name);
    for (size_t i = 0; i < r->call.n_in; i++) {
        bool over = false;
        for (size_t o = 0; o < r->call.n_out; o++) over |= r->over[o] == (int)i;
        if (!r->in_types[i]) continue;
        if (!guards_hold(&r->in[i])) op_case_fail(c, "%s writes outside input %zu", k->name, i);
        if (!over && memcmp(r->in[i].data, r->before[i].data, r->in[i].bytes) != 0)
            op_case_fail(c, "%s changes input %zu", k->name, i);
    }
    for (size_t i = 0; i < r->call.n_out; i++) {
        if (!guards_hold(&r->out[i])) op_case_fail(c, "%s writes outside result %zu", k->name, i);
        if (r->over[i] < 0 && !gaps_hold(&r->out[i], r->out_types[i]))
            op_case_fail(c, "%s writes between the elements of result %zu", k->name, i);
    }
}

static void launch(const op_case *c, const ht_kernel *k, launch_buffers *r, const ht_target *target, ht_pool *pool)
{
    const void *in[HT_SAMPLE_MAX];
    void *out[8];
    for (size_t i = 0; i < r->call.n_in; i++) in[i] = r->in_types[i] ? r->in[i].data : NULL;
    for (size_t i = 0; i < r->call.n_out; i++) out[i] = result_buffer(r, i)->data;
    int64_t bytes = k->workspace ? k->workspace(&r->call, target) : 0;
    if (bytes < 0) op_case_fail(c, "%s asks for %" PRId64 " bytes of workspace", k->name, bytes);
    buffer workspace = buffer_make((size_t)bytes);
    k->run(&(ht_launch){
        .call = &r->call, .in = in, .out = out, .workspace = workspace.data, .pool = pool, .threads = target->threads});
    check_untouched(c, k, r, &workspace);
    free(workspace.block);
}

/* ---- values ---- */

static void check_values(const op_case *c, const ht_kernel *k, const launch_buffers *r, const op_arrays *a)
{
    for (size_t i = 0; i < r->call.n_out; i++) {
        const ht_type *t = r->out_types[i];
        op_bound b = op_bound_of(c, a, i);
        for (int64_t e = 0; e < ht_type_elems(t); e++) {
            double got = ht_load_f64(result_buffer(r, i)->data, t->dtype, op_layout_offset(t, e));
            if (!op_close_enough(&b, t->dtype, got, a->out[i][e]))
                op_case_fail(c, "%s: result %zu, element %" PRId64 " is %.17g, not %.17g (off by %.3g, allowed %.3g)",
                             k->name, i, e, got, a->out[i][e], fabs(got - a->out[i][e]),
                             b.relative * fabs(a->out[i][e]) + b.absolute);
        }
    }
}

/* ---- the checks of one row on one case ---- */

typedef struct pools {
    ht_pool *two, *four;
} pools;
static pools shared_pools;

static void check_same_bits(const op_case *c, const ht_kernel *k, const launch_buffers *a, const launch_buffers *b,
                            const char *what)
{
    for (size_t i = 0; i < a->call.n_out; i++)
        if (memcmp(result_buffer(a, i)->data, result_buffer(b, i)->data, a->out[i].bytes) != 0)
            op_case_fail(c, "%s: result %zu has other bits %s", k->name, i, what);
}

static void check_threads(const op_case *c, const ht_kernel *k, const ht_target *target, const op_arrays *a,
                          const launch_buffers *alone)
{
    ht_pool *many[] = {shared_pools.two, shared_pools.four};
    const char *const names[] = {"with 2 threads", "with 4 threads"};
    for (size_t i = 0; i < 2; i++) {
        launch_buffers r;
        launch_buffers_types(&r, c->call, OP_ROW_MAJOR, OP_ROW_MAJOR);
        launch_buffers_fill(&r, a);
        launch(c, k, &r, target, many[i]);
        check_same_bits(c, k, alone, &r, names[i]);
        launch_buffers_free(&r);
    }
}

static void check_layout(op_case *c, const ht_kernel *k, const ht_target *target, const op_arrays *a, op_layout in,
                         op_layout out)
{
    launch_buffers r;
    launch_buffers_types(&r, c->call, in, out);
    if (k->can && k->can(&r.call, target)) return;
    launch_buffers_fill(&r, a);
    /* Where an axis repeats, elements share an address: what lies there in the end is the input. */
    op_arrays seen;
    op_arrays_make(&seen, c);
    for (size_t i = 0; i < r.call.n_in; i++)
        for (int64_t e = 0; r.in_types[i] && e < ht_type_elems(r.in_types[i]); e++)
            seen.in[i][e] = ht_load_f64(r.in[i].data, r.in_type[i].dtype, op_layout_offset(&r.in_type[i], e));
    op_arrays_reference(&seen, c);
    const char *plain = c->variant;
    char text[128];
    snprintf(text, sizeof text, "%s, inputs: %s, results: %s", plain, op_layout_names[in], op_layout_names[out]);
    c->variant = text;
    launch(c, k, &r, target, NULL);
    check_values(c, k, &r, &seen);
    c->variant = plain;
    launch_buffers_free(&r);
}

static void check_layouts(op_case *c, const ht_kernel *k, const ht_target *target, const op_arrays *a)
{
    for (op_layout in = OP_ROW_MAJOR; in < OP_LAYOUT_COUNT; in++)
        for (op_layout out = OP_ROW_MAJOR; out <= OP_GAPPED; out++)
            if (in != OP_ROW_MAJOR || out != OP_ROW_MAJOR) check_layout(c, k, target, a, in, out);
}

static void launch_over(const op_case *c, const ht_kernel *k, const ht_target *target, const op_arrays *a,
                        const launch_buffers *alone, const int over[8])
{
    launch_buffers r;
    launch_buffers_types(&r, c->call, OP_ROW_MAJOR, OP_ROW_MAJOR);
    memcpy(r.over, over, sizeof r.over);
    launch_buffers_fill(&r, a);
    launch(c, k, &r, target, NULL);
    check_same_bits(c, k, alone, &r, "when it is written over an input");
    launch_buffers_free(&r);
}

/* Each result over each input of its type, then all results over different inputs at once. */
static void check_in_place(const op_case *c, const ht_kernel *k, const ht_target *target, const op_arrays *a,
                           const launch_buffers *alone)
{
    if (!(c->op->flags & HT_OP_INPLACE)) return;
    int none[8] = {-1, -1, -1, -1, -1, -1, -1, -1}, all[8];
    memcpy(all, none, sizeof all);
    unsigned taken = 0;
    for (size_t o = 0; o < c->call->n_out; o++)
        for (size_t i = 0; i < c->call->n_in; i++) {
            if (!c->call->in[i] || !ht_type_same(c->call->in[i], c->call->out[o])) continue;
            int one[8];
            memcpy(one, none, sizeof one);
            one[o] = (int)i;
            launch_over(c, k, target, a, alone, one);
            if (all[o] >= 0 || taken >> i & 1) continue;
            all[o] = (int)i;
            taken |= 1u << i;
        }
    launch_over(c, k, target, a, alone, all);
}

static void check_row(op_case *c, const ht_kernel *k, const ht_target *target, const op_arrays *a, bool layouts)
{
    launch_buffers alone;
    launch_buffers_types(&alone, c->call, OP_ROW_MAJOR, OP_ROW_MAJOR);
    launch_buffers_fill(&alone, a);
    launch(c, k, &alone, target, NULL);
    check_values(c, k, &alone, a);
    check_threads(c, k, target, a, &alone);
    check_in_place(c, k, target, a, &alone);
    launch_buffers_free(&alone);
    if (layouts) check_layouts(c, k, target, a);
}

static void check_case(op_case *c, bool special, bool layouts)
{
    ht_context *ctx = context_shared();
    op_arrays a;
    op_arrays_make(&a, c);
    if (special) op_arrays_special(&a, c);
    op_arrays_reference(&a, c);
    unsigned ran = 0;
    for (size_t i = 0; i < ctx->kernel_count; i++) {
        const ht_kernel *k = ctx->kernels[i];
        ht_target target = {.name = "test", .isa = k->isa, .features = ht_cpu_features(), .threads = 1};
        if (strcmp(k->op, c->op->name) != 0 || k->device != HT_DEVICE_CPU || k->isa > ht_cpu_isa()) continue;
        if (k->can && k->can(c->call, &target)) continue;
        ran |= 1u << k->isa;
        check_row(c, k, &target, &a, layouts);
    }
    if (!(ran >> HT_ISA_PORTABLE & 1)) {
        ht_text why = {0};
        ht_target target = {.name = "test", .isa = HT_ISA_PORTABLE, .threads = 1};
        ht_kernel_choose(ctx, c->call, &target, &why);
        op_case_fail(c, "no portable kernel takes it: %s", why.data ? why.data : "there is none");
    }
}

static void kernels_match_the_reference(void **state)
{
    const ht_op *op = *state;
    for (size_t s = 0; op->samples && op->samples[s]; s++)
        for (size_t v = 0; v < op_variant_count; v++) {
            op_case c;
            if (!op_variant_fits(op, &op_variants[v])) continue;
            op_case_parse(&c, op, op->samples[s]);
            if (op_variant_build(&c, &op_variants[v]))
                check_case(&c, op_variants[v].special, v == 0 || op_variants[v].in_even == HT_BF16);
            else if (op_variants[v].as_written)
                op_case_fail(&c, "the builder refuses it: %s", ht_context_message(context_shared()));
            op_case_free(&c);
        }
}

int main(void)
{
    shared_pools = (pools){ht_pool_create(2), ht_pool_create(4)};
    if (!shared_pools.two || !shared_pools.four) return 1;
    int failures = op_tests_run("kernels match the reference", kernels_match_the_reference, NULL);
    ht_pool_free(shared_pools.two);
    ht_pool_free(shared_pools.four);
    return failures;
}
