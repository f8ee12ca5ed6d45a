/* The emulated GPU (tests/emulator), on which kernels are tested where there is none: threads meet and exchange values as
 * on a GPU, and what a GPU forgives or hangs on is told: barriers that some threads miss, masks that lie, accesses beyond
 * memory, order between threads that nobody promised. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "context_fixture.h"
#include "device/device.h"
#include "folder_fixture.h"
#include "kernel/cuda/cuda_files.h"

enum { SKIPPED = 77, NUMBERS = 4096 };

typedef struct fixture {
    ht_context *ctx;
    ht_device *device;
    ht_queue *queue;
    int32_t *numbers; /* on the device, NUMBERS of them */
    int32_t host[NUMBERS];
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->ctx = context_create(2, NULL);
    context_must(f->ctx, ht_device_get(&f->device, f->ctx, "cuda"));
    context_must(f->ctx, f->device->class->queue_create(f->device, &f->queue));
    context_must(f->ctx, ht_device_alloc(f->device, sizeof f->host, (void **)&f->numbers));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    ht_device_free(f->device, f->numbers);
    ht_queue_free(f->queue);
    ht_context_free(f->ctx);
    free(f);
    return 0;
}

/* ---- programs: the body of one entry, in which `n` are the numbers ---- */

static const char *prelude(void)
{
    for (size_t i = 0; i < ht_cuda_file_count; i++)
        if (strcmp(ht_cuda_files[i].name, "prelude") == 0) return ht_cuda_files[i].text;
    return NULL;
}

static ht_status load(fixture *f, const char *body, ht_cuda_program **program)
{
    ht_text text = {0};
    ht_text_add(&text, "typedef float real;\n%s", prelude());
    ht_text_add(&text, "extern \"C\" __global__ void __launch_bounds__(1024) test_0(int32_t *n)\n{\n%s\n}\n", body);
    assert_false(text.failed);
    ht_status status = ht_cuda_program_get(f->device, "test", text.data, 1, program);
    ht_text_free(&text);
    return status == HT_OK ? f->device->class->load(f->device) : status;
}

static ht_status launch_shape(fixture *f, const char *body, ht_cuda_shape shape, void *argument)
{
    ht_cuda_program *program;
    HT_TRY(load(f, body, &program));
    return ht_cuda_program_launch(f->queue, program, 0, &shape, &(void *){&argument});
}

static ht_status launch(fixture *f, const char *body, int blocks, int threads, int shared_bytes, void *argument)
{
    return launch_shape(f, body, (ht_cuda_shape){blocks, threads, shared_bytes, false}, argument);
}

/* host[i] is what the kernel leaves in n[i]; it begins with zeros. */
static void run(fixture *f, const char *body, int blocks, int threads, int shared_bytes)
{
    context_must(f->ctx, launch(f, body, blocks, threads, shared_bytes, f->numbers));
    context_must(f->ctx, ht_queue_copy(f->queue, f->host, f->numbers, sizeof f->host, HT_COPY_FROM_DEVICE));
    context_must(f->ctx, ht_queue_sync(f->queue));
}

static void fails(fixture *f, const char *body, int threads, const char *words)
{
    assert_int_not_equal(launch(f, body, 1, threads, 0, f->numbers), HT_OK);
    if (!strstr(ht_context_message(f->ctx), words)) fail_msg("no '%s' in: %s", words, ht_context_message(f->ctx));
    assert_int_not_equal(ht_queue_sync(f->queue), HT_OK); /* as on a GPU: nothing works after it */
}

/* ---- what works ---- */

static void emulator__every_thread_of_every_block_runs_once(void **state)
{
    fixture *f = *state;
    run(f, "n[thread_number()] += (int)(1000 * gridDim.x + thread_number());", 9, 100, 0);
    for (int i = 0; i < 900; i++) assert_int_equal(f->host[i], 9000 + i);
    assert_int_equal(f->host[900], 0);
}

