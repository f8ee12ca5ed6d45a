#include "graph/families.h"
#include "graph/target.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ht_context ctx;

static int set_up(void **state)
{
    (void)state;
    ctx = (ht_context){.isa = HT_ISA_PORTABLE};
    ctx.pool = ht_pool_create(2);
    return ctx.pool == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    ht_pool_free(ctx.pool);
    return 0;
}

/* From a block of just that size, so that reading too far is seen. */
static ht_status parse(const char *text, ht_target *target)
{
    size_t length = strlen(text);
    char *exact = calloc(1, length ? length : 1);
    memcpy(exact, text, length);
    ht_status status = ht_target_parse(&ctx, target, "node.json", exact, length);
    free(exact);
    return status;
}

static void assert_refused(const char *text, const char *message)
{
    ht_target target;
    assert_int_equal(parse(text, &target), HT_EPARSE);
    assert_string_equal(ctx.message, message);
}

static void assert_same(const ht_target *a, const ht_target *b)
{
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->arch, b->arch);
    assert_int_equal(a->isa, b->isa);
    assert_int_equal(a->features, b->features);
    assert_int_equal(a->threads, b->threads);
    assert_memory_equal(a->memory_bytes, b->memory_bytes, sizeof a->memory_bytes);
    assert_int_equal(a->device, b->device);
    assert_int_equal(a->libraries, b->libraries);
    assert_memory_equal(a->versions, b->versions, sizeof a->versions);
    assert_memory_equal(a->flops, b->flops, sizeof a->flops);
    assert_memory_equal(a->bandwidth, b->bandwidth, sizeof a->bandwidth);
    assert_memory_equal(a->link, b->link, sizeof a->link);
    assert_int_equal(a->devices, b->devices);
    assert_int_equal(a->nodes, b->nodes);
    assert_int_equal(a->no_kernels, b->no_kernels);
    ht_figure one, other;
    for (size_t i = 0; ht_target_figure(a, i, &one); i++) {
        assert_true(ht_target_figure(b, i, &other));
        if (one.value != other.value || (one.value > 0 && one.source != other.source))
            fail_msg("%s.%s: %g, not %g", one.group, one.name, other.value, one.value);
    }
}

static void assert_reads_back(const ht_target *target)
{
    ht_text text = {0};
    ht_target back;
    ht_target_print(&text, target);
    assert_int_equal(ht_target_parse(&ctx, &back, "printed", text.data, text.length), HT_OK);
    assert_same(target, &back);
    ht_text_free(&text);
}

static void here__has_the_contexts_isa_and_threads_and_some_memory(void **state)
{
    (void)state;
    ht_target target;
    ht_target_here(&ctx, &target);
    assert_int_equal(target.isa, HT_ISA_PORTABLE);
    assert_int_equal(target.threads, 2);
    assert_true(target.arch[0] != '\0');
    assert_true(target.memory_bytes[HT_SPACE_MAIN] > 1 << 20);
    assert_int_equal(target.memory_bytes[HT_SPACE_DISK], 0);
    assert_reads_back(&target);
}

