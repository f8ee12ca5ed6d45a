/* Products by weights of 4 and 8 bits (matmul_nbits, groups of 64) against our own f32, for 1, 8 and 128 rows; and the bytes of both
 * kinds of weights. */
#include <string.h>

#include "contest.h"
#include "ours.h"

typedef struct shape {
    int64_t k, n;
} shape;

static const shape shapes[] = {{768, 3072}, {3072, 768}, {4096, 4096}, {768, 50257}};
static const int64_t row_counts[] = {1, 8, 128};
enum { GROUP = 64 };

static int64_t build_codes(ours *o, ht_context *ctx, int64_t rows, shape s, int bits)
{
    ours_begin(o, ctx);
    ht_graph *g = o->graph;
    int64_t groups = (s.k + GROUP - 1) / GROUP, words = (s.k * bits + 31) / 32;
    ht_type y = ht_type_make(HT_F32, 2, (int64_t[]){rows, s.n});
    ht_val a = ht_input(g, "a", HT_F32, HT_DIMS(rows, s.k));
    ht_val codes = ht_param(g, "codes", HT_I32, HT_DIMS(words, s.n), HT_ZERO);
    ht_val scale = ht_param(g, "scale", HT_F32, HT_DIMS(groups, s.n), HT_ZERO);
    ht_val zero = ht_param(g, "zero", HT_U8, HT_DIMS(groups, s.n), HT_ZERO);
    ht_output(g, "y",
              ht_emit1(g, "matmul_nbits", &y, HT_VALS(a, codes, scale, zero),
                       HT_ATTRS(HT_INT("bits", bits), HT_INT("group", GROUP))));
    ours_ready(o);
    ours_fill(o, "codes", -2147483648.0, 2147483647.0);
    ours_fill(o, "zero", 0, (1 << bits) - 1);
    return words * s.n * 4 + groups * s.n * 5;
}

static int64_t build_floats(ours *o, ht_context *ctx, int64_t rows, shape s)
{
    ours_begin(o, ctx);
    ht_val a = ht_input(o->graph, "a", HT_F32, HT_DIMS(rows, s.k));
    ht_val b = ht_param(o->graph, "b", HT_F32, HT_DIMS(s.k, s.n), HT_ZERO);
    ht_output(o->graph, "y", ht_matmul(o->graph, a, b, NULL));
    ours_ready(o);
    return s.k * s.n * 4;
}

static void measure(ht_context *ctx, int64_t rows, shape s, const char *only)
{
    char name[64], wide_name[64];
    snprintf(name, sizeof name, "int4_%lldx%lldx%lld", (long long)rows, (long long)s.n, (long long)s.k);
    snprintf(wide_name, sizeof wide_name, "int8_%s", name + strlen("int4_"));
    if (!strstr(name, only)) return;
    ours narrow, wide, f32;
    int64_t narrow_bytes = build_codes(&narrow, ctx, rows, s, 4), wide_bytes = build_codes(&wide, ctx, rows, s, 8),
            f32_bytes = build_floats(&f32, ctx, rows, s);
    contest c = {.name = name, .unit = "ms", .seconds = 2};
    int mine = contest_add(&c, "int4", ours_turn, &narrow, 0), other = contest_add(&c, "int8", ours_turn, &wide, 0),
        theirs = contest_add(&c, "f32", ours_turn, &f32, 0);
    contest_run(&c);
    contest_row(&c, NULL, mine, theirs, "halftone_f32");
    contest_row(&c, wide_name, other, theirs, "halftone_f32");
    printf("  bytes of weights: int4 %.3f, int8 %.3f of f32's; time of f32 by int4's %.2f, by int8's %.2f\n",
           (double)narrow_bytes / (double)f32_bytes, (double)wide_bytes / (double)f32_bytes,
           contest_value(&c, theirs) / contest_value(&c, mine), contest_value(&c, theirs) / contest_value(&c, other));
    ours_end(&narrow);
    ours_end(&wide);
    ours_end(&f32);
}

/* bench_nbits [PART]: only the rows whose names contain it (int4_1x3072x768: rows, columns, inputs). */
int main(int argc, char **argv)
{
    ht_context *ctx = ours_context();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t r = 0; r < sizeof row_counts / sizeof row_counts[0]; r++)
            measure(ctx, row_counts[r], shapes[i], argc > 1 ? argv[1] : "");
    ht_context_free(ctx);
    return 0;
}
