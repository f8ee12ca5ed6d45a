/* Internal: kinds of layers that the pass `quantize` knows, one file and one row of quantize_layers.def each. */
#ifndef HT_PASS_QUANTIZE_LAYERS_H
#define HT_PASS_QUANTIZE_LAYERS_H

#include "pass/pass.h"

enum { HT_LAYER_RESULTS = 4 };

/* What a layer reads instead of its floats. */
typedef struct ht_layer_operands {
    ht_val x, x_scale, x_zero; /* codes of the input; x_zero: none where all are 0 */
    ht_val w,
        w_scale; /* codes of the weight; the scales have its rank, and 1 along axes that share one, or are single */
    ht_val second, second_scale; /* of the second weight */
} ht_layer_operands;

/* What a layer reads whose weights alone are codes: states; zero may be none. */
typedef struct ht_nbits_states {
    ht_val codes, scale, zero, a_scale;
} ht_nbits_states;

typedef struct ht_layer_kind {
    ht_layer_op operands;
    /* Why a call of it, by a parameter of f32, stays as it is; NULL: it can read codes. */
    const char *(*refuse)(const ht_graph *g, const ht_node *n, const ht_quantize_group *how);
    /* The axis of the weight that has the outputs. */
    int (*channel_axis)(const ht_graph *g, const ht_node *n);
    /* The axes of the input, as bits, along which a scale that is found while the model runs is the same. */
    unsigned (*shared_axes)(const ht_graph *g, const ht_node *n);
    /* The call in its place, whose first result is of the type `want`; its other operands by ht_rewrite_map. `out`: as many
     * results as are read of a graph that does not train, the rest none. */
    void (*emit)(ht_graph *g, const ht_rewrite *rw, const ht_node *n, const ht_type *want, const ht_layer_operands *q,
                 ht_val out[HT_LAYER_RESULTS]);
    bool nbits; /* it is a product whose weights alone may be codes, too: quantize_nbits.c */
} ht_layer_kind;

/* quantize_layers.def; ends with NULL. */
extern const ht_layer_kind *const ht_layer_kinds[];

/* The kind of a call by a parameter of f32; NULL: it is no layer. */
const ht_layer_kind *ht_layer_kind_of(const ht_graph *g, const ht_node *n);

/* quantize_nbits.c: a product of f32 by a weight whose codes are all that is quantised (activations.bits is 0). */
const char *ht_nbits_refuse(const ht_graph *g, const ht_node *n, const ht_quantize_group *how);
void ht_nbits_add_states(ht_graph *g, const ht_node *n, const ht_quantize_group *how, ht_nbits_states *out);
ht_val ht_nbits_emit(ht_graph *g, const ht_node *n, ht_val x, const ht_quantize_group *how, const ht_type *want,
                     const ht_nbits_states *states);

/* The states of a static range in a graph that trains. in_start and in_gain: learned, in_scale otherwise. in_low: with a zero
 * point. What evaluation reads is made of them: src/train/range_tensors.c. */
typedef struct ht_range_states {
    ht_val scale; /* in_scale, or in_start */
    ht_val low;   /* the number of code 0 */
    ht_val gain;  /* by which the scale is multiplied, a parameter; or none */
} ht_range_states;

/* quantize_fake.c: a weight and activations of a graph that trains, as their codes will stand for them. axis: of the weight's
 * channels; range: the scale and the zero point of activations, which hold along the shared axes. */
ht_val ht_fake_weight(ht_graph *g, ht_val w, const ht_quantize_group *how, int axis);
ht_val ht_fake_activation(ht_graph *g, ht_val x, const ht_quantize_group *how, unsigned shared, const ht_val range[2]);
/* Activations in f8, by the scale that the static range of i8 codes has, or (none) by what shares one along the axes. */
ht_val ht_fake_f8_activation(ht_graph *g, ht_val x, unsigned shared, ht_val i8_scale);
/* A static range after a batch whose own scale and zero point are `batch`: it moves towards it, and is stored. A state whose scale
 * is 0 knows nothing yet. The result holds the new values. */
ht_range_states ht_observe_range(ht_graph *g, const ht_range_states *state, const ht_val batch[2]);
/* Its scale and its zero point. */
void ht_range_of(ht_graph *g, const ht_range_states *state, ht_val out[2]);

#endif
