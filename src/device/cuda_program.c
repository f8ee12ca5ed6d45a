/* Programs: texts that NVRTC compiles, in parallel, and the modules that the driver makes of them. What was compiled is
 * kept (cuda_cache.c), by text, architecture and compiler. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda_own.h"

enum {
    MAX_SHARED_BYTES = 8,
    SHARED_WITHOUT_ASKING = 48 << 10,
    ENTRIES = 8,
    NAME_BYTES = 64
}; /* CU_FUNC_ATTRIBUTE_… 8 */

struct ht_cuda_program {
    ht_cuda_program *next;
    uint64_t hash[2];
    int entries;
    bool loaded;
    void *module, *functions[ENTRIES];
    char name[NAME_BYTES];
    char *text;
};

/* ---- compile ---- */

static ht_status tell_log(ht_context *ctx, const cuda_compiler *nvrtc, void *program, int result)
{
    size_t bytes = 0;
    char *log = NULL;
    if (nvrtc->nvrtcGetProgramLogSize(program, &bytes) == 0) log = calloc(1, bytes + 1);
    if (log) nvrtc->nvrtcGetProgramLog(program, log);
    ht_status status =
        ht_fail(ctx, HT_EDEVICE, "a CUDA kernel does not compile (NVRTC %d): %.600s", result, log ? log : "");
    free(log);
    return status;
}

static ht_status take_cubin(ht_context *ctx, const cuda_compiler *nvrtc, void *program, char **cubin, size_t *bytes)
{
    int result = nvrtc->nvrtcGetCUBINSize(program, bytes);
    if (result == 0) *cubin = malloc(*bytes);
    if (result == 0 && !*cubin) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a CUDA kernel");
    if (result == 0) result = nvrtc->nvrtcGetCUBIN(program, *cubin);
    if (result != 0) HT_FAIL(ctx, HT_EDEVICE, "NVRTC gave no code (%d)", result);
    return HT_OK;
}

ht_status ht_cuda_compile(ht_context *ctx, const char *text, int architecture, char **cubin, size_t *bytes)
{
    const char *reason;
    const cuda_compiler *nvrtc = cuda_compiler_open(&reason);
    void *program = NULL;
    char arch[32];
    *cubin = NULL;
    *bytes = 0;
    if (!nvrtc) HT_FAIL(ctx, HT_ENOTSUP, "no CUDA kernel can be compiled: %s", reason);
    snprintf(arch, sizeof arch, "--gpu-architecture=sm_%d", architecture);
    const char *options[] = {arch, "--fmad=false", "--std=c++17"};
    int result = nvrtc->nvrtcCreateProgram(&program, text, "halftone.cu", 0, NULL, NULL);
    if (result != 0) HT_FAIL(ctx, HT_EDEVICE, "NVRTC makes no program (%d)", result);
    result = nvrtc->nvrtcCompileProgram(program, 3, options);
    ht_status status =
        result == 0 ? take_cubin(ctx, nvrtc, program, cubin, bytes) : tell_log(ctx, nvrtc, program, result);
    nvrtc->nvrtcDestroyProgram(&program);
    return status;
}

/* ---- programs ---- */

static void hash_text(const char *text, uint64_t hash[2])
{
    const char *reason;
    const cuda_compiler *nvrtc = cuda_compiler_open(&reason);
    int version[2] = {0, 0};
    if (nvrtc) nvrtc->nvrtcVersion(&version[0], &version[1]);
    hash[0] = ht_hash_bytes(ht_hash_bytes(1, version, sizeof version), text, strlen(text));
    hash[1] = ht_hash_bytes(ht_hash_bytes(2, version, sizeof version), text, strlen(text));
}

ht_status ht_cuda_program_get(ht_device *device, const char *name, const char *text, int entries, ht_cuda_program **out)
{
    cuda_device *d = (cuda_device *)device;
    uint64_t hash[2];
    *out = NULL;
    hash_text(text, hash);
    for (ht_cuda_program *p = d->programs; p; p = p->next)
        if (memcmp(p->hash, hash, sizeof hash) == 0) {
            *out = p;
            return HT_OK;
        }
    ht_cuda_program *p = calloc(1, sizeof *p);
    if (p) p->text = strdup(text);
    if (!p || !p->text) {
        free(p);
        HT_FAIL(device->ctx, HT_ENOMEM, "out of memory for a CUDA kernel");
    }
    memcpy(p->hash, hash, sizeof hash);
    snprintf(p->name, sizeof p->name, "%s", name);
    p->entries = entries;
    p->next = d->programs;
    d->programs = p;
    *out = p;
    return HT_OK;
}

