/* What rows of the CUDA device need of it: programs that are compiled from text, and their launch. */
#ifndef HT_DEVICE_CUDA_H
#define HT_DEVICE_CUDA_H

/* A text in CUDA C++ with the entries <name>_0, <name>_1, …, as profilers show them; devices keep one for each text. */
typedef struct ht_cuda_program ht_cuda_program;

/* It can be launched after the device's next `load`, which compiles all that are new, in parallel. */
ht_status ht_cuda_program_get(ht_device *device, const char *name, const char *text, int entries,
                              ht_cuda_program **out);
/* One grid of a program. Blocks that run `together` wait for each other: either all of them have a place on the device at
 * the same time, or the launch fails. */
typedef struct ht_cuda_shape {
    int64_t blocks;
    int threads, shared_bytes;
    bool together;
} ht_cuda_shape;
/* On a queue of that device; `arguments`: the address of each. */
ht_status ht_cuda_program_launch(ht_queue *queue, const ht_cuda_program *program, int entry, const ht_cuda_shape *shape,
                                 void **arguments);
/* What a device has for blocks that run together. */
typedef struct ht_cuda_limits {
    int processors;   /* multiprocessors */
    int shared_bytes; /* of a block at most */
    int l2_bytes;     /* of the cache that all of them share */
} ht_cuda_limits;
ht_cuda_limits ht_cuda_device_limits(const ht_device *device);

/* GPUs that the driver sees; 0 without one. */
int ht_cuda_device_count(void);
/* Where it sits: "0000:1B:00.0". */
ht_status ht_cuda_device_bus(const ht_device *device, char *bus, size_t size);
/* The model of a device and its driver, as a number. */
uint64_t ht_cuda_device_hash(const ht_device *device);

/* What was found out once, by name, for all processes. NULL: nothing; else memory for free(). */
void *ht_cuda_cache_read(const char *name, size_t *bytes);
void ht_cuda_cache_write(const char *name, const void *data, size_t bytes);

/* NVRTC alone, without a GPU: is the text right for an architecture such as 90? HT_ENOTSUP: the library is not there. The
 * name is for the message of a text that is wrong; the text itself is kept in a file then, which the message names. */
ht_status ht_cuda_compile(ht_context *ctx, const char *name, const char *text, int architecture, char **cubin,
                          size_t *bytes);

/* The handle of a queue's stream, for libraries. */
void *ht_cuda_stream(const ht_queue *queue);

/* A queue's commands may wait for other ranks, so waits of the host for the device have to ask now and then whether those
 * still come. A check that fails has seen to it that the commands end; its reason is in the device's context, and the
 * device has failed. One for a queue, until it is freed. */
typedef ht_status (*ht_cuda_wait_check)(void *arg, double waited_s);
void ht_cuda_check_waits(ht_queue *queue, ht_cuda_wait_check check, void *arg);

/* What rows share on a device, by name: handles and plans of libraries. It is freed with the device, the newest first; on
 * failure at once. */
ht_status ht_cuda_keep(ht_device *device, const char *name, void *object, void (*free_object)(void *object));
void *ht_cuda_kept(const ht_device *device, const char *name); /* NULL: there is none */

/* A library of CUDA's: what to look for, and the functions that were found. */
typedef struct ht_cuda_library {
    const char *const *files; /* names to try, best first; NULL behind the last */
    const char *const *names;
    size_t count;
    void (**functions)(void);
    char reason[256]; /* empty: it is there */
    bool tried;
} ht_cuda_library;
/* Opens it once for the process. NULL: it is there, with all functions; else the reason. */
const char *ht_cuda_library_open(ht_cuda_library *library);

#endif
