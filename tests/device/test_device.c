/* Devices by their contract: queues keep their order, events order queues of any two devices, a launch takes its
 * arguments with it, a failure latches and is told, and the fake device's memory is out of the host's reach. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "context_fixture.h"
#include "device/device.h"

enum { SEEDS = 3, LONG_SEEDS = 30 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* it takes signals and large allocations itself */
#else
enum { SANITIZED = 0 };
#endif

static const char *const names[] = {"cpu", "host", "fake"};
enum { DEVICES = sizeof names / sizeof names[0] };

static ht_device *get(ht_context *ctx, const char *name)
{
    ht_device *device;
    context_must(ctx, ht_device_get(&device, ctx, name));
    return device;
}

static ht_queue *new_queue(ht_device *device)
{
    ht_queue *queue;
    context_must(device->ctx, device->class->queue_create(device, &queue));
    return queue;
}

static ht_event *new_event(ht_device *device)
{
    ht_event *event;
    context_must(device->ctx, device->class->event_create(device, &event));
    return event;
}

static void *new_memory(ht_device *device, size_t bytes)
{
    void *memory;
    context_must(device->ctx, ht_device_alloc(device, bytes, &memory));
    return memory;
}

static ht_status call(ht_queue *queue, void (*fn)(void *arg), void *arg)
{
    return queue->device->class->call(queue, fn, arg);
}

/* A context whose fake device has that seed and those failures (NULL: none). */
static ht_context *begin(int seed, const char *failures)
{
    char text[16];
    snprintf(text, sizeof text, "%d", seed);
    setenv("HALFTONE_FAKE_SEED", text, 1);
    if (failures)
        setenv("HALFTONE_FAKE_FAIL", failures, 1);
    else
        unsetenv("HALFTONE_FAKE_FAIL");
    return context_create(1, NULL);
}

static int seeds(void)
{
    return getenv("HALFTONE_LONG") ? LONG_SEEDS : SEEDS;
}

/* ---- kernels ---- */

/* out[0] = 10·in[0] + a digit. */
static ht_status append(const ht_launch *launch)
{
    *(int64_t *)launch->out[0] = 10 * *(const int64_t *)launch->in[0] + *(const int64_t *)launch->in[1];
    return HT_OK;
}

static ht_status refuse(const ht_launch *launch)
{
    return ht_fail(launch->ctx, HT_ENOTSUP, "this kernel never runs");
}

static const ht_call two_in_one_out = {.n_in = 2, .n_out = 1};

typedef struct digits {
    const void *in[2];
    void *out[1];
    ht_launch launch;
} digits;

static void prepare(digits *d, ht_queue *queue, void *number, void *digit)
{
    *d = (digits){.in = {number, digit}, .out = {number}};
    d->launch = (ht_launch){.call = &two_in_one_out, .in = d->in, .out = d->out, .threads = 1, .queue = queue};
    context_must(queue->device->ctx, queue->device->class->prepare(queue->device, &d->launch, 1));
}

static void release(digits *d, ht_queue *queue)
{
    queue->device->class->release(queue->device, &d->launch);
}

/* ---- order ---- */

static void device__runs_the_commands_of_a_queue_in_order(void **state)
{
    (void)state;
    for (int seed = 0; seed < seeds(); seed++) {
        ht_context *ctx = begin(seed, NULL);
        for (int i = 0; i < DEVICES; i++) {
            ht_device *device = get(ctx, names[i]);
            ht_queue *queue = new_queue(device);
            char *memory = new_memory(device, 128);
            int64_t in[4] = {1, 2, 3, 4}, out = 0;
            digits d;
            prepare(&d, queue, memory, memory + 64);
            for (int k = 0; k < 4; k++) {
                context_must(ctx, ht_queue_copy(queue, memory + 64, &in[k], sizeof in[k], HT_COPY_TO_DEVICE));
                context_must(ctx, ht_queue_launch(queue, append, &d.launch));
            }
            context_must(ctx, ht_queue_copy(queue, &out, memory, sizeof out, HT_COPY_FROM_DEVICE));
            context_must(ctx, ht_queue_sync(queue));
            assert_int_equal(out, 1234);
            release(&d, queue);
            ht_queue_free(queue);
            ht_device_free(device, memory);
        }
        ht_context_free(ctx);
    }
}

