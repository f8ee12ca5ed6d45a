/* Element-wise calls that run together, as one CUDA text: a thread computes a few neighbours, values between the calls
 * stay in registers, each rounded to its type as it would be in memory. All that a thread reads is on its way before the
 * statements that run once per block. Bound: bandwidth.
 *
 * Before a reduction they are no kernel but a struct, from which the reduction's templates get what they fold. */
#include <stdio.h>
#include <string.h>

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

/* The place of element `first` in an operand: by the axes that all operands share. */
static void write_index(ht_text *text, const ht_fused *f, const ht_fused_operand *o)
{
    ht_text_add(text, "(0");
    int64_t below = 1;
    for (int axis = f->rank - 1; axis >= 0; below *= f->dim[axis--]) {
        if (o->stride[axis] == 0) continue;
        ht_text_add(text, " + ");
        if (below > 1) ht_text_add(text, "first / %lldu", (long long)below);
        if (below == 1) ht_text_add(text, "first");
        if (axis > 0) ht_text_add(text, " %% %lldu", (long long)f->dim[axis]);
        if (o->stride[axis] != 1) ht_text_add(text, " * (int64_t)%lld", (long long)o->stride[axis]);
    }
    ht_text_add(text, ")");
}

/* One number or one row for all: it comes from the caches. */
static bool is_repeated(const ht_fused *f, int operand)
{
    const ht_fused_operand *o = &f->operands[operand];
    if (operand >= f->n_in) return false;
    for (int axis = 0; axis < f->rank - 1; axis++)
        if (o->stride[axis] != 0) return false;
    return f->rank > 1 || o->stride[0] == 0;
}

/* Neighbours that a thread computes: no more than 16 bytes of any operand that comes from memory, and never of two rows. */
static int width_of(const ht_launch *launch)
{
    enum { BYTES = 16, MOST = 8 };
    const ht_fused *f = launch->fused;
    int widest = BYTES / MOST;
    for (int i = 0; i < f->n_in + f->n_out; i++) {
        if (f->operands[i].access == HT_ACCESS_WHOLE || is_repeated(f, i)) continue;
        if (f->operands[i].bytes > widest) widest = f->operands[i].bytes;
    }
    return ht_cuda_pack(launch, f->dim[f->rank - 1], BYTES / widest);
}

/* Can the neighbours be read at once, wherever the first of them is? */
static bool lie_together(const ht_fused *f, const ht_fused_operand *o, int width)
{
    if (o->stride[f->rank - 1] != 1) return false;
    for (int axis = 0; axis < f->rank - 1; axis++)
        if (o->stride[axis] % width != 0) return false;
    return true;
}

static bool is_single(const ht_fused *f, int operand)
{
    return f->operands[operand].access == HT_ACCESS_WHOLE || f->elems == 1;
}

/* The value of an operand as a variable. */
static void write_variable(ht_text *text, const ht_fused *f, int operand)
{
    bool is_float = ht_dtype_is_float(f->operands[operand].type->dtype);
    ht_text_add(text, "const %s v%d = %s(", is_float ? "real" : "int64_t", operand, is_float ? "(real)get" : "get_int");
    ht_text_add(text, is_single(f, operand) ? "in%d[0]);\n    " : "p%d.item[k]);\n        ", operand);
}

/* The neighbours of an operand. */
static void write_load(ht_text *text, const ht_fused *f, int operand, int width)
{
    const ht_fused_operand *o = &f->operands[operand];
    if (lie_together(f, o, width)) {
        ht_text_add(text, "p%d = get_pack<%d>(in%d + ", operand, width, operand);
        write_index(text, f, o);
        ht_text_add(text, ");\n        ");
        return;
    }
    ht_text_add(text, "for (int k = 0; k < %d; k++) p%d.item[k] = in%d[", width, operand, operand);
    write_index(text, f, o);
    ht_text_add(text, " + k * (int64_t)%lld];\n        ", (long long)o->stride[f->rank - 1]);
}

