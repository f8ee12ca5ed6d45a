#include "config/config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const ht_key gpt_rows[] = {
    {"n_layer", HT_KEY_INT, "6", 1, 1000, NULL, "blocks"},
    {"n_embd", HT_KEY_INT, NULL, 1, INFINITY, NULL, "width"},
    {0},
};
static const ht_key mlp_rows[] = {{"sizes", HT_KEY_INTS, "[100]", 1, INFINITY, NULL, "of hidden layers"}, {0}};
static const ht_key data_rows[] = {{"train", HT_KEY_TEXT, NULL, 0, 0, NULL, "files"}, {0}};
static const ht_key text_rows[] = {{"tokenizer", HT_KEY_CHOICE, "\"byte\"", 0, 0, "byte|char", "how"}, {0}};
static const ht_block_keys blocks[] = {
    {"model", "gpt2", "a decoder", gpt_rows},
    {"model", "mlp", "layers", mlp_rows},
    {"data", NULL, NULL, data_rows},
    {"data", "text", "plain text", text_rows},
};

static ht_context ctx;
static ht_config *config;
static const char *sets[8];
static ht_config_request request;

static int set_up(void **state)
{
    (void)state;
    ctx = (ht_context){0};
    config = NULL;
    request = (ht_config_request){.path = "job.json", .sets = sets, .blocks = blocks};
    request.block_count = sizeof blocks / sizeof blocks[0];
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ht_config_free(config);
    return 0;
}

static ht_status read_text(const char *text)
{
    ht_config_free(config);
    request.length = strlen(text);
    char *exact = malloc(request.length + 1);
    memcpy(exact, text, request.length + 1);
    request.text = exact;
    ht_status status = ht_config_read(&config, &ctx, &request);
    free(exact);
    return status;
}

static void reads(const char *text)
{
    if (read_text(text) != HT_OK) fail_msg("%s: %s", text, ctx.message);
}

static void refused(const char *text, const char *message)
{
    if (read_text(text) != HT_EINVAL) fail_msg("%s is read", text);
    assert_non_null(config);
    if (strcmp(ctx.message, message) != 0) fail_msg("%s\n   says %s\n    not %s", text, ctx.message, message);
}

static void warned(const char *part)
{
    const ht_problems *problems = ht_config_problems(config);
    for (size_t i = 0; i < problems->count; i++)
        if (!problems->list[i].is_error && strstr(problems->list[i].text, part) != NULL) return;
    fail_msg("no warning says '%s'", part);
}

static void not_warned(const char *part)
{
    const ht_problems *problems = ht_config_problems(config);
    for (size_t i = 0; i < problems->count; i++)
        if (strstr(problems->list[i].text, part) != NULL) fail_msg("%s", problems->list[i].text);
}

/* The value as JSON and its origin, with a bar between. */
static void is(const char *block, const char *name, const char *wanted)
{
    const ht_field *field = ht_fields_find(ht_config_block(config, block), name);
    if (field == NULL) fail_msg("%s.%s is not there", block, name);
    ht_text text = {0};
    ht_json_print(&text, field->value);
    ht_text_add(&text, " | ");
    ht_origin_print(&text, &field->origin);
    if (strcmp(text.data, wanted) != 0) fail_msg("%s.%s: %s, not %s", block, name, text.data, wanted);
    ht_text_free(&text);
}

#define MODEL     "\"model\": {\"type\": \"mlp\"}, \"data\": {\"format\": \"text\", \"train\": \"a\"}"
#define JOB(rest) "{" MODEL rest "}"

/* ---- a job alone ---- */

static void job__is_enough_alone(void **state)
{
    (void)state;
    reads(JOB(""));
    const ht_train_config *r = ht_config_train(config);
    assert_true(r->steps == 1000 && r->epochs == 0 && r->batch == 16 && r->micro_batch == 16 && r->accumulate == 1);
    assert_string_equal(r->optimizer->name, "adamw");
    assert_string_equal(r->schedule, "cosine");
    assert_string_equal(r->precision, "fp32");
    assert_true(r->lr == 1e-3 && r->clip == 0 && r->hyper.beta2 == 0.999);
    assert_true(ht_config_schedule_number(config, "warmup_steps", 1000) == 100);
    assert_true(ht_config_schedule_number(config, "decay_steps", 1000) == 1000);
    assert_true(ht_config_schedule_number(config, "min_lr", 1000) == 1e-4);
    assert_true(isnan(ht_config_schedule_number(config, "cycle_min_lr", 1000)));
    assert_false(ht_config_has_engine(config));
    assert_int_equal(ht_config_problems(config)->count, 0);
    assert_string_equal(ht_config_type(config, "model"), "mlp");
    is("train", "batch", "16 | derived: default of train.batch");
    is("train", "clip", "0 | default");
    is("model", "sizes", "[100] | default");
    is("data", "tokenizer", "\"byte\" | default");
    is("data", "train", "\"a\" | job.json:1");
}