static void emulator__a_barrier_orders_shared_memory(void **state)
{
    fixture *f = *state;
    run(f,
        "__shared__ int of[256]; int t = threadIdx.x;\n"
        "for (int round = 0; round < 5; round++) {\n"
        "    of[t] = round * 1000 + t; __syncthreads();\n"
        "    n[blockIdx.x * 256 + t] += of[(t + 37) % 256]; __syncthreads();\n"
        "}",
        4, 256, 0);
    for (int i = 0; i < 1024; i++) assert_int_equal(f->host[i], 10000 + 5 * ((i + 37) % 256));
}

static void emulator__lanes_shuffle_and_vote(void **state)
{
    fixture *f = *state;
    run(f,
        "int t = threadIdx.x, all = 0xffffffff;\n"
        "n[t] = __shfl_xor_sync(all, t, 5);\n"
        "n[64 + t] = __shfl_down_sync(all, t, 3);\n"
        "n[128 + t] = __shfl_up_sync(all, t, 3, 8);\n"
        "n[192 + t] = (int)__shfl_sync(all, (double)t, 9);\n"
        "n[256 + t] = __ballot_sync(all, t % 3 == 0);\n"
        "n[320 + t] = __syncthreads_count(t < 40);\n"
        "if (t % 32 < 16) n[384 + t] = __shfl_xor_sync(0xffffu, t, 1);\n"
        "else n[384 + t] = __any_sync(0xffff0000u, t == 20);",
        1, 64, 0);
    for (int t = 0; t < 64; t++) {
        assert_int_equal(f->host[t], t ^ 5);
        assert_int_equal(f->host[64 + t], t % 32 < 29 ? t + 3 : t);
        assert_int_equal(f->host[128 + t], t % 8 < 3 ? t : t - 3);
        assert_int_equal(f->host[192 + t], t / 32 * 32 + 9);
        assert_int_equal((uint32_t)f->host[256 + t], t < 32 ? 0x49249249u : 0x92492492u);
        assert_int_equal(f->host[320 + t], 40);
        assert_int_equal(f->host[384 + t], t % 32 < 16 ? t ^ 1 : t < 32);
    }
}

static void emulator__dynamic_shared_memory_and_atomics(void **state)
{
    fixture *f = *state;
    run(f,
        "SHARED_BYTES(bytes); int *sum = (int *)bytes; int t = threadIdx.x;\n"
        "n[t] = sum[t % 25]; __syncthreads();\n" /* junk */
        "if (t < 25) sum[t] = 0; __syncthreads();\n"
        "atomicAdd(&sum[t % 25], t); atomicMax(&n[200], t); __syncthreads();\n"
        "if (t < 25) n[100 + t] = sum[t];",
        1, 100, 100);
    for (int t = 0; t < 100; t++) assert_int_equal(f->host[t], -1);
    for (int t = 0; t < 25; t++) assert_int_equal(f->host[100 + t], 4 * t + 150);
    assert_int_equal(f->host[200], 99);
}

static void emulator__blocks_and_threads_have_no_order(void **state)
{
    fixture *f = *state;
    run(f, "n[atomicAdd(&n[4000], 1)] = (int)thread_number();", 10, 100, 0);
    int in_order = 0, seen[1000] = {0};
    for (int i = 0; i < 1000; i++) {
        in_order += f->host[i] == i;
        seen[f->host[i]]++;
    }
    for (int i = 0; i < 1000; i++) assert_int_equal(seen[i], 1);
    assert_true(in_order < 100);
}

/* n[0] counts the blocks that have come; each adds what the one before it has written in the round before. */
static const char rounds_of_blocks[] =
    "SHARED_BYTES(bytes); int *own = (int *)bytes; __shared__ int fixed; const int b = blockIdx.x, t = threadIdx.x;\n"
    "own[t] = b; if (t == 0) fixed = b;\n"
    "for (int round = 0; round < 3; round++) {\n"
    "    const int before = round ? n[1 + (round - 1) * 256 + (b + 7) % 8 * 32 + t] : 0;\n"
    "    n[1 + round * 256 + b * 32 + t] = before + 1;\n"
    "    __syncthreads();\n"
    "    if (t == 0) atomicAdd(&n[0], 1);\n"
    "    if (t == 0) while (n[0] < 8 * (round + 1)) emulated_pause();\n"
    "    __syncthreads();\n"
    "}\n"
    "n[1000 + b * 32 + t] = own[t] * 100 + fixed;";

