/* matmul_q by dot products of quads, with AMX or AVX512_VNNI.
 * Numerics, threads, traffic: int8_gemm.c.  Bound: integer products. */
#include "kernel/gemm/int8_gemm.h"

static const char *can(const ht_call *call, const ht_target *target, ht_feature feature, const char *reason)
{
    return ht_target_has(target, feature) ? ht_int8_gemm_can(call) : reason;
}

/* ---- AMX ---- */

const int8_kernel ht_int8_amx = {
    .rows = INT8_AMX_ROWS,
    .step = INT8_AMX_STEP,
    .group = 4,
    .a_bytes = 1,
    .overlaps = true,
    .any_pitch = true,
    .begin = HT_RUN(ht_int8_amx_begin),
    .end = HT_RUN(ht_int8_amx_end),
    .multiply = HT_RUN(ht_int8_dot_amx),
    .finish = HT_RUN(ht_int8_finish_amx),
};

static ht_status amx_run(const ht_launch *launch)
{
    ht_int8_gemm_run(launch, &ht_int8_amx);
    return HT_OK;
}

static int64_t amx_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_int8_gemm_workspace(call, &ht_int8_amx);
}

static int64_t amx_prepack_bytes(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_int8_gemm_prepack_bytes(call, &ht_int8_amx);
}

static ht_status amx_prepack_make(const ht_launch *launch)
{
    ht_int8_gemm_prepack(launch, &ht_int8_amx);
    return HT_OK;
}

static const ht_prepack amx_prepack = {1u << 1, amx_prepack_bytes, HT_RUN(amx_prepack_make)};

static const char *amx_can(const ht_call *call, const ht_target *target)
{
    return can(call, target, HT_FEATURE_AMX_INT8, "needs amx_int8");
}

/* ---- AVX512_VNNI ---- */

const int8_kernel ht_int8_vnni = {
    .rows = INT8_VNNI_ROWS,
    .step = 4,
    .group = 4,
    .a_bytes = 1,
    .multiply = HT_RUN(ht_int8_dot_vnni),
    .finish = HT_RUN(ht_int8_finish_vnni),
};

static ht_status vnni_run(const ht_launch *launch)
{
    ht_int8_gemm_run(launch, &ht_int8_vnni);
    return HT_OK;
}

static int64_t vnni_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_int8_gemm_workspace(call, &ht_int8_vnni);
}

static int64_t vnni_prepack_bytes(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_int8_gemm_prepack_bytes(call, &ht_int8_vnni);
}

static ht_status vnni_prepack_make(const ht_launch *launch)
{
    ht_int8_gemm_prepack(launch, &ht_int8_vnni);
    return HT_OK;
}

static const ht_prepack vnni_prepack = {1u << 1, vnni_prepack_bytes, HT_RUN(vnni_prepack_make)};

static const char *vnni_can(const ht_call *call, const ht_target *target)
{
    return can(call, target, HT_FEATURE_AVX512_VNNI, "needs avx512_vnni");
}

/* ---- the rows ---- */

extern const ht_kernel ht_kernel_matmul_q_amx, ht_kernel_matmul_q_avx512_vnni;
const ht_kernel ht_kernel_matmul_q_amx = {
    .size = sizeof(ht_kernel),
    .op = "matmul_q",
    .name = "matmul_q_dot.i8.amx",
    .isa = HT_ISA_AVX512,
    .can = amx_can,
    .workspace = amx_workspace,
    .run = HT_RUN(amx_run),
    .takes = ht_epilogue_takes,
    .prepack = &amx_prepack,
};
const ht_kernel ht_kernel_matmul_q_avx512_vnni = {
    .size = sizeof(ht_kernel),
    .op = "matmul_q",
    .name = "matmul_q_dot.i8.avx512",
    .isa = HT_ISA_AVX512,
    .can = vnni_can,
    .workspace = vnni_workspace,
    .run = HT_RUN(vnni_run),
    .takes = ht_epilogue_takes,
    .prepack = &vnni_prepack,
};
