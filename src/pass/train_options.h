/* What autodiff, optimizer and the loss scale share of their options. */
#ifndef HT_PASS_TRAIN_OPTIONS_H
#define HT_PASS_TRAIN_OPTIONS_H

#include "pass/pass.h"

extern const ht_pass_settings ht_autodiff_settings[], ht_micro_batches_settings[], ht_optimizer_settings[];
/* zero.c: how a batch is shared among ranks. */
extern const ht_setting_key ht_zero_keys[];

/* Is every value within its range, and do they fit together? */
ht_status ht_autodiff_check(ht_context *ctx, const ht_train_options *options);
ht_status ht_optimizer_check(ht_context *ctx, const ht_train_options *options);

/* The scale that training begins with. */
double ht_first_loss_scale(const ht_scaling_options *scaling);

#endif
