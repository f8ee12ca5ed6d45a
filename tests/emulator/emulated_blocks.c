#define _GNU_SOURCE
#include "emulated_blocks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STACK_BYTES = 128 << 10, PAGE = 4096, LANES = 32, SIGNAL_STACK = 64 << 10 };

emulated_state emulated_driver_state;

/* ---- fibers ---- */

#ifdef __x86_64__
typedef void *fiber_context; /* its stack, with the registers that a call keeps on top */

void emulated_switch(fiber_context *from, fiber_context *to);
__asm__(".text\n"
        ".globl emulated_switch\n"
        ".hidden emulated_switch\n"
        ".type emulated_switch, @function\n"
        "emulated_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq (%rsi), %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size emulated_switch, . - emulated_switch\n");

static void context_make(fiber_context *context, char *stack, void (*run)(void))
{
    void **top = (void **)(stack + STACK_BYTES) - 8;
    memset(top, 0, 8 * sizeof *top);
    *(void (**)(void)) & top[6] = run; /* behind six registers: where the switch returns to */
    *context = top;
}
#else
#include <ucontext.h>
typedef ucontext_t fiber_context;

static void emulated_switch(fiber_context *from, fiber_context *to)
{
    swapcontext(from, to);
}

static void context_make(fiber_context *context, char *stack, void (*run)(void))
{
    getcontext(context);
    context->uc_stack = (stack_t){.ss_sp = stack, .ss_size = STACK_BYTES};
    makecontext(context, run, 0);
}
#endif

typedef enum fiber_state { READY, WAITS, DONE } fiber_state;

typedef struct fiber {
    fiber_context context;
    fiber_state state;
    emulated_meeting kind; /* while it waits, and what it brought along */
    unsigned mask;
    int lane;
    unsigned long long value, result;
} fiber;

static struct {
    const emulated_grid *grid;
    fiber *fibers; /* of the block that runs */
    char *stacks;
    fiber alone[EMULATED_THREADS]; /* of blocks that run one after the other */
    char *stacks_alone;
    unsigned current;
    fiber_context scheduler;
    bool moved_on; /* the block that runs did more than to look whether others have come */
    uint64_t random;
    sigjmp_buf escape;
    char failure[512];
} run;

static __thread bool running; /* this thread is inside a kernel */

__attribute__((format(printf, 1, 2))) static bool fail(const char *format, ...)
{
    va_list args;
    int wrote = snprintf(run.failure, sizeof run.failure, "block %u: ", emulated_driver_state.block.x);
    va_start(args, format);
    vsnprintf(run.failure + wrote, sizeof run.failure - (size_t)wrote, format, args);
    va_end(args);
    return false;
}

static uint64_t next_random(void)
{
    run.random ^= run.random << 13;
    run.random ^= run.random >> 7;
    run.random ^= run.random << 17;
    return run.random;
}

static void fiber_main(void)
{
    run.grid->entry(run.grid->arguments);
    fiber *f = &run.fibers[run.current];
    f->state = DONE;
    emulated_switch(&f->context, &run.scheduler);
    abort();
}

static unsigned long long meet(emulated_meeting kind, unsigned mask, unsigned long long value, int lane)
{
    fiber *f = &run.fibers[run.current];
    f->state = WAITS;
    f->kind = kind;
    f->mask = mask;
    f->value = value;
    f->lane = lane;
    emulated_switch(&f->context, &run.scheduler);
    return f->result;
}

static void resume(unsigned thread)
{
    run.current = thread;
    emulated_driver_state.thread.x = thread;
    emulated_switch(&run.scheduler, &run.fibers[thread].context);
}

/* ---- meetings ---- */

static const char *const meeting_names[] = {"__syncthreads", "__syncwarp", "a shuffle", "a vote",
                                            "a pause for other blocks"};

static unsigned long long ballot(const fiber *lanes, unsigned mask)
{
    unsigned long long bits = 0;
    for (int i = 0; i < LANES; i++)
        if (mask >> i & 1) bits |= lanes[i].value << i;
    return bits;
}

/* Have all lanes of the mask come to where this thread waits? Then they go on. */
static bool meet_warp(unsigned thread)
{
    fiber *f = &run.fibers[thread], *lanes = f - thread % LANES;
    unsigned mask = f->mask, first = thread - thread % LANES;
    if (!(mask >> thread % LANES & 1))
        return fail("thread %u is not in the mask %08x that it gives to %s", thread, mask, meeting_names[f->kind]);
    for (unsigned i = 0; i < LANES; i++) {
        if (!(mask >> i & 1)) continue;
        if (first + i >= run.grid->threads)
            return fail("the mask %08x of thread %u names lane %u, and the block has %u threads", mask, thread, i,
                        run.grid->threads);
        if (lanes[i].state != WAITS || lanes[i].kind == EMULATED_BLOCK || lanes[i].kind == EMULATED_OTHERS) return true;
        if (lanes[i].kind != f->kind || lanes[i].mask != mask)
            return fail("thread %u is at %s with mask %08x, thread %u at %s with mask %08x", thread,
                        meeting_names[f->kind], mask, first + i, meeting_names[lanes[i].kind], lanes[i].mask);
    }
    for (unsigned i = 0; i < LANES; i++) {
        if (!(mask >> i & 1)) continue;
        int from = lanes[i].lane;
        if (f->kind == EMULATED_SHUFFLE && !(mask >> from & 1))
            return fail("thread %u reads from lane %d, which the mask %08x leaves out", first + i, from, mask);
        lanes[i].result = f->kind == EMULATED_SHUFFLE ? lanes[from].value : ballot(lanes, mask);
        lanes[i].state = READY;
    }
    return true;
}