static void job__schedules_are_told_as_numbers(void **state)
{
    (void)state;
    reads(JOB(", \"train\": {\"epochs\": 3, \"schedule\": \"linear\", \"lr\": 0.5, \"lr_min\": 0.1}"));
    assert_int_equal(ht_config_train(config)->steps, 0);
    assert_int_equal(ht_config_train(config)->epochs, 3);
    assert_string_equal(ht_config_train(config)->schedule, "linear");
    assert_true(ht_config_schedule_number(config, "warmup_steps", 70) == 7);
    assert_true(ht_config_schedule_number(config, "decay_steps", 70) == 70);
    assert_true(ht_config_schedule_number(config, "min_lr", 70) == 0.1);
    reads(JOB(", \"train\": {\"schedule\": \"constant\"}"));
    assert_string_equal(ht_config_train(config)->schedule, "constant");
    reads(JOB(", \"train\": {\"schedule\": \"constant\", \"warmup\": 9}"));
    assert_string_equal(ht_config_train(config)->schedule, "warmup");
    assert_true(ht_config_schedule_number(config, "warmup_steps", 1000) == 9);
    reads(JOB(", \"engine\": {\"scheduler\": {\"type\": \"onecycle\", \"params\": {\"cycle_min_lr\": [0.1],"
              "\"cycle_max_lr\": 1, \"cycle_momentum\": false}}}"));
    assert_string_equal(ht_config_train(config)->schedule, "OneCycle");
    assert_true(ht_config_schedule_number(config, "cycle_min_lr", 10) == 0.1);
    assert_true(ht_config_schedule_number(config, "cycle_max_lr", 10) == 1);
    assert_true(ht_config_schedule_number(config, "cycle_momentum", 10) == 0);
    assert_true(isnan(ht_config_schedule_number(config, "cycle_second_step_size", 10)));
    reads(JOB(", \"train\": {\"epochs\": 3}, \"engine\": {\"scheduler\": {\"type\": \"WarmupCosineLR\"}}"));
    assert_true(ht_config_schedule_number(config, "total_num_steps", 33) == 33);
    assert_true(ht_config_schedule_number(config, "warmup_linear", 33) == 0);
    refused(
        "{\"train_batch_size\": 1, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": [1, 2]}}}",
        "job.json:1: scheduler.params.warmup_max_lr: expected one number, for the one group of parameters, found 2");
}

static void job__comments_commas_and_numbers_as_people_write_them(void **state)
{
    (void)state;
    reads("{ // a job\n" MODEL ", # more\n\"train\": {\"steps\": 2e3, \"lr\": 3e-4, \"_comment\": \"x\",},\n"
          "\"_comment2\": [], \"engine\": {\"zero_optimization\": {\"reduce_bucket_size\": 5e8}}}");
    is("train", "steps", "2000 | job.json:3");
    is("train", "lr_min", "3e-05 | derived: a tenth of train.lr");
    is("train", "warmup", "100 | derived: a tenth of train.steps, 100 at most");
    is("engine", "zero_optimization.reduce_bucket_size", "500000000 | job.json:4");
}

static void job__keys_belong_to_the_chosen_type(void **state)
{
    (void)state;
    reads("{\"model\": {\"type\": \"gpt2\", \"n_embd\": 64}, \"data\": {\"format\": \"text\", \"train\": \"a\"}}");
    is("model", "n_layer", "6 | default");
    refused("{\"model\": {\"type\": \"gpt2\"}, \"data\": {\"format\": \"text\", \"train\": \"a\"}}",
            "model.n_embd: must be given: an integer from 1 up");
    refused("{\"model\": {\"type\": \"mlp\", \"size\": 3}, \"data\": {\"format\": \"text\", \"train\": \"a\"}}",
            "job.json:1: model.size: unknown key; did you mean \"sizes\"?");
    refused("{\"model\": {\"type\": \"gpt\", \"x\": 3}, \"data\": {\"format\": \"text\", \"train\": \"a\"}}",
            "job.json:1: model.type: expected one of gpt2, mlp, found \"gpt\"");
    refused("{\"train\": {}}", "model.type: must be given: one of gpt2, mlp\n"
                               "data.format: must be given: one of text\n"
                               "data.train: must be given: a string");
}

static void job__a_block_without_registered_keys_is_taken_as_it_stands(void **state)
{
    (void)state;
    request.block_count = 0;
    reads("{\"model\": {\"type\": \"new\", \"x\": {\"y\": 1}}}");
    is("model", "type", "\"new\" | job.json:1");
    is("model", "x", "{\"y\": 1} | job.json:1");
}

static void job__all_errors_at_once(void **state)
{
    (void)state;
    refused("{" MODEL
            ",\n\"train\": {\"stepz\": 1, \"lr\": \"fast\",\n \"steps\": 10, \"epochs\": 2},\n\"trian\": {},\n"
            "\"fp16\": {\"enabled\": true}}",
            "job.json:4: trian: unknown key; did you mean \"train\"?\n"
            "job.json:5: fp16: unknown key; it belongs to engine.fp16\n"
            "job.json:2: train.stepz: unknown key; did you mean \"steps\"?\n"
            "job.json:2: train.lr: expected a number from 0 up, found \"fast\"\n"
            "job.json:3: train.epochs: train.steps is given too; one of them says how long to train");
}

static void job__hostile_files_are_refused(void **state)
{
    (void)state;
    refused("", "job.json:1:1: expected a value, found the end of the text");
    refused("[]", "job.json:1: expected a job, which is an object, found an array\n"
                  "model.type: must be given: one of gpt2, mlp\n"
                  "data.format: must be given: one of text\n"
                  "data.train: must be given: a string");
    refused("{\"train\": {}, \"train\": {}}", "job.json:1:24: the key \"train\" was given before, at line 1");
    refused(JOB(", \"train\": []"), "job.json:1: train: expected an object, found an array");
    refused(JOB(", \"train\": {\"batch\": 1e30}"),
            "job.json:1: train.batch: expected an integer from 1 up, found 1e+30");
    refused(JOB(", \"train\": {\"micro_batch\": 9e18, \"accumulate\": 9e18}"),
            "train.micro_batch (job.json:1): 9000000000000000000 × 9000000000000000000 × 1 rank is too large");
    refused(JOB(", \"engine\": 3"), "job.json:1: engine: expected DeepSpeed's config, as a path or an object, found an "
                                    "integer");
    refused(JOB(", \"engine\": \"/nowhere/ds.json\""), "/nowhere/ds.json: No such file or directory");
    refused(JOB(", \"engine\": \"a\\u0000b\""),
            "job.json:1: engine: expected DeepSpeed's config, as a path or an object, found a string");
    refused(JOB(", \"train\": {\"betas\": [0.9]}"), "job.json:1: train.betas: expected two numbers, found 1");
    refused(JOB(", \"train\": {\"momentum\": 0, \"nesterov\": true}"),
            "job.json:1: train.nesterov: needs train.momentum above 0");
}

