/* The .cu files of src/kernel, as texts that the build makes (cmake/embed.cmake). */
#ifndef HT_KERNEL_CUDA_FILES_H
#define HT_KERNEL_CUDA_FILES_H

#include <stddef.h>

typedef struct ht_cuda_file {
    const char *name; /* without the folder and ".cu" */
    const char *text;
} ht_cuda_file;
extern const ht_cuda_file ht_cuda_files[];
extern const size_t ht_cuda_file_count;

#endif
