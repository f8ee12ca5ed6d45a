#include "graph/families.h"

#include <stdio.h>
#include <string.h>

const char *const ht_family_size_names[HT_FAMILY_SIZES] = {"small", "medium", "large"};

const ht_family_row ht_families[] = {
#define HT_FAMILY(name, op, ops, small, medium, large) {#name, #op, ops, {small, medium, large}},
#include "graph/families.def"
};
const int ht_family_count = sizeof ht_families / sizeof ht_families[0];
_Static_assert(sizeof ht_families / sizeof ht_families[0] <= HT_MOST_FAMILIES, "a target has no place for so many");

int ht_family_find(const char *name)
{
    for (int i = 0; i < ht_family_count; i++)
        if (strcmp(ht_families[i].name, name) == 0) return i;
    return HT_NO_FAMILY;
}

static const struct {
    const char *name, *sample[HT_FAMILY_SIZES];
} cuda_samples[] = {
#define HT_FAMILY_CUDA(name, small, medium, large) {#name, {small, medium, large}},
#include "graph/families_cuda.def"
};

const char *ht_family_sample(const ht_family_row *family, ht_device_kind device, int size)
{
    if (device != HT_DEVICE_CUDA) return family->sample[size];
    for (size_t i = 0; i < sizeof cuda_samples / sizeof cuda_samples[0]; i++)
        if (strcmp(cuda_samples[i].name, family->name) == 0) return cuda_samples[i].sample[size];
    return NULL;
}

unsigned ht_family_liberties(const ht_family_row *family)
{
    if (strcmp(family->name, "matmul_tf32") == 0) return 1u << HT_LIBERTY_TF32;
    return strcmp(family->name, "matmul_tf32_parts") == 0 ? 1u << HT_LIBERTY_TF32_PARTS : 0;
}

/* Is it one of the words? */
static bool has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; *at; at += strspn(at, " ")) {
        size_t this = strcspn(at, " ");
        if (this == length && memcmp(at, word, length) == 0) return true;
        at += this;
    }
    return false;
}

int ht_family_of(const char *op, bool pointwise)
{
    for (int i = 0; i < ht_family_count; i++)
        if (has_word(ht_families[i].ops, op)) return i;
    return pointwise ? ht_family_find("pointwise") : HT_NO_FAMILY;
}

/* Products of many small matrices pay for each of them. */
enum { SMALL_PRODUCT = 64 };

static bool is_batched(const ht_call *call)
{
    const ht_type *b = call->n_in > 1 ? call->in[1] : NULL;
    return b && b->rank > 2 && b->dim[b->rank - 1] <= SMALL_PRODUCT && b->dim[b->rank - 2] <= SMALL_PRODUCT;
}

/* Of a convolution: the gradient of its results, or they themselves. */
static const ht_type *results_of(const ht_call *call)
{
    if (strcmp(call->op->name, "conv2d_grad_input") == 0) return call->in[0];
    return strcmp(call->op->name, "conv2d_grad_weight") == 0 ? call->in[1] : call->out[0];
}

static int named(const char *first, const char *second, const char *third)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s%s", first, second, third);
    return ht_family_find(name);
}

double ht_conv_columns(const ht_call *call)
{
    enum { FEW = 16 };
    if (strncmp(call->op->name, "conv2d", 6) != 0 || ht_call_int(call, "groups") > 1) return 0;
    const ht_type *results = results_of(call);
    int64_t places = results->dim[2] * results->dim[3];
    if (places > FEW) return 0;
    return (double)(results->dim[0] * places);
}

/* A convolution in groups, or one whose results have few places for each channel, is no product of large matrices: the
 * row of that kind for the op. */
static int of_conv(const ht_call *call, int family)
{
    const char *which = call->op->name + strlen("conv2d"); /* "", "_grad_input", "_grad_weight" */
    if (ht_call_int(call, "groups") > 1) return named("conv_", "grouped", which);
    return ht_conv_columns(call) > 0 ? named("conv_", "few", which) : family;
}

static bool is_half(const ht_call *call)
{
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i] && (call->in[i]->dtype == HT_F16 || call->in[i]->dtype == HT_BF16)) return true;
    return false;
}

