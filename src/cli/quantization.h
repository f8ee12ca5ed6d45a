/* What number types of 16 and 8 bits make of a weight matrix. */
#ifndef HT_CLI_QUANTIZATION_H
#define HT_CLI_QUANTIZATION_H

#include "base/base.h"

typedef struct cli_matrix {
    int64_t rows, columns;
    float *values; /* [rows, columns], heap memory */
    char name[256];
} cli_matrix;

/* Weights that are trained here and now: a bigram model of the demo's English sentences, a row for each word with what
 * follows it, by gradient descent. */
ht_status cli_matrix_train(cli_matrix *out, ht_context *ctx);
/* The largest matrix of floats in a safetensors file. */
ht_status cli_matrix_read(cli_matrix *out, ht_context *ctx, const char *path);
void cli_matrix_free(cli_matrix *matrix);

enum { CLI_QUANTIZATIONS = 6 };

typedef struct cli_quantization {
    const char *name;
    int64_t bytes;    /* of the matrix, its scales included */
    double rms_error; /* root mean square, relative to that of the weights */
    double max_error; /* relative to the largest weight */
    double dead;      /* share of the weights other than zero that become zero */
    double dot_error; /* of the products of all rows with a random vector, root mean square, relative */
} cli_quantization;

/* Floats are rounded as they are; integers of 8 bits stand for multiples of a scale, of the matrix or of each row, by
 * which its largest weight is 127. */
ht_status cli_quantize(cli_quantization out[CLI_QUANTIZATIONS], ht_context *ctx, const cli_matrix *matrix);

#endif
