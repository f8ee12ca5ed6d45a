/* Matrix products as a user gets them (a matmul node, planned, run) against OpenBLAS, oneDNN and PyTorch; products of
 * f16 and bf16 against our own f32; M = 1 against the machine's read bandwidth. */
#include <math.h>
#include <string.h>

#include "ceilings.h"
#include "contest.h"
#include "ours.h"
#include "peer.h"

typedef struct shape {
    int64_t m, n, k;
} shape;

static const shape shapes[] = {
    {512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {256, 3072, 768}, {256, 768, 3072}, {512, 50257, 768},
};
static const char *const layouts[] = {"NN", "NT", "TN"};
enum { SHAPES = 6, LAYOUTS = 3, ROWS = SHAPES * LAYOUTS };
static const int peak_shape = 1; /* 1024³, NN: the row that is also a share of the FMA peak */

/* ---- our side ---- */

static void build_product(ours *o, ht_context *ctx, ht_dtype dtype, const char *layout, shape s, bool stored)
{
    ht_matmul_opts opts = {.size = sizeof opts, .transpose_a = layout[0] == 'T', .transpose_b = layout[1] == 'T'};
    int64_t a_dims[2] = {opts.transpose_a ? s.k : s.m, opts.transpose_a ? s.m : s.k};
    int64_t b_dims[2] = {opts.transpose_b ? s.n : s.k, opts.transpose_b ? s.k : s.n};
    ours_begin(o, ctx);
    ht_val a = ht_input(o->graph, "a", dtype, 2, a_dims);
    ht_val b = stored ? ht_param(o->graph, "b", dtype, 2, b_dims, HT_ZERO) : ht_input(o->graph, "b", dtype, 2, b_dims);
    ht_output(o->graph, "y", ht_matmul(o->graph, a, b, &opts));
    ours_ready(o);
}

/* ---- the mean and the worst over all shapes and layouts ---- */

typedef struct tally {
    const char *name, *peer;
    double log_ours, log_peer, worst, worst_ours, worst_peer;
    char worst_row[64];
    int count;
} tally;

static void tally_add(tally *t, const contest *c, int ours_side, int peer_side)
{
    double mine = contest_value(c, ours_side), theirs = contest_value(c, peer_side);
    if (mine <= 0 || theirs <= 0) return;
    t->log_ours += log(mine);
    t->log_peer += log(theirs);
    if (t->count++ == 0 || mine / theirs < t->worst) {
        t->worst = mine / theirs;
        t->worst_ours = mine;
        t->worst_peer = theirs;
        snprintf(t->worst_row, sizeof t->worst_row, "%s", c->name);
    }
}

static void tally_print(const tally *t)
{
    char name[64];
    if (t->count == 0) return;
    snprintf(name, sizeof name, "%s_geomean", t->name);
    bench_line(name, exp(t->log_ours / t->count), exp(t->log_peer / t->count), t->peer, "GFLOP/s");
    snprintf(name, sizeof name, "%s_worst", t->name);
    bench_line(name, t->worst_ours, t->worst_peer, t->peer, "GFLOP/s");
    printf("  worst of %d rows: %s\n", t->count, t->worst_row);
}

enum { BY_OPENBLAS, BY_ONEDNN, BY_TORCH, F16, BF16, TALLIES };
static tally tallies[TALLIES] = {
    [BY_OPENBLAS] = {.name = "gemm_f32", .peer = "openblas"}, [BY_ONEDNN] = {.name = "gemm_f32", .peer = "onednn"},
    [BY_TORCH] = {.name = "gemm_f32", .peer = "torch"},       [F16] = {.name = "gemm_f16", .peer = "halftone_f32"},
    [BF16] = {.name = "gemm_bf16", .peer = "halftone_f32"},
};

/* ---- one shape in one layout ---- */

typedef struct peers {
    peer *openblas, *onednn, *torch;
} peers;

static void ask(peer_request *r, peer *p, const char *op, const char *dtype, const char *layout, shape s)
{
    r->peer = p;
    snprintf(r->text, sizeof r->text, "%s %s %s %lld %lld %lld", op, dtype, layout, (long long)s.m, (long long)s.n,
             (long long)s.k);
}

/* A BENCH line under another number type's name. */
static void half_row(const contest *c, const char *dtype, const char *rest, int mine, int theirs, const char *against)
{
    char name[64];
    snprintf(name, sizeof name, "gemm_%s_%s", dtype, rest);
    contest_row(c, name, mine, theirs, against);
}

static void measure(ht_context *ctx, const peers *p, int row, const char *only)
{
    shape s = shapes[row / LAYOUTS];
    const char *layout = layouts[row % LAYOUTS];
    bool plain = row % LAYOUTS == 0, peak = plain && row / LAYOUTS == peak_shape;
    double flop = 2.0 * (double)s.m * (double)s.n * (double)s.k;
    char name[64], rest[48];
    snprintf(rest, sizeof rest, "%c%c_%lldx%lldx%lld", layout[0] | 32, layout[1] | 32, (long long)s.m, (long long)s.n,
             (long long)s.k);
    snprintf(name, sizeof name, "gemm_f32_%s", rest);
    if (!strstr(name, only)) return;
    ours f32, f16, bf16;
    build_product(&f32, ctx, HT_F32, layout, s, false);
    build_product(&f16, ctx, HT_F16, layout, s, false);
    build_product(&bf16, ctx, HT_BF16, layout, s, false);
    peer_request r[5];
    ask(&r[0], p->openblas, "gemm", "f32", layout, s);
    ask(&r[1], p->onednn, "sgemm", "f32", layout, s);
    ask(&r[2], p->onednn, "matmul", "f32", layout, s);
    ask(&r[3], p->torch, "gemm", "f32", layout, s);
    ask(&r[4], p->onednn, "matmul", "bf16", layout, s);
    contest c = {.name = name, .unit = "GFLOP/s", .seconds = 2};
    int mine = contest_add(&c, "halftone", ours_turn, &f32, flop);
    int mine_f16 = contest_add(&c, "f16", ours_turn, &f16, flop);
    int mine_bf16 = contest_add(&c, "bf16", ours_turn, &bf16, flop);
    int openblas = contest_add(&c, "openblas", peer_turn, &r[0], flop);
    int sgemm = contest_add(&c, "onednn_sgemm", peer_turn, &r[1], flop);
    int matmul = contest_add(&c, "onednn_matmul", peer_turn, &r[2], flop);
    int torch = contest_add(&c, "torch", peer_turn, &r[3], flop);
    int dnnl_bf16 = plain ? contest_add(&c, "onednn_bf16", peer_turn, &r[4], flop) : -1;
    ceiling fma = {ceiling_best_fma(), bench_threads()};
    int top = peak ? contest_add(&c, "fma_peak", ceiling_turn, &fma, ceiling_work(&fma)) : -1;
    contest_run(&c);
    int onednn = contest_better(&c, sgemm, matmul);
    const struct {
        int tally, ours, peer;
    } compare[] = {
        {BY_OPENBLAS, mine, openblas}, {BY_ONEDNN, mine, onednn}, {BY_TORCH, mine, torch},
        {F16, mine_f16, mine},         {BF16, mine_bf16, mine},
    };
    for (int i = 0; i < TALLIES; i++) tally_add(&tallies[compare[i].tally], &c, compare[i].ours, compare[i].peer);
    for (int i = BY_OPENBLAS; i <= BY_TORCH; i++) contest_row(&c, NULL, mine, compare[i].peer, tallies[i].peer);
    half_row(&c, "f16", rest, mine_f16, mine, "halftone_f32");
    half_row(&c, "bf16", rest, mine_bf16, mine, "halftone_f32");
    if (plain) half_row(&c, "bf16", rest, mine_bf16, dnnl_bf16, "onednn");
    if (peak) contest_row(&c, "gemm_f32_share_of_peak", mine, top, NULL);
    ours_end(&f32);
    ours_end(&f16);
    ours_end(&bf16);
}

/* ---- M = 1: the weights are read once, and that is all the time there is ---- */

static void measure_decode(ht_context *ctx, const char *layout, const char *only)
{
    static const ht_dtype dtypes[] = {HT_F32, HT_F16, HT_BF16};
    enum { TYPES = 3 };
    shape s = {1, 16384, 4096};
    ours o[TYPES];
    char name[TYPES][48], title[48];
    snprintf(title, sizeof title, "decode_%c%c", layout[0] | 32, layout[1] | 32);
    if (!strstr(title, only)) return;
    contest c = {.name = title, .unit = "GB/s", .seconds = 4};
    ceiling read = {CEILING_READ, bench_threads()};
    for (int i = 0; i < TYPES; i++) {
        build_product(&o[i], ctx, dtypes[i], layout, s, true);
        contest_add(&c, ht_dtype_name(dtypes[i]), ours_turn, &o[i],
                    (double)(s.n * s.k) * (double)ht_dtype_bytes(dtypes[i]));
        snprintf(name[i], sizeof name[i], "decode_%s_%c%c_1x%lldx%lld", ht_dtype_name(dtypes[i]), layout[0] | 32,
                 layout[1] | 32, (long long)s.n, (long long)s.k);
    }
    int top = contest_add(&c, "read_bandwidth", ceiling_turn, &read, ceiling_work(&read));
    contest_run(&c);
    for (int i = 0; i < TYPES; i++) {
        contest_row(&c, name[i], i, top, NULL);
        if (i > 0 && !c.side[0].missing && !c.side[i].missing)
            bench_line(name[i], c.side[i].median * 1e3, c.side[0].median * 1e3, "halftone_f32", "ms");
        ours_end(&o[i]);
    }
}

/* bench_gemm [PART]: only the rows whose names contain it (gemm_f32_nn_512x512x512, decode_nn …). */
int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : "";
    ht_context *ctx = ours_context();
    peers p = {peer_start("openblas"), peer_start("onednn"), peer_start("torch")};
    for (int row = 0; row < ROWS; row++) measure(ctx, &p, row, only);
    for (int i = 0; i < TALLIES; i++) tally_print(&tallies[i]);
    peer_stop(p.openblas);
    peer_stop(p.onednn);
    peer_stop(p.torch);
    measure_decode(ctx, "NN", only);
    measure_decode(ctx, "NT", only);
    ceiling_end();
    ht_context_free(ctx);
    return 0;
}