static void bind__takes_a_kind_and_which_of_it(void **state)
{
    (void)state;
    ht_target t;
    ht_target_here(&ctx, &t);
    assert_int_equal(ht_target_bind(&ctx, &t, "cuda:3"), HT_OK);
    assert_int_equal(t.device, HT_DEVICE_CUDA);
    assert_int_equal(t.device_number, 3);
    assert_int_equal(ht_target_bind(&ctx, &t, "fake"), HT_OK);
    assert_int_equal(t.device_number, 0);
    static const char *const wrong[][2] = {
        {"cpu:1", "only GPUs have numbers, as in cuda:1"}, {"cuda:", "a number follows the colon"},
        {"cuda:1a", "a number follows the colon"},         {"cuda:99999", "a number follows the colon"},
        {"cuda-and-a-long-tail", "there are cpu, fake"},   {"", "there are cpu, fake"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(ht_target_bind(&ctx, &t, wrong[i][0]), HT_EINVAL);
        if (!strstr(ctx.message, wrong[i][1])) fail_msg("%s: %s", wrong[i][0], ctx.message);
    }
}

static void print__reads_back(void **state)
{
    (void)state;
    ht_target target = {.name = "a \"quoted\" \\ name\n", .arch = "x86_64", .isa = HT_ISA_AVX512, .threads = 65536};
    assert_reads_back(&target);
    target.features = 1u << HT_FEATURE_AMX_BF16;
    assert_reads_back(&target);
    target.features = (1u << HT_FEATURE_COUNT) - 1;
    assert_reads_back(&target);
    target.memory_bytes[HT_SPACE_HOST] = INT64_MAX;
    target.memory_bytes[HT_SPACE_DISK] = 1;
    assert_reads_back(&target);
    target.device = HT_DEVICE_CUDA;
    target.flops[HT_BF16] = 1.0 / 3 * 1e15;
    target.bandwidth[HT_SPACE_DISK] = 1e9;
    target.link[HT_SPACE_MAIN][HT_SPACE_HOST] = 5e-324;
    target.link[HT_SPACE_HOST][HT_SPACE_MAIN] = 1.7e308;
    assert_reads_back(&target);
}

/* Every figure there is, with all sources in turn, so that no group has one for all. */
static void figures__read_back_with_their_sources(void **state)
{
    (void)state;
    ht_target target = {.name = "node", .arch = "x86_64", .isa = HT_ISA_AVX2, .threads = 2, .devices = 8, .nodes = 3};
    target.no_kernels = true;
#define HT_FIGURES(group, dims, item, unit, what)                                                                      \
    for (size_t i = 0; i < sizeof target.group / sizeof(double); i++) {                                                \
        ((double *)target.group)[i] = 1.0 / 3 + (double)i;                                                             \
        ((uint8_t *)target.source.group)[i] = (uint8_t)(i % HT_SOURCE_COUNT);                                          \
    }
#include "graph/figures.def"
    for (int i = 0; i < HT_SPACE_COUNT; i++) target.link[i][i] = 0; /* there is no such link */
    for (int i = ht_family_count; i < HT_MOST_FAMILIES; i++)        /* nor such a family */
        for (int size = 0; size < HT_FAMILY_SIZES; size++) target.efficiency[i][size] = 0;
    assert_reads_back(&target);
    ht_target_mark(&target, HT_SOURCE_MEASURED);
    ht_figure figure;
    for (size_t i = 0; ht_target_figure(&target, i, &figure); i++)
        assert_true(figure.value == 0 || figure.source != HT_SOURCE_GIVEN);
    assert_reads_back(&target);
    ht_target_reason reason;
    assert_string_equal(ht_target_refusal_here(&target, &reason), "there are no kernels for node");
}

static void sources__name_figures_that_are_there(void **state)
{
    (void)state;
    ht_target target;
    assert_int_equal(
        parse("{\"isa\": \"avx2\", \"arch\": \"x86_64\", \"threads\": 4,\n"
              "\"source\": {\"flops.f64\": \"data sheet\", \"flops\": \"measured\", \"power\": \"derived\"},\n"
              "\"flops\": {\"f64\": 1, \"f32\": 2}, \"cache_latency\": {\"L2\": 4e-9}, \"power\": {\"board\": 9}}",
              &target),
        HT_OK);
    assert_int_equal(target.source.flops[HT_F64], HT_SOURCE_DATA_SHEET);
    assert_int_equal(target.source.flops[HT_F32], HT_SOURCE_MEASURED);
    assert_int_equal(target.source.power[HT_POWER_BOARD], HT_SOURCE_FROM_DATA_SHEET);
    assert_int_equal(target.source.cache_latency[HT_CACHE_L2], HT_SOURCE_GIVEN);
    assert_refused("{\"source\": {\"flops\": \"measured\"}}", "node.json:1:22: source: the file gives no \"flops\"");
    assert_refused("{\"flops\": {\"f32\": 1}, \"source\": {\"flops\": \"guessed\"}}",
                   "node.json:1:43: source: \"flops\" is none of \"measured\", \"data sheet\", \"derived\"");
    assert_refused("{\"source\": {\"speed\": \"measured\"}}", "node.json:1:22: source: there is no figure \"speed\"");
    assert_refused("{\"source\": {\"flops.f31\": \"measured\"}}",
                   "node.json:1:26: source: there is no figure \"flops.f31\"");
    assert_refused("{\"source\": 3}", "node.json:1:12: source is an integer, not an object");
    assert_refused("{\"cache_bytes\": {\"L4\": 1}}", "node.json:1:24: there is no cache \"L4\"; did you mean \"L1\"?");
    assert_refused("{\"efficiency\": {\"matmul.smal\": 1}}",
                   "node.json:1:32: there is no family and size \"matmul.smal\"; did you mean \"matmul.small\"?");
    assert_refused("{\"latency\": {\"main\": -1}}", "node.json:1:22: \"main\" must be seconds, more than 0");
    assert_refused("{\"kernels\": 1}", "node.json:1:13: kernels is an integer, not true or false");
    assert_refused("{\"nodes\": 0}", "node.json:1:11: nodes must be an integer from 1 to 65536");
}

/* Each figure of a shipped target tells where it comes from. */
static void shipped__targets_parse_and_read_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < ht_shipped_target_count; i++) {
        ht_target target;
        ht_figure figure;
        if (ht_target_read(&ctx, &target, ht_shipped_targets[i].name) != HT_OK) fail_msg("%s", ctx.message);
        for (size_t k = 0; ht_target_figure(&target, k, &figure); k++)
            if (figure.value > 0 && figure.source == HT_SOURCE_GIVEN)
                fail_msg("%s: %s.%s", ht_shipped_targets[i].name, figure.group, figure.name);
        assert_reads_back(&target);
    }
}