/* ---- the command line ---- */

static void set__overrides_and_says_so(void **state)
{
    (void)state;
    sets[0] = "train.lr=0.5", sets[1] = "train.output=runs/a=b", sets[2] = "engine.fp16.hysteresis=3";
    sets[3] = "train.lr=0.25", sets[4] = "model.sizes=[1,2]";
    request.set_count = 5;
    reads(JOB(", \"train\": {\"lr\": 1}"));
    is("train", "lr", "0.25 | --set");
    is("train", "output", "\"runs/a=b\" | --set");
    is("engine", "fp16.hysteresis", "3 | --set");
    is("model", "sizes", "[1, 2] | --set");
    assert_true(ht_config_has_engine(config));
}

static void set__chooses_the_type(void **state)
{
    (void)state;
    sets[0] = "model.type=gpt2", sets[1] = "model.n_embd=8";
    request.set_count = 2;
    reads(JOB(""));
    assert_string_equal(ht_config_type(config, "model"), "gpt2");
}

static void set__wrong_ones_are_refused(void **state)
{
    (void)state;
    sets[0] = "lr=1", sets[1] = "train.lr", sets[2] = "train..lr=1", sets[3] = "fp16.enabled=true", sets[4] = "=3";
    sets[5] = "train.lr=fast", sets[6] = "zebra=1";
    request.set_count = 7;
    refused(JOB(""), "--set lr: unknown key; did you mean \"train.lr\"?\n"
                     "--set train.lr: takes KEY=VALUE, as in train.lr=3e-4\n"
                     "--set train..lr=1: takes KEY=VALUE, as in train.lr=3e-4\n"
                     "--set fp16.enabled: unknown key; did you mean \"engine.fp16.enabled\"?\n"
                     "--set =3: takes KEY=VALUE, as in train.lr=3e-4\n"
                     "--set zebra: unknown key; keys begin with model, data, train, halftone or engine\n"
                     "--set: train.lr: expected a number from 0 up, found \"fast\"");
}

static void set__an_unknown_optimizer_over_a_known_one_is_refused(void **state)
{
    (void)state;
    sets[0] = "optimizer.type=Foo";
    request.set_count = 1;
    refused(
        "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 1}}, \"train_batch_size\": 4}",
        "--set: optimizer.type: expected one of Adam, AdamW, SGD, Adagrad, Lamb, Lion, Muon, OneBitAdam, OneBitLamb, "
        "ZeroOneAdam, MuAdam, MuAdamW, MuSGD, found \"Foo\"");
}

/* ---- DeepSpeed's config ---- */

static void engine__stands_alone(void **state)
{
    (void)state;
    reads("{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4,\n"
          "\"optimizer\": {\"type\": \"adam\", \"params\": {\"lr\": 0.01, \"betas\": [0.8, 0.99]}},\n"
          "\"steps_per_print\": 7, \"gradient_clipping\": 0.5}");
    const ht_train_config *r = ht_config_train(config);
    assert_false(ht_config_has_job(config));
    assert_true(r->batch == 32 && r->micro_batch == 4 && r->accumulate == 8 && r->log_every == 7 && r->clip == 0.5);
    assert_true(r->lr == 0.01 && r->hyper.beta1 == 0.8 && r->hyper.beta2 == 0.99 && r->hyper.weight_decay == 0 &&
                r->decay_all);
    assert_string_equal(r->optimizer->name, "adamw");
    assert_string_equal(r->schedule, "constant");
    is("engine", "gradient_accumulation_steps", "8 | derived: 32 / (4 × 1 rank)");
    is("train", "optimizer", "\"adamw\" | derived: optimizer.type (job.json:2); Adam means AdamW, as in DeepSpeed");
    is("train", "lr", "0.01 | derived: optimizer.params.lr (job.json:2)");
}

static void engine__adam_w_mode_false_is_plain_adam(void **state)
{
    (void)state;
    reads("{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false}}}");
    assert_string_equal(ht_config_train(config)->optimizer->name, "adam");
    reads("{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"adam_w_mode\": false}}}");
    assert_string_equal(ht_config_train(config)->optimizer->name, "adamw");
}

static void engine__clips_at_one_unless_told_and_says_so(void **state)
{
    (void)state;
    reads("{\"train_batch_size\": 1}");
    warned("gradient_clipping: not given, so gradients are clipped to a global norm of 1.0");
    assert_true(ht_config_train(config)->clip == 1);
    reads("{\"train_batch_size\": 1, \"gradient_clipping\": 0}");
    assert_int_equal(ht_config_problems(config)->count, 0);
    assert_true(ht_config_train(config)->clip == 0);
    reads(JOB(", \"train\": {\"clip\": 2}, \"engine\": {\"gradient_clipping\": \"auto\"}"));
    assert_true(ht_config_train(config)->clip == 2);
    is("engine", "gradient_clipping", "2 | derived: train.clip (job.json:1)");
}

