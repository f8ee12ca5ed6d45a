/* What samples cannot show of attention and rotary: equalities between differently written calls, for the reference and
 * for the kernel that this machine chooses. */
#include "op_call.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NEAR_COUNT = 2 };
static const op_runner runners[NEAR_COUNT] = {op_call_reference, op_call_kernel};
static const double tolerances[NEAR_COUNT] = {1e-12, 2e-6};

/* Copies `rows` rows of `width` numbers. */
static void copy_rows(double *to, const double *from, int64_t rows, int64_t width)
{
    memcpy(to, from, (size_t)(rows * width) * sizeof *to);
}

/* A backward call of the forward one's shape: its q, k, v, y and lse; dy stays as drawn. */
static void give_forward(op_call *back, const op_call *forward)
{
    for (size_t i = 0; i < 3; i++) copy_rows(back->a.in[i], forward->a.in[i], op_call_elems_in(forward, i), 1);
    copy_rows(back->a.in[3], forward->a.out[0], op_call_elems_out(forward, 0), 1);
    copy_rows(back->a.in[4], forward->a.out[1], op_call_elems_out(forward, 1), 1);
}

static void causal__row_i_is_a_query_with_length_i_plus_1(void **state)
{
    (void)state;
    enum { T = 70, D = 5 };
    for (int r = 0; r < NEAR_COUNT; r++) {
        op_call whole, single;
        op_call_open(&whole, "attention", "(f32[1,1,70,5] -3..3, f32[1,1,70,5] -3..3, f32[1,1,70,5]) causal=1");
        op_call_open(&single, "attention", "(f32[70,1,1,5], f32[70,1,70,5], f32[70,1,70,5], i32[70])");
        copy_rows(single.a.in[0], whole.a.in[0], T, D);
        for (int64_t b = 0; b < T; b++) {
            copy_rows(single.a.in[1] + b * T * D, whole.a.in[1], T, D);
            copy_rows(single.a.in[2] + b * T * D, whole.a.in[2], T, D);
            single.a.in[3][b] = (double)(b + 1);
        }
        runners[r](&whole);
        runners[r](&single);
        op_call_near("y", whole.a.out[0], single.a.out[0], T * D, tolerances[r]);
        op_call_near("lse", whole.a.out[1], single.a.out[1], T, tolerances[r]);
        op_call_close(&whole);
        op_call_close(&single);
    }
}

static void causal__last_queries_of_a_longer_sequence_see_its_past(void **state)
{
    (void)state;
    enum { T = 50, LAST = 7, D = 4 };
    for (int r = 0; r < NEAR_COUNT; r++) {
        op_call whole, last;
        op_call_open(&whole, "attention", "(f32[1,1,50,4], f32[1,1,50,4], f32[1,1,50,4]) causal=1");
        op_call_open(&last, "attention", "(f32[1,1,7,4], f32[1,1,50,4], f32[1,1,50,4]) causal=1");
        copy_rows(last.a.in[0], whole.a.in[0] + (T - LAST) * D, LAST, D);
        copy_rows(last.a.in[1], whole.a.in[1], T, D);
        copy_rows(last.a.in[2], whole.a.in[2], T, D);
        runners[r](&whole);
        runners[r](&last);
        op_call_near("y", last.a.out[0], whole.a.out[0] + (T - LAST) * D, LAST * D, tolerances[r]);
        op_call_close(&whole);
        op_call_close(&last);
    }
}

/* k or v of 2 groups, each written three times. */
static void repeat_groups(double *to, const double *from, int64_t batch, int64_t rows)
{
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < 6; h++) copy_rows(to + (b * 6 + h) * rows, from + (b * 2 + h / 3) * rows, rows, 1);
}

