/* A sample is one line of text that an op gives as an example of its use:
 *     (f32[4,5], i32[4] 0..4) axis=1
 *     (f32[4,5] 0.1..2) -> f32[20]
 * input types, each with the range its values are drawn from (floats -1..1, integers 0..1 unless it says), `_` for an
 * optional input left out, result types where the op is typed, attributes. Tests, benchmarks and the reference script
 * all walk the samples. */
#ifndef HT_GRAPH_SAMPLE_H
#define HT_GRAPH_SAMPLE_H

#include "graph/opdef.h"

#define HT_SAMPLE_MAX 16

typedef struct ht_sample {
    const ht_op *op;
    size_t n_in;
    bool given[HT_SAMPLE_MAX]; /* false: left out */
    ht_type in[HT_SAMPLE_MAX];
    double low[HT_SAMPLE_MAX], high[HT_SAMPLE_MAX];
    bool typed; /* `want` holds op->n_out types */
    ht_type want[8];
    size_t n_attr;
    ht_attr attr[HT_SAMPLE_MAX];
} ht_sample;

/* Lists and strings of the sample live in the arena. */
ht_status ht_sample_parse(ht_context *ctx, ht_arena *arena, const ht_op *op, const char *line, ht_sample *out);
/* A graph whose segment "forward" has inputs x0.. (those given), the call, and outputs y0... Of a pair both are there:
 * the outputs are the done's. */
ht_status ht_sample_graph(ht_context *ctx, const ht_sample *sample, ht_graph **out);
/* Value of element `index` of input i, a pure function: uniform in the range, integers inclusive. */
double ht_sample_value(const ht_sample *sample, size_t i, int64_t index);

#endif
