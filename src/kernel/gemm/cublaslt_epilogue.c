#include "kernel/gemm/cublaslt_epilogue.h"

#include <string.h>

#include "kernel/gemm/product.h"
#include "op/op.h"

/* A call behind the product, and its values by number. */
typedef struct step {
    const ht_call *call;
    uint32_t in[2], out;
    bool kept; /* the result is read elsewhere */
} step;

enum { MOST_STEPS = 2 }; /* bias, residual */

typedef struct steps {
    step list[MOST_STEPS];
    int count;
    uint32_t product;
} steps;

static bool is_op(const step *s, const char *name)
{
    return strcmp(s->call->op->name, name) == 0;
}

/* One row, the same for all rows of y. */
static bool is_row(const ht_type *type)
{
    for (int axis = 0; axis < type->rank - 1; axis++)
        if (type->dim[axis] > 1 && type->stride[axis] != 0) return false;
    return type->stride[type->rank - 1] == 1;
}

/* What there is so far behind the product. */
typedef struct total {
    uint32_t value;
    bool kept;
    ht_dtype dtype;
} total;

static const char *take_add(const step *s, int other, const total *sum, ht_dtype dtype, ht_cublaslt_epilogue *e)
{
    const ht_type *type = s->call->in[other];
    if (sum->kept || sum->dtype != HT_F32) return "a sum is rounded, or kept";
    if (type->dtype != dtype) return "what is added is of another type";
    if (is_row(type) && !e->has_bias && !e->has_residual) {
        e->kind = HT_CUBLASLT_BIAS;
        e->has_bias = true;
        e->bias = s->in[other];
    } else if (ht_type_contiguous(type) && !e->has_residual) {
        e->has_residual = true;
        e->residual = s->in[other];
    } else {
        return "more is added than a bias and a residual";
    }
    return NULL;
}

/* NULL: the library does it all, with a result of type `dtype`. */
static const char *match(const steps *all, ht_dtype dtype, ht_cublaslt_epilogue *e)
{
    total sum = {all->product, false, HT_F32};
    *e = (ht_cublaslt_epilogue){.kind = HT_CUBLASLT_PLAIN};
    for (int i = 0; i < all->count; i++) {
        const step *s = &all->list[i];
        if (!is_op(s, "add")) return "a call that no epilogue does";
        if (s->in[0] != sum.value && s->in[1] != sum.value) return "a call beside the product";
        const char *reason = take_add(s, s->in[0] == sum.value, &sum, dtype, e);
        if (reason) return reason;
        sum = (total){s->out, s->kept, s->call->out[0]->dtype};
    }
    e->result = sum.value;
    return sum.kept && sum.dtype == dtype ? NULL : "the last result is of another type";
}

ht_dtype ht_cublaslt_dtype(const ht_call *call)
{
    return ht_dtype_is_f8(call->in[0]->dtype) ? HT_BF16 : call->in[0]->dtype;
}

const char *ht_cublaslt_takes(const ht_call *call, const ht_fusion *fusion, const ht_target *target)
{
    enum { EIGHT = 8 };
    steps all = {.product = fusion->handed};
    ht_cublaslt_epilogue e;
    const uint32_t *value = fusion->values;
    const bool *kept = fusion->read_outside;
    product p = product_as_called(call, NULL, NULL);
    (void)target;
    if (call->out[0]->dtype != HT_F32 || call->in[0]->dtype == HT_F64) return "the product is not f32";
    if (product_batches(&p) != 1 || p.n % EIGHT != 0) return "a batch, or odd rows";
    if (fusion->count > MOST_STEPS) return "more calls than an epilogue does";
    for (size_t i = 0; i < fusion->count; i++) {
        const ht_call *c = fusion->calls[i];
        if (c->n_in > 2 || c->n_out != 1) return "a call that no epilogue does";
        all.list[all.count++] = (step){c, {value[0], c->n_in > 1 ? value[1] : 0}, value[c->n_in], kept[c->n_in]};
        value += c->n_in + 1;
        kept += c->n_in + 1;
    }
    return match(&all, ht_cublaslt_dtype(call), &e);
}

ht_cublaslt_epilogue ht_cublaslt_epilogue_of(const ht_fused *f)
{
    steps all = {.product = (uint32_t)f->product};
    ht_cublaslt_epilogue e;
    for (int i = 0; i < f->step_count; i++) {
        const ht_fused_step *s = &f->steps[i];
        uint32_t out = s->operand[s->call->n_in];
        all.list[all.count++] =
            (step){s->call, {s->operand[0], s->operand[s->call->n_in > 1]}, out, out < (uint32_t)(f->n_in + f->n_out)};
    }
    (void)match(&all, ht_cublaslt_dtype(f->gemm), &e);
    return e;
}
