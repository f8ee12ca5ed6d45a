#include "trainee.h"

#include <string.h>

#include "bench_common.h"

static void must(const ht_context *ctx, ht_status status)
{
    if (status == HT_OK) return;
    fprintf(stderr, "%s\n", ht_context_message(ctx));
    exit(1);
}

/* ---- start ---- */

static int64_t largest(const ht_model_request *r, const char *input)
{
    if (strcmp(input, "source") == 0) return r->source_vocabulary;
    if (strcmp(input, "label") == 0) return r->classes;
    return r->vocabulary;
}

static void write_inputs(trainee *t)
{
    uint32_t rng = 1;
    for (size_t i = 0; i < t->ours.plan->slot_count; i++) {
        const ht_slot *slot = &t->ours.plan->slots[i];
        if (slot->kind != HT_SLOT_INPUT || slot->type.rank == 0) continue;
        if (ht_dtype_is_float(slot->type.dtype)) {
            ours_fill(&t->ours, slot->name, -1, 1);
            continue;
        }
        int64_t n = ht_type_elems(&slot->type), below = largest(&t->request, slot->name);
        bool length = strcmp(slot->name, "source_length") == 0;
        double *data = malloc((size_t)n * sizeof *data);
        if (!data) exit(1);
        for (int64_t k = 0; k < n; k++) {
            rng = rng * 1664525u + 1013904223u;
            data[k] = length ? (double)t->request.source_length : (double)((rng >> 8) % (uint32_t)below);
        }
        ht_session_write_f64(t->ours.session, slot->name, data, (size_t)n);
        free(data);
    }
}

void trainee_plan(trainee *t, ht_context *ctx)
{
    const ht_json *object;
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.optimizer = t->optimizer;
    opts.lr = 1e-4;
    if (strcmp(t->optimizer, "sgd") == 0) opts.momentum = 0.9;
    t->arena = ht_arena_create();
    if (!t->arena) exit(1);
    t->request.model = ht_model_find(t->type, NULL);
    t->request.training = true;
    must(ctx, ht_json_parse(ctx, t->arena, "bench", t->json, strlen(t->json), &object));
    must(ctx, ht_fields_read(&t->fields, ctx, t->request.model->keys, "model", object));
    t->request.fields = t->fields;
    t->ours = (ours){.run = "train"};
    must(ctx, ht_model_create(&t->ours.graph, ctx, &t->request));
    must(ctx, ht_graph_train(t->ours.graph, &opts));
    ht_plan_opts plan_opts = HT_PLAN_OPTS;
    plan_opts.precision = t->precision;
    plan_opts.target = t->target;
    plan_opts.settings = t->settings;
    plan_opts.setting_count = t->setting_count;
    must(ctx, ht_plan_create(&t->ours.plan, t->ours.graph, &plan_opts));
    /* As a trainer does: once there is a plan, nobody needs the graph. */
    ht_graph_free(t->ours.graph);
    t->ours.graph = NULL;
}

void trainee_start(trainee *t, ht_context *ctx)
{
    trainee_plan(t, ctx);
    must(ctx, ht_session_create(&t->ours.session, t->ours.plan, t->session));
    /* The loss is a sum; its weight makes it the mean. */
    double loss_grad = 1.0 / (double)(t->request.batch * (t->request.length ? t->request.length : 1));
    must(ctx, ht_session_write_f64(t->ours.session, "loss_grad", &loss_grad, 1));
    write_inputs(t);
}

void trainee_stop(trainee *t)
{
    ours_end(&t->ours);
    ht_fields_free(t->fields);
    ht_arena_free(t->arena);
    t->fields = NULL;
    t->arena = NULL;
}

/* ---- profile ---- */

enum { ROUNDS = 31, SHOWN = 64 };

typedef struct line {
    const ht_instr *instr;
    _Atomic int64_t nanoseconds; /* of this round: pieces of a row block run in several threads */
    double seconds[ROUNDS], median;
} line;

typedef struct sheet {
    const ht_plan *plan;
    line **of_segment; /* its first line; NULL: not part of the step */
    line *lines;
    size_t count;
    int threads;
} sheet;

static void open_sheet(sheet *s, const ht_plan *plan, int threads)
{
    const ht_plan_program *program = &plan->programs[ht_plan_program_find(plan, "train")];
    size_t count = 0;
    for (size_t i = 0; i < plan->segment_count; i++) count += plan->segments[i].instr_count;
    *s = (sheet){.plan = plan, .threads = threads};
    s->of_segment = calloc(plan->segment_count, sizeof *s->of_segment);
    s->lines = calloc(count, sizeof *s->lines);
    if (!s->of_segment || !s->lines) exit(1);
    for (size_t c = 0; c < program->call_count; c++) {
        const ht_plan_segment *segment = &plan->segments[program->calls[c].segment];
        if (s->of_segment[program->calls[c].segment]) continue;
        s->of_segment[program->calls[c].segment] = &s->lines[s->count];
        for (size_t i = 0; i < segment->instr_count; i++) s->lines[s->count++].instr = &segment->instrs[i];
    }
}

