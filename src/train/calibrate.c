#include "train/calibrate.h"

#include <stdlib.h>
#include <string.h>

#include "train/run_state.h"

typedef struct calibrating {
    ht_run *run;
    ht_layer_input_fn on_input;
    void *arg;
    ht_host_copy stage;  /* of inputs that the host cannot read in place */
    double *numbers;     /* a chunk of an input that is strided or not f32 */
    float *floats;       /* all of it */
    int64_t float_count; /* that there is space for */
    ht_status status;    /* of the first failure */
} calibrating;

enum { CHUNK = 4096 };

static const char *weight_of(const ht_plan *plan, const ht_instr *instr)
{
    const ht_call *call = instr->call;
    const ht_layer_op *layer = ht_layer_op_find(call->op->name);
    if (!layer || layer->lookup || call->n_in <= layer->weight || instr->in[layer->weight].area != HT_AREA_STATE)
        return NULL;
    const ht_slot *slot = ht_plan_slot_at(plan, instr->in[layer->weight], call->in[layer->weight]);
    return slot && slot->heading == HT_HEADING_PARAMETERS && slot->type.dtype == HT_F32 ? slot->name : NULL;
}

static ht_status in_order(calibrating *c, const ht_type *type, const void *data, const float **out)
{
    int64_t count = ht_type_elems(type);
    *out = data;
    if (type->dtype == HT_F32 && ht_type_contiguous(type)) return HT_OK;
    if (count > c->float_count) {
        free(c->floats);
        c->floats = malloc((size_t)count * sizeof *c->floats);
        c->float_count = c->floats ? count : 0;
    }
    if (!c->numbers) c->numbers = malloc(CHUNK * sizeof *c->numbers);
    if (!c->floats || !c->numbers) HT_FAIL(c->run->ctx, HT_ENOMEM, "out of memory for calibration");
    for (int64_t first = 0; first < count; first += CHUNK) {
        int64_t some = count - first < CHUNK ? count - first : CHUNK;
        ht_trace_load(type, data, first, some, c->numbers);
        for (int64_t i = 0; i < some; i++) c->floats[first + i] = (float)c->numbers[i];
    }
    *out = c->floats;
    return HT_OK;
}

static ht_status show_input(calibrating *c, const ht_instr *instr, const char *weight)
{
    const ht_type *type = instr->call->in[0];
    const void *data;
    ht_layer_input input = {.weight = weight, .call = instr->call, .count = ht_type_elems(type)};
    HT_TRY(
        ht_executor_view(c->run->job.session->executor, instr->in[0], (size_t)ht_type_bytes(type), &c->stage, &data));
    HT_TRY(in_order(c, type, data, &input.x));
    return c->on_input(c->arg, &input);
}

/* A layer's input is still there when its result is made. */
static bool trace(void *arg, const ht_instr *instr, size_t result, const ht_type *type, const void *data)
{
    calibrating *c = arg;
    (void)type, (void)data;
    const char *weight = result == 0 ? weight_of(c->run->job.plan, instr) : NULL;
    if (weight) c->status = show_input(c, instr, weight);
    return c->status == HT_OK;
}

static ht_status run_batches(calibrating *c, int64_t batches)
{
    ht_run *run = c->run;
    for (int64_t i = 0; i < batches; i++) {
        ht_bound_batch batch;
        HT_TRY(ht_batch_binding_next(&run->binding, run->train, &batch));
        HT_TRY(ht_executor_trace(run->job.session->executor, (size_t)batch.shape->eval, batch.slot, trace, c));
        HT_TRY(c->status);
    }
    return HT_OK;
}

ht_status ht_run_calibrate(ht_run *run, int64_t batches, ht_layer_input_fn on_input, void *arg)
{
    calibrating c = {.run = run, .on_input = on_input, .arg = arg};
    if (!run->train) HT_FAIL(run->ctx, HT_EINVAL, "calibration: the run has no data to train on");
    ht_status status = run_batches(&c, batches);
    free(c.stage.data);
    free(c.numbers);
    free(c.floats);
    return status;
}
