/* How the weight of a layer becomes codes: which ones, and by which scale. For the pass that computes with them, for snapshots that
 * hold them, and for recipes that name them. */
#ifndef HT_PASS_CODE_FORMATS_H
#define HT_PASS_CODE_FORMATS_H

#include "graph/graph.h"

/* What the numbers of a block (those that share a scale) become. m is the mean of their magnitudes.
 *     INT, FP8   the nearest code, the largest magnitude being the last one
 *     TERNARY    0 within 0.7 m, else 1 or -1; the scale is the mean magnitude of those (Li et al., arXiv 1605.04711)
 *     BINARY     1 or -1 by the sign (0: 1); the scale is m (Rastegari et al., arXiv 1603.05279) */
typedef enum ht_code_kind { HT_CODES_INT, HT_CODES_TERNARY, HT_CODES_BINARY, HT_CODES_FP8 } ht_code_kind;
#define HT_TERNARY_SHARE 0.7

typedef struct ht_code_format {
    const char *name; /* "int8" */
    ht_code_kind kind;
    int bits;
    ht_dtype dtype;
    double last;
} ht_code_format;

/* code_formats.def; the last row's name is NULL. */
extern const ht_code_format ht_code_formats[];

/* NULL: there is none. `bits` count for INT alone. */
const ht_code_format *ht_code_format_of(ht_code_kind kind, int bits);
/* By the first `length` bytes of `name`. */
const ht_code_format *ht_code_format_find(const char *name, size_t length);

#endif