/* A value that a step made, rounded to its type. */
static void write_rounding(ht_text *text, const ht_type *type, const char *name)
{
    bool is_float = ht_dtype_is_float(type->dtype);
    ht_text_add(text, "%s = %s<%s>(%s);\n        ", name, is_float ? "rounded" : "wrapped", ht_cuda_type(type->dtype),
                name);
}

/* The pieces of the text. */
typedef struct body {
    ht_text shared, once, each; /* what the calls' rows write: ht_cuda_step */
    ht_text whole;              /* single numbers */
    ht_text packs, loads;       /* the neighbours that are read: p0, p1, … */
    ht_text results, stores;    /* those that are written: q0, q1, … */
} body;

static void write_step(ht_cuda_emission *e, const ht_fused *f, int number, const variable *names, body *b)
{
    const ht_fused_step *step = &f->steps[number];
    const ht_call *call = step->call;
    ht_cuda_step s = {.emission = e, .call = call, .number = number};
    s.shared = &b->shared;
    s.once = &b->once;
    s.each = &b->each;
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

static void write_result(ht_text *text, const ht_fused *f, int result)
{
    int operand = f->n_in + result;
    bool is_float = ht_dtype_is_float(f->operands[operand].type->dtype);
    ht_text_add(text, "%s(&q%d.item[k], v%d);\n        ", is_float ? "put" : "put_int", result, operand);
}

static void write_body(ht_cuda_emission *e, const ht_fused *f, int width, body *b)
{
    variable names[HT_FUSED_OPERANDS];
    for (int i = 0; i < f->n_in + f->n_out + f->n_between; i++) snprintf(names[i].name, sizeof names[i].name, "v%d", i);
    for (int i = 0; i < f->n_in; i++) {
        write_variable(is_single(f, i) ? &b->whole : &b->each, f, i);
        if (is_single(f, i)) continue;
        ht_text_add(&b->packs, "pack<%s, %d> p%d;\n    ", ht_cuda_type(f->operands[i].type->dtype), width, i);
        write_load(&b->loads, f, i, width);
    }
    for (int s = 0; s < f->step_count; s++) write_step(e, f, s, names, b);
    for (int i = 0; i < f->n_out; i++) {
        ht_text_add(&b->results, "pack<%s, %d> q%d;\n    ", ht_cuda_type(f->operands[f->n_in + i].type->dtype), width,
                    i);
        write_result(&b->each, f, i);
        ht_text_add(&b->stores, "put_pack(out%d + first, q%d);\n    ", i, i);
    }
}

static void free_body(ht_cuda_emission *e, body *b)
{
    ht_text *all[] = {&b->shared, &b->once, &b->each, &b->whole, &b->packs, &b->loads, &b->results, &b->stores};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        e->text.failed |= all[i]->failed;
        ht_text_free(all[i]);
    }
}

static const char *text_of(const ht_text *text)
{
    return text->data ? text->data : "";
}

