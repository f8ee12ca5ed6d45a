/* The loops that a probe times on a GPU are right for NVRTC, without a GPU: each is compiled for sm_90. */
#include "probe/gpu_own.h"

#include <stdlib.h>
#include <string.h>

#include "context_fixture.h"

enum { SKIPPED = 77, ARCHITECTURE = 90 };

static const char *const loops[] = {
#define HT_LOOP(name, group, real, what) #name,
#include "probe/catalogue.def"
    "peak_f32", "peak_f64", "read", "write", "copy", "triad", "link_lines",
};

static ht_status compile(const char *loop)
{
    ht_text text = {0};
    char *cubin = NULL;
    size_t bytes;
    ht_gpu_loop_text(&text, loop);
    ht_status status =
        text.failed ? HT_ENOMEM : ht_cuda_compile(context_shared(), "loop", text.data, ARCHITECTURE, &cubin, &bytes);
    free(cubin);
    ht_text_free(&text);
    return status;
}

static void nvrtc__compiles_every_loop(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof loops / sizeof loops[0]; i++)
        if (compile(loops[i]) != HT_OK) fail_msg("%s: %s", loops[i], ht_context_message(context_shared()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nvrtc__compiles_every_loop)};
    if (compile("read") == HT_ENOTSUP) return SKIPPED; /* there is no NVRTC */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