/* What a probe measured on an H200 (docs/performance.md) may not be faster than a bound. */
static void shipped__ceilings_of_a_gpu_are_those_of_its_data_sheet(void **state)
{
    (void)state;
    static const char *const names[] = {"h200", "8xh200", "cluster"};
    ht_target none = {.device = HT_DEVICE_CUDA};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ht_target t;
        assert_int_equal(ht_target_read(&ctx, &t, names[i]), HT_OK);
        assert_true(t.flops[HT_F64] >= 62.8e12 && t.flops[HT_F32] >= 51.4e12 && t.flops[HT_FORMAT_TF32] >= 415e12);
        assert_true(t.flops[HT_BF16] >= 820e12 && t.flops[HT_F8E4M3] >= 1594e12 &&
                    t.bandwidth[HT_SPACE_MAIN] >= 4.44e12);
        for (int format = 0; format < HT_FORMAT_COUNT; format++)
            assert_true(t.flops[format] == 0 || t.flops[format] == ht_target_flops(&none, format));
        assert_true(t.bandwidth[HT_SPACE_MAIN] == ht_target_bandwidth(&none, HT_SPACE_MAIN));
    }
    ht_target a100;
    assert_int_equal(ht_target_read(&ctx, &a100, "a100"), HT_OK);
    assert_true(a100.flops[HT_FORMAT_TF32] == 156e12 && ht_target_flops(&a100, HT_F8E4M3) == 312e12);
}

static void print__leaves_out_ceilings_that_nobody_gave(void **state)
{
    (void)state;
    ht_text text = {0};
    ht_target target = {.name = "cpu", .arch = "x86_64", .isa = HT_ISA_AVX2, .threads = 2};
    target.flops[HT_F32] = 2e11;
    ht_target_print(&text, &target);
    assert_non_null(strstr(text.data, "\"flops\": {\"f32\": 200000000000}"));
    assert_null(strstr(text.data, "f64"));
    assert_null(strstr(text.data, "bandwidth"));
    assert_null(strstr(text.data, "link"));
    ht_text_free(&text);
}

