/* Declarations shared by the files of the point-wise ops. */
#ifndef HT_OP_POINTWISE_H
#define HT_OP_POINTWISE_H

#include "graph/graph.h"

/* A scalar operand for x: f32 where x is a narrower float, so that the number itself is not rounded. */
ht_val ht_number_beside(ht_graph *g, ht_val x, double value);

/* dy s(x), s the slope of gelu_tanh. */
ht_val ht_gelu_tanh_grad(ht_graph *g, ht_val dy, ht_val x);

/* The gradient rule of each row. */
#define HT_POINT(name, kind, expression, integers, flags, flops, gradient, ...)                                        \
    ht_status ht_##gradient(ht_graph *g, const ht_grad *d);
#define HT_POINT_BOOL(name, kind, expression, flags)
#include "op/pointwise.def"
#undef HT_POINT
#undef HT_POINT_BOOL

#endif
