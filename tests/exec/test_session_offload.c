/* Sessions whose optimiser's state lies elsewhere: loss, parameters, moments and all other state have the bits of a
 * session that keeps everything in main, and main has the fewer bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/executor_own.h"
#include "folder_fixture.h"
#include "session_fixture.h"

enum { BATCH = 4, WIDTH = 6, CLASSES = 3, MOST_STEPS = 50 };

/* Biases and a norm are read as the masters that they are; sizes are no multiples of a tile. */
static const char network[] = "state %w f32[6,70] heading=parameters init=normal(0,0.5) trained\n"
                              "state %b f32[70] heading=parameters init=constant(0.1) trained\n"
                              "state %s f32[70] heading=parameters init=constant(1) trained\n"
                              "state %v f32[70,3] heading=parameters init=uniform(-1,1) trained\n"
                              "state %c f32[3] heading=parameters trained\n"
                              "state %seen f32[] heading=statistics init=constant(1)\n"
                              "segment forward (%x f32[4,6], %label i32[4]) -> (loss=%loss) {\n"
                              "  %h = matmul f32[4,70] (%x, %w)\n"
                              "  %bb = expand f32[4,70] (%b)\n"
                              "  %p = add f32[4,70] (%h, %bb)\n"
                              "  %a = tanh f32[4,70] (%p)\n"
                              "  %ss = expand f32[4,70] (%s)\n"
                              "  %as = mul f32[4,70] (%a, %ss)\n"
                              "  %y0 = matmul f32[4,3] (%as, %v)\n"
                              "  %cc = expand f32[4,3] (%c)\n"
                              "  %y = add f32[4,3] (%y0, %cc)\n"
                              "  %loss, %lse = cross_entropy f32[], f32[4] (%y, %label)\n"
                              "  %n = add f32[] (%seen, %loss)\n"
                              "  store %seen = %n\n"
                              "}\n";

/* A way to train, and one to plan it with. */
typedef struct offload_case {
    const char *what, *optimizer, *precision;
    double momentum, clip;
    int accumulate, steps;
    ht_train_setting training[4], planning[4];
} offload_case;