static void device__gives_memory_of_zeros_at_a_multiple_of_64(void **state)
{
    (void)state;
    ht_context *ctx = begin(0, NULL);
    static const size_t sizes[] = {0, 1, 4095, 4097, 100000};
    static char data[100000];
    for (int i = 0; i < DEVICES; i++) {
        ht_device *device = get(ctx, names[i]);
        ht_queue *queue = new_queue(device);
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            char *memory = new_memory(device, sizes[k]);
            assert_non_null(memory);
            assert_int_equal((uintptr_t)memory % 64, 0);
            memset(data, 1, sizeof data);
            context_must(ctx, ht_queue_copy(queue, data, memory, sizes[k], HT_COPY_FROM_DEVICE));
            context_must(ctx, ht_queue_sync(queue));
            for (size_t b = 0; b < sizes[k]; b++) assert_int_equal(data[b], 0);
            ht_device_free(device, memory);
        }
        ht_queue_free(queue);
    }
    ht_context_free(ctx);
}

typedef struct log {
    _Atomic int count;
    int entries[64];
} log_of_calls;
typedef struct entry {
    log_of_calls *log;
    int number;
} entry;

static void write_entry(void *arg)
{
    const entry *e = arg;
    e->log->entries[atomic_fetch_add(&e->log->count, 1)] = e->number;
}

static void sleep_long(void *arg)
{
    (void)arg;
    nanosleep(&(struct timespec){0, 3000000}, NULL);
}

/* What comes behind a wait runs after what came before the record, on the devices of every pair. */
static void device__waits_for_events_of_any_device(void **state)
{
    (void)state;
    for (int seed = 0; seed < seeds(); seed++) {
        ht_context *ctx = begin(seed, NULL);
        for (int pair = 0; pair < DEVICES * DEVICES; pair++) {
            ht_queue *first = new_queue(get(ctx, names[pair / DEVICES]));
            ht_queue *second = new_queue(get(ctx, names[pair % DEVICES]));
            ht_event *event = new_event(first->device);
            log_of_calls log = {0};
            entry entries[4];
            for (int i = 0; i < 4; i++) entries[i] = (entry){&log, i};
            /* There and back: the same event again. */
            context_must(ctx, call(first, sleep_long, NULL));
            for (int turn = 0; turn < 2; turn++) {
                context_must(ctx, call(first, write_entry, &entries[2 * turn]));
                context_must(ctx, ht_queue_record(first, event));
                context_must(ctx, ht_queue_wait(second, event));
                context_must(ctx, call(second, write_entry, &entries[2 * turn + 1]));
                if (turn == 0) context_must(ctx, ht_queue_sync(second));
            }
            context_must(ctx, ht_queue_sync(second));
            assert_int_equal(log.count, 4);
            for (int i = 0; i < 4; i++) assert_int_equal(log.entries[i], i);
            ht_queue_free(first);
            ht_queue_free(second);
            ht_event_free(event);
        }
        ht_context_free(ctx);
    }
}

static void device__event_that_was_never_recorded_is_waited_for_by_nobody(void **state)
{
    (void)state;
    ht_context *ctx = begin(0, NULL);
    for (int i = 0; i < DEVICES; i++) {
        ht_queue *queue = new_queue(get(ctx, names[i]));
        ht_event *event = new_event(queue->device);
        assert_true(ht_event_done(event));
        context_must(ctx, ht_queue_wait(queue, event));
        context_must(ctx, ht_queue_sync(queue));
        context_must(ctx, ht_event_sync(event));
        ht_queue_free(queue);
        ht_event_free(event);
    }
    ht_context_free(ctx);
}

