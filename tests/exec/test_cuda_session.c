/* Sessions on the CUDA device, a GPU or the emulator: element-wise calls that run together have the bits of those calls
 * alone, and the values of the CPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fused_pair.h"
#include "kernel/kernel.h"
#include "random_graph.h"
#include "session_fixture.h"

enum { SKIPPED = 77, CHAINS = 12, LONG_CHAINS = 150 };

static size_t most_steps(const ht_plan *plan)
{
    size_t most = 0;
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++) {
            const ht_fused *fused = plan->segments[s].instrs[i].fused;
            if (fused && (size_t)fused->step_count > most) most = (size_t)fused->step_count;
        }
    return most;
}

static void cuda__fused_calls_have_the_bits_of_single_ones(void **state)
{
    (void)state;
    fused_pair w = {.device = "cuda"};
    size_t most = 0, planned = 0, chains = getenv("HALFTONE_LONG") ? LONG_CHAINS : CHAINS;
    w.ctx = context_create(2, NULL);
    for (uint64_t seed = 0; seed < chains; seed++) {
        w.g = random_graph_chain(w.ctx, seed);
        assert_non_null(w.g);
        if (fused_pair_plan(&w, seed)) {
            planned++;
            if (most_steps(w.plan[0]) > most) most = most_steps(w.plan[0]);
            assert_true(most_steps(w.plan[1]) <= 1);
            fused_pair_run(&w, "forward", seed);
        } else if (!strstr(ht_context_message(w.ctx), "an operand is f8")) {
            fused_pair_fail(&w, "does not plan", seed);
        }
        fused_pair_close(&w);
    }
    assert_true(planned > chains / 2);
    assert_true(most > 4);
    ht_context_free(w.ctx);
}

/* ---- against the CPU ---- */

static const char smooth[] = "segment forward (%x f32[37,70], %half bf16[37,70], %row f32[70], %column f32[37,1], "
                             "%number f32[]) -> (y=%y, z=%z, mask=%mask) {\n"
                             "  %rows = expand f32[37,70] (%row)\n"
                             "  %columns = expand f32[37,70] (%column)\n"
                             "  %numbers = expand f32[37,70] (%number)\n"
                             "  %a = mul f32[37,70] (%x, %rows)\n"
                             "  %b = add f32[37,70] (%a, %columns)\n"
                             "  %c = gelu f32[37,70] (%b)\n"
                             "  %d = cast f32[37,70] (%half)\n"
                             "  %e = sigmoid f32[37,70] (%d)\n"
                             "  %f = mul f32[37,70] (%c, %e)\n"
                             "  %y = add f32[37,70] (%f, %numbers)\n"
                             "  %t = tanh f32[37,70] (%y)\n"
                             "  %z = cast bf16[37,70] (%t)\n"
                             "  %mask = gt bool[37,70] (%x, %rows)\n"
                             "}\n";
enum { ELEMENTS = 37 * 70 };

typedef struct results {
    double y[ELEMENTS], z[ELEMENTS], mask[ELEMENTS];
} results;

static void write_numbers(const session_fixture *f, const char *name)
{
    const ht_slot *slot = ht_plan_slot(f->plan, name);
    double data[ELEMENTS];
    size_t count = (size_t)ht_type_elems(&slot->type);
    for (size_t i = 0; i < count; i++) data[i] = 2 * sin(1.3 * (double)i + (double)name[0]);
    must(f, ht_session_write_f64(f->s, name, data, count));
}

static void read_numbers(const session_fixture *f, const char *name, double *numbers)
{
    static double bytes[ELEMENTS];
    const ht_slot *slot = ht_plan_slot(f->plan, name);
    must(f, ht_session_read(f->s, name, bytes, (size_t)ht_type_bytes(&slot->type)));
    for (int64_t i = 0; i < ELEMENTS; i++) numbers[i] = ht_load_f64(bytes, slot->type.dtype, i);
}

static size_t run_smooth(const char *device, results *r)
{
    session_fixture f = {.ctx = context_create(2, NULL)};
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.device = device;
    must(&f, ht_graph_parse(&f.g, f.ctx, "smooth", smooth, strlen(smooth)));
    session_plan(&f, &opts, 1);
    const char *const inputs[] = {"x", "half", "row", "column", "number"};
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) write_numbers(&f, inputs[i]);
    must(&f, ht_session_run(f.s, "forward"));
    read_numbers(&f, "y", r->y);
    read_numbers(&f, "z", r->z);
    read_numbers(&f, "mask", r->mask);
    size_t steps = most_steps(f.plan);
    session_end(&f);
    return steps;
}

static void cuda__fused_calls_have_the_values_of_the_cpu(void **state)
{
    (void)state;
    static results cpu, cuda;
    run_smooth("cpu", &cpu);
    assert_true(run_smooth("cuda", &cuda) > 4);
    for (int i = 0; i < ELEMENTS; i++) {
        assert_true(fabs(cpu.y[i] - cuda.y[i]) <= 4e-6 * (1 + fabs(cpu.y[i])));
        assert_true(fabs(cpu.z[i] - cuda.z[i]) <= 0x1p-7 * fabs(cpu.z[i]) + 4e-6); /* a step of bf16 */
        assert_true(cpu.mask[i] == cuda.mask[i]);
    }
}

static const char *refusal(void)
{
    static char text[512];
    ht_context *ctx = context_shared();
    ht_device *device;
    if (ht_device_get(&device, ctx, "cuda") == HT_OK) return NULL;
    snprintf(text, sizeof text, "%s", ht_context_message(ctx));
    return text;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuda__fused_calls_have_the_bits_of_single_ones),
        cmocka_unit_test(cuda__fused_calls_have_the_values_of_the_cpu),
    };
    if (refusal()) {
        printf("skipped: %s\n", refusal());
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
