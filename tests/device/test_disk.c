/* The disk as a device: bytes at any offset and of any size come back, by io_uring and by threads, past the page cache
 * and through it; reads and writes of several queues at once; every fault is told with file, place and tensor, and
 * nothing is left behind. */
#define _GNU_SOURCE /* unshare */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <halftone/session.h>

#include "context_fixture.h"
#include "device/device.h"
#include "folder_fixture.h"

enum { FILE_BYTES = 1 << 20 };

#if defined(__SANITIZE_THREAD__)
enum { MAY_FORK = 0 }; /* it takes no threads in a child */
#else
enum { MAY_FORK = 1 };
#endif

/* How requests reach the disk. */
typedef struct way {
    const char *name;
    bool threads, buffered;
} way;
static const way ways[] = {{"io_uring", false, false}, {"threads", true, false}, {"page cache", false, true}};
enum { WAYS = sizeof ways / sizeof ways[0] };

static const char *tensor(void *arg, const void *address)
{
    (void)address;
    return arg;
}

static char name_of_all[] = "adam.m";

static ht_disk_opts small_blocks(const way *w)
{
    ht_disk_opts opts = HT_DISK_OPTS;
    opts.block_size = 16384;
    opts.queue_depth = 4;
    opts.threads = w->threads;
    opts.buffered = w->buffered;
    return opts;
}

static ht_device *open_disk(const ht_disk_opts *opts)
{
    ht_device *device;
    context_must(test_ctx,
                 ht_disk_open(&device, test_ctx, test_folder, opts, &(ht_disk_user){NULL, tensor, name_of_all}));
    return device;
}

static char *new_memory(ht_device *device, size_t bytes)
{
    void *memory;
    context_must(test_ctx, ht_device_alloc(device, bytes, &memory));
    return memory;
}

static ht_queue *new_queue(ht_device *device)
{
    ht_queue *queue;
    context_must(test_ctx, device->class->queue_create(device, &queue));
    return queue;
}

static void copy(ht_queue *queue, void *to, const void *from, size_t bytes)
{
    context_must(test_ctx, ht_queue_copy(queue, to, from, bytes, HT_COPY_WITHIN));
}

static void fill(char *bytes, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        bytes[i] = (char)(seed >> 24);
    }
}

/* ---- bytes ---- */

static void memory__is_zero_at_first(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        ht_disk_opts opts = small_blocks(&ways[w]);
        ht_device *disk = open_disk(&opts);
        char *at = new_memory(disk, 100000), *bytes = malloc(100000);
        ht_queue *queue = new_queue(disk);
        memset(bytes, 1, 100000);
        copy(queue, bytes, at, 100000);
        context_must(test_ctx, ht_queue_sync(queue));
        for (int i = 0; i < 100000; i++) assert_int_equal(bytes[i], 0);
        free(bytes);
        ht_queue_free(queue);
        ht_device_free(disk, at);
        disk->class->close(disk);
    }
}

/* Against an array in memory: writes, reads and copies from place to place, of any size, anywhere. */
static void random_copies(const ht_disk_opts *opts, int rounds, uint64_t seed)
{
    ht_device *disk = open_disk(opts);
    char *files[2] = {new_memory(disk, FILE_BYTES), new_memory(disk, FILE_BYTES)};
    char *mirror[2] = {calloc(1, FILE_BYTES), calloc(1, FILE_BYTES)};
    char *memory = malloc(FILE_BYTES + 4096);
    ht_queue *queue = new_queue(disk);
    for (int round = 0; round < rounds; round++) {
        ht_stream s = {seed, (uint64_t)round, 0};
        size_t most = ht_stream_uniform(&s, 0) < 0.5 ? 5000 : FILE_BYTES;
        size_t bytes = 1 + (size_t)((double)(most - 1) * ht_stream_uniform(&s, 1));
        size_t offset = (size_t)((double)(FILE_BYTES - bytes) * ht_stream_uniform(&s, 2));
        size_t other = (size_t)((double)(FILE_BYTES - bytes) * ht_stream_uniform(&s, 3));
        char *at = memory + (round % 3 ? (size_t)(4096 * ht_stream_uniform(&s, 4)) : 0);
        if (round % 2) offset = offset / 4096 * 4096;
        int from = round / 3 % 2;
        switch ((int)(3 * ht_stream_uniform(&s, 5))) {
        case 0:
            fill(at, bytes, (unsigned)round);
            copy(queue, files[from] + offset, at, bytes);
            memcpy(mirror[from] + offset, at, bytes);
            break;
        case 1:
            copy(queue, files[1 - from] + other, files[from] + offset, bytes);
            memcpy(mirror[1 - from] + other, mirror[from] + offset, bytes);
            break;
        default:
            copy(queue, at, files[from] + offset, bytes);
            context_must(test_ctx, ht_queue_sync(queue));
            assert_memory_equal(at, mirror[from] + offset, bytes);
        }
        context_must(test_ctx, ht_queue_sync(queue));
    }
    for (int i = 0; i < 2; i++) {
        copy(queue, memory, files[i], FILE_BYTES);
        context_must(test_ctx, ht_queue_sync(queue));
        assert_memory_equal(memory, mirror[i], FILE_BYTES);
        free(mirror[i]);
    }
    free(memory);
    ht_queue_free(queue);
    for (int i = 0; i < 2; i++) ht_device_free(disk, files[i]);
    disk->class->close(disk);
}