/* A wait is for the records so far: a later one is not waited for. */
static void device__event_recorded_again_does_not_hold_older_waits(void **state)
{
    (void)state;
    ht_context *ctx = begin(1, NULL);
    ht_queue *first = new_queue(get(ctx, "fake")), *second = new_queue(get(ctx, "host"));
    ht_event *event = new_event(first->device), *never = new_event(second->device);
    context_must(ctx, ht_queue_record(first, event));
    context_must(ctx, ht_queue_wait(second, event));
    /* If `second` waited for this record, too, nobody would ever come to the end. */
    context_must(ctx, ht_queue_record(second, never));
    context_must(ctx, ht_queue_wait(first, never));
    context_must(ctx, ht_queue_record(first, event));
    context_must(ctx, ht_queue_sync(second));
    context_must(ctx, ht_queue_sync(first));
    assert_true(ht_event_done(event));
    ht_queue_free(first);
    ht_queue_free(second);
    ht_event_free(event);
    ht_event_free(never);
    ht_context_free(ctx);
}

static void device__event_is_done_only_when_its_queue_came_to_it(void **state)
{
    (void)state;
    ht_context *ctx = begin(2, NULL);
    for (int i = 1; i < DEVICES; i++) {
        ht_queue *queue = new_queue(get(ctx, names[i])), *other = new_queue(get(ctx, "host"));
        ht_event *event = new_event(queue->device), *gate = new_event(other->device);
        context_must(ctx, call(other, sleep_long, NULL));
        context_must(ctx, ht_queue_record(other, gate));
        context_must(ctx, ht_queue_wait(queue, gate));
        context_must(ctx, ht_queue_record(queue, event));
        bool done = ht_event_done(event);
        assert_true(!done || ht_event_done(gate));
        context_must(ctx, ht_event_sync(event));
        assert_true(ht_event_done(event) && ht_event_done(gate));
        ht_queue_free(queue);
        ht_queue_free(other);
        ht_event_free(event);
        ht_event_free(gate);
    }
    ht_context_free(ctx);
}

/* ---- arguments ---- */

/* The caller may change its launch when the call is back; what was prepared stays. */
static void device__takes_the_arguments_of_a_launch_by_value(void **state)
{
    (void)state;
    ht_context *ctx = begin(3, NULL);
    for (int i = 0; i < DEVICES; i++) {
        ht_device *device = get(ctx, names[i]);
        ht_queue *queue = new_queue(device);
        char *memory = new_memory(device, 128);
        int64_t seven = 7, out = 0;
        digits d;
        prepare(&d, queue, memory, memory + 64);
        context_must(ctx, ht_queue_copy(queue, memory + 64, &seven, sizeof seven, HT_COPY_TO_DEVICE));
        context_must(ctx, call(queue, sleep_long, NULL));
        ht_launch mine = d.launch;
        context_must(ctx, ht_queue_launch(queue, append, &mine));
        memset(&mine, 0xEE, sizeof mine);
        context_must(ctx, ht_queue_copy(queue, &out, memory, sizeof out, HT_COPY_FROM_DEVICE));
        context_must(ctx, ht_queue_sync(queue));
        assert_int_equal(out, 7);
        release(&d, queue);
        ht_queue_free(queue);
        ht_device_free(device, memory);
    }
    ht_context_free(ctx);
}

/* More commands than a queue holds: the caller waits for space, and nothing is lost. */
static void device__takes_more_commands_than_a_queue_holds(void **state)
{
    (void)state;
    enum { MANY = 3000 };
    ht_context *ctx = begin(4, NULL);
    for (int i = 0; i < DEVICES; i++) {
        ht_device *device = get(ctx, names[i]);
        ht_queue *queue = new_queue(device);
        char *memory = new_memory(device, 128);
        int64_t out = 0, one = 1;
        digits d;
        prepare(&d, queue, memory, memory + 64);
        context_must(ctx, ht_queue_copy(queue, memory, &one, sizeof one, HT_COPY_TO_DEVICE));
        for (int k = 0; k < MANY; k++)
            context_must(ctx, ht_queue_copy(queue, memory + 64 * (k % 2), memory, sizeof one, HT_COPY_WITHIN));
        context_must(ctx, ht_queue_copy(queue, &out, memory + 64, sizeof out, HT_COPY_FROM_DEVICE));
        context_must(ctx, ht_queue_sync(queue));
        assert_int_equal(out, 1);
        release(&d, queue);
        ht_queue_free(queue);
        ht_device_free(device, memory);
    }
    ht_context_free(ctx);
}

