/* halftone init, train and eval from outside: jobs end to end, resuming, and what is refused. */
#include "cli_case.h"

/* ---- data ---- */

static void write_text(data_case *c)
{
    static char text[12000];
    size_t length = 0;
    for (int i = 0; length + 64 < sizeof text; i++)
        length += (size_t)sprintf(text + length, "%d times %d makes %d.\n", i % 13, i % 7, (i % 13) * (i % 7));
    data_case_text(c, "sums.txt", text);
}

static void write_pairs(data_case *c)
{
    static const char *const words[][2] = {{"one", "un"}, {"two", "deux"}, {"cat", "chat"}, {"dog", "chien"}};
    static char text[16000];
    size_t length = 0;
    for (int i = 0; i < 200; i++) {
        for (int side = 0; side < 2; side++) {
            for (int k = 0; k <= i % 5; k++)
                length += (size_t)sprintf(text + length, "%s ", words[(i / 5 + k * 3) % 4][side]);
            length += (size_t)sprintf(text + length, "%d%c", i, side ? '\n' : '\t');
        }
    }
    data_case_text(c, "pairs.tsv", text);
}

/* Images of 6×6 whose bright half tells their class. */
static void write_images(data_case *c)
{
    enum { COUNT = 120, SIDE = 6 };
    static unsigned char images[16 + COUNT * SIDE * SIDE] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    static unsigned char labels[8 + COUNT] = {0, 0, 8, 1, 0, 0, 0, COUNT};
    for (int i = 0; i < COUNT; i++) {
        labels[8 + i] = (unsigned char)(i % 2);
        for (int p = 0; p < SIDE * SIDE; p++) {
            bool bright = (p % SIDE < SIDE / 2) == (i % 2 == 0);
            images[16 + i * SIDE * SIDE + p] = (unsigned char)((bright ? 180 : 20) + (i * 7 + p * 13) % 60);
        }
    }
    data_case_file(c, "train-images-idx3-ubyte", images, sizeof images);
    data_case_file(c, "train-labels-idx1-ubyte", labels, sizeof labels);
}

static const char text_job[] =
    "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16, \"dropout\": 0.1},\n"
    " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"tokenizer\": \"char\", \"length\": 16},\n"
    " \"train\": {\"steps\": 40, \"batch\": 8, \"accumulate\": 2, \"lr\": 3e-3, \"eval_every\": 7, \"log_every\": 1,\n"
    "            \"snapshot_every\": 5, \"clip\": 1.0}}\n";

/* ---- from the beginning to the end ---- */

/* The last record, and only that one: what the process took is within what was planned and stated. */
static void expect_memory_at_the_end(const data_case *c, int step)
{
    int status;
    long long made, plan, peak, reserve;
    expect(c, "grep -c '\"kind\": \"end\"' run/metrics.jsonl", 0, "1\n");
    const char *line = run(c, "tail -n 1 run/metrics.jsonl", &status);
    assert_int_equal(sscanf(line,
                            "{\"kind\": \"end\", \"step\": %lld, \"seconds\": %*f, \"plan_bytes\": %lld, "
                            "\"process_peak_bytes\": %lld, \"reserve_bytes\": %lld}",
                            &made, &plan, &peak, &reserve),
                     4);
    assert_int_equal(made, step);
    if (plan <= 0 || peak <= plan || reserve <= 0) fail_msg("%s", line);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* A sanitizer holds as much again, and more. */
    if (peak > plan + reserve) fail_msg("the process held more than was stated: %s", line);
#endif
}

/* A snapshot that is larger than what the reserve leaves for a program's own. */
static void resume__holds_no_more_than_its_reserve(void **state)
{
    data_case *c = *state;
    write_text(c);
    data_case_text(
        c, "large.json",
        "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 4, \"n_embd\": 640},\n"
        " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"tokenizer\": \"byte\", \"length\": 8,\n"
        "            \"validation_share\": 0.1},\n"
        " \"train\": {\"steps\": 1, \"batch\": 2, \"eval_every\": 0, \"output\": \"run\"}}");
    expect(c, "\"$H\" train large.json", 0, "step 1 of 1");
    expect(c, "\"$H\" train large.json --resume --set train.steps=2 --set train.eval_every=0", 0, "step 2 of 2");
    expect_memory_at_the_end(c, 2);
    /* Nothing is left to do, and so nothing is evaluated: the hint is that of a job with a validation part. */
    expect(c, "\"$H\" train large.json --resume --set train.steps=2 2> notes; grep ' eval run$' notes", 0, "eval run");
}

