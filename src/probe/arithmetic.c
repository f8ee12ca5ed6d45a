/* FLOP/s by number type, for one thread and for all: the multiply-add peak of registers, and products by our own kernels.
 * The ceiling of a type is the larger of the two: f16 and bf16 are multiplied as f32 where the processor has no
 * instructions for them, and where it has, only kernels use those. */
#include <string.h>

#include "probe/probe_own.h"

static const struct {
    ht_dtype dtype;
    const char *op, *sample; /* of a product */
    bool has_loop;
} types[] = {
    {HT_F64, "matmul", "(f64[512,512], f64[512,512])", true},
    {HT_F32, "matmul", "(f32[768,768], f32[768,768])", true},
    {HT_F16, "matmul", "(f16[768,768], f16[768,768])", false},
    {HT_BF16, "matmul", "(bf16[1024,1024], bf16[1024,1024])", false},
    {HT_I8, "matmul_q", "(u8[2048,1024] 0..255, i8[1024,1024] -128..127, f32[] 1..1, f32[] 1..1) -> f32[2048,1024]",
     true},
};
enum { TYPES = sizeof types / sizeof types[0] };

static double peak_of(prober *p, ht_dtype dtype, int threads)
{
    if (dtype == HT_I8) return ht_probe_loop(p, HT_F32, HT_LOOP_accumulate_i8, threads);
    return ht_probe_loop(p, dtype, HT_LOOP_peak, threads);
}

static ht_status add_row(prober *p, int type, const char *group, const char *what, double rate, int threads)
{
    ht_dtype dtype = types[type].dtype;
    ht_probe_row *row = ht_probe_add(p, group, ht_dtype_name(dtype), dtype == HT_I8 ? "op/s" : "FLOP/s", rate, threads);
    if (!row) return HT_ENOMEM;
    row->what = what;
    double *one = &p->out->target.thread_flops[dtype], *all = &p->out->target.flops[dtype];
    if (threads == 1 && rate > *one) *one = rate;
    if (rate > *all) *all = rate; /* all threads can do what one can, whatever else runs on the machine */
    return HT_OK;
}

static ht_status measure_product(prober *p, int type, int threads)
{
    ht_probe_session session;
    ht_context *ctx = threads == 1 ? p->one : p->ctx;
    ht_status status = ht_probe_open(ctx, types[type].op, types[type].sample, &session);
    double calls = status == HT_OK ? ht_probe_calls(&session, p->slice) : 0;
    if (status == HT_OK && calls > 0)
        status = add_row(p, type, "product", "matrix product by our kernel", calls * session.cost.dot_flops, threads);
    ht_probe_close(&session);
    if (status != HT_OK || calls <= 0) HT_FAIL(p->ctx, HT_EINVAL, "probe: %s", ht_context_message(ctx));
    return HT_OK;
}

ht_status ht_probe_arithmetic(prober *p)
{
    ht_probe_tell(p, "FLOP/s");
    for (int i = 0; i < TYPES; i++)
        for (int all = 0; all <= (p->threads > 1); all++) {
            int threads = all ? p->threads : 1;
            if (types[i].has_loop)
                HT_TRY(add_row(p, i, "flops",
                               types[i].dtype == HT_I8 ? "products added to 32 bits" : "multiply-adds in registers",
                               peak_of(p, types[i].dtype, threads), threads));
            HT_TRY(measure_product(p, i, threads));
        }
    return HT_OK;
}