/* By what nobody gave a time is no bound: only of a processor that has neither FLOP/s nor bandwidth of its own. */
static void ceilings__are_given_or_of_a_data_sheet_or_assumed(void **state)
{
    (void)state;
    ht_target target = {.threads = 2};
    assert_int_equal(ht_target_ceilings(&target), HT_CEILINGS_ASSUMED);
    target.device = HT_DEVICE_CUDA;
    assert_int_equal(ht_target_ceilings(&target), HT_CEILINGS_DATA_SHEET);
    target.flops[HT_BF16] = 1e12;
    assert_int_equal(ht_target_ceilings(&target), HT_CEILINGS_DATA_SHEET);
    target.device = HT_DEVICE_CPU;
    assert_int_equal(ht_target_ceilings(&target), HT_CEILINGS_ASSUMED);
    target.bandwidth[HT_SPACE_MAIN] = 1e10;
    assert_int_equal(ht_target_ceilings(&target), HT_CEILINGS_GIVEN);
    for (size_t i = 0; i < ht_shipped_target_count; i++) {
        assert_int_equal(ht_target_read(&ctx, &target, ht_shipped_targets[i].name), HT_OK);
        assert_int_equal(ht_target_ceilings(&target), HT_CEILINGS_GIVEN);
    }
}

static void ceilings__are_there_for_every_target(void **state)
{
    (void)state;
    for (int device = 0; device < HT_DEVICE_KIND_COUNT; device++) {
        for (int isa = 0; isa < HT_ISA_COUNT; isa++) {
            ht_target target = {.device = (ht_device_kind)device, .isa = (ht_isa)isa, .threads = 2};
            for (int i = 0; i < HT_DTYPE_COUNT; i++) assert_true(ht_target_flops(&target, (ht_dtype)i) >= 1e9);
            for (int from = 0; from < HT_SPACE_COUNT; from++) {
                assert_true(ht_target_bandwidth(&target, (ht_space)from) >= 1e9);
                for (int to = 0; to < HT_SPACE_COUNT; to++)
                    assert_true(ht_target_link(&target, (ht_space)from, (ht_space)to) >= 1e9);
            }
        }
    }
}