static void train__learns_a_text_and_evaluates_the_same(void **state)
{
    data_case *c = *state;
    write_text(c);
    data_case_text(c, "job.json", text_job);
    expect(c, "\"$H\" train job.json 2>/dev/null | head -n 1", 0, "step 1 of 40 loss ");
    expect(c, "\"$H\" train job.json --force", 0, "eval 40 loss ");
    expect(c, "ls run run/snapshots", 0, "config.resolved.json");
    expect(c, "ls run", 0, "metrics.jsonl\nsnapshots\ntarget.json\nvocabulary.json");
    expect(c, "ls run", 0, "events.out.tfevents.");
    expect(c, "grep -c '\"kind\": \"step\"' run/metrics.jsonl", 0, "40\n");
    expect(c, "grep -c '\"kind\": \"eval\"' run/metrics.jsonl", 0, "6\n");
    expect(c, "ls run/snapshots", 0, "step-00000035\nstep-00000040\n");
    expect_memory_at_the_end(c, 40);
    /* Lines that a person can read: a few values, and the rest in metrics.jsonl. */
    expect(c,
           "\"$H\" train job.json --force 2>/dev/null | awk '{if (length($0) > most) most = length($0)} END {print "
           "(most <= 120)}'",
           0, "1\n");
    /* At the end it names commands that work. */
    expect(
        c,
        "\"$H\" train job.json --force --set 'train.lr=1e-3' > /dev/null 2> notes; grep -A 2 'next, to evaluate' notes",
        0, " train job.json --resume --set train.lr=1e-3 --set train.steps=60\n");
    expect(c, "tail -n 2 notes | head -n 1 > one && sh -e one", 0, "perplexity  ");
    expect(c, "tail -n 1 notes > two && sh -e two", 0, "step 60 of 60");
    expect(c, "\"$H\" train job.json --force", 0, "");
    /* What training said last, to the last digit. */
    expect(c,
           "a=$(grep '\"kind\": \"eval\"' run/metrics.jsonl | tail -n 1 | sed 's/.*\"loss\": \\([^,]*\\),.*/\\1/'); "
           "\"$H\" eval run --json | grep -F \"\\\"loss\\\": $a,\"",
           0, "\"step\": 40");
    expect(c, "\"$H\" eval run", 0, "perplexity  ");
    expect(c, "\"$H\" eval run --set train.eval_batches=1", 0, "count       64\n");
    /* A loss that begins near the logarithm of the vocabulary has to come down. */
    expect(c,
           "awk -F'\"loss\": ' '/\"loss\": / {split($2, a, \",\"); if (NR == 1) first = a[1]; last = a[1]} "
           "END {print (last < first - 0.3) ? \"learned\" : \"not\"}' run/metrics.jsonl",
           0, "learned");
}

static void train__learns_a_text_by_muon(void **state)
{
    data_case *c = *state;
    write_text(c);
    data_case_text(c, "job.json", text_job);
    expect(c, "\"$H\" train job.json --set train.optimizer=muon --set train.lr=0.02", 0, "eval 40 loss ");
    expect(c, "grep -c '\"train.rest_lr_scale\": {\"value\": 0.015, ' run/config.resolved.json", 0, "1\n");
    expect(c,
           "awk -F'\"loss\": ' '/\"loss\": / {split($2, a, \",\"); if (NR == 1) first = a[1]; last = a[1]} "
           "END {print (last < first - 0.3) ? \"learned\" : \"not\"}' run/metrics.jsonl",
           0, "learned");
    expect(c, "\"$H\" eval run", 0, "perplexity  ");
}

static void train__learns_images(void **state)
{
    data_case *c = *state;
    write_images(c);
    data_case_text(
        c, "job.json",
        "{\"model\": {\"type\": \"mlp\", \"hidden\": [16]},\n"
        " \"data\": {\"format\": \"idx\", \"train\": \"train-images-idx3-ubyte\", \"validation_share\": 0.2},\n"
        " \"train\": {\"epochs\": 10, \"batch\": 16, \"lr\": 0.01, \"output\": \"out/images\"}}\n");
    expect(c, "\"$H\" train job.json", 0, "accuracy 1.000000");
    expect(c, "\"$H\" eval out/images", 0, "accuracy    1.0000\n");
    expect(c, "if \"$H\" eval out/images | grep perplexity; then exit 3; fi", 0, "");
}