static void emulator__blocks_that_run_together_wait_for_each_other(void **state)
{
    fixture *f = *state;
    context_must(f->ctx, launch_shape(f, rounds_of_blocks, (ht_cuda_shape){8, 32, 128, true}, f->numbers));
    context_must(f->ctx, ht_queue_copy(f->queue, f->host, f->numbers, sizeof f->host, HT_COPY_FROM_DEVICE));
    for (int i = 0; i < 256; i++) assert_int_equal(f->host[1 + 512 + i], 3);
    for (int i = 0; i < 256; i++) assert_int_equal(f->host[1000 + i], i / 32 * 101); /* each has its shared memory */
}

static void expect_message(fixture *f, ht_status status, const char *words)
{
    assert_int_not_equal(status, HT_OK);
    if (!strstr(ht_context_message(f->ctx), words)) fail_msg("no '%s' in: %s", words, ht_context_message(f->ctx));
}

static void emulator__waiting_for_blocks_that_may_come_later_fails(void **state)
{
    fixture *f = *state;
    expect_message(f, launch(f, rounds_of_blocks, 8, 32, 128, f->numbers), "may come later");
}

static void emulator__blocks_that_never_come_fail(void **state)
{
    fixture *f = *state;
    expect_message(f, launch_shape(f, rounds_of_blocks, (ht_cuda_shape){7, 32, 128, true}, f->numbers), "none comes");
}

static void emulator__more_blocks_together_than_processors_are_refused(void **state)
{
    fixture *f = *state;
    expect_message(f, launch_shape(f, rounds_of_blocks, (ht_cuda_shape){21, 32, 128, true}, f->numbers),
                   "21 blocks together");
}

static void emulator__f16_is_that_of_the_cpu(void **state)
{
    fixture *f = *state;
    for (int first = 0; first < 65536; first += NUMBERS) {
        char body[256];
        snprintf(body, sizeof body,
                 "int i = thread_number(); f16 x{(uint16_t)(i + %d)}; n[i] = __float_as_int(get(x) * 1.0007f);", first);
        run(f, body, NUMBERS / 256, 256, 0);
        for (int i = 0; i < NUMBERS; i++) {
            float want = ht_f16_to_f32((ht_f16){(uint16_t)(first + i)}) * 1.0007f, got;
            memcpy(&got, &f->host[i], sizeof got);
            assert_true(got == want || (got != got && want != want));
        }
        snprintf(body, sizeof body,
                 "int i = thread_number(); f16 x{(uint16_t)(i + %d)}; n[i] = f16_bits(get(x) * 1.0007f);", first);
        run(f, body, NUMBERS / 256, 256, 0);
        for (int i = 0; i < NUMBERS; i++) {
            float x = ht_f16_to_f32((ht_f16){(uint16_t)(first + i)}) * 1.0007f;
            if (x == x) assert_int_equal(f->host[i], ht_f16_from_f32(x).bits);
            if (x != x) assert_int_equal(f->host[i], 0x7fff);
        }
    }
}

/* ---- what is told ---- */

static void emulator__a_barrier_that_some_miss_fails(void **state)
{
    fails(*state, "if (threadIdx.x == 70) return; __syncthreads(); n[0] = 1;", 96, "95 wait at __syncthreads");
}

static void emulator__a_shuffle_that_some_miss_fails(void **state)
{
    fails(*state, "if (threadIdx.x != 3) n[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);", 32, "31 at a shuffle");
}

static void emulator__a_mask_that_names_no_thread_fails(void **state)
{
    fails(*state, "__syncwarp();", 40, "names lane");
}

static void emulator__a_lane_outside_the_mask_fails(void **state)
{
    fails(*state, "if (threadIdx.x < 16) n[threadIdx.x] = __shfl_sync(0xffffu, 1, 20);", 32, "leaves out");
}

static void emulator__reading_beyond_memory_fails(void **state)
{
    fails(*state, "if (threadIdx.x == 7) n[0] = n[4096 + 16];", 32, "thread 7 touches address");
}

static void emulator__writing_before_memory_fails(void **state)
{
    fails(*state, "n[-1] = 5;", 1, "4 bytes before memory of 16384 bytes");
}

