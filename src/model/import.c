/* Import of a user's graph as a model: checks, and the outputs and segments that it may omit. */
#include "model/import.h"

#include <string.h>

static bool has_output(const ht_graph *g, int segment, const char *name)
{
    const ht_segment *s = &g->segments[segment];
    for (size_t i = 0; i < s->output_count; i++)
        if (strcmp(s->outputs[i].name, name) == 0) return true;
    return false;
}

static ht_val output_of(const ht_graph *g, int segment, const char *name)
{
    const ht_segment *s = &g->segments[segment];
    for (size_t i = 0; i < s->output_count; i++)
        if (strcmp(s->outputs[i].name, name) == 0) return s->outputs[i].value;
    return HT_NONE;
}

/* ---- inputs: compared with those that a segment of our own would have ---- */

static ht_status check_input(ht_graph *g, const ht_graph *ours, const ht_model_request *r, const char *from,
                             const ht_value *input)
{
    ht_text known = {0};
    const ht_segment *s = &ours->segments[0];
    ht_type_text have, want;
    for (size_t i = 0; i < s->input_count; i++) {
        const ht_value *v = ht_value_of(ours, s->inputs[i]);
        ht_text_add(&known, "%s%s %s", i ? ", " : "", v->name, ht_type_str(&v->type, &want));
        if (strcmp(v->name, input->name) != 0) continue;
        ht_text_free(&known);
        if (ht_type_same(&v->type, &input->type)) return HT_OK;
        HT_FAIL(g->ctx, HT_ESHAPE, "%s: input '%s' is %s; the data delivers %s", from, input->name,
                ht_type_str(&input->type, &have), ht_type_str(&v->type, &want));
    }
    ht_fail(g->ctx, HT_EINVAL, "%s: nobody delivers the input '%s'; task %s has %s", from, input->name,
            ht_task_names[r->task], known.data ? known.data : "none");
    ht_text_free(&known);
    return HT_EINVAL;
}

static ht_status check_inputs(ht_graph *g, const ht_model_request *r, const char *from)
{
    ht_graph *ours;
    HT_TRY(ht_graph_create(&ours, g->ctx));
    ht_build b = {.g = ours, .r = r, .segment = "forward"};
    ht_segment_begin(ours, "forward");
    ht_task_inputs(&b);
    ht_task_targets(&b);
    ht_status status = ht_graph_status(ours);
    static const char *const segments[] = {"forward", "eval"};
    for (int k = 0; k < 2; k++) {
        int at = ht_segment_find(g, segments[k]);
        for (size_t i = 0; at >= 0 && i < g->segments[at].input_count && status == HT_OK; i++)
            status = check_input(g, ours, r, from, ht_value_of(g, g->segments[at].inputs[i]));
    }
    ht_graph_free(ours);
    return status;
}

/* ---- what may be left out ---- */

static void complete_outputs(ht_graph *g, int segment)
{
    g->segment = (uint32_t)segment;
    if (!has_output(g, segment, "loss_sum")) ht_output(g, "loss_sum", output_of(g, segment, "loss"));
    if (!has_output(g, segment, "count")) ht_output(g, "count", ht_fill(g, HT_I64, 0, NULL, 1));
}

/* eval from forward: without stores and dropout. */
static ht_status add_eval(ht_graph *g, uint32_t forward)
{
    uint32_t eval = ht_segment_copy(g, forward, "eval", NULL);
    ht_rewrite rw;
    if (g->status != HT_OK || !ht_rewrite_begin(&rw, g, eval)) return g->status;
    for (size_t i = 0; i < rw.count; i++) {
        const ht_node *n = &g->nodes[rw.old[i]];
        if (n->op == &ht_op_store) continue;
        if (strcmp(n->op->name, "dropout") == 0)
            ht_rewrite_replace(&rw, ht_node_out(n, 0), ht_rewrite_map(&rw, ht_node_in(g, n, 0)));
        else
            ht_rewrite_keep(&rw, rw.old[i]);
    }
    return ht_rewrite_end(&rw);
}

/* ---- predictions ---- */

static ht_status check_logits(ht_graph *g, const ht_model_request *r, const char *from, ht_val logits)
{
    bool items = r->task == HT_TASK_CLASS || r->task == HT_TASK_REGRESSION;
    int64_t wanted = r->batch * (items ? 1 : r->length) * ht_task_width(r);
    ht_type_text have;
    if (!logits.id)
        HT_FAIL(g->ctx, HT_ENOTSUP, "%s: its segment 'eval' has no output 'logits', by which one could predict", from);
    const ht_type *type = ht_type_of(g, logits);
    if (ht_type_elems(type) == wanted && ht_dtype_is_float(type->dtype)) return HT_OK;
    HT_FAIL(g->ctx, HT_ESHAPE, "%s: the output 'logits' is %s, and the task %s wants %lld numbers", from,
            ht_type_str(type, &have), ht_task_names[r->task], (long long)wanted);
}

/* logits from eval: that output alone. What only the others need is dead code. */
static ht_status add_logits(ht_graph *g, const ht_model_request *r, const char *from)
{
    uint32_t eval = (uint32_t)ht_segment_find(g, "eval");
    HT_TRY(check_logits(g, r, from, output_of(g, (int)eval, "logits")));
    uint32_t at = ht_segment_copy(g, eval, "logits", NULL);
    ht_rewrite rw;
    if (g->status != HT_OK || !ht_rewrite_begin(&rw, g, at)) return g->status;
    for (size_t i = 0; i < rw.count; i++)
        if (g->nodes[rw.old[i]].op != &ht_op_store) ht_rewrite_keep(&rw, rw.old[i]);
    HT_TRY(ht_rewrite_end(&rw));
    ht_segment *s = &g->segments[at];
    for (size_t i = 0; i < s->output_count; i++)
        if (strcmp(s->outputs[i].name, "logits") == 0) s->outputs[0] = s->outputs[i];
    s->output_count = 1;
    return HT_OK;
}

ht_status ht_model_import(ht_graph *g, const ht_model_request *r, const char *from)
{
    static const char *const made_later[] = {"micro_first", "micro", "update", "init", "derive"};
    for (size_t i = 0; i < sizeof made_later / sizeof made_later[0]; i++)
        if (ht_segment_find(g, made_later[i]) >= 0)
            HT_FAIL(g->ctx, HT_EINVAL, "%s: it has a segment '%s': a model is the forward pass alone", from,
                    made_later[i]);
    int forward = ht_segment_find(g, "forward"), eval = ht_segment_find(g, "eval");
    if (forward < 0) HT_FAIL(g->ctx, HT_EINVAL, "%s: it has no segment 'forward'", from);
    for (int k = 0; k < 2; k++) {
        int at = k ? eval : forward;
        ht_val loss = at >= 0 ? output_of(g, at, "loss") : HT_NONE;
        if (at >= 0 && !loss.id)
            HT_FAIL(g->ctx, HT_EINVAL, "%s: segment '%s' has no output 'loss'", from, g->segments[at].name);
    }
    HT_TRY(check_inputs(g, r, from));
    complete_outputs(g, forward);
    if (eval >= 0)
        complete_outputs(g, eval);
    else
        HT_TRY(add_eval(g, (uint32_t)forward));
    HT_TRY(ht_graph_status(g));
    if (r->logits && ht_segment_find(g, "logits") < 0) HT_TRY(add_logits(g, r, from));
    return ht_graph_verify(g);
}
