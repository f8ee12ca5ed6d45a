#include "op_call.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_layout.h"

static const ht_op *find_op(const char *name)
{
    const ht_op *op = ht_op_find(context_shared(), name, strlen(name));
    if (!op) fail_msg("there is no op %s", name);
    return op;
}

void op_call_open(op_call *call, const char *op, const char *line, ...)
{
    char text[1024];
    va_list args;
    va_start(args, line);
    vsnprintf(text, sizeof text, line, args);
    va_end(args);
    op_case_parse(&call->c, find_op(op), text);
    call->c.line = ht_arena_text(call->c.arena, text, strlen(text));
    if (!op_case_build(&call->c)) op_case_fail(&call->c, "%s", ht_context_message(context_shared()));
    op_arrays_make(&call->a, &call->c);
}

void op_call_close(op_call *call)
{
    op_case_free(&call->c);
}

void op_call_reference(op_call *call)
{
    op_arrays_reference(&call->a, &call->c);
}

int64_t op_call_elems_in(const op_call *call, size_t input)
{
    return ht_type_elems(call->c.call->in[input]);
}

int64_t op_call_elems_out(const op_call *call, size_t result)
{
    return ht_type_elems(call->c.call->out[result]);
}

/* ---- kernels ---- */

static const ht_kernel *choose(const op_case *c, const ht_call *call, ht_target *target)
{
    ht_text why = {0};
    *target = (ht_target){.isa = ht_cpu_isa(), .features = ht_cpu_features(), .threads = 2};
    const ht_kernel *kernel = ht_kernel_choose(context_shared(), call, target, &why);
    if (!kernel) op_case_fail(c, "no kernel: %s", why.data);
    ht_text_free(&why);
    return kernel;
}

int64_t op_call_workspace(op_call *call)
{
    ht_target target;
    const ht_kernel *kernel = choose(&call->c, call->c.call, &target);
    return kernel->workspace ? kernel->workspace(call->c.call, &target) : 0;
}

static void *memory_for(ht_arena *arena, const ht_type *type)
{
    void *memory = ht_arena_alloc(arena, (size_t)ht_type_bytes(type) + 1, 1);
    assert_non_null(memory);
    return memory;
}

static void run(op_call *call, const ht_call *like)
{
    ht_arena *arena = call->c.arena;
    const void *in[HT_SAMPLE_MAX] = {0};
    void *out[8];
    for (size_t i = 0; i < like->n_in; i++) {
        const ht_type *type = like->in[i];
        if (!type) continue;
        void *to = memory_for(arena, type);
        for (int64_t k = 0; k < ht_type_elems(type); k++)
            ht_store_f64(to, type->dtype, op_layout_offset(type, k), call->a.in[i][k]);
        in[i] = to;
    }
    for (size_t i = 0; i < like->n_out; i++) out[i] = memory_for(arena, like->out[i]);
    ht_target target;
    const ht_kernel *kernel = choose(&call->c, like, &target);
    size_t bytes = kernel->workspace ? (size_t)kernel->workspace(like, &target) : 0;
    void *workspace = aligned_alloc(64, (bytes + 64) / 64 * 64);
    ht_pool *pool = ht_pool_create(2);
    assert_non_null(workspace);
    memset(workspace, 0xff, bytes); /* NaN: whoever reads before writing is found out */
    kernel->run(&(ht_launch){
        .call = like, .in = in, .out = out, .workspace = workspace, .pool = pool, .threads = target.threads});
    ht_pool_free(pool);
    free(workspace);
    for (size_t i = 0; i < like->n_out; i++)
        for (int64_t k = 0; k < ht_type_elems(like->out[i]); k++)
            call->a.out[i][k] = ht_load_f64(out[i], like->out[i]->dtype, k);
}

void op_call_kernel(op_call *call)
{
    run(call, call->c.call);
}

void op_call_kernel_permuted(op_call *call, size_t strided, const int *order)
{
    ht_call like = *call->c.call;
    const ht_type *in[HT_SAMPLE_MAX];
    memcpy(in, like.in, like.n_in * sizeof in[0]);
    ht_type type = *in[strided];
    int64_t stride = 1;
    for (int i = type.rank - 1; i >= 0; i--) {
        type.stride[order[i]] = stride;
        stride *= type.dim[order[i]];
    }
    in[strided] = &type;
    like.in = in;
    run(call, &like);
}

/* ---- checks ---- */

void op_call_near(const char *what, const double *a, const double *b, int64_t n, double tolerance)
{
    for (int64_t k = 0; k < n; k++)
        if (a[k] != b[k] && !(fabs(a[k] - b[k]) <= tolerance * (1 + fabs(b[k]))))
            fail_msg("%s, element %lld: %.9g, not %.9g", what, (long long)k, a[k], b[k]);
}

void op_call_all(const char *what, const double *a, int64_t n, double value)
{
    for (int64_t k = 0; k < n; k++)
        if (a[k] != value) fail_msg("%s, element %lld: %.9g, not %.9g", what, (long long)k, a[k], value);
}

void op_call_refused(const char *op, const char *line, const char *words)
{
    op_case c;
    ht_context *ctx = context_shared();
    op_case_parse(&c, find_op(op), line);
    if (op_case_build(&c)) op_case_fail(&c, "is taken");
    if (!strstr(ht_context_message(ctx), words))
        op_case_fail(&c, "the message is '%s', not about '%s'", ht_context_message(ctx), words);
    op_case_free(&c);
}
