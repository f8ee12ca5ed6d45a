/* halftone formats, diff and train --numerics from outside. */
#include "cli_case.h"

static void write_job(data_case *c)
{
    static char text[12000];
    size_t length = 0;
    for (int i = 0; length + 64 < sizeof text; i++)
        length += (size_t)sprintf(text + length, "%d times %d makes %d.\n", i % 13, i % 7, (i % 13) * (i % 7));
    data_case_text(c, "sums.txt", text);
    data_case_text(
        c, "job.json",
        "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, \"n_embd\": 16, \"dropout\": 0.1},\n"
        " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"tokenizer\": \"char\", \"length\": 16},\n"
        " \"train\": {\"steps\": 12, \"batch\": 8, \"accumulate\": 2, \"lr\": 3e-3, \"snapshot_every\": 5}}\n");
}

/* ---- formats ---- */

static void formats__says_what_the_types_hold(void **state)
{
    data_case *c = *state;
    expect(c, "\"$H\" formats > f.txt && cat f.txt", 0, "f64      1/11/52      8  1.79769e+308  2.22507e-308");
    expect(c, "cat f.txt", 0, "f32      1/8/23       4   3.40282e+38   1.17549e-38     1.4013e-45");
    expect(c, "cat f.txt", 0, "f16      1/5/10       2         65504   6.10352e-05    5.96046e-08   0.000976562");
    expect(c, "cat f.txt", 0, "bf16     1/8/7        2   3.38953e+38   1.17549e-38    9.18355e-41     0.0078125");
    expect(c, "cat f.txt", 0, "f8e4m3   1/4/3        1           448      0.015625     0.00195312         0.125");
    expect(c, "cat f.txt", 0, "f8e5m2   1/5/2        1         57344   6.10352e-05    1.52588e-05          0.25");
    expect(c, "cat f.txt", 0, "i8       1/0/7        1           127             -              -             -");
}

static void formats__draws_bits_and_quantizes_a_matrix(void **state)
{
    data_case *c = *state;
    expect(c, "\"$H\" formats > f.txt && grep -A 8 '^Bit by bit' f.txt", 0, "f16      s eeeee mmmmmmmmmm\n");
    expect(c, "cat f.txt", 0, "bf16     s eeeeeeee mmmmmmm\n");
    expect(c, "cat f.txt", 0, "i8       s ddddddd\n");
    /* A float's relative error is at most half of its epsilon; an integer's at most half a step of 1/127. */
    expect(c,
           "sed -n '/^A weight matrix/,$p' f.txt | awk '$1 == \"f16\" {a = $3 > 1e-5 && $3 < 5e-4} $1 == \"bf16\" {b = "
           "$3 > "
           "1e-4 && $3 < 4e-3} $1 == \"i8,\" {i += $(NF - 2) > 1e-3 && $(NF - 2) < 0.00395} END {print a, b, i}'",
           0, "1 1 2\n");
    /* A scale for each row is nearer. */
    expect(c, "grep '^i8, ' f.txt | awk '{e[NR] = $(NF - 3)} END {print (e[2] < e[1])}'", 0, "1\n");
    expect(c, "\"$H\" formats --json | grep -c '\"rms_error\": '", 0, "6\n");
    write_job(c);
    expect(c,
           "\"$H\" train job.json > /dev/null 2>&1; \"$H\" formats --weights $(ls run/snapshots/*/weights.safetensors "
           "| tail -n 1); rm -r run",
           0, " of run/snapshots/");
    expect(c, "\"$H\" formats --weights none.safetensors", 2, "none.safetensors");
    expect(c, "\"$H\" formats --weights job.json", 2, "job.json");
}

