/* Losses, logits and gradients of small models against PyTorch: tests/reference/make_models.py wrote the files and says
 * what is in them. */
#include <dirent.h>
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

typedef struct reference {
    char *text;
    const char *at; /* what is left to read */
    const char *file;
} reference;

/* The rest of the line that starts with `word`; the next call goes on behind it. NULL at the end of the file. */
static char *line_of(reference *r, const char *word)
{
    size_t length = strlen(word);
    while (*r->at) {
        const char *end = strchr(r->at, '\n');
        assert_non_null(end);
        const char *start = r->at;
        r->at = end + 1;
        if (strncmp(start, word, length) != 0 || start[length] != ' ') continue;
        char *line = calloc((size_t)(end - start) + 1, 1);
        assert_non_null(line);
        memcpy(line, start + length + 1, (size_t)(end - start) - length - 1);
        return line;
    }
    return NULL;
}

static double number_of(reference *r, const char *word)
{
    char *line = line_of(r, word);
    assert_non_null(line);
    double value = strtod(line, NULL);
    free(line);
    return value;
}

static ht_model_request read_request(reference *r)
{
    ht_model_request q = {.training = true, .logits = true};
    const struct {
        const char *name;
        int64_t *to;
    } sizes[] = {
        {"batch", &q.batch},           {"length", &q.length},
        {"vocabulary", &q.vocabulary}, {"source_length", &q.source_length},
        {"classes", &q.classes},       {"source_vocabulary", &q.source_vocabulary},
    };
    char *line = line_of(r, "request");
    assert_non_null(line);
    bool feature = false;
    for (char *rest = NULL, *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (feature) {
            q.feature[q.feature_rank++] = strtoll(word, NULL, 10);
            continue;
        }
        feature = strcmp(word, "feature") == 0;
        if (feature) continue;
        char *value = strtok_r(NULL, " ", &rest);
        assert_non_null(value);
        for (int t = 0; t < HT_TASK_COUNT; t++)
            if (strcmp(word, "task") == 0 && strcmp(value, ht_task_names[t]) == 0) q.task = (ht_task)t;
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            if (strcmp(word, sizes[i].name) == 0) *sizes[i].to = strtoll(value, NULL, 10);
    }
    free(line);
    return q;
}

static void assert_near(const reference *r, const char *what, double have, double want, double scale)
{
    bool near = fabs(have - want) <= 2e-5 * (fabs(want) + scale) + 1e-6;
    if (!near) print_error("%s: %s is %.9g, PyTorch has %.9g (scale %g)\n", r->file, what, have, want, scale);
    assert_true(near);
}

static void check_logits(const model_fixture *w, reference *r)
{
    char *line = line_of(r, "logits"), *end;
    assert_non_null(line);
    int64_t count = strtoll(line, &end, 10), every = strtoll(end, NULL, 10);
    free(line);
    double *logits = calloc((size_t)count, sizeof *logits), largest = 0;
    assert_non_null(logits);
    model_must(w, ht_session_run(w->s, "logits"));
    model_must(w, ht_session_read_f64(w->s, "logits", logits, (size_t)count));
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(logits[i]));
    const char *at = r->at;
    for (int64_t i = 0; i < count; i += every, at = end)
        assert_near(r, "a logit", logits[i], strtod(at, &end), largest);
    r->at = end + 1;
    free(logits);
}

static void check_gradients(const model_fixture *w, reference *r)
{
    size_t checked = 0, trained = 0;
    for (char *line; (line = line_of(r, "grad")); free(line), checked++) {
        char *dot_text = strchr(line, ' '), *norm_text, name[512];
        assert_non_null(dot_text);
        *dot_text++ = 0;
        double dot = strtod(dot_text, &norm_text), norm = strtod(norm_text, NULL), have = 0;
        ht_val v = ht_find(w->g, line);
        if (!v.id) print_error("%s: there is no %s\n", r->file, line);
        assert_true(v.id != 0);
        size_t n = (size_t)ht_type_elems(ht_type_of(w->g, v));
        double *grad = calloc(n, sizeof *grad);
        assert_non_null(grad);
        snprintf(name, sizeof name, "%s.grad", line);
        model_must(w, ht_session_read_f64(w->s, name, grad, n));
        for (size_t i = 0; i < n; i++) have += grad[i] * model_number("probe", (int64_t)i);
        assert_near(r, name, have, dot, 5 * norm);
        free(grad);
    }
    for (size_t i = 0; i < w->g->state_count; i++) trained += w->g->states[i].trained;
    assert_int_equal(checked, trained);
}

static void check_file(const char *path)
{
    model_fixture w;
    reference r = {.file = path};
    size_t length;
    ht_context *ctx = context_create(0, NULL);
    assert_int_equal(ht_read_file(ctx, &r.text, &length, path), HT_OK);
    ht_context_free(ctx);
    r.at = r.text;
    char *type = line_of(&r, "model");
    assert_non_null(type);
    char *json = strchr(type, ' ');
    *json++ = 0;
    model_start(&w, type, json, read_request(&r), NULL);
    model_set_parameters(&w);
    model_must(&w, ht_session_run(w.s, "eval"));
    double eval = number_of(&r, "eval"), train = number_of(&r, "train");
    assert_near(&r, "the loss in use", model_read_f32(&w, "loss"), eval, 0);
    check_logits(&w, &r);
    model_must(&w, ht_session_run(w.s, "micro_first"));
    assert_near(&r, "the loss in training", model_read_f32(&w, "loss"), train, 0);
    check_gradients(&w, &r);
    model_stop(&w);
    free(type);
    free(r.text);
}

static void model_torch__losses_logits_and_gradients_are_those_of_pytorch(void **state)
{
    (void)state;
    size_t files = 0;
    DIR *folder = opendir(HT_TEST_DIR "/reference/models");
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[1024];
        size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 4, ".txt") != 0) continue;
        snprintf(path, sizeof path, "%s/reference/models/%s", HT_TEST_DIR, entry->d_name);
        check_file(path);
        files++;
    }
    closedir(folder);
    assert_true(files >= 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_torch__losses_logits_and_gradients_are_those_of_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
