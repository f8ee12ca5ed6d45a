/* A run's status in Prometheus's text format, version 0.0.4: for each metric what it is, its type, its samples. */
#include <math.h>

#include "serve/serve.h"

/* Backslash, quote and the end of a line are written out; other control characters would not harm, but nobody needs
 * them. */
static void add_label(ht_text *text, const char *name, const char *value, const char *before)
{
    ht_text_add(text, "%s%s=\"", before, name);
    for (const char *c = value; *c; c++) {
        if (*c == '\\' || *c == '"')
            ht_text_add(text, "\\%c", *c);
        else if (*c == '\n')
            ht_text_add(text, "\\n");
        else
            ht_text_add(text, "%c", (unsigned char)*c < ' ' ? ' ' : *c);
    }
    ht_text_add(text, "\"");
}

static void add_value(ht_text *text, double value)
{
    ht_text_add(text, " ");
    if (isnan(value))
        ht_text_add(text, "NaN");
    else if (isinf(value))
        ht_text_add(text, value > 0 ? "+Inf" : "-Inf");
    else
        ht_text_number(text, value);
    ht_text_add(text, "\n");
}

typedef struct metrics {
    ht_text *text;
    const char *folder;
} metrics;

static void add_head(const metrics *m, const char *name, const char *type, const char *help)
{
    ht_text_add(m->text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_sample(const metrics *m, const char *name, double value)
{
    ht_text_add(m->text, "%s{", name);
    add_label(m->text, "run", m->folder, "");
    ht_text_add(m->text, "}");
    add_value(m->text, value);
}

static void add_gauge(const metrics *m, const char *name, double value, const char *help)
{
    add_head(m, name, "gauge", help);
    add_sample(m, name, value);
}

static void add_counter(const metrics *m, const char *name, double value, const char *help)
{
    add_head(m, name, "counter", help);
    add_sample(m, name, value);
}

static void add_run(const metrics *m, const ht_run_status *s)
{
    add_head(m, "halftone_run_info", "gauge", "What trains here; always 1.");
    ht_text_add(m->text, "halftone_run_info{");
    add_label(m->text, "run", m->folder, "");
    add_label(m->text, "model", s->model, ",");
    add_label(m->text, "precision", s->precision, ",");
    add_label(m->text, "version", ht_version(), ",");
    ht_text_add(m->text, "} 1\n");
    add_head(m, "halftone_run_state", "gauge", "1 for the state that the run is in, 0 for the others.");
    for (int i = 0; i < HT_RUN_STATE_COUNT; i++) {
        ht_text_add(m->text, "halftone_run_state{");
        add_label(m->text, "run", m->folder, "");
        add_label(m->text, "state", ht_run_state_names[i], ",");
        ht_text_add(m->text, "} %d\n", (int)s->state == i);
    }
    add_gauge(m, "halftone_steps", (double)s->step.steps, "Steps of the whole run; 0: not known.");
}

static void add_step(const metrics *m, const ht_run_status *s)
{
    const ht_step_report *r = &s->step;
    add_gauge(m, "halftone_step", (double)r->step, "Steps made.");
    add_gauge(m, "halftone_epoch", r->epoch, "Passes over the training data.");
    add_gauge(m, "halftone_loss", r->loss, "Loss of the newest step.");
    add_gauge(m, "halftone_learning_rate", r->lr, "Learning rate of the newest step.");
    add_gauge(m, "halftone_grad_norm", r->grad_norm, "Norm of the gradients, without the loss scale.");
    add_gauge(m, "halftone_loss_scale", r->loss_scale, "What the loss was multiplied by; 1: losses are not scaled.");
    add_counter(m, "halftone_skipped_steps_total", (double)r->skips, "Steps whose gradients were not finite.");
    add_gauge(m, "halftone_tokens_per_second", r->tokens_per_second,
              "Tokens of the newest step, or rows where there are no tokens.");
    add_gauge(m, "halftone_step_seconds", r->step_ms / 1e3, "Time of the newest step.");
    add_gauge(m, "halftone_micro_seconds", r->micro_ms / 1e3, "Of it: forward and backward.");
    add_gauge(m, "halftone_update_seconds", r->update_ms / 1e3, "Of it: the update.");
    add_gauge(m, "halftone_seconds_left", s->seconds_left, "Time to the last step at the pace of the newest ones.");
    add_gauge(m, "halftone_plan_bytes", (double)r->plan_bytes, "Memory that the plan holds.");
    add_gauge(m, "halftone_process_peak_bytes", (double)r->process_peak_bytes,
              "Resident memory that the process held at most.");
    add_gauge(m, "halftone_record_age_seconds", s->record_age, "Time since the newest record was written.");
}

static void add_eval(const metrics *m, const ht_eval_report *r)
{
    add_gauge(m, "halftone_eval_step", (double)r->step, "Step of the newest evaluation.");
    add_gauge(m, "halftone_eval_loss", r->loss, "Loss on held-out data.");
    if (!isnan(r->perplexity)) add_gauge(m, "halftone_eval_perplexity", r->perplexity, "Perplexity on held-out data.");
    if (!isnan(r->accuracy)) add_gauge(m, "halftone_eval_accuracy", r->accuracy, "Share of right answers.");
}

static void add_exchange(const metrics *m, const ht_exchange_report *r)
{
    add_gauge(m, "halftone_exchange_seconds", r->ms / 1e3, "Time of exchanges with other ranks in the newest step.");
    add_gauge(m, "halftone_exchange_bytes", (double)r->bytes, "Bytes that the first rank sent in the newest step.");
    add_gauge(m, "halftone_exchange_hidden_ratio", r->hidden_share,
              "Share of that time that the step did not wait for.");
}

void ht_prometheus_add(ht_text *text, const ht_run_status *status, const char *folder)
{
    metrics m = {text, folder};
    add_run(&m, status);
    if (status->step.step > 0) add_step(&m, status);
    if (status->eval.count > 0) add_eval(&m, &status->eval);
    if (status->step.exchange.known) add_exchange(&m, &status->step.exchange);
}