static const offload_case cases[] = {
    {"adamw in fp32, clipped", "adamw", "fp32", 0, 0.5, 1, 10, {{0}}, {{0}}},
    {"adamw in bf16, accumulated", "adamw", "bf16", 0, 1, 3, 10, {{0}}, {{0}}},
    {"adamw in fp16 with overflows",
     "adamw",
     "fp16",
     0,
     1,
     1,
     25,
     {{"loss_scale", "dynamic"}, {"scale_power", "30"}, {"scale_window", "5"}},
     {{0}}},
    {"sgd with momentum", "sgd", "bf16", 0.9, 0, 1, 10, {{0}}, {{0}}},
    {"sgd without momentum", "sgd", "fp16", 0, 0, 1, 10, {{0}}, {{0}}},
    {"lion", "lion", "bf16", 0, 0, 1, 10, {{0}}, {{0}}},
    {"lion, accumulated and clipped", "lion", "fp32", 0, 0.3, 3, 10, {{0}}, {{0}}},
    {"adagrad with an accumulator", "adagrad", "bf16", 0, 0, 1, 10, {{"initial_accumulator", "0.1"}}, {{0}}},
    {"lamb", "lamb", "bf16", 0, 0.5, 1, 10, {{0}}, {{0}}},
    {"muon", "muon", "bf16", 0.9, 0, 1, 10, {{0}}, {{0}}},
    {"half moments", "adamw", "bf16", 0, 0, 1, 10, {{0}}, {{"moments", "half"}}},
    {"parameters in half", "adamw", "bf16", 0, 0, 1, 10, {{0}}, {{"masters", "0"}}},
    {"parameters in half that round by chance",
     "adamw",
     "bf16",
     0,
     0,
     1,
     10,
     {{0}},
     {{"masters", "0"}, {"rounding", "stochastic"}}},
    {"half gradients", "adamw", "bf16", 0, 1, 3, 10, {{0}}, {{"gradients", "half"}}},
    {"matrices alone decay", "adamw", "bf16", 0, 1, 1, 10, {{"decay", "matrices"}, {"weight_decay", "0.1"}}, {{0}}},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static size_t count_settings(const ht_train_setting *settings)
{
    size_t count = 0;
    while (count < 4 && settings[count].key) count++;
    return count;
}

static ht_status fill_batch(void *arg, ht_session *s, int64_t index)
{
    int step = *(const int *)arg;
    double x[BATCH * WIDTH], label[BATCH];
    for (int i = 0; i < BATCH * WIDTH; i++) x[i] = 0.25 * ((i * 7 + step * 3 + (int)index * 5) % 11) - 1;
    for (int i = 0; i < BATCH; i++) label[i] = (i + step + (int)index) % CLASSES;
    HT_TRY(ht_session_write_f64(s, "x", x, BATCH * WIDTH));
    return ht_session_write_f64(s, "label", label, BATCH);
}

typedef struct trained {
    session_fixture f;
    double loss[MOST_STEPS];
    int skipped;
} trained;

static const char *ratio = "1", *params = "none", *persistent = "100", *activations = "none", *recompute = "marked",
                  *ahead = "1", *gradients = "none", *width = "70";

/* The network with `width` columns instead of 70. */
static void network_text(ht_text *out)
{
    for (const char *at = network; *at;) {
        bool columns = strncmp(at, "70", 2) == 0;
        ht_text_add(out, "%.*s", columns ? (int)strlen(width) : 1, columns ? width : at);
        at += columns ? 2 : 1;
    }
}

/* `where`: NULL, "host" or "disk"; `tile`: elements. */
static trained open_training(const offload_case *c, const char *device, const char *where, const char *tile)
{
    trained t = {.f = {.ctx = context_create(2, NULL)}};
    ht_train_opts training = HT_TRAIN_OPTS;
    ht_plan_opts planning = HT_PLAN_OPTS;
    ht_train_setting settings[16];
    training.optimizer = c->optimizer;
    training.accumulate = c->accumulate;
    training.momentum = c->momentum;
    training.clip = c->clip;
    training.lr = 0.02;
    training.settings = c->training;
    training.setting_count = count_settings(c->training);
    memcpy(settings, c->planning, sizeof c->planning);
    planning.setting_count = count_settings(c->planning);
    if (where) settings[planning.setting_count++] = (ht_train_setting){"offload_optimizer", where};
    if (where) settings[planning.setting_count++] = (ht_train_setting){"offload_tile", tile};
    if (where) settings[planning.setting_count++] = (ht_train_setting){"offload_ratio", ratio};
    if (where) settings[planning.setting_count++] = (ht_train_setting){"offload_param", params};
    if (where) settings[planning.setting_count++] = (ht_train_setting){"offload_persistent", persistent};
    if (where) settings[planning.setting_count++] = (ht_train_setting){"offload_gradients", gradients};
    if (where) settings[planning.setting_count++] = (ht_train_setting){"offload_activations", activations};
    if (where) settings[planning.setting_count++] = (ht_train_setting){"offload_activation_bytes", "16"};
    if (where) settings[planning.setting_count++] = (ht_train_setting){"offload_ahead", ahead};
    if (where) settings[planning.setting_count++] = (ht_train_setting){"recompute", recompute};
    planning.settings = settings;
    planning.precision = c->precision;
    planning.device = device;
    planning.canaries = true;
    ht_text text = {0};
    network_text(&text);
    must(&t.f, ht_graph_parse(&t.f.g, t.f.ctx, "text", text.data, text.length));
    ht_text_free(&text);
    must(&t.f, ht_graph_train(t.f.g, &training));
    ht_session_opts opts = HT_SESSION_OPTS;
    opts.seed = 7;
    opts.disk_folder = test_folder;
    must(&t.f, ht_plan_create(&t.f.plan, t.f.g, &planning));
    must(&t.f, ht_session_create(&t.f.s, t.f.plan, &opts));
    return t;
}

static trained train(const offload_case *c, const char *device, const char *where, const char *tile, int steps)
{
    trained t = open_training(c, device, where, tile);
    for (int step = 0; step < steps; step++) {
        double applied;
        must(&t.f, ht_session_run_batches(t.f.s, "train", fill_batch, &step));
        must(&t.f, ht_session_read_f64(t.f.s, "loss", &t.loss[step], 1));
        must(&t.f, ht_session_read_f64(t.f.s, "applied_now", &applied, 1));
        t.skipped += applied == 0;
    }
    return t;
}

/* Every state of the one session has the bits that it has in the other. */
static void compare_states(const trained *kept, const trained *moved, const char *what)
{
    for (size_t i = 0; i < kept->f.plan->slot_count; i++) {
        const ht_slot *slot = &kept->f.plan->slots[i];
        size_t bytes = (size_t)ht_type_bytes(&slot->type);
        if (slot->kind != HT_SLOT_STATE || strncmp(slot->name, "flat.", 5) == 0) continue; /* tensors, not groups */
        char *a = malloc(bytes + 1), *b = malloc(bytes + 1);
        must(&kept->f, ht_session_read(kept->f.s, slot->name, a, bytes));
        must(&moved->f, ht_session_read(moved->f.s, slot->name, b, bytes));
        if (memcmp(a, b, bytes) != 0) fail_msg("%s: %s has other bits", what, slot->name);
        free(a);
        free(b);
    }
}

static void compare(const offload_case *c, const char *device, const char *where, const char *tile)
{
    int steps = getenv("HALFTONE_LONG") ? MOST_STEPS : c->steps;
    trained kept = train(c, device, NULL, NULL, steps), moved = train(c, device, where, tile, steps);
    assert_memory_equal(kept.loss, moved.loss, sizeof kept.loss);
    assert_int_equal(kept.skipped, moved.skipped);
    compare_states(&kept, &moved, c->what);
    if (kept.loss[0] == kept.loss[steps - 1]) fail_msg("%s: nothing was learned", c->what);
    if (strstr(c->what, "overflows") && kept.skipped == 0) fail_msg("no step was skipped");
    session_end(&kept.f);
    session_end(&moved.f);
}

/* Queues of the device, of the host and for copies, with other delays each time. */
static void state_in_host_memory__has_the_bits_of_main(void **state)
{
    (void)state;
    static const char *const tiles[] = {"64", "0", "16", "300"};
    int seeds = getenv("HALFTONE_LONG") ? 5 : 1;
    for (int i = 0; i < seeds * CASES; i++) {
        char seed[16];
        snprintf(seed, sizeof seed, "%d", i);
        setenv("HALFTONE_FAKE_SEED", seed, 1);
        compare(&cases[i % CASES], "fake", "host", tiles[i % 4]);
    }
}

/* Tiles are read and written beside the computation, of a processor and beside an accelerator. */
static void state_on_a_disk__has_the_bits_of_main(void **state)
{
    (void)state;
    static const char *const tiles[] = {"64", "0", "16", "300"}, *const devices[] = {"cpu", "fake"};
    int seeds = getenv("HALFTONE_LONG") ? 5 : 2;
    for (int i = 0; i < seeds * CASES; i++) {
        char seed[16];
        snprintf(seed, sizeof seed, "%d", i + 1);
        setenv("HALFTONE_FAKE_SEED", seed, 1);
        setenv("HALFTONE_DISK_SEED", seed, 1);
        ratio = i % 5 == 4 ? "0.4" : "1";
        compare(&cases[i % CASES], devices[i / CASES % 2], "disk", tiles[i % 4]);
    }
    unsetenv("HALFTONE_DISK_SEED");
    ratio = "1";
}

/* Steps of one batch, one after the other; nobody waits between them but for a look at something now and then. */
static void train_without_waits(trained *t, const offload_case *c, int steps, bool looks)
{
    const ht_plan *plan = t->f.plan;
    size_t first = (size_t)ht_plan_segment_find(plan, "micro_first"),
           more = (size_t)ht_plan_segment_find(plan, "micro");
    size_t update = (size_t)ht_plan_segment_find(plan, "update");
    must(&t->f, fill_batch(&(int){0}, t->f.s, 0));
    for (int step = 0; step < steps; step++) {
        double value[210];
        for (int i = 0; i < c->accumulate; i++) must(&t->f, ht_session_start_segment(t->f.s, i ? more : first, 0));
        must(&t->f, ht_session_start_segment(t->f.s, update, 0));
        if (looks && step % 4 == 1) must(&t->f, ht_session_read_f64(t->f.s, "v", value, 210));
        if (looks && step % 4 == 2) must(&t->f, ht_session_write_f64(t->f.s, "c", (double[]){1, 2, 0.5 * step}, 3));
        if (looks && step % 4 == 3) must(&t->f, ht_session_read_f64(t->f.s, "applied", value, 1));
    }
    must(&t->f, ht_session_wait(t->f.s));
}

/* What a run reads after each step: single numbers, which must not wait for the last tiles. */
static void fetch_numbers(const trained *t)
{
    static const char *const names[] = {"loss_scale", "grad_norm", "applied_now", "applied", "skips_in_a_row", "fatal"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const ht_slot *slot = ht_plan_slot(t->f.plan, names[i]);
        char bytes[8];
        must(&t->f, ht_executor_fetch(t->f.s->executor, slot->place, bytes, (size_t)ht_type_bytes(&slot->type)));
    }
}

/* The processor goes on with the next step while the last tiles come and go. */
static void an_update_on_a_disk__ends_within_the_next_step(void **state)
{
    (void)state;
    static const char *const tiles[] = {"64", "16", "300"};
    int steps = getenv("HALFTONE_LONG") ? 50 : 8, left = 0;
    for (int i = 0; i < 2 * CASES; i++) {
        const offload_case *c = &cases[i % CASES];
        char seed[16];
        snprintf(seed, sizeof seed, "%d", i + 1);
        setenv("HALFTONE_DISK_SEED", seed, 1);
        ratio = i % 5 == 4 ? "0.4" : "1";
        params = i % 3 == 2 ? "disk" : "none";
        gradients = i % 4 == 3 ? "disk" : "none";
        trained kept = open_training(c, "cpu", NULL, NULL), moved = open_training(c, "cpu", "disk", tiles[i % 3]);
        const ht_executor *e = moved.f.s->executor;
        train_without_waits(&kept, c, steps, i % 2);
        train_without_waits(&moved, c, steps, i % 2);
        assert_true(e->tail.next == e->tail.end); /* after a wait nothing is left */
        must(&moved.f, ht_session_start_segment(moved.f.s, (size_t)ht_plan_segment_find(moved.f.plan, "update"), 0));
        must(&kept.f, ht_session_start_segment(kept.f.s, (size_t)ht_plan_segment_find(kept.f.plan, "update"), 0));
        fetch_numbers(&moved);
        left += e->tail.next < e->tail.end;
        compare_states(&kept, &moved, c->what);
        session_end(&kept.f);
        session_end(&moved.f);
    }
    unsetenv("HALFTONE_DISK_SEED");
    ratio = "1";
    params = gradients = "none";
    if (left < 2 * CASES - 4) fail_msg("only %d updates of %d had something left to do", left, 2 * CASES);
}

/* With the optimiser's state elsewhere, too, and without; with the small ones, and without. */
static void parameters_elsewhere__have_the_bits_of_main(void **state)
{
    (void)state;
    static const char *const tiles[] = {"64", "0", "16", "300"}, *const spaces[] = {"host", "disk"};
    int seeds = getenv("HALFTONE_LONG") ? 8 : 2;
    for (int i = 0; i < seeds * CASES; i++) {
        char seed[16];
        bool disk = i % 2;
        snprintf(seed, sizeof seed, "%d", i + 1);
        setenv("HALFTONE_FAKE_SEED", seed, 1);
        setenv("HALFTONE_DISK_SEED", seed, 1);
        params = spaces[disk];
        persistent = i % 3 ? "100" : "0";
        compare(&cases[i % CASES], disk && i % 4 == 1 ? "cpu" : "fake", i % 5 ? spaces[i / 2 % 2] : "none",
                tiles[i % 4]);
    }
    unsetenv("HALFTONE_DISK_SEED");
    params = "none";
}

/* With the optimiser's state and parameters elsewhere, too, and without; in groups of one part of the norm's sum and of
 * several. */
static void gradients_elsewhere__have_the_bits_of_main(void **state)
{
    (void)state;
    static const char *const tiles[] = {"64", "0", "16", "300"}, *const spaces[] = {"host", "disk"};
    int seeds = getenv("HALFTONE_LONG") ? 8 : 2;
    for (int i = 0; i < seeds * CASES; i++) {
        char seed[16];
        bool disk = i % 2;
        snprintf(seed, sizeof seed, "%d", i + 1);
        setenv("HALFTONE_FAKE_SEED", seed, 1);
        setenv("HALFTONE_DISK_SEED", seed, 1);
        gradients = spaces[disk];
        params = i % 3 == 1 ? spaces[disk] : "none";
        activations = i % 7 == 3 ? spaces[disk] : "none";
        ahead = i % 4 == 3 ? "3" : "1";
        ratio = i % 5 == 4 ? "0.4" : "1";
        compare(&cases[i % CASES], disk && i % 4 == 1 ? "cpu" : "fake", i % 5 ? spaces[i / 2 % 2] : "none",
                tiles[i % 4]);
    }
    width = "5003";
    for (int i = 0; i < CASES; i++) {
        bool processor = i % 2;
        gradients = "disk";
        ahead = i % 4 == 3 ? "2" : "1";
        params = i % 3 ? "none" : "disk";
        compare(&cases[i], processor ? "cpu" : "fake", i % 3 ? "disk" : "none", "4096");
    }
    unsetenv("HALFTONE_DISK_SEED");
    params = gradients = activations = "none";
    width = "70";
    ratio = ahead = "1";
}

/* Of gradients nothing is left in main but what is made, added to or summed at the moment. */
static void gradients_elsewhere__leave_main(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "fake"}, *const spaces[] = {"disk", "host"};
    for (int i = 0; i < 2; i++) {
        gradients = spaces[i];
        trained kept = train(&cases[1], devices[i], NULL, NULL, 1),
                moved = train(&cases[1], devices[i], "none", "64", 1);
        ht_byte_table before = ht_plan_byte_table(kept.f.plan), after = ht_plan_byte_table(moved.f.plan);
        ht_space space = i ? HT_SPACE_HOST : HT_SPACE_DISK;
        assert_int_equal(after.bytes[HT_SPACE_MAIN][HT_BYTES_GRADIENTS], 0);
        assert_int_equal(after.bytes[space][HT_BYTES_GRADIENTS], before.bytes[HT_SPACE_MAIN][HT_BYTES_GRADIENTS]);
        assert_int_equal(after.bytes[HT_SPACE_MAIN][HT_BYTES_OPTIMIZER],
                         before.bytes[HT_SPACE_MAIN][HT_BYTES_OPTIMIZER]);
        session_end(&kept.f);
        session_end(&moved.f);
    }
    gradients = "none";
}