static void ceilings__follow_the_machine_and_what_was_given(void **state)
{
    (void)state;
    ht_target target = {.isa = HT_ISA_AVX512, .threads = 2}, gpu = {.device = HT_DEVICE_CUDA};
    double f32 = ht_target_flops(&target, HT_F32);
    assert_true(f32 > 200e9 && f32 < 260e9); /* docs/performance.md: 228 GFLOP/s on two threads */
    assert_true(ht_target_flops(&target, HT_F64) == f32 / 2);
    assert_true(ht_target_flops(&target, HT_BF16) == f32);
    target.features = 1u << HT_FEATURE_AVX512_BF16;
    assert_true(ht_target_flops(&target, HT_BF16) == 2 * f32);
    target.features |= 1u << HT_FEATURE_AMX_BF16;
    assert_true(ht_target_flops(&target, HT_BF16) == 8 * f32);
    target.threads = 4;
    assert_true(ht_target_flops(&target, HT_F32) == 2 * f32);
    target.flops[HT_F32] = 7;
    assert_true(ht_target_flops(&target, HT_F32) == 7);
    assert_true(ht_target_flops(&gpu, HT_BF16) > ht_target_flops(&gpu, HT_F32));
    /* A machine of which only a data sheet is known has no type that is faster than those in it. */
    ht_target chip = {.isa = HT_ISA_PORTABLE, .threads = 1, .no_kernels = true, .flops = {[HT_I8] = 4e12}};
    assert_true(ht_target_flops(&chip, HT_F32) == 4e12 && ht_target_flops(&chip, HT_I8) == 4e12);
    /* How fast its memory is, nobody knows: no number of another machine stands in. */
    assert_true(isinf(ht_target_bandwidth(&chip, HT_SPACE_MAIN)));
    /* What it does not give is converted to what it gives, here to f16. */
    ht_target old = {.device = HT_DEVICE_CUDA, .flops = {[HT_F32] = 2e13, [HT_F16] = 3e14, [HT_I8] = 6e14}};
    assert_true(ht_target_flops(&old, HT_F8E4M3) == 3e14 && ht_target_flops(&old, HT_FORMAT_TF32) == 3e14);
    assert_true(ht_target_flops(&gpu, HT_FORMAT_TF32) > ht_target_flops(&gpu, HT_F32));
    /* A processor whose f32 is known has the others in proportion. */
    ht_target edge = {.isa = HT_ISA_PORTABLE, .threads = 4, .flops = {[HT_F32] = 1.5e11}};
    assert_true(ht_target_flops(&edge, HT_BF16) == 1.5e11 && ht_target_flops(&edge, HT_F64) == 0.75e11);
    assert_true(ht_target_link(&gpu, HT_SPACE_MAIN, HT_SPACE_HOST) < ht_target_bandwidth(&gpu, HT_SPACE_MAIN));
    gpu.bandwidth[HT_SPACE_HOST] = 3e9; /* a link is no faster than its ends */
    assert_true(ht_target_link(&gpu, HT_SPACE_MAIN, HT_SPACE_HOST) == 3e9);
    gpu.link[HT_SPACE_MAIN][HT_SPACE_HOST] = 4e9;
    assert_true(ht_target_link(&gpu, HT_SPACE_MAIN, HT_SPACE_HOST) == 4e9);
    assert_true(ht_target_link(&gpu, HT_SPACE_HOST, HT_SPACE_MAIN) == 3e9);
}

static void ceilings__are_read_from_the_file(void **state)
{
    (void)state;
    ht_target target;
    assert_int_equal(parse("{\"device\": \"cuda\", \"isa\": \"avx2\", \"arch\": \"x86_64\", \"threads\": 4,\n"
                           "\"flops\": {\"bf16\": 7e14}, \"bandwidth\": {\"main\": 3e12}, \"link\": "
                           "{\"main-host\": 5e10, \"host-disk\": 6e9}}",
                           &target),
                     HT_OK);
    assert_int_equal(target.device, HT_DEVICE_CUDA);
    assert_true(target.flops[HT_BF16] == 7e14 && target.flops[HT_F32] == 0);
    assert_true(target.bandwidth[HT_SPACE_MAIN] == 3e12 && target.bandwidth[HT_SPACE_HOST] == 0);
    assert_true(target.link[HT_SPACE_MAIN][HT_SPACE_HOST] == 5e10 && target.link[HT_SPACE_HOST][HT_SPACE_DISK] == 6e9);
    assert_true(target.link[HT_SPACE_HOST][HT_SPACE_MAIN] == 0);
    assert_refused("{\"device\": \"cude\"}", "node.json:1:12: there is no device \"cude\"; did you mean \"cuda\"?");
    assert_refused("{\"flops\": {\"bf61\": 1}}",
                   "node.json:1:20: there is no number type \"bf61\"; did you mean \"bf16\"?");
    assert_refused("{\"flops\": {\"f32\": 0}}", "node.json:1:19: \"f32\" must be FLOPs per second, more than 0");
    assert_refused("{\"bandwidth\": {\"main\": \"fast\"}}",
                   "node.json:1:24: \"main\" must be bytes per second, more than 0");
    assert_refused("{\"bandwidth\": {\"hots\": 1}}",
                   "node.json:1:24: there is no memory \"hots\"; did you mean \"host\"?");
    static const char *const links[] = {"main", "main-main", "main-", "-host", "main-host-disk"};
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        char text[64], message[160];
        snprintf(text, sizeof text, "{\"link\": {\"%s\": 1}}", links[i]);
        snprintf(message, sizeof message,
                 "node.json:1:%zu: \"%s\" is no link: two memories, as in \"main-host\" or \"host-disk\"",
                 strlen(links[i]) + 15, links[i]);
        assert_refused(text, message);
    }
}

