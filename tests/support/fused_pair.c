#include "fused_pair.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void fused_pair_fail(const fused_pair *w, const char *what, uint64_t seed)
{
    print_error("graph %llu: %s: %s\n", (unsigned long long)seed, what, ht_context_message(w->ctx));
    fail();
}

bool fused_pair_plan(fused_pair *w, uint64_t seed)
{
    for (int i = 1; i >= 0; i--) {
        ht_plan_opts opts = HT_PLAN_OPTS;
        opts.canaries = true;
        opts.device = w->device;
        opts.no_fusion = i == 1;
        if (ht_plan_create(&w->plan[i], w->g, &opts) != HT_OK) {
            if (i == 1) return false;
            fused_pair_fail(w, "does not plan when fused", seed);
        }
        ht_session_opts session = HT_SESSION_OPTS;
        session.seed = seed;
        if (ht_session_create(&w->s[i], w->plan[i], &session) != HT_OK) fused_pair_fail(w, "no session", seed);
    }
    return true;
}

void fused_pair_close(fused_pair *w)
{
    for (int i = 0; i < 2; i++) {
        ht_session_free(w->s[i]);
        ht_plan_free(w->plan[i]);
        w->s[i] = NULL;
        w->plan[i] = NULL;
    }
    ht_graph_free(w->g);
    w->g = NULL;
}

static void fill_inputs(fused_pair *w)
{
    for (size_t k = 0; k < w->plan[0]->slot_count; k++) {
        const ht_slot *slot = &w->plan[0]->slots[k];
        int64_t n = ht_type_elems(&slot->type);
        if (slot->kind != HT_SLOT_INPUT) continue;
        double *data = malloc((size_t)(n + 1) * sizeof *data);
        for (int64_t i = 0; i < n; i++) data[i] = 3 * sin(1.7 * (double)i + (double)k);
        for (int i = 0; i < 2; i++) assert_int_equal(ht_session_write_f64(w->s[i], slot->name, data, (size_t)n), HT_OK);
        free(data);
    }
}

/* NaN is NaN: which of two NaN an operation passes on is the processor's business. */
static bool same_number(const void *a, const void *b, ht_dtype dtype, int64_t i)
{
    size_t bytes = ht_dtype_bytes(dtype);
    if (memcmp((const char *)a + i * (int64_t)bytes, (const char *)b + i * (int64_t)bytes, bytes) == 0) return true;
    return isnan(ht_load_f64(a, dtype, i)) && isnan(ht_load_f64(b, dtype, i));
}

static void compare(const fused_pair *w, uint64_t seed)
{
    for (size_t k = 0; k < w->plan[0]->slot_count; k++) {
        const ht_slot *slot = &w->plan[0]->slots[k];
        int64_t n = ht_type_elems(&slot->type);
        size_t bytes = (size_t)ht_type_bytes(&slot->type);
        void *a = malloc(bytes + 1), *b = malloc(bytes + 1);
        assert_int_equal(ht_session_read(w->s[0], slot->name, a, bytes), HT_OK);
        assert_int_equal(ht_session_read(w->s[1], slot->name, b, bytes), HT_OK);
        for (int64_t i = 0; i < n; i++)
            if (!same_number(a, b, slot->type.dtype, i)) {
                print_error("graph %llu: %s[%lld] is %.17g fused, %.17g not fused\n", (unsigned long long)seed,
                            slot->name, (long long)i, ht_load_f64(a, slot->type.dtype, i),
                            ht_load_f64(b, slot->type.dtype, i));
                fail();
            }
        free(a);
        free(b);
    }
}

void fused_pair_run(fused_pair *w, const char *program, uint64_t seed)
{
    fill_inputs(w);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 2; i++)
            if (ht_session_run(w->s[i], program) != HT_OK) fused_pair_fail(w, "does not run", seed);
        compare(w, seed);
    }
}

uint64_t fused_pair_digest(const fused_pair *w)
{
    uint64_t sum = 14695981039346656037u;
    for (size_t k = 0; k < w->plan[0]->slot_count; k++) {
        const ht_slot *slot = &w->plan[0]->slots[k];
        size_t bytes = (size_t)ht_type_bytes(&slot->type);
        unsigned char *data = malloc(bytes + 1);
        assert_int_equal(ht_session_read(w->s[0], slot->name, data, bytes), HT_OK);
        for (size_t i = 0; i < bytes; i++) sum = (sum ^ data[i]) * 1099511628211u;
        free(data);
    }
    return sum;
}
