#include "train/folder.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/format.h"
#include "train/metrics.h"
#include "train/seal.h"
#include "train/snapshot_folder.h"

enum { MOST_DEPTH = 8, MOST_ALIVE = 30 };

static const char resolved_name[] = "config.resolved.json", memory_name[] = "memory.json";

ht_status ht_folder_path(ht_context *ctx, char **out, const char *folder, const char *name)
{
    size_t length = strlen(folder);
    ht_text text = {0};
    ht_text_add(&text, "%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/", name);
    *out = text.failed ? NULL : text.data;
    if (!*out) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a path");
    return HT_OK;
}

ht_status ht_folder_make(ht_context *ctx, const char *folder)
{
    char path[4096];
    int length = snprintf(path, sizeof path, "%s", folder);
    if (length == 0 || length >= (int)sizeof path)
        HT_FAIL(ctx, HT_EINVAL, "train.output: '%.40s' is no path for a folder", folder);
    for (int i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        char keep = path[i];
        path[i] = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
        path[i] = keep;
    }
    struct stat about;
    if (stat(path, &about) != 0) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(about.st_mode)) HT_FAIL(ctx, HT_EIO, "%s: it is no folder", path);
    return HT_OK;
}

/* ---- a run that is there already ---- */

static bool is_ours(const char *name)
{
    static const char *const names[] = {resolved_name, "snapshots", "numerics.jsonl", "numerics.html", ht_facts_file,
                                        ht_model_file, memory_name, "profile.json",   "ranks.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return strcmp(name, ht_target_file) == 0 || strcmp(name, ht_vocabulary_files[0]) == 0 ||
           strcmp(name, ht_vocabulary_files[1]) == 0 || ht_metrics_own(name);
}

/* A file, or a folder with what it holds; links are removed, not followed. */
static ht_status remove_tree(ht_context *ctx, const char *path, int depth)
{
    struct stat about;
    if (lstat(path, &about) != 0) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    DIR *entries = S_ISDIR(about.st_mode) && depth < MOST_DEPTH ? opendir(path) : NULL;
    ht_status status = HT_OK;
    for (struct dirent *entry; entries && status == HT_OK && (entry = readdir(entries));) {
        char *inside = NULL;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        status = ht_folder_path(ctx, &inside, path, entry->d_name);
        if (status == HT_OK) status = remove_tree(ctx, inside, depth + 1);
        free(inside);
    }
    if (entries) closedir(entries);
    if (status == HT_OK && remove(path) != 0) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    return status;
}

ht_status ht_folder_remove(ht_context *ctx, const char *path)
{
    return remove_tree(ctx, path, 0);
}

/* Only what bears the name of something that a run writes; other files of the folder stay. */
static ht_status remove_entry(ht_context *ctx, const char *folder, const char *name)
{
    char *path;
    HT_TRY(ht_folder_path(ctx, &path, folder, name));
    ht_status status = remove_tree(ctx, path, 0);
    free(path);
    return status;
}

/* They go before what they need beside them, the newest last: who is killed in between leaves a run that --resume goes
 * on with. What cannot be removed here is met again, and named, with the folder itself. */
static ht_status remove_snapshots(ht_context *ctx, const char *folder)
{
    char *path;
    ht_context aside = {0};
    ht_snapshot_entry *entries;
    size_t count;
    HT_TRY(ht_folder_path(ctx, &path, folder, "snapshots"));
    if (ht_snapshot_list(&aside, path, &entries, &count) == HT_OK) {
        while (count-- > 0) ht_snapshot_remove(path, entries[count]);
        free(entries);
    }
    free(path);
    return HT_OK;
}

ht_status ht_folder_claim(ht_context *ctx, const char *folder, ht_run_mode mode)
{
    if (mode == HT_RUN_RESUME) return HT_OK;
    if (mode == HT_RUN_FORCE) HT_TRY(remove_snapshots(ctx, folder));
    DIR *entries = opendir(folder);
    if (!entries && errno == ENOENT) return HT_OK;
    if (!entries) HT_FAIL(ctx, HT_EIO, "%s: %s", folder, strerror(errno));
    ht_status status = HT_OK;
    for (struct dirent *entry; status == HT_OK && (entry = readdir(entries));) {
        if (!is_ours(entry->d_name)) continue;
        status = mode == HT_RUN_FORCE
                     ? remove_entry(ctx, folder, entry->d_name)
                     : ht_fail(ctx, HT_EINVAL,
                               "%s holds a run already (%s): --resume goes on with it, --force removes it, "
                               "--set train.output=FOLDER takes another folder",
                               folder, entry->d_name);
    }
    closedir(entries);
    return status;
}

/* ---- what a run records of itself ---- */

/* Whole or not at all: a reader of the folder of a run that was killed finds no half of it. */
static ht_status write_whole(ht_context *ctx, const char *path, const char *text, size_t length)
{
    char other[4096];
    if (snprintf(other, sizeof other, "%s.new", path) >= (int)sizeof other)
        HT_FAIL(ctx, HT_EINVAL, "%s: the path is too long", path);
    FILE *file = fopen(other, "wbe");
    if (!file) HT_FAIL(ctx, HT_EIO, "%s: %s", other, strerror(errno));
    bool wrote = fwrite(text, 1, length, file) == length && fflush(file) == 0 && fsync(fileno(file)) == 0;
    int error = errno;
    if (fclose(file) != 0 && wrote) wrote = false, error = errno;
    if (wrote && rename(other, path) != 0) wrote = false, error = errno;
    if (wrote) return HT_OK;
    unlink(other);
    HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(error));
}

