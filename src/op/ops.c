/* Registration of all ops in a context. */
#include "op/op.h"

#define HT_OP(id)              extern const ht_op ht_op_##id;
#define HT_POINT(id, ...)      extern const ht_op ht_point_##id;
#define HT_POINT_BOOL(id, ...) HT_POINT(id)
#include "op/ops.def"
#include "op/pointwise.def"
#undef HT_OP
#undef HT_POINT

#define HT_OP(id)         &ht_op_##id,
#define HT_POINT(id, ...) &ht_point_##id,
static const ht_op *const ops[] = {
#include "op/ops.def"
#include "op/pointwise.def"
};

ht_status ht_ops_add_all(ht_context *ctx)
{
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) HT_TRY(ht_op_add(ctx, ops[i]));
    return HT_OK;
}
