/* A program that uses the same GPU as its sessions, a GPU or the emulator's: its stream and theirs are in one order, device
 * pointers go in and out without the host, and sessions on several GPUs do not disturb each other. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session_fixture.h"

enum { SKIPPED = 77, COUNT = 6 };

static const char sums[] = "state %w f32[6] heading=parameters trained\n"
                           "segment forward (%x f32[6]) -> (y=%y) {\n"
                           "  %a = mul f32[6] (%x, %x)\n"
                           "  %y = add f32[6] (%a, %w)\n"
                           "}\n";
static const char elsewhere[] = "state %w f32[6]@host\n"
                                "segment forward (%x f32[6]) -> (y=%x) {\n"
                                "}\n";
static const size_t bytes = COUNT * sizeof(float);

/* The driver as a caller has it, and what the emulator alone tells: does what comes next in a stream wait for all that is
 * in all others; does another one wait for all that is in this one? */
static struct {
#define HT_CUDA_DRIVER(name, parameters) int(*name) parameters;
#include "device/cuda_driver.def"
    int (*emulated_follows_all)(const void *stream);
    int (*emulated_is_followed)(const void *stream);
} cuda;

static bool open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return false;
#define HT_CUDA_DRIVER(name, parameters) *(void **)&cuda.name = dlsym(library, #name);
#include "device/cuda_driver.def"
    *(void **)&cuda.emulated_follows_all = dlsym(library, "emulated_follows_all");
    *(void **)&cuda.emulated_is_followed = dlsym(library, "emulated_is_followed");
    return true;
}

static int count_gpus(void)
{
    int count = 0;
    return cuda.cuInit(0) == 0 && cuda.cuDeviceGetCount(&count) == 0 ? count : 0;
}

/* The caller's own: a context of a GPU, a stream, memory for x and y. */
typedef struct caller {
    int gpu;
    void *context, *stream;
    uint64_t x, y;
} caller;

static caller caller_open(int number)
{
    caller c = {0};
    assert_int_equal(cuda.cuDeviceGet(&c.gpu, number), 0);
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&c.context, c.gpu), 0);
    assert_int_equal(cuda.cuCtxSetCurrent(c.context), 0);
    assert_int_equal(cuda.cuStreamCreate(&c.stream, 1), 0);
    assert_int_equal(cuda.cuMemAlloc_v2(&c.x, bytes), 0);
    assert_int_equal(cuda.cuMemAlloc_v2(&c.y, bytes), 0);
    return c;
}

static void caller_close(caller *c)
{
    assert_int_equal(cuda.cuCtxSetCurrent(c->context), 0);
    assert_int_equal(cuda.cuMemFree_v2(c->x), 0);
    assert_int_equal(cuda.cuMemFree_v2(c->y), 0);
    assert_int_equal(cuda.cuStreamDestroy_v2(c->stream), 0);
    assert_int_equal(cuda.cuDevicePrimaryCtxRelease_v2(c->gpu), 0);
}

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static void send(const caller *c, uint64_t to, const float *from)
{
    assert_int_equal(cuda.cuCtxSetCurrent(c->context), 0);
    assert_int_equal(cuda.cuMemcpyHtoDAsync_v2(to, from, bytes, c->stream), 0);
}

static void fetch(const caller *c, float *to, uint64_t from)
{
    assert_int_equal(cuda.cuCtxSetCurrent(c->context), 0);
    assert_int_equal(cuda.cuMemcpyDtoHAsync_v2(to, from, bytes, c->stream), 0);
    assert_int_equal(cuda.cuStreamSynchronize(c->stream), 0);
}

static session_fixture open_session(ht_context *ctx, const char *device, const char *text)
{
    session_fixture f = {.ctx = ctx};
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.device = device;
    must(&f, ht_graph_parse(&f.g, ctx, "text", text, strlen(text)));
    session_plan(&f, &opts, 1);
    return f;
}

/* All but the context. */
static void close_session(session_fixture *f)
{
    ht_session_free(f->s);
    ht_plan_free(f->plan);
    ht_graph_free(f->g);
}

