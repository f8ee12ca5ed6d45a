#include "device/cuda_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static void open_library(ht_cuda_library *l)
{
    void *handle = NULL;
    for (size_t i = 0; !handle && l->files[i]; i++) handle = dlopen(l->files[i], RTLD_NOW);
    if (!handle) snprintf(l->reason, sizeof l->reason, "%s cannot be opened", l->files[0]);
    for (size_t i = 0; handle && i < l->count; i++) {
        *(void **)&l->functions[i] = dlsym(handle, l->names[i]);
        if (l->functions[i]) continue;
        snprintf(l->reason, sizeof l->reason, "%s has no %s", l->files[0], l->names[i]);
        return;
    }
}

const char *ht_cuda_library_open(ht_cuda_library *library)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!library->tried) open_library(library);
    library->tried = true;
    pthread_mutex_unlock(&lock);
    return library->reason[0] ? library->reason : NULL;
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static union {
    cuda_driver driver;
    void (*functions[sizeof(cuda_driver) / sizeof(void (*)(void))])(void);
} driver;
static const char *const driver_files[] = {"libcuda.so.1", "libcuda.so", NULL};
static const char *const driver_functions[] = {
#define HT_CUDA_DRIVER(name, parameters) #name,
#include "device/cuda_driver.def"
};
static ht_cuda_library driver_library = {driver_files, driver_functions, COUNT(driver_functions), driver.functions, "",
                                         false};

static union {
    cuda_compiler compiler;
    void (*functions[sizeof(cuda_compiler) / sizeof(void (*)(void))])(void);
} compiler;
static const char *const compiler_files[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                             "/usr/local/cuda/lib64/libnvrtc.so", NULL};
static const char *const compiler_functions[] = {
#define HT_CUDA_NVRTC(name, parameters) #name,
#include "device/cuda_driver.def"
};
static ht_cuda_library compiler_library = {
    compiler_files, compiler_functions, COUNT(compiler_functions), compiler.functions, "", false};

const cuda_driver *cuda_driver_open(const char **reason)
{
    *reason = ht_cuda_library_open(&driver_library);
    return *reason ? NULL : &driver.driver;
}

bool cuda_driver_is_there(void)
{
    const char *const *file = driver_files;
    while (*file && !dlopen(*file, RTLD_NOW | RTLD_NOLOAD)) file++;
    return *file != NULL;
}

const cuda_compiler *cuda_compiler_open(const char **reason)
{
    *reason = ht_cuda_library_open(&compiler_library);
    return *reason ? NULL : &compiler.compiler;
}