static void copies__of_any_size_and_place_come_back(void **state)
{
    (void)state;
    int rounds = getenv("HALFTONE_LONG") ? 2000 : 200;
    for (int w = 0; w < WAYS; w++) {
        ht_disk_opts opts = small_blocks(&ways[w]);
        random_copies(&opts, rounds, (uint64_t)w);
        opts.overlap_events = false;
        opts.single_submit = true;
        opts.queue_depth = 3;
        opts.intra_op_parallelism = 2;
        random_copies(&opts, rounds / 4, (uint64_t)w + 100);
    }
}

/* Nobody waits in between: a copy may begin early only if it needs nothing of the one before. */
static void queue_many_copies(const ht_disk_opts *opts, uint64_t seed)
{
    enum { COPIES = 300, BYTES = 1 << 18 };
    ht_device *disk = open_disk(opts);
    char *file = new_memory(disk, BYTES), *file_mirror = calloc(1, BYTES);
    char *memory = malloc(BYTES), *memory_mirror = malloc(BYTES), *last = malloc(BYTES);
    ht_queue *queue = new_queue(disk);
    fill(memory, BYTES, (unsigned)seed);
    memcpy(memory_mirror, memory, BYTES);
    for (int i = 0; i < COPIES; i++) {
        ht_stream s = {seed, (uint64_t)i, 0};
        size_t bytes = 1 + (size_t)(60000 * ht_stream_uniform(&s, 0));
        size_t at = (size_t)((double)(BYTES - bytes) * ht_stream_uniform(&s, 1));
        size_t from = (size_t)((double)(BYTES - bytes) * ht_stream_uniform(&s, 2));
        if (i % 3) at = at / 4096 * 4096;
        if (i % 3) from = from / 4096 * 4096;
        if (ht_stream_uniform(&s, 3) < 0.5) {
            copy(queue, file + at, memory + from, bytes);
            memcpy(file_mirror + at, memory_mirror + from, bytes);
        } else {
            copy(queue, memory + from, file + at, bytes);
            memcpy(memory_mirror + from, file_mirror + at, bytes);
        }
    }
    copy(queue, last, file, BYTES);
    context_must(test_ctx, ht_queue_sync(queue));
    assert_memory_equal(last, file_mirror, BYTES);
    assert_memory_equal(memory, memory_mirror, BYTES);
    ht_queue_free(queue);
    ht_device_free(disk, file);
    disk->class->close(disk);
    free(file_mirror);
    free(memory);
    free(memory_mirror);
    free(last);
}

static void copies__of_one_queue_keep_their_order(void **state)
{
    (void)state;
    int rounds = getenv("HALFTONE_LONG") ? 50 : 5;
    for (int i = 0; i < rounds * WAYS; i++) {
        ht_disk_opts opts = small_blocks(&ways[i % WAYS]);
        opts.block_size = i % 2 ? 4096 : 16384;
        queue_many_copies(&opts, (uint64_t)i);
    }
}

static void requests__that_move_less_are_continued(void **state)
{
    (void)state;
    static const char *const faults[] = {"short:1", "short:2", "short:7", "short:30"};
    for (size_t i = 0; i < 4 * WAYS; i++) {
        ht_disk_opts opts = small_blocks(&ways[i % WAYS]);
        setenv("HALFTONE_DISK_FAIL", faults[i / WAYS], 1);
        random_copies(&opts, 30, i);
    }
    unsetenv("HALFTONE_DISK_FAIL");
}