static ht_handle slot(const session_fixture *f, const char *name)
{
    ht_handle handle;
    must(f, ht_session_slot(f->s, name, &handle));
    return handle;
}

/* y = x * x + w, from the caller's memory into the caller's memory. */
static void run(const session_fixture *f, const caller *c, const float *x)
{
    ht_handle forward;
    must(f, ht_session_program(f->s, "forward", &forward));
    send(c, c->x, x);
    must(f, ht_session_write_device(f->s, slot(f, "x"), pointer(c->x), bytes));
    must(f, ht_session_start(f->s, forward));
    must(f, ht_session_read_device(f->s, slot(f, "y"), pointer(c->y), bytes));
}

static void assert_squares(const float *y, const float *x, float plus)
{
    for (int i = 0; i < COUNT; i++) assert_true(y[i] == x[i] * x[i] + plus);
}

static const float numbers[COUNT] = {1, -2, 3, -4, 5, -6};

static void device_pointer__goes_in_and_out_without_the_host(void **state)
{
    ht_context *ctx = context_create(2, NULL);
    session_fixture f = open_session(ctx, "cuda", sums);
    caller c = caller_open(0);
    float w[COUNT] = {7, 7, 7, 7, 7, 7}, y[COUNT];
    (void)state;
    send(&c, c.y, w);
    assert_int_equal(cuda.cuStreamSynchronize(c.stream), 0);
    must(&f, ht_session_write_device(f.s, slot(&f, "w"), pointer(c.y), bytes));
    run(&f, &c, numbers); /* without a stream: each call waits */
    fetch(&c, y, c.y);
    assert_squares(y, numbers, 7);
    close_session(&f);
    caller_close(&c);
    ht_context_free(ctx);
}

static void stream__and_session_wait_for_each_other(void **state)
{
    ht_context *ctx = context_create(2, NULL);
    session_fixture f = open_session(ctx, "cuda", sums);
    caller c = caller_open(0);
    float y[COUNT];
    ht_handle forward;
    (void)state;
    must(&f, ht_session_program(f.s, "forward", &forward));
    must(&f, ht_session_set_stream(f.s, c.stream));
    for (int round = 0; round < 4; round++) { /* the second run is recorded, further ones are replayed */
        float x[COUNT];
        for (int i = 0; i < COUNT; i++) x[i] = numbers[i] + (float)round;
        run(&f, &c, x);
        if (cuda.emulated_follows_all) assert_true(cuda.emulated_follows_all(c.stream));
        fetch(&c, y, c.y);
        assert_squares(y, x, 0);
        if (cuda.emulated_is_followed) assert_false(cuda.emulated_is_followed(c.stream));
        must(&f, ht_session_start(f.s, forward));
        if (cuda.emulated_is_followed) assert_true(cuda.emulated_is_followed(c.stream));
        if (cuda.emulated_follows_all) assert_true(cuda.emulated_follows_all(c.stream));
    }
    must(&f, ht_session_set_stream(f.s, NULL));
    must(&f, ht_session_start(f.s, forward));
    if (cuda.emulated_follows_all) assert_false(cuda.emulated_follows_all(c.stream));
    must(&f, ht_session_wait(f.s));
    close_session(&f);
    caller_close(&c);
    ht_context_free(ctx);
}

static void stream__of_another_gpu_is_refused(void **state)
{
    ht_context *ctx = context_create(2, NULL);
    (void)state;
    if (count_gpus() < 2) skip();
    session_fixture f = open_session(ctx, "cuda:1", sums);
    caller c = caller_open(0);
    assert_int_equal(ht_session_set_stream(f.s, c.stream), HT_EINVAL);
    message_has(&f, "the stream belongs to another GPU");
    close_session(&f);
    caller_close(&c);
    ht_context_free(ctx);
}