static void device__finishes_what_is_in_flight_when_a_queue_is_freed(void **state)
{
    (void)state;
    ht_context *ctx = begin(5, NULL);
    for (int i = 0; i < DEVICES; i++) {
        ht_device *device = get(ctx, names[i]);
        ht_queue *queue = new_queue(device);
        ht_event *event = new_event(device);
        log_of_calls log = {0};
        entry e = {&log, 9};
        context_must(ctx, call(queue, sleep_long, NULL));
        context_must(ctx, call(queue, write_entry, &e));
        context_must(ctx, ht_queue_record(queue, event));
        ht_queue_free(queue);
        assert_int_equal(log.count, 1);
        assert_true(ht_event_done(event));
        ht_event_free(event);
    }
    ht_context_free(ctx);
}

/* ---- failures ---- */

static void expect_reason(ht_context *ctx, ht_status got, ht_status want, const char *reason)
{
    if (got != want || !strstr(ht_context_message(ctx), reason))
        fail_msg("status %d, not %d, or '%s' is not in: %s", (int)got, (int)want, reason, ht_context_message(ctx));
}

static void device__failure_latches_and_is_told_again(void **state)
{
    (void)state;
    ht_context *ctx = begin(6, NULL);
    for (int i = 1; i < DEVICES; i++) {
        ht_device *device = get(ctx, names[i]);
        ht_queue *queue = new_queue(device), *other = new_queue(device);
        ht_event *event = new_event(device);
        char *memory = new_memory(device, 128);
        log_of_calls log = {0};
        entry e = {&log, 0};
        digits d;
        prepare(&d, queue, memory, memory + 64);
        context_must(ctx, ht_queue_launch(queue, refuse, &d.launch));
        (void)call(queue, write_entry, &e);
        /* The event comes to pass all the same, and who waits for it goes on. */
        (void)ht_queue_record(queue, event);
        context_must(ctx, ht_queue_wait(other, event));
        context_must(ctx, ht_queue_sync(other));
        assert_true(ht_event_done(event));
        for (int turn = 0; turn < 2; turn++) {
            expect_reason(ctx, ht_queue_sync(queue), HT_ENOTSUP, "this kernel never runs");
            ctx->message[0] = 0;
            expect_reason(ctx, device->class->status(queue), HT_ENOTSUP, "this kernel never runs");
            expect_reason(ctx, ht_queue_launch(queue, append, &d.launch), HT_ENOTSUP, "this kernel never runs");
            expect_reason(ctx, call(queue, write_entry, &e), HT_ENOTSUP, "this kernel never runs");
        }
        assert_int_equal(log.count, 0);
        /* Once more after it is known. */
        expect_reason(ctx, ht_queue_record(queue, event), HT_ENOTSUP, "this kernel never runs");
        context_must(ctx, ht_event_sync(event));
        context_must(ctx, device->class->status(other));
        release(&d, queue);
        ht_queue_free(queue);
        ht_queue_free(other);
        ht_event_free(event);
        ht_device_free(device, memory);
    }
    ht_context_free(ctx);
}

static void device__cpu_tells_a_failure_at_once(void **state)
{
    (void)state;
    ht_context *ctx = begin(0, NULL);
    ht_device *device = get(ctx, "cpu");
    ht_queue *queue = new_queue(device);
    char *memory = new_memory(device, 128);
    digits d;
    prepare(&d, queue, memory, memory + 64);
    expect_reason(ctx, ht_queue_launch(queue, refuse, &d.launch), HT_ENOTSUP, "this kernel never runs");
    release(&d, queue);
    ht_queue_free(queue);
    ht_device_free(device, memory);
    ht_context_free(ctx);
}