static void grouped_heads__equal_repeated_keys_and_values(void **state)
{
    (void)state;
    enum { B = 2, ROWS = 40 * 4 };
    for (int r = 0; r < NEAR_COUNT; r++) {
        op_call grouped, repeated, grouped_back, repeated_back;
        op_call_open(&grouped, "attention", "(f32[2,6,40,4], f32[2,2,40,4], f32[2,2,40,4]) causal=1");
        op_call_open(&repeated, "attention", "(f32[2,6,40,4], f32[2,6,40,4], f32[2,6,40,4]) causal=1");
        op_call_open(
            &grouped_back, "attention_grad",
            "(f32[2,6,40,4], f32[2,2,40,4], f32[2,2,40,4], f32[2,6,40,4], f32[2,6,40], f32[2,6,40,4]) causal=1");
        op_call_open(
            &repeated_back, "attention_grad",
            "(f32[2,6,40,4], f32[2,6,40,4], f32[2,6,40,4], f32[2,6,40,4], f32[2,6,40], f32[2,6,40,4]) causal=1");
        copy_rows(repeated.a.in[0], grouped.a.in[0], B * 6, ROWS);
        for (size_t i = 1; i < 3; i++) repeat_groups(repeated.a.in[i], grouped.a.in[i], B, ROWS);
        runners[r](&grouped);
        runners[r](&repeated);
        op_call_near("y", grouped.a.out[0], repeated.a.out[0], (int64_t)B * 6 * ROWS, 0);
        give_forward(&grouped_back, &grouped);
        give_forward(&repeated_back, &repeated);
        runners[r](&grouped_back);
        runners[r](&repeated_back);
        op_call_near("dq", grouped_back.a.out[0], repeated_back.a.out[0], (int64_t)B * 6 * ROWS, 0);
        for (size_t i = 1; i < 3; i++)
            for (int64_t bg = 0; bg < 2 * B; bg++)
                for (int64_t e = 0; e < ROWS; e++) {
                    const double *part = repeated_back.a.out[i] + bg * 3 * ROWS + e;
                    double sum = part[0] + part[ROWS] + part[2 * ROWS];
                    op_call_near("dk, dv", &grouped_back.a.out[i][bg * ROWS + e], &sum, 1, tolerances[r]);
                }
        op_call_close(&grouped);
        op_call_close(&repeated);
        op_call_close(&grouped_back);
        op_call_close(&repeated_back);
    }
}

static void rows_without_keys__are_zero_and_so_is_their_gradient(void **state)
{
    (void)state;
    for (int r = 0; r < NEAR_COUNT; r++) {
        op_call forward, back;
        /* Sequence 0 has no key at all, sequence 1 five; and the first two of six queries come before every key. */
        op_call_open(&forward, "attention", "(f32[2,1,6,3], f32[2,1,4,3], f32[2,1,4,3], i32[2]) causal=1");
        op_call_open(
            &back, "attention_grad",
            "(f32[2,1,6,3], f32[2,1,4,3], f32[2,1,4,3], f32[2,1,6,3], f32[2,1,6], f32[2,1,6,3], i32[2]) causal=1");
        forward.a.in[3][0] = back.a.in[6][0] = -2;
        forward.a.in[3][1] = back.a.in[6][1] = 5;
        runners[r](&forward);
        op_call_all("y of sequence 0", forward.a.out[0], 18, 0);
        op_call_all("lse of sequence 0", forward.a.out[1], 6, -INFINITY);
        op_call_all("y before the first key", forward.a.out[0] + 18, 6, 0);
        op_call_all("lse before the first key", forward.a.out[1] + 6, 2, -INFINITY);
        assert_true(isfinite(forward.a.out[1][8]));
        give_forward(&back, &forward);
        runners[r](&back);
        op_call_all("dq of sequence 0", back.a.out[0], 18, 0);
        op_call_all("dk of sequence 0", back.a.out[1], 12, 0);
        op_call_all("dv of sequence 0", back.a.out[2], 12, 0);
        op_call_all("dq before the first key", back.a.out[0] + 18, 6, 0);
        assert_true(back.a.out[2][12] != 0);
        op_call_close(&forward);
        op_call_close(&back);
    }
}

