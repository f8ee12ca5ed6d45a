/* Shared by the files of the CUDA device. */
#ifndef HT_DEVICE_CUDA_OWN_H
#define HT_DEVICE_CUDA_OWN_H

#include "device/cuda_library.h"

typedef struct cuda_kept cuda_kept;

typedef struct cuda_device {
    ht_device base;
    const cuda_driver *driver;
    char name[16];    /* "cuda:1" */
    char model[128];  /* as the driver names it */
    int handle;       /* the driver's */
    int architecture; /* 90: sm_90 */
    ht_cuda_limits limits;
    uint64_t hash; /* of its model and driver */
    void *context;
    ht_cuda_program *programs; /* lists, the newest first */
    cuda_kept *kept;
} cuda_device;

typedef struct cuda_queue {
    ht_queue base;
    void *stream;
    bool borrowed; /* the stream is the caller's */
} cuda_queue;

/* Makes the device's context that of the calling thread. */
void cuda_enter(const cuda_device *device);
/* HT_OK for 0; else a message that names what was done and what the driver says. */
ht_status cuda_check(const cuda_device *device, int result, const char *what);

/* Compiles and loads the programs that are new. */
ht_status cuda_programs_load(ht_device *device);
void cuda_programs_free(cuda_device *device);

#endif
