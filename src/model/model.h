/* model: one file per architecture. Each builds the graph of a forward pass from ops: parameters with names and initial
 * values, inputs, losses. Backward pass, precision and memory are the work of other folders.
 *
 * A model's graph has these segments:
 *      forward   for training: dropout, batch statistics                       when `training` is requested
 *      eval      for evaluation: no dropout, running statistics                always
 *      logits    the same without targets: output `logits`                     when `logits` is requested
 *      encode, decode_step   of a translator, see seq2seq.c                    when `beam` is not 0
 * Buckets: batches of other lengths have segments of their own, forward:1, eval:1 and so on in the order of `buckets`,
 * and their inputs with a length have the same suffix (tokens:1). All share one set of parameters. Inputs by task:
 *      LM          tokens, targets i32[B,T]; with `documents` also positions, documents i32[B,T]
 *      CLASS       x f32[B,..], label i32[B]; of token sequences: tokens i32[B,T], length i32[B], label
 *      REGRESSION  x f32[B,..], y f32[B,O]
 *      PAIRS       source i32[B,S], source_length i32[B], target_in, targets i32[B,T]
 *      MASKED_LM   tokens, targets i32[B,T], length i32[B]
 * A target or label of -1 is ignored, and so is a y that is NaN. Outputs of forward and eval: `loss`, the sum over all
 * targets and the start of the backward pass (so `loss_grad` is one over the count of the whole step); `loss_sum`, the
 * same without label smoothing; `count`, i64; and in eval (of CLASS in forward, too) `correct`, i64, the correct
 * predictions. */
#ifndef HT_MODEL_H
#define HT_MODEL_H

#include "op/op.h"

typedef struct ht_build ht_build;
typedef struct ht_model_request ht_model_request;

typedef struct ht_model {
    const char *name, *help;
    const ht_key *keys; /* of the "model" block, beside "type" */
    unsigned tasks;     /* bits 1 << ht_task */
    bool packs;         /* takes packed documents */
    /* The logits [rows, C] of the current segment, rows in the order of the targets. */
    ht_val (*logits)(ht_build *b);
    /* The segments encode and decode_step, or NULL. */
    void (*decoder)(ht_build *b);
    /* Instead of these: a graph from elsewhere. */
    ht_status (*make)(ht_graph **out, ht_context *ctx, const ht_model_request *r);
} ht_model;

typedef struct ht_model_bucket {
    int64_t length, source_length;
} ht_model_bucket;

/* The request to a model. Sizes that a task does not have are 0. */
struct ht_model_request {
    const ht_model *model;
    const ht_fields *fields; /* of model->keys */
    ht_task task;
    int64_t batch, length, source_length;  /* B, T, S */
    int64_t vocabulary, source_vocabulary; /* vocabulary: of the tokens, of PAIRS that of the target side */
    int64_t classes;                       /* of CLASS; of REGRESSION the numbers in a y */
    int feature_rank;                      /* of one item of x; 0 with CLASS: items are token sequences */
    int64_t feature[HT_MAX_RANK - 1];
    bool documents; /* LM: several documents in a row, each seeing only itself */
    bool training, logits;
    const ht_model_bucket *buckets; /* further lengths, none beyond those above; alive while the model is built */
    int bucket_count;
    int64_t beam; /* hypotheses per sentence in decode_step */
    double label_smoothing;
    const ht_json *widths; /* the job's model.widths: an object, layer to width; NULL: none. Alive while it is built */
};

/* The keys that every model's block has beside "type" and the model's own. */
extern const ht_key ht_model_common_keys[];

/* All models in the order of the documentation; ends with NULL. */
extern const ht_model *const ht_models[];
/* NULL when there is none; `names` (may be NULL) receives a list for messages. */
const ht_model *ht_model_find(const char *name, const char **names);

ht_status ht_model_create(ht_graph **out, ht_context *ctx, const ht_model_request *r);

/* Elements of all trained state; of what ranks share, of the whole tensors. */
int64_t ht_model_parameters(const ht_graph *g);

#endif
