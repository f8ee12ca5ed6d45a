/* Element-wise calls that run together, as one CUDA text: a thread computes an element, values between the calls stay in
 * registers, each rounded to its type as it would be in memory. Bound: bandwidth. */
#include <stdio.h>

#include "kernel/cuda/cuda.h"

typedef struct variable {
    char name[16];
} variable;

const char *ht_cuda_real(double x, ht_cuda_number *buffer)
{
    /* Hexadecimal digits are exact; the text has no literal for the others. */
    if (x != x)
        snprintf(buffer->text, sizeof buffer->text, "(infinity() - infinity())");
    else if (x - x != 0)
        snprintf(buffer->text, sizeof buffer->text, "%s", x < 0 ? "(-infinity())" : "infinity()");
    else
        snprintf(buffer->text, sizeof buffer->text, "((real)%a)", x);
    return buffer->text;
}

/* The place of element i in an operand: by the axes that all operands share. */
static void write_index(ht_text *text, const ht_fused *f, const ht_fused_operand *o)
{
    ht_text_add(text, "(0");
    int64_t below = 1;
    for (int axis = f->rank - 1; axis >= 0; below *= f->dim[axis--]) {
        if (o->stride[axis] == 0) continue;
        ht_text_add(text, " + ");
        if (below > 1) ht_text_add(text, "i / %lldu", (long long)below);
        if (below == 1) ht_text_add(text, "i");
        if (axis > 0) ht_text_add(text, " %% %lldu", (long long)f->dim[axis]);
        if (o->stride[axis] != 1) ht_text_add(text, " * (int64_t)%lld", (long long)o->stride[axis]);
    }
    ht_text_add(text, ")");
}

static void write_load(ht_text *text, const ht_fused *f, int operand)
{
    const ht_fused_operand *o = &f->operands[operand];
    bool is_float = ht_dtype_is_float(o->type->dtype);
    ht_text_add(text, "const %s v%d = %s(in%d[", is_float ? "real" : "int64_t", operand,
                is_float ? "(real)get" : "get_int", operand);
    if (o->access == HT_ACCESS_WHOLE || f->elems == 1)
        ht_text_add(text, "0");
    else
        write_index(text, f, o);
    ht_text_add(text, "]);\n        ");
}

/* A value that a step made, rounded to its type. */
static void write_rounding(ht_text *text, const ht_type *type, const char *name)
{
    bool is_float = ht_dtype_is_float(type->dtype);
    ht_text_add(text, "%s = %s<%s>(%s);\n        ", name, is_float ? "rounded" : "wrapped", ht_cuda_type(type->dtype),
                name);
}

static void write_step(ht_cuda_emission *e, const ht_fused *f, int number, const variable *names, ht_text parts[3])
{
    const ht_fused_step *step = &f->steps[number];
    const ht_call *call = step->call;
    ht_cuda_step s = {.emission = e, .call = call, .number = number};
    s.shared = &parts[0];
    s.once = &parts[1];
    s.each = &parts[2];
    for (size_t i = 0; i < call->n_in; i++) s.in[i] = names[step->operand[i]].name;
    for (size_t i = 0; i < call->n_out; i++) s.out[i] = names[step->operand[call->n_in + i]].name;
    for (size_t i = 0; i < call->n_out; i++)
        ht_text_add(s.each, "%s %s;\n        ", ht_dtype_is_float(call->out[i]->dtype) ? "real" : "int64_t", s.out[i]);
    /* The bits of the call alone: neighbours of f64 do not make it compute in double. */
    bool narrow = e->wide && !ht_cuda_has_f64(call);
    if (narrow) ht_text_add(s.each, "{ typedef float real; ");
    step->elementwise->write(&s);
    ht_text_add(s.each, "%s\n        ", narrow ? " }" : "");
    for (size_t i = 0; i < call->n_out; i++) write_rounding(s.each, call->out[i], s.out[i]);
}

static void write_store(ht_text *text, const ht_fused *f, int result)
{
    int operand = f->n_in + result;
    bool is_float = ht_dtype_is_float(f->operands[operand].type->dtype);
    ht_text_add(text, "%s(&out%d[i], v%d);\n        ", is_float ? "put" : "put_int", result, operand);
}

void ht_cuda_emit_elementwise(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_fused *f = launch->fused;
    variable names[HT_FUSED_OPERANDS];
    ht_text parts[3] = {{0}}, whole = {0}, *each = &parts[2];
    for (int i = 0; i < f->n_in + f->n_out + f->n_between; i++) snprintf(names[i].name, sizeof names[i].name, "v%d", i);
    if (f->elems == 0) return;
    for (int i = 0; i < f->n_in; i++) {
        bool single = f->operands[i].access == HT_ACCESS_WHOLE || f->elems == 1; /* `once` may read it */
        write_load(single ? &whole : each, f, i);
    }
    for (int s = 0; s < f->step_count; s++) write_step(e, f, s, names, parts);
    for (int i = 0; i < f->n_out; i++) write_store(each, f, i);
    ht_cuda_add_grid(e, ht_cuda_blocks(f->elems, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "%s\n    %s\n    if (threadIdx.x == 0) {\n        %s\n    }\n    %s\n"
                     "    const %s i = (%s)blockIdx.x * %du + threadIdx.x;\n    if (i < %lldu) {\n        %s\n    }",
                     parts[0].data ? parts[0].data : "", whole.data ? whole.data : "",
                     parts[1].data ? parts[1].data : "", parts[1].data ? "__syncthreads();" : "",
                     f->elems < INT32_MAX ? "uint32_t" : "uint64_t", f->elems < INT32_MAX ? "uint32_t" : "uint64_t",
                     HT_CUDA_THREADS, (long long)f->elems, each->data);
    e->text.failed |= whole.failed;
    ht_text_free(&whole);
    for (int i = 0; i < 3; i++) {
        e->text.failed |= parts[i].failed;
        ht_text_free(&parts[i]);
    }
}