/* The libraries of a GPU have kernels for number types and windows, none for few places. */
static int of_cuda_conv(const ht_call *call)
{
    const char *which = call->op->name + strlen("conv2d");
    const ht_type *weight = strcmp(which, "_grad_weight") == 0 ? call->out[0] : call->in[1];
    if (ht_call_int(call, "groups") > 1) return named("conv_", "grouped", which);
    if (!is_half(call)) return named("conv", "", which);
    return named("conv_", weight->dim[2] * weight->dim[3] == 1 ? "point" : "half", which);
}

/* Does a row of an operand begin where a GPU cannot read 16 bytes at once? */
static bool is_unaligned(const ht_type *type)
{
    enum { BYTES = 16 };
    for (int axis = 0; axis < type->rank; axis++)
        if (type->dim[axis] > 1 && type->stride[axis] > 1 &&
            type->stride[axis] * (int64_t)ht_dtype_bytes(type->dtype) % BYTES)
            return true;
    return false;
}

static bool has_unaligned(const ht_call *call)
{
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i] && is_unaligned(call->in[i])) return true;
    return is_unaligned(call->out[0]);
}

/* Of attention: heads that are wider than the library's kernels take run on ours, which have one for all types. */
static bool is_wide(const ht_call *call)
{
    enum { WIDEST = 256 };
    return call->in[0]->rank > 0 && call->in[0]->dim[call->in[0]->rank - 1] > WIDEST;
}

/* A sum whose rows lie across memory. */
static bool reduces_rows(const ht_call *call)
{
    const ht_type *x = call->in[0];
    if (strcmp(call->op->name, "sum") != 0 || x->rank < 2) return false;
    const ht_attr *axes = ht_call_attr(call, "axes"); /* none: all of them */
    bool last = axes->count == 0;
    for (size_t i = 0; i < axes->count; i++) last |= axes->ints[i] == -1 || axes->ints[i] == x->rank - 1;
    return !last;
}

static int of_cuda_call(const ht_call *call, int family)
{
    const char *op = call->op->name;
    if (strcmp(op, "scaled_matmul") == 0) return ht_family_find("matmul_f8");
    if (strncmp(op, "conv2d", 6) == 0) return of_cuda_conv(call);
    if (strncmp(op, "cross_entropy", 13) == 0) return ht_family_find("loss");
    if (strcmp(op, "attention") == 0 && is_half(call) && !is_wide(call)) return ht_family_find("attention_half");
    if (strcmp(op, "attention_grad") == 0 && is_half(call) && !is_wide(call))
        return ht_family_find("attention_half_grad");
    if (strcmp(op, "lstm") == 0 && is_half(call)) return ht_family_find("lstm_half");
    if (strcmp(op, "lstm_grad") == 0 && is_half(call)) return ht_family_find("lstm_half_grad");
    return reduces_rows(call) ? ht_family_find("reduce_rows") : family;
}

int ht_family_of_call(const ht_call *call, ht_device_kind device)
{
    const char *op = call->op->name;
    ht_dtype dtype = call->n_in && call->in[0] ? call->in[0]->dtype : HT_F32;
    if (strcmp(op, "matmul") == 0 && is_batched(call)) return ht_family_find("matmul_batched");
    if (strcmp(op, "matmul") == 0 && device == HT_DEVICE_CUDA && is_half(call) && has_unaligned(call))
        return ht_family_find("matmul_unaligned");
    if (strcmp(op, "matmul") == 0 && dtype == HT_BF16) return ht_family_find("matmul_bf16");
    if (strcmp(op, "matmul") == 0 && dtype == HT_F16) return ht_family_find("matmul_f16");
    int family = ht_family_of(op, call->op->fuse == HT_FUSE_POINT);
    /* What has no row on a GPU is a kernel that moves its bytes, whatever it computes meanwhile. */
    if (family == HT_NO_FAMILY && device == HT_DEVICE_CUDA && ht_call_cost(call).dot_flops == 0)
        return ht_family_find("move");
    if (family == HT_NO_FAMILY) return family;
    if (device == HT_DEVICE_CUDA) return of_cuda_call(call, family);
    return strncmp(op, "conv2d", 6) == 0 ? of_conv(call, family) : family;
}
