/* Loss and best class of logits of which each rank has some of the classes. Ranks exchange numbers of rows, not logits:
 *     lse  = M + log Σ_ranks Σ exp(x - M),  M = max_ranks max x
 *     pick = Σ_ranks Σ x · target
 *     loss = lse - pick
 * M counts as a constant, which the result does not depend on. All of it is computed in f32. */
#include <math.h>
#include <string.h>

#include "pass/sharding.h"

static ht_val over_classes(ht_graph *g, ht_val x, ht_val (*reduce)(ht_graph *, ht_val, int, const int64_t *, bool))
{
    return reduce(g, x, 1, (const int64_t[]){-1}, false);
}

/* A number of each row, for each of its classes. */
static ht_val per_class(ht_graph *g, ht_val rows, const ht_type *logits)
{
    int64_t dim[HT_MAX_RANK];
    memcpy(dim, logits->dim, sizeof dim);
    dim[logits->rank - 1] = 1;
    return ht_expand(g, ht_reshape(g, rows, logits->rank, dim), logits->rank, logits->dim);
}

/* Which class is the label? Those of other ranks are none of these. */
static ht_val is_label(ht_graph *g, ht_val labels, const ht_type *logits, int64_t first)
{
    ht_val own = ht_sub(g, labels, ht_fill_like(g, labels, (double)first));
    ht_val class = ht_iota(g, ht_type_of(g, labels)->dtype, logits->rank, logits->dim, logits->rank - 1);
    return ht_eq(g, class, per_class(g, own, logits));
}

static ht_val log_sum_exp(ht_graph *g, ht_val x, const ht_type *logits, ht_group group)
{
    ht_val most = ht_all_reduce_with(g, over_classes(g, x, ht_reduce_max), group, "max", "none");
    ht_val powers = ht_exp(g, ht_sub(g, x, per_class(g, most, logits)));
    ht_val sum = ht_all_reduce_with(g, over_classes(g, powers, ht_sum), group, "sum", "identity");
    return ht_add(g, most, ht_log(g, sum));
}

/* Σ x · target: of the label, or smoothed over all classes. */
static ht_val picked(ht_graph *g, ht_val x, ht_val labels, const ht_type *logits, double smoothing,
                     const ht_sharding_ranks *ranks)
{
    int64_t classes = logits->dim[logits->rank - 1];
    ht_val label = is_label(g, labels, logits, ranks->rank * classes), zero = ht_fill_like(g, x, 0), all = x;
    if (smoothing > 0) {
        x = ht_scale(g, x, 1 - smoothing);
        all = ht_scale(g, all, smoothing / (double)(classes * ranks->group.ranks));
    }
    ht_val target = ht_select(g, label, x, zero);
    if (smoothing > 0) target = ht_add(g, target, all);
    return ht_all_reduce_with(g, over_classes(g, target, ht_sum), ranks->group, "sum", "identity");
}

/* 1 for rows whose label is a class, and NaN for others, which makes their loss and gradient NaN, too. */
static ht_val known_label(ht_graph *g, ht_val labels, ht_val loss, int64_t classes)
{
    ht_val low = ht_ge(g, labels, ht_fill_like(g, labels, 0));
    ht_val high = ht_lt(g, labels, ht_fill_like(g, labels, (double)classes));
    ht_val one = ht_fill_like(g, loss, 1), none = ht_fill_like(g, loss, NAN);
    return ht_select(g, ht_and(g, low, high), one, none);
}

static ht_val reduce_rows(ht_graph *g, ht_val loss, ht_val counts, const char *reduction)
{
    if (strcmp(reduction, "none") == 0) return loss;
    ht_val sum = ht_sum(g, loss, 0, NULL, false);
    if (strcmp(reduction, "sum") == 0) return sum;
    ht_val count = ht_sum(g, ht_cast(g, counts, ht_type_of(g, sum)->dtype), 0, NULL, false);
    return ht_div(g, sum, ht_max(g, count, ht_fill_like(g, count, 1)));
}

void ht_sharded_cross_entropy(ht_graph *g, const ht_node *n, const ht_val *in, const ht_sharding_ranks *ranks,
                              ht_val *out)
{
    ht_call_storage storage;
    const ht_call *call = ht_node_call(g, n, g->arena, &storage);
    const ht_type logits = *ht_type_of(g, in[0]);
    const char *reduction = ht_call_text(call, "reduction");
    double smoothing = ht_call_float(call, "label_smoothing");
    int64_t ignored = ht_call_int(call, "ignore_index"), classes = logits.dim[logits.rank - 1] * ranks->group.ranks;
    ht_dtype wide = ht_type_of(g, ht_node_out(n, 0))->dtype;
    ht_val x = ht_cast(g, in[0], wide), labels = in[1];
    out[1] = log_sum_exp(g, x, &logits, ranks->group);
    ht_val pick = picked(g, x, labels, &logits, smoothing, ranks);
    ht_val loss = ht_sub(g, out[1], pick);
    ht_val known = known_label(g, labels, loss, classes);
    ht_val counts = ht_ne(g, labels, ht_fill_like(g, labels, (double)ignored));
    ht_val zero = ht_fill_like(g, loss, 0);
    loss = ht_select(g, counts, ht_mul(g, loss, known), zero);
    out[0] = reduce_rows(g, loss, counts, reduction);
}

/* The first of equals is that of the lowest rank. */
void ht_sharded_argmax(ht_graph *g, const ht_node *n, const ht_val *in, const ht_sharding_ranks *ranks, ht_val *out)
{
    const ht_type logits = *ht_type_of(g, in[0]), result = *ht_type_of(g, ht_node_out(n, 0));
    int64_t classes = logits.dim[logits.rank - 1];
    ht_val own = over_classes(g, in[0], ht_reduce_max);
    ht_val most = ht_all_reduce_with(g, own, ranks->group, "max", "none");
    ht_val best = ht_argmax(g, in[0], -1, false);
    best = ht_add(g, best, ht_fill_like(g, best, (double)(ranks->rank * classes)));
    ht_val beyond = ht_fill_like(g, best, (double)(classes * ranks->group.ranks));
    best = ht_all_reduce_with(g, ht_select(g, ht_eq(g, own, most), best, beyond), ranks->group, "min", "none");
    out[0] = ht_reshape(g, best, result.rank, result.dim);
}