static void stream__is_for_gpus(void **state)
{
    ht_context *ctx = context_create(2, NULL);
    session_fixture f = open_session(ctx, "cpu", sums);
    float x[COUNT], y[COUNT];
    (void)state;
    assert_int_equal(ht_session_set_stream(f.s, &f), HT_EINVAL);
    message_has(&f, "the session computes on cpu, which has no streams");
    must(&f, ht_session_set_stream(f.s, NULL));
    memcpy(x, numbers, sizeof x);
    must(&f, ht_session_write_device(f.s, slot(&f, "x"), x, bytes));
    must(&f, ht_session_run(f.s, "forward"));
    must(&f, ht_session_read_device(f.s, slot(&f, "y"), y, bytes));
    assert_squares(y, numbers, 0);
    assert_int_equal(ht_session_read_device(f.s, slot(&f, "y"), y, bytes - 1), HT_ESHAPE);
    close_session(&f);
    ht_context_free(ctx);
}

static void device_pointer__of_what_lies_elsewhere_is_refused(void **state)
{
    ht_context *ctx = context_create(2, NULL);
    session_fixture f = open_session(ctx, "cuda", elsewhere);
    caller c = caller_open(0);
    (void)state;
    assert_int_equal(ht_session_write_device(f.s, slot(&f, "w"), pointer(c.x), bytes), HT_ENOTSUP);
    message_has(&f, "'w' lies in @host, not in the memory of cuda");
    close_session(&f);
    caller_close(&c);
    ht_context_free(ctx);
}

/* The emulator refuses memory and streams of a GPU whose context is not the thread's. */
static void cuda__gpus_compute_side_by_side(void **state)
{
    ht_context *ctx = context_create(2, NULL);
    (void)state;
    if (count_gpus() < 2) skip();
    static const char *const names[] = {"cuda:0", "cuda:1"};
    session_fixture f[2];
    caller c[2];
    float x[COUNT], y[COUNT];
    for (int i = 0; i < 2; i++) f[i] = open_session(ctx, names[i], sums);
    for (int i = 0; i < 2; i++) c[i] = caller_open(i);
    assert_ptr_not_equal(ht_executor_device(f[0].s->executor), ht_executor_device(f[1].s->executor));
    for (int i = 0; i < 2; i++) must(&f[i], ht_session_set_stream(f[i].s, c[i].stream));
    for (int round = 0; round < 6; round++) {
        int i = round % 2;
        for (int k = 0; k < COUNT; k++) x[k] = numbers[k] + (float)round;
        run(&f[i], &c[i], x);
        fetch(&c[i], y, c[i].y);
        assert_squares(y, x, 0);
    }
    for (int i = 0; i < 2; i++) {
        close_session(&f[i]);
        caller_close(&c[i]);
    }
    ht_context_free(ctx);
}

static void cuda__a_gpu_is_one_device_by_either_name(void **state)
{
    ht_context *ctx = context_create(1, NULL);
    ht_device *a, *b;
    char words[64];
    (void)state;
    context_must(ctx, ht_device_get(&a, ctx, "cuda"));
    context_must(ctx, ht_device_get(&b, ctx, "cuda:0"));
    assert_ptr_equal(a, b);
    assert_int_equal(ht_device_get(&b, ctx, "cuda:99"), HT_EINVAL);
    snprintf(words, sizeof words, "there is no GPU 99: the driver sees %d", count_gpus());
    assert_non_null(strstr(ht_context_message(ctx), words));
    ht_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_pointer__goes_in_and_out_without_the_host),
        cmocka_unit_test(stream__and_session_wait_for_each_other),
        cmocka_unit_test(stream__of_another_gpu_is_refused),
        cmocka_unit_test(stream__is_for_gpus),
        cmocka_unit_test(device_pointer__of_what_lies_elsewhere_is_refused),
        cmocka_unit_test(cuda__gpus_compute_side_by_side),
        cmocka_unit_test(cuda__a_gpu_is_one_device_by_either_name),
    };
    setenv("HALFTONE_EMULATED_GPUS", "2", 1);
    if (!open_driver() || count_gpus() == 0) {
        printf("skipped: there is no GPU\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