/* Copies away in forward and back in backward, of all that is kept or of what recomputation leaves. */
static void activations_elsewhere__have_the_bits_of_main(void **state)
{
    (void)state;
    static const char *const policies[] = {"none", "all", "cheap"}, *const spaces[] = {"host", "disk"};
    int seeds = getenv("HALFTONE_LONG") ? 8 : 2;
    for (int i = 0; i < seeds * CASES; i++) {
        char seed[16];
        bool disk = i % 2;
        snprintf(seed, sizeof seed, "%d", i + 1);
        setenv("HALFTONE_FAKE_SEED", seed, 1);
        setenv("HALFTONE_DISK_SEED", seed, 1);
        activations = spaces[disk];
        recompute = policies[i % 3];
        ahead = i % 4 == 3 ? "2" : "1";
        params = i % 5 == 2 ? spaces[disk] : "none";
        compare(&cases[i % CASES], disk && i % 4 == 1 ? "cpu" : "fake", i % 7 == 3 ? spaces[disk] : "none", "64");
    }
    unsetenv("HALFTONE_DISK_SEED");
    activations = params = "none";
    recompute = "marked";
    ahead = "1";
}

/* A layer is three values that backward reads; all but those of the last layers leave. */
static void activations_elsewhere__leave_main(void **state)
{
    (void)state;
    enum { LAYERS = 24, ROWS = 64, COLUMNS = 64, BYTES = ROWS * COLUMNS * 4 };
    int64_t bytes[3][HT_SPACE_COUNT];
    static const char *const spaces[3] = {"none", "host", "disk"};
    for (int k = 0; k < 3; k++) {
        session_fixture f = {.ctx = context_create(1, NULL)};
        ht_text t = {0};
        ht_text_add(&t,
                    "state %%w f32[%d,%d] heading=parameters init=normal(0,0.1) trained\n"
                    "segment forward (%%x0 f32[%d,%d]) -> (loss=%%loss) {\n",
                    COLUMNS, COLUMNS, ROWS, COLUMNS);
        for (int i = 0; i < LAYERS; i++)
            ht_text_add(&t, "  %%h%d = matmul f32[%d,%d] (%%x%d, %%w)\n  %%x%d = tanh f32[%d,%d] (%%h%d)\n", i, ROWS,
                        COLUMNS, i, i + 1, ROWS, COLUMNS, i);
        ht_text_add(&t, "  %%loss = mean f32[] (%%x%d) axes=[0,1]\n}\n", LAYERS);
        must(&f, ht_graph_parse(&f.g, f.ctx, "text", t.data, t.length));
        must(&f, ht_graph_train(f.g, NULL));
        ht_plan_opts planning = HT_PLAN_OPTS;
        const ht_train_setting settings[] = {{"offload_activations", spaces[k]}, {"offload_activation_bytes", "1024"}};
        planning.device = "fake";
        planning.settings = settings;
        planning.setting_count = 2;
        must(&f, ht_plan_create(&f.plan, f.g, &planning));
        for (int space = 0; space < HT_SPACE_COUNT; space++)
            bytes[k][space] = ht_plan_space_bytes(f.plan, (ht_space)space, HT_AREA_TRANSIENT);
        ht_text_free(&t);
        session_end(&f);
    }
    assert_true(bytes[0][HT_SPACE_MAIN] >= LAYERS * BYTES);
    assert_true(bytes[1][HT_SPACE_MAIN] <= bytes[0][HT_SPACE_MAIN] / 2);
    /* With canaries behind them, on a disk in blocks of their own. */
    assert_in_range(bytes[1][HT_SPACE_HOST], (LAYERS - 2) * BYTES, (LAYERS - 2) * (BYTES + HT_CANARY_BYTES));
    assert_in_range(bytes[2][HT_SPACE_DISK], (LAYERS - 2) * BYTES, (LAYERS - 2) * (BYTES + HT_PLAN_DISK_ALIGN));
}

