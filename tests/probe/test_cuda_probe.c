/* The probe of a GPU, on the emulator where there is none: every row has a figure, the target is the GPU's, and calls are
 * measured alone. Figures themselves are worth something on a GPU only. */
#include "probe/gpu_own.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "context_fixture.h"

enum { SKIPPED = 77 };
static const double short_seconds = 0.02;

static const ht_probe_row *gpu_row(const ht_probe *probe, const char *group, const char *name, const char *what)
{
    for (size_t i = 0; i < probe->count; i++) {
        const ht_probe_row *row = &probe->rows[i];
        if (row->device == HT_DEVICE_CUDA && strcmp(row->group, group) == 0 && strcmp(row->name, name) == 0 &&
            (!what || strcmp(row->what, what) == 0))
            return row;
    }
    return NULL;
}

static void gpu__ceilings_are_figures_of_its_own_target(void **state)
{
    (void)state;
    ht_probe probe;
    const unsigned parts = HT_PROBE_ARITHMETIC | HT_PROBE_MEMORY | HT_PROBE_ENERGY;
    context_must(
        test_ctx,
        ht_probe_run(test_ctx, &(ht_probe_opts){.parts = parts, .seconds = short_seconds, .gpu = "cuda"}, &probe));
    const ht_target *t = &probe.gpu;
    static const ht_dtype types[] = {HT_F64, HT_F32, HT_F16, HT_BF16};
    assert_true(probe.has_gpu && t->device == HT_DEVICE_CUDA && t->memory_bytes[HT_SPACE_MAIN] > 0);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        assert_true(t->flops[types[i]] > 0);
        assert_int_equal(t->source.flops[types[i]], HT_SOURCE_MEASURED);
        assert_non_null(gpu_row(&probe, "product", ht_dtype_name(types[i]), NULL));
    }
    assert_true(!gpu_row(&probe, "product", "tf32", NULL) == !ht_target_has_library(t, HT_LIBRARY_CUBLASLT));
    assert_true(t->bandwidth[HT_SPACE_MAIN] > 0 && t->latency[HT_SPACE_MAIN] > 0 && t->cache_bytes[HT_CACHE_L2] > 0);
    assert_true(t->cache_bandwidth[HT_CACHE_L2] > 0 && t->cache_latency[HT_CACHE_L2] > 0);
    assert_true(t->link[HT_SPACE_MAIN][HT_SPACE_HOST] > 0 && t->link[HT_SPACE_HOST][HT_SPACE_MAIN] > 0);
    /* The machine beside it has its own, and lends its memory's. */
    assert_true(probe.target.device == HT_DEVICE_CPU && probe.target.flops[HT_F32] > 0);
    assert_true(t->bandwidth[HT_SPACE_HOST] == probe.target.bandwidth[HT_SPACE_MAIN]);
    assert_true(probe.gpu_energy_note[0] || t->byte_energy[HT_SPACE_MAIN] > 0);
    for (size_t i = 0; i < probe.count; i++)
        if (!isfinite(probe.rows[i].value) || !(probe.rows[i].value > 0))
            fail_msg("%s %s: %g", probe.rows[i].group, probe.rows[i].name, probe.rows[i].value);
    ht_probe_free(&probe);
}

/* A prober without the other parts of a probe. */
typedef struct fixture {
    ht_probe probe;
    prober p;
    ht_target target;
    gpu_prober g;
} fixture;

static void open_fixture(fixture *f)
{
    *f = (fixture){.p = {.ctx = test_ctx, .opts = {.parts = HT_PROBE_CATALOGUE}}};
    f->p.out = &f->probe;
    ht_target_here(test_ctx, &f->target);
    f->g = (gpu_prober){.p = &f->p, .name = "cuda", .target = &f->target, .slice = 1e-4, .small = true};
    context_must(test_ctx, ht_gpu_open(&f->g));
}

static void close_fixture(fixture *f)
{
    ht_gpu_close(&f->g);
    ht_probe_free(&f->probe);
}

static void gpu__loops_of_the_catalogue_have_a_figure(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f);
    context_must(test_ctx, ht_gpu_loops_load(&f.g));
    context_must(test_ctx, ht_gpu_catalogue(&f.g));
#define HT_LOOP(name, group, real, what)                                                                               \
    if (!gpu_row(&f.probe, #group, #name, what)) fail_msg("%s", #name);
#include "probe/catalogue.def"
    for (size_t i = 0; i < f.probe.count; i++) assert_true(f.probe.rows[i].value > 0);
    close_fixture(&f);
}

static void gpu__a_call_is_measured_alone(void **state)
{
    (void)state;
    static const struct {
        const char *op, *sample;
    } calls[] = {
        {"matmul", "(f32[24,16], f32[16,8])"},
        {"gelu", "(f32[300])"},
        {"layernorm", "(f32[8,16], f32[16], f32[16])"},
        {"adam", "(f32[64], f32[64], f32[64], f32[64] 0.01..1, f32[] 0.01..0.1, i64[] 9..9)"},
        {"sum", "(f32[8,16]) axes=[0]"},
    };
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        ht_gpu_measured m;
        context_must(test_ctx, ht_gpu_op(&f.g, calls[i].op, calls[i].sample, 0, &m));
        if (!(m.seconds > 0)) fail_msg("%s was not measured", calls[i].op);
        assert_true(m.cost.bytes > 0 && m.elems > 0);
    }
    ht_gpu_measured product;
    context_must(test_ctx, ht_gpu_op(&f.g, "matmul", calls[0].sample, 0, &product));
    assert_true(product.cost.dot_flops == 2.0 * 24 * 16 * 8);
    close_fixture(&f);
}

