/* Reading a snapshot: everything is compared before anything is changed. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "train/range_tensors.h"
#include "train/snapshot.h"
#include "train/snapshot_folder.h"
#include "train/snapshot_tensors.h"

typedef struct reading {
    ht_context *ctx;
    ht_session *session;
    ht_arena *arena;
    ht_manifest manifest;
    ht_snapshot_tensor_list list;
    const ht_named_array **from; /* by item of the list; NULL: not in the files */
    char paths[HT_SNAPSHOT_FILES][HT_PATH_BYTES];
    ht_safetensors *files[HT_SNAPSHOT_FILES];
    bool *used[HT_SNAPSHOT_FILES]; /* by tensor of the file */
    int file_count;                /* 1: weights only */
    uint64_t model_hash;
} reading;

/* ---- what comes with the state ---- */

static ht_status own_meta(ht_context *ctx, const char *path, const ht_snapshot_meta *from, ht_snapshot_meta **out)
{
    size_t config = from->config_json ? strlen(from->config_json) + 1 : 0;
    size_t extra = from->extra ? strlen(from->extra) + 1 : 0;
    ht_snapshot_meta *meta = calloc(1, sizeof *meta + config + extra);
    if (!meta) HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory", path);
    char *texts = (char *)(meta + 1);
    *meta = *from;
    if (config) meta->config_json = memcpy(texts, from->config_json, config);
    if (extra) meta->extra = memcpy(texts + config, from->extra, extra);
    *out = meta;
    return HT_OK;
}

void ht_snapshot_meta_free(ht_snapshot_meta *meta)
{
    free(meta);
}

ht_status ht_snapshot_look(ht_context *ctx, const char *path, ht_snapshot_meta **meta)
{
    ht_manifest manifest;
    *meta = NULL;
    ht_arena *arena = ht_arena_create();
    if (!arena) HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory", path);
    ht_status status = ht_snapshot_manifest(&manifest, ctx, arena, path);
    if (status == HT_OK) status = own_meta(ctx, path, &manifest.meta, meta);
    ht_arena_free(arena);
    return status;
}

/* ---- comparing ---- */

/* One of the snapshot's files, whose bytes are those that the manifest says; `file` receives its path. */
static ht_status open_file(ht_safetensors **out, ht_context *ctx, const ht_manifest *manifest, const char *path,
                           int which, char file[HT_PATH_BYTES])
{
    const ht_stored_file *stored = &manifest->files[which];
    uint64_t checksum;
    int64_t bytes;
    struct stat about;
    int length = snprintf(file, HT_PATH_BYTES, "%s/%s", path, ht_snapshot_file_names[which]);
    if (length < 0 || length >= HT_PATH_BYTES) HT_FAIL(ctx, HT_EINVAL, "%s: the path is too long", path);
    if (stat(file, &about) != 0) HT_FAIL(ctx, HT_EIO, "%s: %s", file, strerror(errno));
    if (!S_ISREG(about.st_mode)) HT_FAIL(ctx, HT_EIO, "%s: not a file", file);
    bytes = (int64_t)about.st_size;
    if (bytes == stored->bytes) HT_TRY(ht_checksum_file(&checksum, &bytes, ctx, file));
    if (bytes != stored->bytes)
        HT_FAIL(ctx, HT_EPARSE, "%s: %" PRId64 " bytes, the manifest says %" PRId64, file, bytes, stored->bytes);
    if (checksum != stored->checksum)
        HT_FAIL(ctx, HT_EPARSE, "%s: checksum %016" PRIx64 ", the manifest says %016" PRIx64 ": the file is damaged",
                file, checksum, stored->checksum);
    return ht_safetensors_open(out, ctx, file);
}

ht_status ht_snapshot_open_weights(ht_safetensors **out, ht_context *ctx, const char *path, char file[HT_PATH_BYTES])
{
    ht_manifest manifest;
    ht_arena *arena = ht_arena_create();
    *out = NULL;
    ht_status status =
        arena ? ht_snapshot_manifest(&manifest, ctx, arena, path) : ht_fail(ctx, HT_ENOMEM, "%s: out of memory", path);
    if (status == HT_OK) status = open_file(out, ctx, &manifest, path, HT_SNAPSHOT_WEIGHTS, file);
    ht_arena_free(arena);
    return status;
}