/* Neighbours share blocks: the bytes of one tile survive what another queue does to the next. */
static void queues__read_and_write_at_once(void **state)
{
    (void)state;
    enum { TILE = 10007, TILES = 40 };
    for (int w = 0; w < WAYS; w++) {
        ht_disk_opts opts = small_blocks(&ways[w]);
        setenv("HALFTONE_DISK_SEED", "5", 1);
        ht_device *disk = open_disk(&opts);
        char *at = new_memory(disk, TILE * TILES), *first = malloc(TILE * TILES), *second = malloc(TILE * TILES);
        char *read = malloc(TILE * TILES);
        ht_queue *in = new_queue(disk), *out[2] = {new_queue(disk), new_queue(disk)};
        fill(first, TILE * TILES, 1);
        fill(second, TILE * TILES, 2);
        copy(in, at, first, TILE * TILES);
        context_must(test_ctx, ht_queue_sync(in));
        for (int k = 0; k < TILES; k++) {
            size_t tile = (size_t)k * TILE;
            if (k % 2) copy(in, read + tile, at + tile, TILE);
            if (k % 2 == 0) copy(out[k / 2 % 2], at + tile, second + tile, TILE);
        }
        context_must(test_ctx, ht_queue_sync(in));
        context_must(test_ctx, ht_queue_sync(out[0]));
        context_must(test_ctx, ht_queue_sync(out[1]));
        for (int k = 1; k < TILES; k += 2) assert_memory_equal(read + k * TILE, first + k * TILE, TILE);
        copy(in, read, at, TILE * TILES);
        context_must(test_ctx, ht_queue_sync(in));
        for (int k = 0; k < TILES; k++) assert_memory_equal(read + k * TILE, (k % 2 ? first : second) + k * TILE, TILE);
        free(first);
        free(second);
        free(read);
        ht_queue_free(in);
        for (int i = 0; i < 2; i++) ht_queue_free(out[i]);
        ht_device_free(disk, at);
        disk->class->close(disk);
    }
    unsetenv("HALFTONE_DISK_SEED");
}

static void events__order_the_disk_and_other_devices(void **state)
{
    (void)state;
    static const char *const others[] = {"cpu", "host", "fake"};
    ht_disk_opts opts = HT_DISK_OPTS;
    setenv("HALFTONE_DISK_SEED", "9", 1);
    ht_device *disk = open_disk(&opts);
    char *at = new_memory(disk, 100000), *bytes = malloc(100000), *back = malloc(100000);
    ht_queue *queue = new_queue(disk);
    for (int i = 0; i < 3; i++) {
        ht_device *device;
        ht_event *here, *there;
        context_must(test_ctx, ht_device_get(&device, test_ctx, others[i]));
        ht_queue *other = new_queue(device);
        context_must(test_ctx, disk->class->event_create(disk, &here));
        context_must(test_ctx, device->class->event_create(device, &there));
        for (int k = 0; k < 20; k++) {
            fill(bytes, 100000, (unsigned)k);
            copy(queue, at, bytes, 100000);
            copy(queue, back, at, 100000);
            context_must(test_ctx, ht_queue_record(queue, here));
            context_must(test_ctx, ht_queue_wait(other, here));
            context_must(test_ctx, ht_queue_copy(other, bytes, back, 50000, HT_COPY_TO_DEVICE));
            context_must(test_ctx, ht_queue_record(other, there));
            context_must(test_ctx, ht_queue_wait(queue, there));
            copy(queue, at + 50000, bytes, 50000);
            copy(queue, back, at, 100000);
            context_must(test_ctx, ht_queue_sync(queue));
            assert_memory_equal(back, back + 50000, 50000);
        }
        ht_queue_free(other);
        ht_event_free(here);
        ht_event_free(there);
    }
    free(bytes);
    free(back);
    ht_queue_free(queue);
    ht_device_free(disk, at);
    disk->class->close(disk);
    unsetenv("HALFTONE_DISK_SEED");
}

/* ---- what is taken ---- */

static void keep_line(void *arg, ht_log_level level, const char *message)
{
    (void)level;
    if (strncmp(message, "disk ", 5) == 0) snprintf(arg, 512, "%s", message);
}

static void note_of(const char *faults, const ht_disk_opts *opts, char *line)
{
    test_ctx->log = keep_line;
    test_ctx->log_arg = line;
    setenv("HALFTONE_DISK_FAIL", faults, 1);
    ht_device *disk = open_disk(opts);
    char *at = new_memory(disk, 5000);
    for (int i = 0; i < 2; i++) {
        ht_queue *queue = new_queue(disk);
        char bytes[5000], back[5000];
        fill(bytes, 5000, 3);
        copy(queue, at, bytes, 5000);
        copy(queue, back, at, 5000);
        context_must(test_ctx, ht_queue_sync(queue));
        assert_memory_equal(bytes, back, 5000);
        ht_queue_free(queue);
        if (i == 0) test_ctx->log = NULL; /* once is enough */
    }
    ht_device_free(disk, at);
    disk->class->close(disk);
    unsetenv("HALFTONE_DISK_FAIL");
}

