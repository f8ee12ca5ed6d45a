#include "train/numerics.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/folder.h"
#include "train/metrics.h"

struct ht_numerics {
    ht_context *ctx;
    ht_run *run;
    ht_replay *replay;
    FILE *file; /* NULL: another rank writes */
    char *path;
    int64_t every;
    double scale; /* as noted last; NAN: not yet */
    /* while it looks */
    ht_text line;
    ht_json_writer json; /* into the line */
};

static ht_status open_file(ht_numerics *n, const char *folder, int64_t step)
{
    HT_TRY(ht_folder_path(n->ctx, &n->path, folder, "numerics.jsonl"));
    if (step > 0) HT_TRY(ht_sink_cut_jsonl(n->ctx, n->path, step, &(ht_sink_kept){0}));
    n->file = fopen(n->path, step > 0 ? "abe" : "wbe");
    return n->file ? HT_OK : ht_fail(n->ctx, HT_EIO, "%s: %s", n->path, strerror(errno));
}

ht_status ht_numerics_open(ht_numerics **out, ht_run *run, const char *folder, int64_t step, int64_t every)
{
    ht_context *ctx = ht_run_look(run).job->ctx;
    *out = calloc(1, sizeof **out);
    if (!*out) HT_FAIL(ctx, HT_ENOMEM, "out of memory for numerics");
    ht_numerics *n = *out;
    *n = (ht_numerics){.ctx = ctx, .run = run, .every = every, .scale = NAN};
    ht_status status = folder ? open_file(n, folder, step) : HT_OK;
    if (status == HT_OK) status = ht_replay_of_run(&n->replay, run);
    if (status == HT_OK) return HT_OK;
    ht_numerics_close(n);
    *out = NULL;
    return status;
}

ht_status ht_numerics_close(ht_numerics *n)
{
    if (!n) return HT_OK;
    ht_status status = HT_OK;
    if (n->file && fclose(n->file) != 0) status = ht_fail(n->ctx, HT_EIO, "%s: %s", n->path, strerror(errno));
    ht_replay_free(n->replay);
    ht_text_free(&n->line);
    free(n->path);
    free(n);
    return status;
}

/* ---- counting ---- */

/* Exponents of f64 as its bits have them. */
enum { BIAS = 1023, BINS = 2048, CHUNK = 1024 };
/* f16's: below, a value becomes a subnormal; below, it becomes zero; above, it may be too large. */
enum { LEAST_NORMAL = -14, LEAST_KEPT = -25, LARGEST = 15 };

typedef struct counts {
    int64_t bins[BINS]; /* by exponent */
    int64_t zero, inf, nan;
    int64_t ties;  /* 2^-25 itself, which f16 rounds to zero */
    int64_t above; /* more than f16's largest number, with that number's exponent */
    double max;
} counts;

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void count_all(counts *c, const ht_type *type, const void *data, double scale)
{
    const uint64_t tie = bits_of(0x1p-25), largest = bits_of(65504);
    double chunk[CHUNK];
    int64_t elems = ht_type_elems(type);
    memset(c, 0, sizeof *c);
    for (int64_t at = 0; at < elems; at += CHUNK) {
        int64_t count = elems - at < CHUNK ? elems - at : CHUNK;
        ht_trace_load(type, data, at, count, chunk);
        for (int64_t i = 0; i < count; i++) {
            double x = fabs(chunk[i] / scale);
            uint64_t bits = bits_of(x);
            c->bins[bits >> 52]++;
            c->zero += bits == 0;
            c->ties += bits == tie;
            c->above += bits > largest && bits < bits_of(0x1p16);
            c->inf += isinf(x) != 0;
            if (isfinite(x) && x > c->max) c->max = x;
        }
    }
    c->nan = c->bins[BINS - 1] - c->inf;
    c->bins[BINS - 1] = 0;
    c->bins[0] -= c->zero;
}

static int64_t sum_bins(const counts *c, int from, int to)
{
    int64_t sum = 0;
    for (int e = from; e <= to; e++) sum += c->bins[e + BIAS];
    return sum;
}

static void put_share(ht_json_writer *json, const char *name, int64_t count, int64_t of)
{
    ht_json_put_number(json, name, of > 0 ? (double)count / (double)of : 0);
}

