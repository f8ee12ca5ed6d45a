/* Products of codes (matmul_q: u8 by prepacked i8, requantised to u8) against oneDNN's and our own f32 and bf16; and whole models whose
 * layers the pass `quantize` has turned into them, against themselves in f32 and against ONNX Runtime: gpt2 with dynamic scales of
 * activations, networks of convolutions with static ones; and translators of LSTM layers against themselves in f32. */
#include <math.h>
#include <string.h>

#include "contest.h"
#include "model/model.h"
#include "ours.h"
#include "peer.h"

typedef struct shape {
    int64_t m, n, k;
} shape;

/* As in bench_gemm. */
static const shape shapes[] = {
    {512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {256, 3072, 768}, {256, 768, 3072}, {512, 50257, 768},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* ---- products ---- */

static void build_codes(ours *o, ht_context *ctx, shape s, const char *target)
{
    ours_begin(o, ctx);
    o->target = target;
    ht_graph *g = o->graph;
    ht_type y = ht_type_make(HT_U8, 2, (int64_t[]){s.m, s.n});
    ht_val a = ht_input(g, "a", HT_U8, HT_DIMS(s.m, s.k)), w = ht_param(g, "w", HT_I8, HT_DIMS(s.k, s.n), HT_ZERO);
    ht_val a_scale = ht_param(g, "a_scale", HT_F32, 0, NULL, HT_CONSTANT(0.01));
    ht_val w_scale = ht_param(g, "w_scale", HT_F32, HT_DIMS(s.n), HT_ZERO);
    ht_val y_scale = ht_param(g, "y_scale", HT_F32, 0, NULL, HT_CONSTANT(0.1));
    ht_output(g, "y",
              ht_emit1(g, "matmul_q", &y, HT_VALS(a, w, a_scale, w_scale, HT_NONE, HT_NONE, y_scale), HT_NO_ATTRS));
    ours_ready(o);
    ours_fill(o, "a", 0, 255);
    ours_fill(o, "w", -127, 127);
}

static void build_floats(ours *o, ht_context *ctx, ht_dtype dtype, shape s)
{
    ours_begin(o, ctx);
    ht_val a = ht_input(o->graph, "a", dtype, HT_DIMS(s.m, s.k));
    ht_val b = ht_param(o->graph, "b", dtype, HT_DIMS(s.k, s.n), HT_ZERO);
    ht_output(o->graph, "y", ht_matmul(o->graph, a, b, NULL));
    ours_ready(o);
}

typedef struct tally {
    const char *name, *peer;
    double sum, worst;
    int count;
} tally;

enum { BY_ONEDNN, VNNI_BY_ONEDNN, BY_F32, VNNI_BY_F32, BY_BF16, TALLIES };
static tally tallies[TALLIES] = {
    [BY_ONEDNN] = {.name = "gemm_i8", .peer = "onednn"},
    [VNNI_BY_ONEDNN] = {.name = "gemm_i8_vnni", .peer = "onednn"},
    [BY_F32] = {.name = "gemm_i8", .peer = "halftone_f32"},
    [VNNI_BY_F32] = {.name = "gemm_i8_vnni", .peer = "halftone_f32"},
    [BY_BF16] = {.name = "gemm_i8", .peer = "halftone_bf16"},
};

static void tally_add(int which, const contest *c, const char *rest, int mine, int theirs)
{
    tally *t = &tallies[which];
    char name[64];
    snprintf(name, sizeof name, "%s_%s", t->name, rest);
    contest_row(c, name, mine, theirs, t->peer);
    double ratio = contest_value(c, mine) / contest_value(c, theirs);
    if (!(ratio > 0) || !isfinite(ratio)) return;
    t->sum += log(ratio);
    if (t->count++ == 0 || ratio < t->worst) t->worst = ratio;
}

static void measure_product(ht_context *ctx, peer *onednn, shape s, const char *only)
{
    static const char *const no_amx = "{\"arch\": \"x86_64\", \"isa\": \"avx512\", \"features\": [\"avx512_vnni\"], "
                                      "\"threads\": %d}";
    double flop = 2.0 * (double)s.m * (double)s.n * (double)s.k;
    char name[64], rest[48], target[128];
    snprintf(rest, sizeof rest, "%lldx%lldx%lld", (long long)s.m, (long long)s.n, (long long)s.k);
    snprintf(name, sizeof name, "gemm_i8_%s", rest);
    if (!strstr(name, only)) return;
    snprintf(target, sizeof target, no_amx, bench_threads());
    ours best, vnni, f32, bf16;
    build_codes(&best, ctx, s, NULL);
    build_codes(&vnni, ctx, s, target);
    build_floats(&f32, ctx, HT_F32, s);
    build_floats(&bf16, ctx, HT_BF16, s);
    peer_request request = {.peer = onednn};
    snprintf(request.text, sizeof request.text, "matmul u8s8u8 NN %lld %lld %lld", (long long)s.m, (long long)s.n,
             (long long)s.k);
    contest c = {.name = name, .unit = "GFLOP/s", .seconds = 3};
    int mine = contest_add(&c, "i8", ours_turn, &best, flop),
        mine_vnni = contest_add(&c, "i8_vnni", ours_turn, &vnni, flop);
    int mine_f32 = contest_add(&c, "f32", ours_turn, &f32, flop),
        mine_bf16 = contest_add(&c, "bf16", ours_turn, &bf16, flop);
    int theirs = contest_add(&c, "onednn", peer_turn, &request, flop);
    contest_run(&c);
    tally_add(BY_ONEDNN, &c, rest, mine, theirs);
    tally_add(VNNI_BY_ONEDNN, &c, rest, mine_vnni, theirs);
    tally_add(BY_F32, &c, rest, mine, mine_f32);
    tally_add(VNNI_BY_F32, &c, rest, mine_vnni, mine_f32);
    tally_add(BY_BF16, &c, rest, mine, mine_bf16);
    ours_end(&best);
    ours_end(&vnni);
    ours_end(&f32);
    ours_end(&bf16);
}

/* ---- models ---- */

static void must(const ht_context *ctx, ht_status status)
{
    if (status == HT_OK) return;
    fprintf(stderr, "%s\n", ht_context_message(ctx));
    exit(1);
}

/* The logits of a model, with one setting or none. */
static void build_model(ours *o, ht_context *ctx, ht_model_request request, const char *json,
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
    request.logits = true;
    *o = (ours){.run = "logits"};
    must(ctx, ht_model_create(&o->graph, ctx, &request));
    opts.settings = setting;
    opts.setting_count = setting != NULL;
    must(ctx, ht_plan_create(&o->plan, o->graph, &opts));
    must(ctx, ht_session_create(&o->session, o->plan, NULL));
    ht_fields_free(fields);
    ht_arena_free(arena);
}

/* The model in codes against f32 and the peer. */
static void compare(const char *name, ours *i8, ours *f32, peer *other, const char *request)
{
    peer_request ask = {.peer = other};
    snprintf(ask.text, sizeof ask.text, "%s", request);
    contest c = {.name = name, .unit = "ms", .seconds = 30};
    int mine = contest_add(&c, "i8", ours_turn, i8, 0), floats = contest_add(&c, "f32", ours_turn, f32, 0);
    int theirs = contest_add(&c, "onnxruntime_i8", peer_turn, &ask, 0);
    contest_run(&c);
    contest_row(&c, NULL, mine, floats, "halftone_f32");
    contest_row(&c, NULL, mine, theirs, "onnxruntime_i8");
    ours_end(i8);
    ours_end(f32);
}

/* gpt2 of 12 layers and width 768, the logits of 512 tokens. */
static void measure_gpt2(ht_context *ctx, peer *onnxruntime, const char *only)
{
    static const ht_train_setting dynamic = {"quantize", "dynamic"};
    ht_model_request request = {
        .model = ht_model_find("gpt2", NULL), .task = HT_TASK_LM, .batch = 1, .length = 512, .vocabulary = 50257};
    if (!strstr("gpt2_i8_dynamic", only)) return;
    int32_t tokens[512];
    ours f32, i8;
    build_model(&f32, ctx, request, "{}", NULL);
    build_model(&i8, ctx, request, "{}", &dynamic);
    for (int i = 0; i < 512; i++) tokens[i] = i * 7919 % 50257;
    must(ctx, ht_session_write(f32.session, "tokens", tokens, sizeof tokens));
    must(ctx, ht_session_write(i8.session, "tokens", tokens, sizeof tokens));
    compare("gpt2_i8_dynamic", &i8, &f32, onnxruntime, "gpt2 i8 12 12 768 512 50257");
}

/* What calibration would have found: for the time it takes any range will do. */
static void write_ranges(const ours *o, ht_context *ctx)
{
    const float scale = 0.05F;
    const int32_t zero = 0;
    for (size_t i = 0; i < o->graph->node_count; i++) {
        const ht_node *n = &o->graph->nodes[i];
        char name[256];
        if (!n->op || strcmp(n->op->name, "conv2d") != 0) continue;
        const char *weight = ht_value_of(o->graph, ht_node_in(o->graph, n, 1))->name;
        snprintf(name, sizeof name, "%s.in_scale", weight);
        if (ht_session_write(o->session, name, &scale, sizeof scale) != HT_OK) continue; /* another layer's serves it */
        snprintf(name, sizeof name, "%s.in_zero", weight);
        must(ctx, ht_session_write(o->session, name, &zero, sizeof zero));
    }
}

/* 224x224 pictures in 1,000 classes. */
static void measure_network(ht_context *ctx, peer *onnxruntime, const char *model, const char *label, int64_t batch,
                            const char *only)
{
    static const ht_train_setting fixed = {"quantize", "static"};
    char name[64], asked[64];
    ht_model_request request = {.model = ht_model_find(model, NULL),
                                .task = HT_TASK_CLASS,
                                .batch = batch,
                                .classes = 1000,
                                .feature_rank = 3,
                                .feature = {3, 224, 224}};
    snprintf(name, sizeof name, "%s_i8_static_b%lld", label, (long long)batch);
    snprintf(asked, sizeof asked, "%s i8 %lld", label, (long long)batch);
    if (!strstr(name, only)) return;
    ours f32, i8;
    build_model(&f32, ctx, request, "{}", NULL);
    build_model(&i8, ctx, request, "{}", &fixed);
    write_ranges(&i8, ctx);
    compare(name, &i8, &f32, onnxruntime, asked);
}

/* Logits of a translator of LSTM layers; there is no peer for them. */
static void measure_translator(ht_context *ctx, int64_t hidden, int64_t layers, int64_t batch, const char *only)
{
    static const ht_train_setting dynamic = {"quantize", "dynamic"};
    enum { LENGTH = 24, WORDS = 8000 };
    char name[64], json[64];
    ht_model_request request = {.model = ht_model_find("seq2seq", NULL),
                                .task = HT_TASK_PAIRS,
                                .batch = batch,
                                .length = LENGTH,
                                .source_length = LENGTH,
                                .vocabulary = WORDS,
                                .source_vocabulary = WORDS};
    snprintf(name, sizeof name, "translator_%lldx%lld_i8_dynamic_b%lld", (long long)layers, (long long)hidden,
             (long long)batch);
    snprintf(json, sizeof json, "{\"hidden\": %lld, \"layers\": %lld}", (long long)hidden, (long long)layers);
    if (!strstr(name, only)) return;
    ours f32, i8;
    build_model(&f32, ctx, request, json, NULL);
    build_model(&i8, ctx, request, json, &dynamic);
    contest c = {.name = name, .unit = "ms", .seconds = 10};
    int mine = contest_add(&c, "i8", ours_turn, &i8, 0), floats = contest_add(&c, "f32", ours_turn, &f32, 0);
    contest_run(&c);
    contest_row(&c, NULL, mine, floats, "halftone_f32");
    ours_end(&i8);
    ours_end(&f32);
}

static void measure_translators(ht_context *ctx, const char *only)
{
    static const int64_t sizes[][2] = {{256, 1}, {256, 2}, {1024, 3}}, batches[] = {1, 8, 32};
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++) measure_translator(ctx, sizes[i][0], sizes[i][1], batches[k], only);
}

static void measure_models(ht_context *ctx, const char *only)
{
    peer *onnxruntime = peer_start("onnxruntime");
    measure_gpt2(ctx, onnxruntime, only);
    measure_network(ctx, onnxruntime, "resnet", "resnet18", 1, only);
    measure_network(ctx, onnxruntime, "resnet", "resnet18", 8, only);
    measure_network(ctx, onnxruntime, "mobilenet_v2", "mobilenet_v2", 1, only);
    measure_network(ctx, onnxruntime, "mobilenet_v2", "mobilenet_v2", 8, only);
    peer_stop(onnxruntime);
}

/* bench_int8 [PART]: only the rows whose names contain it (gemm_i8_512x512x512, gpt2_i8_dynamic, resnet18_i8_static_b1). */
int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : "";
    ht_context *ctx = ours_context();
    peer *onednn = peer_start("onednn");
    for (int i = 0; i < SHAPES; i++) measure_product(ctx, onednn, shapes[i], only);
    for (int i = 0; i < TALLIES; i++)
        if (tallies[i].count)
            printf("  %s against %s: geometric mean %.2f, worst %.2f of %d\n", tallies[i].name, tallies[i].peer,
                   exp(tallies[i].sum / tallies[i].count), tallies[i].worst, tallies[i].count);
    peer_stop(onednn);
    measure_translators(ctx, only);
    measure_models(ctx, only);
    ht_context_free(ctx);
    return 0;
}
