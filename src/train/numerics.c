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
    FILE *file;
    char *path;
    int64_t every;
    double scale; /* as noted last; NAN: not yet */
    /* while it looks */
    ht_text line;
    size_t tensors;
};

ht_status ht_numerics_open(ht_numerics **out, ht_run *run, const char *folder, int64_t step, int64_t every)
{
    ht_context *ctx = ht_run_look(run).job->ctx;
    *out = calloc(1, sizeof **out);
    if (!*out) HT_FAIL(ctx, HT_ENOMEM, "out of memory for numerics");
    ht_numerics *n = *out;
    *n = (ht_numerics){.ctx = ctx, .run = run, .every = every, .scale = NAN};
    ht_status status = ht_folder_path(ctx, &n->path, folder, "numerics.jsonl");
    if (status == HT_OK && step > 0) status = ht_sink_cut_jsonl(ctx, n->path, step);
    if (status == HT_OK && !(n->file = fopen(n->path, step > 0 ? "abe" : "wbe")))
        status = ht_fail(ctx, HT_EIO, "%s: %s", n->path, strerror(errno));
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

static void add_share(ht_text *text, const char *name, int64_t count, int64_t of)
{
    ht_text_add(text, ", \"%s\": ", name);
    ht_text_number(text, of > 0 ? (double)count / (double)of : 0);
}

/* The values as f16 would hold them, in shares of all, and how many have which exponent. */
static void add_counts(ht_text *text, const char *name, const counts *c, int64_t elems)
{
    int lowest = -BIAS, highest = BIAS;
    int64_t flushed = sum_bins(c, -BIAS, LEAST_KEPT - 1) + c->ties;
    int64_t subnormal = sum_bins(c, LEAST_KEPT, LEAST_NORMAL - 1) - c->ties;
    ht_text_add(text, ", \"%s\": {\"max\": ", name);
    ht_text_number(text, c->max);
    add_share(text, "flushed", flushed, elems);
    add_share(text, "subnormal", subnormal, elems);
    add_share(text, "normal", sum_bins(c, LEAST_NORMAL, LARGEST) - c->above, elems);
    add_share(text, "above", sum_bins(c, LARGEST + 1, BIAS) + c->above, elems);
    while (lowest < highest && !c->bins[lowest + BIAS]) lowest++;
    while (highest > lowest && !c->bins[highest + BIAS]) highest--;
    bool none = !c->bins[lowest + BIAS];
    ht_text_add(text, ", \"lowest\": %d, \"counts\": [", none ? 0 : lowest);
    for (int e = lowest; e <= highest && !none; e++)
        ht_text_add(text, "%s%" PRId64, e == lowest ? "" : ", ", c->bins[e + BIAS]);
    ht_text_add(text, "]}");
}

/* ---- looking ---- */

static void add_word(ht_text *text, const char *name, const char *word)
{
    ht_text_add(text, ", \"%s\": ", name);
    if (word)
        ht_json_print_string(text, word, strlen(word));
    else
        ht_text_add(text, "null");
}

static bool look(void *arg, const ht_instr *instr, size_t result, const ht_type *type, const void *data)
{
    ht_numerics *n = arg;
    if (instr->role != HT_ROLE_BWD_ACT && instr->role != HT_ROLE_BWD_WEIGHT) return true;
    if (!instr->loss_scaled || !ht_dtype_is_float(type->dtype)) return true;
    const char *name = ht_replay_name(n->replay, instr, result);
    if (!name && instr->call->op->prec == HT_PREC_MOVE) return true; /* the same numbers once more */
    counts *c = malloc(sizeof *c);
    if (!c) {
        n->line.failed = true;
        return false;
    }
    ht_type_text shape;
    int64_t elems = ht_type_elems(type);
    ht_text *line = &n->line;
    count_all(c, type, data, n->scale);
    ht_text_add(line, "%s{\"role\": \"%s\"", n->tensors++ ? ", " : "", ht_role_names[instr->role]);
    add_word(line, "name", name);
    add_word(line, "op", instr->call->op->name);
    add_word(line, "layer", instr->site ? instr->site : instr->origin_site);
    add_word(line, "origin", instr->origin);
    add_word(line, "type", ht_type_str(type, &shape));
    ht_text_add(line, ", \"elements\": %" PRId64, elems);
    add_share(line, "zero", c->zero, elems);
    ht_text_add(line, ", \"inf\": %" PRId64 ", \"nan\": %" PRId64, c->inf, c->nan);
    add_counts(line, "unscaled", c, elems);
    if (n->scale != 1) {
        count_all(c, type, data, 1);
        add_counts(line, "scaled", c, elems);
    }
    ht_text_add(line, "}");
    free(c);
    return true;
}

static ht_status put_line(ht_numerics *n)
{
    ht_text_add(&n->line, "}\n");
    if (n->line.failed) HT_FAIL(n->ctx, HT_ENOMEM, "%s: out of memory", n->path);
    bool wrote = fwrite(n->line.data, 1, n->line.length, n->file) == n->line.length && fflush(n->file) == 0;
    if (!wrote) HT_FAIL(n->ctx, HT_EIO, "%s: %s", n->path, strerror(errno));
    return HT_OK;
}

static void start_line(ht_numerics *n, const char *kind, int64_t step)
{
    n->line.length = 0;
    ht_text_add(&n->line, "{\"kind\": \"%s\", \"step\": %" PRId64 ", \"loss_scale\": ", kind, step);
    ht_text_number(&n->line, n->scale);
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
    ht_text_add(&n->line, ", \"tensors\": [");
    n->tensors = 0;
    HT_TRY(ht_replay_step(n->replay, step, 1, false, look, n));
    ht_text_add(&n->line, "]");
    return put_line(n);
}
