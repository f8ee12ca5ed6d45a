/* Muon (Jordan et al. 2024): matrices move along the orthogonal matrix nearest to their momentum. */
#ifndef HT_OPTIM_MUON_H
#define HT_OPTIM_MUON_H

#include "optim/optim.h"

/* The new value of a matrix; kernels of convolutions count as [out, rest]. Fills *next with the new momentum. */
ht_val ht_muon_matrix(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, ht_val momentum, ht_val lr,
                      ht_val *next);

#endif