static void fake__fails_where_it_is_told_to(void **state)
{
    (void)state;
    ht_context *ctx = begin(0, "alloc:2,launch:3|copy:2");
    ht_device *device = get(ctx, "fake");
    ht_queue *launches = new_queue(device), *copies = new_queue(device);
    char *memory = new_memory(device, 128), *none = memory;
    expect_reason(ctx, ht_device_alloc(device, 128, (void **)&none), HT_EDEVICE, "device fake: alloc 2 fails");
    assert_null(none);
    char *more = new_memory(device, 128);
    int64_t number = 5;
    digits d;
    prepare(&d, launches, memory, memory + 64);
    for (int i = 0; i < 2; i++) context_must(ctx, ht_queue_launch(launches, append, &d.launch));
    context_must(ctx, ht_queue_sync(launches));
    context_must(ctx, ht_queue_launch(launches, append, &d.launch));
    expect_reason(ctx, ht_queue_sync(launches), HT_EDEVICE, "device fake: launch 3 fails");
    context_must(ctx, ht_queue_copy(copies, more, &number, sizeof number, HT_COPY_TO_DEVICE));
    context_must(ctx, ht_queue_sync(copies));
    context_must(ctx, ht_queue_copy(copies, &number, more + 8, sizeof number, HT_COPY_FROM_DEVICE));
    expect_reason(ctx, ht_queue_sync(copies), HT_EDEVICE, "device fake: copy 2 fails");
    assert_int_equal(number, 5);
    release(&d, launches);
    ht_queue_free(launches);
    ht_queue_free(copies);
    ht_device_free(device, memory);
    ht_device_free(device, more);
    ht_context_free(ctx);
}

static void fake__refuses_failures_that_it_does_not_know(void **state)
{
    (void)state;
    static const char *const wrong[] = {"alloc",    "alloc:", "alloc:0",          "alloc:-1", "alloc:x",
                                        "alloc:1x", "free:1", "alloc:1,copies:2", ",",        "launch:1,,copy:1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ht_context *ctx = begin(0, wrong[i]);
        ht_device *device;
        expect_reason(ctx, ht_device_get(&device, ctx, "fake"), HT_EINVAL, wrong[i]);
        assert_null(device);
        /* It is not half open: asked again, it refuses again. */
        expect_reason(ctx, ht_device_get(&device, ctx, "fake"), HT_EINVAL, "it takes alloc:N");
        unsetenv("HALFTONE_FAKE_FAIL");
        context_must(ctx, ht_device_get(&device, ctx, "fake"));
        ht_context_free(ctx);
    }
}

static void fake__says_how_many_bytes_it_could_not_have(void **state)
{
    (void)state;
    ht_context *ctx = begin(0, NULL);
    for (int i = SANITIZED ? DEVICES - 1 : 0; i < DEVICES; i++) {
        void *memory = ctx;
        ht_device *device = get(ctx, names[i]);
        assert_int_equal(ht_device_alloc(device, (size_t)1 << 62, &memory), HT_ENOMEM);
        expect_reason(ctx, HT_OK, HT_OK, "4611686018427387904 bytes");
        assert_null(memory);
    }
    ht_context_free(ctx);
}

/* ---- names ---- */

static void device__has_one_name_and_is_opened_once(void **state)
{
    (void)state;
    ht_context *ctx = begin(0, NULL);
    ht_device *none;
    for (int i = 0; i < DEVICES; i++) {
        ht_device *device = get(ctx, names[i]);
        assert_string_equal(device->class->name, names[i]);
        assert_ptr_equal(device, get(ctx, names[i]));
        for (int k = 0; k < i; k++) assert_ptr_not_equal(device, get(ctx, names[k]));
    }
    expect_reason(ctx, ht_device_get(&none, ctx, "gpu"), HT_EINVAL, "there is no device 'gpu'; there are cpu, fake");
    assert_null(none);
    ht_context_free(ctx);
}