static void versions__of_a_gpu_read_back(void **state)
{
    ht_target target;
    (void)state;
    assert_int_equal(parse("{\"device\": \"cuda\", \"arch\": \"x86_64\", \"isa\": \"portable\", \"threads\": 1, "
                           "\"libraries\": [\"cublaslt\"], \"versions\": {\"driver\": 13000, \"cublaslt\": 130100}}",
                           &target),
                     HT_OK);
    assert_int_equal(target.versions[HT_VERSION_DRIVER], 13000);
    assert_int_equal(target.versions[HT_VERSION_CUBLASLT], 130100);
    assert_int_equal(target.versions[HT_VERSION_CUDNN], 0);
    assert_reads_back(&target);
    assert_refused("{\"versions\": {\"driver\": 0}}", "node.json:1:25: versions.driver must be an integer above 0");
    assert_refused("{\"versions\": [13000]}", "node.json:1:14: versions is an array, not an object");
}

static void parse__takes_what_a_person_writes(void **state)
{
    (void)state;
    ht_target target;
    assert_int_equal(parse("{ // the small node\n\"isa\": \"avx2\", \"arch\": \"x86_64\", \"threads\": 4,\n"
                           "\"memory\": {\"main\": 8e9, \"disk\": 0,}, }",
                           &target),
                     HT_OK);
    ht_target want = {.name = "cpu", .arch = "x86_64", .isa = HT_ISA_AVX2, .threads = 4};
    want.memory_bytes[HT_SPACE_MAIN] = 8000000000;
    assert_same(&target, &want);
}

static void parse__names_file_line_and_nearest_key(void **state)
{
    (void)state;
    assert_refused("{\"arch\": \"x86_64\", \"isa\": \"avx2\",\n  \"thread\": 4}",
                   "node.json:2:13: a target has no key \"thread\"; did you mean \"threads\"?");
    assert_refused("{\"arch\": \"x86_64\",\n\"memory\": {\"hots\": 4}}",
                   "node.json:2:20: there is no memory \"hots\"; did you mean \"host\"?");
    assert_refused("{\"arch\": \"x86_64\",\n\"features\": [\"amx_bf8\"]}",
                   "node.json:2:14: there is no feature \"amx_bf8\"; did you mean \"amx_bf16\"?");
    assert_refused("{\"something_else\": 1}", "node.json:1:20: a target has no key \"something_else\"");
}

static void parse__says_what_is_missing(void **state)
{
    (void)state;
    assert_refused("{\"arch\": \"x86_64\", \"isa\": \"avx2\"}", "node.json:1:1: \"threads\" is missing");
    assert_refused("{}", "node.json:1:1: \"arch\" is missing");
    assert_refused("[]", "node.json:1:1: a target is an object, not an array");
}

