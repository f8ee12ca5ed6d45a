/* Operands that do not lie row-major in memory. */
#ifndef HT_TESTS_OP_LAYOUT_H
#define HT_TESTS_OP_LAYOUT_H

#include "graph/graph.h"

typedef enum op_layout {
    OP_ROW_MAJOR,
    OP_REVERSED,
    OP_CHANNELS_LAST,
    OP_GAPPED,
    OP_FIRST_REPEATED,
    OP_LAST_REPEATED,
    OP_LAYOUT_COUNT
} op_layout;
extern const char *const op_layout_names[OP_LAYOUT_COUNT];

ht_type op_layout_type(const ht_type *like, op_layout how);
/* Where element `index`, counted row-major, lies; in elements. */
int64_t op_layout_offset(const ht_type *t, int64_t index);
/* From the first element to the last. */
size_t op_layout_bytes(const ht_type *t);

#endif