/* Sealed; the text is freed. */
static ht_status write_text(ht_context *ctx, const char *folder, const char *name, ht_text *text)
{
    char *path = NULL;
    ht_status status = ht_folder_path(ctx, &path, folder, name);
    ht_seal_add(text, HT_SEAL_KEY);
    if (status == HT_OK)
        status = text->failed ? ht_fail(ctx, HT_ENOMEM, "%s: out of memory", path)
                              : write_whole(ctx, path, text->data, text->length);
    ht_text_free(text);
    free(path);
    return status;
}

/* A model that is a file goes with the run. Its checksum, 0 where there is none. */
static ht_status copy_model(ht_context *ctx, const char *folder, const ht_config *config, uint64_t *checksum)
{
    const ht_field *file = ht_fields_find(ht_config_block(config, "model"), "file");
    char *path, *bytes = NULL;
    size_t length;
    *checksum = 0;
    if (!file || file->value->kind != HT_JSON_STRING) return HT_OK;
    HT_TRY(ht_folder_path(ctx, &path, folder, ht_model_file));
    ht_status status = ht_read_file(ctx, &bytes, &length, file->value->text);
    if (status == HT_OK) status = write_whole(ctx, path, bytes, length);
    if (status == HT_OK) *checksum = ht_checksum_bytes(bytes, length);
    free(bytes);
    free(path);
    return status;
}

/* Further members of an object that is complete: where relative paths of the job begin, and the model's file. */
static void add_members(ht_text *text, const char *data_folder, uint64_t checksum)
{
    char here[4096];
    ht_json_writer json = {.text = text};
    if (!getcwd(here, sizeof here) || text->failed) return;
    while (text->length > 0 && strchr("}\n", text->data[text->length - 1])) text->length--;
    ht_text_add(text, ",\n  \"folder\": ");
    ht_json_put_text(&json, NULL, data_folder ? data_folder : here);
    if (checksum) ht_text_add(text, ",\n  \"%s\": \"%016" PRIx64 "\"", ht_model_file, checksum);
    ht_text_add(text, "\n}\n");
}

static ht_status write_config(ht_context *ctx, const char *folder, const ht_job *job)
{
    const ht_config *config = job->config;
    uint64_t checksum;
    ht_text text = {0};
    HT_TRY(copy_model(ctx, folder, config, &checksum));
    ht_config_print_json(&text, config);
    add_members(&text, job->data_folder, checksum);
    return write_text(ctx, folder, resolved_name, &text);
}

static ht_status write_target(ht_context *ctx, const char *folder, const ht_target *target)
{
    ht_text text = {0};
    ht_target_print(&text, target);
    return write_text(ctx, folder, ht_target_file, &text);
}

static ht_status write_vocabulary(ht_context *ctx, const char *folder, int which, const ht_vocabulary *vocabulary)
{
    ht_text text = {0};
    if (!vocabulary) return HT_OK;
    ht_vocabulary_print(vocabulary, &text);
    return write_text(ctx, folder, ht_vocabulary_files[which], &text);
}

static ht_status write_facts(ht_context *ctx, const char *folder, const ht_data *data)
{
    ht_text text = {0};
    ht_data_print_facts(data, &text);
    return write_text(ctx, folder, ht_facts_file, &text);
}

/* The moments of a segment, of which `at` is the first. */
static void put_live_bytes(ht_json_writer *json, const ht_memory_moment *at)
{
    const ht_plan_segment *s = at->segment;
    ht_json_line(json, 2);
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "name", s->name);
    ht_json_begin_array(json, "live_bytes");
    for (size_t i = 0; i < s->instr_count; i++) ht_json_put_int(json, NULL, at[i].values + at[i].workspace);
    ht_json_end_array(json);
    ht_json_begin_array(json, "workspace_bytes");
    for (size_t i = 0; i < s->instr_count; i++) ht_json_put_int(json, NULL, at[i].workspace);
    ht_json_end_array(json);
    ht_json_end_object(json);
}

