/* lstm_q by multiply-adds of i16 pairs: the row for every processor.  Numerics, threads, traffic: lstm_steps.c. */
#include "kernel/cpu.h"
#include "kernel/gemm/int8_pairs.h"
#include "kernel/rnn/lstm_steps.h"

static const lstm_q_kernel kernel = {
    .gemm = &HT_K(ht_int8_pairs), .cells = HT_RUN(lstm_q_cells), .code = HT_RUN(lstm_q_code)};

static ht_status lstm_q_run(const ht_launch *launch)
{
    ht_lstm_q_run(launch, &kernel);
    return HT_OK;
}

static ht_status lstm_q_prepack_make(const ht_launch *launch)
{
    ht_lstm_q_prepack(launch, kernel.gemm);
    return HT_OK;
}

static int64_t lstm_q_prepack_bytes(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_lstm_q_prepack_bytes(call, kernel.gemm);
}

static const ht_prepack lstm_q_prepack = {1u << LSTM_Q_W_INPUT | 1u << LSTM_Q_W_HIDDEN, lstm_q_prepack_bytes,
                                          HT_RUN(lstm_q_prepack_make)};

static int64_t lstm_q_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_lstm_q_workspace(call, kernel.gemm);
}

static const char *lstm_q_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_lstm_q_can(call);
}

HT_CPU_PREPACK_KERNEL(lstm_q, lstm_q, lstm_q_can, lstm_q_workspace, lstm_q_run, &lstm_q_prepack)
