/* halftone/predictor.h: a trained run for inference. It needs the folder of the run alone, and reads its newest complete
 * snapshot, also while the run is training. */
#ifndef HALFTONE_PREDICTOR_H
#define HALFTONE_PREDICTOR_H

#include <halftone/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_predictor ht_predictor;

typedef struct ht_predictor_opts {
    size_t size;
    int64_t batch;      /* rows; 0: those of a micro-batch of the training, but no more than 32 */
    const char *device; /* as in ht_plan_opts; NULL: that of the run */
} ht_predictor_opts;

#define HT_PREDICTOR_OPTS                                                                                              \
    {                                                                                                                  \
        .size = sizeof(ht_predictor_opts)                                                                              \
    }

/* The context outlives it. opts may be NULL. */
HT_API ht_status ht_predictor_open(ht_predictor **out, ht_context *ctx, const char *run, const ht_predictor_opts *opts);
HT_API void ht_predictor_free(ht_predictor *predictor);

/* The session of its model, with the segment "logits": write its inputs, run it, and read its output "logits", f32.
 *      task        inputs                                                                     logits
 *      class       x f32[batch, feature ..], or tokens i32[batch, length] and length i32[batch]  [batch, width]
 *      regression  x                                                                          [batch, width]
 *      lm          tokens                                                                     [batch, length, width]
 *      masked_lm   tokens, length                                                             [batch, length, width]
 *      pairs       source i32[batch, S], source_length i32[batch], target_in i32[batch, length]  [batch, length, width]
 * x is what a batch of the training held: the caller divides pixels by 255, takes off means (data.json in the folder of
 * the run has them) and so on. A model that carries state from batch to batch goes on where its last run ended; the states
 * are "carry.logits...". NULL for NULL. */
HT_API ht_session *ht_predictor_session(ht_predictor *predictor);

/* Rows of a batch; numbers in a row of logits (classes, values, or tokens of the vocabulary); 0 for NULL. */
HT_API int64_t ht_predictor_batch(const ht_predictor *predictor);
HT_API int64_t ht_predictor_width(const ht_predictor *predictor);
/* The name of a class, NULL when it is only a number. */
HT_API const char *ht_predictor_class_name(const ht_predictor *predictor, int64_t index);

#ifdef __cplusplus
}
#endif

#endif