static void train__learns_pairs_of_all_lengths(void **state)
{
    data_case *c = *state;
    write_pairs(c);
    data_case_text(c, "job.json",
                   "{\"model\": {\"type\": \"seq2seq\", \"hidden\": 16, \"layers\": 1, \"dropout\": 0.1},\n"
                   " \"data\": {\"format\": \"pairs\", \"train\": \"pairs.tsv\", \"minimum_count\": 2,\n"
                   "           \"buckets\": 3},\n"
                   " \"train\": {\"epochs\": 4, \"batch\": 16, \"accumulate\": 2, \"lr\": 0.01, \"eval_every\": 5}}\n");
    expect(c, "\"$H\" train job.json", 0, "perplexity ");
    expect(c, "ls run", 0, "source_vocabulary.json\ntarget.json\nvocabulary.json");
    expect(c, "\"$H\" eval run", 0, "perplexity  ");
}

static void train__a_table_by_every_optimizer_and_schedule(void **state)
{
    data_case *c = *state;
    data_case_text(c, "t.csv", "a,b,y\n1,2,3\n2,3,5\n3,1,4\n0,1,1\n2,2,4\n4,1,5\n1,1,2\n3,3,6\n");
    data_case_text(c, "job.json",
                   "{\"model\": {\"type\": \"mlp\", \"hidden\": [8]},\n"
                   " \"data\": {\"format\": \"table\", \"train\": \"t.csv\", \"validation_share\": 0},\n"
                   " \"train\": {\"task\": \"regression\", \"steps\": 12, \"batch\": 8, \"lr\": 0.01}}\n");
    expect(c,
           "for o in sgd adam adamw adamw_hf adagrad lion lamb muon; do for s in constant linear cosine; do "
           "\"$H\" train job.json --force --set train.optimizer=$o --set train.schedule=$s || exit; done; done",
           0, "step 12 of 12");
    expect(c, "\"$H\" eval run", 2, "has no validation part");
    /* The rate of the schedule, not the optimiser's: a warm-up of 4 steps, then down to the last. */
    expect(c,
           "\"$H\" train job.json --force --set train.schedule=linear --set train.warmup=4 --set train.lr_min=0 "
           "--set train.log_every=1 | sed -n 's/.* lr \\([^ ]*\\) .*/\\1/p' | sort -g | tail -n 1",
           0, "0.01\n");
    expect(c, "\"$H\" train job.json --force --set train.log_every=1 | sort -u -t' ' -k 10,10 | grep -c ^step", 0,
           "12\n");
}

/* The same 16 rows at once, or in 4 pieces whose gradients are added: only roundings differ. */
static void train__micro_batches_add_up_to_a_batch(void **state)
{
    data_case *c = *state;
    data_case_text(c, "job.json",
                   "{\"model\": {\"type\": \"mlp\", \"hidden\": [8]},\n"
                   " \"data\": {\"format\": \"table\", \"train\": \"t.csv\", \"validation_share\": 0},\n"
                   " \"train\": {\"epochs\": 5, \"batch\": 16, \"lr\": 0.01, \"clip\": 1.0, \"log_every\": 1}}\n");
    expect(c,
           "awk 'BEGIN { for (i = 0; i < 64; i++) print sin(i) \",\" cos(i * i) \",\" (sin(i) > 0.3) }' > t.csv; "
           "for k in 1 4; do \"$H\" train job.json --force --set train.accumulate=$k 2>/dev/null | cut -d' ' -f 6,10 > "
           "$k; "
           "done; paste -d' ' 1 4 | awk 'function off(a, b) { return !(a > 0) || a > b * 1.0001 || b > a * 1.0001 } "
           "off($1, $3) || off($2, $4) { print \"apart:\", $0; exit 3 } END { print NR, \"steps\" }'",
           0, "20 steps\n");
}

/* ---- stopping and going on ---- */

/* Everything that the two runs have to share: losses to the last digit, and the last snapshot's bytes. */
static void expect_the_same_runs(const data_case *c)
{
    expect(c,
           "for r in whole run; do sed 's/, \"tokens_per_second.*skipped/, \"skipped/; s/, \"seconds.*//' "
           "$r/metrics.jsonl > $r.txt; done; cmp whole.txt run.txt && "
           "for f in weights optimizer; do cmp $(ls -d whole/snapshots/step-* | tail -n 1)/$f.safetensors "
           "$(ls -d run/snapshots/step-* | tail -n 1)/$f.safetensors || exit; done; echo same",
           0, "same\n");
}