/* Large parameters have no bytes in main but for those that are used at a time. */
static void parameters_elsewhere__leave_main(void **state)
{
    (void)state;
    params = "host";
    trained kept = train(&cases[0], "fake", NULL, NULL, 1), moved = train(&cases[0], "fake", "host", "64", 1);
    params = "none";
    ht_byte_table before = ht_plan_byte_table(kept.f.plan), after = ht_plan_byte_table(moved.f.plan);
    assert_int_equal(after.bytes[HT_SPACE_MAIN][HT_BYTES_PARAMETERS], 0);
    assert_int_equal(after.bytes[HT_SPACE_HOST][HT_BYTES_PARAMETERS], before.bytes[HT_SPACE_MAIN][HT_BYTES_PARAMETERS]);
    assert_int_equal(after.bytes[HT_SPACE_MAIN][HT_BYTES_WEIGHTS], (70 + 70 + 3) * 4);
    session_end(&kept.f);
    session_end(&moved.f);
}

/* A few tiles are in memory at a time, whatever the size of the state. */
static void a_disk__leaves_memory_for_a_few_tiles(void **state)
{
    (void)state;
    trained kept = train(&cases[1], "cpu", NULL, NULL, 1), moved = train(&cases[1], "cpu", "disk", "64", 1);
    ht_byte_table before = ht_plan_byte_table(kept.f.plan), after = ht_plan_byte_table(moved.f.plan);
    assert_int_equal(after.bytes[HT_SPACE_MAIN][HT_BYTES_OPTIMIZER], 0);
    assert_int_equal(after.bytes[HT_SPACE_MAIN][HT_BYTES_MASTERS], 0);
    assert_int_equal(after.bytes[HT_SPACE_DISK][HT_BYTES_OPTIMIZER], before.bytes[HT_SPACE_MAIN][HT_BYTES_OPTIMIZER]);
    const ht_plan_segment *update = &moved.f.plan->segments[ht_plan_segment_find(moved.f.plan, "update")];
    /* Of a tile three arrays come, three are computed in place, three go; single numbers have a block each, too. */
    assert_true(update->live_bytes[HT_SPACE_MAIN] <= (9 + 6) * HT_PLAN_DISK_ALIGN);
    session_end(&kept.f);
    session_end(&moved.f);
}

