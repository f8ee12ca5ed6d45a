/* Weight-only quantisation: a weight matrix as codes of 4 or 8 bits with scales and zero points by groups of inputs, as the op
 * matmul_nbits reads them. Three methods choose the codes: round to nearest, GPTQ and AWQ; the last two look at what the
 * layer's inputs are on calibration data. Pure functions of their arguments: the bits do not depend on the number of threads. */
#ifndef HT_COMPRESS_GROUP_CODES_H
#define HT_COMPRESS_GROUP_CODES_H

#include "compress/input_moments.h"
#include "op/op.h"

typedef enum ht_code_method { HT_CODES_RTN, HT_CODES_GPTQ, HT_CODES_AWQ } ht_code_method; /* as in "rtn|gptq|awq" */

/* Of w, row-major f32[k, n]; `inputs` may be NULL for RTN alone. ht_group_codes_free after a failure, too. */
ht_status ht_group_codes_make(ht_nbits_codes *out, ht_context *ctx, ht_code_method method, ht_nbits_format format,
                              const float *w, int64_t k, int64_t n, const ht_input_moments *inputs);
void ht_group_codes_free(ht_nbits_codes *codes);

/* By what share of its magnitude the layer's output on the calibration data is off: |x w' - x w| / |x w|. */
ht_status ht_group_codes_error(double *out, ht_context *ctx, const ht_nbits_codes *codes, const float *w,
                               const ht_input_moments *inputs);

/* ---- the methods, on codes that have their memory ---- */

/* importance: as in ht_nbits_fit. */
void ht_group_codes_round(ht_nbits_codes *codes, const float *w, const double *importance, ht_pool *pool);
ht_status ht_group_codes_gptq(ht_nbits_codes *codes, ht_context *ctx, const float *w, const ht_input_moments *inputs);
ht_status ht_group_codes_awq(ht_nbits_codes *codes, ht_context *ctx, const float *w, const ht_input_moments *inputs);
/* |x w' - x w|², of every `step`th column. */
ht_status ht_group_codes_square_error(double *out, ht_context *ctx, const ht_nbits_codes *codes, const float *w,
                                      const ht_input_moments *inputs, int64_t step);

#endif
