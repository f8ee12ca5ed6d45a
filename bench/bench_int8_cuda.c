/* Layers in 8 bits on a GPU: products as layers have them, floats in and out with codes made of each row on the way (dynamic), and
 * with codes that are there (static), against those of bf16 and f32; and the loss of gpt2. Nothing is copied to or from the GPU.
 * Without one it says so and ends. */
#include <math.h>
#include <string.h>

#include "contest.h"
#include "device/device.h"
#include "model/model.h"
#include "ours.h"

typedef struct shape {
    int64_t m, n, k;
    bool tb; /* w is [n, k], as most models store it */
} shape;

static const shape shapes[] = {
    {16384, 2304, 768, false}, {16384, 3072, 768, false}, {16384, 768, 3072, false},
    {16384, 3072, 768, true},  {4096, 4096, 4096, true},  {8192, 8192, 8192, true},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void must(const ht_context *ctx, ht_status status)
{
    if (status == HT_OK) return;
    fprintf(stderr, "%s\n", ht_context_message(ctx));
    exit(1);
}

/* ---- products ---- */

static ht_val state(ht_graph *g, const char *name, ht_dtype dtype, int rank, const int64_t *dims)
{
    return ht_state_add(g, name, dtype, rank, dims, HT_ZERO);
}

static ht_val weight(ht_graph *g, ht_dtype dtype, const shape *s)
{
    const int64_t dims[2] = {s->tb ? s->n : s->k, s->tb ? s->k : s->n};
    return state(g, "w", dtype, 2, dims);
}

static void build_codes(ours *o, ht_context *ctx, const shape *s, const char *target, bool fixed)
{
    ours_begin(o, ctx);
    o->target = target;
    ht_graph *g = o->graph;
    const int64_t x_dims[2] = {s->m, s->k}, y_dims[2] = {s->m, s->n};
    ht_type made[3] = {ht_type_make(HT_U8, 2, x_dims), ht_type_make(HT_F32, 1, x_dims),
                       ht_type_make(HT_I32, 1, x_dims)};
    ht_type y = ht_type_make(HT_F32, 2, y_dims);
    ht_val w = weight(g, HT_I8, s), w_scale = state(g, "w_scale", HT_F32, 1, &s->n), codes[3];
    if (fixed) {
        codes[0] = state(g, "codes", HT_U8, 2, x_dims);
        codes[1] = ht_state_add(g, "x_scale", HT_F32, 0, NULL, HT_CONSTANT(0.01));
        codes[2] = HT_NONE;
    } else {
        const int64_t axes[1] = {1};
        ht_val x = state(g, "x", HT_F32, 2, x_dims);
        ht_emit_n(g, "quantize_dynamic", made, HT_VALS(x), HT_ATTRS(HT_INTS("axes", 1, axes)), codes);
    }
    ht_val result =
        ht_emit1(g, "matmul_q", &y, HT_VALS(codes[0], w, codes[1], w_scale, codes[2]), HT_ATTRS(HT_INT("tb", s->tb)));
    ht_val kept = state(g, "y", HT_F32, 2, y_dims);
    ht_store(g, kept, result);
    if (!ours_ready(o)) return;
    ours_fill(o, "w", -127, 127);
    if (fixed) ours_fill(o, "codes", 0, 255);
}

static void build_floats(ours *o, ht_context *ctx, const shape *s, const char *target, ht_dtype dtype)
{
    ours_begin(o, ctx);
    o->target = target;
    ht_graph *g = o->graph;
    const int64_t x_dims[2] = {s->m, s->k}, y_dims[2] = {s->m, s->n};
    ht_val x = state(g, "x", dtype, 2, x_dims), w = weight(g, dtype, s);
    ht_val kept = state(g, "y", dtype, 2, y_dims);
    ht_matmul_opts opts = {.size = sizeof opts, .transpose_b = s->tb};
    ht_store(g, kept, ht_matmul(g, x, w, &opts));
    ours_ready(o);
}

static void measure_product(ht_context *ctx, const shape *s, const char *target, const char *only)
{
    char name[64];
    double flop = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    snprintf(name, sizeof name, "gpu_i8_%lldx%lldx%lld_%s", (long long)s->m, (long long)s->n, (long long)s->k,
             s->tb ? "nt" : "nn");
    if (!strstr(name, only)) return;
    ours dynamic, fixed, bf16, f32;
    build_codes(&dynamic, ctx, s, target, false);
    build_codes(&fixed, ctx, s, target, true);
    build_floats(&bf16, ctx, s, target, HT_BF16);
    build_floats(&f32, ctx, s, target, HT_F32);
    contest c = {.name = name, .unit = "GFLOP/s", .seconds = 1};
    int codes = contest_add(&c, "i8", ours_turn, &dynamic, flop),
        given = contest_add(&c, "i8_given", ours_turn, &fixed, flop),
        half = contest_add(&c, "bf16", ours_turn, &bf16, flop), floats = contest_add(&c, "f32", ours_turn, &f32, flop);
    contest_run(&c);
    contest_row(&c, NULL, codes, floats, "halftone_f32");
    contest_row(&c, NULL, codes, half, "halftone_bf16");
    contest_row(&c, NULL, given, half, "halftone_bf16");
    ours_end(&dynamic);
    ours_end(&fixed);
    ours_end(&bf16);
    ours_end(&f32);
}

/* ---- gpt2 ---- */

static void build_model(ours *o, ht_context *ctx, ht_model_request request, const char *json, const char *target,
                        const ht_train_setting *setting)
{
    ht_arena *arena = ht_arena_create();
    ht_fields *fields = NULL;
    const ht_json *object;
    ht_plan_opts opts = HT_PLAN_OPTS;
    if (!arena) exit(1);
    must(ctx, ht_json_parse(ctx, arena, "bench", json, strlen(json), &object));
    must(ctx, ht_fields_read(&fields, ctx, request.model->keys, "model", object));
    request.fields = fields;
    *o = (ours){.run = "eval"};
    must(ctx, ht_model_create(&o->graph, ctx, &request));
    opts.target = target;
    opts.settings = setting;
    opts.setting_count = setting != NULL;
    must(ctx, ht_plan_create(&o->plan, o->graph, &opts));
    must(ctx, ht_session_create(&o->session, o->plan, NULL));
    ht_fields_free(fields);
    ht_arena_free(arena);
}

static void measure_gpt2(ht_context *ctx, const char *target, bool small, const char *only)
{
    static const ht_train_setting dynamic = {"quantize", "dynamic"}, half = {"precision", "bf16"};
    const char *json = small ? "{\"n_layer\": 1, \"n_head\": 2, \"n_embd\": 32}" : "{}";
    ht_model_request request = {.model = ht_model_find("gpt2", NULL),
                                .task = HT_TASK_LM,
                                .batch = small ? 1 : 8,
                                .length = small ? 16 : 1024,
                                .vocabulary = small ? 64 : 50304};
    if (!strstr("gpu_gpt2_i8_dynamic", only)) return;
    ours i8, bf16, f32;
    build_model(&i8, ctx, request, json, target, &dynamic);
    build_model(&bf16, ctx, request, json, target, &half);
    build_model(&f32, ctx, request, json, target, NULL);
    contest c = {.name = "gpu_gpt2_i8_dynamic", .unit = "ms", .seconds = small ? 0.1 : 4};
    int codes = contest_add(&c, "i8", ours_turn, &i8, 0), floats = contest_add(&c, "f32", ours_turn, &f32, 0),
        halves = contest_add(&c, "bf16", ours_turn, &bf16, 0);
    contest_run(&c);
    contest_row(&c, NULL, codes, floats, "halftone_f32");
    contest_row(&c, NULL, codes, halves, "halftone_bf16");
    ours_end(&i8);
    ours_end(&bf16);
    ours_end(&f32);
}

/* bench_int8_cuda [PART]: only the rows whose names contain it. BENCH_SMALL: one small product and a small model, to see that all
 * of it runs. */
int main(int argc, char **argv)
{
    static const shape least = {64, 64, 64, false};
    const char *only = argc > 1 ? argv[1] : "";
    bool small = getenv("BENCH_SMALL") != NULL;
    ht_context *ctx = ours_context();
    ht_device *device;
    ht_target target;
    ht_text text = {0};
    if (ht_device_get(&device, ctx, "cuda") != HT_OK) {
        printf("no GPU: %s\n", ht_context_message(ctx));
        ht_context_free(ctx);
        return 0;
    }
    ht_target_here(ctx, &target);
    must(ctx, ht_target_bind(ctx, &target, "cuda"));
    ht_device_describe(ctx, &target);
    ht_target_print(&text, &target);
    for (int i = 0; i < SHAPES && !small; i++) measure_product(ctx, &shapes[i], text.data, only);
    if (small) measure_product(ctx, &least, text.data, only);
    measure_gpt2(ctx, text.data, small, only);
    ht_text_free(&text);
    ht_context_free(ctx);
    return 0;
}
