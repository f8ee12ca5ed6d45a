#include "device/cuda_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

/* One library: the table that its functions go into, or why it is not there. */
typedef struct library {
    const char *const *files; /* names to try, best first; NULL behind the last */
    const char *const *functions;
    size_t count;
    void (**table)(void);
    char reason[256]; /* empty: it is there */
} library;

static void open_library(library *l)
{
    void *handle = NULL;
    for (size_t i = 0; !handle && l->files[i]; i++) handle = dlopen(l->files[i], RTLD_NOW);
    if (!handle) {
        snprintf(l->reason, sizeof l->reason, "%s cannot be opened", l->files[0]);
        return;
    }
    for (size_t i = 0; i < l->count; i++) {
        *(void **)&l->table[i] = dlsym(handle, l->functions[i]);
        if (l->table[i]) continue;
        snprintf(l->reason, sizeof l->reason, "%s has no %s", l->files[0], l->functions[i]);
        return;
    }
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
static library driver_library = {driver_files, driver_functions, COUNT(driver_functions), driver.functions, ""};

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
static library compiler_library = {compiler_files, compiler_functions, COUNT(compiler_functions), compiler.functions,
                                   ""};

static void open_driver(void)
{
    open_library(&driver_library);
}

static void open_compiler(void)
{
    open_library(&compiler_library);
}

const cuda_driver *cuda_driver_open(const char **reason)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_driver);
    *reason = driver_library.reason;
    return driver_library.reason[0] ? NULL : &driver.driver;
}

const cuda_compiler *cuda_compiler_open(const char **reason)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_compiler);
    *reason = compiler_library.reason;
    return compiler_library.reason[0] ? NULL : &compiler.compiler;
}
