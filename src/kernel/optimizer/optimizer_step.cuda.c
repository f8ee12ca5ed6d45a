/* sgd, sgd_momentum, adam.  Parameter, gradient and moments: any floats but f8.  Threads and neighbours:
 * kernel/elementwise/fused.cuda.c.  Traffic: each operand once.  Bound: bandwidth. */
#include "kernel/cuda/cuda.h"
#include "op/op.h"

/* The place of the optional input `apply`. */
enum { SGD_APPLY = 3, SGD_MOMENTUM_APPLY = 5, ADAM_APPLY = 6, ADAM_BETA1 = 7 };

/* Opens the call that computes the step's numbers, with its first two arguments. */
static void begin(ht_cuda_step *s, const char *rule, size_t apply)
{
    ht_cuda_include(s->emission, "optimizer_step");
    ht_text_add(s->shared, "__shared__ optimizer_step step%d;\n    ", s->number);
    ht_text_add(s->once, "%s_begin(&step%d, ", rule, s->number);
    if (s->call->n_in > apply)
        ht_text_add(s->once, "%s == 0", s->in[apply]);
    else
        ht_text_add(s->once, "false");
}

static void write_sgd(ht_cuda_step *s)
{
    begin(s, "sgd", SGD_APPLY);
    ht_text_add(s->once, ", %s, %a);\n        ", s->in[2], ht_call_float(s->call, "weight_decay"));
    ht_text_add(s->each, "%s = sgd_step(step%d, %s, %s);", s->out[0], s->number, s->in[0], s->in[1]);
}

static void write_sgd_momentum(ht_cuda_step *s)
{
    const ht_call *call = s->call;
    begin(s, "sgd_momentum", SGD_MOMENTUM_APPLY);
    ht_text_add(s->once, ", %s, %s, %a, %a, %a);\n        ", s->in[3], s->in[4], ht_call_float(call, "weight_decay"),
                ht_call_float(call, "momentum"), ht_call_float(call, "dampening"));
    ht_text_add(s->each, "sgd_momentum_step<%s>(step%d, %s, %s, %s, &%s, &%s);",
                ht_call_int(call, "nesterov") ? "true" : "false", s->number, s->in[0], s->in[1], s->in[2], s->out[0],
                s->out[1]);
}

static void write_adam(ht_cuda_step *s)
{
    const ht_call *call = s->call;
    double decay = ht_call_float(call, "weight_decay");
    bool decoupled = ht_call_int(call, "decoupled") != 0;
    ht_cuda_number eps;
    begin(s, "adam", ADAM_APPLY);
    ht_text_add(s->once, ", %s, %s, ", s->in[4], s->in[5]);
    if (call->n_in > ADAM_BETA1)
        ht_text_add(s->once, "%s", s->in[ADAM_BETA1]);
    else
        ht_text_add(s->once, "%a", ht_call_float(call, "beta1"));
    ht_text_add(s->once, ", %a, %a, %s);\n        ", ht_call_float(call, "beta2"), decay, decoupled ? "true" : "false");
    ht_text_add(s->each, "adam_step<%s>(step%d, %s, %s, %s, %s, %s, &%s, &%s, &%s);",
                !decoupled && decay != 0 ? "true" : "false", s->number, ht_cuda_real(ht_call_float(call, "eps"), &eps),
                s->in[0], s->in[1], s->in[2], s->in[3], s->out[0], s->out[1], s->out[2]);
}

HT_CUDA_ELEMENTWISE_KERNEL(sgd, write_sgd)
HT_CUDA_ELEMENTWISE_KERNEL(sgd_momentum, write_sgd_momentum)
HT_CUDA_ELEMENTWISE_KERNEL(adam, write_adam)