static void engine__auto_is_filled_from_the_job(void **state)
{
    (void)state;
    reads(JOB(", \"train\": {\"steps\": 50, \"batch\": 12, \"lr\": 0.02, \"weight_decay\": 0.3, \"warmup\": 5},\n"
              "\"engine\": {\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\",\n"
              "\"gradient_accumulation_steps\": 3, \"fp16\": {\"enabled\": \"auto\", \"hysteresis\": \"auto\"},\n"
              "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", \"weight_decay\": \"auto\"}},\n"
              "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": \"auto\",\n"
              "\"warmup_min_lr\": \"auto\", \"warmup_max_lr\": \"auto\", \"warmup_num_steps\": \"auto\"}}}"));
    is("engine", "train_batch_size", "12 | derived: train.batch (job.json:1)");
    is("engine", "train_micro_batch_size_per_gpu", "4 | derived: 12 / (3 × 1 rank)");
    is("engine", "optimizer.params.lr", "0.02 | derived: train.lr (job.json:1)");
    is("engine", "optimizer.params.weight_decay", "0.3 | derived: train.weight_decay (job.json:1)");
    is("engine", "scheduler.params.total_num_steps", "50 | derived: train.steps (job.json:1)");
    is("engine", "scheduler.params.warmup_num_steps", "5 | derived: train.warmup (job.json:1)");
    is("engine", "scheduler.params.warmup_max_lr", "0.02 | derived: train.lr");
    is("engine", "scheduler.params.warmup_min_lr", "0 | default: \"auto\"");
    is("engine", "fp16.enabled", "false | default: \"auto\"");
    is("engine", "fp16.hysteresis", "2 | default: \"auto\"");
    is("train", "schedule", "\"engine\" | derived: scheduler.type is WarmupDecayLR");
    assert_string_equal(ht_config_train(config)->schedule, "WarmupDecayLR");
}

#define SCHEDULED(train, params)                                                                                       \
    JOB(", \"train\": {" train "}, \"engine\": {\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {" params "}}}")

static void engine__auto_warm_up_is_a_tenth_of_the_steps(void **state)
{
    (void)state;
    reads(SCHEDULED("\"steps\": 60", "\"warmup_num_steps\": \"auto\""));
    is("train", "warmup", "6 | derived: a tenth of train.steps, 100 at most");
    is("engine", "scheduler.params.warmup_num_steps", "6 | derived: train.warmup (derived)");
    assert_true(ht_config_schedule_number(config, "warmup_num_steps", 60) == 6);
    reads(SCHEDULED("\"steps\": 5", "\"warmup_num_steps\": \"auto\""));
    assert_true(ht_config_schedule_number(config, "warmup_num_steps", 5) == 1);
    reads(SCHEDULED("\"epochs\": 2", "\"warmup_num_steps\": \"auto\""));
    is("engine", "scheduler.params.warmup_num_steps", "100 | derived: \"auto\": at most; a tenth of all steps");
    assert_true(ht_config_schedule_number(config, "warmup_num_steps", 30) == 3);
    assert_true(ht_config_schedule_number(config, "warmup_num_steps", 5000) == 100);
    reads(SCHEDULED("\"epochs\": 2", ""));
    assert_true(ht_config_schedule_number(config, "warmup_num_steps", 30) == 1000);
    refused(SCHEDULED("", "\"warmup_num_steps\": 0"),
            "job.json:1: engine.scheduler.params.warmup_num_steps: expected an integer from 1 up, found 0");
}

static void engine__small_keys_are_taken_as_deepspeed_takes_them(void **state)
{
    (void)state;
    reads("{\"train_batch_size\": 1, \"zero_optimization\": {\"sub_group_size\": 0}}");
    reads(JOB(", \"train\": {\"log_every\": 3}, \"engine\": {\"steps_per_print\": 5}"));
    assert_int_equal(ht_config_train(config)->log_every, 3);
    reads(JOB(", \"engine\": {\"steps_per_print\": 5}"));
    assert_int_equal(ht_config_train(config)->log_every, 5);
}

#define TORCH_ADAM(type, params)                                                                                       \
    "{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"" type "\", \"params\": {\"torch_adam\": true" params "}}}"

static void engine__torch_adam_decays_by_pytorchs_default(void **state)
{
    (void)state;
    reads(TORCH_ADAM("AdamW", ""));
    assert_true(ht_config_train(config)->hyper.weight_decay == 0.01);
    is("engine", "optimizer.params.weight_decay", "0.01 | derived: torch_adam: the default of PyTorch's AdamW");
    reads(TORCH_ADAM("Adam", ""));
    assert_true(ht_config_train(config)->hyper.weight_decay == 0.01);
    reads(TORCH_ADAM("Adam", ", \"adam_w_mode\": false"));
    assert_true(ht_config_train(config)->hyper.weight_decay == 0);
    reads(TORCH_ADAM("AdamW", ", \"weight_decay\": 0"));
    assert_true(ht_config_train(config)->hyper.weight_decay == 0);
    reads("{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"AdamW\"}}");
    assert_true(ht_config_train(config)->hyper.weight_decay == 0);
}

static void engine__an_optimizer_that_is_not_there_yet_names_its_stand_in(void **state)
{
    (void)state;
    reads("{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"ZeroOneAdam\", \"params\": {\"lr\": 0.5}}}");
    is("train", "optimizer",
       "\"adamw\" | derived: optimizer.type (job.json:1); stands in for ZeroOneAdam, which is "
       "not there yet");
    assert_true(ht_config_train(config)->lr == 0.5);
    reads("{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"OneBitLamb\"}}");
    assert_string_equal(ht_config_train(config)->optimizer->name, "lamb");
}

