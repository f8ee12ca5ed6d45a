#include "train/init_from.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "train/range_tensors.h"
#include "train/snapshot_folder.h"
#include "train/snapshot_tensors.h"
#include "train/tensor_names.h"

/* A tensor of the file, under its name in the model. */
typedef struct source_tensor {
    const ht_named_array *is;
    const char *name; /* NULL: left out by the map */
    bool used;
} source_tensor;

typedef struct matching {
    ht_context *ctx;
    const ht_train_config *config;
    const ht_run_request *request;
    char path[HT_PATH_BYTES]; /* of the file */
    ht_safetensors *file;
    ht_tensor_names *names;
    source_tensor *sources; /* sorted by name, those that are left out last */
    size_t source_count;
    ht_snapshot_tensor_list list;
    const ht_named_array **from; /* by item of the list; NULL: none */
    ht_arena *arena;             /* of tensors that the file has in another form */
    size_t wanted, matched;
    ht_text problems; /* a line each */
    size_t problem_count;
} matching;

static void tell(const matching *m, const char *line)
{
    if (m->request->on_note) m->request->on_note(m->request->arg, line);
}

/* ---- the file ---- */

static ht_status take_weights(void *arg, const char *path)
{
    matching *m = arg;
    return ht_snapshot_open_weights(&m->file, m->ctx, path, m->path);
}

/* Does the folder have such an entry? */
static bool holds(const char *folder, const char *name, mode_t kind)
{
    char path[HT_PATH_BYTES];
    struct stat about;
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && length < HT_PATH_BYTES && stat(path, &about) == 0 && (about.st_mode & S_IFMT) == kind;
}

const char *ht_init_from_run(const ht_train_config *config)
{
    return config->init_path && holds(config->init_path, "snapshots", S_IFDIR) ? config->init_path : NULL;
}

static ht_status open_source(matching *m)
{
    const char *path = m->request->init_weights ? m->request->init_weights : m->config->init_path;
    struct stat about;
    if (stat(path, &about) != 0) HT_FAIL(m->ctx, HT_EIO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(about.st_mode)) {
        if (holds(path, HT_MANIFEST_NAME, S_IFREG)) return take_weights(m, path);
        if (holds(path, "snapshots", S_IFDIR)) return ht_run_open_weights(&m->file, m->ctx, path, m->path);
        HT_FAIL(m->ctx, HT_EINVAL, "%s: the folder is neither a run's nor a snapshot", path);
    }
    int length = snprintf(m->path, sizeof m->path, "%s", path);
    if (length >= HT_PATH_BYTES) HT_FAIL(m->ctx, HT_EINVAL, "%s: the path is too long", path);
    return ht_safetensors_open(&m->file, m->ctx, path);
}

/* ---- names ---- */

static int by_name(const void *left, const void *right)
{
    const source_tensor *a = left, *b = right;
    if (!a->name || !b->name) return (a->name == NULL) - (b->name == NULL);
    return strcmp(a->name, b->name);
}

static ht_status name_sources(matching *m)
{
    m->source_count = ht_safetensors_count(m->file);
    m->sources = calloc(m->source_count + 1, sizeof *m->sources);
    if (!m->sources) HT_FAIL(m->ctx, HT_ENOMEM, "%s: out of memory", m->path);
    HT_TRY(ht_tensor_names_create(&m->names, m->ctx, m->config->init_map));
    for (size_t i = 0; i < m->source_count; i++) {
        m->sources[i].is = ht_safetensors_at(m->file, i);
        HT_TRY(ht_tensor_names_map(m->names, m->sources[i].is->name, &m->sources[i].name));
    }
    qsort(m->sources, m->source_count, sizeof *m->sources, by_name);
    for (size_t i = 1; i < m->source_count && m->sources[i].name; i++)
        if (strcmp(m->sources[i - 1].name, m->sources[i].name) == 0)
            HT_FAIL(m->ctx, HT_EINVAL, "map: '%s' and '%s' of %s both become '%s'", m->sources[i - 1].is->name,
                    m->sources[i].is->name, m->path, m->sources[i].name);
    return HT_OK;
}

/* ---- what fits ---- */

static void add_problem(matching *m, const char *name, const char *what)
{
    ht_text_add(&m->problems, "%s%s: %s", m->problem_count++ ? "\n" : "", name, what);
}

