/* Programs: texts that NVRTC compiles, in parallel, and the modules that the driver makes of them. What was compiled is
 * kept (cuda_cache.c), by text, architecture and compiler. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda_own.h"

enum {
    MAX_SHARED_BYTES = 8, /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
    INVALID_IMAGE = 200,  /* CUDA_ERROR_INVALID_IMAGE */
    WRONG_IMAGE = 209,    /* CUDA_ERROR_NO_BINARY_FOR_GPU */
    ENTRIES = 8,
    NAME_BYTES = 64,
};

/* Beside the architecture; they are part of what the cache goes by. */
static const char *const options[] = {"--fmad=false", "--std=c++17"};
enum { OPTIONS = sizeof options / sizeof options[0] };

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

typedef struct source {
    const char *name, *text;
    int architecture;
} source;

/* The text of a kernel that does not compile, with all that NVRTC says behind it. */
static bool keep_source(const source *s, const char *log, char path[CUDA_CACHE_PATH])
{
    char name[128];
    ht_text text = {0};
    snprintf(name, sizeof name, "failed-%.60s-sm_%d-%016llx.cu", s->name, s->architecture,
             (unsigned long long)ht_hash_text(s->text));
    ht_text_add(&text, "%s\n#if 0\n%s\n#endif\n", s->text, log);
    bool kept = !text.failed && cuda_cache_keep_text(name, text.data, path);
    ht_text_free(&text);
    return kept;
}

