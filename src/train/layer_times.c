#include "train/layer_times.h"

#include <stdlib.h>
#include <string.h>

#include "train/train.h"

/* ---- which layer an instruction is ---- */

/* A half copy counts as its master. */
static void name_master(const ht_plan *plan, const ht_slot *slot, char name[HT_TENSOR_NAME_BYTES])
{
    static const char end[] = ".half"; /* pass/half_copies.c */
    size_t length = strlen(name), tail = sizeof end - 1;
    if (!slot->derived || length <= tail || strcmp(name + length - tail, end) != 0) return;
    name[length - tail] = '\0';
    if (!ht_plan_slot(plan, name)) name[length - tail] = end[0];
}

/* The name of the weight that its product reads, and whether that is codes; false: it is no layer. */
static bool weight_of(const ht_plan *plan, const ht_instr *instr, char name[HT_TENSOR_NAME_BYTES], bool *codes)
{
    const ht_call *product = ht_instr_call(instr);
    const ht_layer_op *layer = product ? ht_layer_op_find(product->op->name) : NULL;
    const ht_type *weight = layer && layer->weight < product->n_in ? product->in[layer->weight] : NULL;
    for (size_t i = 0; i < instr->call->n_in; i++) {
        const ht_slot *slot = instr->in[i].area == HT_AREA_STATE ? ht_plan_state_at(plan, instr->in[i]) : NULL;
        if (!slot) continue;
        ht_tensor_form form = ht_tensor_form_of(slot->name, name);
        *codes = form == HT_TENSOR_CODES;
        if (*codes) return true;
        if (form != HT_TENSOR_PLAIN || !weight || !ht_type_same(&slot->type, weight)) continue;
        name_master(plan, slot, name);
        return true;
    }
    return false;
}

static bool makes_codes(const ht_instr *instr)
{
    const char *op = ht_instr_op(instr);
    return strcmp(op, "quantize_dynamic") == 0 || strcmp(op, "quantize_linear") == 0;
}

static bool reads(const ht_instr *instr, ht_place place)
{
    for (size_t i = 0; i < instr->call->n_in; i++)
        if (ht_place_same(instr->in[i], place)) return true;
    return false;
}

/* ---- times ---- */

static ht_status add(ht_layer_times *out, ht_context *ctx, const char *weight, const char *kernel, bool codes,
                     double seconds)
{
    for (size_t i = 0; i < out->count; i++)
        if (strcmp(out->items[i].weight, weight) == 0) {
            out->items[i].seconds += seconds;
            return HT_OK;
        }
    ht_layer_time *items = realloc(out->items, (out->count + 1) * sizeof *items);
    if (items) out->items = items;
    ht_layer_time made = {strdup(weight), strdup(kernel), seconds, codes};
    if (items && made.weight && made.kernel) {
        out->items[out->count++] = made;
        return HT_OK;
    }
    free(made.weight);
    free(made.kernel);
    HT_FAIL(ctx, HT_ENOMEM, "out of memory for times of layers");
}

/* Who reads the codes of an instruction, until something else lies in their place; copies of them are followed, too. */
typedef struct code_readers {
    size_t count;
    bool layer;     /* the one at hand is among them */
    double seconds; /* of the codes and their copies */
} code_readers;

static void follow_codes(code_readers *out, const ht_plan_segment *s, size_t maker, size_t layer, const double *seconds)
{
    ht_place made = s->instrs[maker].out[0];
    out->seconds += seconds[maker];
    for (size_t i = maker + 1; i < s->instr_count; i++) {
        bool reader = reads(&s->instrs[i], made), copies = strcmp(ht_instr_op(&s->instrs[i]), "copy") == 0;
        if (reader && copies) follow_codes(out, s, i, layer, seconds);
        if (reader && !copies) out->count++;
        if (reader && i == layer) out->layer = true;
        if (ht_place_same(s->instrs[i].out[0], made)) return;
    }
}

/* Codes of an input, shared by the layers that read them. */
static double share_of_codes(const ht_plan_segment *s, size_t layer, const double *seconds)
{
    double sum = 0;
    for (size_t i = 0; i < layer; i++) {
        code_readers readers = {0};
        if (!makes_codes(&s->instrs[i])) continue;
        follow_codes(&readers, s, i, layer, seconds);
        if (readers.layer) sum += readers.seconds / (double)readers.count;
    }
    return sum;
}

static ht_status collect(ht_layer_times *out, ht_context *ctx, const ht_plan *plan, const ht_plan_segment *s,
                         const double *seconds)
{
    for (size_t i = 0; i < s->instr_count; i++) {
        char weight[HT_TENSOR_NAME_BYTES];
        bool codes;
        if (weight_of(plan, &s->instrs[i], weight, &codes))
            HT_TRY(add(out, ctx, weight, s->instrs[i].kernel->name, codes, seconds[i] + share_of_codes(s, i, seconds)));
    }
    return HT_OK;
}

static ht_status run_for_a_while(ht_session *session, size_t segment, ht_instr_times *times, int *runs)
{
    enum { WARM_UP = 1, FEWEST_RUNS = 3, MOST_RUNS = 1000 };
    const double enough_seconds = 0.05; /* short: the best of many is free of what else the machine does */
    double begin = 0;
    for (*runs = -WARM_UP; *runs < MOST_RUNS && (*runs < FEWEST_RUNS || ht_instr_clock() - begin < enough_seconds);
         ++*runs) {
        if (*runs == 0) ht_instr_times_reset(times);
        if (*runs == 0) begin = ht_instr_clock();
        HT_TRY(ht_session_start_segment(session, segment, 0));
        HT_TRY(ht_executor_sync(session->executor));
    }
    return HT_OK;
}

static ht_status measure(ht_layer_times *out, ht_context *ctx, ht_session *session, size_t segment,
                         ht_instr_times *times)
{
    const ht_plan_segment *s = &session->plan->segments[segment];
    int runs;
    HT_TRY(ht_executor_observe(session->executor, ht_instr_times_observer(times)));
    ht_status status = run_for_a_while(session, segment, times, &runs);
    ht_status closed = ht_executor_observe(session->executor, NULL);
    HT_TRY(status == HT_OK ? closed : status);
    double *seconds = calloc(s->instr_count + 1, sizeof *seconds);
    if (!seconds) HT_FAIL(ctx, HT_ENOMEM, "out of memory for times of layers");
    for (size_t i = 0; i < s->instr_count; i++) seconds[i] = ht_instr_times_seconds(times, segment, i) / runs;
    status = collect(out, ctx, session->plan, s, seconds);
    free(seconds);
    return status;
}

ht_status ht_layer_times_measure(ht_layer_times *out, ht_context *ctx, ht_session *session)
{
    ht_instr_times *times;
    int segment = ht_infer_segment(session->plan);
    *out = (ht_layer_times){0};
    if (segment < 0) HT_FAIL(ctx, HT_ENOTSUP, "the model has no evaluation");
    HT_TRY(ht_instr_times_create(&times, session->plan, 0));
    ht_status status = measure(out, ctx, session, (size_t)segment, times);
    ht_instr_times_free(times);
    return status;
}

void ht_layer_times_free(ht_layer_times *times)
{
    for (size_t i = 0; i < times->count; i++) {
        free(times->items[i].weight);
        free(times->items[i].kernel);
    }
    free(times->items);
    *times = (ht_layer_times){0};
}

const ht_layer_time *ht_layer_times_find(const ht_layer_times *times, const char *weight)
{
    for (size_t i = 0; i < times->count; i++)
        if (strcmp(times->items[i].weight, weight) == 0) return &times->items[i];
    return NULL;
}
