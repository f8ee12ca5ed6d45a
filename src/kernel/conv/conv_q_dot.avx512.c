/* conv_q by dot products of quads, with AMX or AVX512_VNNI.
 * Numerics, threads, traffic: conv_q_product.h.  Bound: integer products. */
#include "kernel/conv/conv_q_product.h"

static const char *can(const ht_call *call, const ht_target *target, ht_feature feature, const char *reason)
{
    if (!ht_target_has(target, feature)) return reason;
    return ht_conv_q_is_depthwise(call) ? "every channel is convolved by itself" : ht_conv_q_can(call);
}

/* ---- AMX ---- */

static ht_status amx_run(const ht_launch *launch)
{
    conv_q_product_run(launch, &ht_int8_amx);
    return HT_OK;
}

static ht_status amx_prepack_make(const ht_launch *launch)
{
    conv_q_product_prepack(launch, &ht_int8_amx);
    return HT_OK;
}

static int64_t amx_prepack_bytes(const ht_call *call, const ht_target *target)
{
    (void)target;
    return conv_q_product_prepack_bytes(call, &ht_int8_amx);
}

static int64_t amx_workspace(const ht_call *call, const ht_target *target)
{
    return ht_conv_q_workspace(call, amx_prepack_bytes(call, target));
}

static const ht_prepack amx_prepack = {1u << CONV_Q_W, amx_prepack_bytes, HT_RUN(amx_prepack_make)};

static const char *amx_can(const ht_call *call, const ht_target *target)
{
    return can(call, target, HT_FEATURE_AMX_INT8, "needs amx_int8");
}

/* ---- AVX512_VNNI ---- */

static ht_status vnni_run(const ht_launch *launch)
{
    conv_q_product_run(launch, &ht_int8_vnni);
    return HT_OK;
}

static ht_status vnni_prepack_make(const ht_launch *launch)
{
    conv_q_product_prepack(launch, &ht_int8_vnni);
    return HT_OK;
}

static int64_t vnni_prepack_bytes(const ht_call *call, const ht_target *target)
{
    (void)target;
    return conv_q_product_prepack_bytes(call, &ht_int8_vnni);
}

static int64_t vnni_workspace(const ht_call *call, const ht_target *target)
{
    return ht_conv_q_workspace(call, vnni_prepack_bytes(call, target));
}

static const ht_prepack vnni_prepack = {1u << CONV_Q_W, vnni_prepack_bytes, HT_RUN(vnni_prepack_make)};

static const char *vnni_can(const ht_call *call, const ht_target *target)
{
    return can(call, target, HT_FEATURE_AVX512_VNNI, "needs avx512_vnni");
}

/* ---- the rows ---- */

extern const ht_kernel ht_kernel_conv_q_amx, ht_kernel_conv_q_avx512_vnni;
const ht_kernel ht_kernel_conv_q_amx = {
    .size = sizeof(ht_kernel),
    .op = "conv_q",
    .name = "conv_q_dot.i8.amx",
    .isa = HT_ISA_AVX512,
    .can = amx_can,
    .workspace = amx_workspace,
    .run = HT_RUN(amx_run),
    .takes = ht_conv_q_takes,
    .prepack = &amx_prepack,
    .channels = HT_CHANNELS_LAST,
};
const ht_kernel ht_kernel_conv_q_avx512_vnni = {
    .size = sizeof(ht_kernel),
    .op = "conv_q",
    .name = "conv_q_dot.i8.avx512",
    .isa = HT_ISA_AVX512,
    .can = vnni_can,
    .workspace = vnni_workspace,
    .run = HT_RUN(vnni_run),
    .takes = ht_conv_q_takes,
    .prepack = &vnni_prepack,
    .channels = HT_CHANNELS_LAST,
};
