/* Units of a model (coupling.h): rows of feed-forward parts, heads of attention, channels of convolutions, each with all that
 * belongs to it in several tensors. A unit that is zero everywhere computes nothing, and can be removed. */
#ifndef HT_COMPRESS_UNITS_H
#define HT_COMPRESS_UNITS_H

#include "compress/compression.h"
#include "compress/coupling.h"

/* Something that may become zero, and how little that would change. */
typedef struct ht_score {
    double score;
    int64_t tensor, index;
} ht_score;

/* The smallest first; of equal ones in the order of tensors and indices. */
void ht_scores_sort(ht_score *scores, size_t count);

typedef struct ht_units_request {
    ht_unit_kind kind;
    double ratio;
    bool global; /* of all layers together, by the mean square of a unit; each keeps one */
} ht_units_request;

/* The coupling of the model as the steps so far left it. */
ht_status ht_compression_coupling(ht_compression *c, ht_coupling *out);
/* A share of the units that the chosen tensors make; `belong` receives all tensors that they lie in. */
ht_status ht_units_prune(ht_compression *c, const ht_units_request *request, const bool *chosen, bool *belong);
/* Removes the units that are zero from weights and model; *removed: how many. */
ht_status ht_units_shrink(ht_compression *c, ht_json_writer *json, int64_t *removed);

#endif
