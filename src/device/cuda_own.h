/* Shared by the files of the CUDA device. */
#ifndef HT_DEVICE_CUDA_OWN_H
#define HT_DEVICE_CUDA_OWN_H

#include "device/cuda_library.h"

typedef struct cuda_kept cuda_kept;
typedef struct cuda_queue cuda_queue;

enum { CUDA_NOT_READY = 600 }; /* CUDA_ERROR_NOT_READY */

typedef struct cuda_device {
    ht_device base;
    const cuda_driver *driver;
    char name[16];    /* "cuda:1" */
    char model[128];  /* as the driver names it */
    int handle;       /* the driver's */
    int architecture; /* 90: sm_90 */
    int driver_version, compiler_version;
    ht_cuda_limits limits;
    uint64_t hash; /* of its model and driver */
    void *context;
    ht_cuda_program *programs; /* lists, the newest first */
    cuda_kept *kept;
    cuda_queue *checked; /* queues with a check, a list */
    ht_status failure;   /* of a check; its reason: */
    char failure_reason[1024];
} cuda_device;

struct cuda_queue {
    ht_queue base;
    void *stream;
    bool borrowed;            /* the stream is the caller's */
    ht_cuda_wait_check check; /* NULL: nobody asks */
    void *check_arg;
    cuda_queue *next_checked;
};

/* Makes the device's context that of the calling thread. */
void cuda_enter(const cuda_device *device);
/* HT_OK for 0; else a message that names what was done and what the driver says. */
ht_status cuda_check(const cuda_device *device, int result, const char *what);

/* The host waits for a stream or an event of the driver's. */
ht_status cuda_wait_for(cuda_device *device, int (*query)(void *), int (*wait)(void *), void *handle);
ht_status cuda_failure(const cuda_device *device); /* that a check has found, again */
void cuda_forget_waits(cuda_queue *queue);         /* it is about to go */

/* A text for people, in the folder of the cache, and where it lies. false: it could not be written. */
enum { CUDA_CACHE_PATH = 512 };
bool cuda_cache_keep_text(const char *name, const char *text, char path[CUDA_CACHE_PATH]);

/* Compiles and loads the programs that are new. After a failure those that are not loaded are forgotten. */
ht_status cuda_programs_load(ht_device *device);
void cuda_programs_free(cuda_device *device);

#endif
