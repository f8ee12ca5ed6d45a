/* Layers, the building blocks of the architectures. A layer names its parameters by its scope ("h.3" entered, then
 * "mlp", gives h.3.mlp.weight) and finds them again when the next segment of the model is built. A none among the
 * inputs gives none: the graph has latched the failure. */
#ifndef HT_MODEL_LAYERS_H
#define HT_MODEL_LAYERS_H

#include "model/model.h"

enum { HT_PATH_DEPTH = 16 };

struct ht_build {
    ht_graph *g;
    const ht_model_request *r;
    const ht_fields *f;
    const char *segment; /* its name without the bucket's number */
    int bucket;          /* 0: the lengths of the request itself */
    int64_t longest;     /* length of bucket 0 */
    bool training;       /* dropout, batch statistics */
    bool bare;           /* no targets: the logits are the output */
    bool time_major;     /* the model sets it: its rows are [T, B], not [B, T] */
    ht_val x, tokens, positions, documents, lengths, source, target_in; /* inputs; none where the task has none */
    char path[256];
    size_t marks[HT_PATH_DEPTH];
    int depth;
};

/* ---- names: an empty one stays where it is ---- */
void ht_enter(ht_build *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ht_leave(ht_build *b);
/* Latches a failure that says which model it is. */
void ht_model_fail(ht_build *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- state ---- */
ht_val ht_layer_weight(ht_build *b, const char *leaf, int rank, const int64_t *dims, ht_init init);
/* State without a gradient. */
ht_val ht_layer_statistic(ht_build *b, const char *leaf, int rank, const int64_t *dims, ht_init init);

/* The width of the layer whose scope is entered: what the job's model.widths says, or else the model's own. */
int64_t ht_layer_width(ht_build *b, int64_t own);

/* ---- layers ---- */
typedef struct ht_linear_spec {
    bool no_bias;
    bool in_first; /* the weight is [in, out], as GPT-2's files have it, else [out, in] */
    bool given;    /* the two inits below count; else both are uniform within 1/√in, as PyTorch's */
    ht_init weight, bias;
} ht_linear_spec;
/* x [.., in] → [.., out]; spec may be NULL. */
ht_val ht_layer_linear(ht_build *b, const char *name, ht_val x, int64_t out, const ht_linear_spec *spec);
ht_val ht_layer_embedding(ht_build *b, const char *name, ht_val index, int64_t rows, int64_t width, ht_init init);
ht_val ht_layer_norm(ht_build *b, const char *name, ht_val x, double eps, bool bias);
ht_val ht_layer_rms(ht_build *b, const char *name, ht_val x, double eps);
/* Rows of the batch lie along the first axis: [B, ..] or [B·T, ..]; the second one is for [T, B, ..]. */
ht_val ht_layer_dropout(ht_build *b, const char *name, ht_val x, double p);
ht_val ht_layer_dropout_time_major(ht_build *b, const char *name, ht_val x, double p);
/* relu, gelu, gelu_tanh, silu, tanh, sigmoid. */
#define HT_ACTIVATIONS "relu|gelu|gelu_tanh|silu|tanh|sigmoid"
ht_val ht_layer_activation(ht_build *b, const char *which, ht_val x);

typedef struct ht_conv_spec {
    int64_t out, kernel, stride, padding, groups; /* stride and groups 0: 1 */
    bool bias;                                    /* and PyTorch's standard init, else normal by the fan out */
} ht_conv_spec;
ht_val ht_layer_conv(ht_build *b, const char *name, ht_val x, ht_conv_spec spec);
ht_val ht_layer_batchnorm(ht_build *b, const char *name, ht_val x, double start);
/* x as [B, C, H, W]; items [H, W] get one channel. */
ht_val ht_layer_image(ht_build *b);
/* [B, ..] → [B, all the rest]. */
ht_val ht_layer_flatten(ht_build *b, ht_val x);

/* [B·T, H·D] → [B, H, T, D] for heads of width D, and back. */
ht_val ht_layer_heads(ht_build *b, ht_val x, int64_t head_width);
ht_val ht_layer_unheads(ht_build *b, ht_val x);

/* One LSTM of several layers over x [T, B, I], in PyTorch's names (weight_ih_l0 …). h and c hold `layers` values of
 * [B, H]: the first state on entry (none: zeros), the last one on return. */
ht_val ht_layer_lstm(ht_build *b, const char *name, ht_val x, int64_t hidden, int64_t layers, double dropout,
                     ht_val lengths, ht_val *h, ht_val *c);

/* The same over both directions: y is [T, B, 2·H], the second half from the end of each sequence to its start; names as
 * PyTorch's (weight_ih_l0_reverse). */
ht_val ht_layer_lstm_both_ways(ht_build *b, ht_val x, int64_t hidden, int64_t layers, double dropout, ht_val lengths);
/* x [T, B, W] with the places of each sequence in the other order. Padding (behind `lengths`, may be none) stays. */
ht_val ht_layer_reverse(ht_build *b, ht_val x, ht_val lengths);

/* Tokens i32 [B, T] as [T, B]. */
ht_val ht_layer_time_major(ht_build *b, ht_val tokens);
/* Tokens [B, T] as [B·T]. */
ht_val ht_layer_rows(ht_build *b, ht_val tokens);

/* Fills b's inputs for its segment. */
void ht_task_inputs(ht_build *b);
/* The input that the loss compares with. */
ht_val ht_task_targets(ht_build *b);
/* Outputs: loss, count and correct predictions of logits; or the logits themselves where there are no targets. */
void ht_task_outputs(ht_build *b, ht_val logits);
/* The number of logits or predictions per row. */
int64_t ht_task_width(const ht_model_request *r);

#endif
