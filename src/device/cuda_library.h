/* CUDA's libraries, opened when they are first needed: one binary serves machines with and without them. The few functions
 * that we call are declared here, so that the build needs no CUDA either (docs/decisions/0026-cuda-kernels-as-text.md). */
#ifndef HT_DEVICE_CUDA_LIBRARY_H
#define HT_DEVICE_CUDA_LIBRARY_H

#include "device/device.h"

#define HT_CUDA_DRIVER(name, parameters) int(*name) parameters;
typedef struct cuda_driver {
#include "device/cuda_driver.def"
} cuda_driver;
#define HT_CUDA_NVRTC(name, parameters) int(*name) parameters;
typedef struct cuda_compiler {
#include "device/cuda_driver.def"
} cuda_compiler;

/* Each is opened once for the process. NULL: it is not there, or lacks a function; *reason says which. */
const cuda_driver *cuda_driver_open(const char **reason);
const cuda_compiler *cuda_compiler_open(const char **reason);
/* Behind cuda_driver_open: is there any driver, be it one that lacks functions? */
bool cuda_driver_is_there(void);

#endif
