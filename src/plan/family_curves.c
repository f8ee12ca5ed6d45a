/* The efficiencies of a target as rates: each family's samples are costed once more, by the same rules as a plan. */
#include <math.h>
#include <string.h>

#include "plan/plan.h"

double ht_sample_limit(const ht_target *target, int format, ht_cost cost)
{
    double compute = ht_cost_flops(cost) / ht_target_flops(target, format);
    double memory = cost.bytes / ht_target_bandwidth(target, HT_SPACE_MAIN);
    return compute > memory ? compute : memory;
}

typedef struct operand_sum {
    double elems, bytes;
    double largest, width; /* of the largest operand: bytes, and those of an element */
} operand_sum;

static void add_operands(operand_sum *sum, size_t count, const ht_type *const *types)
{
    for (size_t i = 0; i < count; i++) {
        if (!types[i]) continue;
        double bytes = (double)ht_type_distinct_bytes(types[i]), width = (double)ht_dtype_bytes(types[i]->dtype);
        sum->bytes += bytes;
        sum->elems += bytes / width;
        if (bytes > sum->largest) sum->largest = bytes, sum->width = width;
    }
}

/* Rows that are not looked up, and what else the cost leaves out, are elements of the largest operand. */
double ht_call_elements(const ht_call *call)
{
    operand_sum sum = {.width = 1};
    add_operands(&sum, call->n_in, call->in);
    add_operands(&sum, call->n_out, call->out);
    double touched = sum.elems - (sum.bytes - ht_call_cost(call).bytes) / sum.width;
    return touched > 0 ? touched : 0;
}

static bool is_conv(const ht_call *call)
{
    return strncmp(call->op->name, "conv2d", 6) == 0;
}

/* Of what works plane by plane, so that each has a price of its own: how many channels of images there are; else 0. */
static double planes_of(const ht_call *call)
{
    const ht_type *x = call->n_in ? call->in[0] : NULL;
    bool batchnorm = strncmp(call->op->name, "batchnorm", 9) == 0;
    if (!batchnorm && !(is_conv(call) && ht_call_int(call, "groups") > 1)) return 0;
    if (!x || x->rank < 2) return 0;
    return (double)x->dim[1] * (x->rank > 2 ? (double)x->dim[0] : 1);
}

/* FLOPs of each element that a convolution touches, and of each place of its window: a mean of its channels. */
static double channels_of(const ht_call *call)
{
    const ht_type *weight = strcmp(call->op->name, "conv2d_grad_weight") == 0 ? call->out[0] : call->in[1];
    double touched = ht_call_elements(call), window = (double)(weight->dim[2] * weight->dim[3]);
    return touched > 0 && window > 0 ? ht_call_cost(call).dot_flops / touched / window : 0;
}

double ht_call_size(const ht_call *call)
{
    double touched = ht_call_elements(call), flops = ht_call_cost(call).dot_flops;
    if (planes_of(call) > 0) return touched / planes_of(call);
    if (is_conv(call)) return ht_conv_columns(call) > 0 ? ht_conv_columns(call) : channels_of(call);
    if (flops == 0) return touched;
    return touched > 0 ? flops / touched : 0;
}

double ht_cuda_call_size(const ht_call *call)
{
    ht_cost cost = ht_call_cost(call);
    if (cost.dot_flops == 0) return cost.bytes;
    if (planes_of(call) > 0) return cost.bytes;
    if (is_conv(call)) return channels_of(call);
    if (strncmp(call->op->name, "attention", 9) == 0) return ht_call_size(call);
    if (strncmp(call->op->name, "lstm", 4) == 0 && call->in[0]->dim[0] > 0)
        return cost.dot_flops / (double)call->in[0]->dim[0];
    return cost.dot_flops;
}

/* ---- one sample ---- */

ht_status ht_family_graph(ht_context *ctx, ht_arena *arena, const ht_family_row *family, ht_device_kind device,
                          int size, ht_graph **out)
{
    const char *text = ht_family_sample(family, device, size);
    const ht_op *op = ht_op_find(ctx, family->op, strlen(family->op));
    ht_sample sample;
    *out = NULL;
    if (text[0] != '(') return ht_graph_parse(out, ctx, family->name, text, strlen(text));
    if (!op) HT_FAIL(ctx, HT_EINVAL, "there is no op %s", family->op);
    HT_TRY(ht_sample_parse(ctx, arena, op, text, &sample));
    return ht_sample_graph(ctx, &sample, out);
}

