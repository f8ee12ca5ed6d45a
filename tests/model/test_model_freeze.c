/* Frozen parameters in every architecture: the gradients of all others stay what they are, and what is frozen has neither
 * gradient nor moments in the plan. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model_fixture.h"
#include "small_models.h"

enum { ROUNDS = 4 };

/* Which parameters a round freezes: the first half, the second half, and by chance. */
static bool is_chosen(size_t round, size_t index, size_t count, const char *name)
{
    if (round == 0) return index < count / 2;
    if (round == 1) return index >= (count + 1) / 2;
    return model_number(name, (int64_t)round) < 0;
}

static const char *name_of(const ht_graph *g, size_t state)
{
    return ht_value_of(g, g->states[state].value)->name;
}

static size_t count_parameters(const ht_graph *g)
{
    size_t count = 0;
    for (size_t i = 0; i < g->state_count; i++) count += g->states[i].trained;
    return count;
}

/* "^(fc1[.]weight|fc2[.]bias)$"; false when nothing or everything would be frozen. */
static bool choose(const ht_graph *g, size_t round, ht_text *expression)
{
    size_t count = count_parameters(g), index = 0, chosen = 0;
    ht_text_add(expression, "^(");
    for (size_t i = 0; i < g->state_count; i++) {
        if (!g->states[i].trained || !is_chosen(round, index++, count, name_of(g, i))) continue;
        if (chosen++) ht_text_add(expression, "|");
        for (const char *at = name_of(g, i); *at; at++) ht_text_add(expression, *at == '.' ? "[.]" : "%c", *at);
    }
    ht_text_add(expression, ")$");
    return chosen > 0 && chosen < count;
}

static const ht_slot *slot_beside(const model_fixture *w, const char *name, const char *what)
{
    char full[512];
    snprintf(full, sizeof full, "%s.%s", name, what);
    return ht_plan_slot(w->plan, full);
}

static double *read_numbers(const model_fixture *w, const ht_slot *slot, size_t *count)
{
    *count = (size_t)ht_type_elems(&slot->type);
    double *numbers = calloc(*count + 1, sizeof *numbers);
    assert_non_null(numbers);
    model_must(w, ht_session_read_f64(w->s, slot->name, numbers, *count));
    return numbers;
}

/* But for the last digits: the shift of a norm alone is summed by another kernel than with its scale. */
static void expect_the_same_gradient(const model_fixture *whole, const model_fixture *frozen, const char *name)
{
    const ht_slot *wanted = slot_beside(whole, name, "grad"), *is = slot_beside(frozen, name, "grad");
    size_t count, same;
    double largest = 0;
    assert_true(wanted && is);
    double *a = read_numbers(whole, wanted, &count), *b = read_numbers(frozen, is, &same);
    assert_int_equal(count, same);
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs(a[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs(a[i] - b[i]) <= 1e-5 * largest)) fail_msg("%s: the gradient is %g, not %g", name, b[i], a[i]);
    free(a);
    free(b);
}

static void compare(const ht_graph *g, size_t round, const model_fixture *whole, const model_fixture *frozen)
{
    size_t count = count_parameters(g), index = 0;
    for (size_t i = 0; i < g->state_count; i++) {
        const char *name = name_of(g, i);
        if (!g->states[i].trained) continue;
        if (!is_chosen(round, index++, count, name))
            expect_the_same_gradient(whole, frozen, name);
        else if (slot_beside(frozen, name, "grad") || slot_beside(frozen, name, "m"))
            fail_msg("%s: it is frozen, and has a gradient or moments", name);
    }
}

static void freeze_some(const small_model *model, size_t round)
{
    ht_train_opts opts = HT_TRAIN_OPTS;
    model_fixture plain, whole, frozen;
    ht_text expression = {0};
    model_must(&plain, model_graph(&plain, model->type, model->json, model->request, 2));
    bool some = choose(plain.g, round, &expression);
    ht_train_setting setting = {"freeze", expression.data};
    if (some) {
        model_start(&whole, model->type, model->json, model->request, &opts);
        opts.settings = &setting;
        opts.setting_count = 1;
        model_start(&frozen, model->type, model->json, model->request, &opts);
        model_must(&whole, ht_session_run(whole.s, "micro_first"));
        model_must(&frozen, ht_session_run(frozen.s, "micro_first"));
        compare(plain.g, round, &whole, &frozen);
        model_stop(&whole);
        model_stop(&frozen);
    }
    ht_text_free(&expression);
    model_stop(&plain);
}

static void freeze__keeps_the_gradients_of_all_others(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL; i++)
        for (size_t round = 0; round < ROUNDS; round++) freeze_some(&small[i], round);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(freeze__keeps_the_gradients_of_all_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