static void muon__has_the_defaults_of_its_row(void **state)
{
    (void)state;
    reads(JOB(", \"train\": {\"optimizer\": \"muon\", \"momentum\": 0.5}"));
    const ht_train_config *t = ht_config_train(config);
    assert_string_equal(t->optimizer->name, "muon");
    assert_true(t->lr == 0.02 && t->hyper.momentum == 0.5 && t->hyper.rest_lr_scale == 0.015);
    assert_true(t->hyper.beta1 == 0.9 && t->hyper.beta2 == 0.95 && t->hyper.eps == 1e-10);
    is("train", "betas", "[0.9, 0.95] | derived: default of muon");
    is("train", "momentum", "0.5 | job.json:1");
    reads(JOB(", \"train\": {\"optimizer\": \"Muon\", \"rest_lr_scale\": 0.25}"));
    assert_true(ht_config_train(config)->hyper.rest_lr_scale == 0.25);
    refused(JOB(", \"train\": {\"rest_lr_scale\": 0.25}"), "job.json:1: train.rest_lr_scale: unknown key");
}

static void muon__takes_deepspeeds_two_rates(void **state)
{
    (void)state;
    reads("{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"Muon\",\n"
          "\"params\": {\"lr\": 0.5, \"muon_lr\": 0.04, \"adam_lr\": 0.01, \"ns_method\": \"gram\"}}}");
    const ht_train_config *t = ht_config_train(config);
    assert_string_equal(t->optimizer->name, "muon");
    assert_true(t->lr == 0.04 && t->hyper.rest_lr_scale == 0.25 && t->hyper.momentum == 0.95 && t->decay_all);
    is("train", "lr", "0.04 | derived: optimizer.params.muon_lr (job.json:2)");
    warned("job.json:2: optimizer.params.ns_method: \"gram\" runs as \"standard\": ");
    reads("{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"Muon\", \"params\": {\"lr\": 0.5}}}");
    assert_true(ht_config_train(config)->lr == 0.5 && ht_config_train(config)->hyper.rest_lr_scale == 1);
    refused(JOB(", \"train\": {\"rest_lr_scale\": 1},\n"
                "\"engine\": {\"optimizer\": {\"type\": \"Muon\", \"params\": {\"adam_lr\": 0.1}}}"),
            "job.json:2: optimizer.params.adam_lr: train.rest_lr_scale is given too: leave out one of them");
    refused(JOB(", \"train\": {\"lr\": 1},\n"
                "\"engine\": {\"optimizer\": {\"type\": \"Muon\", \"params\": {\"muon_lr\": 0.1}}}"),
            "train.lr (job.json:1) is 1, but engine.optimizer.params.muon_lr (job.json:2) is 0.1: leave out one of "
            "them, or write \"auto\" in the engine config");
    refused("{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"Muon\",\n"
            "\"params\": {\"muon_lr\": 0, \"adam_lr\": 0.1}}}",
            "job.json:2: optimizer.params.adam_lr: here it is a part of the rate of matrices, and that is 0");
}

static void engine__a_missing_optimizer_is_the_jobs(void **state)
{
    (void)state;
    reads(JOB(", \"train\": {\"optimizer\": \"sgd\", \"lr\": 0.1}, \"engine\": {\"train_batch_size\": 8}"));
    is("engine", "optimizer.type", "\"SGD\" | derived: left out; train.optimizer");
    assert_string_equal(ht_config_train(config)->optimizer->name, "sgd");
    assert_string_equal(ht_config_train(config)->schedule, "cosine");
    assert_false(ht_config_train(config)->decay_all);
}

static void engine__two_different_values_clash(void **state)
{
    (void)state;
    refused(
        JOB(", \"train\": {\"lr\": 0.1, \"batch\": 4, \"precision\": \"fp32\", \"schedule\": \"linear\"},\n"
            "\"engine\": {\"optimizer\": {\"type\": \"Lion\", \"params\": {\"lr\": 0.2}}, \"train_batch_size\": 8,\n"
            "\"fp16\": {\"enabled\": true}, \"scheduler\": {\"type\": \"WarmupLR\"}}"),
        "train.batch (job.json:1) is 4, but engine.train_batch_size (job.json:2) is 8: leave out one of them\n"
        "train.precision (job.json:1) is \"fp32\", but engine.fp16.enabled (job.json:3) is true: leave out one of "
        "them, or write \"auto\" in the engine config\n"
        "train.lr (job.json:1) is 0.1, but engine.optimizer.params.lr (job.json:2) is 0.2: leave out one of them, or "
        "write \"auto\" in the engine config\n"
        "job.json:1: train.schedule is \"linear\", but engine.scheduler.type (job.json:3) is \"WarmupLR\": leave out "
        "one of them");
    reads(JOB(
        ", \"train\": {\"lr\": 0.1}, \"engine\": {\"optimizer\": {\"type\": \"Lion\", \"params\": {\"lr\": 1e-1}}}"));
}

static void engine__batch_identity(void **state)
{
    (void)state;
    refused("{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 8, \"gradient_accumulation_steps\": 2}",
            "train_batch_size (job.json:1): 64 is not train_micro_batch_size_per_gpu (job.json:1): 8 × "
            "gradient_accumulation_steps (job.json:1): 2 × 1 rank = 16; it would fit 4 ranks");
    refused("{\"train_batch_size\": 30, \"train_micro_batch_size_per_gpu\": 4}",
            "train_batch_size (job.json:1): 30 is not a multiple of train_micro_batch_size_per_gpu (job.json:1): 4 × 1 "
            "rank = 4; 30 / 4 leaves 2");
    refused("{\"train_batch_size\": 0}", "job.json:1: train_batch_size: expected an integer from 1 up, found 0");
    request.ranks = 4;
    reads("{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 8, \"gradient_accumulation_steps\": 2}");
    reads("{\"train_batch_size\": 64}");
    is("engine", "train_micro_batch_size_per_gpu", "16 | derived: 64 / (1 × 4 ranks)");
    reads("{\"train_micro_batch_size_per_gpu\": 3, \"gradient_accumulation_steps\": 2}");
    is("train", "batch", "24 | derived: 3 × 2 × 4 ranks");
    refused("{\"train_batch_size\": 6}",
            "train_batch_size (job.json:1): 6 is not a multiple of accumulation: 1 × 4 ranks "
            "= 4; 6 / 4 leaves 2");
}