static _Thread_local double started;

static void before(void *arg, const ht_observation *at)
{
    (void)arg;
    if (!at->row_block) started = bench_now();
}

/* Pieces of a row block share the time of their threads. */
static void after(void *arg, const ht_observation *at)
{
    sheet *s = arg;
    if (at->row_block) return;
    double seconds = (bench_now() - started) / (at->end_row ? s->threads : 1);
    line *lines = s->of_segment[at->segment - s->plan->segments];
    if (lines) lines[at->instr - at->segment->instrs].nanoseconds += (int64_t)(seconds * 1e9);
}

static int by_median(const void *a, const void *b)
{
    double x = ((const line *)a)->median, y = ((const line *)b)->median;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void print_kernels(const sheet *s, double total)
{
    bool *done = calloc(s->count, sizeof *done);
    if (!done) exit(1);
    for (;;) {
        const char *best = NULL;
        double most = 0;
        int calls = 0;
        for (size_t i = 0; i < s->count; i++) {
            double sum = 0;
            int n = 0;
            if (done[i]) continue;
            for (size_t k = 0; k < s->count; k++) {
                if (done[k] || strcmp(s->lines[k].instr->kernel->name, s->lines[i].instr->kernel->name) != 0) continue;
                sum += s->lines[k].median;
                n++;
            }
            if (sum > most || !best) {
                most = sum;
                calls = n;
                best = s->lines[i].instr->kernel->name;
            }
        }
        if (!best) break;
        printf("  %8.3f ms %5.1f %%  %4d × %s\n", most * 1e3, 100 * most / total, calls, best);
        for (size_t i = 0; i < s->count; i++)
            if (strcmp(s->lines[i].instr->kernel->name, best) == 0) done[i] = true;
    }
    free(done);
}

static void print_types(const ht_instr *instr)
{
    ht_type_text text;
    for (size_t i = 0; i < instr->call->n_in; i++)
        if (instr->call->in[i]) printf(" %s", ht_type_str(instr->call->in[i], &text));
    printf(" →");
    for (size_t i = 0; i < instr->call->n_out; i++)
        if (instr->call->out[i]) printf(" %s", ht_type_str(instr->call->out[i], &text));
}

static void print_lines(const sheet *s)
{
    for (size_t i = 0; i < s->count && i < SHOWN; i++) {
        const line *l = &s->lines[i];
        double flops = ht_cost_flops(l->instr->cost);
        printf("  %8.3f ms  %6.1f GFLOP/s  %s", l->median * 1e3, l->median > 0 ? flops / l->median / 1e9 : 0,
               l->instr->kernel->name);
        print_types(l->instr);
        printf("  %s\n", l->instr->site ? l->instr->site : "");
    }
}

void trainee_profile(trainee *t, ht_context *ctx, int rounds)
{
    sheet s;
    double total = 0;
    const ht_plan *plan = t->ours.plan;
    ht_executor *executor = t->ours.session->executor;
    if (rounds > ROUNDS) rounds = ROUNDS;
    open_sheet(&s, plan, ht_pool_threads(ctx->pool));
    must(ctx, ht_session_run(t->ours.session, "train"));
    must(ctx, ht_executor_observe(executor, &(ht_observer){&s, before, after, NULL}));
    for (int r = 0; r < rounds; r++) {
        for (size_t i = 0; i < s.count; i++) s.lines[i].nanoseconds = 0;
        must(ctx, ht_session_run(t->ours.session, "train"));
        for (size_t i = 0; i < s.count; i++) s.lines[i].seconds[r] = 1e-9 * (double)s.lines[i].nanoseconds;
    }
    must(ctx, ht_executor_observe(executor, NULL));
    for (size_t i = 0; i < s.count; i++) total += s.lines[i].median = bench_median(s.lines[i].seconds, rounds);
    printf("%s: %zu instructions, %.3f ms, plan of %.1f MB\n", t->name, s.count, total * 1e3,
           (double)ht_plan_bytes(plan) / 1e6);
    print_kernels(&s, total);
    qsort(s.lines, s.count, sizeof *s.lines, by_median);
    print_lines(&s);
    free(s.lines);
    free(s.of_segment);
}
