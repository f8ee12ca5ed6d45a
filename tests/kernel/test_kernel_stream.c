/* Results from 16 MiB on are stored past the caches. Rows do not depend on each other, so the same rows in pieces,
 * which are small enough to be stored as usual, must have the same bits: for every instruction set that this machine
 * has, and also where the result starts in the middle of a line. */
#include "op_tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_BYTES = 16 << 20, PIECES = 8, LINE = 64, JUNK = 0xA5 };

typedef struct stream_case {
    const char *op;
    int rows;
    const char *line; /* a sample with @ for the number of rows */
} stream_case;

static const stream_case cases[] = {
    {"layernorm", 5504, "(f32[@,768] -3..3, f32[768], f32[768])"},
    {"layernorm", 5504, "(f32[@,771] -3..3, f32[771], f32[771])"},
    {"layernorm", 2048, "(f32[@,2064] -3..3)"},
    {"layernorm", 2752, "(f64[@,768] -3..3, f64[768], f64[768])"},
    {"layernorm", 11008, "(bf16[@,768] -3..3, f32[768], f32[768])"},
    {"rmsnorm", 5504, "(f32[@,768] -3..3, f32[768])"},
    {"layernorm_grad", 5504, "(f32[@,768], f32[@,768], f32[@], f32[@] 0.5..2, f32[768])"},
    {"layernorm_grad", 2048, "(f32[@,2064], f32[@,2064], f32[@], f32[@] 0.5..2)"},
    {"layernorm_grad", 2752, "(f64[@,768], f64[@,768], f64[@], f64[@] 0.5..2, f64[768])"},
    {"rmsnorm_grad", 5504, "(f32[@,768], f32[@,768], f32[@] 0.5..2, f32[768])"},
    {"softmax", 2816, "(f32[@,1500] -5..5)"},
    {"softmax", 5632, "(bf16[@,1503] -5..5)"},
    {"log_softmax", 2816, "(f32[@,1500] -5..5)"},
    {"cross_entropy_grad", 2816, "(f32[@,1501] -2..2, i32[@] 0..1500, f32[@] 8..9, f32[]) reduction=\"sum\""},
    {"cross_entropy_grad", 5632, "(bf16[@,1504] -2..2, i32[@] 0..1503, f32[@] 8..9, f32[]) reduction=\"sum\""},
};

static void open_case(op_case *c, const stream_case *from, int rows)
{
    char text[256];
    size_t at = 0;
    for (const char *s = from->line; *s; s++)
        at += (size_t)snprintf(text + at, sizeof text - at, *s == '@' ? "%d" : "%c", *s == '@' ? rows : *s);
    const ht_op *op = ht_op_find(context_shared(), from->op, strlen(from->op));
    if (!op) fail_msg("there is no op %s", from->op);
    op_case_parse(c, op, text);
    c->line = from->line;
    c->variant = rows == from->rows ? "whole" : "a piece";
    if (!op_case_build(c)) op_case_fail(c, "%s", ht_context_message(context_shared()));
}

/* `shift` bytes after the start of a line; the caller frees *memory. */
static char *aligned_buffer(void **memory, int64_t bytes, int shift)
{
    assert_int_equal(posix_memalign(memory, LINE, (size_t)(bytes + LINE)), 0);
    memset(*memory, JUNK, (size_t)(bytes + LINE));
    return (char *)*memory + shift;
}

static void run(const op_case *c, ht_isa isa, const void *const *in, void *const *out)
{
    ht_target target = {.isa = isa, .threads = 2};
    const ht_kernel *kernel = ht_kernel_choose(context_shared(), c->call, &target, NULL);
    if (!kernel) op_case_fail(c, "no kernel");
    void *workspace;
    aligned_buffer(&workspace, kernel->workspace ? kernel->workspace(c->call, &target) : 0, 0);
    ht_pool *pool = ht_pool_create(2);
    assert_non_null(pool);
    kernel->run(
        &(ht_launch){.call = c->call, .in = in, .out = out, .workspace = workspace, .pool = pool, .threads = 2});
    ht_pool_free(pool);
    free(workspace);
}

