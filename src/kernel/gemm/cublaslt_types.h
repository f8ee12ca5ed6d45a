/* Types of cublasLt that we pass by value or look into. */
#ifndef HT_KERNEL_CUBLASLT_TYPES_H
#define HT_KERNEL_CUBLASLT_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef struct cublaslt_algorithm {
    uint64_t data[8];
} cublaslt_algorithm;
typedef struct cublaslt_choice {
    cublaslt_algorithm algorithm;
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
} cublaslt_choice;

/* The library: functions of cublaslt.def. */
typedef struct cublaslt {
#define HT_CUBLASLT(name, parameters) int(*name) parameters;
#include "kernel/gemm/cublaslt.def"
#undef HT_CUBLASLT
} cublaslt;
/* Opened once for the process; NULL: it is not there, and *reason says why. */
const cublaslt *ht_cublaslt_open(const char **reason);

#endif
