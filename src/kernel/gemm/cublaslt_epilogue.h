/* What cublasLt does behind a product, before its sum reaches memory: additions. */
#ifndef HT_KERNEL_CUBLASLT_EPILOGUE_H
#define HT_KERNEL_CUBLASLT_EPILOGUE_H

#include "kernel/kernel.h"

enum { HT_CUBLASLT_PLAIN = 1, HT_CUBLASLT_BIAS = 4 }; /* the library's numbers */

/* Operands are numbers of those of the fused calls. */
typedef struct ht_cublaslt_epilogue {
    int kind;
    bool has_bias, has_residual;
    uint32_t bias, residual, result;
} ht_cublaslt_epilogue;

/* The `takes` of its rows. */
const char *ht_cublaslt_takes(const ht_call *call, const ht_fusion *fusion, const ht_target *target);
/* Of a launch whose calls it took. */
ht_cublaslt_epilogue ht_cublaslt_epilogue_of(const ht_fused *fused);
/* The type of an epilogue's result, its bias and its residual. */
ht_dtype ht_cublaslt_dtype(const ht_call *product);

#endif