void ht_cuda_emit_elementwise(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_fused *f = launch->fused;
    body b = {0};
    if (f->elems == 0) return;
    int width = width_of(launch);
    const char *type = f->elems < INT32_MAX ? "uint32_t" : "uint64_t";
    write_body(e, f, width, &b);
    ht_cuda_add_grid(e, ht_cuda_blocks(f->elems / width, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "%s\n    %s\n    const %s first = ((%s)blockIdx.x * %du + threadIdx.x) * %du;\n"
                     "    const bool inside = first < %lldu;\n    %s\n    if (inside) {\n        %s\n    }\n"
                     "    if (threadIdx.x == 0) {\n        %s\n    }\n    %s\n    if (!inside) return;\n    %s\n"
                     "#pragma unroll\n    for (int k = 0; k < %d; k++) {\n        const %s i = first + k;\n"
                     "        %s\n    }\n    %s",
                     text_of(&b.shared), text_of(&b.whole), type, type, HT_CUDA_THREADS, width, (long long)f->elems,
                     text_of(&b.packs), text_of(&b.loads), text_of(&b.once), b.once.data ? "__syncthreads();" : "",
                     text_of(&b.results), width, type, text_of(&b.each), text_of(&b.stores));
    free_body(e, &b);
}

/* ---- before a reduction ---- */

const ht_call *ht_cuda_fold_call(const ht_launch *launch)
{
    return launch->fused && launch->fused->fold ? launch->fused->fold : launch->call;
}

/* A point-wise row has no statements but those of an element. */
static bool is_expression(const ht_call *call)
{
    for (size_t i = 0; i < ht_cuda_pointwise_count; i++)
        if (strcmp(ht_cuda_pointwise[i].op, call->op->name) == 0) return true;
    return false;
}

const char *ht_cuda_refuse_before(const ht_call *call, const ht_fusion *fusion)
{
    if (!fusion->before) return "a reduction has no epilogue";
    if (!ht_type_contiguous(call->in[0])) return "what it reads is not row-major";
    if (!ht_dtype_is_float(call->in[0]->dtype)) return "what it reads is not floating point";
    for (size_t i = 0; i < fusion->count; i++)
        if (!is_expression(fusion->calls[i])) return "a call that prepares something for each block";
    return NULL;
}

static void write_members(ht_text *text, const ht_launch *launch)
{
    const ht_fused *f = launch->fused;
    for (int i = 0; i < f->n_in; i++)
        ht_text_add(text, "    const %s *in%d;\n", ht_cuda_type(launch->call->in[i]->dtype), i);
    for (int i = 0; i < f->n_out; i++)
        ht_text_add(text, "    %s *out%d;\n", ht_cuda_type(launch->call->out[i]->dtype), i);
}

/* `source`, and the expression that makes one from the operands of a grid. */
static void write_source(ht_cuda_emission *e, const ht_launch *launch, int width, ht_text *made)
{
    const ht_fused *f = launch->fused;
    const char *item = ht_cuda_type(f->operands[f->folded].type->dtype);
    const char *index = f->elems < INT32_MAX ? "uint32_t" : "uint64_t";
    body b = {0};
    write_body(e, f, width, &b);
    ht_text_add(&e->text, "struct source {\n    typedef %s item;\n    enum { AHEAD = 2 };\n", item);
    write_members(&e->text, launch);
    ht_text_add(
        &e->text,
        "    template <int> DEVICE_MEMBER pack<item, %d> at(%s first) const\n    {\n    %s\n    %s\n    %s\n    %s\n"
        "    pack<item, %d> made;\n#pragma unroll\n    for (int k = 0; k < %d; k++) {\n"
        "        const %s i = first + k;\n        (void)i;\n        %s\n        put(&made.item[k], v%d);\n    }\n"
        "    %s\n    return made;\n    }\n};\n",
        width, index, text_of(&b.whole), text_of(&b.packs), text_of(&b.loads), text_of(&b.results), width, width, index,
        text_of(&b.each), f->folded, text_of(&b.stores));
    free_body(e, &b);
    ht_text_add(made, "source{");
    for (int i = 0; i < f->n_in; i++) ht_text_add(made, "%sin%d", i ? ", " : "", i);
    for (int i = 0; i < f->n_out; i++) ht_text_add(made, "%sout%d", i + f->n_in ? ", " : "", i);
    ht_text_add(made, "}");
}

ht_cuda_fold ht_cuda_fold_begin(ht_cuda_emission *e, const ht_launch *launch, int width)
{
    const ht_fused *f = launch->fused;
    ht_cuda_fold fold = {.call = ht_cuda_fold_call(launch), .in = 1};
    if (f && f->fold) {
        fold.in = f->n_in;
        fold.out = f->n_out;
        write_source(e, launch, width, &fold.source);
    } else {
        ht_text_add(&fold.source, "stored_in(in0)");
    }
    return fold;
}

void ht_cuda_fold_free(ht_cuda_emission *e, ht_cuda_fold *fold)
{
    e->text.failed |= fold->source.failed;
    ht_text_free(&fold->source);
}
