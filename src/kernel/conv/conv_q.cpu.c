/* conv_q by multiply-adds of i16 pairs: the row for every processor.
 * Numerics, threads, traffic: conv_q_product.h.  Bound: integer products. */
#include "kernel/conv/conv_q_product.h"
#include "kernel/gemm/int8_pairs.h"

static ht_status conv_q_run(const ht_launch *launch)
{
    conv_q_product_run(launch, &HT_K(ht_int8_pairs));
    return HT_OK;
}

static ht_status conv_q_prepack_make(const ht_launch *launch)
{
    conv_q_product_prepack(launch, &HT_K(ht_int8_pairs));
    return HT_OK;
}

static int64_t conv_q_prepack_bytes(const ht_call *call, const ht_target *target)
{
    (void)target;
    return conv_q_product_prepack_bytes(call, &HT_K(ht_int8_pairs));
}

static int64_t conv_q_workspace(const ht_call *call, const ht_target *target)
{
    return ht_conv_q_workspace(call, conv_q_prepack_bytes(call, target));
}

static const ht_prepack conv_q_prepack = {1u << CONV_Q_W, conv_q_prepack_bytes, HT_RUN(conv_q_prepack_make)};

static const char *conv_q_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_conv_q_can(call);
}

HT_CPU_ROW_DEFINE(conv_q, conv_q, .can = conv_q_can, .workspace = conv_q_workspace, .run = HT_RUN(conv_q_run),
                  .takes = ht_conv_q_takes, .prepack = &conv_q_prepack, .channels = HT_CHANNELS_LAST)
