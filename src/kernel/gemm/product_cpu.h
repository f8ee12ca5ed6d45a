/* What the CPU's rows of matmul share besides. For *.cpu.c files. */
#ifndef HT_KERNEL_PRODUCT_CPU_H
#define HT_KERNEL_PRODUCT_CPU_H

#include <math.h>

#include "kernel/cpu.h"
#include "kernel/gemm/product.h"

/* With one rounding where the ISA has an instruction for it. */
static inline real multiply_add(real x, real y, real sum)
{
    if (!HT_ISA_COLUMN(FMA)) return x * y + sum;
    return sizeof(real) == sizeof(float) ? (real)fmaf((float)x, (float)y, (float)sum) : (real)fma(x, y, sum);
}

static inline const char *product_can(const ht_call *call)
{
    const char *reason = ht_refuse_real(call);
    if (reason) return reason;
    return ht_type_contiguous(call->out[0]) ? NULL : "the result is strided";
}

#endif
