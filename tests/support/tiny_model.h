/* A small language model that touches most ops, for tests of whole steps. */
#ifndef TESTS_TINY_MODEL_H
#define TESTS_TINY_MODEL_H

#include <halftone/halftone.h>

enum { TINY_BATCH = 2, TINY_TIME = 6, TINY_VOCAB = 11, TINY_WIDTH = 8, TINY_HEADS = 2 };

/* Inputs "token" and "label" i32 [B, T]; output "loss". Every name below is a parameter. */
void tiny_build(ht_graph *g, double dropout);
/* Tokens of one micro-batch, different for every `which`. */
void tiny_tokens(int which, int32_t *token, int32_t *label);

#endif
