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

/* A convolution in groups, or one whose results have few places for each channel, is no product of large matrices: the
 * row of that kind for the op. */
static int of_conv(const ht_call *call, int family)
{
    enum { FEW = 16 };
    const ht_type *results = results_of(call);
    char name[64];
    bool grouped = ht_call_int(call, "groups") > 1;
    if (!grouped && results->dim[2] * results->dim[3] > FEW) return family;
    snprintf(name, sizeof name, "conv_%s%s", grouped ? "grouped" : "few", call->op->name + strlen("conv2d"));
    return ht_family_find(name);
}

int ht_family_of_call(const ht_call *call)
{
    const char *op = call->op->name;
    ht_dtype dtype = call->n_in && call->in[0] ? call->in[0]->dtype : HT_F32;
    if (strcmp(op, "matmul") == 0 && is_batched(call)) return ht_family_find("matmul_batched");
    if (strcmp(op, "matmul") == 0 && dtype == HT_BF16) return ht_family_find("matmul_bf16");
    if (strcmp(op, "matmul") == 0 && dtype == HT_F16) return ht_family_find("matmul_f16");
    int family = ht_family_of(op, call->op->fuse == HT_FUSE_POINT);
    return family != HT_NO_FAMILY && strncmp(op, "conv2d", 6) == 0 ? of_conv(call, family) : family;
}
