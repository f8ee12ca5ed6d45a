/* The loss scale in a training step: what the pass optimizer builds of it. docs/update.md has the settings. */
#ifndef HT_PASS_SCALER_H
#define HT_PASS_SCALER_H

#include "pass/pass.h"

typedef struct ht_scaler {
    const ht_scaling_options *options;
    ht_val scale, left, iteration, last, skips, fatal; /* states */
} ht_scaler;

void ht_scaler_add_state(ht_scaler *scaler, ht_graph *g);
/* Backward begins with loss_grad · scale in every segment of micro-batches. */
ht_status ht_scaler_scale_loss_grads(const ht_scaler *scaler, ht_graph *g);

/* In the update, before ht_scaler_step: 1 / scale as f64, none where nothing is scaled. */
ht_val ht_scaler_inverse(const ht_scaler *scaler, ht_graph *g);
/* May the update be made? */
ht_val ht_scaler_allows(const ht_scaler *scaler, ht_graph *g, ht_val finite);
/* The state after the step. */
void ht_scaler_step(const ht_scaler *scaler, ht_graph *g, ht_val finite);

#endif