static void resume__after_kill_gives_the_same_bits(void **state)
{
    data_case *c = *state;
    write_text(c);
    data_case_text(c, "job.json", text_job);
    /* Nor does the number of threads matter. */
    expect(c, "OMP_NUM_THREADS=1 \"$H\" train job.json --set train.output=whole --set train.steps=200", 0,
           "step 200 of 200");
    expect(c,
           "mkfifo progress; \"$H\" train job.json --set train.steps=200 > progress & p=$!; exec 3< progress; "
           "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do read line <&3; done; kill -9 $p; "
           "wait $p; echo ended $?",
           0, "ended 137");
    expect(c, "\"$H\" train job.json --set train.steps=200", 2, "run holds a run already");
    expect(c, "\"$H\" train job.json --set train.steps=200 --resume", 0, "goes on after step ");
    expect_the_same_runs(c);
    expect(c, "\"$H\" train job.json --set train.steps=200 --resume", 0, "all 200 steps are made");
    expect_memory_at_the_end(c, 200);
}

static void resume__after_a_signal_gives_the_same_bits(void **state)
{
    data_case *c = *state;
    write_text(c);
    /* A model that carries its state from batch to batch. */
    data_case_text(c, "job.json",
                   "{\"model\": {\"type\": \"lstm_lm\", \"hidden\": 16, \"layers\": 1, \"dropout\": 0.1},\n"
                   " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"length\": 8, \"order\": \"stream\"},\n"
                   " \"train\": {\"steps\": 300, \"batch\": 4, \"lr\": 3e-3, \"eval_every\": 50, \"log_every\": 1,\n"
                   "            \"snapshot_every\": 0}}\n");
    expect(c, "\"$H\" train job.json --set train.output=whole", 0, "step 300 of 300");
    expect(c,
           "mkfifo progress; for s in TERM USR1 INT; do \"$H\" train job.json --resume > progress 2> notes & p=$!; "
           "exec 3< progress; for i in 1 2 3 4 5 6 7; do read line <&3; done; kill -$s $p; cat <&3 > rest; "
           "wait $p; echo ended $?; cat notes; done",
           0, "stopped after step ");
    expect(c, "\"$H\" train job.json --resume", 0, "step 300 of 300");
    expect_the_same_runs(c);
}

static void resume__refuses_what_would_not_be_the_same_run(void **state)
{
    data_case *c = *state;
    write_text(c);
    data_case_text(c, "job.json", text_job);
    expect(c, "\"$H\" train job.json --resume --set train.steps=3", 0, "begins at its first step");
    expect(c, "\"$H\" train job.json --resume --set train.batch=6", 2, "train.micro_batch 4, not 3");
    expect(c, "\"$H\" train job.json --resume --set train.seed=2", 2, "train.seed 1, not 2");
    expect(c, "\"$H\" train job.json --resume --set model.n_embd=32", 2, "the model's is");
    expect(c, "\"$H\" train job.json --resume --force", 2, "one of them");
}

/* ---- what is wrong ---- */