static bool same_array(const ht_array *a, const ht_array *b)
{
    return a->element == b->element && a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

/* C has no third truth value: a byte of 2 would be undefined behaviour wherever it is read. */
static bool proper_values(const ht_array *array)
{
    if (array->element != HT_ELEMENT_BOOL) return true;
    for (size_t i = 0; i < array->bytes; i++)
        if (array->data[i] > 1) return false;
    return true;
}

/* State that goes from batch to batch has the rows of one; for a batch of another size it begins anew. */
static bool begins_anew(const ht_snapshot_tensor *wanted, const ht_array *found)
{
    const ht_array *own = &wanted->array;
    bool alike = own->element == found->element && own->rank == found->rank && own->rank > 0 &&
                 memcmp(own->shape + 1, found->shape + 1, (size_t)(own->rank - 1) * sizeof own->shape[0]) == 0;
    return alike && own->shape[0] != found->shape[0] && strncmp(wanted->name, "carry.", 6) == 0;
}

/* One of the files, while tensors of it are looked for. */
typedef struct searching {
    reading *r;
    int file;
} searching;

static const ht_named_array *find_tensor(void *arg, const char *name)
{
    const searching *s = arg;
    const ht_safetensors *file = s->r->files[s->file];
    const ht_named_array *found = ht_safetensors_find(file, name);
    if (found) s->r->used[s->file][found - ht_safetensors_at(file, 0)] = true;
    return found;
}

static ht_status match(reading *r, size_t item)
{
    const ht_snapshot_tensor *wanted = &r->list.items[item];
    const char *file = r->paths[wanted->file];
    searching search = {r, wanted->file};
    const ht_tensor_source source = {r->ctx, r->arena, file, &r->list, find_tensor, &search};
    const ht_named_array *found = find_tensor(&search, wanted->name);
    if (!found && (wanted->padding || wanted->optional)) return HT_OK;
    if (!found) HT_TRY(ht_weight_convert(&source, wanted, &found));
    if (!found) HT_FAIL(r->ctx, HT_EINVAL, "%s: there is no tensor '%s'", file, wanted->name);
    if (begins_anew(wanted, &found->array)) {
        ht_note(r->ctx, HT_LOG_WARN, "%s: '%s' is of a batch of another size and begins anew", file, wanted->name);
        return HT_OK;
    }
    if (!same_array(&found->array, &wanted->array))
        HT_FAIL(r->ctx, HT_ESHAPE, "%s: tensor '%s' is %s, the model's is %s", file, wanted->name,
                ht_array_describe(&found->array).text, ht_array_describe(&wanted->array).text);
    if (!proper_values(&found->array))
        HT_FAIL(r->ctx, HT_EPARSE, "%s: tensor '%s' is BOOL and holds a byte above 1", file, wanted->name);
    r->from[item] = found;
    if (r->file_count < HT_SNAPSHOT_FILES) HT_TRY(ht_range_check(r->ctx, file, found));
    return HT_OK;
}

static ht_status name_stranger(const reading *r, int file)
{
    for (size_t i = 0; i < ht_safetensors_count(r->files[file]); i++)
        if (!r->used[file][i])
            HT_FAIL(r->ctx, HT_EINVAL, "%s: the model has no state '%s'", r->paths[file],
                    ht_safetensors_at(r->files[file], i)->name);
    return HT_OK;
}

static ht_status compare(reading *r, const char *path)
{
    HT_TRY(ht_snapshot_manifest(&r->manifest, r->ctx, r->arena, path));
    for (int i = 0; i < r->file_count; i++) HT_TRY(open_file(&r->files[i], r->ctx, &r->manifest, path, i, r->paths[i]));
    HT_TRY(ht_snapshot_tensor_find(&r->list, r->session->plan));
    r->from = HT_NEW(r->arena, const ht_named_array *, r->list.count);
    bool failed = !r->from;
    for (int i = 0; i < r->file_count; i++)
        failed |= !(r->used[i] = HT_NEW(r->arena, bool, ht_safetensors_count(r->files[i]) + 1));
    if (failed) HT_FAIL(r->ctx, HT_ENOMEM, "%s: out of memory", path);
    for (size_t i = 0; i < r->list.count; i++)
        if (r->list.items[i].file < r->file_count) HT_TRY(match(r, i));
    /* Another plan of the model may lack tensors that training had, and its hash is its own. */
    if (r->file_count < HT_SNAPSHOT_FILES) return HT_OK;
    bool some = ht_plan_is_stage(r->session->plan); /* other stages read the others */
    for (int i = 0; i < r->file_count && !some; i++) HT_TRY(name_stranger(r, i));
    if (r->manifest.meta.model_hash != r->model_hash)
        HT_FAIL(r->ctx, HT_EINVAL, "%s: the snapshot is of another model, with tensors of the same names and shapes",
                path);
    return HT_OK;
}

/* ---- changing ---- */

/* NULL after a failure. */
static const uint8_t *take_piece(const reading *r, const ht_snapshot_tensor *to, const uint8_t *whole)
{
    uint8_t *piece = HT_NEW(r->arena, uint8_t, to->array.bytes / (size_t)to->cut.ranks);
    if (piece) {
        ht_cut_take(&to->cut, &to->whole, whole, piece);
        return piece;
    }
    ht_executor_drain(r->session->executor);
    ht_fail(r->ctx, HT_ENOMEM, "out of memory for '%s'", to->name);
    return NULL;
}

static ht_status copy(const reading *r)
{
    ht_executor *executor = r->session->executor;
    for (size_t i = 0; i < r->list.count; i++) {
        const ht_snapshot_tensor *to = &r->list.items[i];
        const uint8_t *zeros = NULL;
        if (to->file >= r->file_count || to->array.bytes == 0 || (!r->from[i] && to->optional && !to->padding))
            continue;
        if (!r->from[i] && !(zeros = HT_NEW(r->arena, uint8_t, to->array.bytes))) {
            ht_executor_drain(executor);
            HT_FAIL(r->ctx, HT_ENOMEM, "out of memory for '%s'", to->name);
        }
        const uint8_t *from = r->from[i] ? r->from[i]->array.data : zeros;
        if (r->from[i] && to->cut.ranks && !(from = take_piece(r, to, from))) return HT_ENOMEM;
        if (to->part) from += to->part_first;
        HT_TRY(ht_executor_send(executor, to->place, from, ht_snapshot_tensor_own_bytes(to)));
        if (r->from[i]) ht_safetensors_forget(r->files[to->file], &r->from[i]->array);
    }
    return ht_executor_sync(executor); /* the file's bytes go */
}

static ht_status read_files(ht_session *session, const char *path, int file_count, uint64_t model_hash,
                            ht_snapshot_meta **meta)
{
    ht_context *ctx = session->plan->ctx;
    reading *r = calloc(1, sizeof *r);
    ht_snapshot_meta *own = NULL;
    if (meta) *meta = NULL;
    if (!r) HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory", path);
    r->ctx = ctx;
    r->session = session;
    r->file_count = file_count;
    r->model_hash = model_hash;
    r->arena = ht_arena_create();
    ht_status status = r->arena ? compare(r, path) : ht_fail(ctx, HT_ENOMEM, "%s: out of memory", path);
    if (status == HT_OK && meta) status = own_meta(ctx, path, &r->manifest.meta, &own);
    if (status == HT_OK) status = copy(r);
    if (status == HT_OK) {
        int derive = ht_plan_segment_find(session->plan, "derive");
        if (derive >= 0) status = ht_executor_run(session->executor, (size_t)derive, 0);
    }
    for (int i = 0; i < HT_SNAPSHOT_FILES; i++) ht_safetensors_free(r->files[i]);
    ht_snapshot_tensor_free(&r->list);
    ht_arena_free(r->arena);
    free(r);
    if (status != HT_OK) ht_snapshot_meta_free(own);
    if (status == HT_OK && meta) *meta = own;
    return status;
}

ht_status ht_snapshot_read(ht_session *session, const char *path, ht_snapshot_meta **meta)
{
    return read_files(session, path, HT_SNAPSHOT_FILES, session->plan->model_hash, meta);
}

ht_status ht_snapshot_read_as(ht_session *session, const char *path, uint64_t model_hash)
{
    return read_files(session, path, HT_SNAPSHOT_FILES, model_hash, NULL);
}

ht_status ht_snapshot_read_weights(ht_session *session, const char *path, ht_snapshot_meta **meta)
{
    return read_files(session, path, HT_SNAPSHOT_WEIGHTS + 1, session->plan->model_hash, meta);
}