/* A first value of the moments is stored tile by tile. */
static void a_disk__takes_constants_in_tiles(void **state)
{
    (void)state;
    const offload_case *adagrad = NULL;
    for (int i = 0; i < CASES; i++)
        if (strstr(cases[i].what, "adagrad")) adagrad = &cases[i];
    trained moved = train(adagrad, "cpu", "disk", "64", 1);
    const ht_plan_segment *init = &moved.f.plan->segments[ht_plan_segment_find(moved.f.plan, "init")];
    assert_true(init->live_bytes[HT_SPACE_MAIN] <= 2 * HT_PLAN_DISK_ALIGN); /* a parameter, or a tile of a moment */
    session_end(&moved.f);
}

/* So are random ones, with the copies that are made of them. */
static void a_disk__takes_random_values_in_tiles(void **state)
{
    (void)state;
    enum { TILE = 4096 };
    static const char *const devices[] = {"cpu", "fake"};
    width = "5003";
    params = "disk";
    for (int i = 0; i < 2; i++) {
        trained kept = open_training(&cases[1], devices[i], NULL, NULL);
        trained moved = open_training(&cases[1], devices[i], "disk", "4096");
        const ht_plan_segment *init = &moved.f.plan->segments[ht_plan_segment_find(moved.f.plan, "init")];
        assert_true(init->live_bytes[HT_SPACE_MAIN] <= TILE * (4 + 2) + 4 * HT_PLAN_DISK_ALIGN);
        compare_states(&kept, &moved, "first values");
        session_end(&kept.f);
        session_end(&moved.f);
    }
    width = "70";
    params = "none";
}