static void train__says_what_is_wrong_with_a_job(void **state)
{
    data_case *c = *state;
    write_text(c);
    data_case_text(c, "job.json", text_job);
    data_case_text(c, "empty.txt", "");
    data_case_text(c, "ds.json", "{\"train_batch_size\": 8}");
    data_case_text(c, "t.csv", "a,b,kind\n1,2,red\n2,3,blue\n");
    expect(c, "\"$H\" train", 2, "which job?");
    expect(c, "\"$H\" train nowhere.json", 2, "nowhere.json: No such file or directory");
    expect(c, "\"$H\" train job.json other.json", 2, "one job at a time");
    expect(c, "\"$H\" train job.json --fast", 2, "'--fast' is not understood");
    expect(c, "\"$H\" train ds.json", 2, "training needs a job file");
    expect(c, "\"$H\" train job.json --set data.train=nowhere.txt", 2, "nowhere.txt");
    expect(c, "\"$H\" train job.json --set data.train=empty.txt", 2, "halftone: train: ");
    expect(c, "\"$H\" train job.json --set model.type=gpt3", 2, "gpt3");
    expect(c, "\"$H\" train job.json --set model.n_layers=2", 2, "did you mean \"n_layer\"?");
    expect(c, "\"$H\" train job.json --set model.n_head=3", 2, "n_head");
    expect(c, "\"$H\" train job.json --set train.task=pairs", 2, "cannot learn the task pairs");
    expect(c, "\"$H\" train job.json --set halftone.loss_mean=micro", 2, "not there yet");
    expect(c, "\"$H\" train job.json --set train.output=job.json", 1, "job.json");
    expect(c, "\"$H\" train job.json --set train.batch=7", 2, "batch");
    expect(
        c,
        "echo '{\"model\": {\"type\": \"gpt2\"}, \"data\": {\"format\": \"table\", \"train\": \"t.csv\"}}' > j.json; "
        "\"$H\" train j.json",
        2, "model.type gpt2 learns nothing that data.format table could teach");
    expect(c, "test ! -e run", 0, "");
    expect(c, "\"$H\" eval", 2, "which run?");
    expect(c, "\"$H\" eval nowhere", 2, "nowhere holds no run");
    expect(c, "mkdir half; echo '{\"values\": 3}' > half/config.resolved.json; \"$H\" eval half", 2, "no \"values\"");
}

static void train__stops_when_gradients_stay_infinite(void **state)
{
    data_case *c = *state;
    data_case_text(c, "t.csv", "a,y\n1e30,1e30\n2e30,3e30\n");
    data_case_text(c, "job.json",
                   "{\"model\": {\"type\": \"mlp\"},\n"
                   " \"data\": {\"format\": \"table\", \"train\": \"t.csv\", \"normalize\": false,\n"
                   "           \"validation_share\": 0},\n"
                   " \"train\": {\"task\": \"regression\", \"batch\": 2, \"steps\": 100}}\n");
    expect(c, "\"$H\" train job.json", 1, "the gradients of 20 steps in a row, up to step 20, were not finite");
    expect(c, "grep -c '\"skipped\": true' run/metrics.jsonl", 0, "20\n");
}

static void train__force_removes_the_run_and_nothing_else(void **state)
{
    data_case *c = *state;
    write_text(c);
    data_case_text(c, "job.json", text_job);
    expect(c, "\"$H\" train job.json --set train.steps=20", 0, "step 20 of 20");
    expect(c, "echo mine > run/notes.txt; \"$H\" train job.json --set train.steps=3", 2, "--force removes it");
    expect(c, "\"$H\" train job.json --set train.steps=3 --set data.train=nowhere --force; ls run/snapshots", 0,
           "step-00000020");
    expect(c, "\"$H\" train job.json --set train.steps=3 --force", 0, "step 3 of 3");
    expect(c, "cat run/notes.txt; ls run/snapshots", 0, "mine\nstep-00000003\n");
}

static void train__does_what_the_engine_config_says(void **state)
{
    data_case *c = *state;
    write_text(c);
    data_case_text(c, "job.json",
                   "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16},\n"
                   " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"length\": 16},\n"
                   " \"train\": {\"steps\": 10, \"snapshot_every\": 4}}\n");
    data_case_text(
        c, "ds.json",
        "{\"train_batch_size\": 8, \"gradient_accumulation_steps\": 2, \"steps_per_print\": 5,\n"
        " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.002}}, \"wall_clock_breakdown\": true,\n"
        " \"csv_monitor\": {\"enabled\": true, \"output_path\": \"csv\", \"job_name\": \"mine\"},\n"
        " \"tensorboard\": {\"enabled\": true, \"output_path\": \"board\", \"job_name\": \"mine\"}}\n");
    expect(c, "\"$H\" train job.json --deepspeed ds.json | grep -c '^step.* update_ms '", 0, "3\n");
    expect(c, "head -n 2 csv/mine/Train_Samples_lr.csv", 0, "step,lr\n8,0.00");
    expect(c, "wc -l < csv/mine/Train_Samples_train_loss.csv", 0, "11\n");
    expect(c, "ls board/mine", 0, "events.out.tfevents.");
    expect(c, "grep -ao 'Train/Samples/[a-z]*_*loss' board/mine/* | sort | uniq -c", 0,
           "10 Train/Samples/train_loss\n");
    expect(c, "grep -ac 'train/loss' board/mine/*", 1, "0\n");
    expect(c, "\"$H\" eval run", 0, "perplexity  ");
    expect(c, "\"$H\" train job.json --deepspeed ds.json --resume --set train.steps=12; tail -n 1 csv/mine/*lr.csv", 0,
           "96,0.00");
    expect(c, "wc -l < csv/mine/Train_Samples_train_loss.csv", 0, "13\n");
    expect(c, "head -n 1 csv/mine/Train_Samples_train_loss.csv", 0, "step,train_loss\n");
}

