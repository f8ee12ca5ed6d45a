/* The step `shrink`: layers, rows, heads and channels that are zero are removed, and the model is a smaller one. What it computes
 * does not change. */
#include "compress/units.h"
#include "compress/whole_layers.h"

static const ht_key shrink_keys[] = {{0}};

static ht_status shrink_apply(ht_compression *c, const ht_fields *fields, ht_json_writer *json)
{
    int64_t removed, layers;
    (void)fields;
    HT_TRY(ht_layers_shrink(c, json, &layers));
    HT_TRY(ht_units_shrink(c, json, &removed));
    if (removed + layers == 0)
        HT_FAIL(c->ctx, HT_EINVAL,
                "shrink: no layers, rows, heads or channels are zero: a step before it has to prune some");
    ht_compression_drop_units(c);
    ht_json_put_int(json, "removed_layers", layers);
    ht_json_put_int(json, "removed", removed);
    return HT_OK;
}

const ht_step_kind ht_step_shrink = {.name = "shrink", .keys = shrink_keys, .apply = shrink_apply};