static void engine__fp16_and_bf16_exclude_each_other(void **state)
{
    (void)state;
    refused("{\"train_batch_size\": 1, \"fp16\": {\"enabled\": true},\n\"bfloat16\": {\"enabled\": true}}",
            "fp16.enabled (job.json:1) and bf16.enabled (job.json:2) are both true: one of them at a time");
    reads("{\"train_batch_size\": 1, \"fp16\": {\"enabled\": false}, \"bf16\": {\"enabled\": true}}");
    assert_string_equal(ht_config_train(config)->precision, "bf16");
}

static void engine__old_spellings_are_mapped(void **state)
{
    (void)state;
    reads("{\"train_batch_size\": 1, \"zero_optimization\": true, \"bfloat16\": {\"enabled\": false}}");
    is("engine", "zero_optimization.stage", "1 | job.json:1");
    is("engine", "bf16.enabled", "false | job.json:1");
    reads("{\"train_batch_size\": 1,\n\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true,\n"
          "\"prefetch_bucket_size\": 7}}");
    is("engine", "zero_optimization.offload_optimizer.device", "\"cpu\" | job.json:2");
    is("engine", "zero_optimization.stage3_prefetch_bucket_size", "7 | job.json:3");
    warned("zero_optimization.offload_optimizer.device is \"cpu\": not there yet");
    refused("{\"train_batch_size\": 1, \"zero_optimization\": {\"prefetch_bucket_size\": -7, \"cpu_offload\": 1}}",
            "job.json:1: zero_optimization.cpu_offload: expected true or false, found 1\n"
            "job.json:1: zero_optimization.stage3_prefetch_bucket_size: expected an integer from 0 up, found -7");
    refused("{\"train_batch_size\": 1, \"bf16\": {}, \"bfloat16\": {}}",
            "job.json:1: bfloat16: the same block is there as bf16; keep one of them");
    refused("{\"train_batch_size\": 1, \"aio\": {\"thread_count\": 1, \"intra_op_parallelism\": 2}}",
            "job.json:1: aio.thread_count: aio.intra_op_parallelism is given too; keep the new name");
}

static void engine__unknown_keys_name_the_nearest_or_the_right_place(void **state)
{
    (void)state;
    refused(
        "{\"train_batch_sise\": 1, \"fp16\": {\"enable\": true, \"stage\": 1},\n"
        "\"offload_optimizer\": {\"device\": \"cpu\"}, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"beta\": 1}}}",
        "job.json:1: fp16.enable: unknown key; did you mean \"enabled\"?\n"
        "job.json:1: fp16.stage: unknown key; it belongs to zero_optimization.stage\n"
        "job.json:2: optimizer.params.beta: unknown key");
    warned("job.json:1: train_batch_sise: unknown key, ignored as in DeepSpeed; did you mean \"train_batch_size\"?");
    warned("job.json:2: offload_optimizer: unknown key, ignored as in DeepSpeed; it belongs to "
           "zero_optimization.offload_optimizer");
    reads(JOB(", \"engine\": {\"fp17\": {}, \"zebra\": [1]}"));
    warned("job.json:1: engine.fp17: unknown key, ignored as in DeepSpeed; did you mean \"fp16\"?");
    warned("job.json:1: engine.zebra: unknown key, ignored as in DeepSpeed");
    sets[0] = "engine.zebra=1";
    request.set_count = 1;
    refused(JOB(", \"engine\": {}"), "--set: engine.zebra: unknown key");
    request.set_count = 0;
    refused("{\"train_batch_size\": 1, \"optimizer\": {\"params\": {\"lr\": 1}}}",
            "job.json:1: optimizer.params: there is no optimizer.type that they could belong to");
    refused(
        "{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"max_grad_norm\": 1}}}",
        "job.json:1: optimizer.params.max_grad_norm: DeepSpeed refuses it here; write gradient_clipping at the top");
    refused("{\"train_batch_size\": 1, \"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0}}}",
            "job.json:1: scheduler.params.cycle_max_lr: must be given for OneCycle");
    refused("{\"train_batch_size\": 1, \"zero_optimization\": {\"offload_param\": {\"device\": \"nvme\"}}}",
            "job.json:1: zero_optimization.offload_param.device: \"nvme\" needs a folder: give "
            "zero_optimization.offload_param.nvme_path");
}

static void engine__what_is_not_there_yet_warns_and_stops_training(void **state)
{
    (void)state;
    const char *text = "{\"train_batch_size\": 1, \"gradient_clipping\": 1,\n\"autotuning\": {\"enabled\": true},\n"
                       "\"optimizer\": {\"type\": \"OneBitAdam\"}, \"zero_optimization\": {\"stage\": 2},\n"
                       "\"sparse_attention\": {\"mode\": \"fixed\", \"block\": 16}, \"wandb\": {\"enabled\": true}}";
    reads(text);
    warned("job.json:2: autotuning.enabled is true: not there yet: ");
    warned("job.json:3: optimizer.type is OneBitAdam: not there yet: ");
    warned("job.json:4: sparse_attention.mode is \"fixed\", sparse_attention.block is 16: not there yet: ");
    not_warned("zero_optimization.stage");
    not_warned("wandb");
    request.training = true;
    assert_int_equal(read_text(text), HT_EINVAL);
    assert_int_equal(ht_config_problems(config)->errors, 3);
    reads("{\"train_batch_size\": 1, \"fp16\": {\"enabled\": false}, \"zero_optimization\": {\"stage\": 3}}");
}

