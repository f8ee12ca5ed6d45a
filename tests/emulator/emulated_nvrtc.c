/* libnvrtc.so.13 for machines without it: texts in CUDA C++ become shared objects by the host's C++ compiler, behind
 * emulation.hpp. The emulated driver loads them. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HT_CUDA_NVRTC(name, parameters) __attribute__((visibility("default"))) int name parameters;
#include "device/cuda_driver.def"

enum { OUT_OF_MEMORY = 1, COMPILATION = 6 };

extern const char emulation_text[]; /* emulated_state.h and emulation.hpp, by the build */
extern char **environ;

typedef struct program {
    char *text;
    char *code, *log; /* what compiling left, or NULL */
    size_t code_bytes, log_bytes;
} program;

static const char *const flags[] = {
    "-shared", "-fPIC", "-O1", "-w", "-std=c++17", "-DHT_EMULATED", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti",
    "-fno-asynchronous-unwind-tables", "-nostdlib", "-pipe",
    /* Its own __bss_start and _end, not those of a program that exports its symbols. */
    "-Wl,-Bsymbolic",
    /* A trap behind the end of an array, such as one in shared memory, and at a wrong alignment. */
    "-fsanitize=bounds,alignment", "-fsanitize-undefined-trap-on-error"};
enum { FLAGS = sizeof flags / sizeof flags[0] };

static unsigned hash_text(unsigned hash, const char *text)
{
    while (*text) hash = hash * 31 + (unsigned char)*text++;
    return hash;
}

/* The cache of compiled kernels goes by the version: no compiler has this one, and another emulation another. */
int nvrtcVersion(int *major, int *minor)
{
    unsigned hash = hash_text(1, emulation_text);
    for (int i = 0; i < FLAGS; i++) hash = hash_text(hash, flags[i]);
    *major = 0;
    *minor = (int)(hash >> 1);
    return 0;
}

int nvrtcCreateProgram(void **out, const char *text, const char *name, int headers, const char *const *header_texts,
                       const char *const *header_names)
{
    (void)name;
    (void)headers;
    (void)header_texts;
    (void)header_names;
    program *p = calloc(1, sizeof *p);
    if (p) p->text = strdup(text);
    *out = p;
    return p && p->text ? 0 : OUT_OF_MEMORY;
}

int nvrtcDestroyProgram(void **handle)
{
    program *p = *handle;
    free(p->text);
    free(p->code);
    free(p->log);
    free(p);
    *handle = NULL;
    return 0;
}

/* ---- compile ---- */

typedef struct workplace {
    char folder[400], text[420], code[420], log[420];
} workplace;

static bool workplace_make(workplace *w)
{
    const char *folder = getenv("TMPDIR");
    snprintf(w->folder, sizeof w->folder, "%.300s/halftone-nvrtc-XXXXXX", folder && *folder ? folder : "/tmp");
    if (!mkdtemp(w->folder)) return false;
    snprintf(w->text, sizeof w->text, "%s/text.cpp", w->folder);
    snprintf(w->code, sizeof w->code, "%s/code.so", w->folder);
    snprintf(w->log, sizeof w->log, "%s/log", w->folder);
    return true;
}

static void workplace_remove(const workplace *w)
{
    (void)unlink(w->text);
    (void)unlink(w->code);
    (void)unlink(w->log);
    (void)rmdir(w->folder);
}

/* The text in a namespace of its own, so that what it does not call is left out, and its entries behind it. */
static bool write_text(const program *p, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file) return false;
    fprintf(file, "%s\nnamespace {\n#line 1 \"halftone.cu\"\n%s\n}\n", emulation_text, p->text);
    static const char mark[] = "__launch_bounds__("; /* every entry has it: __launch_bounds__(256) name(… */
    for (const char *at = p->text; (at = strstr(at, mark)); at++) {
        const char *name = strstr(at, ") ") + 2;
        fprintf(file, "EMULATED_ENTRY(%.*s)\n", (int)strcspn(name, "("), name);
    }
    return fclose(file) == 0;
}

static bool compile(const workplace *w)
{
    const char *arguments[FLAGS + 5] = {"c++", w->text, "-o", w->code};
    memcpy(arguments + 4, flags, sizeof flags);
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, w->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (posix_spawnp(&child, arguments[0], &actions, NULL, (char *const *)arguments, environ) == 0)
        waitpid(child, &status, 0);
    posix_spawn_file_actions_destroy(&actions);
    return status == 0;
}

static char *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    char *data = size >= 0 ? calloc(1, (size_t)size + 1) : NULL;
    *bytes = 0;
    if (data && fseek(file, 0, SEEK_SET) == 0) *bytes = fread(data, 1, (size_t)size, file);
    fclose(file);
    return data;
}

int nvrtcCompileProgram(void *handle, int options, const char *const *option)
{
    program *p = handle;
    workplace w;
    (void)options;
    (void)option;
    if (!workplace_make(&w)) return OUT_OF_MEMORY;
    bool done = write_text(p, w.text) && compile(&w);
    p->log = read_file(w.log, &p->log_bytes);
    if (done) p->code = read_file(w.code, &p->code_bytes);
    workplace_remove(&w);
    return p->code ? 0 : COMPILATION;
}

/* ---- results ---- */

int nvrtcGetCUBINSize(void *handle, size_t *bytes)
{
    *bytes = ((program *)handle)->code_bytes;
    return 0;
}

int nvrtcGetCUBIN(void *handle, char *cubin)
{
    const program *p = handle;
    memcpy(cubin, p->code, p->code_bytes);
    return 0;
}

int nvrtcGetProgramLogSize(void *handle, size_t *bytes)
{
    *bytes = ((program *)handle)->log_bytes + 1;
    return 0;
}

int nvrtcGetProgramLog(void *handle, char *log)
{
    const program *p = handle;
    memcpy(log, p->log ? p->log : "", p->log_bytes + 1);
    return 0;
}
