#include "model_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void model_must(const model_fixture *w, ht_status status)
{
    context_must(w->ctx, status);
}

ht_status model_graph(model_fixture *w, const char *type, const char *json, ht_model_request request, int threads)
{
    memset(w, 0, sizeof *w);
    w->ctx = context_create(threads, NULL);
    const ht_json *object;
    w->arena = ht_arena_create();
    assert_non_null(w->arena);
    w->request = request;
    w->request.model = ht_model_find(type, NULL);
    assert_non_null(w->request.model);
    HT_TRY(ht_json_parse(w->ctx, w->arena, "test", json, strlen(json), &object));
    HT_TRY(ht_fields_read(&w->fields, w->ctx, w->request.model->keys, "model", object));
    w->request.fields = w->fields;
    return ht_model_create(&w->g, w->ctx, &w->request);
}

static void plan_and_write(model_fixture *w, const ht_plan_opts *planning)
{
    ht_session_opts opts = HT_SESSION_OPTS;
    opts.seed = 7;
    model_must(w, ht_plan_create(&w->plan, w->g, planning));
    model_must(w, ht_session_create(&w->s, w->plan, &opts));
    model_write_inputs(w, "eval");
}

void model_start_planned(model_fixture *w, const char *type, const char *json, ht_model_request request,
                         const ht_train_opts *opts, const ht_plan_opts *planning, int threads)
{
    request.training = true;
    model_must(w, model_graph(w, type, json, request, threads));
    model_must(w, ht_graph_train(w->g, opts));
    plan_and_write(w, planning);
}

void model_start_threads(model_fixture *w, const char *type, const char *json, ht_model_request request,
                         const ht_train_opts *opts, int threads)
{
    model_start_planned(w, type, json, request, opts, NULL, threads);
}

void model_start(model_fixture *w, const char *type, const char *json, ht_model_request request,
                 const ht_train_opts *opts)
{
    model_start_threads(w, type, json, request, opts, 2);
}

void model_start_plain(model_fixture *w, const char *type, const char *json, ht_model_request request)
{
    model_must(w, model_graph(w, type, json, request, 2));
    plan_and_write(w, NULL);
}

void model_stop(model_fixture *w)
{
    ht_session_free(w->s);
    ht_plan_free(w->plan);
    ht_graph_free(w->g);
    ht_fields_free(w->fields);
    ht_arena_free(w->arena);
    ht_context_free(w->ctx);
}

void model_refused(const char *type, const char *json, ht_model_request request, const char *word)
{
    model_fixture w;
    assert_int_not_equal(model_graph(&w, type, json, request, 1), HT_OK);
    if (!strstr(ht_context_message(w.ctx), word)) print_error("no '%s' in: %s\n", word, ht_context_message(w.ctx));
    assert_non_null(strstr(ht_context_message(w.ctx), word));
    assert_null(w.g);
    model_stop(&w);
}

/* ---- numbers ---- */

double model_number(const char *name, int64_t index)
{
    double offset = 0;
    for (size_t i = 0; name[i]; i++) offset += (double)(i + 1) * (unsigned char)name[i];
    double x = sin((double)index * 12.9898 + offset * 0.1) * 43758.5453;
    return x - floor(x) - 0.5;
}

static int64_t integer(const model_fixture *w, const char *name, int64_t index)
{
    const ht_model_request *r = &w->request;
    double u = model_number(name, index) + 0.5;
    if (strcmp(name, "source") == 0) return (int64_t)(u * (double)r->source_vocabulary);
    if (strcmp(name, "source_length") == 0) return 1 + (int64_t)(u * (double)r->source_length);
    if (strcmp(name, "length") == 0) return 1 + (int64_t)(u * (double)r->length);
    if (strcmp(name, "label") == 0) return (int64_t)(u * (double)r->classes);
    if (strcmp(name, "positions") == 0) return index % r->length % (r->length / 2);
    if (strcmp(name, "documents") == 0) return index % r->length / (r->length / 2);
    /* Every fifth target does not count. */
    if (strcmp(name, "targets") == 0 && index % 5 == 3) return -1;
    return (int64_t)(u * (double)r->vocabulary);
}

void model_write_inputs(const model_fixture *w, const char *segment)
{
    int at = ht_segment_find(w->g, segment);
    assert_true(at >= 0);
    const ht_segment *s = &w->g->segments[at];
    for (size_t i = 0; i < s->input_count; i++) {
        const ht_value *v = ht_value_of(w->g, s->inputs[i]);
        int64_t n = ht_type_elems(&v->type);
        double *data = calloc((size_t)n + 1, sizeof *data);
        assert_non_null(data);
        for (int64_t k = 0; k < n; k++)
            data[k] = ht_dtype_is_float(v->type.dtype) ? 2 * model_number(v->name, k) : (double)integer(w, v->name, k);
        model_must(w, ht_session_write_f64(w->s, v->name, data, (size_t)n));
        free(data);
    }
}

void model_set_parameters(const model_fixture *w)
{
    for (size_t i = 0; i < w->g->state_count; i++) {
        const ht_value *v = ht_value_of(w->g, w->g->states[i].value);
        size_t length = strlen(v->name);
        bool statistic = length > 8 && strstr(v->name, ".running_") != NULL;
        if (!w->g->states[i].trained && !statistic) continue;
        bool around_one = v->type.rank == 1 &&
                          (strcmp(v->name + length - 6, "weight") == 0 || strcmp(v->name + length - 3, "var") == 0);
        int64_t n = ht_type_elems(&v->type);
        double *data = calloc((size_t)n + 1, sizeof *data);
        assert_non_null(data);
        for (int64_t k = 0; k < n; k++) data[k] = (around_one ? 1 : 0) + 0.4 * model_number(v->name, k);
        model_must(w, ht_session_write_f64(w->s, v->name, data, (size_t)n));
        free(data);
    }
}

float model_read_f32(const model_fixture *w, const char *name)
{
    float value = 0;
    model_must(w, ht_session_read(w->s, name, &value, sizeof value));
    return value;
}

int64_t model_read_i64(const model_fixture *w, const char *name)
{
    int64_t value = 0;
    model_must(w, ht_session_read(w->s, name, &value, sizeof value));
    return value;
}

void model_write_f32(const model_fixture *w, const char *name, float value)
{
    model_must(w, ht_session_write(w->s, name, &value, sizeof value));
}
