/* The rows of lstm and lstm_grad whose blocks wait for each other: sizes that cross every tile, several tiles for a block,
 * padding that holds NaN, and devices that hold too few blocks. Samples are too small for that (test_cuda_ops). On a GPU
 * also as wide as a translator's layers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_call.h"

enum { SKIPPED = 77, RESULTS = 8 };

static ht_context *ctx;
static ht_device *device;
static ht_queue *queue;

static ht_status open_device(void)
{
    ctx = context_create(0, NULL);
    HT_TRY(ht_device_get(&device, ctx, "cuda"));
    return device->class->queue_create(device, &queue);
}

static void close_device(void)
{
    ht_queue_free(queue);
    ht_context_free(ctx);
}

static bool is_emulated(void)
{
    return getenv("HALFTONE_EMULATED") != NULL;
}

/* ---- a launch ---- */

static const ht_kernel *find_row(const char *name)
{
    const ht_context *rows = context_shared();
    for (size_t i = 0; i < rows->kernel_count; i++)
        if (strcmp(rows->kernels[i]->name, name) == 0) return rows->kernels[i];
    fail_msg("there is no row %s", name);
    return NULL;
}

static void *on_device(const ht_type *type, const double *values)
{
    size_t bytes = (size_t)ht_type_bytes(type);
    unsigned char *host = malloc(bytes + 1);
    void *memory;
    assert_non_null(host);
    memset(host, 0xff, bytes);
    for (int64_t i = 0; values && i < ht_type_elems(type); i++) ht_store_f64(host, type->dtype, i, values[i]);
    context_must(ctx, ht_device_alloc(device, bytes + 1, &memory));
    context_must(ctx, ht_queue_copy(queue, memory, host, bytes, HT_COPY_TO_DEVICE));
    context_must(ctx, ht_queue_sync(queue));
    free(host);
    return memory;
}

static void fetch(const ht_type *type, const void *memory, double *values)
{
    size_t bytes = (size_t)ht_type_bytes(type);
    unsigned char *host = malloc(bytes + 1);
    assert_non_null(host);
    context_must(ctx, ht_queue_copy(queue, host, memory, bytes, HT_COPY_FROM_DEVICE));
    context_must(ctx, ht_queue_sync(queue));
    for (int64_t i = 0; i < ht_type_elems(type); i++) values[i] = ht_load_f64(host, type->dtype, i);
    free(host);
}

static void run_row(op_call *c, const char *name)
{
    const ht_call *call = c->c.call;
    const ht_kernel *row = find_row(name);
    ht_target target = {.name = "test", .device = HT_DEVICE_CUDA, .threads = 1};
    const void *in[HT_SAMPLE_MAX] = {NULL};
    void *out[RESULTS], *workspace;
    assert_null(row->can(call, &target));
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i]) in[i] = on_device(call->in[i], c->a.in[i]);
    for (size_t i = 0; i < call->n_out; i++) out[i] = on_device(call->out[i], NULL);
    context_must(ctx, ht_device_alloc(device, (size_t)row->workspace(call, &target), &workspace));
    ht_launch launch = {
        .call = call, .in = in, .out = out, .workspace = workspace, .row = row, .queue = queue, .kernel = name};
    context_must(ctx, device->class->prepare(device, &launch, 1));
    context_must(ctx, row->prepare(&launch));
    context_must(ctx, device->class->load(device));
    context_must(ctx, ht_queue_launch(queue, row->run, &launch));
    for (size_t i = 0; i < call->n_out; i++) fetch(call->out[i], out[i], c->a.out[i]);
    row->release(&launch);
    device->class->release(device, &launch);
    for (size_t i = 0; i < call->n_in; i++) ht_device_free(device, (void *)(uintptr_t)in[i]);
    for (size_t i = 0; i < call->n_out; i++) ht_device_free(device, out[i]);
    ht_device_free(device, workspace);
}

/* ---- checks ---- */

typedef struct layer {
    int steps, batch, inputs, hidden;
    const char *type;
    double bound; /* of the error, relative to the root mean square of the result */
} layer;

static void open_forward(op_call *c, const layer *l)
{
    double w = 1.5 / sqrt(l->hidden);
    op_call_open(c, "lstm",
                 "(%s[%d,%d,%d], %s[%d,%d], f32[%d,%d], %s[%d,%d] -%g..%g, %s[%d,%d] -%g..%g, f32[%d], i32[%d] 0..%d)",
                 l->type, l->steps, l->batch, l->inputs, l->type, l->batch, l->hidden, l->batch, l->hidden, l->type,
                 4 * l->hidden, l->inputs, w, w, l->type, 4 * l->hidden, l->hidden, w, w, 4 * l->hidden, l->batch,
                 l->steps + 1);
}