static void a_processor__has_its_state_in_host_memory_already(void **state)
{
    (void)state;
    trained kept = train(&cases[1], "cpu", NULL, NULL, 1), same = train(&cases[1], "cpu", "host", "64", 1);
    assert_int_equal(ht_plan_bytes(kept.f.plan), ht_plan_bytes(same.f.plan));
    assert_int_equal(same.f.plan->area_bytes[HT_SPACE_HOST][HT_AREA_STATE], 0);
    session_end(&kept.f);
    session_end(&same.f);
}

/* Moments and masters are gone from main; what the model reads as f32 stays there as a copy. */
static void main__has_the_fewer_bytes(void **state)
{
    (void)state;
    trained kept = train(&cases[1], "fake", NULL, NULL, 1), moved = train(&cases[1], "fake", "host", "64", 1);
    ht_byte_table before = ht_plan_byte_table(kept.f.plan), after = ht_plan_byte_table(moved.f.plan);
    assert_int_equal(after.bytes[HT_SPACE_MAIN][HT_BYTES_OPTIMIZER], 0);
    assert_int_equal(after.bytes[HT_SPACE_MAIN][HT_BYTES_MASTERS], 0);
    assert_int_equal(after.bytes[HT_SPACE_HOST][HT_BYTES_OPTIMIZER], before.bytes[HT_SPACE_MAIN][HT_BYTES_OPTIMIZER]);
    assert_int_equal(after.bytes[HT_SPACE_HOST][HT_BYTES_MASTERS], before.bytes[HT_SPACE_MAIN][HT_BYTES_MASTERS]);
    assert_int_equal(after.bytes[HT_SPACE_MAIN][HT_BYTES_WEIGHTS] - before.bytes[HT_SPACE_MAIN][HT_BYTES_WEIGHTS],
                     (70 + 70 + 3) * 4);
    session_end(&kept.f);
    session_end(&moved.f);
}