static void formats__measures_sums_and_oscillators(void **state)
{
    data_case *c = *state;
    expect(c, "\"$H\" formats --json > f.json && grep -c '\"name\": \"f16\"' f.json", 0, "4\n");
    /* Additions of floats by the processor, and additions rounded by our own function: the same number. */
    expect(c,
           "grep '\"name\": \"f32\", \"terms_error\"' f.json | "
           "sed 's/.*\"sequential\": \\([^,]*\\),.*\"f32\": \\([^,]*\\),.*/\\1 \\2/' | "
           "awk '{print ($1 == $2 && $1 > 9700 && $1 < 9800) ? \"same\" : \"other\"}'",
           0, "same\n");
    /* A sum stays where half the distance to the next number is more than the largest term. */
    expect(c, "grep '\"name\": \"f16\", \"terms_error\"' f.json", 0, "\"sequential\": 4, ");
    expect(c, "grep '\"name\": \"bf16\", \"terms_error\"' f.json", 0, "\"sequential\": 0.5, ");
    expect(c, "grep '\"name\": \"f64\", \"terms_error\"' f.json", 0, "\"last_change\": 10000000, \"f32\": null");
    /* Fewer bits, larger errors. */
    expect(c,
           "sed -n 's/.*\"worst_energy_error\": \\([^,]*\\),.*/\\1/p' f.json | "
           "awk 'NR > 1 && $1 < 5 * last {bad = 1} {last = $1} END {print NR, bad ? \"bad\" : \"good\"}'",
           0, "4 good\n");
    expect(c, "\"$H\" formats --jsn", 2, "'--jsn' is not understood");
    expect(c, "\"$H\" formats > /dev/full", 1, "standard output: ");
}

/* ---- diff ---- */

static void diff__of_a_job_with_itself_finds_nothing(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "cp job.json other.json && \"$H\" diff job.json other.json > d.txt && cat d.txt", 0,
           "first difference: none\nfirst beyond 0.001: none\n");
    expect(c, "grep -E '^([0-9]+) values compared, \\1 identical; 0 only in A, 0 only in B$' d.txt", 0, "identical");
    expect(c, "grep '^transformer.h.1.mlp.c_fc ' d.txt", 0, "          0          0          0          0\n");
    expect(c, "ls", 0, "d.txt\n"); /* and leaves nothing behind */
    expect(c, "if [ -e run ]; then exit 3; fi", 0, "");
}

static void diff__finds_where_two_jobs_part(void **state)
{
    data_case *c = *state;
    write_job(c);
    /* Another rate is seen only by the update. */
    expect(c, "\"$H\" diff job.json --axis train.lr=0.1,0.2 > d.txt && grep '^first difference' d.txt", 0, "(update)");
    expect(c, "grep '^transformer.wte ' d.txt", 0, "          0          0          0          0\n");
    expect(c, "grep '^(update) ' d.txt", 0, "  5.00e-01   5.00e-01");
    /* Another activation: whatever comes before it is the same, and all gradients differ. */
    expect(c, "\"$H\" diff job.json --axis model.activation=gelu,relu > d.txt && grep '^first difference' d.txt", 0,
           "matmul at transformer.h.0.mlp.c_proj (fwd): max ");
    expect(c, "grep '^transformer.h.0.mlp.c_fc ' d.txt | awk '{print $3, $4, ($5 > 0)}'", 0, "0 0 1\n");
    expect(c, "grep 'values compared' d.txt | awk '{print ($6 > 0), ($10 > 0)}'", 0, "1 1\n");
    /* Two files. */
    expect(c, "sed 's/\"dropout\": 0.1/\"dropout\": 0.2/' job.json > b.json && \"$H\" diff job.json b.json", 0,
           "first difference: f32[64,16], dropout at transformer");
    /* A tolerance above every error. */
    expect(c, "\"$H\" diff job.json --axis train.lr=0.1,0.2 --tolerance 2", 0, "first beyond 2: none\n");
    expect(c,
           "\"$H\" diff job.json --axis=train.seed=1,2 --json > d.json && "
           "grep '\"first_difference\": {\"op\": \"embedding\"' d.json",
           0, "\"layer\": \"transformer.wte\", \"role\": \"fwd\"");
    expect(c, "head -n 1 d.json", 0, "{\"a\": \"train.seed=1\", \"b\": \"train.seed=2\", \"tolerance\": 0.001");
}

/* Powers of two scale every gradient of f32 exactly. */
static void diff__compares_gradients_without_their_scale(void **state)
{
    data_case *c = *state;
    int status;
    write_job(c);
    run(c, "\"$H\" check job.json --set train.loss_scale=1024", &status);
    if (status != 0) skip();
    expect(c, "\"$H\" diff job.json --axis train.loss_scale=none,1024", 0, "first difference: none\n");
}