static void the_log__says_what_was_taken(void **state)
{
    (void)state;
    char line[512], wanted[256];
    ht_disk_opts opts = HT_DISK_OPTS;
    note_of("uring:1,direct:1", &opts, line);
    snprintf(
        wanted, sizeof wanted,
        "disk %s: threads (io_uring: Operation not permitted), through the page cache, 8 requests of 1048576 bytes at "
        "once",
        test_folder);
    assert_string_equal(line, wanted);
    opts.threads = true;
    opts.buffered = true;
    opts.queue_depth = 2;
    opts.intra_op_parallelism = 3;
    opts.block_size = 5000;
    note_of("", &opts, line);
    snprintf(wanted, sizeof wanted, "disk %s: threads, through the page cache, 6 requests of 8192 bytes at once",
             test_folder);
    assert_string_equal(line, wanted);
}

static void options__out_of_range_and_bad_folders_are_refused(void **state)
{
    (void)state;
    ht_device *disk;
    ht_disk_opts opts = HT_DISK_OPTS;
    opts.queue_depth = 0;
    assert_int_equal(ht_disk_open(&disk, test_ctx, test_folder, &opts, NULL), HT_EINVAL);
    assert_string_equal(ht_context_message(test_ctx), "disk: queue_depth is 0; it is from 1 to 1024");
    assert_int_equal(ht_disk_open(&disk, test_ctx, "/nowhere/at all", NULL, NULL), HT_EIO);
    assert_string_equal(ht_context_message(test_ctx),
                        "disk: /nowhere/at all cannot hold files: No such file or directory");
    FILE *file = fopen(folder_at(test_folder, "file"), "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(ht_disk_open(&disk, test_ctx, folder_at(test_folder, "file"), NULL, NULL), HT_EIO);
    assert_non_null(strstr(ht_context_message(test_ctx), "file cannot hold files: it is not a folder"));
    setenv("HALFTONE_DISK_FAIL", "read:0", 1);
    assert_int_equal(ht_disk_open(&disk, test_ctx, test_folder, NULL, NULL), HT_EINVAL);
    unsetenv("HALFTONE_DISK_FAIL");
}

/* ---- faults ---- */

static bool says(const char *part)
{
    return strstr(ht_context_message(test_ctx), part) != NULL;
}

/* Writes, then reads; the status of the first that fails. */
static ht_status write_and_read(const ht_disk_opts *opts, size_t bytes)
{
    ht_device *disk = open_disk(opts);
    char *at = new_memory(disk, bytes), *memory = calloc(1, bytes);
    ht_queue *queue = new_queue(disk);
    (void)ht_queue_copy(queue, at, memory, bytes, HT_COPY_TO_DEVICE);
    (void)ht_queue_copy(queue, memory, at, bytes, HT_COPY_FROM_DEVICE);
    ht_status status = ht_queue_sync(queue);
    if (status != HT_OK) assert_int_equal(ht_queue_sync(queue), status); /* it stays */
    ht_queue_free(queue);
    ht_device_free(disk, at);
    disk->class->close(disk);
    free(memory);
    return status;
}

static void a_failed_request__names_file_place_and_tensor(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *start, *end;
    } rows[] = {
        {"read:3", "reading 'adam.m' failed: ", "Input/output error"},
        {"write:2", "writing 'adam.m' failed: ", "Input/output error"},
        {"full:1", "writing 'adam.m' failed: ", "No space left on device"},
        {"full:3|short:1", "writing 'adam.m' failed: ", "No space left on device"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] * WAYS; i++) {
        ht_disk_opts opts = small_blocks(&ways[i % WAYS]);
        char file[128];
        snprintf(file, sizeof file, "%s/halftone-", test_folder);
        setenv("HALFTONE_DISK_FAIL", rows[i / WAYS].fault, 1);
        assert_int_equal(write_and_read(&opts, 200000), HT_EDEVICE);
        if (!says(rows[i / WAYS].start) || !says(rows[i / WAYS].end) || !says(file) || !says(", at byte "))
            fail_msg("%s, %s: %s", ways[i % WAYS].name, rows[i / WAYS].fault, ht_context_message(test_ctx));
    }
    unsetenv("HALFTONE_DISK_FAIL");
}

