/* The rows of the .def files as tables, and what Halftone does with each key. */
#ifndef HT_CONFIG_TABLES_H
#define HT_CONFIG_TABLES_H

#include "optim/optim.h"

typedef enum ht_support {
    HT_SUPPORT_USED,
    HT_SUPPORT_RANKS,    /* used where there are several ranks */
    HT_SUPPORT_ONE_RANK, /* does nothing on one rank, and is not there yet on several */
    HT_SUPPORT_UNNEEDED, /* accepted; there is nothing to switch */
    HT_SUPPORT_COMPRESS, /* training leaves it to `halftone compress`, and says so */
    HT_SUPPORT_LATER,    /* not there yet: any other value than the default is refused by training */
    HT_SUPPORT_DETAIL,   /* of a block whose other rows say what happens */
    HT_SUPPORT_OTHER     /* an old or alternative name */
} ht_support;

typedef struct ht_engine_type {
    const char *block, *type;
    const char *ours; /* our name for it; of one that is not there yet, of what stands in for it */
    ht_support support;
    const ht_key *keys; /* of its params, with their whole names */
} ht_engine_type;

/* Tables that end with a row without a name. */
extern const ht_key ht_engine_keys[], ht_train_keys[], ht_halftone_keys[];

/* The keys that the train block has for this optimiser beyond those above; NULL behind the last. */
const ht_key *ht_hyper_train_key(const ht_optimizer *optimizer, size_t index);

size_t ht_engine_type_count(void);
ht_engine_type ht_engine_type_at(size_t index);
/* False when there is none; the case of letters does not count. */
bool ht_engine_type_find(const char *block, const char *type, ht_engine_type *out);

/* Of a row of these tables; a foreign row (a model's) is used. */
ht_support ht_support_of(const ht_key *key);
/* The name that a row of support OTHER stands for. */
const char *ht_other_name_of(const ht_key *key);
/* Of the block that a key of the engine config belongs to: NULL at the top level. */
const char *ht_engine_block_title(const char *name);
const char *ht_engine_block_reason(const char *name);
/* Does leaving its block out change what is learnt? */
bool ht_engine_block_changes(const char *name);

#endif
