#include "cli/quantization.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "demo/demo.h"
#include "format/format.h"

enum { SENTENCES = 4000, DEMO_SEED = 1, MOST_WORDS = 512, STEPS = 100, RATE = 4, MOST_INTEGER = 127 };

void cli_matrix_free(cli_matrix *matrix)
{
    free(matrix->values);
    *matrix = (cli_matrix){0};
}

/* ---- a matrix that is trained ---- */

typedef struct bigrams {
    char words[MOST_WORDS][24];
    size_t count;
    double pairs[MOST_WORDS][MOST_WORDS]; /* how often the second follows the first */
} bigrams;

static size_t find_word(bigrams *b, const char *word, size_t length)
{
    size_t i = 0;
    if (length >= sizeof b->words[0]) length = sizeof b->words[0] - 1;
    while (i < b->count && (strncmp(b->words[i], word, length) != 0 || b->words[i][length])) i++;
    if (i < b->count || b->count == MOST_WORDS) return i < b->count ? i : 0;
    memcpy(b->words[b->count], word, length);
    return b->count++;
}

/* Words of letters; all other characters are words of their own. The beginning of a sentence is its end's dot. */
static void count_pairs(bigrams *b)
{
    for (uint64_t k = 0; k < SENTENCES; k++) {
        ht_grammar_pair pair;
        ht_grammar_make(DEMO_SEED, k, &pair);
        size_t before = find_word(b, ".", 1);
        for (const char *at = pair.english; *at;) {
            size_t length = 0;
            while (isalpha((unsigned char)at[length])) length++;
            if (length == 0 && *at == ' ') {
                at++;
                continue;
            }
            length += length == 0;
            size_t word = find_word(b, at, length);
            b->pairs[before][word]++;
            before = word;
            at += length;
        }
    }
}

/* Row by row: the logits of what follows a word, by gradient descent on the cross-entropy from zero. */
static void descend(float *row, const double *pairs, size_t count)
{
    double probability[MOST_WORDS], all = 0;
    for (size_t i = 0; i < count; i++) all += pairs[i];
    for (int step = 0; step < STEPS && all > 0; step++) {
        double sum = 0;
        for (size_t i = 0; i < count; i++) sum += probability[i] = exp((double)row[i]);
        for (size_t i = 0; i < count; i++) row[i] += (float)(RATE * (pairs[i] / all - probability[i] / sum));
    }
}

ht_status cli_matrix_train(cli_matrix *out, ht_context *ctx)
{
    bigrams *b = calloc(1, sizeof *b);
    *out = (cli_matrix){0};
    if (!b) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a matrix");
    count_pairs(b);
    out->rows = out->columns = (int64_t)b->count;
    out->values = calloc(b->count * b->count, sizeof *out->values);
    for (size_t i = 0; i < b->count && out->values; i++) descend(out->values + i * b->count, b->pairs[i], b->count);
    snprintf(out->name, sizeof out->name, "a bigram model of the demo's sentences, trained just now");
    free(b);
    if (!out->values) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a matrix");
    return HT_OK;
}

/* ---- a matrix from a file ---- */

static const ht_named_array *largest_matrix(const ht_safetensors *file)
{
    const ht_named_array *largest = NULL;
    for (size_t i = 0; i < ht_safetensors_count(file); i++) {
        const ht_named_array *one = ht_safetensors_at(file, i);
        ht_dtype dtype = ht_element_dtype(one->array.element);
        if (one->array.rank != 2 || one->array.count == 0 || dtype == HT_DTYPE_COUNT || !ht_dtype_is_float(dtype))
            continue;
        if (!largest || one->array.count > largest->array.count) largest = one;
    }
    return largest;
}