static void a_truncated_file__is_told_before_it_is_used(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        for (int write = 0; write < 2; write++) {
            ht_disk_opts opts = small_blocks(&ways[w]);
            char path[4096], command[8192], *memory = calloc(1, 300000);
            opts.keep_files = true;
            ht_device *disk = open_disk(&opts);
            char *at = new_memory(disk, 300000);
            ht_queue *queue = new_queue(disk);
            assert_int_equal(folder_count(test_folder), 1);
            snprintf(command, sizeof command, "ls %s/* | tr -d '\\n'", test_folder);
            FILE *list = popen(command, "r");
            assert_non_null(fgets(path, sizeof path, list));
            pclose(list);
            assert_int_equal(truncate(path, 123000), 0);
            (void)(write ? ht_queue_copy(queue, at + 200000, memory, 5000, HT_COPY_TO_DEVICE)
                         : ht_queue_copy(queue, memory, at, 300000, HT_COPY_FROM_DEVICE));
            assert_int_equal(ht_queue_sync(queue), HT_EDEVICE);
            assert_true(says(path) && says("the file was truncated to 123000 of its 303104 bytes"));
            ht_queue_free(queue);
            ht_device_free(disk, at);
            disk->class->close(disk);
            assert_int_equal(folder_count(test_folder), 0); /* kept, and wiped at the end */
            free(memory);
        }
    }
}

/* ---- too little space ---- */

/* In a process of its own; its exit status. */
static int apart(int (*fn)(void))
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(fn());
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static int alloc_too_much(size_t bytes)
{
    ht_device *disk = open_disk(NULL);
    void *memory = NULL;
    ht_status status = ht_device_alloc(disk, bytes, &memory);
    int left = folder_count(test_folder);
    disk->class->close(disk);
    return status == HT_EIO && !memory && left == 0 ? 0 : 1;
}

static int exceed_limit(void)
{
    struct rlimit limit = {1 << 20, 1 << 20};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 77;
    if (alloc_too_much(8 << 20) != 0) return 1;
    return says("8392704 bytes in ") && says(test_folder) && says("could not be had: File too large") ? 0 : 2;
}

static int fill_small_disk(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return 77;
    if (mount("tmpfs", test_folder, "tmpfs", 0, "size=2m") != 0) return 77;
    if (alloc_too_much(8 << 20) != 0) return 1;
    return says("has too little space: 8392704 bytes are needed, 2097152 are free") && says(test_folder) ? 0 : 2;
}

static void a_file_that_is_too_large__is_refused_at_once(void **state)
{
    (void)state;
    int result = apart(exceed_limit);
    if (result == 77) skip();
    assert_int_equal(result, 0);
}

static void a_disk_that_is_full__is_told_with_needed_and_free_bytes(void **state)
{
    (void)state;
    int result = apart(fill_small_disk);
    if (result == 77) skip();
    assert_int_equal(result, 0);
}

/* ---- nothing is left ---- */

static int die_at_work(void)
{
    ht_disk_opts opts = HT_DISK_OPTS;
    ht_device *disk = open_disk(&opts);
    char *at = new_memory(disk, 4 << 20), *memory = calloc(1, 4 << 20);
    ht_queue *queue = new_queue(disk);
    for (int i = 0; i < 20; i++) (void)ht_queue_copy(queue, at, memory, 4 << 20, HT_COPY_TO_DEVICE);
    raise(SIGKILL);
    return 0;
}

static void a_process_that_is_killed__leaves_no_file(void **state)
{
    (void)state;
    if (!MAY_FORK) skip();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(apart(die_at_work), 100);
        assert_int_equal(folder_count(test_folder), 0);
    }
}

static int setup(void **state)
{
    return context_setup(state) != 0 || test_folder_setup(state) != 0 ? -1 : 0;
}

static int teardown(void **state)
{
    test_folder_teardown(state);
    return context_teardown(state);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(memory__is_zero_at_first),
        CASE(copies__of_any_size_and_place_come_back),
        CASE(copies__of_one_queue_keep_their_order),
        CASE(requests__that_move_less_are_continued),
        CASE(queues__read_and_write_at_once),
        CASE(events__order_the_disk_and_other_devices),
        CASE(the_log__says_what_was_taken),
        CASE(options__out_of_range_and_bad_folders_are_refused),
        CASE(a_failed_request__names_file_place_and_tensor),
        CASE(a_truncated_file__is_told_before_it_is_used),
        CASE(a_file_that_is_too_large__is_refused_at_once),
        CASE(a_disk_that_is_full__is_told_with_needed_and_free_bytes),
        CASE(a_process_that_is_killed__leaves_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