static void diff__refuses_what_it_cannot_compare(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" diff", 2, "which two?");
    expect(c, "\"$H\" diff job.json", 2, "which two?");
    expect(c, "\"$H\" diff job.json job.json --axis train.lr=1,2", 2, "not both");
    expect(c, "\"$H\" diff job.json job.json job.json", 2, "2 jobs at a time");
    expect(c, "\"$H\" diff job.json --axis train.lr=1", 2, "--axis takes KEY=A,B");
    expect(c, "\"$H\" diff job.json --axis 1,2", 2, "--axis takes KEY=A,B");
    expect(c, "\"$H\" diff job.json --axis train.lr=1,2,3", 2, "--axis takes KEY=A,B");
    expect(c, "\"$H\" diff job.json --axis train.lr=,2", 2, "--axis takes KEY=A,B");
    expect(c, "\"$H\" diff job.json --precision fp32", 2, "--precision takes A,B");
    expect(c, "\"$H\" diff job.json --precision fp32,fp33", 2, "train.precision");
    expect(c, "\"$H\" diff job.json --axis", 2, "--axis takes KEY=A,B: two values");
    expect(c, "\"$H\" diff job.json --axis train.lr=1,2 --axis train.seed=1,2", 2, "one axis at a time");
    expect(c, "\"$H\" diff job.json --axis train.lt=1,2", 2, "did you mean");
    expect(c, "\"$H\" diff job.json nowhere.json", 2, "nowhere.json");
    expect(c, "\"$H\" diff job.json job.json --tolerance -1", 2, "at least 0");
    expect(c, "\"$H\" diff job.json job.json --set data.train=nowhere.txt", 2, "nowhere.txt");
    expect(c, "\"$H\" diff job.json --axes train.lr=1,2", 2, "'--axes' is not understood");
}

/* ---- numerics ---- */

static void numerics__are_recorded_and_change_nothing(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c,
           "rm -rf run && \"$H\" train job.json > /dev/null && sed 's/, \"tokens_per.*//; s/, \"seconds.*//' "
           "run/metrics.jsonl > plain",
           0, "");
    expect(c, "\"$H\" train job.json --force --numerics=5 > out.txt && cat out.txt", 0,
           "Gradients as f16 would hold them, over 4 steps looked at\n");
    expect(c, "sed 's/, \"tokens_per.*//; s/, \"seconds.*//' run/metrics.jsonl | cmp - plain && echo same", 0,
           "same\n");
    expect(c, "sed -n 's/.*\"kind\": \"tensors\", \"step\": \\([0-9]*\\),.*/\\1/p' run/numerics.jsonl | tr '\\n' ' '",
           0, "1 5 10 12 ");
    expect(c, "grep -c '\"kind\": \"loss_scale\"' run/numerics.jsonl", 0, "1\n");
    expect(c, "grep -o '\"name\": \"transformer.h.0.attn.c_attn.weight.grad\", \"op\": \"[a-z]*\"' run/numerics.jsonl",
           0, "weight.grad");
    expect(c, "grep '^gradients of weights ' out.txt | awk '{print ($4 > 0 ? NF : 0)}'", 0, "10\n");
    expect(c, "grep -c '<svg class=.wide' run/numerics.html", 0, "3\n");
    expect(c, "\"$H\" train job.json", 2, "holds a run already");
    expect(c, "\"$H\" train job.json --force > /dev/null && ls run", 0, "metrics.jsonl\nsnapshots\n");
}

static void numerics__go_on_after_a_resume(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c,
           "\"$H\" train job.json --force --numerics=4 > out.txt && grep tensors run/numerics.jsonl > whole && wc -l < "
           "whole",
           0, "4\n");
    /* From step 10 on, whose later records are cut off and come again. */
    expect(c, "rm -r run/snapshots/step-00000012 && \"$H\" train job.json --resume --numerics=4 > /dev/null", 0,
           "after step 10");
    expect(c, "grep tensors run/numerics.jsonl | cmp - whole && echo same", 0, "same\n");
}

