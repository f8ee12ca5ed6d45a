/* The three claims of the paper on mixed precision, judged by the demo's runs. */
#include <math.h>
#include <string.h>

#include "cli/demo_command.h"

enum { MOST_OTHERS = 16 };

/* A hundredth of the perplexity, for losses. */
static double margin(void)
{
    return log(1.01);
}

static bool is_full(const cli_sweep_entry *t)
{
    return strcmp(t->train_config->precision, "fp32") == 0;
}

static bool is_unscaled(const cli_sweep_entry *t)
{
    return strcmp(t->train_config->precision, "fp16") == 0 && strcmp(t->train_config->loss_scale, "1") == 0;
}

static bool is_mixed(const cli_sweep_entry *t)
{
    return !is_full(t) && !is_unscaled(t);
}

static double whole_course(const cli_sweep_entry *t)
{
    return t->error[0] ? NAN : t->mean_loss;
}

static double the_end(const cli_sweep_entry *t)
{
    return t->error[0] ? NAN : t->last_eval.count > 0 ? t->last_eval.loss : t->final_loss;
}

static size_t collect(double *values, const cli_sweep *sweep, double (*measure)(const cli_sweep_entry *))
{
    size_t count = 0;
    for (size_t i = 0; i < sweep->count && count < MOST_OTHERS; i++)
        if (is_full(&sweep->list[i])) values[count++] = measure(&sweep->list[i]);
    return count;
}

/* All of the chosen runs against fp32: the worst verdict counts. */
static void judge(demo_claim *claim, const cli_sweep *sweep, const char *name,
                  double (*measure)(const cli_sweep_entry *), bool (*chosen)(const cli_sweep_entry *))
{
    double full[MOST_OTHERS];
    size_t count = collect(full, sweep, measure), found = 0;
    claim->verdict = HT_VERDICT_TRUE;
    ht_text_add(&claim->numbers, "%s: fp32 %.5f ± %.5f", name, ht_sample_mean(full, count),
                ht_prediction_interval(full, count));
    for (size_t i = 0; i < sweep->count; i++) {
        const cli_sweep_entry *t = &sweep->list[i];
        if (!chosen(t)) continue;
        ht_verdict one = ht_verdict_as_good(measure(t), full, count, margin());
        if (one < claim->verdict) claim->verdict = one;
        ht_text_add(&claim->numbers, "%s %s %.5f (perplexity %+.2f %%)", found++ ? "," : ";", t->name, measure(t),
                    100 * expm1(measure(t) - ht_sample_mean(full, count)));
    }
    if (found == 0) claim->verdict = HT_VERDICT_UNCLEAR;
}

void demo_judge_claims(demo *d)
{
    const cli_sweep *sweep = &d->sweep;
    static const char *const texts[DEMO_CLAIMS] = {"Mixed precision converges as fast as fp32, or faster",
                                                   "It ends as good as fp32, or better",
                                                   "fp16 without loss scaling (scale 1) ends worse than fp32"};
    for (int i = 0; i < DEMO_CLAIMS; i++) d->claims[i].text = texts[i];
    judge(&d->claims[0], sweep, "mean training loss of all steps", whole_course, is_mixed);
    judge(&d->claims[1], sweep, "held-out loss at the end", the_end, is_mixed);
    judge(&d->claims[2], sweep, "held-out loss at the end", the_end, is_unscaled);
    d->claims[2].verdict = ht_verdict_not(d->claims[2].verdict);
}

void demo_explain_claims(ht_text *text, const demo *d)
{
    size_t count = 0;
    for (size_t i = 0; i < d->sweep.count; i++) count += is_full(&d->sweep.list[i]);
    ht_text_add(text,
                "How this is judged: behind ± stands how far one more fp32 run would lie from the mean of the %zu "
                "here, in 95 of 100 cases (t distribution). A run is as good if, moved up by that much, it is at most "
                "1 %% of perplexity above the mean; it is worse if, moved down by that much, it is still above the "
                "mean; "
                "else this experiment cannot tell. Of several runs the worst counts.\n",
                count);
}