typedef struct sample_cost {
    ht_cost cost;
    int format;  /* of its products */
    double work; /* that is not FLOPs of products: elements; on a GPU bytes */
    double size;
    bool falls;
} sample_cost;

static ht_status cost_of_graph(ht_context *ctx, const ht_graph *g, const ht_op *op, ht_device_kind device,
                               ht_arena *arena, sample_cost *out)
{
    bool cuda = device == HT_DEVICE_CUDA;
    for (size_t i = 0; i < g->node_count; i++) {
        ht_call_storage storage;
        if (g->nodes[i].op != op) continue;
        const ht_call *call = ht_node_call(g, &g->nodes[i], arena, &storage);
        if (!call) break;
        *out = (sample_cost){.cost = ht_call_cost(call),
                             .format = call->n_in ? (int)ht_product_dtype(call->in[0]->dtype) : (int)HT_F32,
                             .work = cuda ? ht_call_cost(call).bytes : ht_call_elements(call),
                             .size = cuda ? ht_cuda_call_size(call) : ht_call_size(call),
                             .falls = planes_of(call) > 0};
        return HT_OK;
    }
    HT_FAIL(ctx, HT_ENOMEM, "out of memory for a prediction");
}

static ht_status cost_of_sample(ht_context *ctx, const ht_family_row *family, ht_device_kind device, int size,
                                sample_cost *out)
{
    const ht_op *op = ht_op_find(ctx, family->op, strlen(family->op));
    ht_arena *arena = ht_arena_create();
    ht_graph *g = NULL;
    ht_status status = arena && op ? ht_family_graph(ctx, arena, family, device, size, &g) : HT_ENOMEM;
    if (status == HT_OK) status = cost_of_graph(ctx, g, op, device, arena, out);
    if (ht_family_liberties(family)) out->format = HT_FORMAT_TF32;
    ht_graph_free(g);
    ht_arena_free(arena);
    return status;
}

/* ---- curves ---- */

static ht_status make_curve(ht_context *ctx, const ht_target *target, int family, ht_family_curve *curve)
{
    *curve = (ht_family_curve){.known = ht_family_sample(&ht_families[family], target->device, 0) != NULL};
    for (int size = 0; size < HT_FAMILY_SIZES; size++)
        if (!(target->efficiency[family][size] > 0)) curve->known = false;
    for (int size = 0; size < HT_FAMILY_SIZES && curve->known; size++) {
        sample_cost sample = {.work = 0};
        HT_TRY(cost_of_sample(ctx, &ht_families[family], target->device, size, &sample));
        double seconds = ht_sample_limit(target, sample.format, sample.cost) / target->efficiency[family][size];
        curve->product =
            sample.cost.dot_flops > 0 && !sample.falls; /* a stride leaves planes and their price as they are */
        curve->falls = curve->product || sample.falls;
        curve->x[size] = sample.size;
        curve->rate[size] = (curve->product ? sample.cost.dot_flops : sample.work) / seconds;
        if (size == 0) curve->flop_rate = ht_cost_flops(sample.cost) / seconds;
    }
    return HT_OK;
}

bool ht_family_curves(ht_context *ctx, const ht_target *target, ht_family_curve curves[HT_MOST_FAMILIES])
{
    for (int family = 0; family < ht_family_count; family++)
        if (make_curve(ctx, target, family, &curves[family]) != HT_OK) return false;
    return true;
}

double ht_family_rate(const ht_family_curve *curve, double x)
{
    const double *at = curve->x, *rate = curve->rate;
    if (!(x > at[0])) return curve->falls && x > 0 ? rate[0] * x / at[0] : rate[0];
    for (int i = 1; i < HT_FAMILY_SIZES; i++) {
        if (x > at[i]) continue;
        double share = log(x / at[i - 1]) / log(at[i] / at[i - 1]);
        return exp(log(rate[i - 1]) + share * log(rate[i] / rate[i - 1]));
    }
    return rate[HT_FAMILY_SIZES - 1];
}