static void hidden_keys__may_hold_anything(void **state)
{
    (void)state;
    enum { T = 40, SEEN = 33, D = 3 };
    for (int r = 0; r < NEAR_COUNT; r++) {
        op_call forward, back;
        op_call_open(&forward, "attention", "(f32[1,1,5,3], f32[1,1,40,3], f32[1,1,40,3], i64[1] 33..33)");
        op_call_open(
            &back, "attention_grad",
            "(f32[1,1,5,3], f32[1,1,40,3], f32[1,1,40,3], f32[1,1,5,3], f32[1,1,5], f32[1,1,5,3], i64[1] 33..33)");
        for (size_t i = 1; i < 3; i++)
            for (int64_t e = SEEN * D; e < T * D; e++) forward.a.in[i][e] = NAN;
        runners[r](&forward);
        for (int64_t e = 0; e < 5 * D; e++) assert_true(isfinite(forward.a.out[0][e]));
        give_forward(&back, &forward);
        runners[r](&back);
        for (int64_t e = 0; e < 5 * D; e++) assert_true(isfinite(back.a.out[0][e]));
        for (size_t i = 1; i < 3; i++) {
            for (int64_t e = 0; e < SEEN * D; e++) assert_true(isfinite(back.a.out[i][e]));
            op_call_all("beyond the length", back.a.out[i] + SEEN * D, (T - SEEN) * D, 0);
        }
        op_call_close(&forward);
        op_call_close(&back);
    }
}

/* Row t of the packed sequence belongs to document[t]; compares each document with a sequence of its own. */
static void check_documents(op_runner run, double tolerance, int64_t total, const int *document, int count, int causal)
{
    enum { D = 4 };
    op_call packed, back;
    op_call_open(&packed, "attention",
                 "(f32[1,1,%d,4] -2..2, f32[1,1,%d,4] -2..2, f32[1,1,%d,4], _, i32[1,%d]) causal=%d", (int)total,
                 (int)total, (int)total, (int)total, causal);
    op_call_open(
        &back, "attention_grad",
        "(f32[1,1,%d,4], f32[1,1,%d,4], f32[1,1,%d,4], f32[1,1,%d,4], f32[1,1,%d], f32[1,1,%d,4], _, i32[1,%d])"
        " causal=%d",
        (int)total, (int)total, (int)total, (int)total, (int)total, (int)total, (int)total, causal);
    for (int64_t t = 0; t < total; t++) packed.a.in[4][t] = back.a.in[7][t] = document[t];
    run(&packed);
    give_forward(&back, &packed);
    run(&back);
    for (int d = 0; d < count; d++) {
        int64_t row[256], n = 0;
        for (int64_t t = 0; t < total; t++)
            if (document[t] == d) row[n++] = t;
        op_call alone, alone_back;
        op_call_open(&alone, "attention", "(f32[1,1,%d,4], f32[1,1,%d,4], f32[1,1,%d,4]) causal=%d", (int)n, (int)n,
                     (int)n, causal);
        op_call_open(
            &alone_back, "attention_grad",
            "(f32[1,1,%d,4], f32[1,1,%d,4], f32[1,1,%d,4], f32[1,1,%d,4], f32[1,1,%d], f32[1,1,%d,4]) causal=%d",
            (int)n, (int)n, (int)n, (int)n, (int)n, (int)n, causal);
        for (int64_t t = 0; t < n; t++) {
            for (size_t i = 0; i < 3; i++) copy_rows(alone.a.in[i] + t * D, packed.a.in[i] + row[t] * D, 1, D);
            copy_rows(alone_back.a.in[5] + t * D, back.a.in[5] + row[t] * D, 1, D);
        }
        run(&alone);
        give_forward(&alone_back, &alone);
        run(&alone_back);
        for (int64_t t = 0; t < n; t++) {
            op_call_near("y", packed.a.out[0] + row[t] * D, alone.a.out[0] + t * D, D, tolerance);
            op_call_near("lse", packed.a.out[1] + row[t], alone.a.out[1] + t, 1, tolerance);
            for (size_t i = 0; i < 3; i++)
                op_call_near("dq, dk, dv", back.a.out[i] + row[t] * D, alone_back.a.out[i] + t * D, D, tolerance);
        }
        op_call_close(&alone);
        op_call_close(&alone_back);
    }
    op_call_close(&packed);
    op_call_close(&back);
}

