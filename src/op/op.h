/* op: the op definitions. One file per structured op, one row per point-wise op: shape inference, cost, gradient as
 * graph, precision class, reference in f64, samples. Knows no kernel and no pass. */
#ifndef HT_OPS_H
#define HT_OPS_H

#include <halftone/ops.h>

#include "graph/graph.h"
#include "op/collective.h"
#include "op/matmul_nbits.h"
#include "op/quantize.h"
#include "op/quantize_linear.h"
#include "op/reference.h"
#include "op/rules.h"
#include "op/scale_step.h"
#include "op/sum_squares.h"
#include "op/window.h"

/* Registers all ops of this library in the context. */
ht_status ht_ops_add_all(ht_context *ctx);

#endif
