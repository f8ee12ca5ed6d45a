/* What a session is, for the files of this room. */
#ifndef HT_TRAIN_SESSION_STATE_H
#define HT_TRAIN_SESSION_STATE_H

#include "run/run.h"

struct ht_session {
    const ht_plan *plan;
    ht_machine *machine;
    bool stale; /* a parameter was written: "derive" runs before anything else does */
};

#endif
