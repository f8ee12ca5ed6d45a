/* The parser of samples, and the graphs and values that tests build from them. */
#include "graph/sample.h"

#include <stdio.h>
#include <string.h>

#include "graph/graph.h"
#include "graph/lex.h"

static void parse_range(ht_lex *lex, ht_sample *s, size_t i)
{
    bool is_float = ht_dtype_is_float(s->in[i].dtype);
    s->low[i] = is_float ? -1 : 0;
    s->high[i] = 1;
    if (ht_lex_peek(lex, ',') || ht_lex_peek(lex, ')')) return;
    s->low[i] = ht_lex_float(lex);
    ht_lex_need(lex, '.');
    ht_lex_need(lex, '.');
    s->high[i] = ht_lex_float(lex);
}

static void parse_sample(ht_lex *lex, const ht_op *op, ht_sample *s)
{
    ht_lex_need(lex, '(');
    while (lex->status == HT_OK && !ht_lex_take(lex, ')')) {
        if (s->n_in) ht_lex_need(lex, ',');
        if (s->n_in == HT_SAMPLE_MAX) ht_lex_fail(lex, "more than %d inputs", HT_SAMPLE_MAX);
        if (lex->status != HT_OK) return;
        size_t i = s->n_in++;
        s->given[i] = !ht_lex_take(lex, '_');
        if (!s->given[i]) continue;
        s->in[i] = ht_lex_type(lex);
        if (lex->status == HT_OK) parse_range(lex, s, i);
    }
    if (ht_lex_take(lex, '-')) {
        s->typed = ht_lex_need(lex, '>');
        for (int i = 0; i < op->n_out && lex->status == HT_OK; i++) {
            if (i) ht_lex_need(lex, ',');
            s->want[i] = ht_lex_type(lex);
        }
    }
    while (ht_lex_more(lex)) {
        ht_slice key = ht_lex_name(lex, "an attribute");
        ht_lex_need(lex, '=');
        if (s->n_attr == HT_SAMPLE_MAX) ht_lex_fail(lex, "more than %d attributes", HT_SAMPLE_MAX);
        if (lex->status == HT_OK) s->attr[s->n_attr++] = ht_lex_attr(lex, op, key);
    }
}

ht_status ht_sample_parse(ht_context *ctx, ht_arena *arena, const ht_op *op, const char *line, ht_sample *out)
{
    memset(out, 0, sizeof *out);
    out->op = op;
    ht_lex lex = {.ctx = ctx, .arena = arena, .file = op->name, .at = line, .line_start = line, .line = 1};
    lex.end = line + strlen(line);
    parse_sample(&lex, op, out);
    return lex.status;
}

ht_status ht_sample_graph(ht_context *ctx, const ht_sample *s, ht_graph **out)
{
    ht_val in[HT_SAMPLE_MAX], results[8];
    char name[32];
    ht_graph *g;
    HT_TRY(ht_graph_create(&g, ctx));
    for (size_t i = 0; i < s->n_in; i++) {
        snprintf(name, sizeof name, "x%zu", i);
        in[i] = s->given[i] ? ht_graph_add_input(g, name, &s->in[i], HT_ZERO) : HT_NONE;
    }
    if (s->op->start && s->n_in > 0) ht_emit(g, s->op->start, s->n_in - 1, in + 1, HT_NO_ATTRS, &s->in[0], in);
    ht_emit(g, s->op, s->n_in, in, s->n_attr, s->attr, s->typed ? s->want : NULL, results);
    if (s->op->done) {
        ht_val inputs[1 + HT_SAMPLE_MAX] = {results[0]};
        memcpy(inputs + 1, in, s->n_in * sizeof *in);
        ht_emit(g, s->op->done, 1 + s->n_in, inputs, HT_NO_ATTRS, NULL, results);
    }
    for (int i = 0; i < s->op->n_out; i++) {
        snprintf(name, sizeof name, "y%d", i);
        ht_output(g, name, results[i]);
    }
    ht_status status = ht_graph_status(g);
    if (status != HT_OK) {
        ht_graph_free(g);
        g = NULL;
    }
    *out = g;
    return status;
}

double ht_sample_value(const ht_sample *s, size_t i, int64_t index)
{
    ht_stream stream = {.seed = i, .site = ht_hash_text(s->op->name)};
    double unit = ht_stream_uniform(&stream, (uint64_t)index);
    if (ht_dtype_is_float(s->in[i].dtype)) return s->low[i] + unit * (s->high[i] - s->low[i]);
    /* Whole numbers, both ends included. */
    double span = s->high[i] - s->low[i] + 1, step = unit * span;
    return s->low[i] + (double)(int64_t)step;
}