/* Runs the rows of `piece` number i out of those of `whole`, and compares result 0. */
static void compare_piece(const op_case *whole, const op_case *piece, ht_isa isa, const void *const *in,
                          const char *streamed, int i, int shift)
{
    const void *part[HT_SAMPLE_MAX] = {NULL};
    void *memory[8], *out[8];
    for (size_t k = 0; k < whole->call->n_in; k++) {
        if (!in[k]) continue;
        int64_t bytes = ht_type_bytes(piece->call->in[k]);
        part[k] = (const char *)in[k] + (bytes < ht_type_bytes(whole->call->in[k]) ? i * bytes : 0);
    }
    for (size_t k = 0; k < piece->call->n_out; k++)
        out[k] = aligned_buffer(&memory[k], ht_type_bytes(piece->call->out[k]), k == 0 ? shift : 0);
    run(piece, isa, part, out);
    int64_t bytes = ht_type_bytes(piece->call->out[0]);
    if (memcmp(out[0], streamed + i * bytes, (size_t)bytes) != 0)
        op_case_fail(whole, "isa %d, result %d bytes into a line: piece %d of the rows has other bits", (int)isa, shift,
                     i);
    for (size_t k = 0; k < piece->call->n_out; k++) free(memory[k]);
}

static void check_isa(const op_case *whole, const op_case *piece, ht_isa isa, const void *const *in, int shift)
{
    void *memory[8], *out[8];
    for (size_t k = 0; k < whole->call->n_out; k++)
        out[k] = aligned_buffer(&memory[k], ht_type_bytes(whole->call->out[k]), k == 0 ? shift : 0);
    run(whole, isa, in, out);
    const unsigned char *end = (const unsigned char *)out[0] + ht_type_bytes(whole->call->out[0]);
    for (int i = 0; i < LINE - shift; i++)
        if (end[i] != JUNK) op_case_fail(whole, "isa %d wrote past the end of the result", (int)isa);
    for (int i = 0; i < PIECES; i++) compare_piece(whole, piece, isa, in, out[0], i, shift);
    for (size_t k = 0; k < whole->call->n_out; k++) free(memory[k]);
}

static void check(const stream_case *from)
{
    op_case whole, piece;
    open_case(&whole, from, from->rows);
    open_case(&piece, from, from->rows / PIECES);
    assert_int_equal(from->rows % PIECES, 0);
    assert_true(ht_type_bytes(whole.call->out[0]) >= STREAM_BYTES);
    assert_true(ht_type_bytes(piece.call->out[0]) < STREAM_BYTES);
    op_arrays values;
    op_arrays_make(&values, &whole);
    void *memory[HT_SAMPLE_MAX] = {NULL};
    const void *in[HT_SAMPLE_MAX] = {NULL};
    for (size_t k = 0; k < whole.call->n_in; k++) {
        const ht_type *type = whole.call->in[k];
        if (!type) continue;
        in[k] = aligned_buffer(&memory[k], ht_type_bytes(type), 0);
        for (int64_t e = 0; e < ht_type_elems(type); e++) ht_store_f64(memory[k], type->dtype, e, values.in[k][e]);
    }
    int element = (int)ht_dtype_bytes(whole.call->out[0]->dtype);
    for (int isa = HT_ISA_PORTABLE; isa <= (int)ht_cpu_isa(); isa++) {
        check_isa(&whole, &piece, (ht_isa)isa, in, 0);
        check_isa(&whole, &piece, (ht_isa)isa, in, element);
    }
    for (size_t k = 0; k < whole.call->n_in; k++) free(memory[k]);
    op_case_free(&piece);
    op_case_free(&whole);
}

static void streamed_results__have_the_bits_of_plain_ones(void **state)
{
    (void)state;
    if (!getenv("HALFTONE_LONG")) skip(); /* hundreds of megabytes: make test-long */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(streamed_results__have_the_bits_of_plain_ones)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
