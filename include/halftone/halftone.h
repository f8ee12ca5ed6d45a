/* Halftone: a deep-learning training engine. This header includes the whole API:
 *      types.h    basic types, and the contract
 *      context.h  the root object: threads, instruction set, log, messages
 *      graph.h    models: state, segments, gradients, text form
 *      ops.h      one function per op
 *      session.h  training step, plan, memory, execution
 *      comm.h     the ranks that share a session's work
 *      predictor.h  a trained run for inference */
#ifndef HALFTONE_H
#define HALFTONE_H

#include <halftone/comm.h>
#include <halftone/context.h>
#include <halftone/graph.h>
#include <halftone/ops.h>
#include <halftone/predictor.h>
#include <halftone/session.h>
#include <halftone/types.h>

#endif