static ht_status tell_log(ht_context *ctx, const cuda_compiler *nvrtc, void *program, int result, const source *s)
{
    size_t bytes = 0;
    char *log = NULL, path[CUDA_CACHE_PATH];
    if (nvrtc->nvrtcGetProgramLogSize(program, &bytes) == 0) log = calloc(1, bytes + 1);
    if (log) nvrtc->nvrtcGetProgramLog(program, log);
    bool kept = keep_source(s, log ? log : "", path);
    ht_status status =
        ht_fail(ctx, HT_EDEVICE, "the CUDA kernel %s does not compile for sm_%d (NVRTC %d)%s%s: %.400s", s->name,
                s->architecture, result, kept ? "; its source is kept in " : "", kept ? path : "", log ? log : "");
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

ht_status ht_cuda_compile(ht_context *ctx, const char *name, const char *text, int architecture, char **cubin,
                          size_t *bytes)
{
    const char *reason;
    const cuda_compiler *nvrtc = cuda_compiler_open(&reason);
    void *program = NULL;
    char arch[32];
    *cubin = NULL;
    *bytes = 0;
    if (!nvrtc) HT_FAIL(ctx, HT_ENOTSUP, "no CUDA kernel can be compiled: %s", reason);
    snprintf(arch, sizeof arch, "--gpu-architecture=sm_%d", architecture);
    const char *all[1 + OPTIONS] = {arch};
    memcpy(all + 1, options, sizeof options);
    int result = nvrtc->nvrtcCreateProgram(&program, text, "halftone.cu", 0, NULL, NULL);
    if (result != 0) HT_FAIL(ctx, HT_EDEVICE, "NVRTC makes no program (%d)", result);
    result = nvrtc->nvrtcCompileProgram(program, 1 + OPTIONS, all);
    ht_status status = result == 0 ? take_cubin(ctx, nvrtc, program, cubin, bytes)
                                   : tell_log(ctx, nvrtc, program, result, &(source){name, text, architecture});
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
    for (uint64_t half = 0; half < 2; half++) {
        hash[half] = ht_hash_bytes(1 + half, version, sizeof version);
        for (size_t i = 0; i < OPTIONS; i++) hash[half] = ht_hash_bytes(hash[half], options[i], strlen(options[i]) + 1);
        hash[half] = ht_hash_bytes(hash[half], text, strlen(text));
    }
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

static ht_status check_kernel(const cuda_device *d, int result, const char *what, const ht_cuda_program *program)
{
    char text[NAME_BYTES + 48];
    if (result == 0) return HT_OK;
    snprintf(text, sizeof text, "%s kernel %s", what, program->name);
    return cuda_check(d, result, text);
}

/* What threads compile: each has its own messages. */
typedef struct compilation {
    const cuda_device *device;
    ht_cuda_program *program;
    char *cubin;
    bool cached; /* the cubin is the cache's */
    ht_status status;
    ht_context messages;
} compilation;

typedef struct cubin_name {
    char text[80];
} cubin_name;

static cubin_name name_cubin(const compilation *c)
{
    cubin_name name;
    const uint64_t *hash = c->program->hash;
    snprintf(name.text, sizeof name.text, "sm_%d-%016llx%016llx.cubin", c->device->architecture,
             (unsigned long long)hash[0], (unsigned long long)hash[1]);
    return name;
}

static void compile_anew(compilation *c)
{
    const ht_cuda_program *p = c->program;
    size_t bytes;
    c->cached = false;
    c->status = ht_cuda_compile(&c->messages, p->name, p->text, c->device->architecture, &c->cubin, &bytes);
    if (c->status == HT_OK) ht_cuda_cache_write(name_cubin(c).text, c->cubin, bytes);
}

static void compile_one(void *arg, int64_t i)
{
    compilation *c = (compilation *)arg + i;
    size_t bytes;
    c->cubin = ht_cuda_cache_read(name_cubin(c).text, &bytes);
    c->cached = c->cubin != NULL;
    if (!c->cached) compile_anew(c);
}

/* What the driver refuses is compiled once more, and takes its place in the cache. */
static int load_module(const cuda_device *d, compilation *c)
{
    ht_cuda_program *p = c->program;
    int result = d->driver->cuModuleLoadData(&p->module, c->cubin);
    if (!c->cached || (result != INVALID_IMAGE && result != WRONG_IMAGE)) return result;
    free(c->cubin);
    c->cubin = NULL;
    compile_anew(c);
    return c->status == HT_OK ? d->driver->cuModuleLoadData(&p->module, c->cubin) : result;
}

static ht_status load_one(cuda_device *d, compilation *c)
{
    ht_cuda_program *p = c->program;
    int result = c->status == HT_OK ? load_module(d, c) : 0;
    if (c->status != HT_OK) return ht_fail(d->base.ctx, c->status, "%s", c->messages.message);
    HT_TRY(check_kernel(d, result, "loading", p));
    for (int i = 0; i < p->entries; i++) {
        char name[NAME_BYTES + 16];
        snprintf(name, sizeof name, "%s_%d", p->name, i);
        HT_TRY(check_kernel(d, d->driver->cuModuleGetFunction(&p->functions[i], p->module, name), "finding", p));
    }
    free(p->text);
    p->text = NULL;
    p->loaded = true;
    return HT_OK;
}

static void free_program(const cuda_device *d, ht_cuda_program *p)
{
    if (p->module) d->driver->cuModuleUnload(p->module);
    free(p->text);
    free(p);
}

/* Whoever asked for them has failed; the next one, which asks for others, shall not. */
static void forget_unloaded(cuda_device *d)
{
    for (ht_cuda_program **at = &d->programs; *at;) {
        ht_cuda_program *p = *at;
        if (p->loaded) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        free_program(d, p);
    }
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
    if (status != HT_OK) forget_unloaded(d);
    return status;
}

void cuda_programs_free(cuda_device *d)
{
    while (d->programs) {
        ht_cuda_program *p = d->programs;
        d->programs = p->next;
        free_program(d, p);
    }
}

ht_status ht_cuda_program_launch(ht_queue *queue, const ht_cuda_program *program, int entry, const ht_cuda_shape *shape,
                                 void **arguments)
{
    const cuda_device *d = (const cuda_device *)queue->device;
    void *function = program->functions[entry], *stream = ht_cuda_stream(queue);
    if (shape->blocks > INT32_MAX)
        HT_FAIL(d->base.ctx, HT_ENOTSUP, "kernel %s would need %" PRId64 " blocks; a grid has %d at most",
                program->name, shape->blocks, INT32_MAX);
    unsigned blocks = (unsigned)shape->blocks, threads = (unsigned)shape->threads;
    unsigned shared_bytes = (unsigned)shape->shared_bytes;
    if (shape->shared_bytes > 0) /* without asking, what the text declares counts among the first 48 KiB */
        HT_TRY(check_kernel(d, d->driver->cuFuncSetAttribute(function, MAX_SHARED_BYTES, shape->shared_bytes),
                            "asking for shared memory of", program));
    int result = shape->together ? d->driver->cuLaunchCooperativeKernel(function, blocks, 1, 1, threads, 1, 1,
                                                                        shared_bytes, stream, arguments)
                                 : d->driver->cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared_bytes,
                                                             stream, arguments, NULL);
    return check_kernel(d, result, "launching", program);
}