static unsigned count_state(fiber_state state)
{
    unsigned count = 0;
    for (unsigned i = 0; i < run.grid->threads; i++) count += run.fibers[i].state == state;
    return count;
}

static bool tell_stuck(void)
{
    unsigned ended = count_state(DONE), at[5] = {0}, waits = 0;
    for (unsigned i = 0; i < run.grid->threads; i++)
        if (run.fibers[i].state == WAITS) {
            at[run.fibers[i].kind]++;
            waits = i;
        }
    return fail(
        "of %u threads %u have ended, %u wait at __syncthreads, %u at __syncwarp, %u at a shuffle, %u at a vote "
        "(such as thread %u, mask %08x): the others never come",
        run.grid->threads, ended, at[EMULATED_BLOCK], at[EMULATED_WARP], at[EMULATED_SHUFFLE], at[EMULATED_BALLOT],
        waits, run.fibers[waits].mask);
}

/* Nobody can go on by himself: all have ended, or all are at __syncthreads, or the block is stuck. */
static bool meet_block(bool *done)
{
    unsigned long long sum = 0;
    unsigned threads = run.grid->threads;
    *done = count_state(DONE) == threads;
    if (*done) return true;
    for (unsigned i = 0; i < threads; i++) {
        if (run.fibers[i].state != WAITS || run.fibers[i].kind != EMULATED_BLOCK) return tell_stuck();
        sum += run.fibers[i].value;
    }
    for (unsigned i = 0; i < threads; i++) {
        run.fibers[i].result = sum;
        run.fibers[i].state = READY;
    }
    return true;
}

/* ---- blocks ---- */

/* Every thread that can run, until it ends or waits, in some order. */
static bool run_ready(bool *moved)
{
    unsigned threads = run.grid->threads, span = 1;
    while (span < threads) span *= 2;
    uint64_t random = next_random();
    unsigned step = (unsigned)random | 1u, first = (unsigned)(random >> 32);
    *moved = false;
    for (unsigned i = 0; i < span; i++) {
        unsigned thread = (first + i * step) & (span - 1);
        if (thread >= threads || run.fibers[thread].state != READY) continue;
        *moved = true;
        resume(thread);
        const fiber *f = &run.fibers[thread];
        if (f->state != WAITS || f->kind != EMULATED_OTHERS) run.moved_on = true;
        if (f->state == WAITS && f->kind != EMULATED_BLOCK && f->kind != EMULATED_OTHERS && !meet_warp(thread))
            return false;
    }
    return true;
}

/* Threads that waited for other blocks may look again. False: there were none. */
static bool resume_others(void)
{
    bool any = false;
    for (unsigned i = 0; i < run.grid->threads; i++)
        if (run.fibers[i].state == WAITS && run.fibers[i].kind == EMULATED_OTHERS) {
            run.fibers[i].state = READY;
            any = true;
        }
    return any;
}

static void start_block(void)
{
    const emulated_grid *g = run.grid;
    memset(g->shared, EMULATED_JUNK, (size_t)(g->shared_end - g->shared));
    if (g->shared_count) memset(g->shared_bytes, EMULATED_JUNK, g->shared_count);
    for (unsigned i = 0; i < g->threads; i++) {
        run.fibers[i].state = READY;
        context_make(&run.fibers[i].context, run.stacks + (size_t)i * STACK_BYTES, fiber_main);
    }
}

/* Until it ends or waits for other blocks. */
static bool go_on(unsigned block, bool *done)
{
    bool moved;
    emulated_driver_state.block.x = block;
    *done = false;
    while (!*done) {
        if (!run_ready(&moved)) return false;
        if (moved) continue;
        if (resume_others()) return run.grid->together ? true : fail("it waits for other blocks, which may come later");
        if (!meet_block(done)) return false;
    }
    return true;
}

static bool run_block(unsigned block)
{
    bool done;
    emulated_driver_state.block.x = block;
    start_block();
    return go_on(block, &done);
}

static bool coprime(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a == 1;
}

/* Blocks in some order: by a step that has no divisor in common with their number. */
static bool run_blocks(void)
{
    uint64_t blocks = run.grid->blocks, random = next_random(), at = (random >> 32) % blocks;
    uint64_t step = random % blocks + 1;
    while (!coprime(step, blocks)) step++;
    for (uint64_t i = 0; i < blocks; i++) {
        if (!run_block((unsigned)at)) return false;
        at = (at + step) % blocks;
    }
    return true;
}

/* ---- blocks that wait for each other ---- */