#define LENIENT(train, engine)                                                                                         \
    JOB(", \"halftone\": {\"lenient\": true}, \"train\": {" train "},\n\"engine\": {" engine "}")

static void lenient__leaves_out_what_is_not_there_yet(void **state)
{
    (void)state;
    request.training = true;
    reads(LENIENT("", "\"train_batch_size\": 1, \"autotuning\": {\"enabled\": true},\n"
                      "\"fp16\": {\"enabled\": false, \"magic\": 1},\n"
                      "\"optimizer\": {\"type\": \"OneBitAdam\", \"params\": {\"lr\": 0.5}},\n"
                      "\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}}"));
    warned("job.json:2: left out: engine.autotuning.enabled is true: ");
    warned("job.json:3: left out: engine.fp16.magic is unknown");
    warned("job.json:4: left out, which changes the mathematics: optimizer.type is OneBitAdam: adamw stands in for it");
    warned("job.json:5: left out: engine.zero_optimization.offload_optimizer.device is \"cpu\": ");
    assert_string_equal(ht_config_train(config)->optimizer->name, "adamw");
    assert_true(ht_config_train(config)->lr == 0.5);
    refused(LENIENT("", "\"optimizer\": {\"type\": \"SGD\",\n\"params\": {\"speed\": 1}}"),
            "job.json:3: engine.optimizer.params.speed: unknown key");
}

static void lenient__lets_the_job_win(void **state)
{
    (void)state;
    reads(LENIENT("\"lr\": 0.1, \"precision\": \"fp32\", \"clip\": 3, \"optimizer\": \"sgd\", \"momentum\": 0.5",
                  "\"gradient_clipping\": 1, \"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": true},\n"
                  "\"data_types\": {\"grad_accum_dtype\": \"bf16\"},\n"
                  "\"optimizer\": {\"type\": \"Lion\", \"params\": {\"lr\": 0.2, \"weight_decay\": 7}}"));
    const ht_train_config *t = ht_config_train(config);
    assert_true(t->lr == 0.1 && t->clip == 3 && t->hyper.momentum == 0.5 && t->hyper.weight_decay == 0.01);
    assert_string_equal(t->optimizer->name, "sgd");
    assert_string_equal(t->precision, "fp32");
    assert_false(t->half_moments || t->half_gradients || t->decay_all);
    warned("train.clip (job.json:1) is 3, but engine.gradient_clipping (job.json:2) is 1: the job's holds");
    warned("train.precision (job.json:1) is \"fp32\", but engine.bf16.enabled (job.json:2) is true: the job's holds");
    warned("train.optimizer (job.json:1) is \"sgd\", but engine.optimizer.type (job.json:4) is \"Lion\": the job's");
    reads(LENIENT("\"steps\": 50, \"warmup\": 5, \"lr\": 0.1",
                  "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 70}}"));
    assert_true(ht_config_schedule_number(config, "warmup_num_steps", 50) == 5);
    reads(LENIENT("\"schedule\": \"linear\", \"warmup\": 3", "\"scheduler\": {\"type\": \"WarmupLR\"}"));
    assert_string_equal(ht_config_train(config)->schedule, "linear");
    reads(LENIENT("\"masters\": true, \"loss_scale\": 8",
                  "\"fp16\": {\"enabled\": true, \"loss_scale\": 4, \"fp16_master_weights_and_grads\": true}"));
    assert_true(ht_config_train(config)->masters && ht_config_train(config)->fixed_scale == 8);
    assert_false(ht_config_train(config)->half_gradients);
}

static void lenient__keeps_the_batch_of_a_step(void **state)
{
    (void)state;
    reads(LENIENT("", "\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4,\n"
                      "\"gradient_accumulation_steps\": 2"));
    const ht_train_config *t = ht_config_train(config);
    assert_true(t->batch == 64 && t->micro_batch == 4 && t->accumulate == 16);
    warned("left out: engine.gradient_accumulation_steps (job.json:3) is 2: it does not fit the other sizes on 1 rank");
    is("engine", "gradient_accumulation_steps", "16 | derived: 64 / (4 × 1 rank)");
    reads(LENIENT("\"batch\": 6", "\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4"));
    t = ht_config_train(config);
    assert_true(t->batch == 6 && t->micro_batch == 6 && t->accumulate == 1);
    warned("train.batch (job.json:1) is 6, but engine.train_batch_size (job.json:2) is 64: the job's holds");
    refused(LENIENT("\"batch\": 6, \"micro_batch\": 4", ""),
            "train.batch (job.json:1): 6 is not a multiple of train.micro_batch (job.json:1): 4 × 1 rank = 4; 6 / 4 "
            "leaves 2");
}

/* A key of the engine config on the command line is that key, and none of DeepSpeed's other defaults. */
static void set__engine_keys_bring_no_other_defaults(void **state)
{
    (void)state;
    sets[0] = "engine.fp16.enabled=true";
    request.set_count = 1;
    reads(JOB(", \"train\": {\"weight_decay\": 0.5}"));
    assert_string_equal(ht_config_train(config)->precision, "fp16");
    assert_true(ht_config_train(config)->clip == 0 && ht_config_train(config)->hyper.weight_decay == 0.5);
    assert_string_equal(ht_config_train(config)->schedule, "cosine");
    not_warned("gradient_clipping");
    not_warned("batch");
    is("engine", "gradient_clipping", "0 | derived: train.clip (default)");
    sets[0] = "engine.optimizer.type=SGD";
    reads(JOB(""));
    const ht_train_config *t = ht_config_train(config);
    assert_string_equal(t->optimizer->name, "sgd");
    assert_string_equal(t->schedule, "cosine");
    assert_true(!t->decay_all && t->hyper.weight_decay == 0.01 && t->hyper.momentum == 0.9);
    reads(JOB(", \"engine\": {}"));
    assert_true(ht_config_train(config)->clip == 1 && ht_config_train(config)->decay_all);
    request.set_count = 0;
}