static void packed_documents__equal_sequences_of_their_own(void **state)
{
    (void)state;
    enum { TOTAL = 130 };
    int in_a_row[TOTAL], mixed[TOTAL];
    for (int t = 0; t < TOTAL; t++) {
        in_a_row[t] = t < 13 ? 0 : t < 50 ? 1 : 2;
        mixed[t] = t % 3;
    }
    for (int r = 0; r < NEAR_COUNT; r++) {
        check_documents(runners[r], 4 * tolerances[r], TOTAL, in_a_row, 3, 1);
        check_documents(runners[r], 4 * tolerances[r], TOTAL, mixed, 3, 0);
    }
}

static void large_scores__do_not_overflow(void **state)
{
    (void)state;
    for (int r = 0; r < NEAR_COUNT; r++) {
        op_call call;
        op_call_open(&call, "attention", "(f32[1,1,3,2], f32[1,1,80,2], f32[1,1,80,2]) scale=1");
        for (int64_t e = 0; e < 6; e++) call.a.in[0][e] = 100;
        for (int64_t e = 0; e < 160; e++) call.a.in[1][e] = (double)(e / 2); /* scores 0, 200, 400, … */
        runners[r](&call);
        for (int64_t i = 0; i < 3; i++) op_call_near("y", call.a.out[0] + 2 * i, call.a.in[2] + 158, 2, tolerances[r]);
        op_call_near("lse", call.a.out[1], (double[]){79 * 200}, 1, tolerances[r]);
        op_call_close(&call);
    }
}

static void kernel__takes_heads_behind_positions_in_memory(void **state)
{
    (void)state;
    static const int order[4] = {0, 2, 1, 3};
    op_call call, back;
    op_call_open(&call, "attention", "(f32[2,4,40,3], f32[2,2,40,3], f32[2,2,40,3]) causal=1");
    op_call_open(&back, "attention_grad",
                 "(f32[2,4,40,3], f32[2,2,40,3], f32[2,2,40,3], f32[2,4,40,3], f32[2,4,40] 2..3,"
                 " f32[2,4,40,3]) causal=1");
    double y[2 * 4 * 40 * 3], dk[2 * 2 * 40 * 3];
    op_call_kernel(&call);
    op_call_kernel(&back);
    memcpy(y, call.a.out[0], sizeof y);
    memcpy(dk, back.a.out[1], sizeof dk);
    for (size_t i = 0; i < 3; i++) {
        op_call_kernel_permuted(&call, i, order);
        op_call_near("y", call.a.out[0], y, sizeof y / sizeof y[0], 0);
    }
    for (size_t i = 0; i < 6; i++) {
        if (i == 4) continue;
        op_call_kernel_permuted(&back, i, order);
        op_call_near("dk", back.a.out[1], dk, sizeof dk / sizeof dk[0], 0);
    }
    op_call_close(&call);
    op_call_close(&back);
}

static int64_t workspace_at(const char *op, int heads, int steps)
{
    op_call call;
    if (!strcmp(op, "attention"))
        op_call_open(&call, op, "(f32[1,%d,%d,8], f32[1,%d,%d,8], f32[1,%d,%d,8]) causal=1", heads, steps, heads, steps,
                     heads, steps);
    else
        op_call_open(&call, op,
                     "(f32[1,%d,%d,8], f32[1,%d,%d,8], f32[1,%d,%d,8], f32[1,%d,%d,8], f32[1,%d,%d], f32[1,%d,%d,8])",
                     heads, steps, heads, steps, heads, steps, heads, steps, heads, steps, heads, steps);
    int64_t bytes = op_call_workspace(&call);
    op_call_close(&call);
    return bytes;
}

/* Linear, and for any length far from a score for every pair of positions. */
static void workspace__grows_no_faster_than_the_sequence(void **state)
{
    (void)state;
    static const char *const ops[] = {"attention", "attention_grad"};
    for (size_t i = 0; i < 2; i++)
        for (int heads = 1; heads <= 32; heads *= 32) {
            int64_t few = workspace_at(ops[i], heads, 4096), many = workspace_at(ops[i], heads, 65536);
            assert_true(few > 0);
            assert_true(many <= 16 * few);
            assert_true(many < (int64_t)heads * 65536 * 65536 / 16);
        }
}

/* Lengths and widths that end inside tiles, slabs and vectors; more keys than queries and fewer; few groups, so that
 * backward adds parts, and many. */