typedef struct waiting_block {
    fiber fibers[EMULATED_THREADS];
    char *stacks, *shared, *shared_bytes; /* of the fibers; copies of what the block holds there while another runs */
    bool started, done;
} waiting_block;

static void swap_in(waiting_block *b)
{
    const emulated_grid *g = run.grid;
    run.fibers = b->fibers;
    run.stacks = b->stacks;
    if (!b->started) start_block();
    if (b->started) memcpy(g->shared, b->shared, (size_t)(g->shared_end - g->shared));
    if (b->started && g->shared_count) memcpy(g->shared_bytes, b->shared_bytes, g->shared_count);
    b->started = true;
}

static void swap_out(waiting_block *b)
{
    const emulated_grid *g = run.grid;
    memcpy(b->shared, g->shared, (size_t)(g->shared_end - g->shared));
    if (g->shared_count) memcpy(b->shared_bytes, g->shared_bytes, g->shared_count);
}

/* In turns until all have ended. */
static bool take_turns(waiting_block *blocks)
{
    for (unsigned left = run.grid->blocks; left > 0;) {
        unsigned first = (unsigned)next_random();
        run.moved_on = false;
        for (unsigned i = 0; i < run.grid->blocks; i++) {
            unsigned number = (unsigned)(((uint64_t)first + i) % run.grid->blocks);
            waiting_block *b = &blocks[number];
            if (b->done) continue;
            swap_in(b);
            if (!go_on(number, &b->done)) return false;
            swap_out(b);
            left -= b->done;
        }
        if (!run.moved_on) return fail("all blocks wait for others, and none comes");
    }
    return true;
}

static char *make_stack_memory(size_t threads);

static bool run_together(void)
{
    const emulated_grid *g = run.grid;
    size_t fixed = (size_t)(g->shared_end - g->shared) + 1;
    waiting_block *blocks = calloc(g->blocks, sizeof *blocks);
    char *stacks = make_stack_memory((size_t)g->blocks * g->threads),
         *copies = malloc(g->blocks * (fixed + g->shared_count));
    bool ran = blocks && stacks && copies;
    for (size_t i = 0; ran && i < g->blocks; i++) {
        blocks[i].stacks = stacks + i * g->threads * STACK_BYTES;
        blocks[i].shared = copies + i * (fixed + g->shared_count);
        blocks[i].shared_bytes = blocks[i].shared + fixed;
    }
    ran = ran ? take_turns(blocks) : fail("no memory for the stacks of threads");
    if (stacks) munmap(stacks, (size_t)g->blocks * g->threads * STACK_BYTES);
    free(copies);
    free(blocks);
    return ran;
}

/* ---- faults ---- */

enum { FAULTS = 4 };
static const int fault_signals[FAULTS] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
static struct sigaction fault_before[FAULTS];

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    for (int i = 0; !running && i < FAULTS; i++) sigaction(fault_signals[i], &fault_before[i], NULL);
    if (!running) return; /* and fault again, into whatever there was before */
    char where[256] = "";
    if (number == SIGSEGV || number == SIGBUS) {
        emulated_describe((uintptr_t)info->si_addr, where, sizeof where);
        fail("thread %u touches address %p: %s", run.current, info->si_addr, where);
    } else {
        fail("thread %u %s", run.current,
             number == SIGFPE ? "divides by zero" : "reaches beyond an array, or is not aligned");
    }
    siglongjmp(run.escape, 1);
}

static void catch_faults(bool on)
{
    static char stack[SIGNAL_STACK];
    static stack_t before;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    running = on;
    if (on) sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, &before);
    for (int i = 0; i < FAULTS; i++)
        if (on)
            sigaction(fault_signals[i], &action, &fault_before[i]);
        else
            sigaction(fault_signals[i], &fault_before[i], NULL);
    if (!on) sigaltstack(&before, NULL);
}

static char *make_stack_memory(size_t threads)
{
    char *stacks =
        mmap(NULL, threads * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) return NULL;
    for (size_t i = 0; i < threads; i++) mprotect(stacks + i * STACK_BYTES, PAGE, PROT_NONE);
    return stacks;
}

const char *emulated_run(const emulated_grid *grid)
{
    if (!run.stacks_alone) run.stacks_alone = make_stack_memory(EMULATED_THREADS);
    if (!run.stacks_alone) return "no memory for the stacks of threads";
    run.grid = grid;
    run.fibers = run.alone;
    run.stacks = run.stacks_alone;
    run.random += 0x9e3779b97f4a7c15u; /* the same in every process, another in every launch */
    emulated_driver_state.meet = meet;
    emulated_driver_state.shared_bytes = grid->shared_bytes;
    emulated_driver_state.block_size = (emulated_place){grid->threads, 1, 1};
    emulated_driver_state.grid_size = (emulated_place){grid->blocks, 1, 1};
    run.failure[0] = 0;
    catch_faults(true);
    if (sigsetjmp(run.escape, 1) == 0) (void)(grid->together ? run_together() : run_blocks());
    catch_faults(false);
    return run.failure[0] ? run.failure : NULL;
}
