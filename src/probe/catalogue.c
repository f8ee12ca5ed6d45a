/* The rows of the catalogue, and how rates grow with threads. */
#include "probe/probe_own.h"

typedef struct catalogue_row {
    const char *name, *group, *what;
    int loop;      /* ht_loop; -1: it is a call */
    ht_dtype real; /* of a loop */
    const char *op, *sample;
} catalogue_row;

#define REAL_f32 HT_F32
#define REAL_f64 HT_F64
static const catalogue_row rows[] = {
#define HT_LOOP(name, group, real, what)             {#name, #group, what, HT_LOOP_##name, REAL_##real, NULL, NULL},
#define HT_CALL(name, group, op, sample, cuda, what) {#name, #group, what, -1, HT_F32, #op, sample},
#include "probe/catalogue.def"
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static ht_status add_loop(prober *p, const catalogue_row *row, int threads)
{
    ht_probe_row *to = ht_probe_add(p, row->group, row->name, "op/s",
                                    ht_probe_loop(p, row->real, (ht_loop)row->loop, threads), threads);
    if (!to) return HT_ENOMEM;
    to->what = row->what;
    return HT_OK;
}

static ht_status add_call(prober *p, const catalogue_row *row, int threads)
{
    ht_probe_session s;
    ht_context *ctx = threads == 1 ? p->one : p->ctx;
    ht_status status = ht_probe_open(ctx, row->op, row->sample, &s);
    double calls = status == HT_OK ? ht_probe_calls(&s, p->slice) : 0;
    bool product = s.cost.dot_flops > 0;
    ht_probe_row *to = NULL;
    if (calls > 0)
        to = ht_probe_add(p, row->group, row->name, product ? "FLOP/s" : "element/s",
                          calls * (product ? s.cost.dot_flops : s.elems), threads);
    if (to) to->what = row->what;
    ht_probe_close(&s);
    if (!to && ctx != p->ctx) ht_fail(p->ctx, ctx->status, "%s", ht_context_message(ctx));
    return to ? HT_OK : p->ctx->status;
}

static ht_status add_scaling(prober *p, const char *name, const char *unit, ht_loop loop, ht_dtype real)
{
    for (int threads = 1;; threads = threads * 2 < p->threads ? threads * 2 : p->threads) {
        double rate =
            loop == HT_LOOP_triad ? ht_probe_stream(p, real, loop, threads) : ht_probe_loop(p, real, loop, threads);
        if (!ht_probe_add(p, "scaling", name, unit, rate, threads)) return HT_ENOMEM;
        if (threads == p->threads) return HT_OK;
    }
}

ht_status ht_probe_catalogue(prober *p)
{
    const char *group = "";
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].group != group) ht_probe_tell(p, group = rows[i].group);
        for (int all = 0; all <= (p->threads > 1); all++) {
            int threads = all ? p->threads : 1;
            ht_probe_share_memory(p, threads, p->memory_bytes);
            if (rows[i].loop == HT_LOOP_chase) HT_TRY(ht_probe_thread_cycle(p, p->memory_bytes)); /* written over */
            HT_TRY(rows[i].loop >= 0 ? add_loop(p, &rows[i], threads) : add_call(p, &rows[i], threads));
        }
    }
    ht_probe_tell(p, "threads");
    HT_TRY(add_scaling(p, "f32", "FLOP/s", HT_LOOP_peak, HT_F32));
    return add_scaling(p, "triad", "B/s", HT_LOOP_triad, HT_F64);
}