/* Of a group whose first tensor is half of it, that one moves. */
static void a_ratio__moves_whole_tensors(void **state)
{
    (void)state;
    ratio = "0.3";
    trained moved = train(&cases[1], "fake", "host", "64", 1);
    const ht_slot *w = ht_plan_slot(moved.f.plan, "w.m"), *b = ht_plan_slot(moved.f.plan, "b.m");
    assert_int_equal(w->place.space, HT_SPACE_HOST);
    assert_int_equal(b->place.space, HT_SPACE_MAIN);
    assert_int_equal(ht_type_elems(&moved.f.plan->slots[w->owner].type), 432);
    session_end(&moved.f);
    for (int i = 0; i < CASES; i++) compare(&cases[i], "fake", "host", i % 2 ? "0" : "48");
    ratio = "0";
    trained kept = train(&cases[1], "fake", "host", "64", 1);
    assert_int_equal(kept.f.plan->area_bytes[HT_SPACE_HOST][HT_AREA_STATE], 0);
    session_end(&kept.f);
    ratio = "1";
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_in_host_memory__has_the_bits_of_main),
        cmocka_unit_test(state_on_a_disk__has_the_bits_of_main),
        cmocka_unit_test(an_update_on_a_disk__ends_within_the_next_step),
        cmocka_unit_test(parameters_elsewhere__have_the_bits_of_main),
        cmocka_unit_test(gradients_elsewhere__have_the_bits_of_main),
        cmocka_unit_test(gradients_elsewhere__leave_main),
        cmocka_unit_test(activations_elsewhere__have_the_bits_of_main),
        cmocka_unit_test(activations_elsewhere__leave_main),
        cmocka_unit_test(parameters_elsewhere__leave_main),
        cmocka_unit_test(a_disk__leaves_memory_for_a_few_tiles),
        cmocka_unit_test(a_disk__takes_constants_in_tiles),
        cmocka_unit_test(a_disk__takes_random_values_in_tiles),
        cmocka_unit_test(a_processor__has_its_state_in_host_memory_already),
        cmocka_unit_test(main__has_the_fewer_bytes),
        cmocka_unit_test(a_ratio__moves_whole_tensors),
    };
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