ht_status cli_matrix_read(cli_matrix *out, ht_context *ctx, const char *path)
{
    ht_safetensors *file;
    *out = (cli_matrix){0};
    HT_TRY(ht_safetensors_open(&file, ctx, path));
    const ht_named_array *found = largest_matrix(file);
    ht_status status = HT_OK;
    if (!found) {
        status = ht_fail(ctx, HT_EINVAL, "%s: there is no matrix of floats", path);
    } else if (!(out->values = malloc((size_t)found->array.count * sizeof *out->values))) {
        status = ht_fail(ctx, HT_ENOMEM, "%s: out of memory for %s", path, found->name);
    } else {
        out->rows = found->array.shape[0];
        out->columns = found->array.shape[1];
        ht_array_floats(&found->array, 0, found->array.count, out->values);
        snprintf(out->name, sizeof out->name, "%s of %s", found->name, path);
        for (int64_t i = 0; i < found->array.count && status == HT_OK; i++)
            if (!isfinite(out->values[i]))
                status = ht_fail(ctx, HT_EINVAL, "%s: %s has an element that is not finite", path, found->name);
    }
    ht_safetensors_free(file);
    if (status != HT_OK) cli_matrix_free(out);
    return status;
}

/* ---- rounding ---- */

static double largest_of(const float *values, int64_t count)
{
    double largest = 0;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)values[i]));
    return largest;
}

/* scale 0: the type's own numbers. A cast to an integer cuts off, so the nearest one is found before. */
static double rounded(ht_dtype dtype, double scale, double value)
{
    return scale > 0 ? scale * ht_round_to(dtype, nearbyint(value / scale)) : ht_round_to(dtype, value);
}

typedef struct method {
    const char *name;
    ht_dtype dtype;
    bool scaled, by_row;
} method;

static void measure(cli_quantization *out, const cli_matrix *m, const method *how, const double *vector)
{
    double squares = 0, errors = 0, dots = 0, dot_errors = 0, alive = 0, dead = 0, worst = 0;
    double largest = largest_of(m->values, m->rows * m->columns);
    for (int64_t r = 0; r < m->rows; r++) {
        const float *row = m->values + r * m->columns;
        double scale = how->scaled ? (how->by_row ? largest_of(row, m->columns) : largest) / MOST_INTEGER : 0;
        double exact = 0, approximate = 0;
        for (int64_t c = 0; c < m->columns; c++) {
            double value = (double)row[c], near = rounded(how->dtype, scale, value);
            squares += value * value;
            errors += (near - value) * (near - value);
            worst = fmax(worst, fabs(near - value));
            alive += value != 0;
            dead += value != 0 && near == 0;
            exact += value * vector[c];
            approximate += near * vector[c];
        }
        dots += exact * exact;
        dot_errors += (approximate - exact) * (approximate - exact);
    }
    int64_t scales = !how->scaled ? 0 : how->by_row ? m->rows : 1;
    *out = (cli_quantization){.name = how->name,
                              .bytes = m->rows * m->columns * (int64_t)ht_dtype_bytes(how->dtype) + 4 * scales,
                              .rms_error = squares > 0 ? sqrt(errors / squares) : 0,
                              .max_error = largest > 0 ? worst / largest : 0,
                              .dead = alive > 0 ? dead / alive : 0,
                              .dot_error = dots > 0 ? sqrt(dot_errors / dots) : 0};
}

ht_status cli_quantize(cli_quantization out[CLI_QUANTIZATIONS], ht_context *ctx, const cli_matrix *matrix)
{
    static const method methods[CLI_QUANTIZATIONS] = {
        {"f16", HT_F16, false, false},       {"bf16", HT_BF16, false, false},       {"f8e4m3", HT_F8E4M3, false, false},
        {"f8e5m2", HT_F8E5M2, false, false}, {"i8, one scale", HT_I8, true, false}, {"i8, by row", HT_I8, true, true},
    };
    const ht_stream stream = {.seed = 1, .site = ht_hash_text("halftone formats vector")};
    double *vector = calloc((size_t)matrix->columns + 4, sizeof *vector);
    if (!vector) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a vector");
    for (int64_t i = 0; i < matrix->columns; i += 4) {
        ht_philox words = ht_stream_block(&stream, (uint64_t)i / 4);
        for (int k = 0; k < 4; k++) vector[i + k] = (double)words.word[k] * 0x1p-31 - 1;
    }
    for (int i = 0; i < CLI_QUANTIZATIONS; i++) measure(&out[i], matrix, &methods[i], vector);
    free(vector);
    return HT_OK;
}