/* What threads compile: each has its own messages. */
typedef struct compilation {
    const cuda_device *device;
    ht_cuda_program *program;
    char *cubin;
    ht_status status;
    ht_context messages;
} compilation;

static void compile_one(void *arg, int64_t i)
{
    compilation *c = (compilation *)arg + i;
    const uint64_t *hash = c->program->hash;
    char name[80];
    size_t bytes;
    snprintf(name, sizeof name, "sm_%d-%016llx%016llx.cubin", c->device->architecture, (unsigned long long)hash[0],
             (unsigned long long)hash[1]);
    c->cubin = ht_cuda_cache_read(name, &bytes);
    if (c->cubin) return;
    c->status = ht_cuda_compile(&c->messages, c->program->text, c->device->architecture, &c->cubin, &bytes);
    if (c->status == HT_OK) ht_cuda_cache_write(name, c->cubin, bytes);
}

static ht_status load_one(cuda_device *d, compilation *c)
{
    ht_cuda_program *p = c->program;
    if (c->status != HT_OK) return ht_fail(d->base.ctx, c->status, "%s", c->messages.message);
    HT_TRY(cuda_check(d, d->driver->cuModuleLoadData(&p->module, c->cubin), "loading a kernel"));
    for (int i = 0; i < p->entries; i++) {
        char name[NAME_BYTES + 16];
        snprintf(name, sizeof name, "%s_%d", p->name, i);
        HT_TRY(cuda_check(d, d->driver->cuModuleGetFunction(&p->functions[i], p->module, name), "finding a kernel"));
    }
    free(p->text);
    p->text = NULL;
    p->loaded = true;
    return HT_OK;
}

ht_status cuda_programs_load(ht_device *device)
{
    cuda_device *d = (cuda_device *)device;
    size_t count = 0, at = 0;
    cuda_enter(d);
    for (const ht_cuda_program *p = d->programs; p; p = p->next) count += !p->loaded;
    if (!count) return HT_OK;
    compilation *all = calloc(count, sizeof *all);
    if (!all) HT_FAIL(device->ctx, HT_ENOMEM, "out of memory for CUDA kernels");
    for (ht_cuda_program *p = d->programs; p; p = p->next)
        if (!p->loaded) all[at++] = (compilation){.device = d, .program = p};
    ht_parallel(device->ctx->pool, (int64_t)count, compile_one, all);
    ht_status status = HT_OK;
    for (size_t i = 0; i < count; i++) {
        if (status == HT_OK) status = load_one(d, &all[i]);
        free(all[i].cubin);
    }
    free(all);
    return status;
}

void cuda_programs_free(cuda_device *d)
{
    while (d->programs) {
        ht_cuda_program *p = d->programs;
        d->programs = p->next;
        if (p->module) d->driver->cuModuleUnload(p->module);
        free(p->text);
        free(p);
    }
}

ht_status ht_cuda_program_launch(ht_queue *queue, const ht_cuda_program *program, int entry, const ht_cuda_shape *shape,
                                 void **arguments)
{
    const cuda_device *d = (const cuda_device *)queue->device;
    void *function = program->functions[entry], *stream = ht_cuda_stream(queue);
    unsigned blocks = (unsigned)shape->blocks, threads = (unsigned)shape->threads;
    unsigned shared_bytes = (unsigned)shape->shared_bytes;
    if (shape->shared_bytes > SHARED_WITHOUT_ASKING)
        HT_TRY(cuda_check(d, d->driver->cuFuncSetAttribute(function, MAX_SHARED_BYTES, shape->shared_bytes),
                          "asking for shared memory"));
    int result = shape->together ? d->driver->cuLaunchCooperativeKernel(function, blocks, 1, 1, threads, 1, 1,
                                                                        shared_bytes, stream, arguments)
                                 : d->driver->cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared_bytes,
                                                             stream, arguments, NULL);
    return cuda_check(d, result, "launching a kernel");
}