static void put_peak(ht_json_writer *json, const ht_memory_timeline *t)
{
    const ht_memory_moment *peak = &t->moments[t->peak];
    ht_json_line(json, 1);
    ht_json_begin_object(json, "peak");
    ht_json_put_text(json, "segment", peak->segment->name);
    ht_json_put_int(json, "instruction", (int64_t)peak->instr);
    ht_json_put_text(json, "op", ht_instr_op(&peak->segment->instrs[peak->instr]));
    ht_json_put_text(json, "layer", ht_instr_layer(peak->segment, peak->instr));
    ht_json_end_object(json);
    ht_memory_timeline_alive_json(t, json, MOST_ALIVE);
}

/* For halftone report: bytes by heading, what is alive in main by instruction of a step, and which tensors at the peak. Written and never read by a
 * run: who looks at it later need not plan again, for which data and machine would have to be there. */
static ht_status write_memory(ht_context *ctx, const char *folder, const ht_plan *plan)
{
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    ht_byte_table bytes = ht_plan_byte_table(plan);
    ht_memory_timeline t;
    ht_status status = ht_plan_memory_timeline(&t, plan, "train");
    ht_json_begin_object(&json, NULL);
    ht_json_put_int(&json, "plan_bytes", ht_plan_bytes(plan));
    ht_json_put_int(&json, "main_bytes", ht_plan_bytes_in(plan, HT_SPACE_MAIN));
    ht_json_put_int(&json, "transient_bytes", ht_plan_space_bytes(plan, HT_SPACE_MAIN, HT_AREA_TRANSIENT));
    ht_byte_table_json(&json, "bytes", &bytes);
    ht_json_line(&json, 1);
    ht_json_begin_array(&json, "segments");
    for (size_t i = 0; i < t.count; i += t.moments[i].segment->instr_count) put_live_bytes(&json, &t.moments[i]);
    ht_json_end_array(&json);
    if (t.count) put_peak(&json, &t);
    ht_json_end_object(&json);
    ht_text_add(&text, "\n");
    ht_memory_timeline_free(&t);
    if (status == HT_OK) return write_text(ctx, folder, memory_name, &text);
    ht_text_free(&text);
    return status;
}

ht_status ht_folder_record(ht_context *ctx, const char *folder, const ht_job *job)
{
    HT_TRY(ht_folder_make(ctx, folder));
    HT_TRY(write_facts(ctx, folder, job->data));
    HT_TRY(write_vocabulary(ctx, folder, 0, ht_data_vocabulary(job->data)));
    HT_TRY(write_vocabulary(ctx, folder, 1, ht_data_source_vocabulary(job->data)));
    HT_TRY(write_target(ctx, folder, &job->target));
    HT_TRY(write_memory(ctx, folder, job->plan));
    return write_config(ctx, folder, job);
}

void ht_folder_list(ht_json_writer *json, const char *key, const ht_job *job)
{
    ht_json_begin_array(json, key);
    ht_json_put_text(json, NULL, ht_target_file);
    ht_json_put_text(json, NULL, ht_facts_file);
    if (ht_data_vocabulary(job->data)) ht_json_put_text(json, NULL, ht_vocabulary_files[0]);
    if (ht_data_source_vocabulary(job->data)) ht_json_put_text(json, NULL, ht_vocabulary_files[1]);
    ht_json_end_array(json);
}

/* ---- and back ---- */

ht_status ht_folder_read_sealed(ht_context *ctx, const char *path, char **text, size_t *length, bool *sealed)
{
    HT_TRY(ht_read_file(ctx, text, length, path));
    ht_status status = ht_seal_check(ctx, path, HT_SEAL_KEY, *text, *length, sealed);
    if (status == HT_OK) return HT_OK;
    free(*text);
    *text = NULL;
    return status;
}

ht_status ht_folder_check(ht_context *ctx, const char *folder, const char *name, bool *there)
{
    char *path, *text;
    size_t length;
    bool sealed;
    *there = false;
    HT_TRY(ht_folder_path(ctx, &path, folder, name));
    ht_status status = HT_OK;
    if (access(path, F_OK) == 0) {
        status = ht_folder_read_sealed(ctx, path, &text, &length, &sealed);
        if (status == HT_OK) free(text);
        *there = status == HT_OK;
    }
    free(path);
    return status;
}

ht_status ht_folder_require(ht_context *ctx, const char *folder, const char *name)
{
    char *path, *text = NULL;
    size_t length;
    bool sealed = false;
    HT_TRY(ht_folder_path(ctx, &path, folder, name));
    ht_status status = ht_folder_read_sealed(ctx, path, &text, &length, &sealed);
    if (status == HT_OK && !sealed)
        status = ht_fail(ctx, HT_EPARSE, "%s: it does not end with its checksum: damaged or edited", path);
    free(text);
    free(path);
    return status;
}