static void kernel__equals_the_reference_at_odd_sizes(void **state)
{
    (void)state;
    static const struct {
        int batch, heads, groups, queries, keys, width, value_width, causal;
    } sizes[] = {
        {1, 2, 1, 205, 397, 70, 33, 1}, {1, 1, 1, 397, 205, 5, 129, 1}, {4, 4, 4, 97, 193, 16, 64, 0},
        {2, 6, 3, 13, 600, 64, 64, 1},  {1, 1, 1, 1, 500, 64, 8, 0},    {1, 20, 20, 200, 200, 3, 1, 1},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char sides[256];
        snprintf(sides, sizeof sides, "f32[%d,%d,%d,%d] -2..2, f32[%d,%d,%d,%d], f32[%d,%d,%d,%d]", sizes[i].batch,
                 sizes[i].heads, sizes[i].queries, sizes[i].width, sizes[i].batch, sizes[i].groups, sizes[i].keys,
                 sizes[i].width, sizes[i].batch, sizes[i].groups, sizes[i].keys, sizes[i].value_width);
        int b = sizes[i].batch, h = sizes[i].heads, t = sizes[i].queries, d = sizes[i].value_width;
        op_call want, got, want_back, got_back;
        op_call_open(&want, "attention", "(%s) causal=%d", sides, sizes[i].causal);
        op_call_open(&got, "attention", "(%s) causal=%d", sides, sizes[i].causal);
        op_call_open(&want_back, "attention_grad", "(%s, f32[%d,%d,%d,%d], f32[%d,%d,%d], f32[%d,%d,%d,%d]) causal=%d",
                     sides, b, h, t, d, b, h, t, b, h, t, d, sizes[i].causal);
        op_call_open(&got_back, "attention_grad", "(%s, f32[%d,%d,%d,%d], f32[%d,%d,%d], f32[%d,%d,%d,%d]) causal=%d",
                     sides, b, h, t, d, b, h, t, b, h, t, d, sizes[i].causal);
        op_call_reference(&want);
        op_call_kernel(&got);
        give_forward(&want_back, &want);
        give_forward(&got_back, &want);
        op_call_reference(&want_back);
        op_call_kernel(&got_back);
        for (size_t r = 0; r < 2; r++)
            op_call_near("y, lse", got.a.out[r], want.a.out[r], op_call_elems_out(&want, r), 2e-6);
        for (size_t r = 0; r < 3; r++)
            op_call_near("dq, dk, dv", got_back.a.out[r], want_back.a.out[r], op_call_elems_out(&want_back, r), 1e-5);
        op_call_close(&want);
        op_call_close(&got);
        op_call_close(&want_back);
        op_call_close(&got_back);
    }
}

/* A query that is not a number gives no number, wherever its row lies in a tile, and spoils no other row. */
static void nan_queries__give_nan_rows(void **state)
{
    (void)state;
    enum { T = 250, D = 3 };
    static const int64_t bad[] = {0, 1, 95, 96, 200, 249};
    for (int r = 0; r < NEAR_COUNT; r++)
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            op_call call;
            op_call_open(&call, "attention", "(f32[1,1,250,3], f32[1,1,250,3], f32[1,1,250,3]) causal=1");
            call.a.in[0][bad[i] * D] = NAN;
            runners[r](&call);
            for (int64_t t = 0; t < T; t++)
                for (int64_t d = 0; d < D; d++) assert_int_equal(isnan(call.a.out[0][t * D + d]), t == bad[i]);
            op_call_close(&call);
        }
}