static void parse__refuses_values_that_are_no_machine(void **state)
{
    (void)state;
    assert_refused("{\"arch\": \"x86_64\", \"isa\": \"avx2\", \"threads\": 1,\n\"features\": [\"amx_bf16\"]}",
                   "node.json:2:13: avx2 has no features, only avx512 has");
    assert_refused("{\"arch\": \"x86_64\",\n\"features\": [16]}",
                   "node.json:2:14: a feature is an integer, not a string");
    assert_refused("{\"threads\": 0}", "node.json:1:13: threads must be an integer from 1 to 65536");
    assert_refused("{\"threads\": 1.5}", "node.json:1:13: threads must be an integer from 1 to 65536");
    assert_refused("{\"threads\": 1e30}", "node.json:1:13: threads must be an integer from 1 to 65536");
    assert_refused("{\"isa\": \"sse9\"}", "node.json:1:9: isa \"sse9\" is none of portable, avx2, avx512");
    assert_refused("{\"isa\": 2}", "node.json:1:9: isa is an integer, not a string");
    assert_refused("{\"arch\": \"\"}", "node.json:1:10: arch must have 1 to 15 bytes");
    assert_refused("{\"arch\": \"x86_64\\u0000\"}", "node.json:1:10: arch must have 1 to 15 bytes");
    assert_refused("{\"arch\": \"a very long word for it\"}", "node.json:1:10: arch must have 1 to 15 bytes");
    assert_refused("{\"memory\": 5}", "node.json:1:12: memory is an integer, not an object");
    assert_refused("{\"memory\": {\"main\": -1}}", "node.json:1:21: memory.main must be bytes, 0 or more");
    assert_refused("{\"arch\": \"aarch64\", \"isa\": \"avx2\", \"threads\": 1}", "node.json:1:28: aarch64 has no avx2");
}

static void parse__refuses_what_is_no_json(void **state)
{
    (void)state;
    ht_target target;
    assert_int_equal(parse("", &target), HT_EPARSE);
    assert_int_equal(parse("{\"threads\": 1", &target), HT_EPARSE);
    assert_int_equal(parse("{\"threads\": 1, \"threads\": 2}", &target), HT_EPARSE);
    assert_non_null(strstr(ctx.message, "node.json:1:"));
}

static void assert_in_file(const char *path, const char *words)
{
    static char page[1 << 16];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    if (!strstr(page, words)) fail_msg("%s does not have \"%s\"", path, words);
}

/* A new row of base/isas.def goes into them. */
static void target__the_docs_name_every_isa_and_feature(void **state)
{
    (void)state;
    char choices[256] = "HALFTONE_ISA=", word[64];
    for (int i = 0; i < HT_ISA_COUNT; i++) {
        snprintf(word, sizeof word, "`%s`", ht_isa_name((ht_isa)i));
        assert_in_file(HT_TEST_DIR "/../docs/target.md", word);
        snprintf(word, sizeof word, "%s%s", i ? "|" : "", ht_isa_name((ht_isa)i));
        strncat(choices, word, sizeof choices - strlen(choices) - 1);
    }
    assert_in_file(HT_TEST_DIR "/../README.md", choices);
    for (int i = 0; i < HT_FEATURE_COUNT; i++) {
        snprintf(word, sizeof word, "`%s`", ht_feature_name((ht_feature)i));
        assert_in_file(HT_TEST_DIR "/../docs/target.md", word);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(here__has_the_contexts_isa_and_threads_and_some_memory),
        cmocka_unit_test(bind__takes_a_kind_and_which_of_it),
        cmocka_unit_test(print__reads_back),
        cmocka_unit_test(figures__read_back_with_their_sources),
        cmocka_unit_test(sources__name_figures_that_are_there),
        cmocka_unit_test(shipped__targets_parse_and_read_back),
        cmocka_unit_test(shipped__ceilings_of_a_gpu_are_those_of_its_data_sheet),
        cmocka_unit_test(print__leaves_out_ceilings_that_nobody_gave),
        cmocka_unit_test(ceilings__are_there_for_every_target),
        cmocka_unit_test(ceilings__are_given_or_of_a_data_sheet_or_assumed),
        cmocka_unit_test(ceilings__follow_the_machine_and_what_was_given),
        cmocka_unit_test(ceilings__are_read_from_the_file),
        cmocka_unit_test(versions__of_a_gpu_read_back),
        cmocka_unit_test(parse__takes_what_a_person_writes),
        cmocka_unit_test(parse__names_file_line_and_nearest_key),
        cmocka_unit_test(parse__says_what_is_missing),
        cmocka_unit_test(parse__refuses_values_that_are_no_machine),
        cmocka_unit_test(parse__refuses_what_is_no_json),
        cmocka_unit_test(target__the_docs_name_every_isa_and_feature),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