static void open_back(op_call *c, const layer *l)
{
    double w = 1.5 / sqrt(l->hidden);
    op_call_open(c, "lstm_grad",
                 "(%s[%d,%d,%d], %s[%d,%d], f32[%d,%d], %s[%d,%d] -%g..%g, %s[%d,%d] -%g..%g, %s[%d,%d,%d] 0.1..0.9, "
                 "i32[%d] 0..%d, %s[%d,%d,%d], %s[%d,%d], f32[%d,%d])",
                 l->type, l->steps, l->batch, l->inputs, l->type, l->batch, l->hidden, l->batch, l->hidden, l->type,
                 4 * l->hidden, l->inputs, w, w, l->type, 4 * l->hidden, l->hidden, w, w, l->type, l->steps, l->batch,
                 5 * l->hidden, l->batch, l->steps + 1, l->type, l->steps, l->batch, l->hidden, l->type, l->batch,
                 l->hidden, l->batch, l->hidden);
}

/* What pads a sequence must not matter. */
static void spoil_padding(op_call *c, const layer *l)
{
    for (int t = 0; t < l->steps; t++)
        for (int b = 0; b < l->batch; b++)
            for (int k = 0; t >= (int)c->a.in[6][b] && k < l->inputs; k++)
                c->a.in[0][((int64_t)t * l->batch + b) * l->inputs + k] = NAN;
}

static void check_results(const op_call *got, const op_call *want, const layer *l)
{
    for (size_t i = 0; i < got->c.call->n_out; i++) {
        double error = 0, size = 0;
        for (int64_t e = 0; e < op_call_elems_out(got, i); e++) {
            error += pow(got->a.out[i][e] - want->a.out[i][e], 2);
            size += pow(want->a.out[i][e], 2);
        }
        if (!(sqrt(error / size) <= l->bound))
            fail_msg("%s, %s, %d units: result %zu is off by %g", got->c.op->name, l->type, l->hidden, i,
                     sqrt(error / size));
    }
}

static void check_row(const layer *l, const char *name, void (*open)(op_call *c, const layer *l))
{
    op_call want, got, again;
    open(&want, l);
    open(&got, l);
    open(&again, l);
    op_call_reference(&want);
    spoil_padding(&got, l);
    spoil_padding(&again, l);
    run_row(&got, name);
    run_row(&again, name);
    check_results(&got, &want, l);
    for (size_t i = 0; i < got.c.call->n_out; i++)
        op_call_near("run again", again.a.out[i], got.a.out[i], op_call_elems_out(&got, i), 0);
    op_call_close(&want);
    op_call_close(&got);
    op_call_close(&again);
}

static void check_layer(const layer *l)
{
    check_row(l, "lstm_persistent.cuda", open_forward);
    check_row(l, "lstm_grad_persistent.cuda", open_back);
}

/* Three tiles of sequences for a block, the last one not full; units that fill no block; two parts of the depth. */
static void half__agrees_across_tiles(void **state)
{
    (void)state;
    check_layer(&(layer){2, 70, 12, 264, "f16", 0x1p-10});
    check_layer(&(layer){2, 33, 5, 40, "bf16", 0x1p-7});
}

static void f32__agrees_across_tiles(void **state)
{
    (void)state;
    check_layer(&(layer){3, 130, 12, 72, "f32", 2e-6});
}

/* More blocks than the emulated device has processors for. */
static void few_processors__run_the_other_row(void **state)
{
    (void)state;
    check_layer(&(layer){2, 3, 4, 328, "f32", 2e-6});
}

static void expect_row(const char *type, unsigned liberties, const char *name)
{
    ht_target target = {.device = HT_DEVICE_CUDA, .libraries = 1u << HT_LIBRARY_CUBLASLT, .liberties = liberties};
    op_call c;
    open_forward(&c, &(layer){2, 3, 4, 8, type, 0});
    const ht_kernel *row = ht_kernel_choose(context_shared(), c.c.call, &target, NULL);
    assert_non_null(row);
    assert_string_equal(row->name, name);
    op_call_close(&c);
}

static void tf32__is_for_jobs_that_ask_for_it(void **state)
{
    (void)state;
    expect_row("f32", 0, "lstm_persistent.cuda");
    expect_row("f32", 1u << HT_LIBERTY_TF32, "lstm_persistent_tf32.cuda");
    expect_row("f16", 1u << HT_LIBERTY_TF32, "lstm_persistent.cuda");
}

static void translator__agrees_on_a_gpu(void **state)
{
    (void)state;
    if (is_emulated()) skip();
    check_layer(&(layer){4, 128, 64, 1024, "f16", 0x1p-9});
    check_layer(&(layer){3, 300, 32, 512, "bf16", 0x1p-6});
    check_layer(&(layer){3, 70, 32, 1024, "f32", 5e-6});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half__agrees_across_tiles),         cmocka_unit_test(f32__agrees_across_tiles),
        cmocka_unit_test(few_processors__run_the_other_row), cmocka_unit_test(tf32__is_for_jobs_that_ask_for_it),
        cmocka_unit_test(translator__agrees_on_a_gpu),
    };
    if (open_device() != HT_OK) {
        printf("%s: %s\n", is_emulated() ? "no emulator" : "skipped", ht_context_message(ctx));
        close_device();
        return is_emulated() ? 1 : SKIPPED;
    }
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    close_device();
    return failures != 0;
}