static void emulator__reaching_beyond_a_shared_array_fails(void **state)
{
    fails(*state, "__shared__ int of[8]; of[threadIdx.x] = 1; __syncthreads(); n[0] = of[0];", 32, "beyond an array");
}

static void emulator__a_wide_load_that_is_not_aligned_fails(void **state)
{
    fails(*state, "float4 x = *(float4 *)(n + 1); n[0] = (int)x.y;", 1, "is not aligned");
}

static void emulator__dividing_by_zero_fails(void **state)
{
    fails(*state, "n[0] = 7 / n[1];", 1, "divides by zero");
}

static void emulator__endless_recursion_fails(void **state)
{
    fails(*state,
          "struct deep { static int go(volatile int *x) { volatile int big[64]; big[0] = *x; return big[0] + go(big) + "
          "big[1]; } }; n[0] = deep::go(n);",
          1, "touches address");
}

/* Memory of the host, and what was copied there. */
static void emulator__memory_of_the_host_is_refused(void **state)
{
    fixture *f = *state;
    assert_int_not_equal(launch(f, "n[0] = 1;", 1, 1, 0, f->host), HT_OK);
    assert_non_null(strstr(ht_context_message(f->ctx), "not memory of the GPU"));
    assert_int_not_equal(ht_queue_copy(f->queue, f->host, f->host, 4, HT_COPY_FROM_DEVICE), HT_OK);
    assert_int_not_equal(ht_queue_copy(f->queue, f->host, f->numbers, sizeof f->host + 4, HT_COPY_FROM_DEVICE), HT_OK);
}

/* Up to the next multiple of 64 bytes there is no page to guard. */
static void emulator__writing_a_little_beyond_memory_is_told_when_it_is_freed(void **state)
{
    fixture *f = *state;
    void *small;
    context_must(f->ctx, ht_device_alloc(f->device, 20, &small));
    context_must(f->ctx, launch(f, "n[5] = 1;", 1, 1, 0, small));
    ht_device_free(f->device, small);
    assert_int_not_equal(ht_queue_sync(f->queue), HT_OK);
    assert_non_null(strstr(ht_context_message(f->ctx), "byte 20 of memory of 20 bytes"));
}

/* The message names the kernel, and a file with its source; what comes next in that context works. */
static void emulator__a_text_that_does_not_compile_says_why(void **state)
{
    static const char before[] = "its source is kept in ";
    fixture *f = *state;
    ht_cuda_program *program;
    char path[512] = "";
    size_t bytes;
    assert_int_not_equal(load(f, "n[0] = missing;", &program), HT_OK);
    const char *message = ht_context_message(f->ctx), *at = strstr(message, before);
    assert_non_null(strstr(message, "the CUDA kernel test does not compile for sm_90"));
    assert_non_null(at);
    assert_non_null(strstr(at, "missing"));
    snprintf(path, sizeof path, "%.*s", (int)strcspn(at + sizeof before - 1, ":"), at + sizeof before - 1);
    char *source = file_read(path, &bytes);
    assert_non_null(source);
    assert_non_null(strstr(source, "n[0] = missing;"));
    free(source);
    remove(path);
    run(f, "n[0] = 7;", 1, 1, 0);
    assert_int_equal(f->host[0], 7);
}

/* ---- the cache of compiled kernels ---- */

static void use_cache(const char *folder, char before[512])
{
    snprintf(before, 512, "%s", getenv("XDG_CACHE_HOME"));
    setenv("XDG_CACHE_HOME", folder, 1);
}

/* A file whose checksum is right, and no cubin. */
static void spoil(const char *folder)
{
    char path[TEST_FOLDER_BYTES + 32];
    snprintf(path, sizeof path, "%s/halftone", folder);
    DIR *files = opendir(path);
    assert_non_null(files);
    for (const struct dirent *file; (file = readdir(files));)
        if (strstr(file->d_name, ".cubin")) ht_cuda_cache_write(file->d_name, "junk", 5);
    closedir(files);
}

