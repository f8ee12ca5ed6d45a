#include "run_case.h"

#include "tiny_data.h"

bool run_is_long(void)
{
    return getenv("HALFTONE_LONG") != NULL;
}

const run_job run_jobs[RUN_JOBS] = {
    {"gpt2", "\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16, \"dropout\": 0.1",
     "\"format\": \"text\", \"train\": \"text.txt\", \"tokenizer\": \"char\", \"length\": 16, \"prefetch\": true", 22},
    {"seq2seq", "\"type\": \"seq2seq\", \"hidden\": 12, \"layers\": 2, \"dropout\": 0.1",
     "\"format\": \"pairs\", \"train\": \"pairs.tsv\", \"validation\": \"pairs.tsv\", \"minimum_count\": 1, "
     "\"buckets\": 3",
     22},
    {"resnet", "\"type\": \"resnet\", \"width\": 4, \"stem\": \"cifar\"",
     "\"format\": \"idx\", \"train\": \"train-images-idx3-ubyte\", \"validation_share\": 0.1", 17},
};
const char *const run_modes[RUN_MODES] = {"--set train.precision=fp32", "--deepspeed dynamic.json",
                                          "--set train.precision=bf16"};
void run_case_write(data_case *c, const run_job *job)
{
    char text[2048];
    tiny_text(c);
    tiny_pairs(c);
    tiny_images(c);
    snprintf(text, sizeof text,
             "{\"model\": {%s}, \"data\": {%s}, \"train\": {\"steps\": %d, \"batch\": 8, \"accumulate\": 2, \"lr\": "
             "3e-3, \"clip\": 1.0, \"schedule\": \"cosine\", \"log_every\": 1, \"eval_every\": 3, \"eval_batches\": 3, "
             "\"snapshot_every\": 2, \"keep\": 100}}",
             job->model, job->data, run_is_long() ? RUN_LONG_STEPS : RUN_STEPS);
    data_case_text(c, "job.json", text);
    snprintf(text, sizeof text,
             "{\"fp16\": {\"enabled\": true, \"initial_scale_power\": %d, \"hysteresis\": 1, \"loss_scale_window\": "
             "2}, \"gradient_clipping\": 1.0}",
             job->scale_power);
    data_case_text(c, "dynamic.json", text);
}

void run_expect_same(const data_case *c, const char *a, const char *b)
{
    char line[2048];
    snprintf(line, sizeof line,
             "for r in %s %s; do sed -E '/\"kind\": \"(run|end|bytes)\"/d; "
             "s/\"(seconds|syncs|tokens_per_second|hidden_share|[a-z_]*_ms|[a-z_]*bytes)\": [-+0-9.e]+,? ?//g' "
             "$r/metrics.jsonl > $r.metrics; done; cmp %s.metrics %s.metrics && test -s %s.metrics && "
             "for f in $(cd %s && echo snapshots/*/*.safetensors); do cmp %s/$f %s/$f || exit 1; done && "
             "test $(ls %s/snapshots | wc -l) = $(ls %s/snapshots | wc -l) && echo the same runs",
             a, b, a, b, a, a, a, b, a, b);
    expect(c, line, 0, "the same runs\n");
}

void run_train(const data_case *c, const char *folder, const char *environment, const char *options)
{
    char line[1024];
    snprintf(line, sizeof line, "rm -rf %s; %s timeout 600 \"$H\" train job.json --set train.output=%s %s", folder,
             environment, folder, options);
    expect(c, line, 0, "step ");
}
