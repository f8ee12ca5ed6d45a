/* The rows of pointwise.def for the CUDA device: their expressions, as text. Numerics: as pointwise.cpu.c. */
#include <string.h>

#include "kernel/cuda/cuda.h"
#include "op/op.h"

typedef enum point_kind {
    FLOAT1,
    FLOAT2,
    NUMBER1,
    NUMBER2,
    SELECT,
    CLIP,
    CAST,
    COMPARE,
    LOGIC1,
    LOGIC2,
} point_kind;

typedef struct point {
    const char *name;
    point_kind kind;
    const char *expression, *integers;
} point;

static const point points[] = {
#define HT_POINT(name, kind, expression, integers, ...) {#name, kind, #expression, #integers},
#define HT_POINT_BOOL(name, kind, expression, ...)      {#name, kind, #expression, #expression},
#include "op/pointwise.def"
#undef HT_POINT
#undef HT_POINT_BOOL
};

static const point *find(const char *name)
{
    size_t i = 0;
    while (strcmp(points[i].name, name) != 0) i++;
    return &points[i];
}

/* Integers are exact in int64_t, and stop at the ends of their type; a float becomes the integer nearest to zero. */
static void write_cast(ht_cuda_step *s)
{
    const char *from = s->in[0], *to = s->out[0];
    ht_dtype goal = s->call->out[0]->dtype;
    if (ht_dtype_is_float(goal))
        ht_text_add(s->each, "%s = (real)%s;", to, from);
    else if (goal == HT_BOOL)
        ht_text_add(s->each, "%s = %s != 0;", to, from);
    else
        ht_text_add(s->each, "%s = saturated<%s>(%s);", to, ht_cuda_type(goal), from);
}

/* The letters of the expressions become the step's variables. */
static void write_letters(ht_cuda_step *s, const point *p, bool is_float)
{
    const char *type = is_float ? "real" : "int64_t";
    size_t first = p->kind == SELECT;
    if (first) ht_text_add(s->each, "const int64_t c = %s; ", s->in[0]);
    if (s->call->n_in - first == 1)
        ht_text_add(s->each, "const %s x = (%s)%s; ", type, type, s->in[first]);
    else
        ht_text_add(s->each, "const %s a = (%s)%s, b = (%s)%s; ", type, type, s->in[first], type, s->in[first + 1]);
    if (p->kind == CLIP) {
        ht_cuda_number low, high;
        ht_text_add(s->each, "const real low = %s, high = %s; ", ht_cuda_real(ht_call_float(s->call, "low"), &low),
                    ht_cuda_real(ht_call_float(s->call, "high"), &high));
    }
}

static void write_point(ht_cuda_step *s)
{
    const point *p = find(s->call->op->name);
    bool is_float = ht_dtype_is_float(s->call->in[s->call->n_in - 1]->dtype);
    if (p->kind == CAST) {
        write_cast(s);
        return;
    }
    ht_text_add(s->each, "{ ");
    write_letters(s, p, is_float);
    bool plain = is_float || p->kind == COMPARE;
    ht_text_add(s->each, "%s = (%s)(%s); }", s->out[0], ht_dtype_is_float(s->call->out[0]->dtype) ? "real" : "int64_t",
                plain ? p->expression : p->integers);
}

static const ht_elementwise pointwise = {.write = write_point};

const ht_kernel ht_cuda_pointwise[] = {
#define HT_POINT(name, ...)      {HT_CUDA_ELEMENTWISE_FIELDS(name, ht_cuda_pointwise_can, &pointwise)},
#define HT_POINT_BOOL(name, ...) {HT_CUDA_ELEMENTWISE_FIELDS(name, ht_cuda_pointwise_can, &pointwise)},
#include "op/pointwise.def"
};
const size_t ht_cuda_pointwise_count = sizeof ht_cuda_pointwise / sizeof ht_cuda_pointwise[0];
