/* Halftone: a deep-learning training engine. This header brings the whole API:
 *     types.h    words that all use, and the contract
 *     context.h  the root: threads, instruction set, log, messages
 *     graph.h    models: state, segments, gradients, text form
 *     ops.h      one function per op
 *     session.h  training step, plan, memory, running */
#ifndef HALFTONE_H
#define HALFTONE_H

#include <halftone/context.h>
#include <halftone/graph.h>
#include <halftone/ops.h>
#include <halftone/session.h>
#include <halftone/types.h>

#endif
