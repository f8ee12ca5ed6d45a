/* Every architecture trains on a CUDA device as on the processor: the losses of four steps, within a part of the first. On
 * the emulator, where pictures take minutes, those without, in two precisions; all of them, also in fp16, on a GPU and in
 * long tests. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_fixture.h"
#include "small_models.h"

enum { SKIPPED = 77, STEPS = 4 };

static void train(const small_model *m, const char *device, const char *precision, float losses[STEPS])
{
    model_fixture w;
    ht_train_opts opts = HT_TRAIN_OPTS;
    ht_plan_opts planning = HT_PLAN_OPTS;
    opts.lr = m->lr;
    opts.clip = 1;
    planning.device = device;
    planning.precision = precision;
    model_start_planned(&w, m->type, m->json, m->request, &opts, &planning, 2);
    for (int step = 0; step < STEPS; step++) {
        model_must(&w, ht_session_run(w.s, "train"));
        losses[step] = model_read_f32(&w, "loss");
    }
    model_stop(&w);
}

/* Batch normalisation over a few small images magnifies what rounds otherwise. */
static double tolerance(const small_model *m, const char *precision, int step)
{
    bool half = strcmp(precision, "fp32") != 0, batchnorm = strstr("resnet mobilenet_v2", m->type) != NULL;
    if (batchnorm && step > 0) return half ? 0.15 : 5e-2;
    return half ? 5e-3 : 1e-4;
}

static void expect_alike(const small_model *m, const char *precision)
{
    float cpu[STEPS], cuda[STEPS];
    train(m, "cpu", precision, cpu);
    train(m, "cuda", precision, cuda);
    for (int step = 0; step < STEPS; step++) {
        double difference = fabs((double)cuda[step] - (double)cpu[step]) / fabs((double)cpu[0]);
        if (!(difference <= tolerance(m, precision, step)))
            fail_msg("%s %s, %s, step %d: %g on the GPU, %g on the processor", m->type, m->json, precision, step + 1,
                     (double)cuda[step], (double)cpu[step]);
    }
}

static void cuda__models_have_the_losses_of_the_processor(void **state)
{
    (void)state;
    bool all = !getenv("HALFTONE_EMULATED") || getenv("HALFTONE_LONG");
    for (size_t i = 0; i < SMALL; i++) {
        bool pictures = strstr("lenet resnet mobilenet_v2", small[i].type) != NULL;
        if (pictures && !all) continue;
        expect_alike(&small[i], "fp32");
        expect_alike(&small[i], "bf16");
        if (all) expect_alike(&small[i], "fp16");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cuda__models_have_the_losses_of_the_processor)};
    ht_device *device;
    if (ht_device_get(&device, context_shared(), "cuda") != HT_OK) {
        printf("skipped: %s\n", ht_context_message(context_shared()));
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