static bool same_shape(const ht_array *a, const ht_array *b)
{
    return a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

/* Numbers of any width become those of the model; what it counts or decides stays of its type. */
static bool convertible(const ht_array *from, const ht_array *to)
{
    ht_dtype dtype = ht_element_dtype(from->element);
    if (from->element == to->element) return true;
    return dtype != HT_DTYPE_COUNT && ht_dtype_is_float(dtype) && ht_dtype_is_float(ht_element_dtype(to->element));
}

/* "fc.weight from net.0.weight: F16 [8, 4] as F32". */
static void tell_match(const matching *m, const ht_snapshot_tensor *to, const ht_named_array *from)
{
    ht_text line = {0};
    ht_text_add(&line, "init_from: %s", to->name);
    if (strcmp(to->name, from->name) != 0) ht_text_add(&line, " from %s", from->name);
    ht_text_add(&line, ": %s", ht_array_describe(&from->array).text);
    if (from->array.element != to->array.element) ht_text_add(&line, " as %s", ht_element_name(to->array.element));
    if (!line.failed) tell(m, line.data);
    ht_text_free(&line);
}

static source_tensor *find_source(const matching *m, const char *name)
{
    source_tensor key = {.name = name};
    return bsearch(&key, m->sources, m->source_count, sizeof key, by_name);
}

static const ht_named_array *use_source(void *arg, const char *name)
{
    source_tensor *found = find_source(arg, name);
    if (found) found->used = true;
    return found ? found->is : NULL;
}

static ht_status match_tensor(matching *m, size_t item, bool listing)
{
    const ht_snapshot_tensor *to = &m->list.items[item];
    const ht_tensor_source source = {m->ctx, m->arena, m->path, &m->list, use_source, m};
    const ht_named_array *found = use_source(m, to->name);
    char what[640];
    m->wanted++;
    if (!found) HT_TRY(ht_weight_convert(&source, to, &found));
    if (!found && ht_is_range(to->name)) return HT_OK;
    if (!found) {
        add_problem(m, to->name, "the model has it, and the file does not");
        return HT_OK;
    }
    if (same_shape(&found->array, &to->array) && convertible(&found->array, &to->array)) {
        m->from[item] = found;
        m->matched++;
        if (listing) tell_match(m, to, found);
        return HT_OK;
    }
    snprintf(what, sizeof what, "%s in the file, %s in the model", ht_array_describe(&found->array).text,
             ht_array_describe(&to->array).text);
    add_problem(m, to->name, what);
    return HT_OK;
}

/* Names of the map's table that the file does not have, and tensors of the file that nobody wants. */
static void find_unused(matching *m)
{
    const ht_json *map = m->config->init_map;
    for (const ht_json *entry = map && map->kind == HT_JSON_OBJECT ? map->child : NULL; entry; entry = entry->next)
        if (!ht_safetensors_find(m->file, entry->key))
            add_problem(m, entry->key, "the map has it, and the file does not");
    for (size_t i = 0; i < m->source_count; i++) {
        const source_tensor *source = &m->sources[i];
        if (!source->name || source->used || ht_is_range(source->name)) continue;
        char what[640] = "the file has it, and the model does not";
        if (strcmp(source->name, source->is->name) != 0)
            snprintf(what, sizeof what, "the file has it, and the model has no '%.500s'", source->name);
        add_problem(m, source->is->name, what);
    }
}

static void tell_problems(const matching *m)
{
    ht_text line = {0};
    for (const char *at = m->problems.data; at && *at; at += at[0] == '\n') {
        size_t length = strcspn(at, "\n");
        line.length = 0;
        ht_text_add(&line, "init_from: %.*s", (int)length, at);
        if (!line.failed) tell(m, line.data);
        at += length;
    }
    ht_text_free(&line);
}

static ht_status judge(matching *m)
{
    enum { FITS_MESSAGE = 600 }; /* beside the path; a message ends where the context's memory for it does */
    char line[HT_PATH_BYTES + 128];
    bool strict = m->config->init_strict, listed = !strict || m->problems.length > FITS_MESSAGE;
    if (m->problems.failed) HT_FAIL(m->ctx, HT_ENOMEM, "%s: out of memory", m->path);
    if (listed) tell_problems(m);
    if (strict && m->problem_count > 0)
        HT_FAIL(m->ctx, HT_EINVAL,
                "%s and the model differ in %zu tensors, and agree in %zu; \"strict\": false takes those%s%s", m->path,
                m->problem_count, m->matched, listed && m->request->on_note ? "" : ":\n",
                listed && m->request->on_note ? "" : m->problems.data);
    if (m->matched == 0) HT_FAIL(m->ctx, HT_EINVAL, "%s: no tensor of it fits one of the model", m->path);
    snprintf(line, sizeof line, "init_from: %zu of the model's %zu tensors come from %s", m->matched, m->wanted,
             m->path);
    tell(m, line);
    return HT_OK;
}

static ht_status match(matching *m, const ht_plan *plan, bool listing)
{
    HT_TRY(open_source(m));
    HT_TRY(name_sources(m));
    HT_TRY(ht_snapshot_tensor_find(&m->list, plan));
    m->from = calloc(m->list.count + 1, sizeof *m->from);
    m->arena = ht_arena_create();
    if (!m->from || !m->arena) HT_FAIL(m->ctx, HT_ENOMEM, "%s: out of memory", m->path);
    for (size_t i = 0; i < m->list.count; i++)
        if (m->list.items[i].file == HT_SNAPSHOT_WEIGHTS && !m->list.items[i].padding)
            HT_TRY(match_tensor(m, i, listing));
    if (!ht_plan_is_stage(plan)) find_unused(m); /* other stages use what this one does not */
    return judge(m);
}

/* ---- values ---- */

/* The file's numbers as those of the model; one that is not finite, there or by conversion, would spoil the training. */
static ht_status convert(const matching *m, const ht_named_array *from, const ht_array *to, void *bytes)
{
    ht_dtype dtype = ht_element_dtype(to->element);
    if (!ht_dtype_is_float(dtype) && to->element != HT_ELEMENT_BOOL) {
        memcpy(bytes, from->array.data, to->bytes);
        return HT_OK;
    }
    for (int64_t i = 0; i < to->count; i++) {
        double number = ht_array_number(&from->array, i);
        ht_store_f64(bytes, dtype, i, number);
        number = ht_load_f64(bytes, dtype, i);
        if (!isfinite(number))
            HT_FAIL(m->ctx, HT_EINVAL, "%s: element %" PRId64 " of '%s' is %g as %s", m->path, i, from->name, number,
                    ht_element_name(to->element));
    }
    return HT_OK;
}

static ht_status copy(const matching *m, ht_session *session)
{
    int derive = ht_plan_segment_find(session->plan, "derive");
    for (size_t i = 0; i < m->list.count; i++) {
        const ht_snapshot_tensor *to = &m->list.items[i];
        if (!m->from[i] || to->array.bytes == 0) continue;
        bool cut = to->cut.ranks > 0;
        char *bytes = malloc(to->array.bytes), *piece = cut ? malloc(to->array.bytes) : NULL;
        ht_status status = bytes && (piece || !cut) ? convert(m, m->from[i], &to->array, bytes)
                                                    : ht_fail(m->ctx, HT_ENOMEM, "out of memory for '%s'", to->name);
        ht_safetensors_forget(m->file, &m->from[i]->array);
        if (status == HT_OK && cut) ht_cut_take(&to->cut, &to->whole, bytes, piece);
        if (status == HT_OK)
            status = ht_executor_write(session->executor, to->place, (cut ? piece : bytes) + to->part_first,
                                       ht_snapshot_tensor_own_bytes(to));
        free(piece);
        free(bytes);
        HT_TRY(status);
    }
    if (derive >= 0) HT_TRY(ht_executor_run(session->executor, (size_t)derive, 0));
    return ht_executor_sync(session->executor);
}

/* A new run that removes what it starts from would leave nothing if it failed. */
static ht_status check_removal(const matching *m, const char *folder)
{
    char inside[PATH_MAX], output[PATH_MAX];
    if (m->request->mode != HT_RUN_FORCE || !realpath(m->path, inside) || !realpath(folder, output)) return HT_OK;
    size_t length = strlen(output);
    if (strncmp(inside, output, length) != 0 || inside[length] != '/') return HT_OK;
    HT_FAIL(m->ctx, HT_EINVAL, "%s lies in %s, which --force would remove", m->path, folder);
}

/* ---- the whole ---- */

/* Frees all; a failure is one of the key. */
static ht_status finish(matching *m, ht_status status)
{
    char why[sizeof m->ctx->message];
    ht_tensor_names_free(m->names);
    ht_snapshot_tensor_free(&m->list);
    ht_arena_free(m->arena);
    ht_safetensors_free(m->file);
    ht_text_free(&m->problems);
    free(m->sources);
    free(m->from);
    if (status == HT_OK) return HT_OK;
    snprintf(why, sizeof why, "%s", m->ctx->message);
    return ht_fail(m->ctx, status, "train.init_from: %s", why);
}

ht_status ht_init_from_check(const ht_job *job, const ht_plan *plan, const ht_run_request *request)
{
    matching m = {.ctx = job->ctx, .config = job->train_config, .request = request};
    if (!m.config->init_path && !request->init_weights) return HT_OK;
    return finish(&m, match(&m, plan, true));
}

ht_status ht_init_from_load(ht_job *job, const ht_run_request *request, const char *folder)
{
    matching m = {.ctx = job->ctx, .config = job->train_config, .request = request};
    if (!m.config->init_path && !request->init_weights) return HT_OK;
    ht_status status = match(&m, job->plan, false);
    if (status == HT_OK) status = check_removal(&m, folder);
    if (status == HT_OK) status = copy(&m, job->session);
    return finish(&m, status);
}
