/* Claims of the paper on mixed precision, judged by the demo's runs. */
#include <math.h>
#include <string.h>

#include "cli/demo_command.h"
#include "cli/numerics_page.h"

enum { MOST_OTHERS = 16 };

/* A hundredth of the perplexity, for losses. */
static double margin(void)
{
    return log(1.01);
}

static double whole_course(const cli_sweep_entry *t)
{
    return t->error[0] ? NAN : t->mean_loss;
}

static double the_end(const cli_sweep_entry *t)
{
    return t->error[0] ? NAN : t->last_eval.count > 0 ? t->last_eval.loss : t->final_loss;
}

/* Of the fp32 runs. */
typedef struct references {
    double values[MOST_OTHERS];
    size_t count;
} references;

static ht_verdict trains_alike(double value, const references *fp32)
{
    return ht_verdict_alike(value, fp32->values, fp32->count);
}

static ht_verdict ends_as_good(double value, const references *fp32)
{
    return ht_verdict_as_good(value, fp32->values, fp32->count, margin());
}

static ht_verdict ends_worse(double value, const references *fp32)
{
    return ht_verdict_worse(value, fp32->values, fp32->count, margin());
}

/* A claim about all runs of a role. What a short demo cannot decide is not claimed there. */
static const struct claim_row {
    const char *text, *measured;
    double (*measure)(const cli_sweep_entry *);
    ht_verdict (*judge)(double value, const references *fp32);
    demo_role role;
    bool quick;
} rows[DEMO_CLAIMS] = {
    {"Mixed precision trains like fp32", "mean training loss of all steps", whole_course, trains_alike, DEMO_MIXED,
     true},
    {"It ends as good as fp32, or better", "held-out loss at the end", the_end, ends_as_good, DEMO_MIXED, false},
    {"fp16 without loss scaling (scale 1) ends worse than fp32", "held-out loss at the end", the_end, ends_worse,
     DEMO_UNSCALED, false},
    {"A loss scale by which gradients vanish (2^-10) ruins the run", "held-out loss at the end", the_end, ends_worse,
     DEMO_VANISHING, true},
    {"Without f32 master weights bf16 ends worse than fp32", "held-out loss at the end", the_end, ends_worse,
     DEMO_NO_MASTERS, false},
};

static references collect(const demo *d, double (*measure)(const cli_sweep_entry *))
{
    references fp32 = {.count = 0};
    for (size_t i = 0; i < d->sweep.count && fp32.count < MOST_OTHERS; i++)
        if (d->roles[i] == DEMO_FULL) fp32.values[fp32.count++] = measure(&d->sweep.list[i]);
    return fp32;
}

/* All runs of the row's role against fp32: the worst verdict counts. */
static void judge(demo_claim *claim, const demo *d, const struct claim_row *row)
{
    references fp32 = collect(d, row->measure);
    double mean = ht_sample_mean(fp32.values, fp32.count);
    size_t found = 0;
    claim->text = row->text;
    claim->verdict = HT_VERDICT_TRUE;
    ht_text_add(&claim->numbers, "%s: fp32 %.5f ± %.5f", row->measured, mean,
                ht_prediction_interval(fp32.values, fp32.count));
    for (size_t i = 0; i < d->sweep.count; i++) {
        const cli_sweep_entry *t = &d->sweep.list[i];
        if (d->roles[i] != row->role) continue;
        ht_verdict one = row->judge(row->measure(t), &fp32);
        if (one < claim->verdict) claim->verdict = one;
        ht_text_add(&claim->numbers, "%s %s %.5f (perplexity %+.2f %%)", found++ ? "," : ";", t->name, row->measure(t),
                    100 * expm1(row->measure(t) - mean));
    }
    if (found == 0) claim->verdict = HT_VERDICT_UNCLEAR;
    claim->shown = found > 0 && (row->quick || !d->quick);
}

/* Why a run was ruined: what of its gradients was left. */
static ht_status add_zero_shares(demo_claim *claim, const demo *d)
{
    const cli_sweep_entry *vanishing = &d->sweep.list[d->vanishing_run], *traced = &d->sweep.list[d->traced_run];
    double share[2];
    HT_TRY(cli_numerics_zero_share(&share[0], d->ctx, vanishing->folder));
    HT_TRY(cli_numerics_zero_share(&share[1], d->ctx, traced->folder));
    ht_text_add(&claim->numbers, "; of the gradients of activations %.1f %% are zero, with %s %.1f %%", 100 * share[0],
                traced->name, 100 * share[1]);
    return HT_OK;
}

ht_status demo_judge_claims(demo *d)
{
    ht_status status = HT_OK;
    for (int i = 0; i < DEMO_CLAIMS; i++) {
        judge(&d->claims[i], d, &rows[i]);
        if (rows[i].role == DEMO_VANISHING && status == HT_OK) status = add_zero_shares(&d->claims[i], d);
    }
    return status;
}

void demo_explain_claims(ht_text *text, const demo *d)
{
    size_t count = 0;
    for (size_t i = 0; i < d->sweep.count; i++) count += d->roles[i] == DEMO_FULL;
    ht_text_add(text,
                "How this is judged: behind ± stands how far one more fp32 run would lie from the mean of the %zu "
                "here, in 95 of 100 cases, if such runs scatter normally (t distribution). So few runs cannot show "
                "that they do: a rare seed may end further off. A run trains like fp32 if it is not further above the "
                "mean than that. It ends as good if, moved up by that much, it is at most 1 %% of perplexity above the "
                "mean; it ends worse if, moved down by that much, it is still above the mean. A run can be both: worse "
                "for certain, and by less than 1 %%. Of several runs the worst counts.",
                count);
    if (d->quick)
        ht_text_add(text, " These are the claims that a short run can decide; halftone demo without --quick decides "
                          "the others.");
    ht_text_add(text, "\n");
}