static void init__writes_jobs_that_check_accepts(void **state)
{
    data_case *c = *state;
    write_text(c);
    expect(
        c,
        "for f in text jsonl shards pairs sentences idx images table arrays; do "
        "\"$H\" init sums.txt --format $f - > $f.json && \"$H\" check $f.json --config-only > /dev/null || exit; done; "
        "echo fine",
        0, "fine\n");
    expect(c, "\"$H\" init sums.txt", 0, "job.json is written");
    expect(c, "\"$H\" init sums.txt", 2, "--force writes over it");
    expect(c, "\"$H\" train job.json --set train.steps=2 --set train.batch=2", 0, "eval 2 loss");
    expect(c, "\"$H\" init nothing -", 2, "init: nothing: there is no such file or folder");
    expect(c, "\"$H\" init", 2, "which data?");
    expect(c, "\"$H\" init nothing.txt other.json", 2, "init: nothing.txt: there is no such file");
    expect(c, "touch thing; \"$H\" init thing", 2, "does not tell what it holds");
    expect(c, "\"$H\" init thing --format tape", 2, "--format tape: text, jsonl");
}

/* An input that cannot be read is the user's mistake (2), an output that cannot be written is not (1). */
static void commands__end_with_1_where_they_cannot_write(void **state)
{
    data_case *c = *state;
    write_text(c);
    data_case_text(c, "job.json", text_job);
    expect(c, "\"$H\" train job.json --set train.output=/dev/null/run", 1, "/dev/null/run: Not a directory");
    expect(c, "\"$H\" train job.json --force --set train.output=/dev/null/run", 1, "/dev/null/run");
    expect(c, "touch file && \"$H\" train job.json --set train.output=file", 1, "file: it is no folder");
    expect(c, "\"$H\" compare job.json --precision fp32 -o /dev/null/runs", 1, "/dev/null/runs: Not a directory");
    expect(c, "\"$H\" explain job.json --html /dev/null/x.html", 1, "/dev/null/x.html.part: Not a directory");
    expect(c, "\"$H\" demo --single --steps 1 -o /dev/null/demo", 1, "/dev/null/demo: Not a directory");
    expect(c, "\"$H\" init sums.txt /dev/null/job.json", 1, "/dev/null/job.json: Not a directory");
    expect(c, "\"$H\" train job.json --force --set train.steps=2 > /dev/full", 1,
           "standard output: could not be written");
    expect(c, "\"$H\" eval run > /dev/full", 1, "standard output: ");
    expect(c, "\"$H\" train job.json --force --set data.train=nowhere.txt", 2, "nowhere.txt");
    expect(c, "\"$H\" compare job.json --precision fp32 --set data.train=nowhere.txt", 2, "nowhere.txt");
}

static void commands__have_help(void **state)
{
    data_case *c = *state;
    expect(c, "\"$H\" train --help", 0, "usage: halftone train");
    expect(c, "\"$H\" eval --help", 0, "usage: halftone eval");
    expect(c, "\"$H\" init --help", 0, "usage: halftone init");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(resume__holds_no_more_than_its_reserve),
        CASE(train__learns_a_text_and_evaluates_the_same),
        CASE(train__learns_a_text_by_muon),
        CASE(train__learns_images),
        CASE(train__learns_pairs_of_all_lengths),
        CASE(train__a_table_by_every_optimizer_and_schedule),
        CASE(train__micro_batches_add_up_to_a_batch),
        CASE(resume__after_kill_gives_the_same_bits),
        CASE(resume__after_a_signal_gives_the_same_bits),
        CASE(resume__refuses_what_would_not_be_the_same_run),
        CASE(train__says_what_is_wrong_with_a_job),
        CASE(train__stops_when_gradients_stay_infinite),
        CASE(train__force_removes_the_run_and_nothing_else),
        CASE(train__does_what_the_engine_config_says),
        CASE(init__writes_jobs_that_check_accepts),
        CASE(commands__end_with_1_where_they_cannot_write),
        CASE(commands__have_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