static void numerics__of_a_loss_that_is_scaled_are_told_with_and_without_the_scale(void **state)
{
    data_case *c = *state;
    int status;
    write_job(c);
    run(c, "\"$H\" check job.json --set train.loss_scale=1024", &status);
    if (status != 0) skip();
    expect(c, "\"$H\" train job.json --force --numerics --set train.loss_scale=1024 > out.txt && cat out.txt", 0,
           "  times the loss scale");
    expect(c, "grep -c '\"loss_scale\": 1024, .*\"scaled\": {' run/numerics.jsonl", 0, "2\n");
    expect(c, "grep -c '<svg class=.wide' run/numerics.html", 0, "6\n");
    /* 1024 takes every exponent ten up. */
    expect(c,
           "sed -n 's/.*weight.grad\"[^}]*\"unscaled\": {[^}]*\"lowest\": \\(-*[0-9]*\\),[^}]*}, \"scaled\": "
           "{[^}]*\"lowest\": \\(-*[0-9]*\\),.*/\\1 \\2/p' run/numerics.jsonl | awk '{print $2 - $1}' | sort -u",
           0, "10\n");
}

/* Gradients of f16 that only a large scale makes infinite are not too large without it. */
static void numerics__count_infinities_of_the_scale_with_the_scale_only(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(
        c,
        "\"$H\" train job.json --force --numerics --set train.precision=fp16 --set train.loss_scale=16777216 > out.txt "
        "2> /dev/null && grep -A1 '^gradients of activations ' out.txt > rows && awk 'NR == 1 {print $9}' rows",
        0, "0.00%\n");
    expect(c, "awk 'NR == 2 {print ($10 + 0 > 0) ? \"some\" : \"none\"}' rows", 0, "some\n");
    expect(c, "grep -o '\"inf\": [1-9]' run/numerics.jsonl | sort -u | head -n 1 | cut -c 1-7", 0, "\"inf\": ");
}

/* Values of the tables: name, elements, zero, lost, subnormal, normal, too large, largest. */
static void numerics__list_only_values_that_lost_something(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c,
           "\"$H\" train job.json --force --numerics > out.txt 2> /dev/null && tr -d '\\n' < run/numerics.html | "
           "sed 's/<tr>/\\n/g' | grep '^<td>' | sed 's/<[^>]*>/ /g' > rows",
           0, "");
    expect(c, "awk '$(NF - 4) == \"0.00%\" && $(NF - 1) == \"0.00%\" {bad++} END {print (NR > 0) + 0, bad + 0}' rows",
           0, "1 0\n");
    expect(
        c,
        "sed -n '/^most lost in/,$p' out.txt | awk 'NR > 1 && $(NF - 4) == \"0.00%\" && $(NF - 1) == \"0.00%\" {bad++} "
        "END {print bad + 0}'",
        0, "0\n");
    expect(c,
           "\"$H\" train job.json --force --numerics --set train.precision=fp16 --set train.loss_scale=1024 > out.txt "
           "2> /dev/null",
           0, "");
    expect(c, "grep -c 'No value lost anything.' run/numerics.html", 0, "1\n");
    expect(c, "if grep -q '^most lost in' out.txt; then exit 3; fi", 0, "");
}

static void numerics__refuse_what_is_no_number_of_steps(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" train job.json --numerics=0", 2, "--numerics takes a whole number from 1");
    expect(c, "\"$H\" train job.json --numerics=", 2, "--numerics takes a whole number from 1");
    expect(c, "\"$H\" train job.json --numerics=1.5", 2, "--numerics takes a whole number from 1");
    expect(c, "\"$H\" train job.json --numeric", 2, "is not understood");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats__says_what_the_types_hold),
        cmocka_unit_test(formats__measures_sums_and_oscillators),
        cmocka_unit_test(formats__draws_bits_and_quantizes_a_matrix),
        cmocka_unit_test(diff__of_a_job_with_itself_finds_nothing),
        cmocka_unit_test(diff__finds_where_two_jobs_part),
        cmocka_unit_test(diff__compares_gradients_without_their_scale),
        cmocka_unit_test(diff__refuses_what_it_cannot_compare),
        cmocka_unit_test(numerics__are_recorded_and_change_nothing),
        cmocka_unit_test(numerics__go_on_after_a_resume),
        cmocka_unit_test(numerics__of_a_loss_that_is_scaled_are_told_with_and_without_the_scale),
        cmocka_unit_test(numerics__count_infinities_of_the_scale_with_the_scale_only),
        cmocka_unit_test(numerics__list_only_values_that_lost_something),
        cmocka_unit_test(numerics__refuse_what_is_no_number_of_steps),
    };
    return cmocka_run_group_tests(tests, data_case_begin, data_case_end);
}