static void device__counts_how_often_the_host_waits(void **state)
{
    (void)state;
    ht_context *ctx = begin(0, NULL);
    ht_device *device = get(ctx, "fake");
    ht_queue *queue = new_queue(device);
    ht_event *event = new_event(device);
    int64_t before = device->syncs;
    context_must(ctx, ht_queue_record(queue, event));
    (void)ht_event_done(event);
    context_must(ctx, device->class->status(queue));
    assert_int_equal(device->syncs, before);
    context_must(ctx, ht_event_sync(event));
    context_must(ctx, ht_queue_sync(queue));
    assert_int_equal(device->syncs, before + 2);
    ht_queue_free(queue);
    ht_event_free(event);
    ht_context_free(ctx);
}

/* ---- memory that the host cannot reach ---- */

static int signal_of_access(volatile char *at, bool writing)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        if (writing) *at = 1;
        _exit(*at == 77 ? 77 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void fake__memory_faults_when_the_host_touches_it(void **state)
{
    (void)state;
    if (SANITIZED) skip();
    enum { BYTES = 10000 };
    ht_context *ctx = begin(0, NULL);
    ht_device *fake = get(ctx, "fake"), *cpu = get(ctx, "cpu");
    char *there = new_memory(fake, BYTES), *here = new_memory(cpu, BYTES);
    static const size_t offsets[] = {0, 64, 4096, BYTES - 1};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++)
        for (int writing = 0; writing < 2; writing++) {
            assert_int_equal(signal_of_access(there + offsets[i], writing), SIGSEGV);
            assert_int_equal(signal_of_access(here + offsets[i], writing), 0);
        }
    assert_null(ht_device_host_address(fake, there));
    assert_ptr_equal(ht_device_host_address(cpu, here), here);
    ht_device_free(fake, there);
    ht_device_free(cpu, here);
    ht_context_free(ctx);
}

/* Two mappings of each allocation go when it is freed, also of one that failed half-way. */
static void fake__memory_goes_back(void **state)
{
    (void)state;
    enum { TURNS = 80 }; /* more than a device has allocations */
    ht_context *ctx = begin(0, NULL);
    ht_device *device = get(ctx, "fake");
    for (int i = 0; i < TURNS; i++) {
        void *a = new_memory(device, 1 << 16), *b = new_memory(device, 100), *none;
        assert_ptr_not_equal(a, b);
        assert_int_not_equal(ht_device_alloc(device, (size_t)1 << 62, &none), HT_OK);
        ht_device_free(device, a);
        ht_device_free(device, b);
    }
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int left = 0;
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) left += strstr(line, "halftone-fake") != NULL;
    fclose(maps);
    assert_int_equal(left, 0);
    ht_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device__runs_the_commands_of_a_queue_in_order),
        cmocka_unit_test(device__gives_memory_of_zeros_at_a_multiple_of_64),
        cmocka_unit_test(device__waits_for_events_of_any_device),
        cmocka_unit_test(device__event_that_was_never_recorded_is_waited_for_by_nobody),
        cmocka_unit_test(device__event_recorded_again_does_not_hold_older_waits),
        cmocka_unit_test(device__event_is_done_only_when_its_queue_came_to_it),
        cmocka_unit_test(device__takes_the_arguments_of_a_launch_by_value),
        cmocka_unit_test(device__takes_more_commands_than_a_queue_holds),
        cmocka_unit_test(device__finishes_what_is_in_flight_when_a_queue_is_freed),
        cmocka_unit_test(device__failure_latches_and_is_told_again),
        cmocka_unit_test(device__cpu_tells_a_failure_at_once),
        cmocka_unit_test(fake__fails_where_it_is_told_to),
        cmocka_unit_test(fake__refuses_failures_that_it_does_not_know),
        cmocka_unit_test(fake__says_how_many_bytes_it_could_not_have),
        cmocka_unit_test(device__has_one_name_and_is_opened_once),
        cmocka_unit_test(device__counts_how_often_the_host_waits),
        cmocka_unit_test(fake__memory_faults_when_the_host_touches_it),
        cmocka_unit_test(fake__memory_goes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