static double count_reads(void *arg)
{
    return ++*(double *)arg;
}

/* Energy is what a counter gained over the runs that were timed, not over planning and filling. */
static void gpu__a_meter_is_read_around_what_is_timed(void **state)
{
    (void)state;
    fixture f;
    double reads = 0, rounds;
    gpu_meter meter = {.read = count_reads, .arg = &reads};
    ht_gpu_measured m;
    open_fixture(&f);
    f.g.meter = &meter;
    context_must(test_ctx, ht_gpu_op(&f.g, "matmul", "(f32[24,16], f32[16,8])", 0, &m));
    assert_true(reads == 2 && meter.counted == 1 && meter.runs >= 3 && meter.runs == floor(meter.runs));
    context_must(test_ctx, ht_gpu_loops_load(&f.g));
    context_must(test_ctx, ht_gpu_loop(&f.g, "read", f.g.memory_bytes, false, &rounds));
    assert_true(reads == 4 && meter.counted == 1 && meter.runs >= 3);
    close_fixture(&f);
}

/* A chase goes on where the last one ended, so that it comes to lines that no cache has. */
static void gpu__a_chase_comes_to_other_lines_each_time(void **state)
{
    (void)state;
    fixture f;
    uint64_t before[4], after[4];
    double rounds;
    open_fixture(&f);
    context_must(test_ctx, ht_gpu_loops_load(&f.g));
    context_must(test_ctx, ht_gpu_loop(&f.g, "link_lines", 1 << 20, false, &rounds));
    context_must(test_ctx, ht_gpu_loop(&f.g, "chase", 1 << 20, true, &rounds));
    context_must(test_ctx, ht_queue_copy(f.g.queue, before, f.g.control, sizeof before, HT_COPY_FROM_DEVICE));
    context_must(test_ctx, ht_queue_sync(f.g.queue));
    context_must(test_ctx, ht_gpu_loop(&f.g, "chase", 1 << 20, true, &rounds));
    context_must(test_ctx, ht_queue_copy(f.g.queue, after, f.g.control, sizeof after, HT_COPY_FROM_DEVICE));
    context_must(test_ctx, ht_queue_sync(f.g.queue));
    assert_true(before[3] != 0 && before[3] < (1 << 20) / 128 && after[3] != before[3]);
    close_fixture(&f);
}

/* Each can be planned for a GPU, with a kernel of ours for its op. */
static void gpu__samples_of_families_can_be_planned(void **state)
{
    (void)state;
    for (int i = 0; i < ht_family_count; i++)
        for (int size = 0; size < HT_FAMILY_SIZES; size++) {
            const ht_family_row *family = &ht_families[i];
            ht_arena *arena = ht_arena_create();
            ht_graph *graph;
            ht_plan *plan;
            ht_plan_opts opts = HT_PLAN_OPTS;
            ht_target target;
            ht_text text = {0};
            ht_target_here(test_ctx, &target);
            context_must(test_ctx, ht_target_bind(test_ctx, &target, "cuda"));
            target.liberties = ht_family_liberties(family);
            ht_target_print(&text, &target);
            opts.target = text.data;
            if (ht_family_sample(family, HT_DEVICE_CUDA, size)) {
                context_must(test_ctx, ht_family_graph(test_ctx, arena, family, HT_DEVICE_CUDA, size, &graph));
                if (ht_plan_create(&plan, graph, &opts) != HT_OK)
                    fail_msg("%s: %s", family->name, ht_context_message(test_ctx));
                const ht_plan_segment *s = &plan->segments[ht_plan_segment_find(plan, "forward")];
                bool found = false;
                for (size_t k = 0; k < s->instr_count; k++) {
                    const ht_call *call = ht_instr_call(&s->instrs[k]);
                    found |= strcmp(call->op->name, family->op) == 0 &&
                             ht_instr_family(&plan->target, &s->instrs[k], call) == i;
                }
                if (!found) fail_msg("%s %d: no instruction is of that family", family->name, size);
                ht_plan_free(plan);
                ht_graph_free(graph);
            } else if (!ht_family_sample(family, HT_DEVICE_CPU, size)) {
                fail_msg("%s is measured nowhere", family->name);
            }
            ht_text_free(&text);
            ht_arena_free(arena);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpu__samples_of_families_can_be_planned),
        cmocka_unit_test(gpu__ceilings_are_figures_of_its_own_target),
        cmocka_unit_test(gpu__loops_of_the_catalogue_have_a_figure),
        cmocka_unit_test(gpu__a_call_is_measured_alone),
        cmocka_unit_test(gpu__a_meter_is_read_around_what_is_timed),
        cmocka_unit_test(gpu__a_chase_comes_to_other_lines_each_time),
    };
    if (ht_cuda_device_count() == 0) {
        printf("there is no GPU and no emulator\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