/* The values as f16 would hold them, in shares of all, and how many have which exponent. */
static void put_counts(ht_json_writer *json, const char *name, const counts *c, int64_t elems)
{
    int lowest = -BIAS, highest = BIAS;
    int64_t flushed = sum_bins(c, -BIAS, LEAST_KEPT - 1) + c->ties;
    int64_t subnormal = sum_bins(c, LEAST_KEPT, LEAST_NORMAL - 1) - c->ties;
    ht_json_begin_object(json, name);
    ht_json_put_number(json, "max", c->max);
    put_share(json, "flushed", flushed, elems);
    put_share(json, "subnormal", subnormal, elems);
    put_share(json, "normal", sum_bins(c, LEAST_NORMAL, LARGEST) - c->above, elems);
    put_share(json, "above", sum_bins(c, LARGEST + 1, BIAS) + c->above, elems);
    while (lowest < highest && !c->bins[lowest + BIAS]) lowest++;
    while (highest > lowest && !c->bins[highest + BIAS]) highest--;
    bool none = !c->bins[lowest + BIAS];
    ht_json_put_int(json, "lowest", none ? 0 : lowest);
    ht_json_begin_array(json, "counts");
    for (int e = lowest; e <= highest && !none; e++) ht_json_put_int(json, NULL, c->bins[e + BIAS]);
    ht_json_end_array(json);
    ht_json_end_object(json);
}

/* ---- looking ---- */

static bool look(void *arg, const ht_instr *instr, size_t result, const ht_type *type, const void *data)
{
    ht_numerics *n = arg;
    if (!n->file) return true;
    if (instr->role != HT_ROLE_BWD_ACT && instr->role != HT_ROLE_BWD_WEIGHT) return true;
    if (!instr->loss_scaled || !ht_dtype_is_float(type->dtype)) return true;
    const char *name = ht_replay_name(n->replay, instr, result);
    if (!name && instr->call->op->prec == HT_PREC_MOVE) return true; /* the same numbers once more */
    if (!name && type->rank == 0) return true; /* the loss scale itself, before the first gradient */
    counts *c = malloc(sizeof *c);
    if (!c) {
        n->line.failed = true;
        return false;
    }
    ht_type_text shape;
    int64_t elems = ht_type_elems(type);
    ht_json_writer *json = &n->json;
    count_all(c, type, data, n->scale);
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "role", ht_role_names[instr->role]);
    ht_json_put_text(json, "name", name);
    ht_json_put_text(json, "op", instr->call->op->name);
    ht_json_put_text(json, "layer", instr->site ? instr->site : instr->origin_site);
    ht_json_put_text(json, "origin", instr->origin);
    ht_json_put_text(json, "type", ht_type_str(type, &shape));
    ht_json_put_int(json, "elements", elems);
    put_share(json, "zero", c->zero, elems);
    ht_json_put_int(json, "inf", c->inf);
    ht_json_put_int(json, "nan", c->nan);
    put_counts(json, "unscaled", c, elems);
    if (n->scale != 1) {
        count_all(c, type, data, 1);
        put_counts(json, "scaled", c, elems);
    }
    ht_json_end_object(json);
    free(c);
    return true;
}

static ht_status put_line(ht_numerics *n)
{
    ht_json_end_object(&n->json);
    ht_text_add(&n->line, "\n");
    if (!n->file) return HT_OK;
    if (n->line.failed) HT_FAIL(n->ctx, HT_ENOMEM, "%s: out of memory", n->path);
    bool wrote = fwrite(n->line.data, 1, n->line.length, n->file) == n->line.length && fflush(n->file) == 0;
    if (!wrote) HT_FAIL(n->ctx, HT_EIO, "%s: %s", n->path, strerror(errno));
    return HT_OK;
}

static void start_line(ht_numerics *n, const char *kind, int64_t step)
{
    n->line.length = 0;
    n->json = (ht_json_writer){.text = &n->line};
    ht_json_begin_object(&n->json, NULL);
    ht_json_put_text(&n->json, "kind", kind);
    ht_json_put_int(&n->json, "step", step);
    ht_json_put_number(&n->json, "loss_scale", n->scale);
}

ht_status ht_numerics_before(ht_numerics *n, int64_t step, bool last)
{
    double scale = ht_session_loss_scale(ht_run_session(n->run));
    if (scale != n->scale) {
        n->scale = scale;
        start_line(n, "loss_scale", step);
        HT_TRY(put_line(n));
    }
    if (step != 1 && !last && step % n->every != 0) return HT_OK;
    HT_TRY(ht_replay_take(n->replay, step));
    start_line(n, "tensors", step);
    ht_json_begin_array(&n->json, "tensors");
    HT_TRY(ht_replay_step(n->replay, step, 1, false, look, n));
    ht_json_end_array(&n->json);
    return put_line(n);
}