static void attention__refuses_what_does_not_fit(void **state)
{
    (void)state;
    op_call_refused("attention", "(f32[1,3,2,4], f32[1,2,2,4], f32[1,2,2,4])", "multiple");
    op_call_refused("attention", "(f32[1,3,2,4], f32[1,0,2,4], f32[1,0,2,4])", "multiple");
    op_call_refused("attention", "(f32[1,2,2,4], f32[1,2,2,3], f32[1,2,2,4])", "input 1");
    op_call_refused("attention", "(f32[1,2,2,4], f32[1,2,3,4], f32[1,2,2,4])", "input 1");
    op_call_refused("attention", "(f32[2,2,2,4], f32[1,2,2,4], f32[1,2,2,4])", "input 1");
    op_call_refused("attention", "(f32[2,2,4], f32[2,2,4], f32[2,2,4])", "rank");
    op_call_refused("attention", "(i32[1,2,2,4], f32[1,2,2,4], f32[1,2,2,4])", "floating");
    op_call_refused("attention", "(f32[1,1,2,4], f32[1,1,2,4], f32[1,1,2,4], f32[1])", "i32");
    op_call_refused("attention", "(f32[1,1,2,4], f32[1,1,2,4], f32[1,1,2,4], i32[2])", "input 3");
    op_call_refused("attention", "(f32[1,1,2,4], f32[1,1,3,4], f32[1,1,3,4], _, i32[1,3])", "documents");
    op_call_refused("attention", "(f32[1,1,2,4], f32[1,1,2,4], f32[1,1,2,4]) causal=2", "causal");
    op_call_refused("attention", "(f32[1,1,2,4], f32[1,1,2,4], f32[1,1,2,4]) scale=inf", "scale");
    op_call_refused("attention", "(f32[1,1,2,4], _, f32[1,1,2,4])", "input 1");
    op_call_refused("attention_grad",
                    "(f32[1,1,2,4], f32[1,1,2,4], f32[1,1,2,4], f32[1,1,2,4], f32[1,1,3], f32[1,1,2,4])", "input 4");
}

static void builder__passes_every_option(void **state)
{
    (void)state;
    ht_graph *g;
    assert_int_equal(ht_graph_create(&g, context_shared()), HT_OK);
    ht_val q = ht_input(g, "q", HT_F32, HT_DIMS(2, 4, 6, 8)), k = ht_input(g, "k", HT_F32, HT_DIMS(2, 2, 6, 8));
    ht_val position = ht_input(g, "position", HT_I32, HT_DIMS(6));
    ht_attention_opts opts = {.size = sizeof opts, .causal = true, .scale = 0.5};
    opts.lengths = ht_input(g, "lengths", HT_I32, HT_DIMS(2));
    opts.document = ht_input(g, "document", HT_I64, HT_DIMS(2, 6));
    ht_val y = ht_attention(g, ht_rotary(g, q, position, 500, true), k, k, &opts);
    assert_int_equal(ht_graph_status(g), HT_OK);
    const ht_node *attention = ht_producer(g, y), *rotary = ht_producer(g, ht_node_in(g, attention, 0));
    ht_call_storage storage;
    const ht_call *call = ht_node_call(g, attention, NULL, &storage);
    assert_int_equal(call->n_in, 5);
    assert_int_equal(ht_call_int(call, "causal"), 1);
    assert_true(ht_call_float(call, "scale") == 0.5);
    assert_int_equal(ht_node_in(g, attention, 3).id, opts.lengths.id);
    assert_int_equal(ht_node_in(g, attention, 4).id, opts.document.id);
    call = ht_node_call(g, rotary, NULL, &storage);
    assert_true(ht_call_float(call, "base") == 500);
    assert_int_equal(ht_call_int(call, "interleaved"), 1);
    assert_int_equal(ht_producer(g, ht_attention(g, q, k, k, NULL))->n_in, 3);
    assert_int_equal(ht_attention(g, k, q, q, NULL).id, 0);
    assert_int_equal(ht_graph_status(g), HT_ESHAPE);
    ht_graph_free(g);
}

/* ---- rotary ---- */

static void rotary__inverse_undoes_it(void **state)
{
    (void)state;
    for (int r = 0; r < NEAR_COUNT; r++)
        for (int interleaved = 0; interleaved < 2; interleaved++) {
            op_call there, back;
            op_call_open(&there, "rotary", "(f32[2,3,20,10], i32[2,20] 0..5000) interleaved=%d", interleaved);
            op_call_open(&back, "rotary", "(f32[2,3,20,10], i32[2,20] 0..5000) interleaved=%d inverse=1", interleaved);
            runners[r](&there);
            copy_rows(back.a.in[0], there.a.out[0], 1200, 1);
            runners[r](&back);
            op_call_near("x", back.a.out[0], there.a.in[0], 1200, tolerances[r]);
            op_call_close(&there);
            op_call_close(&back);
        }
}