static void cuda_cache__what_the_driver_refuses_is_compiled_again(void **state)
{
    char before[512];
    use_cache(test_folder, before);
    (void)state;
    for (int round = 0; round < 3; round++) {
        void *held;
        assert_int_equal(setup(&held), 0);
        run(held, "n[0] = 7;", 1, 1, 0);
        assert_int_equal(((fixture *)held)->host[0], 7);
        teardown(&held);
        if (round == 0) spoil(test_folder);
    }
    assert_int_equal(folder_count(folder_at(test_folder, "halftone")), 1);
    setenv("XDG_CACHE_HOME", before, 1);
}

enum { WRITES = 400, WRITTEN = 5000 };

static void write_one(void *arg, int64_t i)
{
    char data[WRITTEN];
    (void)arg;
    memset(data, (int)(i % 100), sizeof data);
    ht_cuda_cache_write("file", data, sizeof data);
}

static void cuda_cache__threads_may_write_a_file_at_once(void **state)
{
    char before[512];
    ht_context *ctx = context_create(4, NULL);
    size_t bytes = 0;
    (void)state;
    use_cache(test_folder, before);
    ht_parallel(ctx->pool, WRITES, write_one, NULL);
    char *data = ht_cuda_cache_read("file", &bytes);
    assert_non_null(data);
    assert_int_equal(bytes, WRITTEN);
    for (size_t i = 1; i < bytes; i++) assert_int_equal(data[i], data[0]);
    assert_int_equal(folder_count(folder_at(test_folder, "halftone")), 1);
    free(data);
    setenv("XDG_CACHE_HOME", before, 1);
    ht_context_free(ctx);
}

/* The driver counts blocks in 32 bits. */
static void emulator__more_blocks_than_a_grid_has_are_refused(void **state)
{
    fixture *f = *state;
    ht_cuda_shape shape = {((int64_t)1 << 32) + 1, 1, 0, false};
    assert_int_equal(launch_shape(f, "n[0] = 1;", shape, f->numbers), HT_ENOTSUP);
    assert_non_null(strstr(ht_context_message(f->ctx), "kernel test would need 4294967297 blocks"));
}

static void emulator__a_float_atomic_does_not_compile(void **state)
{
    fixture *f = *state;
    ht_cuda_program *program;
    assert_int_not_equal(load(f, "atomicAdd((float *)n, 1.0f);", &program), HT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(emulator__##name, setup, teardown)
        CASE(every_thread_of_every_block_runs_once),
        CASE(a_barrier_orders_shared_memory),
        CASE(lanes_shuffle_and_vote),
        CASE(dynamic_shared_memory_and_atomics),
        CASE(blocks_and_threads_have_no_order),
        CASE(blocks_that_run_together_wait_for_each_other),
        CASE(waiting_for_blocks_that_may_come_later_fails),
        CASE(blocks_that_never_come_fail),
        CASE(more_blocks_together_than_processors_are_refused),
        CASE(f16_is_that_of_the_cpu),
        CASE(a_barrier_that_some_miss_fails),
        CASE(a_shuffle_that_some_miss_fails),
        CASE(a_mask_that_names_no_thread_fails),
        CASE(a_lane_outside_the_mask_fails),
        CASE(reading_beyond_memory_fails),
        CASE(writing_before_memory_fails),
        CASE(reaching_beyond_a_shared_array_fails),
        CASE(a_wide_load_that_is_not_aligned_fails),
        CASE(dividing_by_zero_fails),
        CASE(endless_recursion_fails),
        CASE(memory_of_the_host_is_refused),
        CASE(writing_a_little_beyond_memory_is_told_when_it_is_freed),
        CASE(a_text_that_does_not_compile_says_why),
        CASE(a_float_atomic_does_not_compile),
        CASE(more_blocks_than_a_grid_has_are_refused),
        cmocka_unit_test_setup_teardown(cuda_cache__what_the_driver_refuses_is_compiled_again, test_folder_setup,
                                        test_folder_teardown),
        cmocka_unit_test_setup_teardown(cuda_cache__threads_may_write_a_file_at_once, test_folder_setup,
                                        test_folder_teardown),
    };
    if (!getenv("HALFTONE_EMULATED")) {
        puts("skipped: the emulator was not asked for");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