static void engine__a_path_is_seen_from_the_job(void **state)
{
    (void)state;
    char folder[] = "/tmp/halftone-config-XXXXXX", engine[64], job[64];
    assert_non_null(mkdtemp(folder));
    snprintf(engine, sizeof engine, "%s/ds.json", folder);
    snprintf(job, sizeof job, "%s/job.json", folder);
    FILE *file = fopen(engine, "w");
    assert_non_null(file);
    fputs("{\"train_batch_size\": 9,\n\"optimizer\": {\"type\": \"SGD\", \"params\": {\"momentom\": 0.5}}}", file);
    fclose(file);
    request.path = job;
    char wanted[200];
    snprintf(wanted, sizeof wanted, "%s:2: optimizer.params.momentom: unknown key; did you mean \"momentum\"?", engine);
    refused(JOB(", \"engine\": \"ds.json\""), wanted);
    request.path = "elsewhere.json";
    request.engine_path = engine;
    refused(JOB(", \"engine\": {\"train_batch_size\": 1}"), wanted);
    remove(engine);
    rmdir(folder);
}

/* ---- for people and programs ---- */

static void print__every_value_is_in_the_json_and_reads_back(void **state)
{
    (void)state;
    reads(JOB(", \"train\": {\"output\": \"a\\\"b\"}, \"engine\": {\"compression_training\": {\"weight_quantization\": "
              "{\"different_groups\": {\"g\": {\"params\": {\"start_bits\": 8}}}}}}"));
    ht_text text = {0};
    ht_config_print_json(&text, config);
    ht_arena *arena = ht_arena_create();
    const ht_json *root;
    if (ht_json_parse(&ctx, arena, "out", text.data, text.length, &root) != HT_OK) fail_msg("%s", ctx.message);
    const ht_json *values = ht_json_get(root, "values");
    assert_string_equal(ht_json_get(ht_json_get(values, "train.output"), "value")->text, "a\"b");
    const ht_json *bits =
        ht_json_get(values, "engine.compression_training.weight_quantization.different_groups.g.params.start_bits");
    assert_int_equal(ht_json_get(bits, "value")->integer, 8);
    assert_string_equal(ht_json_get(bits, "origin")->text, "file");
    assert_int_equal(ht_json_get(bits, "line")->integer, 1);
    assert_string_equal(ht_json_get(ht_json_get(values, "engine.fp16.hysteresis"), "origin")->text, "default");
    assert_true(values->count > 400);
    ht_arena_free(arena);
    ht_text_free(&text);
}

static void print__unused_defaults_are_counted_unless_all_is_wanted(void **state)
{
    (void)state;
    reads("{\"train_batch_size\": 1, \"zero_optimization\": {\"stage\": 2}}");
    ht_text few = {0}, all = {0};
    ht_config_print(&few, config, false);
    ht_config_print(&all, config, true);
    assert_non_null(strstr(few.data, "zero_optimization.stage"));
    assert_non_null(strstr(few.data, "job.json:1; nothing to do on one rank"));
    assert_null(strstr(few.data, "hysteresis"));
    assert_non_null(strstr(few.data, "more keys have their defaults"));
    assert_non_null(strstr(all.data, "fp16.hysteresis"));
    assert_null(strstr(all.data, "more keys have"));
    ht_text_free(&few);
    ht_text_free(&all);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(job__is_enough_alone),
        TEST(job__schedules_are_told_as_numbers),
        TEST(job__comments_commas_and_numbers_as_people_write_them),
        TEST(job__keys_belong_to_the_chosen_type),
        TEST(job__a_block_without_registered_keys_is_taken_as_it_stands),
        TEST(job__all_errors_at_once),
        TEST(job__hostile_files_are_refused),
        TEST(set__overrides_and_says_so),
        TEST(set__chooses_the_type),
        TEST(set__wrong_ones_are_refused),
        TEST(set__an_unknown_optimizer_over_a_known_one_is_refused),
        TEST(engine__stands_alone),
        TEST(engine__adam_w_mode_false_is_plain_adam),
        TEST(engine__clips_at_one_unless_told_and_says_so),
        TEST(engine__auto_is_filled_from_the_job),
        TEST(engine__a_missing_optimizer_is_the_jobs),
        TEST(muon__has_the_defaults_of_its_row),
        TEST(muon__takes_deepspeeds_two_rates),
        TEST(engine__two_different_values_clash),
        TEST(engine__batch_identity),
        TEST(engine__fp16_and_bf16_exclude_each_other),
        TEST(engine__old_spellings_are_mapped),
        TEST(engine__unknown_keys_name_the_nearest_or_the_right_place),
        TEST(engine__auto_warm_up_is_a_tenth_of_the_steps),
        TEST(engine__small_keys_are_taken_as_deepspeed_takes_them),
        TEST(engine__torch_adam_decays_by_pytorchs_default),
        TEST(engine__an_optimizer_that_is_not_there_yet_names_its_stand_in),
        TEST(engine__what_is_not_there_yet_warns_and_stops_training),
        TEST(lenient__leaves_out_what_is_not_there_yet),
        TEST(lenient__lets_the_job_win),
        TEST(lenient__keeps_the_batch_of_a_step),
        TEST(set__engine_keys_bring_no_other_defaults),
        TEST(engine__a_path_is_seen_from_the_job),
        TEST(print__every_value_is_in_the_json_and_reads_back),
        TEST(print__unused_defaults_are_counted_unless_all_is_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
