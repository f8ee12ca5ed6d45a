/* Networks whose channels lie last, on the CUDA device, a GPU or the emulator: pictures come so, and what is computed of
 * them lies so, too, forward and backward, with the values of the CPU. In half, where the device has cublasLt, the
 * convolution that sees the pictures, whose colours are few, is a product. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device/device.h"
#include "kernel/kernel.h"
#include "session_fixture.h"

enum { SKIPPED = 77, PICTURES = 6, SIDE = 13, COLOURS = 5, CLASSES = 4, STEPS = 4 };
enum { PIXELS = PICTURES * SIDE * SIDE * COLOURS, WEIGHTS = 8 * COLOURS * 3 * 3 };

/* A residual block behind a convolution and a pooling. */
static const char network[] =
    "state %w f32[8,5,3,3] heading=parameters init=normal(0,0.3) trained\n"
    "state %v f32[8,8,3,3] heading=parameters init=normal(0,0.2) trained\n"
    "state %u f32[8,4] heading=parameters init=normal(0,0.4) trained\n"
    "state %s f32[8] heading=parameters init=constant(1) trained\n"
    "state %b f32[8] heading=parameters init=constant(0.1) trained\n"
    "segment forward (%pictures f32[6,13,13,5], %label i32[6]) -> (loss=%loss) {\n"
    "  %x = permute f32[6,5,13,13] (%pictures) order=[0,3,1,2]\n"
    "  %c = conv2d f32[6,8,13,13] (%x, %w) padding=[1,1]\n"
    "  %n, %m, %d = batchnorm f32[6,8,13,13], f32[8], f32[8] (%c, %s, %b)\n"
    "  %r = relu f32[6,8,13,13] (%n)\n"
    "  %p, %t = max_pool2d f32[6,8,7,7], u8[6,8,7,7] (%r) window=[3,3] stride=[2,2] padding=[1,1]\n"
    "  %e = conv2d f32[6,8,7,7] (%p, %v) padding=[1,1]\n"
    "  %f, %g, %h = batchnorm f32[6,8,7,7], f32[8], f32[8] (%e, %s, %b)\n"
    "  %i = add f32[6,8,7,7] (%f, %p)\n"
    "  %j = relu f32[6,8,7,7] (%i)\n"
    "  %k = mean f32[6,8] (%j) axes=[2,3]\n"
    "  %y = matmul f32[6,4] (%k, %u)\n"
    "  %loss, %lse = cross_entropy f32[], f32[6] (%y, %label)\n"
    "}\n";

typedef struct learned {
    double loss, w[WEIGHTS];
    size_t last;   /* instructions with a result whose channels lie last */
    size_t copies; /* of values with as many elements as a batch has pixels, or more */
    size_t im2col; /* convolutions, and gradients of one */
} learned;

static void count_orders(const ht_plan *plan, learned *l)
{
    int segment = 0;
    while (strcmp(plan->segments[segment].name, "micro_first") != 0) segment++;
    for (size_t i = 0; i < plan->segments[segment].instr_count; i++) {
        const ht_instr *instr = &plan->segments[segment].instrs[i];
        l->im2col += strstr(instr->kernel->name, "_im2col.cuda") != NULL;
        l->last += ht_type_is_channels_last(instr->call->out[0]);
        l->copies += strcmp(instr->kernel->op, "copy") == 0 && ht_type_elems(instr->call->out[0]) >= 6 * 7 * 7 * 8;
    }
}

static learned learn(const char *device, const char *precision, bool fusion)
{
    session_fixture f = {.ctx = context_create(2, NULL)};
    ht_train_opts training = HT_TRAIN_OPTS;
    ht_plan_opts planning = HT_PLAN_OPTS;
    static double pictures[PIXELS];
    double label[PICTURES];
    learned l = {0};
    planning.device = device;
    planning.precision = precision;
    planning.no_fusion = !fusion;
    must(&f, ht_graph_parse(&f.g, f.ctx, "network", network, strlen(network)));
    must(&f, ht_graph_train(f.g, &training));
    must(&f, ht_plan_create(&f.plan, f.g, &planning));
    must(&f, ht_session_create(&f.s, f.plan, NULL));
    count_orders(f.plan, &l);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < PIXELS; i++) pictures[i] = sin(1.7 * i + step);
        for (int i = 0; i < PICTURES; i++) label[i] = (i + step) % CLASSES;
        must(&f, ht_session_write_f64(f.s, "pictures", pictures, PIXELS));
        must(&f, ht_session_write_f64(f.s, "label", label, PICTURES));
        must(&f, ht_session_run(f.s, "train"));
    }
    must(&f, ht_session_read_f64(f.s, "loss", &l.loss, 1));
    must(&f, ht_session_read_f64(f.s, "w", l.w, WEIGHTS));
    session_end(&f);
    return l;
}

static void compare(const learned *a, const learned *b, double bound)
{
    if (fabs(a->loss - b->loss) > bound * (1 + fabs(a->loss))) fail_msg("losses: %.9g and %.9g", a->loss, b->loss);
    for (int i = 0; i < WEIGHTS; i++)
        if (fabs(a->w[i] - b->w[i]) > bound) fail_msg("weight %d: %.9g and %.9g", i, a->w[i], b->w[i]);
}

static void cuda__a_network_whose_channels_lie_last_learns_as_on_the_cpu(void **state)
{
    (void)state;
    learned cpu = learn("cpu", "fp32", true), cuda = learn("cuda", "fp32", true), single = learn("cuda", "fp32", false);
    assert_int_equal(cpu.last, 0);
    assert_true(cuda.last >= 12);
    assert_int_equal(cuda.copies, 0);
    compare(&cpu, &cuda, 1e-4);
    compare(&cuda, &single, 0); /* the same bits */
}

static bool has_products(void)
{
    ht_context *ctx = context_create(1, NULL);
    ht_target target;
    ht_target_here(ctx, &target);
    context_must(ctx, ht_target_bind(ctx, &target, "cuda"));
    ht_device_describe(ctx, &target);
    bool has = ht_target_has_library(&target, HT_LIBRARY_CUBLASLT);
    ht_context_free(ctx);
    return has;
}

/* bf16 rounds every value; the few steps that they take apart are those of its last digits. */
static void cuda__in_half_it_does_so_too(void **state)
{
    (void)state;
    learned cpu = learn("cpu", "bf16", true), cuda = learn("cuda", "bf16", true), again = learn("cuda", "bf16", true);
    assert_true(cuda.last >= 12);
    assert_int_equal(cuda.im2col, has_products() ? 2 : 0);
    compare(&cpu, &cuda, 2e-2);
    assert_memory_equal(&cuda, &again, sizeof cuda);
}

int main(void)
{
    ht_device *device;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuda__a_network_whose_channels_lie_last_learns_as_on_the_cpu),
        cmocka_unit_test(cuda__in_half_it_does_so_too),
    };
    if (ht_device_get(&device, context_shared(), "cuda") != HT_OK) {
        printf("skipped: %s\n", ht_context_message(context_shared()));
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
