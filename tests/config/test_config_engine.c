/* DeepSpeed's config: what it comes to, alone and beside a job. */
#include "config_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Ranks that share a model share no batch. */
static void engine__batch_is_shared_by_the_data_axis(void **state)
{
    (void)state;
    request.ranks = 8;
    reads(JOB(", \"train\": {\"batch\": 8}, \"halftone\": {\"parallel\": {\"tensor\": 4}}"));
    is("train", "micro_batch", "4 | derived: 8 / (1 × 2 data ranks)");
    refused(JOB(", \"train\": {\"batch\": 9}, \"halftone\": {\"parallel\": {\"tensor\": 4}}"),
            "train.batch (job.json:1): 9 is not a multiple of accumulation: 1 × 2 data ranks = 2; 9 / 2 leaves 1");
    refused(JOB(", \"halftone\": {\"parallel\": {\"tensor\": 3}}"),
            "8 ranks (--ranks, or the launcher's) are no multiple of halftone.parallel.tensor (job.json:1): 3 × "
            "halftone.parallel.pipeline (default): 1");
    refused(JOB(", \"engine\": {\"pipeline\": {\"stages\": 3}}"),
            "8 ranks (--ranks, or the launcher's) are no multiple of halftone.parallel.tensor (default): 1 × "
            "engine.pipeline.stages (job.json:1): 3");
    refused(JOB(", \"halftone\": {\"parallel\": {\"tensor\": 2}}, \"engine\": {\"train_batch_size\": 8, "
                "\"tensor_parallel\": {\"autotp_size\": 4}}"),
            "job.json:1: tensor_parallel.autotp_size: 4 ranks share each layer, but halftone.parallel.tensor "
            "(job.json:1) says 2: leave out one of them");
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
    not_warned("zero_optimization.offload_optimizer");
    assert_string_equal(ht_config_train(config)->offload_optimizer, "cpu");
    refused("{\"train_batch_size\": 1, \"zero_optimization\": {\"prefetch_bucket_size\": -7, \"cpu_offload\": 1}}",
            "job.json:1: zero_optimization.cpu_offload: expected true or false, found 1\n"
            "job.json:1: zero_optimization.stage3_prefetch_bucket_size: expected an integer from 0 to "
            "9007199254740992, found -7");
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

static void engine__aio_and_nvme_path_reach_the_disk(void **state)
{
    (void)state;
    reads("{\"train_batch_size\": 1, \"aio\": {\"block_size\": 262144, \"queue_depth\": 32, \"thread_count\": 2,\n"
          "\"single_submit\": true, \"overlap_events\": false},\n"
          "\"zero_optimization\": {\"offload_param\": {\"nvme_path\": \"/fast\"}}}");
    const ht_train_config *r = ht_config_train(config);
    assert_string_equal(r->disk_folder, "/fast");
    assert_int_equal(r->disk.block_size, 262144);
    assert_int_equal(r->disk.queue_depth, 32);
    assert_int_equal(r->disk.intra_op_parallelism, 2);
    assert_true(r->disk.single_submit && !r->disk.overlap_events && !r->disk.threads && !r->disk.keep_files);
    reads("{\"train_batch_size\": 1, \"zero_optimization\": {\"offload_param\": {\"nvme_path\": \"/fast\"},\n"
          "\"offload_optimizer\": {\"nvme_path\": \"/large\"}}}");
    assert_string_equal(ht_config_train(config)->disk_folder, "/large");
    warned("all that lies on a disk is in one folder: that of offload_optimizer is taken");
    reads(JOB(", \"halftone\": {\"disk_folder\": \"/own\", \"disk_engine\": \"threads\", \"disk_keep_files\": true},\n"
              "\"engine\": {\"zero_optimization\": {\"offload_optimizer\": {\"nvme_path\": \"/large\"}}}"));
    r = ht_config_train(config);
    assert_string_equal(r->disk_folder, "/own");
    assert_true(r->disk.threads && r->disk.keep_files && r->disk.overlap_events);
    refused("{\"train_batch_size\": 1, \"aio\": {\"queue_depth\": 0}}",
            "job.json:1: aio.queue_depth: expected an integer from 1 to 1024, found 0");
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
                      "\"compile\": {\"offload_activation\": true}"));
    warned("job.json:2: left out: engine.autotuning.enabled is true: ");
    warned("job.json:3: left out: engine.fp16.magic is unknown");
    warned("job.json:4: left out, which changes the mathematics: optimizer.type is OneBitAdam: adamw stands in for it");
    warned("job.json:5: left out: engine.compile.offload_activation is true: ");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(engine__stands_alone),
        TEST(engine__adam_w_mode_false_is_plain_adam),
        TEST(engine__clips_at_one_unless_told_and_says_so),
        TEST(engine__auto_is_filled_from_the_job),
        TEST(engine__a_missing_optimizer_is_the_jobs),
        TEST(muon__has_the_defaults_of_its_row),
        TEST(muon__takes_deepspeeds_two_rates),
        TEST(engine__two_different_values_clash),
        TEST(engine__batch_identity),
        TEST(engine__batch_is_shared_by_the_data_axis),
        TEST(engine__fp16_and_bf16_exclude_each_other),
        TEST(engine__old_spellings_are_mapped),
        TEST(engine__unknown_keys_name_the_nearest_or_the_right_place),
        TEST(engine__auto_warm_up_is_a_tenth_of_the_steps),
        TEST(engine__small_keys_are_taken_as_deepspeed_takes_them),
        TEST(engine__torch_adam_decays_by_pytorchs_default),
        TEST(engine__an_optimizer_that_is_not_there_yet_names_its_stand_in),
        TEST(engine__aio_and_nvme_path_reach_the_disk),
        TEST(engine__what_is_not_there_yet_warns_and_stops_training),
        TEST(lenient__leaves_out_what_is_not_there_yet),
        TEST(lenient__lets_the_job_win),
        TEST(lenient__keeps_the_batch_of_a_step),
        TEST(set__engine_keys_bring_no_other_defaults),
        TEST(engine__a_path_is_seen_from_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
