/* lstm_q by dot products of quads, with AMX or AVX512_VNNI.  Numerics, threads, traffic: lstm_steps.c. */
#include "kernel/rnn/lstm_steps.h"

enum { PREPACKED = 1u << LSTM_Q_W_INPUT | 1u << LSTM_Q_W_HIDDEN };

static const char *can(const ht_call *call, const ht_target *target, ht_feature feature, const char *reason)
{
    return ht_target_has(target, feature) ? ht_lstm_q_can(call) : reason;
}

/* ---- AMX ---- */

static const lstm_q_kernel amx = {.gemm = &ht_int8_amx, .cells = HT_RUN(lstm_q_cells), .code = HT_RUN(lstm_q_code)};

static ht_status amx_run(const ht_launch *launch)
{
    ht_lstm_q_run(launch, &amx);
    return HT_OK;
}

static int64_t amx_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_lstm_q_workspace(call, amx.gemm);
}

static int64_t amx_prepack_bytes(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_lstm_q_prepack_bytes(call, amx.gemm);
}

static ht_status amx_prepack_make(const ht_launch *launch)
{
    ht_lstm_q_prepack(launch, amx.gemm);
    return HT_OK;
}

static const ht_prepack amx_prepack = {PREPACKED, amx_prepack_bytes, HT_RUN(amx_prepack_make)};

static const char *amx_can(const ht_call *call, const ht_target *target)
{
    return can(call, target, HT_FEATURE_AMX_INT8, "needs amx_int8");
}

/* ---- AVX512_VNNI ---- */

static const lstm_q_kernel vnni = {.gemm = &ht_int8_vnni, .cells = HT_RUN(lstm_q_cells), .code = HT_RUN(lstm_q_code)};

static ht_status vnni_run(const ht_launch *launch)
{
    ht_lstm_q_run(launch, &vnni);
    return HT_OK;
}

static int64_t vnni_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_lstm_q_workspace(call, vnni.gemm);
}

static int64_t vnni_prepack_bytes(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_lstm_q_prepack_bytes(call, vnni.gemm);
}

static ht_status vnni_prepack_make(const ht_launch *launch)
{
    ht_lstm_q_prepack(launch, vnni.gemm);
    return HT_OK;
}

static const ht_prepack vnni_prepack = {PREPACKED, vnni_prepack_bytes, HT_RUN(vnni_prepack_make)};

static const char *vnni_can(const ht_call *call, const ht_target *target)
{
    return can(call, target, HT_FEATURE_AVX512_VNNI, "needs avx512_vnni");
}

/* ---- the rows ---- */

extern const ht_kernel ht_kernel_lstm_q_amx, ht_kernel_lstm_q_avx512_vnni;
const ht_kernel ht_kernel_lstm_q_amx = {
    .size = sizeof(ht_kernel),
    .op = "lstm_q",
    .name = "lstm_q_dot.i8.amx",
    .isa = HT_ISA_AVX512,
    .can = amx_can,
    .workspace = amx_workspace,
    .run = HT_RUN(amx_run),
    .prepack = &amx_prepack,
};
const ht_kernel ht_kernel_lstm_q_avx512_vnni = {
    .size = sizeof(ht_kernel),
    .op = "lstm_q",
    .name = "lstm_q_dot.i8.avx512",
    .isa = HT_ISA_AVX512,
    .can = vnni_can,
    .workspace = vnni_workspace,
    .run = HT_RUN(vnni_run),
    .prepack = &vnni_prepack,
};