/* q at p and k at p + 7 give the same product for every p, even far out: the angles are exact enough. */
static void rotary__products_depend_on_distance_only(void **state)
{
    (void)state;
    enum { T = 40, D = 8 };
    for (int r = 0; r < NEAR_COUNT; r++) {
        op_call q, k;
        op_call_open(&q, "rotary", "(f32[40,8], i64[40])");
        op_call_open(&k, "rotary", "(f32[40,8], i64[40])");
        for (int64_t t = 0; t < T; t++) {
            q.a.in[1][t] = (double)(t < 20 ? t : 1000000 + 7919 * t);
            k.a.in[1][t] = q.a.in[1][t] + 7;
            for (int64_t d = 0; d < D; d++) {
                q.a.in[0][t * D + d] = 0.1 * (double)d - 0.3;
                k.a.in[0][t * D + d] = 0.5 - 0.2 * (double)d;
            }
        }
        runners[r](&q);
        runners[r](&k);
        double first = 0;
        for (int64_t t = 0; t < T; t++) {
            double product = 0;
            for (int64_t d = 0; d < D; d++) product += q.a.out[0][t * D + d] * k.a.out[0][t * D + d];
            if (t == 0) first = product;
            op_call_near("product", &product, &first, 1, r == 0 ? 1e-8 : 2e-6);
        }
        op_call_close(&q);
        op_call_close(&k);
    }
}

static void rotary__kernel_takes_heads_behind_positions_in_memory(void **state)
{
    (void)state;
    static const int order[4] = {0, 2, 1, 3};
    op_call call;
    op_call_open(&call, "rotary", "(f32[2,3,20,10], i32[2,20] 0..5000)");
    double y[2 * 3 * 20 * 10];
    op_call_kernel(&call);
    memcpy(y, call.a.out[0], sizeof y);
    op_call_kernel_permuted(&call, 0, order);
    op_call_near("y", call.a.out[0], y, sizeof y / sizeof y[0], 0);
    op_call_close(&call);
}

static void rotary__refuses_what_does_not_fit(void **state)
{
    (void)state;
    op_call_refused("rotary", "(f32[4,3], i32[4])", "even");
    op_call_refused("rotary", "(f32[4], i32[4])", "[.., T, D]");
    op_call_refused("rotary", "(f32[4,2], i32[4,4])", "positions");
    op_call_refused("rotary", "(f32[2,4,2], i32[3,4])", "positions");
    op_call_refused("rotary", "(f32[4,2], i32[3])", "positions");
    op_call_refused("rotary", "(f32[4,2], f32[4])", "i32");
    op_call_refused("rotary", "(f32[4,2], i32[4]) base=0", "base");
    op_call_refused("rotary", "(f32[4,2], i32[4]) inverse=2", "inverse");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causal__row_i_is_a_query_with_length_i_plus_1),
        cmocka_unit_test(causal__last_queries_of_a_longer_sequence_see_its_past),
        cmocka_unit_test(grouped_heads__equal_repeated_keys_and_values),
        cmocka_unit_test(rows_without_keys__are_zero_and_so_is_their_gradient),
        cmocka_unit_test(hidden_keys__may_hold_anything),
        cmocka_unit_test(packed_documents__equal_sequences_of_their_own),
        cmocka_unit_test(large_scores__do_not_overflow),
        cmocka_unit_test(kernel__takes_heads_behind_positions_in_memory),
        cmocka_unit_test(workspace__grows_no_faster_than_the_sequence),
        cmocka_unit_test(kernel__equals_the_reference_at_odd_sizes),
        cmocka_unit_test(nan_queries__give_nan_rows),
        cmocka_unit_test(attention__refuses_what_does_not_fit),
        cmocka_unit_test(builder__passes_every_option),
        cmocka_unit_test(rotary__inverse_undoes_it),
        cmocka_unit_test(rotary__products_depend_on_distance_only),
        cmocka_unit_test(rotary__kernel_takes_heads_behind_positions_in_memory),
        cmocka_unit_test(rotary__refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
