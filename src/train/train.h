/* train: sessions. The one place that wires the rooms together: context, training step, plan, memory, running. */
#ifndef HT_TRAIN_H
#define HT_TRAIN_H

#include <halftone/halftone.h>

#include "run/run.h"

#endif
